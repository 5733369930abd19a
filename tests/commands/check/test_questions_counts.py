"""Which keys count how often is solved from the numbers: computed here by plain loops."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from attncli.commands.check.diagnose import check
from attncli.commands.check.questions.key_sets import key_set
from tests.commands.check.planted.parts import TYPES
from tests.turns import in_turn

Array = np.ndarray[Any, Any]
HEADS, N_Q, N_K, D, D_V = 3, 7, 13, 5, 11


def inputs(
    seed: int, *lead: int, n_q: int = N_Q, n_k: int = N_K, kv_heads: int = HEADS
) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    shapes = ((*lead, HEADS, n_q, D), (*lead, kv_heads, n_k, D), (*lead, kv_heads, n_k, D_V))
    q, k, v = (rng.normal(size=shape) for shape in shapes)
    return q, k, v


def attention(
    q: Array,
    k: Array,
    v: Array,
    counts: Any,
    *,
    hidden: Any = False,
    zeros: float = 0,
    sinks: Any = None,
    cap: float = 0.0,
) -> tuple[Array, Array, Array]:
    """Output, weights and log-sum-exp, query by query; counts and hidden broadcast to the scores."""
    lead, n_q, n_k = q.shape[:-2], q.shape[-2], k.shape[-2]
    group = q.shape[-3] // k.shape[-3]
    often = np.broadcast_to(counts, (*lead, n_q, n_k))
    masked = np.broadcast_to(hidden, (*lead, n_q, n_k))
    output, weights, lse = (
        np.zeros((*lead, n_q, v.shape[-1])),
        np.zeros((*lead, n_q, n_k)),
        np.zeros((*lead, n_q)),
    )
    for at in np.ndindex((*lead, n_q)):
        kv = (*at[:-2], at[-2] // group)
        total = zeros + (np.exp(sinks[at[-2]]) if sinks is not None else 0.0)
        for j in range(n_k):
            score = q[at] @ k[kv][j] / np.sqrt(q.shape[-1])
            score = cap * np.tanh(score / cap) if cap else score
            weights[at][j] = 0 if masked[at][j] else often[at][j] * np.exp(score)
        total += weights[at].sum()
        weights[at] /= total
        output[at], lse[at] = weights[at] @ v[kv], np.log(total)
    return output, weights, lse


def keys(**others: float) -> Array:
    """How often each key counts: once, but for key_5=0."""
    counts = np.ones(N_K)
    for name, count in others.items():
        counts[int(name[4:]) - 1] = count
    return counts


def said(observed: Any, *arrays: Array, **more: Any) -> str:
    verdict = check(observed, *arrays, pairs=False, **more)
    assert verdict.status == "found", str(verdict)
    return verdict.explanations[0].name


PLACES = np.arange(N_K)
CASES = [
    (keys(key_5=0, key_6=0), "keys 5 and 6 count 0 times"),
    (np.where(PLACES % 6 > 3, 0, 1), "the last 2 of every 6 keys count 0 times"),
    (np.where(PLACES % 5 == 0, 0, 1), "the first of every 5 keys counts 0 times"),
    (np.where(PLACES < 9, 1, 0), "the keys from 10 on count 0 times"),
    (keys(key_12=0), "key 12 counts 0 times"),
    (np.where(PLACES < 4, 2, 1), "the first 4 keys count 2 times"),  # a page read twice
    (np.where(PLACES < 4, 2, np.where(PLACES < 8, 0, 1)), "k and v of keys 5 to 8 are those of keys 1 to 4 (page 2 is page 1, pages of 4)"),
    (keys(key_6=2, key_7=2), "keys 6 and 7 count 2 times"),  # parts that overlap
    (keys(key_2=0, key_6=0, key_7=3, key_11=0), "keys 2, 6 and 11 count 0 times and key 7 counts 3 times"),
    (keys(key_3=0.5), "key 3 counts 0.5 times"),
]  # fmt: skip


@pytest.mark.parametrize(("counts", "sentence"), CASES)
def test_keys_that_count_otherwise(counts: Array, sentence: str, dtype: str) -> None:
    arrays = tuple(x.astype(dtype) for x in inputs(1, 2))
    q, k, v = (x.astype(float) for x in arrays)
    exact = attention(q, k, v, counts)[0]
    assert said(exact.astype(dtype), *arrays) == sentence


def test_keys_in_bfloat16() -> None:
    rng = np.random.default_rng(2)
    q, k, v = (
        rng.normal(size=x).astype(TYPES["bfloat16"])
        for x in ((3, 31, 17), (3, 29, 17), (3, 29, 13))
    )
    counts = np.where(np.arange(29) % 7 > 4, 0, 1)
    output = attention(q.astype(float), k.astype(float), v.astype(float), counts)[0]
    assert (
        said(output.astype(TYPES["bfloat16"]), q, k, v)
        == "the last 2 of every 7 keys count 0 times"
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize(
    "sentence",
    [
        "key 2 counts 3 times",  # which nearly all queries see
        "key 67 counts 0 times",  # which few do
        "key 3 counts 0 times and key 61 counts 2 times",
    ],
)
def test_counts_under_a_causal_limit(sentence: str, dtype: str) -> None:
    number_type = TYPES.get(dtype, np.dtype(dtype))
    q, k, v = (x.astype(number_type) for x in inputs(17, n_q=71, n_k=71))
    counts = np.ones(71)
    for number, times in re.findall(r"key (\d+) counts? ([\d.]+)", sentence):
        counts[int(number) - 1] = float(times)
    hidden = np.triu(np.ones((71, 71), dtype=bool), 1)
    exact = (q.astype(float), k.astype(float), v.astype(float))
    output = attention(*exact, counts, hidden=hidden)[0]
    assert said(output.astype(number_type), q, k, v, causal=True) == sentence


def test_under_masks_shared_heads_and_a_softcap() -> None:
    q, k, v = inputs(3, 2, kv_heads=1)
    counts = keys(key_3=0, key_4=0)
    after = np.arange(N_Q)[:, None] + N_K - N_Q < PLACES
    far = np.arange(N_Q)[:, None] + N_K - N_Q - PLACES > 9
    output = attention(q, k, v, counts, hidden=after | far, cap=2.0)[0]
    convention = {"causal": True, "causal_align": "bottom-right", "window": (9, -1), "softcap": 2.0}
    assert said(output, q, k, v, **convention) == "keys 3 and 4 count 0 times"
    mask = np.random.default_rng(4).random((N_Q, N_K)) < 0.7
    output = attention(q, k, v, counts, hidden=~mask)[0]
    assert said(output, q, k, v, mask=mask) == "keys 3 and 4 count 0 times"


@pytest.mark.parametrize("stage", ["weights", "lse", "both"])
def test_the_weights_and_the_log_sum_exp_say_it_too(stage: str) -> None:
    q, k, v = inputs(5)
    output, weights, lse = attention(q, k, v, keys(key_5=0, key_6=2))
    observed: Any = {"weights": weights, "lse": lse, "both": {"output": output, "lse": lse}}[stage]
    observed = observed if stage == "both" else {stage: observed}
    assert said(observed, q, k, v) == "key 5 counts 0 times and key 6 counts 2 times"


def test_the_log_sum_exp_alone_counts_otherwise() -> None:
    q, k, v = inputs(6)
    output, _, _ = attention(q, k, v, keys())
    lse = attention(q, k, v, keys(), zeros=3)[2]
    assert said({"output": output, "lse": lse}, q, k, v) == "3 keys of zeros count"


ZEROS = [(15, 5, True), (22, 11, True), (13, 5, False)]
"""The number of keys, the number of zeros after them, and whether both fill a page."""


@pytest.mark.parametrize(("case", "dtype"), in_turn(ZEROS, ["float64", "float32", "bfloat16"]))
def test_keys_of_zeros(case: tuple[int, int, bool], dtype: str) -> None:
    n_k, zeros, page = case
    arrays = tuple(x.astype(TYPES.get(dtype, dtype)) for x in inputs(7, 2, n_k=n_k))
    q, k, v = (x.astype(float) for x in arrays)
    output = attention(q, k, v, 1, zeros=zeros)[0]
    sentence = said(output.astype(arrays[0].dtype), *arrays)
    assert sentence == f"{zeros} keys of zeros count" + " (the page after the end)" * page


def test_keys_of_zeros_beside_sinks_and_a_lost_key() -> None:
    q, k, v = inputs(8, 2)
    sinks = np.random.default_rng(8).normal(size=HEADS)
    counts = keys(key_2=0)
    output = attention(q, k, v, counts, zeros=3, sinks=sinks + np.log(2))[0]
    sentence = said(output, q, k, v, sinks=sinks)
    expected = "key 2 counts 0 times, the sink counts 2 times and 3 keys of zeros count"
    assert sentence == expected


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_each_head_and_each_item_by_itself(dtype: str) -> None:
    arrays = tuple(x.astype(dtype) for x in inputs(9, 2))
    q, k, v = (x.astype(float) for x in arrays)
    by_head = np.stack([keys(key_2=0), keys(key_9=0), keys(key_4=2)])[:, None]
    sentence = said(attention(q, k, v, by_head)[0].astype(dtype), *arrays)
    assert (
        sentence
        == "in head 1 key 2 counts 0 times; in head 2 key 9 counts 0 times; in head 3 key 4 counts 2 times"
    )
    by_item = np.stack([keys(key_2=0), keys(key_9=0)])[:, None, None]
    sentence = said(attention(q, k, v, by_item)[0].astype(dtype), *arrays)
    assert sentence == "in batch item 1 key 2 counts 0 times; in batch item 2 key 9 counts 0 times"


def test_keys_at_a_distance_from_the_query() -> None:
    q, k, v = inputs(10, 2, n_q=N_K)
    apart = PLACES - PLACES[:, None]
    output = attention(q, k, v, np.where(apart == 0, 0, 1))[0]
    sentence = said(output, q, k, v)
    assert "own position" in sentence
    assert "counts 0 times" in sentence
    output = attention(q, k, v, np.where(apart == -2, 2, 1), hidden=apart > 0)[0]
    assert (
        said(output, q, k, v, causal=True)
        == "the key 2 before the query's own position counts 2 times"
    )


def test_rows_that_are_no_numbers_are_left_out() -> None:
    q, k, v = inputs(14, 2)
    output = attention(q, k, v, keys(key_5=0, key_9=2))[0]
    output[0, 1, -3:] = np.nan
    sentence = said(output, q, k, v)
    assert "key 5 counts 0 times and key 9 counts 2 times" in sentence
    assert "not written" in sentence


def test_a_lost_key_in_some_rows_and_a_row_not_written() -> None:
    q, k, v = inputs(11)
    counts = np.ones((N_Q, N_K))
    counts[4:, 2] = 0
    sentence = said(attention(q, k, v, counts)[0], q, k, v)
    assert sentence == "in queries 5 to 7: key 3 counts 0 times"
    for lost in (1, 12):  # key 1 is a part by itself, with a share of 0
        output = attention(q, k, v, keys(**{f"key_{lost}": 0}))[0]
        output[:, -1] = 0
        sentence = said(output, q, k, v)
        assert f"key {lost} counts 0 times" in sentence
        assert "query 7 is 0: not written" in sentence


def test_a_lost_key_and_a_row_not_written_of_as_many_queries_as_keys() -> None:
    q, k, v = inputs(13, n_q=N_Q, n_k=N_Q)
    output = attention(q, k, v, np.arange(N_Q) != 6)[0]
    output[:, -1] = 0
    assert said(output, q, k, v) == "key 7 counts 0 times and query 7 is 0: not written"


def test_gradients_follow() -> None:
    q, k, v = inputs(12)
    d_output = np.random.default_rng(12).normal(size=(HEADS, N_Q, D_V))
    output, weights, _ = attention(q, k, v, keys(key_4=0, key_8=2))
    d_v = np.swapaxes(weights, -1, -2) @ d_output
    observed = {"output": output, "d_v": d_v}
    sentence = said(observed, q, k, v, d_output=d_output)
    assert sentence == "key 4 counts 0 times and key 8 counts 2 times"


def test_a_set_of_keys_in_words_absorbs_what_is_unknown() -> None:
    members, is_known = PLACES % 6 > 3, PLACES != 10
    assert key_set(members & is_known, is_known).words == "the last 2 of every 6 keys"


def test_random_numbers_are_nothing_counted() -> None:
    q, k, v = inputs(13, 2)
    output = attention(q, k, v, 1)[0]
    noise = np.random.default_rng(13).normal(size=output.shape)
    verdict = check(output + noise * (noise > 0.5), q, k, v, pairs=False)
    assert not verdict.explanations
