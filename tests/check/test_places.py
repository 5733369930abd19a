"""Numbers that nothing explains: no bug is named, and where they differ is described."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli import Convention, attend
from attncli.check import Verdict, check

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(17)
Q, K, V = (RNG.normal(size=shape) for shape in ((4, 67, 7), (4, 71, 7), (4, 71, 13)))
TRACE = attend(Q, K, V)


def copy_of(stage: str) -> Array:
    return TRACE[stage].value.copy()


def places(verdict: Verdict, *bugs: str) -> tuple[str, ...]:
    assert verdict.status == ("found" if bugs else "no match")
    assert [explanation.name for explanation in verdict.explanations] == [*bugs]
    return verdict.stages[0].places


def test_one_wrong_element() -> None:
    observed = copy_of("output")
    observed[2, 5, 11] += 0.25
    verdict = check(observed, Q, K, V)
    assert "one entry alone: head 3, q6, d_v 12" in places(verdict)
    worst = verdict.stages[0].worst
    assert [(one.place, one.index) for one in worst] == [("head 3, q6, d_v 12", (2, 5, 11))]
    assert worst[0].observed == observed[2, 5, 11]
    assert worst[0].expected == pytest.approx(TRACE["output"].value[2, 5, 11], abs=1e-12)
    assert verdict.stages[0].share_wrong == 1 / observed.size
    assert verdict.stages[0].largest == pytest.approx(0.25)


def test_noise() -> None:
    rng = np.random.default_rng(1)
    observed = copy_of("output") + rng.normal(size=(4, 67, 13)) * (rng.random((4, 67, 13)) < 0.5)
    assert places(check(observed, Q, K, V)) == (
        "scattered: every head, row and column has wrong entries",
    )


def test_one_head() -> None:
    observed = copy_of("output")
    observed[1] *= np.random.default_rng(1).normal(size=(67, 13))
    assert places(check(observed, Q, K, V)) == ("only in head 2",)


def test_a_shifted_row() -> None:
    observed = copy_of("output")
    observed[:, 30] = observed[:, 29]
    found = places(check(observed, Q, K, V))
    assert found == ("only in q31", "q31 has the numbers of q30")


def test_all_rows_shifted() -> None:
    observed = np.roll(copy_of("output"), 1, axis=1)
    found = places(check(observed, Q, K, V), "rows shifted by one")
    assert found == ("rows q2 to q67 have the numbers of the row 1 before",)


@pytest.mark.parametrize(("start", "tiles"), [(64, "16, 32 or 64"), (48, None), (65, None)])
def test_a_last_tile_that_was_never_written(start: int, tiles: str | None) -> None:
    observed = copy_of("output")
    observed[:, start:] = 0
    words = f"only in rows q{start + 1} to q67"
    words += f": the last block of {tiles}" if tiles else ""
    assert places(check(observed, Q, K, V), "last rows not written") == (words,)


def test_a_last_tile_of_keys() -> None:
    observed = copy_of("weights")
    observed[..., 64:] = 0
    found = places(check(observed, Q, K, V, stage="weights"))
    assert found[0] == "only in columns k65 to k71: the last block of 16, 32 or 64"


def test_everything_by_one_factor() -> None:
    verdict = check(copy_of("output") * 3, Q, K, V)
    assert verdict.stages[0].places == ("everywhere, by one factor: observed = 3 · expected",)
    assert verdict.explanations[0].details == ("times 3, all of it",)


def test_everything_by_one_addend() -> None:
    found = places(check(copy_of("output") + 0.5, Q, K, V))
    assert found == ("everywhere, by one addend: observed = expected + 0.5",)


def test_after_a_diagonal() -> None:
    observed = copy_of("scores")
    i, j = np.indices((67, 71))
    observed[:, j > i + 2] += 1.0
    found = places(check(observed, Q, K, V, stage="scores"))
    assert found[-1] == (
        "only after the diagonal: the key 3 after the query's own position or later"
    )


def test_masked_entries_only() -> None:
    how = Convention(causal=True)
    observed = attend(Q, K, V, convention=how)["weights"].value.copy()
    i, j = np.indices((67, 71))
    observed[:, (j > i) & (j % 3 == 0)] = 0.01
    assert "only in masked entries" in places(
        check(observed, Q, K, V, stage="weights", convention=how)
    )


def test_nan_on_one_side_only() -> None:
    observed = copy_of("output")
    observed[0, 3:5] = np.nan
    verdict = check(observed, Q, K, V, atol=1e9)
    assert "the observed number is NaN or infinite in each of them, and nowhere else" in places(
        verdict
    )
    assert verdict.stages[0].largest == np.inf


def test_some_heads_and_rows_are_named_as_in_the_whole() -> None:
    part = copy_of("output")[[1, 3]][:, [10, 20, 30]]
    assert check(part, Q, K, V, heads=[1, 3], rows=[10, 20, 30]).status == "match"
    part[1, 2, 4] += 1
    verdict = check(part, Q, K, V, heads=[1, 3], rows=[10, 20, 30])
    assert "one entry alone: head 4, q31, d_v 5" in places(verdict)
    assert verdict.stages[0].worst[0].index == (3, 30, 4)


def test_the_first_stage_that_differs() -> None:
    stages = {name: copy_of(name) for name in ("output", "weights", "scores", "scaled")}
    assert check(stages, Q, K, V).status == "match"
    stages["weights"][0, 0, 0] += 0.1
    stages["output"][2, 2, 2] += 0.1
    verdict = check(stages, Q, K, V)
    assert verdict.first_difference == "weights"
    assert [stage.name for stage in verdict.stages] == ["scores", "scaled", "weights", "output"]
    assert [stage.matches for stage in verdict.stages] == [True, True, False, False]


def test_tokens_are_named_where_they_have_names() -> None:
    observed = np.array([[0.6698, 0.3302], [0.3302, 0.5]])
    eye = np.eye(2)
    names = ["the", "cat"]
    verdict = check(
        observed, eye, eye, eye, stage="weights", decimals=4, query_labels=names, key_labels=names
    )
    assert verdict.stages[0].worst[0].place == "cat, cat"


def test_the_same_input_gives_the_same_words() -> None:
    observed = copy_of("output") + np.random.default_rng(1).normal(size=(4, 67, 13))
    assert check(observed, Q, K, V) == check(observed.copy(), Q.copy(), K, V)
