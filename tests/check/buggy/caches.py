"""Buggy attentions: caches, and batch items of different lengths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.check.buggy.layouts import attention, three_items
from tests.check.buggy.masking import per_item
from tests.check.buggy.parts import Array, Computed, Inputs


def with_lengths(
    masked: Callable[[int, list[int], Array, int], Array],
) -> Callable[[Inputs], Computed]:
    """Three batch items; masked(item, lengths, j, n_k) says which keys are not attended to."""

    def make(inputs: Inputs) -> Computed:
        q, k, v = three_items(inputs)
        n = inputs.n_k
        lengths = [n - 1, n - 3, n - 2]
        observed = per_item(q, k, v, lambda b, i, j: masked(b, lengths, j, n))
        return Computed(inputs.round(observed), q, k, v, {}, {"kv_len": lengths})

    return make


right_lengths = with_lengths(lambda b, lengths, j, n: j >= lengths[b])
one_fewer = with_lengths(lambda b, lengths, j, n: j >= lengths[b] - 1)
one_more = with_lengths(lambda b, lengths, j, n: j > lengths[b])
longest = with_lengths(lambda b, lengths, j, n: j >= max(lengths))
padded_on_the_left = with_lengths(lambda b, lengths, j, n: j < n - lengths[b])
length_of_the_next = with_lengths(lambda b, lengths, j, n: j >= lengths[(b + 1) % 3])


def mask_on_the_other_side(inputs: Inputs) -> Computed:
    """A mask of the keys that has the padding on the left, laid on keys padded on the right."""
    q, k, v = three_items(inputs)
    keep = np.arange(inputs.n_k) >= np.array([1, 3, 2])[:, None, None, None]
    observed = per_item(q, k, v, lambda b, i, j: ~keep[b, 0, 0, ::-1][j])
    return Computed(inputs.round(observed), q, k, v, {}, {"mask": keep})


def with_masks(of: Callable[[int, int, int], int]) -> Callable[[Inputs], Computed]:
    """A mask for each of three batch items; head h of item b gets that of(b, h, n_heads)."""

    def make(inputs: Inputs) -> Computed:
        q, k, v = three_items(inputs)
        keep = inputs.rng.random((3, 1, inputs.n_q, inputs.n_k)) < 0.6
        keep[..., 0] = True
        n_heads = q.shape[1]

        def one_head(head: int) -> Array:
            one = slice(head, head + 1)
            hidden = [~keep[of(b, head, n_heads), 0] for b in range(3)]
            return per_item(q[:, one], k[:, one], v[:, one], lambda b, i, j: hidden[b])

        observed = np.concatenate([one_head(head) for head in range(n_heads)], axis=1)
        return Computed(inputs.round(observed), q, k, v, {}, {"mask": keep})

    return make


right_masks = with_masks(lambda b, head, n_heads: b)
first_mask = with_masks(lambda b, head, n_heads: 0)
tiled_masks = with_masks(lambda b, head, n_heads: (b * n_heads + head) % 3)


def with_past(
    kept: Callable[[int, int], list[int]],
) -> Callable[[Inputs], Computed]:
    """A cache of some keys, and new ones; the queries attend to kept(n_past, n_k)."""

    def make(inputs: Inputs) -> Computed:
        q, k, v = inputs.qkv()
        n_past = inputs.n_k - 2
        at = kept(n_past, inputs.n_k)
        observed = attention(q, k[:, at], v[:, at])
        given = {"past_k": k[:, :n_past], "past_v": v[:, :n_past]}
        return Computed(inputs.round(observed), q, k[:, n_past:], v[:, n_past:], {}, given)

    return make


right_past = with_past(lambda n_past, n: list(range(n)))
newest_missing = with_past(lambda n_past, n: list(range(n - 1)))
all_new_missing = with_past(lambda n_past, n: list(range(n_past)))
overwritten = with_past(lambda n_past, n: [*range(n_past - 1), *range(n_past, n)])
cache_ignored = with_past(lambda n_past, n: list(range(n_past, n)))
