"""Small inputs of random numbers, with all that attention may be given."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.convention import Convention
from attncli.tolerance.positions import positions_of
from attncli.tolerance.setup import Setup, setup_of

Shape = tuple[int, ...]  # (batch, head, kv_head, n_q, n_k, d_k, d_v)

WORDS = {
    "mask": "a boolean mask",
    "emptying": "that leaves the last query nothing",
    "items": "one of each batch item",
    "padding": "a boolean mask of the keys",
    "lengths": "key lengths below the number of keys",
    "past": "2 of the keys as a past",
    "numbers": "a mask of numbers, −∞ among them",
    "ones": "a mask of 1.5 and 0",
    "sinks": "sinks",
    "nan": "NaN in the last key and value, which are hidden",
}
"""What restricts an input, or is there besides, and the words for it."""


class Small(NamedTuple):
    """A small input as `attend` takes it, how it is computed, and what it is in words."""

    arrays: dict[str, Array]
    setup: Setup
    words: str


def small_input(
    shape: Shape,
    parts: str = "",
    convention: Convention | None = None,
    positions: str | None = None,
    *,
    times: float = 1.0,
    gradients: bool = False,
) -> Small:
    """Random numbers of two decimals with these parts, of `WORDS`; queries so many times as large.

    >>> small_input((1, 2, 2, 3, 5, 7, 11), "past").words
    '2 heads, 3 queries, 5 keys, d_k 7, d_v 11, 2 of the keys as a past'
    """
    convention, names = convention or Convention(), parts.split()
    n_batch, n_heads, n_kv, n_q, n_k, d_k, d_v = shape = _fitting(
        shape, positions, convention.window
    )
    rng = np.random.default_rng(7)
    q = rng.normal(size=(n_batch, n_heads, n_q, d_k)).round(2) * times
    k = rng.normal(size=(n_batch, n_kv, n_k, d_k)).round(2)
    v = rng.normal(size=(n_batch, n_kv, n_k, d_v)).round(2)
    arrays: dict[str, Any] = {}
    if "nan" in names:
        k[..., -1, 0] = v[..., -1, 0] = np.nan
    if "past" in names:
        arrays = {"past_k": k[:, :, :2], "past_v": v[:, :, :2]}
        k, v = k[:, :, 2:], v[:, :, 2:]
    if "lengths" in names:
        arrays["kv_len"] = n_k - 1 - np.arange(n_batch)
    if {*names} & {"mask", "padding", "numbers", "ones"}:
        arrays["mask"] = _mask(names, shape, convention, rng)
    if "sinks" in names:
        arrays["sinks"] = rng.normal(size=n_heads).round(2)
    if gradients:
        arrays["d_output"] = rng.normal(size=(n_batch, n_heads, n_q, d_v)).round(2)
    arrays = {"q": q, "k": k, "v": v, **arrays}
    setup = setup_of(**arrays, convention=convention, positions=positions)
    words = [_sizes(shape), *(WORDS[part] for part in names), *(["and a d_output"] * gradients)]
    words += [f"queries about {times:g} in size"] * (times > 1)
    words += [f"{positions} positions"] * (positions is not None)
    return Small(arrays, setup, ", ".join(words).replace("mask, that", "mask that"))


def _fitting(shape: Shape, positions: str | None, window: tuple[int, int] | None) -> Shape:
    """Even widths for rotary positions, one for sinusoidal ones; tokens for the window to mask."""
    *heads, n_q, n_k, d_k, d_v = shape
    if positions is not None and positions_of(positions).is_rotary:
        n_k += n_k == d_k  # keys as many as they are wide stay a square
        d_k, d_v = d_k + d_k % 2, d_v + d_v % 2
    elif positions is not None:
        d_v = d_k
    more = 0 if window is None else min(512, 2 * max(0, *window))
    return (*heads, n_q + more, n_k + more, d_k, d_v)


def _mask(
    parts: list[str], shape: Shape, convention: Convention, rng: np.random.Generator
) -> Array:
    """A mask of one of the kinds; where it is boolean, of what `mask_means` means by it."""
    n_batch, _, _, n_q, n_k, *_ = shape
    if "padding" in parts:
        return np.arange(n_k) < n_k - 2
    keeps = rng.random((n_batch, 1, n_q, n_k) if "items" in parts else (n_q, n_k)) < 0.6
    keeps[..., 0] = True
    keeps[..., -1, :] &= "emptying" not in parts
    if "numbers" in parts:
        bias = rng.normal(size=keeps.shape).round(2) * (rng.random(keeps.shape) < 0.7)
        return np.where(keeps, bias, -np.inf)
    if "ones" in parts:
        return np.where(keeps, 1.5, 0.0)
    return ~keeps if convention.mask_means == "ignore" else keeps


def _sizes(shape: Shape) -> str:
    n_batch, n_heads, n_kv, n_q, n_k, d_k, d_v = shape
    batch = f"{n_batch} batch items, " * (n_batch > 1)
    shared = f" on {n_kv} key heads" * (n_kv != n_heads)
    return f"{batch}{n_heads} heads{shared}, {n_q} queries, {n_k} keys, d_k {d_k}, d_v {d_v}"
