"""Wrong rows, each with what it is computed from: many candidates for a part are tried at once.

    row ── with other scores, values, mask … [candidate, key] ── near ──> which give what it is

What is tried here is only screened: a few rows in plain NumPy. `Search` judges what remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.attention.masks import meaning
from attncli.commands.check.questions.answer import PlaceMap, place_maps
from attncli.commands.check.search import Search
from attncli.convention import Convention, EmptyRows
from attncli.stages import CAPPED, LSE, MASKED, OUTPUT, QKV, SCORES, WEIGHTS
from attncli.tolerance.comparison import Comparison
from attncli.tolerance.rule import StageErrors, distance
from attncli.tolerance.run import Indices, Subset, all_of, mask_of, stages
from attncli.tolerance.setup import Setup

SCREENED = OUTPUT, WEIGHTS, LSE, MASKED, CAPPED, "scaled", SCORES
"""The stages by which rows are screened: of those that are wrong the first."""

MOST_ROWS = 48
"""So many wrong rows are looked at."""

MOST_CHANNELS = 4
"""So many channels of the output are computed: others follow from the same weights."""

NEARER = 0.25
"""What explains a row is off by less than this share of what the right numbers are off by."""

ENOUGH = 16
"""A row that sees so many keys refuses most of what is tried."""

Index = int | slice

MOST_CELLS = 2**22
"""So many numbers are computed at once: 32 MB."""


class Row(NamedTuple):
    """One query: what it is computed from, and what was observed of it.

    at        its batch item, head and number
    scores    [key] before the mask, or [candidate, key], as what follows may be
    added     [key] what the given mask adds: −inf where it hides
    limits    [key] whether causality, the window and the key lengths let it be seen
    values    [key, channel]
    sink      the score of the sink, or −inf
    multiples [key] what dropout multiplies a weight by
    channels  which numbers of the stage are screened
    observed  these numbers as they were observed
    allowed   how far another result may be from them
    """

    at: tuple[int, int, int]
    scores: Array
    added: Array
    limits: BoolArray
    values: Array
    sink: Array
    multiples: Array
    channels: Indices
    observed: Array
    allowed: float

    def of_keys(self, keys: Indices) -> Row:
        """The row of these keys alone."""
        return self._replace(
            scores=self.scores[..., keys],
            added=self.added[..., keys],
            limits=self.limits[..., keys],
            values=self.values[..., keys, :],
            multiples=self.multiples[..., keys],
        )


@dataclass(frozen=True)
class Screen:
    """The wrong rows of one stage of a comparison.

    setup   with its positions put in
    unplaced  without them
    stage   the stage by which rows are screened
    places  [row, 3]: the batch item, head and query of each wrong row
    """

    setup: Setup
    unplaced: Setup
    stage: str
    errors: StageErrors
    subset: Subset
    places: Indices

    @cached_property
    def bare(self) -> Setup:
        """The attention without anything that masks, whose scores are computed alone."""
        convention = replace(self.setup.convention, causal=False, window=None)
        inputs = {name: self.setup.inputs[name] for name in QKV}
        return self.setup.with_other_arrays(inputs, convention=convention)

    @cached_property
    def maps_of_keys(self) -> list[PlaceMap]:
        """The family of maps of the keys."""
        return [*place_maps(self.setup.shape[3])]

    @cached_property
    def indices_of_keys(self) -> Indices:
        """[map, key]: at which key each key is read."""
        maps = [x.indices for x in self.maps_of_keys]
        return np.stack(maps) if maps else np.zeros((0, self.setup.shape[3]), np.intp)

    @cached_property
    def limits_only(self) -> Setup:
        """The same attention without the given mask."""
        return self.setup.with_inputs(given_mask=None)

    @cached_property
    def given_mask(self) -> Array | None:
        """[batch, head, query, key], of which each may be 1: what the given mask adds."""
        mask, convention = self.setup.inputs.get("given_mask"), self.setup.convention
        if mask is None:
            return None
        x = meaning(mask, convention.mask_means, convention.mask_numbers)
        x = np.where(x, 0.0, -np.inf) if x.dtype == np.bool_ else x
        return x.reshape((1,) * (4 - x.ndim) + x.shape)

    @property
    def before_mask(self) -> str:
        """The stage of scores that is gathered."""
        return self.stage if self.stage in (SCORES, "scaled") else CAPPED

    def scores(self, setup: Setup, subset: Subset) -> Array:
        """The scores of rows before the mask."""
        return stages(setup, subset, [self.before_mask])[self.before_mask]

    def scores_of(self, q: Array, k: Array) -> Array:
        """[candidate, key]: the scores of one query by other q [candidate, d] and k."""
        if len(k) == 1:  # the candidates are queries of one attention
            q, k = q[None, None], k[None]
        else:
            q, k = np.broadcast_to(q, (len(k), q.shape[-1]))[:, None, None], k[:, None]
        inputs = dict(zip(QKV, (q, k, np.zeros((*k.shape[:-1], 1))), strict=True))
        setup = self.bare.with_other_arrays(inputs)
        return self.scores(setup, all_of(setup.shape)).reshape(-1, k.shape[-2])

    def limits(self, rows: Indices, setup: Setup | None = None) -> BoolArray:
        """[batch, head, row, key], of which the first may be 1: what may be seen of these rows."""
        setup = setup or self.limits_only
        x = mask_of(setup, rows)
        shape = (1, 1, len(rows), self.setup.shape[3])
        if x is None:
            return np.ones(shape, np.bool_)
        x = x.reshape((1,) * (4 - x.ndim) + x.shape)
        return np.broadcast_to(x != -np.inf, np.broadcast_shapes(x.shape, shape))

    @cached_property
    def limits_past_the_end(self) -> BoolArray:
        """What may be seen of every row, and of as many past the last."""
        return self.limits(np.arange(2 * self.setup.shape[2]))

    def values(self, at: tuple[Index, Index], channels: Indices) -> Array:
        """[…, key, channel]: the values of batch items or key heads; of weights one channel."""
        x = self.setup.inputs["v"][at]
        return x[..., channels if self.stage == OUTPUT else slice(0, 1)]

    def given_row(self, b: int, h: int, i: int) -> Array:
        """What the given mask adds to a row."""
        if self.given_mask is None:
            return np.zeros(self.setup.shape[3])
        at = tuple(min(x, n - 1) for x, n in zip((b, h, i), self.given_mask.shape, strict=False))
        return np.broadcast_to(self.given_mask[at], self.setup.shape[3])

    @cached_property
    def rows(self) -> list[Row]:
        """The wrong rows with all that they are computed from."""
        return [*map(self._row, self.places.tolist())]

    @cached_property
    def rows_by_keys(self) -> list[Row]:
        """The same, that first which sees the fewest keys, but ENOUGH: it costs least."""
        n_seen = {row.at: len(self.seen(row)) for row in self.rows}
        return sorted(self.rows, key=lambda row: (n_seen[row.at] < ENOUGH, n_seen[row.at]))

    @cached_property
    def largest(self) -> float:
        """The largest right number, where another is infinitely far from it."""
        return float(
            np.abs(self.errors.expected).max(where=np.isfinite(self.errors.expected), initial=0.0)
        )

    def _row(self, at: Sequence[int]) -> Row:
        b, h, i = (int(axis[x]) for axis, x in zip(self.subset, at, strict=True))
        inputs, g = self.setup.inputs, self.setup.key_heads[h]
        limits = self.limits(np.array([i]))
        observed, right = self.errors.observed[tuple(at)], self.errors.expected[tuple(at)]
        channels = _channels(distance(observed, right), self.stage)
        n_keys, convention = self.setup.shape[3], self.setup.convention
        return Row(
            (b, h, i),
            self.scores(self.bare, Subset(*(np.array([x]) for x in (b, h, i))))[0, 0, 0],
            self.given_row(b, h, i),
            limits[min(b, len(limits) - 1), 0, 0],
            self.values((b, g), channels),
            np.asarray(inputs["sinks"][h] if "sinks" in inputs else -np.inf),
            inputs["kept"][b, h, i] / (1 - convention.dropout)
            if "kept" in inputs
            else np.ones(n_keys),
            channels,
            observed[channels],
            NEARER * min(float(distance(observed, right)[channels].max()), self.largest),
        )

    def near(self, row: Row, count: int = 1) -> BoolArray:
        """Which candidates of a row, at least so many, give what was observed of it.

        The stage may not depend on what is read otherwise: then all are one candidate.
        """
        convention, is_added = self.setup.convention, self.setup.is_added
        if row.limits.ndim == row.added.ndim == 1 and len(keys := self.seen(row)) < len(row.limits):
            row = row.of_keys(keys)
        x = computed(row, self.stage, convention, self.setup.empty_rows, is_added)
        with np.errstate(invalid="ignore"):
            apart = np.abs(x - row.observed)
        same = (x == row.observed) | (np.isnan(x) & np.isnan(row.observed))
        apart = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))
        near = np.atleast_1d(np.asarray(apart.max(axis=-1) <= row.allowed))
        return np.broadcast_to(near, max(count, len(near)))

    def seen(self, row: Row) -> Indices:
        """The keys that a row depends on: those that it sees, where no other gets a weight."""
        convention, every = self.setup.convention, np.arange(len(row.limits))
        is_summed = self.stage in (OUTPUT, LSE)
        if not is_summed or convention.hidden_value(self.setup.is_added) != -np.inf:
            return every
        is_seen = row.limits & (row.added != -np.inf)
        return np.flatnonzero(is_seen) if is_seen.any() else every

    def near_maps(self, row: Row, maps: Indices, names: Sequence[str]) -> BoolArray:
        """Which maps of keys [candidate, key] give a row, where these fields are read by them."""
        fields = row._asdict()
        if not {*names} & {"limits", "added"}:  # no map makes it see another key
            keys = self.seen(row)
            maps, row = maps[:, keys], row.of_keys(keys)
        step = max(1, MOST_CELLS // (maps.shape[1] * (1 + row.values.shape[-1])))
        parts = (maps[start : start + step] for start in range(0, len(maps), step))
        results = [
            self.near(row._replace(**{x: fields[x][part] for x in names}), len(part))
            for part in parts
        ]
        return np.concatenate(results)


def _channels(errors: Array, stage: str) -> Indices:
    """The numbers of a row that are screened: of an output those that are most wrong."""
    if stage != OUTPUT:
        return np.arange(len(errors))
    return np.argsort(-errors, kind="stable")[:MOST_CHANNELS]


def computed(
    row: Row, stage: str, convention: Convention, empty_rows: EmptyRows, is_added: bool
) -> Array:
    """[candidate, …]: the stage of a row, or of candidates of it."""
    if stage in (SCORES, "scaled", CAPPED):
        return row.scores
    is_seen = row.limits & (row.added != -np.inf)
    numbers = np.where(row.added == -np.inf, 0.0, row.added)
    value, rule = convention.hidden_value(is_added), convention.mask_value_rule
    hidden = row.scores + value if rule == "add" else np.asarray(value)
    scores = row.scores + numbers
    if stage == MASKED:
        return np.where(is_seen, scores, hidden)
    powers, top = _powers(scores, is_seen, hidden, row.sink[..., None])
    total = powers.sum(axis=-1, keepdims=True) + np.exp(row.sink[..., None] - top)
    if stage == LSE:
        base = np.log(2) if convention.lse_base == "2" else 1.0
        with np.errstate(divide="ignore"):
            return np.asarray((np.log(total) + top) / base)
    weights = powers / np.where(total == 0, 1, total)
    if empty_rows in ("nan", "uniform"):
        instead = np.nan if empty_rows == "nan" else 1 / powers.shape[-1]
        weights = np.where(total == 0, instead, weights)
    if stage == WEIGHTS:
        return np.asarray(weights)
    shares = weights * row.multiples
    if row.values.ndim == 2:
        return np.asarray(shares @ row.values)
    return np.asarray((shares[..., None, :] @ row.values)[..., 0, :])


def _powers(scores: Array, is_seen: BoolArray, hidden: Array, sink: Array) -> tuple[Array, Array]:
    """exp(x − top) of every key, and the top: the largest score, of the sink as well."""
    are_hidden = hidden.ndim == 0 and hidden == -np.inf
    if are_hidden and scores.ndim < is_seen.ndim and np.ptp(scores) < WIDE:  # the same for all
        top = np.maximum(scores.max(keepdims=True), sink)
        return np.where(is_seen, np.exp(scores - top), 0.0), top
    masked = np.where(is_seen, scores, hidden)
    top = np.maximum(masked.max(axis=-1, keepdims=True), sink)
    top = np.where(np.isfinite(top), top, 0.0)
    return np.exp(masked - top), top


WIDE = 500.0
"""Powers of scores that are less far apart are no 0 beside each other."""


def is_plain(setup: Setup) -> bool:
    """Whether a setup is computed by the plan as it is, at its own places."""
    return not (setup.edits or setup.tiles or setup.instead or setup.relayout or setup.relabel)


def screen_of(search: Search) -> Screen | None:
    """The wrong rows of a comparison; None where there are none, or where it is none of rows."""
    comparison: Comparison = search.comparison
    setup, convention = comparison.setup, comparison.setup.convention
    both = convention.mask_and_causal == "both" or "given_mask" not in setup.inputs
    is_after = convention.softcap is not None and convention.softcap_place != "before-mask"
    if not is_plain(setup) or not both or is_after or convention.softmax_over == "queries":
        return None
    for name in SCREENED:
        stage = comparison.errors.get(name)
        if stage is None or stage.matches or stage.expected.shape[:3] != comparison.subset.sizes:
            continue
        is_nan = np.isnan(stage.observed).any(axis=-1)
        wrong = np.argwhere(stage.wrong.any(axis=-1) & ~is_nan)
        if len(wrong):
            some = wrong[np.unique(np.linspace(0, len(wrong) - 1, MOST_ROWS).round().astype(int))]
            return Screen(setup.placed(), setup, name, stage, comparison.subset, some)
    return None
