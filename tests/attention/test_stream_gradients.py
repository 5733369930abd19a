"""Gradients in blocks: those of `attend`, whatever restricts them, in little memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from attncli import ConventionError, ShapeError, attend
from attncli.arrays import Array
from attncli.attention import stream_gradients as module
from attncli.attention import streaming
from attncli.attention.stream_gradients import stream_gradients

RNG = np.random.default_rng(13)
N_Q, N_K = 31, 47
KEEP = RNG.random((N_Q, N_K)) < 0.7
KEEP[3] = False
BIAS = np.where(RNG.random((6, N_Q, N_K)) < 0.8, RNG.standard_normal((6, N_Q, N_K)), -np.inf)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that neither the queries nor the keys divide into."""
    monkeypatch.setattr(module, "ROWS", 7)
    monkeypatch.setattr(module, "KEYS", 11)
    monkeypatch.setattr(streaming, "CELLS", 3 * N_K)


def inputs(n_heads: int = 6, n_kv_heads: int = 3, scale: float = 1.0) -> dict[str, Array]:
    rng = np.random.default_rng(17)
    shapes = {"q": (n_heads, N_Q, 5), "k": (n_kv_heads, N_K, 5), "v": (n_kv_heads, N_K, 13)}
    shapes["d_output"] = (n_heads, N_Q, 13)
    return {name: scale * rng.standard_normal((2, *shape)) for name, shape in shapes.items()}


HOWS: list[dict[str, Any]] = [
    {},
    {"causal": True},
    {"causal": True, "causal_align": "bottom-right", "head_order": "tiled"},
    {"causal": True, "causal_align": "open-last"},
    {"window": (5, 3)},
    {"mask": KEEP},
    {"mask": KEEP, "empty_rows": "uniform"},
    {"mask": KEEP, "empty_rows": "unmasked"},
    {"mask": BIAS},
    {"mask": BIAS, "mask_value": -3.0},
    {"kv_len": [N_K, 5]},
    {"scale": "none"},
    {"scale": 300.0},
    {"softcap": 2.0},
    {"softcap": 2.0, "softcap_place": "after-bias", "mask": BIAS},
]


@pytest.mark.parametrize("how", HOWS, ids=lambda how: " ".join(how) or "plain")
@pytest.mark.parametrize("n_threads", [1, 3])
def test_gradients_are_those_of_attend(how: dict[str, Any], n_threads: int) -> None:
    given: dict[str, Any] = inputs()
    expected = attend(**given, **how)
    found = stream_gradients(**given, **how, n_threads=n_threads)
    assert list(found) == ["d_q", "d_k", "d_v"]
    for name, x in found.items():
        wanted = expected[name].value
        np.testing.assert_allclose(
            x, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max(), err_msg=name
        )


@pytest.mark.parametrize("shape", [(), (3,)])
def test_fewer_axes_and_a_cache(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(19)
    names = {"q": 5, "k": 7, "v": 7, "past_k": 4, "past_v": 4}
    given: dict[str, Any] = {x: rng.standard_normal((*shape, n, 2)) for x, n in names.items()}
    expected = attend(**given, d_output="random", causal=True)
    found = stream_gradients(**given, d_output="random", causal=True)
    assert found["d_k"].shape == (*shape, 11, 2)
    for name, x in found.items():
        np.testing.assert_allclose(x, expected[name].value, atol=1e-13)


def test_the_sums_do_not_depend_on_the_threads() -> None:
    given: dict[str, Any] = inputs(1, 1)
    one, three = (stream_gradients(**given, dtype="float32", n_threads=n) for n in (1, 3))
    for name, x in one.items():
        assert x.dtype == np.float32
        assert (x == three[name]).all()


def test_numbers_that_are_not_finite_go_as_far_as_in_attend() -> None:
    given: dict[str, Any] = inputs()
    given["v"][0, 0, 5] = np.nan
    given["d_output"][1, 2, 3] = np.inf
    expected, found = attend(**given, mask=KEEP), stream_gradients(**given, mask=KEEP)
    for name, x in found.items():
        np.testing.assert_allclose(x, expected[name].value, atol=1e-12)


def test_progress_is_reported_for_every_part() -> None:
    done: list[tuple[int, int]] = []
    stream_gradients(**inputs(), progress=lambda *at: done.append(at))  # type: ignore[arg-type]
    assert done == [(n, 6) for n in range(1, 7)]


def test_memory_grows_with_the_length_not_with_its_square(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    n = 4096
    rng = np.random.default_rng(23)
    q, k, v, d = (rng.standard_normal((n, 8)).astype(np.float32) for _ in range(4))
    tracemalloc.start()
    stream_gradients(q, k, v, d, dtype="float32", n_threads=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < n * n  # a quarter of one score matrix in float32


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"dropout": 0.5}, "dropout is drawn for all weights"),
        ({"softmax_over": "queries"}, "needs whole columns"),
        ({"dtype": "float16"}, "float16 rounds every stage"),
    ],
)
def test_what_cannot_be_computed_in_blocks(how: dict[str, Any], words: str) -> None:
    with pytest.raises(ConventionError, match=words):
        stream_gradients(**inputs(), **how)  # type: ignore[arg-type]


def test_a_gradient_of_another_shape() -> None:
    given: dict[str, Any] = inputs()
    with pytest.raises(ShapeError, match="d_output is 2 × 6 × 31 × 5, output is 2 × 6 × 31 × 13"):
        stream_gradients(given["q"], given["k"], given["v"], given["q"])
