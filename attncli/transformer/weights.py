"""The weights of a Transformer, by name: which there are, their shapes, and random ones.

    attention.w_q   encoder.1.attention.w_q   encoder.1.feed_forward.w_1
    decoder.2.cross_attention.w_o
    encoder.1.attention.gamma (the gain of that sub-layer's norm)   encoder.gamma (of the last norm)

A mapping of such names to arrays is what a LayerPlan takes. Their axes are those of the
registry (stages.py); an `Architecture` says how wide they are.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from attncli.arrays import Array
from attncli.convention import Convention
from attncli.errors import ConventionError, ShapeError
from attncli.stages import SPECS

Weights = Mapping[str, Array]
BlockKind = Literal["attention", "encoder", "decoder", "encoder-decoder"]
NormPlace = Literal["post", "pre", "rms", "none"]

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
class Architecture:
    """An attention of x, or the layers of a Transformer: what they are made of, the same in all.

    | field | meaning |
    |---|---|
    | kind | "attention", "encoder", "decoder", or "encoder-decoder" |
    | d_model | width of x |
    | n_heads, n_kv_heads | query heads, and key heads they share (None: as many) |
    | d_k, d_v, d_ff | widths: None is d_model / n_heads, d_k and 4 · d_model where weights are \
drawn (sections 3.2.2 and 3.3 of the paper), else what the arrays have; d_ff 0: no feed-forward |
    | n_layers | of a stack; None: as many as the weights hold, 1 where they are drawn |
    | norm | "post": after the residual; "pre": before the sub-layer; "rms": before it, an RMS \
norm; "none" |
    | epsilon | ε of the norms |
    | dropout | probability of 0 in place of a number of a sub-layer's output; that of the \
attention weights is the convention's |
    | convention | how attention is computed, the number type of every stage and the seed |

    Raises ShapeError for a width below 1, ConventionError for another value outside these.

    >>> Architecture(norm="before")
    Traceback (most recent call last):
        ...
    attncli.errors.ConventionError: norm is 'before'; use post, pre, rms or none
    """

    kind: BlockKind = "attention"
    d_model: int = 8
    n_heads: int = 1
    n_kv_heads: int | None = None
    d_k: int | None = None
    d_v: int | None = None
    d_ff: int | None = None
    n_layers: int | None = None
    norm: NormPlace = "post"
    epsilon: float = 1e-5
    dropout: float = 0.0
    convention: Convention = field(default_factory=Convention)

    def __post_init__(self) -> None:
        for name in ("d_model", "n_heads", "n_kv_heads", "d_k", "d_v", "d_ff", "n_layers"):
            size, least = getattr(self, name), 0 if name == "d_ff" else 1
            if size is not None and size < least:
                raise ShapeError(f"{name} is {size}", f"use {least} or more")
        if self.norm not in get_args(NormPlace):
            raise ConventionError(f"norm is {self.norm!r}", "use post, pre, rms or none")
        Convention(dropout=self.dropout)  # refuses what is no probability
        if not 0 <= self.epsilon < math.inf:
            raise ConventionError(f"epsilon is {self.epsilon!r}", "use a finite number from 0")

    @property
    def is_pre_norm(self) -> bool:
        """Whether a norm comes before its sub-layer, and so once more after the last layer."""
        return self.norm in ("pre", "rms")

    @property
    def stacks(self) -> list[str]:
        """The stacks that it has."""
        return [stack for stack in SUBLAYERS if stack in self.kind]

    def widths(self) -> dict[str, int]:
        """The width behind each axis name of the registry.

        Raises ShapeError where d_model does not divide into the heads and d_k is not given.

        >>> Architecture(d_model=6, n_heads=2).widths()["h·d_k"]
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

    def weight_names(self, *, last_norm: bool) -> Iterator[str]:
        """The names of all weights that it can have, those of its norms and biases included."""
        if self.kind == "attention":
            yield from (f"attention.{leaf}" for leaf in ATTENTION)
        for stack in self.stacks:
            parts = [x for x in SUBLAYERS[stack] if x != "feed_forward" or self.d_ff != 0]
            for number in range(1, (self.n_layers or 1) + 1):
                for part in parts:
                    yield from (f"{stack}.{number}.{part}.{leaf}" for leaf in LEAVES[part])
            if last_norm:
                yield from (f"{stack}.{leaf}" for leaf in NORM)


def axes_of(name: str) -> tuple[str, ...]:
    """The axes of an array by its dotted name."""
    return tuple(SPECS[name.rpartition(".")[2]].axes.split())


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


def random_weights(block: Architecture) -> dict[str, Array]:
    """Glorot-uniform weights for a block; biases are 0, and attention has none; γ = 1, β = 0.

    They follow from the seed of its convention. "attention" has the projections of encoder layer 1.
    A pre-norm stack has a norm after its last layer, which it needs; RMS norms have no β.
    Source: "Attention Is All You Need", section 3.
    """
    weights, seed = dict[str, Array](), block.convention.seed
    for name, shape in weight_shapes(block).items():
        leaf = name.rpartition(".")[2]
        if leaf.startswith("w_"):
            # A matrix is drawn by layer and leaf, whatever sub-layer it is in: encoder.1.w_q.
            whole = f"encoder.1.{name}" if block.kind == "attention" else name
            drawn_as = whole.replace(".attention.", ".").replace(".feed_forward.", ".")
            weights[name] = glorot_uniform((shape[0], shape[1]), seed, drawn_as)
        else:
            weights[name] = np.ones(shape) if leaf == "gamma" else np.zeros(shape)
    return weights


def weight_shapes(block: Architecture) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights that `random_weights` draws."""
    widths, biases = block.widths(), {"b_1", "b_2", "gamma"}
    biases |= {"beta"} if block.norm != "rms" else set()
    return {
        name: tuple(widths[axis] for axis in axes_of(name))
        for name in block.weight_names(last_norm=block.is_pre_norm)
        if (leaf := name.rpartition(".")[2]).startswith("w_") or leaf in biases
    }
