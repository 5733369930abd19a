"""The output and the gradients in blocks: those of `attend`, in little memory and in any threads.

A block has 256 queries and 512 keys, of gradients 2048. Every knob is in tests/conformance, too.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli import AttncliError, Convention, attend, stream, stream_gradients
from attncli.attention.streaming import largest_norm
from tests.conformance.rows import random_row

RNG = np.random.default_rng(13)
INF = math.inf


def numbers(*shape: int, size: float = 1.0) -> Any:
    return RNG.normal(size=shape) * size


def assert_streams(
    q: Any, k: Any, v: Any, *, rtol: float = 1e-9, size: float | None = None, **how: Any
) -> None:
    """The streamed output is that of `attend`, NaN and infinity in the same places."""
    with np.errstate(all="raise"):
        streamed = stream(q, k, v, **how)
    expected = attend(q, k, v, **how)["output"].value
    assert (streamed.dtype, streamed.shape) == (expected.dtype, expected.shape)
    finite = np.abs(np.where(np.isfinite(v), v, 0)).max()
    np.testing.assert_allclose(streamed, expected, rtol, rtol * max(float(finite), 1e-300))


# ---- the output


@pytest.mark.parametrize("n", [255, 256, 257, 511, 513, 1030])
@pytest.mark.parametrize("how", [{"causal": True}, {"window": (300, 7)}], ids=str)
def test_lengths_around_the_blocks(n: int, how: dict[str, Any]) -> None:
    assert_streams(numbers(n, 4), numbers(n, 4), numbers(n, 3), rtol=1e-12, **how)


def test_what_is_computed_by_every_stage_a_few_queries_at_a_time() -> None:
    """5003 keys, of which a million scores are those of 209 queries."""
    inputs = numbers(257, 2), numbers(5003, 2), numbers(5003, 3)
    assert_streams(*inputs, softcap=2.0, mask=RNG.random((257, 1)) < 0.9, causal=True)


@pytest.mark.parametrize("odd", ["v", "qkv"])
def test_numbers_that_are_not_finite_reach_the_same_rows(odd: str) -> None:
    for number in range(1, 120):
        row, draw = random_row(number), np.random.default_rng(number)
        if row.expected is None or "sinks" in row.inputs or "dtype" in row.how:
            continue
        inputs = {name: np.array(x) for name, x in row.inputs.items()}
        for x in (inputs[name] for name in odd):
            place = draw.random(x.shape) < draw.choice([0.02, 0.1])
            x[place] = draw.choice([np.nan, INF, -INF, 0.0], size=place.sum())
        assert_streams(**inputs, **row.how)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exponent", [-30, -18, -5, 0, 1, 2, 3, 5, 9, 18])
def test_scores_of_every_size(dtype: Any, exponent: int) -> None:
    """Large scores pick one key, tiny ones average; the bound must give way in between."""
    q, k, v = numbers(11, 5), numbers(523, 5), numbers(523, 3)
    q, k = (x.astype(np.float32) for x in (q, k))
    q[:, 0] *= np.float32(2.0**exponent)
    k *= np.float32(2.0**exponent)
    slack = np.finfo(dtype).eps * (50 + 30 * np.abs(q.astype(float) @ k.T.astype(float)).max())
    assert_streams(q, k, v, rtol=min(slack, 2.0), dtype=dtype, window=(-1, 517))


@pytest.mark.parametrize("v_size", [1e-300, 1e-150, 1e150, 1e300, 1.7e308 / 4])
@pytest.mark.parametrize("q_size", [1e-2, 1.0, 300.0])
def test_values_of_every_size(v_size: float, q_size: float) -> None:
    q, k, v = numbers(11, 5, size=q_size), numbers(523, 5), numbers(523, 3).clip(-3, 3)
    assert_streams(q, k, v * v_size, causal=True, causal_align="bottom-right")


def test_a_later_block_with_larger_scores_takes_over() -> None:
    """Blocks of keys with scores of −900, −800 and 900 but for one of 900 − ln 3."""
    k = np.repeat([[-900.0], [-800.0], [900.0]], [512, 512, 2], axis=0)
    k[-1] -= math.log(3)
    v = np.repeat([[1.0], [2.0], [4.0]], [512, 512, 2], axis=0)
    v[-1] = 8
    assert stream([[1.0]], k, v) == pytest.approx(np.array([[0.75 * 4 + 0.25 * 8]]))


def test_scores_too_large_for_a_power_of_two_keep_their_digits() -> None:
    # The scores are 32768 + 0 … 4, exact in float32. Times log2 e they would keep 8 bits behind the
    # point, and a weight would be wrong by a thousandth.
    q = np.array([[2.0**7, 1.0]], dtype=np.float32)
    k = np.array([[2.0**8, x] for x in range(5)], dtype=np.float32)
    output = stream(q, k, np.eye(5, dtype=np.float32), scale="none", dtype="float32")
    weights = np.exp(np.arange(5.0)) / np.exp(np.arange(5.0)).sum()
    np.testing.assert_allclose(output[0], weights, rtol=1e-6)


@pytest.mark.parametrize("size", [1e-30, 1e-22, 1.0, 2.0**5.75, 1e15])
def test_the_norm_that_bounds_scores_is_rounded_up(size: float) -> None:
    """Never below the exact one, also of squares that vanish: else a score may pass its limit."""
    for d in (1, 2, 3, 7, 64, 257):
        for x in (numbers(3, d, size=size).astype(np.float32) for _ in range(5)):
            exact = max(sum(Fraction(float(number)) ** 2 for number in row) for row in x)
            assert Fraction(largest_norm(x)) ** 2 >= exact
            assert largest_norm(x) <= 1.001 * math.sqrt(exact) + math.sqrt(d) * 2e-19


def test_inputs_and_outputs_may_be_mapped_and_interleaved(tmp_path: Path) -> None:
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", numbers(700, 3, 5).astype(np.float32))
    q, k, v = (np.load(tmp_path / f"{name}.npy", mmap_mode="r").swapaxes(0, 1) for name in "qkv")
    out = np.lib.format.open_memmap(tmp_path / "o.npy", "w+", np.float32, (3, 700, 5))
    how: dict[str, Any] = {"dtype": "float32", "causal": True}
    assert stream(q, k, v, **how, out=out) is out
    np.testing.assert_allclose(out, attend(q, k, v, **how)["output"].value, atol=1e-5)


# ---- gradients

KEEP = RNG.random((31, 47)) < 0.7
KEEP[3] = False
BIAS = np.where(RNG.random((6, 31, 47)) < 0.8, RNG.normal(size=(6, 31, 47)), -INF)
OPEN: dict[str, Any] = {"causal": True, "causal_align": "open-last"}
HOWS: list[dict[str, Any]] = [
    {}, {"causal": True}, OPEN, {"mask": KEEP}, {"mask": KEEP, "empty_rows": "uniform"},
    {"causal": True, "causal_align": "bottom-right", "head_order": "tiled"},
    {"window": (5, 3)}, {"mask": KEEP, "empty_rows": "unmasked"}, {"mask": BIAS},
    {"mask": BIAS, "mask_value": -3.0}, {"kv_len": [47, 5]}, {"scale": "none"}, {"scale": 300.0},
    {"softcap": 2.0}, {"softcap": 2.0, "softcap_place": "after-bias", "mask": BIAS},
]  # fmt: skip


def inputs(n_q: int = 31, n_k: int = 47, heads: int = 6, kv_heads: int = 3) -> dict[str, Any]:
    shapes = {"q": (heads, n_q, 5), "k": (kv_heads, n_k, 5), "v": (kv_heads, n_k, 13)}
    return {name: numbers(2, *shape) for name, shape in shapes.items()} | {
        "d_output": numbers(2, heads, n_q, 13)
    }


def assert_gradients(arrays: dict[str, Any], **how: Any) -> None:
    expected, streamed = attend(**arrays, **how), stream_gradients(**arrays, **how)
    assert list(streamed) == ["d_q", "d_k", "d_v"]
    for name, x in streamed.items():
        wanted = expected[name].value
        assert x.shape == wanted.shape
        atol = 1e-12 * np.abs(wanted, where=np.isfinite(wanted), out=np.zeros(x.shape)).max()
        np.testing.assert_allclose(x, wanted, rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("how", HOWS, ids=lambda how: " ".join(how) or "plain")
def test_gradients_are_those_of_attend(how: dict[str, Any]) -> None:
    assert_gradients(inputs(), **how)


@pytest.mark.parametrize(
    ("n_q", "n_k", "how"),
    [(263, 7, OPEN), (13, 2053, {"window": (-1, 2050)}), (263, 2053, {"window": (1900, 7)})],
)
def test_gradients_of_several_blocks(n_q: int, n_k: int, how: dict[str, Any]) -> None:
    heads = 2 if n_k == 7 else 1
    arrays = inputs(n_q, n_k, heads, heads)
    assert_gradients({name: x if n_k == 7 else x[0] for name, x in arrays.items()}, **how)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_gradients_of_fewer_axes_and_a_cache(shape: tuple[int, ...]) -> None:
    names = {"q": 5, "k": 7, "v": 7, "past_k": 4, "past_v": 4}
    arrays: dict[str, Any] = {name: numbers(*shape, n, 2) for name, n in names.items()}
    assert_gradients({**arrays, "d_output": "random"}, causal=True)


def test_gradients_of_numbers_that_are_not_finite() -> None:
    arrays = inputs()
    arrays["v"][0, 0, 5], arrays["d_output"][1, 2, 3] = np.nan, INF
    assert_gradients(arrays, mask=KEEP)


# ---- both


def streamed_output(*qkv: Any, **how: Any) -> list[Any]:
    return [stream(*qkv, **how)]


def streamed_gradients(*qkv: Any, **how: Any) -> list[Any]:
    return [*stream_gradients(*qkv, "random", **how).values()]


BOTH = pytest.mark.parametrize("function", [streamed_output, streamed_gradients])
Function = Callable[..., list[Any]]


@BOTH
def test_the_number_of_threads_changes_nothing_and_each_block_is_reported(
    function: Function,
) -> None:
    qkv = [numbers(2, 600, 3).astype(np.float32) for _ in range(3)]
    reports: list[tuple[int, int]] = []
    how: dict[str, Any] = {"causal": True, "dtype": "float32"}
    one = function(*qkv, **how, n_threads=1, progress=lambda *at: reports.append(at))
    for x, y in zip(one, function(*qkv, **how, n_threads=4), strict=True):
        assert x.dtype == np.float32
        np.testing.assert_array_equal(x, y)
    total = 6 if function is streamed_output else 4
    assert reports == [(done, total) for done in range(1, total + 1)]


def test_an_interruption_stops_the_rest() -> None:
    def interrupt(done: int, n: int) -> None:
        raise KeyboardInterrupt

    x = numbers(40 * 256, 3)
    out = np.full(x.shape, np.nan)
    with pytest.raises(KeyboardInterrupt):
        stream(x, x, x, n_threads=1, out=out, progress=interrupt)
    assert np.isnan(out[:256]).all()  # the last queries come first


@BOTH
def test_memory_grows_with_the_length_not_with_its_square(function: Function) -> None:
    n = 4096
    qkv = [numbers(n, 8).astype(np.float32) for _ in range(3)]
    tracemalloc.start()
    function(*qkv, dtype="float32", n_threads=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n * (1 if function is streamed_gradients else 0.1)  # of 4 n² for the scores


@BOTH
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"convention": Convention(softmax_over="queries")}, "whole columns"),
        ({"dropout": 0.5}, "dropout is drawn for all"),
        ({"dtype": "float16"}, "float16 rounds every stage"),
        ({"dtype": "bfloat16"}, "bfloat16 rounds every stage"),
        ({"mask": np.ones((2, 2), bool)}, "mask"),
    ],
)
def test_what_cannot_be_streamed(function: Function, more: dict[str, Any], words: str) -> None:
    with pytest.raises(AttncliError, match=words):
        function(*[np.ones((3, 2))] * 3, **more)


def test_arrays_of_another_shape_are_refused() -> None:
    x = np.ones((3, 2))
    with pytest.raises(AttncliError, match=r"out is 3 × 3 .* must be 3 × 2"):
        stream(x, x, x, out=np.empty((3, 3)))
    with pytest.raises(AttncliError, match="d_output is 3 × 1, output is 3 × 2"):
        stream_gradients(x, x, x, x[:, :1])
