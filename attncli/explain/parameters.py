"""The weights of a block as stages, beside what was computed with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

from attncli.attention.multi_head import Projections
from attncli.attention.weights import (
    ATTENTION,
    FEED_FORWARD,
    NORM,
    FeedForwardWeights,
    LayerWeights,
    NormWeights,
)
from attncli.trace import Stage, Trace

_AXES = ATTENTION | FEED_FORWARD | NORM
_SYMBOLS = {"gamma": "γ", "beta": "β", "w_1": "W₁", "w_2": "W₂", "b_1": "b₁", "b_2": "b₂"}
_NORMS = {"attention": 1, "cross_attention": 2}  # the feed-forward's is the layer's last

Part = Projections | FeedForwardWeights | NormWeights


def with_parameters(trace: Trace, *parts: Part) -> Trace:
    """The trace with the arrays of these weights as its first stages.

    >>> import numpy as np
    >>> eye = np.eye(2)
    >>> list(with_parameters(Trace("Attention", ()), Projections(eye, eye, eye)))
    ['w_q', 'w_k', 'w_v']
    """
    return replace(
        trace, steps=(*(stage for part in parts for stage in _stages(part)), *trace.steps)
    )


def layer_with_parameters(layer: Trace, weights: LayerWeights, *, normed: bool) -> Trace:
    """A layer in which each sub-layer begins with its own weights, those of its norm included."""
    steps = tuple(
        with_parameters(step, *_parts_of(step.name, weights, normed=normed))
        if isinstance(step, Trace)
        else step
        for step in layer.steps
    )
    return replace(layer, steps=steps)


def _parts_of(name: str, weights: LayerWeights, *, normed: bool) -> Iterator[Part]:
    yield getattr(weights, name)
    if normed:
        norms = [field.name for field in fields(weights) if field.name.startswith("norm_")]
        yield getattr(weights, f"norm_{_NORMS[name]}" if name in _NORMS else norms[-1])


def _stages(part: Part) -> Iterator[Stage]:
    for field in fields(part):
        value = getattr(part, field.name)
        if value is not None:
            symbol = _SYMBOLS.get(field.name, field.name.replace("w_", "W_"))
            yield Stage(field.name, symbol, "", value, _AXES[field.name])
