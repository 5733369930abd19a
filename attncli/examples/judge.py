"""Judging: an example is computed with the library's own functions, and each claim is compared.

Example ── computed ── Trace ── select ── ours ── cells ── Judgement ──┐
   claims ── cause: from printed earlier stages ── Recomputed ─────────┤
      └───── alternatives, recomputed ──────────── Recomputed ─────────┴── Result ── Verification

A number can differ because its author rounded between two steps, or because an earlier number is
wrong. So the printed numbers of an earlier stage replace ours, and the computation goes on:

| the printed number comes out, and the earlier ones | cause |
|---|---|
| were all right, as rounded | rounding only |
| were wrong themselves | carried over |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from attncli.errors import AttncliError, InputError
from attncli.examples.compute import Computed
from attncli.examples.printed import (
    LOSS,
    VERDICTS,
    Cells,
    Printed,
    Verdict,
    compare,
    cut_off,
    worst,
)
from attncli.examples.schema import Alternative, At, Cause, Claim, Example, States
from attncli.examples.selection import Array, Selection, indices, select
from attncli.files.messages import quote, safe
from attncli.trace import Stage, Trace

CLOSE = 1e-3
"""How near `close_to` is: a thousandth of the value, or of 1 where that is more."""
MOST_STAGES = 3
"""How many printed stages replace ours at once, the nearest first: seven combinations at most."""

_RIGHT = VERDICTS[:2]
_FINE = (*_RIGHT, "not printed", "needs --glove FILE")


@dataclass(frozen=True, eq=False)
class Recomputed:
    """Numbers that were computed in another way than by the example itself.

    ours   the numbers
    cells  the verdict of each against what should come out (what was printed, by default)
    text   the way in words, or "" where only printed stages replaced ours
    start  the stages whose printed numbers replaced ours
    """

    ours: Selection
    cells: Cells
    text: str = ""
    start: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of the cells."""
        return worst(self.cells)


@dataclass(frozen=True, eq=False)
class Judgement:
    """A claim, our numbers, and how they compare.

    ours          our numbers at the claim's place; None where the example was not computed
    cells         the verdict of each number; empty where nothing is printed
    cause         why it differs, where the numbers alone tell
    own           what printed earlier numbers give, where it differs and they give anything
    alternatives  those recorded, recomputed
    """

    claim: Claim
    verdict: Verdict
    ours: Selection | None = None
    cells: Cells = field(default_factory=lambda: np.array([], dtype=np.str_))
    cause: Cause | None = None
    own: Recomputed | None = None
    alternatives: tuple[Recomputed, ...] = ()

    @property
    def problem(self) -> str:
        """What is not as recorded, or "".

        Without a recorded verdict the claim must not differ; with one it must come out so, and
        for the recorded cause and alternatives.
        """
        if self.verdict == "needs --glove FILE":
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


@dataclass(frozen=True, eq=False)
class Result:
    """An example, computed and judged; `needs` says what it could not be computed without."""

    example: Example
    judgements: tuple[Judgement, ...]
    trace: Trace | None = None
    needs: str = ""

    @property
    def ok(self) -> bool:
        """Whether each claim came out as recorded."""
        return all(judgement.ok for judgement in self.judgements)


@dataclass(frozen=True, eq=False)
class Verification:
    """The results of many examples."""

    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """Whether each example came out as recorded."""
        return all(result.ok for result in self.results)

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many claims have each verdict."""
        found = Counter(j.verdict for result in self.results for j in result.judgements)
        return {verdict: found[verdict] for verdict in VERDICTS}


def verify(examples: Iterable[Example], glove: str | None = None) -> Verification:
    """Judge all examples; the verification is ok if each claim comes out as it is recorded.

    >>> from attncli.examples import load_catalog
    >>> verify(e for e in load_catalog() if e.source.id == "003").ok
    True
    """
    return Verification(tuple(judge(example, glove) for example in examples))


def judge(example: Example, glove: str | None = None) -> Result:
    """Compute an example and judge each of its claims; printed.py has the rules.

    `glove` is the file for examples whose word vectors do not come with them; without it they
    are not computed. Raises InputError where the inputs do not fit together, or a claim is about
    a place that does not exist.

    >>> from attncli.examples import load_catalog
    >>> (example,) = [e for e in load_catalog() if e.name == "004-first-example"]
    >>> weights = judge(example).judgements[2]
    >>> weights.verdict, weights.alternatives[0].ours.value.round(4).tolist()
    ('differs', [0.4223, 0.4223, 0.1554])
    """
    if example.inputs.needs and glove is None:
        waiting = tuple(Judgement(claim, "needs --glove FILE") for claim in example.claims)
        needs = f"{safe(example.inputs.needs)}, given with --glove FILE"
        return Result(example, waiting, needs=needs)
    inputs = example.inputs.with_vectors(glove)
    with _located(example.where):
        computed = inputs.computed()
    judgements: list[Judgement] = []
    for number, claim in enumerate(example.claims, start=1):
        where = f"{example.where}, claim {number}"
        judgements.append(_judged(claim, computed, judgements, glove, where))
    return Result(example, tuple(judgements), computed.trace)


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Whatever cannot be computed here is an InputError that names the place in the file."""
    try:
        with np.errstate(all="ignore"):
            yield
    except AttncliError as problem:
        raise InputError(f"{where}: {problem.message}", problem.hint) from problem
    except np.linalg.LinAlgError as problem:
        raise InputError(f"{where}: it cannot be computed ({problem})") from problem


def _judged(
    claim: Claim, computed: Computed, before: Sequence[Judgement], glove: str | None, where: str
) -> Judgement:
    with _located(where):
        ours = _selected(computed.trace[claim.stage], claim, claim.at)
        cells = _compared(ours, claim, claim.printed)
        judgement = Judgement(claim, worst(cells), ours, cells)
        if judgement.verdict == "differs":
            judgement = _explained(judgement, ours, computed, before)
    earlier, alternatives = [b.claim for b in before], []
    for number, alternative in enumerate(claim.alternatives, start=1):
        with _located(f"{where}, way {number}"):
            alternatives.append(_recomputed(alternative, claim, ours, earlier, glove))
    return replace(judgement, alternatives=tuple(alternatives))


# ---- our numbers and the verdict of each


def _selected(stage: Stage, claim: Claim, at: At) -> Selection:
    """Our numbers at a place; those of each entry of `free_sign` have the sign of the printed."""
    ours = select(stage, at, claim.take)
    printed, axis = claim.printed, claim.free_sign
    if not axis:
        return ours
    if axis not in ours.axes or printed is None or printed.value.shape != ours.value.shape:
        raise InputError("free_sign names no axis of the printed numbers")
    others = tuple(i for i, name in enumerate(ours.axes) if name != axis)
    alike = (ours.value * printed.value).sum(axis=others, keepdims=True)
    return replace(ours, value=ours.value * np.where(alike < 0, -1.0, 1.0))


def _compared(ours: Selection, claim: Claim, expected: Printed | None) -> Cells:
    """The verdict of each cell against what is expected, or what the claim states."""
    if expected is None:
        stated = claim.states
        return np.array([], "U1") if not stated else holds(ours.value, stated, ours.magnitude)
    if ours.value.shape != expected.value.shape:
        shapes = [" × ".join(map(str, x.shape)) or "one" for x in (expected.value, ours.value)]
        raise InputError(
            f"printed numbers are {shapes[0]}, computed are {shapes[1]}",
            "name their place in the stage with at",
        )
    return compare(ours.value, expected)


def holds(ours: npt.ArrayLike, states: States, magnitude: float) -> Cells:
    """Whether a statement holds: "reproduced" or "differs" for each cell.

    `magnitude` is the greatest number that went into ours, which bounds what float64 loses.
    "unequal" holds where any cell is unequal: two vectors differ if one entry does.

    >>> holds([1.0, 0.9], States(equal=1.0), magnitude=1.0).tolist()
    ['reproduced', 'differs']
    """
    a, value = np.asarray(ours, dtype=np.float64), states.value
    bound = LOSS * max(magnitude, abs(value))
    if states.key == "close_to":
        bound = CLOSE * max(abs(value), 1.0)
    with np.errstate(all="ignore"):
        near = (np.abs(a - value) <= bound) | (a == value)
    if states.key == "unequal":
        near = np.broadcast_to((~near & ~np.isnan(a)).any(), a.shape)
    return np.where(near, VERDICTS[0], VERDICTS[2])


# ---- why a number differs


def _explained(
    judgement: Judgement, ours: Selection, computed: Computed, before: Sequence[Judgement]
) -> Judgement:
    """The judgement with its cause, where the numbers tell, and what printed stages give."""
    claim = judgement.claim
    if claim.printed is None or claim.take or claim.free_sign:
        return judgement
    if cut_off(ours.value, claim.printed):
        return replace(judgement, cause="cut off")
    nearest = None
    for start, stage in _going_on(computed, claim, [b.claim for b in before]):
        made = select(stage, claim.at)
        own = Recomputed(made, compare(made.value, claim.printed), start=start)
        used = {b.verdict for b in before if b.claim.stage in start and b.claim.printed}
        if own.verdict in _RIGHT:
            cause: Cause = "rounding only" if used <= set(_RIGHT) else "carried over"
            return replace(judgement, own=own, cause=cause)
        if used != {"reproduced"}:  # from our own numbers comes what we have already
            nearest = nearest or own
    return replace(judgement, own=nearest)


def _recomputed(
    alternative: Alternative,
    claim: Claim,
    ours: Selection,
    earlier: Sequence[Claim],
    glove: str | None,
) -> Recomputed:
    """An alternative, compared with what it should give; `earlier` are the claims before."""
    computed = alternative.computation.with_vectors(glove).computed()
    stage, start = computed.trace[claim.stage], alternative.start
    if start:
        printed = [c for c in earlier if c.stage == start]
        going = next(_going_on(computed, claim, printed), None)
        if going is None:
            raise InputError(
                f"the claim does not follow from printed numbers of {quote(start)}",
                "print them in a claim before it",
            )
        _, stage = going
    made = _selected(stage, claim, claim.at if alternative.at is None else alternative.at)
    if alternative.at is not None and made.value.size == ours.value.size:
        made = replace(ours, value=made.value.reshape(ours.value.shape))
    cells = _compared(made, claim, alternative.gives or claim.printed)
    return Recomputed(made, cells, alternative.text, (start,) if start else ())


def _going_on(
    computed: Computed, claim: Claim, earlier: Sequence[Claim]
) -> Iterator[tuple[tuple[str, ...], Stage]]:
    """The claim's stage from printed numbers: of an earlier stage, the nearest first, then of more.

    Gives the names of those stages too; nothing where the stage does not follow from any.
    """
    trace = computed.trace
    order, printed = list(trace), _printed_stages(trace, earlier)
    near = [name for name in reversed(order[: order.index(claim.stage)]) if name in printed]
    for size in range(1, min(len(near), MOST_STAGES) + 1):
        for start in combinations(near[:MOST_STAGES], size):
            value = computed.going_on({name: printed[name] for name in start}, claim.stage)
            if value is not None:
                yield start, replace(trace[claim.stage], value=value)


def _printed_stages(trace: Trace, claims: Sequence[Claim]) -> dict[str, Array]:
    """The stages of which numbers are printed, with those in the places of ours."""
    found: dict[str, Array] = {}
    for claim in claims:
        if claim.take or claim.free_sign or claim.printed is None or claim.stage not in trace:
            continue
        stage = trace[claim.stage]
        value = found.setdefault(claim.stage, np.array(stage.value, dtype=np.float64))
        place = np.ix_(*indices(stage, claim.at))
        if value[place].size == claim.printed.value.size:
            value[place] = claim.printed.value.reshape(value[place].shape)
    return found
