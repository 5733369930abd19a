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
from attncli.convention import CausalAlign, MaskAndCausal


def _has_boolean_mask(setup: Setup) -> bool:
    return "given_mask" in setup.inputs and setup.inputs["given_mask"].dtype == np.bool_


def _is_causal(setup: Setup) -> bool:
    return setup.how.causal


def _is_aligned(setup: Setup) -> bool:
    return setup.how.causal or setup.how.window is not None


def _has_more_keys(setup: Setup) -> bool:
    return setup.how.causal and setup.shape[2] < setup.shape[3]


def _is_one_alone(setup: Setup) -> bool:
    """Whether there are a mask and causal, of which one has no effect."""
    both = setup.how.causal and "given_mask" in setup.inputs
    return both and setup.how.mask_and_causal in ("mask", "causal")


def _both_if_masked(setup: Setup) -> MaskAndCausal:
    """Both restrict where there is a mask: a causal mask that is not wanted hides keys."""
    return "both" if "given_mask" in setup.inputs else setup.how.mask_and_causal


def _is_read_as_truth(setup: Setup) -> bool:
    """Whether a mask of numbers is given, which mean true or false."""
    is_given = "given_mask" in setup.inputs and not _has_boolean_mask(setup)
    return is_given and setup.how.mask_numbers == "truth"


def _hides_by_inf_alone(mask: Array) -> bool:
    """Whether a mask of numbers is 0 where a query may attend, and −inf where it may not."""
    return bool(np.isin(mask, (0.0, -np.inf)).all())


def _mask_inverted(setup: Setup, _: Evidence) -> Iterator[Setup]:
    mask, means = setup.inputs.get("given_mask"), setup.how.mask_means
    if mask is None:
        return
    is_truth = _is_read_as_truth(setup)
    if _has_boolean_mask(setup) or (is_truth and not _hides_by_inf_alone(mask)):
        if means != "add":
            yield setup.with_how(mask_means="ignore" if means == "keep" else "keep")
    elif not is_truth and _hides_by_inf_alone(mask):
        yield setup.with_inputs(given_mask=np.where(np.isneginf(mask), 0.0, -np.inf))


def _numbers_as_truth(setup: Setup, _: Evidence) -> Iterator[Setup]:
    """Not where that is the same as a mask the other way round, or as none."""
    mask = setup.inputs.get("given_mask")
    if mask is None or _has_boolean_mask(setup) or setup.how.mask_numbers == "truth":
        return
    if not _hides_by_inf_alone(mask) and (mask == 0).any():
        yield setup.with_how(mask_numbers="truth")


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
    left, right = setup.how.reach or (-1, -1)
    if left < 1:
        return
    for chunk in sorted({left, left + 1, left + 1 + max(right, 0)}):
        changed = setup.with_steps(mask=partial(mask_in_chunks, chunk=chunk))
        yield changed.with_detail(f"chunks of {chunk}")


def _window_by(step: int) -> Change:
    """Each bound of the window moved by a step, one side at a time and then both."""

    def change(setup: Setup, _: Evidence) -> Iterator[Setup]:
        if setup.how.window is None:
            return
        least = {"left": int(setup.how.window_counts == "own"), "right": 0}
        for sides in (("left",), ("right",), ("left", "right")):
            bounds = dict(zip(("left", "right"), setup.how.window, strict=True))
            moved = bounds | {side: bounds[side] + step for side in sides}
            if all(min(bounds[side], moved[side]) >= least[side] for side in sides):
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
        "pytorch#170415, transformers#41443",
    ),
    bug(
        "boolean mask not added as numbers",
        changing(
            mask_means="keep",
            when=lambda setup: _has_boolean_mask(setup) and setup.how.mask_means == "add",
        ),
        "mask",
        "what is false is hidden, although true and false are to be added as 1 and 0",
    ),
    bug(
        "numbers of the mask read as true or false",
        _numbers_as_truth,
        "mask",
        "what is not 0, −inf too, lets a query attend, and 0 hides a key",
        "keras#20511",
    ),
    bug(
        "numbers of the mask added, not read as true or false",
        changing(mask_numbers="add", when=_is_read_as_truth),
        "mask",
        "the numbers are added to the scores, although those that are not 0 are to be true",
        "pytorch#21518",
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
        "mask and causal both applied, not one alone",
        changing(mask_and_causal="both", when=_is_one_alone),
        "mask causal",
        "a key is hidden where either hides it, although one of the two is to have no effect",
    ),
    bug(
        "causal mask where none is wanted",
        changing(
            causal=True,
            causal_align="top-left",
            mask_and_causal=_both_if_masked,
            when=lambda setup: not setup.how.causal,
        ),
        "causal",
        "queries do not attend to keys after their own position",
    ),
    bug(
        "causal mask where none is wanted, bottom-right",
        changing(
            causal=True,
            causal_align="bottom-right",
            mask_and_causal=_both_if_masked,
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
        changing(
            causal_align="top-left",
            when=lambda setup: _is_aligned(setup) and setup.how.causal_align == "bottom-right",
        ),
        "causal window",
        "the first query is at the position of the first key, not the last at that of the last",
        "pytorch#108108, mlx#2835, onnx#8054",
    ),
    bug(
        "causal mask leaves the last query all keys",
        changing(causal_align="open-last", when=_has_more_keys),
        "causal",
        "where keys are more than queries, the last query attends to those after it as well",
    ),
    bug(
        "causal mask for the last query too",
        changing(
            causal_align="top-left",
            when=lambda setup: _has_more_keys(setup) and setup.how.causal_align == "open-last",
        ),
        "causal",
        "the last query does not attend to keys after its own position, although it is to see all",
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
