"""The way of the data as a Mermaid flowchart: a node for each step with its formula and shape.

Text from strangers cannot act: every character of a label that is not a letter, a digit or known
to be harmless is written as its code, #34; for a quote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from attncli.trace import PARAMETERS, Stage, Trace
from attncli.views.outline import alike, shape_of, steps_drawn
from attncli.views.safe import clean, sentence, shorten
from attncli.views.showing import Showing, select

_HARMLESS = frozenset(" ,/=+·×√ᵀ₁₂²…λθ")
_TOKENS = 12  # tokens that a node names
_INDENT = "    "

# stage → what it is computed from besides the step before it
_ALSO = {
    "input": ("positions",),
    "scores": ("k",),
    "masked": ("mask",),
    "output": ("v",),
    "norm": ("mean", "deviation"),
}
_SOURCES = ("positions", "mask")  # computed from nothing
_ASIDE = ("positions", "mask", "k", "v", "mean", "deviation", "static")  # not the next step's input


def mermaid(trace: Trace, showing: Showing) -> Iterator[str]:
    """The chosen stages as a flowchart, line by line; layers put together alike only once.

    Raises StageError or ShapeError for what is asked for and not there.
    Source: the flowchart syntax of Mermaid, with its entity codes (mermaid.js.org).

    >>> import numpy as np
    >>> stage = Stage("scores", "S", 'S = "Q" Kᵀ', np.ones((3, 2)), ("query", "key"))
    >>> print(*mermaid(Trace("Attention", (stage,)), Showing()), sep="\\n")
    flowchart TD
        n1["scores<br/>S = #34;Q#34; Kᵀ<br/>3 × 2"]
    """
    chart = _Chart(full=showing.full)
    chart.way(select(trace, showing, inputs=not showing.stages))
    yield from ["flowchart TD", *chart.lines]


def escape(text: str) -> str:
    """Text as a Mermaid label takes it, so that nothing in it acts.

    >>> escape('a"] --> b; <i>`x`')
    'a#34;#93; #45;#45;#62; b#59; #60;i#62;#96;x#96;'
    """
    return "".join(
        char if char.isalnum() or char in _HARMLESS else f"#{ord(char)};" for char in clean(text)
    )


@dataclass
class _Chart:
    """The lines drawn so far, and how many nodes and blocks."""

    full: bool
    lines: list[str] = field(default_factory=list)
    count: int = 0
    blocks: int = 0
    indent: str = _INDENT

    def way(self, trace: Trace) -> None:
        """Draws a whole trace: the steps of a sentence, of a target, and the blocks they feed."""
        made: dict[str, str] = {}
        ends: dict[str, str] = {}
        last = ""
        for step in trace.steps:
            if isinstance(step, Stage):
                last = self.step(step, made, last, "")
                continue
            asking = ends.get("target", last)
            x, context = {
                "target": ("", ""),
                "cross_attention": (asking, last),
                "decoder": (asking, ends.get("encoder", "")),
                "meaning": (list(ends.values() or [last])[-1], ""),
            }.get(step.name, (last, ""))
            ends[step.name] = self.block(step, x, context, made)

    def block(self, trace: Trace, x: str, context: str, around: dict[str, str]) -> str:
        """Draws a block that reads the node x, and a context where it crosses; gives its end."""
        title = f"{trace.name}: {sentence(trace.title)}" if trace.name else sentence(trace.title)
        self.blocks += 1
        self.line(f'subgraph b{self.blocks}["{escape(title)}"]')
        self.indent += _INDENT
        made = around if trace.name == "target" else dict(around)
        made["context"] = context if trace.name == "cross_attention" else ""
        last = x
        for step in steps_drawn(trace, full=self.full):
            if isinstance(step, range):
                last = self.node(alike(step), [last, context])
            elif isinstance(step, Trace):
                last = self.block(step, last, context, made)
            else:
                last = self.step(step, made, last, x)
        self.indent = self.indent.removesuffix(_INDENT)
        self.line("end")
        return last

    def step(self, stage: Stage, made: dict[str, str], last: str, x: str) -> str:
        """Draws a stage and the arrows to it; gives the node that the next step reads."""
        name = stage.name
        if name in PARAMETERS:
            return last
        if name == "q":
            made["asked"] = last
        sources = [last, *(made.get(other, "") for other in _ALSO.get(name, ()))]
        if name in _SOURCES:
            sources = []
        elif name in ("k", "v"):
            sources = [made.get("context") or made.get("asked", "")]
        elif name == "residual":
            sources = [x, last]
        elif name == "static":
            sources = [made.get("embeddings", "")]
        made[name] = self.node(_words(stage), sources)
        return last if name in _ASIDE else made[name]

    def node(self, words: Sequence[str], sources: Sequence[str]) -> str:
        """A node of these lines of text, and an arrow from each of its sources."""
        self.count += 1
        name = f"n{self.count}"
        self.line(f'{name}["{"<br/>".join(map(escape, words))}"]')
        for source in dict.fromkeys(filter(None, sources)):
            self.line(f"{source} --> {name}")
        return name

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)


def _words(stage: Stage) -> list[str]:
    """What a node says: name, formula, shape; of the tokens also which they are."""
    words = [stage.name, sentence(stage.formula), shape_of(stage)]
    if stage.name == "tokens":
        names = stage.labels.get("token", ())
        shown = " · ".join(map(shorten, names[:_TOKENS]))
        words.insert(1, f"{shown} …" if len(names) > _TOKENS else shown)
    return [word for word in words if word]
