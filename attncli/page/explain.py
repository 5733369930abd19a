"""The page of `attncli explain`: a tree where there are many steps, the first layer, what it means.

Functions from a trace to parts, as `page.parts` is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attncli.page import sentences as closing
from attncli.page.matrix import WIDEST, Matrix, table_of
from attncli.page.numbers import percent
from attncli.page.options import HEADS, DisplayOptions
from attncli.page.outline import is_first_layer, outline
from attncli.page.page import parts
from attncli.page.parts import Closing, Heading, Part, Remark
from attncli.page.select import BlankStage, Block, blocks_of, chosen
from attncli.page.text import clean, sentence
from attncli.stages import spec_of
from attncli.trace import Stage, Trace
from attncli.words.tokens import is_padding


def explain_page(trace: Trace, options: DisplayOptions) -> Iterator[Part]:
    """Everything from the words to what it means; of several layers and heads the first.

    Where stages are named, they alone are shown, as they are of any trace.
    Raises StageError or ShapeError for what is asked for and not there.
    """
    first = options if options.stages else _first(trace, options)
    if (options.cell or options.query) and not options.stages:  # a weight of the first layer
        maps = (b.prefix + b.weights.name for b in blocks_of(trace) if b.weights)
        first = replace(first, stages=tuple(name for name in maps if name in first.stages))
    if options.stages or options.cell or options.query:
        yield from parts(trace, first)
        if not options.stages and (left_out := _left_out(trace, options)):
            yield Remark(left_out)
        return
    *before, last = trace.steps
    findings: tuple[str, ...] = ()
    if isinstance(last, Trace) and last.name == "meaning":  # its findings come at the end
        findings = last.notes
        trace = replace(trace, steps=(*before, replace(last, notes=())))
    page = parts(trace, first)
    yield next(page)  # the title of the whole
    if _n_heads(trace) > 1 or _n_layers(trace):
        yield outline(trace, options)
    for part in page:
        if isinstance(part, Matrix) and options.cols == (None, None):
            is_map = part.stage.axes[-1] in ("key", "other", "token")
            part.widest = part.widest if is_map else WIDEST
        if not (isinstance(part, Closing) and spec_of(part.stage).summarized):
            yield part
    attentions = [
        (block, block.weights)
        for block in blocks_of(trace)
        if block.weights and block.prefix + block.weights.name in first.stages
        if not isinstance(block.weights, BlankStage)
    ]
    for block, weights in attentions:
        yield from _attention_closing(block, weights, options, alone=len(attentions) == 1)
    if findings:
        yield Closing((("Static against contextual", tuple(map(sentence, findings))),))
    if left_out := _left_out(trace, options):
        yield Remark(left_out)


def _first(trace: Trace, options: DisplayOptions) -> DisplayOptions:
    """The first layer, of several heads the first, unless all or another one is asked for."""
    shows_all = options.full or options.every
    visible = chosen(trace, DisplayOptions(given=options.given, work=options.work))
    names = tuple(x for x in trace if x in visible and (shows_all or is_first_layer(x)))
    one_of_many = options.head is None and not shows_all and _n_heads(trace) > 1
    return replace(options, stages=names, head=0 if one_of_many else options.head)


def _n_heads(trace: Trace) -> int:
    return max((block.n_heads for block in blocks_of(trace)), default=0)


def _n_layers(trace: Trace) -> int:
    names = (block.trace.name for block in blocks_of(trace))
    return max((int(name) for name in names if name.isdecimal()), default=0)


def _attention_closing(
    block: Block, weights: Stage, options: DisplayOptions, *, alone: bool
) -> Iterator[Part]:
    """Which keys each token attends to: in sentences, or, for several heads, as a table."""
    heading = "Which tokens each token attends to"
    if not alone:
        heading += f": {sentence(block.prefix.removesuffix('.'))}"
    if options.rows == (None, None):
        names = enumerate(weights.names(weights.axes[-2]), start=1)
        n_tokens = max((n for n, name in names if not is_padding(name)), default=1)
        options = replace(options, rows=(0, n_tokens))
    padding = _padding(weights)
    if block.n_heads <= 1 or options.head is not None:
        index = {} if options.head is None else {HEADS: options.head}
        place = "" if options.head is None else f", in head {options.head + 1}"
        (sentences,) = closing.sentences(block, weights, [index], options)
        yield Closing(((heading + place, (*sentences, *padding)),))
        return
    yield Heading(f"{heading} most, by head")
    queries, cells = closing.strongest(block, options)
    stage = Stage("", "", "", np.array(cells), ("query", HEADS), {"query": tuple(queries)})
    yield table_of(stage, options)
    yield from map(Remark, padding)


def _padding(weights: Stage) -> tuple[str, ...]:
    """What the padding gets of the attention, which is nothing."""
    names = weights.names(weights.axes[-1])
    at = [i for i, name in enumerate(names) if is_padding(name)]
    if not at:
        return ()
    most = float(weights.value[..., at].max())
    pad = clean(names[at[0]])
    keys = f"{len(at)} {pad} keys are" if len(at) > 1 else f"the {pad} key is"
    got = "every weight is 0" if most == 0 else f"the largest weight is {percent(most)}"
    return (f"{keys} masked: {got}",)


def _left_out(trace: Trace, options: DisplayOptions) -> str:
    """What is not shown of several layers and heads, and which flags show it."""
    n_layers, n_heads = _n_layers(trace), _n_heads(trace)
    names, flags = [], []
    if n_layers > 1:
        decodes = any(name.startswith("decoder.") for name in trace)
        names.append(f"layer 1 of {n_layers}")
        layer = f"--stage {'decoder' if decodes else 'encoder'}.2.attention.weights"
        flags += [] if options.query else [layer]
    if n_heads > 1 and options.head is None:
        names.append(f"head 1 of {n_heads}")
        flags.append("--head 2")
    if options.full or options.every or not names:
        return ""
    flags = [", ".join(flags)] if flags else []
    rest = ", or ".join([*flags, "--full for everything"])
    return f"shown: {' and '.join(names)}; the rest: {rest}"
