"""compute --tiles and --split: the screen, every format, and what is refused in one line."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import SAMPLES, Call

GOLDEN = Path(__file__).parent / "parts"
THREE = SAMPLES / "three-tokens.json"


@pytest.mark.parametrize(("flag", "cut"), [("tiles", "2"), ("split", "1,2")])
def test_the_whole_page(call: Call, flag: str, cut: str) -> None:
    result = call("compute", THREE, f"--{flag}", cut, "--work")
    assert (result.code, result.err) == (0, "")
    page, path = re.sub(r"at most \S+", "at most (rounding)", result.out), GOLDEN / f"{flag}.txt"
    if os.environ.get("ATTNCLI_UPDATE_GOLDEN"):
        path.write_text(page, encoding="utf-8")
    assert page == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("cut", ["--tiles 2", "--split 1", "--stage lse"])
@pytest.mark.parametrize(
    "form", ["json", "csv", "tsv", "markdown", "mermaid", "latex", "html", "svg", "npz"]
)
def test_every_format_takes_it(call: Call, cut: str, form: str) -> None:
    result = call("compute", SAMPLES / "heads.json", *cut.split(), "--format", form)
    assert (result.code, result.err) == (0, "")
    assert "lse" in result.out or form == "svg"


def test_a_tile_is_not_called_a_layer(call: Call) -> None:
    chart = call("compute", THREE, "--tiles", "1", "--format", "mermaid").out
    assert "layer" not in chart
    assert "m₃ = max#40;m₂, max Z₃ over each row#41;" in chart


def test_a_cell_is_derived(call: Call) -> None:
    result = call("compute", THREE, "--tiles", "2", "--stage", "tile.2.l", "--cell", "q3,1")
    assert "l₂[q3] = 1 · 1.4931 + 0.4931" in result.out
    result = call("compute", THREE, "--tiles", "2", "--stage", "tile.2.acc", "--cell", "q3,2")
    assert "acc₂[q3,2] = 1 · 4.9307 + 0.4931·5" in result.out


def test_x_and_its_weights_are_around_the_tiles(call: Call) -> None:
    sample = SAMPLES / "homework.json"
    whole = call("compute", "--x", sample, "--format", "json").json
    found = call("compute", "--x", sample, "--tiles", "2", "--format", "json").json
    names = [step["name"] for step in found["steps"]]
    assert names[-3:] == ["tile", "output", "lse"]
    last = next(step for step in whole["steps"] if step["name"] == "output")
    own = next(step for step in found["steps"] if step["name"] == "output")
    assert np.array(own["value"]) == pytest.approx(np.array(last["value"]))


@pytest.mark.parametrize("cut", ["--tiles 1", "--tiles 2", "--split 1"])
@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (["--sinks", "[0]"], [[8 / 5, 12 / 5], [8 / 5, 12 / 5]]),  # 2/5 of either, 1/5 of the sink
        (["--mask", "[[true], [false]]"], [[2, 3], [0, 0]]),
        (["--mask", "[true, false]"], [[1, 2], [1, 2]]),
        (["--mask", "[[true]]"], [[2, 3], [2, 3]]),
        (["--mask", "[[0.5], [-7]]"], [[2, 3], [2, 3]]),
    ],
)
def test_sinks_and_masks_of_two_queries_without_heads(
    call: Call, cut: str, flags: list[str], wanted: list[list[float]]
) -> None:
    """Every score is ln 2, so that a key has as much as any other that is not hidden."""
    log = "0.6931471805599453"
    qkv = ["--q", "[[1], [1]]", "--k", f"[[{log}], [{log}]]", "--v", "[[1, 2], [3, 4]]"]
    found = call("compute", *qkv, "--scale", "none", *cut.split(), *flags, "--format", "json")
    assert (found.code, found.err) == (0, "")
    stages = {stage["name"]: stage["value"] for stage in found.json["steps"] if "value" in stage}
    assert np.array(stages["output"]) == pytest.approx(np.array(wanted))
    assert np.shape(stages.get("mask", np.zeros((2, 2)))) == (2, 2)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--tiles 0", "--tiles: Input should be greater than or equal to 1"),
        ("--tiles -1", "--tiles: Input should be greater than or equal to 1"),
        ("--tiles two", "--tiles: Input should be a valid integer"),
        ("--split a", "--split 'a' is not understood"),
        ("--split 0", "3 keys cannot be split at 0"),
        ("--split -1", "3 keys cannot be split at -1"),
        ("--split 2,1", "3 keys cannot be split at 2,1"),
        ("--split 1,1", "3 keys cannot be split at 1,1"),
        ("--split 3", "give ascending numbers of keys from 1 to 2"),
        ("--split 1 --tiles 1", "--tiles cannot be used with --split"),
        ("--tiles 1 --softmax-over queries", "a softmax over queries needs whole columns"),
        ("--split 1 --dropout 0.5", "dropout is drawn for all weights"),
        ("--tiles 1 --d-output random", "gradients are those of one softmax over all keys"),
        ("--stage lse --softmax-over queries", "there is no stage 'lse'"),
        ("--tiles 1 --max-size 10kB", "the stages of 3 parts of the keys need"),
    ],
)
def test_nonsense_is_refused_in_one_line(call: Call, flags: str, said: str) -> None:
    result = call("compute", THREE, *flags.split())
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert result.err.count("\n") == 1


def one_query(n_keys: int) -> list[str]:
    rng = np.random.default_rng(n_keys)
    matrices = {name: rng.normal(size=(n_keys, 2)).round(3).tolist() for name in "kv"}
    return [
        "--q",
        "[[1, 2]]",
        *(x for name, own in matrices.items() for x in (f"--{name}", f"{own}")),
    ]


@pytest.mark.parametrize(("flag", "kind"), [("--tiles", "tile"), ("--split", "split")])
def test_of_many_parts_the_first_and_last_are_shown(call: Call, flag: str, kind: str) -> None:
    """So are those that are named, and with --full all."""
    cut = {"--tiles": "1", "--split": ",".join(map(str, range(1, 20)))}[flag]
    flags = ["compute", *one_query(20), flag, cut]

    def shown(*more: str) -> list[int]:
        page = call(*flags, *more)
        assert page.code == 0
        return [int(number) for number in re.findall(rf"\({kind}\.(\d+)\)", page.out)]

    assert shown() == [1, 2, 3, 4, 17, 18, 19, 20]
    assert f"left out: 12 of 20 {kind}s, 5 to 16" in call(*flags).out
    assert shown("--stage", f"{kind}.7", "--stage", f"{kind}.9.scores") == [7, 9]
    assert shown("--full") == [*range(1, 21)]
    steps = call(*flags, "--format", "json").json["steps"]
    inner = next(step for step in steps if step["name"] == kind)
    assert len(inner["steps"]) == 20


@pytest.mark.parametrize("form", ["table", "json", "npz", "html"])
@pytest.mark.parametrize("flag", ["--tiles", "--split"])
def test_the_work_grows_as_the_keys_do(call: Call, flag: str, form: str, tmp_path: Path) -> None:
    """Functions that are called for 40 tiles more, and then for 80 more: twice as many."""

    def calls(n_keys: int) -> int:
        count = 0

        def counted(frame: object, event: str, of: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        cut = {"--tiles": "1", "--split": ",".join(map(str, range(1, n_keys)))}[flag]
        flags = [*one_query(n_keys), flag, cut, "--output", tmp_path / f"{n_keys}.{form}"]
        before = sys.getprofile()
        sys.setprofile(counted)
        try:
            code = call("compute", *flags, *["--full"] * (form == "table"), "--format", form)
        finally:
            sys.setprofile(before)
        assert code.code == 0
        return count

    calls(30)  # what is imported is not counted
    few, more, many = calls(40), calls(80), calls(160)
    assert many - more < 2.2 * (more - few)


def test_a_tile_past_the_thousandth_is_checked(call: Call, tmp_path: Path) -> None:
    flags = one_query(1001)
    last = np.array([1, 2]) @ np.random.default_rng(1001).normal(size=(1001, 2)).round(3)[-1]
    observed: dict[str, Any] = {"tile.1001.scores": np.array([[1.5 * last]])}
    np.savez(tmp_path / "o.npz", **observed)
    found = call("check", *flags, "--tiles", "1", "--observed", "o.npz")
    assert (found.code, "tile.1001.scores" in found.out) == (1, True)


def test_a_tile_larger_than_the_keys_is_one_tile(call: Call) -> None:
    assert "Tile 1: k1 to k3" in call("compute", THREE, "--tiles", "99").out


def test_a_gradient_in_the_file_is_left_out_and_one_that_is_asked_for_refused(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text('{"q": [[1, 0], [0, 1]], "dO": [[1, 2], [3, 4]]}')
    done = call("compute", "a.json", "--tiles", "1", "--stage", "output")
    assert done.code == 0, done.err
    assert "the gradient in the file is not used: parts of the keys have none" in done.err
    asked = call("compute", "a.json", "--split", "1", "--d-output", "ones")
    assert (asked.code, "gradients are those of one softmax over all keys" in asked.err) == (
        2,
        True,
    )


@pytest.mark.parametrize("flags", [("compute", THREE), ("explain", "the bank")])
def test_the_base_of_lse_needs_lse(call: Call, flags: tuple[str, ...]) -> None:
    done = call(*flags, "--lse-base", "2")
    assert done.code == 2
    assert "--lse-base has no effect without the stage lse" in done.err
    assert call(*flags, "--lse-base", "2", "--stage", "lse").code == 0
