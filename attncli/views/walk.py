"""The page of a sentence's way: the outline where it is long, the first layer, what it means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attncli.trace import Trace
from attncli.views.outline import is_first_layer, outline
from attncli.views.page import Closing, Heading, Headline, Matrix, Part, Remark, parts
from attncli.views.places import Level, levels
from attncli.views.prose import closing, strongest
from attncli.views.safe import sentence
from attncli.views.showing import Showing

MEANING = "meaning"


def walk(trace: Trace, showing: Showing) -> Iterator[Part]:
    """Everything from the words to what it means; of several layers and heads the first.

    Where stages are named, they alone are shown, as they are of any trace.
    Raises StageError or ShapeError for what is asked for and not there.
    """
    if showing.stages:
        yield from parts(trace, showing)
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
    names = tuple(name for name in trace if _is_step(name) and (showing.full or is_first_layer(name)))
    head = 0 if showing.head is None and not showing.full and _n_heads(trace) > 1 else showing.head
    return replace(showing, stages=names, head=head)


def _is_step(name: str) -> bool:
    from attncli.trace import INPUTS, PARAMETERS

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
    n_real = _n_real(trace)
    attentions = [
        level
        for level in levels(trace)
        if "weights" in level.stages and f"{level.prefix}weights" in chosen.stages
    ]
    for level in attentions:
        yield from _attention_closing(level, showing, n_real, alone=len(attentions) == 1)
    if notes:
        yield Closing((("Static against contextual", tuple(map(sentence, notes))),))
    left = _left_out(trace, showing)
    if left:
        yield Remark(left)


def _n_real(trace: Trace) -> int | None:
    return trace["meaning.static"].value.shape[0] if "meaning.static" in trace else None


def _attention_closing(
    level: Level, showing: Showing, n_real: int | None, *, alone: bool
) -> Iterator[Part]:
    """Whom each token attends to: in sentences, or, for several heads, as a table."""
    where = "" if alone else f": {level.prefix.removesuffix('.')}"
    rows = (0, n_real) if showing.rows == (None, None) else showing.rows
    seen = replace(showing, rows=rows)
    heading = f"Whom each token attends to{where}"
    if level.n_heads() <= 1 or showing.head is not None:
        place = {} if showing.head is None else {"head": showing.head}
        said = f"{heading}, in head {showing.head + 1}" if showing.head is not None else heading
        yield Closing(((said, closing(level, place, seen)),))
        return
    yield Heading(f"{heading} most, by head")
    yield Matrix(strongest(level, seen))


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
