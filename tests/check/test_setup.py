"""A changed setup computes the same numbers over a subset, and piece by piece, as over everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli import Convention
from attncli.attention import functional
from attncli.attention.run import Change
from attncli.check import CATALOGUE, Bug
from attncli.check.bugs.bug import Evidence
from attncli.check.run import Subset, all_of, stages
from attncli.check.setup import Setup, setup_of

RNG = np.random.default_rng(11)
Q, K, V = (RNG.normal(size=(3, 4, 11, 5)) for _ in "qkv")
MASK = RNG.random((3, 1, 11, 11)) < 0.8
CAUSAL = Convention(causal=True, window=(4, 0))
SETUPS: dict[str, Setup] = {
    "plain": setup_of(Q, K, V),
    "wide": setup_of(Q, K, np.concatenate([V, 2 * V], axis=-1)),
    "masked": setup_of(Q, K, V, convention=CAUSAL, mask=MASK, kv_len=[11, 9, 6]),
    "grouped": setup_of(Q, K[:, :2], V[:, :2]),
    "past": setup_of(Q[:, :, :2], K[:, :, :2], V[:, :, :2], past_k=K[:, :, 2:], past_v=V[:, :, 2:]),
}
WANTED = ("weights", "output")


@pytest.mark.parametrize("name", SETUPS)
@pytest.mark.parametrize("bug", CATALOGUE, ids=lambda bug: bug.name)
def test_over_a_subset_and_piece_by_piece(
    bug: Bug, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = SETUPS[name]
    observed = {x: y + 1.0 for x, y in stages(setup, all_of(setup.shape), ["output"]).items()}
    at = Subset(np.array([2, 0]), np.array([1, 3]), np.array([1, 0]))
    for variant in bug.change(setup, Evidence(observed, observed)):
        whole = stages(variant, all_of(variant.shape), WANTED)
        with monkeypatch.context() as patch:
            patch.setattr("attncli.check.run.CELLS", 100)
            pieces = stages(variant, all_of(variant.shape), WANTED)
        part = stages(variant, at, WANTED)
        for stage in WANTED:
            np.testing.assert_allclose(pieces[stage], whole[stage], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(
                part[stage], whole[stage][np.ix_(*at)], rtol=1e-9, atol=1e-12
            )


def test_two_changes_of_one_step_join() -> None:
    def weights(x: Any, allowed: Any = None, *, axis: int, **_: Any) -> Any:
        return functional.softmax(x, axis=axis)

    setup = setup_of(Q, K, V)
    expected = stages(setup.with_how(softmax_over="queries"), all_of(setup.shape), ["weights"])[
        "weights"
    ]
    joined: tuple[tuple[Change, Change], ...] = (
        ({"axis": -2}, weights),
        (weights, {"axis": -2}),
        ({"axis": -2}, {}),
    )
    for changes in joined:
        changed = setup
        for change in changes:
            changed = changed.with_steps(weights=change)
        found = stages(changed.with_whole(2), all_of(setup.shape), ["weights"])["weights"]
        np.testing.assert_allclose(found, expected)


def test_what_is_computed_in_place_of_a_row() -> None:
    setup = setup_of(Q, K, V, convention=Convention(causal=True))
    rows = np.where(np.arange(11) < 10, np.arange(11) + 1, -1)
    plain = stages(setup, all_of(setup.shape), ["output"])["output"]
    found = stages(setup.with_instead(2, rows), all_of(setup.shape), ["output"])["output"]
    # Ten rows and eleven: a matrix product may add up in another order for each number of rows.
    np.testing.assert_allclose(found[:, :, :-1], plain[:, :, 1:], rtol=1e-14, atol=1e-15)
    assert not found[:, :, -1].any()
