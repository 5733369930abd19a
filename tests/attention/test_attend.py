"""attend: numbers worked by hand, shapes that do not fit, and every knob of the convention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import attncli
from attncli import Convention, ConventionError, ShapeError, attend

Q = [[1, 0], [0, 1], [1, 1]]
K = [[1, 1], [1, 0], [0, 1]]
V = [[10, 0], [0, 10], [5, 5]]

RNG = np.random.default_rng(11)


def random(*shape: int) -> Any:
    return RNG.normal(size=shape)


def values(trace: attncli.Trace, name: str) -> Any:
    return trace[name].value.tolist()


def test_three_tokens_by_hand() -> None:
    trace = attend(Q, K, V)
    assert values(trace, "scores") == [[1, 1, 0], [1, 0, 1], [2, 1, 1]]
    # exp(1/√2) = 2.028115: row 1 is [2.028115, 2.028115, 1] / 5.056230
    np.testing.assert_allclose(trace["weights"].value[0], [0.401112, 0.401112, 0.197776], atol=5e-7)
    expected = [[5.0, 5.0], [6.016681, 3.983319], [6.276174, 3.723826]]
    np.testing.assert_allclose(trace["output"].value, expected, atol=5e-7)


def test_stage_names_and_axes_are_the_contract() -> None:
    how = Convention(softcap=3.0, dropout=0.5, causal=True)
    trace = attend(random(2, 6, 5, 7), random(2, 3, 11, 7), random(2, 3, 11, 13), convention=how)
    names = [
        "q",
        "k",
        "v",
        "mask",
        "scores",
        "scaled",
        "capped",
        "masked",
        "weights",
        "dropped",
        "output",
    ]
    assert list(trace) == names
    assert trace["scores"].axes == ("batch", "head", "query", "key")
    assert trace["k"].axes == ("batch", "kv_head", "key", "d_k")
    assert trace["output"].axes == ("batch", "head", "query", "d_v")
    assert trace["output"].value.shape == (2, 6, 5, 13)
    assert trace.convention == how


def test_a_stage_that_does_nothing_is_left_out() -> None:
    assert list(attend(Q, K, V, convention=Convention(scale="none"))) == [
        *("q", "k", "v", "scores", "weights", "output")
    ]


def test_stages_are_write_locked_and_do_not_follow_the_callers_array() -> None:
    q = np.array(Q, dtype=np.float64)
    trace = attend(q, K, V)
    q[0, 0] = 99
    assert trace["q"].value[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        trace["weights"].value[0, 0] = 1


def test_scale_is_a_factor() -> None:
    trace = attend(Q, K, V, convention=Convention(scale=0.25))
    assert values(trace, "scaled")[2] == [0.5, 0.25, 0.25]


def test_the_scale_uses_d_k_not_d_v() -> None:
    trace = attend(random(3, 16), random(5, 16), random(5, 7))
    np.testing.assert_allclose(trace["scaled"].value * 4, trace["scores"].value)


def test_softmax_over_queries_makes_columns_sum_to_one() -> None:
    trace = attend(
        random(3, 5), random(7, 5), random(7, 2), convention=Convention(softmax_over="queries")
    )
    np.testing.assert_allclose(trace["weights"].value.sum(axis=0), np.ones(7))


@pytest.mark.parametrize(
    ("how", "n_past", "kv_len", "seen"),
    [
        ({"causal": True}, 0, None, [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]),
        ({"causal": True}, 3, None, [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]),
        ({"causal": True, "causal_align": "bottom-right"}, 0, None, [[1, 1, 1, 1, 0], [1] * 5]),
        ({"causal": True, "causal_align": "bottom-right"}, 0, 3, [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]),
        ({}, 0, 3, [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0]]),
        ({"window": (0, 1)}, 0, None, [[1, 1, 0, 0, 0], [0, 1, 1, 0, 0]]),
        ({"window": (1, -1)}, 2, None, [[0, 1, 1, 1, 1], [0, 0, 1, 1, 1]]),
        ({"window": (1, -1), "causal": True}, 2, None, [[0, 1, 1, 0, 0], [0, 0, 1, 1, 0]]),
    ],
)  # fmt: skip
def test_who_sees_whom(how: Any, n_past: int, kv_len: int | None, seen: Any) -> None:
    k, v = random(5 - n_past, 3), random(5 - n_past, 7)
    past = {"past_k": random(n_past, 3), "past_v": random(n_past, 7)} if n_past else {}
    trace = attend(random(2, 3), k, v, kv_len=kv_len, convention=Convention(**how), **past)
    assert (trace["weights"].value > 0).astype(int).tolist() == seen
    assert np.isneginf(trace["masked"].value).tolist() == (np.array(seen) == 0).tolist()


def test_key_lengths_per_batch_item() -> None:
    trace = attend(random(2, 3, 5, 7), random(2, 3, 11, 7), random(2, 3, 11, 2), kv_len=[4, 11])
    seen = trace["weights"].value > 0
    assert seen[0, :, :, :4].all()
    assert not seen[0, :, :, 4:].any()
    assert seen[1].all()


@pytest.mark.parametrize(("means", "expected"), [("keep", [1, 0, 1]), ("ignore", [0, 1, 0])])
def test_boolean_masks(means: Any, expected: list[int]) -> None:
    how = Convention(mask_means=means)
    weights = attend(Q, K, V, mask=[True, False, True], convention=how)["weights"].value
    assert ((weights > 0) == np.array(expected, dtype=bool)).all()


def test_a_numeric_mask_is_added() -> None:
    bias = random(3, 3)
    trace = attend(Q, K, V, mask=bias)
    np.testing.assert_array_equal(trace["masked"].value, trace["scaled"].value + bias)


def test_a_finite_mask_value_replaces_the_score() -> None:
    how = Convention(mask_value=-153513871339.0)  # document 000's example
    trace = attend(Q, K, V, mask=[True, True, False], convention=how)
    assert trace["masked"].value[:, 2].tolist() == [-153513871339.0] * 3
    assert trace["weights"].value[:, 2].tolist() == [0.0] * 3


def test_a_finite_mask_value_that_scores_reach_leaks() -> None:
    trace = attend([[1.0]], [[1.0], [-200.0]], [[3.0], [5.0]], mask=[False, True],
                   convention=Convention(mask_value=-100.0, scale="none"))  # fmt: skip
    assert trace["weights"].value[0, 0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("rule", "weights", "output"),
    [("zero", [0, 0], [0]), ("nan", [math.nan] * 2, [math.nan]), ("uniform", [0.5, 0.5], [4])],
)
def test_rows_with_nothing_to_attend_to(rule: Any, weights: Any, output: Any) -> None:
    how = Convention(empty_rows=rule)
    mask = [[False, False], [True, True]]
    trace = attend([[1], [1]], [[1], [1]], [[3], [5]], mask=mask, convention=how)
    np.testing.assert_array_equal(trace["weights"].value, [weights, [0.5, 0.5]])
    np.testing.assert_array_equal(trace["output"].value, [output, [4]])


def test_softcap_before_the_mask_keeps_masked_cells_masked() -> None:
    trace = attend(Q, K, V, mask=[True, True, False], convention=Convention(softcap=0.5))
    expected = 0.5 * math.tanh(1 / math.sqrt(2) / 0.5)
    assert trace["capped"].value[0, 0] == pytest.approx(expected, rel=1e-15)
    assert (trace["weights"].value[:, 2] == 0).all()


def test_softcap_after_the_mask_leaks() -> None:
    how = Convention(softcap=0.5, softcap_place="after-mask")
    trace = attend(Q, K, V, mask=[True, True, False], convention=how)
    names = list(trace)
    assert names.index("masked") < names.index("capped")
    assert (trace["capped"].value[:, 2] == -0.5).all()
    assert (trace["weights"].value[:, 2] > 0.1).all()


@pytest.mark.parametrize(("order", "used"), [("blocks", [0, 0, 1, 1]), ("tiled", [0, 1, 0, 1])])
def test_grouped_queries(order: Any, used: list[int]) -> None:
    q, k, v = random(4, 3, 5), random(2, 7, 5), random(2, 7, 11)
    trace = attend(q, k, v, convention=Convention(head_order=order))
    for head, key_head in enumerate(used):
        alone = attend(q[head], k[key_head], v[key_head])
        np.testing.assert_allclose(trace["output"].value[head], alone["output"].value, atol=1e-14)


def test_dropout_keeps_the_mean_and_repeats_with_its_seed() -> None:
    q, k, v = random(50, 3), random(40, 3), random(40, 2)
    first = attend(q, k, v, convention=Convention(dropout=0.25, seed=5))
    again = attend(q, k, v, convention=Convention(dropout=0.25, seed=5))
    other = attend(q, k, v, convention=Convention(dropout=0.25, seed=6))
    dropped, weights = first["dropped"].value, first["weights"].value
    assert (dropped == again["dropped"].value).all()
    assert (dropped != other["dropped"].value).any()
    np.testing.assert_allclose(dropped[dropped > 0], weights[dropped > 0] / 0.75)
    assert np.mean(dropped == 0) == pytest.approx(0.25, abs=0.03)  # 2,000 draws: σ = 0.01
    np.testing.assert_allclose(first["output"].value, dropped @ v)


@pytest.mark.parametrize(("past", "new"), [(2, 3), (4, 1)])
def test_a_cache_gives_what_the_whole_sequence_gives(past: int, new: int) -> None:
    x = random(5, 7)
    whole = attend(x, x, x, convention=Convention(causal=True))["output"].value
    cached = attend(x[past:], x[past:], x[past:], past_k=x[:past], past_v=x[:past],
                    convention=Convention(causal=True))["output"].value  # fmt: skip
    assert cached.shape[0] == new
    np.testing.assert_allclose(cached, whole[past:], atol=1e-14)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_nothing_leaks_from_a_masked_key(poison: float) -> None:
    k, v = random(4, 3), random(4, 2)
    clean = attend(random(3, 3) * 0 + 1, k, v, mask=[True, False, True, True])["output"].value
    k[1], v[1] = poison, poison
    spoiled = attend(np.ones((3, 3)), k, v, mask=[True, False, True, True])["output"].value
    np.testing.assert_array_equal(spoiled, clean)


def test_a_nan_value_reaches_only_those_who_see_it() -> None:
    v = np.array([[1.0, 2.0], [math.nan, 3.0], [5.0, math.inf]])
    output = attend(np.ones((3, 2)), np.ones((3, 2)), v, convention=Convention(causal=True))[
        "output"
    ].value
    assert output[0].tolist() == [1, 2]
    assert np.isnan(output[1:, 0]).all()
    assert output[1, 1] == 2.5
    assert output[2, 1] == math.inf


@pytest.mark.parametrize("size", [1e4, 1e150, 1.7e308])
def test_softmax_is_safe_for_scores_of_any_size(size: float) -> None:
    weights = attend([[1.0]], [[size], [size], [-size]], np.eye(3))["weights"].value
    assert weights.tolist() == [[0.5, 0.5, 0.0]]


def test_float16_scores_overflow_before_they_are_scaled() -> None:
    x = np.full((2, 64), 40.0)  # 64 · 40 · 40 = 102,400, beyond float16's 65,504
    trace = attend(x, x, x, convention=Convention(dtype="float16"))
    assert np.isposinf(trace["scores"].value).all()
    assert np.isnan(trace["output"].value).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_stage_is_rounded_to_the_type(dtype: Any) -> None:
    trace = attend(random(3, 5), random(7, 5), random(7, 2), convention=Convention(dtype=dtype))
    for name, stage in trace.stages():
        wide = stage.value.astype(np.float32)
        if dtype == "float16":
            rounded = wide.astype(np.float16).astype(np.float32)
        else:
            rounded = (wide.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        assert (wide == rounded).all(), name


@pytest.mark.parametrize(
    ("shapes", "options", "says"),
    [
        (((3, 2), (5, 7), (5, 2)), {}, r"the same d_k: q \(3 × 2\) has 2, k \(5 × 7\) has 7"),
        (((3, 2), (5, 2), (7, 2)), {}, r"number of tokens: k .* has 5, v .* has 7"),
        (((3,), (5, 2), (5, 2)), {}, r"q is 1-dimensional"),
        (((1, 1, 1, 3, 2),) * 3, {}, r"q is 5-dimensional"),
        (((3, 2), (1, 5, 2), (5, 2)), {}, r"q has 2 dimensions \(3 × 2\) but k has 3"),
        (((0, 2), (5, 2), (5, 2)), {}, r"q is empty \(0 × 2\)"),
        (((3, 5, 2), (2, 5, 2), (2, 5, 2)), {}, r"3 query heads .* cannot evenly share 2 key heads"),
        (((3, 5, 2), (3, 5, 2), (1, 5, 2)), {}, r"number of heads: k .* has 3, v .* has 1"),
        (((2, 1, 3, 2), (5, 1, 3, 2), (5, 1, 3, 2)), {}, r"batch size: q .* has 2, k .* has 5"),
        (((3, 2), (5, 2), (5, 2)), {"mask": np.zeros((3, 4))}, r"4 entries along the key axis, the scores have 5"),
        (((3, 2), (5, 2), (5, 2)), {"mask": np.zeros((1, 3, 5))}, r"mask .* has 3 dimensions, the scores have 2"),
        (((3, 2), (5, 2), (5, 2)), {"kv_len": 6}, r"kv_len is \[6\] with 5 keys"),
        (((3, 2), (5, 2), (5, 2)), {"kv_len": [1, 2]}, r"2 lengths for a batch of 1"),
        (((3, 2), (5, 2), (5, 2)), {"past_k": np.zeros((1, 3))}, r"past_k \(1 × 3\) cannot be put before k"),
        (((3, 2), (5, 2), (5, 2)), {"past_k": np.zeros((1, 2))}, r"number of tokens: k .* has 6, v .* has 5"),
        (((3, 2), (5, 2), (5, 2)), {"past_k": np.zeros(2)}, r"past_k \(2\) cannot be put before k"),
        (((3, 2), (5, 2), (5, 2)), {"past_v": np.zeros(2)}, r"past_v \(2\) cannot be put before v"),
        (((3, 2), (2,), (5, 2)), {"past_k": np.zeros(2)}, r"past_k \(2\) cannot be put before k"),
        (((3, 2), (5, 2), (5, 2)), {"rows": [2], "query_labels": ["a"]}, r"3 queries but 1 query labels"),
        (((3, 2), (5, 2), (5, 2)), {"key_labels": ["a"]}, r"5 entries along key but 1 label"),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit(shapes: Any, options: Any, says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        attend(*(np.zeros(shape) for shape in shapes), **options)


@pytest.mark.parametrize("bad", [[["a"]], [[None]], [[1], [1, 2]], [[1j]]])
def test_entries_that_are_no_numbers(bad: Any) -> None:
    with pytest.raises(ShapeError):
        attend(bad, K, V)


@pytest.mark.parametrize("align", ["top-left", "bottom-right"])
def test_some_rows_are_those_of_the_whole(align: Any) -> None:
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=(2, 3, n, d)) for n, d in ((7, 5), (11, 5), (11, 3)))
    how = Convention(causal=True, causal_align=align, window=(4, 2))
    masks = [None, rng.random((7, 11)) < 0.6, rng.random(11) < 0.6, rng.normal(size=(3, 1, 11))]
    for mask in masks:
        given: Any = {"mask": mask, "kv_len": [11, 9], "convention": how}
        whole, some = attend(q, k, v, **given), attend(q, k, v, rows=[0, 2, 6], **given)
        assert list(some) == list(whole)
        for name in ("q", "mask", "scores", "weights", "output"):
            np.testing.assert_allclose(some[name].value, whole[name].value[..., [0, 2, 6], :])
    assert some["weights"].names("query") == ("q1", "q3", "q7")
    assert some["k"].value.shape == (2, 3, 11, 5)


def test_some_rows_keep_their_tokens() -> None:
    trace = attend(np.eye(3), np.eye(3), np.eye(3), rows=[2, 1], query_labels=["a", "b", "c"])
    assert trace["output"].names("query") == ("c", "b")


@pytest.mark.parametrize("how", [Convention(dropout=0.5), Convention(softmax_over="queries")])
def test_rows_that_depend_on_others_are_not_computed_alone(how: Convention) -> None:
    with pytest.raises(ConventionError, match="of all queries"):
        attend(np.eye(3), np.eye(3), np.eye(3), rows=[0], convention=how)


@pytest.mark.parametrize("rows", [[3], [-1], [], [0.7], [[0]], [True], 1])
def test_rows_that_are_not_there(rows: Any) -> None:
    with pytest.raises(ShapeError, match="with 3 queries; use 0 to 2"):
        attend(np.eye(3), np.eye(3), np.eye(3), rows=rows)
