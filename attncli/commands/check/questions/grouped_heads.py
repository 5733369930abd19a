"""Grouped heads: which query heads are summed in d_k and d_v of the key head that they share.

A gradient of a key head is linear in how often each query head counts, which its numbers decide:

    d_k[g] = Σ_h c_gh d_k[g] by head h alone        right is c_gh = 1 for the heads of its group
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.bugs.edits import changed
from attncli.commands.check.questions.answer import Answer, places_text
from attncli.commands.check.questions.counts import CLOSER, MOST_OTHERS, times_text
from attncli.commands.check.questions.factors import NEAR, short_number
from attncli.commands.check.questions.rows import LARGEST
from attncli.commands.check.questions.screen import is_plain
from attncli.commands.check.search import Search
from attncli.errors import joined
from attncli.tolerance.run import all_of, stages
from attncli.tolerance.setup import Heads, Setup

ENOUGH = 8
"""So many equations there are for each query head at least."""

MOST_EQUATIONS = 2**14
"""More tell no more: they are evenly spread over what is wrong."""

WHOLE = 0.05
"""A count as near as this to a whole number, or to the share of a mean, is tried as that one."""

UNUSED = 1e-10
"""A head that gives so little beside the others may count as often as it likes."""

MOST_SAID = 4
"""The heads of so many key heads are said."""

Counts = Mapping[int, Array]
"""Key head → [query head]: how often each of them counts."""


def heads_summed(search: Search) -> Iterator[Answer]:
    """Which query heads count, and how often, in d_k and d_v of shared key heads."""
    setup, errors = search.comparison.setup, search.comparison.errors
    names = [name for name, stage in errors.items() if not stage.matches]
    n_groups = setup.inputs["k"].shape[1]
    is_whole = search.comparison.subset.sizes == setup.shape[:3]
    if not {*names} <= {"d_k", "d_v"} or n_groups == setup.shape[1] or not is_whole:
        return
    if not names or not is_plain(setup):
        return
    solved = [*_solved(search, names)]
    first = solved[0]
    if first and all(counts is not None and _is_same(first, counts) for counts in solved):
        yield _answer(first, names, search)


def _solved(search: Search, names: Sequence[str]) -> Iterator[Counts | None]:
    """How often each query head counts for each wrong key head, in each of these gradients; None
    where that does not explain one."""
    setup, errors = search.comparison.setup, search.comparison.errors
    heads, every = setup.key_heads, all_of(setup.shape)
    wrong = {name: np.asarray(errors[name].wrong.any(axis=(2, 3))) for name in names}
    is_wrong = np.stack([*wrong.values()]).any(axis=(0, 2))
    cells = min(errors[name].expected[0, 0].size for name in names)
    items = np.flatnonzero(is_wrong)[: -(-ENOUGH * setup.shape[1] // cells)]
    inputs = {**setup.inputs, **{x: setup.inputs[x][:, heads] for x in "kv"}}
    convention = replace(setup.convention, head_order="blocks")
    at = Heads(every.batch, every.head, heads)
    alone = setup.with_other_arrays(inputs, at, convention=convention, grouping="blocks")
    of_heads = stages(alone, every._replace(batch=items), names)
    for name in names:
        counts = dict[int, Array]()
        for g in np.flatnonzero(wrong[name][items].any(axis=0)).tolist():
            observed = errors[name].observed[items, g]
            each = _counts(of_heads[name], observed, heads == g, search.evidence.eps)
            if each is None:
                yield None
                break
            counts[g] = each
        else:
            yield counts


def _is_same(counts: Counts, others: Counts) -> bool:
    return counts.keys() == others.keys() and all(
        np.array_equal(x, others[g]) for g, x in counts.items()
    )


def _counts(of_heads: Array, observed: Array, is_right: Array, eps: float) -> Array | None:
    """How often each query head counts in a gradient of one key head; None: no counts give it.

    of_heads  [batch, head, key, d]: what each query head adds
    observed  [batch, key, d]
    """
    matrix = np.moveaxis(of_heads, 1, -1).reshape(-1, of_heads.shape[1])
    numbers = observed.reshape(-1)
    some = np.unique(np.linspace(0, len(numbers) - 1, MOST_EQUATIONS).astype(int))
    matrix, numbers = matrix[some], numbers[some]
    if not all((np.abs(x) <= LARGEST).all() for x in (matrix, numbers)):
        return None
    sizes = np.abs(matrix).max(axis=0)
    is_known = sizes > UNUSED * sizes.max()
    right = is_right.astype(float)
    if len(matrix) < ENOUGH * is_known.sum():
        return None
    more = np.linalg.lstsq(matrix[:, is_known], numbers - matrix @ right)[0]
    each = right.copy()
    each[is_known] += more
    if np.linalg.norm(numbers - matrix @ each) > CLOSER * np.linalg.norm(numbers - matrix @ right):
        return None
    mean = 1 / is_right.sum()
    for usual in (each.round() + 0.0, np.full_like(each, mean)):
        each = np.where(np.abs(each - usual) <= WHOLE * np.minimum(1, usual + mean), usual, each)
    within = min(0.01, NEAR * eps)
    each = np.array([x if x in (0, mean) else short_number(x, within) for x in each.tolist()])
    others = np.unique(each[each != each.round()])
    return each if len(others) <= MOST_OTHERS else None


# ---- in words, and as edits of the sums


def _answer(counts: Counts, names: Sequence[str], search: Search) -> Answer:
    """The counts in words, and as an edit of the sums over the heads of a group."""
    setup = search.comparison.setup
    words, terms = _of_every_group(counts, setup) or ("", "")
    if not words:
        words, terms = _listed(counts, setup), _terms(counts, setup)
    setups = changed([f"{', '.join(names)}: => sum[h]({terms})"], setup, search.evidence)
    return Answer(f"in {joined(names)} {words}", setups)


def _group_text(setup: Setup) -> tuple[str, str]:
    """The condition that a head is of group g, and its number within the group, as formulas."""
    n_groups = setup.inputs["k"].shape[1]
    if setup.convention.head_order == "tiled":
        return f"h % {n_groups} == g", f"h // {n_groups}"
    size = setup.shape[1] // n_groups
    return f"h // {size} == g", f"h % {size}"


def _of_every_group(counts: Counts, setup: Setup) -> tuple[str, str] | None:
    """What is the same in every group: in words, and what is summed; None where nothing is."""
    n_groups, heads = setup.inputs["k"].shape[1], setup.key_heads
    if len(counts) < n_groups:
        return None
    every = np.array([counts[g] for g in range(n_groups)])
    if (every == 1).all():
        return "all query heads are summed for every key head, not those of its group alone", _X
    inside = np.array([every[g, heads == g] for g in range(n_groups)])
    is_outside = any((every[g, heads != g] != 0).any() for g in range(n_groups))
    if is_outside or not (inside == inside[0]).all():
        return None
    condition, number = _group_text(setup)
    pattern = inside[0]
    n, values = len(pattern), {*pattern.tolist()}
    at = np.flatnonzero(pattern == 1)
    if values == {1 / n}:
        return (
            "the mean over the heads of each group is taken, not the sum",
            f"{_X} / {n} where {condition}",
        )
    if values <= {0.0, 1.0}:
        numbers = " or ".join(f"{number} == {x}" for x in at.tolist())
        summed = f"{_X} where {condition} and ({numbers})"
        if len(at) == 1:
            ordinal = {0: "first", n - 1: "last"}.get(int(at[0]), f"{at[0] + 1}th")
            return f"only the {ordinal} head of each group is counted, not all {n}", summed
        missing = np.flatnonzero(pattern == 0).tolist()
        return f"{places_text('head', missing)} of each group of {n} are left out".replace(
            "are", "is" if len(missing) == 1 else "are"
        ), summed
    words = joined(
        [
            f"head {x + 1} of each group of {n} counts {times_text(value)}"
            for x, value in enumerate(pattern.tolist())
            if value != 1
        ]
    )
    factor = "".join(
        f"{value:.17g} if {number} == {x} else "
        for x, value in enumerate(pattern.tolist())
        if value != 1
    )
    return words, f"{_X} * ({factor}1) where {condition}"


_X = "d[b,h,j,d]"


def _listed(counts: Counts, setup: Setup) -> str:
    """The heads that are summed for each wrong key head, and which are right."""
    sentences = list[str]()
    for g, each in [*counts.items()][:MOST_SAID]:
        of_group = np.flatnonzero(setup.key_heads == g).tolist()
        of_value = {
            value: np.flatnonzero(each == value).tolist()
            for value in np.unique(each).tolist()
            if value
        }
        parts = [
            (f"{times_text(value)} " if value != 1 else "") + places_text("head", at)
            for value, at in of_value.items()
        ]
        right = places_text("head", of_group).partition(" ")[2]
        verb = "is" if len(of_group) == 1 else "are"
        summed = f"sums {joined(parts)}" if parts else "sums no head"
        sentences.append(f"key head {g + 1} {summed}, right {verb} {right}")
    more = f"; and {len(counts) - MOST_SAID} more" if len(counts) > MOST_SAID else ""
    return "; ".join(sentences) + more


def _terms(counts: Counts, setup: Setup) -> str:
    """What is summed over h, where each key head has its own heads."""
    n_groups, heads = setup.inputs["k"].shape[1], setup.key_heads
    every = {g: counts.get(g, (heads == g).astype(float)) for g in range(n_groups)}
    conditions = list[str]()
    for g, each in every.items():
        at = np.flatnonzero(each).tolist()
        numbers = " or ".join(f"h == {x}" for x in at)
        conditions += [f"g == {g} and ({numbers})"] * bool(at)
    factors = "".join(
        f"{value:.17g} if g == {g} and h == {h} else "
        for g, each in every.items()
        for h, value in enumerate(each.tolist())
        if value not in (0, 1)
    )
    condition = " or ".join(conditions) or "h < 0"
    return f"{_X} * ({factors}1) where {condition}" if factors else f"{_X} where {condition}"
