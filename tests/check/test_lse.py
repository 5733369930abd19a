"""check of the log-sum-exp: right ones in every type and unit, and each bug of it, by hand."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.check import CATALOGUE, Verdict, check
from attncli.errors import ShapeError, StageError
from tests import plain
from tests.turns import in_turn

FLASH = Path(__file__).parents[1] / "fixtures" / "lse.npz"
RNG = np.random.default_rng(0)
Q, K, V = (RNG.normal(size=shape) for shape in ((3, 7, 5), (3, 37, 5), (3, 37, 13)))
KEEP = RNG.random((7, 37)) < 0.7
KEEP[2] = False
SINKS = np.array([0.5, -1.0, 2.0])
TYPES = ("float64", "float32", "float16")
X = Q @ np.swapaxes(K, -1, -2) / math.sqrt(5)


def log_sum(x: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(x).sum(axis=-1)))


LSE, MASKED = log_sum(X), log_sum(np.where(KEEP, X, -np.inf))
LN2 = math.log(2)


def verdict(lse: Array, dtype: str = "float64", **more: Any) -> Verdict:
    return check(lse.astype(dtype), Q, K, V, stage="lse", pairs=False, **more)


def names(result: Verdict) -> list[str]:
    return [explanation.name for explanation in result.explanations]


def test_a_right_one_matches() -> None:
    """In one type in turn."""
    cases: list[tuple[Array, dict[str, Any]]] = [
        (LSE, {}),
        (LSE[..., None], {}),
        (LSE[:, 2:5], {"rows": slice(2, 5)}),
        (MASKED, {"mask": KEEP}),
        (LSE / LN2, {"lse_base": "2"}),
        (np.logaddexp(LSE, SINKS[:, None]), {"sinks": SINKS}),
    ]
    for number, (lse, how) in enumerate(cases):
        assert verdict(lse, TYPES[number % 3], **how).matches, how


@pytest.mark.parametrize(
    ("kind", "dtype"), in_turn(["plain", "causal"], ["float32", "bfloat16", "float16"])
)
def test_that_of_pytorchs_flash_attention_matches(dtype: str, kind: str) -> None:
    """Recorded by tests/fixtures/make_lse.py."""
    with np.load(FLASH) as file:
        q, k, v = (file[f"{dtype}.{name}"] for name in "qkv")
        lse, output = (file[f"{dtype}.{kind}.{name}"] for name in ("lse", "output"))
    how: dict[str, Any] = {"causal": kind == "causal"}
    assert check({"lse": lse, "output": output}, q, k, v, **how).matches
    alone = check(lse, q, k, v, stage="lse", **how)
    assert (alone.status, alone.notes) == ("match", ())
    assert not check(lse * 1.001, q, k, v, stage="lse", pairs=False, **how).matches


UNIT = math.sqrt(5)


def test_another_unit_is_named() -> None:
    units = [(1 / LN2, "e", "base 2"), (UNIT, "e", "0.44721"), (1, "2", "base e")]
    for factor, base, words in units:
        for lse in (LSE * factor, *([np.round(LSE * factor, 3)] if base == "e" else [])):
            result = verdict(lse, lse_base=base)
            assert result.matches
            assert any(words in note for note in result.notes)
    both = verdict(LSE * UNIT / LN2, "float16")
    assert "base 2 and that of unscaled" in str(both.notes)


def test_infinity_of_an_empty_row_is_read_either_way() -> None:
    result = verdict(np.where(np.isneginf(MASKED), np.inf, MASKED), mask=KEEP)
    assert (result.matches, len(result.notes)) == (True, 1)
    assert "+∞" in result.notes[0]
    both = verdict(np.where(np.isneginf(MASKED), np.inf, MASKED / LN2), mask=KEEP)
    assert (both.matches, len(both.notes)) == (True, 2)


WRONG: dict[str, tuple[Array, dict[str, Any]]] = {
    "lse is the largest score": (X.max(axis=-1), {}),
    "maximum left out of lse": (LSE - X.max(axis=-1), {}),
    "logarithm left out of lse": (np.exp(LSE), {}),
    "lse of powers of 2": (np.log(np.exp2(X).sum(axis=-1)), {}),
    "lse added": (log_sum(X[..., :19]) + log_sum(X[..., 19:]), {}),
    "lse of the last block alone": (log_sum(X[..., 19:]), {}),
    "sinks left out of lse": (LSE, {"sinks": SINKS}),
    "mask left out of lse": (LSE, {"mask": KEEP}),
}


@pytest.mark.parametrize(("name", "dtype"), in_turn(WRONG, TYPES))
def test_the_bug_is_named(name: str, dtype: str) -> None:
    """Among others where lse is alone; alone beside an output that is right."""
    assert {bug.name for bug in CATALOGUE if "lse" in bug.touches} == WRONG.keys()
    lse, more = WRONG[name]
    if dtype == "float16":
        assert name in names(verdict(lse, dtype, **more))
    else:
        with np.errstate(invalid="ignore"):
            output = plain.attention({"q": Q, "k": K, "v": V, **more}, {})["output"]
        observed = {"lse": lse.astype(dtype), "output": output.astype(dtype)}
        assert names(check(observed, Q, K, V, pairs=False, **more)) == [name]


def test_what_changes_the_weights_changes_it_too() -> None:
    # filled up with zeros to 48 keys, whose scores are 0; and without the last five of 37
    padded = np.pad(X, ((0, 0), (0, 0), (0, 11))), np.pad(V, ((0, 0), (0, 11), (0, 0)))
    cases = {"scale left out": (X * UNIT, V), "zero keys of the last block counted": padded}
    for name, (x, v) in {**cases, "last block of keys skipped": (X[..., :32], V[:, :32])}.items():
        observed = {"lse": log_sum(x), "output": np.exp(x - log_sum(x)[..., None]) @ v}
        assert name in names(check(observed, Q, K, V, pairs=False))


def test_what_does_not_fit() -> None:
    with pytest.raises(StageError, match="no lse"):
        verdict(LSE, softmax_over="queries")
    assert verdict(LSE[:, :5]).status == "wrong shape"


@pytest.mark.parametrize(
    ("cuts", "name"),
    [([3], "log-sum-exps of parts added"), ([4, 5, 9], "part without a key not guarded")],
)
def test_parts_that_are_merged_wrongly_are_named(cuts: list[int], name: str) -> None:
    q, k, v = Q, K[:, :11], V[:, :11]
    keep = np.tri(7, 11, 4, dtype=bool)
    x = np.where(keep, X[..., :11], -np.inf)
    parts = [slice(*ends) for ends in itertools.pairwise([0, *cuts, 11])]
    with np.errstate(all="ignore"):
        sums = np.stack([np.exp(x[..., part]).sum(axis=-1) for part in parts])
        outputs = np.stack([np.exp(x[..., part]) @ v[:, part] for part in parts]) / sums[..., None]
        lse = np.log(sums.sum(axis=0))
        if name.startswith("log"):  # of parts without a key 0 / 0, which is guarded
            lse, outputs = np.log(sums).sum(axis=0), np.nan_to_num(outputs)
        output = (np.exp(np.log(sums) - lse)[..., None] * outputs).sum(axis=0)
    observed = {"lse": lse, "output": output}
    assert names(check(observed, q, k, v, mask=keep, split=cuts, pairs=False)) == [name]
    with pytest.raises(ShapeError, match="11 keys"):
        check(observed, q, k, v, mask=keep, split=[12])
