"""An encoder or a decoder alone, as a trace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.layers import Architecture, LayerPlan
from attncli.attention.weights import Weights
from attncli.trace import Stage, Trace

Labels = Sequence[str] | None


def encode(
    x: npt.ArrayLike,
    weights: Weights,
    how: Architecture | None = None,
    *,
    mask: npt.ArrayLike | None = None,
    labels: Labels = None,
) -> Trace:
    """The trace of an encoder alone."""
    layers = LayerPlan(how or Architecture(), weights)
    layers.stack(layers.rows("x", x, labels), mask=mask)
    return layers.trace().part("encoder")


def decode(
    x: npt.ArrayLike,
    memory: npt.ArrayLike,
    weights: Weights,
    how: Architecture | None = None,
    *,
    mask: npt.ArrayLike | None = None,
    memory_mask: npt.ArrayLike | None = None,
    labels: Labels = None,
    memory_labels: Labels = None,
) -> Trace:
    """The trace of a decoder that attends to a memory."""
    layers = LayerPlan(how or Architecture(), weights)
    y, read = layers.rows("x", x, labels), layers.rows("memory", memory, memory_labels)
    layers.stack(y, read, mask=mask, memory_mask=memory_mask)
    return layers.trace().part("decoder")


def result(trace: Trace) -> Array:
    """What a layer or stack gives: the value of its last stage."""
    last = trace.steps[-1]
    return last.value if isinstance(last, Stage) else result(last)
