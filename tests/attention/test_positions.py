"""Positions: sinusoids and ALiBi cell by cell, rotary pairs as complex numbers."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from attncli.attention.positions import (
    Layout,
    add_positions,
    alibi,
    position_dots,
    rotary,
    rotary_angles,
    sinusoidal,
)
from attncli.errors import AttncliError
from tests import plain
from tests.commands.check.planted.parts import rotate

# ---- sinusoids


@pytest.mark.parametrize("exponent", ["paper", "article"])
@pytest.mark.parametrize(
    ("n", "dim", "more"), [(5, 4, {}), (7, 11, {}), (3, 1, {}), (3, 6, {"base": 50.0, "start": 17})]
)
def test_every_cell_of_a_sinusoid(n: int, dim: int, more: dict[str, Any], exponent: Any) -> None:
    table = sinusoidal(n, dim, exponent=exponent, **more)["positions"]
    start, base = more.get("start", 0), more.get("base", 10000.0)
    expected = plain.sinusoidal(n, dim, exponent, base, start)
    np.testing.assert_allclose(table.value, expected, rtol=0, atol=1e-15)
    assert table.axes == ("position", "dimension")
    assert table.labels["position"] == tuple(f"pos {start + i}" for i in range(n))


def test_the_names_of_columns_and_a_huge_base() -> None:
    paper = sinusoidal(5, 4)
    names = ("2i=0", "2i+1=1", "2i=2", "2i+1=3")
    assert (paper["positions"].labels["dimension"], paper["positions"].note) == (names, "")
    assert paper["angles"].labels["pair"] == ("i=0", "i=1")
    assert sinusoidal(3, 5)["positions"].labels["dimension"][-1] == "2i=4"
    huge = sinusoidal(3, 7, base=1e300, exponent="article")["positions"].value  # no warning
    np.testing.assert_array_equal(huge[:, 6], 0)


def test_angles_and_dots_are_those_of_the_table() -> None:
    trace = sinusoidal(41, 14, base=50.0, start=-3)
    angles, table = trace["angles"].value, trace["positions"].value
    np.testing.assert_array_equal(table[:, 4], np.sin(angles[:, 2]))
    np.testing.assert_array_equal(table[:, 5], np.cos(angles[:, 2]))
    dots = position_dots(trace)["dots"]
    assert dots.axes == ("position", "other")
    for distance in (0, 1, 5, 40):  # which alone matters
        expected = math.fsum(math.cos(distance / 50.0 ** (i / 7)) for i in range(7))
        np.testing.assert_allclose(np.diagonal(dots.value, distance), expected, atol=1e-10)


def test_positions_are_added() -> None:
    named = add_positions([[0.5]], [[1.0]], tokens=["love"])["input"]
    assert (named.value.tolist(), named.labels["token"]) == ([[1.5]], ("love",))
    trace = add_positions(np.ones((3, 5)), sinusoidal(3, 5, start=4))
    assert trace["input"].labels["token"] == ("pos 4", "pos 5", "pos 6")
    assert "dimension" not in trace["input"].labels  # its columns are no waves
    np.testing.assert_array_equal(trace["input"].value, 1 + trace["positions"].value)


# ---- ALiBi


def published_slopes(n: int) -> list[float]:
    """The recursion of the authors' code, which states the rule another way."""
    if math.log2(n).is_integer():
        first = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [first * first**i for i in range(n)]
    below: int = 2 ** math.floor(math.log2(n))
    return published_slopes(below) + published_slopes(2 * below)[0::2][: n - below]


@pytest.mark.parametrize("causal", [False, True])
def test_every_cell_of_alibi(causal: bool) -> None:
    for n_heads in (1, 2, 3, 5, 7, 8, 11, 12, 13, 16, 31, 40, 112):
        for n_q, n_k, first in ((1, 1, 0), (5, 7, 2), (7, 2, -3), (3, 11, 0)):
            bias = alibi(n_heads, n_q, n_k, causal=causal, first_query=first)["bias"]
            assert (bias.axes, bias.value.shape) == (("head", "query", "key"), (n_heads, n_q, n_k))
            distance = np.arange(n_q)[:, None] + first - np.arange(n_k)
            expected = -np.array(published_slopes(n_heads))[:, None, None] * np.abs(distance)
            expected = np.where(causal & (distance < 0), -np.inf, expected)
            np.testing.assert_allclose(bias.value, expected, rtol=1e-12)
            assert not np.signbit(bias.value[bias.value == 0]).any()
    assert alibi(3, 5)["bias"].value.shape == (3, 5, 5)


# ---- rotary


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
@pytest.mark.parametrize("shape", [(5, 14), (3, 5, 14), (2, 3, 5, 14)])
def test_pairs_are_turned_as_complex_numbers(layout: Layout, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(11).normal(size=shape)
    trace, part = rotary(x, layout=layout), rotary(x, layout=layout, rotary_dim=6)["rotated"]
    np.testing.assert_allclose(
        trace["rotated"].value, rotate(x, np.arange(5), pairs=layout), atol=1e-14
    )
    assert list(trace) == ["x", "angles", "cos", "sin", "rotated"]
    assert trace["rotated"].axes == ("batch", "head", "position", "dimension")[-len(shape) :]
    np.testing.assert_array_equal(part.value[..., 6:], x[..., 6:])
    first = rotate(x[..., :6], np.arange(5), pairs=layout)
    np.testing.assert_allclose(part.value[..., :6], first, atol=1e-14)
    assert "the last 8 of 14" in part.note


def test_positions_of_each_item_and_caches_made_elsewhere() -> None:
    x = np.random.default_rng(17).normal(size=(2, 3, 5, 6))
    ids = np.array([[0, 1, 2, 3, 4], [7, 8, -9, 10, 2]])
    rotated = rotary(x, position_ids=ids)["rotated"].value
    for item in range(2):
        expected = rotate(x[item], ids[item])
        np.testing.assert_allclose(rotated[item], expected, atol=1e-14)
    angles, own = rotary_angles(np.arange(11), 6, base=100), [4, 0, 10, 2, 3]
    cached = rotary(x[0], position_ids=own, caches=(np.cos(angles), np.sin(angles)))
    trace = rotary(x[0], position_ids=own, base=100)
    np.testing.assert_array_equal(cached["rotated"].value, trace["rotated"].value)
    expected = rotate(x[0], np.array(own), base=100)
    np.testing.assert_allclose(trace["rotated"].value, expected, atol=1e-14)
    assert list(cached) == ["x", "cos", "sin", "rotated"]
    of_rows = rotary(x[0], caches=(np.cos(angles[own]), np.sin(angles[own])))  # as they are
    np.testing.assert_array_equal(of_rows["rotated"].value, trace["rotated"].value)
    assert trace["rotated"].labels["position"] == ("pos 4", "pos 0", "pos 10", "pos 2", "pos 3")


# ---- what is refused

X, CACHES = np.ones((3, 5, 6)), (np.ones((7, 3)),) * 2
REFUSED: list[tuple[Callable[..., Any], Any, dict[str, Any], str]] = [
    (sinusoidal, (0, 4), {}, "positions is 0"),
    (sinusoidal, (3, -1), {}, "dim is -1"),
    (sinusoidal, (3, 4), {"exponent": "book"}, "'book'"),
    (sinusoidal, (3, 4), {"base": 0.5}, r"base is 0\.5"),
    (sinusoidal, (3, 4), {"base": math.nan}, "base is nan"),
    (sinusoidal, (3, 4), {"start": 2**53}, "cannot be distinguished"),
    (add_positions, (np.ones((3, 5)), np.ones((2, 5))), {}, "3 × 5 .* 2 × 5"),
    (add_positions, (np.ones(3), np.ones((2, 5))), {}, "embeddings has 1 dim"),
    (add_positions, ([[1.0], [1.0, 2.0]], np.ones((2, 5))), {}, "embeddings is ragged"),
    (add_positions, ([[1j]], np.ones((1, 1))), {}, "real numbers"),
    *((alibi, sizes, {}, "from 1") for sizes in ((0, 3, 3), (2, 0, 3), (2, 3, 0))),
    (rotary, (np.ones(3),), {}, "x has 1 dim"),
    (rotary, (np.ones((1, 1, 1, 1, 2)),), {}, "x has 5 dim"),
    (rotary, ([["a", "b"]],), {}, "real numbers"),
    (rotary, (X,), {"rotary_dim": 8}, "only 6 entries"),
    (rotary, (X,), {"rotary_dim": 3}, "dim is 3"),
    (rotary, (X,), {"layout": "thirds"}, "'thirds'"),
    (rotary, (X,), {"base": 0.0}, "base is 0"),
    (rotary, (X,), {"position_ids": [1, 2]}, "5×3"),
    (rotary, (X,), {"position_ids": [0, 1, 2, 3, math.nan]}, "not all finite"),
    (rotary, (X,), {"position_ids": [[0], [1, 2]]}, "ragged"),
    (rotary, (X,), {"position_ids": [0, 1, 2, 3, 7], "caches": CACHES}, "0 to 7, .* 0 to 6"),
    (rotary, (X,), {"position_ids": [-1, 1, 2, 3, 4], "caches": CACHES}, "-1 to 4"),
    (rotary, (X,), {"position_ids": [0.5] * 5, "caches": CACHES}, "whole numbers"),
    (rotary, (X,), {"caches": (np.ones((5, 2)),) * 2}, "cos is 5 × 2"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "given", "more", "words"), REFUSED)
def test_what_is_refused(function: Any, given: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(AttncliError, match=words):
        function(*given, **more)


def test_dot_products_depend_on_the_distance_alone_where_each_wave_has_both_halves() -> None:
    even, odd, table = (
        position_dots(x).notes for x in (sinusoidal(3, 4), sinusoidal(3, 3), [[1, 0]])
    )
    assert ("diagonal" in str(even), odd, table) == (True, (), ())
