"""What each constant of judgement is for: a case that is judged wrongly with another value."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from attncli.check import check
from tests import plain


def bfloat16(x: Any) -> Any:
    return np.asarray(x).astype(ml_dtypes.bfloat16)


def exact(q: Any, k: Any, v: Any, **how: Any) -> Any:
    """The output in float64."""
    mask = {"mask": how.pop("mask")} if "mask" in how else {}
    return plain.attention({"q": q, "k": k, "v": v, **mask}, how)["output"]


def float16(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(11)
    return [rng.normal(size=shape).astype(np.float16) for shape in shapes]


def noise_of(right: Any, q: Any, k: Any, v: Any) -> float:
    noise = check(right.astype(np.float16), q, k, v).stages[0].noise
    assert noise is not None
    return noise


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [("float64", 2 * 2.0**-52), ("float32", 1.4 * 2.0**-23), ("float16", 2.0**-10)],
)
def test_the_noise_of_one_product_is_that_of_its_factors_and_sums(dtype: str, unit: float) -> None:
    """var S = u² · 2 S² + 2 u² q² k² and a term of each sum, u²/3 of both: u = 0.21 units."""
    one = np.ones((1, 1), dtype)
    sums = 1 / 3 if dtype != "float16" else 0.0  # of 16-bit types they are kept in float32
    noise = check(one, one, one, one, stage="scores").stages[0].noise
    factors = 1.0
    assert noise == pytest.approx(0.21 * unit * np.sqrt(2 + 2 * sums + factors + sums), rel=1e-3)


@pytest.mark.parametrize(
    ("where", "times", "status"),
    [
        ("all", 1.2, "match"),  # all errors of a head: one and a half times the noise
        ("all", 2.5, "no match"),
        ("row", 3.0, "match"),  # a row: five times its noise
        ("row", 8.0, "no match"),
        ("entry", 8.0, "match"),  # an entry: sixteen times the noise of its row
        ("entry", 40.0, "no match"),
    ],
)
def test_how_many_times_the_noise_errors_may_be(where: str, times: float, status: str) -> None:
    wide = where == "entry"
    q, k, v = float16(*[(1, 211, n) if wide else (2, 211, 16) for n in (16, 16, 256)])
    right, rng = exact(q, k, v), np.random.default_rng(3)
    off = noise_of(right, q, k, v) * times
    if where == "all":
        right += rng.normal(size=right.shape) * off
    elif where == "row":
        right[1, 7] += rng.choice([-1, 1], size=16) * off
    else:
        right[0, 7, 9] += off
    assert check(right.astype(np.float16), q, k, v, pairs=False).status == status


@pytest.mark.parametrize(("offset", "names"), [(0.0, ["scale left out"]), (0.2, [])])
def test_rows_are_judged_by_their_own_noise(offset: float, names: list[str]) -> None:
    # Query 4 alone attends to a value of 200, whose rounding is nearly all of the noise. The other
    # outputs are off by more than ten times their own, which the noise of all would hide.
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=shape) for shape in ((13, 7), (11, 7), (11, 2)))
    mask = np.ones((13, 11), dtype=bool)
    mask[:, 10], v[10] = False, 200
    mask[3, 10] = True
    q, k, v = bfloat16(2 * q), bfloat16(k), bfloat16(v)
    seen = exact(q, k, v, mask=mask, scale="none")
    seen[np.arange(13) != 3] += offset
    verdict = check(bfloat16(seen), q, k, v, mask=mask, pairs=False)
    assert [one.name for one in verdict.explanations] == names


def test_a_head_is_judged_by_its_own_noise() -> None:
    # The values of head 2 are 400 times as large, and their rounding is nearly all of the noise.
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=shape) for shape in ((3, 41, 7), (3, 43, 7), (3, 43, 13)))
    v[1] *= 400
    q, k, v = bfloat16(q), bfloat16(k), bfloat16(v)
    seen = exact(q, k, v)
    assert check(bfloat16(seen), q, k, v).matches
    seen[2] *= 1.05
    verdict = check(bfloat16(seen), q, k, v, pairs=False)
    assert not verdict.matches
    assert any("head 3" in place for place in verdict.stages[0].places)
