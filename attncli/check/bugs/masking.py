"""Bugs of who may attend to whom: masks misread, left out, shifted, or a little too wide."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.masks import first_position, total_mask
from attncli.check.bugs.bug import Bug, Change, Evidence, bug, changing
from attncli.check.bugs.caches import is_padding
from attncli.check.setup import Setup
from attncli.convention import CausalAlign


def _has_boolean_mask(setup: Setup) -> bool:
    return "given_mask" in setup.inputs and setup.inputs["given_mask"].dtype == np.bool_


def _is_causal(setup: Setup) -> bool:
    return setup.how.causal


def _is_aligned(setup: Setup) -> bool:
    return setup.how.causal or setup.how.window is not None


def _mask_inverted(setup: Setup, _: Evidence) -> Iterator[Setup]:
    mask = setup.inputs.get("given_mask")
    if _has_boolean_mask(setup):
        yield setup.with_how(mask_means="ignore" if setup.how.mask_means == "keep" else "keep")
    elif mask is not None and np.isin(mask, (0.0, -np.inf)).all():
        yield setup.with_inputs(given_mask=np.where(np.isneginf(mask), 0.0, -np.inf))


def _padding_on_queries(setup: Setup, _: Evidence) -> Iterator[Setup]:
    if setup.shape[2] != setup.shape[3]:
        return
    if "kv_len" in setup.inputs:
        yield setup.with_steps(mask=mask_with_padded_queries)
    mask = setup.inputs.get("given_mask")
    if mask is not None and is_padding(mask):
        yield setup.with_inputs(given_mask=_transposed(mask, setup))


def _mask_transposed(setup: Setup, _: Evidence) -> Iterator[Setup]:
    mask = setup.inputs.get("given_mask")
    if mask is not None and not is_padding(mask) and setup.shape[2] == setup.shape[3]:
        yield setup.with_inputs(given_mask=_transposed(mask, setup))


def _transposed(mask: Array, setup: Setup) -> Array:
    return np.swapaxes(np.broadcast_to(mask, (*mask.shape[:-2], *setup.shape[2:])), -1, -2)


def mask_with_padded_queries(kv_len: Array, rows: Array, **how: Any) -> Array:
    """The mask with the key lengths applied to the queries."""
    padded = (rows >= kv_len[:, None])[:, None, :, None]
    return np.where(padded, -np.inf, total_mask(rows=rows, **how))


def positions_of(
    rows: Array, kv_len: Array | None, *, align: CausalAlign, n_q: int, n_k: int, n_past: int
) -> tuple[Array, Array]:
    """The positions of the queries, [rows, 1] or [batch, 1, rows, 1], and of the keys."""
    first = first_position(align, n_q, n_k, n_past, kv_len)
    start = np.reshape(first, (-1, 1, 1, 1)) if np.ndim(first) else np.asarray(first)
    return rows[:, None] + start, np.arange(n_k)


def reversed_causal_mask(
    rows: Array,
    kv_len: Array | None = None,
    given_mask: Array | None = None,
    *,
    least: int,
    **how: Any,
) -> Array:
    """The mask by which a query attends to keys from `least` places after its own on."""
    sizes = {name: how[name] for name in ("align", "n_q", "n_k", "n_past")}
    query, key = positions_of(rows, kv_len, **sizes)
    others = total_mask(given_mask, kv_len, rows, **{**how, "causal": False})
    return np.where(key >= query + least, others, -np.inf)


def _causal_reversed(setup: Setup, _: Evidence) -> Iterator[Setup]:
    for least, words in ((0, "its own and later positions"), (1, "later positions alone")):
        if setup.how.causal:
            mask = partial(reversed_causal_mask, least=least)
            yield setup.with_steps(mask=mask).with_detail(words)


def mask_in_chunks(
    rows: Array,
    kv_len: Array | None = None,
    given_mask: Array | None = None,
    *,
    chunk: int,
    **how: Any,
) -> Array:
    """The mask in which a query attends to the keys of its own chunk, as far as it may look."""
    sizes = {name: how[name] for name in ("align", "n_q", "n_k", "n_past")}
    query, key = positions_of(rows, kv_len, **sizes)
    right = -1, how["window_size"][1]
    others = total_mask(given_mask, kv_len, rows, **{**how, "window_size": right})
    return np.where(query // chunk == key // chunk, others, -np.inf)


def _chunks(setup: Setup, _: Evidence) -> Iterator[Setup]:
    if setup.how.window is None or setup.how.window[0] < 1:
        return
    left, right = setup.how.window
    for chunk in sorted({left, left + 1, left + 1 + max(right, 0)}):
        changed = setup.with_steps(mask=partial(mask_in_chunks, chunk=chunk))
        yield changed.with_detail(f"chunks of {chunk}")


def _window_by(step: int) -> Change:
    """Each bound of the window moved by a step, one side at a time and then both."""

    def change(setup: Setup, _: Evidence) -> Iterator[Setup]:
        if setup.how.window is None:
            return
        for sides in (("left",), ("right",), ("left", "right")):
            bounds = dict(zip(("left", "right"), setup.how.window, strict=True))
            moved = bounds | {side: bounds[side] + step for side in sides}
            if all(bounds[side] >= 0 and moved[side] >= 0 for side in sides):
                changed = setup.with_how(window=tuple(moved.values()))
                yield changed.with_detail("on the " + " and ".join(sides))

    return change


MASKING: tuple[Bug, ...] = (
    bug(
        "boolean mask read the other way round",
        _mask_inverted,
        "mask",
        "true is read as ignore where it means keep, or the reverse",
        "pytorch#170415, rasbt/LLMs-from-scratch#1061, TransformerEngine#614",
    ),
    bug(
        "boolean mask added as numbers",
        changing(mask_means="add", when=_has_boolean_mask),
        "mask",
        "true and false are added to the scores as 1 and 0, which masks nothing",
        "pytorch#170415",
    ),
    bug(
        "mask left out",
        changing(inputs={"given_mask": None}),
        "mask",
        "the given mask is not applied",
    ),
    bug(
        "padding left out",
        changing(inputs={"kv_len": None}),
        "padding",
        "keys past the valid length are attended to",
    ),
    bug(
        "padding mask on queries, not keys",
        _padding_on_queries,
        "mask padding",
        "the mask is applied to the rows of the scores, not to the columns",
        "hyunwoongko/transformer#40, bentrevett/pytorch-seq2seq#96",
    ),
    bug(
        "mask transposed",
        _mask_transposed,
        "mask",
        "the rows of the given mask are taken for its columns",
    ),
    bug(
        "causal the wrong way round",
        _causal_reversed,
        "causal",
        "queries attend to keys from their own position on, not up to it",
    ),
    bug(
        "causal mask left out",
        changing(causal=False, causal_align="top-left", when=_is_causal),
        "causal",
        "queries attend to keys after their own position",
    ),
    bug(
        "causal mask where none is wanted",
        changing(causal=True, causal_align="top-left", when=lambda setup: not setup.how.causal),
        "causal",
        "queries do not attend to keys after their own position",
    ),
    bug(
        "causal mask where none is wanted, bottom-right",
        changing(
            causal=True,
            causal_align="bottom-right",
            when=lambda setup: (
                not (setup.how.causal or setup.n_past) and setup.shape[2] != setup.shape[3]
            ),
        ),
        "causal",
        "queries do not attend to keys after their own position, counted from the last key",
        "pytorch#108108",
    ),
    bug(
        "causal mask aligned bottom-right, not top-left",
        changing(causal_align="bottom-right", when=_is_aligned),
        "causal window",
        "the last query is at the position of the last key, not the first at that of the first",
        "pytorch#108108, pytorch#103082, flash-attention#1778",
    ),
    bug(
        "causal mask aligned top-left, not bottom-right",
        changing(causal_align="top-left", when=_is_aligned),
        "causal window",
        "the first query is at the position of the first key, not the last at that of the last",
        "pytorch#108108, mlx#2835, onnx#8054",
    ),
    bug(
        "causal mask hides each query's own position",
        changing(steps={"mask": {"shift": -1}}, when=_is_causal),
        "causal",
        "a query attends only to keys before its own position: off by one",
    ),
    bug(
        "causal mask shows the next position",
        changing(steps={"mask": {"shift": 1}}, when=_is_causal),
        "causal",
        "a query attends to one key after its own position: off by one",
    ),
    bug(
        "cached decode masks its own history",
        changing(
            causal_align="top-left",
            steps={"mask": {"n_past": 0}},
            when=lambda setup: setup.how.causal and setup.n_past > 0,
        ),
        "causal window",
        "positions are counted from the first new token, so the cache before it is masked",
        "gpt-fast#233",
    ),
    bug(
        "window one too wide",
        _window_by(1),
        "window",
        "the sliding window has one key too many",
        "transformers#39408, transformers#29623, vllm#3385",
    ),
    bug(
        "window one too narrow",
        _window_by(-1),
        "window",
        "the sliding window has one key too few",
        "transformers#39408, mlx-lm#390",
    ),
    bug(
        "window left out",
        changing(window=None),
        "window",
        "keys outside the sliding window are attended to",
    ),
    bug(
        "chunks, not a sliding window",
        _chunks,
        "window",
        "the tokens are cut into chunks as long as the window, and attend within their own",
    ),
)
