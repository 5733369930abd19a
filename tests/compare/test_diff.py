"""Two traces compared: what differs first, where, by how much, and what rounding explains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attncli
from attncli.attention.functional import round_to
from attncli.compare import Comparison, diff, nested
from attncli.compare.rounding import FEW_DECIMALS, UNITS
from attncli.errors import ConventionError, InputError
from attncli.trace import Stage, Trace

Q, K, V = [[1, 0], [0, 1], [1, 1]], [[1, 1], [1, 0], [0, 1]], [[10, 0], [0, 10], [5, 5]]


def attention(**more: Any) -> Trace:
    return attncli.attend(Q, K, V, **more)


def stage(value: Any, name: str = "weights", **labels: tuple[str, ...]) -> Trace:
    array = np.asarray(value, dtype=float)
    axes = ("batch", "head", "query", "key")[-array.ndim :]
    return Trace("A stage", (Stage(name, "A", "", array, axes, labels),))


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape)


def only(found: Comparison) -> Any:
    (one,) = found.stages
    return one


def test_a_trace_is_the_same_as_itself() -> None:
    found = diff(attention(), attention())
    assert found.same
    assert found.first is None
    assert (
        str(found)
        == "all 7 stages that both have are the same in a and b, within rounding in float64"
    )


def test_the_first_stage_that_differs_and_its_largest_number() -> None:
    found = diff(attention(), attention(scale="none"))
    assert found.first is not None
    assert found.first.name == "scaled"
    assert found.first.place == "q3, k1"  # 2 / √2 beside 2
    assert found.first.largest == pytest.approx(2 - np.sqrt(2), abs=1e-12)
    assert [x.name for x in found.differing] == ["scaled", "weights", "output"]
    assert found.first.n_wrong == 7  # two of the nine scores are 0
    # (1 − 1/√2)² six times, (2 − √2)² once
    square = (6 * (1 - 1 / np.sqrt(2)) ** 2 + (2 - np.sqrt(2)) ** 2) / 9
    assert found.first.rms == pytest.approx(np.sqrt(square), abs=1e-12)


@pytest.mark.parametrize(
    ("more", "first"),
    [
        ({"causal": True}, "masked"),
        ({"scale": "none"}, "scaled"),
        ({"softcap": 1.0}, "capped"),
        ({"dropout": 0.5}, "dropped"),
        ({"softmax_over": "queries"}, "weights"),
    ],
)
def test_a_stage_that_one_leaves_out_is_beside_the_one_before_it(
    more: dict[str, Any], first: str
) -> None:
    for a, b in ((attention(), attention(**more)), (attention(**more), attention())):
        found = diff(a, b)
        assert found.first is not None
        assert found.first.name == first
        assert first not in found.only[0] + found.only[1]


def test_a_stage_that_was_not_saved_is_not_one_that_was_left_out() -> None:
    cut = attention().keep({"scores", "weights"})
    found = diff(cut, attention())
    assert found.same
    assert "scaled" in found.only[1]


def test_inputs_that_differ_come_first() -> None:
    found = diff(attention(), attncli.attend(Q, [[1, 1], [1, 0], [0, 2]], V))
    assert found.differing[0].name == "k"
    sentence = next(x for x in found.sentences if x.startswith("the inputs differ"))
    assert "k: 1 of 6 numbers differs" in sentence
    assert "1 in a and 2 in b" in sentence
    assert found.first is not None
    assert found.first.name == "scores"


def test_conventions_and_labels_that_differ_are_said() -> None:
    a = attention(query_labels=("I", "love", "AI"))
    b = attention(query_labels=("I", "like", "AI"), causal=True, scale=2.0)
    found = diff(a, b, names=("a.json", "b.json"))
    assert found.conventions == (
        "the conventions differ: without --causal without --scale in a.json, --causal --scale 2 "
        "in b.json",
    )
    (words,) = found.labels
    assert words.endswith('1 of 3: the first is "love" in a.json and "like" in b.json')


def test_every_head_is_compared_also_beyond_those_that_are_shown() -> None:
    value = numbers(20, 3, 5)
    other = value.copy()
    other[17, 2, 3] += 0.25
    found = only(diff(stage(value), stage(other)))
    assert found.at == (17, 2, 3)
    assert found.place == "head 18, q3, k4"
    assert found.n_wrong == 1


@pytest.mark.parametrize(
    ("a", "b", "n_wrong", "largest"),
    [
        ([[1.0, np.nan]], [[1.0, np.nan]], 0, 0.0),
        ([[1.0, np.inf]], [[1.0, np.inf]], 0, 0.0),
        ([[1.0, -np.inf]], [[1.0, np.inf]], 1, np.inf),
        ([[1.0, np.nan]], [[1.0, 2.0]], 1, np.inf),
        ([[0.0, 1.0]], [[-0.0, 1.0]], 0, 0.0),
        ([[1.0, 1.0]], [[1.0, np.inf]], 1, np.inf),
    ],
)
def test_numbers_that_are_not_finite(a: Any, b: Any, n_wrong: int, largest: float) -> None:
    found = diff(stage(a), stage(b))
    assert (only(found).n_wrong, only(found).largest) == (n_wrong, largest)
    shown = found.trace()["difference.weights"].value
    assert not np.isnan(shown[np.isfinite(a) & np.isfinite(b)]).any()
    assert (shown[np.isnan(a) & np.isnan(b)] == 0).all()


def test_other_shapes_are_said_by_their_axes() -> None:
    found = only(diff(stage(numbers(2, 3, 5)), stage(numbers(2, 4, 5))))
    assert found.shapes == "2 × 3 × 5 in a and 2 × 4 × 5 in b (query 3 and 4)"
    turned = only(diff(stage(numbers(2, 3, 5)), stage(numbers(2, 5, 3))))
    assert turned.shapes.endswith("Its last two axes are exchanged: swap them in b")


def test_axes_of_one_entry_before_the_others_do_not_count() -> None:
    value = numbers(2, 3, 5)
    assert diff(stage(value), stage(value[None])).same


def test_nothing_in_common_is_no_result() -> None:
    with pytest.raises(InputError, match="no stage in common; a holds weights; b holds other"):
        diff(stage([[1]]), stage([[1]], "other"))
    q = Stage("q", "Q", "", np.eye(2), ("query", "d_k"))
    first, second = (Trace("", (q, *stage([[1]], name).steps)) for name in ("weights", "other"))
    with pytest.raises(InputError, match=r"no stage but inputs in common \(q\)"):
        diff(first, second)


# ---- tolerances


def test_rounding_to_a_number_type_is_the_same_and_a_bug_is_not() -> None:
    q, k, v = numbers(3, 2, 17, 8)
    exact, wrong = attncli.attend(q, k, v), attncli.attend(q, k, v, scale=0.35)
    for dtype in ("float32", "float16", "bfloat16"):
        rounded = attncli.attend(q, k, v, dtype=dtype)
        assert diff(exact, rounded).same
        found = diff(wrong, rounded)
        assert found.first is not None
        assert found.first.name == "scaled"


def test_two_kernels_that_are_both_rounded_match() -> None:
    """The errors of one are those of the other in other columns: as large, and independent."""
    q, k, v = (round_to(x, "bfloat16") for x in numbers(3, 2, 64, 16))
    a, exact = attncli.attend(q, k, v, dtype="bfloat16"), attncli.attend(q, k, v)
    ours = a["output"].value - exact["output"].value
    other = round_to(exact["output"].value + 1.1 * np.roll(ours, 1, axis=-1), "bfloat16")
    assert rms(other - a["output"].value) > 1.45 * rms(ours)

    def changed(step: Stage) -> Stage:
        return replace(step, value=other) if step.name == "output" else step

    assert diff(a, a.mapped(changed)).same


def rms(x: np.ndarray[Any, Any]) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


def test_a_stack_of_layers_in_float32_is_the_same_as_in_float64() -> None:
    call = {"block": "encoder", "layers": 12, "heads": 2, "dim": 32}
    words = "She visited the money bank, near the river bank"
    exact = attncli.explain(words, **call)  # type: ignore[arg-type]
    for dtype in ("float32", "float16", "bfloat16"):
        rounded = attncli.explain(words, **call, dtype=dtype)  # type: ignore[arg-type]
        assert diff(exact, rounded).same


def test_a_number_beyond_the_units_of_its_row_differs() -> None:
    row = np.full((1, 64), 1.0)
    off = row.copy()
    within, beyond = (x * UNITS["float64"] * 2**-52 for x in (10, 100))
    off[0, 3] += within
    assert diff(stage(row, "residual"), stage(off, "residual")).same
    off[0, 3] += beyond
    assert not diff(stage(row, "residual"), stage(off, "residual")).same


def test_tolerances_that_are_asked_for() -> None:
    a, b = stage([[1.0, 100.0]]), stage([[1.01, 100.5]])
    assert not diff(a, b, rtol=0.006).same
    assert diff(a, b, rtol=0.011).same
    assert not diff(a, b, atol=0.02).same
    assert diff(a, b, atol=0.6).same
    assert only(diff(a, b, rtol=0.006)).n_wrong == 1
    with pytest.raises(ConventionError, match="use one of them"):
        diff(a, b, decimals=2, rtol=0.1)


def test_numbers_that_were_printed_are_judged_at_their_decimals() -> None:
    exact = attention()["weights"].value
    printed = stage(exact.round(4))
    found = diff(attention(), printed)
    assert found.same
    assert only(found).rule == "half a unit of decimal 4"
    assert not diff(attention(), stage(exact.round(4) + 0.0001)).same
    assert FEW_DECIMALS < 6
    assert not diff(attention(), stage(exact.round(FEW_DECIMALS + 1))).same


def test_inputs_are_judged_exactly() -> None:
    q = [[0.1, 0.25]]
    found = diff(attncli.attend(q, q, q), attncli.attend([[0.1, 0.2501]], q, q))
    assert not found.same
    assert found.differing[0].name == "q"


# ---- the trace of a comparison


def test_the_trace_holds_both_and_their_difference() -> None:
    a, b = attention(), attention(causal=True)
    trace = diff(a, b, names=("one", "two")).trace()
    assert np.array_equal(trace["a.weights"].value, a["weights"].value)
    assert np.array_equal(trace["b.output"].value, b["output"].value)
    difference = b["output"].value - a["output"].value
    assert np.array_equal(trace["difference.output"].value, difference)
    assert trace.title == "two compared with one"
    rows = dict(zip(trace["summary"].labels["stage"], trace["summary"].value, strict=True))
    assert rows["q"].tolist() == [0, 6, 0, 0]
    assert rows["masked"].tolist()[:3] == [3, 9, np.inf]
    assert list(diff(a, b).trace(["output"]).part("difference")) == ["output"]


def test_what_stages_read_is_found_within_the_whole() -> None:
    inner = replace(attention(), name="attention")
    norm = Stage("norm", "N", "N = O", np.eye(3), ("query", "d_v"), reads={"x": "attention.output"})
    trace = diff(*2 * [Trace("Layer", (inner, norm))]).trace()
    assert trace["b.norm"].reads == {"x": "b.attention.output"}
    assert trace["a.attention.scores"].reads == {"q": "q", "k": "k"}


def test_stages_are_nested_by_their_names() -> None:
    one = Stage("q", "Q", "", np.eye(2), ("query", "d_k"))
    trace = nested("Dump", {"a.b.q": one, "q": one, "a.q": one})
    assert list(trace) == ["a.b.q", "a.q", "q"]


@given(st.lists(st.floats(allow_nan=True, width=32), min_size=1, max_size=12), st.data())
def test_what_differs_is_symmetric_and_a_copy_is_the_same(values: list[float], data: Any) -> None:
    a = stage([values])
    assert diff(a, stage([values])).same
    at = data.draw(st.integers(0, len(values) - 1))
    other = list(values)
    other[at] = data.draw(st.floats(allow_nan=True, width=32))
    there, back = (diff(x, y, rtol=0.0) for x, y in ((a, stage([other])), (stage([other]), a)))
    assert there.same == back.same
    assert only(there).largest == only(back).largest
    assert there.same == (
        values[at] == other[at] or (values[at] != values[at] and other[at] != other[at])
    )


def test_of_many_inputs_that_differ_three_are_described() -> None:
    call = {"block": "encoder", "layers": 2, "dim": 4}
    found = diff(*(attncli.explain("a b", seed=seed, **call) for seed in (1, 2)))  # type: ignore[arg-type]
    described = [x for x in found.sentences if x.startswith("the inputs differ")]
    assert len(described) == 3
    assert found.sentences[3].startswith("other inputs that differ: encoder.1.attention.w_o, ")
    assert found.sentences[4].startswith("the first stage that differs is ")
