"""Bugs of the queries and keys that the outputs alone show: a bias, factors of channels or rows.

All are fitted by the Gauss-Newton method. With weights A, the output o_i = Σ_j a_ij v_j changes
with a scaled score z_ij by a_ij (v_j − o_i); with the bias of a query, or the factor of a channel,
all scores of its row change in proportion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.bugs.bug import Change, Evidence
from attncli.stages import OUTPUT, SCALED, SCORES, WEIGHTS
from attncli.tolerance.rule import rms
from attncli.tolerance.run import Subset, stages
from attncli.tolerance.setup import Setup

ITERATIONS = 12
"""Newton's method doubles the right digits each time once it is near."""

SURPLUS = 6, 0.1
"""What is inside softmax bends with what it is fitted to: so many numbers must agree with each that
is fitted, and so small a share of the errors be left."""

COUNTED = 1e-3
"""A key of a smaller weight says nothing that noise does not hide."""

HOPELESS = 3, 0.7
"""After three iterations at most this share of the error must be left."""

MOST_KEYS = 512
"""To solve for a factor of each of more keys takes longer than all other bugs together."""

OCTAVES = range(-3, 8)
"""Powers of 2 from which the factor of a row is refined: a norm over d_k divides by about √d_k."""

FEW_SURPLUS = 3
"""So many numbers must agree with each factor of a row or key: what fits must explain the rest."""


DAMPING, DAMPING_CHANGE, MOST_DAMPING = 1e-2, 5.0, 1e6
"""Of the first step; how it changes from step to step; where there is no way on."""

DAMPED_ITERATIONS, HOPELESS_DAMPED = 60, (10, 0.7)
"""Of the steps of the Levenberg-Marquardt method, and what must be left of the error after some."""

AT_ONCE = 2**21
"""How many slopes are computed at once, of so many rows as that allows: 16 MB."""

FAR = 10.0
"""Logarithms of factors beyond it are those of no real norm or scale."""

Fitted = Literal["plus", "times"]


def _is_plain(setup: Setup) -> bool:
    """Whether the scores go into the softmax without anything that bends or drops them."""
    convention = setup.convention
    bends = (
        convention.softcap is not None
        or convention.softmax_over != "keys"
        or convention.dropout > 0
    )
    return not (bends or setup.patched) and setup.positions is None


VARIED = 0.03
"""Factors that differ by a smaller share are one factor, but for what rounding makes of it."""


def _varies(factors: Array, axis: int) -> bool:
    return bool((factors.std(axis=axis) > VARIED * np.abs(factors.mean(axis=axis))).any())


# ---- a bias, or a factor of each channel


def _query_bias(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    if (bias := _of_heads(setup, evidence, "plus")) is not None:
        yield setup.with_inputs(q=setup.inputs["q"] + bias)


def _channels(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    times = _of_heads(setup, evidence, "times")
    if times is not None and _varies(times, axis=-1):
        changed, left_out = setup.with_inputs(q=setup.inputs["q"] * times), np.abs(times) < VARIED
        words = f"factors from {times.min():.4g} to {times.max():.4g}"
        if left_out.any() and (np.abs(times - 1)[~left_out] < VARIED).all():
            words = f"{left_out.sum()} of {times.size} times 0, the others times 1"
        yield changed.with_detail(words)


def _of_heads(setup: Setup, evidence: Evidence, fitted: Fitted) -> Array | None:
    """[head, 1, d_k]: what is added to the queries of each head, or their factors."""
    over = evidence.over(setup, OUTPUT)
    if over is None or not _is_plain(setup) or setup.shape[3] <= setup.d_k:
        return None
    numbers = np.full((setup.shape[1], 1, setup.d_k), float(fitted == "times"))
    for position, head in enumerate(over.head):
        of_head = _of_head(setup, evidence, over, position, fitted)
        if of_head is None:
            return None
        numbers[head] = of_head
    return numbers


def _of_head(
    setup: Setup, evidence: Evidence, over: Subset, position: int, fitted: Fitted
) -> Array | None:
    """[d_k]: what fits the queries of one head, from a few of its rows, or None."""
    observed = evidence.observed[OUTPUT][0, position]
    d_v, d_k = observed.shape[-1], setup.d_k
    n = -(-2 * SURPLUS[0] * d_k // d_v)
    picked = np.unique(np.linspace(0, len(observed) - 1, max(n, 8)).astype(np.intp))
    observed = observed[picked]
    if not np.isfinite(observed).all():
        return None
    at = Subset(over.batch[:1], over.head[[position]], over.row[picked])
    key_head = setup.key_heads[at.head[0]]
    k, v = (setup.inputs[name][over.batch[0], key_head] for name in ("k", "v"))
    q, first, factor = setup.inputs["q"], 0.0, setup.convention.scale_factor(setup.d_k)
    rows = q[at.batch[0], at.head[0], at.row][:, None] if fitted == "times" else 1.0
    x = np.full(d_k, float(fitted == "times"))
    for iteration in range(ITERATIONS):
        changed = setup.with_inputs(q=q * x if fitted == "times" else q + x)
        values = stages(changed, at, [WEIGHTS, OUTPUT])
        weights, output = values[WEIGHTS][0, 0], values[OUTPUT][0, 0]
        residuals = observed - output
        size = rms(np.abs(residuals))
        reach = np.minimum((weights > COUNTED).sum(axis=-1) - 1, d_v).sum()
        if reach < SURPLUS[0] * d_k:  # a query that sees few keys says little
            return None
        first = first or size
        if not np.isfinite(size) or (iteration == HOPELESS[0] and size > HOPELESS[1] * first):
            return None
        slopes = np.stack(
            [(w[:, None] * (v - o)).T @ k for w, o in zip(weights, output, strict=True)]
        )
        slopes = factor * (slopes * rows).reshape(-1, d_k)
        step = np.linalg.lstsq(slopes, residuals.ravel(), rcond=1e-10)[0]
        x = x + step
        if np.abs(step).max() <= 1e-12 * np.abs(x).max():
            break
    return x if size <= SURPLUS[1] * first else None


# ---- a factor of each query and of each key


def _rows(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """Factors of all queries and keys, head by head; of each group of heads, one set of keys."""
    n_batch, n_heads, n_q, n_k = setup.shape
    stage = next((x for x in (SCORES, SCALED, OUTPUT) if evidence.has_all(setup, x)), None)
    if stage is None or not _is_plain(setup) or n_k > MOST_KEYS:
        return
    queries = np.ones((n_batch, n_heads, n_q, 1))
    keys = np.ones((*setup.inputs["k"].shape[:3], 1))
    key_factors: dict[tuple[int, int], Array] = {}
    for b, h in np.ndindex(n_batch, n_heads):
        group = b, int(setup.key_heads[h])
        observed = evidence.observed[stage][b, h]
        if stage == OUTPUT:
            at = Subset(np.array([b]), np.array([h]), np.arange(n_q))
            factors = _from_output(setup, observed, at, key_factors.get(group))
        else:
            factors = _from_scores(observed, evidence.expected[stage][b, h], key_factors.get(group))
        if factors is None:
            return
        queries[b, h, :, 0], key_factors[group] = factors
        keys[group][:, 0] = key_factors[group]
    if _varies(queries, axis=2) or _varies(keys, axis=2):
        pairs = (("queries", queries), ("keys", keys))
        spans = (f"{name} times {x.min():.4g} to {x.max():.4g}" for name, x in pairs)
        changed = setup.with_inputs(q=setup.inputs["q"] * queries, k=setup.inputs["k"] * keys)
        yield changed.with_detail(", ".join(spans))


ALTERNATIONS = 30
"""Least squares for the rows, then for the columns: a matrix of rank one is found at once."""


def _from_scores(
    observed: Array, expected: Array, keys: Array | None
) -> tuple[Array, Array] | None:
    """[n_q], [n_k]: the factors a and b for which a_i b_j times the expected scores fit best."""
    is_finite = np.isfinite(observed).all() and np.isfinite(expected).all()
    if not is_finite or min(observed.shape) < SURPLUS[0]:
        return None
    products, squares = observed * expected, np.square(expected)
    b = np.ones(observed.shape[1]) if keys is None else keys
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(ALTERNATIONS):
            a = products @ b / (squares @ np.square(b))
            if keys is not None:
                break
            b = a @ products / (np.square(a) @ squares)
            b = b / b.mean()
    residual = rms(np.abs(observed - a[:, None] * expected * b))
    fits = residual <= SURPLUS[1] * rms(np.abs(observed - expected))
    return (a, b) if fits and np.isfinite(a).all() and np.isfinite(b).all() else None


def _from_output(
    setup: Setup, observed: Array, at: Subset, keys: Array | None
) -> tuple[Array, Array] | None:
    """[n_q], [n_k]: the factors that fit the output of one head best (Levenberg-Marquardt)."""
    (n_q, d_v), n_k = observed.shape, setup.shape[3]
    reach = min(n_k - 1, d_v)
    if not np.isfinite(observed).all() or n_q * reach < FEW_SURPLUS * (n_q + n_k):
        return None
    v = setup.inputs["v"][at.batch[0], setup.key_heads[at.head[0]]]
    right = _values(setup, at, np.zeros(n_q), np.zeros(n_k))[2]
    if (right.any(axis=-1) & ~observed.any(axis=-1)).any():  # no weights give a row of 0
        return None
    first = rms(np.abs(observed - right))
    u = np.zeros(n_k) if keys is None else np.log(keys)
    n = max(-(-2 * SURPLUS[0] * n_k // max(1, reach - SURPLUS[0])), AT_ONCE // (n_k * d_v))
    some = at._replace(row=np.unique(np.linspace(0, n_q - 1, min(n, n_q)).astype(np.intp)))
    sample = observed[some.row]

    def misfit(t: Array, u: Array) -> float:
        return rms(np.abs(sample - _values(setup, some, t, u)[2]))

    starts = [np.full(len(sample), i * np.log(2)) for i in OCTAVES]
    t = min(starts, key=lambda t: misfit(t, u))
    size, damping = misfit(t, u), DAMPING
    for iteration in range(DAMPED_ITERATIONS if keys is None else 0):
        to_t, to_u = _step(setup, some, sample, v, t, u, damping)
        new_u = u + to_u.clip(-1, 1)
        new_t, new_u = (t + to_t.clip(-1, 1)).clip(-FAR, FAR), new_u - new_u.mean()
        new_size = misfit(new_t, new_u)
        if new_size < size:
            t, u, size, damping = new_t, new_u, new_size, damping / DAMPING_CHANGE
        else:
            damping *= DAMPING_CHANGE
        hopeless = iteration == HOPELESS_DAMPED[0] and size > HOPELESS_DAMPED[1] * first
        if hopeless or damping > MOST_DAMPING or np.abs(to_u).max() <= 1e-11:
            break
    t = _row_factors(setup, observed, at, v, u)
    residual = rms(np.abs(observed - _values(setup, at, t, u)[2]))
    return (np.exp(t), np.exp(u)) if residual <= SURPLUS[1] * first else None


def _step(
    setup: Setup, at: Subset, observed: Array, v: Array, t: Array, u: Array, damping: float
) -> tuple[Array, Array]:
    """The change of t and u, with which the output of the rows would fit best if it were linear.

    What the factor of a row can explain is taken out first: the rest is that of the keys.
    """
    z, a, o = _values(setup, at, t, u)
    slopes = (a * z)[:, :, None] * (v - o[:, None])  # [row, key, d_v]
    of_row, residuals = slopes.sum(axis=1), observed - o
    length = np.maximum(np.square(of_row).sum(axis=-1) * (1 + damping), 1e-300)
    share = np.einsum("rkd,rd->rk", slopes, of_row) / length[:, None]
    row_step = (residuals * of_row).sum(axis=-1) / length
    matrix = np.einsum("rkd,rld->kl", slopes, slopes, optimize=True)
    matrix += np.diag(damping * np.diag(matrix)) - share.T @ (share * length[:, None])
    y = np.einsum("rkd,rd->k", slopes, residuals) - share.T @ (row_step * length)
    step = np.linalg.lstsq(matrix, y, rcond=1e-13)[0]
    return row_step - share @ step, step


def _row_factors(setup: Setup, observed: Array, at: Subset, v: Array, u: Array) -> Array:
    """[n_q]: the logarithms of the factors of the rows, by Newton's method from the best octave."""
    octaves = [np.full(len(observed), i * np.log(2)) for i in OCTAVES]
    errors = [np.square(observed - _values(setup, at, t, u)[2]).sum(axis=-1) for t in octaves]
    t = np.take_along_axis(np.array(octaves), np.argmin(errors, axis=0)[None], axis=0)[0]
    for _ in range(ITERATIONS):
        z, a, o = _values(setup, at, t, u)
        slopes = (a * z) @ v - o * (a * z).sum(axis=-1, keepdims=True)
        length = np.maximum(np.square(slopes).sum(axis=-1), 1e-300)
        t = t + (((observed - o) * slopes).sum(axis=-1) / length).clip(-0.5, 0.5)
    return np.asarray(t.clip(-FAR, FAR))


def _values(setup: Setup, at: Subset, t: Array, u: Array) -> tuple[Array, Array, Array]:
    """Scaled scores, weights and output of some rows of a head, with factors exp(t) and exp(u)."""
    q, k = setup.inputs["q"], setup.inputs["k"]
    row = np.zeros((q.shape[2], 1))
    row[at.row, 0] = t
    changed = setup.with_inputs(q=q * np.exp(row), k=k * np.exp(u)[:, None])
    values = stages(changed, at, [SCALED, WEIGHTS, OUTPUT])
    scaled, weights, output = (values[name][0, 0] for name in (SCALED, WEIGHTS, OUTPUT))
    return np.where(np.isfinite(scaled), scaled, 0), weights, output


QUERIES: Mapping[str, Change] = {
    "bias of the queries missing": _query_bias,
    "channels of the keys times factors": _channels,
    "queries and keys times factors": _rows,
}
