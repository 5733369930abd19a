"""check of gradients on the command line: names in files, --d-output, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.check.test_gradients import QKV, small
from tests.check.test_gradients_of_x import by_hand, given
from tests.cli.conftest import Call

NAMES = {
    "dq dk dv": ("dq", "dk", "dv"),
    "dQ dK dV": ("dQ", "dK", "dV"),
    "grad": ("q.grad", "k.grad", "v.grad"),
    "grad_": ("grad_query", "grad_key", "grad_value"),
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_a_file_may_hold_several(names: tuple[str, ...], tmp_path: Path, call: Call) -> None:
    arrays, found = small()
    inputs, observed = tmp_path / "inputs.npz", tmp_path / "observed.npz"
    np.savez(inputs, **arrays)
    for prefix, code in (("right ", 0), ("", 1)):
        np.savez(observed, **{own: found[prefix + n] for own, n in zip(names, QKV, strict=True)})
        result = call("check", "--q", str(inputs), "--observed", str(observed), "--format", "json")
        assert result.code == code
        data = result.json
        assert [stage["name"] for stage in data["stages"]] == ["d_v", "d_q", "d_k"]


def test_the_command_needs_the_gradient_of_the_output(tmp_path: Path, call: Call) -> None:
    arrays, found = small()
    inputs, observed = tmp_path / "inputs.npz", tmp_path / "observed.npz"
    np.savez(inputs, **{name: x for name, x in arrays.items() if name != "d_output"})
    np.savez(observed, dq=found["right d_q"])
    result = call("check", "--q", str(inputs), "--observed", str(observed))
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert "add d_output (--d-output)" in result.err
    gradient = tmp_path / "d.npy"
    np.save(gradient, arrays["d_output"])
    flags = ("--q", str(inputs), "--observed", f"{observed}::dq", "--stage", "dQ")
    assert call("check", *flags, "--d-output", str(gradient)).code == 0


def test_an_input_that_shows_more_is_written_where_gradients_match(
    tmp_path: Path, call: Call
) -> None:
    arrays, found = small()
    inputs, suggested = tmp_path / "inputs.npz", tmp_path / "more.npz"
    np.savez(inputs, **arrays, dk=found["right d_k"])
    result = call("check", str(inputs), "--suggest", str(suggested))
    assert (result.code, suggested.exists()) == (0, True)
    assert "this input cannot show: " in result.out
    with np.load(suggested) as more:
        assert {*more} == {"q", "k", "v", "mask", "sinks", "d_output"}


def test_a_file_of_gradients(call: Call, tmp_path: Path) -> None:
    right = by_hand(given())
    np.savez(tmp_path / "x.npz", **given())  # type: ignore[arg-type]
    np.savez(tmp_path / "g.npz", dW_q=right["d_w_q"], db_q=right["d_b_q"], dx=right["d_x"])
    flags = ("--x", "x.npz", "--heads", "2", "--causal", "--observed", "g.npz")
    done = call("check", *flags)
    assert done.code == 0, done.err
    assert "w_o is not used" not in done.err
    both = call("check", *flags, "--tiles", "2", "--split", "1")
    assert (both.code, "--tiles cannot be used with --split" in both.err) == (2, True)


PLAIN = {"q": [[1, 0], [0, 1]], "k": [[1, 1], [1, 0]], "v": [[3, 0], [0, 5]]}
OUTPUT = [
    [1.5, 2.5],
    [2.0093, 1.6512],
]  # q1 scores 1, 1 and q2 1, 0, over √2: shares 1/2, and 0.6698


def test_numbers_called_like_gradients_are_widths(call: Call, tmp_path: Path) -> None:
    whole = PLAIN | {"output": OUTPUT, "d_k": 2, "d_v": 2}
    (tmp_path / "a.json").write_text(json.dumps(whole))
    done = call("check", "a.json")
    assert (done.code, done.out[:10]) == (0, "it matches"), done.err
    np.savez(tmp_path / "a.npz", **{n: np.asarray(x) for n, x in whole.items()})  # type: ignore[arg-type]
    assert call("check", "a.npz").code == 0
    (tmp_path / "b.json").write_text(json.dumps(PLAIN | {"d_k": 2, "d_out": 64}))
    assert call("compute", "b.json", "--stage", "output").code == 0


def test_gradients_that_do_not_follow_from_a_file_are_named_in_a_note(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text(json.dumps(PLAIN | {"output": OUTPUT, "dq": OUTPUT}))
    done = call("check", "a.json")
    assert (done.code, done.out[:10]) == (0, "it matches")
    assert "not compared, as they do not follow from what is given: d_q" in done.err
    alone = call("check", "a.json", "--stage", "d_q")
    assert (alone.code, "add d_output (--d-output)" in alone.err) == (2, True)
    np.savez(tmp_path / "x.npz", **given())  # type: ignore[arg-type]
    saved = call("compute", "x.npz", "--heads", "2", "--output", "trace.json")
    assert saved.code == 0, saved.err
    again = call("check", "trace.json")
    assert (again.code, again.out[:10]) == (0, "it matches"), again.err
    assert "d_w_q" in again.err
