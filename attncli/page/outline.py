"""The outline of a trace: each step with its formula and shape, as a tree without the matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attncli.page.headline import headline
from attncli.page.options import DisplayOptions
from attncli.page.parts import Branch, Part, Tree
from attncli.page.select import Block
from attncli.page.text import NAME_CELLS, clean, sentence, shorten
from attncli.stages import PARTS
from attncli.trace import Stage, Trace


def outline_page(trace: Trace, options: DisplayOptions) -> Iterator[Part]:
    """The headline and the tree: a page of the steps alone."""
    yield headline(Block(trace), options)
    yield outline(trace, options)


def outline(trace: Trace, options: DisplayOptions) -> Tree:
    """Every step with its shape and formula; layers of the same steps once, or all if `full`."""
    return Tree(tuple(_branches(trace if options.full else collapsed(trace), "")))


def is_first_layer(name: str) -> bool:
    """Whether a dotted name is not that of a layer past the first.

    >>> is_first_layer("encoder.1.attention.q"), is_first_layer("encoder.2.attention.q")
    (True, False)
    """
    return all(not part.isdecimal() or part == "1" for part in name.split("."))


def collapsed(trace: Trace) -> Trace:
    """The same with one block without steps for all layers past the first, where that is there.

    >>> layers = tuple(Trace("Layer", (), name=str(number)) for number in range(1, 4))
    >>> [(step.name, step.title) for step in collapsed(Trace("Encoder", layers)).steps]
    [('1', 'Layer'), ('2 to 3', 'like layer 1, each with weights of its own')]
    """
    steps: list[Stage | Trace] = []
    names = [step.name for step in trace.steps if isinstance(step, Trace)]
    are_layers = "1" in names and trace.name not in PARTS
    later = [name for name in names if are_layers and not is_first_layer(name)]
    for step in trace.steps:
        if isinstance(step, Stage) or step.name not in later:
            steps.append(step if isinstance(step, Stage) else collapsed(step))
        elif step.name == later[0]:
            several = len(later) > 1
            title = f"like layer 1, {'each ' * several}with weights of its own"
            name = f"{later[0]} to {later[-1]}" if several else later[0]
            steps.append(Trace(title, (), name=name))
    return replace(trace, steps=tuple(steps))


def shape_of(stage: Stage) -> str:
    """The shape of a stage, one head or batch entry left out.

    >>> import numpy as np
    >>> shape_of(Stage("q", "Q", "", np.ones((1, 3, 2)), ("head", "query", "d_k")))
    '3 × 2'
    """
    sizes = stage.value.shape
    while len(sizes) > 2 and sizes[0] == 1:
        sizes = sizes[1:]
    return " × ".join(map(str, sizes)) or "1"


def _branches(trace: Trace, lead: str) -> Iterator[Branch]:
    weights = [s for s in trace.steps if isinstance(s, Stage) and is_weight(s)]
    steps = [step for step in trace.steps if step not in weights]
    if weights:
        shapes = " · ".join(f"{stage.name} {shape_of(stage)}" for stage in weights)
        yield Branch(f"{lead}├─ ", "parameters", "", shapes)
    for note in trace.notes if lead and trace.convention else ():
        yield Branch(f"{lead}├─ ", "note", "", sentence(note))
    for step in steps:
        is_last = step is steps[-1]
        fork = f"{lead}└─ " if is_last else f"{lead}├─ "
        name = shorten(step.name, NAME_CELLS)
        if isinstance(step, Trace):
            yield Branch(fork, name, "", sentence(step.title))
            yield from _branches(step, lead + ("   " if is_last else "│  "))
        else:
            formula = sentence(step.formula) or clean(step.symbol)
            yield Branch(fork, name, shape_of(step), formula)


def is_weight(stage: Stage) -> bool:
    """Whether a stage is one of the weights of a block."""
    return stage.kind.role == "parameter"
