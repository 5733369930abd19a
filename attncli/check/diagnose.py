"""check: somebody else's numbers in, a Verdict out.

observed ── shapes ── within tolerance? ── single bugs ── pairs ── where the errors lie
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attncli.attention.heads import four_axes
from attncli.check.comparison import Comparison, comparison_of, within_low_sums
from attncli.check.explain import common_ground, explanations_of, telling_input
from attncli.check.layouts import fitting_layouts
from attncli.check.observe import (
    DTYPES,
    Observation,
    Pick,
    WrongShapeError,
    differing_inputs,
    observe,
    to_numpy,
)
from attncli.check.places import Names, names_of, places
from attncli.check.positions import PositionKind
from attncli.check.report import StageVerdict, Verdict, Worst
from attncli.check.search import Progress, Search, only_nan, search_of, search_pairs, search_singles
from attncli.check.setup import Array, Mask, Setup, setup_of
from attncli.check.tolerance import Rule, fitting_type, rule_of
from attncli.convention import Convention
from attncli.stages import OUTPUT


def check(  # noqa: PLR0913
    observed: Any,
    q: Any,
    k: Any,
    v: Any,
    *,
    stage: str = OUTPUT,
    mask: Any = None,
    past_k: Any = None,
    past_v: Any = None,
    kv_len: Any = None,
    convention: Convention | None = None,
    positions: PositionKind | None = None,
    decimals: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    rows: Pick = None,
    heads: Pick = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
    pairs: bool = True,
    progress: Progress = None,
) -> Verdict:
    """Do these numbers match, and if not, which bug is it?

    observed    an array, the stage of that name; or a mapping of several stages by name
    q, k, v …   what `attend` takes; the convention is the one that ought to have been followed
    positions   "paper", "article" (sinusoidal, added to q, k and v, which are embeddings of one
                width), "rope-halves", "rope-interleaved" (rotary, turned into q and k): they are
                put in here, so q, k, v and the past are given without. Keys count from 0, the
                cached ones first; queries from the length of the past. Among several observed
                stages, q, k and v are those without positions as well
    decimals    the numbers were printed with so many; or rtol and atol; else the noise floor
    rows, heads which query rows and heads were observed, counted from 0; else all
    pairs       whether pairs of bugs are tried where no single one fits
    progress    called with how many bugs, then how many pairs, are tried, and of how many

    Arrays are whatever NumPy or DLPack takes, PyTorch and JAX tensors included. Numbers are
    judged in the type they came in, or in the convention's where that is narrower.
    Raises ShapeError, StageError and ConventionError for inputs that do not fit together; an
    observed array of a wrong shape is no error but a verdict.

    >>> q, k, v = [[1, 0], [0, 1], [1, 1]], [[1, 1], [1, 0], [0, 1]], [[10, 0], [0, 10], [5, 5]]
    >>> printed = [0.42, 0.42, 0.16]
    >>> check(printed, q, k, v, stage="weights", rows=[0], decimals=2).explanations[0].name
    'scale left out'
    """
    given = dict(observed) if isinstance(observed, Mapping) else {stage: observed}
    inputs = {"q": q, "k": k, "v": v, "mask": mask, "past_k": past_k, "past_v": past_v}
    setup = _case_of(inputs | {"kv_len": kv_len}, convention, positions)
    rule = rule_of(decimals, rtol, atol, setup.how.dtype)
    if wrong := differing_inputs(given, {"q": q, "k": k, "v": v}):
        return Verdict("no match", rule.dtype, first_difference=wrong[0], notes=(wrong[1],))
    try:
        seen = observe(given, setup, rows=rows, heads=heads)
    except WrongShapeError as error:
        return _wrong_shape(error, setup, rule)
    comparison = comparison_of(setup, seen.subset, seen.stages, _rule_for(seen, rule))
    labels = {"query": tuple(query_labels or ()), "key": tuple(key_labels or ())}
    return _judged(comparison, seen, labels, pairs, progress)


def _case_of(
    inputs: Mapping[str, Any], convention: Convention | None, positions: PositionKind | None
) -> Setup:
    """The setup of inputs that may be any library's tensors."""
    arrays: dict[str, Any] = {
        name: None if x is None else to_numpy(x, name)[0] for name, x in inputs.items()
    }
    return setup_of(**arrays, convention=convention, positions=positions)


def _rule_for(seen: Observation, rule: Rule) -> Rule:
    """The rule in the narrower of the observed and the convention's number type."""
    dtype = min(seen.dtype, rule.dtype, key=DTYPES.index)
    return replace(rule, dtype=dtype)


def _judged(
    comparison: Comparison, seen: Observation, labels: Labels, pairs: bool, progress: Progress
) -> Verdict:
    dtype, notes = comparison.rule.dtype, seen.notes
    if not any(wrong.any() for wrong in comparison.wrong.values()):
        return Verdict("match", dtype, stage_verdicts(comparison, seen.ndim, labels), notes=notes)
    search = search_of(comparison)
    found, telling = search_singles(search, progress)
    notes += tuple(_not_tried(search))
    if not found and within_low_sums(comparison, search.sample):
        stages = stage_verdicts(comparison, seen.ndim, labels, passing=True)
        low = f"the errors are those of sums kept in {dtype}, rounded after every term"
        return Verdict("match", dtype, stages, notes=(*notes, low))
    if not found and pairs:
        found = search_pairs(search, telling, progress)
    stages = stage_verdicts(comparison, seen.ndim, labels)
    first = next(stage.name for stage in stages if not stage.matches)
    explanations = explanations_of(found, comparison)
    if len(found) > 1:
        common, apart = common_ground(found), telling_input(explanations, comparison)
        return Verdict("ambiguous", dtype, stages, first, explanations, common, apart, "", notes)
    if found:
        return Verdict("found", dtype, stages, first, explanations, notes=notes)
    hints = seen.hints if comparison.rule.kind == "noise" else ()
    return Verdict("no match", dtype, stages, first, notes=(*notes, *hints))


def _not_tried(search: Search) -> Iterator[str]:
    """Which bugs were left out, and why."""
    if only_nan(search.full):
        yield "every wrong number is NaN: only bugs that make NaN were tried"
    for name, n in search.skipped.items():
        yield f"{name!r} was not tried: it needs {n} scores at once"


def _wrong_shape(error: WrongShapeError, setup: Setup, rule: Rule) -> Verdict:
    """What is wrong with the shape, which re-layouts give the right one, and what comes of them."""
    sentences = [error.message]
    for words, array in fitting_layouts(error.array, error.expected):
        dtype = min(fitting_type(array, error.dtype), rule.dtype, key=DTYPES.index)
        comparison = comparison_of(
            setup, error.subset, {error.stage: four_axes(array)}, replace(rule, dtype=dtype)
        )
        outcome = (
            "then it still differs" if comparison.wrong[error.stage].any() else "then it matches"
        )
        sentences.append(f"{words}; {outcome}")
    if len(sentences) == 1 and error.is_part:
        sentences.append("it may be a part: say which rows and heads it holds")
    return Verdict(
        "wrong shape", rule.dtype, first_difference=error.stage, shape=". ".join(sentences)
    )


N_WORST = 5
Labels = Mapping[str, Sequence[str]]


def stage_verdicts(
    comparison: Comparison, ndim: int, labels: Labels, *, passing: bool = False
) -> tuple[StageVerdict, ...]:
    """A verdict on each stage of the comparison, in the order of the computation.

    passing: everything passes by another rule than the comparison's own
    """
    found = []
    for stage in comparison.observed:
        names = names_of(stage, comparison.setup, comparison.subset, ndim, labels)
        found.append(_stage_verdict(stage, comparison, names, passing))
    return tuple(found)


def _stage_verdict(stage: str, comparison: Comparison, names: Names, passing: bool) -> StageVerdict:
    errors, wrong = comparison.errors[stage], comparison.wrong[stage]
    matches = passing or not bool(wrong.any())
    return StageVerdict(
        name=stage,
        matches=matches,
        tolerance=comparison.rule.describe(),
        allowed=float(np.median(comparison.allowed[stage])),
        largest=float(errors.max(initial=0.0)),
        median=float(np.median(errors)),
        share_wrong=0.0 if matches else float(wrong.mean()),
        n=int(errors.size),
        places=() if matches else places(stage, comparison, names),
        worst=() if matches else _worst(stage, comparison, names),
    )


def _worst(stage: str, comparison: Comparison, names: Names) -> tuple[Worst, ...]:
    """The entries with the largest errors; of equal ones, those that come first."""
    observed, expected = comparison.observed[stage], comparison.plain[stage]
    found = []
    for flat in _largest(comparison.errors[stage], comparison.wrong[stage]):
        at = tuple(int(i) for i in np.unravel_index(flat, observed.shape))
        both = float(observed[at]), float(expected[at])
        found.append(Worst(names.place(at), names.whole_index(at), *both))
    return tuple(found)


def _largest(errors: Array, wrong: Mask) -> list[int]:
    flat = np.where(wrong, errors, -1.0).ravel()
    n = min(N_WORST, int(wrong.sum()))
    bound = np.partition(flat, flat.size - n)[flat.size - n]
    at = np.flatnonzero(flat >= bound)
    order = np.argsort(-flat[at], kind="stable")[:n]
    return [int(i) for i in at[order]]
