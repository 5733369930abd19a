"""check with positions: ambiguity, flags, what is refused.

Bugs of positions, alone and in pairs, are rows of the planted set.
"""

from typing import Any

import numpy as np
import pytest

from attncli.commands.check.diagnose import check
from tests import plain
from tests.commands.check.planted.parts import HALF, PLACED, TYPES, Array
from tests.commands.check.planted.rows import names
from tests.turns import in_turn


def qkv(n_q: int = 3, n_k: int = 5, d: int = 8, d_v: int = 8) -> list[Array]:
    shapes = ((2, n_q, d), (2, n_k, d), (2, n_k, d_v))
    rng = np.random.default_rng(n_k)
    return [rng.normal(size=shape) for shape in shapes]


def placed(kind: str, x: Array, first: int = 0) -> Array:
    return PLACED[kind](x, np.arange(first, first + x.shape[-2]))


def output(q: Array, k: Array, v: Array, **convention: Any) -> Array:
    return plain.attention({"q": q, "k": k, "v": v}, convention)["output"]


def cached(q: Array, k: Array, v: Array, n: int) -> dict[str, Any]:
    """The first n keys are the past."""
    past = {"past_k": k[..., :n, :], "past_v": v[..., :n, :]} if n else {}
    return {"q": q, "k": k[..., n:, :], "v": v[..., n:, :], **past}


@pytest.mark.parametrize(("kind", "n_past"), [("paper", 0), ("article", 2)])
def test_an_odd_width_has_a_sine_more(kind: Any, n_past: int) -> None:
    q, k, v = qkv(d=7, d_v=7)
    table = plain.sinusoidal(7, 7, kind, 10000.0, 0)
    seen = output(q + table[n_past : n_past + 3], k + table[:5], v + table[:5])
    assert check(seen, **cached(q, k, v, n_past), positions=kind).matches


@pytest.mark.parametrize(("kind", "dtype"), in_turn(["paper", "rope-halves"], ["float32", *HALF]))
def test_a_table_of_float32_matches_at_far_positions(kind: Any, dtype: str) -> None:
    """Tables made in float32, cast, and applied in the small type: every product rounded."""
    t, n_past, half = TYPES[dtype], 1024, 16
    q, k, v = (x.astype(t) for x in qkv(7, 1031, 32, 32))
    speed = np.exp(np.arange(0, 32, 2, dtype=np.float32) * np.float32(-np.log(10000.0) / 32))
    angles = np.arange(1031, dtype=np.float32)[:, None] * speed
    sin, cos = np.sin(angles), np.cos(angles)

    def put(x: Array, first: int) -> Array:
        if kind == "paper":
            table = np.stack([sin, cos], axis=-1).reshape(1031, 32).astype(t)
            return np.asarray(x + table[first:], t)
        c, s = (np.concatenate([y, y], axis=-1).astype(t)[first:] for y in (cos, sin))
        turned = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
        return np.asarray((x * c).astype(t) + (turned * s).astype(t))

    seen = output(put(q, n_past), put(k, 0), put(v, 0) if kind == "paper" else v)
    assert check(seen.astype(t), **cached(q, k, v, n_past), positions=kind).matches


@pytest.mark.parametrize(("off", "status"), [(2.0**-52, "match"), (2.0**-40, "no match")])
def test_a_frequency_is_known_up_to_its_rounding(off: float, status: str) -> None:
    """Frequencies of float64 that are off by one unit in the last place, at far positions."""
    n, half = 401, 5
    q, k, v = qkv(n, n, 2 * half, 7)
    speed = 10000.0 ** (-2 * np.arange(half) / (2 * half)) * (1 + off)
    angles = np.arange(n)[:, None] * speed
    cos, sin = (np.concatenate([x, x], axis=-1) for x in (np.cos(angles), np.sin(angles)))
    a, b = (x * cos + np.concatenate([-x[..., half:], x[..., :half]], -1) * sin for x in (q, k))
    verdict = check(
        a @ np.swapaxes(b, -1, -2), q, k, v, stage="scores", positions="rope-halves", pairs=False
    )
    assert (verdict.status == "match") == (status == "match")


@pytest.mark.parametrize("kind", PLACED)
def test_batches_shared_key_heads_masks_and_parts_keep_their_positions(kind: Any) -> None:
    rng = np.random.default_rng(41)
    q, k, v = (rng.normal(size=s) for s in ((2, 4, 3, 6), (2, 2, 7, 6), (2, 2, 7, 6)))
    v_in = v if "rope" in kind else placed(kind, v)
    seen = output(
        placed(kind, q, 4), placed(kind, k), v_in, causal=True, causal_align="bottom-right"
    )
    convention: dict[str, Any] = {**cached(q, k, v, 4), "positions": kind, "causal": True}
    assert check(seen, **convention).matches
    assert check(seen[:, 1:, 1:], heads=slice(1, 4), rows=[1, 2], **convention).matches


def test_one_query_at_0_is_not_rotated_at_all() -> None:
    """Restarted at 0 or left out: with one query, the numbers are the same."""
    q, k, v = qkv(1)
    seen = output(q, placed("rope-halves", k), v)
    verdict = check(seen, **cached(q, k, v, 2), positions="rope-halves")
    assert verdict.status == "ambiguous"
    assert names(verdict) == ["positions left out", "positions restarted at 0 after the past"]
    assert "another input" in verdict.tell_apart


def test_one_pair_has_one_layout() -> None:
    q, k, v = qkv(d=2, d_v=2)
    seen = output(placed("rope-interleaved", q), placed("rope-interleaved", k), v)
    assert check(seen, q, k, v, positions="rope-halves").matches


def test_k_and_v_are_swapped_before_or_after() -> None:
    q, k, v = qkv()
    turned = placed("rope-halves", q)
    before = output(turned, placed("rope-halves", v), k)
    after = output(turned, v, placed("rope-halves", k))
    for seen, when in ((before, "before"), (after, "after")):
        (one,) = check(seen, q, k, v, positions="rope-halves", pairs=False).explanations
        assert (one.name, when in one.details[0]) == ("K and V swapped", True)


def test_the_flags_of_check_reproduce_it() -> None:
    q, k, v = qkv()
    cases: list[tuple[Any, str, Array]] = [
        ("rope-halves", "--positions rope-interleaved", output(placed("rope-interleaved", q), placed("rope-interleaved", k), v)),
        ("article", "--positions paper", output(placed("paper", q), placed("paper", k), placed("paper", v))),
        ("rope-interleaved", "without --positions", output(q, k, v)),
    ]  # fmt: skip
    for asked, flag, seen in cases:
        (one,) = check(seen, q, k, v, positions=asked, pairs=False).explanations
        assert (one.command, one.flag) == ("check", flag)
        unasked = check(seen, q, k, v, pairs=False)  # none is tried unasked
        assert unasked.status == ("match" if "without" in flag else "no match")
