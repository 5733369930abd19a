"""What libraries mean: their own outputs are named by check, and match by their conventions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from attncli import Convention, ConventionError
from attncli.arrays import Array
from attncli.check import Verdict, check, report_text, summary_text, verdict_to_dict
from attncli.presets import PRESETS
from attncli.testing import assert_attention
from tests import plain
from tests.check.buggy.parts import masked_softmax, scale, scores, softmax, weighted_sum

FILE = Path(__file__).parents[1] / "fixtures" / "library_outputs.npz"
TRUTH = "the numbers of a mask are read as true or false: −inf is true, so it may attend"
MEAN = "a query with nothing to attend to gets the mean of V"
IGNORES = "true in a mask hides a key"
SAID: dict[str, tuple[str, ...]] = {
    "torch-mha: boolean mask": (IGNORES,),
    "torch-mha: mask and causal": ("beside a mask, causal has no effect", IGNORES),
    "torch-mha-fast: mask and causal": ("beside causal, the mask has no effect",),
    "transformers-eager: boolean mask": (
        "true and false are added to the scores as 1 and 0, and hide nothing",
    ),
    "jax: boolean mask, empty row": (MEAN,),
    "keras-mha: 0/-inf mask": (TRUTH,),
    "keras-attention: plain": ("the scores are not scaled",),
    "equinox: 0/-inf mask": (TRUTH,),
    "mlx: causal 3x5": ("causal: the last query is at the position of the last key",),
    "tinygrad: boolean mask, empty row": ("a query with nothing to attend to gets NaN",),
    "ort-mha: boolean mask, empty row": ("masked scores are lowered by 10000, not hidden",),
    "ort-mha: causal 3x5": ("causal: with fewer queries than keys, the last sees every key",),
}
"""What differs from the default, of the recorded calls in which anything does."""


class Recorded(NamedTuple):
    """A library's own output, and the inputs as keywords of check."""

    output: Array
    given: dict[str, Any]


with np.load(FILE) as file:
    RECORDED = {
        f"{one['preset']}: {one['call']}": Recorded(
            file[f"{one['preset']}/{one['call']}/output"],
            {
                name: file[key]
                for name in ("q", "k", "v", "mask")
                if (key := f"{one['preset']}/{one['call']}/{name}") in file
            }
            | ({"causal": True} if one["causal"] else {}),
        )
        for one in json.loads(str(file["index"]))
    }


def verdict_on(case: str, **more: Any) -> Verdict:
    output, given = RECORDED[case]
    return check(output, **given, **more)


@pytest.mark.parametrize("case", SAID)
def test_the_conventions_of_a_library_are_named(case: str) -> None:
    verdict, name = verdict_on(case), case.partition(":")[0]
    (meaning,) = verdict.meanings
    assert name in meaning.names
    assert meaning.sentences == SAID[case]
    assert not verdict
    assert verdict.status in {"found", "ambiguous", "meaning"}
    assert meaning.flag == f"--semantics {meaning.names[0]}"


@pytest.mark.parametrize("case", RECORDED)
def test_by_its_own_conventions_it_matches(case: str) -> None:
    output, given = RECORDED[case]
    how = replace(Convention.of(case.partition(":")[0]), causal=given.get("causal", False))
    verdict = check(output, **{**given, "causal": how.causal}, convention=how)
    assert (verdict.status, verdict.meanings) == ("match", ())


def test_what_of_a_library_is_as_the_default_is_not_named() -> None:
    verdict = verdict_on("ort-mha: boolean mask")
    assert (verdict.status, verdict.meanings) == ("match", ())


def test_a_mask_of_0_and_1_still_needs_a_word() -> None:
    with pytest.raises(ConventionError, match="nothing but 0 and 1"):
        verdict_on("flax: 0/1 mask")
    assert verdict_on("flax: 0/1 mask", mask_means="keep")


def test_the_text_of_a_convention_before_a_bug() -> None:
    text = str(verdict_on("keras-mha: 0/-inf mask")).splitlines()
    assert text[:7] == [
        "it differs from the default conventions, and matches flax's:",
        f"  {TRUTH}",
        "  attncli check … --semantics flax     → matches",
        "  so do keras-ops, keras-mha, equinox",
        "If that was not meant, it is a bug: boolean mask read the other way round",
        "     true is read as ignore where it means keep, or the reverse",
        "     seen in pytorch#170415, rasbt/LLMs-from-scratch#1061, TransformerEngine#614",
    ]
    assert text[7].startswith("     errors of output with this bug: RMS ")
    assert text[8] == "output differs in 100 % of 546 entries"


def test_the_text_where_several_bugs_explain_it_too() -> None:
    verdict = verdict_on("jax: boolean mask, empty row", empty_rows_inf="nan")
    assert verdict.status == "ambiguous"
    assert str(verdict).splitlines()[:6] == [
        "it differs from what was asked for, and matches jax's:",
        f"  {MEAN}",
        "  attncli check … --semantics jax     → matches",
        "  so do flax, keras-ops, keras-mha, equinox, mlx",
        "If that was not meant, it is a bug, and ambiguous: each of these explains it",
        "  1. finite mask value",
    ]


def test_where_no_bug_explains_it_the_convention_is_the_answer() -> None:
    verdict = verdict_on("torch-mha: mask and causal")
    assert (verdict.status, verdict.explanations) == ("meaning", ())
    text = str(verdict)
    assert text.startswith(
        "it differs from what was asked for, and matches torch-mha's:\n"
        "  beside a mask, causal has no effect\n"
        f"  {IGNORES}\n"
        "  attncli check … --semantics torch-mha     → matches\n"
        "output differs in "
    )
    assert "bug" not in text


def test_a_scale_left_out_is_a_bug_before_it_is_a_convention() -> None:
    lines = str(verdict_on("keras-attention: plain")).splitlines()
    assert lines[:2] == ["it differs; the cause:", "  scale left out"]
    assert lines[7] == "  as keras-attention does by design: --semantics keras-attention"


def test_an_assertion_has_the_same_text() -> None:
    output, given = RECORDED["mlx: causal 3x5"]
    verdict = check(output, **given)
    with pytest.raises(AssertionError) as failure:
        assert_attention(output, **given)
    assert str(failure.value) == str(verdict) == report_text(verdict)


def test_the_data() -> None:
    data = verdict_to_dict(verdict_on("ort-mha: boolean mask, empty row"))
    assert data["is_default"] is True
    assert data["meanings"] == [
        {
            "names": ["ort-mha"],
            "sentences": ["masked scores are lowered by 10000, not hidden"],
            "flag": "--semantics ort-mha",
            "fields": {"mask_value": -10000.0, "mask_value_rule": "add"},
        }
    ]
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_a_summary_names_the_library() -> None:
    cases = "torch-mha: boolean mask", "keras-attention: plain", "ort-mha: boolean mask"
    lines = summary_text(dict(zip("abc", map(verdict_on, cases), strict=True))).splitlines()
    assert lines[:4] == [
        "1 of 3 matches",
        "  a  it differs, and matches torch-mha's conventions",
        "  b  it differs; the cause: scale left out",
        "  c  it matches",
    ]


def test_what_is_chosen_is_left_out_by_name() -> None:
    """Not jax with --empty-rows zero: that would be asked for again, and not match."""
    case, asked = "jax: boolean mask, empty row", Convention.of("tinygrad")
    for chosen in ({"empty_rows": "nan"}, {"convention": asked}):
        (meaning,) = verdict_on(case, **chosen).meanings
        assert meaning.flag == "--semantics jax, without --empty-rows"
    (meaning,) = verdict_on(case, convention=asked, chosen=()).meanings
    assert meaning.flag == "--semantics jax"


# ---- against NumPy alone

RNG = np.random.default_rng(23)
Q, K, V = (RNG.normal(size=(2, n, 7)).astype(np.float32) for n in (3, 5, 5))
KEEP = np.array([[1, 0, 1, 1, 0], [0, 1, 1, 0, 1], [1, 1, 0, 0, 1]], dtype=bool)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("flash-attn", {"causal": True}),
        ("flashinfer", {"causal": True}),
        ("ort-gqa", {"causal": True, "window": (2, -1)}),
        ("ort-gqa", {}),
    ],
)
def test_conventions_known_from_documents_are_named(name: str, asked: dict[str, Any]) -> None:
    how, n_k = {**PRESETS[name].fields, **asked}, 3 if name == "ort-gqa" else 5
    k, v = K[:, :n_k], V[:, :n_k]
    observed = plain.attention({"q": Q, "k": k, "v": v}, how)["output"].astype(np.float32)
    verdict = check(observed, Q, k, v, **asked)
    (meaning,) = verdict.meanings
    assert name in meaning.names
    assert check(observed, Q, k, v, convention=Convention(**{**asked, **meaning.fields}))


def test_what_was_said_of_the_mask_is_left_out_where_a_library_means_otherwise() -> None:
    """0 and 1, said to be added; the numbers are those of 1 = may attend."""
    observed = weighted_sum(masked_softmax(scores(Q, K) * scale(Q), KEEP), V)
    verdict = check(observed, Q, K, V, mask=KEEP.astype(np.float32), mask_means="add")
    (meaning,) = verdict.meanings
    assert meaning.names == ("flax", "keras-ops", "keras-mha", "equinox")
    assert meaning.flag == "--semantics flax, without --mask-means"
    assert meaning.sentences[-1].startswith("the numbers of a mask are read as true or false")


def test_a_library_that_refuses_the_call_is_not_named() -> None:
    """keras.layers.Attention takes no such mask, though it does not scale either."""
    observed = weighted_sum(masked_softmax(scores(Q, K), KEEP), V)
    verdict = check(observed, Q, K, V, mask=KEEP)
    assert [one.name for one in verdict.explanations] == ["scale left out"]
    assert verdict.meanings == ()


def test_numbers_that_nothing_explains_are_no_convention() -> None:
    verdict = check(RNG.normal(size=V[:, :3].shape).astype(np.float32), Q, K, V, mask=KEEP)
    assert (verdict.status, verdict.meanings) == ("no match", ())


def test_a_mask_and_causal_that_are_refused_together_do_not_stop_the_search() -> None:
    mask = np.tri(3, 5, 1, dtype=bool)
    mask[2, 0] = False
    both = mask & np.tri(3, 5, dtype=bool)
    observed = weighted_sum(masked_softmax(scores(Q, K) * scale(Q), both), V)
    verdict = check(observed, Q, K, V, mask=mask, convention=Convention.of("tinygrad"))
    (bug,) = verdict.explanations
    assert bug.name == "causal mask where none is wanted"
    assert bug.flag == "--causal --mask-and-causal both"


@pytest.mark.parametrize("stage", ["masked", "weights", "output"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_scores_that_are_lowered_keep_few_digits(kind: Any, stage: str) -> None:
    """−10,000 leaves a score in float32 with three decimals; that is no bug."""
    q, k, v = (x.astype(kind) for x in (Q, K, V))
    keep = KEEP.copy()
    keep[1] = False
    lowered = scores(q, k) * kind(scale(q)) + np.where(keep, kind(0), kind(-1e4))
    weights = softmax(lowered)
    seen = {"masked": lowered, "weights": weights, "output": weighted_sum(weights, v)}[stage]
    how: dict[str, Any] = {"mask": keep, "mask_value": -1e4, "mask_value_rule": "add"}
    assert seen.dtype == kind
    assert check(seen, q, k, v, stage=stage, **how).status == "match"
