"""An input that distinguishes bugs: small, of distinct sizes, on which they all differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.check.bugs import named
from attncli.check.bugs.bug import Bug, Evidence
from attncli.check.positions import PositionKind, positions_of
from attncli.check.run import all_of, computes, stages
from attncli.check.search import differ
from attncli.check.setup import Setup, setup_of
from attncli.check.verdict import Explanation
from attncli.convention import Convention
from attncli.stages import GIVEN_GRADIENT, GRADIENTS, OF_X, OUTPUT, QKV, gradient_of

Details = tuple[str, ...]
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

MASKING = {
    "": "",
    "mask": ", a boolean mask",
    "emptying mask": ", a boolean mask that leaves the last query nothing",
    "lengths": ", key lengths below the number of keys",
    "past": ", 2 of the keys as a past",
    "numbers": ", a mask of numbers, −∞ among them",
}
"""What restricts an input, and the words for it; the plainest first."""

WITH_SINKS = "sinks", ", numbers, −∞ and an empty row in the mask, and sinks"
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
    for one in bugs:
        if isinstance(one, Explanation):
            explanations.append([(bug, one.details) for bug in one.bugs])
        else:
            explanations.append([(named(one) if isinstance(one, str) else one, ())])
    gradients = any(stage in GRADIENTS for stage in stages)
    if {*stages} & {*OF_X}:  # no input here has an x: theirs follow from those of q, k and v
        inner = [stage for stage in stages if stage not in OF_X]
        stages = list(dict.fromkeys([*inner, *map(gradient_of, QKV)]))
    for setup, words in _candidates(convention or Convention(), positions, gradients):
        is_possible = not setup.is_refused and computes(setup, stages)
        if is_possible and _all_differ(setup, explanations, stages):
            return _suggestion(setup, words)
    return None


def showing_input(
    convention: Convention | None = None, positions: PositionKind | None = None
) -> Suggestion:
    """An input on which gradients show what plainer ones cannot: all that attention may have.

    Grouped heads, a mask of numbers with −∞ and a query with nothing to attend to, sinks, and a
    d_output of random numbers.

    >>> showing_input().words
    '2 batch items, 4 heads on 2 key heads, 3 queries, 5 keys, d_k 7, d_v 11, numbers, −∞ and an \
empty row in the mask, and sinks, and a d_output'
    """
    how = convention or Convention()
    has_sinks = how.softmax_over == "keys"
    masking, words = WITH_SINKS if has_sinks else ("numbers", MASKING["numbers"])
    sizes = _fitting(SHAPES[8], positions, how.window)
    setup = _candidate(sizes, masking, 1.0, how, positions, True)
    return _suggestion(setup, f"{_words(sizes)}{words}, and a d_output")


def _candidates(
    how: Convention, positions: PositionKind | None, gradients: bool = False
) -> Iterator[tuple[Setup, str]]:
    """Small inputs, the plainest first."""
    known = MASKING | ({WITH_SINKS[0]: WITH_SINKS[1]} if gradients else {})
    for masking, factor, shape in product(known, (1.0, 300.0, 1e5), SHAPES):
        if masking == WITH_SINKS[0] and how.softmax_over == "queries":
            continue
        sizes = _fitting(shape, positions, how.window)
        words = _words(sizes) + known[masking]
        words += ", and a d_output" * gradients
        words += f", queries about {factor:g} in size" if factor > 1 else ""
        words += f", {positions} positions" if positions else ""
        yield _candidate(sizes, masking, factor, how, positions, gradients), words


def _fitting(
    shape: tuple[int, ...], positions: PositionKind | None, window: tuple[int, int] | None
) -> tuple[int, ...]:
    """Even widths for rotary positions, one for sinusoidal ones; tokens for the window to mask."""
    *heads, n_q, n_k, d_k, d_v = shape
    if positions is not None and positions_of(positions).is_rotary:
        n_k += n_k == d_k  # keys as many as they are wide stay a square
        d_k, d_v = d_k + 1, d_v + 1
    elif positions is not None:
        d_v = d_k
    more = 0 if window is None else min(512, 2 * max(0, *window))
    return (*heads, n_q + more, n_k + more, d_k, d_v)


def _candidate(
    shape: tuple[int, ...],
    masking: str,
    factor: float,
    how: Convention,
    positions: PositionKind | None,
    gradients: bool = False,
) -> Setup:
    rng = np.random.default_rng(7)
    n_batch, n_heads, n_kv, n_q, n_k, d_k, d_v = shape
    q = rng.normal(size=(n_batch, n_heads, n_q, d_k)).round(2) * factor
    k = rng.normal(size=(n_batch, n_kv, n_k, d_k)).round(2)
    v = rng.normal(size=(n_batch, n_kv, n_k, d_v)).round(2)
    arrays: dict[str, Any] = {}
    if masking == "past":
        arrays = {"past_k": k[:, :, :2], "past_v": v[:, :, :2]}
        k, v = k[:, :, 2:], v[:, :, 2:]
    elif masking == "lengths":
        arrays = {"kv_len": n_k - 1 - np.arange(n_batch)}
    elif masking:
        mask = rng.random((n_q, n_k)) < 0.6
        mask[:, 0] = True
        mask[-1] &= masking not in ("emptying mask", WITH_SINKS[0])
        arrays = {"mask": ~mask if how.mask_means == "ignore" else mask}
        if masking in ("numbers", WITH_SINKS[0]):
            bias = rng.normal(size=mask.shape).round(2) * (rng.random(mask.shape) < 0.7)
            arrays = {"mask": np.where(mask, bias, -np.inf)}
    if masking == WITH_SINKS[0]:
        arrays["sinks"] = rng.normal(size=n_heads).round(2)
    if gradients:
        arrays["d_output"] = rng.normal(size=(n_batch, n_heads, n_q, d_v)).round(2)
    return setup_of(q, k, v, convention=how, positions=positions, **arrays)


def _words(shape: tuple[int, ...]) -> str:
    n_batch, n_heads, n_kv, n_q, n_k, d_k, d_v = shape
    batch = f"{n_batch} batch items, " * (n_batch > 1)
    shared = f" on {n_kv} key heads" * (n_kv != n_heads)
    return f"{batch}{n_heads} heads{shared}, {n_q} queries, {n_k} keys, d_k {d_k}, d_v {d_v}"


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
        return all(_observed_differ(*one, *two) for one, two in combinations(computed, 2))


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
        named = [x for x in variants if x.details[n:] and x.details[-1] in "; ".join(details)]
        setup = (named or variants)[0]
    return setup


def _observed_differ(first: Setup, a: dict[str, Array], second: Setup, b: dict[str, Array]) -> bool:
    """Whether two setups, which compute the stages a and b, would be observed as different."""
    if bool(first.relayout) != bool(second.relayout):
        a, b = _laid_out(second, a), _laid_out(first, b)
    return any(differ(x, b[name], by=FAR) for name, x in a.items())


def _laid_out(setup: Setup, arrays: dict[str, Array]) -> dict[str, Array]:
    """The stages in the layout that the setup corrects, if any."""
    return {name: setup.relayout.get(name, np.asarray)(x) for name, x in arrays.items()}


def _suggestion(setup: Setup, words: str) -> Suggestion:
    """The arrays, without a batch axis of one."""
    q, k, v = (x[0] if len(x) == 1 else x for x in (setup.inputs[name] for name in QKV))
    mask, kv_len = setup.inputs.get("given_mask"), setup.inputs.get("kv_len")
    sinks, d_output = setup.inputs.get("sinks"), setup.inputs.get(GIVEN_GRADIENT)
    if d_output is not None and len(d_output) == 1:
        d_output = d_output[0]
    return Suggestion(q, k, v, mask, kv_len, setup.n_past, words, sinks, d_output)
