"""check on rotary positions by another rule: the numbers are those of loops of plain NumPy."""

import math
from typing import Any

import numpy as np
import pytest

from attncli.commands.check.diagnose import check
from tests import plain
from tests.turns import in_turn

Array = Any
N, D = 13, 10
BASE = 10000.0


def qkv(seed: int = 5, n: int = N, d: int = D, n_past: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(2, 3, n, width)) for width in (d, d, 7)]


def turned(
    x: Array,
    theta: list[float],
    *,
    kind: str = "rope-halves",
    tables: str = "",
    ids: Any = None,
) -> Array:
    """x with each pair rotated by its angle θ a position; loops over tokens and entries."""
    result, half = x.copy(), len(theta)
    for t, at in enumerate(range(x.shape[-2]) if ids is None else ids):
        for e in range(2 * half):
            pair = {"rope-halves": e % half, "rope-interleaved": e // 2}
            angle = at * theta[pair[tables or kind]]
            if kind == "rope-halves":
                other, sign = (e + half, -1) if e < half else (e - half, 1)
            else:
                other, sign = (e + 1, -1) if e % 2 == 0 else (e - 1, 1)
            result[..., t, e] = x[..., t, e] * math.cos(angle) + sign * x[..., t, other] * math.sin(
                angle
            )
    return result


def powers(d: int = D, base: float = BASE, sign: float = -1.0) -> list[float]:
    return [base ** (sign * 2 * i / d) for i in range(d // 2)]


def name_of(output: Array, q: Array, k: Array, v: Array, positions: str, **more: Any) -> str:
    verdict = check(output, q, k, v, positions=positions, **more)
    assert verdict.status in ("found", "ambiguous"), verdict
    return verdict.explanations[0].name


def attention(*qkv: Array, **convention: Any) -> Array:
    return plain.attention(dict(zip("qkv", qkv, strict=True)), convention)["output"]


KINDS = "rope-halves", "rope-interleaved"


FREQUENCIES = [
    ([1.0] * 5, "all frequencies are 1"),
    (powers(sign=1.0), "inverted"),
    ([2 * x for x in powers()], "applied twice"),
    ([x / 4 for x in powers()], "divided by 4"),
    ([8 * x for x in powers()], "multiplied by 8"),
    ([BASE ** (-2 * (i + 1) / D) for i in range(5)], "counted from pair 1"),
    (powers(base=3.0), "the base is 3, not 10000"),
    (powers(base=2e9), "the base is 2e9, not 10000"),
    ([x / 1.37 for x in powers()], "divided by 1.37"),
]


@pytest.mark.parametrize(
    ("case", "kind_and_type"),
    in_turn(FREQUENCIES, [(KINDS[0], "float64"), (KINDS[1], "float32")], name=lambda case: case[1]),
)
def test_frequencies_by_another_rule(
    case: tuple[list[float], str], kind_and_type: tuple[str, str]
) -> None:
    (theta, words), (kind, dtype) = case, kind_and_type
    q, k, v = (x.astype(dtype) for x in qkv())
    output = attention(
        *(turned(x.astype(float), theta, kind=kind) for x in (q, k)), v.astype(float)
    )
    assert words in name_of(output.astype(dtype), q, k, v, kind)


@pytest.mark.parametrize(("kind", "causal"), [(KINDS[0], False), (KINDS[1], True)])
def test_tables_of_the_other_layout(kind: str, causal: bool) -> None:
    q, k, v = qkv(7)
    (other,) = {*KINDS} - {kind}
    placed = [turned(x, powers(), kind=kind, tables=other) for x in (q, k)]
    name = name_of(attention(*placed, v, causal=causal), q, k, v, kind, causal=causal)
    assert "cos and sin are laid out" in name
    assert "in halves" in name
    assert "interleaved" in name


@pytest.mark.parametrize(("kind", "operand"), [(KINDS[0], "queries"), (KINDS[1], "keys")])
def test_one_of_the_two_in_the_other_layout(kind: str, operand: str) -> None:
    q, k, v = qkv(11)
    (other,) = {*KINDS} - {kind}
    kinds = {"queries": (other, kind), "keys": (kind, other)}[operand]
    placed = [turned(x, powers(), kind=y) for x, y in zip((q, k), kinds, strict=True)]
    name = name_of(attention(*placed, v), q, k, v, kind)
    assert f"of the {operand} alone" in name
    assert "pairs are" in name


@pytest.mark.parametrize(("signs", "words"), [((-1, -1), "other way"), ((-1, 1), "queries alone"), ((1, -1), "keys alone")])  # fmt: skip
def test_the_sign_of_the_rotation(signs: tuple[int, int], words: str) -> None:
    q, k, v = qkv(13)
    placed = [turned(x, [s * y for y in powers()]) for x, s in zip((q, k), signs, strict=True)]
    name = name_of(attention(*placed, v), q, k, v, "rope-halves")
    assert words in name
    assert "other way" in name


def test_positions_of_one_of_them_from_1() -> None:
    q, k, v = qkv(17)
    q_placed = turned(q, powers(), ids=range(1, N + 1))
    verdict = check(attention(q_placed, turned(k, powers()), v), q, k, v, positions="rope-halves")
    assert verdict.explanations[0].name == "positions counted from another number"
    assert "of the queries by +1" in verdict.explanations[0].details[0]


@pytest.mark.parametrize(
    ("stage", "at", "rows"),
    [
        ("lse", np.s_[:, :, 2:4], "queries 3 and 4 of lse are 0"),
        ("output", np.s_[0, 1], "head 2 of batch item 1 of output is 0"),
    ],
)
def test_another_base_beside_rows_that_were_not_written(stage: str, at: Any, rows: str) -> None:
    q, k, v = qkv()
    placed = {"q": turned(q, powers(base=3.0)), "k": turned(k, powers(base=3.0)), "v": v}
    results = plain.attention(placed, {})
    observed = {name: results[name].copy() for name in ("output", "lse")}
    observed[stage][at] = 0
    name = name_of(observed, q, k, v, "rope-halves")
    assert name == f"the base is 3, not 10000 and {rows}: not written"


def test_new_keys_counted_from_another_number_than_cached_ones() -> None:
    rng = np.random.default_rng(19)
    q, k, v = rng.normal(size=(2, 5, D)), rng.normal(size=(2, 11, D)), rng.normal(size=(2, 11, 7))
    ids = [*range(6), *range(7, 12)]
    output = attention(turned(q, powers(), ids=range(6, 11)), turned(k, powers(), ids=ids), v)
    cache = {"past_k": k[:, :6], "past_v": v[:, :6]}
    name = name_of(output, q, k[:, 6:], v[:, 6:], "rope-halves", **cache)
    assert "new keys are counted from 7, not 6" in name


@pytest.mark.parametrize(
    ("theta", "words"),
    [
        (powers(base=500.0), "not divided by the factor 8"),
        ([8 * x for x in powers(base=500.0)], "multiplied by the factor 8"),
        ([x / 64 for x in powers(base=500.0)], "factor 8 twice"),
        (powers(base=500 * 8 ** (D / (D - 2))), "scaled"),
        ([x / 8 for x in powers()], "10000, the default"),
    ],
)
def test_a_factor_and_a_base_that_are_told(theta: Any, words: str) -> None:
    q, k, v = qkv(23)
    output = attention(turned(q, theta), turned(k, theta), v)
    assert words in name_of(output, q, k, v, "rope-halves:base=500,factor=8")


@pytest.mark.parametrize("kind", KINDS)
def test_the_part_that_is_told(kind: str) -> None:
    q, k, v = qkv(29)
    right = [x / 3 for x in powers(4, 700.0)]
    text = f"{kind}:base=700,part=0.4,factor=3"
    output = attention(turned(q, right, kind=kind), turned(k, right, kind=kind), v)
    assert check(output, q, k, v, positions=text).matches
    assert check(output, q, k, v, positions=text.replace("0.4", "4")).matches
    assert not check(output, q, k, v, positions=kind).matches
    whole = [x / 3 for x in powers(D, 700.0)]
    output = attention(turned(q, whole, kind=kind), turned(k, whole, kind=kind), v)
    assert "all 10 entries are rotated, not the first 4" in name_of(output, q, k, v, text)


def test_right_ones_of_16_bits_match() -> None:
    q, k, v = (x.astype(np.float16) for x in qkv(31))
    theta = [x / 8 for x in powers(base=500000.0)]
    placed = (turned(x.astype(float), theta).astype(np.float16).astype(float) for x in (q, k))
    output = attention(*placed, v.astype(float)).astype(np.float16)
    assert check(output, q, k, v, positions="rope-halves:base=5e5,factor=8").matches


@pytest.mark.parametrize("kind", KINDS)
def test_angles_are_solved_from_scores(kind: str) -> None:
    q, k, v = qkv(37, n=23)
    theta = [0.9, 0.31, 0.047, 0.4, 0.0021]
    a, b = (turned(x, theta, kind=kind) for x in (q, k))
    scores = a @ np.swapaxes(b, -1, -2)
    verdict = check(scores, q, k, v, stage="scores", positions=kind)
    assert "0.9, 0.31, 0.047, 0.4, 0.0021" in verdict.explanations[0].name


def test_gradients_of_another_rule() -> None:
    """d_q and d_k are turned back by the same angles: by finite differences."""
    q, k, v = qkv(41, n=5)
    theta, g = [1.0] * 5, np.random.default_rng(3).normal(size=(2, 3, 5, 7))

    def loss(x: Array) -> float:
        return float((attention(turned(x, theta), turned(k, theta), v) * g).sum())

    d_q = np.zeros_like(q)
    for at in np.ndindex(q.shape):
        step = np.zeros_like(q)
        step[at] = 1e-5
        d_q[at] = (loss(q + step) - loss(q - step)) / 2e-5
    verdict = check(
        {"d_q": d_q}, q, k, v, d_output=g, positions="rope-halves", rtol=1e-6, atol=1e-8
    )
    assert "all frequencies are 1" in verdict.explanations[0].name


@pytest.mark.parametrize(
    "text",
    ["rope-halves:", "rope-halves:base=x", "rope-halves:size=3", "rope-halves:part=0.3", "rope-halves:factor=0", "rope-halves:base=2,base=3", "paper:part=0.5", "rope-halves:part=nan"],
)  # fmt: skip
def test_numbers_that_there_are_not(text: str) -> None:
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"position|part"):
        check(v, q, k, v, positions=text)
