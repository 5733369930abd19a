"""Gradients: by hand, against finite differences of a second reading, and what must always hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attncli
from attncli import Convention, ConventionError, ShapeError, attend, multi_head_attention
from attncli.arrays import Array
from attncli.attention.multi_head import Projections, projected_inputs
from tests import plain

Q = [[1, 0], [0, 1], [1, 1]]
K = [[1, 1], [1, 0], [0, 1]]
V = [[10, 0], [0, 10], [5, 5]]
D_OUTPUT = [[1, 0], [0, 1], [1, 1]]
STEP = 1e-5


def test_every_stage_of_the_example_by_hand() -> None:
    """q1 and its weights 0.4011, 0.4011, 0.1978: dA = 10, 0, 5, so δ = 5 and dS = A (dA − 5) / √2."""
    trace = attend(Q, K, V, d_output=D_OUTPUT)
    e = math.exp(math.sqrt(0.5))
    a = e / (2 * e + 1)  # of k1 and k2; that of k3 is 1 − 2 a
    d = 5 * a / math.sqrt(2)
    own = [*trace][[*trace].index("output") + 1 :]
    assert own == ["d_output", "d_v", "d_weights", "delta", "d_scaled", "d_scores", "d_q", "d_k"]
    assert trace["d_weights"].value.tolist() == [[10, 0, 5], [0, 10, 5], [10, 10, 10]]
    np.testing.assert_allclose(trace["d_scores"].value[0], [d, -d, 0], atol=1e-14)
    np.testing.assert_allclose(trace["d_scores"].value[2], 0, atol=1e-14)
    np.testing.assert_allclose(trace["delta"].value, [5, 10 * (1 - 2 * a) + 5 * a, 10])
    np.testing.assert_allclose(trace["d_q"].value[0], [0, d], atol=1e-14)
    np.testing.assert_allclose(trace["d_k"].value[0], [d, trace["d_scores"].value[1, 0]])
    shares = 1 / (math.e**0.5**0.5 + 2)  # of k2 and k3 in the row of q3
    np.testing.assert_allclose(trace["d_v"].value[0], [a + 1 - 2 * shares, a + 1 - 2 * shares])
    assert trace["d_scores"].formula == "dS = dZ / √d_k = dZ / 1.4142"


def test_a_mask_of_infinity_has_no_stage_on_the_way_back_and_a_finite_one_has() -> None:
    names = [*attend(Q, K, V, d_output=D_OUTPUT, causal=True)]
    assert names[names.index("delta") + 1 :] == ["d_masked", "d_scores", "d_q", "d_k"]
    finite = attend(Q, K, V, d_output=D_OUTPUT, causal=True, mask_value=-1.0)
    assert (finite["d_scaled"].value == np.tril(finite["d_masked"].value)).all()
    assert finite["d_masked"].value[0, 1] != 0


def numbers(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape)


def by_differences(
    given: dict[str, Array], how: dict[str, Any], d: Array, name: str, way: Array
) -> float:
    """How fast Σ O ∘ dO grows along a way of one input, by the second reading."""

    def loss(step: float) -> float:
        moved = {**given, name: given[name] + step * way}
        with np.errstate(all="ignore"):
            return float((plain.attention(moved, how)["output"] * d).sum())

    return (loss(STEP) - loss(-STEP)) / (2 * STEP)


CONVENTIONS = st.fixed_dictionaries(
    {},
    optional={
        "scale": st.sampled_from(["none", 0.37]),
        "causal": st.just(True),
        "causal_align": st.sampled_from(["bottom-right", "open-last"]),
        "window": st.sampled_from([(2, 1), (0, -1)]),
        "softcap": st.sampled_from([0.7, 3.0]),
        "softcap_place": st.sampled_from(["after-bias", "after-mask"]),
        "softmax_over": st.just("queries"),
        "mask_value": st.sampled_from([-2.0, -50.0]),
        "mask_value_rule": st.just("add"),
        "empty_rows": st.sampled_from(["uniform", "unmasked"]),
        "head_order": st.just("tiled"),
        "dropout": st.just(0.3),
        "seed": st.just(5),
    },
)


@settings(max_examples=150, deadline=None)
@given(
    CONVENTIONS,
    st.sampled_from(["none", "truth", "numbers", "broadcast"]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**16),
)
def test_gradients_agree_with_finite_differences(
    how: dict[str, Any], mask: str, has_sinks: bool, has_past: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    given: dict[str, Any] = {"q": numbers(rng, 2, 6, 5, 3), "k": numbers(rng, 2, 3, 7, 3)}
    given["v"] = numbers(rng, 2, 3, 7, 2)
    if has_past:
        given |= {"past_k": numbers(rng, 2, 3, 4, 3), "past_v": numbers(rng, 2, 3, 4, 2)}
    n_k, d = 11 if has_past else 7, numbers(rng, 2, 6, 5, 2)
    if mask == "truth":
        given["mask"] = rng.random((5, n_k)) < 0.6
        given["mask"][1] = False
    elif mask == "numbers":
        given["mask"] = np.where(rng.random((6, 5, n_k)) < 0.7, numbers(rng, 6, 5, n_k), -np.inf)
    elif mask == "broadcast":
        given["mask"] = numbers(rng, 2, 1, 1, n_k)
    if has_sinks and how.get("softmax_over") != "queries":
        given["sinks"] = numbers(rng, 6)
    trace = attend(**given, d_output=d, **how)
    gradients: dict[str, Array] = {
        name: trace[f"d_{name}"].value for name in ("q", "sinks") if name in given
    }
    for name in ("k", "v"):  # those of the cache come first
        whole = trace[f"d_{name}"].value
        gradients[name] = whole[..., -7:, :]
        if has_past:
            gradients[f"past_{name}"] = whole[..., :-7, :]
    if mask in ("numbers", "broadcast"):
        gradients["mask"] = trace["d_bias"].value
    for name, gradient in gradients.items():
        assert gradient.shape == given[name].shape
        way = np.where(np.isinf(given[name]), 0, numbers(rng, *gradient.shape))
        expected = by_differences(given, how, d, name, way)
        size = np.abs(gradient * way).sum()
        assert float((gradient * way).sum()) == pytest.approx(expected, abs=1e-7 + 1e-7 * size)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 2**16))
def test_gradients_of_x_and_of_the_weights_agree_with_finite_differences(
    n_kv_heads: int, has_context: bool, has_bias: bool, projects: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    n_heads, d_c = n_kv_heads * 2, 3 if has_context else 5
    arrays: dict[str, Any] = {
        "x": numbers(rng, 2, 7, 5), "w_q": numbers(rng, 5, n_heads * 2),
        "w_k": numbers(rng, d_c, n_kv_heads * 2), "w_v": numbers(rng, d_c, n_kv_heads * 3),
    }  # fmt: skip
    arrays |= {"x_kv": numbers(rng, 2, 11, 3)} if has_context else {}
    arrays |= {"w_o": numbers(rng, n_heads * 3, 13)} if projects else {}
    if has_bias:
        arrays |= {f"b_{n}": numbers(rng, arrays[f"w_{n}"].shape[1]) for n in ("q", "k", "v")}
    d = numbers(rng, 2, 7, 13 if projects else n_heads * 3)

    def trace(**moved: Array) -> attncli.Trace:
        given: dict[str, Any] = {**arrays, **moved}
        weights = Projections(**{n: x for n, x in given.items() if n[:2] in ("w_", "b_")})
        own: dict[str, Any] = {
            "context": given.get("x_kv"),
            "n_heads": n_heads,
            "n_kv_heads": n_kv_heads,
        }
        return multi_head_attention(given["x"], weights, **own, causal=True, d_output=d)

    found = trace()
    for name, x in arrays.items():
        gradient, way = found[f"d_{name}"].value, numbers(rng, *x.shape)
        assert gradient.shape == x.shape
        last = "projected" if projects else "concat"
        ends = [(trace(**{name: x + h * way})[last].value * d).sum() for h in (STEP, -STEP)]
        expected, size = (ends[0] - ends[1]) / (2 * STEP), np.abs(gradient * way).sum()
        assert float((gradient * way).sum()) == pytest.approx(expected, abs=1e-7 + 1e-7 * size)


@pytest.mark.parametrize("n_heads", [1, 2])
@pytest.mark.parametrize("projects", [True, False])
def test_an_attention_in_two_parts_has_the_gradients_of_the_whole(
    n_heads: int, projects: bool
) -> None:
    rng = np.random.default_rng(n_heads)
    w_o = numbers(rng, 14, 13) if projects else None
    w_q, w_k, w_v = (numbers(rng, 5, n) for n in (6, 6, 14))
    weights = Projections(w_q, w_k, w_v, w_o)
    x = numbers(rng, 7, 5)
    made = projected_inputs({"x": x}, weights, Convention(), n_heads=n_heads)
    made = made.with_gradient("random")
    given: dict[str, Any] = {name: made.values[name] for name in ("q", "k", "v")}
    parts = made.around(attend(**given, d_output=made.d_output, causal=True))
    whole = multi_head_attention(x, weights, n_heads=n_heads, causal=True, d_output=made.d_result)
    own = [name for name in whole if name.startswith("d_")]
    assert {*own} - {*parts} == ({"d_concat"} if n_heads == 1 else set())
    for name in own:
        if name in parts:
            shape = parts[name].value.shape
            np.testing.assert_allclose(parts[name].value, whole[name].value.reshape(shape))


@given(st.booleans(), st.booleans(), st.integers(0, 2**16))
def test_delta_is_also_the_sum_of_the_output_times_its_gradient(
    caps: bool, has_sinks: bool, seed: int
) -> None:
    """δ = Σ A ∘ dA = Σ O ∘ dO, and Σ of a row of the softmax's gradient is δ times a sink's share."""
    rng = np.random.default_rng(seed)
    q, k, v = (numbers(rng, 3, n, d) for n, d in ((5, 2), (7, 2), (7, 11)))
    sinks = numbers(rng, 3) if has_sinks else None
    d, cap = numbers(rng, 3, 5, 11), 2.0 if caps else None
    trace = attend(q, k, v, sinks=sinks, softcap=cap, d_output=d)
    delta = trace["delta"].value
    np.testing.assert_allclose(delta, (trace["output"].value * d).sum(axis=-1), atol=1e-12)
    rest = 1 - trace["weights"].value.sum(axis=-1)
    of_softmax = trace["d_capped" if caps else "d_scaled"].value
    np.testing.assert_allclose(of_softmax.sum(axis=-1), delta * rest, atol=1e-12)


def test_a_query_that_attends_to_nothing_gives_no_gradient() -> None:
    mask = np.array([[True, True, False], [False, False, False], [True, True, True]])
    trace = attend(Q, K, V, mask=mask, d_output=D_OUTPUT)
    assert (trace["d_q"].value[1] == 0).all()
    rest = attend([Q[0], Q[2]], K, V, mask=mask[[0, 2]], d_output=[D_OUTPUT[0], D_OUTPUT[2]])
    for name in ("d_k", "d_v"):
        np.testing.assert_allclose(trace[name].value, rest[name].value, atol=1e-15)


def test_what_is_nan_in_a_key_or_value_that_is_masked_goes_no_further() -> None:
    k, v = np.array(K, float), np.array(V, float)
    k[1] = v[1] = np.nan
    mask = np.array([[True, False, True]] * 3)
    trace = attend(Q, k, v, mask=mask, d_output=D_OUTPUT)
    assert np.isfinite(trace["d_q"].value).all()
    two = attend(Q, k[[0, 2]], v[[0, 2]], d_output=D_OUTPUT)
    np.testing.assert_allclose(trace["d_q"].value, two["d_q"].value)
    np.testing.assert_allclose(trace["d_k"].value[[0, 2]], two["d_k"].value)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_gradient_is_rounded_to_the_number_type(dtype: Any) -> None:
    rng = np.random.default_rng(7)
    q, k, v = (numbers(rng, 3, n, d) for n, d in ((5, 2), (7, 2), (7, 11)))
    trace = attend(q, k, v, d_output="random", dtype=dtype)
    kept = 2 ** {"float32": 23, "float16": 10, "bfloat16": 7}[dtype]
    for name in [*trace][[*trace].index("output") + 1 :]:
        assert trace[name].value.dtype == ("float32" if dtype == "bfloat16" else dtype)
        mantissa = np.frexp(trace[name].value.astype(np.float64))[0] * 2 * kept
        assert (mantissa == np.rint(mantissa)).all(), name


def test_ones_and_random() -> None:
    ones = attend(Q, K, V, d_output="ones")
    assert (ones["d_output"].value == 1).all()
    np.testing.assert_allclose(ones["d_scores"].value, 0, atol=1e-15)  # every value sums to 10
    drawn = np.random.default_rng(3).standard_normal((3, 2))
    assert (attend(Q, K, V, d_output="random", seed=3)["d_output"].value == drawn).all()


def test_gradients_of_a_layout_have_their_heads_first() -> None:
    rng = np.random.default_rng(11)
    q, k, v, d = (numbers(rng, 2, n, 3, w) for n, w in ((5, 7), (11, 7), (11, 13), (5, 13)))
    turned = attend(q, k, v, d_output=d, layout="bshd")
    plain_ = attend(*(np.swapaxes(x, 1, 2) for x in (q, k, v)), d_output=np.swapaxes(d, 1, 2))
    for name in ("d_output", "d_q", "d_k", "d_v"):
        assert (turned[name].value == plain_[name].value).all()


@pytest.mark.parametrize(
    ("d", "words"),
    [
        ([[1, 2]], "d_output is 1 × 2, output is 3 × 2"),
        ([[1, 2], [3]], "d_output is ragged"),
        (1, "d_output is one number"),
        ("twos", "d_output is 'twos'; use an array, ones or random"),
    ],
)
def test_what_is_no_gradient_of_the_output(d: Any, words: str) -> None:
    with pytest.raises((ShapeError, ConventionError), match=words):
        attend(Q, K, V, d_output=d)


def test_gradients_of_keys_need_every_query() -> None:
    with pytest.raises(ConventionError, match="sums over all queries, not over some rows"):
        attend(Q, K, V, d_output=D_OUTPUT, rows=[0])


def test_a_sentence_has_gradients_down_to_its_vectors() -> None:
    trace = attncli.explain("the river bank", dim=4, heads=2, d_output="random")
    d, last = trace["attention.d_projected"].value, "attention.projected"
    vectors = trace["input"].value
    way = numbers(np.random.default_rng(0), *vectors.shape)
    ends = []
    for h in (STEP, -STEP):
        given = attncli.explain(
            "the river bank", dim=4, heads=2, positions=trace["positions"].value + h * way
        )
        ends.append((given[last].value * d).sum())
    expected = (ends[0] - ends[1]) / (2 * STEP)
    assert (trace["attention.d_x"].value * way).sum() == pytest.approx(expected, abs=1e-7)
    with pytest.raises(ConventionError, match="d_output has no effect on block 'encoder'"):
        attncli.explain("the bank", block="encoder", d_output="ones")
