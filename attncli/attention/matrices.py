"""The formula of a stage in matrices, from that of its cells: S = Q Kᵀ, dK = dSᵀ Q, Y = H W_o."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from attncli.expression import (
    Apply,
    Cell,
    Expr,
    Formula,
    If,
    Number,
    Over,
    Param,
    Size,
    cells,
    rebuilt,
    text_of,
)

PARAMS = {"cap": "c", "epsilon": "ε"}
"""Parameters that have a letter, which is explained behind the formula."""
SIZES = {"d": "d_k", "e": "d_v", "m": "d_model"}
"""How long a letter's axis is, by name."""


AXES = {
    **{"b": "batch", "h": "head", "g": "kv_head", "i": "query", "j": "key", "m": "d_model"},
    **{"d": "d_k", "e": "d_v"},
}
"""What the axis of a letter is called where the registry does not say it; others by the letter."""


def axes_of(index: Sequence[Any], n: int | None = None) -> tuple[str, ...]:
    """The names of the axes of an index, or of the last n of them.

    >>> axes_of([("b",), ("h", "e"), ("c",)], 2)
    ('head·d_v', 'c')
    """
    whole = ["·".join(AXES.get(str(x), str(x)) for x in axis) or "_" for axis in index]
    return tuple(whole if n is None else whole[len(whole) - n :])


def plain(x: float) -> str:
    """A parameter within a formula: an exponent is written as in the tables.

    >>> plain(-1e9), plain(1e-5), plain(0.25), plain(-153513871339.0)
    ('-1e9', '1e-5', '0.25', '-1.5351e11')
    """
    text = f"{x:g}"
    mantissa, e, exponent = f"{x:.4e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}{e}{int(exponent)}" if "e" in text else text


def worded(template: str, symbols: Mapping[str, str], params: Mapping[str, Any] = {}) -> str:
    """A formula in words and letters, in which {names} are symbols and parameters.

    >>> worded("{x} / {p}", {"x": "Z"}, {"p": 0.5})
    'Z / 0.5'
    """
    numbers = {n: plain(x) if isinstance(x, int | float) else x for n, x in params.items()}
    values: Mapping[str, Any] = {**numbers, **symbols}
    return re.sub(r"\{(\w+)\}", lambda name: str(values.get(name[1], name[1])), template)


def formula_of(formula: Formula, symbols: Mapping[str, str], params: Mapping[str, Any]) -> str:
    """The formula in matrices: a product where rows are summed with columns.

    >>> from attncli.expression import parse
    >>> formula_of(parse("S[i,j] = sum[d](q[i,d] * k[j,d])"), {"q": "Q", "k": "K"}, {})
    'S = Q Kᵀ'
    """

    def text(node: Expr) -> str:  # noqa: PLR0912 - a rule for each kind of node
        match node:
            case Cell(name):
                return symbols.get(name, name)
            case Number(value):
                return plain(value)
            case Param(name):
                return PARAMS.get(name) or plain(params[name])
            case Size(letter):
                return SIZES.get(letter, letter)
            case Over("sum", _, Over("sum") as inner):
                return f"{text(inner)}, summed over the heads of each key head"
            case Over("sum", letters, Apply("*", (a, b))) if _is_of_matrices(a, b, letters):
                left = factor(a) + "ᵀ" * _is_summed(a, -2, letters)
                return f"{left} {factor(b)}{'ᵀ' * _is_summed(b, -1, letters)}"
            case Over("sum", _, Cell() | If() as terms):
                return f"Σ {factor(terms)} over the tokens"
            case Over(kind, _, body):
                return f"Σ {factor(body)}" if kind == "sum" else f"{kind}({text(body)})"
            case If(Apply(">", (a, low)), b, Number(0.0)):
                return f"{text(b)} where {text(a)} > {text(low)}"
            case If(_, a, b):
                return text(b if isinstance(a, Number | Param) else a)
            case Apply("**", (a, Number(2.0))):
                return f"{factor(a)}²"
            case Apply("neg", (a,)):
                return f"−{factor(a)}"
            case Apply("*", (a, b)):
                dot = " ∘ " if cells(a) and cells(b) else " · "
                return f"{factor(a)}{dot}{factor(b)}"
            case Apply("/", (a, b)):
                below = f"({text(b)})" if _is(b, "+", "-", "*", "/") else text(b)
                return f"{factor(a)} / {below}"
            case Apply("+" | "-" as sign, (a, b)):
                return f"{text(a)} {sign.replace('-', '−')} {factor(b) if sign == '-' else text(b)}"
            case Apply("sqrt", (Size() as a,)):
                return f"√{text(a)}"
            case Apply("sqrt", (a,)):
                return f"√({text(a)})"
            case Apply(function, args):
                return f"{function}({', '.join(map(text, args))})"
        return str(getattr(node, "letter", ""))

    def factor(node: Expr) -> str:
        is_choice = isinstance(node, If) and _is(node.condition, ">")
        return f"({text(node)})" if is_choice or _is(node, "+", "-") else text(node)

    line = f"{formula.symbol} = {text(formula.body)}"
    used = [name for name in PARAMS if name in params and f"'{name}'" in repr(formula.body)]
    return line + "".join(f", {PARAMS[name]} = {plain(params[name])}" for name in used)


_SIGNS = {" ** ": "^", " * ": " · ", "<=": "≤", ">=": "≥", "!=": "≠", " == ": " = ", "inf": "∞"}


def shown(text: str) -> str:
    """A formula by cells with the signs of mathematics.

    >>> shown("x[i] ** 2 * k[j] if j <= i else -inf")
    'x[i]^2 · k[j] if j ≤ i else -∞'
    """
    return re.sub(r" \*\* | \* |<=|>=|!=| == |\binf\b", lambda sign: _SIGNS[sign[0]], text)


def own_formula(formula: Formula, symbols: Mapping[str, str], params: Mapping[str, Any]) -> str:
    """The formula in matrices where that says all of it, else by cells."""
    if _says_all(formula.body):
        return formula_of(formula, symbols, params)

    def named(x: Expr) -> Expr:
        return Cell(symbols.get(x.name) or x.name, x.index) if isinstance(x, Cell) else x

    return f"{formula.symbol} = {shown(text_of(rebuilt(formula.body, named)))}"


def _says_all(node: Expr) -> bool:
    """Whether the formula in matrices says all that the one by cells does."""
    match node:
        case Cell(_, index):
            axes = (axis for axis in index if isinstance(axis, tuple))
            return sum(all(isinstance(x, str) for x in axis) for axis in axes) == len(index)
        case Number() | Size() | Param():
            return True
        case Over("sum", letters, Apply("*", (Cell() as a, Cell() as b)), None):
            return _is_of_matrices(a, b, letters)
        case Over("softmax", _, body, None, None):
            return _says_all(body)
        case Apply("+" | "-" | "*" | "/" | "neg" | "sqrt" | "exp" | "tanh", args):
            return all(map(_says_all, args))
    return False


def _is(node: Expr, *functions: str) -> bool:
    return isinstance(node, Apply) and node.function in functions


def _is_of_matrices(a: Expr, b: Expr, letters: tuple[str, ...]) -> bool:
    """Whether two factors are matrices that a sum over these letters multiplies."""
    return all(_is_summed(x, -2, letters) != _is_summed(x, -1, letters) for x in (a, b))


def _is_summed(node: Expr, axis: int, letters: tuple[str, ...]) -> bool:
    """Whether an axis of a matrix, counted from the last, is one that is summed along."""
    index = max((cell.index for cell in cells(node)), key=len, default=())
    own = index[axis] if len(index) >= -axis else ()
    return isinstance(own, tuple) and bool({*own} & {*letters})


def subscript(number: int) -> str:
    """A number as an index: 12 is ₁₂."""
    return f"{number}".translate(_SUBSCRIPTS)


_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
