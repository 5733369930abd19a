"""check of gradients: what one of them tells, in which call, with what else beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attncli import attend
from attncli.check import check
from attncli.testing import assert_attention
from tests.check.planted.rows import names
from tests.check.planted_backward import kernel
from tests.check.planted_backward.kernel import Kernel, call_of
from tests.check.planted_backward.wrong import WRONG
from tests.cli.conftest import SAMPLES, Call, call

__all__ = ["call"]

ALL = call_of("all", "float64", is_small=True)
"""Grouped heads, a mask with an empty row, a bias, a softcap, sinks, dropout."""
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
    verdict = check(observed, **arrays, causal=True, pairs=False)
    assert names(verdict) == ["dQ and dK swapped"]


@pytest.mark.parametrize(
    ("how", "pairs"),
    [
        ({"softmax_over": "queries", "softcap": 2.0}, True),
        ({"softmax_over": "queries", "dropout": 0.3, "causal": True}, False),
        ({"sinks": np.array([1.0, -1.0, 0.0, 2.0]), "dropout": 0.3, "softcap": 2.0}, False),
        ({"mask": np.full((5, 7), 0.5), "softcap": 2.0, "softcap_place": "after-bias"}, False),
    ],
)
def test_what_no_bug_explains_is_a_verdict(how: dict[str, Any], pairs: bool) -> None:
    shapes = {"q": (2, 4, 5, 6), "k": (2, 2, 7, 6), "v": (2, 2, 7, 3)}
    arrays = normal(7, **shapes, d_output=(2, 4, 5, 3))
    observed = normal(11, **{f"d_{name}": shape for name, shape in shapes.items()})
    observed |= normal(13, d_scores=(2, 4, 5, 7))
    verdict = check(observed, **arrays, **how, pairs=pairs)
    assert (verdict.status, verdict.explanations) == ("no match", ())


def test_a_value_added_to_the_output_is_named_beside_its_gradients() -> None:
    """Each value of a key head that two query heads share is added to the outputs of both."""
    kv = dict.fromkeys("kv", (2, 2, 5, 3))
    arrays = normal(3, q=(2, 4, 5, 3), **kv, d_output=(2, 4, 5, 3))
    trace = attend(**arrays)
    observed = {name: trace[name].value for name in ("d_q", "d_k", "d_v")}
    observed["output"] = trace["output"].value + np.repeat(arrays["v"], 2, axis=1)
    verdict = check(observed, **arrays, pairs=False)
    assert names(verdict) == ["residual already in the output"]


def test_numbers_of_query_heads_are_fitted_where_key_heads_are_shared() -> None:
    """The gradient of a key is a sum over query heads, each with a sink of its own, one of them 0."""
    sinks = np.array([1.0, 0.0, 2.0, 0.5, 3.0, -1.0])
    observed = Kernel(replace(GROUPED, arrays=GROUPED.arrays | {"sinks": sinks})).run()
    del observed["d_sinks"]
    verdict = check(dict(observed), **GROUPED.keywords, pairs=False)
    assert names(verdict) == ["sinks where none are wanted"]


def test_a_gradient_that_another_meaning_of_the_mask_does_not_have() -> None:
    shapes = {"q": (6, 7, 5), "k": (6, 11, 5), "v": (6, 11, 13), "d_output": (6, 7, 13)}
    arrays = normal(41, **shapes, mask=(6, 7, 11))
    trace = attend(**arrays)
    observed = {"d_q": trace["d_q"].value, "d_bias": 2.1 * trace["d_bias"].value}
    verdict = check(observed, **arrays, pairs=False)
    assert {stage.name: stage.matches for stage in verdict.stages} == {"d_bias": False, "d_q": True}


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
