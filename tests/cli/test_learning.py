"""What a first hour asks for: one query's walk, exercises, sweeps, another order, two sizes of help."""

import csv
import json
import re
from importlib.resources import files
from math import exp, sqrt
from pathlib import Path

import numpy as np
import pytest

from attncli.cli.main import LazyGroup
from attncli.cli.registry import COMMANDS
from tests.calls import SAMPLES, Call, arguments_of

THREE = str(SAMPLES / "three-tokens.json")
BANK = "'She visited the money bank, near the river bank' --positions none"
BANK += f" --vectors {SAMPLES / 'bank.txt'} --weights {SAMPLES / 'bank.json'}"
TWO = BANK.replace("bank.json", "two-heads.json")  # exp 6 / (exp 6 + 9 exp 0)
NEAR = f"{BANK} --mask {SAMPLES / 'near.json'}"
SAID = {  # a call: what it says, and after "!" what it does not
    # computed by readers outside: shares, cosines, and the pairs that changed as much as the first
    f"explain {NEAR}": ['"bank" (5) attends to "money" (93.8 %)', '"bank" (10) attends to "river" (98.2 %)', "0.0565", "the mask's numbers are added", "!become −inf", '"the" (3), "," and "the" (8) are all zeros', '"She" and "money": cosine 0 before, 1 after: moved closer together; 2 other pairs'],
    f"explain {BANK}": ['"bank" (10) attends to "money" and "river" (49.3 % each)', "16 other pairs"],
    f"""explain {NEAR} --cell 'bank(10),","'""": ['S[bank (10),","]', "O[bank (10),1] =", 'V[","]', "part of O[bank (10)]"],
    f"""explain {NEAR} --cell '10,"bank" (10)'""": ["S[bank (10),bank (10)]"],
    f"""explain {NEAR} --cell '",",the (3)'""": ["V[the (3)]", 'O[",",1] =', 'part of O[","]'],
    f"explain {TWO} --heads 2": ["bank (5)   money 97.8 %  river 97.8 %", "bank (10)  money 97.8 %"],
    f"explain {BANK} --query bank": ["bank(5) or bank(10)"],
    """explain 'the dog, the cat' --query '","'""": ['O[","]'],
    "explain 'the bank the bank' --query 'bank(3)'": ["the (1), bank (2), the (3), bank (4)"],
    "explain 'a b' --block encoder --layers 2 --query a": ["shown: layer 1 of 2"],
    "explain 'a b' --block encoder --d-output ones --stage backward.encoder.1.feed_forward.d_w_1 --work":
        ["dW₁ = N₁ᵀ (dG where G > 0)", "dW₁[1,1] ="],
    "compute --q '[[3, 4]]' --qk-norm --work": ["Q'[q1,1] = 3 / √((3² + 4²) / 2 + 1e-6) = 3 / 3.5355 = 0.8485"],
    "compute --q '[[3, 4]]' --qk-norm --q-gain '[2, 1]' --work": ["Q'[q1,1] = 2·3 / √((3² + 4²) / 2 + 1e-6) = 2·3 / 3.5355 = 1.6971"],
    "explain 'the bank' --vectors builtin": ["left out: 84 columns", "!weight·V5"],
    "explain 'the bank' --vectors builtin --query bank": ["weight·V4", "!weight·V5", "4 of the 100 columns"],
    "explain 'I love AI' --against-order 'AI love I' --positions none": ["attention ignores the order"],
    "explain 'I love AI' --against-order 'AI love I'": ["order matters"],
    "explain 'I love AI' --against-order 'AI love me'": ["other words"],
    "posenc --len 5 --dim 4 --cell 5,0": ["no position '5'", "a number from 0"],
    f"compute --q {THREE} --tiles 2": ["\nq         Q ", "\nv         V ", "!v         V₁"],
    f"compute --q {THREE} --sweep scale 1,2 --causal --query q2": ["\ncausal", "  ///  1", "rows are scales", "in bits"],
    f"compute --q {THREE} --query q3 --format csv": ["\nΣ,,,8.169480342077872,1.0,,,6.2761738261"],
    f"check --q {THREE} --d-output ones --observed [[0,0],[0,0],[0,0]] --stage d_q": ["!alone gives", "this input cannot show"],
}  # fmt: skip


def rows(text: str) -> dict[str, list[str]]:
    """The rows of a table in text by their labels, and its cells."""
    lines = (re.split(r" {2,}", line.strip()) for line in text.splitlines())
    return {label: cells for label, *cells in lines if cells}


def test_the_walk_of_a_query_ends_with_its_output(call: Call) -> None:
    """q3 = [1, 1], K = [1,1] [1,0] [0,1], V = [10,0] [0,10] [5,5]: by hand."""
    powers = [exp(s / sqrt(2)) for s in (2, 1, 1)]
    shares = [power / sum(powers) for power in powers]
    table = rows(call("compute", "--q", THREE, "--query", "q3", "--precision", "6").out)
    assert table["k1"][:6] == f"2 {sqrt(2):.6f} {powers[0]:.6f} {shares[0]:.6f} 10 0".split()
    output = [10 * shares[0] + 5 * shares[2], 10 * shares[1] + 5 * shares[2]]
    assert [table["Σ"][at] for at in (0, -2, -1)] == [f"{x:.6f}" for x in (sum(powers), *output)]


def test_a_walk_knows_masks_sinks_dropout_and_blanks(call: Call) -> None:
    one = ("compute", "--q", THREE, "--query", "1")
    assert rows(call(*one, "--causal").out)["k2"][2:5] == ["-inf", "0", "0"]
    sinks = rows(call(*one, "--sinks", "[0.5]").out)
    share = exp(0.5) / (exp(0.5) + 2 * exp(1 / sqrt(2)) + 1)
    assert sinks["sink"][:2] == [f"{exp(0.5):.4f}", f"{share:.4f}"]
    assert "dropped·V1" in call(*one, "--dropout", "0.5").out
    assert rows(call(*one, "--blank").out)["k1"] == [*["____"] * 4, "10", "0", *["____"] * 2]


def test_the_table_of_a_query_as_csv_has_no_numbers_where_there_are_none(call: Call) -> None:
    text = call("compute", "--q", THREE, "--query", "q3", "--sinks", "[0.5]", "--format", "csv").out
    head, *_, sink, total = csv.reader(text.splitlines())
    assert head[:4] == ["contributions", "q·k", "scaled", "exp"]
    assert (sink[:3], sink[5:], total[:3], total[5:7]) == (
        ["sink", "", ""],
        [""] * 4,
        ["Σ", "", ""],
        ["", ""],
    )
    assert "NaN" not in text


@pytest.mark.parametrize("line", SAID)
def test_what_is_said(line: str, call: Call) -> None:
    done = call(*arguments_of(line))
    for text in SAID[line]:
        assert (text.removeprefix("!") in done.out + done.err) != text.startswith("!")


def test_maps_of_ten_tokens_are_not_wrapped_at_80_columns(call: Call) -> None:
    shown = call(*arguments_of(f"explain {NEAR} --width 80")).out
    assert shown.count("\n  She ") == 13  # E, Q, K, V, S, Z, L, A, O, H and three tables of cosines


def test_order_matters_with_positions_alone(call: Call) -> None:
    again, none = ("I love AI", "--against-order", "AI love I"), ("--positions", "none")
    assert [call("explain", *again, *more).code for more in (none, ())] == [0, 1]
    for sentence, path in (("a b c", "a.json"), ("c a b", "b.json")):
        call("explain", sentence, *none, "--output", path)
    assert [call("diff", "a.json", "b.json", *more).code for more in ((), ["--by-name"])] == [1, 0]


def test_an_exercise_is_small_and_each_seed_is_another(call: Call) -> None:
    drawn = [call(*f"compute --random 4x3 --seed {n} --format json".split()) for n in (1, 2)]
    q, k, v = (np.array(stage["value"]) for stage in drawn[0].json["steps"][:3])
    assert (q.shape, k.shape, v.shape) == ((4, 3), (4, 3), (4, 3))
    assert (np.array_equal(q, np.rint(q)), np.abs(q @ k.T).max() <= 6) == (True, True)
    assert drawn[0].out != drawn[1].out
    assert "____" in call("compute", "--random", "--blank").out


def test_without_the_scale_scores_grow_as_the_root_of_d_k(call: Call) -> None:
    """Vaswani et al. (2017), footnote 4: the variance of q·k is d_k."""
    swept = call("compute", "--random", "--sweep", "d_k", "1,16,256", "--format", "json").json
    plain, scaled = (np.array(stage["value"]) for stage in swept["steps"])
    assert [*plain[:, 0], *scaled[:, 0]] == pytest.approx([1, 4, 16, 1, 1, 1], rel=0.06)
    assert (plain[2, 1] > 0.9, plain[2, 3] < plain[0, 3] / 3) == (True, True)


def test_a_temperature_divides_the_scaled_scores_and_check_says_where_it_is_missing(
    call: Call,
) -> None:
    """q3 of the three tokens: scores 2, 1 and 1, over √2 · 2."""
    powers = [exp(s / sqrt(8)) for s in (2, 1, 1)]
    shares = [power / sum(powers) for power in powers]
    for stage in ("weights", "output"):
        words = ("compute", "--q", THREE, "--stage", stage, "--format", "json")
        Path(f"{stage}.json").write_text(call(*words, "--temperature", "2").out)
        Path(f"plain-{stage}.json").write_text(call(*words).out)
    weights = json.loads(Path("weights.json").read_text())["steps"][0]["value"]
    assert weights[2] == pytest.approx(shares)
    check = ("check", "--q", THREE, "--temperature", "2", "--observed")
    assert call(*check, "weights.json").code == 0
    for stage in ("weights", "output"):
        missing = call(*check, f"plain-{stage}.json")
        assert (missing.code, "without --temperature" in missing.out) == (1, True)
    q = json.loads(Path(THREE).read_text())
    Path("said.json").write_text(json.dumps({**q, "temperature": 2}))
    said = call("compute", "said.json", "--stage", "weights", "--format", "json").json
    assert said["steps"][0]["value"] == weights
    swept = call("compute", "--q", THREE, "--sweep", "temperature", "1,2", "--query", "q3")
    assert f"temperature 2  {'  '.join(f'{x:.4f}' for x in shares)}" in swept.out


def test_a_sweep_of_the_scale_is_a_query_at_several_temperatures(call: Call) -> None:
    result = call(*f"compute --q {THREE} --sweep scale 0,2 --query q3 --format json".split())
    weights, spread = (np.array(stage["value"]) for stage in result.json["steps"])
    powers = np.exp([4.0, 2, 2])
    assert weights == pytest.approx(np.array([[1 / 3] * 3, powers / powers.sum()]))
    assert spread[0, 1] == pytest.approx(np.log2(3))  # bits of three keys alike


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_names_options_that_there_are(name: str, call: Call) -> None:
    done = call(name, "--help")
    wide = [line for line in done.out.splitlines() if len(line) > 80]
    assert (done.code, done.out.count("\n") <= 60, wide) == (0, True, [])
    params = LazyGroup().get_command(None, name).params
    group_of = {opt: param.rich_help_panel for param in params for opt in param.opts}
    assert {*re.findall(r"(?<![\w-])--[a-z-]+", done.out)} - {"--help"} <= {*group_of}
    for group, rows_of in re.findall(r"^([A-Z][a-z]+)\n((?:  .*\n)+)", done.out, re.MULTILINE):
        firsts = re.findall(r"^  (?:-o, )?(--[a-z-]+)", rows_of, re.MULTILINE)
        assert {group_of[option] for option in firsts} == {group}, firsts
    assert len(re.findall(rf"^  attncli {name}", done.out, re.MULTILINE)) == 3 or name == "examples"
    assert len(call(name, "--help", "all").out) > len(done.out)


@pytest.mark.parametrize("name", ["compute", "explain"])
def test_what_learners_never_use_is_in_groups_apart(name: str, call: Call) -> None:
    *boxes, last = call(name, "--help", "all").out.split("╰")
    named = {}
    for group in ("kernels", "libraries"):
        command = f"attncli {name} --help {group}:"
        named[group] = {*re.findall(r"--[a-z-]+", last.partition(command)[2].partition(":")[0])}
        named[group] -= {"--help"}  # of the next line
        listed = {*re.findall(r"│ (--[a-z-]+)", call(name, "--help", group).out)} - {"--help"}
        assert named[group] == listed
    assert {"--empty-rows", "--lse-base"} <= named["kernels"]
    assert {"--semantics", "--head-order"} <= named["libraries"]
    every = {*re.findall(r"│ (--[a-z-]+)", "".join(boxes))}
    assert not every & {*named["kernels"], *named["libraries"]}
    options = {opt for param in LazyGroup().get_command(None, name).params for opt in param.opts}
    shown = every | named["kernels"] | named["libraries"]
    assert {x for x in options if x.startswith("--")} - shown == {"--glove"} & options
    assert "--empty-rows" in call("check", "--help", "all").out


def test_help_has_groups_and_pages(call: Call) -> None:
    mask = call("compute", "--help", "mask").out  # a group, by how it begins
    assert ("--window" in mask, "--softcap" in mask) == (True, False)
    assert "did you mean masking" in call("compute", "--help", "msking").err
    pages = {path.name[:-3] for path in (files("attncli") / "help").iterdir()} - {"help."}
    assert pages <= set(call("help", "-h").out.split())
    shown = [call("help", page).out for page in sorted(pages)]
    assert not re.search(r"\w…", "".join(shown))  # a cell that is cut at 80 columns
    assert call("help", *sorted(pages)).out == "\n".join(shown)
    assert call("help", "compute").out == call("compute", "-h").out
    assert "did you mean masks" in call("help", "mask").err


def test_matrices_of_latex_are_read(call: Call) -> None:
    q = r"\begin{bmatrix} 1 & \frac{1}{2} \\ 0 & \sqrt{2} \end{bmatrix}"
    read = call("compute", "--q", q, "--format", "json").json["steps"][0]
    assert read["value"] == [[1, 0.5], [0, pytest.approx(sqrt(2))]]
    call("compute", "--q", THREE, "--stage", "weights", "--output", "w.tex")
    (array,) = re.findall(r"(?s)\\begin\{array\}.*?\\end\{array\}", Path("w.tex").read_text())
    again = call("compute", "--q", array, "--format", "json").json["steps"][0]["value"]
    weights = call("compute", "--q", THREE, "--stage", "weights", "--format", "json").json["steps"]
    assert np.array(again) == pytest.approx(np.array(weights[-1]["value"]), abs=5e-5)  # no sums
