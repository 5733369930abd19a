"""Traces built by hand, so that the views are tested without attncli's own attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    """softmax(Q Kᵀ / √d_k + M) V with every stage, the three-token example unless given others.

    Each stage says what it was computed from and how, as the README's file format has it.
    """
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
    root = float(np.sqrt(q.shape[-1]))
    formula, work = f"Z = S / √d_k = S / {root:.5g}", f"[x] / √d_k = {{x}} / {{{root}}}"
    between = [computed("scaled", "Z", formula, scaled, axes, names, work, x="scores")]
    if mask is not None:
        bias = np.asarray(mask, dtype=float)
        inputs.append(Stage("mask", "M", "", bias, axes[-bias.ndim :], names))
        masked = np.where(np.isneginf(bias), how.mask_value, scaled + bias)
        reads = {"x": "scaled", "mask": "mask"}
        between.append(computed("masked", "L", "L = Z + M", masked, axes, names, "mask", **reads))
    weights = softmax(between[-1].value, how)
    formula = f"A = softmax({between[-1].symbol}) over {how.softmax_over}: each row sums to 1"
    if how.softmax_over == "queries":
        formula = formula.replace("row", "column")
    last, axis = between[-1].name, {"axis": -1 if how.softmax_over == "keys" else -2}
    found = computed("weights", "A", formula, weights, axes, names, "softmax", x=last)
    output, ends = weights @ shared(v, q), (*axes[:-1], "d_v")
    steps = (
        *inputs,
        computed("scores", "S", "S = Q Kᵀ", scores, axes, names, "row products", q="q", k="k"),
        *between,
        replace(found, params=axis),
        computed("output", "O", "O = A V", output, ends, names, "products", a="weights", v="v"),
    )
    return Trace("Scaled dot-product attention", steps, how, notes=notes)


def computed(
    name: str,
    symbol: str,
    formula: str,
    value: Array,
    axes: tuple[str, ...],
    labels: Mapping[str, Sequence[str]],
    work: str,
    **reads: str,
) -> Stage:
    """A stage that says how it was computed."""
    names = {axis: tuple(words) for axis, words in labels.items()}
    return Stage(name, symbol, formula, value, axes, names, reads=reads, work=work)


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
