"""Layer norm, feed-forward, residual and dropout, against their formulas worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attncli import Convention, ConventionError, ShapeError, Trace
from attncli.attention.layers import Architecture, LayerPlan, layer_norm

PLAIN = Architecture(norm="none")
SIZES = st.integers(1, 7)
NUMBERS = st.floats(-1e6, 1e6)


def feed_forward(x: Any, labels: Any = None, how: Architecture = PLAIN, **weights: Any) -> Trace:
    """The feed-forward of x alone, with its residual."""
    layers = LayerPlan(how, {f"ffn.{name}": np.asarray(w, float) for name, w in weights.items()})
    layers.feed_forward("ffn", layers.rows("x", x, labels))
    return layers.trace().part("ffn")


def test_layer_norm_by_hand() -> None:
    # Mean 5, squares of the differences 9 1 1 9, so the variance of the population is 5.
    gain, bias = [1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 10.0]
    trace = layer_norm([[2.0, 4.0, 6.0, 8.0]], gain, bias, epsilon=0.0, labels=["bank"])
    assert trace["mean"].value.tolist() == [5.0]
    np.testing.assert_allclose(trace["deviation"].value, [np.sqrt(5)])
    root = np.sqrt(5)
    expected = [[-3 / root, -2 / root, 3 / root, 12 / root + 10]]
    np.testing.assert_allclose(trace["norm"].value, expected)
    assert trace["mean"].names("query") == trace["norm"].names("query") == ("bank",)
    assert trace["norm"].formula == "N = γ (X − μ) / √(σ² + ε) + β, ε = 0"


def test_epsilon_keeps_a_constant_row_finite() -> None:
    assert layer_norm([[3.0, 3.0]])["norm"].value.tolist() == [[0.0, 0.0]]
    assert np.isnan(layer_norm([[3.0, 3.0]], epsilon=0)["norm"].value).all()
    # Variance 1 and ε = 3: divided by 2.
    assert layer_norm([[1.0, 3.0]], epsilon=3)["norm"].value.tolist() == [[-0.5, 0.5]]


@given(arrays(np.float64, st.tuples(SIZES, SIZES, st.integers(2, 9)), elements=NUMBERS))
def test_norm_has_mean_0_and_deviation_1(x: Any) -> None:
    spread = x.std(axis=-1) > 1e-6 * (1 + np.abs(x).max(axis=-1))
    norm = layer_norm(x, epsilon=0)["norm"].value[spread]
    np.testing.assert_allclose(norm.mean(axis=-1), 0, atol=1e-8)
    np.testing.assert_allclose(norm.std(axis=-1), 1, atol=1e-8)


@given(arrays(np.float64, st.tuples(SIZES, st.integers(2, 9)), elements=st.floats(-9, 9)))
def test_norm_ignores_shift_and_scale_of_a_row(x: Any) -> None:
    plain = x[x.std(axis=-1) > 1e-3]
    if len(plain):
        moved = layer_norm(4 * plain + 3, epsilon=0)["norm"].value
        np.testing.assert_allclose(moved, layer_norm(plain, epsilon=0)["norm"].value, atol=1e-9)


def test_feed_forward_by_hand() -> None:
    # [1, 2] W₁ + b₁ = [1 − 2 + 0, 1 + 2 + 1, −1 + 0 + 0] = [−1, 4, −1] → [0, 4, 0].
    w_1 = np.array([[1.0, 1.0, -1.0], [-1.0, 1.0, 0.0]])
    w_2 = np.array([[9.0, 9.0], [2.0, -3.0], [9.0, 9.0]])
    biases: Any = {"b_1": [0.0, 1.0, 0.0], "b_2": [0.5, 0.0]}
    trace = feed_forward([[1.0, 2.0]], labels=["river"], w_1=w_1, w_2=w_2, **biases)
    assert trace["hidden"].value.tolist() == [[0.0, 4.0, 0.0]]
    assert trace["feed_forward"].value.tolist() == [[8.5, -12.0]]
    assert trace["residual"].value.tolist() == [[9.5, -10.0]]
    assert trace["residual"].formula == "R₁ = X + F"
    assert trace["hidden"].axes == ("query", "d_ff")
    assert trace["feed_forward"].names("query") == ("river",)
    assert trace["hidden"].formula == "G = max(0, X W₁ + b₁)"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_stage_is_of_the_number_type(dtype: Any) -> None:
    rng, how = np.random.default_rng(3), Convention(dtype=dtype)
    x, kept = rng.normal(size=(5, 7)), {"float16": np.float16}.get(dtype, np.float32)
    weights = {"w_1": rng.normal(size=(7, 11)), "w_2": rng.normal(size=(11, 7))}
    plain = Architecture(norm="none", convention=how)
    traces = layer_norm(x, convention=how), feed_forward(x, how=plain, **weights)
    for _, stage in [pair for trace in traces for pair in trace.stages()]:
        assert stage.value.dtype == kept
        if dtype == "bfloat16":
            bits = np.ascontiguousarray(stage.value).view(np.uint32)
            assert not (bits & 0xFFFF).any()
    exact = layer_norm(x)["norm"].value
    step = {"float32": 1e-6, "float16": 5e-3, "bfloat16": 4e-2}[dtype]
    np.testing.assert_allclose(traces[0]["norm"].value, exact, atol=step)


def test_dropout_leaves_zeros_and_the_rest_larger() -> None:
    ones, eye = np.ones((97, 101)), np.eye(101)
    how = Architecture(norm="none", dropout=0.25)
    trace, again = (feed_forward(ones, how=how, w_1=eye, w_2=eye) for _ in range(2))
    dropped = trace["sublayer_dropped"]
    assert set(np.unique(dropped.value)) == {0.0, 1 / 0.75}
    assert abs((dropped.value == 0).mean() - 0.25) < 0.02
    np.testing.assert_array_equal(again["sublayer_dropped"].value, dropped.value)
    assert (
        dropped.formula
        == "F' = F, each number set to 0 with probability 0.25, the others divided by 0.75"
    )
    assert dropped.symbol == "F'"
    assert trace["residual"].formula == "R₁ = X + F'"


def test_what_does_not_fit() -> None:
    with pytest.raises(ShapeError, match=r"gamma \(2\) does not fit x \(1 × 3\)"):
        layer_norm([[1, 2, 3]], gamma=np.ones(2))
    with pytest.raises(ShapeError, match=r"beta \(1 × 3\) does not fit x"):
        layer_norm([[1, 2, 3]], beta=np.ones((1, 3)))
    with pytest.raises(ConventionError, match="epsilon is -1"):
        layer_norm([[1, 2, 3]], epsilon=-1)
    with pytest.raises(ShapeError, match="x has the shape 3; use"):
        layer_norm([1, 2, 3])
    with pytest.raises(ShapeError, match=r"x \(1 × 3\) cannot be multiplied by weights of 2 × 2"):
        feed_forward([[1, 2, 3]], w_1=np.eye(2), w_2=np.eye(2))
    message = r"feed_forward \(2 × 3\) cannot be added to the sub-layer's input \(2 × 5\)"
    with pytest.raises(ShapeError, match=message):
        feed_forward(np.ones((2, 5)), w_1=np.ones((5, 7)), w_2=np.ones((7, 3)))
    with pytest.raises(ShapeError, match=r"the weights hold no ffn\.w_2"):
        feed_forward(np.ones((2, 5)), w_1=np.ones((5, 7)))
