"""check(tiles=N): right walks, another unit or maximum, and each bug of a walk, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.check import CATALOGUE, Verdict, check
from attncli.errors import ConventionError, ShapeError, StageError
from tests.cli.conftest import SAMPLES, Call, call
from tests.turns import in_turn

__all__ = ["call"]

RNG = np.random.default_rng(3)
Q, K, V = (RNG.normal(size=shape) for shape in ((3, 7, 5), (3, 11, 5), (3, 11, 13)))
KEEP = RNG.random((7, 11)) < 0.7
KEEP[2] = False
TYPES = ("float64", "float32", "float16")
THREE = SAMPLES / "three-tokens.json"
OWN_MAXIMUM, L, ACC, NORMALISED, PADDING = BUGS = (
    "m is the tile's own maximum",
    "l not rescaled",
    "acc not rescaled",
    "acc normalised in every tile",
    "padding of the last tile attended",
)


def walk(bug: str = "", lag: float = 0.0, keep: Array | None = None) -> dict[str, Array]:
    """m, l and acc of tiles of four keys, and the output; m lags behind by up to `lag`."""
    x = Q @ np.swapaxes(K, -1, -2) / math.sqrt(5)
    x = x if keep is None else np.where(keep, x, -np.inf)
    m, total, acc = np.full((3, 7), -np.inf), np.zeros((3, 7)), np.zeros((3, 7, 13))
    stages: dict[str, Array] = {}
    for number, start in enumerate(range(0, 11, 4), 1):
        scores, v = x[..., start : start + 4], V[:, start : start + 4]
        if bug == PADDING and start == 8:
            scores = np.concatenate([scores, np.zeros((3, 7, 1))], axis=-1)
            v = np.concatenate([v, np.zeros((3, 1, 13))], axis=1)
        own = scores.max(axis=-1)
        top = own if bug == OWN_MAXIMUM else np.where(own < m + lag, m, np.maximum(m, own))
        base = np.where(np.isneginf(top), 0, top)
        alpha, p = np.exp(m - base), np.exp(scores - base[..., None])
        total = (1 if bug == L else alpha) * total + p.sum(axis=-1)
        acc = (1 if bug == ACC else alpha[..., None]) * acc + p @ v
        acc = acc / total[..., None] if bug == NORMALISED else acc
        m = top
        stages |= {f"tile.{number}.{n}": y for n, y in (("m", m), ("l", total), ("acc", acc))}
    return stages | {"output": acc / np.where(total == 0, 1, total)[..., None]}


def verdict(stages: dict[str, Array], dtype: str = "float64", **more: Any) -> Verdict:
    own = {"tiles": 4, "pairs": False, **more}
    return check({name: x.astype(dtype) for name, x in stages.items()}, Q, K, V, **own)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_right_walk_matches(dtype: str) -> None:
    for result in (verdict(walk(), dtype), verdict(walk(keep=KEEP), dtype, mask=KEEP)):
        assert (result.status, result.notes) == ("match", ())


@pytest.mark.parametrize(("name", "dtype"), in_turn(BUGS, TYPES))
def test_the_bug_is_named(name: str, dtype: str) -> None:
    assert {bug.name for bug in CATALOGUE if "tiles" in bug.touches} == {*BUGS}
    assert [one.name for one in verdict(walk(name), dtype).explanations] == [name]


@pytest.mark.parametrize(
    ("factor", "lag", "note"),
    [(1.0, 3.0, "m + ln l"), (1 / math.log(2), 0.0, "base 2"), (math.sqrt(5), 0.0, "0.44721")],
)
def test_a_maximum_that_lags_behind_or_has_another_unit_is_no_bug(
    factor: float, lag: float, note: str
) -> None:
    result = verdict({n: x * factor if n[-1] == "m" else x for n, x in walk(lag=lag).items()})
    assert (result.status, len(result.notes)) == ("match", 1)
    assert note in result.notes[0]


def test_one_stage_of_one_tile() -> None:
    own = walk()["tile.3.l"]
    assert verdict({"tile.3.l": own}).matches
    assert verdict({"tile.3.l": own[:, 2:5]}, rows=slice(2, 5)).matches
    assert not verdict({"tile.3.l": 1.01 * own}).matches
    assert verdict({"tile.3.l": own[:, :4]}).status == "wrong shape"
    refused: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (StageError, "tile.4.m", {}),
        (ShapeError, "tile.3.l", {"tiles": 0}),
        (ConventionError, "tile.3.l", {"softmax_over": "queries"}),
    ]
    for error, stage, more in refused:
        with pytest.raises(error):
            verdict({stage: own}, **more)


@pytest.mark.parametrize("inside", [(), ("float32", "tf32"), ("bfloat16", "bfloat16")])
def test_on_the_command_line(inside: tuple[str, ...], call: Call) -> None:
    """A right walk, with less exact arithmetic inside of it too; another one; no tile."""
    flags = ("--tiles", "2", *(("--dtype", inside[0]) if inside else ()))
    assert call("compute", THREE, *flags, "--output", "t.npz").code == 0
    own = (*flags, "--inside", inside[1]) if inside else flags
    observed = ("check", "--q", THREE, *own, "--observed")
    assert call(*observed, "t.npz").code == 0
    assert call(*observed, "[[1, 2], [3, 4], [5, 6]]", "--stage", "output").code == 1
    if not inside:
        wrong = call(*observed, "[0, 0.7071, 0.7071]", "--stage", "tile.2.m")
        assert (wrong.code, OWN_MAXIMUM in wrong.out) == (1, True)
        for stage in ("tile.9.m", "tile.x", "weights"):
            refused = call(*observed, "[1, 2, 3]", "--stage", stage)
            assert (refused.code, refused.err.count("\n")) == (2, 1)


def test_a_kernel_that_left_something_out_is_a_verdict(call: Call) -> None:
    call("compute", THREE, "--tiles", "2", "--output", "t.json")
    cases = {"--causal": "causal mask left out", "--kv-len 1": "padding left out"}
    cases |= {"--window 0,0": "window left out", "--softcap 1": "softcap left out"}
    cases |= {"--sinks [1]": "sinks left out", "--scale 0.5": "scale"}
    cases["--scale none"] = "tile.1.scaled"  # a stage that the right walk lacks
    for flags, named in cases.items():
        asked = ("check", "--q", THREE, "--tiles", "2", *flags.split(), "--observed", "t.json")
        result = call(*asked)
        assert (result.code, named in result.out) == (1, True), flags
        if flags in ("--causal", "--softcap 1"):
            of_power = call(*asked, "--stage", "tile.2.p", "--format", "json")
            assert of_power.code in (0, 1), flags
            places = {one["place"] for one in of_power.json["stages"][0]["worst"]}
            assert all(place.endswith("k3") for place in places), flags  # of the second tile
