"""Traces built by hand, so that the views are tested without attncli's own attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.convention import Convention
from attncli.trace import Stage, Trace

Array = npt.NDArray[Any]
NEVER = -np.inf
THREE_Q = [[1, 0], [0, 1], [1, 1]]
THREE_K = [[1, 1], [1, 0], [0, 1]]
THREE_V = [[10, 0], [0, 10], [5, 5]]
CAUSAL = np.triu(np.full((3, 3), NEVER), 1)


def attention(
    q: npt.ArrayLike = THREE_Q,
    k: npt.ArrayLike = THREE_K,
    v: npt.ArrayLike = THREE_V,
    mask: npt.ArrayLike | None = None,
    convention: Convention | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
    notes: tuple[str, ...] = (),
) -> Trace:
    """softmax(Q Kᵀ / √d_k + M) V with every stage, the three-token example unless told otherwise."""
    how = convention or Convention()
    q, k, v = (np.asarray(x, dtype=float) for x in (q, k, v))
    names = {axis: tuple(words) for axis, words in (labels or {}).items()}
    axes = ("batch", "head", "query", "key")[-q.ndim :]
    inputs = [
        Stage("q", "Q", "", q, (*axes[:-1], "d_k"), names),
        Stage("k", "K", "", k, (*key_axes(axes), "d_k"), names),
        Stage("v", "V", "", v, (*key_axes(axes), "d_v"), names),
    ]
    scores = q @ np.swapaxes(shared(k, q), -1, -2)
    scaled = scores / np.sqrt(q.shape[-1])
    between = [
        Stage("scaled", "Z", f"Z = S / √d_k = S / {np.sqrt(q.shape[-1]):.5g}", scaled, axes, names)
    ]
    if mask is not None:
        bias = np.asarray(mask, dtype=float)
        inputs.append(Stage("mask", "M", "", bias, axes[-bias.ndim :], names))
        masked = np.where(np.isneginf(bias), how.mask_value, scaled + bias)
        between.append(Stage("masked", "X", "X = Z + M", masked, axes, names))
    weights = softmax(between[-1].value, how)
    formula = f"A = softmax({between[-1].symbol}) over {how.softmax_over}: each row sums to 1"
    if how.softmax_over == "queries":
        formula = formula.replace("row", "column")
    steps = (
        *inputs,
        Stage("scores", "S", "S = Q Kᵀ", scores, axes, names),
        *between,
        Stage("weights", "A", formula, weights, axes, names),
        Stage("output", "O", "O = A V", weights @ shared(v, q), (*axes[:-1], "d_v"), names),
    )
    return Trace("Scaled dot-product attention", steps, how, notes=notes)


def key_axes(axes: tuple[str, ...]) -> tuple[str, ...]:
    """(batch, kv_head, key) for (batch, head, query, key)."""
    return (*("kv_head" if axis == "head" else axis for axis in axes[:-2]), "key")


def shared(x: Array, q: Array) -> Array:
    """Keys or values repeated for the query heads that share them."""
    return x if x.ndim < 3 else np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3)


def softmax(x: Array, how: Convention) -> Array:
    axis = -1 if how.softmax_over == "keys" else -2
    largest = x.max(axis=axis, keepdims=True)
    exps = np.exp(x - np.where(np.isfinite(largest), largest, 0))
    sums = exps.sum(axis=axis, keepdims=True)
    shares: Array = exps / np.where(sums == 0, 1, sums)
    return shares


def numbers(*shape: int, seed: int = 7) -> Array:
    """Normal numbers of both signs, rounded so that goldens read well."""
    return np.random.default_rng(seed).normal(size=shape).round(2)


def matrix(
    values: npt.ArrayLike,
    name: str = "scaled",
    axes: tuple[str, ...] = ("query", "key"),
    labels: Mapping[str, Sequence[str]] | None = None,
) -> Trace:
    """A trace of one stage."""
    names = {axis: tuple(words) for axis, words in (labels or {}).items()}
    stage = Stage(name, "Z", "", np.asarray(values), axes, names)
    return Trace("One matrix", (stage,))
