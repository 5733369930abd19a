"""Heads: splitting, merging and projecting, against plain loops over heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli import (
    InputError,
    Projections,
    ShapeError,
    attend,
    attend_heads,
    heads_first,
    merge_heads,
    multi_head_attention,
    split_heads,
)
from attncli.errors import ConventionError

RNG = np.random.default_rng(13)


def random(*shape: int) -> Any:
    return RNG.normal(size=shape)


def test_split_takes_neighbouring_columns_for_a_head() -> None:
    x = np.arange(2 * 3 * 10).reshape(2, 3, 10)
    heads = split_heads(x, 5)
    assert heads.shape == (2, 5, 3, 2)
    assert heads[1, 2, 0].tolist() == x[1, 0, 4:6].tolist()
    np.testing.assert_array_equal(merge_heads(heads), x)


def test_heads_are_column_blocks_attended_alone() -> None:
    q, k, v = random(3, 4 * 5), random(7, 2 * 5), random(7, 2 * 11)
    trace = attend_heads(q, k, v, n_heads=4, n_kv_heads=2)
    for head in range(4):
        shared = head // 2
        alone = attend(
            q[:, head * 5 : head * 5 + 5],
            k[:, shared * 5 : shared * 5 + 5],
            v[:, shared * 11 : shared * 11 + 11],
        )
        ours = trace["concat"].value[:, head * 11 : head * 11 + 11]
        np.testing.assert_allclose(ours, alone["output"].value, atol=1e-14)


def test_multi_head_attention_is_its_formula() -> None:
    x, context = random(3, 6), random(5, 7)
    w = Projections(random(6, 10), random(7, 10), random(7, 22), random(22, 13), b_o=random(13))
    trace = multi_head_attention(x, w, n_heads=2, context=context)
    q, k, v = x @ w.w_q, context @ w.w_k, context @ w.w_v
    heads = []
    for h in range(2):
        e = np.exp(q[:, 5 * h : 5 * h + 5] @ k[:, 5 * h : 5 * h + 5].T / np.sqrt(5))
        heads.append(e / e.sum(axis=1, keepdims=True) @ v[:, 11 * h : 11 * h + 11])
    expected = np.hstack(heads) @ w.w_o + w.b_o
    np.testing.assert_allclose(trace["projected"].value, expected, rtol=1e-10)


def test_weights_by_their_published_names() -> None:
    x, context = random(3, 7), random(5, 7)
    w = [random(7, 10) for _ in "qkv"]
    bias, w_o = random(30), random(10, 13)
    state = {
        "in_proj_weight": np.vstack([y.T for y in w]),
        "in_proj_bias": bias,
        "out_proj.weight": w_o.T,
    }
    b = np.split(bias, 3)
    given = Projections(w[0], w[1], w[2], w_o, b[0], b[1], b[2])
    expected = multi_head_attention(x, given, n_heads=2, context=context)
    found = multi_head_attention(x, state, n_heads=2, context=context)
    np.testing.assert_array_equal(found["projected"].value, expected["projected"].value)
    heads = {f"W{n}": y.reshape(7, 2, 5).transpose(1, 0, 2) for n, y in zip("qkv", w, strict=True)}
    alone = multi_head_attention(x, heads)
    np.testing.assert_array_equal(
        alone["concat"].value,
        multi_head_attention(x, Projections(w[0], w[1], w[2]), n_heads=2)["concat"].value,
    )
    with pytest.raises(InputError, match="there is no w_k, w_v among the weights"):
        multi_head_attention(x, {"w_q": w[0]})


@pytest.mark.parametrize(
    ("layout", "shape", "expected"),
    [
        ("hsd", (2, 3, 5), (2, 3, 5)),
        ("shd", (3, 2, 5), (2, 3, 5)),
        ("bsd", (7, 3, 10), (7, 2, 3, 5)),
        ("bhsd", (7, 2, 3, 5), (7, 2, 3, 5)),
        ("bshd", (7, 3, 2, 5), (7, 2, 3, 5)),
    ],
)
def test_layouts(layout: Any, shape: Any, expected: Any) -> None:
    assert heads_first(np.zeros(shape), layout, 2).shape == expected


def test_what_does_not_fit() -> None:
    with pytest.raises(ShapeError, match="a width of 10 does not divide into 3 heads"):
        split_heads(np.zeros((2, 10)), 3)
    with pytest.raises(ShapeError, match="the layout bshd has 4 axes, the array 3"):
        heads_first(np.zeros((2, 3, 5)), "bshd")
    with pytest.raises(ConventionError, match="no layout 'hbsd'"):
        heads_first(np.zeros((2, 3, 5)), "hbsd")  # type: ignore[arg-type]
    eye = np.zeros((5, 7))
    with pytest.raises(ShapeError, match=r"x \(2 × 3\) cannot be multiplied by weights of 5 × 7"):
        multi_head_attention(np.zeros((2, 3)), Projections(eye, eye, eye), n_heads=1)
    with pytest.raises(ShapeError, match="4 dimensions"):
        attend_heads(*[np.zeros((2, 2, 2, 2))] * 3, n_heads=2)
