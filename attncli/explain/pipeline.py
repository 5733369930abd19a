"""The whole pipeline of a sentence, from words to contextual vectors, as one Trace.

    sentence ── tokens ── embeddings ── + positions ── input ── block ── meaning

attention            input ── attention                                 meaning
attention, target    target.input ── cross_attention ── input           meaning
encoder              input ── encoder.1 … encoder.N                     meaning
decoder              input ── encoder.1 … N ── decoder.1 … N ── target.input   meaning
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from attncli.arrays import Array
from attncli.attention.attend import Block
from attncli.attention.layers import Architecture, LayerPlan
from attncli.attention.shapes import check_mask
from attncli.attention.weights import Weights
from attncli.convention import Convention
from attncli.errors import ConventionError
from attncli.explain.meaning import meaning
from attncli.explain.sentence import PositionKind, Sentence, Vocabulary, entry_stages
from attncli.stages import HIDDEN, PROJECTED, SCALED, WEIGHTS, kind_of
from attncli.trace import Stage, Trace

Keep = Callable[[str], bool]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Model:
    """What the vectors go through.

    block      "attention", "encoder", or "decoder": an encoder and a decoder that reads it
    weights    by name; an attention without w_q, w_k and w_v takes the vectors themselves
    how        heads, norm, dropout, convention
    positions  "paper", "article" or "none"
    notes      what the reader should know before the first number
    """

    block: Literal["attention", "encoder", "decoder"] = "attention"
    weights: Weights
    how: Architecture = field(default_factory=Architecture)
    positions: PositionKind = "paper"
    notes: tuple[str, ...] = ()


def explain(
    sentence: Sentence,
    vocabulary: Vocabulary,
    model: Model,
    *,
    target: Sentence | None = None,
    mask: Array | None = None,
    keep: Keep | None = None,
) -> Trace:
    """Every stage between the words of a sentence and their contextual vectors.

    tokens → embeddings → + positions → input → block → meaning

    Stages: those of `entry_stages` (and those of the target as `target.tokens` …); those of the
    block as `attention.q`, `cross_attention.q`, `encoder.1.attention.q`, `decoder.1.…`, each
    with its weights (`attention.w_q`); `meaning.static` and `meaning.contextual`. `mask` is
    additive and belongs to the attention or the encoder. `keep` says by dotted name which stages
    of a layer to hold; the others are dropped as soon as no later stage needs them.

    Raises ShapeError where weights do not fit, ConventionError where a target is missing.
    Source: "Attention Is All You Need", section 3.

    >>> from attncli.attention.weights import Dimensions, random_weights
    >>> from attncli.explain.sentence import random_vocabulary
    >>> words = ("river", "bank")
    >>> model = Model(weights=random_weights("attention", Dimensions(d_model=4)))
    >>> trace = explain(Sentence(words, 2), random_vocabulary(words, 4), model)
    >>> trace["attention.weights"].value.shape, trace["meaning.contextual"].value.shape
    ((1, 2, 2), (2, 2))
    """
    entry = entry_stages(sentence, vocabulary, model.positions)
    stages = {stage.name: stage for stage in entry}
    asking, prefix = entry, ""
    layers = LayerPlan(model.how, model.weights)
    x = y = layers.rows(entry[-1].name, entry[-1].value)
    if target is not None:
        asking, prefix = entry_stages(target, vocabulary, model.positions), "target."
        stages |= {f"target.{stage.name}": stage for stage in asking}
        y = layers.rows(f"target.{asking[-1].name}", asking[-1].value)
        layers.blocks["target"] = Block("Target")
    last = _add_blocks(layers, model, (sentence, x), (target, y), mask)
    notes = (*model.notes, *vocabulary.remarks)
    convention = model.how.convention
    layers.blocks[""] = Block("From words to contextual vectors", convention, notes=notes)
    kept = None if keep is None else _kept(layers, last, keep)
    trace = _annotated(layers.trace(kept, stages), model.how.n_heads)
    asked, restricting = target or sentence, mask is not None or convention.window is not None
    embeddings = next(stage.value for stage in asking if stage.name == "embeddings")
    end = meaning(
        asked.words,
        embeddings[: asked.n_real],
        trace[last].value[: asked.n_real],
        placed=model.positions != "none",
        masked=restricting or convention.causal or model.block == "decoder",
        reads=(f"{prefix}embeddings", last),
    )
    return trace if end is None else replace(trace, steps=(*trace.steps, end))


def _add_blocks(
    layers: LayerPlan,
    model: Model,
    source: tuple[Sentence, str],
    asking: tuple[Sentence | None, str],
    mask: Array | None,
) -> str:
    """Adds the model's blocks to the plan; gives the last stage."""
    (sentence, x), (target, y) = source, asking
    padding = sentence.key_mask()
    if model.block == "attention":
        name = "attention" if target is None else "cross_attention"
        own = {key.replace("attention.", f"{name}.", 1): w for key, w in model.weights.items()}
        layers.weights = own
        asked, context = target or sentence, "" if target is None else x
        labels: dict[str, Any] = {"query_labels": asked.tokens, "key_labels": sentence.tokens}
        total = _total_mask(mask, padding, len(asked.tokens), model.how.n_heads)
        return layers.attention(name, y, context, mask=total, alone=True, **labels)
    from attncli.attention.transformer import add_decoder, add_encoder

    total = _total_mask(mask, padding, len(sentence.tokens), model.how.n_heads)
    last = add_encoder(layers, x, mask=total, labels=sentence.tokens)
    if model.block == "encoder":
        return last
    if target is None:
        raise ConventionError("a decoder needs a target", "add --target")
    names = {"labels": target.tokens, "memory_labels": sentence.tokens}
    return add_decoder(layers, y, last, memory_mask=padding, **names)


def _total_mask(mask: Array | None, padding: Array | None, n_q: int, n_heads: int) -> Array | None:
    """The given mask and the padding's, added up."""
    if mask is None or padding is None:
        return padding if mask is None else mask
    check_mask(mask, (n_heads, n_q, len(padding)))
    return np.asarray(mask + padding)


def _kept(layers: LayerPlan, last: str, keep: Keep) -> set[str]:
    """The stages to hold: those that `keep` wants, the last of each layer, and all of no layer."""
    names = [step.name for step in layers.steps]
    ends = {".".join(name.split(".")[:2]): name for name in names if _is_of_layer(name)}
    wanted = {name for name in (*layers.inputs, *names) if not _is_of_layer(name) or keep(name)}
    hidden = {name for name in wanted if kind_of(name).role in HIDDEN}
    return (wanted - hidden) | {*ends.values(), last}


def _is_of_layer(name: str) -> bool:
    return name.partition(".")[0] in ("encoder", "decoder")


def _annotated(trace: Trace, n_heads: int) -> Trace:
    """The trace with a note on every stage that has none, in plain words."""
    how = trace.convention or Convention()
    special = {
        SCALED: "" if isinstance(how.scale, str) else "every score times the same factor",
        WEIGHTS: ""
        if how.softmax_over == "keys"
        else "scores as shares: how each key divides itself among the queries",
        PROJECTED: "back at the width of the input" if n_heads == 1 else "",
    }

    def annotated(step: Stage | Trace) -> Stage | Trace:
        if isinstance(step, Trace):
            return replace(step, steps=tuple(map(annotated, step.steps)))
        note = special.get(step.name) or kind_of(step.name).note
        if step.name == "positions" and step.note:
            note = f"{note}; {step.note}"
        return replace(step, note=note if step.name == "positions" else step.note or note)

    return replace(trace, steps=tuple(map(annotated, trace.steps)))
