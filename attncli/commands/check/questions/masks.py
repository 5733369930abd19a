"""Masks that hold another: a given mask is taken apart, and each part is left out, or is one off.

given mask = causal part ∧ window ∧ documents ∧ padding ∧ the rest
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.attention.masks import is_masked, meaning
from attncli.commands.check.questions.answer import Answer, place_maps
from attncli.commands.check.search import Search
from attncli.convention import Convention
from attncli.errors import joined
from attncli.tolerance.setup import Setup

NOTHING = -1e4
"""What adds less than this to a score hides a key: exp(−10,000) is 0 in every number type."""


class Part(NamedTuple):
    """One reason for which a mask hides.

    words    such as "documents", "window"
    visible  [batch, head, query, key], of which the first may be 1: what it leaves visible
    formula  the same in a formula
    others   the part as it is where it is one off or another batch item's, each with its sentence
    """

    words: str
    visible: BoolArray
    formula: str
    others: tuple[tuple[str, BoolArray], ...] = ()


def parts_of_mask(search: Search) -> Iterator[Answer]:
    """Parts of the given mask left out, with the causal limit and without; one part that is off."""
    setup = search.comparison.setup
    mask, convention = setup.inputs.get("given_mask"), setup.convention
    is_plain = not (setup.edits or setup.tiles or setup.instead)
    if mask is None or mask.ndim < 2 or convention.mask_means == "add" or not is_plain:
        return
    visible = visible_in(mask, convention)
    parts = parts_of(visible)
    for count in range(1, len(parts) + 1):
        for ignored in combinations(parts, count):
            remaining = [x for x in parts if x not in ignored]
            changed = with_visible(setup, _all_of([x.visible for x in remaining], visible))
            toggled = changed.with_convention(causal=not convention.causal)
            formula = formula_of(remaining)
            sentence = sentence_of(ignored, remaining)
            if remaining:
                yield Answer(sentence, [changed], formula)
            beside = (
                "and so is the causal limit"
                if convention.causal
                else "and a causal limit is applied in its place"
            )
            yield Answer(f"{sentence}, {beside}", [toggled], formula)
    for part in parts:
        rest = [x.visible for x in parts if x is not part]
        for words, other in part.others:
            yield Answer(words, [with_visible(setup, _all_of([*rest, other], visible))])


def sentence_of(ignored: Sequence[Part], remaining: Sequence[Part]) -> str:
    """Which parts are ignored, and which remain."""
    names = [f"the {part.words}" for part in ignored]
    if not remaining:
        return "the given mask is ignored"
    sentence = f"{joined(names)} of the given mask {_verb(ignored, 'is', 'are')} ignored"
    others = [f"its {part.words}" for part in remaining]
    return f"{sentence}; {joined(others)} {_verb(remaining, 'remains', 'remain')}"


def _verb(parts: Sequence[Part], single: str, plural: str) -> str:
    return single if len(parts) == 1 and not parts[0].words.endswith("s") else plural


def formula_of(parts: Iterable[Part]) -> str:
    """The mask that these parts are."""
    conditions = " and ".join(part.formula for part in parts)
    return f"M[i,j] = 0 if {conditions} else -inf" if conditions else "M[i,j] = 0"


def _all_of(parts: Iterable[BoolArray], like: BoolArray) -> BoolArray:
    """What all parts leave visible."""
    result = np.ones_like(like)
    for part in parts:
        result = result & part
    return result


# ---- a mask as true = visible, and back


def visible_in(mask: Array, convention: Convention) -> BoolArray:
    """[batch, head, query, key], of which the first may be 1: what a mask leaves visible."""
    x = meaning(mask, convention.mask_means, convention.mask_numbers)
    x = x if x.dtype == np.bool_ else ~(is_masked(x) | (x < NOTHING))
    return np.asarray(x.reshape((1,) * (4 - x.ndim) + x.shape))


def with_visible(setup: Setup, visible: BoolArray) -> Setup:
    """The setup whose given mask leaves this visible; what it adds is as it was."""
    mask, convention = setup.inputs["given_mask"], setup.convention
    before = visible_in(mask, convention)
    x = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    is_truth = mask.dtype == np.bool_ or convention.mask_numbers == "truth"
    if is_truth:
        new = (visible if convention.mask_means == "keep" else ~visible).astype(mask.dtype)
    else:
        hidden = x[~before].max(initial=-np.inf) if (~before).any() else -np.inf
        new = np.where(visible, np.where(before, x, 0.0), hidden)
    return setup.with_inputs(given_mask=new.reshape(new.shape[_first(new, mask.ndim) :]))


def _first(x: Array, ndim: int) -> int:
    """The first axis that a mask of so many axes needs."""
    longer = next((axis for axis, n in enumerate(x.shape) if n > 1), 3)
    return min(4 - ndim, longer)


# ---- taking a mask apart


def parts_of(visible: BoolArray) -> list[Part]:
    """The parts of a mask: each hides something that those before it do not."""
    n_q, n_k = visible.shape[-2:]
    distance = np.arange(n_k) - np.arange(n_q)[:, None]
    parts, covered = list[Part](), np.ones_like(visible)
    if not visible.any() or n_q == 1:
        return []
    for part in (
        _causal(visible, distance),
        _padding(visible, distance),
        _documents(visible),
        _window(visible, distance),
    ):
        if part is not None and (covered & ~part.visible).any():
            parts.append(part)
            covered = covered & part.visible
    for part in (*parts,):  # one that the others hide as well says nothing
        others = [x for x in parts if x is not part]
        if not (_all_of([x.visible for x in others], visible) & ~part.visible).any():
            parts = others
    covered = _all_of([x.visible for x in parts], visible)
    if (rest := visible | ~covered).all():
        return parts
    return [*parts, Part("rest", rest, "rest[i,j]")]


def _distances(visible: BoolArray, distance: Array) -> Array:
    """How far the visible keys are after their queries."""
    at = np.argwhere(visible.any(axis=(0, 1)))
    return np.asarray(distance[at[:, 0], at[:, 1]])


def _causal(visible: BoolArray, distance: Array) -> Part | None:
    """No key past a diagonal is visible, which is that of causality or below."""
    n_q, n_k = visible.shape[-2:]
    after = int(_distances(visible, distance).max())
    if after > max(0, n_k - n_q):
        return None
    others = tuple(
        (f"the causal part of the given mask is {words}", (distance <= after + step)[None, None])
        for step, words in ((1, "one key too wide"), (-1, "one key too narrow"))
    )
    formula = f"j <= i + {after}" if after > 0 else f"j <= i - {-after}" if after else "j <= i"
    return Part("causal part", (distance <= after)[None, None], formula, others)


def _window(visible: BoolArray, distance: Array) -> Part | None:
    """No key further before its query than a number of places is visible, or further after."""
    distances = _distances(visible, distance)
    n_q, n_k = distance.shape
    first, last = int(distances.min()), int(distances.max())
    if first <= 1 - n_q:
        return None
    is_causal = last <= max(0, n_k - n_q)
    after = n_k if is_causal else last
    others = tuple(
        (
            f"the window of the given mask is {words}",
            ((distance >= first - step) & (distance <= after + step))[None, None],
        )
        for step, words in ((1, "one key too wide"), (-1, "one key too narrow"))
    )
    formula = f"j - i >= {first}" + f" and j - i <= {last}" * (not is_causal)
    band = (distance >= first) & (distance <= after)
    return Part("window", band[None, None], formula, others)


def _padding(visible: BoolArray, distance: Array) -> Part | None:
    """Columns of a batch item in which nothing is visible, whatever the causal part hides."""
    n_q = visible.shape[-2]
    after = int(_distances(visible, distance).max())
    is_reached = np.arange(visible.shape[-1]) <= n_q - 1 + after
    columns = visible.any(axis=-2, keepdims=True) | ~is_reached
    if columns.all() or n_q == 1:
        return None
    others = list[tuple[str, BoolArray]]()
    for place_map in place_maps(len(columns)) if len(columns) > 1 else ():
        words = f"the padding of each batch item is that of {place_map.words}"
        others.append((words, columns[place_map.indices]))
    for step, words in ((1, "one key too few"), (-1, "one key too many")):
        rolled = np.roll(columns, step, axis=-1)
        shifted = columns | rolled if step > 0 else columns & np.roll(columns, -1, axis=-1)
        others.append((f"the padding of the given mask hides {words}", shifted))
    return Part("padding", columns, "not is_padding[b,j]", tuple(others))


def _documents(visible: BoolArray) -> Part | None:
    """Blocks along the diagonal, outside of which nothing is visible."""
    n_q, n = visible.shape[-2:]
    if n_q != n:
        return None
    places = np.arange(n)
    keys = np.asarray(visible.any(axis=-2))
    # the furthest key that any query up to here sees, and the first that any from here on sees
    last = np.where(visible, places, -1).max(axis=-1)
    first = np.where(visible, places, n).min(axis=-1)
    reach = np.maximum.accumulate(last, axis=-1)[..., :-1]
    start = np.minimum.accumulate(first[..., ::-1], axis=-1)[..., ::-1][..., 1:]
    is_known = keys[..., 1:] & keys[..., :-1]
    can_begin: BoolArray = np.asarray((reach < places[1:]) & (start >= places[1:]))
    is_cut = can_begin & is_known
    if not is_cut.any():
        return None
    if not (is_cut.any(axis=0) & ~is_cut & is_known).any():
        # every batch item has the same documents; where its own padding hides a key next to the
        # boundary of two, the other batch items show it
        is_cut = is_cut | (is_cut.any(axis=0) & can_begin)
    none = np.zeros((*visible.shape[:2], 1), np.bool_)
    cuts: BoolArray = np.concatenate([none, is_cut], axis=-1)

    def blocks(at: BoolArray) -> BoolArray:
        number = at.cumsum(axis=-1)
        return np.asarray(number[..., :, None] == number[..., None, :])

    late = np.concatenate([none, cuts[..., :-1]], axis=-1)
    early = np.concatenate([cuts[..., 1:], none], axis=-1)
    early[..., 0] = False
    others = (
        ("the documents of the given mask begin one token late", blocks(late)),
        ("the documents of the given mask begin one token early", blocks(early)),
    )
    return Part("documents", blocks(cuts), "document[i] == document[j]", others)
