"""check of gradients: what one of them tells, in which call; of x and of the projections."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attncli import Convention, attend, multi_head_attention
from attncli.attention.inputs import inputs_of
from attncli.commands.check.diagnose import check
from attncli.testing import assert_attention
from tests import plain
from tests.calls import SAMPLES, Call, call
from tests.commands.check.planted.parts import Array
from tests.commands.check.planted.rows import names
from tests.commands.check.planted_backward import kernel
from tests.commands.check.planted_backward.kernel import Kernel, call_of
from tests.commands.check.planted_backward.wrong import WRONG
from tests.turns import in_turn

__all__ = ["call"]

ALL = call_of("all", "float64", is_small=True)
"""Grouped heads, a mask with an empty row, a bias, a softcap, sinks, dropout."""
PLAIN = call_of("plain", "float64", is_small=True)
GROUPED = call_of("grouped", "float64", is_small=True)
SCALES = {"scale left out of dQ", "scale left out of dS (dQ and dK)"}


def normal(seed: int, **shapes: tuple[int, ...]) -> Any:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def wrong(name: str, at: kernel.Call) -> Any:
    return next(row for row in WRONG if row.name == name).run(at)


def test_each_gradient_may_be_observed_alone() -> None:
    for name, x in Kernel(ALL).run().items():
        assert check({name: x}, **ALL.keywords).matches


def test_a_large_number_of_a_formula_has_an_exponent() -> None:
    observed = wrong("δ from an unnormalised O", PLAIN)
    (cause,) = check(observed, **PLAIN.keywords, pairs=False).explanations
    assert cause.name == "δ from an unnormalised O"
    assert cause.edited.endswith("- max(max[l](logits[b,h,i,l]), -1e300))")


@pytest.mark.parametrize(
    ("observed", "name", "expected"),
    [
        ("d_q", "scale left out of dK", set()),
        ("d_q", "scale left out of dQ", SCALES),
        ("d_v", "dropout mask not applied again in dV", {"dropout mask not applied again in dV"}),
    ],
)
def test_what_one_gradient_tells(observed: str, name: str, expected: set[str]) -> None:
    """Nothing where the bug does not show in it: then it is among the hidden ones."""
    verdict = check({observed: wrong(name, ALL)[observed]}, **ALL.keywords, pairs=False)
    assert {*names(verdict)} == expected
    assert verdict.matches == (name in verdict.hidden) == (not expected)
    if expected == SCALES:
        assert verdict.status == "ambiguous"
        assert "d_k" in str(verdict.tell_apart)
        assert all(name in str(verdict.tell_apart) for name in SCALES)


def test_gradients_that_are_swapped_where_a_sample_of_rows_is_compared() -> None:
    arrays = normal(4, **dict.fromkeys(("q", "k", "v", "d_output"), (1, 2, 80, 8)))
    right = attend(**arrays, causal=True)
    observed = {"d_q": right["d_k"].value, "output": right["output"].value}
    assert names(check(observed, **arrays, causal=True, pairs=False)) == ["dQ and dK swapped"]


@pytest.mark.parametrize(
    ("convention", "pairs"),
    [
        ({"softmax_over": "queries", "softcap": 2.0}, True),
        pytest.param(
            {"softmax_over": "queries", "dropout": 0.3, "causal": True},
            False,
            marks=pytest.mark.exhaustive,
        ),
        ({"sinks": np.array([1.0, -1.0, 0.0, 2.0]), "dropout": 0.3, "softcap": 2.0}, False),
        ({"mask": np.full((5, 7), 0.5), "softcap": 2.0, "softcap_place": "after-bias"}, False),
    ],
)
def test_what_no_bug_explains_is_a_verdict(convention: dict[str, Any], pairs: bool) -> None:
    shapes = {"q": (2, 4, 5, 6), "k": (2, 2, 7, 6), "v": (2, 2, 7, 3)}
    arrays = normal(7, **shapes, d_output=(2, 4, 5, 3))
    observed = normal(11, **{f"d_{name}": shape for name, shape in shapes.items()})
    observed |= normal(13, d_scores=(2, 4, 5, 7))
    verdict = check(observed, **arrays, **convention, pairs=pairs)
    assert (verdict.status, verdict.explanations) == ("no match", ())


def test_a_value_added_to_the_output_is_named_beside_its_gradients() -> None:
    """Each value of a key head that two query heads share is added to the outputs of both."""
    arrays = normal(
        3, **dict.fromkeys(("q", "d_output"), (2, 4, 5, 3)), k=(2, 2, 5, 3), v=(2, 2, 5, 3)
    )
    trace = attend(**arrays)
    observed = {name: trace[name].value for name in ("d_q", "d_k", "d_v")}
    observed["output"] = trace["output"].value + np.repeat(arrays["v"], 2, axis=1)
    assert names(check(observed, **arrays, pairs=False)) == ["residual already in the output"]


def test_numbers_of_query_heads_are_fitted_where_key_heads_are_shared() -> None:
    """The gradient of a key is a sum over query heads, each with a sink of its own, one of them 0."""
    sinks = np.array([1.0, 0.0, 2.0, 0.5, 3.0, -1.0])
    observed = Kernel(replace(GROUPED, arrays=GROUPED.arrays | {"sinks": sinks})).run()
    del observed["d_sinks"]
    verdict = check(dict(observed), **GROUPED.keywords, pairs=False)
    assert names(verdict) == ["extra term in the softmax's denominator (attention sink)"]


def test_a_gradient_that_another_meaning_of_the_mask_does_not_have() -> None:
    shapes = {"q": (6, 7, 5), "k": (6, 11, 5), "v": (6, 11, 13), "d_output": (6, 7, 13)}
    arrays = normal(41, **shapes, mask=(6, 7, 11))
    trace = attend(**arrays)
    observed = {"d_q": trace["d_q"].value, "d_bias": 2.1 * trace["d_bias"].value}
    verdict = check(observed, **arrays, pairs=False)
    assert {stage.name: stage.matches for stage in verdict.stages} == {"d_bias": False, "d_q": True}


def _of_kernels(wrong: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Inputs under a causal mask, and their gradients with a slip where dK, or dV, is computed."""
    arrays = normal(43, q=(2, 4, 5, 7), k=(2, 2, 11, 7), v=(2, 2, 11, 3), d_output=(2, 4, 5, 3))
    q, d_output = arrays["q"], arrays["d_output"]
    k, v = (np.repeat(arrays[name], 2, axis=1) for name in "kv")
    scores = q @ k.swapaxes(2, 3) / np.sqrt(7)
    powers = np.exp(np.where(np.tri(5, 11, dtype=bool), scores, -np.inf))
    sums = powers.sum(axis=-1, keepdims=True)
    weights, unmasked = powers / sums, np.exp(scores) / sums
    d_weights = d_output @ v.swapaxes(2, 3)
    delta = (weights * d_weights).sum(axis=-1, keepdims=True)
    d_scores = weights * (d_weights - delta)
    of_keys, of_values = d_scores, weights
    if wrong == "mask":
        of_keys, of_values = unmasked * (d_weights - delta), unmasked
    if wrong == "brackets":
        of_keys = weights * d_weights - delta
    d_k, d_v = of_keys.swapaxes(2, 3) @ q / np.sqrt(7), of_values.swapaxes(2, 3) @ d_output
    sums_of = {"d_k": d_k, "d_v": d_v}
    shared = {name: x[:, ::2] + x[:, 1::2] for name, x in sums_of.items()}
    return arrays, {"d_q": d_scores @ k / np.sqrt(7), **shared}


def test_a_bug_of_one_kernel_is_named_beside_gradients_that_are_right() -> None:
    arrays, observed = _of_kernels("")
    assert check(observed, **arrays, causal=True).matches
    arrays, observed = _of_kernels("mask")
    verdict = check(observed, **arrays, causal=True)
    assert names(verdict) == ["mask left out of the recomputed weights"]
    assert any("d_k" in note and "d_v" in note and "d_q" not in note for note in verdict.notes)


def test_a_slip_of_one_kernel_is_described_beside_gradients_that_are_right() -> None:
    arrays, observed = _of_kernels("brackets")
    verdict = check(observed, **arrays, causal=True)
    assert verdict.status == "no match"
    assert verdict.edit is not None
    assert (verdict.edit.stage, verdict.edit.new[:3]) == ("d_masked", "y[b")
    assert verdict.edit.new.endswith("- delta[b,h,i]")
    assert any("d_k" in note and "d_v" not in note for note in verdict.notes)


def test_a_number_a_head_is_too_little_for_a_bug_of_one_kernel() -> None:
    """A factor for each head would give any gradient of the sinks."""
    arrays = normal(73, **{"q": (1, 3, 5, 7), "k": (1, 3, 11, 7), "v": (1, 3, 11, 2)})
    arrays |= normal(79, d_output=(1, 3, 5, 2), sinks=(3,), mask=(1, 3, 5, 11))
    trace = attend(**arrays)
    observed = {name: trace[name].value for name in ("d_q", "d_k", "d_v")}
    verdict = check({**observed, **normal(83, d_sinks=(3,))}, **arrays)
    assert (verdict.status, verdict.edit) == ("no match", None)


def test_gradients_may_be_keywords() -> None:
    right: Any = Kernel(GROUPED).run()
    last = "grouped heads not summed in dK, dV (the last one wins)"
    assert check(attend(**GROUPED.keywords)["output"].value, **GROUPED.keywords, **right).matches
    assert_attention(None, **GROUPED.keywords, **right)
    with pytest.raises(AssertionError, match="the last one wins") as failure:
        assert_attention(None, **GROUPED.keywords, **wrong(last, GROUPED))
    assert "d_q matches" in str(failure.value)
    turned = check(**GROUPED.keywords, d_k=np.swapaxes(right["d_k"], -1, -2))
    assert (turned.status, "last two axes" in str(turned.shape)) == ("wrong shape", True)


@pytest.mark.parametrize("scale", ["0", "1e200"])
def test_any_scale_ends_in_a_verdict(scale: str, call: Call) -> None:
    three = SAMPLES / "three-tokens.json"
    flags = ("--scale", scale, "--d-output", "random")
    call("compute", three, *flags, "--output", "t.npz")
    observed = ("check", "--q", three, *flags, "--single", "--observed")
    assert call(*observed, "t.npz").code == 0
    assert call(*observed, "[[7, 5, 1], [3, 0, 8], [2, 9, 4]]", "--stage", "scores").code == 1
    # beyond the precision of exp any weights are right
    code = call(*observed, "[[7, -5], [1, 3], [0, 8]]", "--stage", "d_q").code
    assert code in ((0, 1) if scale == "1e200" else (1,))


# ---- x and the weights of the projections

HEADS, D, N = 3, 15, 11
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, D))
WEIGHTS = {f"w_{name}": RNG.normal(size=(D, D)) / 4 for name in "qkv"}
BIASES = {f"b_{name}": RNG.normal(size=D) for name in "qkv"}
MADE = inputs_of({"x": X, **WEIGHTS, **BIASES}, Convention(), n_heads=HEADS)
QKV = [MADE.values[name] for name in "qkv"]


def from_x(**changed: Array) -> Array:
    """Attention of x, written out; some of the weights are other ones."""
    own = WEIGHTS | BIASES | changed
    wide = {name: X @ own[f"w_{name}"] + own[f"b_{name}"] for name in "qkv"}
    heads = {name: x.reshape(N, HEADS, -1).swapaxes(0, 1) for name, x in wide.items()}
    return plain.attention(heads, {})["output"]


@pytest.mark.parametrize(
    ("name", "dtype"),
    in_turn([*WEIGHTS, "w_q and w_k and w_v", "b_q", "b_v"], ["float64", "float32", "float16"]),
)
def test_the_bug_and_its_weights_are_named(name: str, dtype: str) -> None:
    """Only where x and the weights are given."""
    kind = "weights of a projection transposed" if "w_" in name else "bias of a projection left out"
    changed = {n: WEIGHTS[n].T if n in WEIGHTS else np.zeros(D) for n in name.split(" and ")}
    wrong = from_x(**changed).astype(dtype)
    (one,) = check(wrong, *QKV, projected=MADE, pairs=False).explanations
    assert (one.name, one.details) == (kind, (name,))
    assert name != "w_q" or kind not in names(check(wrong, *QKV, pairs=False))


def test_right_projections_match_and_a_bias_of_the_keys_changes_no_weight() -> None:
    assert check(from_x(), *QKV, projected=MADE)
    assert check(from_x(b_k=np.zeros(D)), *QKV, projected=MADE)


def right_and_how(n_heads: int = 2) -> tuple[dict[str, Array], dict[str, Any]]:
    """The gradients of a causal attention of so many heads of width 7, and the call of check."""
    rng = np.random.default_rng(47)
    weights: dict[str, Any] = {f"w_{name}": rng.normal(size=(3, 7 * n_heads)) for name in "qkv"}
    weights |= {f"b_{name}": rng.normal(size=7 * n_heads) for name in "qkv"}
    weights["w_o"] = rng.normal(size=(7 * n_heads, 13))
    x, d_output = rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 5, 13))
    trace = multi_head_attention(x, weights, n_heads=n_heads, d_output=d_output, causal=True)
    arrays = {"x": x, **weights, "d_output": d_output}
    made = inputs_of(arrays, Convention(causal=True), n_heads=n_heads)
    call: dict[str, Any] = {name: made.values[name] for name in "qkv"}
    call |= {"d_output": made.d_output, "projected": made, "causal": True, "pairs": False}
    return {f"d_{name}": trace[f"d_{name}"].value for name in ("x", *weights)}, call


def test_right_gradients_match_in_every_type() -> None:
    for n_heads, dtype in ((1, "float32"), (2, "float16")):
        right, convention = right_and_how(n_heads)
        result = check({name: x.astype(dtype) for name, x in right.items()}, **convention)
        assert result.matches, dtype
        assert {stage.name for stage in result.stages} == right.keys()


def test_a_bug_of_dq_is_named_by_what_follows_from_it() -> None:
    right, convention = right_and_how()
    wrong = {name: right[name] * 7**0.5 for name in ("d_w_q", "d_b_q")}
    result = check(wrong | {"d_w_k": right["d_w_k"]}, **convention)
    assert names(result) == ["scale left out of dQ"]
    matches = {stage.name: stage.matches for stage in result.stages}
    assert matches == {"d_w_q": False, "d_b_q": False, "d_w_k": True}


def test_gradients_that_do_not_fit() -> None:
    right, convention = right_and_how()
    assert check({"d_w_q": right["d_w_q"].T}, **convention).status == "wrong shape"
    assert not check({"d_w_q": right["d_w_q"] / 2}, **convention).matches  # of one batch item
