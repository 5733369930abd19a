"""Weights that are given: from arrays by name to the weights of a block, every shape checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.attention.heads import shape_text
from attncli.attention.multi_head import Projections
from attncli.attention.weight_names import NamedArray, canonical
from attncli.attention.weights import (
    ATTENTION,
    FEED_FORWARD,
    NORM,
    Block,
    DecoderLayerWeights,
    EncoderLayerWeights,
    FeedForwardWeights,
    NormWeights,
    Sizes,
    StackWeights,
    Weights,
)
from attncli.errors import InputError, ShapeError

Array = npt.NDArray[Any]


def weights_from_arrays(
    arrays: Mapping[str, npt.ArrayLike],
    block: Block,
    sizes: Sizes,
    *,
    n_layers: int | None = None,
) -> Weights:
    """The weights of a block from arrays by name, ours or PyTorch's (see `weight_names`).

    "attention" reads the projections of encoder layer 1, for which a bare `w_q` is enough. A width
    that `sizes` leaves open is what the arrays have; n_layers None is as many layers as they hold.
    Biases may be missing, γ and β too (1 and 0), and w_o where there is the attention alone. A
    stack gets a last norm where the arrays hold `encoder.gamma` (`decoder.gamma`). Arrays of known
    names that the block does not use are passed over: `named_arrays` of the result says which it
    took.

    Raises InputError for an unknown name or a missing array, ShapeError for a wrong shape.

    >>> eye = np.eye(2)
    >>> given = {"w_q": eye, "w_k": eye, "w_v": eye, "w_o": np.zeros((3, 2))}
    >>> weights_from_arrays(given, "attention", Sizes(d_model=2))
    Traceback (most recent call last):
        ...
    attncli.errors.ShapeError: w_o is 3 × 2, expected 2 × 2 (h·d_v × d_model)
    """
    found = canonical(arrays, block)
    first = "decoder.1." if block == "decoder" else "encoder.1."
    source = _Source(found, _open_widths_filled(sizes, found, first))
    if block == "attention":
        return Weights(attention=source.projections(first, needs_w_o=False))
    encoder, decoder = None, None
    if block != "decoder":
        names = source.layers("encoder", n_layers)
        encoder = StackWeights(tuple(map(source.encoder_layer, names)), source.last("encoder"))
    if block != "encoder":
        names = source.layers("decoder", n_layers)
        decoder = StackWeights(tuple(map(source.decoder_layer, names)), source.last("decoder"))
    return Weights(encoder=encoder, decoder=decoder)


def _open_widths_filled(sizes: Sizes, found: Mapping[str, NamedArray], first: str) -> Sizes:
    """The sizes, with d_k, d_v and d_ff as the first layer's arrays have them."""

    def width(leaf: str, n_heads: int) -> int | None:
        array = found.get(first + leaf)
        if array is None:
            return None
        axes = (ATTENTION | FEED_FORWARD)[leaf]
        return _width(array, first + leaf, sizes.d_model, axes, n_heads)

    d_k = sizes.d_k or width("w_q", sizes.n_heads)
    d_v = sizes.d_v or width("w_v", sizes.n_kv_heads or sizes.n_heads)
    d_ff = width("w_1", 1) if sizes.d_ff is None else sizes.d_ff
    return replace(sizes, d_k=d_k, d_v=d_v, d_ff=d_ff)


def _width(array: NamedArray, name: str, d_model: int, axes: tuple[str, ...], n_heads: int) -> int:
    """A matrix's columns for each head; ShapeError where its rows are not d_model."""
    rows, *columns = array.value.shape or (0,)
    if rows != d_model or len(columns) != 1 or not array.value.size:
        raise _wrong_shape(name, array, (d_model, "any"), axes)
    if columns[0] % n_heads:
        raise ShapeError(
            f"{_called(array.source, name)} gives {axes[1]} = {columns[0]}, which {n_heads} heads "
            "cannot share",
            f"use a number of heads that divides {columns[0]}",
        )
    return int(columns[0] // n_heads)


def _called(source: str, name: str) -> str:
    """The name an array came under, and what it was read as where that says something else."""
    return source if name.endswith(source.lower()) else f"{source} (read as {name})"


@dataclass(frozen=True, eq=False)
class _Source:
    """The arrays that were found, and the sizes they must have."""

    found: Mapping[str, NamedArray]
    sizes: Sizes

    def layers(self, stack: str, n_layers: int | None) -> list[str]:
        """The prefixes of a stack's layers."""
        if n_layers is None:
            layers = [name.split(".")[1] for name in self.found if name.startswith(f"{stack}.")]
            n_layers = max((int(layer) for layer in layers if layer.isdigit()), default=1)
        # A gap, or one absurd number in a name, ends at the first layer that is missing.
        return [f"{stack}.{number}." for number in range(1, min(n_layers, len(self.found) + 1) + 1)]

    def encoder_layer(self, prefix: str) -> EncoderLayerWeights:
        return EncoderLayerWeights(
            self.projections(prefix),
            self.feed_forward(prefix),
            *(self.norm(prefix, f"_{number}") for number in (1, 2)),
        )

    def decoder_layer(self, prefix: str) -> DecoderLayerWeights:
        return DecoderLayerWeights(
            self.projections(prefix),
            self.projections(f"{prefix}cross_attention."),
            self.feed_forward(prefix),
            *(self.norm(prefix, f"_{number}") for number in (1, 2, 3)),
        )

    def projections(self, prefix: str, *, needs_w_o: bool = True) -> Projections:
        needed = {"w_q", "w_k", "w_v"} | ({"w_o"} if needs_w_o else set())
        return Projections(
            **{
                leaf: self.array(prefix, leaf, axes, leaf in needed)
                for leaf, axes in ATTENTION.items()
            }
        )

    def feed_forward(self, prefix: str) -> FeedForwardWeights | None:
        if self.sizes.d_ff == 0:
            return None
        return FeedForwardWeights(
            **{
                leaf: self.array(prefix, leaf, axes, leaf.startswith("w"))
                for leaf, axes in FEED_FORWARD.items()
            }
        )

    def norm(self, prefix: str, number: str = "") -> NormWeights:
        parts = (self.array(prefix, f"{leaf}{number}", NORM[leaf]) for leaf in ("gamma", "beta"))
        return NormWeights(*parts)

    def last(self, stack: str) -> NormWeights | None:
        """The norm after the last layer; None where the arrays hold none."""
        held = any(f"{stack}.{leaf}" in self.found for leaf in NORM)
        return self.norm(f"{stack}.") if held else None

    def array(self, prefix: str, leaf: str, axes: tuple[str, ...], needed: bool = False) -> Any:
        """One array of the shape its axes have, copied; None where it may be missing."""
        name = f"{prefix}{leaf}"
        if name not in self.found:
            if needed:
                raise self.missing(name, axes)
            return None
        array = self.found[name]
        widths = self.sizes.widths()
        expected = tuple(widths[axis] for axis in axes)
        if array.value.shape != expected:
            raise _wrong_shape(name, array, expected, axes)
        return np.array(array.value)

    def missing(self, name: str, axes: tuple[str, ...]) -> InputError:
        """What to say of an array that has to be there."""
        hint = f"it is {' × '.join(axes)}"
        if name.endswith(("w_1", "w_2")):
            hint += "; with d_ff 0 a layer has no feed-forward"
        given = ", ".join(list(self.found)[:5]) or "nothing"
        more = " …" if len(self.found) > 5 else ""
        return InputError(f"the weights hold no {name} (they hold {given}{more})", hint)


def _wrong_shape(
    name: str, array: NamedArray, expected: tuple[int | str, ...], axes: tuple[str, ...]
) -> ShapeError:
    """What to say of an array, in the order of axes in which it was given."""
    given = array.value
    if array.transposed:
        given, expected, axes = given.T, expected[::-1], axes[::-1]
    wanted = " × ".join(str(size) for size in expected)
    found = shape_text(given) or "one number"
    fits = given.ndim == 2 and all(
        wanted in (size, "any") for size, wanted in zip(given.T.shape, expected, strict=False)
    )
    hint = "it fits transposed" if fits else ""
    return ShapeError(
        f"{_called(array.source, name)} is {found}, expected {wanted} ({' × '.join(axes)})", hint
    )
