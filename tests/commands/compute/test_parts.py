"""compute --tiles and --split: numbers, the stages shown, every format."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.calls import SAMPLES, Call, stages
from tests.turns import in_turn

THREE = SAMPLES / "three-tokens.json"
FORMATS = ("json", "csv", "tsv", "markdown", "mermaid", "latex", "html", "svg", "npz")


@pytest.mark.parametrize(
    ("form", "cut"), in_turn(FORMATS, ["--tiles 2", "--split 1", "--stage lse"])
)
def test_every_format_takes_it(call: Call, form: str, cut: str) -> None:
    result = call("compute", SAMPLES / "heads.json", *cut.split(), "--format", form)
    assert (result.code, result.err) == (0, "")
    assert "lse" in result.out or form == "svg"


def test_the_page_derives_its_numbers(call: Call) -> None:
    page = call("compute", THREE, "--tiles", "2", "--work").out
    assert re.findall(r"\((tile\.\d)\)", page) == ["tile.1", "tile.2"]
    assert "o₁[q1,1] = acc₁[q1,1] / l₁[q1] = 10 / 2 = 5" in page
    assert "split.2" in call("compute", THREE, "--split", "1,2", "--work").out
    cell = ("compute", THREE, "--tiles", "2", "--cell", "q3,2", "--stage", "tile.2.acc")
    assert "acc₂[q3,2] = 1·4.9307 + 0.4931·5" in call(*cell).out
    chart = call("compute", THREE, "--tiles", "1", "--format", "mermaid").out
    assert ("layer" in chart, "m₃ = max#40;m₂, max Z₃ over each row#41;" in chart) == (False, True)
    assert "Tile 1: k1 to k3" in call("compute", THREE, "--tiles", "99").out


def test_x_and_its_weights_are_around_the_tiles(call: Call) -> None:
    sample = ("compute", "--x", SAMPLES / "homework.json", "--format", "json")
    tiled = call(*sample, "--tiles", "2").json
    assert [step["name"] for step in tiled["steps"]][-3:] == ["tile", "output", "lse"]
    np.testing.assert_allclose(stages(tiled)["output"], stages(call(*sample).json)["output"])


def one_query(n_keys: int) -> list[str]:
    rng = np.random.default_rng(n_keys)
    k, v = (rng.normal(size=(n_keys, 2)).round(3).tolist() for _ in "kv")
    return ["--q", "[[1, 2]]", "--k", f"{k}", "--v", f"{v}"]


def cut_of(flag: str, n_keys: int) -> list[str]:
    return [flag, {"--tiles": "1", "--split": ",".join(map(str, range(1, n_keys)))}[flag]]


@pytest.mark.parametrize(("flag", "kind"), [("--tiles", "tile"), ("--split", "split")])
def test_of_many_parts_the_first_and_last_are_shown(call: Call, flag: str, kind: str) -> None:
    """So are those that are named, and with --full all."""
    flags = ["compute", *one_query(20), *cut_of(flag, 20)]

    def shown(*more: str) -> list[int]:
        numbers = re.findall(rf"\({kind}\.(\d+)\)", call(*flags, *more).out)
        return [int(number) for number in numbers]

    assert shown() == [1, 2, 3, 4, 17, 18, 19, 20]
    assert "12 of 20" in call(*flags).out
    assert shown("--stage", f"{kind}.7", "--stage", f"{kind}.9.scores") == [7, 9]
    assert shown("--full") == [*range(1, 21)]
    steps = call(*flags, "--format", "json").json["steps"]
    assert [len(step["steps"]) for step in steps if step["name"] == kind] == [20]


@pytest.mark.parametrize(
    ("flag", "form"), in_turn(["--tiles", "--split"], ["table", "json", "npz", "html"])
)
def test_the_work_grows_as_the_keys_do(call: Call, flag: str, form: str) -> None:
    """Functions that are called for 40 parts more, and then for 80 more: twice as many."""

    def calls(n_keys: int) -> int:
        count = 0

        def counted(frame: object, event: str, of: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        flags = [*one_query(n_keys), *cut_of(flag, n_keys), "--output", f"{n_keys}.{form}"]
        before = sys.getprofile()
        sys.setprofile(counted)
        try:
            done = call("compute", *flags, *["--full"] * (form == "table"), "--format", form)
        finally:
            sys.setprofile(before)
        assert done.code == 0
        return count

    calls(9)  # what is imported is not counted
    few, more, many = calls(40), calls(80), calls(160)
    assert many - more < 2.2 * (more - few)


def test_a_tile_past_the_thousandth_is_checked(call: Call) -> None:
    last = np.random.default_rng(1001).normal(size=(1001, 2)).round(3)[-1] @ [1, 2]
    np.savez("o.npz", **{"tile.1001.scores": np.array([[last]])})  # type: ignore[arg-type]
    flags = ("--tiles", "1", "--observed", "o.npz", "--format", "json")
    done = call("check", *one_query(1001), *flags)
    assert [stage["name"] for stage in done.json["stages"]] == ["tile.1001.scores"]
    assert done.code == 0


def test_a_gradient_in_the_file_is_left_out(call: Call) -> None:
    Path("a.json").write_text('{"q": [[1, 0], [0, 1]], "dO": [[1, 2], [3, 4]]}')
    done = call("compute", "a.json", "--tiles", "1", "--stage", "output")
    assert (done.code, "gradient in the file is not used" in done.err) == (0, True)
