"""No false alarm where numbers are hard: 16-bit sums, weights far apart, large biases, lost parts.

Right attentions of every kind are rows of the planted set.
"""

from typing import Any

import numpy as np
import pytest

from attncli.commands.check.diagnose import check
from tests import plain
from tests.commands.check.planted.parts import HALF, TYPES, Array, World
from tests.commands.check.planted.right import sums_in_type
from tests.commands.check.planted.rows import names
from tests.turns import in_turn


def normal(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for shape in shapes]


def rounded(x: Array) -> Array:
    return x.astype(TYPES["bfloat16"])


def exact(q: Any, k: Any, v: Any, **convention: Any) -> Any:
    """The output in float64."""
    mask = {"mask": convention.pop("mask")} if "mask" in convention else {}
    return plain.attention({"q": q, "k": k, "v": v, **mask}, convention)["output"]


@pytest.mark.parametrize(
    "dtype", [HALF[0], *(pytest.param(dtype, marks=pytest.mark.exhaustive) for dtype in HALF[1:])]
)
def test_sums_kept_in_16_bits_are_a_verdict_of_their_own(dtype: str) -> None:
    x = World("long sums", b=1, h=2, n_q=31, n_k=67, d_k=64, d_v=64).inputs(dtype)
    seen = x.round(sums_in_type(x))
    verdict = check(seen, *x.given()[0])
    assert (verdict.status, verdict.inside, verdict.matches) == ("inside", dtype, False)
    assert check(seen, *x.given()[0], inside=dtype).matches  # type: ignore[arg-type]
    wrong = (seen.astype(np.float64) * 0.8).astype(seen.dtype)
    assert check(wrong, *x.given()[0], pairs=False).status not in ("match", "inside")


@pytest.mark.parametrize("dtype", HALF)
def test_a_small_type_widened_afterwards_is_judged_as_that_type(dtype: str) -> None:
    q, k, v = normal(5, (2, 5, 7), (2, 11, 7), (2, 11, 3))
    right = exact(*(x.astype(TYPES[dtype]) for x in (q, k, v)))
    verdict = check(right.astype(TYPES[dtype]).astype(np.float32), q, k, v)
    assert (verdict.status, verdict.dtype) == ("match", dtype)
    assert f"fits {dtype}" in verdict.notes[0]


def test_a_weight_is_off_in_proportion_to_itself() -> None:
    """Weights in float32, of which some are many times as large as is typical."""
    q, k = np.random.default_rng(1).normal(size=(2, 2, 256, 64)).astype(np.float32)
    weights = plain.attention({"q": q, "k": k, "v": k}, {})["weights"].astype(np.float32)
    assert check(weights, q, k, k, stage="weights").matches
    sizes = weights / np.sqrt(np.mean(weights**2, axis=-1, keepdims=True))
    head, row, key = np.argwhere(sizes == sizes.max())[0].tolist()
    assert sizes.max() > 10
    weights[head, row, key] *= 1.001
    verdict = check(weights, q, k, k, stage="weights", pairs=False)
    assert not verdict.matches
    assert verdict.stages[0].worst[0].index == (head, row, key)


@pytest.mark.parametrize(("size", "bias"), [(1, 60), (3, 24)])
def test_a_bias_far_larger_than_the_scores_rounds_them(size: float, bias: float) -> None:
    """In float32 Z + M is off by half a unit of M, in whichever order a processor adds up."""

    def summed(terms: Array) -> Array:
        order = rng.permutation(terms.shape[-1])
        return np.asarray(np.cumsum(terms[..., order], axis=-1, dtype=np.float32)[..., -1])

    for seed in range(40):
        rng = np.random.default_rng(seed)
        q, k, v = (rng.normal(size=(14, 5, 3)).astype(np.float32) for _ in range(3))
        q *= np.float32(size)
        mask = (bias + rng.random((14, 1, 5))).astype(np.float32)
        scores = summed(q[:, :, None] * k[:, None])
        powers = np.exp(np.float64(scores + mask)).astype(np.float32)
        weights = powers / summed(powers)[..., None]
        output = summed(weights[:, :, None] * np.swapaxes(v, 1, 2)[:, None])
        observed = {"weights": weights, "output": output}
        assert check(observed, q, k, v, mask=mask, scale="none", pairs=False).matches, seed


@pytest.mark.parametrize(
    ("split", "dtype", "value"), in_turn([None, [5]], ["float64", "float32"], [-1e3, -1e4])
)
def test_parts_of_keys_that_a_finite_number_hides(
    split: list[int] | None, dtype: str, value: float
) -> None:
    """Where every key is hidden, the log-sum-exp by which parts are merged is about that number."""
    q, k, v = (x.astype(dtype) for x in normal(3, (2, 7, 3), (2, 11, 3), (2, 11, 5)))
    keep = np.random.default_rng(4).random((7, 11)) < 0.6
    keep[[1, 4]] = False
    x = np.where(keep, q @ np.swapaxes(k, 1, 2) / q.dtype.type(3**0.5), q.dtype.type(value))
    outputs, sums = [], []
    for keys in (slice(0, 5), slice(5, 11)):
        top = x[..., keys].max(axis=-1, keepdims=True)
        powers = np.exp(x[..., keys] - top)
        outputs.append(powers / powers.sum(axis=-1, keepdims=True) @ v[:, keys])
        sums.append(top + np.log(powers.sum(axis=-1, keepdims=True)))
    lse = np.logaddexp(*sums)
    merged: Array = sum(np.exp(x - lse) * y for x, y in zip(sums, outputs, strict=True))
    given: dict[str, Any] = {"q": q, "k": k, "v": v, "mask": keep, "mask_value": value}
    assert check(merged, **given, split=split).matches
    merged[:, 1] *= 1.05
    assert not check(merged, **given, split=split, pairs=False)


# ---- what each constant of judgement is for: a case that is judged wrongly with another value


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [("float64", 2 * 2.0**-52), ("float32", 1.4 * 2.0**-23), ("float16", 2.0**-10)],
)
def test_the_noise_of_one_product_is_that_of_its_factors_and_sums(dtype: str, unit: float) -> None:
    """var S = u² · 2 S² + 2 u² q² k² and a term of each sum, u²/3 of both: u = 0.21 units."""
    one = np.ones((1, 1), dtype)
    sums = 1 / 3 if dtype != "float16" else 0.0  # of 16-bit types they are kept in float32
    noise = check(one, one, one, one, stage="scores").stages[0].noise
    assert noise == pytest.approx(0.21 * unit * np.sqrt(3 + 3 * sums), rel=1e-3)


@pytest.mark.parametrize(
    ("where", "right_at", "wrong_at"),
    [
        ("all", 1.2, 2.5),  # all errors of a head: one and a half times the noise
        ("row", 3.0, 8.0),  # a row: five times its noise
        ("entry", 8.0, 40.0),  # an entry: sixteen times the noise of its row
    ],
)
def test_how_many_times_the_noise_errors_may_be(
    where: str, right_at: float, wrong_at: float
) -> None:
    width = 256 if where == "entry" else 16
    q, k, v = (x.astype(np.float16) for x in normal(11, *((2, 101, n) for n in (16, 16, width))))
    right = exact(q, k, v)
    noise = check(right.astype(np.float16), q, k, v).stages[0].noise
    assert noise is not None
    for times, status in ((right_at, "match"), (wrong_at, "no match")):
        rng, wrong = np.random.default_rng(3), right.copy()
        if where == "all":
            wrong += rng.normal(size=right.shape) * noise * times
        elif where == "row":
            wrong[1, 7] += rng.choice([-1, 1], size=16) * noise * times
        else:
            wrong[0, 7, 9] += noise * times
        assert check(wrong.astype(np.float16), q, k, v, pairs=False).status == status


@pytest.mark.parametrize(("offset", "bugs"), [(0.0, ["scale left out"]), (0.2, [])])
def test_rows_are_judged_by_their_own_noise(offset: float, bugs: list[str]) -> None:
    # Query 4 alone attends to a value of 200, whose rounding is nearly all of the noise. The other
    # outputs are off by more than ten times their own, which the noise of all would hide.
    q, k, v = normal(5, (13, 7), (11, 7), (11, 2))
    mask = np.ones((13, 11), dtype=bool)
    mask[:, 10], v[10] = False, 200
    mask[3, 10] = True
    q, k, v = map(rounded, (2 * q, k, v))
    seen = exact(q, k, v, mask=mask, scale="none")
    seen[np.arange(13) != 3] += offset
    assert names(check(rounded(seen), q, k, v, mask=mask, pairs=False)) == bugs


def test_a_head_is_judged_by_its_own_noise() -> None:
    # The values of head 2 are 400 times as large, and their rounding is nearly all of the noise.
    q, k, v = normal(5, (3, 41, 7), (3, 43, 7), (3, 43, 13))
    v[1] *= 400
    q, k, v = map(rounded, (q, k, v))
    seen = exact(q, k, v)
    assert check(rounded(seen), q, k, v).matches
    seen[2] *= 1.05
    verdict = check(rounded(seen), q, k, v, pairs=False)
    assert not verdict.matches
    assert any("head 3" in place for place in verdict.stages[0].places)


def test_weights_below_the_normal_range_are_rounded_to_multiples_of_the_smallest() -> None:
    """e^-100 is 26 or 27 times the smallest float32: what it is times values of 37 is off by 2 %."""
    scores = np.array([-99.9, -100.0, -100.3, -100.7, -101.1], dtype=np.float32)
    q, k, v = scores[:, None], np.ones((1, 1), np.float32), np.full((1, 2), 37.0, np.float32)
    powers = np.exp(scores, dtype=np.float32)[:, None]
    assert 0 < powers.max() < np.finfo(np.float32).tiny
    verdict = check(powers * v, q, k, v, sinks=np.zeros(1, np.float32))  # 1 + e^-100 is 1
    assert verdict.matches, str(verdict)
    assert not check(2 * powers * v, q, k, v, sinks=np.zeros(1, np.float32)).matches
