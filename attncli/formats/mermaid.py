"""The steps as a Mermaid flowchart: a node for each with its formula and shape, boxes for blocks.

Text cannot change the chart: every character of a label that is not a letter, a digit or known
to be harmless is written as its code, #34; for a quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attncli.page.options import DisplayOptions
from attncli.page.outline import collapsed, is_first_layer, is_weight, shape_of
from attncli.page.page import Page, parts
from attncli.page.select import select
from attncli.page.text import clean, sentence, shorten
from attncli.trace import Stage, Trace

_HARMLESS = frozenset(" ,/=+·×√ᵀ₁₂²…λθ‖−^")
# d_k, 1.4142, "over keys: each"
_WITHIN = re.compile(r"(?<=[a-zA-Z])_(?=[a-zA-Z])|(?<=\d)\.(?=\d)|(?<=[a-z]):(?= )")
# Where Mermaid sees a line break (\n), mathematics ($$) or an icon (:fa-) in text whose codes it
# has read; a tag that shows nothing keeps the two sides apart.
_ACTING = re.compile(r"(?<=\\)(?=n)|(?<=\$)(?=\$)|(?<=:)(?=fa-)")
_APART = "<wbr/>"
_TOKENS = 12  # tokens that a node names


def text(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The chosen stages as a flowchart, line by line; layers of the same steps only once.

    Arrows come from what each stage was computed from; a stage that is not chosen is passed over.
    Source: the flowchart syntax of Mermaid, with its entity codes (mermaid.js.org).

    >>> import numpy as np
    >>> stage = Stage("scores", "S", 'S = "Q" Kᵀ', np.ones((3, 2)), ("query", "key"))
    >>> print("".join(text(Trace("Attention", (stage,)), DisplayOptions())), end="")
    flowchart TD
        n1["scores<br/>S = #34;Q#34; Kᵀ<br/>3 × 2"]
    """
    selection = select(trace, options, inputs=not options.stages)
    chart = _Chart(trace)
    yield "flowchart TD\n"
    for line in chart.block(selection if options.full else collapsed(selection), ""):
        yield f"    {line}\n"


def escape(text: str) -> str:
    """Text as a Mermaid label takes it, so that nothing in it acts.

    >>> escape('a"] --> b; <i>`x`')
    'a#34;#93; #45;#45;#62; b#59; #60;i#62;#96;x#96;'
    >>> escape("√d_k = 1.4142. _a_")
    '√d_k = 1.4142#46; #95;a#95;'
    """
    codes = {x: f"#{ord(x)};" for x in {*clean(text)} - _HARMLESS if not x.isalnum()}

    def piece_of(piece: str) -> str:
        plain = {match.start() for match in _WITHIN.finditer(piece)}
        return "".join(x if at in plain else codes.get(x, x) for at, x in enumerate(piece))

    return _APART.join(map(piece_of, _ACTING.split(clean(text))))


class _Chart:
    """What is drawn so far: the node of every stage by its dotted name, and how many blocks.

    boxes  node → the dotted name of the block it is drawn in
    later  dotted name of a block → arrows that are written in it once the next block in it ends.
           Mermaid draws a node in the box that first ends after the node is mentioned
    """

    def __init__(self, trace: Trace) -> None:
        self.stages = dict(trace.stages())
        self.nodes: dict[str, str] = {}
        self.boxes: dict[str, str] = {}
        self.later: dict[str, list[str]] = {}
        self.n_blocks = 0

    def block(self, trace: Trace, prefix: str) -> Iterator[str]:
        """The lines of a block's steps, with the arrows that do not leave it."""
        for step in trace.steps:
            name = f"{prefix}{step.name}"
            if isinstance(step, Trace) and step.steps:
                self.n_blocks += 1
                title = f"{step.name}: {sentence(step.title)}"
                yield f'subgraph b{self.n_blocks}["{escape(title)}"]'
                yield from (f"    {line}" for line in self.block(step, f"{name}."))
                yield "end"
                yield from self.later.pop(prefix, ())
            elif isinstance(step, Trace):  # the layers past the first
                yield from self.node(name, (step.name, step.title), self.of_layers(prefix))
                later = (n for n in self.stages if n.startswith(prefix) and not is_first_layer(n))
                self.nodes |= dict.fromkeys(later, self.nodes[name])
            elif not is_weight(step):
                yield from self.node(name, _words(step), self.sources(name))

    def node(self, name: str, words: Sequence[str], sources: Sequence[str]) -> Iterator[str]:
        """A node of these lines, and arrows from its sources; others wait for the outer block."""
        node = f"n{len(self.boxes) + 1}"
        box = name[: name.rfind(".") + 1]
        self.nodes[name], self.boxes[node] = node, box
        yield f'{node}["{"<br/>".join(map(escape, words))}"]'
        for source in dict.fromkeys(sources):
            arrow, outer = f"{source} --> {node}", box
            while not self.boxes[source].startswith(outer):
                outer = outer[: outer.rstrip(".").rfind(".") + 1]
            if outer == box:
                yield arrow
            else:
                self.later.setdefault(outer, []).append(arrow)

    def sources(self, name: str, around: tuple[str, ...] = ()) -> list[str]:
        """The nodes of what a stage was computed from, or of what that was computed from."""
        nodes: list[str] = []
        prefix = name[: name.rfind(".") + 1]
        for read in self.stages[name].reads.values():
            is_own = prefix + read in self.stages and prefix + read != name
            source = prefix + read if is_own else read
            if source in self.nodes:
                nodes.append(self.nodes[source])
            elif source in self.stages and source not in (*around, name):
                nodes += self.sources(source, (*around, name))
        return nodes

    def of_layers(self, prefix: str) -> list[str]:
        """The nodes that layers past the first read: the first one's end, and what it reads too."""
        first = {name: node for name, node in self.nodes.items() if name.startswith(f"{prefix}1.")}
        nodes = [*first.values()]
        read = dict.fromkeys(source for name in first for source in self.sources(name))
        others = [source for source in read if source not in nodes]
        return [*nodes[-1:], *others[1:]]


def _words(stage: Stage) -> list[str]:
    """What a node says: name, formula, shape; of the tokens also which they are."""
    words = [stage.name, sentence(stage.formula), shape_of(stage)]
    if stage.name == "tokens":
        names = stage.labels.get("token", ())
        tokens = " · ".join(map(shorten, names[:_TOKENS]))
        words.insert(1, f"{tokens} …" if len(names) > _TOKENS else tokens)
    return [word for word in words if word]
