"""The bytes of an explanation, counted from the numbers of tokens and widths alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from attncli.attention.memory import WIDTHS, of_maps
from attncli.budget import FLOAT
from attncli.convention import Convention


class Sentences(NamedTuple):
    """How many tokens there are."""

    n_keys: int  # of the sentence, with its padding
    n_target: int  # of the target; 0 where there is none
    n_words: int  # whose vectors are compared at the end: no padding
    mask: str | None  # what else restricts the attention, or None


def of_explanation(
    convention: Convention,
    n_heads: int,
    d: Mapping[str, int],
    sizes: Sentences,
    block: str,
    *,
    n_layers: int,
    n_kept: int,
) -> int:
    """Bytes of the stages from the vectors to what they mean, without the weights.

    d       the width behind each axis of the weights
    n_kept  of how many layers of a stack the stages are kept
    """
    width = WIDTHS[convention.dtype]
    n_k, n = sizes.n_keys, sizes.n_target or sizes.n_keys
    residual = 2 * d["d_model"]  # and its norm
    of_head = d["h·d_k"] + d["h_kv·d_k"] + d["h_kv·d_v"] + 2 * d["h·d_v"]  # q, k, v, output, concat
    is_padded = sizes.n_target > 0 or n_k > sizes.n_words
    masks = ["mask"] if is_padded or sizes.mask else []

    def attention(n_q: int, n_k: int, *, causal: bool = convention.causal) -> int:
        restricted = replace(convention, causal=causal)
        is_whole = causal or convention.window is not None or sizes.mask
        maps = of_maps(restricted, (n_heads, n_q, n_k), masks, n_q * n_k if is_whole else n_k)
        return maps + n_q * (of_head + d["d_model"] + residual) * width

    if block == "attention":
        layers = attention(n, n_k)
    else:
        feed_forward = (2 * d["d_ff"] + d["d_model"] + residual) * width
        layer = attention(n_k, n_k) + n_k * feed_forward
        if "decoder" in block:
            layer += attention(n, n, causal=True) + attention(n, n_k) + n * feed_forward
        layers = layer * n_kept + n_layers * _LAYER
        if n_layers > n_kept:  # of the others a stage and the one that it reads
            widest = max(n_heads * n_k, 2 * d["d_ff"], d["d_model"])
            layers += 2 * max(n, n_k) * widest * width
    entry = 5 * (n_k + sizes.n_target) * d["d_model"] * FLOAT  # embeddings to input, and its copy
    meaning = 6 * sizes.n_words**2 * FLOAT  # cosines before and after; four tables to compare them
    return layers + entry + meaning


_LAYER = 10**5  # bytes of the steps and stages of a layer, however narrow: about 30, 3 kB each
