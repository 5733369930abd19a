"""attend and multi_head_attention: the trace, what they take and refuse, heads, number types.

What each knob does is in tests/conformance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attncli
from attncli import AttncliError, Convention, Projections, attend, multi_head_attention, stream
from attncli.commands.check.diagnose import check
from attncli.transformer.layers import LayerPlan
from attncli.transformer.weights import Architecture, random_weights
from tests.transformer.norms import layer_norm

Q = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
K = [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
V = [[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]]
RNG = np.random.default_rng(11)
SIZES = ((5, 11), (7, 11), (7, 13))
QUERY, KEY, VALUE = (RNG.normal(size=(2, 3, *size)).astype(np.float32) for size in SIZES)
MASK = RNG.random((5, 7)) < 0.6
MASK[:, 0] = True


def random(*shape: int) -> Any:
    return RNG.normal(size=shape)


def output(*qkv: Any, **convention: Any) -> Any:
    return attend(*qkv, **convention)["output"].value


# ---- the trace


INSIDE: dict[str, Any] = {"softcap": 2, "softcap_place": "after-bias"}
STAGES: list[tuple[dict[str, Any], str]] = [
    ({}, "scores scaled weights output"),
    ({"scale": "none"}, "scores weights output"),
    ({"softcap": 3.0, "dropout": 0.5, "causal": True},
     "mask scores scaled capped masked weights dropped output"),
    ({"softcap": 3.0, "softcap_place": "after-mask", "causal": True},
     "mask scores scaled masked capped weights output"),
    ({"mask": [[1.0, -math.inf, 0]], **INSIDE},
     "mask scores scaled biased capped masked weights output"),
    ({"mask": [[True, False, True]], **INSIDE}, "mask scores scaled capped masked weights output"),
]  # fmt: skip


def test_stages_that_do_something_are_there_in_order() -> None:
    for convention, names in STAGES:
        assert list(attend(Q, K, V, **convention)) == ["q", "k", "v", *names.split()]
    trace = attend(random(2, 6, 5, 7), random(2, 3, 11, 7), random(2, 3, 11, 13), causal=True)
    axes = {"scores": "batch head query key", "k": "batch kv_head key d_k"}
    axes |= {"output": "batch head query d_v", "lse": "batch head query"}
    assert {name: " ".join(trace[name].axes) for name in axes} == axes
    assert trace["output"].value.shape == (2, 6, 5, 13)


def test_stages_are_write_locked_and_do_not_follow_the_callers_array() -> None:
    q = np.array(Q)
    trace = attend(q, K, V)
    q[0, 0] = 99
    assert trace["q"].value[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        trace["weights"].value[0, 0] = 1


@pytest.mark.parametrize("align", ["top-left", "bottom-right"])
def test_some_rows_are_those_of_the_whole(align: Any) -> None:
    q, k, v = random(2, 3, 7, 5), random(2, 3, 11, 5), random(2, 3, 11, 3)
    for mask in (None, RNG.random((7, 11)) < 0.6, RNG.random(11) < 0.6, random(3, 1, 11)):
        convention: Any = {"mask": mask, "kv_len": [11, 9], "causal": True, "window": (4, 2)}
        convention |= {"causal_align": align, "sinks": [0.5, -1, 2]}
        whole, some = attend(q, k, v, **convention), attend(q, k, v, rows=[0, 2, 6], **convention)
        assert list(some) == list(whole)
        for name in ("q", "mask", "scores", "weights", "output"):
            np.testing.assert_allclose(some[name].value, whole[name].value[..., [0, 2, 6], :])
    assert some["weights"].names("query") == ("q1", "q3", "q7")
    named = attend(Q, K, V, rows=[2, 1], query_labels=["a", "b", "c"])
    assert named["output"].names("query") == ("c", "b")


def test_log_sum_exps_are_computed_only_where_they_are_named() -> None:
    for heads, n_keys in ((1, 1 << 15 | 7), (3, (1 << 14) + 1)):  # however many are summed at once
        zeros = np.zeros((heads, 5, 1)), np.zeros((heads, n_keys, 1)), np.zeros((heads, n_keys, 1))
        assert attend(*zeros)["lse"].value == pytest.approx(math.log(n_keys))
    trace = attend(Q, K, V)
    assert list(trace.computing(["lse"])) == [*trace, "lse"]
    assert list(trace.computing(["weights"])) == list(trace)
    assert "lse" not in attend(Q, K, V, softmax_over="queries")
    encoder = attncli.explain("the cat", block="encoder")
    name = next(n for n in encoder if n.endswith(".weights")).replace("weights", "lse")
    assert encoder[name].value == pytest.approx(encoder.computing(["lse"])[name].value)
    with pytest.raises(attncli.StageError, match="no stage"):
        encoder["attention.nothing"]


# ---- arrays and tensors


class Tensor:
    """As PyTorch has it: NumPy refuses it while it tracks gradients."""

    def __init__(self, array: Any, dtype: str, tracks: bool = True) -> None:
        self.array, self.dtype, self.tracks = array, dtype, tracks

    def detach(self) -> Tensor:
        return Tensor(self.array, self.dtype, tracks=False)

    def float(self) -> Tensor:
        return Tensor(self.array.astype(np.float32), "torch.float32", self.tracks)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if self.tracks or "bfloat16" in self.dtype:
            raise RuntimeError("Can't call numpy() on this tensor.")
        return np.asarray(self.array, dtype=dtype)


class OnlyDLPack:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **convention: Any) -> Any:
        return self.array.__dlpack__(**convention)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_tensors_that_track_gradients_of_dlpack_and_of_small_number_types() -> None:
    expected, qkv = output(QUERY, KEY, VALUE), (QUERY, KEY, VALUE)
    assert (output(*(Tensor(x, "torch.float32") for x in qkv)) == expected).all()
    assert (output(*map(OnlyDLPack, qkv)) == expected).all()
    for name in ("bfloat16", *(f"float8_{x}" for x in ("e4m3fn", "e5m2", "e4m3", "e4m3fnuz"))):
        small = [x.astype(getattr(ml_dtypes, name)) for x in qkv]
        expected = output(*(x.astype(np.float64) for x in small))
        assert (output(*small) == expected).all()
        assert (output(*(Tensor(x, f"torch.{name}") for x in small)) == expected).all()


def test_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    for dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn):
        small = [torch.from_numpy(x).to(dtype) for x in (QUERY, KEY, VALUE)]
        assert (output(*small) == output(*(x.to(torch.float64).numpy() for x in small))).all()
    tracked = [torch.from_numpy(x).requires_grad_() for x in (QUERY, KEY, VALUE)]
    result = output(*tracked, mask=torch.from_numpy(MASK), kv_len=torch.tensor([4, 7]))
    assert (result == output(QUERY, KEY, VALUE, mask=MASK, kv_len=[4, 7])).all()
    negated = torch._neg_view(torch.from_numpy(QUERY))  # only when it is read
    assert (output(negated, KEY, VALUE) == output(-QUERY, KEY, VALUE)).all()

    x = torch.ones(3, 2)
    for odd in (x.to("meta"), x.to_sparse()):  # without numbers at hand
        for name in ("q", "v", "mask", "kv_len", "sinks", "d_output", "past_k"):
            inputs: dict[str, Any] = {"q": x, "k": x, "v": x, name: odd}
            inputs |= {"past_v": x} if name == "past_k" else {}
            for function in (attend,) if name in ("d_output", "sinks") else (attend, stream):
                own = name.removeprefix("past_")
                with pytest.raises(attncli.ShapeError, match=f"{own} cannot be read"):
                    function(**inputs)
        with pytest.raises(attncli.ShapeError, match="output cannot be read"):
            check(odd, x, x, x)
        with pytest.raises(attncli.ShapeError, match="w_q cannot be read"):
            multi_head_attention(x, Projections(odd, odd, odd), n_heads=1)


# ---- heads, layouts and keywords


def test_heads_are_column_blocks_attended_alone() -> None:
    x = np.arange(2 * 3 * 10).reshape(2, 3, 10)
    heads = attncli.split_heads(x, 5)
    assert heads.shape == (2, 5, 3, 2)
    assert heads[1, 2, 0].tolist() == x[1, 0, 4:6].tolist()
    np.testing.assert_array_equal(attncli.merge_heads(heads), x)


def test_weights_of_each_head_name_their_number() -> None:
    x, own = random(5, 7), random(3, 7, 10)
    by_head = {f"W{n}": w.reshape(7, 2, 5).swapaxes(0, 1) for n, w in zip("qkv", own, strict=True)}
    same = multi_head_attention(x, Projections(*own), n_heads=2)["concat"].value
    np.testing.assert_array_equal(multi_head_attention(x, by_head)["concat"].value, same)


def test_layouts() -> None:
    one = [x[:, 0] for x in (QUERY, KEY, VALUE)]
    assert (output(*one, layout="hsd") == output(*one)).all()
    assert (output(*one, layout="bsd") == output(*(x[:, None] for x in one))).all()
    assert attncli.heads_first(np.zeros((7, 3, 10)), "bsd", 2).shape == (7, 2, 3, 5)
    named: Any = {"q": QUERY, "k": KEY, "v": VALUE, "past_k": KEY[..., :4, :]}
    named["past_v"] = VALUE[..., :4, :]
    for layout, arrays in (("bshd", named), ("shd", {name: x[0] for name, x in named.items()})):
        expected = attend(**arrays, causal=True)
        turned: Any = {name: np.swapaxes(x, -2, -3) for name, x in arrays.items()}
        trace = attend(**turned | {"layout": layout}, causal=True)
        assert list(trace) == list(expected)
        assert all((trace[name].value == expected[name].value).all() for name in expected)


def test_keywords_are_a_convention() -> None:
    trace = attend(Q, K, V, scale=0.5, window=(2, 0), convention=Convention(causal=True))
    assert trace.convention == Convention(causal=True, scale=0.5, window=(2, 0))
    projected = multi_head_attention(Q, Projections(*[np.eye(2)] * 3), n_heads=1, causal=True)
    assert projected.convention == Convention(causal=True)
    capped = attncli.attend_heads(Q, K, V, n_heads=1, softcap=2.0)
    assert capped.convention == Convention(softcap=2.0)
    with pytest.raises(TypeError, match=r"sclae.*did you mean scale"):
        attend(Q, K, V, sclae=0.5)  # type: ignore[call-overload]


def test_a_mask_of_nothing_but_0_and_1_asks() -> None:
    for dtype in (np.int64, np.float32):
        for function in (attend, stream):
            with pytest.raises(attncli.ConventionError, match=r"0 and 1.* what 1 means"):
                function(QUERY, KEY, VALUE, mask=MASK.astype(dtype))
        for meaning, same in (("keep", MASK), ("ignore", ~MASK), ("add", MASK - 1.0)):
            convention: Any = {"mask": MASK.astype(dtype), "mask_means": meaning}
            expected = output(QUERY, KEY, VALUE, mask=same)
            np.testing.assert_allclose(
                output(QUERY, KEY, VALUE, **convention), expected, rtol=1e-12
            )
    zeros = np.zeros_like(MASK, np.float32)  # mask nothing; whole numbers of 0 ask
    assert (output(QUERY, KEY, VALUE, mask=zeros) == output(QUERY, KEY, VALUE)).all()


# ---- what is refused

ONE, TWO = (3, 2), (5, 2)
SHAPES: list[tuple[Any, dict[str, Any], str]] = [
    ((ONE, TWO, (7, 2)), {}, "tokens: k .* 5, v .* 7"),
    (((1, 1, 1, 3, 2),) * 3, {}, "q is 5-dim"),
    ((ONE, (1, 5, 2), TWO), {}, "q has 2 dim.* k has 3"),
    (((0, 2), TWO, TWO), {}, "q is empty"),
    (((3, 5, 2), (3, 5, 2), (1, 5, 2)), {}, "heads: k .* 3, v .* 1"),
    (((2, 1, 3, 2), (5, 1, 3, 2), (5, 1, 3, 2)), {}, "batch size: q .* 2, k .* 5"),
    ((ONE, TWO, TWO), {"mask": np.zeros((1, 3, 5))}, "mask .* 3 dim.* 2"),
    ((ONE, TWO, TWO), {"mask": np.zeros((3, 5), int)}, "0 and 1"),
    ((ONE, TWO, TWO), {"mask": np.full((3, 5), 0.5), "mask_means": "ignore"}, "mask_means"),
    ((ONE, TWO, TWO), {"kv_len": [1, 2]}, "2 lengths for a batch of 1"),
    ((ONE, TWO, TWO), {"kv_len": [[1], [1, 2]]}, "kv_len is ragged"),
    ((ONE, TWO, TWO), {"past_k": np.zeros((1, 3))}, r"past_k \(1 × 3\) .* before k"),
    ((ONE, TWO, TWO), {"past_k": np.zeros((1, 2))}, "tokens: k .* 6, v .* 5"),
    ((ONE, TWO, TWO), {"past_v": np.zeros(2)}, "past_v"),
    ((ONE, (2,), TWO), {"past_k": np.zeros(2)}, "past_k"),
    ((ONE, TWO, TWO), {"rows": [2], "query_labels": ["a"]}, "3 queries but 1"),
    ((ONE, TWO, TWO), {"key_labels": ["a"]}, "5 entries along key but 1"),
    # 5 tokens taken for 5 heads, v of other tokens than k, and a mask of tokens
    (((2, 5, 3, 2), (2, 7, 3, 2), (2, 7, 3, 2)), {}, "layout='bshd'"),
    (((3, 3, 2), (7, 1, 2), (7, 1, 2)), {}, "layout='shd'"),
    (((5, 3, 2), (5, 3, 2), (4, 3, 2)), {}, "layout='shd'"),
    (((5, 3, 2),) * 3, {"mask": np.ones((5, 5), bool)}, "layout='shd'"),
    ((ONE, ONE, ONE), {"layout": "bshd"}, "bshd has 4 axes, the array 2"),
    ((ONE, ONE, ONE), {"layout": "sbhd"}, "no layout 'sbhd'"),
    ((ONE, ONE, ONE), {"rows": [0], "dropout": 0.5}, "of all queries"),
    ((ONE, ONE, ONE), {"rows": [0], "softmax_over": "queries"}, "of all queries"),
    *(((ONE, ONE, ONE), {"rows": rows}, "3 queries; use 0 to 2")
      for rows in ([3], [-1], [], [0.7], [[0]], [True], 1)),
    *(((ONE, ONE, ONE), {"sinks": sinks}, "sinks .* one score per head: 1")
      for sinks in ([1.0, 2], 1.0, [[1.0]])),
    ((ONE, ONE, ONE), {"sinks": ["a"]}, "sinks holds"),
    ((ONE, ONE, ONE), {"d_output": [[1, 2]]}, "d_output is 1 × 2, output is 3 × 2"),
    ((ONE, ONE, ONE), {"d_output": [[1, 2], [3]]}, "d_output is ragged"),
    ((ONE, ONE, ONE), {"d_output": 1}, "d_output is one number"),
    ((ONE, ONE, ONE), {"d_output": "twos"}, "'twos'"),
    ((ONE, ONE, ONE), {"d_output": "ones", "rows": [0]}, "all queries"),
    ((ONE, ONE, ONE), {"sinks": [1.0], "softmax_over": "queries"}, "softmax over keys"),
    ((ONE, ONE, ONE), {"window": (0, 0), "window_counts": "own"}, "own key has none"),
]  # fmt: skip


@pytest.mark.parametrize(("shapes", "options", "words"), SHAPES)
def test_what_does_not_fit(shapes: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(AttncliError, match=words):
        attend(*(np.zeros(shape) for shape in shapes), **options)


EYE, FLAT = np.zeros((5, 7)), np.zeros((2, 10))
CALLS: list[tuple[Callable[..., Any], Any, dict[str, Any], str]] = [
    *((attend, (bad, K, V), {}, "q") for bad in ([["a"]], [[None]], [[1], [1, 2]], [[1j]])),
    (attncli.split_heads, (FLAT, 3), {}, "10 does not divide into 3 heads"),
    (multi_head_attention, (FLAT[:, :3], Projections(EYE, EYE, EYE)), {"n_heads": 1},
     r"x \(2 × 3\) .* 5 × 7"),
    (multi_head_attention, (FLAT, {"w_q": EYE}), {}, "no w_k, w_v"),
    (attncli.attend_heads, [np.zeros((2, 2, 2, 2))] * 3, {"n_heads": 2}, "4 dimensions"),
]  # fmt: skip


def test_other_calls_that_do_not_fit() -> None:
    for function, inputs, convention, words in CALLS:
        with pytest.raises(AttncliError, match=words):
            function(*inputs, **convention)


# ---- number types


def test_float16_scores_overflow_before_they_are_scaled() -> None:
    x = np.full((2, 64), 40.0)  # 64 · 40 · 40 = 102,400, beyond float16's 65,504
    trace = attend(x, x, x, dtype="float16")
    assert np.isposinf(trace["scores"].value).all()
    assert np.isnan(trace["output"].value).all()


@pytest.mark.parametrize(("dtype", "bits"), [("float32", 23), ("float16", 10), ("bfloat16", 7)])
def test_every_stage_and_gradient_is_rounded_to_the_type(dtype: Any, bits: int) -> None:
    convention, x = Convention(dtype=dtype), random(5, 7)
    trace = attend(
        random(3, 5), random(7, 5), random(7, 2), convention=convention, d_output="random"
    )
    block = Architecture(kind="encoder", d_model=7, d_ff=11, norm="none", convention=convention)
    layers = LayerPlan(block, random_weights(block))
    layers.feed_forward("encoder.1.feed_forward", layers.rows("x", x))
    normed, fed = layer_norm(x, convention=convention), layers.trace()
    for name, stage in (*trace.stages(), *normed.stages(), *fed.stages()):
        assert stage.value.dtype == ("float32" if dtype == "bfloat16" else dtype)
        mantissa = np.frexp(stage.value.astype(np.float64))[0] * 2 ** (bits + 1)
        assert (mantissa == np.rint(mantissa)).all(), name
    exact = layer_norm(x)["norm"].value
    np.testing.assert_allclose(normed["norm"].value, exact, atol=6 * 2.0**-bits)
    beyond = attend([[1e300]], [[0.0]], [[-1e300]], dtype=dtype)  # infinite, without a warning
    assert (beyond["q"].value.item(), beyond["v"].value.item()) == (math.inf, -math.inf)


@given(st.floats(width=32))
def test_bfloat16_is_rounded_as_ml_dtypes_rounds_it(x: float) -> None:
    wide = np.array([[x]], dtype=np.float32)
    ours = attend(wide, [[0.0]], [[1.0]], dtype="bfloat16")["q"].value
    np.testing.assert_array_equal(ours, wide.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_a_trace_is_computed_again_from_any_stage() -> None:
    trace = attncli.explain("the bank", dim=4, heads=2, block="encoder", d_output="random")
    even = np.full((2, 2, 2), 0.5)
    again = trace.again({"encoder.1.attention.weights": even})
    v = trace["encoder.1.attention.v"].value
    np.testing.assert_allclose(again["encoder.1.attention.output"].value, even @ v)
    assert [*again] == [*trace]
    back = again.again({"encoder.1.attention.weights": trace["encoder.1.attention.weights"].value})
    for name, stage in trace.stages():
        np.testing.assert_array_equal(back[name].value, stage.value, err_msg=name)
    doubled = attend([[1.0]], [[2.0]], [[3.0]]).again(v=[[6.0]])
    assert doubled["output"].value.tolist() == [[6.0]]
    for names, message in (({"tokens": trace["tokens"].value}, "nothing is computed from tokens"),
                           ({"nope": [1]}, "no stage 'nope'"), ({"input": [1]}, "has the shape")):  # fmt: skip
        with pytest.raises(AttncliError, match=message):
            trace.again(names)
