"""Which keys a block of queries sees, without the mask of all cells.

    queries ──┬── span      the keys that causality, window and key lengths leave to them
              └── blocks    those in pieces, each with its hidden cells, wholly hidden ones left out

`masks.combined` makes the same of a whole matrix at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.attention import masks
from attncli.convention import Convention, MaskMeans

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

KEYS = 512  # keys in a block: with 256 queries its float32 scores take half a megabyte of cache


class Rows(NamedTuple):
    """Queries start … stop − 1 of one head of one batch item."""

    batch: int
    head: int
    start: int
    stop: int


class Block(NamedTuple):
    """A slice of the keys, the cells of it that are hidden, and what is added to the others."""

    keys: slice
    hidden: Mask | None
    bias: Array | None

    def additive(self) -> Array | None:
        """The additive mask of the block, or None where nothing restricts and nothing is added."""
        if self.hidden is None:
            return self.bias
        return np.where(self.hidden, -np.inf, 0.0 if self.bias is None else self.bias)


@dataclass(frozen=True)
class Visibility:
    """Everything that restricts, asked block by block.

    mask    [batch, head, n_q, n_k] boolean or numeric (a broadcast view), or None
    reach   (left, right): keys seen before and after a query's own position; −1 = no bound
    first   [batch]: the key position at which the first query stands
    valid   [batch]: keys past these are padding
    hides   False where masked cells still get a weight, so that none may be left out
    """

    n_k: int
    mask: Array | None
    means: MaskMeans
    reach: tuple[int, int]
    first: npt.NDArray[np.int64]
    valid: npt.NDArray[np.int64]
    hides: bool

    @classmethod
    def of(
        cls,
        how: Convention,
        mask: Array | None,
        score_shape: tuple[int, ...],
        n_past: int,
        kv_len: npt.NDArray[np.int64] | None,
        *,
        hides: bool,
    ) -> Visibility:
        """For scores [batch, head, n_q, n_k] under a convention; the mask broadcasts to them."""
        n_batch, _, n_q, n_k = score_shape
        left, right = how.window or (-1, -1)
        first = masks.first_position(how, n_q, n_k, n_past, kv_len)
        return cls(
            n_k=n_k,
            mask=None if mask is None else np.broadcast_to(mask, score_shape),
            means=how.mask_means,
            reach=(left, 0 if how.causal else right),
            first=np.broadcast_to(np.asarray(first), (n_batch,)),
            valid=np.full(n_batch, n_k) if kv_len is None else kv_len,
            hides=hides,
        )

    @property
    def biased(self) -> bool:
        """Whether numbers are added to the scores."""
        return self.mask is not None and self.mask.dtype != np.bool_

    def span(self, rows: Rows) -> range:
        """The keys that position leaves to any of these queries; all where masking hides none."""
        if not self.hides:
            return range(self.n_k)
        (left, right), at = self.reach, int(self.first[rows.batch])
        start = max(0, rows.start + at - left) if left >= 0 else 0
        stop = int(self.valid[rows.batch])
        return range(start, min(stop, rows.stop + at + right) if right >= 0 else stop)

    def blocks(self, rows: Rows) -> Iterator[Block]:
        """The span in pieces, first to last, without those in which every cell is hidden."""
        span = self.span(rows)
        for start in span[::KEYS]:
            keys = slice(start, min(start + KEYS, span.stop))
            hidden, bias = self._too_far(rows, keys), None
            if self.mask is not None:
                masked, bias = self._masked(
                    self.mask[rows.batch, rows.head, rows.start : rows.stop, keys]
                )
                hidden = masked if hidden is None else hidden | masked
            if hidden is None or not hidden.any():
                yield Block(keys, None, bias)
            elif not self.hides or not hidden.all():
                yield Block(keys, hidden, bias)

    def empty(self, rows: Rows) -> Mask:
        """The queries that have nothing to attend to: [rows]."""
        empty = np.full(rows.stop - rows.start, self.hides)
        for block in self.blocks(rows):
            empty &= False if block.hidden is None else block.hidden.all(axis=1)
        return empty

    def _too_far(self, rows: Rows, keys: slice) -> Mask | None:
        """The cells that position hides, or None where that is none."""
        (left, right), start = self.reach, rows.start + int(self.first[rows.batch]) - keys.start
        n_rows, n_keys = rows.stop - rows.start, keys.stop - keys.start
        n_valid = min(n_keys, int(self.valid[rows.batch]) - keys.start)
        before = left < 0 or start + n_rows - 1 - left <= 0
        after = right < 0 or n_keys - 1 <= start + right
        if before and after and n_valid == n_keys:
            return None
        return _out_of_reach(n_rows, n_keys, left, right, start, n_valid)

    def _masked(self, mask: Array) -> tuple[Mask, Array | None]:
        if mask.dtype == np.bool_:
            return (~mask if self.means == "keep" else mask), None
        hidden = np.isneginf(mask)
        return hidden, np.where(hidden, 0, mask)


@lru_cache(maxsize=16)
def _out_of_reach(
    n_rows: int, n_keys: int, left: int, right: int, start: int, n_valid: int
) -> Mask:
    """Kept, as blocks that lie alike along the diagonal hide the same cells."""
    seen = masks.window(n_rows, n_keys, left, right, start)
    return ~(seen & (np.arange(n_keys) < n_valid))
