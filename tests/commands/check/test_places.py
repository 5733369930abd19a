"""Where numbers differ is described; and where nothing explains them, no bug is named."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from attncli import attend
from attncli.arrays import Array
from attncli.commands.check.diagnose import check
from attncli.commands.check.verdict import Verdict
from tests.commands.check.planted.rows import names

RNG = np.random.default_rng(17)
Q, K, V = (RNG.normal(size=shape) for shape in ((4, 67, 7), (4, 71, 7), (4, 71, 13)))
TRACE = attend(Q, K, V)
OUTPUT = TRACE["output"].value
NOISE = RNG.normal(size=OUTPUT.shape)
ROW, KEY = np.indices((67, 71))
EVERY = slice(None)


def verdict_on(observed: Any, **convention: Any) -> Verdict:
    return check(observed, Q, K, V, pairs=False, **convention)


def put(at: Any, value: Any) -> Callable[[Array], Array]:
    """Numbers written over those at a place."""

    def change(x: Array) -> Array:
        x = x.copy()
        x[at] = value
        return x

    return change


@pytest.mark.parametrize(
    ("stage", "change", "bugs", "place"),
    [  # of a place that ends in a full stop, nothing else is said
        ("output", lambda x: x + NOISE * (NOISE > 0), [], "scattered"),
        ("output", put(1, NOISE[1]), [], "only in head 2."),
        ("output", lambda x: x * 3, ["output times a factor"], "observed = 3 · expected."),
        ("output", lambda x: x + 0.5, ["0.5 is added to every number of the output"], "observed = expected + 0.5."),
        ("output", lambda x: np.roll(x, 1, axis=1), ["rows shifted by one"], "rows q2 to q67 have the numbers of the row 1 before."),
        ("output", put((EVERY, 30), OUTPUT[:, 29]), None, "q31 has the numbers of q30"),
        ("output", put((EVERY, slice(64, 67)), 0), None, "only in rows q65 to q67: the last block of 16, 32 or 64."),
        ("output", put((EVERY, slice(48, 67)), 0), None, "only in rows q49 to q67."),
        ("output", put((0, slice(3, 5)), np.nan), [], "NaN or infinite in each of them"),
        ("weights", put((..., slice(64, 71)), 0), None, "columns k65 to k71: the last block of 16, 32 or 64"),
        ("scores", put((EVERY, KEY > ROW + 2), 9.0), None, "after the diagonal: the key 3 after"),
    ],
)  # fmt: skip
def test_the_place_is_named(stage: str, change: Any, bugs: list[str] | None, place: str) -> None:
    verdict = verdict_on(change(TRACE[stage].value), stage=stage)
    assert bugs is None or names(verdict) == bugs
    told = verdict.stages[0].places
    assert [place.rstrip(".") in text for text in told].count(True) == 1
    if place.endswith("."):
        assert (len(told), told[0].endswith(place[:-1])) == (1, True)


def test_one_wrong_element() -> None:
    verdict = verdict_on(put((2, 5, 11), OUTPUT[2, 5, 11] + 0.25)(OUTPUT))
    (stage,) = verdict.stages
    assert "one entry alone: head 3, q6, d_v 12" in stage.places
    (worst,) = stage.worst
    assert (worst.place, worst.index) == ("head 3, q6, d_v 12", (2, 5, 11))
    assert worst.observed == pytest.approx(worst.expected + 0.25)
    assert worst.expected == pytest.approx(OUTPUT[2, 5, 11], abs=1e-12)
    assert stage.share_wrong == 1 / OUTPUT.size
    assert stage.largest == pytest.approx(0.25)


def test_masked_entries_only() -> None:
    right = attend(Q, K, V, causal=True)["weights"].value
    observed = put((EVERY, (KEY > ROW) & (KEY % 3 == 0)), 0.01)(right)
    verdict = verdict_on(observed, stage="weights", causal=True)
    assert "only in masked entries" in verdict.stages[0].places
    assert verdict.status == "no match"


def test_a_mask_of_keys_alone_masks_every_row() -> None:
    mask = np.where(np.arange(71) % 3 == 0, -np.inf, 0.0)  # one number for each key
    right = attend(Q, K, V, mask=mask)["weights"].value
    observed = put((EVERY, EVERY, KEY[0] % 3 == 0), 0.01)(right)
    verdict = verdict_on(observed, stage="weights", mask=mask)
    assert "only in masked entries" in verdict.stages[0].places


def test_nan_on_one_side_matches_at_no_tolerance() -> None:
    verdict = verdict_on(put((0, slice(3, 5)), np.nan)(OUTPUT), atol=1e9)
    assert (verdict.matches, verdict.stages[0].largest) == (False, np.inf)


def test_some_heads_and_rows_are_named_as_in_the_whole() -> None:
    part = OUTPUT[[1, 3]][:, [10, 20, 30]]
    part[1, 2, 4] += 1
    (stage,) = verdict_on(part, heads=[1, 3], rows=[10, 20, 30]).stages
    assert "one entry alone: head 4, q31, d_v 5" in stage.places
    assert stage.worst[0].index == (3, 30, 4)


def test_the_first_stage_that_differs() -> None:
    stages = {name: TRACE[name].value for name in ("output", "weights", "scores", "scaled")}
    verdict = verdict_on({**stages, "weights": stages["weights"] + 0.1, "output": OUTPUT + 0.1})
    assert verdict.first_difference == "weights"
    matches = [(stage.name, stage.matches) for stage in verdict.stages]
    assert matches == [("scores", True), ("scaled", True), ("weights", False), ("output", False)]


def test_tokens_are_named_where_they_have_names() -> None:
    observed, labels = np.array([[0.6698, 0.3302], [0.3302, 0.5]]), ["the", "cat"]
    convention: dict[str, Any] = {"stage": "weights", "query_labels": labels, "key_labels": labels}
    verdict = check(observed, *[np.eye(2)] * 3, decimals=4, **convention)
    assert verdict.stages[0].worst[0].place == "cat, cat"
