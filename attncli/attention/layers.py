"""Encoder and decoder layers: sub-layers, each with its residual and norm.

    norm="post"  LayerNorm(x + Sublayer(x))        the paper, section 3.1
    norm="pre"   x + Sublayer(LayerNorm(x))        Xiong et al. (2020), GPT-2
    norm="none"  x + Sublayer(x)

A layer is a Trace of its sub-layers, `attention`, `cross_attention` (decoder) and `feed_forward`,
each with its own `residual` and `norm`; the last stage of a layer is what it gives.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy.typing as npt

from attncli.attention.architecture import Architecture
from attncli.attention.blocks import Labels, token_rows
from attncli.attention.sublayers import Place
from attncli.attention.weights import DecoderLayerWeights, EncoderLayerWeights
from attncli.trace import Stage, Trace

Array = npt.NDArray[Any]


def encoder_layer(
    x: npt.ArrayLike,
    weights: EncoderLayerWeights,
    how: Architecture | None = None,
    *,
    mask: npt.ArrayLike | None = None,
    labels: Labels = None,
    name: str = "",
) -> Trace:
    """Self-attention, then feed-forward, each with residual and norm.

    x [n, d_model] or [batch, n, d_model]; `mask` is `attend`'s, so a padding mask is [n] (or
    [batch, 1, 1, n]). `name` is the dotted name, which also seeds the layer's dropout.

    Raises ShapeError where the widths do not fit.
    Source: "Attention Is All You Need", section 3.1.

    >>> import numpy as np
    >>> from attncli import Projections
    >>> eye = np.eye(2)
    >>> layer = encoder_layer(eye, EncoderLayerWeights(Projections(eye, eye, eye, eye)))
    >>> list(layer)[-4:]
    ['attention.residual', 'attention.mean', 'attention.deviation', 'attention.norm']
    """
    place = Place(how or Architecture(), labels, name)
    rule = place.how.convention
    attended = place.attention(
        place.rows(x), weights.attention, weights.norm_1, rule, mask=mask, key_labels=labels
    )
    steps = [attended]
    if weights.feed_forward is not None:
        steps.append(place.feed_forward(result(attended), weights.feed_forward, weights.norm_2))
    return place.layer("Encoder layer", steps)


def decoder_layer(
    x: npt.ArrayLike,
    memory: npt.ArrayLike,
    weights: DecoderLayerWeights,
    how: Architecture | None = None,
    *,
    mask: npt.ArrayLike | None = None,
    memory_mask: npt.ArrayLike | None = None,
    labels: Labels = None,
    memory_labels: Labels = None,
    name: str = "",
) -> Trace:
    """Masked self-attention, cross-attention to the encoder's output, then feed-forward.

    x [..., n, d_model]; memory [..., m, d_model], the encoder's output. The self-attention is
    causal, the cross-attention has neither a causal mask nor a window, whatever the convention
    says. `mask` and `memory_mask` restrict the two further.

    Raises ShapeError where the widths do not fit.
    Source: "Attention Is All You Need", section 3.1.

    >>> import numpy as np
    >>> from attncli import Projections
    >>> w = Projections(*[np.eye(2)] * 4)
    >>> layer = decoder_layer(np.eye(2), np.ones((3, 2)), DecoderLayerWeights(w, w))
    >>> layer["attention.weights"].value[0, 0].tolist()
    [1.0, 0.0]
    >>> layer["cross_attention.weights"].value.shape
    (1, 2, 3)
    """
    place = Place(how or Architecture(), labels, name)
    rule = place.how.convention
    causal = replace(rule, causal=True)
    attended = place.attention(
        place.rows(x), weights.attention, weights.norm_1, causal, mask=mask, key_labels=labels
    )
    crossed = place.attention(
        result(attended),
        weights.cross_attention,
        weights.norm_2,
        replace(rule, causal=False, window=None),
        context=token_rows(memory),
        mask=memory_mask,
        key_labels=memory_labels,
    )
    steps = [attended, crossed]
    if weights.feed_forward is not None:
        steps.append(place.feed_forward(result(crossed), weights.feed_forward, weights.norm_3))
    return place.layer("Decoder layer", steps)


def result(trace: Trace) -> Array:
    """What a layer or stack gives: the value of its last stage.

    >>> import numpy as np
    >>> one = Stage("norm", "N", "", np.ones(1), ("query",))
    >>> result(Trace("Encoder", (Trace("Layer", (one,), name="1"),))).tolist()
    [1.0]
    """
    last = trace.steps[-1]
    return last.value if isinstance(last, Stage) else result(last)
