"""Right implementations of unusual forms, in every number type: check has nothing against them.

Each computes softmax(q kᵀ · scale) v of [batch, head, n, d] in its own way, in plain NumPy.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from attncli.arrays import Array
from attncli.commands.check.diagnose import check
from tests.turns import in_turn

B, H, N_Q, N_K, D, E = 2, 3, 11, 13, 7, 5
TYPES = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}  # fmt: skip
"""Each form is run in one of them by default, in all with --exhaustive."""
WIDE = {"float64": np.float64, "float32": np.float32, "float16": np.float32, "bfloat16": np.float32}


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def scores(q: Array, k: Array) -> Array:
    return np.asarray(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.dtype.type(q.shape[-1])))


def by_loops(q: Array, k: Array, v: Array) -> Array:
    out = np.zeros((*q.shape[:3], v.shape[-1]), q.dtype)
    for b, h, i in np.ndindex(q.shape[:3]):
        powers = np.exp([(q[b, h, i] * key).sum() / np.sqrt(D) for key in k[b, h]])
        for weight, value in zip(powers / powers.sum(), v[b, h], strict=True):
            out[b, h, i] += weight * value
    return out


def in_base_2(q: Array, k: Array, v: Array) -> Array:
    x = scores(q, k) * q.dtype.type(np.log2(np.e))
    powers = np.exp2(x - x.max(axis=-1, keepdims=True))
    return np.asarray(powers @ v / powers.sum(axis=-1, keepdims=True))


def keys_in_another_order(q: Array, k: Array, v: Array) -> Array:
    order = np.argsort(k[..., 0], axis=-1)[..., None]
    k, v = (np.take_along_axis(x, order, axis=2) for x in (k, v))
    return np.asarray(softmax(scores(q, k)) @ v)


def scores_transposed(q: Array, k: Array, v: Array) -> Array:
    x = np.swapaxes(scores(k, q), -1, -2)  # d is that of both
    return np.asarray(softmax(x) @ v)


def tokens_first(q: Array, k: Array, v: Array) -> Array:
    q, k, v = (x.transpose(0, 2, 1, 3).copy() for x in (q, k, v))
    weights = softmax(np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(q.dtype.type(D)))
    return np.asarray(np.einsum("bhij,bjhe->bihe", weights, v).transpose(0, 2, 1, 3))


def heads_in_the_batch(q: Array, k: Array, v: Array) -> Array:
    q, k, v = (x.reshape(B * H, *x.shape[2:]) for x in (q, k, v))
    return np.asarray(softmax(scores(q, k)) @ v).reshape(B, H, N_Q, E)


def scale_in_both(q: Array, k: Array, v: Array) -> Array:
    root = q.dtype.type(D**-0.25)
    return np.asarray(softmax((q * root) @ np.swapaxes(k * root, -1, -2)) @ v)


def values_before_the_sum(q: Array, k: Array, v: Array) -> Array:
    """A column of ones among the values gives the sum."""
    x = scores(q, k)
    ones = np.ones((*v.shape[:3], 1), v.dtype)
    both = np.exp(x - x.max(axis=-1, keepdims=True)) @ np.concatenate([v, ones], axis=-1)
    return np.asarray(both[..., :-1] / both[..., -1:])


def one_maximum_for_all(q: Array, k: Array, v: Array) -> Array:
    x = scores(q, k)
    powers = np.exp(x - x.max())
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True) @ v)


def by_the_log_of_the_sum(q: Array, k: Array, v: Array) -> Array:
    x = scores(q, k)
    return np.asarray(np.exp(x - np.logaddexp.reduce(x, axis=-1, keepdims=True)) @ v)


def in_tiles_of_queries_and_keys(q: Array, k: Array, v: Array) -> Array:
    out = np.empty((B, H, N_Q, E), q.dtype)
    for first in range(0, N_Q, 4):
        rows = q[:, :, first : first + 4]
        top = np.full((*rows.shape[:3], 1), -np.inf, q.dtype)
        total, acc = np.zeros_like(top), np.zeros((*rows.shape[:3], E), q.dtype)
        for start in range(0, N_K, 5):
            x = scores(rows, k[:, :, start : start + 5])
            new = np.maximum(top, x.max(axis=-1, keepdims=True))
            powers, old = np.exp(x - new), np.exp(top - new)
            total = total * old + powers.sum(axis=-1, keepdims=True)
            acc = acc * old + powers @ v[:, :, start : start + 5]
            top = new
        out[:, :, first : first + 4] = acc / total
    return out


def parts_merged_by_their_logarithms(q: Array, k: Array, v: Array) -> Array:
    outputs, logs = [], []
    for part in (slice(0, 3), slice(3, 4), slice(4, None)):
        x = scores(q, k[:, :, part])
        logs.append(np.logaddexp.reduce(x, axis=-1, keepdims=True))
        outputs.append(np.exp(x - logs[-1]) @ v[:, :, part])
    total = np.logaddexp.reduce(np.stack(logs), axis=0)
    return np.sum([np.exp(log - total) * x for log, x in zip(logs, outputs, strict=True)], axis=0)  # type: ignore[no-any-return]


def merged_as_a_tree(q: Array, k: Array, v: Array) -> Array:
    """Each key is a part; two neighbours become one until one is left."""
    x = scores(q, k)
    parts = [(x[..., j : j + 1], v[:, :, None, j] + np.zeros((1, 1, N_Q, 1), v.dtype)) for j in range(N_K)]  # fmt: skip
    while len(parts) > 1:
        pairs = []
        for (a, left_out), (b, right_out) in zip(parts[::2], parts[1::2], strict=False):
            both = np.logaddexp(a, b)
            pairs.append((both, np.exp(a - both) * left_out + np.exp(b - both) * right_out))
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0][1]


def keys_in_pages(q: Array, k: Array, v: Array) -> Array:
    """Pages of 4 places, in another order, found by a table."""
    padding = [(0, 0), (0, 0), (0, -N_K % 4), (0, 0)]
    pages = np.array([2, 0, 3, 1])
    stored = [np.pad(x, padding).reshape(B, H, 4, 4, -1)[:, :, np.argsort(pages)] for x in (k, v)]
    k, v = (x[:, :, pages].reshape(B, H, 16, -1)[:, :, :N_K] for x in stored)
    return np.asarray(softmax(scores(q, k)) @ v)


def padded_and_hidden(q: Array, k: Array, v: Array) -> Array:
    more = np.full((B, H, 6, D), 100, q.dtype)
    x = scores(q, np.concatenate([k, more], axis=2))
    x[..., N_K:] = np.finfo(q.dtype).min
    values = np.concatenate([v, np.ones((B, H, 6, E), v.dtype)], axis=2)
    return np.asarray(softmax(x) @ values)


def by_a_dictionary_of_rows(q: Array, k: Array, v: Array) -> Array:
    rows = {at: softmax(scores(q[at][None], k[at[:2]])) @ v[at[:2]] for at in np.ndindex(B, H, N_Q)}
    return np.array([*rows.values()]).reshape(B, H, N_Q, E)


def differences_from_the_first(q: Array, k: Array, v: Array) -> Array:
    """A constant of each row changes no weight: scores less that of the first key."""
    x = scores(q, k - k[:, :, :1])
    return np.asarray(softmax(x) @ v)


def values_less_their_mean(q: Array, k: Array, v: Array) -> Array:
    mean = v.mean(axis=2, keepdims=True)
    return np.asarray(softmax(scores(q, k)) @ (v - mean) + mean)


def from_the_last_key_on(q: Array, k: Array, v: Array) -> Array:
    return values_before_the_sum(q, k[:, :, ::-1], v[:, :, ::-1])


def sigmoids_of_differences(q: Array, k: Array, v: Array) -> Array:
    """1 / Σ exp(x_c − x_j), without any maximum."""
    x = scores(q, k)
    weights = 1 / np.exp(x[..., None, :] - x[..., :, None]).sum(axis=-1)
    return np.asarray(weights @ v)


def in_double_and_back(q: Array, k: Array, v: Array) -> Array:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    return np.asarray(softmax(scores(q, k)) @ v)


FORMS: tuple[Callable[[Array, Array, Array], Array], ...] = (
    by_loops,
    in_base_2,
    keys_in_another_order,
    scores_transposed,
    tokens_first,
    heads_in_the_batch,
    scale_in_both,
    values_before_the_sum,
    one_maximum_for_all,
    by_the_log_of_the_sum,
    in_tiles_of_queries_and_keys,
    parts_merged_by_their_logarithms,
    merged_as_a_tree,
    keys_in_pages,
    padded_and_hidden,
    by_a_dictionary_of_rows,
    differences_from_the_first,
    values_less_their_mean,
    from_the_last_key_on,
    sigmoids_of_differences,
    in_double_and_back,
)


def inputs(dtype: str) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=(B, H, n, d)).astype(TYPES[dtype]) for n, d in ((N_Q, D), (N_K, D), (N_K, E))]  # fmt: skip


@pytest.mark.parametrize(("form", "dtype"), in_turn(FORMS, TYPES, name=lambda form: form.__name__))
def test_the_output_matches(form: Callable[..., Array], dtype: str) -> None:
    arrays = inputs(dtype)
    observed = form(*(x.astype(WIDE[dtype]) for x in arrays)).astype(TYPES[dtype])
    assert check(observed, *arrays).status == "match"


# ---- what hides keys, and what is done to scores


def causal_by_rows(q: Array, k: Array, v: Array) -> Array:
    """Each query is given the keys up to its own alone."""
    rows = [softmax(scores(q[:, :, i : i + 1], k[:, :, : i + 1])) @ v[:, :, : i + 1] for i in range(N_Q)]  # fmt: skip
    return np.concatenate(rows, axis=2)


def window_by_slices(q: Array, k: Array, v: Array) -> Array:
    """Each query is given its own key and the three before it."""
    parts = [slice(max(0, i - 3), i + 1) for i in range(N_Q)]
    rows = [softmax(scores(q[:, :, i : i + 1], k[:, :, part])) @ v[:, :, part] for i, part in enumerate(parts)]  # fmt: skip
    return np.concatenate(rows, axis=2)


def ragged(q: Array, k: Array, v: Array) -> Array:
    """Each batch item has its own number of keys."""
    items = [softmax(scores(q[b], k[b, :, :n])) @ v[b, :, :n] for b, n in enumerate((13, 5))]
    return np.stack(items)


def a_column_of_sinks(q: Array, k: Array, v: Array) -> Array:
    column = np.broadcast_to(SINKS.astype(q.dtype)[:, None, None], (B, H, N_Q, 1))
    return np.asarray(softmax(np.concatenate([scores(q, k), column], axis=-1))[..., :-1] @ v)


def shared_heads_repeated(q: Array, k: Array, v: Array) -> Array:
    k, v = (np.repeat(x[:, :1], H, axis=1) for x in (k, v))
    return np.asarray(softmax(scores(q, k)) @ v)


def shared_heads_as_queries(q: Array, k: Array, v: Array) -> Array:
    """The heads that share a key head lie one below the other."""
    rows = q.reshape(B, 1, H * N_Q, D)
    return np.asarray(softmax(scores(rows, k[:, :1])) @ v[:, :1]).reshape(B, H, N_Q, E)


def capped(q: Array, k: Array, v: Array) -> Array:
    x = scores(q, k)
    once = np.exp(-2 * np.abs(x) / 2)
    return np.asarray(softmax(2 * np.sign(x) * (1 - once) / (1 + once)) @ v)


def slopes_by_keys_alone(q: Array, k: Array, v: Array) -> Array:
    """A bias by distance less that of the query, which changes no weight."""
    return np.asarray(softmax(scores(q, k) + np.arange(N_K, dtype=q.dtype) / 4) @ v)


SINKS = np.array([0.5, -1.25, 2.0])
BIAS = (np.arange(N_K) - np.arange(N_Q)[:, None]) / 4
WITH: tuple[tuple[Callable[..., Array], dict[str, Any]], ...] = (
    (causal_by_rows, {"causal": True}),
    (window_by_slices, {"causal": True, "window": (3, 0)}),
    (ragged, {"kv_len": [13, 5]}),
    (a_column_of_sinks, {"sinks": SINKS}),
    (shared_heads_repeated, {}),
    (shared_heads_as_queries, {}),
    (capped, {"softcap": 2.0}),
    (slopes_by_keys_alone, {"mask": BIAS, "mask_means": "add"}),
)


@pytest.mark.parametrize(
    ("case", "dtype"), in_turn(WITH, TYPES, name=lambda case: case[0].__name__)
)
def test_it_matches_with_options(
    case: tuple[Callable[..., Array], dict[str, Any]], dtype: str
) -> None:
    form, options = case
    q, k, v = inputs(dtype)
    k, v = (x[:, :1] if "shared" in form.__name__ else x for x in (k, v))
    observed = form(*(x.astype(WIDE[dtype]) for x in (q, k, v))).astype(TYPES[dtype])
    converted = {
        name: x.astype(TYPES[dtype]) if name == "sinks" else x for name, x in options.items()
    }
    assert check(observed, q, k, v, **converted).status == "match"


# ---- gradients


def gradients(
    q: Array, k: Array, v: Array, d: Array, delta_of: str, block: int
) -> dict[str, Array]:
    """dQ, dK, dV by blocks of queries, whose weights are computed again from a log-sum-exp."""
    x = scores(q, k)
    lse = np.logaddexp.reduce(x, axis=-1, keepdims=True)
    output, root = np.exp(x - lse) @ v, np.sqrt(q.dtype.type(D))
    d_q, d_k, d_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for first in range(0, N_Q, block):
        at = (slice(None), slice(None), slice(first, first + block))
        weights = np.exp(scores(q[at], k) - lse[at])
        d_weights = d[at] @ np.swapaxes(v, -1, -2)
        terms = d[at] * output[at] if delta_of == "output" else weights * d_weights
        d_scores = weights * (d_weights - terms.sum(axis=-1, keepdims=True)) / root
        d_q[at] = d_scores @ k
        d_k += np.swapaxes(d_scores, -1, -2) @ q[at]
        d_v += np.swapaxes(weights, -1, -2) @ d[at]
    return {"d_q": d_q, "d_k": d_k, "d_v": d_v}


@pytest.mark.parametrize(
    ("case", "dtype"), in_turn([*product(["output", "weights"], [1, 3, N_Q])], TYPES)
)
def test_gradients_match(case: tuple[str, int], dtype: str) -> None:
    delta_of, block = case
    arrays = inputs(dtype)
    d = np.random.default_rng(5).normal(size=(B, H, N_Q, E)).astype(TYPES[dtype])
    q, k, v, d_wide = (x.astype(WIDE[dtype]) for x in (*arrays, d))
    observed = gradients(q, k, v, d_wide, delta_of, block)
    rounded = {name: x.astype(TYPES[dtype]) for name, x in observed.items()}
    assert check(rounded, *arrays, d_output=d).status == "match"
