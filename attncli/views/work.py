"""The arithmetic of one cell in real numbers: S[q1,k1] = 1·1 + 0·1 = 1, and so for every stage.

A stage says itself how it was computed: `reads`, `params` and `work`, which is a template, such as
"[x] / √d_k = {x} / {1.4142}", or the name of a rule in `RULES`. In a template [x] is the name of
the cell read as x, {x} its number, {cap} a parameter, {1.4142} a number. All numbers are those of
the trace, so what is written is what was computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from rich.cells import cell_len

from attncli.arrays import Array
from attncli.trace import Stage
from attncli.views.numbers import short
from attncli.views.parts import Equation, Matrix
from attncli.views.select import HEADS, KEY_HEADS, Block, Index
from attncli.views.text import clean, fold, hang, shorten

Words = tuple[str, ...]

LARGE_SCORE = 20  # beyond it softmax is shown as it is computed: with the maximum subtracted
NAME_CELLS = 12  # of labels within a formula
PAGE = 100  # cells of a line where no terminal sets a width
TERMS = (12, 6, 3)  # terms of a sum on one line: as many as fit
_IN_TEMPLATE = re.compile(r"\[(\w+)\]|\{([^}]+)\}")


class Entry(NamedTuple):
    """One entry of a stage's matrix, and how its numbers are written.

    precision  decimals
    terms      the most terms of a sum that are written out
    at_length  whether intermediate forms are written that a single line has no room for
    """

    block: Block
    stage: Stage
    where: Index
    row: int
    column: int
    precision: int
    terms: int
    at_length: bool = False

    def of(self, parameter: str) -> Entry:
        """The same entry of what the stage read as this parameter."""
        stage = self.block.read(self.stage, parameter)
        assert stage is not None  # noqa: S101 - `equation` looked for all of them
        return self._replace(stage=stage)

    @property
    def name(self) -> str:
        """The entry as a formula names it: S[q1,k1]."""
        places = zip(self.stage.axes[-2:], (self.row, self.column), strict=True)
        labels = (shorten(self.stage.label(axis, at), NAME_CELLS) for axis, at in places)
        return f"{clean(self.stage.symbol)}[{','.join(labels)}]"

    @property
    def matrix(self) -> Array:
        """The stage's matrix."""
        return self.block.matrix(self.stage, self.where)

    @property
    def value(self) -> float:
        """The number in this entry; of a vector that in its column."""
        matrix = self.matrix
        return float(matrix[self.row if len(matrix) > 1 else 0, self.column])

    def write(self, x: float) -> str:
        """A number as a formula writes it."""
        return short(float(x), self.precision)

    def factor(self, x: float) -> str:
        """A number after an operator: a negative one in parentheses."""
        text = self.write(x)
        return f"({text})" if text.startswith("-") else text

    def product(self, a: Array, b: Array) -> Words:
        """a·b, term by term."""
        with np.errstate(all="ignore"):
            values = a * b
        return self.sum(values, lambda i: f"{self.write(a[i])}·{self.factor(b[i])}")

    def sum(self, values: Array, term: Callable[[int], str]) -> Words:
        """A sum of these values; where they are too many, its middle as one number."""
        n = len(values)
        if n <= self.terms:
            words = [term(i) for i in range(n)]
        else:
            head, tail = self.terms - self.terms // 3, n - self.terms // 3
            with np.errstate(all="ignore"):
                middle = self.write(values[head:tail].sum())
            left_out = f"… {tail - head} more: {middle} …"
            words = [*map(term, range(head)), left_out, *map(term, range(tail, n))]
        return (*words[:1], *(f"+ {_in_parentheses(word)}" for word in words[1:]))

    def equals(self, *forms: Words | str, remark: str = "", left: str = "") -> Equation:
        """The equation that ends with the number the trace holds for this entry."""
        all_forms = [(form,) if isinstance(form, str) else form for form in forms]
        return Equation(left or self.name, (*all_forms, (self.write(self.value),)), remark)


def _in_parentheses(term: str) -> str:
    """A term after a plus: the leading factor in parentheses where it is negative."""
    first, dot, rest = term.partition("·")
    return f"({first}){dot}{rest}" if first.startswith("-") else term


def first_cell(
    block: Block, stage: Stage, index: Index, rows: range, columns: range, precision: int
) -> Callable[[int], Equation | None] | None:
    """The arithmetic of the first of these cells, as a function of the most terms of a sum."""
    if not stage.work or not rows or not columns:
        return None
    first = Entry(block, stage, index, rows[0], columns[0], precision, TERMS[0])
    return lambda terms: equation(first._replace(terms=terms))


def equation(entry: Entry) -> Equation | None:
    """How a stage came to its number in this entry.

    None where the stage does not say, or where what it was computed from is not in the trace.
    """
    stage = entry.stage
    if not stage.work or any(entry.block.read(stage, name) is None for name in stage.reads):
        return None
    return RULES.get(stage.work, _template)(entry)


# ---- the rules


def _template(entry: Entry) -> Equation:
    return entry.equals(*(_filled(entry, form) for form in entry.stage.work.split(" = ")))


def _filled(entry: Entry, form: str) -> str:
    def fill(found: re.Match[str]) -> str:
        if found[1]:
            return entry.of(found[1]).name
        name, params = found[2], entry.stage.params
        x = entry.of(name).value if name in entry.stage.reads else params.get(name, name)
        is_after_operator = form[: found.start()].rstrip().endswith(("·", "+", "-", "/"))
        return entry.factor(float(x)) if is_after_operator else entry.write(float(x))

    return _IN_TEMPLATE.sub(fill, form)


def _products(entry: Entry) -> Equation:
    """A row times a column, and a bias: Σ a_ik b_kj + b_j."""
    a, b, *bias = (entry.of(name) for name in entry.stage.reads)
    column = _column_of_weights(entry, b.stage)
    words = entry.product(a.matrix[entry.row], b.matrix[:, column])
    words += tuple(f"+ {entry.factor(b.matrix[0, column])}" for b in bias)
    return entry.equals(words)


def _column_of_weights(entry: Entry, weights: Stage) -> int:
    """The column of the weights for this entry's, where they hold those of all heads."""
    packed = weights.axes[-1].partition("·")[0]
    if packed not in ("h", "h_kv"):
        return entry.column
    head = entry.block.entry(HEADS if packed == "h" else KEY_HEADS, entry.where) or 0
    return head * int(entry.stage.value.shape[-1]) + entry.column


def _row_products(entry: Entry) -> Equation:
    """A row times a row: Σ a_ik b_jk."""
    a, b = (entry.of(name).matrix for name in entry.stage.reads)
    return entry.equals(entry.product(a[entry.row], b[entry.column]))


def _relu(entry: Entry) -> Equation:
    inner = _products(entry)
    return inner._replace(forms=(_between("max(0, ", inner.forms[0], ")"), inner.forms[-1]))


def _mask(entry: Entry) -> Equation:
    """Z + M; a key that may not be attended to has no sum."""
    x, mask = entry.of("x"), entry.of("mask")
    if np.isneginf(mask.value):
        return entry.equals(remark="masked: may not attend")
    numbers = f"{entry.write(x.value)} + {entry.factor(mask.value)}"
    return entry.equals(f"{x.name} + {mask.name}", numbers)


def _softmax(entry: Entry) -> Equation:
    """exp over the sum of exps, of the scores of a row that are not −inf."""
    matrix, at = entry.of("x").matrix.astype(np.float64), entry.column
    scores, other = matrix[entry.row], "key"
    if entry.stage.params.get("axis") == -2:
        scores, at, other = matrix[:, entry.column], entry.row, "query"
    allowed = ~np.isneginf(scores)
    if not allowed.any():
        return entry.equals(remark=f"every {other} is masked")
    if not allowed[at]:
        return entry.equals(remark="masked: exp(-inf) = 0")
    n_masked = len(scores) - int(allowed.sum())
    remark = f"and exp(-inf) = 0 for {n_masked} masked" if n_masked else ""
    scores, at = scores[allowed], int(allowed[:at].sum())
    shift = float(scores.max()) if np.abs(scores).max() > LARGE_SCORE else 0.0
    minus = f" - {entry.factor(shift)}" if shift else ""
    with np.errstate(all="ignore"):
        exps = np.exp(scores - shift)
    own, whole = entry.write(exps[at]), entry.write(exps.sum())
    powers = entry.sum(exps, lambda i: f"exp({entry.write(scores[i])}{minus})")
    forms = [(f"exp({entry.write(scores[at])}{minus}) /", *_bracketed(powers))]
    if entry.at_length:
        terms = entry.sum(exps, lambda i: entry.write(exps[i]))
        forms.append((f"{own} /", *_bracketed(terms)))
    return entry.equals(*forms, f"{own} / {whole}", remark=remark)


def _bracketed(words: Words) -> Words:
    return words if len(words) == 1 else _between("(", words, ")")


def _between(before: str, words: Words, after: str) -> Words:
    if len(words) == 1:
        return (f"{before}{words[0]}{after}",)
    return (f"{before}{words[0]}", *words[1:-1], f"{words[-1]}{after}")


def _dropout(entry: Entry) -> Equation:
    x, kept = entry.of("x"), entry.write(1 - entry.stage.params["p"])
    if entry.value == 0 and x.value != 0:
        return entry.equals(remark="set to 0 by dropout")
    return entry.equals(f"{x.name} / {kept}", f"{entry.write(x.value)} / {kept}")


def _divisor(entry: Entry) -> Equation:
    """What the positions of a pair are divided by: the formula with its numbers for i and d."""
    power = entry.stage.formula.partition(" = ")[2]
    filled = power.replace("2i", str(2 * entry.column))
    filled = filled.replace("/d", f"/{entry.stage.params['dim']}")
    label = entry.stage.label(entry.stage.axes[-1], entry.column)
    return entry.equals(filled, left=f"{entry.stage.symbol}[{label}]")


def _angle(entry: Entry) -> Equation:
    return entry.equals(f"{_position(entry)} / {entry.write(entry.of('w').value)}")


def _wave(entry: Entry) -> Equation:
    """sin or cos of the angle of the column's pair."""
    pair, wave = entry._replace(column=entry.column // 2), ("sin", "cos")[entry.column % 2]
    angle = pair.of("angles")
    quotient = f"{_position(entry)} / {entry.write(angle.of('w').value)}"
    return entry.equals(f"{wave}({quotient})", f"{wave}({entry.write(angle.value)})")


def _position(entry: Entry) -> str:
    """The position that a row is of: the number in its label."""
    return entry.stage.label(entry.stage.axes[-2], entry.row).rpartition(" ")[2]


def _pairs(entry: Entry) -> Equation:
    """The dot product of two rows."""
    entry = _of_two(entry)
    rows = entry.of("x").matrix
    product = entry.product(rows[entry.row], rows[entry.column])
    return entry.equals(product, left=_names(entry, " · "))


def _length(entry: Entry) -> Equation:
    a = entry.of("x").matrix[entry.column]
    squares = entry.sum(a.astype(np.float64) ** 2, lambda i: f"{entry.factor(float(a[i]))}²")
    name = shorten(entry.stage.label(entry.stage.axes[-1], entry.column))
    return entry.equals(_between("√(", squares, ")"), left=f"‖{name}‖")


def _cosine(entry: Entry) -> Equation:
    entry = _of_two(entry)
    lengths = entry.of("lengths").matrix[0]
    a, b = (entry.write(lengths[at]) for at in (entry.row, entry.column))
    quotient = f"{entry.write(entry.of('dots').value)} / ({a} · {b})"
    return entry.equals(quotient, left=f"cos({_names(entry, ', ')})")


def _arc(entry: Entry) -> Equation:
    entry = _of_two(entry)
    arc = f"arccos({entry.write(entry.of('x').value)})"
    found = entry.equals(arc, left=f"angle({_names(entry, ', ')})")
    return found._replace(forms=(*found.forms[:-1], (f"{found.forms[-1][0]}°",)))


def _of_two(entry: Entry) -> Entry:
    """The entry of two different rows instead of that of one with itself, where there is one."""
    if entry.row == entry.column and entry.column + 1 < entry.stage.value.shape[-1]:
        return entry._replace(column=entry.column + 1)
    return entry


def _names(entry: Entry, between: str) -> str:
    places = zip(entry.stage.axes[-2:], (entry.row, entry.column), strict=True)
    return between.join(shorten(entry.stage.label(axis, at)) for axis, at in places)


RULES: dict[str, Callable[[Entry], Equation]] = {
    "products": _products,
    "row products": _row_products,
    "relu": _relu,
    "mask": _mask,
    "softmax": _softmax,
    "dropout": _dropout,
    "divisor": _divisor,
    "angle": _angle,
    "wave": _wave,
    "pairs": _pairs,
    "length": _length,
    "cosine": _cosine,
    "arc": _arc,
}


# ---- equations as lines


def work_lines(matrix: Matrix, width: int | None) -> list[str]:
    """The arithmetic of a matrix: on one line with as many terms as fit, else on a few."""
    if matrix.work is None:
        return []
    room, found = (width or PAGE) - 2, None
    for terms in TERMS:
        found = matrix.work(terms)
        if found is None:
            return []
        if cell_len(on_a_line(found)) <= room:
            return [on_a_line(found)]
    return _in_few_lines(found, room) if found else []


def on_a_line(found: Equation) -> str:
    """left = form = … = result (remark)."""
    line = " = ".join([found.left, *(" ".join(form) for form in found.forms)])
    return f"{line}  ({found.remark})" if found.remark else line


def _in_few_lines(found: Equation, width: int) -> list[str]:
    """As many forms on each line as fit."""
    room = width - cell_len(found.left) - 3
    packed = list(found.forms[:1])
    for form in found.forms[1:]:
        together = (*packed[-1], "=", *form)
        if cell_len(" ".join(together)) <= room:
            packed[-1] = together
        else:
            packed.append(form)
    return at_length(found._replace(forms=tuple(packed)), width)


def at_length(found: Equation, width: int | None) -> list[str]:
    """Every form on lines of its own, the equal signs and the terms in line."""
    width = width or PAGE
    is_short = cell_len(found.left) <= width // 4
    at = cell_len(found.left) + 1 if is_short else 2
    lines = [] if is_short else hang([found.left], width, 2, 0)
    for number, form in enumerate(found.forms):
        first, *more = hang(form, width, at + 2, at + 2)
        before = f"{found.left} " if is_short and not number else " " * at
        lines += [f"{before}= {first[at + 2 :]}", *more]
    if not found.remark:
        return lines
    together = f"{lines[-1]}  ({found.remark})"
    if cell_len(together) <= width:
        return [*lines[:-1], together]
    return lines + fold(f"({found.remark})", width, at + 2)
