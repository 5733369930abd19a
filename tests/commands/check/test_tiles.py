"""check of the log-sum-exp, of tiles and of parts: right ones, other units, each bug, by hand."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.commands.check.bugs.catalogue import CATALOGUE
from attncli.commands.check.diagnose import check
from attncli.commands.check.verdict import Verdict
from tests import plain
from tests.calls import SAMPLES, Call, call
from tests.commands.check.planted.rows import names
from tests.turns import in_turn

__all__ = ["call"]

FLASH = Path(__file__).parents[2] / "fixtures" / "lse.npz"
RNG = np.random.default_rng(0)
Q, K, V = (RNG.normal(size=shape) for shape in ((3, 7, 5), (3, 37, 5), (3, 37, 13)))
KEEP = RNG.random((7, 37)) < 0.7
KEEP[2] = False
SINKS = np.array([0.5, -1.0, 2.0])
TYPES = ("float64", "float32", "float16")
X = Q @ np.swapaxes(K, -1, -2) / math.sqrt(5)
LN2, UNIT = math.log(2), math.sqrt(5)


def log_sum(x: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(x).sum(axis=-1)))


LSE, MASKED = log_sum(X), log_sum(np.where(KEEP, X, -np.inf))


def verdict(observed: dict[str, Array], dtype: str = "float64", **more: Any) -> Verdict:
    stages = {name: x.astype(dtype) for name, x in observed.items()}
    return check(stages, Q, K, V, pairs=False, **more)


# ---- the log-sum-exp


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
    for number, (lse, convention) in enumerate(cases):
        assert verdict({"lse": lse}, TYPES[number % 3], **convention).matches, convention
    assert verdict({"lse": LSE[:, :5]}).status == "wrong shape"


@pytest.mark.parametrize(
    ("kind", "dtype"), in_turn(["plain", "causal"], ["float32", "bfloat16", "float16"])
)
def test_that_of_pytorchs_flash_attention_matches(dtype: str, kind: str) -> None:
    """Recorded by tests/fixtures/make_torch_fixtures.py."""
    with np.load(FLASH) as file:
        q, k, v = (file[f"{dtype}.{name}"] for name in "qkv")
        lse, output = (file[f"{dtype}.{kind}.{name}"] for name in ("lse", "output"))
    convention: dict[str, Any] = {"causal": kind == "causal", "pairs": False}
    assert check({"lse": lse, "output": output}, q, k, v, **convention).matches
    alone = check(lse, q, k, v, stage="lse", **convention)
    assert (alone.status, alone.notes) == ("match", ())
    assert not check(lse * 1.001, q, k, v, stage="lse", **convention).matches


def test_another_unit_is_named() -> None:
    units = [(1 / LN2, "e", "base 2"), (UNIT, "e", "0.44721"), (1, "2", "base e")]
    for factor, base, words in units:
        for lse in (LSE * factor, *([np.round(LSE * factor, 3)] if base == "e" else [])):
            result = verdict({"lse": lse}, lse_base=base)
            assert result.matches
            assert any(words in note for note in result.notes)
    assert "base 2 and that of unscaled" in str(verdict({"lse": LSE * UNIT / LN2}, "float16").notes)


def test_infinity_of_an_empty_row_is_read_either_way() -> None:
    for n_notes, unit in ((1, 1), (2, LN2)):
        lse = np.where(np.isneginf(MASKED), np.inf, MASKED / unit)
        result = verdict({"lse": lse}, mask=KEEP)
        assert (result.matches, len(result.notes), "+∞" in str(result.notes)) == (
            True,
            n_notes,
            True,
        )


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
def test_a_bug_of_lse_is_named(name: str, dtype: str) -> None:
    """Among others where lse is alone; alone beside an output that is right."""
    assert {bug.name for bug in CATALOGUE if "lse" in bug.touches} == WRONG.keys()
    lse, more = WRONG[name]
    if dtype == "float16":
        assert name in names(verdict({"lse": lse}, dtype, **more))
    else:
        with np.errstate(invalid="ignore"):
            output = plain.attention({"q": Q, "k": K, "v": V, **more}, {})["output"]
        assert names(verdict({"lse": lse, "output": output}, dtype, **more)) == [name]


def test_what_changes_the_weights_changes_lse_too() -> None:
    # filled up with zeros to 48 keys, whose scores are 0; and without the last five of 37
    padded = np.pad(X, ((0, 0), (0, 0), (0, 11))), np.pad(V, ((0, 0), (0, 11), (0, 0)))
    cases = {"scale left out": (X * UNIT, V), "zero keys of the last block counted": padded}
    for name, (x, v) in {**cases, "last block of keys skipped": (X[..., :32], V[:, :32])}.items():
        observed = {"lse": log_sum(x), "output": np.exp(x - log_sum(x)[..., None]) @ v}
        assert name in names(verdict(observed))


# ---- parts


@pytest.mark.parametrize(
    ("cuts", "name"),
    [
        (
            [3],
            "two parts of the keys, cut after key 3, are merged by exp(lse of the part − the sum of",
        ),
        ([4, 5, 9], "part without a key not guarded"),
    ],
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
        if "the sum of" in name:  # of parts without a key 0 / 0, which is guarded
            lse, outputs = np.log(sums).sum(axis=0), np.nan_to_num(outputs)
        output = (np.exp(np.log(sums) - lse)[..., None] * outputs).sum(axis=0)
    observed = {"lse": lse, "output": output}
    (sentence,) = names(check(observed, q, k, v, mask=keep, split=cuts, pairs=False))
    assert name in sentence


# ---- tiles of 14 keys, the last of 9

THREE = SAMPLES / "three-tokens.json"
OWN_MAXIMUM, L, ACC, NORMALISED, PADDING = BUGS = (
    "m is the tile's own maximum",
    "l not rescaled",
    "acc not rescaled",
    "acc normalised in every tile",
    "padding of the last tile attended",
)


def walk(bug: str = "", lag: float = 0.0, keep: Array | None = None) -> dict[str, Array]:
    """m, l and acc of each tile, and the output; m lags behind by up to `lag`."""
    x, v = X if keep is None else np.where(keep, X, -np.inf), V
    if bug == PADDING:
        x, v = (np.pad(y, [(0, 0), (0, m), (0, n)]) for y, m, n in ((X, 0, 5), (V, 5, 0)))
    m, total, acc = np.full((3, 7), -np.inf), np.zeros((3, 7)), np.zeros((3, 7, 13))
    stages: dict[str, Array] = {}
    for number, start in enumerate(range(0, 37, 14), 1):
        scores = x[..., start : start + 14]
        own = scores.max(axis=-1)
        top = own if bug == OWN_MAXIMUM else np.where(own < m + lag, m, np.maximum(m, own))
        base = np.where(np.isneginf(top), 0, top)
        alpha, p = np.exp(m - base), np.exp(scores - base[..., None])
        total = (1 if bug == L else alpha) * total + p.sum(axis=-1)
        acc = (1 if bug == ACC else alpha[..., None]) * acc + p @ v[:, start : start + 14]
        acc = acc / total[..., None] if bug == NORMALISED else acc
        m = top
        stages |= {f"tile.{number}.{n}": y for n, y in (("m", m), ("l", total), ("acc", acc))}
    return stages | {"output": acc / np.where(total == 0, 1, total)[..., None]}


@pytest.mark.parametrize("dtype", TYPES)
def test_a_right_walk_matches(dtype: str) -> None:
    masked = verdict(walk(keep=KEEP), dtype, mask=KEEP, tiles=14)
    for result in (verdict(walk(), dtype, tiles=14), masked):
        assert (result.status, result.notes) == ("match", ())


@pytest.mark.parametrize(("name", "dtype"), in_turn(BUGS, TYPES))
def test_a_bug_of_tiles_is_named(name: str, dtype: str) -> None:
    assert {bug.name for bug in CATALOGUE if "tiles" in bug.touches} == {*BUGS}
    assert names(verdict(walk(name), dtype, tiles=14)) == [name]


@pytest.mark.parametrize(
    ("factor", "lag", "note"),
    [(1.0, 3.0, "m + ln l"), (1 / LN2, 0.0, "base 2"), (UNIT, 0.0, "0.44721")],
)
def test_a_maximum_that_lags_behind_or_has_another_unit_is_no_bug(
    factor: float, lag: float, note: str
) -> None:
    observed = {n: x * factor if n[-1] == "m" else x for n, x in walk(lag=lag).items()}
    result = verdict(observed, tiles=14)
    assert (result.status, len(result.notes)) == ("match", 1)
    assert note in result.notes[0]


def test_one_stage_of_one_tile() -> None:
    own = walk()["tile.3.l"]
    assert verdict({"tile.3.l": own[:, 2:5]}, tiles=14, rows=slice(2, 5)).matches
    for x, status in ((own, "match"), (1.01 * own, "no match"), (own[:, :4], "wrong shape")):
        assert verdict({"tile.3.l": x}, tiles=14).status == status


@pytest.mark.parametrize(("dtype", "inside"), [("float32", "tf32"), ("bfloat16", "bfloat16")])
def test_less_exact_arithmetic_inside_of_a_walk(dtype: str, inside: str, call: Call) -> None:
    flags = ("--tiles", "2", "--dtype", dtype)
    assert call("compute", THREE, *flags, "--output", "t.npz").code == 0
    observed = ("check", "--q", THREE, *flags, "--inside", inside, "--observed")
    assert call(*observed, "t.npz").code == 0
    assert call(*observed, "[[1, 2], [3, 4], [5, 6]]", "--stage", "output").code == 1


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ("--causal", "causal mask left out"),
        ("--kv-len 1", "padding left out"),
        ("--window 0,0", "window left out"),
        ("--softcap 1", "softcap left out"),
        ("--sinks [1]", "sinks left out"),
        ("--scale 0.5", "scale"),
        ("--scale none", "tile.1.scaled"),  # a stage that the right walk lacks
    ],
)
def test_a_kernel_that_left_something_out_is_a_verdict(flags: str, word: str, call: Call) -> None:
    call("compute", THREE, "--tiles", "2", "--output", "t.json")
    asked = ("check", "--q", THREE, "--tiles", "2", *flags.split(), "--observed", "t.json")
    result = call(*asked)
    assert (result.code, word in result.out) == (1, True)
    if flags in ("--causal", "--softcap 1"):
        of_power = call(*asked, "--stage", "tile.2.p", "--format", "json")
        assert of_power.code in (0, 1)
        places = {one["place"] for one in of_power.json["stages"][0]["worst"]}
        assert all(place.endswith("k3") for place in places)  # of the second tile
