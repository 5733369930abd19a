"""Merges: parts of the keys that are right by themselves are put together with other shares.

For every cut of the keys: is O = w₁ O₁ + w₂ O₂ in every row? Then, by which shares is it?

    rows ── cuts ──> shares that the output shows ── a Merge ──> Answer
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.attention.run import Step
from attncli.commands.check.bugs.edits import changed
from attncli.commands.check.bugs.kernels import FEW, Parts, is_plain
from attncli.commands.check.bugs.patch import whole_plan
from attncli.commands.check.bugs.rewrite import names_of
from attncli.commands.check.bugs.terms import BLOCKS
from attncli.commands.check.questions.answer import Answer, places_text
from attncli.commands.check.questions.counting import TIMES
from attncli.commands.check.questions.rows import Rows, rows_of
from attncli.commands.check.questions.shares import (
    SIMPLE,
    Merge,
    Merged,
    Solved,
    of_other_places,
    of_views,
    solved_shares,
)
from attncli.commands.check.questions.unwritten import KINDS
from attncli.commands.check.search import Search
from attncli.errors import joined
from attncli.formula.kernels import log_sum_exp
from attncli.stages import LSE, OUTPUT, WEIGHTS
from attncli.tolerance.number_types import SMALL
from attncli.tolerance.rule import rms
from attncli.tolerance.run import all_of, stages
from attncli.tolerance.setup import Setup

SCREENED = 2**18
"""So many numbers, for a row, a cut and a column each, decide whether a cut is it."""

PARTS = range(3, 9)
"""Into so many parts, of one size or as even as can be, the keys may be cut."""

MOST_CUTS = 3
"""Cuts next to each other may both fit within rounding: so many into two parts are tried, and so
many into more, the best first."""

EXPLAINED = 1e-3
"""Of what is wrong a cut leaves no more than this, beside rounding."""

ROUNDINGS = 8.0
"""So many units of rounding may be left of a number, and of a share."""

ALL = 2**25
"""The log-sum-exps of all rows are made of up to so many scores: 256 MB."""

Starts = tuple[int, ...]


def merged(search: Search) -> Iterator[Answer]:
    """By which shares parts of the keys are merged, the split known or not."""
    setup = search.comparison.setup
    rows = None
    if is_plain(setup) and setup.shape[3] > 1 and OUTPUT in search.evidence.observed:
        width = setup.inputs["v"].shape[-1]
        most = max(8, SCREENED // (setup.shape[3] * width))
        rows = rows_of(search, OUTPUT, most=most)
    if rows is None or not rows.is_usable.any():
        return
    cuts = _cuts(rows, setup, search.evidence.eps)
    for starts in cuts:
        yield from _of_cut(starts, search, is_simple=True)
    for starts in cuts:
        yield from _of_cut(starts, search, is_simple=False)


# ---- where the keys are cut


def _cuts(rows: Rows, setup: Setup, eps: float) -> list[Starts]:
    """Where the keys may be cut so that every row is a sum of the parts, the best first."""
    n_k, width = setup.shape[3], rows.observed.shape[-1]
    terms = rows.weights[..., None] * rows.values[:, :, None]
    terms = terms[rows.is_usable]
    sums = np.concatenate([np.zeros_like(terms[:, :1]), np.cumsum(terms, axis=1)], axis=1)
    observed = rows.observed[rows.is_usable]
    apart, limits = np.abs(observed - sums[:, -1]), rows.allowed[rows.is_usable]
    if np.isfinite(limits).all() and (apart.max(axis=-1) <= limits).all():
        return []  # every cut would fit these rows
    allowed = EXPLAINED * rms(apart) + ROUNDINGS * eps * rms(np.abs(observed))
    errors = dict[Starts, float]()
    if setup.split:
        lists = [(0, *setup.split)]
    else:
        sizes = range(2, n_k) if n_k <= FEW else {*BLOCKS, *(-(-n_k // n) for n in PARTS)}
        lists = [tuple(range(0, n_k, n)) for n in sorted(sizes) if n_k > 2 * n]
        lists += [_even(n, n_k) for n in PARTS if n < n_k]
        if width > 2:
            first, last = sums[:, 1:-1], sums[:, -1:] - sums[:, 1:-1]
            both = np.stack([first, last], axis=-2)
            residual = solved_shares(both, observed[:, None]).residual
            each = np.sqrt(np.square(residual).mean(axis=(0, -1)))
            errors |= {(0, cut): float(x) for cut, x in enumerate(each, 1)}
    for starts in lists:
        if len(starts) < min(width, PARTS.stop):
            ends = [*starts[1:], n_k]
            parts = sums[:, ends] - sums[:, list(starts)]
            errors[starts] = rms(np.abs(solved_shares(parts, observed).residual))
    fitting = sorted((x for x in errors if errors[x] <= allowed), key=lambda x: errors[x])
    in_two, in_more = ([x for x in fitting if (len(x) == 2) is is_two] for is_two in (True, False))
    return in_two[:MOST_CUTS] + sorted(in_more, key=len)[:MOST_CUTS]


def _even(n: int, n_k: int) -> Starts:
    """Where n parts begin of which none has more than one key more than another.

    >>> _even(4, 11)
    (0, 3, 6, 9)
    """
    return tuple(part * (n_k // n) + min(part, n_k % n) for part in range(n))


# ---- by which shares


def _of_cut(starts: Starts, search: Search, *, is_simple: bool) -> Iterator[Answer]:
    """The merges of these parts that give the shares which the output shows; last those shares.

    is_simple  whether they are the merges that look at a row alone, or the others
    """
    setup, comparison = search.comparison.setup, search.comparison
    if math.prod(setup.shape) > ALL:
        return
    rows = rows_of(search, OUTPUT, most=math.prod(comparison.subset.sizes))
    if rows is None:
        return
    solved, right = _shares_of(rows, starts)
    is_known = solved.is_known
    at = is_known & rows.is_usable
    if not at.any():
        return
    solution = (solved.shares * right)[at]
    wrong = rms(np.abs(solution - right[at]))
    rounding = ROUNDINGS * search.evidence.eps
    allowed, every = EXPLAINED * wrong + rounding, _merged_of(setup, starts)
    merges: Iterable[Merge] = SIMPLE
    if not is_simple:
        worst = np.argsort(-np.abs(solution - right[at]).max(axis=-1))[:MOST_ROWS]
        places = np.argwhere(at)[worst]
        some = np.stack([x[y] for x, y in zip(rows.over, places.T, strict=True)], axis=-1)
        near = of_other_places(every, some, solution[worst], NEARER * wrong + rounding)
        merges = chain(of_views(), near)
    for merge in merges:
        shares = merge.shares(every)[np.ix_(*rows.over)][at]
        if rms(np.abs(shares - solution)) <= max(allowed, LIKELY * wrong):
            sentence = f"{_parts_text(starts, setup.shape[3])} are merged {merge.words}"
            formula = (
                f"w is proportional to {merge.formula}"
                if merge.is_divided
                else f"w = {merge.formula}"
            )
            yield Answer(sentence, _setups(merge, starts, search), formula)
    if not is_simple:
        yield from _by_other_shares(solved, is_known, rows, starts, search)


MOST_ROWS = 16
"""So many rows, those whose shares are most wrong, say which other places may be read."""

NEARER = 0.25
"""What a merge gives for each of them is off by less than this share of what is typically wrong."""

LIKELY = 0.05
"""A merge leaves so little of what is wrong with the shares, or is not tried on all numbers."""


def _shares_of(rows: Rows, starts: Starts) -> tuple[Solved, Array]:
    """The shares that the output shows, beside the right ones; and the right ones."""
    shape = (*rows.weights.shape[:3], len(starts))
    sums = np.zeros((*shape, rows.observed.shape[-1]))
    ends = [*starts[1:], rows.weights.shape[-1]]
    for part, (start, end) in enumerate(zip(starts, ends, strict=True)):
        sums[..., part, :] = rows.weights[..., start:end] @ rows.values[:, :, start:end]
    observed = np.where(rows.is_usable[..., None], rows.observed, 0.0)
    right = np.add.reduceat(rows.weights, starts, axis=-1)
    return solved_shares(sums, observed), right


def _merged_of(setup: Setup, starts: Starts) -> Merged:
    """What merges look at, of all rows."""
    reads = _reads(setup)
    arrays = stages(setup, all_of(setup.shape), [*dict.fromkeys(reads.values())])
    return _parts_of(arrays[reads["x"]], arrays[reads["before"]], starts, setup)


def _reads(setup: Setup) -> dict[str, str]:
    """The stages that softmax reads, and that which any mask does."""
    names = names_of(whole_plan(setup))
    return {"x": names["logits"], "before": names.get("unmasked", names["logits"])}


def _parts_of(x: Array, before: Array, starts: Starts, setup: Setup) -> Merged:
    parts = Parts.of(x, starts)
    means = np.add.reduceat(before, starts, axis=-1) / parts.counts
    scale = setup.convention.scale_factor(setup.d_k) if setup.convention.is_scaled else 1.0
    return Merged(parts, means.astype(x.dtype), scale)


def _parts_text(starts: Starts, n_k: int) -> str:
    """Where the keys are cut, in words."""
    if len(starts) > 2 and starts == tuple(range(0, n_k, starts[1])):
        return f"blocks of {starts[1]} keys"
    if len(starts) == 2:
        return f"two parts of the keys, cut after key {starts[1]},"
    return f"parts of the keys, cut after keys {joined([str(x) for x in starts[1:]])},"


# ---- as setups


def _setups(merge: Merge, starts: Starts, search: Search) -> Iterator[Setup]:
    """The setups that merge so: the weights, and the log-sum-exp too where that was observed."""
    setup = search.comparison.setup
    reads = _reads(setup)

    def weights(x: Array, before: Array, **_: Array) -> Array:
        every = _parts_of(x, before, starts, setup)
        return every.parts.weights(merge.shares(every).astype(x.dtype))

    def lse(x: Array, before: Array, **_: Array) -> Array:
        every = _parts_of(x, before, starts, setup)
        return merge.lse(every) if merge.lse else log_sum_exp(merge.logarithms(every))

    for names in ((WEIGHTS,), (WEIGHTS, LSE)) if LSE in search.evidence.expected else ((WEIGHTS,),):
        functions = dict(zip(names, (weights, lse), strict=False))
        edit = partial(_with_functions, functions=functions, before=reads["before"])
        other = replace(setup.with_edit(edit), patched=setup.patched | {*names})
        yield other.with_whole(*merge.whole)


def _with_functions(
    plan: list[Step], functions: Mapping[str, Callable[..., Array]], before: str
) -> list[Step]:
    """The plan with functions for these steps, which read the scores before any mask too."""
    return [
        step._replace(function=functions[step.name], reads={**step.reads, "before": before})
        if step.name in functions
        else step
        for step in plan
    ]


def _by_other_shares(
    solved: Solved, is_known: BoolArray, rows: Rows, starts: Starts, search: Search
) -> Iterator[Answer]:
    """The shares as the output shows them: so many numbers of a row must confirm each of them."""
    setup, n_parts = search.comparison.setup, len(starts)
    is_exact = search.comparison.rule.dtype not in SMALL and search.comparison.rule.kind == "noise"
    if not is_exact or rows.observed.shape[-1] < CONFIRMED * n_parts:
        return
    changes = np.abs(solved.shares - 1).max(axis=-1)[is_known & rows.is_usable]
    is_right, is_unwritten = changes < EXPLAINED, (rows.observed == 0).all(axis=-1)
    if is_right.any() or is_unwritten.any():  # such rows are taken apart first
        return
    usable = solved.shares[is_known & rows.is_usable]
    if (np.ptp(usable, axis=-1) <= EXPLAINED * np.abs(usable).max(axis=-1)).all():
        return  # a row is multiplied as a whole: no parts are merged
    factors = np.ones((*setup.shape[:3], n_parts))
    factors[np.ix_(*rows.over)] = np.where(is_known[..., None], solved.shares, 1.0)
    counts = np.diff([*starts, setup.shape[3]])
    listed = setup.with_inputs(**{"times.given_mask": np.repeat(factors, counts, axis=-1)})
    right = np.add.reduceat(rows.weights, starts, axis=-1)
    apart = np.where(is_known, np.abs((solved.shares - 1) * right).max(axis=-1), 0.0)
    worst = np.unravel_index(int(apart.argmax()), apart.shape)
    places = ", ".join(
        places_text(kind, [int(axis[x])])
        for kind, axis, x, n in zip(KINDS, rows.over, worst, setup.shape, strict=False)
        if n > 1
    )
    shares = (solved.shares * right)[worst]
    sentence = (
        f"{_parts_text(starts, setup.shape[3])} are merged by other shares:"
        f" {_numbers(shares)} for {places}, where {_numbers(right[worst])} are right"
    )
    line = f"weights: => right * {TIMES}"
    yield Answer(sentence, changed([line], listed, search.evidence))


CONFIRMED = 2
"""So many numbers of a row there are for each share that is solved from it at least."""


def _numbers(x: Sequence[float] | Array) -> str:
    return joined([f"{value:.3g}" for value in x])
