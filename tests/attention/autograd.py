"""Attention written with the functions of PyTorch and of JAX, for the gradients they find of it.

given, how ── loss = Σ O ∘ dO ── autograd ──> gradients by name
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from attncli.arrays import Array

Given = Mapping[str, Array]
Case = tuple[dict[str, Array], dict[str, Any]]


def case(name: str, n_heads: int = 6) -> Case:
    """The arrays and the convention of a feature, or of all together; sizes are primes."""
    rng = np.random.default_rng(29)
    normal = rng.standard_normal
    given = {"q": 1.5 * normal((2, n_heads, 7, 5)), "k": normal((2, n_heads, 11, 5))}
    given |= {"v": normal((2, n_heads, 11, 13)), "d_output": normal((2, n_heads, 7, 13))}
    keep = rng.random((7, 11)) < 0.7
    keep[2] = False
    bias, sinks, kept = normal((n_heads, 7, 11)), normal(n_heads), rng.random((2, n_heads, 7, 11))
    shared = {name: x[:, :2] for name, x in given.items() if name in "kv"}
    features: dict[str, Case] = {
        "plain": ({}, {}),
        "scale": ({}, {"scale": 0.37}),
        "causal": ({}, {"causal": True}),
        "mask": ({"keep": keep}, {}),
        "bias": ({"bias": bias}, {}),
        "broadcast": ({"bias": bias[:, :1]}, {}),
        "softcap": ({}, {"softcap": 2.0}),
        "sinks": ({"sinks": sinks}, {}),
        "grouped": (shared, {}),
        "tiled": (shared, {"head_order": "tiled"}),
        "dropout": ({"kept": kept >= 0.3}, {"dropout": 0.3}),
        "queries": ({}, {"softmax_over": "queries"}),
    }
    apart, how = ("broadcast", "queries", "grouped"), dict[str, Any]()
    for feature in [n for n in features if n not in apart] if name == "all" else [name]:
        given |= features[feature][0]
        how |= features[feature][1]
    return given, how


def named(given: Given, how: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The case as `attend` takes it; what dropout keeps is put in by the caller."""
    own = {name: x for name, x in given.items() if name not in ("keep", "bias", "kept")}
    if "bias" in given:
        own["mask"] = np.where(given.get("keep", True), given["bias"], -np.inf)
    elif "keep" in given:
        own["mask"] = given["keep"]
    return own, dict(how)


def output(np_: Any, x: Mapping[str, Any], given: Given, how: Mapping[str, Any]) -> Any:
    """Attention by the functions that NumPy, PyTorch and JAX share; x: what is differentiated."""
    (_, n_heads, n_q, d_k), (_, n_kv_heads, n_k, _) = x["q"].shape, x["k"].shape
    heads = np.arange(n_heads)
    of = heads % n_kv_heads if how.get("head_order") == "tiled" else heads * n_kv_heads // n_heads
    k, v = (x[name][:, of] for name in "kv")
    s = np_.einsum("bhqd,bhkd->bhqk", x["q"], k) * how.get("scale", 1 / math.sqrt(d_k))
    if "softcap" in how:
        s = how["softcap"] * np_.tanh(s / how["softcap"])
    if "bias" in x:
        s = s + x["bias"]
    hidden = ~given.get("keep", np.ones((n_q, n_k), bool))
    hidden = hidden | np.triu(np.ones((n_q, n_k), bool), 1) if how.get("causal") else hidden
    powers = np_.exp(s) * np_.asarray((~hidden).astype(np.float64))
    axis = -2 if how.get("softmax_over") == "queries" else -1
    total = powers.sum(axis, keepdims=True)
    if "sinks" in x:
        total = total + np_.exp(x["sinks"])[:, None, None]
    elif axis == -1:
        total = total + np_.asarray(hidden.all(-1, keepdims=True).astype(np.float64))
    a = powers / total
    if "kept" in given:
        a = a * np_.asarray(given["kept"] / (1 - how["dropout"]))
    return np_.einsum("bhqk,bhkd->bhqd", a, v)


def loss(np_: Any, x: Mapping[str, Any], given: Given, how: Mapping[str, Any]) -> Any:
    """Σ O ∘ dO."""
    return (output(np_, x, given, how) * np_.asarray(given["d_output"])).sum()


DIFFERENTIATED = ("q", "k", "v", "bias", "sinks")
OF_X = ("x", "x_kv", "w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o")


def case_of_x(*, is_cross: bool) -> dict[str, Array]:
    """x, the weights of six heads on three key heads, their biases and the gradient of the result."""
    rng = np.random.default_rng(37)
    d_kv = 7 if is_cross else 5
    shapes = {"x": (2, 11, 5), "w_q": (5, 12), "w_k": (d_kv, 6), "w_v": (d_kv, 9), "w_o": (18, 13)}
    shapes |= {"b_q": (12,), "b_k": (6,), "b_v": (9,), "b_o": (13,), "d_output": (2, 11, 13)}
    shapes |= {"x_kv": (2, 17, 7)} if is_cross else {}
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def loss_of_x(np_: Any, x: Mapping[str, Any], given: Given, how: Mapping[str, Any]) -> Any:
    """The same of multi-head attention, from x to its projection; causal."""
    heads = {}
    for name, width in {"q": 2, "k": 2, "v": 3}.items():
        rows = x["x"] if name == "q" else x.get("x_kv", x["x"])
        flat = rows @ x[f"w_{name}"] + x[f"b_{name}"]
        heads[name] = flat.reshape(2, rows.shape[1], -1, width).swapaxes(1, 2)
    o = output(np_, heads, {}, {**how, "causal": True})
    y = o.swapaxes(1, 2).reshape(2, 11, 18) @ x["w_o"] + x["b_o"]
    return (y * np_.asarray(given["d_output"])).sum()


def by_torch(given: Given, how: Mapping[str, Any], of: Callable[..., Any] = loss) -> dict[str, Any]:
    """The gradients by PyTorch's autograd, in float64."""
    import torch

    x = {n: torch.tensor(given[n], requires_grad=True) for n in NAMES[of] if n in given}
    of(torch, x, given, how).backward()
    return {name: tensor.grad.numpy() for name, tensor in x.items()}


def by_jax(given: Given, how: Mapping[str, Any], of: Callable[..., Any] = loss) -> dict[str, Any]:
    """The gradients by jax.grad, in float64."""
    import jax

    with jax.enable_x64(True):
        x = {n: jax.numpy.asarray(given[n]) for n in NAMES[of] if n in given}
        gradients = jax.grad(lambda y: of(jax.numpy, y, given, how))(x)
        return {name: np.asarray(gradient) for name, gradient in gradients.items()}


NAMES = {loss: DIFFERENTIATED, loss_of_x: OF_X}
