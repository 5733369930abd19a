"""attncli posenc: the tables, and what is computed with them."""

from __future__ import annotations

from math import cos, sin

import numpy as np
import pytest

from attncli import attend

from .conftest import SAMPLES, Call, stages

TURNED = [cos(1) - 2 * sin(1), sin(1) + 2 * cos(1)]
FIVE = [[sin(at), cos(at), sin(at / 100), cos(at / 100)] for at in range(5)]


@pytest.mark.parametrize(
    ("line", "stage", "rows"),
    [
        ("--len 5 --dim 4", "positions", FIVE),
        ("--len 2 --dim 4 --exponent article", "positions", [FIVE[0], [*FIVE[1][:2], sin(1e-4), cos(1e-4)]]),
        ("--len 2 --dim 4 --base 16 --start 3", "positions",
         [[sin(3), cos(3), sin(0.75), cos(0.75)], [sin(4), cos(4), sin(1), cos(1)]]),
        ("--add [[0.5,0.2,0.3,0.1],[0,0,0,0]]", "input", [[0.5, 1.2, 0.3, 1.1], FIVE[1]]),
        ("--kind rope --apply [[1,2],[1,2]] --layout halves", "rotated", [[1, 2], TURNED]),
        ("--kind rope --apply [[1,2],[1,2]] --layout interleaved", "rotated", [[1, 2], TURNED]),
        ("--kind rope --apply [[0,0,0,0],[1,2,3,4]] --layout halves", "rotated", [[0] * 4, [
            cos(1) - 3 * sin(1), 2 * cos(0.01) - 4 * sin(0.01),
            sin(1) + 3 * cos(1), 2 * sin(0.01) + 4 * cos(0.01)]]),
        ("--kind rope --apply [[0,0,0,0],[1,2,3,4]] --layout interleaved", "rotated", [[0] * 4, [
            *TURNED, 3 * cos(0.01) - 4 * sin(0.01), 3 * sin(0.01) + 4 * cos(0.01)]]),
    ],
)  # fmt: skip
def test_tables(call: Call, line: str, stage: str, rows: list[list[float]]) -> None:
    table = stages(call("posenc", *line.split(), "--format", "json").json)[stage]
    np.testing.assert_allclose(table, rows, atol=1e-15)


def test_dots_depend_on_the_distance_alone(call: Call) -> None:
    done = call("posenc", "--len", "7", "--dim", "6", "--dots", "--format", "json")
    dots = stages(done.json)["dots"]
    assert all(np.ptp(np.diagonal(dots, distance)) < 1e-12 for distance in range(7))
    assert dots[0, 0] == pytest.approx(3)
    assert dots[0, 1] < dots[0, 0]


def test_what_the_page_says(call: Call) -> None:
    five = ("posenc", "--len", "5", "--dim", "4", "--cell")
    cell = call(*five, "3,4").out
    for text in ("w[λ628] = 10000^(2/4)", "cos(2 / 100)", "= cos(0.02)", "= 0.9998"):
        assert text in cell
    assert call(*five, "pos 2,cos λ628").out == cell
    assert "5 is odd" in call("posenc", "--len", "2", "--dim", "5").out
    article = call("posenc", "--len", "2", "--dim", "4", "--exponent", "article")
    assert "2i twice" in article.out


def test_tables_feed_compute(call: Call) -> None:
    turned = ("--kind", "rope", "--apply", SAMPLES / "heads.json", "--output", "turned.npz")
    assert call("posenc", *turned).code == 0
    flags = ("--q", "turned.npz::queries.rotated", "--k", "turned.npz::keys.rotated")
    assert call("compute", *flags, "--quiet", "--format", "csv").code == 0
    alibi = ("--kind", "alibi", "--heads", "4", "--len", "3", "--output", "bias.npy")
    assert call("posenc", *alibi).code == 0
    bias = np.load("bias.npy")
    assert bias[0, 2].tolist() == [-0.5, -0.25, 0.0]  # slope 2^(−8/4) = 1/4, ALiBi section 3
    q = np.random.default_rng(3).normal(size=(4, 3, 2))
    np.save("q.npy", q)
    done = call("compute", "--q", "q.npy", "--mask", "bias.npy", "--quiet", "--format", "json")
    expected = attend(q, q, q, mask=bias)["output"].value
    np.testing.assert_array_equal(stages(done.json)["output"], expected)


def test_equal_distances_have_equal_dot_products_where_each_wave_has_both_its_halves(
    call: Call,
) -> None:
    even, odd = (call("posenc", "--len", "3", "--dim", dim, "--dots").out for dim in ("4", "3"))
    assert ("diagonal" in even, "diagonal" in odd) == (True, False)
