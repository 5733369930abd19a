"""The weights of a Transformer, by name: which there are, their shapes, and random ones.

    attention.w_q   encoder.1.attention.w_q   encoder.1.feed_forward.w_1
    decoder.2.cross_attention.w_o
    encoder.1.attention.gamma (the gain of that sub-layer's norm)   encoder.gamma (of the last norm)

A mapping of such names to arrays is what a LayerPlan takes. Their axes are those of the
registry (stages.py); `Sizes` says how wide they are.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from attncli.arrays import Array
from attncli.errors import ShapeError
from attncli.stages import KINDS

Weights = Mapping[str, Array]
Block = Literal["attention", "encoder", "decoder", "encoder-decoder"]

ATTENTION = ("w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o")
FEED_FORWARD = ("w_1", "w_2", "b_1", "b_2")
NORM = ("gamma", "beta")
SUBLAYERS = {
    "encoder": ("attention", "feed_forward"),
    "decoder": ("attention", "cross_attention", "feed_forward"),
}
LEAVES = {
    "attention": (*ATTENTION, *NORM),
    "cross_attention": (*ATTENTION, *NORM),
    "feed_forward": (*FEED_FORWARD, *NORM),
}
"""The weights of each sub-layer, those of its norm included."""


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """The widths of a Transformer, the same in all its layers.

    n_kv_heads None is n_heads. Where weights are drawn, d_k None is d_model / n_heads, d_v None is
    d_k and d_ff None is 4 · d_model (sections 3.2.2 and 3.3 of the paper); where arrays are given,
    None is whatever they have. d_ff = 0 leaves out the feed-forward.

    Raises ShapeError for a width below 1.
    """

    d_model: int
    n_heads: int = 1
    n_kv_heads: int | None = None
    d_k: int | None = None
    d_v: int | None = None
    d_ff: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            size = getattr(self, field.name)
            least = 0 if field.name == "d_ff" else 1
            if size is not None and size < least:
                raise ShapeError(f"{field.name} is {size}", f"use {least} or more")

    def widths(self) -> dict[str, int]:
        """The width behind each axis name of the registry.

        Raises ShapeError where d_model does not divide into the heads and d_k is not given.

        >>> Dimensions(d_model=6, n_heads=2).widths()["h·d_k"]
        6
        """
        if self.d_k is None and self.d_model % self.n_heads:
            raise ShapeError(
                f"a d_model of {self.d_model} does not divide into {self.n_heads} heads",
                f"use a number of heads that divides {self.d_model}, or give d_k (--d-k)",
            )
        d_k = self.d_k or self.d_model // self.n_heads
        d_v = self.d_v or d_k
        n_kv_heads = self.n_kv_heads or self.n_heads
        return {
            "d_model": self.d_model,
            "h·d_k": self.n_heads * d_k,
            "h_kv·d_k": n_kv_heads * d_k,
            "h_kv·d_v": n_kv_heads * d_v,
            "h·d_v": self.n_heads * d_v,
            "d_ff": 4 * self.d_model if self.d_ff is None else self.d_ff,
        }


def axes_of(name: str) -> tuple[str, ...]:
    """The axes of an array by its dotted name."""
    return tuple(KINDS[name.rpartition(".")[2]].axes.split())


def names_of(
    block: Block, *, n_layers: int = 1, feed_forward: bool = True, last_norm: bool = False
) -> Iterator[str]:
    """The names of all weights that a block can have, those of its norms and biases included."""
    if block == "attention":
        yield from (f"attention.{leaf}" for leaf in ATTENTION)
    for stack, parts in SUBLAYERS.items():
        if stack not in block:
            continue
        for number in range(1, n_layers + 1):
            for part in parts if feed_forward else parts[:-1]:
                yield from (f"{stack}.{number}.{part}.{leaf}" for leaf in LEAVES[part])
        if last_norm:
            yield from (f"{stack}.{leaf}" for leaf in NORM)


def n_layers_of(weights: Mapping[str, object], stack: str) -> int:
    """How many layers of a stack these weights name."""
    numbers = (name.split(".")[1] for name in weights if name.startswith(f"{stack}."))
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def named_seed(seed: int, name: str, n_bytes: int = 6) -> int:
    """A seed for one name, so that a number depends on the seed and the name alone.

    The first bytes of BLAKE2b(seed:name): 48 bits are exact in JSON as well.
    Source: RFC 7693 (BLAKE2).

    >>> named_seed(0, "encoder.1.w_q")
    180783616057621
    """
    # Arguments may hold bytes that are not UTF-8, which Python keeps as single surrogates.
    text = f"{seed}:{name}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=n_bytes).digest(), "big")


def glorot_uniform(shape: tuple[int, int], seed: int, name: str) -> Array:
    """A matrix drawn evenly from ±√6 / √(n_in + n_out), which keeps the variance between layers.

    n_in and n_out are its rows and columns. NumPy's PCG64 is seeded by (seed, name): each name has
    its own numbers, the same on every machine.
    Source: Glorot & Bengio (2010), equation 16.
    """
    drawn: Array = np.random.default_rng(named_seed(seed, name)).random(shape)
    drawn *= 2.0
    drawn -= 1.0
    drawn *= math.sqrt(6.0) / math.sqrt(shape[0] + shape[1])
    return drawn


def random_weights(
    block: Block,
    dimensions: Dimensions,
    *,
    seed: int = 0,
    n_layers: int = 1,
    last_norm: bool = False,
    gain_alone: bool = False,
) -> dict[str, Array]:
    """Glorot-uniform weights for a block; biases are 0, and attention has none; γ = 1, β = 0.

    "attention" has the projections of encoder layer 1. `last_norm` puts a norm after the last layer
    of each stack, which pre-norm stacks need. `gain_alone`: norms have no β, as RMS norms.
    Source: "Attention Is All You Need", section 3.
    """
    widths, weights = dimensions.widths(), {}
    has = {"feed_forward": dimensions.d_ff != 0, "last_norm": last_norm}
    for name in names_of(block, n_layers=n_layers, **has):
        leaf = name.rpartition(".")[2]
        shape = tuple(widths[axis] for axis in axes_of(name))
        if leaf.startswith("w_"):
            # A matrix is drawn by layer and leaf, whatever sub-layer it is in: encoder.1.w_q.
            whole = f"encoder.1.{name}" if block == "attention" else name
            drawn_as = whole.replace(".attention.", ".").replace(".feed_forward.", ".")
            weights[name] = glorot_uniform((shape[0], shape[1]), seed, drawn_as)
        elif leaf in ("b_1", "b_2", *NORM[: 1 if gain_alone else 2]):
            weights[name] = np.ones(shape) if leaf == "gamma" else np.zeros(shape)
    return weights
