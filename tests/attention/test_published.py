"""Names and axes of weights as they are published, and what no name of a weight is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli import InputError, ShapeError
from attncli.attention.names import parse
from attncli.attention.published import blocks, published

RNG = np.random.default_rng(59)


@pytest.mark.parametrize(
    ("name", "scope", "leaf", "form", "head"),
    [
        ("w_q", "", "w_q", "plain", None),
        ("WK", "", "w_k", "plain", None),
        ("W_value", "", "w_v", "plain", None),
        ("W^{O}", "", "w_o", "plain", None),
        ("omega_q", "", "w_q", "plain", None),
        ("q_weight", "", "w_q", "plain", None),
        ("v_proj", "", "w_v", "plain", None),
        ("weights.q", "", "w_q", "plain", None),
        ("bq", "", "b_q", "plain", None),
        ("biases.k", "", "b_k", "plain", None),
        ("b.q", "", "b_q", "plain", None),
        ("b.w_q", "b", "w_q", "plain", None),
        ("2.w_q", "2", "w_q", "plain", None),
        ("encoder.1.attention.w_q", "encoder.1.attention", "w_q", "plain", None),
        ("q_proj.weight", "", "w_q", "linear", None),
        ("W_query.weight", "", "w_q", "linear", None),
        ("key.bias", "", "b_k", "plain", None),
        ("self_attn.in_proj_weight", "self_attn", "w_qkv", "linear", None),
        ("in_proj_bias", "", "b_qkv", "plain", None),
        ("k_proj_weight", "", "w_k", "linear", None),
        ("attention.self.query.weight", "attention", "w_q", "linear", None),
        ("attention.output.dense.weight", "attention", "w_o", "linear", None),
        ("to_out.0.weight", "", "w_o", "linear", 0),
        ("blocks.3.attn.proj.weight", "blocks.3.attn", "w_o", "linear", None),
        ("model.layers.0.self_attn.o_proj.weight", "model.layers.0.self_attn", "w_o", "linear", None),
        ("mha/query/kernel:0", "mha", "w_q", "kernel", None),
        ("attention_output/bias", "", "b_o", "plain", None),
        ("h.0.attn.c_attn.weight", "h.0.attn", "w_qkv", "conv1d", None),
        ("h.0.attn.c_proj.bias", "h.0.attn", "b_o", "conv1d", None),
        ("Wqkv.weight", "", "w_qkv", "linear", None),
        ("kv", "", "w_kv", "plain", None),
        ("WQ2", "", "w_q", "plain", 2),
        ("w_q_1", "", "w_q", "plain", 1),
        ("W_Q^(3)", "", "w_q", "plain", 3),
        ("heads.0.key.weight", "", "w_k", "linear", 0),
        ("attn.head_1.w_v", "attn", "w_v", "plain", 1),
        ("q_proj.0.weight", "", "w_q", "linear", 0),
    ],
)  # fmt: skip
def test_names(name: str, scope: str, leaf: str, form: Any, head: int | None) -> None:
    said = parse(name)
    assert said is not None
    assert said[:4] == (scope, leaf, form, head)


@pytest.mark.parametrize(
    "name",
    [
        *("", "q", "key", "query", "values", "output", "o", "x", "mask", "w", "W_0", "w_1", "b_1"),
        *("bias_k", "bias_v", "norm.weight", "linear1.weight", "lm_head.weight", "wte.weight"),
        *("mlp.c_fc.weight", "attn.bias", "attn.masked_bias", "query_key_value.weight"),
        *("key_states", "past_key", "q_norm.weight", "dense.weight", "kernel", "w_x", "gamma_1"),
    ],
)
def test_names_of_something_else(name: str) -> None:
    assert parse(name) is None


def test_the_blocks_of_a_model() -> None:
    names = [f"H.{layer}.Attn.{own}.weight" for layer in (0, 1) for own in ("c_attn", "c_proj")]
    assert blocks([*names, "H.0.MLP.c_proj.weight"]) == {
        "H.0.Attn": names[:2],
        "H.1.Attn": names[2:],
    }


def test_matrices_of_one_form_are_turned_together() -> None:
    # W_q is square and tells nothing; W_k and W_v fit as [out, in] alone
    w = {"w_q": RNG.normal(size=(5, 5)), "w_k": RNG.normal(size=(7, 5)), "w_v": np.ones((3, 5))}
    found = published(w, [(2, 5)])
    np.testing.assert_array_equal(found.arrays["w_q"], w["w_q"].T)
    assert found.turned == {"w_q", "w_k", "w_v"}
    named = {"q_proj.weight": w["w_q"], "w_k": w["w_k"].T, "w_v": w["w_v"].T}
    assert published(named, [(2, 5)]).turned == {"w_q"}


def test_three_inputs_of_their_own_widths() -> None:
    w = {"w_q": np.ones((5, 11)), "w_k": np.ones((11, 7)), "w_v": np.ones((13, 3))}
    with pytest.raises(ShapeError, match=r"w_k \(11 × 7\) does not fit x, which has the width 5"):
        published(w, [(2, 5), (17, 5), (17, 13)])
    w["w_k"] = np.ones((7, 11))
    found = published(w, [(2, 5), (17, 7), (17, 13)])
    assert {name: x.shape for name, x in found.arrays.items()} == {
        "w_q": (5, 11), "w_k": (7, 11), "w_v": (13, 3),
    }  # fmt: skip


def test_three_matrices_on_a_first_axis() -> None:
    w = RNG.normal(size=(3, 5, 7))
    found = published({"qkv": w}, [(2, 5)])
    for name, matrix in zip("qkv", w, strict=True):
        np.testing.assert_array_equal(found.arrays[f"w_{name}"], matrix)


def test_heads_that_contradict_each_other() -> None:
    w = {"w_q": np.ones((4, 5, 3)), "w_k": np.ones((2, 5, 3)), "w_v": np.ones((4, 5, 3))}
    with pytest.raises(ShapeError, match="w_k holds 2 heads, w_v 4"):
        published(w, [(2, 5)])
    w["w_v"] = np.ones((2, 5, 3))
    found = published(w, [(2, 5)])
    assert (found.n_heads, found.n_kv_heads) == (4, 2)
    assert found.notes == ("4 heads, 2 heads of K and V",)
    with pytest.raises(InputError, match="w_q and w_q_1 both mean w_q"):
        published(w | {"w_q_1": np.ones((5, 3))}, [(2, 5)])


def test_a_bias_without_its_matrix_and_of_another_size() -> None:
    w = {f"w_{name}": np.ones((5, 7)) for name in "qkv"}
    with pytest.raises(InputError, match=r"b_o \(7\) has no w_o"):
        published(w | {"b_o": np.ones(7)}, [(2, 5)])
    with pytest.raises(ShapeError, match=r"b_k \(5\) does not fit w_k; it needs 7 numbers"):
        published(w | {"b_k": np.ones(5)}, [(2, 5)])
