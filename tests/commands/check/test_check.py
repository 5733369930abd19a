"""check: tolerances, partial observations, ambiguity, shapes, what it refuses, the report."""

import json
from typing import Any

import numpy as np
import pytest

from attncli import Convention, ConventionError, ShapeError, StageError, attend
from attncli.arrays import Array
from attncli.commands.check.bugs.catalogue import CATALOGUE
from attncli.commands.check.diagnose import check
from attncli.commands.check.report import verdict_to_dict
from attncli.commands.check.verdict import report_text
from tests.commands.check.planted.rows import names
from tests.turns import in_turn

RNG = np.random.default_rng(23)
Q, K, V = (RNG.normal(size=shape) for shape in ((2, 3, 7), (2, 5, 7), (2, 5, 11)))
TRACE = attend(Q, K, V)
RIGHT = TRACE["output"].value

# Printed weights that were computed without the scale.
Q4 = [[1, 0], [0, 1], [1, 1]]
K4 = [[1, 1], [1, 0], [0, 1]]
V4 = [[10, 0], [0, 10], [5, 5]]


def normal(*shapes: tuple[int, ...], seed: int = 29) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for shape in shapes]


def output(*qkv: Array, **convention: Any) -> Array:
    return attend(*qkv, **convention)["output"].value


UNSCALED = output(Q, K, V, scale="none")


def test_printed_weights() -> None:
    convention: dict[str, Any] = {"stage": "weights", "rows": [0], "decimals": 2}
    verdict = check([0.42, 0.42, 0.16], Q4, K4, V4, **convention)
    assert verdict == check([[0.42, 0.42, 0.16]], Q4, K4, V4, **convention)
    (one,) = verdict.explanations
    assert (verdict.status, one.name) == ("found", "scale left out")
    # exp(1/√2) = 2.028115: the third weight is 1 / 5.056230 = 0.197776, printed 0.16
    assert one.errors["weights"].largest_without == pytest.approx(0.037776, abs=1e-6)
    assert "0.00464 with this bug" in report_text(verdict)


def test_what_is_allowed() -> None:
    cases: list[tuple[Array, dict[str, Any], dict[str, Any]]] = [
        (RIGHT.round(3), {"decimals": 3}, {"decimals": 4}),
        (RIGHT + 1e-3, {"atol": 1.001e-3}, {"atol": 0.999e-3}),
        (RIGHT * 1.01, {"rtol": 0.0101}, {"rtol": 0.0099}),
    ]
    for observed, allowed, not_allowed in cases:
        assert check(observed, Q, K, V, **allowed).matches, allowed
        assert not check(observed, Q, K, V, pairs=False, **not_allowed).matches, not_allowed
    assert check(RIGHT + 0.49e-3, Q, K, V, decimals=3).matches
    assert not check(RIGHT + 0.51e-3, Q, K, V, decimals=3, pairs=False).matches


@pytest.mark.parametrize("decimals", [1, 5])
def test_numbers_that_look_rounded_are_judged_at_that_rounding(decimals: int) -> None:
    verdict = check(RIGHT.round(decimals), Q, K, V)
    assert (verdict.status, f"{decimals} decimal" in verdict.notes[0]) == ("match", True)
    assert verdict.stages[0].allowed == pytest.approx(0.5 * 10.0**-decimals)
    assert check(RIGHT.round(decimals), Q, K, V, decimals=decimals).notes == ()
    wrong = check(UNSCALED.round(decimals), Q, K, V, pairs=False)
    assert wrong.status == "found" if decimals > 1 else wrong.status != "match"


def test_decimals_are_counted_stage_by_stage() -> None:
    """Numbers that are exact in every type are not rounded ones."""
    exact = check([[10.0, 0.375], [5, 5], [0.5, 1]], Q4, K4, V4)
    assert (exact.notes, exact.stages[0].allowed) == ((), None)
    observed = {name: TRACE[name].value.round(n) for name, n in (("scaled", 3), ("output", 2))}
    observed["weights"] = TRACE["weights"].value
    assert check(observed, Q, K, V).status == "match"
    verdict = check(observed | {"scaled": observed["scaled"] + 0.001}, Q, K, V, pairs=False)
    assert [stage.name for stage in verdict.stages if not stage.matches] == ["scaled"]


def test_a_subset_is_of_its_heads_and_rows_in_their_order() -> None:
    """So is every array that attention takes besides."""
    part = UNSCALED[1, [0, 2]]
    assert names(check(part, Q, K, V, heads=1, rows=[0, 2])) == ["scale left out"]
    assert names(check(part[None], Q, K, V, heads=[1], rows=slice(0, 3, 2))) == ["scale left out"]
    own: dict[str, Any] = {"mask": normal((2, 3, 5))[0], "sinks": np.array([0.5, -1.0])}
    right, wrong = output(Q, K, V, **own), output(Q, K, V, **own, scale="none")
    for heads, rows in (([0, 1], [2, 0, 1]), ([1, 0], [1, 1, 0]), ([1], [2, 0])):
        at: dict[str, Any] = {**own, "heads": heads, "rows": rows, "pairs": False}
        assert check(right[heads][:, rows], Q, K, V, **at).status == "match"
        assert names(check(wrong[heads][:, rows], Q, K, V, **at)) == ["scale left out"]


def test_what_makes_no_difference_is_no_bug() -> None:
    """Heads side by side; alignments of a square causal mask."""
    assert check({"concat": np.concatenate(list(RIGHT), axis=-1)}, Q, K, V).status == "match"
    q, k, v = Q, K[:, :3], V[:, :3]
    other = output(q, k, v, causal=True, causal_align="bottom-right")
    assert check(other, q, k, v, causal=True).matches


def test_bugs_that_compute_the_same_are_ambiguous() -> None:
    """With d_k = 4 and 4 heads, 1/√(4·4) is 1/4: √d_model and d_k are the same number."""
    q, k, v = normal((4, 3, 4), (4, 5, 4), (4, 5, 7))
    verdict = check(output(q, k, v, scale=0.25), q, k, v)
    assert verdict.status == "ambiguous"
    assert names(verdict) == ["√d_model instead of √d_k", "divided by d_k, not √d_k"]
    assert "(scale)" in str(verdict.common)
    assert "another input, if any: check --bug ID" in str(verdict.tell_apart)
    verdict = check(output(Q, K, V, causal=True), Q, K, V, causal=True, mask_value=-2.0)
    assert names(verdict) == ["finite mask value", "mask value −∞, not the finite one given"]
    assert "(empty rows, mask arithmetic)" in str(verdict.common)


def test_a_wrong_shape_is_named_with_the_layout_that_is_right() -> None:
    cases: list[tuple[Array, tuple[str, ...]]] = [
        (np.concatenate(list(RIGHT), axis=-1), ("3 × 22", "side by side", "then it matches")),
        (np.swapaxes(RIGHT, 0, 1), ("3 × 2 × 11", "Heads and tokens", "then it matches")),
        (np.swapaxes(RIGHT, 1, 2) + 1, ("2 × 11 × 3", "last two axes", "still differs")),
        (RIGHT[None], ("1 × 2 × 3 × 11", "length 1", "then it matches")),
        (RIGHT[:1], ("1 × 3 × 11", "--rows 1")),
        (RIGHT[..., :4, :4], ("2 × 3 × 4",)),
    ]
    for observed, parts in cases:
        verdict = check(observed, Q, K, V)
        assert verdict.status == "wrong shape"
        assert [part for part in (*parts, "2 × 3 × 11") if part not in verdict.shape] == []


# ---- dropout


def test_the_share_of_dropout_is_found() -> None:
    q, k, v = normal((3, 31, 7), (3, 37, 7), (3, 37, 5))
    trace = attend(q, k, v, dropout=0.3, seed=5)
    verdict = check({"weights": trace["dropped"].value, "output": trace["output"].value}, q, k, v)
    assert names(verdict) == ["dropout left on"]
    assert verdict.explanations[0].details == ("share 0.3",)


def test_what_looks_like_dropout_is_judged_by_its_factor_and_its_zeros() -> None:
    convention: dict[str, Any] = {"stage": "weights", "pairs": False}
    # three equal diagonal weights and six zeros fit a share of 0.53, and are too few to show it
    verdict = check(np.eye(3), np.eye(3), np.eye(3), np.eye(3), **convention)
    assert (verdict.matches, "dropout left on" in names(verdict)) == (False, False)
    # half of 100 with the factor 2 has a standard deviation of 5: 62 is within four, 72 is not
    q, k = normal((5, 7), (20, 7))
    for zeros, status in ((62, "found"), (72, "no match")):
        kept = np.random.default_rng(3).permutation(100).reshape(5, 20) >= zeros
        weights = attend(q, k, k)["weights"].value * 2 * kept
        assert check(weights, q, k, k, **convention).status == status
    # one factor for weights of three sizes, not of two
    for sizes, status in ((2, "no match"), (3, "found")):
        logits = np.array([[0.0, 1.0, 2.0]])[:, np.arange(12) % sizes].T
        weights = attend([[1.0]], logits, logits, scale="none")["weights"].value / 0.75
        weights[:, ::4] = 0
        assert check(weights, [[1.0]], logits, logits, scale="none", **convention).status == status


# ---- the call


LSE, TILE = {"lse": RIGHT[..., 0]}, {"tile.1.l": RIGHT[..., 0]}


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ShapeError, r"heads \[2\]", {"heads": [2]}),
        (ShapeError, "rows float8", {"rows": "float8"}),
        (ShapeError, "the mask", {"mask": np.ones((4, 4))}),
        (ConventionError, "inside is 'float8'; use float32, tf32", {"inside": "float8"}),
        (ConventionError, "both given", {"decimals": 2, "rtol": 0.1}),
        (ConventionError, "atol is -1.0", {"atol": -1.0}),
        (ConventionError, "decimals is -1", {"decimals": -1}),
        (TypeError, "casual", {"casual": True}),
        (ConventionError, "mask_means=", {"mask": np.eye(3, 5, dtype=int)}),
        # positions
        (ShapeError, "7 wide", {"positions": "paper"}),
        (ShapeError, "must be even", {"positions": "rope-halves"}),
        (ConventionError, "use one of paper", {"positions": "rope"}),
        # log-sum-exp, parts and tiles
        (StageError, "no lse", {"observed": LSE, "softmax_over": "queries"}),
        (ShapeError, "5 keys", {"split": [12]}),
        (StageError, "tile.4.m", {"observed": TILE | {"tile.4.m": 0}, "tiles": 4}),
        (StageError, "tile.x", {"observed": {"tile.x": RIGHT}, "tiles": 4}),
        (StageError, "weights", {"observed": {"weights": RIGHT}, "tiles": 4}),
        (ShapeError, "tiles of 0", {"observed": TILE, "tiles": 0}),
        (
            ConventionError,
            "whole columns",
            {"observed": TILE, "tiles": 4, "softmax_over": "queries"},
        ),
        # gradients
        (ConventionError, "gradient of the output", {"observed": {"d_q": Q}}),
        (StageError, "nothing was observed", {"observed": None, "d_output": RIGHT}),
        (ConventionError, "sum over all", {"d_k": K, "d_output": RIGHT, "rows": [0]}),
        (StageError, "no d_sinks", {"d_sinks": np.zeros(4), "d_output": RIGHT}),
        (StageError, "w_q", {"observed": {"d_w_q": np.eye(3)}, "d_output": RIGHT}),
        (ShapeError, "no q", {"q": None}),
    ],
)
def test_calls_that_do_not_fit(error: type[Exception], message: str, call: Any) -> None:
    with pytest.raises(error, match=message):
        check(**{"observed": RIGHT, "q": Q, "k": K, "v": V, **call})


def test_progress_counts_bugs_then_pairs_then_edits() -> None:
    calls: list[tuple[int, int]] = []
    check(UNSCALED[::-1] ** 2, Q, K, V, progress=lambda *at: calls.append(at))
    ends = [at for at, (done, total) in enumerate(calls) if done == total]
    assert len(ends) == 3
    assert [done for done, _ in calls[: ends[0] + 1]] == list(range(1, ends[0] + 2))


HOWS: list[dict[str, Any]] = [
    {"causal": True, "softcap": 2.0, "softcap_place": "after-mask"},
    {"causal_align": "bottom-right", "window": (1, 2), "mask_value": -7.0},
    {"softmax_over": "queries", "scale": 0.3, "empty_rows": "nan"},
    {"head_order": "tiled", "scale": "none", "dropout": 0.25, "seed": 3},
]


@pytest.mark.parametrize(("convention", "cells"), in_turn(HOWS, [1, 40, 2**21]))
def test_the_pieces_are_what_attend_computes(
    convention: dict[str, Any], cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many cells are computed at once."""
    for limit in ("CELLS", "OF_ROWS"):
        monkeypatch.setattr(f"attncli.tolerance.run.{limit}", cells)
    q, k, v, d = normal((2, 4, 3, 7), (2, 2, 5, 7), (2, 2, 5, 11), (2, 4, 3, 11))
    mask = np.random.default_rng(31).random((2, 1, 3, 5)) < 0.7
    given: dict[str, Any] = {"mask": mask, "kv_len": [5, 3], "d_output": d, **convention}
    trace = attend(q, k, v, **given)
    observed = {name: trace[name].value for name in trace if name not in ("mask", *given)}
    assert check(observed, q, k, v, rtol=1e-12, atol=1e-13, **given).status == "match"


def test_what_does_not_fit_into_memory_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncli.commands.check.search.most_at_once", lambda: 14)
    verdict = check(UNSCALED, Q, K, V)
    assert names(verdict) == ["scale left out"]
    assert ["15 scores" in note for note in verdict.notes] == [True, True]


@pytest.mark.parametrize("huge", [-1e308, 1e-320, float("nan")])
def test_any_number_is_judged_without_a_warning(huge: float) -> None:
    for observed in ([[huge, 0.55], [0.1, 0.7], [5, 5]], [[huge, -huge], [5, 5], [5, 5]]):
        assert "differ" in report_text(check(observed, Q4, K4, V4, pairs=False))


@pytest.mark.parametrize(
    ("scale", "times"), in_turn([0.0, -0.5, 1e-308, 1e200, -1e200, 1e308], [1.0, 0.0, 1e300])
)
def test_the_end_of_float64_never_makes_wrong_numbers_match(scale: float, times: float) -> None:
    wrong = np.linspace(1, 2, RIGHT.size).reshape(RIGHT.shape) * max(times, 1)
    text = report_text(check(wrong, Q * (times > 0), K, V * times, scale=scale, pairs=False))
    assert ("differ" in text, "NaN ×" in text) == (True, False)


def test_an_output_that_no_weights_give_is_garbage_only_from_a_block_on() -> None:
    q, k, v = normal((2, 37, 5), (2, 13, 5), (2, 13, 7))
    right, garbage = output(q, k, v), 50 + np.arange(7.0)
    for first, expected in ((32, ["last rows hold garbage"]), (31, []), (36, [])):
        wrong = right.copy()
        wrong[:, first:] = garbage * np.arange(1, 38 - first)[:, None]
        assert names(check(wrong, q, k, v, pairs=False)) == expected


# ---- the report, as data


def test_the_data_is_json_without_nan() -> None:
    observed = output(*map(np.array, (Q4, K4, V4))).copy()
    observed[1, 1] = np.nan
    text = json.dumps(verdict_to_dict(check(observed, Q4, K4, V4)), allow_nan=False)
    data = json.loads(text)
    fields = """schema matches status dtype stages first_difference explanations quiet inside common
    tell_apart shape exactness undecided notes meanings is_default hidden edit reading probe"""
    assert {*data} == {*fields.split()}
    assert (data["schema"], data["status"], data["matches"]) == (6, "no match", False)
    # weights of q2: 0.401112, 0.197776, 0.401112; 10 · 0.197776 + 5 · 0.401112 = 3.983319
    (stage,) = data["stages"]
    (worst,) = stage["worst"]
    assert (worst["place"], worst["index"]) == ("q2, d_v 2", [1, 1])
    assert (worst["observed"], stage["largest"]) == ("NaN", "Infinity")
    assert worst["expected"] == pytest.approx(3.983319, abs=5e-7)


def test_the_flag_that_reproduces_it() -> None:
    q, k, v = normal((4, 3, 7), (2, 5, 7), (2, 5, 11))
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({}, {"scale": 0.3779644730092272 / 2}, "--scale 0.1889822365"),
        ({"causal": True}, {"causal": False}, "without --causal"),
        ({"causal": True}, {"causal_align": "bottom-right"}, "--causal-align bottom-right"),
        ({"causal": True, "window": (2, 0)}, {"window": (1, 0)}, "--window 1,0"),
        ({"softcap": 1.0}, {"softcap": None}, "without --softcap"),
        ({}, {"softmax_over": "queries"}, "--softmax-over queries"),
        ({}, {"head_order": "tiled"}, "--head-order tiled"),
    ]
    for base, changed, flag in cases:
        observed = output(q, k, v, convention=Convention(**{**base, **changed}))
        verdict = check(observed, q, k, v, pairs=False, **base)
        assert (verdict.status, verdict.explanations[0].flag) == ("found", flag)


def test_every_bug_has_a_name_of_its_own_and_a_sentence() -> None:
    for bug in CATALOGUE:
        assert bug.sentence == bug.sentence.strip().rstrip(".") != "", bug.name
        assert bug.touches, bug.name
        assert all("#" in thread for thread in bug.threads), bug.name
    assert len({bug.name for bug in CATALOGUE}) == len(CATALOGUE)
