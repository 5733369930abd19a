"""The way of the data: from a sentence (and a target) through a block, as one Trace.

attention            input ── attention                           meaning
attention, target    target.input ── cross_attention ── sentence  meaning
encoder              input ── encoder.1 … encoder.N               meaning
decoder              input ── encoder.1 … N ── decoder.1 … N ── target.input   meaning
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from attncli.attention.architecture import Architecture
from attncli.attention.multi_head import multi_head_attention
from attncli.attention.shapes import check_mask
from attncli.attention.weights import StackWeights, Weights
from attncli.errors import ConventionError
from attncli.explain.meaning import meaning
from attncli.explain.notes import annotated
from attncli.explain.parameters import layer_with_parameters, with_parameters
from attncli.explain.sentence import Positions, Sentence, entry_stages
from attncli.explain.vocabulary import Vocabulary
from attncli.trace import Stage, Trace

Array = npt.NDArray[Any]
Keep = Callable[[str], bool]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan:
    """What is computed.

    block      "attention", "encoder", or "decoder": an encoder and a decoder that reads it
    how        heads, norm, dropout, convention
    positions  "paper", "article" or "none"
    identity   the vectors are queries, keys and values themselves: w_q, w_k, w_v are the identity
    notes      what the reader should know before the first number
    """

    block: Literal["attention", "encoder", "decoder"] = "attention"
    how: Architecture = field(default_factory=Architecture)
    positions: Positions = "paper"
    identity: bool = False
    notes: tuple[str, ...] = ()


def explain(
    sentence: Sentence,
    vocabulary: Vocabulary,
    weights: Weights,
    plan: Plan,
    *,
    target: Sentence | None = None,
    mask: Array | None = None,
    keep: Keep | None = None,
) -> Trace:
    """Every stage between the words of a sentence and their contextual vectors.

    tokens → embeddings → + positions → input → block → meaning

    Stages: those of `entry_stages` (and those of the target as `target.tokens` …); those of the
    block as `attention.q`, `cross_attention.q`, `encoder.1.attention.q`, `decoder.1.…`, each
    beside its weights (`attention.w_q`); `meaning.static` and `meaning.contextual`. `mask` is
    additive and belongs to the attention or the encoder. `keep` says by dotted name which stages
    of a layer to hold; the others are let go as soon as the layer is computed.

    Raises ShapeError where weights do not fit, ConventionError where a target is missing.
    Source: "Attention Is All You Need", section 3.

    >>> from attncli.attention.initial import random_weights
    >>> from attncli.attention.weights import Sizes
    >>> from attncli.explain.vocabulary import made_up
    >>> words = ("river", "bank")
    >>> weights = random_weights("attention", Sizes(d_model=4))
    >>> trace = explain(Sentence(words, 2), made_up(words, 4), weights, Plan())
    >>> trace["attention.weights"].value.shape, trace["meaning.contextual"].value.shape
    ((1, 2, 2), (2, 2))
    """
    way = _Way(sentence, target, weights, plan, mask, keep)
    entry = entry_stages(sentence, vocabulary, plan.positions)
    steps: list[Stage | Trace] = [*entry]
    asking, x = entry, entry[-1].value
    if target is not None:
        asking = entry_stages(target, vocabulary, plan.positions)
        steps.append(Trace("Target", asking, name="target"))
    blocks = way.blocks(x, asking[-1].value)
    steps += blocks
    trace = Trace("From words to contextual vectors", tuple(steps), plan.how.convention)
    trace = replace(trace, notes=(*plan.notes, *vocabulary.remarks))
    one_head, identity = plan.how.n_heads == 1, plan.identity
    trace = annotated(trace, one_head=one_head, identity=identity)
    *_, (_, last) = blocks[-1].stages()
    end = _meaning(target or sentence, asking, last.value, way)
    return trace if end is None else replace(trace, steps=(*trace.steps, end))


def _meaning(said: Sentence, entry: tuple[Stage, ...], end: Array, way: _Way) -> Trace | None:
    how = way.plan.how.convention
    embeddings = next(stage.value for stage in entry if stage.name == "embeddings")
    masked = how.causal or how.window is not None or way.mask is not None
    return meaning(
        said.words,
        embeddings[: said.n_real],
        end[: said.n_real],
        placed=way.plan.positions != "none",
        masked=masked or way.plan.block == "decoder",
    )


@dataclass(frozen=True, eq=False)
class _Way:
    sentence: Sentence
    target: Sentence | None
    weights: Weights
    plan: Plan
    mask: Array | None
    keep: Keep | None

    def blocks(self, x: Array, y: Array) -> list[Trace]:
        """The block's traces; x is the sentence, y what asks: the target, or the sentence."""
        if self.plan.block == "attention":
            return [self.attention(y, x)]
        encoder = self.encoder(x)
        if self.plan.block == "encoder":
            return [encoder]
        *_, (_, memory) = encoder.stages()
        return [encoder, self.decoder(y, memory.value)]

    def attention(self, y: Array, x: Array) -> Trace:
        weights, how, crossing = self.weights.attention, self.plan.how, self.target is not None
        if weights is None:
            raise ConventionError("there are no weights for an attention")
        asking = self.target or self.sentence
        trace = multi_head_attention(
            y,
            weights,
            n_heads=how.n_heads,
            n_kv_heads=how.n_kv_heads,
            context=x if crossing else None,
            convention=how.convention,
            mask=self.total_mask(len(y)),
            query_labels=asking.tokens,
            key_labels=self.sentence.tokens,
        )
        kind = "cross" if crossing else "self"
        words = ["masked"] * how.convention.causal + ["multi-head"] * (how.n_heads > 1)
        title = " ".join([*words, f"{kind}-attention"])
        name = "cross_attention" if crossing else "attention"
        trace = replace(trace, title=title[0].upper() + title[1:], name=name)
        return trace if self.plan.identity else with_parameters(trace, weights)

    def encoder(self, x: Array) -> Trace:
        from attncli.attention.stacks import encode

        weights = self.weights.encoder
        if weights is None:
            raise ConventionError("there are no weights for an encoder")
        return encode(
            x,
            weights,
            self.plan.how,
            mask=self.total_mask(len(x)),
            labels=self.sentence.tokens,
            trim=self.trim("encoder", weights),
        )

    def decoder(self, y: Array, memory: Array) -> Trace:
        from attncli.attention.stacks import decode

        weights, target = self.weights.decoder, self.target
        if weights is None or target is None:
            raise ConventionError("a decoder needs a target", "add --target")
        return decode(
            y,
            memory,
            weights,
            self.plan.how,
            memory_mask=self.sentence.key_mask(),
            labels=target.tokens,
            memory_labels=self.sentence.tokens,
            trim=self.trim("decoder", weights),
        )

    def trim(self, stack: str, weights: StackWeights[Any]) -> Callable[[Trace], Trace]:
        """What becomes of each layer once it is computed: its weights beside it, the rest gone."""
        normed = self.plan.how.norm != "none"

        def trimmed(layer: Trace) -> Trace:
            own = weights.layers[int(layer.name) - 1]
            whole = layer_with_parameters(layer, own, normed=normed)
            if self.keep is None:
                return whole
            *names, last = whole
            prefix = f"{stack}.{layer.name}."
            return whole.keep({last, *(name for name in names if self.keep(prefix + name))})

        return trimmed

    def total_mask(self, n_queries: int) -> Array | None:
        """The given mask and the padding's, added up."""
        padding = self.sentence.key_mask()
        if self.mask is None or padding is None:
            return padding if self.mask is None else self.mask
        check_mask(self.mask, (self.plan.how.n_heads, n_queries, len(padding)))
        return np.asarray(self.mask + padding)
