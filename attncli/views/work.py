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
from attncli.views.text import LABEL_CELLS, clean, fold, hang, shorten

Words = tuple[str, ...]

LARGE_SCORE = 20  # beyond it softmax is shown as it is computed: with the maximum subtracted
NAME_CELLS = 12  # of labels within a formula
PAGE = 100  # cells of a line where no terminal sets a width
TERMS = (12, 6, 3)  # terms of a sum on one line: as many as fit
_PACKED = {"h": HEADS, "h_kv": KEY_HEADS}  # the weights of all heads in one axis, such as "h·d_k"
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
        return f"{clean(self.stage.symbol)}[{','.join(self.labels(NAME_CELLS))}]"

    def labels(self, cells: int = LABEL_CELLS) -> list[str]:
        """The names of its row and its column."""
        places = zip(self.stage.axes[-2:], (self.row, self.column), strict=True)
        return [shorten(self.stage.label(axis, at), cells) for axis, at in places]

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
        left = [self.write, *[self.factor] * len(a)]  # the first one needs no parentheses
        return self.sum(values, lambda i: f"{left[i](a[i])}·{self.factor(b[i])}")

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
        return (*words[:1], *(f"+ {word}" for word in words[1:]))

    def equals(self, *forms: Words | str, remark: str = "", left: str = "") -> Equation:
        """The equation that ends with the number the trace holds for this entry."""
        all_forms = [(form,) if isinstance(form, str) else form for form in forms]
        return Equation(left or self.name, (*all_forms, (self.write(self.value),)), remark)


def equation(entry: Entry) -> Equation | None:
    """How a stage came to its number in this entry.

    None where the stage does not say, or where what it was computed from is not in the trace.
    """
    stage = entry.stage
    if not stage.work or any(entry.block.read(stage, name) is None for name in stage.reads):
        return None
    rule = RULES.get(stage.work)
    return rule(entry) if rule else _filled(entry, stage.work)


# ---- the rules


def _filled(entry: Entry, template: str) -> Equation:
    """The equation of a template."""

    def fill(found: re.Match[str]) -> str:
        if found[1]:
            return entry.of(found[1]).name
        name, params = found[2], entry.stage.params
        x = entry.of(name).value if name in entry.stage.reads else float(params.get(name, name))
        is_after_operator = found.string[: found.start()].rstrip().endswith(("·", "+", "-", "/"))
        return entry.factor(x) if is_after_operator else entry.write(x)

    return entry.equals(*(_IN_TEMPLATE.sub(fill, form) for form in template.split(" = ")))


def _products(entry: Entry) -> Equation:
    """A row times a column, and a bias: Σ a_ik b_kj + b_j."""
    a, b, *bias = (entry.of(name) for name in entry.stage.reads)
    column = entry.column
    axis = _PACKED.get(b.stage.axes[-1].partition("·")[0])
    if axis:
        head = entry.block.entry(axis, entry.where) or 0
        column += head * entry.stage.value.shape[-1]
    words = entry.product(a.matrix[entry.row], b.matrix[:, column])
    words += tuple(f"+ {entry.factor(b.matrix[0, column])}" for b in bias)
    return entry.equals(words)


def _row_products(entry: Entry) -> Equation:
    """A row times a row: Σ a_ik b_jk."""
    a, b = (entry.of(name).matrix for name in entry.stage.reads)
    return entry.equals(entry.product(a[entry.row], b[entry.column]))


def _relu(entry: Entry) -> Equation:
    inner = _products(entry)
    return inner._replace(forms=(_between("max(0, ", inner.forms[0], ")"), inner.forms[-1]))


def _mask(entry: Entry) -> Equation:
    """Z + M; a key that may not be attended to has no sum."""
    if np.isneginf(entry.of("mask").value):
        return entry.equals(remark="masked: may not attend")
    return _filled(entry, "[x] + [mask] = {x} + {mask}")


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
    if "sinks" in entry.stage.reads:  # the last term of the sum
        scores = np.append(scores, entry.of("sinks").matrix[0, entry.where.get(HEADS, 0)])
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
    *most, last = (f"{before}{words[0]}", *words[1:])
    return (*most, f"{last}{after}")


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
    """The position in the label of a row, divided."""
    position = entry.stage.label(entry.stage.axes[-2], entry.row).rpartition(" ")[2]
    return entry.equals(f"{position} / {entry.write(entry.of('w').value)}")


def _wave(entry: Entry) -> Equation:
    """sin or cos of the angle of the column's pair."""
    wave = ("sin", "cos")[entry.column % 2]
    angle = _angle(entry._replace(column=entry.column // 2).of("angles"))
    return entry.equals(*(f"{wave}({form})" for (form,) in angle.forms))


def _length(entry: Entry) -> Equation:
    a = entry.of("x").matrix[entry.column]
    squares = entry.sum(a.astype(np.float64) ** 2, lambda i: f"{entry.factor(float(a[i]))}²")
    name = shorten(entry.stage.label(entry.stage.axes[-1], entry.column))
    return entry.equals(_between("√(", squares, ")"), left=f"‖{name}‖")


def _pair(entry: Entry) -> Equation:
    """The dot product, cosine or angle of two rows: of different ones where there are any."""
    if entry.row == entry.column and entry.column + 1 < entry.stage.value.shape[-1]:
        entry = entry._replace(column=entry.column + 1)
    (a, b), places = entry.labels(), [entry.row, entry.column]
    if entry.stage.work == "pairs":
        row, other = entry.of("x").matrix[places]
        return entry.equals(entry.product(row, other), left=f"{a} · {b}")
    if entry.stage.work == "cosine":
        lengths = (entry.write(x) for x in entry.of("lengths").matrix[0, places])
        quotient = f"{entry.write(entry.of('dots').value)} / ({' · '.join(lengths)})"
        return entry.equals(quotient, left=f"cos({a}, {b})")
    cosine = entry.of("x").value
    if entry.value in (0, 180):  # and not what rounding leaves of it, 0.9999999999999998
        cosine = round(cosine)
    arc = f"arccos({entry.write(cosine)})"
    return Equation(f"angle({a}, {b})", ((arc,), (f"{entry.write(entry.value)}°",)))


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
    "length": _length,
    **dict.fromkeys(("pairs", "cosine", "arc"), _pair),
}


# ---- equations as lines


def work_lines(matrix: Matrix, width: int | None) -> list[str]:
    """The arithmetic of a matrix's first cell, where it is asked for.

    On one line with as many terms as fit, else on a few, each with as many forms as fit.
    """
    m, room = matrix, (width or PAGE) - 2
    if not (m.options.work and m.rows and m.columns):
        return []
    precision = m.options.precision
    entry = Entry(m.block, m.stage, m.where, m.rows[0], m.columns[0], precision, TERMS[0])
    found = equation(entry)
    if found is None:
        return []
    for terms in TERMS:
        found = equation(entry._replace(terms=terms)) or found
        line = " = ".join([found.left, *(" ".join(form) for form in found.forms)])
        line += f"  ({found.remark})" if found.remark else ""
        if cell_len(line) <= room:
            return [line]
    beside = room - cell_len(found.left) - 3
    packed = list(found.forms[:1])
    for form in found.forms[1:]:
        together = (*packed[-1], "=", *form)
        if cell_len(" ".join(together)) <= beside:
            packed[-1] = together
        else:
            packed.append(form)
    return at_length(found._replace(forms=tuple(packed)), room)


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
