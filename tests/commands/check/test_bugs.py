"""The list of known bugs, and the page of each."""

from __future__ import annotations

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.commands.check.bugs.bug import Bug
from attncli.commands.check.bugs.catalogue import CATALOGUE, named
from attncli.commands.check.bugs.page import Example, listed, page, page_to_dict
from attncli.commands.check.diagnose import check
from attncli.errors import ConventionError
from attncli.files.write import json_text
from tests.calls import Call, call

__all__ = ["call"]


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    weights: Array = powers / powers.sum(-1, keepdims=True)
    return weights


def example_of(name: str) -> Example:
    example = page(named(name)).example
    assert example is not None
    return example


def test_ids_are_distinct_words_in_ascii() -> None:
    ids = [bug.id for bug in CATALOGUE]
    assert len({*ids}) == len(ids) > 200
    assert all(set(x) <= {*"abcdefghijklmnopqrstuvwxyz0123456789-"} for x in ids)
    assert all(named(bug.id) is bug is named(bug.name) for bug in CATALOGUE)


def test_an_unknown_name_has_a_hint() -> None:
    with pytest.raises(ConventionError, match="did you mean scale-left-out"):
        named("scale-left-ot")


def test_the_list_is_searched_by_all_words() -> None:
    assert listed() == CATALOGUE
    assert named("scale left out") in listed("CNTKX scale")
    assert not listed("cntkx causal")


@pytest.mark.parametrize("bug", CATALOGUE, ids=lambda bug: bug.id)
def test_every_bug_has_a_page(bug: Bug) -> None:
    one = page(bug)
    assert json_text(page_to_dict(one))
    assert bool(one.changes) == bool(bug.edits)
    assert all(change.right != change.wrong for change in one.changes)
    assert one.example or not bug.edits
    if one.example:
        place = one.example.first
        assert not np.array_equal(one.example.right[place], one.example.wrong[place])


def test_all_have_an_example_that_need_no_weights_and_no_split() -> None:
    lacking = {bug.id for bug in CATALOGUE if page(bug).example is None}
    of_weights = {"weights-of-a-projection-transposed", "bias-of-a-projection-left-out"}
    of_weights |= {"output-projection-left-out", "heads-not-split", "x-in-place-of-x-kv"}
    of_weights.add("weights-of-a-projection-not-applied")
    assert lacking == of_weights | {"part-without-a-key-not-guarded"}


def test_a_number_that_is_fitted_is_2_in_the_example() -> None:
    example = example_of("another-softcap")
    q, k, v = (example.inputs[name] for name in "qkv")
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    np.testing.assert_allclose(example.wrong, softmax(2 * np.tanh(scores / 2)) @ v, rtol=1e-12)
    changes = page(named("another-softcap")).changes
    assert [(change.wrong, change.detail) for change in changes] == [("?", "softcap 2")]


def test_a_scale_is_fitted_and_said_in_its_simplest_form() -> None:
    """1/400 is so small that no scale at all explains most of the errors, but not all."""
    rng = np.random.default_rng(19)
    q, k, v = (rng.normal(size=(n, 13)) for n in (7, 11, 11))
    for scale, form in ((1 / 400, "0.0025 = 1/400"), (0.5 / 13**0.5, "half the expected one")):
        verdict = check(softmax(q @ k.T * scale) @ v, q, k, v, pairs=False)
        (explanation,) = verdict.explanations
        assert [bug.id for bug in explanation.bugs] == ["another-scale"]
        assert form in explanation.details[0]


def test_numbers_are_fitted_head_by_head() -> None:
    rng = np.random.default_rng(23)
    q, k, v = (rng.normal(size=(3, n, 7)) for n in (5, 11, 11))
    sinks = np.array([0.5, -1.25, 2.0])
    powers = np.exp(q @ k.swapaxes(-1, -2) / 7**0.5)
    total = powers.sum(-1, keepdims=True) + np.exp(sinks)[:, None, None]
    (explanation,) = check(powers / total @ v, q, k, v, pairs=False).explanations
    assert explanation.details == ("sinks 0.5, -1.25, 2",)


def test_the_numbers_of_a_scale_left_out() -> None:
    example = example_of("scale-left-out")
    q, k, v = (example.inputs[name] for name in "qkv")
    scores = q @ k.swapaxes(-1, -2)
    assert example.stage == "output"
    np.testing.assert_allclose(example.wrong, softmax(scores) @ v, rtol=1e-12)
    np.testing.assert_allclose(example.right, softmax(scores / q.shape[-1] ** 0.5) @ v, rtol=1e-12)


def test_the_numbers_of_k_used_as_v() -> None:
    example = example_of("k-used-as-v")
    q, k = (example.inputs[name] for name in "qk")
    weights = softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)
    np.testing.assert_allclose(example.wrong, weights @ k, rtol=1e-12)


def test_the_numbers_and_the_formula_of_delta_added() -> None:
    example = example_of("delta-added-not-subtracted")
    q, k, v, d_output = (example.inputs[name] for name in ("q", "k", "v", "d_output"))
    scale = q.shape[-1] ** -0.5
    weights = softmax(q @ k.swapaxes(-1, -2) * scale)
    d_weights = d_output @ v.swapaxes(-1, -2)
    delta = (weights * d_weights).sum(-1, keepdims=True)
    assert example.stage == "d_q"
    wrong = (weights * (d_weights + delta)) @ k * scale
    np.testing.assert_allclose(example.wrong, wrong, rtol=1e-10, atol=1e-12)
    change = page(named("delta-added-not-subtracted")).changes[0]
    assert "- delta" in change.right
    assert change.wrong == change.right.replace("- delta", "+ delta")


def test_the_report_has_both_formulas_and_the_fix() -> None:
    rng = np.random.default_rng(17)
    q, k, v, d = (rng.normal(size=(n, 7)) for n in (3, 5, 5, 3))
    weights = softmax(q @ k.T / np.sqrt(7))
    d_weights = d @ v.T
    delta = (weights * d_weights).sum(-1, keepdims=True)
    d_q = weights * (d_weights + delta) / np.sqrt(7) @ k
    verdict = check(d_q=d_q, q=q, k=k, v=v, d_output=d)
    (explanation,) = verdict.explanations
    assert [bug.id for bug in explanation.bugs] == ["delta-added-not-subtracted"]
    assert explanation.formula.replace("-", "+") == explanation.edited.replace("-", "+")
    assert explanation.fix == "write - where it has +"
    assert explanation.edited in str(verdict)


def test_the_list_has_the_groups_as_headings(call: Call) -> None:
    lines = call("check", "--bugs").out.splitlines()
    headings = [x for x, before in zip(lines, ["", *lines], strict=False) if not before]
    assert all(not x.startswith(" ") for x in headings)
    at = {x: lines.index(x) for x in headings}
    scale = next(i for i, x in enumerate(lines) if x.startswith("  scale-left-out: "))
    assert max(headings, key=lambda x: at[x] if at[x] < scale else -1) == "Scale"
    assert sum(x.startswith("  ") for x in lines) == len(CATALOGUE)
    data = call("check", "--bugs", "left out of dQ", "--format", "json").json
    assert {bug["group"] for bug in data["bugs"]} == {"Gradients"}


@pytest.mark.parametrize(
    "bug",
    ["scale-left-out", "window-one-too-narrow", "delta-added-not-subtracted", "cache-ignored",
     "rotary-pairs-interleaved-not-in-halves", "m-is-the-tiles-own-maximum", "sinks-left-out",
     "rows-with-nothing-to-attend-to-become-zero", "mean-not-sum-of-the-loss"],
)  # fmt: skip
def test_the_commands_of_a_page_name_the_bug(call: Call, bug: str) -> None:
    report = call("check", "--bug", bug).out.splitlines()
    first, second = (line.split()[1:] for line in report[-2:])
    assert call(*first).code == 0
    named = call(*second, "--single")
    assert (named.code, bug in named.out) == (1, True)


def test_each_edit_has_its_fix() -> None:
    edits = page(named("scale-left-out-of-ds-dq-and-dk")).changes
    assert edits
    assert all(change.fix for change in edits)
    both = page(named("k-and-v-swapped")).changes
    assert [x.fix for x in both] == [
        "write k where it has v",
        "write v where it has k",
    ]


def test_masks_are_shown_as_formulas() -> None:
    """A causal mask lets key j be attended to up to the query's own position: j ≤ i."""
    right = "M[i,j] = 0 if j ≤ i else -∞"
    for name, wrong in (
        ("causal-mask-hides-each-querys-own-position", right.replace("i else", "i - 1 else")),
        ("causal-the-wrong-way-round", right.replace("≤", "≥")),
        ("causal-mask-left-out", "none"),
    ):
        change = page(named(name)).changes[0]
        assert (change.place, change.right, change.wrong) == ("mask", right, wrong)
