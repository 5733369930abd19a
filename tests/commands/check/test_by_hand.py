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
from attncli.commands.check.by_hand.judge import mark
from attncli.commands.check.by_hand.marking import Marking, Written
from attncli.convention import Convention
from attncli.tolerance.setup import setup_of
from tests.commands.check.planted_slips import (
    CHAIN,
    ELSEWHERE,
    PLANTED,
    Planted,
    Stages,
    exercise,
    one,
    rounded,
    sheet_of,
    sheet_with,
    softmax,
    stages,
)

RNG = np.random.default_rng(11)
Q, K, V = (RNG.integers(-3, 4, (3, 2)).astype(float) + 0.25 for _ in range(3))
SQUARE = tuple(RNG.normal(size=(3, 3)).round(1) for _ in range(3))
HEADS = tuple(RNG.normal(size=(2, 3, 5)).round(1) for _ in range(3))
WIDE = Q, K, RNG.integers(-3, 4, (3, 5)).astype(float)
S, A = Q @ K.T, softmax(Q @ K.T / np.sqrt(2))
Z, ROWS = S / np.sqrt(2), np.arange(3)[:, None]
PEN = (  # what is seen in the number that was written
    *("rounded too early", "truncated, not rounded"),
    *("the decimal point is in the wrong place", "copied from its neighbour"),
)


def inputs_for(needs: str) -> tuple[Array, Array, Array]:
    q, k, v = {"square": SQUARE, "heads": HEADS, "wide": WIDE}.get(needs, (Q, K, V))
    return q, k, v


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

OF_SCALE = "divided by √d_k alone"
"""A slip where the scale is another one, or there is a temperature."""


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
    assert [name for name in PLANTED if name not in PEN] == [x for x in names if x in PLANTED]
    assert {*PLANTED, *OF_X, OF_SCALE} == {*names, *PEN}


def test_a_temperature_that_is_forgotten_is_named() -> None:
    """Q Kᵀ = (2, 0, 2; 2, 2, 4), to be divided by √2 · 2, not by √2 alone."""
    arrays = [[1, 0], [1, 1]], [[2, 0], [0, 2], [2, 2]], [[1], [2], [3]]
    setup = setup_of(*arrays, convention=Convention(temperature=2.0))
    right, wrong = np.array(
        [[[0.71, 0, 0.71], [0.71, 0.71, 1.41]], [[1.41, 0, 1.41], [1.41, 1.41, 2.83]]]
    )
    assert not mark(setup, {"scaled": Written(right, 2)}).mistakes
    (mistake,) = mark(setup, {"scaled": Written(wrong, 2)}).mistakes
    assert (len(mistake.cells), mistake.slips) == (5, (OF_SCALE,))


@pytest.mark.parametrize(("name", "planted"), [*PLANTED.items(), *ELSEWHERE])
def test_a_planted_slip_is_named_and_the_rest_follows(name: str, planted: Planted) -> None:
    stage, slip, needs = planted
    inputs, causal = inputs_for(needs), "causal" in needs
    wrong = slip(sheet_with(inputs, causal=causal))
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
    "truncated, not rounded": ("weights", (1, 1), 0.1977),
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


OF_DIGITS = ("one digit is wrong", "two digits are exchanged")
"""True of a number wherever it is said."""


def random_number(seed: int) -> tuple[Marking, str]:
    """The marking of a sheet with one random number, of two decimals to four, and its stage."""
    rng = np.random.default_rng(seed)
    inputs, causal, decimals = exercise(rng), bool(rng.random() < 0.25), 2 + seed % 3
    right = stages(inputs, {}, causal=causal)
    stage = str(rng.choice([*right]))
    numbers = right[stage]
    cells = np.argwhere(np.isfinite(numbers))
    at = tuple(cells[rng.integers(len(cells))])
    size = max(0.5, float(np.std(numbers[np.isfinite(numbers)])))
    value = rng.uniform() if stage == "weights" else numbers[at] + size * rng.normal()
    wrong = {stage: one(numbers, at, value)}
    is_of_rounded = rng.random() < 0.5
    written = rounded(inputs, wrong, decimals, causal=causal)
    written = written if is_of_rounded else stages(inputs, wrong, causal=causal)
    return marked(inputs, sheet_of(written, decimals), causal=causal), stage


@pytest.mark.parametrize(
    "seeds", [range(18), pytest.param(range(18, 268), marks=pytest.mark.exhaustive)]
)
def test_one_random_number_is_given_a_slip_less_often_than_once_in_50(seeds: range) -> None:
    false, tried = list[str](), 0
    for seed in seeds:
        marking, stage = random_number(seed)
        tried += bool(marking.mistakes)  # else the number is right by chance
        named = {text for mistake in marking.mistakes for text in mistake.slips}
        false += [f"{seed} {stage}: {marking}"] if named - {*OF_DIGITS} else []
    assert 50 * len(false) < max(tried, 51), "\n".join(false)


def is_named(name: str, planted: Planted, seed: int) -> bool | None:
    """Whether a slip that is planted in a random sheet is named; None where it changes nothing."""
    stage, slip, needs = planted
    rng, causal = np.random.default_rng(seed), "causal" in needs
    inputs = exercise(rng, needs)
    cell = (int(rng.integers(2)), int(rng.integers(2)))
    sheet = sheet_with(inputs, cell, causal=causal)
    with np.errstate(all="ignore"):
        wrong = {stage: slip(sheet)}
        is_of_rounded = rng.random() < 0.5
        numbers = stages(inputs, wrong, causal=causal)
        numbers = rounded(inputs, wrong, 4, causal=causal) if is_of_rounded else numbers
    if any((np.isnan(x) | np.isposinf(x)).any() for x in numbers.values()):
        return None
    marking = marked(inputs, sheet_of(numbers, 4), causal=causal)
    names = [text for mistake in marking.mistakes for text in mistake.slips]
    is_one = [mistake.stage for mistake in marking.mistakes] == [stage]
    return None if not marking.mistakes else is_one and any(x.startswith(name) for x in names)


@pytest.mark.parametrize(
    ("every", "seeds"), [(4, range(1)), pytest.param(1, range(12), marks=pytest.mark.exhaustive)]
)
def test_a_slip_planted_in_a_random_sheet_keeps_its_name(every: int, seeds: range) -> None:
    """Now and then two slips give the same numbers, or one gives a right number in a row."""
    cases = [*PLANTED.items(), *ELSEWHERE][::every]
    outcomes = [(name, is_named(name, x, seed)) for name, x in cases for seed in seeds]
    judged = [(name, outcome) for name, outcome in outcomes if outcome is not None]
    missed = [name for name, outcome in judged if not outcome]
    assert 50 * len(missed) <= len(judged), missed


# ---- what is said of one number

TIDY = (  # A[q1] = (0.248, 0.248, 0.503): O[q1,1] is 4.50 of the rounded numbers, 4.497 unrounded
    np.array([[1.0, 0], [2, 0], [0, 1]]),
    np.array([[1.0, 1], [1, 2], [2, 2]]),
    np.array([[7.0, 6], [3, 9], [4, 2]]),
)


@pytest.mark.parametrize(
    ("value", "slips"),
    [
        (4.30, ["one digit is wrong"]),
        (4.60, ["one digit is wrong"]),
        (5.55, []),
        (3.72, []),
        (5.0, ["rounded too early, to whole numbers"]),
        (
            4.0,
            [
                "one digit is wrong",
                "rounded too early, to whole numbers",
                "truncated, not rounded, after the point",
            ],
        ),
        (4.05, ["two digits are exchanged"]),
        (14.50, ["a carry is wrong, the number is off by exactly 10"]),
        (45.0, ["the decimal point is in the wrong place"]),
        (4.73, ["copied from its neighbour, the one on the right"]),
    ],
)
def test_a_wrong_number_in_a_tidy_sheet(value: float, slips: list[str]) -> None:
    right = stages(TIDY, {})
    sheet = sheet_of(right | {"output": one(right["output"], (0, 0), value)}, 2)
    (mistake,) = marked(TIDY, sheet).mistakes
    assert [*mistake.slips] == slips
    if not slips:
        assert str(mistake).endswith(f"off by {abs(value - 4.5):.2f}, cause unknown")
        assert mistake.to_dict()["cause"] == mistake.slip


def test_a_stage_in_whole_numbers_was_rounded_too_early() -> None:
    """Of the tidy sheet the output is 4.50, 4.73; 4.33, 3.80; 4.14, 5.60."""
    sheet = sheet_of(stages(TIDY, {}), 2)
    whole = Written(np.array([[4.0, 5], [4, 4], [4, 6]]), 0)
    (mistake,) = marked(TIDY, sheet | {"output": whole}).mistakes
    assert (len(mistake.cells), mistake.slips) == (6, ("rounded too early, to whole numbers",))


def test_of_two_wrong_numbers_none_is_copied_from_the_other() -> None:
    right = stages(TIDY, {})["output"]
    output = one(one(right, (0, 0), 7.91), (0, 1), 7.91)
    mistakes = marked(TIDY, sheet_of(stages(TIDY, {"output": output}), 2)).mistakes
    assert [mistake.slips for mistake in mistakes] == [(), ()]


def test_a_weight_with_a_wrong_digit_is_no_exp() -> None:
    """exp(Z − max) of q2 and k3 is e^−1.41 = 0.24, its weight 0.14: only one digit differs."""
    inputs = np.array([[1.0, 0], [2, 0]]), np.array([[2.0, 1], [1.0, 2], [1, 0]]), np.eye(3)
    numbers = stages(inputs, {})
    assert numbers["weights"].round(2)[1].tolist() == [0.67, 0.16, 0.16]
    weights = one(numbers["weights"], (1, 2), 0.24)
    (mistake,) = marked(inputs, sheet_of(stages(inputs, {"weights": weights}), 2)).mistakes
    assert (len(mistake.cells), mistake.slips) == (1, ())


def test_a_blank_cell_is_rounded_as_its_neighbours_are() -> None:
    """Of 0.174, 0.537 (blank) and 0.289 the output is 22.9 · 0.537 + 0.1846 = 12.482."""
    inputs = (
        np.array([[2.2, 1, 0, 1.4]]),
        np.array([[-3.2, 0.9, 0.5, 1.7], [-1.1, 0.5, 2.1, 0.3], [-2.6, -0.1, -1.2, 2.2]]),
        np.array([[-0.6], [22.9], [1.0]]),
    )
    sheet = {
        "weights": Written(np.array([[0.174, np.nan, 0.289]]), 3),
        "output": Written(np.array([[12.482]]), 3),
    }
    assert marked(inputs, sheet).mistakes == ()
    wrong = {**sheet, "output": Written(np.array([[12.432]]), 3)}
    assert len(marked(inputs, wrong).mistakes) == 1


@pytest.mark.parametrize("scale", ["none", 1.0])
def test_scaled_scores_where_nothing_is_scaled_are_the_scores(scale: Any) -> None:
    setup = setup_of(Q, K, V, convention=Convention(scale=scale))
    numbers = stages((Q, K, V), {"scaled": S})
    assert mark(setup, sheet_of(numbers, 3)).mistakes == ()
    (mistake,) = mark(setup, sheet_of(stages((Q, K, V), {"scaled": one(S, (0, 1), 9)}), 3)).mistakes
    assert (mistake.stage, mistake.cells[0].at) == ("scaled", (0, 1))
