"""Case: what attention is computed from and how, in one frozen value that a hypothesis changes.

    q, k, v, mask, past, kv_len, Convention ── case_of ──> Case ── a hypothesis ──> another Case

Everything has four axes here: [batch, head, token, d].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from attncli.attention import functional, masks
from attncli.attention.dot_product import Step
from attncli.attention.shapes import as_numbers, check_mask, lengths, with_past
from attncli.check.placement import Placement, Positions, check_widths, placement_of
from attncli.convention import Convention

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Edit = Callable[[list[Step], Array | None, Convention], list[Step]]
Band = tuple[int, int, int]
Relayout = Callable[[str, Array], Array]


@dataclass(frozen=True)
class Seen:
    """Who may attend to whom, as far as the convention does not say.

    mask     how the given mask is read; "turned" = its rows and columns exchanged
    padding  on which axis key lengths are laid
    bands    (left, right, shift) of further windows, shifted against each query's own position
    n_past   how many keys come before the first query's own
    """

    mask: Literal["as given", "left out", "turned", "as numbers", "inverted"] = "as given"
    padding: Literal["keys", "queries", "left out"] = "keys"
    bands: tuple[Band, ...] = ()
    n_past: int = 0


@dataclass(frozen=True, eq=False)
class Case:
    """One attention, to be computed.

    q [batch, head, n_q, d_k]; k, v [batch, kv_head, n_k, d], the past included; mask as given.
    how       the convention; `seen` adds to its masking
    placement which positions are put into q, k and v, given without them; None: none are
    edits     changes of the plan of steps
    over      axis of the softmax: "heads" or "batch" beside the convention's keys or queries
    leaky     values reach the output through masked keys too (0 · NaN)
    kept      [batch, head, n_q, n_k]: the weights that dropout kept
    instead   observed stage → the stage that it really is
    undo      (stage, observed) → observed, its layout mended
    ndim      how many axes the caller's q has
    """

    q: Array
    k: Array
    v: Array
    how: Convention
    mask: Array | None = None
    kv_len: npt.NDArray[np.int64] | None = None
    seen: Seen = Seen()
    placement: Placement | None = None
    edits: tuple[Edit, ...] = ()
    over: Literal["", "heads", "batch"] = ""
    leaky: bool = False
    kept: Mask | None = None
    instead: Mapping[str, str] = field(default_factory=dict)
    undo: Relayout | None = None
    ndim: int = 4

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the scores: [batch, head, n_q, n_k]."""
        n_batch, n_heads, n_q, _ = self.q.shape
        return n_batch, n_heads, n_q, self.k.shape[-2]

    @property
    def whole_axis(self) -> int | None:
        """The axis (0 batch, 1 head, 2 query) that softmax needs complete, if any."""
        if self.over:
            return {"batch": 0, "heads": 1}[self.over]
        return 2 if self.how.softmax_over == "queries" else None

    def placed(self) -> Case:
        """The same case with its positions already in q, k and v."""
        if self.placement is None:
            return self
        rows = np.arange(self.shape[2])
        q, k, v = self.placement.put_in(self.q, self.k, self.v, rows)
        return replace(self, q=q, k=k, v=v, placement=None)

    def with_how(self, **changes: Any) -> Case:
        """The same case under a changed convention."""
        return replace(self, how=replace(self.how, **changes))

    def with_seen(self, **changes: Any) -> Case:
        """The same case with another reading of who may attend to whom."""
        return replace(self, seen=replace(self.seen, **changes))


def case_of(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    mask: npt.ArrayLike | None = None,
    past_k: npt.ArrayLike | None = None,
    past_v: npt.ArrayLike | None = None,
    kv_len: npt.ArrayLike | None = None,
    convention: Convention | None = None,
    positions: Positions | None = None,
) -> Case:
    """The case of these inputs, which are those of `attend`; ShapeError where they do not fit.

    positions are put in: q, k and v, the past included, are then given without.

    >>> case_of([[1, 0]], [[1, 1], [0, 1]], [[10], [0]]).shape
    (1, 1, 1, 2)
    """
    whole, n_past = with_past(q, k, v, past_k, past_v)
    arrays = list(whole.values())
    n_k = arrays[1].shape[-2]
    given = _checked_mask(mask, (*arrays[0].shape[:-1], n_k))
    n_batch = arrays[0].shape[0] if arrays[0].ndim == 4 else 1
    valid = lengths(kv_len, n_batch, n_k)
    q4, k4, v4 = (four_axes(x) for x in arrays)
    how = convention or Convention()
    placement = None if positions is None else placement_of(positions, n_past)
    if positions is not None:
        check_widths(positions, q4.shape[-1], v4.shape[-1])
    seen = Seen(n_past=n_past)
    case = Case(q4, k4, v4, how, given, valid, seen, placement, ndim=arrays[0].ndim)
    if not how.dropout:
        return case
    drawn = np.ones((*arrays[0].shape[:-1], n_k))
    return replace(case, kept=four_axes(functional.dropout(drawn, how.dropout, how.seed)) > 0)


def _checked_mask(mask: npt.ArrayLike | None, score_shape: tuple[int, ...]) -> Array | None:
    if mask is None:
        return None
    array = as_numbers(mask, "the mask")
    check_mask(array, score_shape)
    return array


def four_axes(x: Array) -> Array:
    """x with axes of length 1 before it, up to four axes.

    >>> four_axes(np.zeros((2, 3))).shape
    (1, 1, 2, 3)
    """
    return x.reshape((1,) * (4 - x.ndim) + x.shape)


def total_mask(case: Case, rows: npt.NDArray[np.intp]) -> Array | None:
    """Everything that restricts these query rows, additive; broadcasts to [batch, head, row, n_k].

    Only the rows asked for are built: the whole mask may not fit into memory.
    """
    _, _, n_q, n_k = case.shape
    seen = case.seen
    valid = case.kv_len if seen.padding == "keys" else None
    total = masks.combined(
        _read_mask(case, rows), case.how, n_q, n_k, seen.n_past, valid, rows=rows
    )
    start = masks.first_position(case.how, n_q, n_k, seen.n_past, valid)
    allowed = [
        masks.window(n_q, n_k, left, right, start + shift, rows)
        for left, right, shift in seen.bands
    ]
    if seen.padding == "queries" and case.kv_len is not None:
        allowed.append((rows < case.kv_len[:, None])[:, None, :, None])
    for restriction in allowed:
        total = np.where(restriction, 0.0 if total is None else total, -np.inf)
    return total


def _read_mask(case: Case, rows: npt.NDArray[np.intp]) -> Array | None:
    """These rows of the given mask, as this case reads it."""
    mask, reading = case.mask, case.seen.mask
    if mask is None or reading == "left out":
        return None
    if reading == "turned":
        mask = np.swapaxes(np.broadcast_to(mask, case.shape), -1, -2)
    part = mask[..., rows, :] if mask.ndim > 1 and mask.shape[-2] > 1 else mask
    if reading == "as numbers":
        return part.astype(np.float64)
    if reading == "inverted":
        return np.where(np.isneginf(part), 0.0, -np.inf)
    return part
