"""Each observed stage beside the reference, as a StageVerdict: how far off, where, the worst."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from attncli.check.bench import Bench
from attncli.check.case import Array, Mask
from attncli.check.names import Names, names_of
from attncli.check.verdict import StageVerdict, Worst
from attncli.check.where import places

N_WORST = 5
Labels = Mapping[str, Sequence[str]]


def stage_verdicts(
    bench: Bench, ndim: int, labels: Labels, *, passing: bool = False
) -> tuple[StageVerdict, ...]:
    """A verdict on each stage of the bench, in the order of the computation.

    passing: everything passes by another rule than the bench's own
    """
    found = []
    for stage in bench.observed:
        names = names_of(stage, bench.case, bench.cut, ndim, labels)
        found.append(_stage_verdict(stage, bench, names, passing))
    return tuple(found)


def _stage_verdict(stage: str, bench: Bench, names: Names, passing: bool) -> StageVerdict:
    errors, wrong = bench.errors[stage], bench.wrong[stage]
    matches = passing or not bool(wrong.any())
    return StageVerdict(
        name=stage,
        matches=matches,
        tolerance=bench.rule.describe(),
        allowed=float(np.median(bench.allowed[stage])),
        largest=float(errors.max(initial=0.0)),
        median=float(np.median(errors)),
        share_wrong=0.0 if matches else float(wrong.mean()),
        n=int(errors.size),
        places=() if matches else places(stage, bench, names),
        worst=() if matches else _worst(stage, bench, names),
    )


def _worst(stage: str, bench: Bench, names: Names) -> tuple[Worst, ...]:
    """The entries with the largest errors; of equal ones, those that come first."""
    observed, expected = bench.observed[stage], bench.plain[stage]
    found = []
    for flat in _largest(bench.errors[stage], bench.wrong[stage]):
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
