"""Judging: the call of an example is computed, and each claim is compared with its trace.

Example ── run ── Trace ── select ── ours ── compare ── Judgement ───────┐
   claims ── cause: from printed earlier stages ── Recomputed ───────────┼── Result
      └───── alternatives, recomputed ──────────── Recomputed ───────────┘

A number can differ because its author rounded between two steps, or because an earlier number is
wrong. So the printed numbers of an earlier stage replace ours, and the rest is computed from them:

| the printed number comes out, and the earlier ones | cause |
|---|---|
| were all right, as rounded | rounding only |
| were wrong themselves | carried over |
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import FloatArray
from attncli.commands.examples.printed import (
    VERDICTS,
    Printed,
    Verdict,
    compare,
    cut_off,
    holds,
    worst,
)
from attncli.commands.examples.runs import Run
from attncli.commands.examples.schema import Alternative, At, Cause, Claim, Example, Take
from attncli.errors import AttncliError, InputError
from attncli.files.messages import listing, quote, safe
from attncli.trace import Stage, Trace

MOST_CELLS = 1 << 22
"""Most numbers of a place: 32 MB of float64."""
MOST_STAGES = 3
"""How many printed stages replace ours at once, the nearest first: seven combinations at most."""

_RIGHT = VERDICTS[:2]
_FINE = (*_RIGHT, "agrees", "not printed", "needs --vectors FILE")
_ALONG: dict[str, Any] = {"sum": np.sum, "mean": np.mean, "deviation": np.std}


class Recomputed(NamedTuple):
    """Numbers that were computed in another way than by the example itself."""

    text: str  # the way in words
    ours: FloatArray  # the numbers
    verdict: Verdict  # of them, against what should come out (what was printed, by default)


@dataclass(frozen=True, eq=False)
class Judgement:
    """A claim, our numbers, and how they compare."""

    claim: Claim
    verdict: Verdict
    ours: FloatArray | None = None  # those at its place; None where the example was not computed
    cause: Cause | None = None  # why it differs, where that follows from the numbers
    recomputed: Recomputed | None = (
        None  # what printed earlier numbers give, if it differs and they do
    )
    alternatives: tuple[Recomputed, ...] = ()  # those recorded, recomputed

    @property
    def problem(self) -> str:
        """What is not as recorded, or ""; without a recorded verdict the claim must not differ."""
        if self.verdict == "needs --vectors FILE":
            return ""
        expected = self.claim.verdict
        if self.verdict != expected and (expected or self.verdict not in _FINE):
            return f"{self.verdict}, {'recorded as ' + expected if expected else 'not recorded'}"
        if self.claim.cause and self.cause != self.claim.cause:
            return f"the cause is {self.cause or 'unknown'}, recorded as {self.claim.cause}"
        wrong = [other.text for other in self.alternatives if other.verdict not in _FINE]
        return f"this does not give the recorded numbers: {wrong[0]}" if wrong else ""

    @property
    def ok(self) -> bool:
        """Whether it came out as recorded."""
        return not self.problem


class Result(NamedTuple):
    """An example, computed and judged.

    needs  what it could not be computed without
    adds   what a file of word vectors would add
    """

    example: Example
    run: Run
    judgements: tuple[Judgement, ...]
    trace: Trace | None = None
    needs: str = ""
    adds: str = ""

    @property
    def ok(self) -> bool:
        """Whether each claim came out as recorded."""
        return all(judgement.ok for judgement in self.judgements)


def judge(example: Example, vectors: str | None = None) -> Result:
    """Compute an example and judge each of its claims; `vectors` is for those without vectors."""
    run, offline = example.run_with(vectors), example.offline if vectors is None else None
    if example.needs and vectors is None and offline is None:
        waiting = tuple(Judgement(claim, "needs --vectors FILE") for claim in example.claims)
        needs = f"{safe(example.needs)}, given with --vectors FILE"
        return Result(example, run, waiting, needs=needs)
    with _located(example.where):
        traces: dict[tuple[str, ...] | None, Trace] = {None: run.trace()}
    judgements: list[Judgement] = []
    for number, claim in enumerate(example.claims, start=1):
        place = f"{example.where}, claim {number}"
        before = [x for x in judgements if x.claim.words == claim.words]  # of the same run
        claim_run = run if claim.words is None else Run(claim.words)
        with _located(place):
            if claim.words not in traces:
                traces[claim.words] = claim_run.trace()
            trace = traces[claim.words]
            ours = numbers_of(stage_of(trace, claim.stage), claim, claim.at)
            judgement = _judged(claim, ours, trace, before)
        alternatives = []
        for way, other in enumerate(claim.alternatives, start=1):
            with _located(f"{place}, way {way}"):
                again = other.run_in_place_of(claim_run).trace()
                earlier = [x.claim for x in before]
                alternatives.append(_recomputed(other, claim, ours, again, earlier))
        judgements.append(replace(judgement, alternatives=tuple(alternatives)))
    adds = offline.adds if offline else ""
    return Result(example, run, tuple(judgements), traces[None], adds=adds)


@contextmanager
def _located(place: str) -> Iterator[None]:
    """Whatever cannot be computed here is an InputError that names the place in the file."""
    try:
        with np.errstate(all="ignore"):
            yield
    except AttncliError as problem:
        raise InputError(f"{place}: {problem.message}", problem.hint) from problem
    except np.linalg.LinAlgError as problem:
        raise InputError(f"{place}: it cannot be computed ({problem})") from problem


def _judged(claim: Claim, ours: FloatArray, trace: Trace, before: Sequence[Judgement]) -> Judgement:
    """The judgement, and for a difference its cause or what the printed stages give."""
    verdict = _verdict(ours, stage_of(trace, claim.stage), claim.at, claim, claim.numbers)
    if claim.basis == "shown here" and verdict == "reproduced":
        verdict = "agrees"
    judgement = Judgement(claim, verdict, ours)
    if judgement.verdict != "differs" or not claim.numbers or claim.take or claim.free_sign:
        return judgement
    if cut_off(ours, claim.numbers):
        return replace(judgement, cause="cut off")
    nearest = None
    for start, stage in _from_printed(trace, claim, [b.claim for b in before]):
        numbers = numbers_of(stage, claim, claim.at)
        text = f"from the printed {' and '.join(start)}"
        recomputed = Recomputed(text, numbers, worst(compare(numbers, claim.numbers)))
        used = {b.verdict for b in before if b.claim.stage in start and b.claim.printed}
        if recomputed.verdict in _RIGHT:
            cause: Cause = "rounding only" if used <= set(_RIGHT) else "carried over"
            return replace(judgement, recomputed=recomputed, cause=cause)
        if used != {"reproduced"}:  # from our own numbers comes what we have already
            nearest = nearest or recomputed
    return replace(judgement, recomputed=nearest)


def _recomputed(
    other: Alternative, claim: Claim, ours: FloatArray, trace: Trace, earlier: Sequence[Claim]
) -> Recomputed:
    """An alternative, compared with what it should give; `earlier` are the claims before."""
    stage, start = stage_of(trace, claim.stage), other.start
    if start:
        of_start = [c for c in earlier if c.stage == start]
        _, nearest = next(_from_printed(trace, claim, of_start), (start, None))
        if nearest is None:
            message = f"the claim does not follow from printed numbers of {quote(start)}"
            raise InputError(message, "print them in a claim before it")
        stage = nearest
    at = claim.at if other.at is None else other.at
    numbers = numbers_of(stage, claim, at)
    if other.at is not None and numbers.size == ours.size:
        numbers = numbers.reshape(ours.shape)
    verdict = _verdict(numbers, stage, at, claim, other.gives or claim.numbers)
    return Recomputed(other.text, numbers, verdict)


def _from_printed(
    trace: Trace, claim: Claim, earlier: Sequence[Claim]
) -> Iterator[tuple[tuple[str, ...], Stage]]:
    """The claim's stage from printed earlier ones, the nearest first, and their names."""
    printed, order = dict[str, FloatArray](), list(trace)
    names = {other.stage: dotted(trace, other.stage) for other in (*earlier, claim)}
    for other in earlier:
        name = names[other.stage]
        if other.take or other.free_sign or other.printed is None or name not in trace:
            continue
        value = printed.setdefault(name, np.array(trace[name].value, dtype=np.float64))
        place = np.ix_(*indices(trace[name], other.at))
        if value[place].size == other.printed.value.size:
            value[place] = other.printed.value.reshape(value[place].shape)
    end = names[claim.stage]
    if trace.compute is None or end not in trace:
        return
    near = [name for name in reversed(order[: order.index(end)]) if name in printed]
    for size in range(1, min(len(near), MOST_STAGES) + 1):
        for start in combinations(near[:MOST_STAGES], size):
            if {*start} == _reached(trace, end, start):
                stage = trace.again({name: printed[name] for name in start})[end]
                yield tuple(name.rpartition(".")[2] for name in start), stage


def _reached(trace: Trace, end: str, start: Collection[str]) -> set[str]:
    """Those stages of `start` from which `end` is computed, if all of them are given."""
    todo, seen = [end], set[str]()
    while todo:
        name = todo.pop()
        place = name.removesuffix(name.rpartition(".")[2])
        for read in trace[name].reads.values():
            inner = read.removesuffix(
                "_shared"
            )  # k in the heads of the queries, which is not shown
            before = next((x for x in (place + inner, inner) if x in trace), None)
            if before is not None and before not in seen:
                seen.add(before)
                todo += [] if before in start else [before]
    return seen & {*start}


# ---- our numbers and their verdict


def _verdict(
    ours: FloatArray, stage: Stage, at: At, claim: Claim, expected: Printed | None
) -> Verdict:
    """Of our numbers, against what is expected or what the claim states."""
    if expected is None:
        if claim.states is None:
            return "not printed"
        is_counted = claim.take is not None and claim.take.shape
        went_in = ours if is_counted else select(stage, at)[0]
        magnitude = np.abs(went_in[np.isfinite(went_in)]).max(initial=0.0)
        return worst(holds(ours, claim.states, magnitude))
    if ours.shape != expected.value.shape:
        shapes = [" × ".join(map(str, x.shape)) or "one" for x in (expected.value, ours)]
        message = f"the printed numbers are {shapes[0]}, the computed ones {shapes[1]}"
        raise InputError(message, "name their place in the stage with at")
    return worst(compare(ours, expected))


# ---- which numbers of which stage


def stage_of(trace: Trace, name: str) -> Stage:
    """The stage of a dotted name, or of the end of one. Raises StageError, InputError."""
    return trace[dotted(trace, name)]


def dotted(trace: Trace, name: str) -> str:
    """The dotted name that ends so, where there is one and no stage of the name itself."""
    ends = [full for full in trace if full.endswith(f".{name}")] if name not in trace else []
    if len(ends) > 1:
        raise InputError(f"there are {len(ends)} stages {quote(name)}", f"use {listing(ends)}")
    return ends[0] if ends else name


def select(stage: Stage, at: At) -> tuple[FloatArray, tuple[str, ...]]:
    """The numbers of a stage at a place, and the axes that are left: those of several entries."""
    index = indices(stage, at)
    if (size := math.prod(map(len, index))) > MOST_CELLS:
        message = f"the place is {size} numbers of stage {stage.name}"
        raise InputError(message, f"{MOST_CELLS} is the most")
    value = np.asarray(stage.value, dtype=np.float64)[np.ix_(*index)]
    axes = tuple(axis for axis in stage.axes if not isinstance(at.get(axis), int | str))
    return value.reshape([len(index[stage.axes.index(axis)]) for axis in axes]), axes


def numbers_of(stage: Stage, claim: Claim, at: At) -> FloatArray:
    """Our numbers at a place, or what `take` computes from them, with the printed signs if free."""
    value, axes = select(stage, at)
    if claim.take:
        value, axes = _taken(stage, value, axes, claim.take)
    printed, axis = claim.numbers, claim.free_sign
    if not axis:
        return value
    if axis not in axes or printed is None or printed.value.shape != value.shape:
        raise InputError("free_sign names no axis of the printed numbers")
    others = tuple(i for i, name in enumerate(axes) if name != axis)
    alike = (value * printed.value).sum(axis=others, keepdims=True)
    return value * np.where(alike < 0, -1.0, 1.0)


def _taken(
    stage: Stage, value: FloatArray, axes: tuple[str, ...], take: Take
) -> tuple[FloatArray, tuple[str, ...]]:
    """What `take` computes from numbers of a stage, and the axes that are left."""
    (operation,) = take.model_fields_set
    argument = getattr(take, operation)
    if operation == "shape":
        return np.array(value.shape, dtype=np.float64), ("axis",)
    if operation == "future":
        if axes[-2:] != ("query", "key") or value.size != stage.value.size:
            hint = 'take "future" of the whole of scores, masked or weights'
            raise InputError(f"stage {stage.name} there is not a table of queries and keys", hint)
        return value[..., np.triu(np.ones(value.shape[-2:], dtype=bool), k=1)].ravel(), ("cell",)
    if operation in {"minus", "cosine"}:
        other, _ = select(stage, argument)
        if other.shape != value.shape:
            raise InputError(f"the two places in stage {stage.name} differ in shape")
        if operation == "minus":
            return value - other, axes
        lengths = np.linalg.norm(value) * np.linalg.norm(other)
        return np.asarray((value * other).sum() / lengths), ()
    if argument not in axes:
        message = f"there is no axis {quote(argument)} left in stage {stage.name}"
        raise InputError(message, f"there is {listing(axes) or 'none'}")
    remaining_axes = tuple(axis for axis in axes if axis != argument)
    return np.asarray(_ALONG[operation](value, axis=axes.index(argument))), remaining_axes


def indices(stage: Stage, at: At) -> list[list[int]]:
    """For every axis of a stage, the indices from 0 that a place means. Raises InputError."""
    if unknown := [axis for axis in at if axis not in stage.axes]:
        message = f"stage {stage.name} has no axis {quote(unknown[0])}"
        raise InputError(message, f"it has {listing(stage.axes)}")
    index = []
    for axis, size in zip(stage.axes, stage.value.shape, strict=True):
        entries = at.get(axis, list(range(1, size + 1)))
        several = entries if isinstance(entries, list) else [entries]
        index.append([_index(stage, axis, entry) for entry in several])
    return index


def _index(stage: Stage, axis: str, entry: int | str) -> int:
    names = stage.names(axis)
    if isinstance(entry, int) and 1 <= entry <= len(names):
        return entry - 1
    if (count := names.count(entry)) != 1:
        amount, hint = "several entries", f"use a number from 1 to {len(names)}"
        if not count:
            amount, hint = "no entry", f"{hint}, or one of {listing(names)}"
        place = f"{quote(str(entry))} along {axis}"
        raise InputError(f"stage {stage.name} has {amount} {place}", hint)
    return names.index(entry)
