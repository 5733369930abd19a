"""Rotary positions against complex multiplication, which is what turning a pair means."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli.attention.rotary import Layout, rotary, rotary_angles
from attncli.errors import AttncliError, ConventionError, ShapeError

Array = npt.NDArray[np.float64]
LAYOUTS: list[Layout] = ["halves", "interleaved"]


def turned(x: Array, positions: Array, layout: Layout, base: float = 10000.0) -> Array:
    """(a + ib)·e^{iθ} for each pair, whole rows turned."""
    half = x.shape[-1] // 2
    theta = positions[:, None] * np.array([base ** (-i / half) for i in range(half)])
    if layout == "halves":
        product = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * theta)
        return np.concatenate([product.real, product.imag], axis=-1)
    product = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * theta)
    return np.stack([product.real, product.imag], axis=-1).reshape(x.shape)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(5, 14), (3, 5, 14), (2, 3, 5, 14)])
def test_pairs_are_turned_as_complex_numbers(layout: Layout, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(11).normal(size=shape)
    trace = rotary(x, layout=layout)
    np.testing.assert_allclose(
        trace["rotated"].value, turned(x, np.arange(5.0), layout), atol=1e-14
    )
    assert list(trace) == ["x", "angles", "cos", "sin", "rotated"]
    assert trace["rotated"].axes == ("batch", "head", "position", "dimension")[-len(shape) :]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_entries_past_the_rotary_dim_stay(layout: Layout) -> None:
    x = np.random.default_rng(13).normal(size=(3, 5, 11))
    rotated = rotary(x, layout=layout, rotary_dim=6)["rotated"]
    np.testing.assert_array_equal(rotated.value[..., 6:], x[..., 6:])
    np.testing.assert_allclose(
        rotated.value[..., :6], turned(x[..., :6], np.arange(5.0), layout), atol=1e-14
    )
    assert "the last 5 of 11 stay" in rotated.note


def test_position_ids_per_batch_item() -> None:
    x = np.random.default_rng(17).normal(size=(2, 3, 5, 4))
    ids = np.array([[0, 1, 2, 3, 4], [7, 8, 9, 10, 2]])
    rotated = rotary(x, position_ids=ids)["rotated"].value
    for item in range(2):
        expected = turned(x[item], ids[item].astype(float), "halves")
        np.testing.assert_allclose(rotated[item], expected, atol=1e-14)


def test_caches_made_elsewhere_give_the_same() -> None:
    x = np.random.default_rng(19).normal(size=(3, 5, 6))
    angles = rotary_angles(np.arange(11), 6, base=100)
    ids = [4, 0, 10, 2, 3]
    cached = rotary(x, position_ids=ids, caches=(np.cos(angles), np.sin(angles)))
    own = rotary(x, position_ids=ids, base=100)
    np.testing.assert_array_equal(cached["rotated"].value, own["rotated"].value)
    assert list(cached) == ["x", "cos", "sin", "rotated"]
    assert own["rotated"].labels["position"] == ("pos 4", "pos 0", "pos 10", "pos 2", "pos 3")


@given(
    seed=st.integers(0, 2**32 - 1),
    pairs=st.integers(1, 6),
    position=st.integers(-1000, 1000),
    layout=st.sampled_from(LAYOUTS),
)
def test_lengths_stay(seed: int, pairs: int, position: int, layout: Layout) -> None:
    x = np.random.default_rng(seed).normal(size=(1, 2 * pairs))
    rotated = rotary(x, position_ids=[position], layout=layout)["rotated"].value
    assert np.linalg.norm(rotated) == pytest.approx(np.linalg.norm(x), rel=1e-12)


@given(
    seed=st.integers(0, 2**32 - 1),
    places=st.tuples(st.integers(0, 500), st.integers(0, 500)),
    shift=st.integers(0, 500),
    layout=st.sampled_from(LAYOUTS),
)
def test_only_the_distance_counts(
    seed: int, places: tuple[int, int], shift: int, layout: Layout
) -> None:
    q, k = np.random.default_rng(seed).normal(size=(2, 1, 10))

    def score(at_q: int, at_k: int) -> float:
        turned_q = rotary(q, position_ids=[at_q], layout=layout)["rotated"].value
        turned_k = rotary(k, position_ids=[at_k], layout=layout)["rotated"].value
        return float((turned_q @ turned_k.T).item())

    here, there = score(*places), score(places[0] + shift, places[1] + shift)
    assert here == pytest.approx(there, abs=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_position_zero_changes_nothing(layout: Layout) -> None:
    x = np.random.default_rng(23).normal(size=(1, 8))
    np.testing.assert_array_equal(rotary(x, layout=layout)["rotated"].value, x)


X = np.ones((3, 5, 6))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: rotary(np.ones(3)), ShapeError, "x has 1 dimensions"),
        (lambda: rotary(np.ones((1, 1, 1, 1, 2))), ShapeError, "x has 5 dimensions"),
        (lambda: rotary([["a", "b"]]), ShapeError, "must hold real numbers"),
        (lambda: rotary(np.ones((2, 5))), ConventionError, "the rotary dim is 5"),
        (lambda: rotary(X, rotary_dim=8), ShapeError, "only 6 entries a row"),
        (lambda: rotary(X, rotary_dim=3), ConventionError, "the rotary dim is 3"),
        (lambda: rotary(X, layout="thirds"), ConventionError, "layout is 'thirds'"),  # type: ignore[arg-type]
        (lambda: rotary(X, base=0.0), ConventionError, "base is 0"),
        (lambda: rotary(X, position_ids=[1, 2]), ShapeError, "5×3"),
        (lambda: rotary(X, position_ids=np.zeros((3, 5))), ShapeError, "5×3"),
        (lambda: rotary(X, position_ids=[0, 1, 2, 3, np.nan]), ShapeError, "not all finite"),
        (
            lambda: rotary(X, position_ids=[0, 1, 2, 3, 7], caches=(np.ones((7, 3)),) * 2),
            ShapeError,
            "from 0 to 7, the cos cache from 0 to 6",
        ),
        (
            lambda: rotary(X, position_ids=[-1, 1, 2, 3, 4], caches=(np.ones((7, 3)),) * 2),
            ShapeError,
            "from -1 to 4",
        ),
        (
            lambda: rotary(X, position_ids=[0.5] * 5, caches=(np.ones((7, 3)),) * 2),
            ShapeError,
            "whole numbers",
        ),
        (lambda: rotary(X, position_ids=[[0], [1, 2]]), ShapeError, "position ids is ragged"),
        (lambda: rotary(X, caches=(np.ones((5, 2)),) * 2), ShapeError, "cos is 5 × 2"),
    ],
)
def test_what_does_not_fit(call: object, error: type[AttncliError], message: str) -> None:
    assert callable(call)
    with pytest.raises(error, match=message):
        call()
