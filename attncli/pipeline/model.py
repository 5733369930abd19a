"""The whole pipeline of a sentence, from words to contextual vectors, as one Trace.

    sentence ── tokens ── embeddings ── + positions ── input ── block ── meaning

attention            input ── attention                                 meaning
attention, target    target.input ── cross_attention ── input           meaning
encoder              input ── encoder.1 … encoder.N                     meaning
decoder              input ── encoder.1 … N ── decoder.1 … N ── target.input   meaning
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from attncli.arrays import Array
from attncli.attention.layers import BACKWARD, Alter, LayerPlan
from attncli.attention.matrices import plain
from attncli.attention.shapes import Gradient, check_mask
from attncli.attention.traces import Heading
from attncli.attention.weights import Block, Weights
from attncli.convention import Convention
from attncli.errors import ConventionError
from attncli.pipeline.meaning import meaning
from attncli.pipeline.sentence import PositionKind, Sentence, Vocabulary, entry_stages
from attncli.stages import HIDDEN, MASKED, PROJECTED, SCALED, WEIGHTS, kind_of
from attncli.trace import Stage, Trace

Keep = Callable[[str], bool]


def explained(  # noqa: PLR0913 - what goes in, and how
    sentence: Sentence,
    vocabulary: Vocabulary,
    block: Block,
    weights: Weights,
    *,
    positions: PositionKind | Array = "paper",
    target: Sentence | None = None,
    mask: Array | None = None,
    d_output: Gradient | None = None,
    notes: tuple[str, ...] = (),
    keep: Keep | None = None,
    alter: Alter | None = None,
) -> Trace:
    """Every stage between the words of a sentence and their contextual vectors.

    tokens → embeddings → + positions → input → block → meaning

    Stages: those of `entry_stages` (and those of the target as `target.tokens` …); those of the
    block as `attention.q`, `cross_attention.q`, `encoder.1.attention.q`, `decoder.1.…`, each
    with its weights (`attention.w_q`); `meaning.static` and `meaning.contextual`.

    weights    by name; an attention without w_q, w_k and w_v takes the vectors themselves
    positions  a kind of table, or a vector for each, such as learned ones
    mask       as `masks.meaning` gives it; it belongs to the attention or the encoder
    d_output   the gradient of the last stage of the block
    notes      what the reader should know before the first number
    keep       says by dotted name which stages of a layer to hold; the others are dropped as soon
               as no later stage needs them
    alter      what is done to the steps of each attention, as LayerPlan has it

    Source: "Attention Is All You Need", section 3.
    """
    layers = LayerPlan(block, weights, alter)
    stages: dict[str, Stage] = {}
    ends = []
    for prefix, asked in (("", sentence), ("target.", target)):
        if asked is not None:
            mark = "_t" if prefix else ""  # the target's X is not the sentence's: X_t
            entry = entry_stages(asked, vocabulary, positions, mark)
            stages |= {prefix + stage.name: stage for stage in entry}
            end = entry[-1]
            ends.append(layers.rows(prefix + end.name, end.value, asked.tokens, end.symbol))
    padding = sentence.key_mask(), None if target is None else target.key_mask()
    is_alone = block.kind == "attention"
    last = _add_stages(layers, ends, padding, mask, d_output if is_alone else None)
    if d_output is not None and not is_alone:
        layers.gradients(last, d_output)
    convention, notes = block.convention, (*notes, *vocabulary.remarks)
    layers.headings[""] = Heading("From words to contextual vectors", convention, notes=notes)
    layers.headings["target"] = Heading("Target")
    kept = None if keep is None else _kept(layers, last, keep)
    asked, prefix = (sentence, "") if target is None else (target, "target.")
    restricting = mask is not None or convention.window is not None
    is_start = bool(asked.is_word[: len(asked.words)].all())  # else rows are not those of stages

    def finished(plain: Trace) -> Trace:
        """The trace with notes, and with what it means."""
        trace, again = _annotated(plain, block.n_heads), plain.compute
        part = meaning(
            asked.words,
            stages[f"{prefix}embeddings"].value[asked.is_word],
            trace[last].value[asked.is_word],
            placed=isinstance(positions, np.ndarray) or positions != "none",
            masked=restricting or convention.causal or "decoder" in block.kind,
            reads=(f"{prefix}embeddings", last) if is_start else ("", ""),
            letters=(trace[f"{prefix}embeddings"].symbol, trace[last].symbol),
            adds_input=is_alone,
        )
        steps = trace.steps if part is None else (*trace.steps, part)
        compute = None if again is None else lambda arrays: finished(again(arrays))
        return replace(trace, steps=steps, compute=compute)

    return finished(layers.trace(kept, stages))


def _add_stages(
    layers: LayerPlan,
    rows: list[str],
    paddings: tuple[Array | None, Array | None],
    mask: Array | None,
    d_output: Gradient | None,
) -> str:
    """Adds the block to the plan; gives the last stage.

    rows            the stages that go in: of the sentence and, where there is one, of the target
    paddings, mask  restrict which tokens of the sentence and the target are attended to
    """
    (x, y), (padding, own), kind = (rows[0], rows[-1]), paddings, layers.block.kind
    total = padding if mask is None else mask
    if mask is not None and padding is not None:
        n_q = len(layers.like[y if kind == "attention" else x])
        check_mask(mask, (layers.block.n_heads, n_q, len(padding)))
        total = mask & padding if mask.dtype == np.bool_ else np.where(padding, mask, -np.inf)
    if kind == "attention":
        name, context = ("attention", "") if x == y else ("cross_attention", x)
        layers.weights = {n.replace("attention", name, 1): w for n, w in layers.weights.items()}
        return layers.attention(name, y, context, mask=total, alone=True, d_output=d_output)
    last = layers.stack(x, mask=total)
    if kind == "encoder":
        return last
    if x == y:
        raise ConventionError("a decoder needs a target", "add --target")
    return layers.stack(y, last, mask=own, memory_mask=padding)


def _kept(layers: LayerPlan, last: str, keep: Keep) -> set[str]:
    """The stages to hold: those that `keep` wants, the last of each layer, and all of no layer."""
    names = [step.name for step in layers.steps]
    forward = [name for name in names if not name.startswith(f"{BACKWARD}.")]
    ends = {".".join(name.split(".")[:2]): name for name in forward if _is_of_layer(name)}
    own = {name: name.removeprefix(f"{BACKWARD}.") for name in (*layers.inputs, *names)}
    wanted = {name for name, of in own.items() if not _is_of_layer(of) or keep(of)}
    kinds = {name: kind_of(name) for name in wanted}
    hidden = {name for name, kind in kinds.items() if kind.role in HIDDEN or kind.asked}
    return (wanted - hidden) | {*ends.values(), last}


def _is_of_layer(name: str) -> bool:
    return name.partition(".")[0] in ("encoder", "decoder")


def _annotated(trace: Trace, n_heads: int) -> Trace:
    """The trace with a note on every stage that has none, in plain words."""
    how, special = trace.convention or Convention(), {}
    if not isinstance(how.scale, str):
        special[SCALED] = "every score times the same factor"
    if how.softmax_over != "keys":
        special[WEIGHTS] = "scores as shares: how each key divides itself among the queries"
    if how.mask_value != -math.inf:
        value = plain(how.mask_value)
        lowered = f"become {value}" if how.mask_value_rule == "replace" else f"have {value} added"
        special[MASKED] = f"masked scores {lowered}, so their weight is as good as 0"
    if n_heads == 1:
        special[PROJECTED] = "back at the width of the input"

    def annotated(stage: Stage) -> Stage:
        note = special.get(stage.name) or stage.kind.note
        if stage.name == MASKED and how.mask_value == -math.inf and np.isfinite(stage.value).all():
            note = "the mask's numbers are added to the scores"
        if stage.note:
            note = f"{note}; {stage.note}" if stage.name == "positions" else stage.note
        return replace(stage, note=note)

    return trace.mapped(annotated)
