"""Attentions under 39 conventions, on which every row of the catalogue is tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.bugs.bug import Evidence
from attncli.convention import Convention
from attncli.tolerance.run import all_of, computes, stages
from attncli.tolerance.setup import Setup, setup_of

SQUARE = ((2, 4, 6, 6), (2, 4, 6, 6), (2, 4, 6, 6))
GROUPED = ((2, 4, 6, 6), (2, 2, 6, 6), (2, 2, 6, 6))
BLOCKS = ((2, 4, 5, 7), (2, 2, 35, 7), (2, 2, 35, 9))
MORE_KEYS = ((2, 3, 3, 4), (2, 3, 7, 4), (2, 3, 7, 5))
LONG = ((2, 4, 35, 7), (2, 2, 37, 7), (2, 2, 37, 9))
ARRAYS = ("mask", "kv_len", "sinks", "past_k", "past_v", "positions")


def _mask(kind: str, n_q: int, n_k: int, rng: np.random.Generator) -> Array:
    if kind == "bool":
        mask = rng.random((n_q, n_k)) < 0.7
        mask[1] = False
        return mask
    if kind == "batch":
        return rng.random((2, 1, n_q, n_k)) < 0.7
    if kind == "num":
        return np.where(rng.random((n_q, n_k)) < 0.7, rng.normal(size=(n_q, n_k)), -np.inf)
    if kind == "truth":
        return np.where(rng.random((n_q, n_k)) < 0.7, 1.5, 0.0)
    return np.arange(n_k) < 4


def _setup(
    draw: int, shapes: Any = GROUPED, *, gradients: bool = False, **convention: Any
) -> Setup:
    """The setup of random inputs; each draw is that of the record beside this file."""
    rng = np.random.default_rng(draw)
    arrays = {name: convention.pop(name) for name in ARRAYS if name in convention}
    q, k, v = shapes
    if isinstance(arrays.get("mask"), str):
        arrays["mask"] = _mask(arrays["mask"], q[2], k[2], rng)
    if arrays.get("sinks"):
        arrays["sinks"] = rng.normal(size=q[1])
    if convention.pop("past", False):
        arrays["past_k"] = rng.normal(size=(*k[:2], 3, k[3]))
        arrays["past_v"] = rng.normal(size=(*v[:2], 3, v[3]))
    inputs = [rng.normal(size=shape) for shape in shapes]
    if gradients:
        arrays["d_output"] = rng.normal(size=(*q[:3], v[3]))
    return setup_of(*inputs, convention=Convention(**convention), **arrays)


FORWARD: Mapping[str, Setup] = {
    "plain": _setup(0),
    "square": _setup(1, SQUARE),
    "causal": _setup(2, causal=True, window=(2, 0)),
    "own": _setup(3, SQUARE, causal=True, window=(3, 0), window_counts="own"),
    "more": _setup(4, MORE_KEYS, causal=True),
    "br": _setup(5, MORE_KEYS, causal=True, causal_align="bottom-right"),
    "open": _setup(6, MORE_KEYS, causal=True, causal_align="open-last"),
    "bool": _setup(7, mask="bool"),
    "batch": _setup(8, SQUARE, mask="batch"),
    "num": _setup(9, mask="num", softcap=2.0),
    "numc": _setup(10, mask="num", softcap=2.0, softcap_place="after-bias", causal=True),
    "truth": _setup(11, mask="truth", mask_numbers="truth"),
    "pad": _setup(12, mask="pad"),
    "add": _setup(13, mask="bool", mask_means="add"),
    "len": _setup(14, kv_len=[6, 4]),
    "cap": _setup(15, softcap=2.0, causal=True),
    "sinks": _setup(16, sinks=True),
    "rope": _setup(17, positions="rope-halves"),
    "paper": _setup(18, SQUARE, positions="paper"),
    "ropei": _setup(19, positions="rope-interleaved", past=True),
    "article": _setup(20, positions="article", past=True),
    "queries": _setup(21, SQUARE, softmax_over="queries"),
    "tiled": _setup(22, head_order="tiled"),
    "scale": _setup(23, scale=0.3),
    "value": _setup(24, mask_value=-5.0, causal=True),
    "one": _setup(25, mask="bool", causal=True, mask_and_causal="mask"),
    "past": _setup(26, past=True, causal=True),
    "blocks": _setup(27, BLOCKS),
    "wide": _setup(28, MORE_KEYS),
}
BACKWARD: Mapping[str, Setup] = {
    "g plain": _setup(30, gradients=True),
    "g square": _setup(31, SQUARE, gradients=True),
    "g causal": _setup(32, gradients=True, causal=True, window=(2, 1)),
    "g bool": _setup(33, gradients=True, mask="bool"),
    "g num": _setup(34, gradients=True, mask="num", softcap=2.0, sinks=True),
    "g drop": _setup(35, MORE_KEYS, gradients=True, dropout=0.3, seed=5),
    "g rope": _setup(36, SQUARE, gradients=True, positions="rope-halves"),
    "g blocks": _setup(37, LONG, gradients=True),
    "g all": _setup(38, gradients=True, mask="num", softcap=2.0, sinks=True, dropout=0.3, seed=2),
    "g queries": _setup(39, SQUARE, gradients=True, softmax_over="queries"),
}


def observed_names(label: str, setup: Setup) -> list[str]:
    """The stages that are compared: of the forward pass, or gradients."""
    if label in FORWARD:
        over_keys = setup.convention.softmax_over == "keys"
        return ["scores", "weights", "output", *(["lse"] if over_keys else [])]
    more = [
        *(["d_sinks"] if "sinks" in setup.inputs else []),
        *(["d_bias"] if setup.is_added else []),
    ]
    return ["output", "d_q", "d_k", "d_v", "d_scores", *more]


def planted(label: str, setup: Setup, bug: Any) -> list[dict[str, Array]]:
    """The stages that the variants of a bug give, where they differ from the right ones.

    A number that is fitted is 2.
    """
    if ("gradients" in bug.touches) != (label in BACKWARD):
        return []
    names = observed_names(label, setup)
    every = all_of(setup.shape)
    right = stages(setup, every, names)
    other = {name: x + 1.0 for name, x in right.items()}
    result = []
    for one in bug.change(setup, Evidence(other, other, example=2.0)):
        if one.is_refused or not computes(one, names):
            continue
        wrong = stages(one, every, names)
        wrong = {n: one.relayout[n](x) if n in one.relayout else x for n, x in wrong.items()}
        if one.relayout or not all(
            np.allclose(x, right[name], rtol=1e-9, atol=1e-12, equal_nan=True)
            for name, x in wrong.items()
        ):
            result.append(wrong)
    return result


def checksum(values: Mapping[str, Array]) -> float:
    """One number of all stages, which a difference in any of them changes."""
    total = 0.0
    for at, x in enumerate(values.values()):
        signs = np.cos(np.arange(x.size)).reshape(x.shape)
        total += (at + 1) * float(np.nansum(np.where(np.isfinite(x), x, 0) * signs))
        total += 1000 * (at + 1) * int(np.isnan(x).sum())
    return float(f"{total:.6e}")
