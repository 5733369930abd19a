"""A changed setup computes the same numbers over a subset, and piece by piece, as over everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli import Convention
from attncli.attention import functional
from attncli.attention.run import Change
from attncli.check import CATALOGUE
from attncli.check.bugs.bug import Evidence
from attncli.check.run import Subset, all_of, stages
from attncli.check.setup import Setup, setup_of

RNG = np.random.default_rng(11)
Q, K, V = (RNG.normal(size=(3, 4, 11, 5)) for _ in "qkv")
MASK = RNG.random((3, 1, 11, 11)) < 0.8
CAUSAL = Convention(causal=True, window=(4, 0))
SETUPS: dict[str, dict[str, Any]] = {
    "plain": {},
    "wide": {"v": np.concatenate([V, 2 * V], axis=-1)},
    "masked": {"convention": CAUSAL, "mask": MASK, "kv_len": [11, 9, 6]},
    "grouped": {"k": K[:, :2], "v": V[:, :2]},
    "past": {
        "q": Q[:, :, :2], "k": K[:, :, :2], "v": V[:, :, :2],
        "past_k": K[:, :, 2:], "past_v": V[:, :, 2:],
    },
}  # fmt: skip
WANTED = ("weights", "output")


def over(setup: Setup, *wanted: str) -> dict[str, Any]:
    return stages(setup, all_of(setup.shape), wanted)


@pytest.mark.parametrize("name", SETUPS)
def test_over_a_subset_and_piece_by_piece(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every bug of the catalogue that applies."""
    setup = setup_of(**{"q": Q, "k": K, "v": V, **SETUPS[name]})
    observed = {"output": over(setup, "output")["output"] + 1.0}
    at = Subset(np.array([2, 0]), np.array([1, 3]), np.array([1, 0]))
    other, n_variants = [], 0
    for bug in CATALOGUE:
        for variant in bug.change(setup, Evidence(observed, observed)):
            n_variants += 1
            whole, part = over(variant, *WANTED), stages(variant, at, WANTED)
            with monkeypatch.context() as patch:
                patch.setattr("attncli.check.run.CELLS", 100)
                pieces = over(variant, *WANTED)
            for stage in WANTED:
                ends = (pieces[stage], whole[stage]), (part[stage], whole[stage][np.ix_(*at)])
                if not all(np.allclose(x, y, 1e-9, 1e-12, equal_nan=True) for x, y in ends):
                    other.append((bug.name, stage))
    assert not other
    assert n_variants > 50


def test_two_changes_of_one_step_join() -> None:
    def weights(x: Any, allowed: Any = None, *, axis: int, **_: Any) -> Any:
        return functional.softmax(x, axis=axis)

    setup = setup_of(Q, K, V)
    expected = over(setup.with_how(softmax_over="queries"), "weights")["weights"]
    joined: tuple[tuple[Change, Change], ...] = (
        ({"axis": -2}, weights),
        (weights, {"axis": -2}),
        ({"axis": -2}, {}),
    )
    for first, second in joined:
        changed = setup.with_steps(weights=first).with_steps(weights=second).with_whole(2)
        np.testing.assert_allclose(over(changed, "weights")["weights"], expected)
