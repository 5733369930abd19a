"""The report as text and as data, exactly; and flags that reproduce what they say."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from attncli import Convention, attend
from attncli.check import CATALOGUE, check, report_text, verdict_to_dict

Q = [[1, 0], [0, 1], [1, 1]]
K = [[1, 1], [1, 0], [0, 1]]
V = [[10, 0], [0, 10], [5, 5]]


def test_the_text_of_a_bug_that_was_found() -> None:
    verdict = check([0.42, 0.42, 0.16], Q, K, V, stage="weights", rows=[0], decimals=2)
    assert report_text(verdict).splitlines() == [
        "it differs; the cause:",
        "  scale left out",
        "     the scores go into softmax as they are, not multiplied by 1/√d_k",
        "     seen in cntkx#10, PAIR-code/tiny-transformers#71",
        "     expected: Z = S / √d_k = S / 1.4142",
        "     to reproduce it, attncli compute: --scale none",
        "     errors of weights with this bug: RMS 0.00328, largest 0.00464; without 0.0267 and "
        "0.0378",
        "  as keras-attention does by design: --semantics keras-attention",
        "weights differs in 100 % of 3 entries",
        "  everywhere: no entry is right",
        "  largest error 0.0378, allowed 0.005 (half a unit of decimal 2)",
        "  worst entries (place: observed, expected)",
        "    q1, k3: 0.16, 0.19777581",
        "    q1, k1: 0.42, 0.40111209",
        "    q1, k2: 0.42, 0.40111209",
    ]


def test_the_data_is_json_without_nan() -> None:
    observed = attend(Q, K, V)["output"].value.copy()
    observed[1, 1] = np.nan
    text = json.dumps(verdict_to_dict(check(observed, Q, K, V)), allow_nan=False)
    data = json.loads(text)
    assert list(data) == [
        "schema",
        "matches",
        "status",
        "dtype",
        "stages",
        "first_difference",
        "explanations",
        "quiet",
        "inside",
        "common",
        "tell_apart",
        "shape",
        "exactness",
        "undecided",
        "notes",
        "meanings",
        "is_default",
        "hidden",
    ]
    assert (data["schema"], data["status"], data["matches"]) == (3, "no match", False)
    worst = data["stages"][0]["worst"][0]
    assert worst == {
        "place": "q2, d_v 2",
        "index": [1, 1],
        "observed": "NaN",
        "expected": pytest.approx(3.983319, abs=5e-7),
    }
    assert data["stages"][0]["largest"] == "Infinity"


def test_explanations_carry_their_names_in_the_data() -> None:
    observed = attend(Q, K, V, convention=Convention(scale="none"))["output"].value
    data = verdict_to_dict(check(observed, Q, K, V))
    assert data["explanations"][0]["name"] == "scale left out"
    assert data["explanations"][0]["bugs"][0]["threads"] == [
        "cntkx#10",
        "PAIR-code/tiny-transformers#71",
    ]


RNG = np.random.default_rng(29)
BIG = [RNG.normal(size=shape) for shape in ((4, 3, 7), (2, 5, 7), (2, 5, 11))]


@pytest.mark.parametrize(
    ("base", "changed", "flag"),
    [
        ({}, {"scale": 0.3779644730092272 / 2}, "--scale 0.1889822365"),
        ({}, {"causal": True}, "--causal"),
        ({"causal": True}, {"causal": False}, "without --causal"),
        ({"causal": True}, {"causal_align": "bottom-right"}, "--causal-align bottom-right"),
        ({"causal": True, "window": (2, 0)}, {"window": (1, 0)}, "--window 1,0"),
        ({"softcap": 1.0}, {"softcap": None}, "without --softcap"),
        ({}, {"softmax_over": "queries"}, "--softmax-over queries"),
        ({}, {"head_order": "tiled"}, "--head-order tiled"),
        (
            {"softcap": 1.0, "causal": True},
            {"softcap_place": "after-mask"},
            "--softcap-place after-mask",
        ),
    ],
)
def test_the_flag_that_reproduces_it(
    base: dict[str, Any], changed: dict[str, Any], flag: str
) -> None:
    observed = attend(*BIG, convention=Convention(**{**base, **changed}))["output"].value
    verdict = check(observed, *BIG, convention=Convention(**base))
    assert verdict.status == "found"
    assert verdict.explanations[0].flag == flag


@pytest.mark.parametrize("bug", CATALOGUE, ids=lambda bug: bug.name)
def test_every_bug_has_a_sentence(bug: Any) -> None:
    assert bug.sentence == bug.sentence.strip() != ""
    assert not bug.sentence.endswith(".")
    assert bug.touches
    assert all("#" in thread for thread in bug.threads)


def test_names_are_unique() -> None:
    assert len({bug.name for bug in CATALOGUE}) == len(CATALOGUE)
