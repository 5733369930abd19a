"""Whatever was observed, under whatever conventions: `check` ends in a verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli import attend
from attncli.commands.check.diagnose import check
from attncli.errors import ConventionError, InputError
from tests.conformance.rows import LARGE, random_row

STAGES = "output", "lse", "weights", "scores", "d_q", "d_k", "d_v", "d_scores"


def wrong_numbers(number: int) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Stages of a random call, some of them changed, and the call; None where it is refused."""
    row, rng = random_row(number), np.random.default_rng([7, number])
    arrays: dict[str, Any] = {
        **row.inputs,
        **{x: y for x, y in row.convention.items() if x != "dtype"},
    }
    dtype = rng.choice(["float64", "float32", "float16"])
    if rng.random() < 0.5:
        shape = (*row.inputs["q"].shape[:-1], row.inputs["v"].shape[-1])
        arrays["d_output"] = rng.normal(size=shape)
    try:
        stages = {name: stage.value for name, stage in attend(**arrays).stages()}
    except (ConventionError, InputError):
        return None
    observed = dict[str, Any]()
    for name in rng.permutation([x for x in STAGES if x in stages])[: rng.integers(1, 4)]:
        x = np.asarray(stages[name], float)
        kinds = x, x * rng.normal(size=x.shape), x + 0.1 * rng.normal(size=x.shape)
        changed = (*kinds, np.roll(x, 1, axis=rng.integers(x.ndim)))[rng.integers(4)]
        observed[str(name)] = changed.astype(dtype)
    return observed, arrays


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(4))
def test_wrong_numbers_end_in_a_verdict(part: int) -> None:
    for number in range(1 + 4 * part, 5 + 4 * part):
        with np.errstate(all="ignore"):
            if number % LARGE and (call := wrong_numbers(number)):
                observed, arrays = call
                verdict = check(observed, **arrays)
                assert verdict.status
                assert str(verdict)
