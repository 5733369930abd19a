"""Channels of q, k or the output that are other ones; the wrong numbers are those of plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.commands.check.diagnose import check
from tests import plain
from tests.turns import in_turn

BATCH, HEADS, N_Q, N_K, D_K, D_V = 2, 3, 7, 11, 6, 6


def inputs(seed: int = 0, n_groups: int = HEADS) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    sizes = {"q": (HEADS, N_Q, D_K), "k": (n_groups, N_K, D_K), "v": (n_groups, N_K, D_V)}
    return {name: random.normal(size=(BATCH, *size)) for name, size in sizes.items()}


def read(x: Array, channels: list[int]) -> Array:
    """x, of whose channels each is the one at this place."""
    return np.stack([x[..., at] for at in channels], axis=-1)


def name_of(output: Array, x: dict[str, Any], **more: Any) -> str:
    verdict = check(output, **x, **more)
    assert verdict.status == "found", verdict
    return verdict.explanations[0].name


ORDERS = [
    ([5, 0, 1, 2, 3, 4], "the one before"),
    ([1, 2, 3, 4, 5, 0], "the one after"),
    ([5, 4, 3, 2, 1, 0], "the one at its place in reverse order"),
    ([1, 0, 3, 2, 5, 4], "the one at its place in reverse order within each block of 2"),
    ([0, 2, 4, 1, 3, 5], "the one at its place in a view of [3, 2] in place of [2, 3]"),
    ([4, 5, 0, 1, 2, 3], "the one 4 after"),
    ([0, 0, 2, 2, 4, 4], "the first of its block of 2"),
    ([0, 1, 2, 0, 1, 2], "its number modulo 3"),
]
REVERSE = [
    ([0, 3, 1, 4, 2, 5], "the one at its place in a view of [2, 3] in place of [3, 2]"),
    ([2, 3, 4, 5, 0, 1], "the one 2 after"),
]
KINDS = {"k": "keys", "q": "queries"}


@pytest.mark.parametrize(
    ("order", "name", "dtype"),
    in_turn(ORDERS, "kq", ["float64", "float32"], name=lambda order: order[1]),
)
def test_of_a_factor_of_the_scores(order: tuple[list[int], str], name: str, dtype: str) -> None:
    """Keys in an order are queries in the reverse one: where both are, the keys are said."""
    channels, words = order
    x = {key: array.astype(dtype) for key, array in inputs().items()}
    output = plain.attention(x | {name: read(x[name], channels)}, {})["output"].astype(dtype)
    if name == "q" and len({*channels}) == D_K:
        channels = [channels.index(at) for at in range(D_K)]
        words = {tuple(other): text for other, text in ORDERS + REVERSE}[tuple(channels)]
        name = "k"
    other = KINDS["q" if name == "k" else "k"]
    said = name_of(output, x)
    assert said == f"each channel of the {KINDS[name]} is read as {words} (the {other} are right)"


@pytest.mark.parametrize(
    ("order", "of"), in_turn(ORDERS[:6], ["output", "v"], name=lambda order: order[1])
)
def test_of_the_output(order: tuple[list[int], str], of: str) -> None:
    channels, words = order
    x = inputs(1)
    right = plain.attention(x | ({"v": read(x["v"], channels)} if of == "v" else {}), {})["output"]
    output = read(right, channels) if of == "output" else right
    said = name_of(output, x)
    assert said == f"each channel of the output (or of the values) is read as {words}"


def test_any_order_is_listed() -> None:
    x = inputs(2)
    output = read(plain.attention(x, {})["output"], [3, 1, 2, 0, 4, 5])
    said = "the output of channel 1 is that of channel 4, of channel 4 is that of channel 1"
    assert name_of(output, x) == said


@pytest.mark.parametrize("positions", ["", "rope-halves"])
def test_beside_causal_and_shared_key_heads(positions: str) -> None:
    """The first row sees one key, whatever its score is."""
    x = inputs(3, n_groups=1)
    x["q"] = np.random.default_rng(4).normal(size=(BATCH, HEADS, N_K, D_K))
    turned = {name: rotated(array) if positions else array for name, array in x.items()}
    turned |= {"v": x["v"], "k": read(turned["k"], ORDERS[0][0])}
    output = plain.attention(turned, {"causal": True})["output"]
    said = name_of(output, x, causal=True, positions=positions or None)
    assert said == "each channel of the keys is read as the one before (the queries are right)"


def rotated(x: Array) -> Array:
    """x with rotary positions from 0, of which each entry and that half a width after are a pair."""
    half = D_K // 2
    angles = np.arange(x.shape[-2])[:, None] * 10000.0 ** (-np.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def test_the_formula_is_said() -> None:
    x = inputs()
    output = plain.attention(x | {"k": read(x["k"], ORDERS[0][0])}, {})["output"]
    (bug,) = check(output, **x).explanations[0].bugs
    assert bug.sentence == "k[b,g,j,d] = right[b,g,j,(d - 1) % 6]"
