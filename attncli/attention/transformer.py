"""Stacks of layers: an encoder, and a decoder that reads its output.

    x ── encoder.1 ── … ── encoder.N ── [norm] ── memory
                                                    │
    y ── decoder.1 ── … ── decoder.N ── [norm] ─────┴── the decoder's output

A stack ends with a norm where its weights hold one, and only there: a pre-norm stack needs it,
because its last residual is a plain sum; a post-norm stack has normed its output already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from attncli.attention.attend import Block
from attncli.attention.layers import LayerPlan
from attncli.attention.weights import n_layers_of
from attncli.errors import ShapeError

Labels = Sequence[str] | None


def add_encoder(
    layers: LayerPlan, x: str, *, mask: npt.ArrayLike | None = None, labels: Labels = None
) -> str:
    """Adds the encoder that reads the stage x to a plan; gives its last stage.

    Each layer, `encoder.1` and so on, is self-attention, then feed-forward where its weights hold
    one, each with residual and norm. `mask` is `attend`'s.

    Raises ShapeError where there is no layer or a width does not fit.
    Source: "Attention Is All You Need", section 3.1; the norm after the last layer: Xiong et al.
    (2020), figure 1.

    >>> import numpy as np
    >>> from attncli.attention.layers import Architecture
    >>> from attncli.attention.weights import Dimensions, random_weights
    >>> weights = random_weights("encoder", Dimensions(d_model=2), n_layers=2)
    >>> layers = LayerPlan(Architecture(), weights)
    >>> add_encoder(layers, layers.rows("x", np.eye(2)))
    'encoder.2.feed_forward.norm'
    >>> layers.trace()["encoder.2.attention.weights"].value.shape
    (1, 2, 2)
    """
    names: dict[str, Any] = {"query_labels": labels, "key_labels": labels}
    for name in _layers(layers, "encoder"):
        x = layers.attention(f"{name}.attention", x, mask=mask, **names)
        if f"{name}.feed_forward.w_1" in layers.weights:
            x = layers.feed_forward(f"{name}.feed_forward", x, labels)
    return _last_norm(layers, "encoder", x, labels)


def add_decoder(
    layers: LayerPlan,
    x: str,
    memory: str,
    *,
    mask: npt.ArrayLike | None = None,
    memory_mask: npt.ArrayLike | None = None,
    labels: Labels = None,
    memory_labels: Labels = None,
) -> str:
    """Adds the decoder that reads the stages x and memory to a plan; gives its last stage.

    Each layer, `decoder.1` and so on, is self-attention, cross-attention to the memory (the
    encoder's output) and feed-forward. The self-attention is causal, the cross-attention has
    neither a causal mask nor a window, whatever the convention says; `mask` and `memory_mask`
    restrict the two further.

    Raises ShapeError where there is no layer or a width does not fit.
    Source: "Attention Is All You Need", section 3.1.
    """
    rule = layers.how.convention
    causal, crossing = replace(rule, causal=True), replace(rule, causal=False, window=None)
    own: dict[str, Any] = {"query_labels": labels, "key_labels": labels, "mask": mask}
    cross: dict[str, Any] = {
        "query_labels": labels,
        "key_labels": memory_labels,
        "mask": memory_mask,
    }
    for name in _layers(layers, "decoder"):
        x = layers.attention(f"{name}.attention", x, rule=causal, **own)
        x = layers.attention(f"{name}.cross_attention", x, memory, rule=crossing, **cross)
        if f"{name}.feed_forward.w_1" in layers.weights:
            x = layers.feed_forward(f"{name}.feed_forward", x, labels)
    return _last_norm(layers, "decoder", x, labels)


def _layers(layers: LayerPlan, stack: str) -> list[str]:
    """The names of a stack's layers, each a block."""
    n_layers = n_layers_of(layers.weights, stack)
    if not n_layers:
        raise ShapeError(f"the {stack} has no layers", "give it at least one")
    names = [f"{stack}.{number}" for number in range(1, n_layers + 1)]
    layers.blocks[stack] = Block(stack.capitalize(), layers.how.convention)
    title = f"{stack.capitalize()} layer"
    layers.blocks |= {name: Block(title, layers.how.convention) for name in names}
    return names


def _last_norm(layers: LayerPlan, stack: str, x: str, labels: Labels) -> str:
    if not any(f"{stack}.{leaf}" in layers.weights for leaf in ("gamma", "beta")):
        return x
    block = layers.blocks[stack]
    layers.blocks[stack] = block._replace(labels={"query": labels})
    return layers.norm(stack, x, labels)
