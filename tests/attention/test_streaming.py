"""The output and the gradients in blocks: those of `attend`, in little memory and in any threads.

A block has 256 queries and 512 keys, of gradients 2048. Every knob is in tests/conformance, too.
"""

import math
import tracemalloc
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from attncli import AttncliError, Convention, attend, stream, stream_gradients
from attncli.attention.inputs import inputs_of
from attncli.attention.stream_gradients import streamed_gradients as gradients_of
from attncli.attention.streaming import largest_norm, streamed
from tests.conformance.rows import random_row

RNG = np.random.default_rng(13)
INF = math.inf


def numbers(*shape: int, size: float = 1.0) -> Any:
    return RNG.normal(size=shape) * size


def assert_streams(
    q: Any, k: Any, v: Any, *, rtol: float = 1e-9, d_output: Any = None, **convention: Any
) -> None:
    """What is streamed is what `attend` gives, NaN and infinity in the same places."""
    expected = attend(q, k, v, d_output=d_output, **convention)
    if d_output is None:
        with np.errstate(all="raise"):
            streamed = {"output": stream(q, k, v, **convention)}
        finite = np.abs(np.where(np.isfinite(v), v, 0)).max()
        slack = {"output": rtol * max(float(finite), 1e-300)}
    else:
        streamed = stream_gradients(q, k, v, d_output, **convention)
        assert list(streamed) == ["d_q", "d_k", "d_v"]
        every = np.concatenate([expected[name].value.ravel() for name in streamed])
        rtol, slack = 0, dict.fromkeys(streamed, 1e-12 * np.abs(every[np.isfinite(every)]).max())
    for name, x in streamed.items():
        own = expected[name].value
        assert (x.dtype, x.shape) == (own.dtype, own.shape)
        np.testing.assert_allclose(x, own, rtol, slack[name], err_msg=name)


def random_calls() -> Iterator[tuple[dict[str, Any], Any, np.random.Generator]]:
    """Random calls with every knob: the inputs, the output, and what to draw more with."""
    for number in range(1, 120):
        row = random_row(number)
        if row.expected is not None and "sinks" not in row.inputs and "dtype" not in row.convention:
            inputs = {name: np.array(x) for name, x in row.inputs.items()}
            yield (
                {**inputs, **row.convention},
                row.expected["output"],
                np.random.default_rng(number),
            )


@pytest.mark.parametrize("odd", ["v", "qkv"])
def test_numbers_that_are_not_finite_reach_the_same_rows(odd: str) -> None:
    for call, _, draw in random_calls():
        for x in (call[name] for name in odd):
            place = draw.random(x.shape) < draw.choice([0.02, 0.1])
            x[place] = draw.choice([np.nan, INF, -INF, 0.0], size=place.sum())
        assert_streams(**call)


def test_gradients_with_every_knob() -> None:
    for call, output, draw in random_calls():
        if not np.isnan(output).any():
            assert_streams(**call, d_output=draw.normal(size=output.shape))
    q, k, v, d = numbers(2, 31, 5), numbers(2, 47, 5), numbers(2, 47, 13), numbers(2, 31, 13)
    assert_streams(q, k, v, d_output=d, scale=300.0)
    v[0, 5], d[1, 3] = np.nan, INF
    assert_streams(q, k, v, d_output=d, mask=RNG.random((31, 47)) < 0.7)
    sizes: list[tuple[int, int, dict[str, Any]]] = [
        (263, 7, {"causal": True, "causal_align": "open-last"}),
        (13, 2053, {"window": (-1, 2050)}), (263, 2053, {"window": (1900, 7)}),
    ]  # fmt: skip
    for n_q, n_k, convention in sizes:  # of several blocks
        q, k, v, d = (numbers(2, n, d) for n, d in ((n_q, 5), (n_k, 5), (n_k, 13), (n_q, 13)))
        assert_streams(q, k, v, d_output=d, **convention)


@pytest.mark.parametrize("more", [{}, {"softcap": 2.0}, {"causal": True, "mask_value": -3.0}])
def test_what_is_made_of_x_and_normalised_is_so_once(more: dict[str, Any]) -> None:
    """Small queries and keys, so that ε counts: normalised twice they would be others."""
    sizes = {"x": (11, 5), "w_q": (5, 12), "w_k": (5, 6), "w_v": (5, 14)}
    arrays = {name: numbers(*shape, size=0.02) for name, shape in sizes.items()}
    convention = Convention(qk_norm=True, **more)
    inputs = inputs_of(arrays, convention, n_heads=4, n_kv_heads=2)
    given: dict[str, Any] = inputs.qkv
    whole = attend(**given, convention=convention, d_output="ones")
    np.testing.assert_allclose(streamed(inputs), whole["output"].value, 1e-12, 1e-15)
    gradients = gradients_of(inputs, np.ones(inputs.output_shape))
    for name, d in gradients.items():
        expected = whole[name].value
        np.testing.assert_allclose(d, expected, 1e-9, 1e-12 * np.abs(expected).max())


# ---- lengths and sizes


def test_lengths_around_the_blocks() -> None:
    for n in (255, 256, 257, 511, 513, 1030):
        for convention in ({"causal": True}, {"window": (300, 7)}):
            assert_streams(numbers(n, 4), numbers(n, 4), numbers(n, 3), rtol=1e-12, **convention)
    # 5003 keys, of which every stage is computed for 209 queries (a million scores) at a time
    inputs = numbers(257, 2), numbers(5003, 2), numbers(5003, 3)
    assert_streams(*inputs, softcap=2.0, mask=RNG.random((257, 1)) < 0.9, causal=True)


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


def test_values_of_every_size() -> None:
    for v_size in (1e-300, 1e-150, 1e150, 1e300, 1.7e308 / 4):
        for q_size in (1e-2, 1.0, 300.0):
            q, k, v = numbers(11, 5, size=q_size), numbers(523, 5), numbers(523, 3).clip(-3, 3)
            assert_streams(q, k, v * v_size, causal=True, causal_align="bottom-right")


def test_a_later_block_with_larger_scores_takes_over() -> None:
    """Blocks of keys with scores of −900, −800 and 900 but for one of 900 − ln 3."""
    k, v = (np.repeat([[x] for x in row], [512, 512, 2], axis=0) for row in ((-900.0, -800, 900), (1.0, 2, 4)))  # fmt: skip
    k[-1] -= math.log(3)
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


def test_the_norm_that_bounds_scores_is_rounded_up() -> None:
    """Never below the exact one, also of squares that vanish: else a score may pass its limit."""
    for size in (1e-30, 1e-22, 1.0, 2.0**5.75, 1e15):
        for d in (1, 2, 3, 7, 64, 257):
            for x in (numbers(3, d, size=size).astype(np.float32) for _ in range(5)):
                exact = max(sum(Fraction(float(number)) ** 2 for number in row) for row in x)
                assert Fraction(largest_norm(x)) ** 2 >= exact
                assert largest_norm(x) <= 1.001 * math.sqrt(exact) + math.sqrt(d) * 2e-19


# ---- how it runs


def test_inputs_and_outputs_may_be_mapped_and_interleaved(tmp_path: Path) -> None:
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", numbers(700, 3, 5).astype(np.float32))
    q, k, v = (np.load(tmp_path / f"{name}.npy", mmap_mode="r").swapaxes(0, 1) for name in "qkv")
    out = np.lib.format.open_memmap(tmp_path / "o.npy", "w+", np.float32, (3, 700, 5))
    convention: dict[str, Any] = {"dtype": "float32", "causal": True}
    assert stream(q, k, v, **convention, out=out) is out
    np.testing.assert_allclose(out, attend(q, k, v, **convention)["output"].value, atol=1e-5)


def streamed_output(*qkv: Any, **convention: Any) -> list[Any]:
    return [stream(*qkv, **convention)]


def streamed_gradients(q: Any, k: Any, v: Any, **convention: Any) -> list[Any]:
    return [*stream_gradients(q, k, v, "random", **convention).values()]


Function = Callable[..., list[Any]]


@pytest.mark.parametrize(
    ("function", "n_blocks", "most"), [(streamed_output, 6, 0.1), (streamed_gradients, 4, 1)]
)
def test_threads_change_nothing_and_memory_is_that_of_blocks(
    function: Function, n_blocks: int, most: float
) -> None:
    qkv = numbers(3, 2, 600, 3).astype(np.float32)
    reports: list[tuple[int, int]] = []
    convention: dict[str, Any] = {"causal": True, "dtype": "float32"}
    one = function(*qkv, **convention, n_threads=1, progress=lambda *at: reports.append(at))
    for x, y in zip(one, function(*qkv, **convention, n_threads=4), strict=True):
        assert x.dtype == np.float32
        np.testing.assert_array_equal(x, y)
    assert reports == [(n, n_blocks) for n in range(1, n_blocks + 1)]
    tracemalloc.start()
    function(*numbers(3, 4096, 8).astype(np.float32), dtype="float32", n_threads=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4096**2 * most  # of four times as much for the scores


def test_an_interruption_stops_the_rest() -> None:
    x = numbers(40 * 256, 3)
    out = np.full(x.shape, np.nan)
    interrupt = mock.Mock(side_effect=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        stream(x, x, x, n_threads=1, out=out, progress=interrupt)
    assert np.isnan(out[:256]).all()  # the last queries come first


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"softmax_over": "queries"}, "whole columns"), ({"dropout": 0.5}, "dropout is drawn"),
    ({"dtype": "float16"}, "float16 rounds"), ({"dtype": "bfloat16"}, "bfloat16 rounds"),
    ({"mask": np.ones((2, 2), bool)}, "mask"),
]  # fmt: skip


def test_what_cannot_be_streamed() -> None:
    x = np.ones((3, 2))
    for more, words in REFUSED:
        for function in (streamed_output, streamed_gradients):
            with pytest.raises(AttncliError, match=words):
                function(x, x, x, **more)
    with pytest.raises(AttncliError, match=r"out is 3 × 3 .* must be 3 × 2"):
        stream(x, x, x, out=np.empty((3, 3)))
    with pytest.raises(AttncliError, match="d_output is 3 × 1, output is 3 × 2"):
        stream_gradients(x, x, x, x[:, :1])
