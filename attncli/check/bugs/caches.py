"""Bugs of caches and of batches of different lengths: whose keys there are, and how many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attncli.arrays import Array
from attncli.attention.masks import total_mask
from attncli.check.bugs.bug import Bug, Evidence, bug
from attncli.check.bugs.kernels import SOFTMAX, without_keys
from attncli.check.setup import Setup


def _off_by_one(setup: Setup, _: Evidence) -> Iterator[Setup]:
    lengths = setup.inputs.get("kv_len")
    if lengths is None:
        return
    for step, words in ((1, "one more"), (-1, "one fewer")):
        other = np.clip(lengths + step, 0, setup.shape[3])
        if (other != lengths).any():
            yield setup.with_inputs(kv_len=other).with_detail(words)


def _one_length(setup: Setup, _: Evidence) -> Iterator[Setup]:
    lengths = setup.inputs.get("kv_len")
    if lengths is None or lengths.size < 2:
        return
    seen: dict[int, list[str]] = {}
    choices = {"first": lengths[0], "longest": lengths.max(), "shortest": lengths.min()}
    for words, length in choices.items():
        seen.setdefault(int(length), []).append(words)
    for length, names in seen.items():
        one = setup.with_inputs(kv_len=np.full_like(lengths, length))
        yield one.with_detail(f"{length}, that of the {' or '.join(names)}")


def is_padding(mask: Array) -> bool:
    """Whether a mask says of each key, not of each query, whether it may be attended to.

    >>> is_padding(np.array([True, False])), is_padding(np.eye(2, dtype=bool))
    (True, False)
    """
    return mask.ndim < 2 or bool((mask == mask[..., :1, :]).all())


def _other_side(setup: Setup, _: Evidence) -> Iterator[Setup]:
    mask = setup.inputs.get("given_mask")
    if "kv_len" in setup.inputs:
        yield setup.with_steps(mask=mask_padded_on_the_left)
    elif mask is not None and mask.shape[-1] == setup.shape[3] > 1 and is_padding(mask):
        yield setup.with_inputs(given_mask=mask[..., ::-1])


def mask_padded_on_the_left(
    kv_len: Array, rows: Array, given_mask: Array | None = None, *, n_k: int, **how: int
) -> Array:
    """The mask in which the last keys of each batch item are the valid ones, not the first."""
    padded = (np.arange(n_k) < n_k - kv_len[:, None])[:, None, None, :]
    others = total_mask(given_mask, rows=rows, n_k=n_k, **how)  # type: ignore[arg-type]
    return np.where(padded, -np.inf, others)


def _of_another_item(setup: Setup, _: Evidence) -> Iterator[Setup]:
    """The masks or lengths of the batch items in another order, or that of the first for all."""
    n_batch, n_heads = setup.shape[:2]
    mask, lengths = setup.inputs.get("given_mask"), setup.inputs.get("kv_len")
    if mask is not None and mask.ndim == 4 and mask.shape[0] > 1:
        yield setup.with_inputs(given_mask=mask[:1]).with_detail("that of the first for all")
        if mask.shape[1] == 1 < n_heads:
            at = np.arange(n_batch * n_heads).reshape(n_batch, n_heads) % n_batch
            words = "repeated in the order (heads, batch), used as (batch, heads)"
            yield setup.with_inputs(given_mask=mask[at, 0]).with_detail(words)
        for step, words in ((1, "that of the item before"), (-1, "that of the item after")):
            rolled = np.roll(mask, step, axis=0)
            yield setup.with_inputs(given_mask=rolled).with_detail(words)
    if lengths is not None and lengths.size > 1:
        for step, words in ((1, "the length of the item before"), (-1, "that of the item after")):
            yield setup.with_inputs(kv_len=np.roll(lengths, step)).with_detail(words)


def _is_decoding(setup: Setup) -> bool:
    """Whether there are keys before the queries' own."""
    return setup.n_past > 0 or setup.shape[2] < setup.shape[3]


def _n_new(setup: Setup) -> int:
    return setup.shape[3] - setup.n_past if setup.n_past else setup.shape[2]


def _not_cached(setup: Setup, _: Evidence) -> Iterator[Setup]:
    if _is_decoding(setup):
        yield without_keys(setup, slice(-1, None)).with_detail("the last one is missing")
        if (n := _n_new(setup)) > 1:
            words = f"the last {n} are missing, all that are new"
            yield without_keys(setup, slice(-n, None)).with_detail(words)


def _overwritten(setup: Setup, _: Evidence) -> Iterator[Setup]:
    """The key before the new ones is lost: they are written one place too early."""
    if _is_decoding(setup) and (last := setup.shape[3] - _n_new(setup) - 1) >= 0:
        yield without_keys(setup, slice(last, last + 1)).with_detail(f"key {last + 1} is lost")


def _cache_ignored(setup: Setup, _: Evidence) -> Iterator[Setup]:
    if setup.n_past:
        yield without_keys(setup, slice(setup.n_past))


CACHES: tuple[Bug, ...] = (
    bug(
        "key lengths off by one",
        _off_by_one,
        "padding",
        "each batch item has one valid key more, or one fewer",
    ),
    bug(
        "one batch item's key length for all",
        _one_length,
        "padding",
        "every batch item has as many valid keys as one of them",
    ),
    bug(
        "padding on the left taken for right",
        _other_side,
        "mask padding",
        "the valid keys of a batch item are its last ones, not its first, or the reverse",
    ),
    bug(
        "mask of another batch item",
        _of_another_item,
        "mask padding",
        "a batch item has the mask or the key length of another one",
    ),
    bug(
        "newest key not cached",
        _not_cached,
        SOFTMAX,
        "the new key and value are put into the cache after attention, not before",
    ),
    bug(
        "newest key overwrites the last one",
        _overwritten,
        SOFTMAX,
        "the new key and value are written one place too early in the cache",
        pairs=False,
    ),
    bug(
        "cache ignored",
        _cache_ignored,
        SOFTMAX,
        "queries attend to the new keys alone, not to the cached ones",
    ),
)
