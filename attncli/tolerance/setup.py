"""Setup: what attention is computed from and how, in one frozen value; a bug gives another one.

    q, k, v, mask, past, kv_len, Convention ── setup_of ──> Setup ── a bug ──> Setup

q, k, v and `kept` have four axes here: [batch, head, token, d].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.heads import four_axes, key_head_of
from attncli.attention.inputs import GAINS, Inputs, inputs_of
from attncli.attention.masks import adds
from attncli.attention.run import Step
from attncli.convention import Convention, DType, EmptyRows, HeadOrder
from attncli.formula.kernels import draw_kept, widen
from attncli.stages import GIVEN_GRADIENT, QKV, WEIGHTS
from attncli.tolerance.memo import Memo
from attncli.tolerance.norms import normed, through_gain, through_norm
from attncli.tolerance.positions import Ids, Positions, check_widths, positions_of
from attncli.tolerance.spans import span_of

Relayout = Callable[[Array], Array]
Edit = Callable[[list[Step]], list[Step]]
ZEROS, NANS = -1, -2


class Heads(NamedTuple):
    """Numbers of batch items, of heads and of key heads."""

    batch: npt.NDArray[np.intp]
    head: npt.NDArray[np.intp]
    kv_head: npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Setup:
    """One attention, to be computed.

    inputs        what the plan reads, by name: q [batch, head, n_q, d_k]; k, v
                  [batch, kv_head, n_k, d], the past included; where there are any, given_mask,
                  kv_len, kept (which weights dropout keeps), given_gradient [batch, head, n_q,
                  d_v], and every other array that `attend` takes. The axes are those of the
                  registry of stages
    convention    how scores, masks and weights are computed
    n_past        number of keys before the first query's own
    ndim          number of axes of the caller's q
    norms_after   of which of q and k a norm with gains comes after the positions, not before
    projected     x, the weights and how they make q, k and v, where these are made of them
    positions     the positions to put into q, k and v; None: none
    edits         functions from the plan to another one
    patched       the places of the plan that these change
    grouping      the order in which the caller's query heads share key heads, whatever the
                  convention says: of some query heads it tells which key heads have their
                  gradients compared
    whole         the axes (0 batch, 1 head, 2 query) that a changed step needs complete
    across        the steps that need all queries, where these are known: what follows from them
                  is computed of the wanted rows alone
    instead       axis (0 batch, 1 head, 2 query) → the index that is computed in place of each;
                  ZEROS or NANS: none, and the output is that there
    written       stage → [batch, head, query], of the gradients of keys [batch, kv_head, key]: 1,
                  or what all numbers of a row are that was not written: 0 or NaN; one number for
                  a whole stage
    relabel       observed stage → the stage that it really is
    relayout      observed stage → a function that corrects its layout
    tiles         where not 0, the plan is that of a walk through tiles of so many keys
    split         after how many keys they were cut into parts that were merged; (): unknown
    of_all_heads  the observed stages that are made of all heads: steps of its plan besides
    merges        whether lse and output are computed by merging these parts, as `in_parts` says
    details       what the names of the bugs leave open, such as "share 0.3"
    temperature   that of the call, which the scale of the convention holds
    plans         its plans so far, by what `steps_of` was asked for: each is made once
    memo          what was computed of it, and of every setup that was made of it
    """

    inputs: Mapping[str, Array]
    convention: Convention
    n_past: int = 0
    ndim: int = 4
    positions: Positions | None = None
    norms_after: frozenset[str] = frozenset()
    projected: Inputs | None = None
    edits: tuple[Edit, ...] = ()
    patched: frozenset[str] = frozenset()
    grouping: HeadOrder = "blocks"
    whole: frozenset[int] = frozenset()
    across: frozenset[str] | None = frozenset()
    instead: Mapping[int, npt.NDArray[np.intp]] = field(default_factory=dict)
    written: Mapping[str, Array] = field(default_factory=dict)
    relabel: Mapping[str, str] = field(default_factory=dict)
    relayout: Mapping[str, Relayout] = field(default_factory=dict)
    tiles: int = 0
    split: tuple[int, ...] = ()
    merges: bool = False
    of_all_heads: frozenset[str] = frozenset()
    details: tuple[str, ...] = ()
    temperature: float = 1.0
    plans: dict[Any, list[Step]] = field(default_factory=dict, init=False, repr=False)
    memo: Memo = field(default_factory=Memo, repr=False)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the scores: [batch, head, n_q, n_k]."""
        n_batch, n_heads, n_q, _ = self.inputs["q"].shape
        return n_batch, n_heads, n_q, self.inputs["k"].shape[-2]

    @property
    def key_heads(self) -> npt.NDArray[np.intp]:
        """The key head of every query head."""
        return key_head_of(self.shape[1], self.inputs["k"].shape[1], self.convention.head_order)

    def key_heads_of(self, heads: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """The key heads whose gradients are compared with those of these query heads."""
        return np.unique(self.key_heads_by_grouping[heads])

    @property
    def key_heads_by_grouping(self) -> npt.NDArray[np.intp]:
        """The key head of every query head, as the caller has them."""
        return key_head_of(self.shape[1], self.inputs["k"].shape[1], self.grouping)

    @property
    def d_k(self) -> int:
        """Width of a query."""
        return int(self.inputs["q"].shape[-1])

    def differs_in(self, other: Setup) -> set[str]:
        """The fields, of those that say what is computed, that are not the same in both setups."""
        names = {each.name for each in fields(self)} - ASIDE
        return {name for name in names if not _is_same(getattr(self, name), getattr(other, name))}

    @property
    def whole_axes(self) -> frozenset[int]:
        """The axes (0 batch, 1 head, 2 query) that some step needs complete."""
        return self.whole | {2} if self.convention.softmax_over == "queries" else self.whole

    @property
    def reads_across(self) -> frozenset[str]:
        """The forward steps that need all queries; none where others may need them, too."""
        if self.across is None:
            return frozenset()
        is_over_queries = self.convention.softmax_over == "queries"
        return self.across | {WEIGHTS} if is_over_queries else self.across

    def may_mask(self) -> bool:
        """Whether anything at all restricts which keys may be attended to."""
        restricts = self.inputs.keys() & {"given_mask", "kv_len"}
        return bool(restricts) or self.convention.causal or self.convention.window is not None

    @property
    def is_refused(self) -> bool:
        """Whether there are a mask and causal, which the convention refuses together."""
        return self.convention.refuses("given_mask" in self.inputs)

    @property
    def is_added(self) -> bool:
        """Whether numbers of the given mask are added to the scores."""
        return adds(self.inputs.get("given_mask"), self.convention)

    @property
    def empty_rows(self) -> EmptyRows:
        """What becomes of a row with nothing to attend to."""
        return self.convention.empty_rule(self.is_added)

    def in_parts(self) -> Setup:
        """The same setup whose lse and output are merged from the parts of a split, if any."""
        is_changed = self.edits  # a step of the plan for all keys
        is_cut = (
            self.split and not self.convention.dropout and self.convention.softmax_over == "keys"
        )
        return self if is_changed or not is_cut else replace(self, merges=True)

    def placed(self) -> Setup:
        """The same setup with its positions already in q, k and v."""
        if self.positions is None:
            return self
        qkv = self.operands({name: self.inputs[name] for name in QKV})
        setup = replace(self, inputs={**self.inputs, **qkv}, positions=None)
        return setup.without_norm() if self.gains else setup

    @property
    def gains(self) -> dict[str, Array]:
        """q, k → the gains of its norm; {} where neither has any.

        Without gains the norm commutes with rotary positions, and is a step of the plan; with gains
        it is one where there are no positions.
        """
        if not self.convention.qk_norm or self.inputs.keys().isdisjoint(GAINS.values()):
            return {}
        return {x: self.inputs.get(name, np.ones(self.d_k)) for x, name in GAINS.items()}

    @property
    def gradients_of_gains(self) -> dict[str, str]:
        """The gradients of gains → the gradient that each is made of, where there are positions.

        The norm is no step of the plan then.
        """
        names = GAINS.items() if self.gains and self.positions is not None else ()
        return {f"d_{gain}": f"d_{x}" for x, gain in names if gain in self.inputs}

    def without_norm(self) -> Setup:
        """The same setup, of queries and keys that are normalised already."""
        setup = self.with_inputs(**dict.fromkeys(GAINS.values()))
        return replace(setup.with_convention(qk_norm=False), norms_after=frozenset())

    def operands(
        self, qkv: Mapping[str, Array], rows: Ids | None = None, dtype: DType = "float64"
    ) -> dict[str, Array]:
        """q (of these rows; of all where left out), k and v as they go into the plan: with their
        positions, if there are any, and then normalised where the norm has gains."""
        if self.positions is None:
            return dict(qkv)
        result, gains = dict(qkv), self.gains
        for name, gain in gains.items():
            if name not in self.norms_after:
                result[name] = normed(result[name], gain, dtype)
        result = self.positions.put_in(result, rows, dtype)
        for name, gain in gains.items():
            if name in self.norms_after:
                result[name] = normed(result[name], gain, dtype)
        return result

    def gradients_before(
        self,
        gradients: Mapping[str, Array],
        qkv: Mapping[str, Array],
        rows: Ids,
        dtype: DType = "float64",
    ) -> dict[str, Array]:
        """d_q (of these rows) and d_k of q and k as they are given, before norm and positions.

        And those of the gains of the norms: dγ = Σ d ∘ x / rms(x), d that of what the norm gives.
        """
        if self.positions is None:
            return dict(gradients)
        result, gains = dict(gradients), self.gains
        normed_names = [name for name in gains if f"d_{name}" in gradients]
        placed = self.positions.put_in(qkv, rows, dtype) if self.norms_after else qkv
        of_gains = dict[str, Array]()

        def through(name: str, x: Array) -> None:
            d = result[f"d_{name}"]
            of_gains[f"d_{GAINS[name]}"] = through_gain(d, x)
            result[f"d_{name}"] = through_norm(d, x, gains[name])

        for name in normed_names:
            if name in self.norms_after:
                through(name, placed[name])
        result = self.positions.take_out(result, rows, self.shape[3], dtype)
        for name in normed_names:
            if name not in self.norms_after:
                through(name, qkv[name])
        return result | {x: y for x, y in of_gains.items() if x in self.gradients_of_gains}

    def with_inputs(self, **arrays: Array | None) -> Setup:
        """The same setup with other arrays for some inputs, or without those that are None."""
        if not arrays:
            return self
        inputs = {**self.inputs, **arrays}
        return replace(self, inputs={name: x for name, x in inputs.items() if x is not None})

    def with_other_arrays(
        self, inputs: Mapping[str, Array], at: Heads | None = None, **changes: Any
    ) -> Setup:
        """The same attention of these inputs, whose batch items and heads are other ones.

        What stands in place of rows that were not written, or that other rows are computed for, is
        said of the arrays that were there before; so is what q, k and v are made of.

        at       which of those before stands in the place of each batch item, head and key head:
                 the rows that were not written are the same ones; None: all rows are written
        changes  of other fields
        """
        written, over = dict[str, Array](), self.convention.softmax_over
        if at is not None:
            for stage, marks in self.written.items():
                heads = at.kv_head if span_of(stage, over) == "keys" else at.head
                written[stage] = marks[np.ix_(at.batch, heads)] if marks.ndim else marks
        setup = replace(self, inputs=inputs, written=written, instead={}, projected=None)
        return replace(setup, **changes)

    def with_positions(self, **changes: Any) -> Setup:
        """The same setup with changed positions; none where it puts in none."""
        if self.positions is None or not changes:
            return self
        return replace(self, positions=replace(self.positions, **changes))

    def with_convention(self, **changes: Any) -> Setup:
        """The same setup under a changed convention."""
        if all(getattr(self.convention, name) == value for name, value in changes.items()):
            return self
        return replace(self, convention=replace(self.convention, **changes))

    def with_empty_rows(self, rule: EmptyRows) -> Setup:
        """The same setup under another rule for rows with nothing to attend to."""
        changes = {"empty_rows_inf": None} if self.is_added else {}
        return self.with_convention(empty_rows=rule, **changes)

    def with_result(self, name: str, change: Relayout) -> Setup:
        """The same setup, in which what a step gives is changed."""

        def edit(plan: list[Step]) -> list[Step]:
            return [_changed(step, change) if step.name == name else step for step in plan]

        return replace(self.with_edit(edit), patched=self.patched | {name})

    def with_edit(self, *edits: Edit) -> Setup:
        """The same setup whose plan is edited."""
        return replace(self, edits=(*self.edits, *edits))

    def with_whole(self, *axes: int) -> Setup:
        """The same setup, in which some step needs all batch items, heads or queries."""
        across = None if 2 in axes else self.across
        return replace(self, whole=self.whole | {*axes}, across=across) if axes else self

    def with_relayout(self, correct: Relayout, *stages: str) -> Setup:
        """The same setup with the layout of these observed stages corrected, then as before."""

        def both(before: Relayout | None) -> Relayout:
            return (lambda x: before(correct(x))) if before else correct

        new = {stage: both(self.relayout.get(stage)) for stage in stages}
        return replace(self, relayout={**self.relayout, **new})

    def computing(self, instead: Mapping[int, npt.NDArray[np.intp]]) -> Setup:
        """The same setup with other indices of axes computed in the place of each."""
        return replace(self, instead={**self.instead, **instead})

    def with_detail(self, detail: str) -> Setup:
        """The same setup, of the same plans, with one more detail."""
        setup = replace(self, details=(*self.details, detail))
        setup.plans.update(self.plans)
        return setup


ASIDE = {"across", "patched", "details", "plans", "memo"}
"""The fields of a setup that say how it came about, or keep what was computed."""


def _is_same(x: Any, y: Any) -> bool:
    """Whether two fields hold the same: of arrays, the same objects."""
    if isinstance(x, Mapping) and isinstance(y, Mapping):
        return x.keys() == y.keys() and all(x[key] is y[key] for key in x)
    return x is y or (isinstance(x, Convention | tuple | frozenset | str | int) and x == y)


def _changed(step: Step, change: Relayout) -> Step:
    return step._replace(function=lambda **values: change(step.compute(**values)))


def setup_of(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    convention: Convention | None = None,
    positions: str | None = None,
    **arrays: Any,
) -> Setup:
    """The setup of these inputs, which are those of `attend`; ShapeError where they do not fit.

    positions  those to put in, as `positions_of` reads them: q, k, v, the past included, are then
               given without
    arrays     mask, past_k, past_v, kv_len, sinks, q_gain, k_gain; and the layout, and what 0 and 1
               in a mask mean

    >>> setup_of([[1, 0]], [[1, 1], [0, 1]], [[10], [0]]).shape
    (1, 1, 1, 2)
    """
    convention, scheme = convention or Convention(), None
    temperature = convention.temperature
    more = {name: arrays.pop(name) for name in ("layout", "means") if name in arrays}
    attention = inputs_of({"q": q, "k": k, "v": v, **arrays}, convention, **more)
    sizes = attention.sizes
    floats = {x: widen(y, "float64") for x, y in attention.arrays.items() if y.dtype.kind == "f"}
    inputs = attention.arrays | floats
    if positions is not None:
        scheme = positions_of(positions, sizes.n_past, sizes.d_k)
        check_widths(scheme, sizes.d_k, inputs["v"].shape[-1])
    if convention.dropout:
        inputs["kept"] = draw_kept(sizes.scores, convention.dropout, convention.seed)
    headed = (*QKV, "kept", GIVEN_GRADIENT)
    inputs |= {name: four_axes(inputs[name]) for name in headed if name in inputs}
    if temperature != 1:  # the scale holds it, which is what implementations take
        scale = convention.scale_factor(sizes.d_k)
        convention = replace(convention, scale=scale, temperature=1.0)
    ndim, grouping = len(sizes.scores), convention.head_order
    setup = Setup(inputs, convention, sizes.n_past, ndim, scheme, grouping=grouping)
    return replace(setup, temperature=temperature)
