"""The streamed output against the one that `attend` computes with every stage."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli import Convention, ConventionError, ShapeError, attend
from attncli.attention import streaming
from attncli.attention.streaming import stream


@contextmanager
def blocks_of(queries: int, keys: int) -> Iterator[None]:
    """Blocks so small that a few rows and keys need several."""
    with (
        patch.object(streaming, "QUERIES", queries),
        patch.object(streaming, "KEYS", keys),
        patch.object(streaming, "CELLS", 3 * keys),
    ):
        yield


def numbers(*shape: int, seed: int = 0, size: float = 1.0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape) * size


def assert_streams(
    q: Any, k: Any, v: Any, *, rtol: float = 1e-9, size: float | None = None, **how: Any
) -> Any:
    """The streamed output equals that of `attend`, NaN and infinity in the same places."""
    trace = attend(q, k, v, **how)
    with np.errstate(all="raise"):
        streamed = stream(q, k, v, **how)
    expected = trace["output"].value
    finite = np.abs(np.where(np.isfinite(v), v, 0)).max()
    size = float(finite) if size is None else size
    assert streamed.dtype == expected.dtype
    assert streamed.shape == expected.shape
    np.testing.assert_allclose(streamed, expected, rtol=rtol, atol=rtol * max(size, 1e-300))
    return streamed


# shapes: every size another prime

SHAPES = [
    ((7, 3), (13, 3), (13, 5)),
    ((2, 7, 3), (2, 13, 3), (2, 13, 5)),
    ((6, 7, 3), (2, 13, 3), (2, 13, 5)),
    ((3, 4, 7, 5), (3, 2, 13, 5), (3, 2, 13, 11)),
    ((3, 5, 1, 2), (3, 1, 17, 2), (3, 1, 17, 1)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("causal", [False, True])
def test_shapes(shapes: Any, dtype: Any, causal: bool) -> None:
    q, k, v = (numbers(*shape) for shape in shapes)
    rtol = 1e-12 if dtype == "float64" else 1e-5
    for sizes in ((3, 5), (256, 512), (1, 1)):
        with blocks_of(*sizes):
            assert_streams(q, k, v, rtol=rtol, convention=Convention(dtype=dtype, causal=causal))


@pytest.mark.parametrize("n", [255, 256, 257, 511, 513, 1030])
@pytest.mark.parametrize("how", [Convention(causal=True), Convention(window=(300, 7))], ids=str)
def test_lengths_around_the_real_blocks(n: int, how: Convention) -> None:
    q, k, v = numbers(n, 4), numbers(n, 4, seed=1), numbers(n, 3, seed=2)
    assert_streams(q, k, v, rtol=1e-12, convention=how)


@pytest.mark.parametrize("order", ["blocks", "tiled"])
def test_grouped_heads(order: Any) -> None:
    q, k, v = numbers(2, 6, 7, 3), numbers(2, 3, 11, 3), numbers(2, 3, 11, 5)
    with blocks_of(2, 3):
        assert_streams(q, k, v, convention=Convention(head_order=order))


def test_a_cache_is_put_before() -> None:
    q, k, v = numbers(2, 3, 5), numbers(2, 3, 5, seed=1), numbers(2, 3, 7)
    past_k, past_v = numbers(2, 11, 5), numbers(2, 11, 7)
    with blocks_of(2, 5):
        assert_streams(q, k, v, past_k=past_k, past_v=past_v, convention=Convention(causal=True))


def test_key_lengths_and_bottom_right() -> None:
    q, k, v = numbers(3, 2, 7, 5), numbers(3, 2, 13, 5), numbers(3, 2, 13, 4)
    for causal in (False, True):
        how = Convention(causal=causal, causal_align="bottom-right")
        with blocks_of(3, 4):
            assert_streams(q, k, v, kv_len=[13, 5, 0], convention=how)


def test_a_mask_of_each_head_and_one_that_broadcasts() -> None:
    q, k, v = numbers(2, 3, 7, 5), numbers(2, 3, 11, 5), numbers(2, 3, 11, 4)
    rng = np.random.default_rng(3)
    for shape in ((2, 3, 7, 11), (3, 1, 11), (7, 11), (11,), (7, 1), (2, 1, 1, 11)):
        boolean, bias = rng.random(shape) < 0.4, rng.normal(size=shape)
        bias[rng.random(shape) < 0.3] = -np.inf
        with blocks_of(3, 4):
            assert_streams(q, k, v, mask=boolean)
            assert_streams(q, k, v, mask=boolean, convention=Convention(mask_means="ignore"))
            assert_streams(q, k, v, mask=bias)
            assert_streams(q, k, v, mask=rng.integers(-3, 3, shape))


# conventions

CONVENTIONS = st.builds(
    Convention,
    causal=st.booleans(),
    window=st.none() | st.tuples(st.integers(-1, 4), st.integers(-1, 4)),
    softcap=st.none() | st.floats(0.5, 50),
    softcap_place=st.sampled_from(["before-mask", "after-mask"]),
    scale=st.sampled_from(["1/sqrt(d_k)", "none", 0.125, -0.5, 0.0]),
    causal_align=st.sampled_from(["top-left", "bottom-right"]),
    mask_value=st.sampled_from([-np.inf, -1e9, -2.5, 0.0]),
    mask_means=st.sampled_from(["keep", "ignore"]),
    empty_rows=st.sampled_from(["zero", "nan", "uniform"]),
    head_order=st.sampled_from(["blocks", "tiled"]),
)
SIZES = st.integers(1, 9)


@st.composite
def cases(draw: Any, odd: str = "") -> dict[str, Any]:
    """Arguments of `attend`; NaN and infinities here and there in the arrays that `odd` names."""
    n_q, n_k, n_past, d_k, d_v, h_kv, times, batch = (draw(SIZES) for _ in range(8))
    heads, h_kv, batch = min(times, 3) * min(h_kv, 2), min(h_kv, 2), min(batch, 3)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = draw(st.sampled_from([1e-3, 1.0, 1.0, 20.0]))
    case = {
        "q": rng.normal(size=(batch, heads, n_q, d_k)) * size,
        "k": rng.normal(size=(batch, h_kv, n_k, d_k)) * size,
        "v": rng.normal(size=(batch, h_kv, n_k, d_v)),
    }
    for x in (case[name] for name in odd):
        place = rng.random(x.shape) < draw(st.sampled_from([0, 0.02, 0.1]))
        x[place] = rng.choice([np.nan, np.inf, -np.inf, 0.0], size=place.sum())
    n_past = draw(st.sampled_from([0, n_past]))
    if n_past:
        case["past_k"] = rng.normal(size=(batch, h_kv, n_past, d_k))
        case["past_v"] = rng.normal(size=(batch, h_kv, n_past, d_v))
    full = (batch, heads, n_q, n_k + n_past)
    shape = draw(st.sampled_from([full, full[1:], full[2:], (batch, 1, 1, full[3]), (n_q, 1)]))
    boolean = rng.random(shape) < draw(st.sampled_from([0.1, 0.5, 0.9]))
    bias = np.where(boolean, -np.inf, rng.normal(size=shape))
    case["mask"] = draw(st.sampled_from([None, None, boolean, bias]))
    if draw(st.booleans()):
        case["kv_len"] = rng.integers(0, full[3] + 1, size=batch)
    return case


@given(cases(), CONVENTIONS, st.integers(1, 5), st.integers(1, 6))
def test_every_convention(case: Any, how: Convention, queries: int, keys: int) -> None:
    with blocks_of(queries, keys):
        assert_streams(**case, convention=how)


@given(cases(odd="v"), CONVENTIONS, st.integers(1, 5), st.integers(1, 6))
def test_values_that_are_not_finite_reach_the_same_rows(
    case: Any, how: Convention, queries: int, keys: int
) -> None:
    with blocks_of(queries, keys):
        assert_streams(**case, convention=how)


@given(cases(odd="qkv"), CONVENTIONS, st.integers(1, 5), st.integers(1, 6))
def test_scores_that_are_not_finite_spoil_the_same_rows(
    case: Any, how: Convention, queries: int, keys: int
) -> None:
    with blocks_of(queries, keys):
        assert_streams(**case, convention=how)


@given(cases(), CONVENTIONS)
def test_float32(case: Any, how: Convention) -> None:
    case["q"], case["k"] = np.clip(case["q"], -4, 4), np.clip(case["k"], -4, 4)
    with blocks_of(3, 4):
        assert_streams(**case, rtol=1e-4, convention=replace(how, dtype="float32"))


# scores of every size


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exponent", [-30, -18, -5, 0, 1, 2, 3, 5, 9, 18])
def test_scores_of_every_size(dtype: Any, exponent: int) -> None:
    """Large scores pick one key, tiny ones average; the bound must give way in between."""
    q, k, v = numbers(11, 5), numbers(23, 5, seed=1), numbers(23, 3)
    q, k = (x.astype(np.float32) for x in (q, k))
    q[:, 0] *= np.float32(2.0**exponent)
    k *= np.float32(2.0**exponent)
    exact = stream(q, k, v, convention=Convention(dtype="float64"))
    slack = np.finfo(dtype).eps * (50 + 30 * np.abs(q.astype(float) @ k.T.astype(float)).max())
    how = Convention(dtype=dtype, causal=True)
    with blocks_of(3, 4):
        assert_streams(q, k, v, rtol=min(slack, 2.0), convention=how)
    assert np.isfinite(exact).all()


@pytest.mark.parametrize("v_size", [1e-300, 1e-150, 1e150, 1e300, 1.7e308 / 4])
@pytest.mark.parametrize("q_size", [1e-2, 1.0, 300.0])
def test_values_of_every_size(v_size: float, q_size: float) -> None:
    q, k, v = numbers(11, 5, size=q_size), numbers(23, 5, seed=1), numbers(23, 3).clip(-3, 3)
    with blocks_of(3, 4):
        assert_streams(q, k, v * v_size, rtol=1e-9, convention=Convention(causal=True))


def test_a_later_block_with_larger_scores_takes_over() -> None:
    k = np.array([[-900.0], [-800.0], [0.0], [900.0]])
    with blocks_of(1, 1):
        streamed = stream([[1.0]], k, [[1.0], [2.0], [3.0], [4.0]])
    assert streamed.tolist() == [[4.0]]


# what is hidden, and what is not looked at


def test_hidden_blocks_are_not_computed() -> None:
    seen: list[Any] = []

    def spy(self: Any, rows: Any) -> Any:
        for block in blocks(self, rows):
            seen.append((rows.start, block[0].start))
            yield block

    blocks = streaming.Job.key_blocks
    x = numbers(8, 3)
    mask = np.ones((8, 8), dtype=bool)
    mask[4:6, 2:4] = False
    with blocks_of(2, 2), patch.object(streaming.Job, "key_blocks", spy):
        stream(x, x, x, mask=mask, convention=Convention(window=(3, 0)), n_threads=1)
    assert sorted(seen) == [(0, 0), (2, 0), (2, 2), (4, 1), (4, 3), (4, 5), (6, 3), (6, 5), (6, 7)]


def test_nan_behind_the_mask_goes_no_further() -> None:
    q, k, v = numbers(5, 3), numbers(7, 3), numbers(7, 2)
    expected = stream(q, k[:4], v[:4])
    k[5], v[4], v[6] = np.nan, np.inf, np.nan
    with blocks_of(2, 3):
        streamed = stream(q, k, v, kv_len=4)
        masked = stream(q, k, v, mask=np.arange(7) < 4)
    np.testing.assert_allclose(streamed, expected, rtol=1e-14)
    np.testing.assert_allclose(masked, expected, rtol=1e-14)


@pytest.mark.parametrize(("empty", "row"), [("zero", 0.0), ("nan", np.nan), ("uniform", 2.0)])
def test_rows_with_nothing_to_attend_to(empty: Any, row: float) -> None:
    q, k, v = numbers(3, 2), numbers(3, 2), np.array([[1.0], [2.0], [3.0]])
    mask = np.array([[True, True, True], [False, False, False], [True, False, False]])
    streamed = stream(q, k, v, mask=mask, convention=Convention(empty_rows=empty))
    np.testing.assert_array_equal(streamed[1:], [[row], [1.0]])


# the way it runs


def test_memory_mapped_inputs_and_outputs(tmp_path: Path) -> None:
    for name, seed in (("q", 0), ("k", 1), ("v", 2)):
        np.save(tmp_path / f"{name}.npy", numbers(3, 700, 5, seed=seed).astype(np.float32))
    q, k, v = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "qkv")
    out = np.lib.format.open_memmap(tmp_path / "o.npy", "w+", np.float32, (3, 700, 5))
    how = Convention(dtype="float32", causal=True)
    assert stream(q, k, v, convention=how, out=out) is out
    expected = attend(q, k, v, convention=how)["output"].value
    np.testing.assert_allclose(out, expected, atol=1e-5)


def test_arrays_whose_heads_lie_interleaved() -> None:
    q, k, v = (np.swapaxes(numbers(31, 2, 5, seed=seed), 0, 1) for seed in range(3))
    with blocks_of(4, 7):
        assert_streams(q, k, v)


def test_the_number_of_threads_changes_nothing() -> None:
    q, k, v = (numbers(3, 600, 5, seed=seed) for seed in range(3))
    how = Convention(causal=True)
    one, four = (stream(q, k, v, convention=how, n_threads=n) for n in (1, 4))
    np.testing.assert_array_equal(one, four)


def test_progress_is_reported_for_every_block() -> None:
    reported: list[tuple[int, int]] = []
    x = numbers(2, 10, 3)
    with blocks_of(4, 4):
        stream(x, x, x, progress=lambda done, n: reported.append((done, n)))
    assert reported == [(done, 6) for done in range(1, 7)]


def test_an_interruption_stops_the_rest() -> None:
    computed: list[int] = []
    block_sum = streaming.Job._summed

    def counted(*arguments: Any) -> Any:
        computed.append(1)
        return block_sum(*arguments)

    def interrupt(done: int, n: int) -> None:
        raise KeyboardInterrupt

    x = numbers(1, 4000, 3)
    with (
        blocks_of(1, 512),
        patch.object(streaming.Job, "_summed", counted),
        pytest.raises(KeyboardInterrupt),
    ):
        stream(x, x, x, n_threads=1, progress=interrupt)
    assert len(computed) < 4000


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (Convention(softmax_over="queries"), "softmax over queries needs whole columns"),
        (Convention(dropout=0.5), "dropout is drawn for all weights"),
        (Convention(dtype="float16"), "float16 rounds every stage"),
        (Convention(dtype="bfloat16"), "bfloat16 rounds every stage"),
    ],
)
def test_what_cannot_be_streamed_says_so(how: Convention, words: str) -> None:
    with pytest.raises(ConventionError, match=words):
        stream([[1.0]], [[1.0]], [[1.0]], convention=how)


def test_arrays_that_do_not_fit_are_refused() -> None:
    x = numbers(3, 2)
    with pytest.raises(ShapeError, match="must have the same d_k"):
        stream(x, numbers(3, 5), x)
    with pytest.raises(ShapeError, match="the mask"):
        stream(x, x, x, mask=np.ones((2, 2), dtype=np.bool_))
    with pytest.raises(ShapeError, match="out is 3 × 3 of float64; it must be 3 × 2 of float64"):
        stream(x, x, x, out=np.empty((3, 3)))


def test_memory_grows_with_the_length_not_with_its_square() -> None:
    def peak(n: int) -> int:
        q, k, v = (numbers(n, 8, seed=seed).astype(np.float32) for seed in range(3))
        how = Convention(dtype="float32", causal=True)
        tracemalloc.start()
        stream(q, k, v, convention=how, n_threads=1)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(600)
    short, long = peak(1500), peak(6000)
    assert long < 4 * short
    assert long < 6000 * 6000 * 4 / 10


def test_scores_too_large_for_a_power_of_two_keep_their_digits() -> None:
    # The scores are 32768 + 0 … 4, exact in float32. Times log2 e they would keep 8 bits behind the
    # point, and a weight would be wrong by a thousandth.
    q = np.array([[2.0**7, 1.0]], dtype=np.float32)
    k = np.array([[2.0**8, x] for x in range(5)], dtype=np.float32)
    v = np.eye(5, dtype=np.float32)
    output = stream(q, k, v, convention=Convention(scale="none", dtype="float32"))
    weights = np.exp(np.arange(5.0)) / np.exp(np.arange(5.0)).sum()
    np.testing.assert_allclose(output[0], weights, rtol=1e-6)
