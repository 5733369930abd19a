"""Maps of operands by d_q, d_k and d_v, where the forward pass says nothing, or is right.

All queries of a key head are computed for all maps of an operand at once, as if each were a batch
item.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.attention.heads import four_axes
from attncli.commands.check.questions.answer import MOST_MAPS, Answer, PlaceMap, place_maps
from attncli.commands.check.questions.maps import (
    maps_allowed,
    past_the_end,
    sentence_of,
)
from attncli.commands.check.questions.operands import (
    LENGTHS,
    LETTERS,
    LIMITS,
    SINKS,
    START,
    Operand,
    operands_of,
    setups_of,
)
from attncli.commands.check.questions.screen import NEARER, is_plain
from attncli.commands.check.search import Search
from attncli.stages import GRADIENTS, QKV, gradient_of, spec_of
from attncli.tolerance.comparison import Comparison
from attncli.tolerance.rule import distance
from attncli.tolerance.run import Indices, Subset, all_of, inputs_over, mask_of, stages
from attncli.tolerance.setup import Heads, Setup

MOST_CELLS = 2**22
"""So many scores are computed for the maps of an operand: more would take seconds."""

MOST_HEADS = 6
"""By so many wrong key heads of batch items the maps are screened."""


def read_elsewhere_backward(search: Search) -> Iterator[Answer]:
    """One operand, read at another place along one axis, by gradients alone."""
    comparison = search.comparison
    setup, errors = comparison.setup, comparison.errors
    of_qkv = {*map(gradient_of, QKV)}
    is_backward = errors.keys() <= {*GRADIENTS} and bool(errors.keys() & of_qkv)
    if not is_backward or not is_plain(setup) or comparison.subset.sizes != setup.shape[:3]:
        return
    heads = wrong_heads(comparison, sorted(errors.keys() & of_qkv))
    for operand in operands_of(setup) if heads else ():
        is_limits = operand.fields == LIMITS
        if (
            operand.words in LENGTHS
            or operand in (SINKS, START)
            or not (operand.arrays or is_limits)
        ):
            continue
        for letter in operand.letters if not is_limits else "i":
            for place_map in _maps(setup, heads, operand, letter):
                setups, formula = setups_of(search, operand, letter, place_map)
                yield Answer(sentence_of(setup, operand, letter, place_map), setups, formula)


@dataclass(frozen=True)
class KeyHead:
    """A key head of a batch item whose gradients are wrong: its inputs, and what was observed."""

    batch: int
    number: int
    heads: Indices
    observed: dict[str, Array]
    allowed: dict[str, float]


def wrong_heads(comparison: Comparison, names: list[str]) -> list[KeyHead]:
    """Those key heads of batch items that have a wrong gradient, evenly spread."""
    setup, heads = comparison.setup, list[KeyHead]()
    for b, g in np.ndindex(setup.shape[0], setup.inputs["k"].shape[1]):
        of_group = np.flatnonzero(setup.key_heads == g)
        at = {name: of_group if name == "d_q" else np.array([g]) for name in names}
        stages_of = {name: comparison.errors[name] for name in names}
        observed = {name: x.observed[b, at[name]] for name, x in stages_of.items()}
        errors = {
            name: float(distance(observed[name], x.expected[b, at[name]]).max())
            for name, x in stages_of.items()
        }
        wrong = [name for name, x in stages_of.items() if x.wrong[b, at[name]].any()]
        if wrong:
            allowed = {name: NEARER * errors[name] for name in wrong}
            heads.append(KeyHead(b, g, of_group, {x: observed[x] for x in wrong}, allowed))
    if not heads:
        return []
    some = np.unique(np.linspace(0, len(heads) - 1, MOST_HEADS).round().astype(int))
    return [heads[x] for x in some]


def _maps(setup: Setup, heads: list[KeyHead], operand: Operand, letter: str) -> list[PlaceMap]:
    """The maps of an axis of an operand by which every key head has the observed gradients."""
    n = _length(setup, operand, letter)
    is_shared = letter == "h" and setup.shape[1] != setup.inputs["k"].shape[1]
    family = [*(past_the_end(n) if operand.fields == LIMITS else ()), *place_maps(n)]
    is_by_map = letter in "ij" or is_shared  # else each place of the axis by itself
    count = len(family) if is_by_map else n
    n_cells = count * len(heads[0].heads) * setup.shape[2] * setup.shape[3]
    if n < 2 or n_cells > MOST_CELLS:
        return []
    if is_by_map:
        for head in heads:
            indices = np.array([x.indices for x in family]).reshape(-1, n)
            near = _near(setup, head, operand, letter, indices)
            family = [x for x, is_near in zip(family, near, strict=True) if is_near]
            if not family:
                break
        return family[:MOST_MAPS]
    sources: dict[int, BoolArray] = {}
    for head in heads:
        place = {"b": head.batch, "g": head.number, "h": int(head.heads[0])}[letter]
        near = _near(setup, head, operand, letter, np.arange(n))
        sources[place] = near & sources.get(place, np.ones_like(near))
        if not sources[place].any():
            return []
    return maps_allowed(family, n, sources, is_listed=True)


def _length(setup: Setup, operand: Operand, letter: str) -> int:
    """How long an axis of an operand is; 1 where one has no such axis, or limits and a mask."""
    if operand.fields == LIMITS:
        return 1 if "given_mask" in setup.inputs else setup.shape[2]
    shapes = [(LETTERS[x], four_axes(setup.inputs[x]).shape) for x in operand.arrays]
    return min(int(shape[letters.index(letter)]) for letters, shape in shapes)


def _near(
    setup: Setup, head: KeyHead, operand: Operand, letter: str, indices: Indices
) -> BoolArray:
    """Which of the candidates give the gradients of a key head."""
    n_q, count, convention = setup.shape[2], len(indices), setup.convention
    over = Subset(np.array([head.batch]), head.heads, np.arange(n_q))
    keys = np.array([head.number])
    inputs = inputs_over(setup, over, (), keys=keys)
    del inputs["rows"]
    if operand.fields == LIMITS:
        inputs.pop("kv_len", None)
        convention = replace(convention, causal=False, window=None)
        changed = {"given_mask": _limits(setup, head)[indices][:, None]}
    else:
        changed = {x: _candidates(setup, head, x, letter, indices) for x in operand.arrays}
    inputs = {
        name: np.broadcast_to(x, (count, *x.shape[1:])) if has_items(name, x) else x
        for name, x in inputs.items()
    }
    at = Heads(over.batch.repeat(count), over.head, keys)
    other = setup.with_other_arrays({**inputs, **changed}, at, convention=convention)
    results = stages(other, all_of(other.shape), head.observed)
    near = np.ones(count, np.bool_)
    for name, x in results.items():
        errors = distance(x, head.observed[name][None]).reshape(count, -1).max(axis=-1)
        near &= errors <= head.allowed[name]
    return near


def has_items(name: str, x: Array) -> bool:
    """Whether an input of one batch item has an axis for it."""
    return spec_of(name).axes_of(x.ndim)[:1] == ("batch",) and len(x) == 1


def _limits(setup: Setup, head: KeyHead) -> BoolArray:
    """[query, key]: what may be seen of every query, and of as many past the last."""
    x = mask_of(setup, np.arange(2 * setup.shape[2]))
    assert x is not None  # noqa: S101 - there are limits
    x = x.reshape((1,) * (4 - x.ndim) + x.shape)
    return np.asarray(x[min(head.batch, len(x) - 1), 0] != -np.inf)


def _candidates(setup: Setup, head: KeyHead, name: str, letter: str, indices: Indices) -> Array:
    """[candidate, head, …]: an input of a key head, read at each place, or by each map."""
    x = four_axes(setup.inputs[name])
    b = min(head.batch, len(x) - 1)
    heads = [head.number] if "g" in LETTERS[name] else head.heads if x.shape[1] > 1 else [0]
    if letter == "b":
        return np.asarray(x[indices][:, heads])
    if indices.ndim == 2 and letter == "h":
        return np.asarray(x[b][indices[:, head.heads]])
    if letter in "gh":
        return np.asarray(x[b][indices][:, None])
    axis = LETTERS[name].index(letter) - 1
    return np.stack([np.take(x[b][heads], places, axis=axis) for places in indices])
