"""An input that distinguishes bugs: small, of distinct sizes, on which they all differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.check.bugs import named
from attncli.check.bugs.bug import Bug, Evidence
from attncli.check.positions import PositionKind
from attncli.check.run import all_of, computes, stages
from attncli.check.search import differ
from attncli.check.setup import Setup
from attncli.check.small_inputs import Small, small_input
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
    for one in bugs:
        if isinstance(one, Explanation):
            explanations.append([(bug, one.details) for bug in one.bugs])
        else:
            explanations.append([(named(one) if isinstance(one, str) else one, ())])
    gradients = any(stage in GRADIENTS for stage in stages)
    if {*stages} & {*OF_X}:  # no input here has an x: theirs follow from those of q, k and v
        inner = [stage for stage in stages if stage not in OF_X]
        stages = list(dict.fromkeys([*inner, *map(gradient_of, QKV)]))
    how = convention or Convention()
    kinds = [*PARTS, *([OF_GRADIENTS] if gradients and how.softmax_over == "keys" else [])]
    for parts, times, shape in product(kinds, (1.0, 300.0, 1e5), SHAPES):
        small = small_input(shape, parts, how, positions, times=times, gradients=gradients)
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
    how = convention or Convention()
    parts = OF_GRADIENTS if how.softmax_over == "keys" else "numbers"
    return _suggestion(small_input(SHAPES[8], parts, how, positions, gradients=True))


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


def _suggestion(small: Small) -> Suggestion:
    """The arrays, without a batch axis of one."""
    setup, inputs = small.setup, small.setup.inputs
    names = (*QKV, GIVEN_GRADIENT)
    own = {x: inputs[x][0] if len(inputs[x]) == 1 else inputs[x] for x in names if x in inputs}
    return Suggestion(
        own["q"],
        own["k"],
        own["v"],
        inputs.get("given_mask"),
        inputs.get("kv_len"),
        setup.n_past,
        small.words,
        inputs.get("sinks"),
        own.get(GIVEN_GRADIENT),
    )
