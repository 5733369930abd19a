"""Where the wrong entries lie: a sentence for each pattern that holds for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attncli.check.bench import Bench
from attncli.check.case import Array, Mask, total_mask
from attncli.check.engine import Indices
from attncli.check.names import Names

TILES = (128, 64, 32, 16)
SCATTERED = "scattered: every head, row and column has wrong entries"


@dataclass(frozen=True, eq=False)
class Scene:
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


def places(stage: str, bench: Bench, names: Names) -> tuple[str, ...]:
    """Where a stage is wrong, in sentences; empty where nothing is."""
    if not bench.wrong[stage].any():
        return ()
    parts = (bench.observed[stage], bench.plain[stage], bench.allowed[stage], bench.wrong[stage])
    scene = Scene(*parts, names, _hidden(bench, stage))
    found = [sentence for find in _FINDERS if (sentence := find(scene))]
    everywhere = "everywhere: no entry is right" if scene.wrong.all() else SCATTERED
    return tuple(found) or (everywhere,)


def _hidden(bench: Bench, stage: str) -> Mask | None:
    """The masked cells of a stage over queries and keys."""
    if stage == "output":
        return None
    mask = total_mask(bench.case, bench.cut.row)
    if mask is None:
        return None
    hidden = np.broadcast_to(np.isneginf(mask), (*bench.case.shape[:2], *mask.shape[-2:]))
    return hidden[np.ix_(bench.cut.batch, bench.cut.head)]


def _not_numbers(scene: Scene) -> str:
    bad = ~np.isfinite(scene.observed) & np.isfinite(scene.expected)
    if not bad.any() or (scene.wrong & ~bad).any():
        return ""
    return "the observed number is NaN or infinite in each of them, and nowhere else"


def _one_factor(scene: Scene) -> str:
    """Everything is the same multiple of what is expected."""
    finite = np.isfinite(scene.expected) & np.isfinite(scene.observed)
    x, y = scene.expected[finite], scene.observed[finite]
    telling = np.abs(x) > 20 * scene.allowed[finite]
    if telling.sum() < 2 or not finite.all():
        return ""
    factor = float(np.median(y[telling] / x[telling]))
    off = np.abs(y - factor * x) > 2 * max(1.0, abs(factor)) * scene.allowed[finite]
    if factor == 0 or off.any():
        return ""
    return f"everywhere, by one factor: observed = {factor:.6g} · expected"


def _one_addend(scene: Scene) -> str:
    apart = scene.observed - scene.expected
    if apart.size < 3 or not np.isfinite(apart).all():
        return ""
    step = float(np.median(apart))
    if step == 0 or (np.abs(apart - step) > 2 * scene.allowed).any():
        return ""
    return f"everywhere, by one addend: observed = expected + {step:.6g}"


def _single(scene: Scene) -> str:
    if scene.wrong.sum() != 1:
        return ""
    return f"one entry alone: {scene.names.place(tuple(np.argwhere(scene.wrong)[0]))}"


def _along(axis: int) -> Callable[[Scene], str]:
    """The wrong entries lie in some positions of an axis only."""

    def find(scene: Scene) -> str:
        at, n = scene.along(axis), scene.wrong.shape[axis]
        if len(at) == n or scene.wrong.sum() == 1:
            return ""
        text = f"only in {scene.names.span(axis, at)}"
        return text + _tile(at, n, scene.names.index(axis))

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


def _shifted(scene: Scene) -> str:
    """The wrong rows hold what belongs in the rows a fixed step away."""
    rows, n = scene.along(2), scene.wrong.shape[2]
    for step in (-1, 1, -2, 2):
        held = rows[(rows + step >= 0) & (rows + step < n)]
        if not len(held) or len(held) < len(rows) - abs(step):
            continue
        observed, other = scene.observed[:, :, held], scene.expected[:, :, held + step]
        part = scene.wrong[:, :, held].any(axis=-1, keepdims=True)
        same = np.abs(observed - other) <= scene.allowed[:, :, held]
        if (same | ~part).all():
            return _shift_words(scene.names, held, step)
    return ""


def _shift_words(names: Names, rows: Indices, step: int) -> str:
    if len(rows) == 1:
        return f"{names.one(2, rows[0])} holds what belongs in {names.one(2, rows[0] + step)}"
    way = "after" if step > 0 else "before"
    return f"{names.span(2, rows)} hold what belongs in the row {abs(step)} {way}"


def _diagonal(scene: Scene) -> str:
    """The wrong entries lie on one side of a diagonal of queries and keys."""
    if not scene.has_keys or len(scene.along(2)) < 2 or scene.wrong.shape[3] < 3:
        return ""
    _, _, row, key = np.nonzero(scene.wrong)
    ahead = key - scene.names.index(2)[row]
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


def _masked(scene: Scene) -> str:
    if scene.hidden is None or not scene.hidden.any() or scene.hidden.all():
        return ""
    if not (scene.wrong & ~scene.hidden).any():
        return "only in masked places"
    if not (scene.wrong & scene.hidden).any():
        return "only in places that are not masked"
    return ""


_FINDERS: tuple[Callable[[Scene], str], ...] = (
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
