"""The outline of a trace: each step with its formula and shape, as a tree without the matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attncli.trace import PARAMETERS, Stage, Trace
from attncli.views.page import Branch, Part, Tree, headline_of
from attncli.views.places import Level
from attncli.views.safe import NAME_CELLS, clean, sentence, shorten
from attncli.views.showing import Showing

_FORKS = (("├─ ", "│  "), ("└─ ", "   "))

Step = Stage | Trace | range
"""A step, or the numbers of the layers that are put together like the first one."""


def outline_page(trace: Trace, showing: Showing) -> Iterator[Part]:
    """The headline and the tree: a page that shows the way alone."""
    yield headline_of(Level(trace))
    yield outline(trace, showing)


def outline(trace: Trace, showing: Showing) -> Tree:
    """Every step with its shape and formula; layers put together alike only once.

    With `showing.full` every layer by itself.
    """
    return Tree(tuple(_branches(trace, "", full=showing.full)))


def is_first_layer(name: str) -> bool:
    """Whether a dotted name is not that of a layer past the first.

    >>> is_first_layer("encoder.1.attention.q"), is_first_layer("encoder.2.attention.q")
    (True, False)
    """
    return all(not part.isdecimal() or part == "1" for part in name.split("."))


def steps_drawn(trace: Trace, *, full: bool) -> list[Step]:
    """The steps of a trace; instead of its layers past the first their numbers, unless `full`."""
    later = [int(s.name) for s in trace.steps if isinstance(s, Trace) and s.name.isdecimal()][1:]
    if full or not later:
        return list(trace.steps)
    drawn: list[Step] = []
    for step in trace.steps:
        if not isinstance(step, Trace) or is_first_layer(step.name):
            drawn.append(step)
        elif int(step.name) == later[0]:
            drawn.append(range(later[0], later[-1] + 1))
    return drawn


def shape_of(stage: Stage) -> str:
    """The shape of a stage, one head or batch entry left unsaid.

    >>> import numpy as np
    >>> shape_of(Stage("q", "Q", "", np.ones((1, 3, 2)), ("head", "query", "d_k")))
    '3 × 2'
    """
    sizes = stage.value.shape
    while len(sizes) > 2 and sizes[0] == 1:
        sizes = sizes[1:]
    return " × ".join(map(str, sizes)) or "1"


def alike(layers: range) -> tuple[str, str]:
    """The numbers of layers that are put together like the first one, and that they are.

    >>> alike(range(2, 4))
    ('2 to 3', 'like layer 1, each with weights of its own')
    """
    if len(layers) == 1:
        return str(layers[0]), "like layer 1, with weights of its own"
    return f"{layers[0]} to {layers[-1]}", "like layer 1, each with weights of its own"


def _branches(trace: Trace, lead: str, *, full: bool) -> Iterator[Branch]:
    steps = steps_drawn(trace, full=full)
    given = [step for step in steps if isinstance(step, Stage) and step.name in PARAMETERS]
    if given:
        yield Branch(f"{lead}{_FORKS[0][0]}", f"{lead}{_FORKS[0][1]}", "given", "", _weights(given))
    steps = [step for step in steps if step not in given]
    for at, step in enumerate(steps):
        fork, below = _FORKS[at == len(steps) - 1]
        if isinstance(step, range):
            numbers, said = alike(step)
            yield Branch(lead + fork, lead + below, numbers, "", said)
            continue
        name = shorten(step.name, NAME_CELLS)
        if isinstance(step, Trace):
            yield Branch(lead + fork, lead + below, name, "", sentence(step.title))
            yield from _branches(step, lead + below, full=full)
        else:
            formula = sentence(step.formula) or clean(step.symbol)
            yield Branch(lead + fork, lead + below, name, shape_of(step), formula)


def _weights(given: Sequence[Stage]) -> str:
    """The weights of a block on one line: w_q 8 × 8 · w_k 8 × 8."""
    return " · ".join(f"{stage.name} {shape_of(stage)}" for stage in given)
