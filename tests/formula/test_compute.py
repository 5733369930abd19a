"""A formula computed at once with NumPy, beside its value in every cell; and written, read back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli.arrays import Array
from attncli.formula import compute as numpy_of_formulas
from attncli.formula.compute import compute
from attncli.formula.evaluate import Values
from attncli.formula.expression import If, Number, line_of
from attncli.formula.parser import parse
from attncli.formula.together import Together

LEAVES = ("x[i,j]", "y[j,k]", "z[k]", "x[i,k % 3]", "p", "2", "-0.5", "size[k]", "k")
INNER = st.recursive(
    st.sampled_from(LEAVES),
    lambda x: st.one_of(
        st.builds("({} {} {})".format, x, st.sampled_from(["+", "-", "*"]), x),
        st.builds("{} / (1 + abs({}))".format, x, x),
        st.builds("tanh({})".format, x),
        st.builds("({0} if {1} > {2} and not k == 1 else {2})".format, x, x, x),
    ),
    max_leaves=5,
)
OUTER = st.one_of(
    st.builds("sum[k]({} * {})".format, INNER, INNER),
    st.builds("sum[k]({} where z[k] > 0 or k < {})".format, INNER, st.integers(0, 5)),
    st.builds("{}[k]({})".format, st.sampled_from(["sum", "max", "lse"]), INNER),
    st.builds("softmax[j](sum[k]({}), sink=x[i,0])".format, INNER),
    st.builds("softmax[j](max[k]({}) where x[i,j] > 0, empty=uniform)".format, INNER),
)


@given(OUTER, OUTER)
def test_a_formula_means_the_same_at_once_and_cell_by_cell(one: str, other: str) -> None:
    formula, rng = parse(f"Z[i,j] = {one} - {other}"), np.random.default_rng(0)
    assert parse(line_of(formula)) == formula
    sizes = {"i": 2, "j": 3, "k": 5}
    arrays = {"x": rng.normal(size=(2, 3)), "y": rng.normal(size=(3, 5)), "z": rng.normal(size=5)}
    with np.errstate(all="ignore"):
        whole = compute(line_of(formula), {**arrays, "p": 0.7}, sizes)
        values = Values(formula, arrays, {"p": 0.7}, sizes)
        grid = dict(zip("ij", np.indices((2, 3)).reshape(2, -1), strict=True))
        cells = np.broadcast_to(values.number(formula.body, grid), 6)
    np.testing.assert_allclose(whole, cells.reshape(2, 3), rtol=1e-9, atol=1e-9)


def test_places_that_are_computed_are_picked_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_of_formulas, "GATHERED", 11)
    x = np.arange(35.0).reshape(5, 7)
    i, j, k = np.ogrid[:3, :13, :5]
    text = "A[i,j,k] = x[(i + k) % 5, (2 * j) % 7]"
    found = compute(text, {"x": x}, {"i": 3, "j": 13, "k": 5})
    np.testing.assert_array_equal(found, x[(i + k) % 5, (2 * j) % 7])
    assert compute("a = x[floor(p), 0]", {"x": x, "p": 2.5}) == 14


def test_a_part_that_two_formulas_have_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[Array]()

    def exp(x: Array) -> Array:
        calls.append(x)
        return np.asarray(np.exp(x))

    monkeypatch.setattr(numpy_of_formulas, "FUNCTIONS", {**numpy_of_formulas.FUNCTIONS, "exp": exp})
    powers = parse("Z[i,j] = exp(x[i,j])")
    hidden = replace(powers, body=If(parse("Z[i,j] = x[i,j] > 0").body, Number(0.0), powers.body))
    x = np.array([[-1.0, 2.0, 3.0], [0.5, -2.0, 7.0]])
    together = Together([hidden, powers])
    arrays = [together.compute(formula, {"x": x}, {}) for formula in (hidden, powers)]
    assert np.array_equal(arrays[0], [[np.exp(-1), 0, 0], [0, np.exp(-2), 0]])
    assert np.array_equal(arrays[1], np.exp(x))  # nothing was put into what both have
    assert len(calls) == 1
