"""Layers and stacks: what must hold whatever the weights are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli import Convention, ConventionError, ShapeError
from attncli.attention.layers import Architecture, LayerPlan
from attncli.attention.weights import Dimensions, random_weights

from .stacks import decode, encode, result

D_MODEL, HEADS, D_FF = 10, 2, 11
SIZES = Dimensions(d_model=D_MODEL, n_heads=HEADS, d_ff=D_FF)
NORMS = st.sampled_from(["post", "pre", "none"])
RNG = np.random.default_rng(19)


def stacks(seed: int = 0, n_layers: int = 1) -> dict[str, Any]:
    return random_weights("encoder-decoder", SIZES, seed=seed, n_layers=n_layers)


def rows(n: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(n, D_MODEL))


def test_stages_of_a_post_norm_layer_in_order() -> None:
    trace = encode(rows(3), stacks(), Architecture(n_heads=2))
    attention = "w_q w_k w_v w_o gamma beta q k v scores scaled weights output concat projected"
    feed = "w_1 w_2 b_1 b_2 gamma beta hidden feed_forward"
    norm = "residual mean deviation norm"
    expected = [f"1.attention.{name}" for name in f"{attention} {norm}".split()]
    assert list(trace) == expected + [f"1.feed_forward.{name}" for name in f"{feed} {norm}".split()]


def test_stages_of_a_pre_norm_decoder_layer_in_order() -> None:
    how = Architecture(n_heads=2, norm="pre")
    trace = decode(rows(3), rows(5), stacks(), how).part("1")
    names = list(trace)
    assert names[6:11] == [f"attention.{name}" for name in ("mean", "deviation", "norm", "q", "k")]
    assert names[-1] == "feed_forward.residual"
    assert trace["cross_attention.q"].formula == "Q = N₂ W_q"
    assert trace["cross_attention.k"].formula == "K = C W_k"
    assert trace["feed_forward.hidden"].formula == "G = max(0, N₃ W₁ + b₁)"


def test_a_stage_says_what_it_was_computed_from() -> None:
    how = Architecture(n_heads=2, norm="pre", dropout=0.25)
    trace = decode(rows(3), rows(5), stacks(), how)
    assert dict(trace["1.attention.q"].reads) == {"x": "norm", "w": "w_q"}
    assert dict(trace["1.attention.scores"].reads) == {"q": "q", "k": "k"}
    assert dict(trace["1.attention.masked"].reads) == {"x": "scaled", "mask": "mask"}
    assert dict(trace["1.attention.weights"].reads) == {"x": "masked"}
    assert dict(trace["1.attention.residual"].reads) == {"x": "x", "y": "sublayer_dropped"}
    assert dict(trace["1.cross_attention.mean"].reads) == {"x": "1.attention.residual"}
    assert dict(trace["1.cross_attention.k"].reads) == {"x": "memory", "w": "w_k"}
    assert dict(trace["1.feed_forward.hidden"].reads) == {"x": "norm", "w": "w_1", "b": "b_1"}
    assert trace["1.feed_forward.norm"].params == {"epsilon": 1e-5}


def test_token_names_stay_with_their_rows_and_columns() -> None:
    target, source = ["le", "banc"], ["the", "river", "bank"]
    trace = decode(
        rows(2),
        rows(3),
        stacks(),
        Architecture(n_heads=2),
        labels=target,
        memory_labels=source,
    )
    cross = trace["1.cross_attention.weights"]
    assert cross.axes == ("head", "query", "key")
    assert (cross.names("query"), cross.names("key")) == (("le", "banc"), ("the", "river", "bank"))
    assert trace["1.attention.weights"].names("key") == ("le", "banc")
    for name in ("cross_attention.residual", "feed_forward.hidden", "feed_forward.norm"):
        assert trace[f"1.{name}"].names("query") == ("le", "banc")


def test_layers_are_chained_and_have_weights_of_their_own() -> None:
    weights, how = stacks(n_layers=3), Architecture(n_heads=2)
    trace, x = encode(rows(5), weights, how), rows(5)
    for number in (1, 2, 3):
        prefix = f"encoder.{number}."
        alone = {
            name.replace(prefix, "encoder.1."): w
            for name, w in weights.items()
            if name.startswith(prefix)
        }
        x = result(encode(x, alone, how))
        np.testing.assert_array_equal(trace[f"{number}.feed_forward.norm"].value, x)
    np.testing.assert_array_equal(result(trace), x)
    first, second = (weights[f"encoder.{number}.attention.w_q"] for number in (1, 2))
    assert (first != second).all()


def test_a_stack_has_a_last_norm_where_its_weights_have_one() -> None:
    weights = random_weights("encoder", SIZES, last_norm=True)
    how = Architecture(n_heads=2, norm="pre")
    trace = encode(rows(5), weights, how)
    last = ["1.feed_forward.residual", "gamma", "beta", "mean", "deviation", "norm"]
    assert list(trace)[-6:] == last
    np.testing.assert_allclose(result(trace).std(axis=-1), 1, atol=1e-4)
    inner = {name: w for name, w in weights.items() if name.count(".") > 1}
    plain = encode(rows(5), inner, how)
    np.testing.assert_array_equal(result(plain), trace["1.feed_forward.residual"].value)


def test_one_small_head_and_one_map_up_is_the_variant_without_norm() -> None:
    # Seven tokens of width 128, inner size 16, as in the fourth worked example.
    weights = random_weights("encoder", Dimensions(d_model=128, d_k=16, d_ff=0))
    w_q, w_k, w_v, w_o = (weights[f"encoder.1.attention.w_{name}"] for name in "qkvo")
    x = RNG.normal(size=(7, 128))
    trace = encode(x, weights, Architecture(norm="none")).part("1")
    shapes = {name: stage.value.shape for name, stage in trace.stages()}
    assert w_q.shape == (128, 16)
    assert "attention.concat" not in shapes  # of one head it would be a copy of the output
    assert shapes["attention.weights"] == (1, 7, 7)
    assert shapes["attention.output"] == (1, 7, 16)
    assert shapes["attention.projected"] == shapes["attention.residual"] == (7, 128)
    assert list(shapes)[-1] == "attention.residual"
    scores = (x @ w_q) @ (x @ w_k).T / 4
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    expected = x + shares @ (x @ w_v) @ w_o
    np.testing.assert_allclose(result(trace), expected, rtol=1e-10)


@settings(max_examples=40)
@given(st.integers(1, 7), NORMS, st.integers(0, 99), st.randoms(use_true_random=False))
def test_permuting_tokens_permutes_the_encoder_output(
    n: int, norm: Any, seed: int, random: Any
) -> None:
    order = random.sample(range(n), n)
    stack, how = stacks(seed, 2), Architecture(n_heads=2, norm=norm)
    x = rows(n, seed)
    before, after = result(encode(x, stack, how)), result(encode(x[order], stack, how))
    np.testing.assert_allclose(after, before[order], atol=1e-10)


@settings(max_examples=40)
@given(st.integers(1, 7), NORMS, st.integers(0, 99), st.floats(-100, 100))
def test_a_decoder_ignores_what_comes_after(n: int, norm: Any, seed: int, other: float) -> None:
    stack, how = stacks(seed, 2), Architecture(n_heads=2, norm=norm)
    x, memory = rows(n, seed), rows(5, seed + 1)
    before = result(decode(x, memory, stack, how))
    for i in range(n):
        changed = x.copy()
        changed[i + 1 :] = other
        after = result(decode(changed, memory, stack, how))
        np.testing.assert_allclose(after[: i + 1], before[: i + 1], atol=1e-9)


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(1, 4), NORMS)
def test_padding_behind_a_key_mask_changes_nothing(n: int, more: int, norm: Any) -> None:
    stack, how = stacks(n_layers=2), Architecture(n_heads=2, norm=norm)
    x = rows(n + more)
    padded = encode(x, stack, how, mask=np.arange(n + more) < n)
    np.testing.assert_allclose(result(padded)[:n], result(encode(x[:n], stack, how)), atol=1e-12)
    assert (padded["1.attention.weights"].value[:, :, n:] == 0).all()


@settings(max_examples=40)
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(0, 7),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    NORMS,
    st.sampled_from(["float64", "float32", "float16", "bfloat16"]),
)
def test_shapes(
    heads: int, groups: int, d_k: int, d_v: int, d_ff: int, n: Any, norm: Any, dtype: Any
) -> None:
    sizes = Dimensions(
        d_model=13, n_heads=heads * groups, n_kv_heads=groups, d_k=d_k, d_v=d_v, d_ff=d_ff
    )
    weights = random_weights("encoder-decoder", sizes, n_layers=2, last_norm=True)
    how = Architecture(
        n_heads=heads * groups, n_kv_heads=groups, norm=norm, convention=Convention(dtype=dtype)
    )
    source, target = np.ones((n[0], 13)), np.ones((n[1], 13))
    memory = encode(source, weights, how)
    trace = decode(target, result(memory), weights, how)
    assert result(memory).shape == source.shape
    assert result(trace).shape == target.shape
    assert trace["2.cross_attention.weights"].value.shape == (heads * groups, n[1], n[0])
    assert ("1.feed_forward.hidden" in trace) == (d_ff > 0)


def test_the_decoder_alone_is_causal_and_windows_stay_out_of_cross_attention() -> None:
    convention = Convention(causal=True, window=(1, 0))
    how = Architecture(n_heads=2, convention=convention)
    trace = decode(rows(4), rows(5), stacks(), how).part("1")
    own, cross = trace["attention.weights"].value, trace["cross_attention.weights"].value
    assert (own[:, 3, :2] == 0).all()
    assert (own[:, 3, 2:] > 0).all()
    assert (cross > 0).all()
    assert trace.convention == convention


def test_dropout_is_off_unless_asked_and_differs_by_place() -> None:
    stack = stacks(n_layers=2)
    assert not any("dropped" in name for name in encode(rows(7), stack, Architecture(n_heads=2)))
    how = Architecture(n_heads=2, dropout=0.5, convention=Convention(dropout=0.25, seed=3))
    trace, again = (encode(rows(7), stack, how) for _ in range(2))
    np.testing.assert_array_equal(result(trace), result(again))
    places = ("1.attention", "1.feed_forward", "2.attention", "2.feed_forward")
    zeros = {p: (trace[f"{p}.sublayer_dropped"].value == 0).tobytes() for p in places}
    assert len(set(zeros.values())) == 4
    first, second = (trace[f"{n}.attention.dropped"].value == 0 for n in (1, 2))
    assert (first != second).any()


def test_only_what_is_wanted_is_kept() -> None:
    weights, how = stacks(n_layers=2), Architecture(n_heads=2)
    layers = LayerPlan(how, weights)
    last = layers.stack(layers.rows("x", rows(3)))
    wanted = {"encoder.1.attention.weights", "encoder.2.attention.w_q", last}
    trace = layers.trace(wanted)
    assert set(trace) == wanted
    whole = encode(rows(3), weights, how)
    np.testing.assert_array_equal(trace[last].value, result(whole))


def test_what_does_not_fit() -> None:
    with pytest.raises(ConventionError, match="dropout is 1"):
        Architecture(dropout=1)
    with pytest.raises(ConventionError, match="epsilon is nan"):
        Architecture(epsilon=float("nan"))
    with pytest.raises(ShapeError, match="the encoder has no layers"):
        encode(rows(3), {})
    w = np.ones((10, 5))
    narrow = {f"encoder.1.attention.w_{name}": w for name in "qkv"}
    narrow["encoder.1.attention.w_o"] = np.ones((5, 7))
    with pytest.raises(ShapeError, match=r"projected \(3 × 7\) cannot be added .* need 10 columns"):
        encode(rows(3), narrow)
    with pytest.raises(ShapeError, match="x has the shape 10; use"):
        encode(np.ones(10), stacks())
