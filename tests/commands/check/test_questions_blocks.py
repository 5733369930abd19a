"""Pages and masks that are read by blocks: the wrong numbers are computed by loops over cells."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from attncli.commands.check.diagnose import check
from tests.commands.check.test_questions_maps import attention, cause, inputs, mask_of

N_Q, N_K = 7, 13


@pytest.mark.parametrize(
    ("read", "facts"),
    [
        (lambda j: j - 4 if 4 <= j < 8 else j, ["keys 5 to 8", "keys 1 to 4", "pages of 4"]),
        (lambda j: (0, 2, 1, 3, 4)[j // 3] * 3 + j % 3, ["pages 2 and 3", "exchanged"]),
        (lambda j: (1, 2, 0, 3)[j // 4] * 4 + j % 4, ["another order: 2, 3, 1, 4", "pages of 4"]),
    ],
)
def test_pages(read: Callable[[int], int], facts: list[str]) -> None:
    x = inputs(3, 2, N_Q, N_K)
    observed = attention(
        x,
        key=lambda b, g, j: (b, g, read(j)),
        value=lambda b, g, j: (b, g, read(j)),
        sees=lambda b, h, i, j: j <= i + N_K - N_Q,
    )
    name = cause(check(observed, *x, causal=True, causal_align="bottom-right"))
    assert all(fact in name for fact in facts), name


def test_some_keys_of_another_key_head() -> None:
    x = inputs(2, 6, N_Q, N_K, groups=3)

    def other(b: int, g: int, j: int) -> tuple[int, int, int]:
        return b, 1 if j >= 8 else g, j

    name = cause(check(attention(x, key=other, value=other), *x))
    assert "keys 9 to 13 are those of key head 2" in name


def test_some_keys_of_another_batch_item() -> None:
    x = inputs(3, 2, N_Q, N_K)

    def other(b: int, g: int, j: int) -> tuple[int, int, int]:
        return 2 if j < 5 else b, g, j

    name = cause(check(attention(x, key=other, value=other), *x))
    assert "keys 1 to 5 are those of batch item 3" in name


def test_k_and_v_in_one_array(dtype: str) -> None:
    """Page p is read at p, not at 2 p, of an array of pages of K and V in turn."""
    x = inputs(3, 2, N_Q, 15, d_k=5, d_v=5)
    pages = [y[:, :, 3 * p :][:, :, :3] for p in range(5) for y in (x.k, x.v)]
    k = np.concatenate(pages[:5], axis=2)
    v = np.concatenate(pages[1:6], axis=2)
    observed = attention(x._replace(k=k, v=v)).astype(dtype)
    name = cause(check(observed, *(y.astype(dtype) for y in x)))
    assert "pages of 3" in name
    assert "half" in name


@pytest.mark.parametrize(
    ("stride", "past_end", "facts"),
    [(1, 0.0, ["place 1 ·", "past its end nothing"]), (2, -np.inf, ["place 2 ·", "hidden"])],
)
def test_a_mask_of_one_row_with_a_stride(stride: int, past_end: float, facts: list[str]) -> None:
    x, mask = inputs(3, 2, N_Q, N_K), np.random.default_rng(2).normal(size=(1, N_K))

    def adds(b: int, h: int, i: int, j: int) -> float:
        at = i * stride + j
        return float(mask[0, at]) if at < N_K else past_end

    name = cause(check(attention(x, adds=adds), *x, mask=mask))
    assert all(fact in name for fact in facts), name


def test_a_mask_whose_rows_are_further_apart() -> None:
    x, mask = inputs(3, 2, N_Q, N_K), mask_of(N_Q, N_K)
    flat = mask.ravel()

    def sees(b: int, h: int, i: int, j: int) -> bool:
        return bool(flat[(i * 16 + j) % flat.size])

    name = cause(check(attention(x, sees=sees), *x, mask=mask))
    assert "place 16 ·" in name
    assert "13 apart" in name


@pytest.mark.parametrize(
    ("is_visible", "facts"),
    [(any, ["3 queries by 4 keys", "visible"]), (all, ["3 queries by 4 keys", "hidden"])],
)
def test_blocks_of_a_mask(is_visible: Callable[..., bool], facts: list[str]) -> None:
    x, random = inputs(3, 2, N_Q, N_K), np.random.default_rng(11)
    blocks = np.repeat(np.repeat(random.random((3, 4)) < 0.6, 3, axis=0), 4, axis=1)
    blocks = np.pad(blocks, ((0, 0), (0, 1)), constant_values=True)[:N_Q, :N_K]
    i, j = np.ogrid[:N_Q, :N_K]
    cells = ((i + j) % 3 == 1) & ((i * j) % 4 != 1)
    mask = blocks & cells if is_visible is any else blocks | ~cells

    def sees(b: int, h: int, i: int, j: int) -> bool:
        block = mask[i // 3 * 3 :][:3, j // 4 * 4 :][:, :4]
        return is_visible(block.ravel())

    name = cause(check(attention(x, sees=sees), *x, mask=mask))
    assert all(fact in name for fact in facts), name
