"""An input that tells bugs apart: small, of distinct sizes, on which they all differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.check.bugs import named
from attncli.check.bugs.hypothesis import Evidence, Hypothesis
from attncli.check.positions import PositionKind, positions_of
from attncli.check.report import Explanation
from attncli.check.run import everything, stages
from attncli.check.setup import Array, Setup, setup_of
from attncli.check.tolerance import distance
from attncli.convention import Convention
from attncli.stages import OUTPUT

Told = str | Hypothesis | Explanation
# (batch, head, kv_head, n_q, n_k, d_k, d_v): all different where the bugs allow it.
SHAPES = (
    (1, 2, 2, 3, 5, 7, 11),
    (1, 2, 2, 5, 3, 7, 11),
    (1, 4, 2, 3, 5, 7, 11),
    (1, 2, 2, 3, 5, 7, 7),
    (1, 2, 2, 5, 5, 7, 7),
    (1, 2, 2, 3, 5, 5, 5),
    (1, 3, 3, 5, 5, 5, 5),
    (1, 5, 5, 5, 5, 5, 5),
    (2, 4, 2, 3, 5, 7, 11),
    (2, 4, 2, 5, 5, 5, 5),
)
FAR = 1e-3


@dataclass(frozen=True, eq=False)
class Suggestion:
    """An input for the implementation under test; what its output is tells the bugs apart.

    q [head, n_q, d_k], k, v, with a batch axis before where that is needed; words say what it is.
    """

    q: Array
    k: Array
    v: Array
    mask: Array | None
    kv_len: npt.NDArray[np.int64] | None
    n_past: int
    words: str


def suggest_input(
    bugs: Sequence[Told],
    *,
    convention: Convention | None = None,
    positions: PositionKind | None = None,
    stages: Sequence[str] = (OUTPUT,),
) -> Suggestion | None:
    """The first of a fixed list of small inputs on which all the bugs differ from each other.

    bugs        names, hypotheses, or the explanations of an ambiguous verdict
    convention  the one under which they are told apart
    positions   those that the implementation puts in, as in `check`; the input is without them
    None where no input does: two bugs may always compute the same.
    Raises ConventionError for a name that does not exist.

    >>> found = suggest_input(["scale left out", "divided by d_k, not √d_k"])
    >>> found.words
    '2 heads, 3 queries, 5 keys, d_k 7, d_v 11'
    """
    ways = [_bugs(told) for told in bugs]
    for setup, words in _candidates(convention or Convention(), positions):
        if _all_differ(setup, ways, stages):
            return _suggestion(setup, words)
    return None


def _bugs(told: Told) -> list[tuple[Hypothesis, tuple[str, ...]]]:
    if isinstance(told, str):
        return [(named(told), ())]
    if isinstance(told, Hypothesis):
        return [(told, ())]
    return [(named(bug.name), told.details) for bug in told.bugs]


def _candidates(how: Convention, positions: PositionKind | None) -> Iterator[tuple[Setup, str]]:
    """Small inputs, the plainest first."""
    for masking, loud, shape in product(
        ("", "mask", "emptying mask", "lengths", "past"), (1.0, 300.0, 1e5), SHAPES
    ):
        sizes = _roomy(_fitting(shape, positions), how.window)
        words = _words(sizes, masking, loud) + (f", {positions} positions" if positions else "")
        yield _candidate(sizes, masking, loud, how, positions), words


def _fitting(shape: tuple[int, ...], positions: PositionKind | None) -> tuple[int, ...]:
    """Widths that take these positions: even ones for rotary, a single one for sinusoidal."""
    if positions is None:
        return shape
    if not positions_of(positions).is_rotary:
        return (*shape[:-1], shape[-2])
    even = [size + 1 for size in shape[-2:]]
    if shape[-3] == shape[-2]:  # keys as many as they are wide: a square
        return (*shape[:-3], even[0], *even)
    return (*shape[:-2], *even)


def _roomy(shape: tuple[int, ...], window: tuple[int, int] | None) -> tuple[int, ...]:
    """Enough tokens for the window to hide some."""
    room = 0 if window is None else min(512, 2 * max(0, *window))
    n_q, n_k = shape[3] + room, shape[4] + room
    return (*shape[:3], n_q, n_k, *shape[5:])


def _candidate(
    shape: tuple[int, ...],
    masking: str,
    loud: float,
    how: Convention,
    positions: PositionKind | None,
) -> Setup:
    rng = np.random.default_rng(7)
    n_batch, n_heads, n_kv, n_q, n_k, d_k, d_v = shape
    q = rng.normal(size=(n_batch, n_heads, n_q, d_k)).round(2) * loud
    k = rng.normal(size=(n_batch, n_kv, n_k, d_k)).round(2)
    v = rng.normal(size=(n_batch, n_kv, n_k, d_v)).round(2)
    given: dict[str, Any] = {}
    if masking == "past":
        given = {"past_k": k[:, :, :2], "past_v": v[:, :, :2]}
        k, v = k[:, :, 2:], v[:, :, 2:]
    elif masking == "lengths":
        given = {"kv_len": n_k - 1 - np.arange(n_batch)}
    elif masking:
        mask = rng.random((n_q, n_k)) < 0.6
        mask[:, 0] = True
        mask[-1] &= masking == "mask"
        given = {"mask": mask if how.mask_means == "keep" else ~mask}
    return setup_of(q, k, v, convention=how, positions=positions, **given)


def _words(shape: tuple[int, ...], masking: str, loud: float) -> str:
    n_batch, n_heads, n_kv, n_q, n_k, d_k, d_v = shape
    heads = f"{n_heads} heads" + (f" on {n_kv} key heads" if n_kv != n_heads else "")
    parts = [f"{n_batch} batch items"] * (n_batch > 1) + [heads, f"{n_q} queries", f"{n_k} keys"]
    parts += [f"d_k {d_k}", f"d_v {d_v}"]
    parts += {
        "": [],
        "mask": ["a boolean mask"],
        "emptying mask": ["a boolean mask that leaves the last query nothing"],
        "lengths": ["key lengths below the number of keys"],
        "past": ["2 of the keys as a past"],
    }[masking]
    return ", ".join(parts + [f"queries about {loud:g} in size"] * (loud > 1))


def _all_differ(
    setup: Setup, ways: list[list[tuple[Hypothesis, tuple[str, ...]]]], names: Sequence[str]
) -> bool:
    with np.errstate(all="ignore"):
        plain = stages(setup, everything(setup), names)
        seen = [(setup, plain)]
        for way in ways:
            changed = _changed(setup, way, plain)
            if changed is None:
                return False
            seen.append((changed, stages(changed, everything(changed), names)))
        return all(_differ(one, two) for one, two in combinations(seen, 2))


def _changed(
    setup: Setup, way: list[tuple[Hypothesis, tuple[str, ...]]], plain: dict[str, Array]
) -> Setup | None:
    """The setup under all bugs of one explanation, in the variant that was named."""
    evidence = Evidence(plain, plain)
    for bug, details in way:
        variants = list(bug.change(setup, evidence))
        wanted = [one for one in variants if one.detail and any(one.detail in d for d in details)]
        if not variants:
            return None
        setup = (wanted or variants)[0].setup
    return setup


def _differ(one: tuple[Setup, dict[str, Array]], two: tuple[Setup, dict[str, Array]]) -> bool:
    """Whether two cases would be observed as different numbers."""
    (first, a), (second, b) = one, two
    if first.relayout is not None and second.relayout is None:
        b = {name: first.relayout(name, x) for name, x in b.items()}
    elif second.relayout is not None and first.relayout is None:
        a = {name: second.relayout(name, x) for name, x in a.items()}
    for name, x in a.items():
        size = max(1e-300, float(np.max(np.abs(x[np.isfinite(x)]), initial=0.0)))
        if (distance(x, b[name]) > FAR * size).any():
            return True
    return False


def _suggestion(setup: Setup, words: str) -> Suggestion:
    """The arrays, without a batch axis of one."""
    q, k, v = (x[0] if setup.shape[0] == 1 else x for x in (setup.q, setup.k, setup.v))
    return Suggestion(q, k, v, setup.mask, setup.kv_len, setup.n_past, words)
