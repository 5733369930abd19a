"""The formula of a stage in matrices, from that of its cells: S = Q Kᵀ, dK = dSᵀ Q, Y = H W_o."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from attncli.expression import Apply, Cell, Expr, Formula, If, Number, Over, Param, Size, cells

PARAMS = {"cap": "c", "epsilon": "ε"}
"""Parameters that have a letter, which is explained behind the formula."""
SIZES = {"d": "d_k", "e": "d_v", "m": "d_model"}
"""How long a letter's axis is, by name."""
RANKS = {"+": 1, "-": 1, "neg": 2, "*": 2, "/": 2}
"""How closely operators bind; a power and a function 3, all else 4."""
FORMS = {
    "neg": "−{}",
    "+": "{} + {}",
    "-": "{} − {}",
    "/": "{} / {}",
    "**": "{}^{}",
    "sqrt": "√({})",
}
"""How operators and functions are written; others by name."""


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


def operands(node: Apply, rank: Callable[[Expr], int], write: Callable[[Expr], str]) -> list[str]:
    """What an operator or a function is of, in parentheses where it would be read otherwise."""
    own, texts = RANKS.get(node.function, 0), []
    for at, x in enumerate(node.args):
        least = 4 if node.function == "**" else own + (at > 0 and node.function in "-/")
        texts.append(f"({write(x)})" if rank(x) < least else write(x))
    return texts


def form_of(function: str, texts: list[str], forms: Mapping[str, str] = FORMS) -> str:
    """An operator between what it is of, or a function of it."""
    return (
        forms[function].format(*texts) if function in forms else f"{function}({', '.join(texts)})"
    )


def formula_of(formula: Formula, symbols: Mapping[str, str], params: Mapping[str, Any]) -> str:
    """The formula in matrices: a product where rows are summed with columns.

    >>> from attncli.expression import parse
    >>> formula_of(parse("S[i,j] = sum[d](q[i,d] * k[j,d])"), {"q": "Q", "k": "K"}, {})
    'S = Q Kᵀ'
    """

    def rank(node: Expr) -> int:
        match node:
            case Apply(function):
                return RANKS.get(function, 3)
            case Over("sum"):
                return 3
            case If(Apply(">"), _, Number(0.0)):
                return 0
            case If(_, a, b):
                return rank(b if isinstance(a, Number | Param) else a)
        return 4

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
            case Over("sum", letters, Apply("*", both) as product):
                (first, last), (top, bottom) = (_summed(x, letters) for x in both)
                if first == last or top == bottom:
                    return f"Σ {text(product)}"
                left, right = operands(product, rank, text)
                return f"{left}{'ᵀ' * first} {right}{'ᵀ' * bottom}"
            case Over("sum", _, body):
                (terms,) = operands(Apply("*", (body,)), rank, text)
                return f"Σ {terms}{' over the tokens' * isinstance(body, Cell | If)}"
            case Over(kind, _, body):
                return f"{kind}({text(body)})"
            case If(Apply(">", (a, low)), b, Number(0.0)):
                return f"{text(b)} where {text(a)} > {text(low)}"
            case If(_, a, b):
                return text(b if isinstance(a, Number | Param) else a)
            case Apply("**", (_, Number(2.0))):
                return f"{operands(node, rank, text)[0]}²"
            case Apply("sqrt", (Size() as a,)):
                return f"√{text(a)}"
            case Apply("*", args):
                return (" ∘ " if all(map(cells, args)) else " · ").join(operands(node, rank, text))
            case Apply(function):
                return form_of(function, operands(node, rank, text))
        return str(getattr(node, "letter", ""))

    line = f"{formula.symbol} = {text(formula.body)}"
    used = [name for name in PARAMS if name in params and f"'{name}'" in repr(formula.body)]
    return line + "".join(f", {PARAMS[name]} = {plain(params[name])}" for name in used)


def _summed(node: Expr, letters: tuple[str, ...]) -> list[bool]:
    """Whether a sum along these letters is along the rows of a matrix, and along its columns."""
    index = max((cell.index for cell in cells(node)), key=len, default=())
    axes = ((), (), *index)[-2:]
    return [isinstance(axis, tuple) and not {*letters}.isdisjoint(axis) for axis in axes]


def subscript(number: int) -> str:
    """A number as an index: 12 is ₁₂."""
    return f"{number}".translate(_SUBSCRIPTS)


_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
