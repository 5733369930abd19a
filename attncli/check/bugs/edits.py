"""The edits of a row of the catalogue, read from text: one variant a line.

    scaled: => x[b,h,i,j]                        the formula of a stage becomes another one
    delta: => right / size[j]                    `right` is the formula as it is
    weights.x: X - Y => X + Y                    a part; capitals are any expression, or letter
    output: => right[b,h,(i + 1) % size[i],e]    numbers of another place of the stage
    weights: where => where j < 5                which terms count, or the sink; nothing: all do
    again.lse: => right / ln(2)                  the stage as it is computed again for gradients
    mask(shift): => -1                           a number that a stage has, or what it reads: None
    input.k: => v[b,g,j,d]                       an input
    how.causal: True => False                    a field of the convention, or of `positions`
    observed.scores: => scaled                   the observed stage is another one,
    observed.output: => right[b,0,i,e]           or is put right so
    index.h: => 0                                what is computed in the place of each head
    empty_rows: => nan                           what becomes of rows with nothing to attend to

A line may have several edits, behind `;`, of which one with a ? behind its place may have no place.
`d_q | d_k: …` is a variant for each. What is behind `when` must hold of the setup; `for blocks(i)`
makes a variant of each number that numbers.py has for it; `-- …` is what the name of the bug leaves
open. The language is that of expression.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.compute import compute
from attncli.attention.matrices import shown
from attncli.check.bugs.bug import Evidence
from attncli.check.bugs.numbers import FACTS, SOURCES, sizes_of
from attncli.check.bugs.patch import Patch
from attncli.check.bugs.rewrite import Rewrite, letters_of
from attncli.check.setup import Setup
from attncli.expression import cells
from attncli.parser import parsed
from attncli.stages import GRADIENTS, MAPS, QKV, gradient_of

DELTAS = {
    "either delta": ("δ from O and dO", "sum[e](output[b,h,i,e] * d_output[b,h,i,e])"),
    "own delta": ("δ from the same weights", "sum[j](weights_again[b,h,i,j] * d[b,h,i,j])"),
}
"""Kernels take δ of the gradient that is wrong, of O and dO, or of the weights computed again."""
SHARE = (
    "-sum[b,i](delta[b,h,i] * exp(sinks[h] - lse_again[b,h,i]) if lse_again[b,h,i] != -inf else 0)"
)
"""The gradient of sinks by the same log-sum-exp as the weights computed again."""
MACROS = {
    "ieee softmax": "<power> / sum[l](exp(x[b,h,i,l] - max[c](x[b,h,i,c])))",
    "power": "exp(x[b,h,i,j] - max[c](x[b,h,i,c]))",
    "powers": "exp(x[b,h,i,j] - max(max[l](x[b,h,i,l]), -1e300))",
    "sum i": "max(sum[c](exp(x[b,h,c,j] - max(max[l](x[b,h,c,l]), -1e300))), 1e-300)",
    "sum h": "max(sum[c](exp(x[b,c,i,j] - max(max[l](x[b,c,i,l]), -1e300))), 1e-300)",
    "sum b": "max(sum[c](exp(x[c,h,i,j] - max(max[l](x[c,h,i,l]), -1e300))), 1e-300)",
    "total": "exp(lse[j](logits[b,h,i,j]{, sink=sinks[h]})"
    " - max({sinks[h], }max[l](logits[b,h,i,l]), -1e300))",
    "split h i": "(h * size[i] + i) % size[h],(h * size[i] + i) // size[h]",
    "split g j": "(g * size[j] + j) % size[g],(g * size[j] + j) // size[g]",
}
"""Formulas that several rows have, in angle brackets."""
_EDIT = re.compile(r"(?:(\w+)\.)?((?:[\w{}]+\.)*\w+)(?:\((\w+)\))?(\?)?")
_KINDS = ("how", "positions", "input", "index", "observed", "again")


class Edit(NamedTuple):
    """One edit: of which kind, of what, which parameter of it, from what, to what."""

    kind: str
    name: str
    param: str
    may_lack: bool
    old: str
    new: str


class Line(NamedTuple):
    """One line of a row: its edits, a list for each choice of places, and when they are tried."""

    choices: tuple[tuple[Edit, ...], ...]
    tags: tuple[str, ...]
    condition: str
    source: str
    detail: str


@lru_cache(1024)
def line_of(text: str) -> Line:
    """The parts of a line."""
    text, _, detail = text.strip().partition(" -- ")
    text, _, source = text.partition(" for ")
    text, _, condition = text.partition(" when ")
    parts = text.split("; ")
    tags = tuple(part for part in parts if part in DELTAS)
    edits = [part.partition(": ")[::2] for part in parts if part not in DELTAS]
    choices = []
    for at in range(max(places.count("|") for places, _ in edits) + 1):
        own = list[Edit]()
        for places, change in edits:
            alternatives = places.split(" | ")
            old, _, new = change.partition("=>")
            for place in alternatives[min(at, len(alternatives) - 1)].split(", "):
                own.append(_edit(place, old.strip(), new.strip()))
        choices.append(tuple(own))
    return Line(tuple(choices), tags, condition, source, detail)


def _edit(place: str, old: str, new: str) -> Edit:
    parts = _EDIT.fullmatch(place)
    assert parts is not None, place  # noqa: S101 - the catalogue is ours
    kind, name, param, lacks = parts.groups(default="")
    if kind not in _KINDS:
        kind, name = "", f"{kind}.{name}" if kind else name
    return Edit("rule" if name == "empty_rows" else kind, name, param, bool(lacks), old, new)


def variants(lines: Sequence[str], setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    """The patches that the lines of a row are for a setup."""
    for line in map(line_of, lines):
        facts = Facts(setup, evidence)
        if line.condition and not facts.number(line.condition):
            continue
        for texts in facts.repeated(line.source):
            for choice in line.choices:
                edits = [
                    x._replace(
                        old=_full(x.old, texts), new=_full(x.new, texts), name=_full(x.name, texts)
                    )
                    for x in choice
                ]
                if (patch := facts.patch(edits, texts)) is None:
                    continue
                names = [gradient_name(x.name) for x in choice] if len(line.choices) > 1 else []
                detail = ", ".join(filter(None, (" and ".join(names), _full(line.detail, texts))))
                patch = replace(patch, detail=detail, words="; ".join(map(_in_words, edits)))
                for one in _placed(patch, setup):
                    yield from _with_deltas(line.tags, one, evidence)


def _in_words(edit: Edit) -> str:
    """What is otherwise, such as "k is v[b,g,j,d]"."""
    if edit.kind in ("how", "positions"):
        return f"{edit.name.replace('_', ' ')} is {edit.new}"
    new = shown(edit.new.replace("right", edit.name))
    match edit.old:
        case "where":
            return f"{edit.name} has only the terms {new}" if new else f"{edit.name} has all terms"
        case "sink":
            return f"{edit.name} has {f'the sink {new}' if new else 'no sink'}"
    again = ", as it is computed again," if edit.kind == "again" else ""
    return f"{edit.name}{again} is {new}"


def _full(text: str, texts: Mapping[str, str]) -> str:
    """A text with what stands for its names in braces, and for those in angle brackets."""
    for name, other in texts.items():
        text = text.replace(f"{{{name}}}", other)
    while (macro := re.search(r"<([a-z][a-z ]+)>", text)) is not None:
        text = text.replace(macro[0], MACROS[macro[1]])
    return text


def gradient_name(place: str) -> str:
    """A gradient as papers write it: d_k, and the product that gives it, is dK."""
    through = {"scores.q": "dQ", "scores.k": "dK", "output.v": "dV"}
    return through.get(place, f"d{place[-1].upper()}" if place in GRADIENTS else place)


def _placed(patch: Patch, setup: Setup) -> Iterator[Patch]:
    """The patch; with other q, k or v before positions are put in, and after."""
    if setup.positions is None or not patch.inputs.keys() & {*QKV}:
        yield patch
    else:
        yield patch.also("before the positions are put in")
        yield patch.also("after the positions are put in", placed=True)


def _with_deltas(tags: Sequence[str], patch: Patch, evidence: Evidence) -> Iterator[Patch]:
    """The patch as it is, and with the other ways of taking δ that its line allows."""
    others = [
        patch.also(words, {"delta": Rewrite("", new)})
        for words, new in (DELTAS[tag] for tag in tags)
    ]
    for one in (patch, *others):
        if (
            "own delta" in tags
            and "lse" in patch.again
            and gradient_of("sinks") in evidence.expected
        ):
            yield one.also(
                "the sink's share by the same log-sum-exp", {"d_sinks": Rewrite("", SHARE)}
            )
        yield one


class Facts(NamedTuple):
    """What edits may name of a setup and of what was observed."""

    setup: Setup
    evidence: Evidence

    def of(self, text: str) -> dict[str, float]:
        """The numbers of the setup that a text names."""
        names = {*re.findall(r"\b[a-z_]{2,}\b", text)} & FACTS.keys()
        return {name: FACTS[name](self.setup) for name in names}

    def number(self, text: str, known: Mapping[str, Any] = {}) -> Any:
        """The number, or the truth, of a text without arrays."""
        if "other_gradients" in text:  # the only one that follows from what was observed
            known = {
                **known,
                "other_gradients": bool(self.evidence.expected.keys() - {*map(gradient_of, QKV)}),
            }
        return compute(f"X[] = {text}", {**self.of(text), **known}, sizes_of(self.setup)).item()

    def value(self, text: str, known: Mapping[str, Any] = {}) -> Any:
        """What Python writes so, or a number."""
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return self.number(text, known)

    def repeated(self, source: str) -> Iterator[dict[str, str]]:
        """What stands for the names in braces, once for each variant."""
        name, _, values = source.partition(" in ")
        if not source:
            yield {}
        elif values:
            yield from ({name: value} for value in values.split(", "))
        else:
            call, _, arguments = source.rstrip(")").partition("(")
            own = filter(None, map(str.strip, arguments.split(",")))
            yield from SOURCES[call](self.setup, self.evidence, *own)

    def patch(self, edits: Sequence[Edit], texts: Mapping[str, str]) -> Patch | None:
        """The patch that edits are together; None where one of them does not apply."""
        groups: dict[str, Any] = {
            name: {} for name in ("steps", "again", "inputs", "how", "positions")
        }
        groups |= {name: {} for name in ("relabel", "relayout", "instead")}
        sizes = sizes_of(self.setup) | {
            name[5:]: int(n) for name, n in texts.items() if name.startswith("size_")
        }
        for edit in edits:
            if not self.put(edit, groups, sizes):
                return None
        return Patch(**groups)

    def put(self, edit: Edit, groups: dict[str, Any], sizes: Mapping[str, int]) -> bool:
        """Adds an edit to the fields of a patch; False where it does not apply."""
        kind, name, param, may_lack, old, new = edit
        match kind:
            case "how" | "positions":
                return self.put_field(edit, groups)
            case "rule":
                groups["empty_rows"] = new
            case "input" if new == "None":
                groups["inputs"][name] = None
            case "input":
                groups["inputs"][name] = partial(self.input, name, new)
                return name in self.setup.inputs
            case "index":
                axis, n = "bhi".index(name), sizes[name]
                groups["instead"][axis] = compute(f"X[{name}] = {new}", {}, {name: n}).astype(
                    np.intp
                )
                return n > 1
            case "observed" if new.isidentifier():
                groups["relabel"][name] = new
                return bool(self.evidence.expected.keys() & groups["relabel"].keys())
            case "observed":
                return self.put_layout(name, new, groups)
            case _:
                group, place = groups["again" if kind else "steps"], f"{name}{'?' * may_lack}"
                rewrite = group.get(place, Rewrite())
                if param:
                    params = {**rewrite.params, param: partial(self.value, new)}
                    group[place] = rewrite._replace(params=params)
                else:
                    group[place] = rewrite._replace(
                        pattern=old, new=new, numbers=self.of(new), sizes=sizes
                    )
        return True

    def put_field(self, edit: Edit, groups: dict[str, Any]) -> bool:
        """Adds another field of the convention or of the positions."""
        owner = self.setup.how if edit.kind == "how" else self.setup.positions
        if owner is None:
            return False
        if edit.name == "all":
            groups["positions"] = None
            return True
        now = getattr(owner, edit.name)
        known = (
            {}
            if edit.kind == "how"
            else {x: y for x, y in vars(owner).items() if isinstance(y, int)}
        )
        value = self.value(edit.new, known)
        if (isinstance(now, frozenset | int) and not isinstance(value, str | bool)) or isinstance(
            now, frozenset
        ):
            value = type(now)(value)
        groups[edit.kind][edit.name] = value
        return not edit.old or now == self.value(edit.old)

    def put_layout(self, name: str, text: str, groups: dict[str, Any]) -> bool:
        """Adds how the layout of observed stages is put right, of which all has to be there."""
        evidence = self.evidence
        if name == "gradients":
            stages = [gradient_of(x) for x in QKV if gradient_of(x) in evidence.expected]
        else:
            stages = [*MAPS] if name == "maps" else [name]
        seen = [
            x in evidence.expected if x in GRADIENTS else evidence.has_all(self.setup, x)
            for x in stages
        ]
        groups["relayout"] |= dict.fromkeys(stages, partial(_rearranged, text))
        return any(seen)

    def input(self, name: str, text: str, inputs: Mapping[str, Array]) -> Array:
        """The numbers that an input has instead."""
        right = inputs[name]
        letters = letters_of(name)
        letters = letters[-max(right.ndim, min(2, len(letters))) :]  # of a mask two at least
        text = re.sub(r"\bright\b(?!\[)", f"right[{','.join(letters)}]", text)
        values = {**inputs, "right": right, "key_head": self.setup.key_heads}
        own = dict(zip(letters[len(letters) - right.ndim :], right.shape, strict=True))
        own |= {x: sizes_of(self.setup)[x] for x in re.findall(r"size\[(\w)\]", text)}
        for cell in cells(parsed(text), guards=True):  # what an array says need not be said
            axes = cell.index[len(cell.index) - values[cell.name].ndim :]
            for axis, size in zip(axes, values[cell.name].shape, strict=True):
                if isinstance(axis, tuple) and size > 1:
                    own.pop(str(axis[0]), None)
        x = compute(f"X[{','.join(letters)}] = {text}", {**values, **self.of(text)}, own)
        return x.astype(right.dtype, copy=False)


def _rearranged(text: str, x: Array) -> Array:
    return compute(f"X[b,h,i,d] = {text}", {"right": x}, dict(zip("bhid", x.shape, strict=True)))
