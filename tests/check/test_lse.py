"""check --stage lse: right ones in every type and unit, and each bug of SUMS, written by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.check import CATALOGUE, Verdict, check
from attncli.errors import ShapeError, StageError

SUMS = [bug for bug in CATALOGUE if "lse" in bug.touches]
FLASH = np.load(Path(__file__).parents[1] / "fixtures" / "lse.npz")
RNG = np.random.default_rng(0)
Q, K, V = (RNG.normal(size=shape) for shape in ((3, 7, 5), (3, 37, 5), (3, 37, 13)))
KEEP = RNG.random((7, 37)) < 0.7
KEEP[2] = False
SINKS = np.array([0.5, -1.0, 2.0])
TYPES = ("float64", "float32", "float16")


def scores(q: Array = Q, k: Array = K) -> Array:
    return np.asarray(q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1]))


def log_sum(x: Array, axis: int = -1) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(x).sum(axis=axis)))


def masked() -> Array:
    return np.where(KEEP, scores(), -np.inf)


def verdict(lse: Array, dtype: str = "float64", **more: Any) -> Verdict:
    return check(lse.astype(dtype), Q, K, V, stage="lse", **more)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_right_one_matches(dtype: str) -> None:
    assert verdict(log_sum(scores()), dtype).matches
    assert verdict(log_sum(scores())[..., None], dtype).matches
    assert verdict(log_sum(masked()), dtype, mask=KEEP).matches
    assert verdict(log_sum(scores()) / math.log(2), dtype, lse_base="2").matches
    with_sinks = np.logaddexp(log_sum(scores()), SINKS[:, None])
    assert verdict(with_sinks, dtype, sinks=SINKS).matches


@pytest.mark.parametrize("kind", ["plain", "causal"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_that_of_pytorchs_flash_attention_matches(dtype: str, kind: str) -> None:
    """Recorded by tests/fixtures/make_lse.py."""
    q, k, v = (FLASH[f"{dtype}.{name}"] for name in "qkv")
    how: dict[str, Any] = {"causal": kind == "causal"}
    lse, output = (FLASH[f"{dtype}.{kind}.{name}"] for name in ("lse", "output"))
    assert check(lse, q, k, v, stage="lse", **how).notes == ()
    assert check(lse, q, k, v, stage="lse", **how).matches
    assert check({"lse": lse, "output": output}, q, k, v, **how).matches
    assert not check(lse * 1.001, q, k, v, stage="lse", pairs=False, **how).matches


@pytest.mark.parametrize("dtype", TYPES)
def test_another_unit_is_named(dtype: str) -> None:
    lse, factor = log_sum(scores()), 1 / math.sqrt(5)
    for observed, said in (
        (lse / math.log(2), "lse is in base 2: your lse · ln 2 matches"),
        (lse / factor, "lse is that of unscaled scores: your lse · 0.44721 matches"),
        (lse / factor / math.log(2), "lse is in base 2 and that of unscaled scores"),
    ):
        found = verdict(observed, dtype)
        assert found.matches
        assert any(note.startswith(said) for note in found.notes)
    found = verdict(lse, dtype, lse_base="2")
    assert any(note == "lse is in base e: your lse / ln 2 matches" for note in found.notes)


def test_rounded_numbers_in_another_unit_are_named() -> None:
    found = verdict(np.round(log_sum(scores()) / math.log(2), 3))
    assert found.matches
    assert any(note.startswith("lse is in base 2") for note in found.notes)


def test_infinity_of_an_empty_row_is_read_either_way() -> None:
    lse = log_sum(masked())
    found = verdict(np.where(np.isneginf(lse), np.inf, lse), mask=KEEP)
    assert found.matches
    assert found.notes == (
        "lse is +∞ where there is nothing to attend to, as FlashAttention 2 writes it: read as −∞",
    )
    both = verdict(np.where(np.isneginf(lse), np.inf, lse / math.log(2)), mask=KEEP)
    assert len(both.notes) == 2
    assert both.matches


def in_halves(x: Array) -> tuple[Array, Array]:
    return log_sum(x[..., :19]), log_sum(x[..., 19:])


WRONG: dict[str, tuple[Callable[[], Array], dict[str, Any]]] = {
    "lse is the largest score": (lambda: scores().max(axis=-1), {}),
    "maximum left out of lse": (lambda: log_sum(scores()) - scores().max(axis=-1), {}),
    "logarithm left out of lse": (lambda: np.exp(scores()).sum(axis=-1), {}),
    "lse of powers of 2": (lambda: np.log(np.exp2(scores()).sum(axis=-1)), {}),
    "lse added": (lambda: np.add(*in_halves(scores())), {}),
    "lse of the last block alone": (lambda: in_halves(scores())[1], {}),
    "sinks left out of lse": (lambda: log_sum(scores()), {"sinks": SINKS}),
    "mask left out of lse": (lambda: log_sum(scores()), {"mask": KEEP}),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", WRONG)
def test_the_bug_is_named(name: str, dtype: str) -> None:
    make, more = WRONG[name]
    found = verdict(make(), dtype, pairs=False, **more)
    assert name in [explanation.name for explanation in found.explanations]
    output = np.exp(masked() if "mask" in more else scores())
    sums = output.sum(axis=-1, keepdims=True)
    sums = sums + np.exp(SINKS)[:, None, None] if "sinks" in more else np.where(sums, sums, 1)
    output = output / sums @ V
    if dtype != "float16":
        observed = {"lse": make().astype(dtype), "output": output.astype(dtype)}
        both = check(observed, Q, K, V, pairs=False, **more)
        assert [explanation.name for explanation in both.explanations] == [name]


def test_every_bug_has_a_case() -> None:
    assert {bug.name for bug in SUMS} == WRONG.keys()


def test_a_wrong_scale_is_seen_in_it() -> None:
    found = verdict(log_sum(scores() * math.sqrt(5)))
    assert "scale left out" in [explanation.name for explanation in found.explanations]


def test_keys_that_a_kernel_counts_or_loses_are_so_in_both() -> None:
    """The keys filled up with zeros to 48, whose scores are 0; and without the last five of 37."""
    padded = np.concatenate([scores(), np.zeros((3, 7, 11))], axis=-1)
    lost = scores()[..., :32]
    for x, v, name in (
        (padded, np.pad(V, ((0, 0), (0, 11), (0, 0))), "zero keys of the last block counted"),
        (lost, V[:, :32], "last block of keys skipped"),
    ):
        output = np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True) @ v
        found = check({"lse": log_sum(x), "output": output}, Q, K, V, pairs=False)
        assert name in [explanation.name for explanation in found.explanations]


def test_a_softmax_over_queries_has_none() -> None:
    with pytest.raises(StageError, match="no lse"):
        verdict(log_sum(scores()), softmax_over="queries")


def test_a_wrong_shape_is_said() -> None:
    assert verdict(log_sum(scores())[:, :5]).status == "wrong shape"
    assert verdict(log_sum(scores())[:, 2:5], rows=slice(2, 5)).matches


def in_parts(cuts: list[int], how: str) -> dict[str, Array]:
    """Output and log-sum-exp of parts of the keys, merged wrongly; in NumPy."""
    rng = np.random.default_rng(43)
    q, k, v = (rng.normal(size=(3, n, d)) for n, d in ((7, 5), (11, 5), (11, 13)))
    keep = np.tri(7, 11, 4, dtype=bool)
    x = np.where(keep, q @ k.swapaxes(-1, -2) / np.sqrt(5), -np.inf)
    with np.errstate(all="ignore"):
        pieces = [slice(a, b) for a, b in itertools.pairwise([0, *cuts, 11])]
        sums = np.stack([np.exp(x[..., at]).sum(axis=-1) for at in pieces])
        values = [np.exp(x[..., at]) @ v[:, at] for at in pieces]
        outputs = np.stack(values) / sums[..., None]
        lse = np.log(sums)
        total = {
            "averaged": np.log(sums.sum(axis=0)),
            "base": np.log(np.exp(lse / np.log(2)).sum(axis=0)),
            "added": lse.sum(axis=0),
            "unguarded": np.log(sums.sum(axis=0)),
        }[how]
        shares = np.exp((lse / np.log(2) if how == "base" else lse) - total)
        shares = np.full_like(shares, 1 / len(shares)) if how == "averaged" else shares
        if how != "unguarded":
            outputs = np.where(sums[..., None] == 0, 0, outputs)
        output = (shares[..., None] * outputs).sum(axis=0)
    return {"q": q, "k": k, "v": v, "mask": keep, "output": output, "lse": total}


@pytest.mark.parametrize(
    ("cuts", "how", "name"),
    [
        ([4, 5], "averaged", "blocks averaged without their log-sum-exp"),
        ([4, 5], "base", "blocks merged in the wrong base"),
        ([3], "added", "log-sum-exps of parts added"),
        ([4, 5, 9], "unguarded", "part without a key not guarded"),
    ],
)
def test_parts_that_are_merged_wrongly_are_named(cuts: list[int], how: str, name: str) -> None:
    given: dict[str, Any] = in_parts(cuts, how)
    observed = {stage: given.pop(stage) for stage in ("output", "lse")}
    verdict = check(observed, **given, split=cuts, pairs=False)
    assert [explanation.name for explanation in verdict.explanations] == [name]
    with pytest.raises(ShapeError, match="11 keys cannot be split at 12"):
        check(observed, **given, split=[12])
