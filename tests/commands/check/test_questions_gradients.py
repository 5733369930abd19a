"""An operand read at another place, of which gradients alone were observed, by hand in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.commands.check.diagnose import check
from tests.commands.check.test_questions_maps import Inputs, cause, inputs, mask_of
from tests.commands.check.test_questions_masks import backward
from tests.turns import in_turn

BATCH, HEADS, N_Q, N_K = 5, 3, 7, 13
EVERY = np.ones((1, 1, N_Q, N_K), np.bool_)
AT = np.arange(N_K)


def of_blocks(x: Inputs) -> Inputs:
    return x._replace(k=x.k[:, :, AT // 4 * 4])


def of_values(x: Inputs) -> Inputs:
    return x._replace(v=x.v[:, :, AT % 5])


def of_heads(x: Inputs) -> Inputs:
    return x._replace(k=x.k[:, [0, 2, 2]], v=x.v[:, [0, 2, 2]])


def of_items(x: Inputs) -> Inputs:
    return x._replace(v=x.v[[0, 1, 2, 0, 1]])


def of_queries(x: Inputs) -> Inputs:
    return x._replace(q=x.q[:, :, np.arange(N_Q) // 3 * 3])


OPERANDS: dict[Callable[[Inputs], Inputs], list[str]] = {
    of_blocks: ["key", "first of its block of 4"],
    of_heads: ["key head 2 ", "key head 3"],
    of_queries: ["q", "first of its block of 3"],
    of_values: ["value", "modulo 5"],
    of_items: ["v of batch item 4", "batch item 1"],
}
READS = [
    *in_turn(list(OPERANDS)[:3], ["d_q", "d_k", "d_v"], name=lambda read: read.__name__),
    # d_v does not read v
    *in_turn(list(OPERANDS)[3:], ["d_q", "d_k"], name=lambda read: read.__name__),
]


@pytest.mark.parametrize(("read", "stage"), READS)
def test_operands(read: Callable[[Inputs], Inputs], stage: str, dtype: str) -> None:
    x, facts = inputs(BATCH, HEADS, N_Q, N_K), OPERANDS[read]
    d_output = np.random.default_rng(3).normal(size=(BATCH, HEADS, N_Q, x.v.shape[-1]))
    gradient = backward(read(x), d_output, EVERY)[stage].astype(dtype)
    arrays = (y.astype(dtype) for y in x)
    name = cause(check({stage: gradient}, *arrays, d_output=d_output.astype(dtype)))
    assert all(fact in name for fact in facts), name


def blocks_of_queries(mask: Array) -> Array:
    return mask[:, :, np.arange(N_Q) // 3 * 3]


def blocks_of_keys(mask: Array) -> Array:
    return mask[..., AT % 4]


MASKS: dict[Callable[[Array], Array], list[str]] = {
    blocks_of_queries: ["mask of each query", "block of 3"],
    blocks_of_keys: ["modulo 4"],
}


@pytest.mark.parametrize(
    ("read", "stage"), in_turn(MASKS, ["d_q", "d_v"], name=lambda read: read.__name__)
)
def test_masks(read: Callable[[Array], Array], stage: str) -> None:
    facts = MASKS[read]
    x, mask = inputs(BATCH, HEADS, N_Q, N_K), mask_of(1, 1, N_Q, N_K)
    mask[..., 2] = True
    d_output = np.random.default_rng(3).normal(size=(BATCH, HEADS, N_Q, x.v.shape[-1]))
    gradient = backward(x, d_output, read(mask))[stage]
    name = cause(check({stage: gradient}, *x, mask=mask, d_output=d_output))
    assert all(fact in name for fact in facts), name


def test_causal_by_blocks() -> None:
    x = inputs(BATCH, HEADS, N_Q, N_K)
    d_output = np.random.default_rng(3).normal(size=(BATCH, HEADS, N_Q, x.v.shape[-1]))
    visible = (np.arange(N_Q)[:, None] // 4 * 4 + 3 >= AT)[None, None]
    gradients = backward(x, d_output, visible)
    name = cause(check(gradients, *x, causal=True, d_output=d_output))
    assert "causal by blocks of 4" in name
