"""The page of a sentence's way: the outline where it is long, the first layer, what it means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from attncli.trace import INPUTS, PARAMETERS, Trace
from attncli.views.numbers import percent
from attncli.views.outline import is_first_layer, outline
from attncli.views.page import Closing, Heading, Headline, Matrix, Part, Remark, parts
from attncli.views.places import HEADS, Level, levels
from attncli.views.prose import closing, strongest
from attncli.views.safe import sentence
from attncli.views.showing import Showing
from attncli.words.tokens import PAD

TALL = 48  # lines a matrix may take its share of, however low the screen: the page scrolls anyway


def walk(trace: Trace, showing: Showing) -> Iterator[Part]:
    """Everything from the words to what it means; of several layers and heads the first.

    Where stages are named, they alone are shown, as they are of any trace.
    Raises StageError or ShapeError for what is asked for and not there.
    """
    if showing.stages:
        yield from _without_empty(parts(trace, showing))
        return
    chosen = _chosen(trace, showing)
    if showing.cell:
        yield from parts(trace, chosen)
        return
    notes: tuple[str, ...] = ()
    for part in _without_empty(parts(trace, chosen)):
        match part:
            case Closing():
                pass  # all of them come together at the end
            case Headline(name="meaning"):
                notes = part.notes
                yield part._replace(notes=())
            case Headline(name=""):
                yield part
                if _is_long(trace):
                    yield outline(trace, showing)
            case _:
                yield part
    yield from _closing(trace, chosen, showing, notes)


def _chosen(trace: Trace, showing: Showing) -> Showing:
    """The first layer, of several heads the first, unless all or another one is asked for."""
    names = tuple(
        name for name in trace if _is_step(name) and (showing.full or is_first_layer(name))
    )
    tall = None if showing.height is None else max(showing.height, TALL)
    head = 0 if showing.head is None and not showing.full and _n_heads(trace) > 1 else showing.head
    return replace(showing, stages=names, head=head, height=tall)


def _is_step(name: str) -> bool:
    leaf = name.rpartition(".")[2]
    return leaf in ("q", "k", "v") or leaf not in (*INPUTS, *PARAMETERS)


def _n_heads(trace: Trace) -> int:
    return max((level.n_heads() for level in levels(trace)), default=0)


def _n_layers(trace: Trace) -> int:
    numbers = (int(level.trace.name) for level in levels(trace) if level.trace.name.isdecimal())
    return max(numbers, default=0)


def _is_long(trace: Trace) -> bool:
    return _n_heads(trace) > 1 or any(level.trace.name.isdecimal() for level in levels(trace))


def _without_empty(page: Iterator[Part]) -> Iterator[Part]:
    """The parts without the headlines of blocks that hold nothing but blocks."""
    waiting: Headline | None = None
    for part in page:
        if waiting and (waiting.name == "" or not isinstance(part, Headline)):
            yield waiting
        waiting = part if isinstance(part, Headline) else None
        if waiting is None:
            yield part


def _closing(
    trace: Trace, chosen: Showing, showing: Showing, notes: tuple[str, ...]
) -> Iterator[Part]:
    attentions = [
        level
        for level in levels(trace)
        if "weights" in level.stages and f"{level.prefix}weights" in chosen.stages
    ]
    for level in attentions:
        yield from _attention_closing(level, showing, alone=len(attentions) == 1)
    if notes:
        yield Closing((("Static against contextual", tuple(map(sentence, notes))),))
    left = _left_out(trace, showing)
    if left:
        yield Remark(left)


def _attention_closing(level: Level, showing: Showing, *, alone: bool) -> Iterator[Part]:
    """Whom each token attends to: in sentences, or, for several heads, as a table."""
    heading = "Whom each token attends to"
    if not alone:
        heading += f": {sentence(level.prefix.removesuffix('.'))}"
    names = level.stages["weights"].names("query")
    rows = (0, _n_real(names)) if showing.rows == (None, None) else showing.rows
    seen = replace(showing, rows=rows)
    padding = _padding(level)
    if level.n_heads() <= 1 or showing.head is not None:
        place = {} if showing.head is None else {HEADS: showing.head}
        where = "" if showing.head is None else f", in head {showing.head + 1}"
        yield Closing(((heading + where, (*closing(level, place, seen), *padding)),))
        return
    yield Heading(f"{heading} most, by head")
    yield Matrix(strongest(level, seen))
    yield from (Remark(said) for said in padding)


def _n_real(names: Sequence[str]) -> int:
    """How many tokens there are before the padding at the end."""
    count = len(names)
    while count > 1 and names[count - 1] == PAD:
        count -= 1
    return count


def _padding(level: Level) -> tuple[str, ...]:
    """What the padding gets of the attention, which is nothing."""
    weights = level.stages["weights"]
    names = weights.names("key")
    first = _n_real(names)
    if first == len(names):
        return ()
    most = float(weights.value[..., first:].max())
    keys = f"{len(names) - first} {PAD} keys are" if first < len(names) - 1 else f"the {PAD} key is"
    got = "every weight is 0" if most == 0 else f"the largest weight is {percent(most)}"
    return (f"{keys} masked: {got}",)


def _left_out(trace: Trace, showing: Showing) -> str:
    """What is not shown of several layers and heads, and which flags show it."""
    if showing.full:
        return ""
    n_layers, n_heads = _n_layers(trace), _n_heads(trace)
    said, flags = [], []
    if n_layers > 1:
        stack = "decoder" if any(name.startswith("decoder.") for name in trace) else "encoder"
        said.append(f"layer 1 of {n_layers}")
        flags.append(f"--stage {stack}.2.attention.weights")
    if n_heads > 1 and showing.head is None:
        said.append(f"head 1 of {n_heads}")
        flags.append("--head 2")
    if not said:
        return ""
    return f"shown: {' and '.join(said)}; the rest: {', '.join(flags)}, or --full for everything"
