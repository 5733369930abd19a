"""An operand that is read at another place: the wrong numbers are computed by loops over cells."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.commands.check import search
from attncli.commands.check.bugs.catalogue import CATALOGUE
from attncli.commands.check.diagnose import check
from attncli.commands.check.questions.answer import place_maps
from attncli.commands.check.verdict import Verdict
from tests.turns import in_turn

BATCH, HEADS, N_Q, N_K, D_K, D_V = 5, 3, 7, 13, 2, 11


class Inputs(NamedTuple):
    q: Array
    k: Array
    v: Array


def inputs(
    *shape: int, seed: int = 0, groups: int | None = None, d_v: int = D_V, d_k: int = D_K
) -> Inputs:
    batch, heads, n_q, n_k = shape or (BATCH, HEADS, N_Q, N_K)
    random = np.random.default_rng(seed)
    groups = groups or heads
    return Inputs(
        random.normal(size=(batch, heads, n_q, d_k)),
        random.normal(size=(batch, groups, n_k, d_k)),
        random.normal(size=(batch, groups, n_k, d_v)),
    )


Place4 = Callable[[int, int, int, int], Any]
Place3 = Callable[[int, int, int], tuple[int, int, int]]


def same(b: int, h: int, x: int) -> tuple[int, int, int]:
    return b, h, x


def attention(
    x: Inputs,
    query: Place3 = same,
    key: Place3 = same,
    value: Place3 = same,
    row: Place3 = same,
    sees: Place4 = lambda b, h, i, j: True,
    adds: Place4 = lambda b, h, i, j: 0.0,
    sink: Callable[[int], float] = lambda h: -math.inf,
) -> Array:
    """Attention, a cell at a time, of which each operand is read where these functions say.

    row  whose scores a row has, before the mask; heads of keys are those of the key heads
    """
    batch, heads, n_q, _ = x.q.shape
    groups, n_k = x.k.shape[1:3]
    output = np.zeros((batch, heads, n_q, x.v.shape[-1]))
    for b in range(batch):
        for h in range(heads):
            for i in range(n_q):
                at, of, it = row(b, h, i)
                total, powers = np.exp(sink(h)), np.zeros(n_k)
                for j in range(n_k):
                    if sees(b, h, i, j):
                        k = x.k[key(at, of * groups // heads, j)]
                        score = x.q[query(at, of, it)] @ k / math.sqrt(x.q.shape[-1])
                        powers[j] = np.exp(score + adds(b, h, i, j))
                        total += powers[j]
                for j in range(n_k):
                    if total:
                        v = x.v[value(b, h * groups // heads, j)]
                        output[b, h, i] += powers[j] / total * v
    return output


def cause(verdict: Verdict) -> str:
    assert verdict.status == "found", verdict
    (explanation,) = verdict.explanations
    return explanation.name


def mask_of(*shape: int, seed: int = 7) -> Array:
    return np.random.default_rng(seed).random(shape) < 0.6


@pytest.mark.parametrize(
    ("planted", "facts"),
    [
        ({"key": lambda b, g, j: (b, g, j // 4 * 4)}, ["key", "first", "block of 4", "values"]),
        ({"key": lambda b, g, j: (b, g, j % 5)}, ["key", "modulo 5"]),
        ({"key": lambda b, g, j: (b, g, (j - 1) % N_K)}, ["key", "one before"]),
        ({"key": lambda b, g, j: (b, g, N_K - 1 - j)}, ["key", "reverse"]),
        ({"value": lambda b, g, j: (b, g, j // 3 * 3)}, ["value", "first", "block of 3"]),
        ({"value": lambda b, g, j: (b, g // 2 * 2, j)}, ["v of", "head 2", "head 1"]),
        ({"value": lambda b, g, j: (b % 2, g, j)}, ["v", "batch items 3 and 5", "item 1"]),
        ({"key": lambda b, g, j: (b // 3 * 3, g, j)}, ["k of batch items 2 and 3", "item 1"]),
        ({"key": lambda b, g, j: ((b + 1) % BATCH, g, j)}, ["k of", "batch item", "one after"]),
        ({"key": lambda b, g, j: (b, (1, 1, 0)[g], j)}, ["k of", "head 1", "head 2"]),
        ({"query": lambda b, h, i: (b, h // 2 * 2, i)}, ["q of head 2", "head 1"]),
        ({"query": lambda b, h, i: (b % 3, h, i)}, ["q of batch item 4", "batch item 1"]),
        ({"row": lambda b, h, i: (b % 3, h, i)}, ["scores of batch item 4", "batch item 1"]),
        ({"row": lambda b, h, i: (b, (1, 1, 0)[h], i)}, ["scores of head 1", "head 2"]),
        ({"row": lambda b, h, i: (b, (0, 2, 0)[h], i)}, ["scores of head 2", "head 3"]),
    ],
)
def test_operands(planted: dict[str, Any], facts: list[str], dtype: str) -> None:
    x = inputs()
    observed = attention(x, **planted).astype(dtype)
    name = cause(check(observed, *(y.astype(dtype) for y in x)))
    assert all(fact in name for fact in facts), name


def test_k_and_v() -> None:
    x = inputs()

    def last(b: int, g: int, j: int) -> tuple[int, int, int]:
        return b, g, min(j // 3 * 3 + 2, N_K - 1)

    name = cause(check(attention(x, key=last, value=last), *x))
    assert "key" in name
    assert "value" in name
    assert "last of its block of 3" in name


def test_queries() -> None:
    x = inputs()
    observed = attention(
        x, query=lambda b, h, i: (b, h, i // 3 * 3), sees=lambda b, h, i, j: j <= i
    )
    name = cause(check(observed, *x, causal=True))
    assert "q of each query" in name
    assert "first of its block of 3" in name


def test_key_heads() -> None:
    x = inputs(2, 10, 7, 11, groups=5)

    def other(b: int, g: int, j: int) -> tuple[int, int, int]:
        return b, (0, 2, 1, 4, 4)[g], j

    name = cause(check(attention(x, value=other), *x))
    assert "key head 2" in name
    assert "key head 3" in name


@pytest.mark.parametrize(
    ("read", "facts"),
    [
        (lambda b, h, i, j: (b, h, i // 3 * 3, j), ["mask", "query", "first", "block of 3"]),
        (lambda b, h, i, j: (b, h, min(i // 2 * 2 + 1, 6), j), ["query", "last", "block of 2"]),
        (lambda b, h, i, j: (b, h, i, j % 4), ["mask", "key", "modulo 4"]),
        (lambda b, h, i, j: (b, h, i, (j + 1) % N_K), ["mask", "key", "one after"]),
        (lambda b, h, i, j: (b, h // 2 * 2, i, j), ["mask of head 2", "head 1"]),
        (lambda b, h, i, j: (b % 3, h, i, j), ["mask of batch item 4", "batch item 1"]),
    ],
)
def test_masks(read: Callable[..., tuple[int, ...]], facts: list[str], dtype: str) -> None:
    x, mask = inputs(), mask_of(BATCH, HEADS, N_Q, N_K)
    mask[..., 5] = True
    observed = attention(x, sees=lambda *at: mask[read(*at)]).astype(dtype)
    name = cause(check(observed, *(y.astype(dtype) for y in x), mask=mask))
    assert all(fact in name for fact in facts), name


def test_a_bias() -> None:
    x, bias = inputs(), np.random.default_rng(3).normal(size=(HEADS, N_Q, N_K))
    observed = attention(x, adds=lambda b, h, i, j: bias[h, i, j // 4 * 4])
    name = cause(check(observed, *x, mask=bias))
    assert "mask" in name
    assert "first of its block of 4" in name


@pytest.mark.parametrize(
    ("limit", "facts"),
    [
        (lambda i: i // 4 * 4 + 3, ["causal by blocks of 4", "end"]),
        (lambda i: i // 2 * 2 + 1, ["causal by blocks of 2", "end"]),
        (lambda i: i // 3 * 3, ["causal by blocks of 3", "first query"]),
        (lambda i: N_Q - 1 - i, ["causal limit", "reverse"]),
        (lambda i: min(i, 4), ["causal limit"]),
    ],
)
def test_causal_limits(limit: Callable[[int], int], facts: list[str]) -> None:
    x = inputs()
    observed = attention(x, sees=lambda b, h, i, j: j <= limit(i))
    name = cause(check(observed, *x, causal=True))
    assert all(fact in name for fact in facts), name


def test_causal_limits_by_blocks_of_keys() -> None:
    x = inputs()
    observed = attention(x, sees=lambda b, h, i, j: j // 4 * 4 <= i + N_K - N_Q)
    name = cause(check(observed, *x, causal=True, causal_align="bottom-right"))
    assert "causal by blocks of 4 keys" in name


LENGTHS = 13, 7, 11, 9, 8


@pytest.mark.parametrize(
    ("sees", "facts"),
    [
        (
            lambda b, i, j: j <= i + 13 - N_Q and j < LENGTHS[b],
            ["causal limit", "every batch item", "longest", "13"],
        ),
        (
            lambda b, i, j: j <= i + LENGTHS[b // 2 * 2] - N_Q and j < LENGTHS[b],
            ["causal limit", "batch items 2 and 4", "13, 11"],
        ),
    ],
)
def test_lengths(sees: Callable[[int, int, int], bool], facts: list[str]) -> None:
    x = inputs()
    observed = attention(x, sees=lambda b, h, i, j: sees(b, i, j))
    verdict = check(observed, *x, causal=True, causal_align="bottom-right", kv_len=LENGTHS)
    name = cause(verdict)
    assert all(fact in name for fact in facts), name


def test_float16_and_shared_key_heads() -> None:
    x = Inputs(*(y.astype(np.float16).astype(np.float64) for y in inputs(2, 6, 7, 13, groups=3)))
    observed = attention(x, key=lambda b, g, j: (b, g, j // 4 * 4)).astype(np.float16)
    name = cause(check(observed, *(y.astype(np.float16) for y in x)))
    assert "first of its block of 4" in name


SHAPES = [(1, 1, 1, 1), (1, 1, 1, 13), (2, 1, 7, 1), (1, 3, 7, 2), (3, 2, 3, 3)]


@pytest.mark.parametrize(
    ("shape", "mask"), in_turn(SHAPES[::-1], [(3, 1, 1, 1), None, (1,), (1, 1)])
)
def test_small_and_odd_inputs_are_judged(
    shape: tuple[int, int, int, int], mask: tuple[int, ...] | None
) -> None:
    x, random = inputs(*shape), np.random.default_rng(1)
    is_fitting = mask is not None and (len(mask) < 4 or shape[0] == 3)
    given_mask = random.normal(size=mask) if is_fitting else None
    observed = random.normal(size=(*shape[:3], D_V))
    observed[0, 0, 0, 0] = np.nan
    assert check(observed, *x, mask=given_mask, pairs=False).status == "no match"


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (lambda i: i // 5 * 5, "attention in chunks of 5, not in a sliding window"),
        (lambda i: i // 3 * 3, "attention in chunks of 3, not in a sliding window"),
        (lambda i: max(0, i // 4 * 4 - 4), "the window's start of each query is that of the first of its block of 4"),
    ],
)  # fmt: skip
def test_a_window_that_starts_elsewhere_beside_a_causal_mask(
    first: Callable[[int], int], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tuple(bug for bug in CATALOGUE if "chunks" not in bug.name)
    monkeypatch.setattr(search, "CATALOGUE", rows)
    x = inputs(2, 3, 13, 13)
    observed = attention(x, sees=lambda b, h, i, j: first(i) <= j <= i)
    name = cause(check(observed, *x, causal=True, window=(4, 0)))
    assert name.startswith(words)


@pytest.mark.parametrize(
    ("stage", "masked"), in_turn(["scores", "scaled", "masked", "weights", "lse"], [False, True])
)
def test_other_stages_are_judged(stage: str, masked: bool) -> None:
    x, random = inputs(), np.random.default_rng(1)
    mask = random.random((N_Q, N_K)) < 0.7 if masked else None
    shape = (BATCH, HEADS, N_Q) if stage == "lse" else (BATCH, HEADS, N_Q, N_K)
    verdict = check(random.normal(size=shape), *x, stage=stage, mask=mask, pairs=False)
    assert verdict.status == "no match"


@pytest.mark.parametrize("n", [1031, 5003, 70001])
def test_the_maps_of_a_long_axis_are_few(n: int) -> None:
    maps = [*place_maps(n)]
    assert n * len(maps) < 2**23  # 64 MB, where all would take 8 n² numbers
    assert all(0 <= x.indices.min() <= x.indices.max() < n for x in maps)
    assert len({x.indices.tobytes() for x in maps}) == len(maps)
    assert {f"the first of its block of {size}" for size in (2, 16, 64, 256)} <= {
        x.words for x in maps
    }


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (lambda j: j // 64 * 64, "each key is read as the first of its block of 64"),
        (lambda j: j % 512, "each key is read as its number modulo 512"),
        (lambda j: 2047 - j, "each key is read as the one at its place in reverse order"),
    ],
)
def test_many_keys_read_elsewhere(source: Callable[[Any], Any], words: str) -> None:
    x = inputs(1, 2, 5, 2048)
    scores = x.q @ x.k[:, :, source(np.arange(2048))].swapaxes(-1, -2) / math.sqrt(D_K)
    powers = np.exp(scores)
    output = powers / powers.sum(axis=-1, keepdims=True) @ x.v
    assert words in check(output, *x).explanations[0].name
