"""Stage and Trace: finding, cutting and refusing."""

from __future__ import annotations

import numpy as np
import pytest

from attncli import ShapeError, Stage, StageError, Trace, attend


def nested() -> Trace:
    inner = attend(np.eye(2), np.eye(2), np.eye(2))
    layer = Trace("Layer 1", (Trace("Attention", inner.steps, name="attention"),), name="1")
    return Trace("Encoder", (Trace("Stack", (layer,), name="encoder"),))


def test_dotted_names_reach_into_blocks() -> None:
    trace = nested()
    assert trace["encoder.1.attention.weights"].name == "weights"
    assert "encoder.1.attention.weights" in trace
    assert "weights" not in trace


def test_an_unknown_stage_says_which_there_are() -> None:
    with pytest.raises(StageError, match=r"no stage 'wieghts'; did you mean weights"):
        attend(np.eye(2), np.eye(2), np.eye(2))["wieghts"]


def test_keep_prunes_empty_blocks() -> None:
    assert list(nested().keep({"encoder.1.attention.q"})) == ["encoder.1.attention.q"]
    assert nested().keep({"q"}).steps == ()


def test_labels_name_entries() -> None:
    stage = Stage("scores", "S", "", np.zeros((2, 3)), ("query", "key"), {"key": ("a", "b", "c")})
    assert stage.names("key") == ("a", "b", "c")
    assert stage.names("query") == ("q1", "q2")


def test_axes_and_labels_must_fit() -> None:
    with pytest.raises(ShapeError, match="2 dimensions but 1 axis names"):
        Stage("s", "S", "", np.zeros((2, 3)), ("query",))
    with pytest.raises(ShapeError, match="3 entries along key but 2 labels"):
        Stage("s", "S", "", np.zeros((2, 3)), ("query", "key"), {"key": ("a", "b")})


def test_a_part_is_found_by_its_dotted_name() -> None:
    inner = Trace("Attention", (), name="attention")
    whole = Trace("All", (Trace("Layer", (inner,), name="1"),))
    assert (whole.part("1.attention").title, whole.part("1").name) == ("Attention", "1")
    assert whole.part("") is whole
    with pytest.raises(StageError, match="no part 'attention'"):
        whole.part("attention")
