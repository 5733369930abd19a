"""The catalogue: what each row computes, and what the search says of bugs that have no row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.commands.check.bugs.bug import Bug, Evidence
from attncli.commands.check.bugs.catalogue import CATALOGUE, FUNCTIONS
from attncli.commands.check.bugs.patch import patched
from attncli.commands.check.bugs.rewrite import Rewrite
from attncli.commands.check.bugs.terms import sizes_of
from attncli.commands.check.diagnose import check
from attncli.commands.check.generated import described
from attncli.commands.check.search import Search
from attncli.convention import Convention
from attncli.tolerance.comparison import comparison_of, fit
from attncli.tolerance.rule import rule_of
from attncli.tolerance.run import all_of, computes, stages
from attncli.tolerance.setup import setup_of
from tests.commands.check.conventions import BACKWARD, FORWARD, checksum, planted

RECORD: Mapping[str, Mapping[str, list[float]]] = json.loads(
    (Path(__file__).parent / "catalogue.json").read_text(encoding="utf-8")
)
"""Row → input → checksums of its variants, as they were when each was a function of arrays."""
SETUPS = {**FORWARD, **BACKWARD}
ROWS = [bug for bug in CATALOGUE if bug.edits]
ELSEWHERE = {  # on inputs that overflow or are not finite, on tiles, or named by the stage observed
    "scores overflow in float16",
    "NaN leaks from masked keys",
    "NaN leaks from masked values",
    "queries and keys not normalised",
    "softmax over queries, not keys",
    "the observed scores are weights",
    "rows with nothing to attend to become zero",
    "numbers of the mask read as true or false",
    "query heads divided by the number of key heads, not by the group, in dK, dV",
    "m is the tile's own maximum",
    "l not rescaled",
    "acc not rescaled",
    "acc normalised in every tile",
    "padding of the last tile attended",
    "rotary positions on a part of the width",  # of 8 at least
    "softmax left out",
    "batch and tokens exchanged in the inputs",
}
"""Rows that have no effect on the inputs here, or are newer than the record; the planted sets have
them."""


TURNS = {
    name: [*sums][number % len(sums)] for number, (name, sums) in enumerate(RECORD.items()) if sums
}
"""Each row's input of the default run: one of those on record, in turn."""


def lacking_in(label: str, bugs: list[Bug]) -> list[str]:
    """The recorded checksums on an input that no variant of these rows has."""
    lacking = list[str]()
    with np.errstate(all="ignore"):
        for bug in bugs:
            recorded = RECORD.get(bug.name, {}).get(label, [])
            variants = planted(label, SETUPS[label], bug) if recorded else []
            sums = np.array([checksum(x) for x in variants])
            for number in recorded:
                if not np.isclose(sums, number, rtol=1e-4, atol=1e-4).any():
                    lacking.append(f"{bug.name}: {number}")
    return lacking


@pytest.mark.parametrize("label", SETUPS)
def test_rows_compute_what_is_on_record_in_turn(label: str) -> None:
    bugs = [bug for bug in CATALOGUE if TURNS.get(bug.name) == label]
    assert not lacking_in(label, bugs)


@pytest.mark.exhaustive
@pytest.mark.parametrize("label", SETUPS)
def test_rows_compute_what_is_on_record(label: str) -> None:
    assert not lacking_in(label, [*CATALOGUE])


def test_every_label_on_record_is_an_input() -> None:
    assert {*TURNS.values()} <= SETUPS.keys()


def test_every_row_has_edits_or_a_function_and_an_effect() -> None:
    """A formula that is written otherwise must not leave a row without a place to apply."""
    assert {bug.name for bug in CATALOGUE if not bug.edits} == FUNCTIONS.keys()
    assert {bug.name for bug in ROWS} - RECORD.keys() <= ELSEWHERE


def _effect(bug: Bug) -> Search | None:
    """A search for the first variant of a bug that has an effect, on the first input it has."""
    for label, setup in SETUPS.items():
        for wrong in planted(label, setup, bug)[:1]:
            rule = rule_of(None, 1e-9, 1e-12, "float64", None)
            return Search(comparison_of(setup, all_of(setup.shape), wrong, rule))
    return None


def test_bugs_of_key_lengths_stand_beside_any_other() -> None:
    """The mask of one may read the lengths that the other leaves out."""
    rng = np.random.default_rng(3)
    arrays = (rng.normal(size=(2, 2, n, 5)) for n in (1, 3, 3))
    convention = Convention(causal=True, causal_align="bottom-right")
    setup = setup_of(*arrays, convention=convention, kv_len=np.array([2, 3]))
    every, names = all_of(setup.shape), ["output"]
    other = {name: x + 1.0 for name, x in stages(setup, every, names).items()}
    evidence, n_pairs = Evidence(other, other), 0
    bugs = [bug for bug in CATALOGUE if bug.pairs and not bug.is_fitted]
    for first, second in permutations(bugs, 2):
        if "padding" not in first.touches | second.touches or first.touches & second.touches:
            continue
        with np.errstate(all="ignore"):
            for one in first.change(setup, evidence):
                for both in second.change(one, evidence):
                    if not both.is_refused and computes(both, names):
                        assert stages(both, every, names)["output"].shape == (2, 2, 1, 5)
                        n_pairs += 1
    assert n_pairs > 700


@pytest.mark.exhaustive
def test_bugs_without_a_row_are_described_by_an_edit() -> None:
    """Of each row, planted: the search that knows no bug finds an edit with its numbers."""
    with np.errstate(all="ignore"):
        searches = [search for bug in ROWS if (search := _effect(bug)) is not None]
        n_described = sum(described(search) is not None for search in searches)
    assert n_described >= 0.6 * len(CATALOGUE)


def test_an_unknown_slip_is_said_as_the_edit_that_it_is() -> None:
    """dS with the weights twice, A ∘ (dA − δ) ∘ A, which nobody has written a row for."""
    rng = np.random.default_rng(41)
    q, k, v, d = (rng.normal(size=(n, 7)) for n in (3, 5, 5, 3))
    scores = q @ k.T / np.sqrt(7)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    d_weights = d @ v.T
    delta = (weights * d_weights).sum(axis=-1, keepdims=True)
    wrong = weights * (d_weights - delta) * weights
    verdict = check(d_scores=wrong / np.sqrt(7), q=q, k=k, v=v, d_output=d)
    assert verdict.status == "no match"
    assert verdict.edit is not None
    assert "d_scaled" in verdict.edit.stage or "d_scores" in verdict.edit.stage
    assert verdict.edit.formula != verdict.edit.edited
    assert "no known bug" in str(verdict)
    assert verdict.edit.edited in str(verdict)


def _slip(name: str) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
    """The numbers of one slip, and the call of check."""
    rng = np.random.default_rng(59)
    q, k, v, past_k, past_v = (
        rng.normal(size=(2, heads, n, d))
        for heads, n, d in ((6, 5, 7), (3, 11, 7), (3, 11, 2), (3, 13, 7), (3, 13, 2))
    )
    arrays: dict[str, Any] = {"q": q, "k": k, "v": v}
    sinks, shared = rng.normal(size=6), np.arange(6) // 2
    keys_of, values_of = (np.arange(6) // 3 if name == "group" else shared), shared
    hidden = np.zeros((5, 11), dtype=bool)
    if name == "group":
        values_of = keys_of
    if name == "values tiled":
        values_of = np.arange(6) % 3
    if name == "blocks":
        arrays["causal"], hidden = True, np.arange(11) // 4 > np.arange(5)[:, None] // 4
    if name == "beams":
        arrays |= {"past_k": past_k, "past_v": past_v}
        k = np.concatenate([past_k[::-1], k], axis=2)
        v = np.concatenate([past_v[::-1], v], axis=2)
        hidden = np.zeros((5, 24), dtype=bool)
    if name == "reshaped":
        k = np.swapaxes(k.reshape(2, 3, 7, 11), 2, 3)
    scores = q @ np.swapaxes(k[:, keys_of], 2, 3) / np.sqrt(7)
    scores = np.where(hidden, -np.inf, scores)
    top = scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores - top)
    sums = powers.sum(axis=-1, keepdims=True)
    if name == "first key":
        sums = sums - powers[..., :1]
    if name == "whole matrix":
        sums = np.exp(scores).sum(axis=(2, 3), keepdims=True) * np.exp(-top)
    if name == "first sink":
        arrays["sinks"] = sinks
        sums = sums + np.exp(sinks[0] - top)
    output = powers / sums @ v[:, values_of]
    if name == "log2":
        return {"output": output, "lse": (top + np.log2(sums))[..., 0]}, arrays
    return {"output": output}, arrays


def test_the_sink_of_one_head_for_all_heads() -> None:
    observed, call = _slip("first sink")
    (explanation,) = check(dict(observed), **call).explanations
    assert f"heads 2 to {len(call['sinks'])} is that of head 1" in explanation.name


@pytest.mark.parametrize(
    ("name", "stage", "new"),
    [
        ("first key", "weights", "where c ≥ 1"),
        ("whole matrix", "weights", "softmax[i,j]"),
        ("log2", "lse", "log2(sum[c]"),
        ("group", "scores", "k[b,h // size[g]"),
        ("values tiled", "output", "v[b,h % size[g]"),
        ("beams", "input.k", "j < n_cached"),
        ("reshaped", "input.k", "d · size[j] + j"),
    ],
)
def test_slips_of_kernels_caches_and_heads(name: str, stage: str, new: str) -> None:
    observed, call = _slip(name)
    verdict = check(dict(observed), **call)
    assert verdict.status == "no match"
    assert verdict.edit is not None
    assert verdict.edit.stage == stage
    assert new in verdict.edit.new + verdict.edit.edited


def test_causal_by_blocks_is_an_answer_of_the_numbers() -> None:
    observed, call = _slip("blocks")
    (explanation,) = check(dict(observed), **call).explanations
    assert "causal by blocks of 4" in explanation.name


def test_values_are_not_rescaled_in_small_blocks() -> None:
    """A walk of an example, through blocks of 4 keys, that forgets to rescale its output."""
    rng = np.random.default_rng(67)
    q, k, v = (rng.normal(size=(n, d)) for n, d in ((5, 7), (11, 7), (11, 3)))
    top, total, output = np.full(5, -np.inf), np.zeros(5), np.zeros((5, 3))
    for first in range(0, 11, 4):
        scores = q @ k[first : first + 4].T / np.sqrt(7)
        new = np.maximum(top, scores.max(axis=1))
        powers = np.exp(scores - new[:, None])
        total = total * np.exp(top - new) + powers.sum(axis=1)
        output, top = output + powers @ v[first : first + 4], new
    (explanation,) = check(output / total[:, None], q, k, v).explanations
    assert explanation.name == "sum not rescaled when the maximum grows"
    assert "blocks of 4 keys" in explanation.details[0]


def test_a_window_with_its_bounds_exchanged_is_an_edit() -> None:
    rng = np.random.default_rng(71)
    q, k, v = (rng.normal(size=(n, d)) for n, d in ((7, 5), (11, 5), (11, 3)))
    apart = np.arange(11) - np.arange(7)[:, None]
    scores = np.where((apart >= -2) & (apart <= 4), q @ k.T / np.sqrt(5), -np.inf)
    powers = np.exp(scores)
    verdict = check(powers / powers.sum(axis=1, keepdims=True) @ v, q, k, v, window=(4, 2))
    assert verdict.edit is not None
    assert (verdict.edit.stage, verdict.edit.edited) == ("how.window", "window is (ahead, back)")


def test_random_numbers_are_described_by_no_edit() -> None:
    rng = np.random.default_rng(43)
    q, k, v, noise = (rng.normal(size=(n, 5)) for n in (3, 7, 7, 3))
    assert check(noise, q, k, v).edit is None


def test_what_nothing_explains_is_so_where_the_sum_of_each_row_was_observed_too() -> None:
    """Softmax over queries, one of the conventions that are tried, has no log-sum-exp."""
    rng = np.random.default_rng(47)
    q, k, v, output, lse = (rng.normal(size=n) for n in ((3, 5), (7, 5), (7, 5), (3, 5), 3))
    verdict = check({"lse": lse, "output": output}, q, k, v)
    assert (verdict.status, verdict.edit) == ("no match", None)


def test_an_edit_may_read_a_mask_alone() -> None:
    """One mask has no axis of heads; the numbers that it leaves for all heads are of each."""
    rng = np.random.default_rng(53)
    q, k, v = (rng.normal(size=(2, 3, n, d)) for n, d in ((5, 11), (7, 11), (7, 13)))
    mask = np.where(rng.random((5, 7)) < 0.7, 0.0, -np.inf)
    mask[:, 0] = 0.0
    setup = setup_of(q, k, v, convention=Convention(), mask=mask)
    rewrite = Rewrite("", "mask[b,h,i,j]", sizes=sizes_of(setup, "masked"))
    weights = np.exp(mask) / np.exp(mask).sum(axis=-1, keepdims=True)
    output = np.broadcast_to(weights @ v, (2, 3, 5, 13)).astype(np.float32)
    rule = rule_of(None, None, None, "float32", None)
    comparison = comparison_of(setup, all_of(setup.shape), {"output": output}, rule)
    changed = patched(setup, {"masked": rewrite})
    assert changed is not None
    assert not comparison.matches
    assert fit(changed, comparison) is not None
