"""Attention as a few lines of NumPy: what an accepted input must give."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from attncli.arrays import Array
from tests.fuzz.reading import RefusalError

How = Mapping[str, Any]
Lengths = list[int] | None
Shape = tuple[int, ...]
DEFAULTS: dict[str, Any] = {
    "scale": "1/sqrt(d_k)", "softcap": None, "softcap_place": "before-mask", "causal": False,
    "causal_align": "top-left", "window": None, "softmax_over": "keys", "mask_means": "keep",
    "mask_value": -math.inf, "empty_rows": "zero", "head_order": "blocks", "dropout": 0.0,
    "seed": 0, "dtype": "float64", "mask_and_causal": "both", "window_counts": "others",
    "mask_numbers": None, "mask_value_rule": "replace", "empty_rows_inf": None, "lse_base": "e",
    "qk_norm": False, "temperature": 1.0,
}  # fmt: skip

READ = {"q", "k", "v", "mask", "d_output"}
"""Stages that are read, not computed."""
LARGEST = 1e6
"""Scores beyond this have no reliable weights: a last bit of theirs decides."""


def attention(
    given: Mapping[str, Array], convention: How, kv_len: Lengths = None
) -> dict[str, Array]:
    """The stages of an attention of q, k, v, mask, past_k, past_v and sinks."""
    convention = {**DEFAULTS, **convention}
    arrays = {name: x.astype(float) if name != "mask" else x for name, x in given.items()}
    q, k, v = arrays["q"], arrays["k"], arrays["v"]
    n_past = arrays["past_k"].shape[-2] if "past_k" in arrays else 0
    if n_past:
        k = np.concatenate([arrays["past_k"], k], axis=-2)
        v = np.concatenate([arrays["past_v"], v], axis=-2)
    stages = {"q": q, "k": k, "v": v}
    if q.ndim > 2 and q.shape[-3] != k.shape[-3]:
        shared = q.shape[-3] // k.shape[-3]
        tiled = convention["head_order"] == "tiled"
        k, v = (
            np.concatenate([x] * shared, -3) if tiled else np.repeat(x, shared, -3) for x in (k, v)
        )
    q, k = (normalised(x) if convention["qk_norm"] else x for x in (q, k))
    x = stages["scores"] = q @ np.swapaxes(k, -1, -2)
    if (convention["scale"], convention["temperature"]) != ("none", 1):
        x = stages["scaled"] = x * _factor(convention, q.shape[-1]) / convention["temperature"]
    convention, mask, empty_rows = _restricted(
        x.shape, n_past, arrays.get("mask"), convention, kv_len
    )
    late = convention["softcap_place"] == "after-mask"
    x = _masked(x, mask, convention)
    if mask is not None:
        stages["mask"] = mask
    axis = -1 if convention["softmax_over"] == "keys" else -2
    sinks = arrays["sinks"].reshape(-1, *[1] * min(x.ndim - 1, 2)) if "sinks" in arrays else -np.inf
    top = np.maximum(x.max(axis=axis, keepdims=True), sinks)
    powers = np.exp(x - np.where(np.isneginf(top), 0, top))
    weights = powers / (powers.sum(axis=axis, keepdims=True) + np.exp(sinks - top))
    is_hidden = np.isneginf(float(convention["mask_value"])) and not (
        convention["softcap"] and late
    )
    if mask is not None and is_hidden:
        weights = np.where(np.isneginf(mask), 0, weights)
        filler = {"nan": np.nan, "uniform": 1 / x.shape[axis]}.get(empty_rows, 0)
        empty = np.isneginf(mask).all(axis=axis, keepdims=True) & np.isneginf(sinks)
        weights = np.where(empty, filler, weights)
    stages["weights"] = weights
    if axis == -1:
        with np.errstate(divide="ignore", invalid="ignore"):
            lse = np.logaddexp(np.logaddexp.reduce(x, axis=axis, keepdims=True), sinks)[..., 0]
        stages["lse"] = lse / math.log(2) if convention["lse_base"] == "2" else lse
    if convention["dropout"]:
        kept = (
            np.random.default_rng(convention["seed"]).random(weights.shape) >= convention["dropout"]
        )
        weights = np.where(kept, weights / (1 - convention["dropout"]), 0)
    stages["output"] = weights @ v
    if "d_output" in arrays:
        d = stages["d_output"] = arrays["d_output"]
        if d.shape != stages["output"].shape:
            raise RefusalError("d_output")
        if v.shape == stages["v"].shape:
            stages["d_v"] = np.swapaxes(weights, -1, -2) @ d
            stages |= _of_scores(stages, weights, d, convention)
    return stages


def _factor(convention: How, d_k: int) -> float:
    scale, factors = convention["scale"], {"none": 1.0, "1/sqrt(d_k)": 1 / math.sqrt(d_k)}
    return factors[scale] if scale in factors else float(scale)


def normalised(x: Array) -> Array:
    """Each row over its root mean square."""
    return np.asarray(x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6))


def _of_scores(
    stages: dict[str, Array], weights: Array, d: Array, convention: How
) -> dict[str, Array]:
    """dQ = dS K and dK = dSᵀ Q of a plain attention of as many key heads."""
    any_scale = {"scale": 1, "temperature": 1, "seed": 0, "dtype": ""}
    is_plain = {**convention, **any_scale} == {**DEFAULTS, **any_scale}
    if not is_plain or "mask" in stages or (weights.sum(axis=-1) < 0.999).any():
        return {}
    q, k, v = (stages[name] for name in "qkv")
    apart = d @ np.swapaxes(v, -1, -2) - (stages["output"] * d).sum(axis=-1, keepdims=True)
    d_scores = weights * apart * _factor(convention, q.shape[-1]) / convention["temperature"]
    return {"d_q": d_scores @ k, "d_k": np.swapaxes(d_scores, -1, -2) @ q}


def reliable(stages: dict[str, Array]) -> dict[str, Array]:
    """The stages of which every number follows from the inputs but for rounding."""
    inputs = [stages[name] for name in ("q", "k", "v")]
    scores = stages.get("scaled", stages["scores"])
    mask = stages.get("mask", np.zeros(1))
    is_plain = all(np.isfinite(x).all() and np.abs(x).max(initial=0) < 1e100 for x in inputs)
    is_plain = is_plain and bool((np.abs(mask[~np.isneginf(mask)]) < LARGEST).all())
    if is_plain and np.abs(stages["scores"]).max() < LARGEST > np.abs(scores).max():
        return stages
    return {name: x for name, x in stages.items() if name in READ}


def _restricted(
    shape: Shape, n_past: int, given: Array | None, convention: dict[str, Any], kv_len: Lengths
) -> tuple[dict[str, Any], Array | None, str]:
    """The convention in effect, all that restricts, and what becomes of rows without a key."""
    given_mask = meant(given, convention)
    if given_mask is not None and convention["causal"] and convention["mask_and_causal"] != "both":
        if convention["mask_and_causal"] == "refused":
            raise RefusalError("mask and causal")
        alone = convention["mask_and_causal"] == "mask"
        convention, given_mask = {**convention, "causal": not alone}, given_mask if alone else None
    is_added = given_mask is not None and given_mask.dtype != np.bool_
    empty_rows = (convention["empty_rows_inf"] if is_added else None) or convention["empty_rows"]
    if is_added and convention["empty_rows_inf"]:
        convention = {**convention, "mask_value": -math.inf}
    mask = _total_mask(shape, n_past, given_mask, convention, kv_len)
    if mask is not None and empty_rows == "unmasked":
        around = _total_mask(shape, n_past, None, convention, kv_len, pads=False)
        around = np.zeros(mask.shape) if around is None else around
        mask = np.where(np.isneginf(mask).all(axis=-1, keepdims=True), around, mask)
    return convention, mask, empty_rows


def _masked(x: Array, mask: Array | None, convention: How) -> Array:
    """The scores with the mask's numbers, what it hides, and the softcap where it is to be."""
    cap, value, place = (
        convention["softcap"],
        float(convention["mask_value"]),
        convention["softcap_place"],
    )
    hidden = np.zeros(1, bool) if mask is None else np.isneginf(mask)
    bias = np.zeros(1) if mask is None else np.where(hidden, 0, mask)
    if cap is not None and place != "after-mask":
        inner = x + bias if place == "after-bias" else x
        x, bias = np.tanh(inner / cap) * cap, bias if place == "before-mask" else np.zeros(1)
    x = x + bias
    x = np.where(hidden, x + value if convention["mask_value_rule"] == "add" else value, x)
    return np.tanh(x / cap) * cap if cap is not None and place == "after-mask" else x


def meant(mask: Array | None, convention: How) -> Array | None:
    """True where a query may attend, or numbers to add."""
    if mask is None or (mask.dtype != np.bool_ and convention["mask_numbers"] != "truth"):
        return mask
    truth = mask.astype(bool)
    return (
        truth * 1.0
        if convention["mask_means"] == "add"
        else truth ^ (convention["mask_means"] == "ignore")
    )


def _total_mask(
    shape: Shape,
    n_past: int,
    given: Array | None,
    convention: How,
    kv_len: Lengths,
    pads: bool = True,
) -> Array | None:
    """What is added to the scores, cell by cell; None where nothing restricts them."""
    if (
        given is None
        and kv_len is None
        and not convention["causal"]
        and convention["window"] is None
    ):
        return None
    total = np.zeros(shape) if given is None else given.astype(float)
    if given is not None and given.dtype == np.bool_:
        total = np.where(given, 0.0, -np.inf)
    n_q, n_k = shape[-2:]
    left, right = convention["window"] or (-1, -1)
    left -= convention["window_counts"] == "own" and left > 0
    row, key = np.arange(n_q)[:, None], np.arange(n_k)
    lengths = np.reshape([n_k] if kv_len is None else kv_len, (-1, *[1] * (len(shape) - 1)))
    first = lengths - n_q if convention["causal_align"] == "bottom-right" else n_past
    after = key - (row + first)
    is_open = (convention["causal_align"] == "open-last") & (row == n_q - 1) & (n_q < n_k)
    hidden = convention["causal"] & (after > 0) & ~is_open
    hidden = hidden | (left >= 0) & (after < -left) | (right >= 0) & (after > right)
    hidden = hidden | (key >= lengths) if pads else hidden
    return np.broadcast_to(np.where(hidden, -np.inf, total), shape)


def turned(x: Array, first: int, layout: str) -> Array:
    """x [..., n, d] by rotary positions from the first on: pairs as complex numbers, turned."""
    n, d = x.shape[-2:]
    a, b = (
        (slice(0, d // 2), slice(d // 2, d))
        if layout == "halves"
        else (slice(0, d, 2), slice(1, d, 2))
    )
    angles = (first + np.arange(n))[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    pairs = (x[..., a] + 1j * x[..., b]) * np.exp(1j * angles)
    result = np.empty(x.shape)
    result[..., a], result[..., b] = pairs.real, pairs.imag
    return result


def distances(n_heads: int, n_q: int, n_k: int, first: int) -> Array:
    """The symmetric bias of ALiBi [head, n_q, n_k] for the slopes of 1, 2, 4 and 6 heads."""
    powers = {1: [8], 2: [4, 8], 4: [2, 4, 6, 8], 6: [2, 4, 6, 8, 1, 3]}[n_heads]
    apart = abs(first + np.arange(n_q)[:, None] - np.arange(n_k))
    return np.array([-apart / 2.0**power for power in powers])


def sinusoidal(n: int, dim: int, exponent: str, base: float, start: int) -> Array:
    """The table of "Attention Is All You Need", section 3.5, or with 2i counted twice."""
    column = np.arange(dim)
    pair = 2 * (column // 2) * (2 if exponent == "article" else 1)
    angle = (start + np.arange(n)[:, None]) / base ** (pair / dim)
    return np.where(column % 2, np.cos(angle), np.sin(angle))
