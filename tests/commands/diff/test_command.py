"""attncli diff and --against: what is compared, and the exit codes."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.calls import SAMPLES, Call

DUMP = SAMPLES / "dump.json"
QKV = '"q":[[1,0],[0,1]],"k":[[1,1],[1,0]],"v":[[10,0],[0,10]]'


@pytest.fixture
def traces(call: Call, three: Path) -> tuple[str, str]:
    for name, more in (("a.json", []), ("b.npz", ["--causal"])):
        assert call("compute", three, *more, "--output", name).code == 0
    return "a.json", "b.npz"


# Two things, more flags, the exit code, and a key word or two.
# fmt: off
COMPARED = [
    ("a.json b.npz", 1, "first masked: 3 of 9 --causal a.json"),
    ("a.json a.json", 0, "all 7 stages"),
    ("causal.json dump.json", 0, ""),  # as printed, to 4 decimals
    ("[[1,2]] [[1,3]]", 1, "2 first 3 second"),
    ("a.json::weights b.npz", 1, ""),
    ("a.json::scores b.npz", 0, ""),
    ("- a.json", 0, ""),
    ("b.npz -", 1, ""),
    (f'{{{QKV},"output":[[1,2],[3,4]]}} {{{QKV},"Output":[[1,2],[3,4]]}}', 0, ""),
    ('{"layer.0.Q":[[1]],"mine":[[1,2]]} {"layer.0.query":[[1]],"mine":[[1,3]]}', 1, "mine: 1 of 2"),
    ('{"Q":[[1]],"q":[[2]],"weights":[[1]]} {"q":[[2]],"Q":[[1]],"weights":[[1]]}', 0, "all 3"),
    ('{"weights":[[1]]} [[1]]', 0, ""),
    ("hsd.npz shd.npz", 0, ""),  # a layout that a dump names is brought into order
    ("[[1,2]] [[1,2.001]]", 1, ""),
    ("[[1,2]] [[1,2.001]] --rtol 0.001", 0, ""),
    ("[[1,2]] [[1,2.001]] --atol 0.0001", 1, ""),
    ("[[1,2]] [[1,2.001]] --decimals 2", 0, ""),
    ("d.json::b b.npz", 0, ""),  # a saved comparison
    ("d.json::a b.npz", 1, ""),
]
# fmt: on


@pytest.mark.parametrize(("line", "code", "words"), COMPARED)
def test_what_is_compared(
    call: Call, three: Path, traces: tuple[str, str], line: str, code: int, words: str
) -> None:
    Path("three.json").write_bytes(three.read_bytes())
    Path("dump.json").write_bytes(DUMP.read_bytes())
    Path("causal.json").write_text(json.dumps(json.loads(three.read_text()) | {"causal": True}))
    q = np.random.default_rng(0).normal(size=(2, 3, 5))
    np.savez("hsd.npz", q=q, output=q)
    np.savez("shd.npz", q=np.swapaxes(q, 0, 1), output=np.swapaxes(q, 0, 1), layout="shd")
    if "d.json" in line:
        assert call("diff", *traces, "--output", "d.json").code == 1
    done = call("diff", *line.split(), stdin=Path("a.json").read_bytes())
    assert (done.code, done.err.count("note: ")) == (code, "causal.json" in line)
    assert [word for word in words.split() if word not in done.out] == []


def test_what_is_no_array_is_named_in_a_note(call: Call) -> None:
    done = call("diff", '{"weights":[[1]],"authors":["me"]}', '{"weights":[[1]],"about":"x"}')
    assert done.code == 0
    assert [f"not used: {name}" in done.err for name in ("authors", "about")] == [True, True]


def test_formats_hold_the_differences(call: Call, traces: tuple[str, str]) -> None:
    done = call("diff", *traces, "--format", "json")
    assert done.code == 1
    assert [step["name"] for step in done.json["steps"]] == ["summary", "a", "b", "difference"]
    table = call("diff", *traces, "--format", "csv", "--stage", "difference.weights")
    assert table.out.splitlines()[0] == "difference.weights,k1,k2,k3"
    assert "masked" in table.err  # csv has no notes
    assert call("diff", *traces, "--output", "d.npz").code == 1
    with np.load("d.npz") as arrays:
        difference = arrays["b.weights"] - arrays["a.weights"]
        np.testing.assert_array_equal(arrays["difference.weights"], difference)
    for name, word in {"svg": "difference.masked", "html": "masked", "tex": "difference"}.items():
        assert call("diff", *traces, "--output", f"d.{name}").code == 1
        assert word in Path(f"d.{name}").read_text(encoding="utf-8")


def test_against(call: Call, three: Path) -> None:
    scaled = call("compute", three, "--against", "--scale none")
    assert (scaled.code, "scaled: 7 of 9" in scaled.out) == (1, True)
    for other, code in (("2", 0), ("1/√2", 1)):  # an option in both is that of --against
        assert call("compute", three, "--scale", "2", "--against", f"--scale {other}").code == code
    positions = call("explain", "the river bank", "--against", "--positions none")
    assert (positions.code, "positions, input" in positions.out) == (1, True)
    stage = "encoder.3.attention.weights"
    deep = ("--block", "encoder", "--layers", "3", "--against", "--causal", "--stage", stage)
    assert call("explain", "a b", *deep).code == 1
    assert call("compute", "[[1, 2]]", "--against", "--scale none").err.count("so K = Q") == 1


@pytest.mark.parametrize(
    "sources",
    [(str(SAMPLES / "three-tokens.json"), str(DUMP)), ("[[1, 2, 3]]", "[[1, 2, 5]]")],
)
def test_no_script_computes_what_was_observed(sources: tuple[str, str], call: Call) -> None:
    done = call("diff", *sources, "--format", "python")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "numbers without formulas" in done.err
