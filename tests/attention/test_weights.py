"""Weights: drawn, read from arrays by name, and the errors for those that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli import InputError, ShapeError
from attncli.attention.state_dict import canonical, weights_from_arrays
from attncli.attention.weights import Dimensions, Weights, glorot_uniform, random_weights

# d_model 7, two heads of 3 and 5, d_ff 11.
SIZES = Dimensions(d_model=7, n_heads=2, d_k=3, d_v=5, d_ff=11)
OPEN = Dimensions(d_model=7, n_heads=2)
BLOCKS: Any = st.sampled_from(["attention", "encoder", "decoder", "encoder-decoder"])


def encoder_arrays(prefix: str = "") -> dict[str, Any]:
    shapes = {"w_q": (7, 6), "w_k": (7, 6), "w_v": (7, 10), "w_o": (10, 7)}
    shapes |= {"w_1": (7, 11), "w_2": (11, 7)}
    return {prefix + name: np.full(shape, 0.5) for name, shape in shapes.items()}


def test_glorot_uniform_fills_its_range_evenly() -> None:
    w, limit = glorot_uniform((101, 149), 0, "w"), np.sqrt(6 / 250)
    assert np.abs(w).max() <= limit
    assert np.abs(w).max() > 0.99 * limit
    # Glorot & Bengio (2010), equation 12: the variance is 2 / (n_in + n_out).
    np.testing.assert_allclose(w.var(), 2 / 250, rtol=0.03)
    np.testing.assert_allclose(w.mean(), 0, atol=0.03 * limit)


def test_drawn_numbers_stay_what_they_are() -> None:
    # Written down once, so that a change of NumPy's or ours shows: others have these numbers too.
    expected = [
        [-0.5455986100242702, -0.32178956016820154, 0.5634356077407258],
        [-0.3835976337866287, 0.466581727392354, 0.8758962437998206],
    ]
    assert glorot_uniform((2, 3), 0, "encoder.1.w_q").tolist() == expected


def test_shapes_and_names_of_drawn_weights() -> None:
    weights = random_weights("encoder-decoder", SIZES, n_layers=2, last_norm=True)
    shapes = {name: x.shape for name, x in weights.items()}
    assert shapes["encoder.1.attention.w_v"] == (7, 10)
    assert shapes["decoder.2.cross_attention.w_o"] == (10, 7)
    assert shapes["decoder.2.feed_forward.gamma"] == shapes["encoder.beta"] == (7,)
    # Four matrices, four of the feed-forward, four of the norms; the decoder has four and two more.
    assert len(shapes) == 2 * 12 + 2 + 2 * 18 + 2
    without = random_weights("encoder", Dimensions(d_model=7, d_ff=0))
    assert not any("feed_forward" in name for name in without)


def test_every_matrix_has_numbers_of_its_own_whatever_else_is_drawn() -> None:
    every = random_weights("encoder-decoder", SIZES, n_layers=3)
    matrices = [x.ravel()[:6].tobytes() for name, x in every.items() if ".w_" in name]
    assert len(set(matrices)) == len(matrices) == 3 * (6 + 10)
    fewer = random_weights("encoder", SIZES)
    for name, x in fewer.items():
        np.testing.assert_array_equal(x, every[name])
    attention = random_weights("attention", SIZES)
    np.testing.assert_array_equal(attention["attention.w_v"], every["encoder.1.attention.w_v"])
    other = random_weights("encoder", SIZES, seed=1)
    assert (other["encoder.1.attention.w_q"] != fewer["encoder.1.attention.w_q"]).all()


@given(BLOCKS, st.integers(1, 3), st.booleans(), st.sampled_from([SIZES, OPEN]))
def test_weights_survive_their_names(
    block: Any, n_layers: int, last: bool, sizes: Dimensions
) -> None:
    before = random_weights(block, SIZES, n_layers=n_layers, last_norm=last)
    after = weights_from_arrays(before, block, sizes)
    assert list(before) == list(after)
    for name, x in before.items():
        np.testing.assert_array_equal(after[name], x)


@pytest.mark.parametrize(
    ("name", "block", "ours"),
    [
        ("w_q", "attention", "attention.w_q"),
        ("W_Q", "encoder", "encoder.1.attention.w_q"),
        ("2.w_q", "decoder", "decoder.2.attention.w_q"),
        ("encoder.3.attention.w_o", "encoder-decoder", "encoder.3.attention.w_o"),
        ("decoder.3.cross_attention.b_o", "encoder", "decoder.3.cross_attention.b_o"),
        ("encoder.1.feed_forward.w_1", "encoder", "encoder.1.feed_forward.w_1"),
        ("gamma_2", "encoder", "encoder.1.feed_forward.gamma"),
        ("gamma_2", "decoder", "decoder.1.cross_attention.gamma"),
        ("decoder.2.gamma_3", "decoder", "decoder.2.feed_forward.gamma"),
        ("encoder.2.attention.beta", "encoder", "encoder.2.attention.beta"),
        ("w_q", "encoder", "encoder.1.attention.w_q"),
        ("decoder.beta", "encoder", "decoder.beta"),
        ("layers.4.norm1.weight", "encoder", "encoder.5.attention.gamma"),
        (
            "decoder.layers.0.multihead_attn.out_proj.bias",
            "decoder",
            "decoder.1.cross_attention.b_o",
        ),
        ("norm.weight", "decoder", "decoder.gamma"),
        ("encoder.norm.bias", "encoder-decoder", "encoder.beta"),
    ],
)
def test_names(name: str, block: Any, ours: str) -> None:
    assert list(canonical({name: np.ones(3)}, block)) == [ours]


@pytest.mark.parametrize(
    "name",
    [
        "w_x",
        "encoder.0.w_q",
        "layers.-1.w_q",
        "attention.w_1",
        "self_attn.norm1.weight",
        "w_q.wait",
        "encoder.1.gamma",
        "feed_forward.w_q",
        "bias_k",
        "encoder.1.2.w_q",
        "",
        "gamma_3",
        "gamma_4",
    ],
)
def test_names_that_are_not_known(name: str) -> None:
    with pytest.raises(InputError, match="there are no weights called") as caught:
        canonical({name: np.ones(3)}, "encoder")
    assert repr(name) in str(caught.value)


def test_pytorch_keeps_q_k_and_v_in_one_transposed_array() -> None:
    stacked = np.arange(3 * 2 * 2).reshape(6, 2)
    found = canonical({"in_proj_weight": stacked, "in_proj_bias": np.arange(6)}, "attention")
    matrices = {
        name.removeprefix("attention."): array.value.tolist() for name, array in found.items()
    }
    assert matrices["w_q"] == [[0, 2], [1, 3]]
    assert matrices["w_v"] == [[8, 10], [9, 11]]
    assert matrices["b_k"] == [2, 3]


def test_biases_and_norms_may_be_missing() -> None:
    given_arrays = encoder_arrays() | {"b_1": np.ones(11), "gamma_2": np.full(7, 2.0)}
    weights = weights_from_arrays(given_arrays, "encoder", OPEN)
    assert "encoder.1.attention.b_q" not in weights
    assert "encoder.1.feed_forward.b_1" in weights
    assert "encoder.1.attention.gamma" not in weights
    assert "encoder.1.feed_forward.gamma" in weights
    assert "encoder.gamma" not in weights


def test_arrays_that_a_block_does_not_use_are_passed_over() -> None:
    given_arrays = encoder_arrays("encoder.1.") | encoder_arrays("encoder.2.")
    attention = weights_from_arrays(given_arrays, "attention", OPEN)
    assert set(attention) == {f"attention.{name}" for name in ("w_q", "w_k", "w_v", "w_o")}
    two = weights_from_arrays(given_arrays, "encoder", OPEN)
    one = weights_from_arrays(given_arrays, "encoder", OPEN, n_layers=1)
    assert [len(w) for w in (two, one)] == [12, 6]


def test_weights_are_copies() -> None:
    arrays = {name: np.ones((7, 6)) for name in ("w_q", "w_k", "w_v")}
    weights = weights_from_arrays(arrays, "attention", OPEN)
    arrays["w_q"][:] = 9
    assert (weights["attention.w_q"] == 1).all()


def load(arrays: dict[str, Any], block: Any = "encoder", **sizes: Any) -> Weights:
    return weights_from_arrays(arrays, block, Dimensions(**({"d_model": 7, "n_heads": 2} | sizes)))


def replaced(name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    return encoder_arrays() | {name: np.ones(shape)}


def without(name: str) -> dict[str, Any]:
    return {other: x for other, x in encoder_arrays().items() if other != name}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            replaced("w_2", (7, 11)),
            "w_2 is 7 × 11, expected 11 × 7 (d_ff × d_model); it fits transposed",
        ),
        (replaced("w_k", (7, 5)), "w_k is 7 × 5, expected 7 × 6 (d_model × h_kv·d_k)"),
        (replaced("w_q", (7, 5)), "w_q gives h·d_k = 5, which 2 heads cannot share"),
        (replaced("w_q", (6,)), "w_q is 6, expected 7 × any (d_model × h·d_k)"),
        (
            replaced("gamma_1", (3,)),
            "gamma_1 (read as encoder.1.attention.gamma) is 3, expected 7 (d_model)",
        ),
        (replaced("b_2", ()), "b_2 is one number, expected 7 (d_model)"),
        (
            replaced("norm2.bias", (1, 7)),
            "norm2.bias (read as encoder.1.feed_forward.beta) is 1 × 7, expected 7",
        ),
        (
            {"linear1.weight": np.ones((7, 11)), **without("w_1")},
            "linear1.weight (read as encoder.1.feed_forward.w_1) is 7 × 11, expected any × 7 (d_ff × d_model); "
            "it fits transposed",
        ),
        ({"in_proj_weight": np.ones((7, 7))}, "in_proj_weight (7 × 7) cannot be cut in three"),
        ({"w_q": [[1], [2, 3]]}, "w_q is ragged"),
        ({"w_q": [["a"]]}, "w_q holds <U1 entries"),
    ],
)
def test_shapes_that_do_not_fit(arrays: Any, message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        load(arrays)
    assert str(caught.value).startswith(message)


def test_arrays_that_are_missing_double_or_homeless() -> None:
    arrays = without("w_1")
    message = r"the weights hold no encoder\.1\.feed_forward\.w_1 \(they hold .*\); it is d_model × d_ff; with d_ff 0"
    with pytest.raises(InputError, match=message):
        load(arrays)
    assert load(arrays, d_ff=0)
    with pytest.raises(InputError, match=r"the weights hold no encoder\.2\.attention\.w_q"):
        load(encoder_arrays() | {"encoder.3.b_1": np.ones(11)})
    with pytest.raises(InputError, match=r"hold no encoder\.2\.attention\.w_q"):
        load(encoder_arrays() | {"encoder.999999.b_1": np.ones(11)})
    with pytest.raises(
        InputError, match=r"w_q and q_proj_weight both mean encoder\.1\.attention\.w_q"
    ):
        load(encoder_arrays() | {"q_proj_weight": np.ones((6, 7))})
    with pytest.raises(InputError, match="'w_q' could belong to the encoder or to the decoder"):
        load(encoder_arrays(), "encoder-decoder")
    with pytest.raises(
        InputError,
        match=r"hold no decoder\.1\.attention\.w_q \(they hold encoder\.1\.attention\.w_q, ",
    ):
        load(encoder_arrays("encoder.1."), "encoder-decoder")
    with pytest.raises(
        InputError, match=r"hold no encoder\.1\.attention\.w_q \(they hold nothing\)"
    ):
        load({})


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(ShapeError, match="n_heads is 0; use 1 or more"):
        Dimensions(d_model=7, n_heads=0)
    with pytest.raises(ShapeError, match="d_ff is -1; use 0 or more"):
        Dimensions(d_model=7, d_ff=-1)
    with pytest.raises(ShapeError, match="a d_model of 7 does not divide into 2 heads"):
        random_weights("encoder", OPEN)
