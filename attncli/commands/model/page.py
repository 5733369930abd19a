"""The page of `attncli model`: what every head does as tables, then in sentences.

A function from a trace to parts, as `page.parts` is; the pages of single layers are explain's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attncli.arrays import Array
from attncli.errors import joined
from attncli.page.numbers import percent, short
from attncli.page.options import DisplayOptions
from attncli.page.page import parts
from attncli.page.parts import Closing, Part, Remark
from attncli.page.select import Block, blocks_of
from attncli.trace import Stage, Trace

HALF = 0.5  # of a head's weight: more than all other tokens together get
EVEN = 0.95  # of the entropy of equal weights: then no key of 16 gets more than 22 %
NAMED = 3  # heads called by name

# stage → the token that its numbers are of, and what heads are called that attend to it
_GETS = {
    "first": ("the first token", "attention sinks"),
    "previous": ("the token before", "previous-token heads"),
    "itself": ("the token itself", ""),
    "induction": ("what followed the same token before", "induction heads"),
}
_REPEAT = "no token is repeated, so induction heads cannot be seen: repeat a phrase"


def summary_page(trace: Trace, options: DisplayOptions) -> Iterator[Part]:
    """The measures of every head as tables and in sentences, and how to see more.

    Of layers that the trace holds the weights come after the measures. Where stages are named or
    everything is asked for, it is the page of any trace.
    Raises StageError or ShapeError for what is asked for and not there.
    """
    if options.stages or options.cell or options.query or options.full:
        yield from parts(trace, options)
        return
    blocks = list(blocks_of(trace))
    summaries = [block for block in blocks if "entropy" in block.stages]
    names = [block.prefix + name for block in summaries for name in block.numbers]
    maps = [block.prefix + block.weights.name for block in blocks if block.weights]
    stages = (*names, *(maps if options.every else maps[:1]))
    page = parts(trace, replace(options, stages=stages))
    yield from (part for part in page if not isinstance(part, Closing))
    heads = tuple(
        (block.prefix.removesuffix(".").replace(".", " ").replace("_", " "), tuple(findings(block)))
        for block in summaries
    )
    yield Closing(heads)
    yield Remark("every stage of one: --layer L --head H")


def findings(block: Block) -> Iterator[str]:
    """Which heads do what, in sentences."""
    stages = block.stages
    yield from _of_entropy(stages["entropy"], stages.get("even"))
    for name, (token, called) in _GETS.items():
        if name in stages:
            yield _of_share(stages[name], token, called)
    if "previous" in stages and "induction" not in stages:
        yield _REPEAT


def _of_entropy(stage: Stage, even: Stage | None) -> Iterator[str]:
    """The narrowest head and the widest, and those that spread their weight evenly."""
    values = stage.value
    if not np.isfinite(values).any():
        return
    low, high = (_best(x) for x in (-values, values))
    ends = (
        f"{_head(stage, at)} the {convention} ({short(float(values[at]), 2)} bits)"
        for at, convention in ((low, "most narrowly"), (high, "most widely"))
    )
    yield "spreads its weight: " + ", ".join(ends)
    if even is None:
        return
    most = even.value[:, None]
    is_even = (values >= EVEN * most) & (most > 0)
    if is_even.any():
        yield f"nearly equal weights on all tokens: {_heads(stage, is_even)}"


def _of_share(stage: Stage, token: str, called: str) -> str:
    """Which head gives a token the most, and how many give it more than half."""
    values = stage.value
    if not np.isfinite(values).any():
        return f"{token}: no numbers"
    at, many = _best(values), values > HALF
    most = f"{token} gets the most from {_head(stage, at)}: {percent(float(values[at]))}"
    if not many.any():
        return f"{most}; from no head more than half"
    kind = f" ({called})" if called else ""
    return f"{most}; more than half from {_heads(stage, many)}{kind}"


def _best(values: Array) -> tuple[int, ...]:
    return tuple(int(at) for at in np.unravel_index(int(np.nanargmax(values)), values.shape))


def _head(stage: Stage, at: tuple[int, ...]) -> str:
    """A head as L3H5."""
    return "".join(stage.label(axis, i) for axis, i in zip(stage.axes, at, strict=True))


def _heads(stage: Stage, selection: Array) -> str:
    """Heads by name, those with the largest numbers first, or how many there are."""
    total = int(np.isfinite(stage.value).sum())
    places = [tuple(map(int, at)) for at in np.argwhere(selection)]
    places.sort(key=lambda at: -float(stage.value[at]))
    if len(places) == total > 1:
        return f"all {total} heads"
    names = [_head(stage, at) for at in places[:NAMED]]
    if len(places) <= NAMED:
        return joined(names)
    return f"{len(places)} of {total} heads, most of all {', '.join(names)}"
