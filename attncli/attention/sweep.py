"""Random inputs for exercises, and one number of attention varied: the width d_k, the scale.

Why the scores are divided by √d_k: the dot product of two vectors of d_k independent numbers of
mean 0 and variance 1 has variance d_k, and softmax of large scores saturates: one weight goes to 1,
and the gradient to 0.

Source: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.1 and its footnote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.attend import attend
from attncli.convention import Convention
from attncli.formula.kernels import softmax
from attncli.stages import WEIGHTS, StageSpec
from attncli.trace import Stage, Trace

QUERY_WEIGHTS = StageSpec("A", "batch head value key", sums=True, masks=True, shade="share")
MEASURED = StageSpec("", "value measure")
"""What is known of the stages of a sweep."""

N_KEYS = 8  # of each query of a sweep of d_k: so few that a softmax that saturates is seen
NUMBERS = 1 << 21  # random ones of a width at most, 16 MB: 1,024 queries up to d_k 256
MEASURES = ("largest", "entropy", "gradient")
_WHAT = "largest: the largest weight; entropy: that of the weights, in bits; "
_WHAT += "gradient: the size of ∂A/∂Z, the gradient of softmax"
TRIES = 1000


def exercise(n: int, d_k: int, d_v: int, seed: int = 0) -> dict[str, Array]:
    """Small whole numbers as q [n, d_k], k [n, d_k] and v [n, d_v], to be computed by hand.

    No two queries or keys are equal, no score is beyond ±6, and no query gives all keys alike
    weights, nor more than 0.9 to one key: the first such draw, or the last of TRIES.

    >>> {name: x.shape for name, x in exercise(3, 2, 5).items()}
    {'q': (3, 2), 'k': (3, 2), 'v': (3, 5)}
    """
    rng = np.random.default_rng(seed)
    for _ in range(TRIES):
        q, k = rng.integers(-1, 3, (2, n, d_k))
        scores = q @ k.T
        weights = softmax(scores / np.sqrt(d_k))
        differ = all(len(np.unique(x, axis=0)) == n for x in (q, k))
        is_plain = np.abs(scores).max() <= 6 and (n == 1 or weights.max() <= 0.9)
        if differ and is_plain and (n == 1 or np.ptp(scores, axis=1).all()):
            break
    return {"q": q.astype(float), "k": k.astype(float), "v": rng.integers(0, 10, (n, d_v)) + 0.0}


def measures_of(weights: Array) -> Array:
    """The means over all queries of MEASURES [3] of weights [..., n_q, n_k].

    The entropy is −Σ A log₂ A. The gradient is the Frobenius norm of ∂A[i]/∂Z[i] =
    diag(A[i]) − A[i]ᵀ A[i], of which each row's is √(Σ A² − 2 Σ A³ + (Σ A²)²).

    >>> measures_of(np.array([[0.5, 0.5], [1.0, 0.0]])).round(3).tolist()
    [0.75, 0.5, 0.25]
    """
    squares, cubes = (weights**2).sum(axis=-1), (weights**3).sum(axis=-1)
    logs = np.log2(np.where(weights > 0, weights, 1.0))
    sizes = np.sqrt(np.maximum(squares - 2 * cubes + squares**2, 0.0))
    entropy = np.maximum(0.0, -(weights * logs).sum(axis=-1))
    return np.array([weights.max(axis=-1).mean(), entropy.mean(), sizes.mean()])


def sweep_widths(widths: Sequence[int], n_keys: int = N_KEYS, seed: int = 0) -> Trace:
    """Attention of random queries and keys, numbers of mean 0 and variance 1, for several d_k.

    Two stages, `without_scale` and `with_scale`, a row for each d_k: the deviation of the scores
    that softmax reads, then MEASURES, means over up to 1,024 queries with keys of their own.
    """
    rng, rows = np.random.default_rng(seed), list[list[Array]]()
    for d_k in widths:
        n_queries = max(1, min(1024, NUMBERS // (n_keys * d_k)))
        q = rng.standard_normal((n_queries, 1, d_k))
        scores = (q * rng.standard_normal((n_queries, n_keys, d_k))).sum(axis=-1)
        both = (scores, scores / np.sqrt(d_k))
        rows.append([np.array([x.std(), *measures_of(softmax(x))]) for x in both])
    unscaled, scaled = np.moveaxis(np.array(rows), 1, 0)
    labels = {"value": tuple(f"d_k {d_k}" for d_k in widths)}
    labels["measure"] = ("deviation", *MEASURES)
    note = f"deviation: that of the numbers softmax reads; {_WHAT}; means over all queries"
    axes, reach = ("value", "measure"), "from {:.2g} to {:.2g}".format
    stages = (
        Stage(
            "without_scale", "", "A = softmax(Q Kᵀ)", unscaled, axes, labels, note, spec=MEASURED
        ),
        Stage("with_scale", "", "A = softmax(Q Kᵀ / √d_k)", scaled, axes, labels, spec=MEASURED),
    )
    drawn = f"random numbers of mean 0 and variance 1 (seed {seed}), {n_keys} keys for each query"
    _, largest, _, gradient = (reach(column[0], column[-1]) for column in unscaled.T)
    finding = "without the scale the deviation of q·k grows as √d_k, the largest weight goes "
    finding += f"{largest}, and the gradient of softmax {gradient}"
    return Trace("Why the scores are divided by √d_k", stages, notes=(drawn, finding))


def sweep(name: str, values: Sequence[float], arguments: Any, row: int | None = None) -> Trace:
    """One attention with several values of a field of its convention, such as scale or softcap.

    arguments  of `attend`, with its convention
    row        a query: its weights under each value are a stage, too

    The stages are `query_weights` [..., value, key] and `spread` [value, measure], the means of
    MEASURES over all queries or those of the one.
    """
    convention: Convention = arguments["convention"]
    hows = [Convention(**{**convention.changes(), name: x}) for x in values]
    traces = [attend(**{**arguments, "convention": each}) for each in hows]
    rows = slice(None) if row is None else slice(row, row + 1)
    weights = [trace[WEIGHTS].value[..., rows, :] for trace in traces]
    stage, labels = traces[0][WEIGHTS], {"value": tuple(f"{name} {x:g}" for x in values)}
    spread = np.array([measures_of(x) for x in weights])
    measured = f"{_WHAT}; {'means over all queries' if row is None else 'of this query'}"
    names = {**labels, "measure": MEASURES}
    steps = [Stage("spread", "", "", spread, ("value", "measure"), names, measured, spec=MEASURED)]
    if row is not None:
        axes = (*stage.axes[:-2], "value", stage.axes[-1])
        together = np.concatenate(weights, axis=-2)
        symbol = f"{stage.symbol}[{stage.label(stage.axes[-2], row)}]"
        words = f"{symbol}, the weights of one query, for each {name}"
        names = {**stage.labels, **labels}
        of_query = Stage("query_weights", symbol, words, together, axes, names, spec=QUERY_WEIGHTS)
        steps.insert(0, of_query)
        if "mask" in traces[0]:
            mask = traces[0]["mask"]
            allowed = mask.value if mask.value.shape[-2] == 1 else mask.value[..., rows, :]
            axes = (*mask.axes[:-2], "value", mask.axes[-1])
            steps.append(replace(mask, value=allowed, axes=axes, labels={}))
    return Trace(f"Attention for several values of {name}", tuple(steps), convention)
