"""Sinks that are counted otherwise, by plain NumPy: never passed, never called something else."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

from attncli.commands.check.conventions import LESS_EXACT
from attncli.commands.check.diagnose import check
from attncli.commands.check.verdict import Verdict
from tests.commands.check.planted.parts import TYPES
from tests.turns import in_turn

Array = np.ndarray[Any, Any]

COUNTED = {
    "right": lambda sinks, scale: sinks,
    "twice": lambda sinks, scale: sinks + np.log(2),  # ROCm/rocm-libraries#12227
    "in each of 4 splits": lambda sinks, scale: sinks + np.log(4),  # ml-explore/mlx#3452
    "in base 2": lambda sinks, scale: sinks * np.log(2),  # ROCm/rocm-libraries#12227
    "scaled": lambda sinks, scale: sinks * scale,  # tenstorrent/tt-metal#40470
}
SIZES = (2, 7, 11, 5), (3, 31, 37, 13), (2, 5, 127, 29)
"""Heads, queries, keys, width."""
MEANS = 0.5, -3.0
"""Of the sinks: some that take much of the weight, and some that take little."""
BEYOND = 4.0
"""A wrong kernel is off by so many times what rounding every stage causes: `check` allows 1.5 times
of many rows, and up to 3 times of few."""


class Case(NamedTuple):
    """The inputs in a type, and the output of one kernel beside the right one, in float64."""

    inputs: dict[str, Any]
    observed: Array
    is_beyond_noise: bool
    is_exact: bool


def _output(inputs: dict[str, Array], sinks: Array, dtype: Any = np.float64) -> Array:
    """softmax over keys and a sink, and Σ w v; every stage rounded to the type."""
    q, k, v = (inputs[x].astype(np.float64) for x in "qkv")
    scores = (q @ np.swapaxes(k, 1, 2) / np.sqrt(q.shape[-1])).astype(dtype).astype(np.float64)
    powers, sink = np.exp(scores), np.exp(sinks.astype(np.float64))[:, None, None]
    weights = (powers / (powers.sum(axis=-1, keepdims=True) + sink)).astype(dtype)
    return np.asarray((weights.astype(np.float64) @ v).astype(dtype).astype(np.float64))


def _case(kind: str, size: tuple[int, ...], mean: float, seed: int, dtype: str) -> Case:
    heads, n_q, n_k, d = size
    rng = np.random.default_rng([seed, *size])
    shapes = {"q": (heads, n_q, d), "k": (heads, n_k, d), "v": (heads, n_k, d), "sinks": (heads,)}
    inputs = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    inputs["sinks"] += mean
    inputs = {name: x.astype(TYPES.get(dtype, dtype)) for name, x in inputs.items()}
    sinks = inputs["sinks"].astype(np.float64)
    exact = _output(inputs, sinks)
    counted = _output(inputs, COUNTED[kind](sinks, d**-0.5))
    noise = np.sqrt(np.mean((_output(inputs, sinks, TYPES.get(dtype, dtype)) - exact) ** 2))
    error = np.sqrt(np.mean((counted - exact) ** 2))
    observed = counted.astype(TYPES.get(dtype, dtype))
    return Case(inputs, observed, error > BEYOND * noise, dtype in ("float64", "float32"))


def _names(verdict: Verdict) -> list[str]:
    return [explanation.name for explanation in verdict.explanations]


def judged(kind: str, case: Case) -> str:
    """What is wrong with the verdict on a kernel; "" where nothing is."""
    verdict = check(case.observed, **case.inputs)
    if kind == "right":
        return "" if verdict.matches else f"a right kernel: {verdict.status} {_names(verdict)}"
    if _names(verdict) and "other sinks" not in _names(verdict):
        return f"called {_names(verdict)}"
    if case.is_beyond_noise and verdict.status in ("match", "inside"):
        return f"called {verdict.status} {verdict.inside or ''}"
    if case.is_beyond_noise and case.is_exact and verdict.status != "found":
        return f"not named: {verdict.status} {_names(verdict)}"
    return ""


def passed_inside(kind: str, case: Case, dtype: str) -> list[str]:
    """The less exact arithmetic by which a wrong kernel passes, or a right one does not."""
    inside = LESS_EXACT[dtype]  # type: ignore[index]
    is_right = kind == "right"
    wrong = case.is_beyond_noise and case.is_exact
    return [
        x
        for x in inside
        if (is_right or wrong) and check(case.observed, **case.inputs, inside=x).matches != is_right
    ]


def _faults(seeds: range, sizes: Any) -> list[str]:
    faults = []
    for dtype, kind, size, mean, seed in product(
        ("float64", "float32", "bfloat16", "float16"), COUNTED, sizes, MEANS, seeds
    ):
        case = _case(kind, size, mean, seed, dtype)
        where = f"{dtype}, {kind}, {size}, mean {mean:g}, seed {seed}"
        if fault := judged(kind, case):
            faults.append(f"{where}: {fault}")
        if inside := passed_inside(kind, case, dtype):
            faults.append(f"{where}: {'fails' if kind == 'right' else 'passes'} with {inside}")
    return faults


@pytest.mark.parametrize(
    ("dtype", "kind", "mean", "seed"),
    [
        ("float64", "in base 2", -3.0, 0),  # these were "only with bfloat16 inside"
        pytest.param("float32", "twice", -3.0, 1, marks=pytest.mark.exhaustive),
        ("bfloat16", "in each of 4 splits", -3.0, 1),  # these "output times a factor"
        pytest.param("bfloat16", "scaled", -3.0, 0, marks=pytest.mark.exhaustive),
        pytest.param("float16", "in base 2", -3.0, 1, marks=pytest.mark.exhaustive),
    ],
)
def test_sinks_counted_otherwise_are_never_passed_nor_called_something_else(
    dtype: str, kind: str, mean: float, seed: int
) -> None:
    case = _case(kind, SIZES[0], mean, seed, dtype)
    assert not judged(kind, case)
    assert not passed_inside(kind, case, dtype)


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", SIZES)
def test_many_sinks_counted_otherwise(size: tuple[int, ...]) -> None:
    assert not _faults(range(1), [size])


@pytest.mark.parametrize(
    ("kind", "stage"), in_turn([kind for kind in COUNTED if kind != "right"], ["weights", "lse"])
)
def test_other_sinks_are_found_from_weights_and_lse_alone(kind: str, stage: str) -> None:
    inputs = _case(kind, SIZES[0], 0.5, 0, "float64").inputs
    q, k, sinks = (inputs[name] for name in ("q", "k", "sinks"))
    counted = np.exp(COUNTED[kind](sinks, 5**-0.5))[:, None]
    powers = np.exp(q @ np.swapaxes(k, 1, 2) / np.sqrt(5))
    total = powers.sum(axis=-1) + counted
    stages = {"weights": powers / total[..., None], "lse": np.log(total)}
    verdict = check(stages[stage], **inputs, stage=stage)
    assert (verdict.status, _names(verdict)) == ("found", ["other sinks"])


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("twice", "each counts 2 times (sink + ln 2)"),
        ("in each of 4 splits", "each counts 4 times (sink + ln 4)"),
        ("in base 2", "times 0.693147: ln 2"),
        ("scaled", "times 0.447214: the scale of the scores"),
    ],
)
def test_how_the_sinks_are_counted_is_said(kind: str, words: str) -> None:
    case = _case(kind, SIZES[0], -3.0, 1, "float64")
    (explanation,) = check(case.observed, **case.inputs).explanations
    assert words in explanation.details[0]


def test_sinks_of_the_wrong_heads_are_found() -> None:
    case = _case("right", SIZES[1], 0.5, 0, "float64")
    sinks = case.inputs["sinks"][[2, 0, 1]]
    (explanation,) = check(_output(case.inputs, sinks), **case.inputs).explanations
    pairs = ("head 1 is that of head 3", "head 2 is that of head 1", "head 3 is that of head 2")
    assert all(pair in explanation.name for pair in pairs)
