"""A bug is an edit of a formula: what is put where in the formula of a stage.

    Rewrite("X - Y", "X + Y")         δ added, not subtracted
    Rewrite("", "right / size[j]")    δ is a mean; `right` is the formula as it is

A capital letter stands for any expression, or for any letter of an axis. What is put there may read
every stage and input of the plan: those that the stage reads by its own names for them, others by
theirs, and `logits` is what softmax reads, `uncapped` what softcap, `unmasked` what the mask does.
A part in braces is left out where something that it reads is not there, or is a mask that the stage
does not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.masks import mask_formula, total_mask
from attncli.attention.run import Step
from attncli.formula.expression import (
    KINDS,
    MORE_KINDS,
    Apply,
    Cell,
    Expr,
    Formula,
    Number,
    Over,
    Param,
    Place,
    Size,
    cells,
    letters_at,
    letters_in,
    line_of,
    params_in,
    rebuilt,
    walk,
    with_letters,
)
from attncli.formula.matrices import AXES as AXES_OF
from attncli.formula.parser import parse, parsed, written, written_as
from attncli.stages import CAPPED, MASKED, SCORES, WEIGHTS, spec_of

AXES = "bhi"
"""The letters of the axes of which a part may be computed: 0 batch, 1 head, 2 query."""
_LETTERS = {axis: letter for letter, axis in AXES_OF.items()}
_NO_ARRAYS = frozenset({*KINDS, *MORE_KINDS, "size"})
_RIGHT = Param("right")


class Rewrite(NamedTuple):
    """What is put into the formula of a stage.

    pattern  the part that is replaced, wherever it is; "": the whole formula
    new      what stands there then: its text, or the expression
    numbers  by the names that `new` has for them, beside those of the stage
    sizes    of letters that no array has which the changed formula reads
    params   other numbers of the stage itself, each from those that it has
    """

    pattern: str = ""
    new: str | Expr = ""
    numbers: Mapping[str, float] = {}
    sizes: Mapping[str, int] = {}
    params: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {}

    def of(self, step: Step, plan: Sequence[Step], inputs: Collection[str] = ()) -> list[Step]:
        """The steps in the place of one: itself, if need be, under another name, and the new one.

        Empty where the formula has no such part, or something that is read is not there.
        """
        step = self._with_params(step)
        if self.params and step.function is None:
            names_read = {cell.name for cell in cells(formula_of(step).body, guards=True)}
            if not names_read <= step.reads.keys():
                return []
        if not (self.new or self.pattern):
            return [step]
        reads = {name: step.reads[name] for name in names_in(self.new) & step.reads.keys()}
        if others := names_in(self.new) - reads.keys() - _NO_ARRAYS:
            block, names = step.name[: step.name.rfind(".") + 1], names_of(plan, inputs)
            read = {name: names.get(block + name) or names.get(name) for name in others}
            reads |= {name: stage for name, stage in read.items() if stage}
        there = frozenset(reads) - ({"mask"} - step.reads.keys())
        if (edited := _edited(formula_of(step), self._key(step), there)) is None:
            return []
        reads, before = {**reads, **step.reads}, list[Step]()
        if "right" in edited.names:
            before = [step._replace(name=f"{step.name}_right", kind=step.kind or step.name)]
            reads["right"] = before[0].name
        if not edited.names <= reads.keys():
            return []
        sizes = dict.fromkeys("bhij" if step.function else "", 1)
        sizes |= {x: self.sizes[x] for x in edited.letters & self.sizes.keys()} | {**step.sizes}
        reads = {**step.reads, **{name: reads[name] for name in sorted(edited.names)}}
        new = step._replace(text=edited.text, reads=reads, sizes=sizes, function=None, hides=False)
        return [*before, new]

    def _with_params(self, step: Step) -> Step:
        """The step with other numbers; without what it reads, where that is None."""
        changes = {name: value(step.params) for name, value in self.params.items()}
        reads = {x: n for x, n in step.reads.items() if x not in changes}
        params = {**step.params, **{x: y for x, y in changes.items() if x not in step.reads}}
        return step._replace(params=params, reads=reads) if changes else step

    def _key(self, step: Step) -> _Key:
        numbers = ((name, x) for name, x in self.numbers.items() if name not in step.params)
        is_turned = step.params.get("axis", -1) != -1 and bool(step.through)
        return self.pattern, self.new, tuple(numbers), is_turned

    def whole(self, step: Step) -> frozenset[int]:
        """The axes (0 batch, 1 head, 2 query) that must be complete for what is put there.

        Those along which it sums where the formula does not, and of which it names a place or the
        size, or takes an entry by its number or by another letter.
        """
        edited = _edited(formula_of(step), self._key(step), names_in(self.new))
        return edited.whole if edited else frozenset()


_Key = tuple[str, str | Expr, tuple[tuple[str, float], ...], bool]
"""Pattern, what stands there, the numbers it names; whether it is a gradient over queries."""


HAVE_SINKS = "softmax", "lse"
"""What may have a sink beside its terms."""

_MASKS = "mask", "given_mask"
"""What may lack the first axes of its formula."""


class _Edited(NamedTuple):
    """A changed formula: its text, the arrays it reads, the letters that none of these may have."""

    text: str
    names: frozenset[str]
    letters: frozenset[str]
    whole: frozenset[int]


@lru_cache(8192)
def _edited(formula: Formula, key: _Key, there: frozenset[str]) -> _Edited | None:
    """The formula with an edit, which may read what is there; None where it has no such part."""
    pattern, text, numbers, is_turned = key
    values = dict(numbers)

    def named(x: Expr) -> Expr:
        """A name as what it stands for: the formula as it is, or a number."""
        if x == _RIGHT:
            return formula.body
        return Number(float(values[x.name])) if isinstance(x, Param) and x.name in values else x

    new = _expression(text, there) if text else None
    if new is not None and {*params_in(new)} & {_RIGHT.name, *values}:
        new = rebuilt(new, named)
    if pattern in ("where", "sink"):
        body = rebuilt(formula.body, lambda x: _other_terms(x, pattern, new))
    elif new is not None and pattern:
        body = replaced(formula.body, parsed(pattern), new)
    else:  # over queries, a gradient is another formula
        body = formula.body if is_turned or new is None else new
    if body == formula.body:
        return None
    edited = Formula(formula.symbol, formula.index, body, formula.remark)
    line = line_of(edited)
    written_as(line, edited)
    body_cells, added = cells(body, guards=True), _expression(text, there) if new is body else new
    with_axes = (cell for cell in body_cells if cell.name not in _MASKS)
    axes = (axis for cell in with_axes for axis in cell.index if isinstance(axis, tuple))
    alone = {axis[0] for axis in axes if len(axis) == 1}
    whole = _whole(added, formula) if added is not None and pattern != "sink" else set[int]()
    letters, at = {*letters_in(body)}, {*letters_at(formula.index)}
    if formula.body == Cell("right", formula.index):  # a mask has one entry along other axes
        at &= {*letters, "j"}
    whole |= {AXES.index(x) for x in at - alone if x in AXES}
    letters |= at
    letters |= {x.letter for x in walk(body, guards=True) if isinstance(x, Size)}
    free = (letters - alone) | {AXES[axis] for axis in whole}
    names = frozenset(cell.name for cell in body_cells)
    return _Edited(line, names, frozenset(free), frozenset(whole))


def _other_terms(x: Expr, pattern: str, new: Expr | None) -> Expr:
    """A sum, or a softmax, of other terms, or with another sink; as it is, where it has none.

    A formula that writes its softmax out has no sink, and one over other letters no such terms.
    """
    if not isinstance(x, Over):
        return x
    if pattern == "sink":
        return replace(x, sink=new) if x.kind in HAVE_SINKS else x
    if new is not None and not {*letters_in(new)} & {*x.letters}:
        return x
    both = new if new is None or x.where is None else Apply("and", (x.where, new))
    return replace(x, where=both)


def _whole(new: Expr, formula: Formula) -> set[int]:
    """The axes that must be complete for what is put into a formula."""
    nodes = [*walk(new, guards=True)]
    before = {x for over in walk(formula.body) if isinstance(over, Over) for x in over.letters}
    summed = {x for over in nodes if isinstance(over, Over) for x in over.letters}
    letters = {x.letter for x in nodes if isinstance(x, Place | Size)}
    axes = AXES if "i" in letters_at(formula.index) else AXES[:2]  # else of keys
    for index in (x.index for x in nodes if isinstance(x, Cell) and len(x.index) > 2):
        for axis_letter, at in zip(axes, index, strict=False):
            others = {*at} - {axis_letter, "j", "g"} if isinstance(at, tuple) else set()
            is_number = any(isinstance(x, int) for x in others)
            letters |= {axis_letter} if others & ({*AXES} | summed) or is_number else set()
        letters |= {"i"} if ("i",) in index[3:] else set()
    sinks = [x.index for x in nodes if isinstance(x, Cell) and x.name == "sinks"]
    letters |= {"h"} if any(index != (("h",),) for index in sinks) else set()
    letters = (letters - ({"i"} & before)) | (summed - before)
    return {AXES.index(letter) for letter in letters if letter in AXES}


@lru_cache(1024)
def names_in(text: str | Expr) -> frozenset[str]:
    """The names in brackets that a text has: those of arrays, and more; of an expression these."""
    if not isinstance(text, str):
        return frozenset(cell.name for cell in cells(text, guards=True))
    return frozenset(re.findall(r"(\w+)\[", text))


def _expression(text: str | Expr, names: frozenset[str]) -> Expr:
    """The expression of a text, without the optional parts that read anything else."""
    if not isinstance(text, str):
        return text
    return _read(written(text.removeprefix("where "), (names & names_in(text)) | _NO_ARRAYS))


_read = lru_cache(2048)(parsed)
"""Few texts stand in many formulas."""


def formula_of(step: Step, inputs: Mapping[str, Array] | None = None) -> Formula:
    """The formula of a step; of what a function computes, that it is as it is.

    inputs  where given, the mask is the formula of everything that restricts, of chosen rows
    """
    if step.function is None:
        return parse(step.expression)
    if inputs is not None and step.function is total_mask:
        arrays: dict[str, Any] = {name: inputs.get(stage) for name, stage in step.reads.items()}
        arrays["rows"] = np.arange(step.params["n_q"])
        return _of_rows(parse(mask_formula(**arrays, **step.params)))
    index = tuple((letter,) for letter in letters_of(step.kind or step.name))
    return Formula("X", index, Cell("right", index))


def letters_of(name: str) -> str:
    """The letters of the axes of a stage or an input.

    >>> letters_of("given_mask"), letters_of("k")
    ('bhij', 'bgjd')
    """
    return "".join(_LETTERS[axis] for axis in spec_of(name).axes.split())


def _of_rows(formula: Formula) -> Formula:
    """The formula of a mask with the given one whole: the rows are chosen by it."""

    def whole(x: Expr) -> Expr:
        if not isinstance(x, Cell) or x.name != "given_mask":
            return x
        row = Cell("rows", (("i",),))
        return Cell(x.name, tuple(row if axis == ("i",) else axis for axis in x.index))

    return replace(formula, body=rebuilt(formula.body, whole))


def names_of(plan: Sequence[Step], inputs: Collection[str] = ()) -> dict[str, str]:
    """The names that edits have for every stage and input of a plan; `rows`: which queries."""
    names = {name: name for step in plan for name in (*step.reads.values(), step.name)}
    by_name = {step.name: step for step in plan}
    for alias, stage in (("logits", WEIGHTS), ("uncapped", CAPPED), ("unmasked", MASKED)):
        if stage in by_name:
            names[alias] = by_name[stage].reads.get("x", SCORES)
    shared = {f"{x}_of_head": f"{x}_shared" if f"{x}_shared" in by_name else x for x in "kv"}
    return names | shared | {name.replace(".", "_"): name for name in (*inputs, "rows")}


# ---- parts of an expression


def replaced(node: Expr, pattern: Expr, new: Expr) -> Expr:
    """The expression with something else in the place of every part that a pattern fits.

    >>> from attncli.formula.expression import text_of
    >>> text_of(replaced(parsed("y[i] * (d[i] - x[i])"), parsed("X - Y"), parsed("X + Y")))
    'y[i] * (d[i] + x[i])'
    """
    return rebuilt(
        node, lambda x: _filled(new, names) if (names := fit(pattern, x)) is not None else x
    )


def fit(pattern: Any, node: Any, names: Mapping[str, Any] = {}) -> dict[str, Any] | None:
    """What the capitals of a pattern stand for in an expression that it fits; None: it does not."""
    name = pattern.letter if isinstance(pattern, Place) else pattern
    if isinstance(name, str) and len(name) == 1 and name.isupper():
        return {**names, name: node} if names.get(name, node) == node else None
    if type(pattern) is not type(node):
        return None
    if isinstance(pattern, tuple):
        pairs = zip(pattern, node, strict=False) if len(pattern) == len(node) else None
    elif hasattr(pattern, "__dataclass_fields__"):
        pairs = zip(vars(pattern).values(), vars(node).values(), strict=True)
    else:
        return {**names} if pattern == node else None
    result: dict[str, Any] | None = None if pairs is None else {**names}
    for part, other in pairs or ():
        if result is not None:
            result = fit(part, other, result)
    return result


def _filled(new: Expr, names: Mapping[str, Any]) -> Expr:
    """What is put there, with what the capitals stand for."""
    letters = {name: (x,) for name, x in names.items() if isinstance(x, str)}
    new = rebuilt(
        new, lambda x: names[x.letter] if isinstance(x, Place) and x.letter in names else x
    )
    return with_letters(new, letters) if letters else new
