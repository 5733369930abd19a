"""Where the wrong entries lie: a sentence for each pattern that holds for all of them.

Places are called by token where there is a label, else q1, k2, head 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attncli.check.comparison import Comparison
from attncli.check.run import Indices, Subset, mask_of
from attncli.check.setup import Array, Mask, Setup
from attncli.stages import OUTPUT
from attncli.trace import Stage

_KINDS = {"batch": "batch items", "head": "heads", "query": "rows", "key": "columns"}


@dataclass(frozen=True, eq=False)
class Names:
    """How the entries of one stage are called.

    stage  has the shape of the whole stage, and no numbers
    subset    which of it was observed
    ndim   how many axes the caller's arrays have; the ones before are not spoken of
    """

    stage: Stage
    subset: Subset
    ndim: int

    @property
    def axes(self) -> tuple[str, ...]:
        """batch, head, query, and key or d_v."""
        return self.stage.axes

    def index(self, axis: int) -> Indices:
        """The whole stage's positions of an axis that were observed."""
        if axis == 3:
            return np.arange(self.stage.value.shape[3])
        return (self.subset.batch, self.subset.head, self.subset.row)[axis]

    def one(self, axis: int, position: int) -> str:
        """One entry of an axis, such as q3 or d_v 2."""
        name = self.stage.label(self.axes[axis], int(self.index(axis)[position]))
        return f"d_v {name}" if self.axes[axis] == "d_v" else name

    def _bare(self, axis: int, position: int) -> str:
        """One entry, where the kind of axis has been said already."""
        return self.one(axis, position).removeprefix("head ").removeprefix("batch ")

    def place(self, position: Sequence[int]) -> str:
        """One entry, such as head 1, q3, k2."""
        spoken = range(4 - self.ndim, 4)
        return ", ".join(self.one(axis, position[axis]) for axis in spoken)

    def whole_index(self, position: Sequence[int]) -> tuple[int, ...]:
        """The 0-based index of an entry in the whole stage, as the caller's axes count."""
        spoken = range(4 - self.ndim, 4)
        return tuple(int(self.index(axis)[position[axis]]) for axis in spoken)

    def span(self, axis: int, positions: Indices) -> str:
        """Some entries of an axis: `head 2`, `heads 1, 3`, `rows q3 to q7`, `columns k1, k4`."""
        if len(positions) == 1:
            return self.one(axis, positions[0])
        kind = _KINDS.get(self.axes[axis], "columns")
        first, last = self._bare(axis, positions[0]), self._bare(axis, positions[-1])
        if len(positions) == positions[-1] - positions[0] + 1:
            return f"{kind} {first} to {last}"
        shown = ", ".join(self._bare(axis, at) for at in positions[:5])
        more = f" and {len(positions) - 5} more" if len(positions) > 5 else ""
        return f"{kind} {shown}{more}"


def names_of(
    stage: str, setup: Setup, subset: Subset, ndim: int, labels: Mapping[str, Sequence[str]]
) -> Names:
    """The names of one stage's entries."""
    last, width = ("d_v", setup.v.shape[-1]) if stage == OUTPUT else ("key", setup.shape[3])
    shape = np.broadcast_to(np.float64(0), (*setup.shape[:3], width))
    words = {axis: tuple(names) for axis, names in labels.items() if names}
    return Names(Stage(stage, "", "", shape, ("batch", "head", "query", last), words), subset, ndim)


TILES = (128, 64, 32, 16)
SCATTERED = "scattered: every head, row and column has wrong entries"


@dataclass(frozen=True, eq=False)
class StageErrors:
    """One stage: observed and expected [batch, head, row, last] and which entries are wrong."""

    observed: Array
    expected: Array
    allowed: Array
    wrong: Mask
    names: Names
    hidden: Mask | None

    @property
    def has_keys(self) -> bool:
        return self.names.axes[3] == "key"

    def along(self, axis: int) -> Indices:
        """The positions of an axis at which anything is wrong."""
        others = tuple(i for i in range(4) if i != axis)
        return np.flatnonzero(self.wrong.any(axis=others))


def places(stage: str, comparison: Comparison, names: Names) -> tuple[str, ...]:
    """Where a stage is wrong, in sentences; empty where nothing is."""
    if not comparison.wrong[stage].any():
        return ()
    parts = (
        comparison.observed[stage],
        comparison.plain[stage],
        comparison.allowed[stage],
        comparison.wrong[stage],
    )
    errors = StageErrors(*parts, names, _hidden(comparison, stage))
    found = [sentence for find in _FINDERS if (sentence := find(errors))]
    everywhere = "everywhere: no entry is right" if errors.wrong.all() else SCATTERED
    return tuple(found) or (everywhere,)


def _hidden(comparison: Comparison, stage: str) -> Mask | None:
    """The masked cells of a stage over queries and keys."""
    if stage == OUTPUT:
        return None
    mask = mask_of(comparison.setup, comparison.subset.row)
    if mask is None:
        return None
    hidden = np.broadcast_to(np.isneginf(mask), (*comparison.setup.shape[:2], *mask.shape[-2:]))
    return hidden[np.ix_(comparison.subset.batch, comparison.subset.head)]


def _not_numbers(errors: StageErrors) -> str:
    bad = ~np.isfinite(errors.observed) & np.isfinite(errors.expected)
    if not bad.any() or (errors.wrong & ~bad).any():
        return ""
    return "the observed number is NaN or infinite in each of them, and nowhere else"


def _one_factor(errors: StageErrors) -> str:
    """Everything is the same multiple of what is expected."""
    finite = np.isfinite(errors.expected) & np.isfinite(errors.observed)
    x, y = errors.expected[finite], errors.observed[finite]
    telling = np.abs(x) > 20 * errors.allowed[finite]
    if telling.sum() < 2 or not finite.all():
        return ""
    factor = float(np.median(y[telling] / x[telling]))
    off = np.abs(y - factor * x) > 2 * max(1.0, abs(factor)) * errors.allowed[finite]
    if factor == 0 or off.any():
        return ""
    return f"everywhere, by one factor: observed = {factor:.6g} · expected"


def _one_addend(errors: StageErrors) -> str:
    apart = errors.observed - errors.expected
    if apart.size < 3 or not np.isfinite(apart).all():
        return ""
    step = float(np.median(apart))
    if step == 0 or (np.abs(apart - step) > 2 * errors.allowed).any():
        return ""
    return f"everywhere, by one addend: observed = expected + {step:.6g}"


def _single(errors: StageErrors) -> str:
    if errors.wrong.sum() != 1:
        return ""
    return f"one entry alone: {errors.names.place(tuple(np.argwhere(errors.wrong)[0]))}"


def _along(axis: int) -> Callable[[StageErrors], str]:
    """The wrong entries lie in some positions of an axis only."""

    def find(errors: StageErrors) -> str:
        at, n = errors.along(axis), errors.wrong.shape[axis]
        if len(at) == n or errors.wrong.sum() == 1:
            return ""
        text = f"only in {errors.names.span(axis, at)}"
        return text + _tile(at, n, errors.names.index(axis))

    return find


def _tile(at: Indices, n: int, index: Indices) -> str:
    """Words for positions that are the last block of a tiled axis; index: those of the whole."""
    if not np.array_equal(index, np.arange(n)) or len(at) != n - at[0]:
        return ""
    tiles = [tile for tile in TILES if n > tile and at[0] == (n - 1) // tile * tile]
    if not tiles:
        return ""
    return f": the last block of {_or([str(tile) for tile in reversed(tiles)])}"


def _or(words: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _shifted(errors: StageErrors) -> str:
    """The wrong rows hold what belongs in the rows a fixed step away."""
    rows, n = errors.along(2), errors.wrong.shape[2]
    for step in (-1, 1, -2, 2):
        held = rows[(rows + step >= 0) & (rows + step < n)]
        if not len(held) or len(held) < len(rows) - abs(step):
            continue
        observed, other = errors.observed[:, :, held], errors.expected[:, :, held + step]
        part = errors.wrong[:, :, held].any(axis=-1, keepdims=True)
        same = np.abs(observed - other) <= errors.allowed[:, :, held]
        if (same | ~part).all():
            return _shift_words(errors.names, held, step)
    return ""


def _shift_words(names: Names, rows: Indices, step: int) -> str:
    if len(rows) == 1:
        return f"{names.one(2, rows[0])} holds what belongs in {names.one(2, rows[0] + step)}"
    way = "after" if step > 0 else "before"
    return f"{names.span(2, rows)} hold what belongs in the row {abs(step)} {way}"


def _diagonal(errors: StageErrors) -> str:
    """The wrong entries lie on one side of a diagonal of queries and keys."""
    if not errors.has_keys or len(errors.along(2)) < 2 or errors.wrong.shape[3] < 3:
        return ""
    _, _, row, key = np.nonzero(errors.wrong)
    ahead = key - errors.names.index(2)[row]
    low, high = int(ahead.min()), int(ahead.max())
    if low == high:
        return f"on one diagonal: {_ahead(low)}"
    if low > 0:
        return f"only after the diagonal: {_ahead(low)} or later"
    if high < 0:
        return f"only before the diagonal: {_ahead(high)} or earlier"
    return ""


def _ahead(steps: int) -> str:
    if steps == 0:
        return "the key at the query's own position"
    return f"the key {abs(steps)} {'after' if steps > 0 else 'before'} the query's own position"


def _masked(errors: StageErrors) -> str:
    if errors.hidden is None or not errors.hidden.any() or errors.hidden.all():
        return ""
    if not (errors.wrong & ~errors.hidden).any():
        return "only in masked places"
    if not (errors.wrong & errors.hidden).any():
        return "only in places that are not masked"
    return ""


_FINDERS: tuple[Callable[[StageErrors], str], ...] = (
    _not_numbers,
    _one_factor,
    _one_addend,
    _single,
    _along(0),
    _along(1),
    _along(2),
    _along(3),
    _shifted,
    _diagonal,
    _masked,
)
