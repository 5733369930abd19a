"""Choosing a part of a trace, and errors for what is not there."""

from __future__ import annotations

import numpy as np
import pytest

from attncli.convention import Convention
from attncli.errors import AttncliError, ShapeError, StageError
from attncli.trace import Trace
from attncli.views.select import DisplayOptions, select

from .traces import CAUSAL, attention, matrix, numbers


def grouped(order: str = "blocks") -> Trace:
    how = Convention(head_order=order)  # type: ignore[arg-type]
    return attention(numbers(4, 3, 7), numbers(2, 5, 7), numbers(2, 5, 11), convention=how)


def test_nothing_chosen_is_everything_computed() -> None:
    assert list(select(attention(mask=CAUSAL), DisplayOptions())) == [
        "scores",
        "scaled",
        "masked",
        "weights",
        "output",
    ]


def test_inputs_come_along_whole() -> None:
    found = select(grouped(), DisplayOptions(rows=(0, 1), cols=(1, 2), head=3), inputs=True)
    assert {name: found[name].value.shape for name in found} == {
        "q": (1, 3, 7),
        "k": (1, 5, 7),
        "v": (1, 5, 11),
        "scores": (1, 1, 1),
        "scaled": (1, 1, 1),
        "weights": (1, 1, 1),
        "output": (1, 1, 1),
    }


def test_entries_keep_their_names() -> None:
    found = select(
        grouped(), DisplayOptions(stages=("weights", "k"), head=2, rows=(1, 3), cols=(4, None))
    )
    assert found["weights"].labels == {
        "head": ("head 3",),
        "query": ("q2", "q3"),
        "key": ("k5",),
    }
    assert found["k"].labels["kv_head"] == ("key head 2",)
    assert found["k"].names("key") == ("k2", "k3")


@pytest.mark.parametrize(("order", "key_head"), [("blocks", 0), ("tiled", 1)])
def test_a_head_takes_its_key_head_along(order: str, key_head: int) -> None:
    trace = grouped(order)
    found = select(trace, DisplayOptions(stages=("k",), head=1))
    np.testing.assert_array_equal(found["k"].value[0], trace["k"].value[key_head])


def test_what_is_uncut_is_untouched() -> None:
    trace = attention()
    assert select(trace, DisplayOptions())["scores"].labels == {}


def test_a_batch_entry() -> None:
    trace = attention(numbers(2, 3, 5, 7), numbers(2, 3, 5, 7), numbers(2, 3, 5, 7))
    found = select(trace, DisplayOptions(batch=1))["output"]
    np.testing.assert_array_equal(found.value, trace["output"].value[1:])
    assert found.label("batch", 0) == "batch 2"


def test_a_stage_without_the_columns_is_left_out() -> None:
    trace = attention(numbers(3, 2), numbers(7, 2), numbers(7, 2))
    assert "output" not in select(trace, DisplayOptions(cols=(4, 6)))


def nested() -> Trace:
    inner = attention()
    blocks = (
        Trace("Block", inner.steps, name="self"),
        Trace("Block", inner.steps, name="cross"),
    )
    return Trace("Layer", (Trace("Decoder", blocks, name="decoder"),))


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("decoder.self.weights", ["decoder.self.weights"]),
        ("weights", ["decoder.self.weights", "decoder.cross.weights"]),
        ("self.weights", ["decoder.self.weights"]),
        ("cross", [f"decoder.cross.{n}" for n in attention()]),
    ],
)
def test_stages_of_nested_blocks(wanted: str, names: list[str]) -> None:
    assert list(select(nested(), DisplayOptions(stages=(wanted,)))) == names


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            DisplayOptions(stages=("wieghts",)),
            StageError,
            r"no stage 'wieghts'; did you mean weights\?",
        ),
        (DisplayOptions(head=4), ShapeError, "there is no head 5; choose from 1 to 4"),
        (DisplayOptions(batch=0), ShapeError, "no batch entry to choose"),
        (
            DisplayOptions(rows=(3, 9)),
            ShapeError,
            "there are no rows 4 to 9; the stages shown have 3",
        ),
        (
            DisplayOptions(cols=(11, None)),
            ShapeError,
            "no columns 12 to the end; the stages shown have 11",
        ),
    ],
)
def test_what_is_not_there(
    options: DisplayOptions, error: type[AttncliError], message: str
) -> None:
    with pytest.raises(error, match=message):
        select(grouped(), options)


def test_one_head_is_no_choice_of_two() -> None:
    one = matrix(np.ones((1, 2, 2)), axes=("head", "query", "key"))
    with pytest.raises(ShapeError, match="there is no head 2; there is only 1"):
        select(one, DisplayOptions(head=1))
