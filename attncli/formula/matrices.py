"""The formula of a stage in matrices, from that of its cells: S = Q Kᵀ, dK = dSᵀ Q, Y = H W_o."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from attncli.formula.expression import (
    Apply,
    Cell,
    Expr,
    Formula,
    If,
    Number,
    Over,
    Param,
    Place,
    Size,
    cells,
    free_letters,
    renamed,
    text_of,
)

PARAMS = {"cap": "c", "epsilon": "ε"}
"""Parameters that have a letter, which is explained behind the formula."""
SIZES = {"d": "d_k", "e": "d_v", "m": "d_model"}
"""How long a letter's axis is, by name."""
RANKS = {
    **{"or": -2, "and": -1, "==": 0, "!=": 0, "<": 0, "<=": 0, ">": 0, ">=": 0},
    **{"+": 1, "-": 1, "neg": 2, "*": 2, "/": 2, "//": 2, "%": 2},
}
"""How closely operators bind; a power and a function 3, all else 4."""
FORMS = {
    **{"neg": "−{}", "+": "{} + {}", "-": "{} − {}", "*": "{} · {}", "/": "{} / {}"},
    **{"**": "{}^{}", "sqrt": "√({})"},
}
"""How operators and functions are written; others by name."""


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


def applied(function: str, operands: Sequence[tuple[str, int]], form: str) -> str:
    """An operator, or a function where there is no form, of texts of these ranks.

    They are in parentheses where they would be read otherwise.
    """
    function_rank, texts = RANKS.get(function, 0), []
    for at, (text, rank) in enumerate(operands):
        least = (
            4
            if function == "**"
            else function_rank + (at > 0 and function in ("-", "/", "//", "%"))
        )
        texts.append(f"({text})" if rank < least else text)
    return form.format(*texts) if form else f"{function}({', '.join(texts)})"


def formula_of(formula: Formula, symbols: Mapping[str, str], params: Mapping[str, Any]) -> str:
    """The formula in matrices: a product where rows are summed with columns.

    >>> from attncli.formula.parser import parse
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
            case Place(letter):
                return letter
            case Over("sum", _, Over("sum") as inner):
                return f"{text(inner)}, summed over the heads of each key head"
            case Over("sum", letters, If() as guarded) if (
                factored := _guarded_factor(guarded)
            ) != guarded:
                return text(Over("sum", letters, factored))
            case Over("sum", letters, Apply("*" as function, args) as product):
                (first, last), (top, bottom) = (_summed(x, letters) for x in args)
                if first == last or top == bottom:
                    return f"Σ {text(product)}"
                form = f"{{}}{'ᵀ' * first} {{}}{'ᵀ' * bottom}"
            case Over("sum", _, body):
                function, args = "*", (body,)
                form = "Σ {}" + " over the tokens" * isinstance(body, Cell | If)
            case Over(kind, _, body):
                return f"{kind}({text(body)})"
            case If(Apply(">", (a, low)), b, Number(0.0)):
                return f"{text(b)} where {text(a)} > {text(low)}"
            case If(_, a, b):
                return text(b if isinstance(a, Number | Param) else a)
            case Apply("sqrt", (Size() as a,)):
                return f"√{text(a)}"
            case Apply("**" as function, (_, Number(2.0)) as args):
                form = "{}²"
            case Apply("*" as function, args) if all(map(cells, args)):
                form = "{} ∘ {}"
            case Apply(function, args):
                form = FORMS.get(function, "")
        return applied(function, [(text(x), rank(x)) for x in args], form)

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
    names = {name: symbol for name, symbol in symbols.items() if symbol}
    return f"{formula.symbol} = {shown(text_of(renamed(formula.body, names)))}"


def _says_all(node: Expr) -> bool:
    """Whether the formula in matrices says all that the one by cells does."""
    match node:
        case Cell(_, index):
            axes = (axis for axis in index if isinstance(axis, tuple))
            return sum(all(isinstance(x, str) for x in axis) for axis in axes) == len(index)
        case Number() | Size() | Param():
            return True
        case Over("sum", letters, Apply("*", (Cell(), Cell()) as factors), None):
            (first, last), (top, bottom) = (_summed(x, letters) for x in factors)
            return first != last and top != bottom
        case Over("softmax", _, body, None, None):
            return _says_all(body)
        case Apply("+" | "-" | "*" | "/" | "neg" | "sqrt" | "exp" | "tanh", args):
            return all(map(_says_all, args))
    return False


def _guarded_factor(node: If) -> Expr:
    """A product that counts where a condition holds, with the condition at one factor.

    That is the factor that has the letters of the condition; where none has, all stays as it is.

    >>> from attncli.formula.parser import parse
    >>> text_of(_guarded_factor(parse("x[i] = n[i,m] * d[i,f] if g[i,f] > 0 else 0").body))
    'n[i,m] * (d[i,f] if g[i,f] > 0 else 0)'
    """
    match node:
        case If(Apply(">") as condition, Apply("*", (a, b)), Number(0.0) as zero):
            letters = {*free_letters(condition)}
            if letters <= {*free_letters(b)}:
                return Apply("*", (a, If(condition, b, zero)))
            if letters <= {*free_letters(a)}:
                return Apply("*", (If(condition, a, zero), b))
    return node


def _summed(node: Expr, letters: tuple[str, ...]) -> list[bool]:
    """Whether a sum along these letters is along the rows of a matrix, and along its columns."""
    index = max((cell.index for cell in cells(node)), key=len, default=())
    axes = ((), (), *index)[-2:]
    return [isinstance(axis, tuple) and not {*letters}.isdisjoint(axis) for axis in axes]


def subscript(number: int) -> str:
    """A number as an index: 12 is ₁₂."""
    return f"{number}".translate(_SUBSCRIPTS)


_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
