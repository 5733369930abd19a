"""No false alarm: right implementations in every number type, whatever the order of their sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from attncli import Convention
from attncli.check import check

Array = np.ndarray[Any, np.dtype[Any]]
TYPES: dict[str, Any] = {"float64": np.float64, "float32": np.float32, "float16": np.float16}
TYPES["bfloat16"] = ml_dtypes.bfloat16
SHAPES = (2, 31, 64), (2, 257, 64), (2, 257, 64)
SIZES = [(2, 5, 7, 3, 11), (3, 67, 101, 64, 32), (1, 1, 257, 128, 16)]


def wide(x: Array) -> Array:
    return x if x.dtype in (np.float64, np.float32) else x.astype(np.float32)


def fused(q: Array, k: Array, v: Array, masked: Array) -> Array:
    """All in the wide type, rounded once."""
    s = wide(q) @ np.swapaxes(wide(k), 1, 2) / float(q.shape[-1]) ** 0.5
    e = np.exp(np.where(masked, -np.inf, s - s.max(-1, keepdims=True)))
    return np.asarray((e / e.sum(-1, keepdims=True)) @ wide(v)).astype(q.dtype)


def stage_by_stage(q: Array, k: Array, v: Array, masked: Array) -> Array:
    """Rounded to the small type after every stage."""
    t = q.dtype
    s = wide((wide(q) @ np.swapaxes(wide(k), 1, 2)).astype(t))
    z = wide((s / float(q.shape[-1]) ** 0.5).astype(t))
    e = np.exp(np.where(masked, -np.inf, z - z.max(-1, keepdims=True)))
    weights = wide((e / e.sum(-1, keepdims=True)).astype(t))
    return np.asarray(weights @ wide(v)).astype(t)


def backwards(q: Array, k: Array, v: Array, masked: Array) -> Array:
    """Sums from the last term to the first, one after another, in the wide type."""
    s = np.zeros((*q.shape[:-1], k.shape[1]), dtype=wide(q).dtype)
    for d in reversed(range(q.shape[-1])):
        s += wide(q)[..., d, None] * wide(k)[:, None, :, d]
    e = np.exp(np.where(masked, -np.inf, s / s.dtype.type(q.shape[-1]) ** 0.5))
    output = np.zeros((*q.shape[:-1], v.shape[-1]), dtype=s.dtype)
    total = np.zeros((*q.shape[:-1], 1), dtype=s.dtype)
    for j in reversed(range(k.shape[1])):
        total += e[..., j, None]
        output += e[..., j, None] * wide(v)[:, None, j]
    return np.asarray(output / total).astype(q.dtype)


def online(q: Array, k: Array, v: Array, masked: Array) -> Array:
    """Blocks of keys with a running maximum, as FlashAttention does it."""
    top = np.full((*q.shape[:-1], 1), -1e30, dtype=wide(q).dtype)
    total, output = np.zeros_like(top), np.zeros((*q.shape[:-1], v.shape[-1]), dtype=top.dtype)
    for j in range(0, k.shape[1], 16):
        s = wide(q) @ np.swapaxes(wide(k)[:, j : j + 16], 1, 2) / top.dtype.type(q.shape[-1]) ** 0.5
        s = np.where(masked[..., j : j + 16], -np.inf, s)
        new = np.maximum(top, s.max(-1, keepdims=True))
        e, old = np.exp(s - new), np.exp(top - new)
        total = total * old + e.sum(-1, keepdims=True)
        output = output * old + e @ wide(v)[:, j : j + 16]
        top = new
    return np.asarray(output / total).astype(q.dtype)


def renormalised(q: Array, k: Array, v: Array, masked: Array) -> Array:
    """Masked after softmax and renormalised, which is no bug."""
    s = wide(q) @ np.swapaxes(wide(k), 1, 2) * wide(q).dtype.type(q.shape[-1] ** -0.5)
    e = np.exp(s - s.max(-1, keepdims=True))
    weights = e / e.sum(-1, keepdims=True) * ~masked
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ wide(v)).astype(q.dtype)


def low_sums(q: Array, k: Array, v: Array, masked: Array) -> Array:
    """Running sums kept in the small type itself."""
    t = q.dtype
    s = np.zeros((*q.shape[:-1], k.shape[1]), dtype=t)
    for d in range(q.shape[-1]):
        s = (wide(s) + wide(q)[..., d, None] * wide(k)[:, None, :, d]).astype(t)
    z = wide((wide(s) / float(q.shape[-1]) ** 0.5).astype(t))
    e = np.exp(np.where(masked, -np.inf, z - z.max(-1, keepdims=True)))
    weights = wide((e / e.sum(-1, keepdims=True)).astype(t))
    output = np.zeros((*q.shape[:-1], v.shape[-1]), dtype=t)
    for j in range(k.shape[1]):
        output = (wide(output) + weights[..., j, None] * wide(v)[:, None, j]).astype(t)
    return output


@pytest.mark.parametrize("attention", [fused, stage_by_stage, backwards, online, renormalised])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("causal", [False, True])
def test_a_right_implementation_matches(
    attention: Callable[..., Array], dtype: str, size: tuple[int, ...], causal: bool
) -> None:
    h, n_q, n_k, d_k, d_v = size
    for seed in range(3):
        rng = np.random.default_rng(seed)
        shapes = (h, n_q, d_k), (h, n_k, d_k), (h, n_k, d_v)
        q, k, v = (rng.normal(size=shape).astype(TYPES[dtype]) for shape in shapes)
        masked = np.arange(n_k) > np.arange(n_q)[:, None] + (n_k if not causal else 0)
        observed = attention(q, k, v, masked)
        verdict = check(observed, q, k, v, convention=Convention(causal=causal))
        assert verdict.status == "match", verdict
        assert verdict.explanations == ()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_kept_in_16_bits_are_a_verdict_of_their_own(dtype: str) -> None:
    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=s).astype(TYPES[dtype]) for s in SHAPES)
    observed = low_sums(q, k, v, np.zeros((31, 257), dtype=bool))
    verdict = check(observed, q, k, v)
    assert (verdict.status, verdict.inside, verdict.matches) == ("inside", dtype, False)
    assert check(observed, q, k, v, inside=dtype).status == "match"  # type: ignore[arg-type]
    wrong = (observed.astype(np.float64) * 0.8).astype(observed.dtype)
    assert check(wrong, q, k, v).status not in ("match", "inside")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_small_type_widened_afterwards_is_judged_as_that_type(dtype: str) -> None:
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=s) for s in ((2, 5, 7), (2, 11, 7), (2, 11, 3)))
    t = TYPES[dtype]
    observed = fused(q.astype(t), k.astype(t), v.astype(t), np.zeros((5, 11), dtype=bool))
    verdict = check(observed.astype(np.float32), q, k, v)
    assert verdict.status == "match"
    assert verdict.dtype == dtype
    assert verdict.notes == (f"every number of output fits {dtype}, so it is judged as such",)


def heavy_tailed() -> tuple[Array, Array, Array]:
    """Weights of 1024 keys in float32, of which some are 30 times as large as is typical."""
    q, k = np.random.default_rng(1).normal(size=(2, 8, 1024, 64)).astype(np.float32)
    scores = q @ np.swapaxes(k, -1, -2) / np.float32(8)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return q, k, powers / powers.sum(axis=-1, keepdims=True)


def test_a_weight_is_off_in_proportion_to_itself() -> None:
    q, k, weights = heavy_tailed()
    assert check(weights, q, k, k, stage="weights").status == "match"
    sizes = weights / np.sqrt(np.mean(weights**2, axis=-1, keepdims=True))
    head, row, key = np.argwhere(sizes == sizes.max())[0].tolist()
    assert sizes.max() > 20
    weights[head, row, key] *= 1.001
    verdict = check(weights, q, k, k, stage="weights")
    assert verdict.status != "match"
    assert verdict.stages[0].worst[0].index == (head, row, key)


@pytest.mark.parametrize(("size", "bias"), [(1, 24), (1, 60), (3, 24)])
def test_a_bias_far_larger_than_the_scores_rounds_them(size: float, bias: float) -> None:
    """In float32 Z + M is off by half a unit of M, in whichever order a processor adds up."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        q, k, v = (rng.normal(size=(14, 5, 3)).astype(np.float32) for _ in range(3))
        q *= np.float32(size)
        mask = (bias + rng.random((14, 1, 5))).astype(np.float32)
        scores = np.zeros((14, 5, 5), np.float32)
        for i in rng.permutation(3):
            scores += q[..., i, None] * k[:, None, :, i]
        powers = np.exp(np.float64(scores + mask)).astype(np.float32)
        total, output = np.zeros((14, 5), np.float32), np.zeros((14, 5, 3), np.float32)
        for i in rng.permutation(5):
            total += powers[..., i]
        weights = powers / total[..., None]
        for i in rng.permutation(5):
            output += weights[..., i, None] * v[:, None, i]
        observed = {"weights": weights, "output": output}
        verdict = check(observed, q, k, v, mask=mask, scale="none", pairs=False)
        assert verdict.status == "match", (seed, verdict.stages[-1].ratios)


@pytest.mark.parametrize("value", [-1e3, -1e4])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("split", [None, [5]])
def test_parts_of_keys_that_a_finite_number_hides(
    split: list[int] | None, dtype: str, value: float
) -> None:
    """Where every key is hidden, the log-sum-exp by which parts are merged is about that number."""
    rng = np.random.default_rng(3)
    q, k, v = (
        rng.normal(size=shape).astype(dtype) for shape in ((2, 7, 3), (2, 11, 3), (2, 11, 5))
    )
    keep = rng.random((7, 11)) < 0.6
    keep[[1, 4]] = False
    scores = q @ np.swapaxes(k, 1, 2) / q.dtype.type(3**0.5)
    x = np.where(keep, scores, q.dtype.type(value))
    outputs, sums = [], []
    for keys in (slice(0, 5), slice(5, 11)):
        top = x[..., keys].max(axis=-1, keepdims=True)
        powers = np.exp(x[..., keys] - top)
        outputs.append(powers / powers.sum(axis=-1, keepdims=True) @ v[:, keys])
        sums.append(top + np.log(powers.sum(axis=-1, keepdims=True)))
    lse = np.logaddexp(*sums)
    merged = sum(np.exp(own - lse) * output for own, output in zip(sums, outputs, strict=True))
    given: dict[str, Any] = {"q": q, "k": k, "v": v, "mask": keep, "mask_value": value}
    assert check(merged, **given, split=split).status == "match"
    wrong = merged.copy()
    wrong[:, 1] *= 1.05
    assert not check(wrong, **given, split=split)
