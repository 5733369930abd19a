"""check: tolerances, partial observations, ambiguity, shapes, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli import Convention, ConventionError, ShapeError, StageError, attend
from attncli.attention.attend import prepared
from attncli.attention.plan import plan
from attncli.check import check, report_text
from attncli.check.run import all_of, inputs_over, stages, steps_of
from attncli.check.setup import setup_of
from attncli.check.spans import STAGES

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(23)
Q, K, V = (RNG.normal(size=shape) for shape in ((2, 3, 7), (2, 5, 7), (2, 5, 11)))

# The first numerical example of document 004, whose weights were computed without the scale.
Q4 = [[1, 0], [0, 1], [1, 1]]
K4 = [[1, 1], [1, 0], [0, 1]]
V4 = [[10, 0], [0, 10], [5, 5]]


def unscaled(stage: str = "output") -> Array:
    return attend(Q, K, V, convention=Convention(scale="none"))[stage].value


def names(verdict: Any) -> list[str]:
    return [explanation.name for explanation in verdict.explanations]


@pytest.mark.parametrize("printed", [[0.42, 0.42, 0.16], [[0.42, 0.42, 0.16]]])
def test_printed_weights_of_document_004(printed: Any) -> None:
    verdict = check(printed, Q4, K4, V4, stage="weights", rows=[0], decimals=2)
    assert verdict.status == "found"
    assert names(verdict) == ["scale left out"]
    assert verdict.explanations[0].flag == "--scale none"
    assert verdict.explanations[0].errors["weights"].largest < 0.005
    # exp(1/√2) = 2.028115: the third weight is 1 / 5.056230 = 0.197776, printed 0.16
    assert verdict.explanations[0].errors["weights"].largest_without == pytest.approx(
        0.037776, abs=1e-6
    )


def test_decimals_allow_half_a_unit_of_the_last_one() -> None:
    exact = attend(Q, K, V)["output"].value
    assert check(exact.round(3), Q, K, V, decimals=3).status == "match"
    assert check(exact.round(3), Q, K, V, decimals=4).status == "no match"
    assert check(exact + 0.49e-3, Q, K, V, decimals=3).status == "match"
    assert check(exact + 0.51e-3, Q, K, V, decimals=3).status == "no match"


@pytest.mark.parametrize("decimals", [1, 2, 4, 5, 6, 8])
def test_numbers_that_look_rounded_are_judged_at_that_rounding(decimals: int) -> None:
    exact = attend(Q, K, V)["output"].value
    verdict = check(exact.round(decimals), Q, K, V)
    s = "s" * (decimals > 1)
    words = f"the numbers have {decimals} decimal{s}, so they are judged as rounded to {decimals}"
    assert (verdict.status, verdict.notes) == ("match", (words,))
    assert check(exact.round(decimals), Q, K, V, decimals=decimals).notes == ()
    wrong = check(unscaled().round(decimals), Q, K, V)
    assert verdict.stages[0].allowed == pytest.approx(0.5 * 10.0**-decimals)
    assert wrong.status == "found" if decimals > 1 else wrong.status != "match"


def test_what_no_bug_explains_is_judged_as_rounded_too() -> None:
    verdict = check((attend(Q, K, V)["output"].value + 0.5).round(7), Q, K, V, pairs=False)
    assert verdict.status == "no match"
    assert verdict.stages[0].allowed == pytest.approx(0.5e-7)


def test_decimals_are_counted_stage_by_stage() -> None:
    trace = attend(Q, K, V)
    stages = {name: trace[name].value for name in ("scaled", "weights", "output")}
    rounded = {
        "scaled": stages["scaled"].round(3),
        "weights": stages["weights"],  # in full
        "output": stages["output"].round(2),
    }
    assert check(rounded, Q, K, V).status == "match"
    rounded["scaled"] = rounded["scaled"] + 0.001
    verdict = check(rounded, Q, K, V, pairs=False)
    assert [stage.name for stage in verdict.stages if not stage.matches] == ["scaled"]


def test_numbers_exact_in_every_type_are_not_rounded() -> None:
    verdict = check([[10.0, 0.375], [5, 5], [0.5, 1]], Q4, K4, V4)
    assert verdict.notes == ()
    assert verdict.stages[0].allowed is None


def test_rtol_and_atol() -> None:
    exact = attend(Q, K, V)["output"].value
    assert check(exact + 1e-3, Q, K, V, atol=1.001e-3).status == "match"
    assert check(exact + 1e-3, Q, K, V, atol=0.999e-3).status == "no match"
    assert check(exact * 1.01, Q, K, V, rtol=0.0101).status == "match"
    assert names(check(exact * 1.01, Q, K, V, rtol=0.0099)) == ["output times a factor"]


def test_a_choice_that_does_not_exist_is_named() -> None:
    how: Any = {"inside": "float8"}
    with pytest.raises(ConventionError, match="inside is 'float8'; use float32, tf32"):
        check(Q, Q, K, V, **how)
    with pytest.raises(ShapeError, match="rows float8 do not all exist"):
        check(Q, Q, K, V, rows=how["inside"])


@pytest.mark.parametrize("stage", ["scores", "scaled", "weights", "output"])
def test_one_stage_alone(stage: str) -> None:
    assert check(attend(Q, K, V)[stage].value, Q, K, V, stage=stage).status == "match"


def test_weights_alone_name_the_bug() -> None:
    assert names(check(unscaled("weights"), Q, K, V, stage="weights")) == ["scale left out"]


def test_a_subset_names_the_bug() -> None:
    part = unscaled()[1, [0, 2]]
    assert names(check(part, Q, K, V, heads=1, rows=[0, 2])) == ["scale left out"]
    assert names(check(part[None], Q, K, V, heads=[1], rows=slice(0, 3, 2))) == ["scale left out"]


@pytest.mark.parametrize("rows", [[2, 0, 1], [1, 1, 0]])
def test_the_mask_of_a_subset_has_its_rows_in_their_order(rows: list[int]) -> None:
    mask = np.array([[1, 0, 1, 0, 1], [1, 1, 0, 0, 0], [0, 0, 0, 1, 1]], dtype=bool)
    output = attend(Q, K, V, mask=mask)["output"].value
    assert check(output[:, rows], Q, K, V, mask=mask, rows=rows).status == "match"


def test_concat_is_the_output_with_its_heads_side_by_side() -> None:
    output = attend(Q, K, V)["output"].value
    concat = np.concatenate(list(output), axis=-1)
    assert check({"concat": concat}, Q, K, V).status == "match"


def test_two_alignments_of_the_causal_mask_are_one_where_sizes_are_equal() -> None:
    q, k, v = Q, K[:, :3], V[:, :3]
    how = Convention(causal=True)
    other = Convention(causal=True, causal_align="bottom-right")
    assert check(attend(q, k, v, convention=other)["output"].value, q, k, v, convention=how).matches


def test_one_head_cannot_show_the_width_of_the_model() -> None:
    verdict = check(attend(Q[0], K[0], V[0])["output"].value, Q[0], K[0], V[0])
    assert verdict.status == "match"


def test_bugs_that_compute_the_same_are_ambiguous() -> None:
    """With d_k = 4 and 4 heads, 1/√(4·4) is 1/4: √d_model and d_k are the same number."""
    q, k, v = (RNG.normal(size=shape) for shape in ((4, 3, 4), (4, 5, 4), (4, 5, 7)))
    observed = attend(q, k, v, convention=Convention(scale=0.25))["output"].value
    verdict = check(observed, q, k, v)
    assert verdict.status == "ambiguous"
    assert names(verdict) == ["√d_model instead of √d_k", "divided by d_k, not √d_k"]
    assert verdict.common == (
        "they all change the same thing (scale), and they compute the same numbers on this input"
    )
    assert verdict.tell_apart == "an input with 2 heads, 3 queries, 5 keys, d_k 7, d_v 11"


def test_what_several_bugs_have_in_common_is_in_words() -> None:
    observed = attend(Q, K, V, convention=Convention(causal=True))["output"].value
    verdict = check(observed, Q, K, V, convention=Convention(causal=True, mask_value=-2.0))
    assert names(verdict) == ["finite mask value", "mask value −∞, not the finite one given"]
    assert verdict.common == (
        "they all change the same thing (empty rows, mask arithmetic), "
        "and they compute the same numbers on this input"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda x: np.concatenate(list(x), axis=-1),
            "output is 3 × 22, expected 2 × 3 × 11. "
            "The heads are side by side in the last axis: split them; then it matches",
        ),
        (
            lambda x: np.swapaxes(x, 0, 1),
            "output is 3 × 2 × 11, expected 2 × 3 × 11. "
            "Heads and tokens are exchanged: swap these two axes; then it matches",
        ),
        (
            lambda x: np.swapaxes(x, 1, 2) + 1,
            "output is 2 × 11 × 3, expected 2 × 3 × 11. "
            "Its last two axes are exchanged: swap them; then it still differs",
        ),
        (
            lambda x: x[None],
            "output is 1 × 2 × 3 × 11, expected 2 × 3 × 11. "
            "It has axes of length 1 too many or too few; then it matches",
        ),
        (
            lambda x: x[:1],
            "output is 1 × 3 × 11, expected 2 × 3 × 11. "
            "It may be a subset: pass rows= / heads= (--rows, --head)",
        ),
        (lambda x: x[..., :4, :4], "output is 2 × 3 × 4, expected 2 × 3 × 11"),
    ],
)
def test_a_wrong_shape_is_named_with_the_layout_that_is_right(change: Any, words: str) -> None:
    verdict = check(change(attend(Q, K, V)["output"].value), Q, K, V)
    assert verdict.status == "wrong shape"
    assert verdict.shape == words


def test_another_input_is_named_first() -> None:
    dump = {"q": Q + 0.5, "output": attend(Q + 0.5, K, V)["output"].value}
    verdict = check(dump, Q, K, V)
    assert (verdict.status, verdict.first_difference) == ("no match", "q")
    assert verdict.notes == ("the observed q is not the given one: they differ by up to 0.5",)
    trace = attend(Q, K, V)
    assert check({name: trace[name].value for name in trace}, Q, K, V).status == "match"


def test_dropout_of_the_convention_is_expected() -> None:
    how = Convention(dropout=0.25, seed=3)
    trace = attend(Q, K, V, convention=how)
    observed = {name: trace[name].value for name in ("weights", "dropped", "output")}
    assert check(observed, Q, K, V, convention=how).status == "match"


def test_the_share_of_dropout_is_found() -> None:
    q, k, v = (RNG.normal(size=shape) for shape in ((3, 31, 7), (3, 37, 7), (3, 37, 5)))
    trace = attend(q, k, v, convention=Convention(dropout=0.3, seed=5))
    dump = {"weights": trace["dropped"].value, "output": trace["output"].value}
    verdict = check(dump, q, k, v)
    assert names(verdict) == ["dropout left on"]
    assert verdict.explanations[0].details == ("share 0.3",)


def test_identity_weights_are_not_dropout() -> None:
    # Three equal diagonal weights and six zeros fit a share of 0.53, and are too few to show it.
    verdict = check(np.eye(3), np.eye(3), np.eye(3), np.eye(3), stage="weights")
    assert not verdict.matches
    assert "dropout left on" not in names(verdict)


@pytest.mark.parametrize(("zeros", "status"), [(62, "found"), (72, "no match")])
def test_dropout_drops_about_as_many_as_its_factor_says(zeros: int, status: str) -> None:
    # Half of 100 with the factor 2 has a standard deviation of 5: 62 lies within four, 72 does not.
    q, k = RNG.normal(size=(5, 7)), RNG.normal(size=(20, 7))
    kept = np.ones(100)
    kept[RNG.permutation(100)[:zeros]] = 0
    weights = attend(q, k, k)["weights"].value * 2 * kept.reshape(5, 20)
    assert check(weights, q, k, k, stage="weights").status == status


@pytest.mark.parametrize(("sizes", "status"), [(2, "no match"), (3, "found")])
def test_dropout_grows_weights_of_several_sizes_by_one_factor(sizes: int, status: str) -> None:
    logits = np.array([[0.0, 1.0, 2.0]])[:, np.arange(12) % sizes]
    observed = attend([[1.0]], logits.T, logits.T, convention=Convention(scale="none"))["weights"]
    kept = np.arange(12) % 4 != 0
    how = Convention(scale="none")
    found = check(
        observed.value * kept / 0.75, [[1.0]], logits.T, logits.T, stage="weights", convention=how
    )
    assert found.status == status


@pytest.mark.parametrize(
    ("error", "given", "message"),
    [
        (StageError, {"stage": "logits"}, "no stage 'logits' to check"),
        (ShapeError, {"heads": [2]}, r"heads \[2\] do not all exist; there are 2"),
        (ShapeError, {"mask": np.ones((4, 4))}, "the mask"),
        (ConventionError, {"decimals": 2, "rtol": 0.1}, "both given"),
        (ConventionError, {"atol": -1.0}, "atol is -1.0"),
        (ConventionError, {"decimals": -1}, "decimals is -1"),
    ],
)
def test_calls_that_do_not_fit(error: type[Exception], given: dict[str, Any], message: str) -> None:
    with pytest.raises(error, match=message):
        check(np.zeros((2, 3, 11)), Q, K, V, **given)


def test_progress_counts_bugs_and_then_pairs() -> None:
    calls: list[tuple[int, int]] = []
    check(RNG.normal(size=(2, 3, 11)), Q, K, V, progress=lambda *at: calls.append(at))
    ends = [at for at, (done, total) in enumerate(calls) if done == total]
    assert len(ends) == 2
    assert [done for done, _ in calls[: ends[0] + 1]] == list(range(1, ends[0] + 2))


def test_an_input_is_picked_by_the_axes_that_the_registry_declares() -> None:
    """A further array that attention takes needs no change in check."""
    setup = setup_of(Q, K, V, mask=np.ones((3, 5), dtype=bool))
    bias, sinks = RNG.normal(size=(2, 3, 5)), RNG.normal(size=2)
    setup = setup.with_inputs(bias=bias, slopes=sinks)  # head query key, and head
    subset = all_of(setup.shape)._replace(head=np.array([1]), row=np.array([2, 0]))
    found = inputs_over(setup, subset, steps_of(setup))
    np.testing.assert_array_equal(found["bias"], bias[[1]][:, [2, 0]])
    np.testing.assert_array_equal(found["slopes"], sinks[[1]])
    np.testing.assert_array_equal(found["q"], Q[None, [1]][:, :, [2, 0]])
    np.testing.assert_array_equal(found["k"], K[None, [1]])
    assert found["given_mask"].shape == (3, 5)  # the step that reads the rows picks them


def test_a_further_array_of_attention_is_passed_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were `bias` an argument of `attend` that its plan adds to the scores, check would take it."""

    def with_bias(*qkv: Any, bias: Any, **more: Any) -> Any:
        inputs, sizes = prepared(*qkv, **more)
        return {**inputs, "bias": bias}, sizes

    def plan_with_bias(how: Convention, sizes: Any) -> Any:
        for step in plan(how, sizes):
            if step.name == "scores":
                reads = {**step.reads, "bias": "bias"}
                yield step._replace(compute=lambda q, k, bias: q @ k.mT + bias, reads=reads)
            else:
                yield step

    monkeypatch.setattr("attncli.check.setup.prepared", with_bias)
    monkeypatch.setattr("attncli.check.run.plan", plan_with_bias)
    bias = RNG.normal(size=(2, 3, 5))
    scores = (Q @ K.mT + bias) / 7**0.5
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    given: dict[str, Any] = {"bias": bias, "heads": [1], "rows": [2, 0]}
    assert check((weights @ V)[[1]][:, [2, 0]], Q, K, V, **given).status == "match"
    unscaled = np.exp(Q @ K.mT + bias)
    observed = (unscaled / unscaled.sum(-1, keepdims=True) @ V)[[1]][:, [2, 0]]
    assert names(check(observed, Q, K, V, **given)) == ["scale left out"]


CONVENTIONS = [
    Convention(),
    Convention(causal=True, softcap=2.0, softcap_place="after-mask"),
    Convention(causal=True, causal_align="bottom-right", window=(1, 2), mask_value=-7.0),
    Convention(softmax_over="queries", scale=0.3, empty_rows="nan"),
    Convention(head_order="tiled", scale="none", dropout=0.25, seed=3),
]


@pytest.mark.parametrize("how", CONVENTIONS)
@pytest.mark.parametrize("cells", [1, 40, 2**21])
def test_the_pieces_are_what_attend_computes(
    how: Convention, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attncli.check.run.CELLS", cells)
    q, k, v = (RNG.normal(size=s) for s in ((2, 4, 3, 7), (2, 2, 5, 7), (2, 2, 5, 11)))
    mask = RNG.random((2, 1, 3, 5)) < 0.7
    given: dict[str, Any] = {"mask": mask, "kv_len": [5, 3], "convention": how}
    given["d_output"] = RNG.normal(size=(2, 4, 3, 11))
    setup = setup_of(q, k, v, **given)
    trace = attend(q, k, v, **given)
    asked = ("d_", "lse")  # not in every plan
    known = [name for name in STAGES if name in trace or not name.startswith(asked)]
    found = stages(setup, all_of(setup.shape), known)
    for name in set(STAGES) & set(trace):
        expected = trace[name].value.reshape(found[name].shape)
        np.testing.assert_allclose(found[name], expected, rtol=1e-12, atol=1e-14)


def test_what_does_not_fit_into_memory_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncli.check.search.most_at_once", lambda: 14)
    verdict = check(unscaled(), Q, K, V)
    assert names(verdict) == ["scale left out"]
    assert verdict.notes == (
        "'softmax over queries, not keys' was not tried: it needs 15 scores at once",
        "'sum over queries, maximum over keys' was not tried: it needs 15 scores at once",
    )


@pytest.mark.parametrize("huge", [1e308, -1e308, 1e-320, float("inf"), float("nan")])
def test_any_number_is_judged_without_a_warning(huge: float) -> None:
    q, k, v = [[1, 0], [0, 1]], [[1, 1], [1, 0]], [[10, 0], [0, 10]]
    for observed in ([[huge, 0.55], [0.1, 0.7]], [[huge, -huge], [5, 5]]):
        verdict = check(observed, q, k, v, pairs=False)
        assert "differ" in report_text(verdict)


@pytest.mark.parametrize("scale", [0.0, -0.5, 1e-308, 1e200, -1e200, 1e308])
@pytest.mark.parametrize("times", [1.0, 0.0, 1e300])
def test_a_scale_or_values_at_the_end_of_float64_never_make_wrong_numbers_match(
    scale: float, times: float
) -> None:
    how = Convention(scale=scale)
    wrong = np.linspace(1, 2, Q.shape[0] * Q.shape[1] * 11).reshape(2, 3, 11) * max(times, 1)
    verdict = check(wrong, Q * (times > 0), K, V * times, convention=how, pairs=False)
    assert verdict.status != "match"
    assert "differ" in report_text(verdict)
    assert "NaN ×" not in report_text(verdict)


def test_an_output_that_no_weights_give_is_garbage_only_from_a_block_on() -> None:
    q, k, v = (RNG.normal(size=(2, n, d)) for n, d in ((37, 5), (13, 5), (13, 7)))
    right = attend(q, k, v)["output"].value
    garbage = 50 + np.arange(7.0)
    for first, found in ((32, ["last rows hold garbage"]), (31, []), (36, [])):
        wrong = right.copy()
        wrong[:, first:] = garbage * np.arange(1, 38 - first)[:, None]
        assert names(check(wrong, q, k, v, pairs=False)) == found
