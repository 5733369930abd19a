"""Causes of differences: rounding between two steps, an earlier error, truncated digits.

All numbers are worked by hand: with q = (1, 0), k = (1, 0), (0, 1) and d_k = 2 the weights are
0.669762 and 0.330238.
"""

from __future__ import annotations

from typing import Any

import pytest

from attncli.errors import InputError
from attncli.examples import Judgement, judge
from attncli.examples.printed import VERDICTS
from tests.examples.made import example, judged

R, A, D, N, _ = VERDICTS
QKV: dict[str, Any] = {"q": [[1, 0]], "k": [[1, 0], [0, 1]], "v": [[100, 0], [0, 100]]}


def attention(weights: list[str], output: list[str], **recorded: Any) -> Judgement:
    first: dict[str, Any] = {"stage": "weights", "at": {"query": 1}, "printed": weights}
    second = {"stage": "output", "at": {"query": 1}, "printed": output, **recorded}
    return judged("attention", QKV, first, second)[1]


def test_rounding_between_two_steps_is_recognized() -> None:
    output = attention(["0.67", "0.33"], ["67.00", "33.00"])
    assert (output.verdict, output.cause) == (D, "rounding only")
    assert output.own is not None
    assert output.own.text == "from the printed weights"
    assert output.own.ours == pytest.approx([67.0, 33.0])


def test_an_error_carried_over_is_recognized() -> None:
    output = attention(["0.73", "0.27"], ["73.00", "27.00"])
    assert (output.verdict, output.cause) == (D, "carried over")


def test_a_new_error_has_no_cause() -> None:
    output = attention(["0.67", "0.33"], ["68.00", "33.00"])
    assert (output.verdict, output.cause) == (D, None)
    assert output.own is not None
    assert output.own.verdict == D


def test_truncated_digits_are_recognized() -> None:
    (weights,) = judged("attention", QKV, {"stage": "weights", "printed": [["0.66", "0.33"]]})
    assert (weights.verdict, weights.cause) == (D, "cut off")


@pytest.mark.parametrize(
    ("recorded", "ok"),
    [
        ({}, False),
        ({"verdict": D}, True),
        ({"verdict": D, "cause": "rounding only"}, True),
        ({"verdict": D, "cause": "carried over"}, False),
        ({"verdict": A}, False),
        ({"verdict": D, "ways": [{"how": "its weights", "from": "weights"}]}, True),
        (
            {
                "verdict": D,
                "ways": [{"how": "no scale", "inputs": {"convention": {"scale": "none"}}}],
            },
            False,
        ),
    ],
)
def test_a_difference_passes_only_as_recorded(recorded: dict[str, Any], ok: bool) -> None:
    assert attention(["0.67", "0.33"], ["67.00", "33.00"], **recorded).ok is ok


def test_an_agreement_recorded_as_a_difference_is_reported() -> None:
    output = attention(["0.67", "0.33"], ["66.98", "33.02"], verdict=D)
    assert output.problem == "agrees as rounded, recorded as differs"


@pytest.mark.parametrize("stage", ["scores", "scaled"])
def test_scores_rounded_before_softmax(stage: str) -> None:
    # scores 1.94, 0.52; scaled 1.371787, 0.367696; weights 0.731906, 0.268094
    # from scores 1.9, 0.5: 0.729080, 0.270920; from scaled 1.4, 0.4: 0.731059, 0.268941
    inputs = {"q": [[1.94, 0.52]], "k": [[1, 0], [0, 1]], "v": [[1], [0]]}
    rounded, weights = {
        "scores": (["1.9", "0.5"], ["0.7291", "0.2709"]),
        "scaled": (["1.4", "0.4"], ["0.7311", "0.2689"]),
    }[stage]
    _, last = judged(
        "attention",
        inputs,
        {"stage": stage, "at": {"query": 1}, "printed": rounded},
        {"stage": "weights", "at": {"query": 1}, "printed": weights},
    )
    assert (last.verdict, last.cause) == (D, "rounding only")


def test_the_mask_is_applied_to_printed_scores() -> None:
    inputs = {
        "q": [[1.94], [2.04]],
        "k": [[1], [2]],
        "v": [[1], [0]],
        "convention": {"causal": True},
    }
    # scores of query 2: 2.04, 4.08, rounded 2, 4; weights e⁻²/(1 + e⁻²) = 0.119203
    _, last = judged(
        "attention",
        inputs,
        {"stage": "scores", "printed": [["1.9", "3.9"], ["2.0", "4.1"]]},
        {"stage": "weights", "printed": [["1", "0"], ["0.1091", "0.8909"]]},
    )
    assert (last.verdict, last.cause) == (D, "rounding only")  # σ(2.1) = 0.890903
    assert last.own is not None
    assert last.own.ours[0].tolist() == [1.0, 0.0]


def test_lengths_rounded_before_a_cosine() -> None:
    # ‖a‖ = 1.41421, ‖b‖ = 2.23607, cos = 0.948683; 3 / (1.4 · 2.2) = 0.974026
    *_, cosine = judged(
        "similarity",
        {"vectors": {"a": [1, 1], "b": [1, 2]}},
        {"stage": "lengths", "printed": ["1.4", "2.2"]},
        {"stage": "cosines", "at": {"word": "a", "other": "b"}, "printed": "0.97"},
    )
    assert (cosine.verdict, cosine.cause) == (D, "rounding only")


def test_a_cosine_rounded_before_its_angle() -> None:
    # arccos 0.948683 = 18.4349°, arccos 0.95 = 18.1949°
    *_, angle = judged(
        "similarity",
        {"vectors": {"a": [1, 1], "b": [1, 2]}},
        {"stage": "cosines", "at": {"word": "a", "other": "b"}, "printed": "0.95"},
        {"stage": "angles", "at": {"word": "a", "other": "b"}, "printed": "18.19"},
    )
    assert (angle.verdict, angle.cause) == (D, "rounding only")


def test_vectors_rounded_before_their_lengths() -> None:
    *_, length = judged(
        "similarity",
        {"vectors": {"a": [3.04, 4]}},  # ‖(3.04, 4)‖ = 5.0241, ‖(3, 4)‖ = 5
        {"stage": "vectors", "printed": [["3.0", "4"]]},
        {"stage": "lengths", "at": {"word": "a"}, "printed": "5.00"},
    )
    assert (length.verdict, length.cause) == (D, "rounding only")


def test_an_angle_rounded_before_its_sine() -> None:
    # 1 / 10000^(2/6) = 0.0464159; sin 0.05 = 0.049979
    *_, sine = judged(
        "positions",
        {"n": 2, "dim": 6},
        {"stage": "angles", "at": {"position": 2, "pair": 2}, "printed": "0.05"},
        {"stage": "positions", "at": {"position": 2, "dimension": 3}, "printed": "0.0500"},
    )
    assert (sine.verdict, sine.cause) == (D, "rounding only")


def test_a_difference_rounded_before_an_analogy() -> None:
    *_, answer = judged(
        "analogy",
        {"vectors": {"a": [0.14], "b": [0.38], "c": [0.5]}},  # 0.24 + 0.5; 0.2 + 0.5
        {"stage": "difference", "printed": ["0.2"]},
        {"stage": "analogy", "printed": ["0.70"]},
    )
    assert (answer.verdict, answer.cause) == (D, "rounding only")


def test_mean_and_deviation_rounded_before_the_norm() -> None:
    # mean 2.3333, deviation 1.2472; (4 − 2.3333) / 1.2472 = 1.3363; (4 − 2.3) / 1.2 = 1.4167
    *_, norm = judged(
        "layer norm",
        {"x": [[1, 2, 4]]},
        {"stage": "mean", "printed": ["2.3"]},
        {"stage": "deviation", "printed": ["1.2"]},
        {"stage": "norm", "at": {"query": 1, "d_model": 3}, "printed": "1.42"},
    )
    assert (norm.verdict, norm.cause) == (D, "rounding only")
    assert norm.own is not None
    assert norm.own.text == "from the printed deviation and mean"


def test_the_norm_from_a_rounded_mean_has_the_deviation_from_that_mean() -> None:
    # √(((1 − 2.3)² + (2 − 2.3)² + (4 − 2.3)²) / 3) = 1.24766; (4 − 2.3) / 1.24766 = 1.36255
    *_, norm = judged(
        "layer norm",
        {"x": [[1, 2, 4]]},
        {"stage": "mean", "printed": ["2.3"]},
        {"stage": "norm", "at": {"query": 1, "d_model": 3}, "printed": "1.3625"},
    )
    assert (norm.verdict, norm.cause) == (D, "rounding only")


def test_queries_rounded_before_everything_else() -> None:
    # from q 1.9, 0.5: scaled 1.343503, 0.353553; weights 0.729080, 0.270920
    *_, weights = judged(
        "attention",
        {"q": [[1.94, 0.52]], "k": [[1, 0], [0, 1]], "v": [[1], [0]]},
        {"stage": "q", "printed": [["1.9", "0.5"]]},
        {"stage": "weights", "printed": [["0.7291", "0.2709"]]},
    )
    assert (weights.verdict, weights.cause) == (D, "rounding only")
    assert weights.own is not None
    assert weights.own.text == "from the printed q"


@pytest.mark.parametrize(
    ("more", "stage", "printed"),
    [
        ({"residual": True}, "residual", ["1.6700", "0.3300"]),
        ({"n_heads": 1}, "concat", ["0.6700", "0.3300"]),
        ({"w_o": [[10, 0], [0, 10]]}, "projected", ["6.7000", "3.3000"]),
        ({"w_o": [[10, 0], [0, 10]], "residual": True}, "residual", ["7.7000", "3.3000"]),
    ],
)
def test_weights_rounded_before_what_follows_the_output(
    more: dict[str, Any], stage: str, printed: list[str]
) -> None:
    in_heads = {"n_heads", "w_o"} & more.keys()
    at = {"head": 1, "query": 1} if in_heads else {"query": 1}
    _, last = judged(
        "self-attention",
        {"x": [[1, 0], [0, 1]], **more},
        {"stage": "weights", "at": at, "printed": ["0.67", "0.33"]},
        {"stage": stage, "at": {"query": 1}, "printed": printed},
    )
    assert (last.verdict, last.cause) == (D, "rounding only")


def test_a_stage_that_does_not_follow_from_the_printed_one_is_not_computed_from_it() -> None:
    _, k = judged(
        "attention",
        QKV,
        {"stage": "q", "printed": [["2", "0"]]},
        {"stage": "k", "at": {"key": 1}, "printed": ["1", "1"]},
    )
    assert (k.verdict, k.cause, k.own) == (D, None, None)


def test_an_alternative_from_unprinted_numbers_is_refused() -> None:
    claim = {"stage": "output", "printed": [["1", "2"]], "ways": [{"how": "w", "from": "weights"}]}
    with pytest.raises(InputError, match="way 1: the claim does not follow from printed numbers"):
        judge(example("attention", QKV, claim))


def test_an_alternative_without_the_stage_is_refused() -> None:
    way = {"how": "no scale", "from": "scores", "inputs": {"convention": {"scale": "none"}}}
    claims: list[dict[str, Any]] = [
        {"stage": "scores", "printed": [["1", "0"]]},
        {"stage": "scaled", "printed": [["1", "0"]], "ways": [way]},
    ]
    with pytest.raises(InputError, match=r"^made\.json: example 'it', claim 2, way 1: there is no"):
        judge(example("attention", QKV, *claims))


def test_an_alternative_without_a_printed_place_is_refused() -> None:
    way = {"how": "one query", "from": "weights", "inputs": {"q": [[1, 0]]}}
    claims: list[dict[str, Any]] = [
        {"stage": "weights", "at": {"query": 2}, "printed": ["0.3", "0.7"]},
        {"stage": "output", "at": {"query": 1}, "printed": ["67", "33"], "ways": [way]},
    ]
    with pytest.raises(
        InputError, match=r"^made\.json: example 'it', claim 2, way 1: stage weights"
    ):
        judge(example("attention", {**QKV, "q": [[1, 0], [0, 1]]}, *claims))


def test_a_claim_without_a_recorded_verdict_must_agree() -> None:
    weights, output = judged(
        "attention", QKV, {"stage": "weights", "printed": [["0.67", "0.33"]]}, {"stage": "output"}
    )
    assert [(j.verdict, j.ok) for j in (weights, output)] == [(A, True), (N, True)]
