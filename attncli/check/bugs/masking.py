"""Bugs of who may attend to whom: masks read otherwise, left out, shifted, or a little too wide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from attncli.attention.masks import total_mask
from attncli.check.bugs.hypothesis import Change, Evidence, Hypothesis, Variant, hypothesis
from attncli.check.setup import Array, Setup

_SIDES = ("left", "right")


def _mask_inverted(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.mask is None:
        return
    if setup.mask.dtype == np.bool_:
        other = "ignore" if setup.how.mask_means == "keep" else "keep"
        yield Variant(setup.with_how(mask_means=other))
    elif np.isin(setup.mask, (0.0, -np.inf)).all():
        inverted = np.where(np.isneginf(setup.mask), 0.0, -np.inf)
        yield Variant(replace(setup, mask=inverted))


def _added_as_numbers(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.mask is not None and setup.mask.dtype == np.bool_:
        yield Variant(setup.with_how(mask_means="add"))


def _mask_left_out(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.mask is not None:
        yield Variant(replace(setup, mask=None))


def _padding_left_out(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.kv_len is not None:
        yield Variant(replace(setup, kv_len=None))


def _padding_on_queries(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.shape[2] != setup.shape[3]:
        return
    if setup.kv_len is not None:
        yield Variant(setup.with_steps(mask=mask_with_padded_queries))
    if setup.mask is not None:
        turned = np.swapaxes(np.broadcast_to(setup.mask, setup.shape), -1, -2)
        yield Variant(replace(setup, mask=turned))


def mask_with_padded_queries(kv_len: Array, rows: Array, **how: Any) -> Array:
    """The mask with key lengths laid on the queries."""
    padded = (rows >= kv_len[:, None])[:, None, :, None]
    return np.where(padded, -np.inf, total_mask(rows=rows, **how))


def _causal(wanted: bool) -> Change:
    def change(setup: Setup, _: Evidence) -> Iterator[Variant]:
        if setup.how.causal != wanted:
            yield Variant(setup.with_how(causal=wanted, causal_align="top-left"))

    return change


def _causal_bottom_right(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if not setup.how.causal and setup.shape[2] != setup.shape[3] and not setup.n_past:
        yield Variant(setup.with_how(causal=True, causal_align="bottom-right"))


def _aligned(corner: str) -> Change:
    def change(setup: Setup, _: Evidence) -> Iterator[Variant]:
        restricted = setup.how.causal or setup.how.window is not None
        if restricted and setup.how.causal_align != corner:
            yield Variant(setup.with_how(causal_align=corner))

    return change


def _causal_shifted(shift: int) -> Change:
    """Each query's own position is one further left (−1) or right (1)."""

    def change(setup: Setup, _: Evidence) -> Iterator[Variant]:
        if setup.how.causal:
            yield Variant(setup.with_steps(mask={"shift": shift}))

    return change


def _history_masked(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.n_past and setup.how.causal:
        yield Variant(setup.with_how(causal_align="top-left").with_steps(mask={"n_past": 0}))


def _window_by(step: int) -> Change:
    """Each bound of the window moved by a step, one side at a time and then both."""

    def change(setup: Setup, _: Evidence) -> Iterator[Variant]:
        if setup.how.window is None:
            return
        for sides in ((0,), (1,), (0, 1)):
            bounds = list(setup.how.window)
            for side in sides:
                bounds[side] += step
            if all(setup.how.window[side] >= 0 and bounds[side] >= 0 for side in sides):
                detail = "on the " + " and ".join(_SIDES[side] for side in sides)
                yield Variant(setup.with_how(window=tuple(bounds)), detail)

    return change


def _no_window(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.how.window is not None:
        yield Variant(setup.with_how(window=None))


MASKING: tuple[Hypothesis, ...] = (
    hypothesis(
        "boolean mask read the other way round",
        _mask_inverted,
        "mask",
        "true is read as ignore where it means keep, or the reverse",
        "pytorch#170415, rasbt/LLMs-from-scratch#1061, TransformerEngine#614",
    ),
    hypothesis(
        "boolean mask added as numbers",
        _added_as_numbers,
        "mask",
        "true and false are added to the scores as 1 and 0, which hides nothing",
        "pytorch#170415",
    ),
    hypothesis("mask left out", _mask_left_out, "mask", "the given mask is not applied"),
    hypothesis(
        "padding left out",
        _padding_left_out,
        "padding",
        "keys past the valid length are attended to",
    ),
    hypothesis(
        "padding mask on queries, not keys",
        _padding_on_queries,
        "mask padding",
        "the mask is laid on the rows of the scores where it belongs on the columns",
        "hyunwoongko/transformer#40, bentrevett/pytorch-seq2seq#96",
    ),
    hypothesis(
        "causal mask left out",
        _causal(wanted=False),
        "causal",
        "queries see the keys after their own position",
    ),
    hypothesis(
        "causal mask where none is wanted",
        _causal(wanted=True),
        "causal",
        "queries do not see the keys after their own position",
    ),
    hypothesis(
        "causal mask where none is wanted, bottom-right",
        _causal_bottom_right,
        "causal",
        "queries do not see the keys after their own position, counted from the last key",
        "pytorch#108108",
    ),
    hypothesis(
        "causal mask aligned bottom-right, not top-left",
        _aligned("bottom-right"),
        "causal window",
        "the last query stands at the last key; here the first query stands at the first key",
        "pytorch#108108, pytorch#103082, flash-attention#1778",
    ),
    hypothesis(
        "causal mask aligned top-left, not bottom-right",
        _aligned("top-left"),
        "causal window",
        "the first query stands at the first key; here the last query stands at the last key",
        "pytorch#108108, mlx#2835, onnx#8054",
    ),
    hypothesis(
        "causal mask hides each query's own position",
        _causal_shifted(-1),
        "causal",
        "a query sees only the keys before its own position: off by one",
    ),
    hypothesis(
        "causal mask shows the next position",
        _causal_shifted(1),
        "causal",
        "a query sees one key after its own position: off by one",
    ),
    hypothesis(
        "cached decode masks its own history",
        _history_masked,
        "causal window",
        "positions are counted from the first new token, so the cache before it is masked",
        "gpt-fast#233",
    ),
    hypothesis(
        "window one too wide",
        _window_by(1),
        "window",
        "the sliding window shows one key more",
        "transformers#39408, transformers#29623, vllm#3385",
    ),
    hypothesis(
        "window one too narrow",
        _window_by(-1),
        "window",
        "the sliding window shows one key less",
        "transformers#39408, mlx-lm#390",
    ),
    hypothesis(
        "window left out",
        _no_window,
        "window",
        "keys outside the sliding window are attended to",
    ),
)
