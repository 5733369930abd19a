"""Stacks of layers: an encoder, and a decoder that reads its output.

    x ── encoder.1 ── … ── encoder.N ── [norm] ── memory
                                                    │
    y ── decoder.1 ── … ── decoder.N ── [norm] ─────┴── the decoder's output

A stack ends with a norm where its weights hold one, and only there: a pre-norm stack needs it,
because its last residual is a plain sum; a post-norm stack has normed its output already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from attncli.attention.architecture import Architecture
from attncli.attention.blocks import Labels, layer_norm
from attncli.attention.layers import decoder_layer, encoder_layer, result
from attncli.attention.weights import (
    DecoderLayerWeights,
    EncoderLayerWeights,
    NormWeights,
    StackWeights,
)
from attncli.errors import ShapeError, StageError
from attncli.trace import Stage, Trace

Array = npt.NDArray[Any]
Trim = Callable[[Trace], Trace]


def encode(
    x: npt.ArrayLike,
    weights: StackWeights[EncoderLayerWeights],
    how: Architecture | None = None,
    *,
    mask: npt.ArrayLike | None = None,
    labels: Labels = None,
    trim: Trim | None = None,
) -> Trace:
    """An encoder of N layers, each reading the one before; its stages are `1.attention.q` to `N.…`.

    x [n, d_model] or [batch, n, d_model]. The trace is called `encoder`. `trim` is given each layer
    as soon as it is computed and what it gives back is kept, so that a long sentence need not hold
    every layer's matrices at once; it must keep the layer's last stage, which `result` reads.

    Raises ShapeError where there is no layer or a width does not fit, StageError where `trim`
    leaves out the last stage.
    Source: "Attention Is All You Need", section 3.1; the norm after the last layer: Xiong et al.
    (2020), figure 1.

    >>> import numpy as np
    >>> from attncli.attention.initial import random_weights
    >>> from attncli.attention.weights import Sizes
    >>> stack = random_weights("encoder", Sizes(d_model=2), n_layers=2).encoder
    >>> trace = encode(np.eye(2), stack)
    >>> trace["2.attention.weights"].value.shape
    (1, 2, 2)
    """
    rule = how or Architecture()

    def layer(rows: npt.ArrayLike, own: EncoderLayerWeights, name: str) -> Trace:
        return encoder_layer(rows, own, rule, mask=mask, labels=labels, name=name)

    steps, last = _chain(x, weights.layers, "encoder", layer, trim)
    steps += _last_norm(last, weights.norm, rule, labels)
    return Trace("Encoder", tuple(steps), rule.convention, "encoder")


def decode(
    x: npt.ArrayLike,
    memory: npt.ArrayLike,
    weights: StackWeights[DecoderLayerWeights],
    how: Architecture | None = None,
    *,
    mask: npt.ArrayLike | None = None,
    memory_mask: npt.ArrayLike | None = None,
    labels: Labels = None,
    memory_labels: Labels = None,
    trim: Trim | None = None,
) -> Trace:
    """A decoder of N layers, each of which attends to the encoder's output.

    x [..., n, d_model], memory [..., m, d_model], which is `result(encode(…))`. The trace is called
    `decoder`; its stages are `1.attention.q`, `1.cross_attention.weights` and so on. `trim` as in
    `encode`.

    Raises ShapeError where there is no layer or a width does not fit.
    Source: "Attention Is All You Need", section 3.1.

    >>> import numpy as np
    >>> from attncli.attention.initial import random_weights
    >>> from attncli.attention.weights import Sizes
    >>> stack = random_weights("decoder", Sizes(d_model=2)).decoder
    >>> decode(np.eye(2), np.ones((3, 2)), stack)["1.cross_attention.weights"].value.shape
    (1, 2, 3)
    """
    rule = how or Architecture()
    masks = {"mask": mask, "memory_mask": memory_mask}
    names = {"labels": labels, "memory_labels": memory_labels}

    def layer(rows: npt.ArrayLike, own: DecoderLayerWeights, name: str) -> Trace:
        return decoder_layer(rows, memory, own, rule, name=name, **masks, **names)  # type: ignore[arg-type]

    steps, last = _chain(x, weights.layers, "decoder", layer, trim)
    steps += _last_norm(last, weights.norm, rule, labels)
    return Trace("Decoder", tuple(steps), rule.convention, "decoder")


def _chain(
    x: npt.ArrayLike,
    layers: tuple[Any, ...],
    name: str,
    compute: Callable[[Any, Any, str], Trace],
    trim: Trim | None,
) -> tuple[list[Stage | Trace], Array]:
    """Every layer's trace, and what the last one gives."""
    if not layers:
        raise ShapeError(f"the {name} has no layers", "give it at least one")
    steps: list[Stage | Trace] = []
    rows: Any = x
    for number, weights in enumerate(layers, start=1):
        trace = compute(rows, weights, f"{name}.{number}")
        rows = result(trace)
        steps.append(_trimmed(trace, trim) if trim else trace)
    return steps, rows


def _trimmed(trace: Trace, trim: Trim) -> Trace:
    *_, last = trace
    kept = trim(trace)
    if last not in kept:
        raise StageError(f"layer {trace.name} lost its last stage, {last}", "trim must keep it")
    return kept


def _last_norm(
    x: Array, weights: NormWeights | None, how: Architecture, labels: Labels
) -> tuple[Stage | Trace, ...]:
    if weights is None:
        return ()
    rule = how.convention
    return layer_norm(x, weights, epsilon=how.epsilon, labels=labels, convention=rule).steps
