"""attncli posenc: the tables, what may be asked together, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli import attend

from .conftest import SAMPLES, Call


def stage(document: Any, name: str) -> Any:
    return next(np.array(step["value"]) for step in document["steps"] if step["name"] == name)


def test_the_best_known_call(call: Call) -> None:
    found = stage(call("posenc", "--len", "5", "--dim", "4", "--format", "json").json, "positions")
    expected = [
        [math.sin(pos), math.cos(pos), math.sin(pos / 100), math.cos(pos / 100)] for pos in range(5)
    ]
    np.testing.assert_allclose(found, expected, atol=1e-15)


def test_the_articles_exponent_and_what_it_says(call: Call) -> None:
    arguments = ("posenc", "--len", "2", "--dim", "4", "--exponent", "article")
    found = stage(call(*arguments, "--format", "json").json, "positions")
    np.testing.assert_allclose(found[1, 2:], [math.sin(1e-4), math.cos(1e-4)], atol=1e-15)
    assert "counts 2i twice" in call(*arguments).out


def test_base_and_start(call: Call) -> None:
    arguments = ("posenc", "--len", "2", "--dim", "4", "--base", "16", "--start", "3")
    found = stage(call(*arguments, "--format", "json").json, "positions")
    np.testing.assert_allclose(found[1], [math.sin(4), math.cos(4), math.sin(1), math.cos(1)])


def test_an_odd_dim_says_so(call: Call) -> None:
    assert "d = 5 is odd" in call("posenc", "--len", "2", "--dim", "5").out


def test_the_sum_with_embeddings(call: Call) -> None:
    result = call("posenc", "--add", "[[0.5,0.2,0.3,0.1],[0,0,0,0]]", "--format", "json")
    expected = [[0.5, 1.2, 0.3, 1.1], [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]]
    np.testing.assert_allclose(stage(result.json, "input"), expected)


def test_dots_depend_on_the_distance_alone(call: Call) -> None:
    result = call("posenc", "--len", "7", "--dim", "6", "--dots", "--format", "json")
    dots = stage(result.json, "dots")
    for distance in range(7):
        assert np.ptp(np.diagonal(dots, distance)) < 1e-12
    assert dots[0, 0] == pytest.approx(3)
    assert dots[0, 1] < dots[0, 0]


def test_cell_shows_its_arithmetic(call: Call) -> None:
    out = call("posenc", "--len", "5", "--dim", "4", "--cell", "3,4").out
    assert "w[λ628] = 10000^(2/4)" in out
    assert "cos(2 / 100)" in out
    assert "= cos(0.02)" in out
    assert out.rstrip().endswith("= 0.9998")


def test_a_cell_by_its_labels(call: Call) -> None:
    by_number = call("posenc", "--len", "5", "--dim", "4", "--cell", "3,4").out
    assert call("posenc", "--len", "5", "--dim", "4", "--cell", "pos 2,cos λ628").out == by_number


@pytest.mark.parametrize(("layout", "pairs"), [("halves", (0, 1)), ("interleaved", (0, 1))])
def test_rope_turns_queries_and_keys(call: Call, layout: str, pairs: Any) -> None:
    arguments = ("posenc", "--kind", "rope", "--apply", "[[1,2],[1,2]]", "--layout", layout)
    found = stage(call(*arguments, "--format", "json").json, "rotated")
    expected = [math.cos(1) - 2 * math.sin(1), math.sin(1) + 2 * math.cos(1)]
    np.testing.assert_allclose(found, [[1.0, 2.0], expected])


def test_turned_queries_and_keys_feed_compute(call: Call) -> None:
    arguments = ("posenc", "--kind", "rope", "--apply", str(SAMPLES / "heads.json"))
    assert call(*arguments, "--output", "turned.npz").code == 0
    turned = ("--q", "turned.npz::queries.rotated", "--k", "turned.npz::keys.rotated")
    assert call("compute", *turned, "--quiet", "--format", "csv").code == 0


def test_alibi_is_a_mask_for_compute(call: Call, tmp_path: Path) -> None:
    arguments = ("--kind", "alibi", "--heads", "4", "--len", "3", "--output", "bias.npy")
    assert call("posenc", *arguments).code == 0
    bias = np.load(tmp_path / "bias.npy")
    assert bias[0, 2].tolist() == [-0.5, -0.25, 0.0]  # slope 2^(−8/4) = 1/4, ALiBi section 3
    q = np.round(np.random.default_rng(3).normal(size=(4, 3, 2)), 2)
    np.save(tmp_path / "q.npy", q)
    result = call("compute", "--q", "q.npy", "--mask", "bias.npy", "--quiet", "--format", "json")
    expected = attend(q, q, q, mask=bias)["output"].value
    np.testing.assert_array_equal(stage(result.json, "output"), expected)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--dim", "4"], "--len is missing"),
        (["--len", "4"], "--dim is missing"),
        (["--len", "0", "--dim", "4"], "greater than or equal to 1"),
        (["--len", "3", "--dim", "4", "--heads", "2"], "--heads has no effect without --kind alibi"),
        (["--kind", "alibi", "--len", "3", "--dim", "4"], "--dim has no effect"),
        (["--kind", "alibi", "--len", "3", "--heads", "2", "--start", "0"], "--start has no effect"),
        (["--kind", "alibi", "--len", "3"], "--heads is missing"),
        (["--kind", "rope", "--len", "3", "--dim", "5"], "use an even number"),
        (["--kind", "rope", "--len", "3", "--dim", "4", "--layout", "halves"], "--layout has no effect"),
        (["--kind", "rope", "--apply", "[[1,2]]", "--len", "3"], "--apply cannot be used with --len"),
        (["--len", "3", "--dim", "4", "--base", "0"], "base is 0"),
        (["--add", "[[1,2]]", "--dim", "3"], "--dim is 3, but the inline literal has 2"),
        (["--add", "[[1,2]]", "--dots"], "--add cannot be used with --dots"),
        (["--add", "[[[1,2]]]"], "has 3 dimensions"),
        (["--len", "9999999", "--dim", "999999"], "a table of 9999999 × 999999 needs 120 TB"),
        (["--len", "99999999", "--dim", "2", "--dots"], "use a smaller --len or --dim"),
        (["--len", "3", "--dim", "4", "--cell", "9,1"], "there is no position '9'"),
    ],
)  # fmt: skip
def test_what_is_refused(call: Call, arguments: Any, says: str) -> None:
    result = call("posenc", *arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert says in result.err
