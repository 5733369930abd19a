"""What a cause must do: lower every measure that is printed, be supported by more numbers than it
fits, and be a formula that a person can read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli.commands.check.bugs.catalogue import CATALOGUE
from attncli.commands.check.bugs.page import page
from attncli.commands.check.diagnose import check
from attncli.commands.check.explanations import Change
from tests.commands.check.planted.parts import TYPES

Array = np.ndarray[Any, Any]
MORE = pytest.mark.exhaustive


def _attention(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    """The output in float64; 0 where a query sees no key."""
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    keep = np.ones(scores.shape, bool) if mask is None else np.broadcast_to(mask, scores.shape)
    powers = np.where(keep, np.exp(scores), 0.0)
    total = powers.sum(axis=-1, keepdims=True)
    return np.asarray(powers / np.where(total == 0, 1, total) @ v)


def _inputs(seed: int, heads: int, n_q: int, n_k: int, d_k: int, d_v: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    shapes = (heads, n_q, d_k), (heads, n_k, d_k), (heads, n_k, d_v)
    return [rng.normal(size=shape) for shape in shapes]


# ---- less exact arithmetic inside


@pytest.mark.parametrize("dtype", [pytest.param("float64", marks=MORE), "float32"])
@pytest.mark.parametrize("factor", [1.01, pytest.param(1.005, marks=MORE)])
def test_a_channel_of_the_keys_that_is_larger_is_no_arithmetic_inside(
    dtype: str, factor: float
) -> None:
    q, k, v = (x.astype(dtype) for x in _inputs(1, 2, 7, 11, 5, 5))
    larger = k.astype(np.float64)
    larger[..., 1] *= factor
    observed = _attention(q.astype(np.float64), larger, v).astype(dtype)
    verdict = check(observed, q, k, v)
    assert verdict.status in ("no match", "found")
    assert not check(observed, q, k, v, inside="bfloat16").matches


@pytest.mark.parametrize("inside", [pytest.param("bfloat16", marks=MORE), "float16"])
def test_products_of_16_bits_are_still_arithmetic_inside(inside: str) -> None:
    """Q, K, weights and V rounded before their products, as in a kernel that keeps float32 else."""
    for seed, sizes in enumerate([(2, 7, 11, 5, 5), (2, 31, 37, 13, 7), (1, 3, 2, 5, 3)]):
        q, k, v = (x.astype(np.float32) for x in _inputs(seed, *sizes))
        low_q, low_k, low_v = (x.astype(TYPES[inside]).astype(np.float64) for x in (q, k, v))
        powers = np.exp(low_q @ np.swapaxes(low_k, 1, 2) / np.sqrt(sizes[3]))
        weights = powers / powers.sum(axis=-1, keepdims=True)
        observed = (weights.astype(TYPES[inside]).astype(np.float64) @ low_v).astype(np.float32)
        verdict = check(observed, q, k, v)
        assert (verdict.status, verdict.explanations) == ("inside", ())
        assert check(observed, q, k, v, inside=inside).matches  # type: ignore[arg-type]


# ---- every measure


@pytest.mark.parametrize(
    "dtype", ["bfloat16", *(pytest.param(dtype, marks=MORE) for dtype in ("float16", "float32"))]
)
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 4), marks=MORE)])
def test_a_cause_lowers_the_root_mean_square_and_the_largest_error(
    dtype: str, seeds: range
) -> None:
    """Of kernels whose scores, values or sinks are a little off."""
    for seed in seeds:
        q, k, v = _inputs(seed, 2, 31, 37, 13, 7)
        q, k, v = (x.astype(TYPES.get(dtype, np.float32)) for x in (q, k, v))
        wide = [x.astype(np.float64) for x in (q, k, v)]
        for factors in ((1.02, 1, 1), (1, 1, 1.01), (1.01, 1, 0.99)):
            wrong = _attention(*(x * factor for x, factor in zip(wide, factors, strict=True)))
            verdict = check(wrong.astype(q.dtype), q, k, v, pairs=False)
            differing = {stage.name for stage in verdict.stages if not stage.matches}
            for explanation in verdict.explanations:
                for stage, left in explanation.errors.items():
                    if stage in differing or verdict.quiet:
                        assert left.rms < left.rms_without, (seed, factors)
                        assert left.largest < left.largest_without, (seed, factors)


# ---- more numbers than are fitted

FITTED = {bug.name for bug in CATALOGUE if bug.is_fitted}


def test_one_wrong_number_is_no_factor_where_a_mask_leaves_one_query() -> None:
    q, k, v = _inputs(0, 3, 5, 7, 3, 3)
    mask = np.zeros((5, 7), bool)
    mask[2, 3] = True
    observed = _attention(q, k, v, mask)
    observed[0, 2, 1] += 0.77
    assert check(observed, q, k, v, mask=mask).status == "no match"


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 43), marks=MORE)])
def test_one_wrong_number_of_few_is_never_named_by_a_fitted_one(seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng([5, seed])
        heads, n_q, n_k, d_k, d_v = (int(x) for x in rng.integers(1, 4, size=5))
        q, k, v = _inputs(seed, heads, n_q, n_k, d_k, d_v)
        mask = rng.random((n_q, n_k)) < 0.4
        mask[rng.integers(n_q), rng.integers(n_k)] = True
        observed = _attention(q, k, v, mask)
        index = tuple(rng.choice(np.argwhere(observed != 0)))
        observed[index] += rng.choice([-1, 1]) * (0.1 + rng.random())
        arrays: dict[str, Any] = {"mask": mask}
        if rng.random() < 0.5:
            arrays["sinks"] = np.full(heads, -80.0)  # too small to count
        verdict = check(observed, q, k, v, **arrays, pairs=False)
        names = {bug.name for one in verdict.explanations for bug in one.bugs}
        assert not verdict.matches
        assert not names & FITTED, (seed, names)


# ---- the fix


def test_every_fix_is_cut_at_whole_brackets() -> None:
    """Of every edit of every row, as its page shows it."""
    fixes = [(bug.name, change.fix) for bug in CATALOGUE for change in page(bug).changes]
    cut = [(name, fix) for name, fix in fixes if not all(map(_is_whole, _parts(fix)))]
    assert len(fixes) > 300
    assert not cut


def _parts(fix: str) -> list[str]:
    for verb in ("write ", "add ", "leave out "):
        fix = fix.removeprefix(verb)
    return fix.split(" where it has ")


def _is_whole(text: str) -> bool:
    opened = []
    for sign in text:
        if sign in "([":
            opened.append(sign)
        elif sign in ")]" and (not opened or opened.pop() != {")": "(", "]": "["}[sign]):
            return False
    return not opened


@pytest.mark.parametrize(
    ("right", "wrong", "fix"),
    [
        (
            "M[b,i,j] = 0 if j ≤ i + (n[b] - 4) and j < n[b] else -∞",
            "M[i,j] = 0 if j ≤ i + (size[j] - 4) else -∞",
            "write (n[b] - 4) and j < n[b] where it has (size[j] - 4)",
        ),
        ("Z = x · 0.125", "Z = x · 0.12471", "write 0.125 where it has 0.12471"),
        ("O = sum[j](a · v)", "O = max[j](a · v)", "write sum where it has max"),
        ("O = f(a)", "O = f[i](a)", "write f where it has f[i]"),
        ("X[g·r] = x[g]", "X[r·g] = x[g]", "write g·r where it has r·g"),
    ],
)
def test_a_fix_says_whole_numbers_and_brackets(right: str, wrong: str, fix: str) -> None:
    assert Change("", right, wrong, "").fix == fix
