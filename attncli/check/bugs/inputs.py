"""Bugs of what goes into attention and comes out of it: a bias, a norm, a residual, a projection.

Biases and projections are computed from the observed numbers, so more of these must agree with them
than they have entries of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional
from attncli.check.bugs.bug import Bug, Change, Evidence, bug
from attncli.check.run import Indices
from attncli.check.setup import Setup
from attncli.check.tolerance import rms
from attncli.convention import HeadOrder
from attncli.stages import OUTPUT, RESIDUAL

TIMES = 3
"""So many numbers must agree with each one that is computed from them."""

EXPLAINED = 0.25
"""What is computed from the observed numbers must leave at most this share of the errors: the fit
on everything demands more, but a wrong cause need not be tried there."""


def _rows_of(x: Array, heads: Array) -> Array:
    """[row, d]: the rows of some heads, of all batch items."""
    return x[:, heads].reshape(-1, x.shape[-1])


# ---- biases


def _value_bias(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The median of the errors of each column of a head, which is the same in every row.

    One number for all columns is no bias: "everywhere, by one addend" says more.
    """
    over, v = evidence.over(setup, OUTPUT), setup.inputs["v"]
    if over is None or setup.positions is not None:
        return
    observed, expected, _ = evidence.few(OUTPUT)
    apart = observed - expected
    key_heads, bias = setup.key_heads[over.head], np.zeros((v.shape[1], 1, v.shape[-1]))
    for head in np.unique(key_heads):
        errors = _rows_of(apart, key_heads == head)
        errors = errors[np.isfinite(errors).all(axis=-1)]
        if len(errors) < TIMES:
            return
        bias[head] = np.median(errors, axis=0)
        if rms(np.abs(errors - bias[head])) > EXPLAINED * rms(np.abs(errors)):
            return
    if np.ptp(bias) > EXPLAINED * rms(np.abs(bias)):
        yield setup.with_inputs(v=v + bias)


# ---- norms and residuals


def root_mean_square(x: Array, epsilon: float) -> Array:
    """x over the root of the mean square of its last axis: RMS norm without a gain."""
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon))


def to_length_1(x: Array) -> Array:
    """x over its length.

    >>> to_length_1(np.array([3.0, 4.0])).tolist()
    [0.6, 0.8]
    """
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12))


def layer_norm(x: Array, epsilon: float) -> Array:
    """x less its mean, over its standard deviation."""
    mean = functional.mean(x)
    return functional.normalize(x, mean, functional.deviation(x, mean), epsilon=epsilon)


_NORMS: Mapping[str, Callable[[Array], Array]] = {
    "L2 norm": to_length_1,
    "RMS norm": partial(root_mean_square, epsilon=1e-300),
    "RMS norm with ε 1e-6": partial(root_mean_square, epsilon=1e-6),
    "RMS norm with ε 1e-5": partial(root_mean_square, epsilon=1e-5),
    "layer norm with ε 1e-6": partial(layer_norm, epsilon=1e-6),
    "layer norm with ε 1e-5": partial(layer_norm, epsilon=1e-5),
}
"""float32 shows which ε it was; without one nothing is divided by 0."""


def _normalised(setup: Setup, _: Evidence) -> Iterator[Setup]:
    for words, norm in _NORMS.items():
        changed = setup.with_steps(scores=partial(scores_of_normalised, norm=norm))
        yield changed.with_detail(words)


def scores_of_normalised(q: Array, k: Array, *, norm: Callable[[Array], Array], **_: Any) -> Array:
    """Scores of queries and keys that are normalised first."""
    return functional.scores(norm(q), norm(k))


def _residual(name: str) -> Change:
    """The output with the rows of an input added."""

    def change(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        own = name == "q" or setup.shape[2] == setup.shape[3]
        same_width = setup.inputs[name].shape[-1] == setup.inputs["v"].shape[-1]
        if OUTPUT not in evidence.observed or setup.positions is not None:
            return
        if own and same_width:
            reads = {RESIDUAL: name} | ({} if name == "q" else {"rows": "rows"})
            compute = partial(sum_and_residual, order=setup.how.head_order)
            changed = setup.with_reads(OUTPUT, **reads).with_steps(output=compute)
            yield changed.with_detail(f"+ {name.upper()}")

    return change


def sum_and_residual(
    a: Array,
    v: Array,
    allowed: Array | None = None,
    *,
    residual: Array,
    rows: Indices | None = None,
    order: HeadOrder = "blocks",
) -> Array:
    """A V plus the rows of one of the inputs, whose heads may be shared."""
    more = residual if rows is None else residual[..., rows, :]
    if more.shape[-3] != a.shape[-3]:
        more = functional.share(more, a.shape[-3], order)
    return functional.add(functional.weighted_sum(a, v, allowed), more)


def _residuals(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    for name in "qkv":
        yield from _residual(name)(setup, evidence)


# ---- a projection that was solved for


DEPENDENT = 1e-6
"""Below this share of the largest, a column follows from the others: any factor of it would do."""

SINGLE = 0.9
"""A column of which one entry has so large a share copies one channel: that is another bug."""


def solved(x: Array, y: Array) -> Array | None:
    """The matrix and, as its last row, the bias that give y from x, or None: [n, d], [n, m].

    None where there are not enough rows, where they leave it open, where it leaves too much of y
    unexplained, and where each column of y is one of x times a factor.
    """
    x = np.concatenate([x, np.ones((len(x), 1))], axis=-1)
    if len(x) < TIMES * x.shape[1] or not (np.isfinite(x).all() and np.isfinite(y).all()):
        return None
    products = x.T @ x
    try:
        diagonal = np.diag(np.linalg.cholesky(products))
    except np.linalg.LinAlgError:
        return None
    if diagonal.min() <= DEPENDENT * diagonal.max():
        return None
    for some in (y[:, :4], y):  # a few columns first: most often they refuse it
        matrix = np.linalg.solve(products, x.T @ some)
        matrix = matrix + np.linalg.solve(products, x.T @ (some - x @ matrix))  # the last digits
        spread = rms(np.abs(some - some.mean(axis=0)))
        if rms(np.abs(some - x @ matrix)) > EXPLAINED * spread:
            return None
    columns = matrix[:-1]
    share = np.abs(columns).max(axis=0) / np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
    return matrix if np.median(share) < SINGLE else None


def _projected(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """One matrix for each head, or one for all heads side by side."""
    over, v = evidence.over(setup, OUTPUT), setup.inputs["v"]
    if over is None or setup.positions is not None:
        return
    observed, expected, _ = evidence.few(OUTPUT)
    key_heads, projected = setup.key_heads[over.head], np.zeros(v.shape)
    for head in np.unique(key_heads):
        rows = (_rows_of(x, key_heads == head) for x in (expected, observed))
        if (matrix := solved(*rows)) is None:
            break
        projected[:, head] = v[:, head] @ matrix[:-1] + matrix[-1]
    else:
        yield setup.with_inputs(v=projected).with_detail("by a matrix for each head")
        return
    if setup.shape[1] > 1 and evidence.has_all(setup, OUTPUT):
        yield from _projected_together(setup, evidence.expected[OUTPUT], evidence.observed[OUTPUT])


WIDEST = 512
"""To solve for a wider matrix takes longer than all other bugs together."""


def _projected_together(setup: Setup, expected: Array, observed: Array) -> Iterator[Setup]:
    n_batch, n_heads, n_q, d_v = expected.shape
    if n_heads * d_v > WIDEST:
        return
    n = TIMES * (n_heads * d_v + 1)
    rows = np.arange(0, n_q, max(1, n_batch * n_q // n))
    x, y = (
        np.swapaxes(a[:, :, rows], 1, 2).reshape(-1, n_heads * d_v) for a in (expected, observed)
    )
    if (matrix := solved(x, y)) is not None:
        output = partial(projected_sum, matrix=matrix)
        changed = setup.with_whole(1).with_steps(output=output)
        yield changed.with_detail("by one matrix for all heads side by side")


def projected_sum(a: Array, v: Array, allowed: Array | None = None, *, matrix: Array) -> Array:
    """The heads of A V side by side, through a matrix whose last row is a bias, and split again."""
    output = np.swapaxes(functional.weighted_sum(a, v, allowed), 1, 2)
    wide = output.reshape(*output.shape[:2], -1)
    weights = matrix.astype(wide.dtype)
    projected = functional.project(wide, weights[:-1], weights[-1])
    return np.swapaxes(projected.reshape(output.shape), 1, 2)


INPUTS: tuple[Bug, ...] = (
    bug(
        "bias of the values missing",
        _value_bias,
        "inputs",
        "every output of a head is off by one vector, as if the values had a bias, or lacked it",
        is_fitted=True,
    ),
    bug(
        "queries and keys normalised",
        _normalised,
        "inputs scores",
        "q and k are normalised over d_k before the scores",
        pairs=False,
    ),
    bug(
        "residual already in the output",
        _residuals,
        "outputs",
        "the input of the block is added to the output",
        pairs=False,
    ),
    bug(
        "output projected already",
        _projected,
        "outputs",
        "the output has gone through a linear map, such as the output projection",
        is_fitted=True,
    ),
)
