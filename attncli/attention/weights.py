"""The weights of a Transformer: what there is, how it is called and which shape it has.

    Weights ──┬── attention   Projections                      w_q w_k w_v w_o, b_q b_k b_v b_o
              ├── encoder     StackWeights of EncoderLayerWeights
              └── decoder     StackWeights of DecoderLayerWeights

A layer's arrays are called `encoder.1.w_q`, `encoder.1.w_1`, `encoder.1.gamma_1` and so on, those
of the cross-attention `decoder.1.cross_attention.w_q`, a stack's last norm `encoder.gamma`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Generic, Literal, TypeVar

import numpy.typing as npt

from attncli.attention.multi_head import Projections
from attncli.errors import ShapeError

Array = npt.NDArray[Any]
Block = Literal["attention", "encoder", "decoder", "encoder-decoder"]

# What each array's axes are; the widths behind the names are those of Sizes.widths.
ATTENTION: dict[str, tuple[str, ...]] = {
    "w_q": ("d_model", "h·d_k"),
    "w_k": ("d_model", "h_kv·d_k"),
    "w_v": ("d_model", "h_kv·d_v"),
    "w_o": ("h·d_v", "d_model"),
    "b_q": ("h·d_k",),
    "b_k": ("h_kv·d_k",),
    "b_v": ("h_kv·d_v",),
    "b_o": ("d_model",),
}
FEED_FORWARD: dict[str, tuple[str, ...]] = {
    "w_1": ("d_model", "d_ff"),
    "w_2": ("d_ff", "d_model"),
    "b_1": ("d_ff",),
    "b_2": ("d_model",),
}
NORM: dict[str, tuple[str, ...]] = {"gamma": ("d_model",), "beta": ("d_model",)}


@dataclass(frozen=True, eq=False)
class NormWeights:
    """Gain γ and bias β of a layer norm, [d_model] each; None is γ = 1, β = 0."""

    gamma: Array | None = None
    beta: Array | None = None


@dataclass(frozen=True, eq=False)
class FeedForwardWeights:
    """w_1 [d_model, d_ff], w_2 [d_ff, d_model], b_1 [d_ff] and b_2 [d_model] or None."""

    w_1: Array
    w_2: Array
    b_1: Array | None = None
    b_2: Array | None = None


@dataclass(frozen=True, eq=False)
class EncoderLayerWeights:
    """Self-attention and feed-forward, each with its norm; None leaves out the feed-forward."""

    attention: Projections
    feed_forward: FeedForwardWeights | None = None
    norm_1: NormWeights = NormWeights()
    norm_2: NormWeights = NormWeights()


@dataclass(frozen=True, eq=False)
class DecoderLayerWeights:
    """Masked self-attention, cross-attention and feed-forward, each with its norm."""

    attention: Projections
    cross_attention: Projections
    feed_forward: FeedForwardWeights | None = None
    norm_1: NormWeights = NormWeights()
    norm_2: NormWeights = NormWeights()
    norm_3: NormWeights = NormWeights()


LayerWeights = EncoderLayerWeights | DecoderLayerWeights
Layer = TypeVar("Layer", EncoderLayerWeights, DecoderLayerWeights)


@dataclass(frozen=True, eq=False)
class StackWeights(Generic[Layer]):
    """The layers of a stack, first to last, and the norm after the last one, or None for none."""

    layers: tuple[Layer, ...]
    norm: NormWeights | None = None


@dataclass(frozen=True, eq=False)
class Weights:
    """Everything a block needs; what it does not need is None."""

    attention: Projections | None = None
    encoder: StackWeights[EncoderLayerWeights] | None = None
    decoder: StackWeights[DecoderLayerWeights] | None = None


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The widths of a Transformer, the same in all its layers.

    n_kv_heads None is n_heads. Where weights are drawn, d_k None is d_model / n_heads, d_v None is
    d_k and d_ff None is 4 · d_model (sections 3.2.2 and 3.3 of the paper); where arrays are given,
    None is whatever they have. d_ff = 0 leaves out the feed-forward.
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
        """The width behind each axis name of the tables above.

        Raises ShapeError where d_model does not divide into the heads and d_k is not given.

        >>> Sizes(d_model=6, n_heads=2).widths()["h·d_k"]
        6
        """
        if self.d_k is None and self.d_model % self.n_heads:
            raise ShapeError(
                f"a d_model of {self.d_model} does not divide into {self.n_heads} heads",
                f"use a number of heads that divides {self.d_model}, or say d_k",
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


def named_arrays(weights: Weights) -> dict[str, Array]:
    """Every array by its dotted name, as `weights_from_arrays` reads them back.

    >>> import numpy as np
    >>> eye = np.eye(2)
    >>> sorted(named_arrays(Weights(attention=Projections(eye, eye, eye))))
    ['w_k', 'w_q', 'w_v']
    """
    pairs = list(_arrays(weights.attention)) if weights.attention else []
    if weights.encoder:
        pairs += _of_stack("encoder", weights.encoder)
    if weights.decoder:
        pairs += _of_stack("decoder", weights.decoder)
    return dict(pairs)


def _of_stack(name: str, stack: StackWeights[Layer]) -> Iterator[tuple[str, Array]]:
    for number, layer in enumerate(stack.layers, start=1):
        yield from ((f"{name}.{number}.{leaf}", x) for leaf, x in _of_layer(layer))
    if stack.norm is not None:
        yield from ((f"{name}.{leaf}", x) for leaf, x in _arrays(stack.norm))


def _of_layer(layer: LayerWeights) -> Iterator[tuple[str, Array]]:
    for field in fields(layer):
        part = getattr(layer, field.name)
        if field.name.startswith("norm_"):
            number = field.name.removeprefix("norm_")
            yield from ((f"{leaf}_{number}", x) for leaf, x in _arrays(part))
        elif part is not None:
            prefix = "cross_attention." if field.name == "cross_attention" else ""
            yield from ((f"{prefix}{leaf}", x) for leaf, x in _arrays(part))


def _arrays(part: Projections | FeedForwardWeights | NormWeights) -> Iterator[tuple[str, Array]]:
    for field in fields(part):
        x = getattr(part, field.name)
        if x is not None:
            yield field.name, x
