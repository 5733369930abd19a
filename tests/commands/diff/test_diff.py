"""Two traces compared: what differs first, where, by how much, and what rounding explains."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli import ConventionError, InputError, Stage, Trace, attend, diff, explain
from attncli.commands.diff.comparison import Comparison, nested
from attncli.formula.kernels import round_to
from tests.calls import Call
from tests.page.traces import THREE, attention, numbers

INF, NAN = np.inf, np.nan


def stage(value: Any, name: str = "weights", **labels: tuple[str, ...]) -> Trace:
    array = np.asarray(value, dtype=float)
    axes = ("batch", "head", "query", "key")[-array.ndim :]
    return Trace("A stage", (Stage(name, "A", "", array, axes, labels),))


def only(comparison: Comparison) -> Any:
    (one,) = comparison.stages
    return one


def test_the_first_stage_that_differs_and_its_largest_number() -> None:
    comparison = diff(attention(), attention(scale="none"))
    first: Any = comparison.first
    assert (first.name, first.place) == ("scaled", "q3, k1")  # 2 / √2 beside 2
    assert first.largest == pytest.approx(2 - np.sqrt(2), abs=1e-12)
    assert [x.name for x in comparison.differing] == ["scaled", "weights", "output"]
    assert first.n_wrong == 7  # two of the nine scores are 0
    # (1 − 1/√2)² six times, (2 − √2)² once
    square = (6 * (1 - 1 / np.sqrt(2)) ** 2 + (2 - np.sqrt(2)) ** 2) / 9
    assert first.rms == pytest.approx(np.sqrt(square), abs=1e-12)


def test_a_stage_that_one_leaves_out_is_beside_the_one_before_it() -> None:
    ways: dict[str, Any] = {"causal": True, "scale": "none", "softcap": 1.0, "dropout": 0.5, "softmax_over": "queries"}  # fmt: skip
    names = ("masked", "scaled", "capped", "dropped", "weights")
    for (way, value), name in zip(ways.items(), names, strict=True):
        both = attention(), attention(**{way: value})
        for comparison in (diff(*both), diff(*both[::-1])):
            assert comparison.differing[0].name == name
            assert name not in comparison.only[0] + comparison.only[1]


def test_a_trace_is_the_same_as_itself_also_where_it_was_saved_in_part() -> None:
    comparison = diff(attention(), attention())
    assert (comparison.same, comparison.first) == (True, None)
    assert "within rounding in float64" in str(comparison)
    comparison = diff(attention().keep({"scores", "weights"}), attention())
    assert comparison.same
    assert "scaled" in comparison.only[1]


def test_inputs_conventions_and_labels_that_differ_are_said() -> None:
    comparison = diff(attention(), attention(THREE[0], [[1, 1], [1, 0], [0, 2]]))
    first: Any = comparison.first
    assert (comparison.differing[0].name, first.name) == ("k", "scores")
    (sentence,) = (x for x in comparison.sentences if x.startswith("the inputs differ: k"))
    assert "1 of 6" in sentence
    assert "1 in a and 2 in b" in sentence
    a, b = ({"query": ("I", word, "AI")} for word in ("love", "like"))
    both = attention(labels=a), attention(labels=b, causal=True, scale=2.0)
    comparison = diff(*both, names=("a.json", "b.json"))
    (sentence,) = comparison.conventions
    assert "a.json without --causal and --scale, b.json with --causal and --scale 2" in sentence
    (sentence,) = comparison.labels
    assert '1 of 3; first "love" in a.json, "like" in b.json' in sentence
    # of many, three are described
    blocks = (explain("a b", seed=seed, block="encoder", layers=2, dim=4) for seed in (1, 2))
    sentences = diff(*blocks).sentences
    assert ["the inputs differ" in x for x in sentences[:4]] == [True, True, True, False]
    assert sentences[3].startswith("other inputs that differ: encoder.1.attention.w_o, ")
    assert sentences[4].startswith("the first stage that differs is ")


def test_what_follows_from_a_stage_comes_after_it(call: Call, tmp_path: Path) -> None:
    """The first layer's output differs in rows that see no key; the second layer's q follows."""
    rng, files = np.random.default_rng(7), [tmp_path / name for name in ("a.npz", "b.npz")]
    mask = np.tri(5, dtype=bool)
    mask[:2] = False
    q, k, v, q2 = (rng.normal(size=(3, 5, 4)) for _ in range(4))
    output = rng.normal(size=(3, 5, 4))
    for file, empty in zip(files, (v.mean(axis=1, keepdims=True), 0.0), strict=True):
        output[:, :2] = empty
        arrays = {"0.q": q, "0.k": k, "0.v": v, "0.mask": mask, "0.output": output}
        moved = q2 + (output[:, :1] if file is files[0] else 0)
        np.savez(file, **arrays, **{"1.q": moved, "1.k": k, "1.v": v})  # type: ignore[arg-type]
    lines = call("diff", *files).out.splitlines()
    first = next(
        n for n, line in enumerate(lines) if "the first stage that differs is 0.output" in line
    )
    assert "the inputs differ" not in "".join(lines[: first + 1])
    rows = "all of it is in rows with nothing to attend to: the mean of V in a.npz, zeros in b.npz"
    assert lines[first + 1] == rows
    assert "made of does: 1.q" in lines[first + 2]
    assert not any(line.startswith("1.q, ") for line in lines)  # drawn is what comes first


def test_numbers_that_are_not_finite() -> None:
    """Those of both are the same, and their difference is 0."""
    for a, b in ((-INF, INF), (NAN, 2.0), (1.0, INF)):
        one = only(diff(stage([[1.0, a]]), stage([[1.0, b]])))
        assert (one.n_wrong, one.largest) == (1, INF)
    rows = [[NAN, INF, -INF, 0.5]], [[NAN, INF, -INF, 0.75]]
    difference = diff(*map(stage, rows)).trace()["difference.weights"].value
    assert difference.tolist() == [[0, 0, 0, 0.25]]


def test_shapes_and_a_number_of_a_later_head() -> None:
    a, b = numbers(20, 3, 5), numbers(20, 3, 5)
    one = only(diff(stage(a), stage(numbers(20, 4, 5))))
    assert one.shapes == "20 × 3 × 5 in a and 20 × 4 × 5 in b (3 and 4 queries)"
    assert "swap them in b" in only(diff(stage(a), stage(numbers(20, 5, 3)))).shapes
    assert diff(stage(a), stage(a[None])).same  # an axis of one entry does not count
    b[17, 2, 3] += 0.25
    one = only(diff(stage(a), stage(b)))
    assert (one.at, one.place, one.n_wrong) == ((17, 2, 3), "head 18, q3, k4", 1)
    with pytest.raises(InputError, match="no stage in common; a holds weights; b holds other"):
        diff(stage([[1]]), stage([[1]], "other"))
    q = Stage("q", "Q", "", np.eye(2), ("query", "d_k"))
    first, second = (Trace("", (q, *stage([[1]], name).steps)) for name in ("weights", "other"))
    with pytest.raises(InputError, match=r"no stage but inputs in common \(q\)"):
        diff(first, second)


# ---- tolerances


def test_rounding_to_a_number_type_is_the_same_and_a_bug_is_not() -> None:
    q, k, v = np.random.default_rng(0).normal(size=(3, 2, 17, 8))
    exact, wrong = attend(q, k, v), attend(q, k, v, scale=0.35)
    layers: Any = {"block": "encoder", "layers": 12, "heads": 2, "dim": 32}
    words = "She visited the money bank, near the river bank"
    stack = explain(words, **layers)
    for dtype in ("float32", "float16", "bfloat16"):
        rounded = attend(q, k, v, dtype=dtype)
        assert diff(exact, rounded).same
        assert diff(wrong, rounded).differing[0].name == "scaled"
        assert diff(stack, explain(words, **layers, dtype=dtype)).same


def test_two_kernels_that_are_both_rounded_match() -> None:
    """The errors of one are those of the other in other columns: as large, and independent."""
    q, k, v = round_to(np.random.default_rng(0).normal(size=(3, 2, 64, 16)), "bfloat16")
    a, exact = attend(q, k, v, dtype="bfloat16"), attend(q, k, v)
    ours = a["output"].value - exact["output"].value
    other = round_to(exact["output"].value + 1.1 * np.roll(ours, 1, axis=-1), "bfloat16")
    rms = [np.sqrt(np.mean(np.square(x))) for x in (other - a["output"].value, ours)]
    assert rms[0] > 1.45 * rms[1]
    assert diff(a, a.mapped(lambda x: replace(x, value=other) if x.name == "output" else x)).same


def test_units_of_a_row_and_tolerances_that_are_asked_for() -> None:
    for units, is_same in ((120, True), (136, False)):  # the RMS of 64 numbers: 15 or 17 units
        off = np.ones((1, 64))
        off[0, 3] += units * 2**-52
        assert diff(stage(np.ones((1, 64)), "residual"), stage(off, "residual")).same is is_same
    a, b = stage([[1.0, 100.0]]), stage([[1.01, 100.5]])
    assert [only(diff(a, b, rtol=rtol)).n_wrong for rtol in (0.006, 0.011)] == [1, 0]
    assert [only(diff(a, b, atol=atol)).n_wrong for atol in (0.02, 0.6)] == [1, 0]
    with pytest.raises(ConventionError, match="use one of them"):
        diff(a, b, decimals=2, rtol=0.1)


def test_numbers_that_were_printed_are_judged_at_their_decimals() -> None:
    exact = attention()["weights"].value
    comparison = diff(attention(), stage(exact.round(4)))
    assert comparison.same
    assert "decimal 4" in only(comparison).rule
    assert not diff(attention(), stage(exact.round(4) + 0.0001)).same
    assert not diff(attention(), stage(exact.round(6))).same  # no longer few decimals
    q = [[0.1, 0.25]]
    comparison = diff(attend(q, q, q), attend([[0.1, 0.2501]], q, q))  # inputs are exact
    assert comparison.differing[0].name == "q"


# ---- the trace of a comparison


def test_the_trace_holds_both_and_their_difference() -> None:
    a, b = attention(), attention(causal=True)
    trace = diff(a, b, names=("one", "two")).trace()
    own, other, difference = (trace[f"{part}.output"].value for part in ("a", "b", "difference"))
    assert np.array_equal(own, a["output"].value)
    assert np.array_equal(other, b["output"].value)
    assert np.array_equal(difference, other - own)
    rows = dict(zip(trace["summary"].labels["stage"], trace["summary"].value, strict=True))
    assert (rows["q"].tolist(), rows["masked"].tolist()[:3]) == ([0, 6, 0, 0], [3, 9, INF])
    assert list(diff(a, b).trace(["output"]).part("difference")) == ["output"]


def test_what_stages_read_is_named_within_the_whole() -> None:
    inner = replace(attention(), name="attention")
    norm = Stage("norm", "N", "N = O", np.eye(3), ("query", "d_v"), reads={"x": "attention.output"})
    trace = diff(*2 * [Trace("Layer", (inner, norm))]).trace()
    assert trace["b.norm"].reads == {"x": "b.attention.output"}
    assert trace["a.attention.scores"].reads == {"q": "q", "k": "k"}
    q = Stage("q", "Q", "", np.eye(2), ("query", "d_k"))
    assert list(nested("Dump", {"a.b.q": q, "q": q, "a.q": q})) == ["a.b.q", "a.q", "q"]


FLOATS = st.floats(allow_nan=True, width=32)


@given(st.lists(FLOATS, min_size=1, max_size=12), FLOATS, st.integers(0, 11))
def test_what_differs_is_symmetric_and_a_copy_is_the_same(
    values: list[float], other: float, at: int
) -> None:
    at %= len(values)
    a, b = stage([values]), stage([[*values[:at], other, *values[at + 1 :]]])
    assert diff(a, stage([values])).same
    there, back = diff(a, b, rtol=0.0), diff(b, a, rtol=0.0)
    is_same = values[at] == other or (np.isnan(values[at]) and np.isnan(other))
    assert there.same == back.same == is_same
    assert only(there).largest == only(back).largest
