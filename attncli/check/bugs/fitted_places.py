"""Bugs with a whole number in them that is fitted: lengths, windows and positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from attncli.arrays import Array
from attncli.check.bugs.bug import Evidence
from attncli.check.bugs.fitted import explains, fitted_numbers, listed
from attncli.check.bugs.patch import Variants
from attncli.check.fitting import misfit, whole_minimum
from attncli.check.setup import Setup

BASES = (1e2, 1e3, 5e3, 2.5e4, 5e4, 1e5, 1.5e5, 1.6e5, 2.5e5, 5e5, 1e6, 5e6, 8e6, 1e7, 1e8)
"""Bases of rotary positions that models have, beside 10000."""

OFFSETS = 16
"""Positions may be counted from a number up to so much further on, or back."""


def _other_lengths(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    wide, lengths = evidence.wide, setup.inputs.get("kv_len")
    if wide is None or lengths is None:
        return
    n_batch, n_k = setup.shape[0], setup.shape[3]

    def of(x: Array) -> Setup:
        return setup.with_inputs(kv_len=x.astype(np.int64))

    at, least = whole_minimum(lambda x: misfit(of(x), wide).mean(axis=1), 1, n_k, n_batch)
    if explains(least, setup, wide) and not np.array_equal(at, lengths):
        yield of(at).with_detail(f"lengths {listed(at)}, not {listed(lengths)}")


def _another_window(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    sample, given = evidence.sample, setup.how.window
    if sample is None:
        return
    most = setup.shape[3] - 1
    right = -1 if given is None else given[1]
    own = int(setup.how.window_counts == "own")  # LEFT counts the query's own key as well
    forms: list[Callable[[int], tuple[int, int]]] = [lambda n: (n + own, right)]
    if given is not None:
        forms += [lambda n: (given[0], n), lambda n: (n + own, n)]
    elif not setup.how.causal:
        forms += [lambda n: (n + own, 0), lambda n: (n + own, n)]
    for form in forms:

        def loss(x: Array, form: Callable[[int], tuple[int, int]] = form) -> Array:
            changed = setup.with_how(window=form(int(x[0])))
            return np.array([misfit(changed, sample).mean()])

        at, least = whole_minimum(loss, 0, most)
        window = form(int(at[0]))
        if explains(least, setup, sample) and window != given:
            left, after = window
            left -= own if left > 0 else 0
            words = f"{_bound(left)} before the query, {_bound(after)} after"
            yield setup.with_how(window=window).with_detail(words)


def _bound(n: int) -> str:
    return "any number of keys" if n < 0 else f"{n} keys" if n != 1 else "1 key"


def _another_base(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    if setup.positions is None or (sample := evidence.sample) is None:
        return

    def of(base: float) -> Setup:
        return setup.with_positions(base=base)

    losses = [float(misfit(of(base), sample).mean()) for base in BASES]
    base = BASES[int(np.argmin(losses))]
    if not explains(np.array([min(losses)]), setup, sample):
        found = fitted_numbers(lambda x: of(float(x[0])), sample, lambda x: 10.0**x, (1, 8))
        if found is None:
            return
        base = float(found[0])
    yield of(base).with_detail(f"base {base:.6g}, not {setup.positions.base:g}")


def _partial(setup: Setup, _: Evidence) -> Iterator[Setup]:
    if setup.positions is None or not setup.positions.is_rotary:
        return
    for share in (8, 4, 2):
        width = setup.d_k // share
        if width >= 2 and width % 2 == 0:
            words = f"on the first {width} of {setup.d_k} entries"
            yield setup.with_positions(width=width).with_detail(words)
            whole = setup.with_positions(width=width, of_width=setup.d_k)
            yield whole.with_detail(f"{words}, with the frequencies of all")


def _another_start(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    if (positions := setup.positions) is None or (sample := evidence.sample) is None:
        return
    names = ("from_query",) if positions.is_rotary else ("from_query", "from_past", "from_new")
    found = []
    for by in range(-OFFSETS, OFFSETS + 1):
        starts = {name: getattr(positions, name) + by for name in names}
        if by and (positions.is_rotary or min(starts.values()) >= 0):
            moved = setup.with_positions(**starts)
            found.append((float(misfit(moved, sample).mean()), by, moved))
    least, by, moved = min(found, key=lambda one: one[0])
    if explains(np.array([least]), setup, sample):
        of = "the queries" if positions.is_rotary else "every token"
        yield moved.with_detail(f"of {of} by {by:+d}")


FITTED_PLACES: dict[str, Variants] = {
    "other key lengths": _other_lengths,
    "another window": _another_window,
    "rotary positions with another base": _another_base,
    "rotary positions on a part of the width": _partial,
    "positions counted from another number": _another_start,
}
