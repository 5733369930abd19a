"""The plot: every point is there, no names collide, lines fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rich.cells import cell_len

from attncli.views.scatter import POINT, scatter


def test_distances_are_alike_across_and_down() -> None:
    lines = scatter(["a", "b", "c"], np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]), 60, 11)
    rows = [row for row, line in enumerate(lines) if POINT in line]
    bottom = lines[rows[-1]]
    across = bottom.rindex(POINT) - bottom.index(POINT)
    assert across == 2 * (rows[-1] - rows[0])


def test_points_in_one_place_are_all_named() -> None:
    plot = "\n".join(scatter(list("abcdefgh"), np.zeros((8, 2)), 30, 5))
    assert all(name in plot for name in "abcdefgh")


@given(
    arrays(np.float64, st.tuples(st.integers(1, 9), st.just(2)), elements=st.floats()),
    st.integers(24, 90),
    st.integers(2, 30),
)
def test_lines_fit(points: Any, width: int, height: int) -> None:
    lines = scatter([f"word{at}" for at in range(len(points))], points, width, height)
    assert len(lines) >= height
    assert all(cell_len(line) <= width for line in lines[:height])
