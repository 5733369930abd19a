"""Rotary positions: by which angles are queries and keys rotated, and are both?

rules ──┐
grids ──┼── screened on a few rows at once ──> Answer: the rule in words, its formula
scores ─┘   angles solved, where scores were observed
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.questions.answer import Answer
from attncli.commands.check.search import Search
from attncli.formula.matrices import plain
from attncli.stages import GRADIENTS, LSE, OUTPUT, QKV, SCALED, SCORES, WEIGHTS, spec_of
from attncli.tolerance.comparison import CLOSER, Comparison
from attncli.tolerance.norms import normed
from attncli.tolerance.positions import Positions
from attncli.tolerance.rule import distance
from attncli.tolerance.run import Subset, mask_of, stages
from attncli.tolerance.setup import Heads, Setup


class Rule(NamedTuple):
    """Other positions: what is otherwise in words, and as a formula of the angle θ_i of pair i."""

    words: str
    formula: str
    positions: Positions


def place_otherwise(search: Search) -> Iterator[Answer]:
    """Rotary positions by another rule, of queries and keys, or of one of the two."""
    setup = search.comparison.setup
    positions = setup.positions
    if positions is None or not positions.is_rotary:
        return
    width = positions.width or setup.d_k
    rules = [*_rules(positions, width, setup.d_k, max(setup.shape[2:]))]
    every = [rule for x in rules for rule in _of_both_or_one(x, positions)]
    screen = _Screen.of(search)
    for at in np.flatnonzero(screen.is_near([rule.positions for rule in every])):
        yield _answer(every[at], setup)
    yield from (_answer(rule, setup) for rule in _of_numbers(positions, width, screen))
    if (turns := _solved_turns(search.comparison)) is not None:
        yield _answer(_of_turns(turns, positions, width), setup)


def _answer(rule: Rule, setup: Setup) -> Answer:
    return Answer(rule.words, [replace(setup, positions=rule.positions)], rule.formula)


# ---- the rules that programs have by mistake


def _rules(positions: Positions, width: int, d_k: int, n: int) -> Iterator[Rule]:
    """Other rules of the same positions; n tokens at most."""
    turns, base, factor = positions.turns(d_k), plain(positions.base), positions.factor
    of_width = positions.of_width or width
    power = f"{base}^(−2i/{width})"
    if factor != 1:
        power = f"{power} / {factor:g}"

    def rule(words: str, formula: str, **changes: Any) -> Rule:
        return Rule(words, formula, replace(positions, **changes))

    yield rule(
        "every pair is turned by the position itself: all frequencies are 1",
        f"θ_i = 1, not {power}",
        frequencies=(1.0,) * len(turns),
    )
    yield rule(
        "the frequencies are inverted: the angles grow from pair to pair, where they are to fall",
        f"θ_i = {base}^(2i/{width}), not {power}",
        frequencies=tuple((positions.base ** (2 * np.arange(len(turns)) / of_width)).tolist()),
    )
    yield rule(
        "positions are rotated the other way: the sign of the angles is reversed",
        f"θ_i = −{power}",
        times=-1,
    )
    yield rule(
        "positions are applied twice: every pair is turned by twice its angle",
        f"θ_i = 2 · {power}",
        times=2,
    )
    pairs = {"rope-halves": "i and i + d/2", "rope-interleaved": "2i and 2i + 1"}
    (other,) = pairs.keys() - {positions.kind}
    yield rule(
        f"cos and sin are laid out as for {_LAYOUTS[other]}, but the pairs are "
        f"{_LAYOUTS[positions.kind]}: entries {pairs[positions.kind]} of a pair have two angles",
        "x[e] · cos[e] + rotated[e] · sin[e], where cos and sin belong to pair "
        + (
            f"e // 2, not e % {width // 2}"
            if other != "rope-halves"
            else f"e % {width // 2}, not e // 2"
        ),
        tables=other,
    )
    yield rule(
        f"rotary pairs are {_LAYOUTS[other]}: entries {pairs[other]} are a pair, "
        f"not {pairs[positions.kind]}",
        "",
        kind=other,
    )
    yield from _of_counts(positions, rule)
    yield from _of_scaling(positions, width, n, rule)
    if width != d_k:
        yield rule(
            f"all {d_k} entries are rotated, not the first {width}",
            f"θ_i = {base}^(−2i/{d_k}) for all {d_k // 2} pairs",
            width=None,
        )


_LAYOUTS = {"rope-halves": "in halves", "rope-interleaved": "interleaved"}


def _of_counts(positions: Positions, rule: Callable[..., Rule]) -> Iterator[Rule]:
    """Positions that are counted otherwise, in the cache or behind it alone."""
    for first, words in (("from_past", "cached keys"), ("from_new", "new keys")):
        for more in (-1, 1) if positions.n_past else ():
            start = getattr(positions, first) + more
            sentence = f"the positions of the {words} are counted from {start}"
            yield rule(f"{sentence}, not {start - more}", "", **{first: start})


def _of_scaling(
    positions: Positions, width: int, n: int, rule: Callable[..., Rule]
) -> Iterator[Rule]:
    """Other factors that divide positions, and other bases: those that have a reason."""
    factor, base, turned = (
        positions.factor,
        positions.base,
        f"{plain(positions.base)}^(−2i/{width})",
    )
    if factor != 1:
        sentence = f"positions are not divided by the factor {factor:g}: linear scaling is missing"
        yield rule(sentence, f"θ_i = {turned}, not {turned} / {factor:g}", factor=1.0)
        sentence = f"positions are multiplied by the factor {factor:g}, not divided by it"
        yield rule(sentence, f"θ_i = {factor:g} · {turned}", factor=1 / factor)
        sentence = f"positions are divided by the factor {factor:g} twice"
        yield rule(sentence, f"θ_i = {turned} / {factor**2:g}", factor=factor**2)
        if width > 2:
            scaled = base * factor ** (width / (width - 2))
            sentence = f"the base is scaled, by {factor:g}^(d/(d − 2)), and positions are not"
            yield rule(
                sentence, f"the base is {plain(scaled)}, not {plain(base)}", base=scaled, factor=1.0
            )
    if base != DEFAULT_BASE:
        sentence = f"the base is {DEFAULT_BASE:g}, the default, not {plain(base)}"
        yield rule(sentence, f"θ_i = {DEFAULT_BASE:g}^(−2i/{width})", base=DEFAULT_BASE)
    yield rule(
        "the frequencies are counted from pair 1, not 0",
        f"θ_i = {plain(base)}^(−2(i + 1)/{width})",
        factor=factor * base ** (2 / width),
    )
    for times in (*_FACTORS, n):
        for other, verb in ((times, "divided"), (1 / times, "multiplied")):
            if other not in (1, factor) and other * factor != 1:
                sign = "/" if verb == "divided" else "·"
                yield rule(
                    f"positions are {verb} by {times:g}",
                    f"θ_i = {turned} {sign} {times:g}",
                    factor=other,
                )


DEFAULT_BASE = 10000.0

_FACTORS = (2, 4, 8, 16, 32, 64, 10, 2 * math.pi, 180 / math.pi)
"""By which positions are stretched for longer texts; and turns and degrees, taken for radians."""


def _of_both_or_one(rule: Rule, right: Positions) -> Iterator[Rule]:
    """A rule of queries and keys alike, then of one of the two alone."""
    changed = rule.positions
    counts = "from_past", "from_new"
    is_of_keys = any(getattr(changed, x) != getattr(right, x) for x in counts)
    if is_of_keys or changed.kind == right.kind:  # the catalogue has the other layout of both
        yield rule
    if not is_of_keys:
        yield rule._replace(
            words=f"of the queries alone, {rule.words}", positions=replace(changed, of_keys=right)
        )
        yield rule._replace(
            words=f"of the keys alone, {rule.words}", positions=replace(right, of_keys=changed)
        )


# ---- many positions beside a few rows


class _Screen(NamedTuple):
    """A few rows of a head, and how far off other positions are there, many at once.

    setup    of one batch item and head; the batch items are to be the candidates
    few      the rows as they were observed; None: no rows were, and nothing is screened
    n_keys   no later keys are visible to these rows
    """

    setup: Setup
    few: Comparison | None
    n_keys: int = 0

    @classmethod
    def of(cls, search: Search) -> _Screen:
        """That of the first wrong rows: where later keys are hidden, their angles are small."""
        comparison, setup = search.comparison.of_rows(), search.comparison.setup
        forward = {x: y for x, y in comparison.errors.items() if x not in GRADIENTS}
        comparison = replace(comparison, errors=forward)
        is_plain = not (setup.relayout or setup.relabel or setup.whole_axes or setup.of_all_heads)
        wrong = [stage.wrong.any(axis=-1) for stage in comparison.errors.values()]
        if not is_plain or not wrong or any(x.shape != comparison.subset.sizes for x in wrong):
            return cls(setup, None)
        places = np.argwhere(np.any(wrong, axis=0))
        if not len(places):
            return cls(setup, None)
        batch, head, _ = places[0]
        rows = places[(places[:, :2] == places[0, :2]).all(axis=1), 2][:MOST_ROWS]
        few = comparison.sample(Subset(np.array([batch]), np.array([head]), rows))
        at, heads = few.subset.batch, few.subset.head
        picked = {"batch": at, "head": heads, "kv_head": setup.key_heads[heads]}
        inputs = dict(setup.inputs)
        for name, whole in setup.inputs.items():
            for axis, kind in enumerate(spec_of(name).axes_of(whole.ndim)):
                if kind in picked and whole.shape[axis] > 1:
                    inputs[name] = np.take(inputs[name], picked[kind], axis=axis)
        if setup.gains:
            inputs |= {name: normed(inputs[name], gain) for name, gain in setup.gains.items()}
            setup = setup.without_norm()
        alone = setup.with_other_arrays(inputs, Heads(*picked.values()))
        mask, n_keys = mask_of(alone, rows), setup.shape[3]
        hides = setup.convention.mask_value == -np.inf and setup.convention.softcap is None
        if mask is not None and hides and few.errors.keys() <= {WEIGHTS, LSE, OUTPUT}:
            visible = np.flatnonzero((mask != -np.inf).reshape(-1, n_keys).any(axis=0))
            n_keys = int(visible.max(initial=0)) + 1
        return cls(alone, few, n_keys)

    def misfits(self, candidates: Sequence[Positions]) -> Array:
        """The mean square of the errors that each leaves, beside that of the right positions."""
        assert self.few is not None  # noqa: S101 - looked at before
        at_once = max(1, MOST_NUMBERS // (self.setup.shape[2] * self.setup.d_k))
        total = np.zeros(len(candidates))
        for start in range(0, len(candidates), at_once):
            some = candidates[start : start + at_once]
            total[start : start + at_once] = self._misfits(some)
        return total

    def _misfits(self, candidates: Sequence[Positions]) -> Array:
        setup, few = self.setup, self.few
        assert few is not None  # noqa: S101 - looked at before
        qkv = {name: setup.inputs[name] for name in QKV}
        rows, n = few.subset.row, len(candidates)
        arrays = {name: np.repeat(qkv[name], n, axis=0) for name in "qk"}
        arrays["v"] = np.broadcast_to(qkv["v"], (n, *qkv["v"].shape[1:]))
        some = {**qkv, "q": qkv["q"][:, :, rows], "k": qkv["k"][:, :, : self.n_keys]}
        for at, candidate in enumerate(candidates):
            placed = candidate.put_in(some, rows)
            arrays["q"][at, :, rows] = np.swapaxes(placed["q"][0], 0, 1)
            arrays["k"][at, :, : self.n_keys] = placed["k"][0]
        of_items = {
            name: np.repeat(x, n, axis=0)
            for name, x in setup.inputs.items()
            if name not in QKV and "batch" in spec_of(name).axes_of(x.ndim)
        }
        first, inputs = np.array([0]), {**setup.inputs, **arrays, **of_items}
        items = Heads(first.repeat(n), first, first)
        many = setup.with_other_arrays(inputs, items, positions=None)
        subset = Subset(np.arange(n), first, rows)
        total = np.zeros(n)
        for name, x in stages(many, subset, few.errors).items():
            stage = few.errors[name]
            errors = np.minimum(distance(stage.observed, x), FAR * stage.typical_wrong)
            size = max(float(np.square(stage.errors).mean()), 1e-300)
            total += np.square(errors).mean(axis=(1, 2, 3)) / size / len(few.errors)
        return total

    def is_near(self, candidates: Sequence[Positions]) -> Array:
        """Which of them leave at most half of the errors; all where nothing is screened."""
        if self.few is None:
            return np.ones(len(candidates), dtype=np.bool_)
        return self.misfits(candidates) <= CLOSER**2


MOST_ROWS = 4
"""So few rows refuse nearly all positions."""

MOST_NUMBERS = 2**20
"""So many numbers of the keys are rotated at once: 8 MB."""

FAR = 1e3
"""An error that is larger, beside the typical one, says no more."""


# ---- a base or a factor that is fitted


def _of_numbers(positions: Positions, width: int, screen: _Screen) -> Iterator[Rule]:
    """Another base, and another factor, where the rows show them."""
    if screen.few is None or screen.n_keys > MOST_KEYS:
        return
    for name, exponents in GRIDS.items():
        at = _least(name, np.linspace(*exponents), positions, screen)
        for value in () if at is None else _simplest(at):
            words = f"the base is {plain(value)}, not {plain(positions.base)}"
            formula = f"θ_i = {value:.6g}^(−2i/{width})"
            if name == "factor":
                words = f"positions are divided by {value:.6g}, not by {positions.factor:g}"
                formula = f"θ_i = {plain(positions.base)}^(−2i/{width}) / {value:.6g}"
            changes: Any = {name: value}
            yield Rule(words, formula, replace(positions, **changes))


GRIDS = {"base": (0.0, 14.0, 281), "factor": (-2.0, 2.0, 241)}
"""Powers of 10 among which a base and a factor are looked for, and how many: where a key is ten
positions away, its angles differ by less than one radian from one to the next."""

MOST_KEYS = 128
"""Of rows that see more keys the angles are too many turns for such steps."""

LIKELY = 0.75
"""Numbers that leave a larger share of the errors are not made finer."""

ZOOMS, FINER = 8, 17
"""So many times the steps are made finer, by eight: 4·10⁻⁹ of the first."""


def _least(name: str, exponents: Array, positions: Positions, screen: _Screen) -> float | None:
    """The power of 10 with the least errors, if they are far less than those of the others."""

    def misfits(x: Array) -> Array:
        changes: list[Any] = [{name: float(10.0**y)} for y in x]
        return screen.misfits([replace(positions, **change) for change in changes])

    losses = misfits(exponents)
    step = exponents[1] - exponents[0]
    for at in (x for x in np.argsort(losses)[:3] if losses[x] <= LIKELY):
        middle, reach = exponents[at], step
        for _ in range(ZOOMS):
            low = max(middle - reach, exponents[0])
            x = np.linspace(low, middle + reach, FINER)
            finer = misfits(x)
            middle, reach = x[finer.argmin()], reach / 8
        if finer.min() <= CLOSER**2:
            return float(10.0**middle)
    return None


def _simplest(x: float) -> Iterator[float]:
    """The number, in the fewest digits first."""
    for digits in (1, 2, 3, 4):
        if abs(float(f"{x:.{digits}g}") - x) < 0.02 * x:
            yield float(f"{x:.{digits}g}")
    yield x


# ---- the angles, from observed scores


def _solved_turns(comparison: Comparison) -> Array | None:
    """How far each pair is turned by a position: from the scores of keys one position apart.

    A score is Σ_i A_i cos(δ θ_i) − B_i sin(δ θ_i), where δ is how far the key is from the query.
    """
    setup, positions = comparison.setup, comparison.setup.positions
    stage = next((comparison.errors[x] for x in (SCORES, SCALED) if x in comparison.errors), None)
    if stage is None or positions is None or setup.convention.qk_norm or setup.tiles:
        return None
    name = SCORES if SCORES in comparison.errors else SCALED
    factor = 1.0 if name == SCORES else setup.convention.scale_factor(setup.d_k)
    if not factor or setup.patched or comparison.subset.sizes != setup.shape[:3]:
        return None
    width = positions.width or setup.d_k
    q, k = setup.inputs["q"], setup.inputs["k"][:, setup.key_heads]
    rest = q[..., width:] @ np.swapaxes(k[..., width:], -1, -2)
    scores = stage.observed / factor - rest
    pairs = {"rope-halves": (slice(0, width // 2), slice(width // 2, width))}
    first, second = pairs.get(positions.kind, (slice(0, width, 2), slice(1, width, 2)))
    apart = (
        positions.from_query
        + np.arange(setup.shape[2])[:, None]
        - positions.key_ids(setup.shape[3])
    )
    turns, far = np.zeros(width // 2), 1
    while far <= max(1, int(apart.max()) // 2):
        i, j = np.nonzero(apart == far)
        a, b = q[:, :, i], k[:, :, j]
        products = [
            a[..., first] * b[..., first] + a[..., second] * b[..., second],
            a[..., first] * b[..., second] - a[..., second] * b[..., first],
        ]
        system = np.concatenate(products, axis=-1).reshape(-1, width)
        values = scores[:, :, i, j].ravel()
        if len(values) < 2 * width or not np.isfinite(values).all():
            break
        solution, _, rank, _ = np.linalg.lstsq(system, values)
        misfit = np.abs(system @ solution - values).max()
        if rank < width or misfit > NEAR * np.abs(values).max():
            break
        cos, sin = solution[: width // 2], solution[width // 2 :]
        angles = np.arctan2(sin, cos)
        whole = np.round((far * turns - angles) / (2 * np.pi)) if far > 1 else 0
        turns, far = (angles + 2 * np.pi * whole) / far, 2 * far
    return turns if far > 1 else None


NEAR = 0.02
"""What is solved leaves no more than this share of the largest score: the rounding of bfloat16."""


def _of_turns(turns: Array, positions: Positions, width: int) -> Rule:
    """Frequencies that were solved, in words."""
    right = positions.turns(width) / positions.factor * positions.times
    numbers, others = (", ".join(f"{x:.4g}" for x in y[:MOST_SAID]) for y in (turns, right))
    more = f" and {len(turns) - MOST_SAID} more" if len(turns) > MOST_SAID else ""
    words = f"the pairs are turned by other angles a position: {numbers}{more}, not {others}{more}"
    formula = f"θ_i is not {plain(positions.base)}^(−2i/{width})"
    changed = replace(positions, frequencies=tuple(turns.tolist()), factor=1.0, times=1)
    return Rule(words, formula, changed)


MOST_SAID = 8
"""Of more angles only the first are said."""
