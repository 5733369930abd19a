"""Layers and stacks: what must hold whatever the weights are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli import Convention, ConventionError, Projections, ShapeError, StageError
from attncli.attention.architecture import Architecture
from attncli.attention.initial import random_weights
from attncli.attention.layers import decoder_layer, encoder_layer, result
from attncli.attention.stacks import decode, encode
from attncli.attention.weights import EncoderLayerWeights, Sizes, StackWeights

D_MODEL, HEADS, D_FF = 10, 2, 11
SIZES = Sizes(d_model=D_MODEL, n_heads=HEADS, d_ff=D_FF)
NORMS = st.sampled_from(["post", "pre", "none"])
RNG = np.random.default_rng(19)


def stacks(seed: int = 0, n_layers: int = 1) -> Any:
    return random_weights("encoder-decoder", SIZES, seed=seed, n_layers=n_layers)


def rows(n: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(n, D_MODEL))


def test_stages_of_a_post_norm_layer_in_order() -> None:
    trace = encoder_layer(rows(3), stacks().encoder.layers[0], Architecture(n_heads=2))
    attention = "q k v scores scaled weights output concat projected residual mean deviation norm"
    feed = "hidden feed_forward residual mean deviation norm"
    expected = [f"attention.{name}" for name in attention.split()]
    assert list(trace) == expected + [f"feed_forward.{name}" for name in feed.split()]


def test_stages_of_a_pre_norm_decoder_layer_in_order() -> None:
    how = Architecture(n_heads=2, norm="pre")
    trace = decoder_layer(rows(3), rows(5), stacks().decoder.layers[0], how)
    names = list(trace)
    assert names[:5] == [f"attention.{name}" for name in ("mean", "deviation", "norm", "q", "k")]
    assert names[-1] == "feed_forward.residual"
    assert trace["cross_attention.q"].formula == "Q = N W_q"
    assert trace["cross_attention.k"].formula == "K = C W_k"
    assert trace["feed_forward.hidden"].formula == "G = max(0, N W₁ + b₁)"


def test_token_names_stay_with_their_rows_and_columns() -> None:
    target, source = ["le", "banc"], ["the", "river", "bank"]
    trace = decode(
        rows(2),
        rows(3),
        stacks().decoder,
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
    stack, how = stacks(n_layers=3).encoder, Architecture(n_heads=2)
    trace, x = encode(rows(5), stack, how), rows(5)
    for number, layer in enumerate(stack.layers, start=1):
        x = result(encoder_layer(x, layer, how))
        np.testing.assert_array_equal(trace[f"{number}.feed_forward.norm"].value, x)
    np.testing.assert_array_equal(result(trace), x)
    assert (stack.layers[0].attention.w_q != stack.layers[1].attention.w_q).all()


def test_a_stack_has_a_last_norm_where_its_weights_have_one() -> None:
    weights = random_weights("encoder", SIZES, final_norm=True).encoder
    how = Architecture(n_heads=2, norm="pre")
    assert weights
    trace = encode(rows(5), weights, how)
    assert list(trace)[-4:] == ["1.feed_forward.residual", "mean", "deviation", "norm"]
    np.testing.assert_allclose(result(trace).std(axis=-1), 1, atol=1e-4)
    plain = encode(rows(5), replace(weights, norm=None), how)
    np.testing.assert_array_equal(result(plain), trace["1.feed_forward.residual"].value)


def test_one_small_head_and_one_map_up_is_the_variant_without_norm() -> None:
    # Seven tokens of width 128, inner size 16, as in the fourth worked example.
    drawn = random_weights("attention", Sizes(d_model=128, d_k=16, d_ff=0)).attention
    assert drawn
    x = RNG.normal(size=(7, 128))
    trace = encoder_layer(x, EncoderLayerWeights(drawn), Architecture(norm="none"))
    shapes = {name: stage.value.shape for name, stage in trace.stages()}
    assert drawn.w_q.shape == (128, 16)
    assert shapes["attention.weights"] == (1, 7, 7)
    assert shapes["attention.output"] == (1, 7, 16)
    assert shapes["attention.projected"] == shapes["attention.residual"] == (7, 128)
    assert list(shapes)[-1] == "attention.residual"
    scores = (x @ drawn.w_q) @ (x @ drawn.w_k).T / 4
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    expected = x + weights @ (x @ drawn.w_v) @ drawn.w_o
    np.testing.assert_allclose(result(trace), expected, rtol=1e-10)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 7), NORMS, st.integers(0, 99), st.randoms(use_true_random=False))
def test_permuting_tokens_permutes_the_encoder_output(
    n: int, norm: Any, seed: int, random: Any
) -> None:
    order = random.sample(range(n), n)
    stack, how = stacks(seed, 2).encoder, Architecture(n_heads=2, norm=norm)
    x = rows(n, seed)
    before, after = result(encode(x, stack, how)), result(encode(x[order], stack, how))
    np.testing.assert_allclose(after, before[order], atol=1e-10)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 7), NORMS, st.integers(0, 99), st.floats(-100, 100))
def test_a_decoder_ignores_what_comes_after(n: int, norm: Any, seed: int, other: float) -> None:
    stack, how = stacks(seed, 2).decoder, Architecture(n_heads=2, norm=norm)
    x, memory = rows(n, seed), rows(5, seed + 1)
    before = result(decode(x, memory, stack, how))
    for i in range(n):
        changed = x.copy()
        changed[i + 1 :] = other
        after = result(decode(changed, memory, stack, how))
        np.testing.assert_allclose(after[: i + 1], before[: i + 1], atol=1e-9)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 5), st.integers(1, 4), NORMS)
def test_padding_behind_a_key_mask_changes_nothing(n: int, more: int, norm: Any) -> None:
    stack, how = stacks(n_layers=2).encoder, Architecture(n_heads=2, norm=norm)
    x = rows(n + more)
    padded = encode(x, stack, how, mask=np.arange(n + more) < n)
    np.testing.assert_allclose(result(padded)[:n], result(encode(x[:n], stack, how)), atol=1e-12)
    assert (padded["1.attention.weights"].value[:, :, n:] == 0).all()


@settings(deadline=None, max_examples=40)
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
    sizes = Sizes(
        d_model=13, n_heads=heads * groups, n_kv_heads=groups, d_k=d_k, d_v=d_v, d_ff=d_ff
    )
    weights = random_weights("encoder-decoder", sizes, n_layers=2, final_norm=True)
    assert weights.encoder
    assert weights.decoder
    how = Architecture(
        n_heads=heads * groups, n_kv_heads=groups, norm=norm, convention=Convention(dtype=dtype)
    )
    source, target = np.ones((n[0], 13)), np.ones((n[1], 13))
    memory = encode(source, weights.encoder, how)
    trace = decode(target, result(memory), weights.decoder, how)
    assert result(memory).shape == source.shape
    assert result(trace).shape == target.shape
    assert trace["2.cross_attention.weights"].value.shape == (heads * groups, n[1], n[0])
    assert ("1.feed_forward.hidden" in trace) == (d_ff > 0)


def test_the_decoder_alone_is_causal_and_windows_stay_out_of_cross_attention() -> None:
    convention = Convention(causal=True, window=(1, 0))
    how = Architecture(n_heads=2, convention=convention)
    trace = decoder_layer(rows(4), rows(5), stacks().decoder.layers[0], how)
    own, cross = trace["attention.weights"].value, trace["cross_attention.weights"].value
    assert (own[:, 3, :2] == 0).all()
    assert (own[:, 3, 2:] > 0).all()
    assert (cross > 0).all()
    assert trace.convention == convention


def test_dropout_is_off_unless_asked_and_differs_by_place() -> None:
    stack = stacks(n_layers=2).encoder
    assert not any("dropped" in name for name in encode(rows(7), stack, Architecture(n_heads=2)))
    how = Architecture(n_heads=2, dropout=0.5, convention=Convention(dropout=0.25, seed=3))
    trace, again = (encode(rows(7), stack, how) for _ in range(2))
    np.testing.assert_array_equal(result(trace), result(again))
    places = ("1.attention", "1.feed_forward", "2.attention", "2.feed_forward")
    zeros = {p: (trace[f"{p}.sublayer_dropped"].value == 0).tobytes() for p in places}
    assert len(set(zeros.values())) == 4
    first, second = (trace[f"{n}.attention.dropped"].value == 0 for n in (1, 2))
    assert (first != second).any()


def test_trim_takes_each_layer_as_it_is_made() -> None:
    stack, how = stacks(n_layers=2).encoder, Architecture(n_heads=2)
    kept = {"attention.weights", "feed_forward.norm"}
    trace = encode(rows(3), stack, how, trim=lambda layer: layer.keep(kept))
    assert list(trace) == [f"{n}.{name}" for n in (1, 2) for name in sorted(kept)]
    np.testing.assert_array_equal(result(trace), result(encode(rows(3), stack, how)))
    with pytest.raises(StageError, match=r"layer 1 lost its last stage, feed_forward\.norm"):
        encode(rows(3), stack, how, trim=lambda layer: layer.keep({"attention.weights"}))


def test_what_does_not_fit() -> None:
    with pytest.raises(ConventionError, match="dropout is 1"):
        Architecture(dropout=1)
    with pytest.raises(ConventionError, match="epsilon is nan"):
        Architecture(epsilon=float("nan"))
    with pytest.raises(ShapeError, match="the encoder has no layers"):
        encode(rows(3), StackWeights[EncoderLayerWeights](()))
    w = np.ones((10, 5))
    narrow = Projections(w, w, w, np.ones((5, 7)))
    with pytest.raises(ShapeError, match=r"projected \(3 × 7\) cannot be added .* need 10 columns"):
        encoder_layer(rows(3), EncoderLayerWeights(narrow))
    with pytest.raises(ShapeError, match="x has the shape 10; use"):
        encoder_layer(np.ones(10), stacks().encoder.layers[0])
