"""Gradients of shared key heads that sum other query heads than those of their group, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli.commands.check import search
from attncli.commands.check.bugs.catalogue import CATALOGUE
from attncli.commands.check.diagnose import check
from tests.commands.check.planted.parts import TYPES
from tests.turns import in_turn

Array = np.ndarray[Any, Any]
N_Q, N_K, D, D_V = 11, 13, 6, 7
BLOCKS, TILED = np.repeat(np.eye(3), 2, axis=1), np.tile(np.eye(3), 2)


def inputs(n_heads: int = 6, n_groups: int = 3) -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng(n_heads)
    sizes = (n_heads, N_Q, D), (n_groups, N_K, D), (n_groups, N_K, D_V), (n_heads, N_Q, D_V)
    q, k, v, d_output = (rng.normal(size=(2, *size)) for size in sizes)
    return q, k, v, d_output


def of_heads(groups: Array, arrays: Any, *, rotated: bool = False) -> dict[str, Array]:
    """[batch, head, key, d]: what each query head adds to d_k and d_v of its key head."""
    q, k, v, d_output = arrays
    key_head = groups.argmax(axis=0)
    k, v = k[:, key_head], v[:, key_head]
    if rotated:
        q, k = turned(q), turned(k)
    powers = np.exp(q @ k.swapaxes(2, 3) / np.sqrt(D))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    d_weights = d_output @ v.swapaxes(2, 3)
    delta = (weights * d_weights).sum(axis=-1, keepdims=True)
    d_scores = weights * (d_weights - delta) / np.sqrt(D)
    d_k = d_scores.swapaxes(2, 3) @ q
    return {"d_k": turned(d_k, -1) if rotated else d_k, "d_v": weights.swapaxes(2, 3) @ d_output}


def turned(x: Array, sign: int = 1) -> Array:
    """Rotary positions in halves, in the plain words of the paper: one pair after another."""
    result = np.zeros_like(x)
    for i in range(D // 2):
        angle = sign * np.arange(x.shape[2]) * 10000.0 ** (-2 * i / D)
        a, b = x[..., i], x[..., i + D // 2]
        result[..., i] = a * np.cos(angle) - b * np.sin(angle)
        result[..., i + D // 2] = a * np.sin(angle) + b * np.cos(angle)
    return result


def summed(times: Any, parts: dict[str, Array], names: list[str]) -> dict[str, Array]:
    return {name: np.einsum("gh,bhjd->bgjd", np.asarray(times), parts[name]) for name in names}


SUMS: dict[str, tuple[Any, str]] = {
    "two groups exchange a head": (
        [[1, 0, 1, 0, 0, 0], [0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 1, 1]],
        "key head 1 sums heads 1 and 3, right are 1 and 2; key head 2 sums heads 2 and 4, right are 3 and 4",
    ),
    "one head is left out": (BLOCKS - [[0] * 6, [0, 0, 0, 1, 0, 0], [0] * 6], "key head 2 sums head 3, right are 3 and 4"),
    "one head twice": (BLOCKS + np.eye(3, 6) * [1, 0, 0, 0, 0, 0], "key head 1 sums head 2 and 2 times head 1, right are 1 and 2"),
    "not set to 0 between key heads": (
        np.tril(np.ones((3, 3))).repeat(2, axis=1),
        "key head 2 sums heads 1 to 4, right are 3 and 4; key head 3 sums heads 1 to 6, right are 5 and 6",
    ),
    "all heads": (np.ones((3, 6)), "all query heads are summed for every key head"),
    "the first head": (np.kron(np.eye(3), [[1, 0]]), "only the first head of each group is counted, not all 2"),
    "the last head": (np.kron(np.eye(3), [[0, 1]]), "only the last head of each group is counted, not all 2"),
    "a mean of one key head": (BLOCKS * [[1], [0.5], [1]], "key head 2 sums 0.5 times heads 3 and 4, right are 3 and 4"),
    "the number of the head": (np.eye(3, 6), "key head 1 sums head 1, right are 1 and 2; key head 2 sums head 2, right are 3 and 4"),
    "one head of each group twice": (np.kron(np.eye(3), [[2, 1]]), "head 1 of each group of 2 counts 2 times"),
}  # fmt: skip


@pytest.fixture
def without_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue without its rows on these heads."""
    rows = tuple(x for x in CATALOGUE if "key-heads" not in x.touches or "dK" not in x.name)
    rows = tuple(x for x in rows if "grouped heads" not in x.name)
    monkeypatch.setattr(search, "CATALOGUE", rows)


@pytest.mark.usefixtures("without_rows")
@pytest.mark.parametrize(
    ("what", "observed"), in_turn(["right", *SUMS], ["d_k", "d_v", "d_k and d_v"])
)
def test_other_heads_are_summed(what: str, observed: str) -> None:
    names = observed.split(" and ")
    arrays = inputs()
    *qkv, d_output = arrays
    parts = of_heads(BLOCKS, arrays)
    if what == "right":
        assert check(summed(BLOCKS, parts, names), *qkv, d_output=d_output).matches
        return
    times, words = SUMS[what]
    name = check(summed(times, parts, names), *qkv, d_output=d_output).explanations[0].name
    assert words in name
    assert {x for x in ("d_k", "d_v") if x in name} == {*names}


@pytest.mark.usefixtures("without_rows")
def test_other_heads_beside_keys_that_were_not_written() -> None:
    *qkv, d_output = arrays = inputs()
    times, words = SUMS["two groups exchange a head"]
    observed = summed(times, of_heads(BLOCKS, arrays), ["d_k", "d_v"])
    observed["d_k"][:, 2, -1] = observed["d_v"][1, 0] = 0
    (found,) = check(observed, *qkv, d_output=d_output).explanations
    assert words in found.name
    assert "of key head 3 of d_k is 0: not written" in found.name
    assert "key head 1 of batch item 2 of d_v is 0: not written" in found.name


@pytest.mark.usefixtures("without_rows")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_in_other_types_with_tiled_heads(dtype: str) -> None:
    kind = TYPES.get(dtype, dtype)
    narrow = tuple(x.astype(kind) for x in inputs())
    parts = of_heads(TILED, tuple(x.astype(float) for x in narrow))
    times = TILED * [1, 1, 1, 0, 0, 0]
    observed = {name: x.astype(kind) for name, x in summed(times, parts, ["d_k", "d_v"]).items()}
    *qkv, d_output = narrow
    verdict = check(observed, *qkv, d_output=d_output, head_order="tiled")
    assert "only the first head of each group is counted, not all 2" in verdict.explanations[0].name


@pytest.mark.usefixtures("without_rows")
def test_three_heads_share_a_key_head_with_positions() -> None:
    groups = np.repeat(np.eye(2), 3, axis=1)
    arrays = inputs(6, 2)
    *qkv, d_output = arrays
    parts = of_heads(groups, arrays, rotated=True)
    more: dict[str, Any] = {"d_output": d_output, "positions": "rope-halves"}
    assert check(summed(groups, parts, ["d_k"]), *qkv, **more).matches
    middle = summed(np.kron(np.eye(2), [[1, 0, 1]]), parts, ["d_k"])
    name = check(middle, *qkv, **more).explanations[0].name
    assert name == "in d_k head 2 of each group of 3 is left out"
    other = groups + np.eye(2, 6, 3) * [[1], [0]]
    verdict = check(summed(other, parts, ["d_k"]), *qkv, **more)
    assert verdict.explanations[0].name == "in d_k key head 1 sums heads 1 to 4, right are 1 to 3"
    assert "dK[b,g,j,d] = sum[h](" in str(verdict)


def test_other_numbers_are_no_heads() -> None:
    *qkv, d_output = inputs()
    noise = np.random.default_rng(3).normal(size=(2, 3, N_K, D))
    assert not check({"d_k": noise}, *qkv, d_output=d_output, pairs=False).explanations


def test_queries_of_other_heads_by_gradients_alone() -> None:
    q, k, v, d_output = inputs()
    parts = of_heads(BLOCKS, (q[:, ::-1], k, v, d_output))
    observed = summed(BLOCKS, parts, ["d_k", "d_v"])
    name = check(observed, q, k, v, d_output=d_output).explanations[0].name
    assert name == "q of each head is that of the one at its place in reverse order"
