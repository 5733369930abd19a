"""The whole pipeline of a sentence, from words to contextual vectors, as one Trace.

    sentence ── tokens ── embeddings ── + positions ── input ── block ── meaning

attention            input ── attention                                 meaning
attention, target    target.input ── cross_attention ── input           meaning
encoder              input ── encoder.1 … encoder.N                     meaning
decoder              input ── encoder.1 … N ── decoder.1 … N ── target.input   meaning
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.run import Heading
from attncli.attention.shapes import Gradient, check_mask
from attncli.convention import Convention
from attncli.errors import ConventionError
from attncli.formula import common as formulas
from attncli.formula.matrices import plain
from attncli.stages import HIDDEN, MASKED, PROJECTED, SCALED, WEIGHTS, spec_of
from attncli.trace import Stage, Trace
from attncli.transformer.layers import BACKWARD, Alter, LayerPlan
from attncli.transformer.weights import Architecture, Weights
from attncli.words.measures import SPECS, similarity
from attncli.words.sentence import PositionKind, Sentence, Vocabulary, entry_stages
from attncli.words.tokens import called

Keep = Callable[[str], bool]

COSINES = SPECS["cosines"]._replace(axes="token other", shade="")
"""What is known of the tables of cosines at the end."""


def explained(  # noqa: PLR0913 - what goes in, and how
    sentence: Sentence,
    vocabulary: Vocabulary,
    block: Architecture,
    weights: Weights,
    *,
    positions: PositionKind | Array = "paper",
    target: Sentence | None = None,
    mask: Array | None = None,
    gains: Mapping[str, npt.ArrayLike] = {},
    d_output: Gradient | None = None,
    notes: tuple[str, ...] = (),
    is_random: bool = False,
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
    gains      q_gain and k_gain, as LayerPlan has them
    d_output   the gradient of the last stage of the block
    notes      what the reader should know before the first number
    is_random  whether weights or vectors are, so that their attention has no meaning
    keep       says by dotted name which stages of a layer to hold; the others are dropped as soon
               as no later stage needs them
    alter      what is done to the steps of each attention, as LayerPlan has it

    Source: "Attention Is All You Need", section 3.
    """
    layers = LayerPlan(block, weights, alter, gains)
    stages: dict[str, Stage] = {}
    ends = []
    for prefix, reader in (("", sentence), ("target.", target)):
        if reader is not None:
            mark = "_t" if prefix else ""  # the target's X is not the sentence's: X_t
            entry = entry_stages(reader, vocabulary, positions, mark)
            stages |= {prefix + stage.name: stage for stage in entry}
            end = entry[-1]
            ends.append(layers.rows(prefix + end.name, end.value, reader.tokens, end.symbol))
    padding = sentence.key_mask(), None if target is None else target.key_mask()
    is_alone = block.kind == "attention"
    last = add_stages(layers, ends, padding, mask, d_output if is_alone else None)
    if d_output is not None and not is_alone:
        layers.gradients(last, d_output)
    convention, notes = block.convention, (*notes, *vocabulary.remarks)
    shared_convention = convention if alter is None else None  # other formulas say what is computed
    layers.headings[""] = Heading(
        "From words to contextual vectors", shared_convention, notes=notes
    )
    layers.headings["target"] = Heading("Target")
    held_back = None if keep is None else kept_stages(layers, last, keep)
    reader, prefix = (sentence, "") if target is None else (target, "target.")
    restricting = mask is not None or convention.window is not None
    is_start = bool(reader.is_word[: len(reader.words)].all())  # else rows are not those of stages

    def finished(plain: Trace) -> Trace:
        """The trace with notes, and with what it means."""
        trace, again = _annotated(plain, block.n_heads), plain.compute
        part = meaning(
            reader.words,
            stages[f"{prefix}embeddings"].value[reader.is_word],
            trace[last].value[reader.is_word],
            placed=isinstance(positions, np.ndarray) or positions != "none",
            masked=restricting or convention.causal or "decoder" in block.kind,
            reads=(f"{prefix}embeddings", last) if is_start else ("", ""),
            letters=(trace[f"{prefix}embeddings"].symbol, trace[last].symbol),
            adds_input=is_alone,
            is_random=is_random,
        )
        steps = trace.steps if part is None else (*trace.steps, part)
        compute = None if again is None else lambda arrays: finished(again(arrays))
        return replace(trace, steps=steps, compute=compute)

    return finished(layers.trace(held_back, stages))


def add_stages(
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
    (x, y), (padding, target_padding), kind = (rows[0], rows[-1]), paddings, layers.block.kind
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
    return layers.stack(y, last, mask=target_padding, memory_mask=padding)


def kept_stages(layers: LayerPlan, last: str, keep: Keep) -> set[str]:
    """The stages to hold: those that `keep` wants, the last of each layer, and all of no layer."""
    names = [step.name for step in layers.steps]
    forward = [name for name in names if not name.startswith(f"{BACKWARD}.")]
    ends = {".".join(name.split(".")[:2]): name for name in forward if _is_of_layer(name)}
    forward_names = {name: name.removeprefix(f"{BACKWARD}.") for name in (*layers.inputs, *names)}
    stages = {
        name
        for name, forward_name in forward_names.items()
        if not _is_of_layer(forward_name) or keep(forward_name)
    }
    kinds = {name: spec_of(name) for name in stages}
    hidden = {name for name, kind in kinds.items() if kind.role in HIDDEN or kind.asked}
    return (stages - hidden) | {*ends.values(), last}


def _is_of_layer(name: str) -> bool:
    return name.partition(".")[0] in ("encoder", "decoder")


def _annotated(trace: Trace, n_heads: int) -> Trace:
    """The trace with a note on every stage that has none, in plain words."""
    convention, special = trace.convention or Convention(), {}
    if not isinstance(convention.scale, str):
        special[SCALED] = "every score times the same factor"
    if convention.softmax_over != "keys":
        special[WEIGHTS] = "how each key divides itself among the queries"
    if convention.mask_value != -math.inf:
        value = plain(convention.mask_value)
        lowered = (
            f"become {value}" if convention.mask_value_rule == "replace" else f"have {value} added"
        )
        special[MASKED] = f"masked scores {lowered}, so their weight is as good as 0"
    if n_heads == 1:
        special[PROJECTED] = "back at the width of the input"

    def annotated(stage: Stage) -> Stage:
        note = special.get(stage.name) or stage.kind.note
        if (
            stage.name == MASKED
            and convention.mask_value == -math.inf
            and np.isfinite(stage.value).all()
        ):
            note = "the mask's numbers are added to the scores"
        if stage.note:
            note = f"{note}; {stage.note}" if stage.name == "positions" else stage.note
        return replace(stage, note=note)

    return trace.mapped(annotated)


# ---- what it means: how much alike tokens are before and after, static against contextual

SAME = 1e-9  # cosines closer than this are called the same
ALIKE = 5e-5  # changes closer than this are, to four decimals
RANDOM = "vectors or weights are random"
PAIRS = 4  # pairs of equal words that have a sentence
_WHY_EQUAL = (
    ": without positions, equal words have equal queries and the same keys, so attention gives "
    "them equal outputs"
)


def meaning(
    words: Sequence[str],
    static: npt.ArrayLike,
    contextual: npt.ArrayLike,
    *,
    placed: bool = True,
    masked: bool = False,
    reads: tuple[str, str] = ("", ""),
    letters: tuple[str, str] = ("E", "Y"),
    adds_input: bool = False,
    is_random: bool = False,
) -> Trace | None:
    """The cosines between tokens before and after attention, and what became of equal words.

    cos(a, b) = a·b / (‖a‖·‖b‖)     # [n, d], [n, d'] -> [n, n], [n, n]

    Stages: static, contextual; where the contextual vectors are what is added to the static ones
    (`adds_input`: a residual connection does it) and as wide, also `added`, the cosines of the
    sums. The trace's notes are sentences: equal words start equal; they end
    different where positions were added (`placed`) or where each sees other words (`masked`).
    `reads` names the stages that the two come from, `letters` are their symbols. Where vectors or
    weights are random (`is_random`), the words that came closest together by chance have no
    sentence.
    None where there is but one word, or a vector holds NaN or infinity.

    Source: the definition a·b = ‖a‖·‖b‖·cos θ; Peters et al. (2018), on contextual vectors.

    >>> trace = meaning(["a", "a"], [[1.0, 0.0]] * 2, [[1.0, 0.0], [0.0, 1.0]])
    >>> trace.notes
    ('"a" (1) and "a" (2): cosine 1 before, 0 after: one word in two contexts',)
    """
    before, after = np.asarray(static, dtype=np.float64), np.asarray(contextual, dtype=np.float64)
    if len(words) < 2 or not (np.isfinite(before).all() and np.isfinite(after).all()):
        return None
    static_words, context = "between the words' own vectors", "between the vectors in their context"
    context += f"; {RANDOM}" if is_random else ""
    stages: tuple[Stage, ...] = (
        _cosines("static", f"before: {static_words}", words, before, reads[:1], letters[0]),
        _cosines("contextual", f"after: {context}", words, after, reads[1:], letters[1]),
    )
    a, b = (stage.value for stage in stages)
    farthest = () if is_random else _of_the_farthest(words, a, b)
    notes = [*_of_equal_words(words, a, b, placed, masked), *farthest]
    if adds_input and before.shape == after.shape:
        both = " + ".join(letters)
        with_input = "with the word's own vector added, as a residual connection does"
        stages = (*stages, _cosines("added", with_input, words, before + after, reads, both))
        c = stages[-1].value
        equal = [*_of_equal_words(words, a, c, placed, masked)][:1]
        sentences = [*equal, *(() if is_random else _of_the_farthest(words, a, c))]
        notes = [*(f"with the word's own vector added ({both}): {x}" for x in sentences), *notes]
    title = "What it means: static against contextual"
    return Trace(title, stages, notes=tuple(notes), name="meaning")


def _cosines(
    name: str, note: str, words: Sequence[str], matrix: Array, sources: Sequence[str], letter: str
) -> Stage:
    """The cosines of the rows of a matrix, made of one stage, or the sum of two."""
    stage = similarity(words, matrix)["cosines"]
    axes, names = ("token", "other"), {"token": tuple(words), "other": tuple(words)}
    note = f"cosines {note}{f'; {stage.note}' if stage.note else ''}"
    text = formulas.ROW_COSINES if len(sources) == 1 else formulas.SUM_COSINES
    reads, text = (dict(zip("xy", sources, strict=False)), text) if all(sources) else ({}, "")
    formula = f"cos(a, b) = {stage.formula} of the rows a and b of {letter}"
    value, symbol = stage.value, f"cos {letter}"
    return Stage(
        name, symbol, formula, value, axes, names, note, reads, expression=text, spec=COSINES
    )


def _of_equal_words(
    words: Sequence[str], before: Array, after: Array, placed: bool, masked: bool
) -> Iterator[str]:
    """A sentence for each word that occurs twice."""
    places: dict[str, list[int]] = defaultdict(list)
    for at, word in enumerate(words):
        places[word].append(at)
    repeated = [of_word for of_word in places.values() if len(of_word) > 1]
    for a, b, *_ in repeated[:PAIRS]:
        if np.isnan(before[a, b]) or np.isnan(after[a, b]):
            continue
        pair = f"{called(words, a)} and {called(words, b)}"
        start = f"{pair}: cosine {cosine_text(before[a, b])} before"
        is_equal = before[a, b] > 1 - SAME  # unless each token was given a vector
        if after[a, b] > 1 - SAME:
            why = _WHY_EQUAL if is_equal and not placed and not masked else ""
            yield f"{start} and 1 after{why}"
        else:
            why = ": one word in two contexts"
            if masked and not placed:
                why = ": no positions are added, but the mask makes each attend to other words"
            yield f"{start}, {cosine_text(after[a, b])} after{why if is_equal else ''}"


def _of_the_farthest(words: Sequence[str], before: Array, after: Array) -> Iterator[str]:
    """The two different words whose cosine changed the most; of several pairs the first."""
    change = np.triu(np.nan_to_num(after - before), 1)
    most = np.abs(change).max()
    (a, b), *others = np.argwhere(np.abs(change) >= most - ALIKE).tolist()
    if words[a] == words[b] or most < ALIKE:
        return
    direction = "closer together" if change[a, b] > 0 else "further apart"
    if others:
        direction += f"; {len(others)} other pair{'s' * (len(others) > 1)} changed as much"
    elif len(words) > 2:
        direction += " than any other pair"
    both = f"{cosine_text(before[a, b])} before, {cosine_text(after[a, b])} after"
    yield f"{called(words, a)} and {called(words, b)}: cosine {both}: moved {direction}"


def cosine_text(cosine: float) -> str:
    """A cosine to four decimals, 0 and 1 as they are, but never "1.0000" where it is less.

    >>> cosine_text(0.25), cosine_text(1.0), cosine_text(0.99999), cosine_text(0.0)
    ('0.2500', '1', '1 − 0.00001', '0')
    """
    if cosine > 1 - SAME:
        return "1"
    if abs(cosine) < SAME:
        return "0"
    return f"{cosine:.4f}" if cosine < 0.99995 else f"1 − {1 - cosine:.9f}".rstrip("0")
