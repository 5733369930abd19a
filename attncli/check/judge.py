"""check: somebody else's numbers in, a Verdict out.

observed ── shapes ── within tolerance? ── single bugs ── pairs ── where the errors lie
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from attncli.check.bench import Bench, bench_of
from attncli.check.case import Case, case_of, four_axes
from attncli.check.explain import common_ground, explanations_of, telling_input
from attncli.check.layouts import fitting_layouts
from attncli.check.observation import (
    DTYPES,
    Observation,
    Pick,
    WrongShapeError,
    differing_inputs,
    observe,
    to_numpy,
)
from attncli.check.placement import Positions
from attncli.check.search import Progress, Trial, only_nan, search_pairs, search_singles, trial_of
from attncli.check.stage_verdicts import Labels, stage_verdicts
from attncli.check.sums import within_low_sums
from attncli.check.tolerance import Rule, fitting_type, rule_of
from attncli.check.verdict import Verdict
from attncli.convention import Convention


def check(  # noqa: PLR0913
    observed: Any,
    q: Any,
    k: Any,
    v: Any,
    *,
    stage: str = "output",
    mask: Any = None,
    past_k: Any = None,
    past_v: Any = None,
    kv_len: Any = None,
    convention: Convention | None = None,
    positions: Positions | None = None,
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
    case = _case_of(inputs | {"kv_len": kv_len}, convention, positions)
    rule = rule_of(decimals, rtol, atol, case.how.dtype)
    if wrong := differing_inputs(given, {"q": q, "k": k, "v": v}):
        return Verdict("no match", rule.dtype, first_difference=wrong[0], notes=(wrong[1],))
    try:
        seen = observe(given, case, rows=rows, heads=heads)
    except WrongShapeError as error:
        return _wrong_shape(error, case, rule)
    bench = bench_of(case, seen.cut, seen.stages, _rule_for(seen, rule))
    labels = {"query": tuple(query_labels or ()), "key": tuple(key_labels or ())}
    return _judged(bench, seen, labels, pairs, progress)


def _case_of(
    inputs: Mapping[str, Any], convention: Convention | None, positions: Positions | None
) -> Case:
    """The case of inputs that may be any library's tensors."""
    arrays: dict[str, Any] = {
        name: None if x is None else to_numpy(x, name)[0] for name, x in inputs.items()
    }
    return case_of(**arrays, convention=convention, positions=positions)


def _rule_for(seen: Observation, rule: Rule) -> Rule:
    """The rule in the narrower of the observed and the convention's number type."""
    dtype = min(seen.dtype, rule.dtype, key=DTYPES.index)
    return replace(rule, dtype=dtype)


def _judged(
    bench: Bench, seen: Observation, labels: Labels, pairs: bool, progress: Progress
) -> Verdict:
    dtype, notes = bench.rule.dtype, seen.notes
    if not any(wrong.any() for wrong in bench.wrong.values()):
        return Verdict("match", dtype, stage_verdicts(bench, seen.ndim, labels), notes=notes)
    trial = trial_of(bench)
    found, telling = search_singles(trial, progress)
    notes += tuple(_not_tried(trial))
    if not found and within_low_sums(bench, trial.sample):
        stages = stage_verdicts(bench, seen.ndim, labels, passing=True)
        low = f"the errors are those of sums kept in {dtype}, rounded after every term"
        return Verdict("match", dtype, stages, notes=(*notes, low))
    if not found and pairs:
        found = search_pairs(trial, telling, progress)
    stages = stage_verdicts(bench, seen.ndim, labels)
    first = next(stage.name for stage in stages if not stage.matches)
    explanations = explanations_of(found, bench)
    if len(found) > 1:
        common, apart = common_ground(found), telling_input(explanations, bench)
        return Verdict("ambiguous", dtype, stages, first, explanations, common, apart, "", notes)
    if found:
        return Verdict("found", dtype, stages, first, explanations, notes=notes)
    hints = seen.hints if bench.rule.kind == "noise" else ()
    return Verdict("no match", dtype, stages, first, notes=(*notes, *hints))


def _not_tried(trial: Trial) -> Iterator[str]:
    """Which bugs were left out, and why."""
    if only_nan(trial.full):
        yield "every wrong number is NaN: only bugs that make NaN were tried"
    for name, n in trial.skipped.items():
        yield f"{name!r} was not tried: it needs {n} scores at once"


def _wrong_shape(error: WrongShapeError, case: Case, rule: Rule) -> Verdict:
    """What is wrong with the shape, which re-layouts give the right one, and what comes of them."""
    sentences = [error.message]
    for words, array in fitting_layouts(error.array, error.expected):
        dtype = min(fitting_type(array, error.dtype), rule.dtype, key=DTYPES.index)
        bench = bench_of(
            case, error.cut, {error.stage: four_axes(array)}, replace(rule, dtype=dtype)
        )
        outcome = "then it still differs" if bench.wrong[error.stage].any() else "then it matches"
        sentences.append(f"{words}; {outcome}")
    if len(sentences) == 1 and error.is_part:
        sentences.append("it may be a part: say which rows and heads it holds")
    return Verdict(
        "wrong shape", rule.dtype, first_difference=error.stage, shape=". ".join(sentences)
    )
