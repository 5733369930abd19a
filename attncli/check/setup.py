"""Setup: what attention is computed from and how, in one frozen value that a hypothesis changes.

    q, k, v, mask, past, kv_len, Convention ── setup_of ──> Setup ── a hypothesis ──> another Setup

Everything has four axes here: [batch, head, token, d].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from attncli.attention.functional import draw_kept
from attncli.attention.run import Change
from attncli.attention.shapes import as_numbers, check_mask, lengths, with_past
from attncli.check.positions import PositionKind, Positions, check_widths, positions_of
from attncli.convention import Convention

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Relayout = Callable[[str, Array], Array]


@dataclass(frozen=True, eq=False)
class Setup:
    """One attention, to be computed.

    q [batch, head, n_q, d_k]; k, v [batch, kv_head, n_k, d], the past included; mask as given.
    how           the convention
    n_past        how many keys come before the first query's own
    positions     which positions are put into q, k and v, given without them; None: none are
    changes       step of the plan → another function for it, or other parameters
    softmax_axis  of the softmax: "heads" or "batch" beside the convention's keys or queries
    kept          [batch, head, n_q, n_k]: the weights that dropout kept
    relabel       observed stage → the stage that it really is
    relayout      (stage, observed) → observed, its layout mended
    ndim          how many axes the caller's q has
    """

    q: Array
    k: Array
    v: Array
    how: Convention
    mask: Array | None = None
    kv_len: npt.NDArray[np.int64] | None = None
    n_past: int = 0
    positions: Positions | None = None
    changes: Mapping[str, Change] = field(default_factory=dict)
    softmax_axis: Literal["", "heads", "batch"] = ""
    kept: Mask | None = None
    relabel: Mapping[str, str] = field(default_factory=dict)
    relayout: Relayout | None = None
    ndim: int = 4

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the scores: [batch, head, n_q, n_k]."""
        n_batch, n_heads, n_q, _ = self.q.shape
        return n_batch, n_heads, n_q, self.k.shape[-2]

    @property
    def whole_axis(self) -> int | None:
        """The axis (0 batch, 1 head, 2 query) that softmax needs complete, if any."""
        if self.softmax_axis:
            return {"batch": 0, "heads": 1}[self.softmax_axis]
        return 2 if self.how.softmax_over == "queries" else None

    @property
    def may_mask(self) -> bool:
        """Whether anything at all restricts which keys may be attended to."""
        restricts = (self.mask, self.kv_len, self.how.window)
        return self.how.causal or any(x is not None for x in restricts)

    def placed(self) -> Setup:
        """The same setup with its positions already in q, k and v."""
        if self.positions is None:
            return self
        rows = np.arange(self.shape[2])
        q, k, v = self.positions.put_in(self.q, self.k, self.v, rows)
        return replace(self, q=q, k=k, v=v, positions=None)

    def with_how(self, **changes: Any) -> Setup:
        """The same setup under a changed convention."""
        return replace(self, how=replace(self.how, **changes))

    def with_steps(self, **changes: Change) -> Setup:
        """The same setup with other functions, or other parameters, for some steps of the plan."""
        return replace(self, changes={**self.changes, **changes})


def setup_of(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    mask: npt.ArrayLike | None = None,
    past_k: npt.ArrayLike | None = None,
    past_v: npt.ArrayLike | None = None,
    kv_len: npt.ArrayLike | None = None,
    convention: Convention | None = None,
    positions: PositionKind | None = None,
) -> Setup:
    """The setup of these inputs, which are those of `attend`; ShapeError where they do not fit.

    positions are put in: q, k and v, the past included, are then given without.

    >>> setup_of([[1, 0]], [[1, 1], [0, 1]], [[10], [0]]).shape
    (1, 1, 1, 2)
    """
    how, given = convention or Convention(), None
    whole, n_past = with_past(q, k, v, past_k, past_v)
    scores = (*whole["q"].shape[:-1], whole["k"].shape[-2])
    if mask is not None:
        given = as_numbers(mask, "the mask")
        check_mask(given, scores)
    n_batch = scores[0] if len(scores) == 4 else 1
    valid = None if kv_len is None else lengths(kv_len, n_batch, scores[-1])
    scheme = None if positions is None else positions_of(positions, n_past)
    if positions is not None:
        check_widths(positions, whole["q"].shape[-1], whole["v"].shape[-1])
    kept = four_axes(draw_kept(scores, how.dropout, how.seed)) if how.dropout else None
    q4, k4, v4 = (four_axes(x) for x in whole.values())
    return Setup(
        q4, k4, v4, how, given, valid, n_past, positions=scheme, kept=kept, ndim=len(scores)
    )


def four_axes(x: Array) -> Array:
    """x with axes of length 1 before it, up to four axes.

    >>> four_axes(np.zeros((2, 3))).shape
    (1, 1, 2, 3)
    """
    return x.reshape((1,) * (4 - x.ndim) + x.shape)
