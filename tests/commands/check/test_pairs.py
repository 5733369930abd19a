"""Every pair of rows of the catalogue makes a plan that can be computed, or is known not to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.commands.check.bugs.bug import Bug, Evidence
from attncli.commands.check.bugs.catalogue import CATALOGUE, GRADIENT
from attncli.commands.check.bugs.page import PREPARED, _prepared
from attncli.commands.check.diagnose import check
from attncli.tolerance.run import all_of, computes, stages
from attncli.tolerance.setup import Setup
from attncli.tolerance.spans import span_of

PARTS = 4
"""The exhaustive run is cut into so many tests, so that workers share it."""
FEW = 2
"""So many variants of the first bug are tried where the search does not try the pair."""

Input = tuple[Setup, Evidence, dict[str, Array]]


def _input(number: int, *, gradients: bool) -> Input:
    """A prepared input, what a search would look at, and its right stages."""
    setup, right, _ = _prepared(number, gradients)
    over, every = setup.convention.softmax_over, all_of(setup.shape)
    rows = {name: x + 1.0 for name, x in right.items() if span_of(name, over) == "rows"}
    return setup, Evidence(rows, right, subset=every, example=2.0), right


def _variants(bug: Bug, given: Input) -> list[Setup]:
    return [x for x in bug.change(given[0], given[1]) if not x.is_refused]


def _compute(first: list[Setup], second: Bug, given: Input) -> int:
    """How many variants of a pair were computed."""
    n, (_, evidence, right) = 0, given
    for one in first:
        for both in second.change(one, evidence):
            if not both.is_refused:
                stages(both, all_of(both.shape), [x for x in right if computes(both, [x])])
                n += 1
    return n


def _faults(pairs: Iterator[tuple[Bug, Bug]]) -> tuple[list[str], int]:
    """The pairs that cannot be computed on the first input that both change, and why; and of how
    many pairs."""
    numbers = range(len(PREPARED))
    inputs = {(n, of): _input(n, gradients=of) for n in numbers for of in (False, True)}
    alone = {x: {bug: _variants(bug, given) for bug in CATALOGUE} for x, given in inputs.items()}
    faults, n_pairs = [], 0
    for first, second in pairs:
        of = GRADIENT in first.touches | second.touches
        there = (x for x, y in alone.items() if x[1] == of and y[first] and y[second])
        if (at := next(there, None)) is None:
            continue
        tried = alone[at][first] if first.pairs and second.pairs else alone[at][first][:FEW]
        try:
            n_pairs += _compute(tried, second, inputs[at]) > 0
        except Exception as problem:  # whatever it is, it would end a check
            faults.append(f"{first.name} and {second.name}: {problem!r}")
    return faults, n_pairs


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(PARTS))
def test_every_pair_of_rows_is_computed(part: int) -> None:
    with np.errstate(all="ignore"):
        pairs = (x for n, x in enumerate(combinations(CATALOGUE, 2)) if n % PARTS == part)
        faults, n_pairs = _faults(pairs)
    assert not faults
    assert n_pairs > 15_000 / PARTS


@pytest.mark.parametrize(
    "names",
    [
        ("scores overflow in float16", "softmax with 1 added to the sum"),
        ("finite mask value", "mask value −∞, not the finite one given"),
        ("lse added", "lse of the last block alone"),
        ("δ added, not subtracted", "mask left out of the recomputed weights"),
    ],
)
def test_pairs_that_once_could_not_be_computed(names: tuple[str, str]) -> None:
    """A sink in max[c](…), ∞ as a whole number, terms of other letters, a mask that is not read."""
    rows = {bug.name: bug for bug in CATALOGUE}
    first, second = (rows[name] for name in names)
    of = GRADIENT in first.touches | second.touches
    with np.errstate(all="ignore"):
        inputs = (_input(number, gradients=of) for number in range(len(PREPARED)))
        given = next(x for x in inputs if _variants(first, x) and _variants(second, x))
        _compute(_variants(first, given), second, given)


def test_numbers_beyond_float16_that_nothing_explains_end_in_a_verdict() -> None:
    """One query is 0, the score of the others are beyond 65504, and one output is not there."""
    q = np.array([[300.0, 0.0], [0.0, 0.0], [0.0, 400.0]])
    k, v = np.array([[250.0, 1.0], [2.0, 200.0], [1.0, 1.0]]), np.array([[1.0, 2], [3, 5], [7, 11]])
    scores = q @ k.T / np.sqrt(2)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    output = powers / powers.sum(axis=1, keepdims=True) @ v
    output[1] = [0.31, -4.7]
    verdict = check(output, q, k, v)
    assert (verdict.status, verdict.matches) == ("no match", False)
    assert not any("was not tried" in note for note in verdict.notes)


N_Q, N_K, D, D_V = 23, 29, 7, 11
SECOND = {
    "scale left out": {"scale": 1.0},
    "multiplied by √d_k": {"scale": D**0.5},
    "causal mask left out": {"limit": N_K},
    "causal mask shows the next position": {"limit": 1},
    "causal mask hides each query's own position": {"limit": -1},
}


Arrays = tuple[Array, Array, Array]


def _over_queries(arrays: Arrays, scale: float, limit: int, keys: int, empty: float = 0) -> Array:
    """The output of a softmax over the queries.

    limit  how far the last key that a query sees is after its own position
    keys   how many keys there are in effect
    empty  the weight of a key that no query sees
    """
    q, k, v = arrays
    is_hidden = np.arange(N_K) > np.arange(N_Q)[:, None] + limit
    is_hidden |= np.arange(N_K) >= keys
    powers = np.where(is_hidden, 0, np.exp(scale * q @ k.swapaxes(-1, -2)))
    sums = powers.sum(axis=-2, keepdims=True)
    output: Array = np.where(sums == 0, empty, powers / np.where(sums == 0, 1, sums)) @ v
    return output


def _drawn() -> Arrays:
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=x) for x in ((3, N_Q, D), (3, N_K, D), (3, N_K, D_V)))
    return q, k, v


@pytest.mark.parametrize("empty", [0.0, 1 / N_Q])
@pytest.mark.parametrize("second", [None, *SECOND])
def test_a_softmax_over_queries_and_another_bug(second: str | None, empty: float) -> None:
    changes: dict[str, Any] = {"scale": D**-0.5, "limit": 0, "keys": N_K}
    changes |= SECOND[second] if second else {}
    rule: dict[str, Any] = {} if empty == 0 else {"empty_rows": "uniform"}
    observed = _over_queries(_drawn(), **changes, empty=empty)
    explanation = check(observed, *_drawn(), causal=True, **rule).explanations[0]
    names = {bug.name for bug in explanation.bugs}
    assert names == {"softmax over queries, not keys", *([second] if second else [])}


def test_fewer_keys_where_the_softmax_ought_to_be_over_queries() -> None:
    observed = _over_queries(_drawn(), D**-0.5, 0, 16)
    verdict = check(observed, *_drawn(), causal=True, softmax_over="queries")
    assert "these are the numbers of j < 16 in weights" in str(verdict)
