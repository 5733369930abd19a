"""check(tiles=N): right walks, another unit or maximum, and each bug of RUNNING, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.check import Verdict, check
from attncli.check.bugs import RUNNING
from attncli.errors import ConventionError, ShapeError, StageError
from tests.cli.conftest import SAMPLES, Call, call

__all__ = ["call"]

RNG = np.random.default_rng(3)
Q, K, V = (RNG.normal(size=shape) for shape in ((3, 7, 5), (3, 11, 5), (3, 11, 13)))
KEEP = RNG.random((7, 11)) < 0.7
KEEP[2] = False
TYPES = ("float64", "float32", "float16")
BUGS = [bug.name for bug in RUNNING]


def walk(bug: str = "", lag: float = 0.0, keep: Array | None = None) -> dict[str, Array]:
    """m, l and acc of tiles of four keys, and the output; m lags behind by up to `lag`."""
    x = Q @ np.swapaxes(K, -1, -2) / math.sqrt(5)
    x = x if keep is None else np.where(keep, x, -np.inf)
    m, total, acc = np.full((3, 7), -np.inf), np.zeros((3, 7)), np.zeros((3, 7, 13))
    found: dict[str, Array] = {}
    for number, start in enumerate(range(0, 11, 4), 1):
        scores, v = x[..., start : start + 4], V[:, start : start + 4]
        n = 4 - scores.shape[-1]
        if bug == BUGS[4] and n:
            scores = np.concatenate([scores, np.zeros((3, 7, n))], axis=-1)
            v = np.concatenate([v, np.zeros((3, n, 13))], axis=1)
        own = scores.max(axis=-1)
        top = own if bug == BUGS[0] else np.where(own < m + lag, m, np.maximum(m, own))
        base = np.where(np.isneginf(top), 0, top)
        alpha, p = np.exp(m - base), np.exp(scores - base[..., None])
        total = (1 if bug == BUGS[1] else alpha) * total + p.sum(axis=-1)
        acc = (1 if bug == BUGS[2] else alpha[..., None]) * acc + p @ v
        acc = acc / total[..., None] if bug == BUGS[3] else acc
        m = top
        found |= {f"tile.{number}.{n}": y for n, y in (("m", m), ("l", total), ("acc", acc))}
    return found | {"output": acc / np.where(total == 0, 1, total)[..., None]}


def verdict(stages: dict[str, Array], dtype: str = "float64", **more: Any) -> Verdict:
    return check({name: x.astype(dtype) for name, x in stages.items()}, Q, K, V, tiles=4, **more)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_right_walk_matches(dtype: str) -> None:
    for found in (verdict(walk(), dtype), verdict(walk(keep=KEEP), dtype, mask=KEEP)):
        assert (found.status, found.notes) == ("match", ())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_named(name: str, dtype: str) -> None:
    found = verdict(walk(name), dtype)
    assert [explanation.name for explanation in found.explanations] == [name]


def test_a_maximum_that_lags_behind_is_no_bug() -> None:
    found = verdict(walk(lag=3.0))
    assert found.matches
    assert found.notes == (
        "m is not the largest score so far, but acc / l and m + ln l match: no bug",
    )


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (1 / math.log(2), "m is in base 2: your m · ln 2 matches"),
        (math.sqrt(5), "m is that of unscaled scores: your m · 0.44721 matches"),
    ],
)
def test_the_unit_of_m_is_named(factor: float, said: str) -> None:
    stages = {n: x * factor if n.endswith(".m") else x for n, x in walk().items()}
    found = verdict(stages)
    assert (found.status, found.notes) == ("match", (said,))


def test_one_stage_of_one_tile() -> None:
    assert verdict({"tile.3.l": walk()["tile.3.l"]}).matches
    assert verdict({"tile.3.l": walk()["tile.3.l"][:, 2:5]}, rows=slice(2, 5)).matches
    assert not verdict({"tile.3.l": 1.01 * walk()["tile.3.l"]}).matches
    assert verdict({"tile.3.l": walk()["tile.3.l"][:, :4]}).status == "wrong shape"


def test_what_is_no_tile() -> None:
    with pytest.raises(StageError, match="no stage 'tile"):
        verdict({"tile.4.m": walk()["tile.3.m"]})
    with pytest.raises(ShapeError, match="whole number of keys"):
        check(walk(), Q, K, V, tiles=0)
    with pytest.raises(ConventionError, match="whole columns"):
        verdict(walk(), softmax_over="queries")


def test_on_the_command_line(call: Call) -> None:
    three = SAMPLES / "three-tokens.json"
    assert call("compute", three, "--tiles", "2", "--output", "t.npz").code == 0
    assert call("check", "--q", three, "--observed", "t.npz", "--tiles", "2").code == 0
    found = ("check", "--q", three, "--tiles", "2", "--observed")
    own = call(*found, "[0, 0.7071, 0.7071]", "--stage", "tile.2.m")
    assert (own.code, BUGS[0] in own.out) == (1, True)
    for stage in ("tile.9.m", "tile.x", "weights"):
        refused = call(*found, "[1, 2, 3]", "--stage", stage)
        assert (refused.code, refused.err.count("\n")) == (2, 1)


WRONG_KERNELS = {
    "--causal": "causal mask left out",
    "--kv-len 1": "padding left out",
    "--window 0,0": "window left out",
    "--softcap 1": "softcap left out",
    "--sinks [1]": "sinks left out",
    "--scale 0.5": "scale",
}


@pytest.mark.parametrize("wanted", WRONG_KERNELS)
def test_a_kernel_that_left_something_out_is_a_verdict(wanted: str, call: Call) -> None:
    three = SAMPLES / "three-tokens.json"
    call("compute", three, "--tiles", "2", "--output", "t.json")
    found = ("check", "--q", three, "--tiles", "2", *wanted.split(), "--observed", "t.json")
    result = call(*found)
    assert (result.code, WRONG_KERNELS[wanted] in result.out) == (1, True)
    of_power = call(*found, "--stage", "tile.2.p", "--format", "json")
    assert of_power.code in (0, 1)
    places = {one["place"] for one in of_power.json["stages"][0]["worst"]}
    assert all(place.endswith("k3") for place in places)  # the second tile begins with the third


def test_a_walk_whose_scores_were_not_asked_to_be_masked_or_scaled(call: Call) -> None:
    """It holds stages that the right walk lacks."""
    three = SAMPLES / "three-tokens.json"
    call("compute", three, "--tiles", "2", "--output", "t.npz")
    observed = ("--tiles", "2", "--observed", "t.npz")
    result = call("check", "--q", three, "--scale", "none", *observed)
    assert (result.code, "tile.1.scaled" in result.out) == (1, True)


@pytest.mark.parametrize("inside", ["float32 tf32", "float16 float16", "bfloat16 bfloat16"])
def test_less_exact_arithmetic_inside_of_a_walk(inside: str, call: Call) -> None:
    three, (dtype, own) = SAMPLES / "three-tokens.json", inside.split()
    flags = ("--tiles", "2", "--dtype", dtype)
    call("compute", three, *flags, "--output", "t.json")
    found = ("check", "--q", three, *flags, "--inside", own, "--observed")
    assert call(*found, "t.json").code == 0
    wrong = call(*found, "[[1, 2], [3, 4], [5, 6]]", "--stage", "output")
    assert wrong.code == 1
