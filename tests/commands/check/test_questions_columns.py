"""Other numbers of some keys in stages with a number for every query and key, planted in NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

from attncli.commands.check.diagnose import check
from tests.commands.check.planted.parts import TYPES
from tests.turns import in_turn

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(29)
Q, K, V = (RNG.normal(size=(2, 3, n, d)) for n, d in ((7, 5), (13, 5), (13, 11)))
KEY, QUERY = np.arange(13), np.arange(7)[:, None]
CAUSAL: dict[str, Any] = {"causal": True, "causal_align": "bottom-right"}
AFTER = KEY > QUERY + 6
HEAD = np.arange(3)[:, None, None]


def right(stage: str, q: Array = Q, k: Array = K, *, causal: bool = False) -> Array:
    scores = q @ k.swapaxes(2, 3)
    scaled = scores / np.sqrt(5)
    masked = np.where(AFTER, -np.inf, scaled) if causal else scaled
    powers = np.exp(masked)
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return np.asarray(
        {"scores": scores, "scaled": scaled, "masked": masked, "weights": weights}[stage]
    )


class Case(NamedTuple):
    stage: str
    at: Any  # where the numbers are other ones
    numbers: Any  # which, or what they are made of
    words: str
    causal: bool = False


LAST = KEY % 4 == 3
CASES = {
    "one key": Case("scores", KEY == 4, 0, "the scores of key 5 are 0: not written"),
    "after the scale": Case("scaled", KEY < 3, 0, "the scaled scores of the first 3 keys are 0: not written"),
    "the last of a block": Case("scores", LAST, 0, "the scores of the last of every 4 keys are 0: not written"),
    "NaN": Case("scores", LAST, np.nan, "the scores of the last of every 4 keys are NaN: not written"),
    "NaN at the end": Case("scaled", KEY > 8, np.nan, "the scaled scores of the keys from 10 on are NaN: not written"),
    "some keys": Case("scores", np.isin(KEY, (2, 3, 9)), 0, "the scores of keys 3, 4 and 10 are 0: not written"),
    "hidden": Case("masked", KEY == 4, -np.inf, "key 5 counts 0 times: hidden in masked scores"),
    "hidden under a mask": Case("masked", KEY == 4, -np.inf, "key 5 counts 0 times: hidden in masked scores", causal=True),
    "from a key on": Case("masked", KEY > 8, -np.inf, "the keys from 10 on count 0 times: hidden in masked scores"),
    "0 where it is hidden too": Case("masked", KEY == 11, 0, "the masked scores of key 12 are 0: not written", causal=True),
    "0 where it is not hidden": Case("masked", (KEY == 4) & ~AFTER, 0, "the masked scores of key 5 are 0: not written", causal=True),
    "nearly hidden": Case("masked", KEY == 4, -1e9, "the masked scores of key 5 are -1e9"),
    "repeated": Case("scores", KEY == 4, lambda x: x[..., [3]], "the scores of key 5 are those of key 4"),
    "repeated twice": Case("masked", (KEY == 4) | (KEY == 6), lambda x: x[..., [9]], "the masked scores of keys 5 and 7 are those of key 10"),
    "a factor": Case("scores", KEY == 4, lambda x: 2 * x, "the scores of key 5 are multiplied by 2"),
    "an addend": Case("scores", KEY == 12, lambda x: x + 0.75, "0.75 is added to the scores of key 13"),
    "twice": Case("masked", (KEY == 4) | (KEY == 5), lambda x: x + np.log(2), "keys 5 and 6 count 2 times: masked scores are larger by ln 2"),
    "at a distance": Case("masked", KEY == QUERY, -np.inf, "the key at the query's own position counts 0 times"),
    "0 at a distance": Case("scores", KEY == QUERY + 2, 0, "the scores of the key 2 after the query's own position are 0"),
    "some queries": Case("scaled", (KEY > 8) & (QUERY > 3), 0, "in queries 5 to 7: the scaled scores of the keys from 10 on are 0"),
    "one head": Case("scores", (KEY == 4) & (HEAD == 1), 0, "in head 2 the scores of key 5 are 0: not written"),
    "weights": Case("weights", KEY == 4, 0, "the weights of key 5 are 0 after the softmax: what remains does not sum to 1"),
    "half of the weights": Case("weights", KEY == 4, lambda x: x / 2, "the weights of key 5 are multiplied by 0.5"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), in_turn(CASES, ["float64", "float32"]))
def test_keys_with_other_numbers(name: str, dtype: str) -> None:
    stage, at, numbers, words, causal = CASES[name]
    q, k, v = (x.astype(dtype) for x in (Q, K, V))
    exact = right(stage, q.astype(float), k.astype(float), causal=causal)
    observed = np.where(at, numbers(exact) if callable(numbers) else numbers, exact)
    verdict = check({stage: observed.astype(dtype)}, q, k, v, **CAUSAL if causal else {})
    assert verdict.explanations[0].name.startswith(words)


RIGHT = [("scores", False), *product(["scaled", "masked", "weights"], [False, True])]


@pytest.mark.parametrize(("case", "dtype"), in_turn(RIGHT, ["float64", "float32"]))
def test_right_numbers_match(case: tuple[str, bool], dtype: str) -> None:
    (stage, causal), (q, k, v) = case, (x.astype(dtype) for x in (Q, K, V))
    exact = right(stage, q.astype(float), k.astype(float), causal=causal)
    assert check({stage: exact.astype(dtype)}, q, k, v, **CAUSAL if causal else {}).matches


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_each_head_has_its_keys(dtype: str) -> None:
    kind = TYPES.get(dtype, dtype)
    q, k, v = (x.astype(kind) for x in (Q, K, V))
    observed = right("scores", q.astype(float), k.astype(float))
    observed[:, 2, :, 3] = observed[:, 2, :, 4]
    observed[:, 0, :, 1] = observed[:, 1, :, 8] = 0
    name = check({"scores": observed.astype(kind)}, q, k, v).explanations[0].name
    assert name == (
        "in head 1 the scores of key 2 are 0: not written; in head 2 the scores of key 9 are 0: "
        "not written; in head 3 the scores of key 4 are those of key 5"
    )


def test_gradients_of_maps() -> None:
    """d_weights = dO Vᵀ, of which a column is not written; what follows is made of it."""
    d_output = np.random.default_rng(5).normal(size=(2, 3, 7, 11))
    d_weights = d_output @ V.swapaxes(2, 3)
    d_weights[..., 6] = 0
    weights = right("weights")
    delta = (weights * d_weights).sum(axis=-1, keepdims=True)
    d_q = weights * (d_weights - delta) / np.sqrt(5) @ K
    observed = {"d_weights": d_weights, "d_q": d_q}
    name = check(observed, Q, K, V, d_output=d_output).explanations[0].name
    assert name == "the d_weights of key 7 are 0: not written"


def test_a_formula_and_what_is_right_stand_below() -> None:
    observed = right("scores")
    observed[..., 4] = 0
    assert "S[b,h,i,j] = 0 if j = 4" in str(check({"scores": observed}, Q, K, V))


def test_random_numbers_are_nothing() -> None:
    observed = right("scores")
    observed[..., 4] = np.random.default_rng(7).normal(size=observed.shape[:3])
    assert not check({"scores": observed}, Q, K, V, pairs=False).explanations
