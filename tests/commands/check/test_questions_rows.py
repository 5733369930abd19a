"""Views of q, k and v, rows with another sum in softmax, and what all rows share; in plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli.commands.check import search
from attncli.commands.check.bugs.catalogue import CATALOGUE
from attncli.commands.check.diagnose import check

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(31)
Q, K, V = (RNG.normal(size=(2, 3, 11, d)) for d in (7, 7, 5))
WIDE = RNG.normal(size=(2, 3, 11, 7))
AFTER = np.arange(11)[:, None] < np.arange(11)


def attention(q: Array, k: Array, v: Array, *, hidden: Any = False) -> tuple[Array, Array]:
    """The output, and the scores that softmax reads."""
    x = np.where(hidden, -np.inf, q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]))
    powers = np.exp(x)
    return powers / powers.sum(axis=-1, keepdims=True) @ v, x


@pytest.fixture
def without_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue without the rows that have a name for what is planted here."""
    words = "heads|exchanged|strides|normalis|residual|bias|rescaled|Q used|K used|NaN"
    rows = tuple(x for x in CATALOGUE if not any(y in x.name for y in words.split("|")))
    monkeypatch.setattr(search, "CATALOGUE", rows)


def cause(observed: Any, *arrays: Array, **more: Any) -> str:
    verdict = check(observed, *arrays, pairs=False, **more)
    assert verdict.explanations, str(verdict)
    return verdict.explanations[0].name


def stored(x: Array, *order: int) -> Array:
    return x.transpose(*order, 3).reshape(x.shape)


VIEWS: list[tuple[str, tuple[int, int, int], str]] = [
    ("qkv", (0, 2, 1), "q, k and v are read by a view in which heads and tokens are exchanged"),
    ("kv", (1, 0, 2), "k and v are read by a view in which batch items and heads are exchanged"),
    ("q", (2, 1, 0), "q is read by a view in which batch items and tokens are exchanged"),
    ("v", (1, 2, 0), "v is read by a view in which batch items, heads and tokens are exchanged"),
]


@pytest.mark.usefixtures("without_rows")
@pytest.mark.parametrize(("names", "order", "words"), VIEWS)
def test_operands_that_are_read_by_a_view(
    names: str, order: tuple[int, int, int], words: str, dtype: str
) -> None:
    narrow = [x.astype(dtype) for x in (Q, K, V)]
    arrays = dict(zip("qkv", (x.astype(float) for x in narrow), strict=True))
    viewed = {x: stored(y, *order) if x in names else y for x, y in arrays.items()}
    output = attention(viewed["q"], viewed["k"], viewed["v"])[0]
    assert cause(output.astype(dtype), *narrow) == words


@pytest.mark.usefixtures("without_rows")
@pytest.mark.parametrize(("axis", "words"), [(1, "heads"), (0, "batch items")])
def test_attention_over_another_axis(axis: int, words: str) -> None:
    q, k, v = (x.swapaxes(axis, 2) for x in (Q, K, V))
    output = attention(q, k, v)[0].swapaxes(axis, 2)
    assert cause(output, Q, K, V).startswith(f"{words} and tokens are exchanged")


@pytest.mark.usefixtures("without_rows")
@pytest.mark.parametrize("mark", [0, np.nan])
@pytest.mark.parametrize("axis", [0, 1])
def test_attention_over_another_axis_with_rows_that_were_not_written(
    axis: int, mark: float
) -> None:
    """As many heads, or batch items, as tokens: the rows fit the other order too."""
    q, k, v = (np.concatenate([x, x + 1], axis=axis)[:, :, :6] for x in (Q, K, V))
    turned = (x.swapaxes(axis, 2) for x in (q, k, v))
    output = attention(*turned)[0].swapaxes(axis, 2)
    output[:, :, 4] = mark
    words = cause(output, q, k, v)
    assert words.startswith(f"{('batch items', 'heads')[axis]} and tokens are exchanged")
    assert words.endswith(f"and query 5 is {mark:g}: not written".replace("nan", "NaN"))


@pytest.mark.usefixtures("without_rows")
def test_a_view_with_rows_that_were_not_written() -> None:
    output = attention(stored(Q, 2, 1, 0), K, V)[0]
    output[:, 1] = 0
    words = "q is read by a view in which batch items and tokens are exchanged"
    assert cause(output, Q, K, V) == f"{words} and head 2 is 0: not written"


def sums() -> dict[str, tuple[Array, dict[str, Any], str]]:
    right, x = attention(Q, K, V)
    top = x.max(axis=-1, keepdims=True)
    total = np.exp(x - top).sum(axis=-1, keepdims=True)
    masked, _ = attention(Q, K, V, hidden=AFTER)
    running = 0.0
    for start in range(0, 11, 4):
        so_far = x[..., : start + 4].max(axis=-1, keepdims=True)
        running = running + np.exp(x[..., start : start + 4] - so_far).sum(axis=-1, keepdims=True)
    share = (np.exp(x) * ~AFTER).sum(axis=-1, keepdims=True) / np.exp(x).sum(axis=-1, keepdims=True)
    noise = np.random.default_rng(3).uniform(0.5, 2, size=top.shape)
    causal: dict[str, Any] = {"causal": True}
    return {
        "mask": (masked * share, causal, "the mask is applied after the softmax"),
        "not divided": (right * total, {}, "softmax is not divided by its sum: the weights are powers less"),
        "powers": (right * total * np.exp(top), {}, "softmax is not divided by its sum: the weights are powers"),
        "twice": (right / total, {}, "softmax is divided by its sum twice"),
        "running": (right * total / running, {}, "the sum is not rescaled when the running maximum grows (blocks of 4 keys)"),
        "any": (right * noise, {}, "every row of output is the right one times a number of its own"),
    }  # fmt: skip


@pytest.mark.usefixtures("without_rows")
@pytest.mark.parametrize("what", sums())
def test_softmax_divides_by_another_sum(what: str, dtype: str) -> None:
    observed, more, words = sums()[what]
    arrays = [x.astype(dtype) for x in (Q, K, V)]
    assert cause(observed.astype(dtype), *arrays, **more).startswith(words)


def test_rows_of_a_gradient_with_factors() -> None:
    d_output = np.random.default_rng(5).normal(size=V.shape)
    _, x = attention(Q, K, V)
    weights = np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)
    factors = np.random.default_rng(6).uniform(0.5, 2, size=(2, 3, 11, 1))
    d_v = weights.swapaxes(2, 3) @ d_output
    name = cause({"d_v": d_v * factors}, Q, K, V, d_output=d_output)
    assert name.startswith("every row of d_v is the right one times a number of its own")


@pytest.mark.usefixtures("without_rows")
def test_what_is_added_to_all_rows() -> None:
    output = attention(Q, K, V)[0]
    vector = np.array([1.5, -2, 0.25, 4, 3])
    name = cause(output + vector, Q, K, V)
    assert name.startswith("one vector is added to every row of the output")
    assert "1.5, -2, 0.25, 4 … in head 1" in name
    each = output + np.stack([vector, 2 * vector, -vector])[:, None]
    assert cause(each, Q, K, V).startswith("one vector is added to every row of the output")
    assert cause(output - 0.75, Q, K, V) == "-0.75 is added to every number of the output"
    output = attention(Q, K, WIDE)[0]
    for name, x in (("q", Q), ("v", WIDE)):
        words = f"{name} of each row is added to the output: a residual connection"
        assert cause(output + x, Q, K, WIDE) == words


def test_other_numbers_are_none_of_these() -> None:
    noise = np.random.default_rng(9).normal(size=V.shape)
    assert not check(noise, Q, K, V, pairs=False).explanations


# ---- channels of the output that are one number


CHANNELS: list[tuple[Any, Any, str]] = [
    (np.s_[..., 2], 1e200, "channel 3 of the output is 1e200 in every row"),
    (np.s_[..., 2], 1e20, "channel 3 of the output is 1e20 in every row"),
    (np.s_[..., 3:], 0, "channels 4 and 5 of the output are 0: not written"),
    (np.s_[:, 0, :, 2:], np.nan, "channels 3 to 5 of head 1 of the output are NaN: not written"),
    (np.s_[:, 1:, :, 0], -np.inf, "channel 1 of heads 2 and 3 of the output is −∞ in every row"),
    (
        np.s_[..., [0, 4]],
        [7.5, 0],
        "channel 1 of the output is 7.5 in every row and channel 5 of the output is 0: not written",
    ),
    (np.s_[1, 2, :, 1], 0, "in batch item 2, head 3: channel 2 of the output is 0: not written"),
]


@pytest.mark.parametrize(("at", "number", "words"), CHANNELS)
def test_channels_that_are_one_number(at: Any, number: Any, words: str) -> None:
    output = attention(Q, K, V)[0]
    output[at] = number
    assert cause(output, Q, K, V) == words


@pytest.mark.parametrize("size", [3.0, 1e9])
def test_a_number_that_is_added_to_one_channel_is_a_bias(size: float) -> None:
    output = attention(Q, K, V)[0] + size * (np.arange(5) == 2)
    assert cause(output, Q, K, V) == "bias of the values missing"


def test_channels_of_numbers_of_their_own_are_no_single_number() -> None:
    output = attention(Q, K, V)[0]
    output[..., 2] = RNG.normal(size=output.shape[:3])
    assert not check(output, Q, K, V, pairs=False).explanations
