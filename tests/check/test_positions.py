"""check with positions: no false alarm, ambiguity, pairs, flags, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attncli import Convention, ConventionError, ShapeError, attend
from attncli.check import check, suggest_input
from attncli.check.positions import positions_of
from tests.check.buggy import verdict_of
from tests.check.buggy.parts import TYPES, Inputs, scale, softmax, weighted_sum
from tests.check.buggy.positions import POSITIONS, with_positions

KINDS = ("paper", "article", "rope-halves", "rope-interleaved")
SIZES = ((2, 3, 5, 7, 11), (3, 37, 41, 32, 13), (1, 3, 5, 8, 8))
RNG = np.random.default_rng(41)


def inputs_of(dtype: str = "float64", sizes: tuple[int, ...] = SIZES[0], seed: int = 1) -> Inputs:
    return Inputs(dtype, np.random.default_rng(seed), *sizes)


def names(verdict: Any) -> list[str]:
    return [explanation.name for explanation in verdict.explanations]


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_right_positions_match(
    kind: str, dtype: str, sizes: tuple[int, ...], past: bool
) -> None:
    for seed in range(3):
        verdict = verdict_of(with_positions(kind, kind, past=past)(inputs_of(dtype, sizes, seed)))
        assert verdict.status == "match", verdict


@pytest.mark.parametrize("start", [0, 1, 7])
@pytest.mark.parametrize("kind", ["rope-halves", "rope-interleaved"])
def test_rotary_positions_may_count_from_anywhere(kind: str, start: int) -> None:
    starts = (start, start, start)
    assert verdict_of(with_positions(kind, kind, starts=starts)(inputs_of())).status == "match"


def in_float32(q: Any, k: Any, v: Any, kind: str, dtype: str) -> Any:
    """Tables made in float32, cast, and applied in the small type: every product rounded."""
    t, d, n = TYPES[dtype], q.shape[-1], q.shape[1]
    speed = np.exp(np.arange(0, d, 2, dtype=np.float32) * np.float32(-np.log(10000.0) / d))
    angles = np.arange(n, dtype=np.float32)[:, None] * speed
    cos, sin = np.cos(angles).astype(t), np.sin(angles).astype(t)
    if kind == "paper":
        table = np.stack([sin, cos], axis=-1).reshape(n, d)
        q, k, v = ((x + table).astype(t) for x in (q, k, v))
    else:
        cos, sin = (np.concatenate([x, x], axis=-1) for x in (cos, sin))
        half = d // 2
        q, k = (
            (x * cos).astype(t)
            + (np.concatenate([-x[..., half:], x[..., :half]], -1) * sin).astype(t)
            for x in (q, k)
        )
    w = np.float64 if dtype == "float64" else np.float32
    s = q.astype(w) @ np.swapaxes(k.astype(w), 1, 2) * w(scale(q))
    return np.asarray(softmax(s) @ v.astype(w)).astype(t)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["paper", "rope-halves"])
def test_a_table_of_float32_matches_at_far_positions(kind: str, dtype: str) -> None:
    for seed in range(3):
        q, k, v = inputs_of(dtype, (2, 1031, 1031, 32, 32), seed).qkv()
        observed = in_float32(q, k, v, kind, dtype)
        assert check(observed, q, k, v, positions=kind).status == "match"  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_batches_shared_key_heads_masks_and_parts_keep_their_positions(kind: Any) -> None:
    q, k, v = (RNG.normal(size=s) for s in ((2, 4, 3, 6), (2, 2, 7, 6), (2, 2, 7, 6)))
    put = POSITIONS[kind](inputs_of())
    wide = [np.repeat(x, 2, axis=1) for x in (k, v)]
    observed = np.zeros((2, 4, 3, 6))
    for b in range(2):
        q_in, k_in = put(q[b], range(4, 7)), put(wide[0][b], range(7))
        v_in = wide[1][b] if "rope" in kind else put(wide[1][b], range(7))
        s = np.einsum("hqd,hkd->hqk", q_in, k_in) * scale(q)
        masked = np.arange(7) > np.arange(4, 7)[:, None]
        observed[b] = weighted_sum(softmax(np.where(masked, -np.inf, s)), v_in)
    given: dict[str, Any] = {"past_k": k[:, :, :4], "past_v": v[:, :, :4], "positions": kind}
    given["convention"] = Convention(causal=True)
    new = k[:, :, 4:], v[:, :, 4:]
    assert check(observed, q, *new, **given).status == "match"
    part = check(observed[:, 1:, 1:], q, *new, heads=slice(1, 4), rows=[1, 2], **given)
    assert part.status == "match"


def test_one_query_at_0_is_not_rotated_at_all() -> None:
    """Restarted at 0 or left out: with one query, the numbers are the same."""
    computed = with_positions(
        "rope-halves", "rope-halves", starts=(0, 0, 2), past=True, sizes={"n_q": 1}
    )
    verdict = verdict_of(computed(inputs_of()))
    assert verdict.status == "ambiguous"
    assert names(verdict) == ["positions left out", "positions restarted at 0 after the past"]
    assert verdict.tell_apart == (
        "an input with 2 heads, 3 queries, 5 keys, d_k 8, d_v 12, 2 of the keys as a past, "
        "rope-halves positions"
    )


def test_one_pair_has_one_layout() -> None:
    sizes = {"d_k": 2, "d_v": 2}
    for asked, done in (("rope-halves", "rope-interleaved"), ("paper", "article")):
        assert verdict_of(with_positions(asked, done, sizes=sizes)(inputs_of())).status == "match"


@pytest.mark.parametrize(
    ("asked", "done", "options", "found"),
    [
        ("rope-halves", "rope-interleaved", {}, {"rotary pairs interleaved, not in halves"}),
        ("paper", "article", {}, {"sinusoid exponent 2·2i/d, not 2i/d"}),
        ("paper", "in halves", {}, {"sines, then cosines, not interleaved"}),
        ("paper", "none", {}, {"positions left out"}),
        (
            "rope-halves",
            "rope-halves",
            {"past": True, "starts": (0, 0, 0)},
            {"positions restarted at 0 after the past"},
        ),
    ],
)
@pytest.mark.parametrize("dtype", TYPES)
def test_both_of_a_pair_are_named(
    asked: str, done: str, options: dict[str, Any], found: set[str], dtype: str
) -> None:
    inputs = inputs_of(dtype, seed=3)
    make = with_positions(
        asked, done, factor=inputs.d_k**0.5 * (2**0.5 if "rope" in asked else 1), **options
    )
    for seed in (3, 4):
        verdict = verdict_of(make(replace(inputs, rng=np.random.default_rng(seed))))
        both = [{bug.name for bug in one.bugs} for one in verdict.explanations]
        assert both == [found | {"scale left out"}]


def test_two_bugs_of_positions_at_once() -> None:
    computed = with_positions("paper", "in halves", starts=(1, 1, 1))(inputs_of())
    pair = "sines, then cosines, not interleaved and positions counted from 1, not 0"
    assert names(verdict_of(computed)) == [pair]


def test_k_and_v_are_swapped_before_or_after() -> None:
    q, k, v = inputs_of(sizes=(2, 3, 5, 8, 8)).qkv()
    put = POSITIONS["rope-halves"](inputs_of())
    q_in = put(q, range(3))
    before = weighted_sum(softmax(np.einsum("hqd,hkd->hqk", q_in, put(v, range(5))) * scale(q)), k)
    after = weighted_sum(softmax(np.einsum("hqd,hkd->hqk", q_in, v) * scale(q)), put(k, range(5)))
    for observed, when in ((before, "before"), (after, "after")):
        verdict = check(observed, q, k, v, positions="rope-halves")
        assert names(verdict) == ["K and V swapped"]
        assert verdict.explanations[0].details == (f"{when} the positions are put in",)


@pytest.mark.parametrize(
    ("asked", "done", "flag"),
    [
        ("rope-halves", "rope-interleaved", "--positions rope-interleaved"),
        ("article", "paper", "--positions paper"),
        ("rope-interleaved", "none", "without --positions"),
        ("paper", "in halves", ""),
    ],
)
def test_the_flags_of_check_reproduce_it(asked: str, done: str, flag: str) -> None:
    explanation = verdict_of(with_positions(asked, done)(inputs_of())).explanations[0]
    assert (explanation.command, explanation.flag) == ("check", flag)


def test_a_layout_is_called_no_bug() -> None:
    bug = verdict_of(with_positions("paper", "in halves")(inputs_of())).explanations[0].bugs[0]
    assert bug.sentence.startswith("a layout, no bug by itself: the columns are in another order")
    assert bug.threads == ("allennlp#2993",)


@pytest.mark.parametrize("kind", KINDS)
def test_other_bugs_are_found_with_positions_as_well(kind: str) -> None:
    factor = 14**0.5 if "rope" in kind else 7**0.5
    verdict = verdict_of(with_positions(kind, kind, factor=factor, past=True)(inputs_of()))
    assert names(verdict) == ["scale left out"]


def test_without_positions_no_bug_of_theirs_is_tried() -> None:
    computed = with_positions("rope-halves", "rope-interleaved")(inputs_of())
    assert check(computed.observed, computed.q, computed.k, computed.v).status == "no match"


def test_queries_and_new_keys_continue_after_the_past() -> None:
    placement = positions_of("rope-halves", n_past=2)
    q, k, v = (RNG.normal(size=s) for s in ((2, 3, 6), (2, 5, 6), (2, 5, 4)))
    put = POSITIONS["rope-halves"](inputs_of())
    found = placement.put_in({"q": q, "k": k, "v": v})
    for name, expected in {"q": put(q, [2, 3, 4]), "k": put(k, range(5)), "v": v}.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-13, atol=1e-15)


def test_a_suggestion_has_no_positions_and_distinguishes_the_bugs() -> None:
    bugs = ["positions left out", "positions restarted at 0 after the past"]
    found = suggest_input(bugs, positions="paper")
    assert found is not None
    assert found.n_past == 2
    assert found.q.shape[-1] == found.v.shape[-1]
    observed = attend(found.q, found.k, found.v)["output"].value
    past: dict[str, Any] = {"past_k": found.k[:, :2], "past_v": found.v[:, :2]}
    verdict = check(observed, found.q, found.k[:, 2:], found.v[:, 2:], positions="paper", **past)
    assert names(verdict) == ["positions left out"]


def test_bugs_of_positions_are_distinguished_only_with_positions() -> None:
    bugs = ["positions left out", "scale left out"]
    assert suggest_input(bugs) is None
    assert suggest_input(bugs, positions="rope-halves") is not None


@pytest.mark.parametrize(
    ("error", "kind", "widths", "message"),
    [
        (ShapeError, "paper", (6, 4), "q and k are 6 wide but v is 4"),
        (ShapeError, "rope-halves", (5, 4), "d_k is 5"),
        (ConventionError, "rope", (6, 6), "positions are 'rope'"),
    ],
)
def test_what_does_not_fit(
    error: type[Exception], kind: Any, widths: tuple[int, int], message: str
) -> None:
    d_k, d_v = widths
    with pytest.raises(error, match=message):
        check(
            np.zeros((3, d_v)),
            np.zeros((3, d_k)),
            np.zeros((3, d_k)),
            np.zeros((3, d_v)),
            positions=kind,
        )
