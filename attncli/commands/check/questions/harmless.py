"""Numbers that differ and harm nothing: a constant that is added to all scores of a row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.questions.answer import Answer
from attncli.commands.check.search import Search
from attncli.stages import BEFORE_SOFTMAX
from attncli.tolerance.rule import StageErrors, rms
from attncli.tolerance.setup import Setup

ENOUGH = 3
"""So many scores a row confirm its constant, on average."""

LEFT = 0.01
"""Of the errors of the scores a constant for each row leaves no more than this share."""

DIGITS = 6
"""A constant of all rows is said, and tried, in so many digits."""


def add_constants(search: Search) -> Iterator[Answer]:
    """A constant added to the scores of each row, which softmax takes away again."""
    comparison, setup = search.comparison, search.comparison.setup
    wrong = {name: x for name, x in comparison.errors.items() if not x.matches}
    name = next((name for name in BEFORE_SOFTMAX if name in wrong), None)
    is_whole = comparison.subset.sizes == setup.shape[:3]
    if name is None or not is_whole or setup.tiles or setup.convention.softmax_over != "keys":
        return
    stage = wrong[name]
    if (constants := constants_of(stage)) is None:
        return
    finite = constants[np.isfinite(constants)]
    typical = float(f"{np.median(finite):.{DIGITS}g}")
    is_same = rms(np.abs(finite - typical)) <= LEFT * abs(typical)
    largest = np.where(np.isfinite(stage.expected), stage.expected, -np.inf).max(axis=-1)
    apart = np.abs(constants + largest)[np.isfinite(constants)]
    if is_same:
        text = f"{abs(typical):g} is {'subtracted from' if typical < 0 else 'added to'} all scores"
        yield _answer(text, setup.with_result(name, partial(np.add, typical)))
    elif rms(apart) <= LEFT * rms(np.abs(finite)):
        text = "the largest score of each row is subtracted already"
        yield _answer(text, setup.with_result(name, _less_the_largest))
    else:
        added = partial(_plus, constants=np.nan_to_num(constants))
        whole = setup.with_whole(0, 1, 2)  # each row has a constant of its own
        text = "a constant of each row is added to its scores"
        yield _answer(text, whole.with_result(name, added))


def _plus(x: Array, constants: Array) -> Array:
    return x + constants.reshape(*x.shape[:-1], 1)


def _less_the_largest(x: Array) -> Array:
    top = x.max(axis=-1, keepdims=True)
    return x - np.where(np.isfinite(top), top, 0.0)


def _answer(text: str, setup: Setup) -> Answer:
    sentence = f"harmless: {text}, which changes no weight and no output (lse alone changes by it)"
    return Answer(sentence, [setup], "exp(x + c) / Σ exp(x + c) = exp(x) / Σ exp(x)")


def constants_of(stage: StageErrors) -> Array | None:
    """[batch, head, query]: by how much all numbers of each row are larger; NaN: it has none.

    None where there is no such constant.
    """
    is_finite: Array = np.isfinite(stage.observed) & np.isfinite(stage.expected)
    is_wrong = stage.wrong & ~is_finite
    if is_wrong.any() or is_finite.sum() < ENOUGH * is_finite.any(axis=-1).sum():
        return None
    apart = np.where(is_finite, stage.observed - stage.expected, np.nan)
    constants: Array = np.full(apart.shape[:-1], np.nan)
    some = is_finite.any(axis=-1)
    constants[some] = np.nanmedian(apart[some], axis=-1)
    misfit = np.abs(apart - constants[..., None])[is_finite]
    return constants if rms(misfit) <= LEFT * rms(np.abs(apart[is_finite])) else None
