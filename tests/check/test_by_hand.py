"""check --by-hand: sheets worked by hand, a planted slip of every row, and what rounding leaves."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli.arrays import Array
from attncli.attention.inputs import inputs_of
from attncli.attention.slips import slips
from attncli.commands.check.by_hand import mark
from attncli.commands.check.marking import Marking, Written
from attncli.commands.check.setup import setup_of
from attncli.convention import Convention

Stages = dict[str, Array]
CHAIN = ("scores", "scaled", "masked", "weights", "output")


def softmax(x: Array, axis: int = -1) -> Array:
    with np.errstate(invalid="ignore"):  # a row with nothing to attend to
        powers = np.exp(x - x.max(axis=axis, keepdims=True))
        shares: Array = powers / powers.sum(axis=axis, keepdims=True)
        return shares


def stages(inputs: tuple[Array, ...], wrong: Stages, *, causal: bool = False) -> Stages:
    """Attention in NumPy; each stage follows from those before it, wrong ones included."""
    q, k, v = inputs
    s: Stages = {"scores": wrong.get("scores", q @ np.swapaxes(k, -1, -2))}
    s["scaled"] = wrong.get("scaled", s["scores"] / np.sqrt(q.shape[-1]))
    if causal:
        hidden = np.arange(k.shape[-2]) > np.arange(q.shape[-2])[:, None]
        s["masked"] = wrong.get("masked", np.where(hidden, -np.inf, s["scaled"]))
    s["weights"] = wrong.get("weights", softmax(s["masked" if causal else "scaled"]))
    s["output"] = wrong.get("output", s["weights"] @ v)
    return s


def sheet_of(numbers: Stages, decimals: int) -> dict[str, Written]:
    return {name: Written(np.round(x, decimals), decimals) for name, x in numbers.items()}


RNG = np.random.default_rng(11)
Q, K, V = (RNG.integers(-3, 4, (3, 2)).astype(float) + 0.25 for _ in range(3))
SQUARE = tuple(RNG.normal(size=(3, 3)).round(1) for _ in range(3))
HEADS = tuple(RNG.normal(size=(2, 3, 5)).round(1) for _ in range(3))
WIDE = Q, K, RNG.integers(-3, 4, (3, 5)).astype(float)
S, E = Q @ K.T, np.exp(Q @ K.T / np.sqrt(2))
Z, A = S / np.sqrt(2), softmax(S / np.sqrt(2))
ROWS, HIDDEN = np.arange(3)[:, None], np.arange(3) > np.arange(3)[:, None]
SS = SQUARE[0] @ SQUARE[1].T
ZZ = SS / np.sqrt(3)
AA = softmax(ZZ)
OF_CAUSAL = softmax(np.where(HIDDEN, -np.inf, Z))


def dropped_term(numbers: Array) -> Array:
    x = numbers.copy()
    x[1, 0] = Q[1, 1] * K[0, 1]
    return x


def one(numbers: Array, at: tuple[int, int], value: float) -> Array:
    x = numbers.copy()
    x[at] = value
    return x


# slip → stage and what somebody wrote there, with the inputs, and whether there is a causal mask
Planted = tuple[str, Array, tuple[Array, ...], bool]
PLANTED: dict[str, Planted] = {
    "K is not transposed": ("scores", SQUARE[0] @ SQUARE[1], SQUARE, False),
    "K of another head": (
        "scores", HEADS[0] @ np.swapaxes(HEADS[1][::-1], -1, -2), HEADS, False,
    ),
    "added in place of multiplied": ("scores", (Q[:, None] + K).sum(-1), (Q, K, V), False),
    "a term is left out": ("scores", dropped_term(S), (Q, K, V), False),
    "a term has the wrong sign": (
        "output", one(A @ V, (2, 1), A[2, 0] * V[0, 1] - A[2, 1] * V[1, 1] + A[2, 2] * V[2, 1]),
        (Q, K, V), False,
    ),
    "a term is counted twice": (
        "output", one(A @ V, (0, 0), A[0] @ V[:, 0] + A[0, 1] * V[1, 0]), (Q, K, V), False,
    ),
    "the sign is wrong": ("scaled", -Z, (Q, K, V), False),
    "not divided by √d_k": ("scaled", S, (Q, K, V), False),
    "divided by d_k, not by √d_k": ("scaled", S / 2, (Q, K, V), False),
    "multiplied by √d_k, not divided": ("scaled", S * np.sqrt(2), (Q, K, V), False),
    "divided by the square root of the number of keys": ("scaled", S / np.sqrt(3), (Q, K, V), False),
    "divided by the number of keys": ("scaled", S / 3, (Q, K, V), False),
    "divided by the square root of d_model, the width of all heads": (
        "scaled", HEADS[0] @ np.swapaxes(HEADS[1], -1, -2) / np.sqrt(10), HEADS, False,
    ),
    "√d_k is rounded too early": ("scaled", S / 1.4, (Q, K, V), False),
    "the mask is left out": ("masked", Z, (Q, K, V), True),
    "0 in place of −∞": ("masked", np.where(HIDDEN, 0, Z), (Q, K, V), True),
    "the mask is of the other triangle": (
        "masked", np.where(HIDDEN.T, -np.inf, Z), (Q, K, V), True,
    ),
    "a query does not see its own key": (
        "masked", np.where(np.arange(3) >= ROWS, -np.inf, Z), (Q, K, V), True,
    ),
    "no exp, each score is divided by the sum of its row": (
        "weights", Z / Z.sum(-1, keepdims=True), (Q, K, V), False,
    ),
    "softmax over columns, not over rows": ("weights", softmax(Z, 0), (Q, K, V), False),
    "exp, but not divided by the sum of the row": ("weights", E, (Q, K, V), False),
    "divided by the sum of another row": (
        "weights", E / E.sum(-1)[[2, 1, 2], None], (Q, K, V), False,
    ),
    "exp with another base than e": (
        "weights", 10**Z / (10**Z).sum(-1, keepdims=True), (Q, K, V), False,
    ),
    "softmax of the whole table, not of the row": ("weights", E / E.sum(), (Q, K, V), False),
    "exp(−Z) in place of exp(Z)": ("weights", softmax(-Z), (Q, K, V), False),
    "no softmax": ("weights", Z, (Q, K, V), False),
    "softmax twice": ("weights", softmax(A), (Q, K, V), False),
    "ReLU in place of exp": (
        "weights", np.maximum(ZZ, 0) / np.maximum(ZZ, 0).sum(-1, keepdims=True), SQUARE, False,
    ),
    "the mask is applied after softmax, so the rows do not sum to 1": (
        "weights", np.where(HIDDEN, 0, A), (Q, K, V), True,
    ),
    "a term is missing from the sum of exp": (
        "weights", E / E[:, 1:].sum(-1, keepdims=True), (Q, K, V), False,
    ),
    "exp is rounded too early": (
        "weights", E.round(1) / E.round(1).sum(-1, keepdims=True), (Q, K, V), False,
    ),
    "a column of the weights is used, not their row": ("output", A.T @ V, (Q, K, V), False),
    "the values are added without their weights": (
        "output", np.ones((3, 3)) @ V, (Q, K, V), False,
    ),
    "V of another head": (
        "output",
        softmax(HEADS[0] @ np.swapaxes(HEADS[1], -1, -2) / np.sqrt(5)) @ HEADS[2][::-1],
        HEADS, False,
    ),
    "the plain mean of the values": ("output", np.ones((3, 3)) / 3 @ V, (Q, K, V), False),
    "the scores in place of the weights": ("output", S @ V, (Q, K, V), False),
    "the scores in place of the values": ("output", AA @ SS, SQUARE, False),
    "K in place of V": ("output", A @ K, (Q, K, V), False),
    "V is transposed": ("output", AA @ SQUARE[2].T, SQUARE, False),
    "the weights are rounded too early": ("output", A.round(1) @ WIDE[2], WIDE, False),
    "rows and columns are swapped": ("weights", A.T, (Q, K, V), False),
    "two rows are swapped": ("scores", S[[0, 2, 1]], (Q, K, V), False),
    "two columns are swapped": ("output", (A @ V)[:, [1, 0]], (Q, K, V), False),
    "the numbers of another row": ("scaled", Z[[0, 1, 0]], (Q, K, V), False),
    "rounded too early": ("scaled", Z.round(2), (Q, K, V), False),
    "cut off, not rounded": ("scaled", np.trunc(Z * 1000) / 1000, (Q, K, V), False),
    "the decimal point is in the wrong place": (
        "weights", one(A, (0, 0), A[0, 0].round(4) * 10), (Q, K, V), False,
    ),
    "copied from its neighbour": ("weights", one(A, (0, 1), A[0, 2]), (Q, K, V), False),
}  # fmt: skip
# the same slips in other stages
ELSEWHERE: list[tuple[str, Planted]] = [
    ("not divided by √d_k", ("weights", softmax(S), (Q, K, V), False)),
    ("the mask is left out", ("weights", A, (Q, K, V), True)),
    ("the mask is left out", ("masked", np.where(HIDDEN & (ROWS > 0), -np.inf, Z), (Q, K, V), True)),
    ("exp, but not divided by the sum of the row",
     ("weights", np.exp(Z - Z.max(-1, keepdims=True)), (Q, K, V), False)),
    ("rows and columns are swapped", ("scores", K @ Q.T, (Q, K, V), False)),
    ("two rows are swapped", ("output", (A @ V)[[2, 1, 0]], (Q, K, V), False)),
]  # fmt: skip


X = RNG.integers(-3, 4, (3, 5)).astype(float)
W_Q, W_K, W_V = (RNG.integers(-3, 4, (5, 5)).astype(float) for _ in range(3))
B_Q = np.array([1.0, 2, 0, -1, 3])
LAST = np.array([[0.0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]]) * X[:, 3:4] * W_V[3]
# slip → q, k or v of x and the weights; LAST is the term of dimension 4 of v[3,2]
OF_X: dict[str, tuple[str, Array]] = {
    "the weights are transposed": ("k", X @ W_K.T),
    "the weights of another table": ("k", X @ W_V),
    "the bias is left out": ("q", X @ W_Q),
    "a term is left out": ("v", X @ W_V - LAST),
    "a term has the wrong sign": ("v", X @ W_V - 2 * LAST),
    "a term is counted twice": ("v", X @ W_V + LAST),
}


@pytest.mark.parametrize("name", OF_X)
def test_a_planted_slip_in_what_is_made_of_x_is_named(name: str) -> None:
    stage, wrong = OF_X[name]
    weights = {"w_q": W_Q, "w_k": W_K, "w_v": W_V, "b_q": B_Q}
    of_x = inputs_of({"x": X, **weights}, Convention())
    setup = replace(setup_of(X @ W_Q + B_Q, X @ W_K, X @ W_V), projected=of_x)
    (mistake,) = mark(setup, sheet_of({stage: wrong}, 2)).mistakes
    assert mistake.stage == stage
    assert any(text.startswith(name) for text in mistake.slips), mistake.slips


def marked(
    inputs: tuple[Array, ...], sheet: dict[str, Written], *, causal: bool = False
) -> Marking:
    return mark(setup_of(*inputs, convention=Convention(causal=causal)), sheet)


def test_every_row_of_the_table_is_planted() -> None:
    names = [*dict.fromkeys(slip.name for slip in slips())]
    assert [*PLANTED] == [name for name in names if name in PLANTED]
    assert {*PLANTED, *OF_X} == {*names}


@pytest.mark.parametrize(("name", "planted"), [*PLANTED.items(), *ELSEWHERE])
def test_a_planted_slip_is_named_and_the_rest_follows(name: str, planted: Planted) -> None:
    stage, wrong, inputs, causal = planted
    sheet = sheet_of(stages(inputs, {stage: wrong}, causal=causal), 4)
    marking = marked(inputs, sheet, causal=causal)
    assert [x.stage for x in marking.mistakes] == [stage], str(marking)
    assert any(text.startswith(name) for text in marking.mistakes[0].slips), str(marking)
    later = CHAIN[CHAIN.index(stage) + 1 :]
    assert [*marking.follows] == [x for x in later if x in sheet], str(marking)


DIGITS: dict[str, tuple[str, tuple[int, int], float]] = {
    "one digit is wrong": ("weights", (0, 0), 0.4711),
    "two digits are exchanged": ("weights", (0, 0), 0.4101),
    "the decimal point is in the wrong place": ("weights", (0, 0), 4.0111),
    "cut off, not rounded": ("weights", (1, 1), 0.1977),
    "copied from its neighbour, the one below or the one on the right": ("weights", (0, 1), 0.1978),
    "the sign is wrong": ("scaled", (2, 1), -0.7071),
}
THREE: tuple[Array, ...] = (
    np.array([[1.0, 0], [0, 1], [1, 1]]),
    np.array([[1.0, 1], [1, 0], [0, 1]]),
    np.array([[10.0, 0], [0, 10], [5, 5]]),
)


@pytest.mark.parametrize("name", DIGITS)
def test_a_slip_of_the_pen_in_one_cell(name: str) -> None:
    stage, at, value = DIGITS[name]
    right = stages(THREE, {})
    sheet = sheet_of(right | {stage: one(right[stage], at, value)}, 4)
    (mistake,) = marked(THREE, sheet).mistakes
    assert ([x.at for x in mistake.cells], mistake.stage) == ([at], stage)
    assert any(text.startswith(name) for text in mistake.slips), mistake.slips


@pytest.mark.parametrize(
    ("order", "name"),
    [((slice(None), [1, 0, 2]), "two columns are swapped, columns 1 and 2"),
     (([0, 2, 1], slice(None)), "two rows are swapped, rows 2 and 3")],
)  # fmt: skip
def test_rows_and_columns_that_were_swapped(order: Any, name: str) -> None:
    sheet = sheet_of(stages((Q, K, V), {"scores": S[order]}), 3)
    (mistake,) = marked((Q, K, V), sheet).mistakes
    assert name in mistake.slips


def test_a_slip_in_some_rows_and_another_in_one_cell() -> None:
    columns = np.where(ROWS < 2, softmax(-Z), A)  # exp of the negative in two rows
    sheet = sheet_of(stages((Q, K, V), {"weights": one(columns, (2, 0), 0.9)}), 3)
    of_rows, of_cell = marked((Q, K, V), sheet).mistakes
    assert (len(of_rows.cells), of_rows.slips) == (6, ("exp(−Z) in place of exp(Z)",))
    assert [x.at for x in of_cell.cells] == [(2, 0)]


def test_a_table_that_nothing_explains_is_one_mistake_without_a_slip() -> None:
    sheet = sheet_of(stages((Q, K, V), {"weights": np.abs(np.sin(Z + 1)) / 3}), 2)
    (mistake,) = marked((Q, K, V), sheet).mistakes
    assert (len(mistake.cells), mistake.slips) == (9, ())


def test_slips_in_one_table_are_in_the_order_of_its_cells() -> None:
    wrong = one(one(S, (0, 1), -S[0, 1]), (2, 0), Q[2, 0] * K[0, 0])
    marking = marked((Q, K, V), sheet_of({"scores": wrong}, 4))
    first, second = marking.mistakes
    assert [cell.at for x in (first, second) for cell in x.cells] == [(0, 1), (2, 0)]
    assert "the sign is wrong" in first.slips
    assert second.slips == ("a term is left out, that of dimension 2",)


def test_a_stage_before_the_first_mistake_is_right_though_it_was_computed_from_rounded_ones() -> (
    None
):
    """Weights of two decimals give an output that is off by more than half a unit of its last."""
    numbers = stages((Q, K, V), {})
    numbers["weights"] = numbers["weights"].round(2)
    numbers["output"] = numbers["weights"] @ V
    assert (np.abs(numbers["output"] - A @ V) > 0.005).any()
    assert marked((Q, K, V), sheet_of(numbers, 2)).follows == ()


def test_a_number_is_shown_with_the_decimals_of_its_stage() -> None:
    """1/4 is 0.25 exactly; e^0.7071 / (e^0.7071 + …) = 0.40111…: 0.401 has all three decimals."""
    numbers = {"weights": one(softmax(THREE[0] @ THREE[1].T / np.sqrt(2)), (0, 0), 0.9)}
    (mistake,) = marked(THREE, sheet_of(numbers, 3)).mistakes
    assert str(mistake.cells[0]) == "A[q1,k1] is 0.900, should be 0.401"


# ---- properties

whole = st.integers(-4, 4)
places = st.integers(2, 4)


@st.composite
def exercises(draw: Any) -> tuple[Array, ...]:
    n_q, n_k, d_k, d_v = (draw(st.integers(1, 4)) for _ in range(4))
    tables = [[[draw(whole) for _ in range(d)] for _ in range(n)] for n, d in
              ((n_q, d_k), (n_k, d_k), (n_k, d_v))]  # fmt: skip
    return tuple(np.array(x, dtype=float) for x in tables)


@given(exercises(), places, st.booleans(), st.sets(st.sampled_from(CHAIN), max_size=3))
def test_a_right_sheet_has_no_mistake_however_it_was_rounded(
    inputs: tuple[Array, ...], decimals: int, causal: bool, left_out: set[str]
) -> None:
    right = stages(inputs, {}, causal=causal)
    exact = marked(inputs, sheet_of(right, decimals), causal=causal)
    assert exact.mistakes == (), str(exact)
    from_rounded: Stages = {}
    for name in right:  # each stage of the rounded one before it
        from_rounded[name] = stages(inputs, from_rounded, causal=causal)[name].round(decimals)
    of_rounded = {name: x for name, x in from_rounded.items() if name not in left_out}
    rounded = marked(inputs, sheet_of(of_rounded, decimals), causal=causal)
    assert rounded.mistakes == (), str(rounded)


@given(exercises(), places, st.data())
def test_one_wrong_number_is_located_and_nothing_else(
    inputs: tuple[Array, ...], decimals: int, data: Any
) -> None:
    right = stages(inputs, {})
    stage = data.draw(st.sampled_from([*right]))
    at = tuple(data.draw(st.integers(0, n - 1)) for n in right[stage].shape)
    off = data.draw(st.sampled_from([-3.0, -1.0, -0.5, 0.5, 1.0, 3.0]))
    wrong = one(right[stage], at, right[stage][at] + off)
    numbers = stages(inputs, {stage: wrong})
    marking = marked(inputs, sheet_of(numbers, decimals))
    spread = _by_rounding(right, stage, at, inputs, decimals)
    if abs(off) > spread:
        cells = [(x.stage, cell.at) for x in marking.mistakes for cell in x.cells]
        assert cells == [(stage, at)], str(marking)


def _by_rounding(
    right: Stages, stage: str, at: Any, inputs: tuple[Array, ...], decimals: int
) -> float:
    """Twice how far off a number of the output may be by rounding of weights, and one unit more."""
    unit = 10.0**-decimals
    of_weights = np.abs(inputs[2]).sum(axis=0)[at[1]] * unit if stage == "output" else 4 * unit
    return float(of_weights + 2 * unit)
