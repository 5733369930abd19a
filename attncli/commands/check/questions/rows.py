"""Some rows of what was observed, with what is right there: counts are solved from them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.commands.check.bugs.patch import named, whole_plan
from attncli.commands.check.search import Search
from attncli.stages import LSE, OUTPUT, WEIGHTS
from attncli.tolerance.comparison import Comparison
from attncli.tolerance.run import Indices, Subset, all_of, stages
from attncli.tolerance.setup import Setup

MOST_CELLS = 2**21
"""So many numbers a system of equations has at most: 16 MB, solved in a fraction of a second."""

MOST_HEADS = 2
"""Of large inputs the rows of so many batch items and heads are taken."""


LARGEST = 1e100
"""Products of larger numbers overflow."""


class Rows(NamedTuple):
    """Rows of some heads: what was observed, and the right stages.

    over      which batch items, heads and queries
    stage     that was observed: the output, the weights or the log-sum-exp
    observed  [batch, head, row, e]; of the log-sum-exp e is 1, in natural logarithms
    logits    [batch, head, row, key]: what softmax reads
    weights   [batch, head, row, key]
    lse       [batch, head, row]
    values    [batch, head, key, e]: what the weights weigh; of weights themselves the identity
    sinks     [head], or None
    is_usable [batch, head, row]: whether the row attends to anything and all its numbers are finite
    allowed   [batch, head, row]: how far its numbers may be from right ones; ∞ where not known
    """

    over: Subset
    stage: str
    observed: Array
    logits: Array
    weights: Array
    lse: Array
    values: Array
    sinks: Array | None
    is_usable: Array
    allowed: Array


def logits_of(setup: Setup) -> str:
    """The stage that softmax reads; "" where there is no softmax."""
    step = named(whole_plan(setup), WEIGHTS)
    return step.reads.get("x", "") if step is not None else ""


def stage_of(search: Search) -> str:
    """The wrong stage that says most of the keys; "" where none of them is wrong, or is whole."""
    errors = search.comparison.errors
    order = (WEIGHTS, OUTPUT, LSE) if search.comparison.setup.shape[3] <= FEW else (OUTPUT, LSE)
    wrong = [name for name in order if name in errors and not errors[name].matches]
    if not wrong and OUTPUT in search.evidence.observed:  # solved from what was projected
        return OUTPUT
    return wrong[0] if wrong else ""


FEW = 128
"""Of so few keys the weights themselves are solved: a row of them has as many equations."""


def rows_of(
    search: Search, stage: str, *, most: int | None = None, every_head: bool = False
) -> Rows | None:
    """Rows of a stage, evenly spread where these are too many; None where no softmax is over keys.

    most        how many rows; None: as many as a system of equations may have
    every_head  whether they are of all batch items and heads
    """
    setup, comparison = search.comparison.setup, search.comparison
    observed, logits = search.evidence.observed.get(stage), logits_of(setup)
    is_plain = setup.convention.softmax_over == "keys" and not setup.convention.dropout
    if observed is None or not logits or not is_plain or setup.tiles or setup.instead:
        return None
    sizes = comparison.subset.sizes
    if observed.shape[:3] != sizes:
        return None
    width = setup.shape[3] if stage == WEIGHTS else observed.shape[-1]
    most = most or max(4, MOST_CELLS // (setup.shape[3] * width))
    at = all_of(sizes)
    if math.prod(sizes) > most:
        few = at[:2] if every_head else _wrong_heads(comparison, stage)
        at = Subset(*few, _evenly(at.row, max(1, most // math.prod(map(len, few)))))
    over = comparison.subset.take(at)
    right = stages(setup, over, [logits, WEIGHTS])
    x, weights = right[logits], right[WEIGHTS]
    largest = weights.argmax(axis=-1)[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = np.take_along_axis(x - np.log(weights), largest, axis=-1)[..., 0]
    numbers, values = observed[np.ix_(*at)], _values_of(stage, setup, over)
    if stage == LSE and setup.convention.lse_base == "2":
        numbers = numbers * math.log(2)
    sinks, marks = setup.inputs.get("sinks"), setup.written.get(stage)
    if not (np.abs(values) <= LARGEST).all():
        return None
    with np.errstate(invalid="ignore"):
        is_usable = (np.abs(numbers) < LARGEST).all(axis=-1) & (np.abs(lse) < LARGEST)
    is_usable &= np.isfinite(weights).all(axis=-1)
    if marks is not None:
        is_usable &= marks[np.ix_(*over)] == 1
    return Rows(
        over=over,
        stage=stage,
        observed=numbers,
        logits=x,
        weights=weights,
        lse=lse,
        values=values,
        sinks=None if sinks is None else sinks[over.head],
        is_usable=is_usable,
        allowed=_allowed(comparison, stage, at),
    )


def _allowed(comparison: Comparison, stage: str, at: Subset) -> Array:
    """How far the numbers of these rows may be from right ones."""
    if stage not in comparison.errors:  # solved from what was projected
        return np.full(at.sizes, np.inf)
    errors = comparison.errors[stage]
    allowed = np.broadcast_to(errors.allowed, errors.expected.shape)
    return np.asarray(allowed[np.ix_(*at)].max(axis=-1))


def _values_of(stage: str, setup: Setup, over: Subset) -> Array:
    """What the weights of a stage weigh: [batch, head, key, e]."""
    n_k = setup.shape[3]
    if stage == LSE:
        return np.zeros((*over.sizes[:2], n_k, 1))
    if stage == WEIGHTS:
        return np.broadcast_to(np.eye(n_k), (*over.sizes[:2], n_k, n_k))
    values = setup.placed().inputs["v"]
    return np.asarray(values[np.ix_(over.batch, setup.key_heads[over.head])])


def _wrong_heads(comparison: Comparison, stage: str) -> tuple[Indices, Indices]:
    """A few batch items and heads, of those in which a stage is wrong."""
    every = all_of(comparison.subset.sizes)[:2]
    if stage in comparison.errors:
        is_wrong: BoolArray = np.asarray(comparison.errors[stage].wrong.any(axis=(2, 3)))
        every = np.flatnonzero(is_wrong.any(axis=1)), np.flatnonzero(is_wrong.any(axis=0))
    batch, head = (_evenly(x, MOST_HEADS) for x in every)
    return batch, head


def _evenly(places: Indices, count: int) -> Indices:
    """So many of some places, evenly spread."""
    at = np.linspace(0, len(places) - 1, min(len(places), count)).round().astype(np.intp)
    return places[np.unique(at)]
