"""Keys in tiles and in splits: by hand, beside one softmax over all keys, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.arrays import Array
from attncli.attention.attend import attend
from attncli.attention.split import attend_split
from attncli.attention.tiles import attend_tiles
from attncli.errors import ConventionError, ShapeError
from attncli.trace import Trace
from attncli.views.matrix import Matrix
from attncli.views.page import places_of
from attncli.views.select import DisplayOptions, blocks_of, is_computed
from attncli.views.work import work_lines
from tests.test_stages import check_line, numbers

INF = math.inf
Q = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
K = [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
V = [[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]]
A, B = 0.5**0.5, math.exp(-(0.5**0.5))  # a score of 1 over √2, and exp of less by as much


def test_tiles_worked_by_hand() -> None:
    """Scores 1, 1, 0 | 1, 0, 1 | 2, 1, 1 over √2, in tiles of two keys and one."""
    trace = attend_tiles(Q, K, V, tiles=2)
    wanted = {
        "tile.1.m": [A, A, 2 * A],
        "tile.1.p": [[1, 1], [1, B], [1, B]],
        "tile.1.l": [2, 1 + B, 1 + B],
        "tile.1.acc": [[10, 10], [10, 10 * B], [10, 10 * B]],
        "tile.1.so_far": [[5, 5]] + [[10 / (1 + B), 10 * B / (1 + B)]] * 2,
        "tile.2.m": [A, A, 2 * A],
        "tile.2.alpha": [1, 1, 1],
        "tile.2.l": [2 + B, 2 + B, 1 + 2 * B],
        "tile.2.acc": [[10 + 5 * B] * 2, [15, 10 * B + 5], [10 + 5 * B, 15 * B]],
        "lse": [A + math.log(2 + B), A + math.log(2 + B), 2 * A + math.log(1 + 2 * B)],
    }
    for name, value in wanted.items():
        assert trace[name].value == pytest.approx(np.array(value)), name
    assert "tile.1.alpha" not in trace  # there was nothing before
    assert trace["tile.2.scaled"].names("key") == ("k3",)


def test_what_was_summed_is_rescaled_when_the_maximum_grows() -> None:
    """Scores 0 and then ln 4: what was 1 becomes 1/4."""
    trace = attend_tiles([[1.0]], [[0.0], [math.log(4)]], [[8.0], [2.0]], tiles=1, scale="none")
    found = {name: trace[f"tile.2.{name}"].value.item() for name in ("m", "alpha", "l", "acc")}
    assert found == pytest.approx({"m": math.log(4), "alpha": 0.25, "l": 1.25, "acc": 4.0})
    assert trace["output"].value.item() == pytest.approx(3.2)


def test_a_sink_starts_the_maximum_and_the_sum() -> None:
    """A sink of 0 beside two scores of ln 2: weights 2/5 each."""
    k = np.full((1, 2, 1), math.log(2))
    more: dict[str, Any] = {"sinks": [0.0], "scale": "none"}
    trace = attend_tiles(np.ones((1, 1, 1)), k, np.array([[[5.0], [10.0]]]), tiles=1, **more)
    assert trace["tile.1.alpha"].value.item() == pytest.approx(0.5)
    assert trace["tile.1.l"].value.item() == pytest.approx(1.5)
    assert trace["output"].value.item() == pytest.approx(6.0)
    split = attend_split(np.ones((1, 1, 1)), k, np.array([[[5.0], [10.0]]]), split=[1], **more)
    assert split["merge_weights"].value.ravel() == pytest.approx([0.4, 0.4])
    assert split["output"].value.item() == pytest.approx(6.0)


def test_splits_are_merged_by_their_log_sum_exp() -> None:
    """Scores 0, ln 2 and ln 3: sums 1, 2 and 3 of 6."""
    k = np.log([[1.0], [2.0], [3.0]])
    more: dict[str, Any] = {"split": [1, 2], "scale": "none"}
    trace = attend_split([[1.0]], k, [[6.0], [12.0], [24.0]], **more)
    assert trace["split.3.lse"].value.item() == pytest.approx(math.log(3))
    assert trace["merge_weights"].value.ravel() == pytest.approx([1 / 6, 2 / 6, 3 / 6])
    assert trace["output"].value.item() == pytest.approx(1 + 4 + 12)
    two = attend_split([[1.0]], k, [[6.0], [12.0], [24.0]], lse_base="2", **more)
    assert two["lse"].value.item() == pytest.approx(math.log2(6))
    assert two["merge_weights"].value.ravel() == pytest.approx([1 / 6, 2 / 6, 3 / 6])


@pytest.mark.parametrize("empty", ["zero", "nan", "uniform", "unmasked"])
def test_rows_without_a_key_are_as_in_one_piece(empty: Any) -> None:
    """In none of the parts, or in the first alone: exp(−∞ − −∞) is nowhere taken."""
    mask = np.array([[False] * 3, [False, False, True], [True, False, False]])
    whole = attend(Q, K, V, mask=mask, empty_rows=empty)
    for trace in (
        attend_tiles(Q, K, V, tiles=1, mask=mask, empty_rows=empty),
        attend_split(Q, K, V, split=[1, 2], mask=mask, empty_rows=empty),
    ):
        for name in ("output", "lse"):
            assert trace[name].value == pytest.approx(whole[name].value, nan_ok=True), name
        for name, stage in trace.stages():
            assert name == "output" or not np.isnan(stage.value).any(), name


hows = st.fixed_dictionaries(
    {},
    optional={
        "causal": st.just(True),
        "window": st.tuples(st.integers(0, 3), st.integers(-1, 2)),
        "causal_align": st.just("bottom-right"),
        "scale": st.sampled_from([0.3, "none", -2.0]),
        "softcap": st.sampled_from([0.7, 3.0]),
        "softcap_place": st.sampled_from(["after-mask", "after-bias"]),
        "mask_value": st.sampled_from([-1e4, -3.0]),
        "mask_value_rule": st.just("add"),
        "empty_rows": st.sampled_from(["nan", "uniform", "unmasked"]),
        "head_order": st.just("tiled"),
        "lse_base": st.just("2"),
    },
)


FORMS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "one head": ((), ()),
    "an axis of one head": ((1,), (1,)),
    "6 heads on 3": ((6,), (3,)),
    "a batch": ((2, 3), (2, 3)),
}


@given(
    how=hows,
    form=st.sampled_from([*FORMS]),
    size=st.integers(1, 13),
    places=st.sets(st.integers(1, 10), min_size=1),
    seed=st.integers(0, 999),
    masks=st.sampled_from(["", "bool", "bias"]),
    ones=st.sets(st.integers(0, 3)),
    n_axes=st.integers(1, 4),
    n_past=st.sampled_from([0, 4]),
    more=st.sets(st.sampled_from(["sinks", "kv_len", "rows"])),
)
@settings(deadline=None, max_examples=200)
def test_any_cut_gives_what_one_piece_gives(
    how: dict[str, Any],
    form: str,
    size: int,
    places: set[int],
    seed: int,
    masks: str,
    ones: set[int],
    n_axes: int,
    n_past: int,
    more: set[str],
) -> None:
    """Of 7 queries, 11 keys with the cache, widths 5 and 13, and masks of every form.

    ones, n_axes  the axes along which the mask has one entry, and how many it has
    """
    rng, (of_q, of_k) = np.random.default_rng(seed), FORMS[form]
    n_new = 11 - n_past
    q, k, v = (
        rng.normal(size=shape) for shape in ((*of_q, 7, 5), (*of_k, n_new, 5), (*of_k, n_new, 13))
    )
    call: dict[str, Any] = dict(how)
    if n_past:
        call["past_k"] = rng.normal(size=(*of_k, n_past, 5))
        call["past_v"] = rng.normal(size=(*of_k, n_past, 13))
    shape = [1 if axis in ones else n for axis, n in enumerate((*of_q, 7, 11))][-n_axes:]
    mask: Array = rng.random(shape) < 0.7
    if masks == "bool":
        call["mask"] = mask
    elif masks:
        call["mask"] = np.where(mask, rng.normal(size=mask.shape), -INF)
    if "sinks" in more:
        call["sinks"] = rng.normal(size=of_q[-1] if of_q else 1)
    if "kv_len" in more:
        call["kv_len"] = rng.integers(0, 12, size=2 if len(of_q) > 1 else 1)
    if "rows" in more:
        call["rows"] = [1, 4]
    whole = attend(q, k, v, **call)
    for trace in (
        attend_tiles(q, k, v, tiles=size, **call),
        attend_split(q, k, v, split=sorted(places), **call),
    ):
        for name in ("output", "lse", *["mask"] * ("mask" in whole)):
            found, wanted = trace[name].value, whole[name].value
            assert found == pytest.approx(wanted, rel=1e-9, abs=1e-9, nan_ok=True), name


@pytest.mark.parametrize(
    ("k", "more", "wanted"),
    [
        ([[1], [1]], {"mask": [[False, True]], "mask_value": -1e9, "dtype": "float16"}, 2),
        ([[1], [1]], {"mask": [[False, False]], "mask_value": -1e9, "dtype": "float16"}, math.nan),
        ([[-1e308], [0]], {}, 2),
        ([[-1e308], [0]], {"sinks": [-INF]}, 2),
        ([[-1e308], [0]], {"mask": [[True, True]]}, 2),
        ([[-1e308], [-1e308]], {}, math.nan),
        ([[-1e308], [-1e308]], {"mask": [[True, False]], "empty_rows": "uniform"}, math.nan),
        ([[0], [0]], {"mask": [[False, False]], "empty_rows": "uniform"}, 1.5),
    ],
)
def test_scores_that_overflow_to_minus_infinity(
    k: Any, more: dict[str, Any], wanted: float
) -> None:
    """A key of such a score has no weight beside others; alone it has 0 / 0, as no key is hidden.

    −1e9 is −∞ in float16, and of a query of 100 so is −1e308 · 100.
    """
    for trace in (
        attend_tiles([[100.0]], k, [[1.0], [2.0]], tiles=1, **more),
        attend_split([[100.0]], k, [[1.0], [2.0]], split=[1], **more),
    ):
        assert trace["output"].value.item() == pytest.approx(wanted, nan_ok=True)


@pytest.mark.parametrize(("dtype", "eps"), [("float32", 2**-23), ("float16", 2**-10)])
def test_number_types_round_every_stage(dtype: Any, eps: float) -> None:
    trace = attend_tiles(Q, K, V, tiles=2, dtype=dtype)
    assert trace["tile.2.acc"].value.dtype == dtype
    assert trace["output"].value == pytest.approx(attend(Q, K, V)["output"].value, rel=8 * eps)


def test_inputs_with_a_batch_a_cache_and_rows() -> None:
    q, k, v = numbers(2, 3, 5, 7), numbers(2, 3, 2, 7), numbers(2, 3, 2, 13)
    more: dict[str, Any] = {
        "past_k": numbers(2, 3, 3, 7),
        "past_v": numbers(2, 3, 3, 13),
        "kv_len": [4, 2],
    }
    for rows in (None, [1, 4]):
        extra: dict[str, Any] = {"rows": rows}
        whole = attend(q, k, v, causal=True, **more, **extra)["output"].value
        for trace in (
            attend_tiles(q, k, v, causal=True, tiles=2, **more, **extra),
            attend_split(q, k, v, causal=True, split=[1, 3], **more, **extra),
        ):
            assert trace["output"].value == pytest.approx(whole, abs=1e-12)


@pytest.mark.parametrize("tiles", [0, -1, 2.5, "2", True])
def test_tiles_of_no_number_of_keys(tiles: Any) -> None:
    with pytest.raises(ShapeError, match="whole number of keys from 1"):
        attend_tiles(Q, K, V, tiles=tiles)


@pytest.mark.parametrize("split", [[], [0], [3], [-1], [2, 1], [1, 1], [1, 9]])
def test_splits_at_no_place(split: list[int]) -> None:
    with pytest.raises(ShapeError, match="ascending numbers of keys from 1 to 2"):
        attend_split(Q, K, V, split=split)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"softmax_over": "queries"}, "whole columns"),
        ({"dropout": 0.5}, "drawn for all weights"),
        ({"d_output": V}, "one softmax over all keys"),
    ],
)
def test_what_needs_all_keys_at_once(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConventionError, match=said):
        attend_tiles(Q, K, V, tiles=2, **more)
    with pytest.raises(ConventionError, match=said):
        attend_split(Q, K, V, split=[2], **more)


def traces() -> list[Trace]:
    one = numbers(3, 2), numbers(5, 2), numbers(5, 7)
    heads = numbers(2, 3, 2), numbers(2, 5, 2), numbers(2, 5, 7)
    batch = numbers(2, 2, 3, 5), numbers(2, 2, 5, 5), numbers(2, 2, 5, 3)
    mask = np.array([[True, False, False, True, True], [False] * 5, [True] * 5])
    found = []
    cases: Any = (
        (one, {}),
        (one, {"mask": mask, "lse_base": "2"}),
        (heads, {"sinks": [0.5, -1.0], "causal": True}),
        (batch, {"kv_len": [2, 4], "softcap": 2.0}),
    )
    for inputs, more in cases:
        found += [
            attend_tiles(*inputs, tiles=2, **more),
            attend_split(*inputs, split=[2, 3], **more),
        ]
    return found


def test_the_operands_of_the_printed_arithmetic_give_the_cell() -> None:
    options = DisplayOptions(work=True, full=True, precision=16)
    for trace in traces():
        for block in blocks_of(trace):
            stages = [stage for stage in block.stages.values() if is_computed(stage)]
            for place in places_of(block, stages, options)[0]:
                matrix = Matrix(block, place.stage, place.where, options)
                lines = work_lines(matrix, 10**6)
                assert len(lines) == matrix.values.size, place.stage.name
                for line, value in zip(lines, matrix.values.ravel().tolist(), strict=True):
                    check_line(line, value)


def test_a_letter_is_one_stage_of_a_block() -> None:
    for trace in traces():
        for block in blocks_of(trace):
            own = [*block.stages.values()]
            read = [block.read(stage, name) for stage in own for name in stage.reads]
            every = {id(stage): stage for stage in (*own, *filter(None, read))}
            letters = [stage.symbol for stage in every.values() if stage.symbol != "M"]
            letters = [x for x in letters if x not in ("K", "V") or block.prefix == ""]
            assert len(letters) == len({*letters}), (block.prefix, letters)
