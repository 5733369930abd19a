"""What a first hour asks for: one query's walk, exercises, sweeps, another order, two sizes of help."""

from __future__ import annotations

import re
from importlib.resources import files
from math import exp, sqrt
from pathlib import Path

import numpy as np
import pytest

from attncli.cli.commands import COMMANDS
from attncli.cli.main import LazyGroup

from .conftest import SAMPLES, Call

THREE = str(SAMPLES / "three-tokens.json")
BANK = [
    *("She visited the money bank, near the river bank", "--positions", "none"),
    *("--glove", str(SAMPLES / "bank.txt"), "--weights", str(SAMPLES / "bank.json")),
]
NEAR = ("--mask", str(SAMPLES / "near.json"))


def rows(text: str) -> dict[str, list[str]]:
    """The rows of a table in text by their labels, and its cells."""
    lines = (re.split(r" {2,}", line.strip()) for line in text.splitlines())
    return {label: cells for label, *cells in lines if cells}


def test_the_walk_of_a_query_ends_with_its_output(call: Call) -> None:
    """q3 = [1, 1], K = [1,1] [1,0] [0,1], V = [10,0] [0,10] [5,5]: by hand."""
    powers = [exp(s / sqrt(2)) for s in (2, 1, 1)]
    shares = [power / sum(powers) for power in powers]
    table = rows(call("compute", "--q", THREE, "--query", "q3", "--precision", "6").out)
    expected = ["2", f"{sqrt(2):.6f}", f"{powers[0]:.6f}", f"{shares[0]:.6f}", "10", "0"]
    assert table["k1"][:6] == expected
    assert table["Σ"][0] == f"{sum(powers):.6f}"
    output = [10 * shares[0] + 5 * shares[2], 10 * shares[1] + 5 * shares[2]]
    assert table["Σ"][-2:] == [f"{x:.6f}" for x in output]


def test_a_walk_knows_masks_sinks_dropout_and_blanks(call: Call) -> None:
    masked = rows(call("compute", "--q", THREE, "--query", "1", "--causal").out)
    assert masked["k2"][2:5] == ["-inf", "0", "0"]
    sinks = rows(call("compute", "--q", THREE, "--query", "1", "--sinks", "[0.5]").out)
    assert sinks["sink"][0] == f"{exp(0.5):.4f}"
    share = exp(0.5) / (exp(0.5) + 2 * exp(1 / sqrt(2)) + 1)
    assert sinks["sink"][1] == f"{share:.4f}"
    assert "dropped·V1" in call("compute", "--q", THREE, "--query", "1", "--dropout", "0.5").out
    blank = rows(call("compute", "--q", THREE, "--query", "1", "--blank").out)
    assert blank["k1"] == ["____"] * 4 + ["10", "0"] + ["____"] * 2


def test_the_banks_attend_to_what_is_near_them_and_are_alike_without_positions(call: Call) -> None:
    # learner.md of a reader outside: 93.8 %, 98.2 %, cosine 0.0565; 49.3 % each without the bias
    near = call("explain", *BANK, *NEAR).out
    assert '"bank" (5) attends to "money" (93.8 %)' in near
    assert '"bank" (10) attends to "river" (98.2 %)' in near
    assert "0.0565" in near
    assert '"bank" (10) attends to "money" and "river" (49.3 % each)' in call("explain", *BANK).out
    for name in ("bank(10)", "bank (10)", "10"):
        derived = call("explain", *BANK, *NEAR, "--cell", f'{name},","')
        assert (derived.code, 'S[bank (10),","]' in derived.out) == (0, True)
    assert "bank(5) or bank(10)" in call("explain", *BANK, "--query", "bank").err


def test_order_matters_with_positions_alone(call: Call) -> None:
    again = ("I love AI", "--against-order", "AI love I")
    none = ("--positions", "none")
    assert [call("explain", *again, *more).code for more in (none, ())] == [0, 1]
    for sentence, path in (("a b c", "a.json"), ("c a b", "b.json")):
        call("explain", sentence, *none, "--output", path)
    assert [call("diff", "a.json", "b.json", *more).code for more in ((), ["--by-name"])] == [1, 0]
    assert "other words" in call("explain", "I love AI", "--against-order", "AI love me").err


def test_an_exercise_is_small_and_each_seed_is_another(call: Call) -> None:
    drawn = [call(*f"compute --random 4x3 --seed {n} --format json".split()) for n in (1, 2)]
    q, k, v = (np.array(stage["value"]) for stage in drawn[0].json["steps"][:3])
    assert (q.shape, k.shape, v.shape) == ((4, 3), (4, 3), (4, 3))
    assert np.array_equal(q, np.rint(q))
    assert np.abs(q @ k.T).max() <= 6
    assert drawn[0].out != drawn[1].out
    assert {"____", "Q"} <= {*call("compute", "--random", "--blank").out.split()}


def test_without_the_scale_scores_grow_as_the_root_of_d_k(call: Call) -> None:
    """Vaswani et al. (2017), footnote 4: the variance of q·k is d_k."""
    swept = call("compute", "--random", "--sweep", "d_k", "1,16,256", "--format", "json").json
    plain, scaled = (np.array(stage["value"]) for stage in swept["steps"])
    assert plain[:, 0] == pytest.approx([1, 4, 16], rel=0.06)
    assert scaled[:, 0] == pytest.approx([1, 1, 1], rel=0.06)
    assert plain[2, 1] > 0.9
    assert plain[2, 3] < plain[0, 3] / 3


def test_a_sweep_of_the_scale_is_a_query_at_several_temperatures(call: Call) -> None:
    result = call("compute", "--q", THREE, "--sweep", "scale", "0,2", "--query", "q3", "--format",
                  "json")  # fmt: skip
    weights, spread = (np.array(stage["value"]) for stage in result.json["steps"])
    powers = np.exp([4.0, 2, 2])
    assert weights == pytest.approx(np.array([[1 / 3] * 3, powers / powers.sum()]))
    assert spread[0, 1] == pytest.approx(np.log2(3))  # bits of three keys alike


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_names_options_that_there_are(name: str, call: Call) -> None:
    done = call(name, "--help")
    lines = done.out.splitlines()
    assert (done.code, len(lines) <= 60, max(map(len, lines)) <= 80) == (0, True, True)
    params = LazyGroup().get_command(None, name).params
    group_of = {opt: param.rich_help_panel for param in params for opt in param.opts}
    assert {*re.findall(r"(?<![\w-])--[a-z-]+", done.out)} - {"--help"} <= {*group_of}
    for group, rows_of in re.findall(r"^([A-Z][a-z]+)\n((?:  .*\n)+)", done.out, re.MULTILINE):
        firsts = re.findall(r"^  (?:-o, )?(--[a-z-]+)", rows_of, re.MULTILINE)
        assert {group_of[option] for option in firsts} == {group}, firsts
    assert len(re.findall(rf"^  attncli {name}", done.out, re.MULTILINE)) == 3 or name == "examples"
    every = call(name, "--help", "all")
    assert (every.code, len(every.out) > len(done.out)) == (0, True)


def test_help_has_groups_and_pages(call: Call) -> None:
    masking = call("compute", "--help", "mask").out  # a group, by how it begins
    assert ("--window" in masking, "--softcap" in masking) == (True, False)
    assert "did you mean masking" in call("compute", "--help", "msking").err
    pages = {path.name[:-3] for path in (files("attncli") / "help").iterdir()} - {"comma"}
    assert pages <= set(call("help").out.split())
    shown = [call("help", page).out for page in sorted(pages)]
    assert not re.search(r"\w…", "".join(shown))  # a cell that is cut at 80 columns
    assert call("help", *sorted(pages)).out == "\n".join(shown)
    assert call("help", "-h").out == call("help").out
    assert call("help", "compute").out == call("compute", "-h").out
    assert "did you mean masks" in call("help", "mask").err


def test_matrices_of_latex_are_read(call: Call) -> None:
    q = r"\begin{bmatrix} 1 & \frac{1}{2} \\ 0 & \sqrt{2} \end{bmatrix}"
    value = call("compute", "--q", q, "--format", "json").json["steps"][0]["value"]
    assert value == [[1, 0.5], [0, pytest.approx(sqrt(2))]]
    call("compute", "--q", THREE, "--stage", "weights", "--output", "w.tex")
    array = re.search(r"\\begin\{array\}.*?\\end\{array\}", Path("w.tex").read_text(), re.DOTALL)
    assert array
    again = call("compute", "--q", array[0], "--format", "json").json["steps"][0]["value"]
    weights = call("compute", "--q", THREE, "--stage", "weights", "--format", "json").json
    expected = pytest.approx(np.array(weights["steps"][-1]["value"]), abs=5e-5)
    assert np.array(again) == expected  # without labels and sums
