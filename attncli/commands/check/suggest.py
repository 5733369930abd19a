"""Small inputs: with all that attention may be given; and one on which several bugs all differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.commands.check.bugs.bug import Bug, Evidence
from attncli.commands.check.bugs.catalogue import named
from attncli.commands.check.findings import Explanation
from attncli.commands.check.search import differ
from attncli.convention import Convention
from attncli.stages import GIVEN_GRADIENT, GRADIENTS, OF_X, OUTPUT, QKV, gradient_of
from attncli.tolerance.positions import PositionKind, positions_of
from attncli.tolerance.run import all_of, computes, stages
from attncli.tolerance.setup import Setup, setup_of

Details = tuple[str, ...]
Shape = tuple[int, ...]  # (batch, head, kv_head, n_q, n_k, d_k, d_v)

WORDS = {
    "mask": "a boolean mask",
    "emptying": "that leaves the last query nothing",
    "items": "one of each batch item",
    "padding": "a boolean mask of the keys",
    "lengths": "key lengths below the number of keys",
    "past": "2 of the keys as a past",
    "numbers": "a mask of numbers, −∞ among them",
    "ones": "a mask of 1.5 and 0",
    "sinks": "sinks",
    "nan": "NaN in the last key and value, which are hidden",
}
"""What restricts an input, or is there besides, and the words for it."""


class Small(NamedTuple):
    """A small input as `attend` takes it, how it is computed, and what it is in words."""

    arrays: dict[str, Array]
    setup: Setup
    words: str


def small_input(
    shape: Shape,
    parts: str = "",
    convention: Convention | None = None,
    positions: PositionKind | None = None,
    *,
    times: float = 1.0,
    gradients: bool = False,
) -> Small:
    """Random numbers of two decimals with these parts, of `WORDS`; queries so many times as large.

    >>> small_input((1, 2, 2, 3, 5, 7, 11), "past").words
    '2 heads, 3 queries, 5 keys, d_k 7, d_v 11, 2 of the keys as a past'
    """
    convention, names = convention or Convention(), parts.split()
    n_batch, n_heads, n_kv, n_q, n_k, d_k, d_v = shape = _fitting(
        shape, positions, convention.window
    )
    rng = np.random.default_rng(7)
    q = rng.normal(size=(n_batch, n_heads, n_q, d_k)).round(2) * times
    k = rng.normal(size=(n_batch, n_kv, n_k, d_k)).round(2)
    v = rng.normal(size=(n_batch, n_kv, n_k, d_v)).round(2)
    arrays: dict[str, Any] = {}
    if "nan" in names:
        k[..., -1, 0] = v[..., -1, 0] = np.nan
    if "past" in names:
        arrays = {"past_k": k[:, :, :2], "past_v": v[:, :, :2]}
        k, v = k[:, :, 2:], v[:, :, 2:]
    if "lengths" in names:
        arrays["kv_len"] = n_k - 1 - np.arange(n_batch)
    if {*names} & {"mask", "padding", "numbers", "ones"}:
        arrays["mask"] = _mask(names, shape, convention, rng)
    if "sinks" in names:
        arrays["sinks"] = rng.normal(size=n_heads).round(2)
    if gradients:
        arrays["d_output"] = rng.normal(size=(n_batch, n_heads, n_q, d_v)).round(2)
    arrays = {"q": q, "k": k, "v": v, **arrays}
    setup = setup_of(**arrays, convention=convention, positions=positions)
    words = [_sizes(shape), *(WORDS[part] for part in names), *(["and a d_output"] * gradients)]
    words += [f"queries about {times:g} in size"] * (times > 1)
    words += [f"{positions} positions"] * (positions is not None)
    return Small(arrays, setup, ", ".join(words).replace("mask, that", "mask that"))


def _fitting(shape: Shape, positions: PositionKind | None, window: tuple[int, int] | None) -> Shape:
    """Even widths for rotary positions, one for sinusoidal ones; tokens for the window to mask."""
    *heads, n_q, n_k, d_k, d_v = shape
    if positions is not None and positions_of(positions).is_rotary:
        n_k += n_k == d_k  # keys as many as they are wide stay a square
        d_k, d_v = d_k + d_k % 2, d_v + d_v % 2
    elif positions is not None:
        d_v = d_k
    more = 0 if window is None else min(512, 2 * max(0, *window))
    return (*heads, n_q + more, n_k + more, d_k, d_v)


def _mask(
    parts: list[str], shape: Shape, convention: Convention, rng: np.random.Generator
) -> Array:
    """A mask of one of the kinds; where it is boolean, of what `mask_means` means by it."""
    n_batch, _, _, n_q, n_k, *_ = shape
    if "padding" in parts:
        return np.arange(n_k) < n_k - 2
    keeps = rng.random((n_batch, 1, n_q, n_k) if "items" in parts else (n_q, n_k)) < 0.6
    keeps[..., 0] = True
    keeps[..., -1, :] &= "emptying" not in parts
    if "numbers" in parts:
        bias = rng.normal(size=keeps.shape).round(2) * (rng.random(keeps.shape) < 0.7)
        return np.where(keeps, bias, -np.inf)
    if "ones" in parts:
        return np.where(keeps, 1.5, 0.0)
    return ~keeps if convention.mask_means == "ignore" else keeps


def _sizes(shape: Shape) -> str:
    n_batch, n_heads, n_kv, n_q, n_k, d_k, d_v = shape
    batch = f"{n_batch} batch items, " * (n_batch > 1)
    shared = f" on {n_kv} key heads" * (n_kv != n_heads)
    return f"{batch}{n_heads} heads{shared}, {n_q} queries, {n_k} keys, d_k {d_k}, d_v {d_v}"


# ---- one that distinguishes bugs

SHAPES = (
    (1, 2, 2, 3, 5, 7, 11),
    (1, 2, 2, 5, 3, 7, 11),
    (1, 4, 2, 3, 5, 7, 11),
    (1, 2, 2, 3, 5, 7, 7),
    (1, 2, 2, 5, 5, 7, 7),
    (1, 2, 2, 3, 5, 5, 5),
    (1, 3, 3, 5, 5, 5, 5),
    (1, 5, 5, 5, 5, 5, 5),
    (2, 4, 2, 3, 5, 7, 11),
    (2, 4, 2, 5, 5, 5, 5),
)
"""(batch, head, kv_head, n_q, n_k, d_k, d_v): all different where the bugs allow it."""

FAR = 1e-3
"""Numbers must differ by so large a share of the largest, which every number type shows: the
coarsest, bfloat16, has about 2 decimals for a number, and many of them are compared."""

PARTS = ("", "mask", "mask emptying", "lengths", "past", "numbers")
"""What restricts an input; the plainest first."""

OF_GRADIENTS = "numbers emptying sinks"
"""What an input of gradients may have as well."""


@dataclass(frozen=True, eq=False)
class Suggestion:
    """An input whose output distinguishes the bugs: q [head, n_q, d_k], …, or with a batch axis."""

    q: Array
    k: Array
    v: Array
    mask: Array | None
    kv_len: npt.NDArray[np.int64] | None
    n_past: int
    words: str
    sinks: Array | None = None
    d_output: Array | None = None


def suggest_input(
    bugs: Sequence[str | Bug | Explanation],
    *,
    convention: Convention | None = None,
    positions: PositionKind | None = None,
    stages: Sequence[str] = (OUTPUT,),
) -> Suggestion | None:
    """The first of a fixed list of small inputs on which all the bugs differ from each other.

    bugs        names, rows of the catalogue, or the explanations of an ambiguous verdict
    convention  the one under which they are distinguished
    positions   those that the implementation puts in, as in `check`; the input is without them
    None where no input does: two bugs may always compute the same.
    Raises ConventionError for a name that does not exist.

    >>> found = suggest_input(["scale left out", "divided by d_k, not √d_k"])
    >>> found.words
    '2 heads, 3 queries, 5 keys, d_k 7, d_v 11'
    """
    explanations: list[list[tuple[Bug, Details]]] = []
    for item in bugs:
        if isinstance(item, Explanation):
            explanations.append([(bug, item.details) for bug in item.bugs])
        else:
            explanations.append([(named(item) if isinstance(item, str) else item, ())])
    gradients = any(stage in GRADIENTS for stage in stages)
    if {*stages} & {*OF_X}:  # no input here has an x: theirs follow from those of q, k and v
        inner = [stage for stage in stages if stage not in OF_X]
        stages = list(dict.fromkeys([*inner, *map(gradient_of, QKV)]))
    convention = convention or Convention()
    kinds = [*PARTS, *([OF_GRADIENTS] if gradients and convention.softmax_over == "keys" else [])]
    for parts, times, shape in product(kinds, (1.0, 300.0, 1e5), SHAPES):
        small = small_input(shape, parts, convention, positions, times=times, gradients=gradients)
        is_possible = not small.setup.is_refused and computes(small.setup, stages)
        if is_possible and _all_differ(small.setup, explanations, stages):
            return _suggestion(small)
    return None


def showing_input(
    convention: Convention | None = None, positions: PositionKind | None = None
) -> Suggestion:
    """An input on which gradients show what plainer ones cannot: all that attention may have.

    Grouped heads, a mask of numbers with −∞ and a query with nothing to attend to, sinks, and a
    d_output of random numbers.

    >>> showing_input().words
    '2 batch items, 4 heads on 2 key heads, 3 queries, 5 keys, d_k 7, d_v 11, a mask of numbers, \
−∞ among them, that leaves the last query nothing, sinks, and a d_output'
    """
    convention = convention or Convention()
    parts = OF_GRADIENTS if convention.softmax_over == "keys" else "numbers"
    return _suggestion(small_input(SHAPES[8], parts, convention, positions, gradients=True))


def _all_differ(
    setup: Setup, explanations: Sequence[list[tuple[Bug, Details]]], names: Sequence[str]
) -> bool:
    with np.errstate(all="ignore"):
        plain = stages(setup, all_of(setup.shape), names)
        computed = [(setup, plain)]
        for bugs in explanations:
            changed = _changed(setup, bugs, plain)
            if changed is None or not computes(changed, names):
                return False
            computed.append((changed, stages(changed, all_of(changed.shape), names)))
        return all(_observed_differ(*first, *second) for first, second in combinations(computed, 2))


def _changed(
    setup: Setup, bugs: list[tuple[Bug, Details]], plain: dict[str, Array]
) -> Setup | None:
    """The setup with all bugs of one explanation, in the variants that its details name."""
    evidence = Evidence(plain, plain)
    for bug, details in bugs:
        variants = [x for x in bug.change(setup, evidence) if not x.is_refused]
        if not variants:
            return None
        n = len(setup.details)
        matches = [x for x in variants if x.details[n:] and x.details[-1] in "; ".join(details)]
        setup = (matches or variants)[0]
    return setup


def _observed_differ(first: Setup, a: dict[str, Array], second: Setup, b: dict[str, Array]) -> bool:
    """Whether two setups, which compute the stages a and b, would be observed as different."""
    if bool(first.relayout) != bool(second.relayout):
        a, b = _laid_out(second, a), _laid_out(first, b)
    return any(differ(x, b[name], by=FAR) for name, x in a.items())


def _laid_out(setup: Setup, arrays: dict[str, Array]) -> dict[str, Array]:
    """The stages in the layout that the setup corrects, if any."""
    return {name: setup.relayout.get(name, np.asarray)(x) for name, x in arrays.items()}


def _suggestion(small: Small) -> Suggestion:
    """The arrays, without a batch axis of one."""
    setup, inputs = small.setup, small.setup.inputs
    names = (*QKV, GIVEN_GRADIENT)
    arrays = {x: inputs[x][0] if len(inputs[x]) == 1 else inputs[x] for x in names if x in inputs}
    return Suggestion(
        arrays["q"],
        arrays["k"],
        arrays["v"],
        inputs.get("given_mask"),
        inputs.get("kv_len"),
        setup.n_past,
        small.words,
        inputs.get("sinks"),
        arrays.get(GIVEN_GRADIENT),
    )
