"""What each constant of judgement is for: a case that is judged wrongly with another value."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from attncli import Convention, attend
from attncli.check import check


def names_of(observed: Any, *given: Any, **more: Any) -> list[str]:
    verdict = check({"output": observed}, *given, pairs=False, **more)
    return [bug.name for found in verdict.explanations for bug in found.bugs]


def bfloat16(x: Any) -> Any:
    return np.asarray(x).astype(ml_dtypes.bfloat16)


def unscaled(q: Any, k: Any, v: Any, **more: Any) -> Any:
    """The output without the scale, in float64."""
    wide = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    trace = attend(*wide, convention=Convention(scale="none"), **more)
    return trace["output"].value.copy()


def exact(q: Any, k: Any, v: Any) -> Any:
    return attend(*(np.asarray(x, dtype=np.float64) for x in (q, k, v)))["output"].value.copy()


def float16(n: int, n_heads: int = 2) -> list[Any]:
    rng = np.random.default_rng(11)
    return [rng.normal(size=(n_heads, n, 16)).astype(np.float16) for _ in range(3)]


@pytest.mark.parametrize(("times", "status"), [(1.2, "match"), (2.5, "no match")])
def test_all_errors_of_a_head_may_be_one_and_a_half_times_the_noise(
    times: float, status: str
) -> None:
    q, k, v = float16(211)
    right = exact(q, k, v)
    noise = check(right.astype(np.float16), q, k, v).stages[0].noise
    assert noise is not None
    off = np.random.default_rng(3).normal(size=right.shape) * noise * times
    assert check((right + off).astype(np.float16), q, k, v).status == status


@pytest.mark.parametrize(("times", "status"), [(3.0, "match"), (8.0, "no match")])
def test_a_row_may_be_five_times_its_noise(times: float, status: str) -> None:
    q, k, v = float16(211)
    right = exact(q, k, v)
    noise = check(right.astype(np.float16), q, k, v).stages[0].noise
    assert noise is not None
    right[1, 7] += np.random.default_rng(3).choice([-1, 1], size=16) * noise * times
    assert check(right.astype(np.float16), q, k, v).status == status


@pytest.mark.parametrize(("times", "status"), [(8.0, "match"), (40.0, "no match")])
def test_an_entry_may_be_sixteen_times_the_noise_of_its_row(times: float, status: str) -> None:
    rng = np.random.default_rng(11)
    q, k, v = (rng.normal(size=(1, 211, n)).astype(np.float16) for n in (16, 16, 256))
    right = exact(q, k, v)
    noise = check(right.astype(np.float16), q, k, v).stages[0].noise
    assert noise is not None
    right[0, 7, 9] += noise * times
    assert check(right.astype(np.float16), q, k, v).status == status


@pytest.mark.parametrize(("share", "found"), [(0.3, False), (0.7, True)])
def test_a_bug_must_explain_half_of_the_difference(share: float, found: bool) -> None:
    # The observed numbers lie between the right ones and those without the scale, and beyond.
    q, k, v = float16(5)
    right, wrong = exact(q, k, v), unscaled(q, k, v)
    noise = np.random.default_rng(1).normal(size=right.shape)
    noise -= (wrong - right) * (noise * (wrong - right)).sum() / ((wrong - right) ** 2).sum()
    noise *= np.sqrt(((wrong - right) ** 2).mean() / (noise**2).mean())
    observed = right + share * (wrong - right) + (1 - share) * noise
    verdict = check(observed, q, k, v, pairs=False, rtol=0, atol=float(np.abs(wrong - right).max()))
    assert verdict.matches
    assert ("scale left out" in names_of(wrong.astype(np.float16), q, k, v)) is True
    assert not names_of(observed.astype(np.float16), q, k, v) or found


@pytest.mark.parametrize(("offset", "found"), [(0.0, ["scale left out"]), (0.2, [])])
def test_rows_are_judged_by_their_own_noise(offset: float, found: list[str]) -> None:
    # Query 4 alone attends to a value of 200, whose rounding is nearly all of the noise. The other
    # outputs are off by more than ten times their own, which the noise of all would hide.
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=shape) for shape in ((13, 7), (11, 7), (11, 2)))
    mask = np.ones((13, 11), dtype=bool)
    mask[:, 10], v[10] = False, 200
    mask[3, 10] = True
    q, k, v = bfloat16(2 * q), bfloat16(k), bfloat16(v)
    observed = unscaled(q, k, v, mask=mask)
    observed[np.arange(13) != 3] += offset
    assert names_of(bfloat16(observed), q, k, v, mask=mask) == found


def test_a_head_is_judged_by_its_own_noise() -> None:
    # The values of head 2 are 400 times as large, and their rounding is nearly all of the noise.
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=shape) for shape in ((3, 41, 7), (3, 43, 7), (3, 43, 13)))
    v[1] *= 400
    q, k, v = bfloat16(q), bfloat16(k), bfloat16(v)
    observed = exact(q, k, v)
    assert check(bfloat16(observed), q, k, v).matches
    observed[2] *= 1.05
    verdict = check(bfloat16(observed), q, k, v)
    assert verdict.status != "match"
    assert any("head 3" in place for place in verdict.stages[0].places)
