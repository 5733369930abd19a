"""What the text of NumPy code is made of: expressions and how they bind, numbers, long lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

ATOM, POWER, SIGN, PRODUCT, SUM, AND, OR, COMPARED = 9, 8, 7, 6, 5, 4, 3, 2
"""How closely operators of NumPy bind: & and | more closely than comparisons."""
WIDE = 96
"""Characters of a line, beyond which it is broken."""


class Code(NamedTuple):
    """The text of an expression.

    binding   how closely it is bound
    letters   those along which it has all entries: it has none, or one entry, along others
    number    of one that Python computes, without NumPy: a number, or a condition
    is_whole  its numbers are whole, as integers are
    """

    text: str
    binding: int = ATOM
    letters: frozenset[str] = frozenset()
    number: float | bool | None = None
    is_whole: bool = False

    def within(self, binding: int) -> str:
        """The text as an operand of what binds so closely."""
        return self.text if self.binding >= binding else f"({self.text})"


def number_text(x: float) -> str:
    """A number as Python reads it, infinity and NaN as NumPy names them.

    >>> number_text(0.5), number_text(-math.inf), number_text(3), number_text(2.0)
    ('0.5', '-np.inf', '3', '2.0')
    """
    if math.isnan(x):
        return "np.nan"
    if math.isinf(x):
        return "np.inf" if x > 0 else "-np.inf"
    return repr(x) if isinstance(x, int) else repr(float(x))


def axes_text(shape: Iterable[int]) -> str:
    """The arguments of reshape and transpose.

    >>> axes_text((2, 3)), axes_text((5,))
    ('(2, 3)', '(5)')
    """
    return f"({', '.join(map(str, shape))})"


def selection(axes: Sequence[str]) -> str:
    """What is picked of each axis, in brackets.

    >>> selection([":", "None"]), selection([":", ":", "None"]), selection(["0", ":", ":"])
    ('[:, None]', '[..., None]', '[0]')
    """
    first = next(at for at, x in enumerate(axes) if x != ":")
    last = max(at for at, x in enumerate(axes) if x != ":")
    if first > 1 and ":" not in axes[first:]:
        return f"[{', '.join(['...', *axes[first:]])}]"
    return f"[{', '.join(axes[: last + 1])}]"


def broken(line: str) -> str:
    """A statement, on several lines where it is long: within parentheses, or those of a call.

    >>> print(broken(f"x = np.where({'a' * 40}, {'b' * 40}, c + d)"))
    x = np.where(
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,
        bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb,
        c + d,
    )
    """
    target, _, text = line.partition(" = ")
    if len(line) <= WIDE:
        return line
    first, *rest = _laid_out(text, "", len(line) - len(text)).split("\n")
    is_call = first.endswith("(") and rest[-1].startswith(")")
    if is_call and all(x.startswith(" ") for x in rest[:-1]):
        return "\n".join([f"{target} = {first}", *rest])
    return f"{target} = (\n    {_laid_out(text, '    ')}\n)"


def _laid_out(text: str, indent: str, n_before: int = 0) -> str:
    """An expression on as many lines as it needs, split at its loosest operators or in its call."""
    if len(indent) + n_before + len(text) <= WIDE:
        return text
    depth, ends = 0, dict[str, list[int]]()
    for at, x in enumerate(text):
        depth += (x in "([") - (x in ")]")
        if depth == 0 and x == " " and text[at + 1 : at + 3] in ("+ ", "- ", "* ", "/ ", "@ "):
            ends.setdefault("+" if text[at + 1] in "+-" else "*", []).append(at)
    if cuts := ends.get("+") or ends.get("*"):
        pairs = zip([0, *cuts], [*cuts, len(text)], strict=True)
        rows = [text[start:end].strip() for start, end in pairs]
        return f"\n{indent}".join(_laid_out(row, indent) for row in rows)
    start = text.find("(")
    if start < 0:
        return text
    depth, args, is_text, end = 1, [""], False, start + 1
    while depth and end < len(text):  # the arguments of the first call
        x = text[end]
        depth += (x in "([") - (x in ")]")
        is_text ^= x == '"'
        if x == "," and depth == 1 and not is_text:
            args.append("")
        else:
            args[-1] += x * bool(depth)
        end += 1
    is_call = text[start - 1 : start].isalnum()
    comma = "," * is_call  # with which a number in parentheses would be a tuple
    inner = f"{indent}    "
    rows = [f"{inner}{_laid_out(arg.strip(), inner, 1)}{comma}" for arg in args]
    return "\n".join([text[: start + 1], *rows, f"{indent}){text[end:]}"])
