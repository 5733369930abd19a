"""The edits of a row of the catalogue, read from text: one variant a line.

    scaled: => x[b,h,i,j]                        the formula of a stage becomes another one
    delta: => right / size[j]                    `right` is the formula as it is
    weights.x: X - Y => X + Y                    a part; capitals are any expression, or letter
    output: => right[b,h,(i + 1) % size[i],e]    numbers of another place of the stage
    weights: where => where j < 5                which terms count, or the sink; nothing: all do
    again.lse: => right / ln(2)                  the stage as it is computed again for gradients
    mask(shift): => -1                           a number that a stage has, or what it reads: None
    input.k: => v[b,g,j,d]                       an input
    convention.causal: True => False                    a field of the convention, or of `positions`
    observed.scores: => scaled                   the observed stage is another one,
    observed.output: => right[b,0,i,e]           or is put right so
    index.h: => 0                                what is computed in the place of each head
    empty_rows: => nan                           what becomes of rows with nothing to attend to

A line may have several edits, behind `;`, of which one with a ? behind its place may have no place.
`d_q | d_k: …` is a variant for each. What is behind `when` must hold of the setup; `for n = 1, 2`
makes several variants, as facts.py reads it; `… fit 2 ** [-8 to 8]` is how the number that ? stands
for is found, and `… quiet ln(times)` what it is for errors within the rounding, as fits.py reads
them. `… example` shows a bug that a function looks for. Behind `--` is what the name of the bug
leaves open. The language is that of expression.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.bugs.bug import Evidence
from attncli.commands.check.bugs.facts import Facts, full
from attncli.commands.check.bugs.patch import is_same, patched
from attncli.commands.check.bugs.rewrite import Rewrite, letters_of
from attncli.commands.check.bugs.terms import sizes_of
from attncli.formula.compute import compute
from attncli.formula.expression import Cell, Expr, cells, params_in
from attncli.formula.matrices import shown
from attncli.formula.parser import parsed
from attncli.stages import GRADIENTS, MAPS, OUTPUT, PROJECTED, QKV, TILE, gradient_of
from attncli.tolerance.setup import Setup

DELTAS = {
    "either delta": ("δ from O and dO", "sum[e](output[b,h,i,e] * d_output[b,h,i,e])"),
    "own delta": ("δ from the same weights", "sum[j](weights_again[b,h,i,j] * d[b,h,i,j])"),
}
"""Kernels take δ of the gradient that is wrong, of O and dO, or of the weights computed again."""
SHARE = (
    "-sum[b,i](delta[b,h,i] * exp(sinks[h] - lse_again[b,h,i]) if lse_again[b,h,i] != -inf else 0)"
)
"""The gradient of sinks by the same log-sum-exp as the weights computed again."""
_EDIT = re.compile(r"^(?:(\w+)\.)?((?:[\w{}]+\.)*\w+)(?:\((\w+)\))?(\?)?$")
RIGHT = re.compile(r"\bright\b(?!\[)")
"""The numbers as they are, all of them; `right[…]` are those of another place."""
_KINDS = ("convention", "positions", "input", "index", "observed", "again")


class Edit(NamedTuple):
    """One edit: of which kind, of what, which parameter of it, from what, to what.

    new   the text of what stands there then
    body  the expression, where it is no text
    """

    kind: str
    name: str
    new: str
    old: str = ""
    param: str = ""
    may_lack: bool = False
    body: Expr | None = None

    @property
    def words(self) -> str:
        """What is otherwise, such as "k is v[b,g,j,d]"."""
        if self.kind in ("convention", "positions"):
            return f"{self.name.replace('_', ' ')} is {self.new}"
        new = shown(self.new.replace("right", self.name))
        if self.old == "where":
            return f"{self.name} has {'only the terms' if new else 'all terms'} {new}".rstrip()
        if self.old == "sink":
            return f"{self.name} has {f'the sink {new}' if new else 'no sink'}"
        again = ", as it is computed again," if self.kind == "again" else ""
        return f"{self.name}{again} is {new}"


class Line(NamedTuple):
    """One line of a row: its edits, a list for each choice of places, and when they are tried."""

    choices: tuple[tuple[Edit, ...], ...]
    tags: tuple[str, ...]
    condition: str
    quiet: str
    fit: str
    loop: str
    detail: str
    is_example: bool


@lru_cache(1024)
def line_of(text: str) -> Line:
    """The parts of a line."""
    text, mark, _ = text.strip().partition(" example")
    text, _, detail = text.partition(" -- ")
    text, _, loop = text.partition(" for ")
    text, _, fit = text.partition(" fit ")
    text, _, quiet = text.partition(" quiet ")
    text, _, condition = text.partition(" when ")
    parts = text.split("; ")
    tags = tuple(part for part in parts if part in DELTAS)
    edits = [part.partition(": ")[::2] for part in parts if part not in DELTAS]
    choices = []
    for at in range(max(places.count("|") for places, _ in edits) + 1):
        choice = list[Edit]()
        for places, change in edits:
            alternatives = places.split(" | ")
            old, _, new = change.partition("=>")
            for place in alternatives[min(at, len(alternatives) - 1)].split(", "):
                choice.append(_edit(place, old.strip(), new.strip()))
        choices.append(tuple(choice))
    return Line(tuple(choices), tags, condition, quiet, fit, loop, detail, bool(mark))


def _edit(place: str, old: str, new: str) -> Edit:
    (parts,) = _EDIT.finditer(place)
    kind, name, param, lacks = parts.groups(default="")
    if kind not in _KINDS:
        kind, name = "", f"{kind}.{name}" if kind else name
    return Edit("rule" if name == "empty_rows" else kind, name, new, old, param, bool(lacks))


class Patch(NamedTuple):
    """Edits in which nothing is open but the number of a ?: one variant of a bug.

    detail  what the name of the bug leaves open
    sizes   of letters that no array has
    fitted  what ? stands for: a number, or an array with an axis for its letter
    placed  whether positions are put in before the inputs are changed
    """

    edits: tuple[Edit, ...]
    evidence: Evidence
    detail: str = ""
    sizes: Mapping[str, int] = {}
    fitted: Any = None
    placed: bool = False

    def on(self, setup: Setup) -> Setup | None:
        """The setup with the edits; None where one has no place, or all have no effect."""
        letter = letter_of(self.edits) if isinstance(self.fitted, float) else ""
        fitted = np.full(sizes_of(setup)[letter], self.fitted) if letter else self.fitted
        facts = Facts(setup, self.evidence, fitted)
        edits: dict[str, list[Edit]] = {kind: [] for kind in ("", "rule", *_KINDS)}
        for edit in self.edits:
            edits[edit.kind].append(edit._replace(new=edit.new.replace("?", "fitted")))
        start = setup.placed() if self.placed else setup
        other = _with_fields(
            facts, start, [*edits["convention"], *edits["positions"], *edits["rule"]]
        )
        arrays = _arrays(facts, start, edits["input"])
        if other is None or arrays is None:
            return None
        if PROJECTED in self.evidence.expected:  # which is made of what is read otherwise
            of_output = [x for x in edits["observed"] if x.name == OUTPUT and "right[" in x.new]
            edits["observed"] = [x for x in edits["observed"] if x not in of_output]
            edits[""] += [x._replace(kind="", new=x.new.replace(",d]", ",e]")) for x in of_output]
        reading = edits["index"] + edits["observed"]
        if (other := _read_otherwise(facts, other.with_inputs(**arrays), reading)) is None:
            return None
        if edits[""] or edits["again"]:
            steps, again = (rewrites_of(facts, edits[kind], self.sizes) for kind in ("", "again"))
            other = patched(other, steps, again)
        elif not reading and self.fitted is None and is_same(other, setup):
            return None
        return other.with_detail(self.detail) if other and self.detail else other


def letter_of(edits: Sequence[Edit]) -> str:
    """The letter along whose axis there is a ? for each index; "": there is one ?, or none."""
    return next((x for edit in edits for x in re.findall(r"\?\[(\w)\]", edit.new)), "")


# ---- what the edits of each kind change


def _with_fields(facts: Facts, setup: Setup, edits: Sequence[Edit]) -> Setup | None:
    """The setup with other fields of the convention and of the positions."""
    fields: dict[str, dict[str, Any]] = {"convention": {}, "positions": {}, "rule": {}}
    for kind, name, new, old, *_ in edits:
        owner: Any = setup.convention if kind != "positions" else setup.positions
        if owner is None:
            return None
        if kind == "rule":
            fields[kind][name] = new
        elif name == "all":
            setup = replace(setup, positions=None)
        else:
            numbers = vars(owner) if kind == "positions" else {}
            numbers = {x: y for x, y in numbers.items() if isinstance(y, int)}
            now, value = getattr(owner, name), facts.value(new, numbers)
            is_finite = isinstance(value, int | float) and math.isfinite(value)
            is_number = isinstance(now, int) and is_finite and not isinstance(value, bool)
            if is_number or isinstance(now, frozenset):
                value = type(now)(value)
            fields[kind][name] = value
            if old and now != facts.value(old):
                return None
    setup = setup.with_convention(**fields["convention"]).with_positions(**fields["positions"])
    for rule in fields["rule"].values():
        setup = setup.with_empty_rows(rule)
    return setup


def _arrays(facts: Facts, setup: Setup, edits: Sequence[Edit]) -> dict[str, Array | None] | None:
    """The inputs that are others; None where one lacks, or has another shape then."""
    arrays = dict[str, Array | None]()
    for _, name, new, *_ in edits:
        if name not in setup.inputs and new != "None" and "fitted" not in new:
            return None
        x = None if new == "None" else _input(facts, name, new, setup.inputs)
        if x is not None and name in QKV and x.shape != setup.inputs[name].shape:
            return None
        arrays[name] = x
    return arrays


def _input(facts: Facts, name: str, text: str, inputs: Mapping[str, Array]) -> Array:
    """The numbers that an input has instead."""
    letters, sizes = letters_of(name), sizes_of(facts.setup)
    right = inputs[name] if name in inputs else np.zeros([sizes[x] for x in letters])
    letters = letters[-max(right.ndim, min(2, len(letters))) :]  # of a mask two at least
    text = RIGHT.sub(f"right[{','.join(letters)}]", text)
    values = {**inputs, **facts.of(text), "right": right, "key_head": facts.setup.key_heads}
    lengths = dict(zip(letters[len(letters) - right.ndim :], right.shape, strict=True))
    lengths |= {x: sizes[x] for x in re.findall(r"size\[(\w)\]", text)}
    every_cell = _cells_of(text)
    for cell in every_cell:  # what an array says need not be said
        axes = cell.index[len(cell.index) - values[cell.name].ndim :]
        for axis, size in zip(axes, values[cell.name].shape, strict=True):
            if isinstance(axis, tuple) and size > 1:
                lengths.pop(str(axis[0]), None)

    def make() -> Array:
        x = compute(f"X[{','.join(letters)}] = {text}", values, lengths)
        return x.astype(right.dtype, copy=False)

    names = {cell.name for cell in every_cell}
    if name not in inputs or not names <= {*inputs, "right", "key_head"}:
        return make()
    numbers = tuple((x, number) for x, number in values.items() if isinstance(number, int | float))
    key = name, text, facts.setup.convention.head_order, *lengths.items(), *numbers
    arrays = [right, *(inputs[x] for x in names if x in inputs)]
    return facts.setup.memo.made(key, arrays, make)


@lru_cache(1024)
def _cells_of(text: str) -> tuple[Cell, ...]:
    """What the text of an expression reads."""
    return tuple(cells(parsed(text), guards=True))


def _read_otherwise(facts: Facts, setup: Setup, edits: Sequence[Edit]) -> Setup | None:
    """The setup with another stage or layout for an observed one, or another index computed."""
    expected = facts.evidence.expected.keys()
    for kind, name, new, *_ in edits:
        if kind == "index":
            axis, n = "bhi".index(name), sizes_of(setup)[name]
            if n == 1:
                return None
            at = compute(f"X[{name}] = {new}", {}, {name: n}).astype(np.intp)
            setup = setup.computing({axis: at})
        elif new.isidentifier():
            setup = replace(setup, relabel={**setup.relabel, name: new})
            if not expected & setup.relabel.keys():
                return None
        else:
            gradients = [x for x in map(gradient_of, QKV) if x in expected]
            names = [x for x in expected if x == name or re.fullmatch(rf"{TILE}\.\d+\.{name}", x)]
            stages = {"gradients": gradients, "maps": [*MAPS]}.get(name, names)
            grads, has_all = expected & {*GRADIENTS}, facts.evidence.has_all
            is_by_number = "right[" not in new  # and not of numbers elsewhere
            if not any(is_by_number or x in grads or has_all(setup, x) for x in stages):
                return None
            setup = setup.with_relayout(_Rearranged(new, (*facts.of(new).items(),)), *stages)
    return setup


def rewrites_of(
    facts: Facts, edits: Sequence[Edit], sizes: Mapping[str, int]
) -> dict[str, Rewrite]:
    """What is put into the formula of each place."""
    rewrites = dict[str, Rewrite]()
    for edit in edits:
        place = f"{edit.name}{'?' * edit.may_lack}"
        rewrite = rewrites.get(place, Rewrite())
        if edit.param:
            value = partial(facts.value, edit.new)
            rewrites[place] = rewrite._replace(params={**rewrite.params, edit.param: value})
        else:
            lengths = {**sizes_of(facts.setup, edit.name), **sizes}
            numbers = facts.of(edit.new if edit.body is None else " ".join(params_in(edit.body)))
            rewrites[place] = rewrite._replace(
                pattern=edit.old, new=edit.body or edit.new, numbers=numbers, sizes=lengths
            )
    return rewrites


@dataclass(frozen=True)
class _Rearranged:
    """What is observed as it is by a formula of `right`; equal where text and numbers are."""

    text: str
    numbers: tuple[tuple[str, Any], ...]

    def __call__(self, x: Array) -> Array:
        text = RIGHT.sub("right[b,h,i,d]", self.text)
        sizes = dict(zip("bhid", x.shape, strict=True))
        return compute(f"X[b,h,i,d] = {text}", {"right": x, **dict(self.numbers)}, sizes)


# ---- the variants of a row


def variants(lines: Sequence[str], setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    """The patches that the lines of a row are for a setup.

    Those with a ?, and examples, only where the evidence has a number as an example.
    """
    facts = Facts(setup, evidence)
    for line in map(line_of, lines):
        if line.quiet or ((line.fit or line.is_example) and evidence.example is None):
            continue
        for texts in facts.loop(line.loop, line.condition):
            sizes = {name[5:]: int(n) for name, n in texts.items() if name.startswith("size_")}
            for choice in line.choices:
                edits = tuple(
                    x._replace(
                        old=full(x.old, texts), new=full(x.new, texts), name=full(x.name, texts)
                    )
                    for x in choice
                )
                names = [gradient_name(x.name) for x in choice] if len(line.choices) > 1 else []
                words = facts.detail(line.detail, texts, {"?": evidence.example})
                detail = ", ".join(filter(None, (" and ".join(names), words)))
                patch = Patch(edits, evidence, detail, sizes, evidence.example)
                for placed in _placed(patch, setup):
                    yield from _with_deltas(line.tags, placed)


def changed(lines: Sequence[str], setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The setups with each of these patches that applies."""
    setups = (patch.on(setup) for patch in variants(lines, setup, evidence))
    return (other for other in setups if other is not None)


def gradient_name(place: str) -> str:
    """A gradient as papers write it: d_k, and the product that gives it, is dK."""
    through = {"scores.q": "dQ", "scores.k": "dK", "output.v": "dV"}
    return through.get(place, f"d{place[-1].upper()}" if place in GRADIENTS else place)


def _placed(patch: Patch, setup: Setup) -> Iterator[Patch]:
    """The patch; with other q, k or v before positions are put in, and after."""
    if setup.positions is None or not {x.name for x in patch.edits if x.kind == "input"} & {*QKV}:
        yield patch
    else:
        yield _also(patch, "before the positions are put in")
        yield _also(patch, "after the positions are put in")._replace(placed=True)


def _also(patch: Patch, detail: str, *edits: Edit) -> Patch:
    """The patch with more edits."""
    words = "; ".join(filter(None, (patch.detail, detail)))
    return patch._replace(edits=(*patch.edits, *edits), detail=words)


def _with_deltas(tags: Sequence[str], patch: Patch) -> Iterator[Patch]:
    """The patch as it is, and with the other ways of taking δ that its line allows."""
    others = [_also(patch, DELTAS[tag][0], Edit("", "delta", DELTAS[tag][1])) for tag in tags]
    is_of_lse = any((edit.kind, edit.name) == ("again", "lse") for edit in patch.edits)
    has_share = "own delta" in tags and is_of_lse
    for variant in (patch, *others):
        if has_share and gradient_of("sinks") in patch.evidence.expected:
            share = Edit("", "d_sinks", SHARE)
            yield _also(variant, "the sink's share by the same log-sum-exp", share)
        yield variant
