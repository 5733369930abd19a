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


@pytest.mark.parametrize(("share", "is_named"), [(0.2, False), (0.45, False), (0.6, True)])
def test_a_bug_must_explain_half_of_the_difference(share: float, is_named: bool) -> None:
    # The scale given is not quite the default, which moves the one output by a share of the
    # tolerance. The observed number is a little more than the tolerance away, that way.
    given = ([[0.5, -1.25, 0.75]], [[1.5, 0.25, -0.5], [-0.75, 1.0, 2.0]], [[3.0], [-1.0]])
    q, k, v = (np.array(x, dtype=np.float32) for x in given)
    usual = 3**-0.5

    def output(scale: float) -> float:
        trace = attend(q, k, v, convention=Convention(scale=scale))
        return float(trace["output"].value.item())

    allowed = (
        check({"output": np.array([[output(usual)]], dtype=np.float32)}, q, k, v).stages[0].allowed
    )
    slope = (output(usual * 1.001) - output(usual * 0.999)) / 0.002
    scale = usual * (1 + share * allowed / abs(slope))
    right, moved = output(scale), output(usual)
    assert abs(moved - right) == pytest.approx(share * allowed, rel=0.01)
    apart = 1.1 * allowed * np.sign(moved - right)
    observed = np.array([[right + apart]], dtype=np.float32)
    assert allowed < abs(observed.item() - right) < 1.2 * allowed
    found = names_of(observed, q, k, v, convention=Convention(scale=scale))
    assert ("default scale, not the one given" in found) == is_named


@pytest.mark.parametrize(("offset", "found"), [(0.1, ["scale left out"]), (0.2, [])])
def test_what_is_left_must_be_like_noise_in_all_entries(offset: float, found: list[str]) -> None:
    # Query 4 alone attends to a value of 200, whose rounding sets the tolerance. The other outputs
    # are off by more than ten times their own noise, which the tolerance alone would hide.
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=shape) for shape in ((13, 7), (11, 7), (11, 2)))
    mask = np.ones((13, 11), dtype=bool)
    mask[:, 10], v[10] = False, 200
    mask[3, 10] = True
    q, k, v = bfloat16(2 * q), bfloat16(k), bfloat16(v)
    observed = unscaled(q, k, v, mask=mask)
    observed[np.arange(13) != 3] += offset
    assert names_of(bfloat16(observed), q, k, v, mask=mask) == found


def test_a_sample_is_judged_by_less_noise_than_there_is() -> None:
    # Head 2 does not show the bug (its queries are 0), so it is not in the sample of two heads;
    # but its values are 40 times as large, and their rounding sets the tolerance of all.
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=shape) for shape in ((3, 5, 7), (3, 11, 7), (3, 11, 2)))
    q[1], v[1] = 0, 40 * v[1]
    q, k, v = bfloat16(2 * q), bfloat16(k), bfloat16(v)
    observed = unscaled(q, k, v)
    observed[[0, 2]] += 0.05
    assert names_of(bfloat16(observed), q, k, v) == ["scale left out"]
