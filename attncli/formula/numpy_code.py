"""A formula as the text of NumPy code: a product by @ or einsum, the rest by broadcasting.

    S[h,i,j] = sum[d](q[h,i,d] * k[h,j,d])   →   scores = np.einsum("hid,hjd->hij", q, k)

The code is for arrays of these shapes. What a formula says of masked cells, of rows without a key
and of NaN is left out where the numbers at hand do not need it: they are the same without it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_letters
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.formula import kernels
from attncli.formula.code_text import (
    AND,
    ATOM,
    COMPARED,
    OR,
    POWER,
    PRODUCT,
    SIGN,
    SUM,
    Code,
    axes_text,
    broken,
    number_text,
)
from attncli.formula.evaluate import FUNCTIONS, Values, present_axes
from attncli.formula.expression import (
    CONDITIONS,
    WITH_EXPONENT,
    Apply,
    Cell,
    Expr,
    Formula,
    If,
    Index,
    Number,
    Over,
    Param,
    Place,
    Size,
    every_letter,
    rebuilt,
    walk,
    with_bound,
    with_letters,
    with_parts,
)
from attncli.formula.numpy_cells import Cells, Letters

_BINDS = {
    **{"**": POWER, "*": PRODUCT, "/": PRODUCT, "//": PRODUCT, "%": PRODUCT, "+": SUM, "-": SUM},
    **{"and": AND, "or": OR},
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), COMPARED),
}
_SIGNS = {"and": "&", "or": "|"}
_CALLED = {
    **{"ln": "np.log", "max": "np.maximum", "min": "np.minimum", "softplus": "np.logaddexp(0, {})"},
    **{"sigmoid": "1 / (1 + np.exp(-{}))"},
}


def statements(
    target: str,
    values: Values,
    names: Mapping[str, str],
    used: Collection[str] = (),
    ndim: int | None = None,
) -> list[str]:
    """The lines that compute a stage, the last of which gives it its name.

    target  the variable that it is
    values  its formula, with the arrays that it reads, its parameters and the sizes of letters
    names   the variables that the arrays are
    used    variables that nothing on the way may be called
    ndim    how many axes the stage has, where the first ones of its formula have one entry

    Raises TypeError for what cannot be written so.

    >>> from attncli.formula.parser import parse
    >>> q, k = np.ones((2, 3)), np.ones((5, 3))
    >>> formula = parse("S[i,j] = sum[d](q[i,d] * k[j,d])")
    >>> values = Values(formula, {"q": q, "k": k}, {}, {"i": 2, "j": 5, "d": 3})
    >>> statements("scores", values, {"q": "q", "k": "k"})
    ['scores = q @ k.T']
    """
    formula, sizes = _in_ascii(values.formula, dict(values.sizes))
    index = present_axes(formula.index, sizes)
    order = [str(x) for axis in index for x in axis]
    if len({*order}) < len(order) or not {*order} <= sizes.keys():
        raise TypeError("the letters of its left side are not all different, or not known")
    body = _apart(formula.body, {*order}, sizes)
    writer = Writer(values.arrays, values.params, sizes, names, {*used, target})
    code, full = writer.of(body, order), writer.shape(order)
    if not {*order} <= code.letters:
        code = Code(f"np.broadcast_to({code.text}, {full})", is_whole=code.is_whole)
    if code.number is not None:
        code = Code(f"np.float64({code.text})")
    elif code.is_whole:
        code = Code(f"{code.within(PRODUCT)} * 1.0", PRODUCT)
    shape = tuple(math.prod(writer.shape([str(x) for x in axis])) for axis in index)
    shape = shape if ndim is None else shape[max(0, len(shape) - ndim) :]
    text = code.text if shape == full else f"{code.within(ATOM)}.reshape{axes_text(shape)}"
    places = sorted(writer.places, key=lambda x: order.index(x) if x in order else len(order))
    before = [f"{x} = np.arange({writer.places[x]})" for x in places]
    before += [broken(f"{x} = {code}") for code, x in writer.lines.items()]
    return [*before, broken(f"{target} = {text}")]


def _free(used: Collection[str]) -> str:
    """A letter of ASCII that is not used. Raises TypeError where there is none."""
    for x in ascii_letters:
        if x not in used:
            return x
    raise TypeError("it has more letters than einsum")


def _in_ascii(formula: Formula, sizes: dict[str, int]) -> tuple[Formula, dict[str, int]]:
    """The formula, and how long its letters are, with letters that a variable may have."""
    change, used = dict[str, Index](), {*every_letter(formula), *sizes}
    for x in sorted(x for x in used if x not in ascii_letters):
        change[x] = (_free(used),)
        used |= {*map(str, change[x])}
    if not change:
        return formula, sizes
    index: Any = tuple(
        tuple(y for x in axis for y in change.get(str(x), (x,))) for axis in formula.index
    )
    sizes = {str(change.get(x, (x,))[0]): n for x, n in sizes.items()}
    return replace(formula, index=index, body=with_letters(formula.body, change)), sizes


def _apart(node: Expr, used: set[str], sizes: dict[str, int]) -> Expr:
    """The expression in which no sum has a letter that is used around it."""
    if not isinstance(node, Over) or node.kind == "softmax":
        return with_parts(node, lambda x: _apart(x, used, sizes))
    change = dict[str, Index]()
    for x in (x for x in node.letters if x in used and x in sizes):
        change[x] = (_free({*used, *sizes}),)
        sizes[str(change[x][0])] = sizes[x]
    node = with_bound(node, change) if change else node
    inner = used | {*node.letters}
    sink = node.sink and _apart(node.sink, used, sizes)
    condition = node.where and _apart(node.where, inner, sizes)
    return replace(node, body=_apart(node.body, inner, sizes), where=condition, sink=sink)


@dataclass
class Writer(Cells):
    """Writes the nodes of one formula."""

    def of(self, node: Expr, order: Letters) -> Code:
        """The code of a node, whose axes are aligned to the letters of an order."""
        match node:
            case Number(value):
                is_whole = value.is_integer() and abs(value) < WITH_EXPONENT
                text = f"{int(value)}" if is_whole else number_text(value)
                binding = SIGN if value < 0 else ATOM
                return Code(text, binding, number=value, is_whole=is_whole)
            case Size(letter):
                n = self.sizes[letter]
                return Code(f"{n}", number=n, is_whole=True)
            case Place(letter) if letter in self.sizes:
                name = self.variable(letter)
                self.places[name] = self.sizes[letter]
                return self.aligned(name, [letter], order)._replace(is_whole=True)
            case Param(name) | Place(name):
                x = self.params[name]
                x = x if type(x) is int else float(x)
                binding = SIGN if x < 0 else ATOM
                return Code(number_text(x), binding, number=x, is_whole=isinstance(x, int))
            case Cell():
                text, letters, full = self.cell(node)
                return self.aligned(text, letters, order, full)
            case Apply("/", (Over("sum", (letter,), body, None), Size(size))) if letter == size:
                return self.reduced(Over("mean", (letter,), body), order)
            case Apply("neg", (Over("max", letters, Apply("neg", (x,)), where),)):
                return self.reduced(Over("min", letters, x, where), order)
            case Apply(function, args):
                return self.applied(function, args, order)
            case If():
                return self.case(node, order)
            case Over("softmax"):
                return self.softmax(node, order)
        return self.over(node, order)

    # ---- operators and functions

    def applied(self, function: str, args: Sequence[Expr], order: Letters) -> Code:
        """An operator or a function of numbers."""
        parts = [self.of(x, order) for x in args]
        letters = frozenset[str]().union(*(x.letters for x in parts))
        is_whole, number = all(x.is_whole for x in parts), None
        if all(x.number is not None for x in parts):
            with np.errstate(all="ignore"):
                number = np.asarray(FUNCTIONS[function](*(x.number for x in parts))).item()
            if function in CONDITIONS:
                return Code(str(number), number=number)
            if not math.isfinite(number):  # where Python has an error
                return Code(number_text(number), ATOM if number > 0 else SIGN, number=number)
        if function == "neg":
            return Code(f"-{parts[0].within(SIGN)}", SIGN, letters, number, is_whole)
        if function == "not":
            if not letters:  # it may be one of Python, whose ~ is another
                return Code(f"np.logical_not({parts[0].text})")
            return Code(f"~{parts[0].within(SIGN)}", SIGN, letters)
        if function in ("//", "%") and is_whole and not parts[1].number:  # by 0 it may be infinite
            name = {"//": "np.floor_divide", "%": "np.mod"}[function]
            return Code(f"{name}({parts[0].text}, {parts[1].text}, dtype=float)", ATOM, letters)
        if function == "**" and is_whole:
            return Code(f"np.float_power({parts[0].text}, {parts[1].text})", ATOM, letters)
        if function in ("+", "-") and parts[1].text == "0":
            return parts[0]
        if function in _BINDS:
            binding, (a, b) = _BINDS[function], parts
            keeps = function in ("+", "-", "*", "//", "%")
            text = f"{a.within(binding + (binding in (COMPARED, POWER)))}"
            text += f" {_SIGNS.get(function, function)} {b.within(binding + 1)}"
            return Code(text, binding, letters, number, is_whole and keeps)
        form = _CALLED.get(function, f"np.{function}")
        keeps = function in ("max", "min", "abs", "sign", "floor")
        if "{}" in form:
            is_share = function == "sigmoid"
            text = form.format(parts[0].within(ATOM) if is_share else parts[0].text)
            return Code(text, PRODUCT if is_share else ATOM, letters, number)
        text = f"{form}({', '.join(x.text for x in parts)})"
        return Code(text, ATOM, letters, number, is_whole and keeps)

    def case(self, node: If, order: Letters) -> Code:
        """One of two cases: the one that is the same where a mask says otherwise, if there is."""
        if (joined := self.joined(node, order)) is not None:
            return joined
        condition, then, otherwise = node.condition, node.then, node.otherwise
        if _is_guard(condition):
            whole = self.value(node, order)
            for part in (then, otherwise):
                if _reads(part) and np.array_equal(self.value(part, order), whole, equal_nan=True):
                    return self.of(part, order)
        test = self.of(condition, order)
        if test.number is not None:
            return self.of(then if test.number else otherwise, order)
        a, b = (self.of(x, order) for x in (then, otherwise))
        letters = test.letters | a.letters | b.letters
        is_whole = a.is_whole and b.is_whole
        return Code(f"np.where({test.text}, {a.text}, {b.text})", ATOM, letters, None, is_whole)

    def joined(self, node: If, order: Letters) -> Code | None:
        """Rows of one array and then those of another; None of another choice."""
        match node:
            case If(Apply("<", (Place(j), Param() | Place() | Number() as end)), first, second):
                pass
            case _:
                return None
        if j not in order or (isinstance(end, Place) and end.letter in self.sizes):
            return None
        n = int(self.value(end, ()))
        if not 0 < n < self.sizes[j]:
            return None
        first, second = _shifted(first, j, Number(0.0), "+"), _shifted(second, j, end, "-")
        sizes = ({**self.sizes, j: n}, {**self.sizes, j: self.sizes[j] - n})
        writers, parts = [replace(self, sizes=x) for x in sizes], (first, second)
        for writer, part in zip(writers, parts, strict=True):
            is_read = j in writer.letters(part) and {*order} <= {*writer.letters(part)}
            if not is_read or Place(j) in walk(part, guards=True) or not writer.fits(part):
                return None
        codes = [writer.of(part, order) for writer, part in zip(writers, parts, strict=True)]
        texts = [
            x.text if {*order} <= x.letters else f"np.broadcast_to({x.text}, {writer.shape(order)})"
            for x, writer in zip(codes, writers, strict=True)
        ]
        axis = list(order).index(j) - len(order)
        return Code(f"np.concatenate([{', '.join(texts)}], axis={axis})", ATOM, frozenset(order))

    def fits(self, node: Expr) -> bool:
        """Whether every axis that a letter has alone is as long as the letter."""
        for cell in (x for x in walk(node, guards=True) if isinstance(x, Cell)):
            shape = self.arrays[cell.name].shape
            index = cell.index[len(cell.index) - len(shape) :]
            for axis, n in zip(index, shape, strict=True):
                if (
                    isinstance(axis, tuple)
                    and len(axis) == 1
                    and n not in (1, self.sizes.get(str(axis[0]), n))
                ):
                    return False
        return True

    # ---- along letters

    def over(self, node: Over, order: Letters) -> Code:
        """A sum, a product, a largest number or the log of a sum of powers."""
        match node:  # a sum of sums is one sum
            case Over("sum", outer, Over("sum", more, body, guard), None) if not {*outer} & {*more}:
                return self.over(Over("sum", outer + more, body, guard), order)
        if node.kind == "sum" and (product := self.product(node, order)) is not None:
            return product
        return self.reduced(node, order)

    def reduced(self, node: Over, order: Letters) -> Code:
        """The terms along an axis or several as one number; `mean` and `min` are kinds, too."""
        ends = [x for x in node.letters if x in self.sizes]
        guard, kind = node.where, node.kind
        terms = [node.body] if guard is None else [node.body, guard]
        inner = [*dict.fromkeys(y for part in terms for y in self.letters(part))]
        inner += [x for x in ends if x not in inner]
        rest = [x for x in inner if x not in ends]
        filler = {"sum": "0", "prod": "1", "min": "np.inf"}.get(kind, "-np.inf")
        if guard is not None and kind == "sum" and _is_guard(guard):
            outside = np.where(self.value(guard, inner), 0, self.value(node.body, inner))
            guard = None if not outside.any() else guard
        code = self.of(node.body, inner)
        if guard is not None:
            test = self.of(guard, inner)
            text = f"np.where({test.text}, {code.text}, {filler})"
            code = Code(text, ATOM, code.letters | test.letters)
        if not {*inner} <= code.letters:
            code = Code(f"np.broadcast_to({code.text}, {self.shape(inner)})")
        at = [inner.index(x) for x in ends]
        axes = [at[0] if at[0] < len(inner) - 1 else -1] if len(at) == 1 else at
        axis = "" if not rest else f"axis={axes[0] if len(axes) == 1 else tuple(axes)}"
        if not ends:
            text = code.text
        elif kind == "lse":
            text = f"np.logaddexp.reduce({code.text}, {axis or 'axis=None'})"
        else:
            text = f"{code.within(ATOM)}.{kind}({axis})"
        if ends:
            code = Code(text)
        result = self.aligned(code.within(ATOM), rest, order)
        if node.sink is not None:
            sink = self.of(node.sink, order)
            text = f"np.logaddexp({result.text}, {sink.text})"
            result = Code(text, ATOM, result.letters | sink.letters)
        return result

    def product(self, node: Over, order: Letters) -> Code | None:
        """A sum of a product as a product of matrices, or einsum; None where it is none."""
        match node.body:
            case Apply("*", (first, second)):
                a, b = self.letters(first), self.letters(second)
            case _:
                return None
        inner = [x for x in node.letters if x in a and x in b]
        rows, columns = (
            [x for x in each if x not in (*other, *node.letters)]
            for each, other in ((a, b), (b, a))
        )
        if not (inner and rows and columns) or not {*a, *b} <= {*order, *node.letters}:
            return None
        if any(x in self.sizes and x not in (*a, *b) for x in node.letters):
            return None
        guard = node.where
        if guard is not None and not np.isfinite(self.value(second, b)).all():
            return None  # 0 · NaN, where the guard leaves it out
        match guard:
            case Apply("or", (_, Apply("!=", (cell, Number(0.0))))) if cell == first:
                guard = None  # what it leaves out is 0 already
        if guard is not None:
            if not {*self.letters(guard)} <= {*a}:
                return None
            outside = np.where(self.value(guard, a), 0, self.value(first, a))
            first = If(guard, first, Number(0.0)) if outside.any() else first
        x, y = self.of(first, a), self.of(second, b)
        if not ({*a} <= x.letters and {*b} <= y.letters):
            return None
        result = [z for z in order if z in a or z in b]
        if text := _matmul(x, y, a, b, result):
            code = Code(text, PRODUCT, frozenset(result))
        else:
            letters = f"{''.join(a)},{''.join(b)}->{''.join(result)}"
            code = Code(f'np.einsum("{letters}", {x.text}, {y.text})', ATOM, frozenset(result))
        is_whole = [*order[len(order) - len(result) :]] == result
        return code if is_whole else self.aligned(code.within(ATOM), result, order)

    def softmax(self, node: Over, order: Letters) -> Code:
        """The powers over their sum, from the largest number down, on lines of their own."""
        at = tuple(sorted(list(order).index(x) - len(order) for x in node.letters if x in order))
        axis = f"axis={at[0] if len(at) == 1 else at}, keepdims=True"
        x, numbers, guard = self.of(node.body, order), self.value(node.body, order), node.where
        letters, sink, sinks = x.letters, None, None
        if node.sink is not None:
            sink = self.of(node.sink, order)
            letters |= sink.letters
            rest = [x for x in order if x not in node.letters]
            sinks = np.expand_dims(self.value(node.sink, rest), at)
        allowed: Array = np.ones((1,) * len(order), bool)
        is_empty: Array = np.zeros((), bool)
        if guard is not None:
            allowed, test = self.value(guard, order).astype(bool), self.of(guard, order)
            is_empty = np.asarray(~allowed.any(axis=at, keepdims=True))
            is_empty = is_empty if sinks is None else is_empty & np.isneginf(sinks)
            if not np.isneginf(numbers[~allowed]).all():
                letters |= test.letters
                x = Code(f"np.where({test.text}, {x.text}, -np.inf)", ATOM, letters)
                numbers = np.where(allowed, numbers, -math.inf)
        if not {*node.letters} <= x.letters:
            x, letters = Code(f"np.broadcast_to({x.text}, {self.shape(order)})"), frozenset(order)
        name = x.text if x.text.isidentifier() else self.line("terms", x.text)
        top = f"{name}.max({axis})"
        if sink is not None:
            top = self.line("top", f"np.maximum({top}, {sink.text})")
        if is_empty.any():
            whole = test.within(ATOM)
            if not {*order} <= test.letters:
                whole = f"np.broadcast_to({test.text}, {self.shape(order)})"
            text = f"~{whole}.any({axis})"
            text += "" if sink is None else f" & ({sink.text} == -np.inf)"
            empty = self.line("is_empty", text)
            top = f"np.where({empty}, 0, {top})"
        powers = self.line("powers", f"np.exp({name} - {top})")
        total = Code(f"{powers}.sum({axis})")
        if sink is not None:
            total = Code(f"{total.text} + np.exp({sink.text} - {top})", SUM)
        if is_empty.any():
            total = Code(f"np.where({empty}, 1, {total.text})")
        code = Code(f"{powers} / {total.within(ATOM)}", PRODUCT, letters)
        with np.errstate(all="ignore"):
            plain = kernels.softmax(numbers, at, None, sinks)
        if guard is not None and np.isnan(np.where(allowed | is_empty, 0, plain)).any():
            code = Code(f"np.where({test.text}, {code.text}, 0)", ATOM, letters | test.letters)
        if is_empty.any() and node.empty:
            n = math.prod(self.shape(node.letters))
            filler = "np.nan" if node.empty == "nan" else f"1 / {n}"
            code = Code(f"np.where({empty}, {filler}, {code.text})", ATOM, letters | test.letters)
        return code

    def line(self, name: str, text: str) -> str:
        """A statement that comes before, and its variable."""
        if text not in self.lines:
            self.lines[text] = self.variable(name)
            self.used.add(self.lines[text])
        return self.lines[text]


def _reads(node: Expr) -> bool:
    """Whether an expression reads an array."""
    return any(isinstance(x, Cell) for x in walk(node, guards=True))


def _is_guard(node: Expr) -> bool:
    """Whether a condition asks nothing but whether cells are −∞."""
    match node:
        case Apply("==" | "!=", (Cell(), Number(value))):
            return value == -math.inf
        case Apply("and" | "or" | "not", args):
            return all(map(_is_guard, args))
    return False


def _shifted(node: Expr, letter: str, shift: Expr, sign: str) -> Expr:
    """The expression with a letter alone wherever a place is that letter and a shift."""
    place = Apply(sign, (Place(letter), shift))

    def change(x: Expr) -> Expr:
        if not isinstance(x, Cell):
            return x
        return Cell(x.name, tuple((letter,) if axis == place else axis for axis in x.index))

    return rebuilt(node, change)


def _matmul(x: Code, y: Code, a: Letters, b: Letters, result: Letters) -> str:
    """The product by @, "" where its axes stand otherwise."""
    if len(a) == len(b) == len(result) == 2:
        (inner,) = {*a} & {*b}
        if result[0] in b:
            x, y, a, b = y, x, b, a
        left = f"{x.within(ATOM)}{'' if a[1] == inner else '.T'}"
        right = f"{y.within(ATOM)}{'' if b[0] == inner else '.T'}"
        return f"{left} @ {right}"
    if len(a) < 2 or len(b) < 2 or len(result) < 2:
        return ""
    lead = result[:-2]
    is_in_order = [*a] == [*lead, result[-2], a[-1]] and [*b[-2:]] == [a[-1], result[-1]]
    if is_in_order and [*b[:-2]] in ([*lead], []):
        return f"{x.within(ATOM)} @ {y.within(ATOM)}"
    return ""
