"""Weights that are made up: Glorot-uniform numbers, the same for the same seed on every machine.

They show the arithmetic of a block, not what a trained one means.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from attncli.attention.multi_head import Projections
from attncli.attention.seeds import named_seed
from attncli.attention.weights import (
    ATTENTION,
    FEED_FORWARD,
    Array,
    Block,
    DecoderLayerWeights,
    EncoderLayerWeights,
    FeedForwardWeights,
    NormWeights,
    Sizes,
    StackWeights,
    Weights,
)

Draw = Callable[[str], Array]


def glorot_uniform(shape: tuple[int, int], seed: int, name: str) -> Array:
    """A matrix drawn evenly from ±√6 / √(n_in + n_out), which keeps the variance between layers.

    n_in and n_out are its rows and columns. The generator is NumPy's PCG64, seeded by (seed, name):
    each name has its own numbers, whatever else is drawn.
    Source: Glorot & Bengio (2010), equation 16.

    >>> w = glorot_uniform((3, 5), seed=0, name="w_q")
    >>> w.shape, bool(np.abs(w).max() <= np.sqrt(6 / 8))
    ((3, 5), True)
    """
    generator = np.random.Generator(np.random.PCG64(named_seed(seed, name)))
    limit = math.sqrt(6.0) / math.sqrt(shape[0] + shape[1])
    drawn: Array = (2.0 * generator.random(shape) - 1.0) * limit
    return drawn


def random_weights(
    block: Block, sizes: Sizes, *, seed: int = 0, n_layers: int = 1, final_norm: bool = False
) -> Weights:
    """Glorot-uniform weights for a block; biases are 0, and attention has none; γ = 1, β = 0.

    "attention" gives the projections of encoder layer 1, so that the rest of the layer can be
    added without changing a number. `final_norm` puts a norm after the last layer of each stack,
    which pre-norm stacks need.

    Source: "Attention Is All You Need", section 3; Glorot & Bengio (2010), equation 16.

    >>> weights = random_weights("encoder", Sizes(d_model=6, n_heads=2), n_layers=3)
    >>> len(weights.encoder.layers), weights.encoder.layers[0].feed_forward.w_1.shape
    (3, (6, 24))
    """
    widths = sizes.widths()
    numbers = range(1, n_layers + 1)

    def drawer(prefix: str) -> Draw:
        return lambda leaf: _drawn(leaf, widths, seed, prefix)

    norm = _plain_norm(sizes.d_model) if final_norm else None
    if block == "attention":
        return Weights(attention=_projections(drawer("encoder.1.")))
    encoder, decoder = None, None
    if block != "decoder":
        layers = tuple(_encoder_layer(drawer(f"encoder.{n}."), sizes) for n in numbers)
        encoder = StackWeights(layers, norm)
    if block != "encoder":
        decoding = tuple(_decoder_layer(drawer(f"decoder.{n}."), sizes) for n in numbers)
        decoder = StackWeights(decoding, norm)
    return Weights(encoder=encoder, decoder=decoder)


def _drawn(leaf: str, widths: dict[str, int], seed: int, prefix: str) -> Array:
    rows, columns = (ATTENTION | FEED_FORWARD)[leaf.rpartition(".")[2]]
    return glorot_uniform((widths[rows], widths[columns]), seed, prefix + leaf)


def _projections(draw: Draw, prefix: str = "") -> Projections:
    return Projections(*(draw(f"{prefix}{leaf}") for leaf in ("w_q", "w_k", "w_v", "w_o")))


def _encoder_layer(draw: Draw, sizes: Sizes) -> EncoderLayerWeights:
    norms = [_plain_norm(sizes.d_model) for _ in range(2)]
    return EncoderLayerWeights(_projections(draw), _feed_forward(draw, sizes), *norms)


def _decoder_layer(draw: Draw, sizes: Sizes) -> DecoderLayerWeights:
    norms = [_plain_norm(sizes.d_model) for _ in range(3)]
    cross = _projections(draw, "cross_attention.")
    return DecoderLayerWeights(_projections(draw), cross, _feed_forward(draw, sizes), *norms)


def _feed_forward(draw: Draw, sizes: Sizes) -> FeedForwardWeights | None:
    if sizes.d_ff == 0:
        return None
    w_1, w_2 = draw("w_1"), draw("w_2")
    return FeedForwardWeights(w_1, w_2, np.zeros(w_1.shape[1]), np.zeros(sizes.d_model))


def _plain_norm(d_model: int) -> NormWeights:
    return NormWeights(np.ones(d_model), np.zeros(d_model))
