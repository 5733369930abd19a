"""Counts: how often each key takes part, a key of zeros, and the sink; solved from some rows.

With right weights a and counts m, O_i Σ_j m_j a_ij = Σ_j m_j a_ij v_j: this is linear in m. A key
of zeros has a score and a value of 0; the sink has a score and no value. So m is what a matrix
takes to 0 that has a row for every number and a column for every key, the sink and keys of zeros.

    Rows ── columns_of ──> matrix ── null_vector ──> Counts
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.commands.check.bugs.facts import number_text
from attncli.commands.check.questions.key_sets import KeySet, key_set
from attncli.commands.check.questions.rows import Rows
from attncli.errors import joined
from attncli.stages import LSE
from attncli.tolerance.run import Indices

Extra = Literal["sink", "zeros"]

CLOSER = 0.7
"""With the counts an equation must be off by so little beside what it is with 1 for each. As many
random equations as `ENOUGH` says are off by 0.6 of that when as many counts are fitted to them."""

ENOUGH = 1.25
"""So many equations there must be for each count that is solved."""

WHOLE = 0.25
"""A count as near as this to a whole number may be that one: whether it is, all numbers say."""

EXACT = 1e-5
"""A count as near as this is it: they are solved from numbers that are rounded."""

MOST_OTHERS = 3
"""Of counts that are no whole numbers there may be so many: more would fit any numbers."""


@dataclass(frozen=True, eq=False)
class Counts:
    """How often what takes part does.

    keys      [key]: 1 for those that no row says anything of
    is_known  [key]: of which the rows say something
    sink      1 where there is none
    zeros     how many keys of zeros take part
    kind      query, where it is they that count, not keys
    """

    keys: Array
    is_known: BoolArray
    sink: float = 1.0
    zeros: float = 0.0
    kind: str = "key"

    @property
    def is_right(self) -> bool:
        """Whether everything counts once."""
        is_once = bool((np.abs(self.keys - 1) <= EXACT).all())
        return is_once and abs(self.sink - 1) <= EXACT and self.zeros <= EXACT

    @property
    def is_possible(self) -> bool:
        """Whether something takes part, nothing less than 0 times, and most whole times."""
        numbers = np.array([*self.keys, self.sink, self.zeros])
        others = np.unique(numbers[np.abs(numbers - numbers.round()) > EXACT].round(4))
        return bool((numbers >= 0).all() and self.keys.any()) and len(others) <= MOST_OTHERS

    def rounded(self, within: float) -> Counts:
        """The same with whole numbers for those that are as near to one."""

        def near(x: Array) -> Array:
            whole = x.round()
            return np.where(np.abs(x - whole) <= within, whole + 0.0, x)  # no -0

        sink, zeros = near(np.array([self.sink, self.zeros])).tolist()
        return Counts(near(self.keys), self.is_known, sink, zeros, self.kind)

    @property
    def sets(self) -> list[tuple[float, KeySet]]:
        """The keys that do not count once, by how often they count."""
        numbers = self.keys.round(5)
        values = np.unique(numbers[self.is_known & (numbers != 1)]).tolist()
        return [(value, key_set(numbers == value, self.is_known, self.kind)) for value in values]

    @property
    def text(self) -> str:
        """What does not count once, in words."""
        parts = [
            f"{keys.words} {'counts' if keys.is_one else 'count'} {times_text(value)}"
            for value, keys in self.sets[:MOST_SAID]
        ]
        if abs(self.sink - 1) > EXACT:
            parts.append(f"the sink counts {times_text(self.sink)}")
        if self.zeros > EXACT:
            verb = "counts" if self.zeros == 1 else "count"
            parts.append(f"{number_text(self.zeros, 'keys')} of zeros {verb}{self._page}")
        return joined(parts)

    @property
    def _page(self) -> str:
        is_page = self.zeros > 1 and len(self.keys) % self.zeros == 0
        return " (the page after the end)" if is_page else ""


MOST_SAID = 4
"""Of keys that count otherwise so many sets are said."""


def times_text(x: float) -> str:
    """How often: "2 times"."""
    return f"{number_text(x)} time{'s' * (x != 1)}"


# ---- solved from some rows


def columns_of(
    rows: Rows, extras: Sequence[Extra], at: BoolArray, places: Indices | None = None
) -> Array:
    """[number, count]: what each key adds to the equations; the sink; keys of zeros.

    at      [batch, head, row]: of these rows
    places  [row, key]: at which place each key counts; None: every key by itself
    """
    blocks = list[Array]()
    for b, h in np.ndindex(at.shape[:2]):
        some = at[b, h]
        weights, observed, lse = (x[b, h][some] for x in (rows.weights, rows.observed, rows.lse))
        if rows.stage == LSE:
            keys: Array = weights[:, None, :]
            rest = np.ones((len(weights), 1))
        else:
            keys = weights[:, None, :] * (rows.values[b, h].T[None] - observed[:, :, None])
            rest = -observed
        if places is not None:
            keys = _by_place(keys, places[some], int(places.max()) + 1)
        scores = {"sink": 0.0 if rows.sinks is None else rows.sinks[h], "zeros": 0.0}
        others = [(np.exp(scores[name] - lse)[:, None] * rest)[..., None] for name in extras]
        if rows.stage == LSE:
            others.append(-np.exp(observed - lse[:, None])[..., None])
        every = np.concatenate([keys, *others], axis=-1)
        blocks.append(every.reshape(-1, every.shape[-1]))
    return np.concatenate(blocks)


def _by_place(keys: Array, places: Indices, n: int) -> Array:
    """The sums over the keys that count at one of n places: [row, e, key] -> [row, e, place]."""
    if n == 1:
        return np.asarray(keys.sum(axis=-1, keepdims=True))
    sums = np.zeros((*keys.shape[:2], n))
    for row, at in enumerate(places):  # each place once in a row
        sums[row][:, at] = keys[row]
    return sums


class Solution(NamedTuple):
    """How often something at each place counts, of which the rows say something; sink and zeros."""

    each: Array
    is_known: BoolArray
    others: dict[str, float]


def solutions(rows: Rows, matrix: Array, extras: Sequence[Extra]) -> Iterator[Solution]:
    """With which counts these equations hold."""
    is_lse = rows.stage == LSE
    if len(matrix) < ENOUGH * matrix.shape[1] or (x := null_vector(matrix)) is None:
        return
    n = matrix.shape[1] - len(extras) - is_lse
    plain = np.array([*[1.0] * n, *(float(name == "sink") for name in extras), *[1.0] * is_lse])
    is_known = np.isfinite(x[:n])
    for reference in [x[-1]] if is_lse else _references(x[:n][is_known]):
        if not np.isfinite(reference) or reference == 0:
            continue
        result = np.nan_to_num(x / reference)
        if np.linalg.norm(matrix @ result) <= CLOSER * np.linalg.norm(matrix @ plain):
            others = dict(zip(extras, result[n:].tolist(), strict=False))
            yield Solution(np.where(is_known, result[:n], 1.0), is_known, others)


def _references(keys: Array) -> list[float]:
    """Which number may be 1: that of most keys, or the least one."""
    sizes = keys[np.abs(keys) > WHOLE / 2 * np.abs(keys).max(initial=0.0)]
    if not sizes.size:
        return []
    return [float(np.median(sizes)), float(sizes[np.abs(sizes).argmin()])]


def counts_of(
    rows: Rows, extras: Sequence[Extra], at: BoolArray, places: Indices | None = None
) -> Iterator[Counts]:
    """The counts with which these rows are as observed, as whole numbers first."""
    n_keys = rows.weights.shape[-1]
    if places is None and not may_count(rows, extras, at):
        return
    for each, is_known, others in solutions(rows, columns_of(rows, extras, at, places), extras):
        keys, is_solved = (np.broadcast_to(x, n_keys) for x in (each, is_known))
        counts = Counts(keys, is_solved, others.get("sink", 1.0), others.get("zeros", 0.0))
        for candidate in (counts.rounded(WHOLE), counts.rounded(EXACT)):
            if candidate.is_possible and not candidate.is_right:
                yield candidate


def may_count(rows: Rows, extras: Sequence[Extra], at: BoolArray) -> bool:
    """Whether other counts of each key may give those of the rows that see few keys.

    Their equations are a part of all, of few counts. A number that is off by δ makes an equation be
    off by δ Σ_j m_j a_ij: where nothing that the part is applied to becomes so small, no counts are
    right. True where no part is small.
    """
    width, is_seen = rows.observed.shape[-1], rows.weights[at] > 0
    order = np.argsort(is_seen.sum(axis=-1), kind="stable")
    n_counts = len(extras) + np.logical_or.accumulate(is_seen[order]).sum(axis=-1)
    is_part = width * np.arange(1, len(order) + 1) >= ENOUGH * n_counts
    is_part &= n_counts <= PART * is_seen.shape[-1]
    if rows.stage == LSE or not is_part.any():
        return True
    some = np.zeros_like(at)
    some[tuple(x[order[: np.flatnonzero(is_part)[-1] + 1]] for x in np.nonzero(at))] = True
    matrix = columns_of(rows, extras, some)
    # what an equation has of each count beside (v − o): with v = 0 and o = −1 that is all of it
    minus, zeros = np.full_like(rows.observed[..., :1], -1), np.zeros_like(rows.values[..., :1])
    shares = columns_of(rows._replace(observed=minus, values=zeros), extras, some)
    is_there = shares.any(axis=0)
    if not is_there.any() or not np.isfinite(matrix).all():
        return True
    size = np.abs(matrix[:, is_there]).max(axis=0)
    size = np.maximum(size, max(UNUSED * size.max(), LEAST))
    least = np.linalg.svd(matrix[:, is_there] / size, compute_uv=False)[-1]
    off_by = rows.allowed[some][:, None] * shares[:, is_there] / size
    return not least > np.sqrt(width) * np.linalg.norm(off_by)


PART = 0.125
"""The rows of which counts are refused have at most this share of all counts."""

LEAST = 1e-150
"""A column of smaller numbers is one of zeros."""


# ---- what a matrix takes to 0, up to rounding


UNUSED = 1e-10
"""A column that is so small beside the largest says nothing: a key that is hidden everywhere."""

RIDGE = 1e-14
"""What is added to the diagonal, beside its largest entry, so that the products have an inverse."""

ALONE = 3.0
"""The vector must be alone: the next one is taken to something so many times as long at least."""

STEPS = 8
"""Each step brings both vectors nearer by the square of the ratio of their lengths."""


def null_vector(matrix: Array) -> Array | None:
    """The vector that the matrix takes nearest to 0, NaN at columns that say nothing.

    None where there are too few rows, or where more than one vector may be it.
    """
    size = np.abs(matrix).max(axis=0, initial=0.0)
    used = size > UNUSED * size.max(initial=0.0)
    n_used = int(used.sum())
    if n_used < 2 or len(matrix) < n_used + 1:
        return None
    columns = matrix[:, used] / size[used]
    products = columns.T @ columns
    products[np.diag_indices(n_used)] += RIDGE * products.diagonal().max()
    try:
        inverse = np.linalg.inv(products)
    except np.linalg.LinAlgError:
        return None
    both = np.stack([inverse[:, inverse.diagonal().argmax()], np.ones(n_used)], axis=-1)
    for _ in range(STEPS):
        both = np.linalg.qr(inverse @ both)[0]
    # what the rounding of the products has left is taken away with the matrix itself
    first, second = both.T
    for _ in range(2):
        rest = inverse @ (columns.T @ (columns @ first))
        first = first - (rest - first * (first @ rest))
        first = first / np.linalg.norm(first)
    lengths = [float(np.linalg.norm(columns @ x)) for x in (first, second)]
    if not np.isfinite(lengths).all() or lengths[1] < ALONE * lengths[0]:
        return None
    vector = np.full(len(size), np.nan)
    vector[used] = first / size[used]
    return vector
