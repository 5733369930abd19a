"""What the heads of an attention do, measured on a sentence: a number for each head.

    entropy     how widely it spreads its weight             Clark et al. (2019), section 3.1
    first       on the first token: a sink                   Xiao et al. (2023), section 3.1
    previous    on the token before                          Clark et al. (2019), section 3.1
    itself      on the query's own token                     Clark et al. (2019), section 3.1
    induction   on the token after an earlier occurrence     Olsson et al. (2022)

A[i, j] is what query i gives to key j. Each is a mean over queries of one head. Query 1 is left
out where a sentence attends to itself: it has no token before it, is the first token itself, and
in a causal model sees nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.errors import ShapeError
from attncli.stages import StageSpec


class Measure(NamedTuple):
    """A measure as formulas and pages name it; {over} in the formula says over which queries."""

    name: str
    symbol: str
    formula: str
    note: str


MEASURES = (
    Measure(
        "entropy",
        "H(A)",
        "H(A) = −Σ A[i, j] log₂ A[i, j] over keys j, {over}",
        "in bits: 0 is one key alone, n bits are 2ⁿ keys alike",
    ),
    Measure("first", "A[i, 1]", "A[i, 1], {over}", "the weight of the first token: a sink"),
    Measure(
        "previous", "A[i, i − 1]", "A[i, i − 1], {over}", "the weight of the token before the query"
    ),
    Measure("itself", "A[i, i]", "A[i, i], {over}", "the weight of the query's own token"),
    Measure(
        "induction",
        "A[i, j + 1]",
        "Σ A[i, j + 1] over earlier j of the same token, the mean over queries i that have such",
        "the weight of what followed the same token before: how a model continues a repetition",
    ),
)
"""In the order of a page."""

SPECS = {
    **{
        measure.name: StageSpec(measure.symbol, "layer head", shade="share") for measure in MEASURES
    },
    "even": StageSpec("", "layer", "aside"),
}
"""What is known of the stages of a summary."""

OVER = {True: "the mean over queries i = 2 … n", False: "the mean over queries i"}
"""Over which queries, by whether a sentence attends to itself."""


def measures(weights: Array, tokens: Sequence[int] | None = None) -> dict[str, Array]:
    """What each head does, by the names of MEASURES.    # [head, n_q, n_k] -> [head] each

    weights  each row sums to 1, or to less where a sink without a value takes some
    tokens   the numbers of the tokens, of which equal ones are the same token, where the sentence
             attends to itself [n_q = n_k]; None where queries and keys are of two sentences, for
             which only entropy and first have a meaning

    "even" is the entropy that equal weights of the keys that get any would have, of all heads.
    Of a sentence that attends to itself, the means are over queries 2 … n; induction is over those
    whose token occurred before, but not as the one just before, and is left out where there are
    none. Of one token, there are entropy and first. Raises ShapeError where tokens do not fit.
    """
    n_q, n_k = weights.shape[-2:]
    if tokens is None or (n_q, n_k) == (1, 1):
        first, bits = weights[..., 0].mean(-1), entropy(weights).mean(-1)
        return {"even": _even(weights), "entropy": bits, "first": first}
    if (n_q, n_k) != (len(tokens),) * 2:
        raise ShapeError(f"there are {len(tokens)} tokens for {n_q} × {n_k} weights")
    i = np.arange(1, n_q)
    result = {
        "even": _even(weights[:, 1:]),
        "entropy": entropy(weights[:, 1:]).mean(-1),
        "first": weights[:, i, 0].mean(-1),
        "previous": weights[:, i, i - 1].mean(-1),
        "itself": weights[:, i, i].mean(-1),
    }
    if places := successors(tokens):
        queries, keys = np.array(places).T
        result["induction"] = weights[:, queries, keys].sum(-1) / len(set(queries.tolist()))
    return result


def entropy(weights: Array) -> Array:
    """−Σ A log₂ A over keys, in bits.    # [..., n_q, n_k] -> [..., n_q]

    What is 0 adds nothing. Source: Shannon (1948), section 6.
    """
    logs = np.log2(weights, where=weights > 0, out=np.zeros_like(weights))
    return np.asarray(-(weights * logs).sum(-1) + 0.0)  # no −0


def _even(weights: Array) -> Array:
    n_keys = (weights > 0).sum(-1)
    return np.asarray(np.log2(np.maximum(n_keys, 1)).mean())


def successors(tokens: Sequence[int]) -> list[tuple[int, int]]:
    """Queries and the keys after an earlier occurrence of their token, but not the query itself."""
    pairs: list[tuple[int, int]] = []
    before: dict[int, list[int]] = defaultdict(list)
    for query, token in enumerate(tokens):
        pairs += [(query, earlier + 1) for earlier in before[token] if earlier + 1 < query]
        before[token].append(query)
    return pairs
