"""What attend takes: tensors of other libraries, layouts, keywords, and masks of 0 and 1."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from attncli import (
    Convention,
    ConventionError,
    Projections,
    ShapeError,
    attend,
    attend_heads,
    multi_head_attention,
    stream,
)
from attncli.check import check
from tests.check.test_assert_attention import FakeTensor, OnlyDLPack

RNG = np.random.default_rng(41)
B, H, N_Q, N_K, D, D_V = 2, 3, 5, 7, 11, 13
Q, K, V = (
    RNG.normal(size=shape).astype(np.float32)
    for shape in ((B, H, N_Q, D), (B, H, N_K, D), (B, H, N_K, D_V))
)
MASK = RNG.random((N_Q, N_K)) < 0.6
MASK[:, 0] = True


def output(*qkv: Any, **how: Any) -> Any:
    return attend(*qkv, **how)["output"].value


# ---- tensors


def test_tensors_that_track_gradients_and_those_of_dlpack() -> None:
    expected = output(Q, K, V)
    assert (output(*map(FakeTensor, (Q, K, V))) == expected).all()
    assert (output(*map(OnlyDLPack, (Q, K, V))) == expected).all()


@pytest.mark.parametrize(
    "name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3", "float8_e4m3fnuz"]
)
def test_small_number_types_are_widened_exactly(name: str) -> None:
    small = [x.astype(getattr(ml_dtypes, name)) for x in (Q, K, V)]
    expected = output(*(x.astype(np.float64) for x in small))
    assert (output(*small) == expected).all()
    tensors = [FakeTensor(x, f"torch.{name}") for x in small]
    assert (output(*tensors) == expected).all()


def test_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        small = [torch.from_numpy(x).to(dtype) for x in (Q, K, V)]
        expected = output(*(x.to(torch.float64).numpy() for x in small))
        assert (output(*small) == expected).all()
    tracked = [torch.from_numpy(x).requires_grad_() for x in (Q, K, V)]
    lengths = torch.tensor([4, 7])
    found = attend(*tracked, mask=torch.from_numpy(MASK), kv_len=lengths)
    assert (found["output"].value == output(Q, K, V, mask=MASK, kv_len=[4, 7])).all()


@pytest.mark.parametrize("name", ["q", "v", "mask", "kv_len", "sinks", "d_output", "past_k"])
@pytest.mark.parametrize("kind", ["meta", "sparse"])
def test_a_tensor_without_numbers_at_hand_is_refused_by_name(name: str, kind: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.ones(3, 2)
    odd = tensor.to("meta") if kind == "meta" else tensor.to_sparse()
    inputs: dict[str, Any] = {"q": tensor, "k": tensor, "v": tensor, name: odd}
    inputs |= {"past_v": tensor} if name == "past_k" else {}
    calls: list[Any] = [attend] if name in ("d_output", "sinks") else [attend, stream]
    for function in calls:
        with pytest.raises(
            ShapeError, match=f"{name.replace('past_k', '(past_)?k')} cannot be read"
        ):
            function(**inputs)
    if name == "q":
        with pytest.raises(ShapeError, match="output cannot be read"):
            check(odd, tensor, tensor, tensor)
        with pytest.raises(ShapeError, match="w_q cannot be read"):
            multi_head_attention(tensor, Projections(w_q=odd, w_k=odd, w_v=odd), n_heads=1)


def test_a_tensor_that_is_negated_only_when_it_is_read() -> None:
    torch = pytest.importorskip("torch")
    q = torch._neg_view(torch.from_numpy(Q))
    assert (output(q, K, V) == output(-Q, K, V)).all()


def test_key_lengths_that_are_no_list_of_numbers() -> None:
    lengths: Any = [[1], [1, 2]]
    with pytest.raises(ShapeError, match="kv_len is ragged"):
        attend(Q, K, V, kv_len=lengths)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ShapeError, match="q holds complex64 entries; it must hold real numbers"):
        attend(Q.astype(np.complex64), K, V)


# ---- the fields of a convention as keywords


def test_keywords_are_a_convention() -> None:
    how = Convention(causal=True, scale=0.5, window=(2, 0))
    expected = attend(Q, K, V, convention=how)
    found = attend(Q, K, V, causal=True, scale=0.5, window=(2, 0))
    assert found.convention == expected.convention == how
    assert (found["output"].value == expected["output"].value).all()
    both = attend(Q, K, V, convention=Convention(causal=True), scale=0.5, window=(2, 0))
    assert both.convention == how
    assert (
        stream(Q, K, V, causal=True) == stream(Q, K, V, convention=Convention(causal=True))
    ).all()


def test_keywords_of_the_other_functions() -> None:
    x, eye = Q[0, 0], np.eye(D)
    trace = multi_head_attention(x, Projections(eye, eye, eye), n_heads=1, causal=True)
    assert trace.convention == Convention(causal=True)
    assert attend_heads(x, x, x, n_heads=1, softcap=2.0).convention == Convention(softcap=2.0)


def test_a_keyword_that_contradicts_the_convention_is_refused() -> None:
    with pytest.raises(ConventionError, match=r"scale is 0\.5, but 0\.25 in the convention"):
        attend(Q, K, V, convention=Convention(scale=0.25), scale=0.5)


def test_an_unknown_keyword_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"there is no keyword .sclae.; did you mean scale\?"):
        attend(Q, K, V, sclae=0.5)  # type: ignore[call-arg]


# ---- layouts


@pytest.mark.parametrize("layout", ["shd", "bshd"])
def test_tokens_before_heads(layout: Any) -> None:
    qkv = (Q, K, V) if layout == "bshd" else (Q[0], K[0], V[0])
    cache = qkv[1][..., :4, :], qkv[2][..., :4, :]
    expected = attend(*qkv, past_k=cache[0], past_v=cache[1], causal=True)
    turned = [np.swapaxes(x, -2, -3) for x in (*qkv, *cache)]
    found = attend(*turned[:3], past_k=turned[3], past_v=turned[4], causal=True, layout=layout)
    assert list(found) == list(expected)
    assert all((found[name].value == expected[name].value).all() for name in expected)


def test_layouts_with_heads_first_and_of_one_head() -> None:
    assert (output(Q, K, V, layout="bhsd") == output(Q, K, V)).all()
    assert (output(Q[0], K[0], V[0], layout="hsd") == output(Q[0], K[0], V[0])).all()
    expected = output(*(x[:, None] for x in (Q[:, 0], K[:, 0], V[:, 0])))
    assert (output(Q[:, 0], K[:, 0], V[:, 0], layout="bsd") == expected).all()


def test_a_layout_that_does_not_fit_names_the_array() -> None:
    with pytest.raises(ShapeError, match="k: the layout bshd has 4 axes, the array 3: 3 × 7 × 11"):
        attend(Q, K[0], V, layout="bshd")
    with pytest.raises(ConventionError, match="there is no layout 'sbhd'"):
        attend(Q, K, V, layout="sbhd")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("qkv", "more"),
    [
        ((Q, K, V), {}),  # 5 tokens taken for heads do not share 7
        ((Q[:, :, :3], K[:, :1], V[:, :1]), {}),
        ((Q, Q, Q[:, :, :4]), {}),  # and v of other tokens than k
        ((Q, Q, Q), {"mask": MASK[:, :5]}),  # 5 × 5, where 3 heads are taken for tokens
    ],
)
def test_where_tokens_may_be_before_heads_the_error_names_the_layout(qkv: Any, more: Any) -> None:
    turned = [np.swapaxes(x, 1, 2) for x in qkv]
    with pytest.raises(ShapeError, match=r"say layout='bshd' \(--layout bshd\)"):
        attend(*turned, **more)
    with pytest.raises(ShapeError, match=r"say layout='shd' \(--layout shd\)"):
        attend(*(x[0] for x in turned), **more)


# ---- masks of 0 and 1


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.uint8])
def test_a_mask_of_nothing_but_0_and_1_asks(dtype: Any) -> None:
    mask, asks = MASK.astype(dtype), "the mask holds nothing but 0 and 1; say what 1 means: mask_m"
    with pytest.raises(ConventionError, match=asks):
        attend(Q, K, V, mask=mask)
    with pytest.raises(ConventionError, match=asks):
        stream(Q, K, V, mask=mask)
    assert (output(Q, K, V, mask=mask, mask_means="keep") == output(Q, K, V, mask=MASK)).all()
    assert (output(Q, K, V, mask=mask, mask_means="ignore") == output(Q, K, V, mask=~MASK)).all()
    added, less = (output(Q, K, V, mask=x, mask_means="add") for x in (mask, MASK - 1.0))
    np.testing.assert_allclose(added, less, rtol=1e-12)  # a constant in a row changes nothing
    how = Convention(mask_means="ignore")
    assert (output(Q, K, V, mask=mask, convention=how) == output(Q, K, V, mask=~MASK)).all()


def test_other_numbers_are_added_and_floats_of_0_mask_nothing() -> None:
    zeros = np.zeros((N_Q, N_K), np.float32)
    assert (output(Q, K, V, mask=zeros) == output(Q, K, V)).all()
    bias = np.where(MASK, 0.0, -np.inf)
    assert (output(Q, K, V, mask=bias) == output(Q, K, V, mask=MASK)).all()
    with pytest.raises(ConventionError, match="holds nothing but 0 and 1"):
        attend(Q, K, V, mask=zeros.astype(np.int64))
    with pytest.raises(
        ConventionError, match="mask_means=ignore needs a mask of true/false or 0/1"
    ):
        attend(Q, K, V, mask=bias, mask_means="ignore")
