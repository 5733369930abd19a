"""Text that is safe to print: labels, titles and notes cleaned, shortened, padded and wrapped.

A control character, escape sequence, line break, bidirectional control or invisible character is
replaced by its visible escape (`\x1b`, `\n`, `\u202e`), so nothing in a label moves the cursor,
colours or reorders a line. Widths are terminal cells as Rich counts them. Right-to-left text stays
as it is: isolating marks would keep its neighbours in order, but some terminals draw them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, chop_cells

from attncli.errors import ShapeError
from attncli.files.characters import as_printed
from attncli.files.messages import escaped, visible
from attncli.trace import Numbered, Stage

LABEL_CELLS = 16
"""The widest a label is shown where there is room."""

NAME_CELLS = 24
"""The widest a stage's own name is shown."""

MARKS_IN_A_ROW = 4  # combining marks on one character; a language needs three

NUMBER, LABEL, END, FRACTION, OVER, BREAK = MARKS = [chr(0xE000 + n) for n in range(6)]
"""Marks within an equation, so that each format can write it its own way: around numbers, labels
and fractions, before the slash of a fraction, and a space where a line may end. Nothing else has
them: `clean` writes characters for private use as escapes."""

BLANK = "____"
"""What stands for a number that is left out: room to write one."""

UNDEFINED = "–"
"""What stands for NaN where it has a meaning, as that a vector has no direction."""

_BREAK = re.compile(" (?!%)")  # a line never begins with the % of a number


def clean(text: str) -> str:
    """The text with everything that is not plainly visible written as an escape.

    >>> clean("a\\x1b[31mb\\n")
    'a\\\\x1b[31mb\\\\n'
    """
    if text.isascii() and text.isprintable():
        return text
    characters: list[str] = []
    marks = 0
    for char in visible(text).replace("\n", "\\n"):
        marks = 0 if cell_len(char) else marks + 1
        if marks > MARKS_IN_A_ROW:
            char = escaped(char)  # noqa: PLW2901
        elif marks and not characters:
            characters.append("◌")
        characters.append(char)
    return "".join(characters)


def sentence(text: str) -> str:
    """A title or note on one line, its line breaks turned into spaces.

    >>> sentence("one\\n  two")
    'one two'
    """
    return clean(" ".join(text.split()))


def width_of(text: str) -> int:
    """The cells that a text takes as it is printed."""
    return len(text) if text.isascii() else cell_len(as_printed(text))


def shorten(label: str, cells: int = LABEL_CELLS) -> str:
    """A label in no more than so many cells, cut with an ellipsis.

    Its outer spaces, and its emptiness, can be seen.

    >>> shorten("incomprehensibilities", 8), shorten(" the"), shorten("")
    ('incompr…', '␣the', '""')
    """
    enough = 8 * cells  # characters beyond these are never shown, so never looked at
    inner = label[:enough].strip(" ")
    before = len(label[:enough]) - len(label[:enough].lstrip(" "))
    after = len(label[:enough]) - before - len(inner)
    text = as_printed("␣" * before + clean(inner) + "␣" * after if label else '""')
    if len(label) <= enough and cell_len(text) <= cells:
        return text
    ellipsis = as_printed("…")
    return chop_cells(text, max(cells - len(ellipsis), 1))[0] + ellipsis


def number_mark(text: str) -> str:
    """A number within an equation; "" is one that is left out."""
    return f"{NUMBER}{text}{END}"


def label_mark(text: str) -> str:
    """A label within an equation, clean."""
    return f"{LABEL}{text}{END}"


def plain(text: str) -> str:
    """An equation, or a part of it, without its marks.

    >>> plain(f"S[{label_mark('q1')}] = {number_mark('0.5')} · {number_mark('')}")
    'S[q1] = 0.5 · ____'
    """
    text = text.replace(NUMBER + END, BLANK).replace(BREAK, " ")
    for mark in MARKS:
        text = text.replace(mark, "")
    return text


def named(stage: Stage, axis: str, at: int) -> str:
    """An entry within a sentence: a token in quotation marks, else a letter and a number.

    >>> import numpy as np
    >>> stage = Stage("weights", "A", "", np.ones((1, 1)), ("query", "key"), {"query": ("to",)})
    >>> named(stage, "query", 0), named(stage, "key", 0)
    ('"to"', 'k1')
    """
    if axis not in stage.labels:
        return stage.label(axis, at)
    return captions(stage.labels[axis], [at], quotes=True)[0]


def quoted(name: str) -> str:
    """A token in quotation marks; an empty one has them already (see `shorten`)."""
    return name if name == '""' else f'"{name}"'


def captions(
    names: Sequence[str], at: Sequence[int], cells: int = LABEL_CELLS, *, quotes: bool = False
) -> list[str]:
    """The names of these entries, shortened, what is the same then with its number.

    quotes  within a sentence: all but a letter and a number in quotation marks

    >>> captions(["bank", "river", "bank"], [0, 1]), captions(["to", "k1"], [0, 1], quotes=True)
    (['bank (1)', 'river'], ['"to"', 'k1'])
    >>> captions(["interest", "interval", "it"], [0, 1, 2], 6)
    ['int…#1', 'int…#2', 'it']
    """
    labels = [names[i] for i in at]
    is_numbered = isinstance(names, Numbered)
    if is_numbered and not quotes and max(map(len, labels), default=0) <= cells:
        return labels
    short = [shorten(label, cells) for label in labels]
    meanings = Counter(text for text, _ in {*zip(short, labels, strict=True)})
    several = set[str]() if is_numbered else {*labels}
    equal = Counter(name for name in names if name in several) if several else Counter[str]()
    texts = []
    for i, label, text in zip(at, labels, short, strict=True):
        tag, number = f"#{i + 1}", f" ({i + 1})" if equal[label] > 1 else ""
        is_clear = meanings[text] == 1
        caption = text if is_clear else shorten(label, max(cells - len(tag), 2)) + tag
        is_token = quotes and not re.fullmatch(r"[qk]\d+", label)
        texts.append((quoted(caption) if is_token else caption) + number)
    return texts


def pad(text: str, cells: int, *, right: bool = False) -> str:
    """Filled with spaces to a width in cells, the text at the left or at the right."""
    space = " " * (cells - width_of(text))
    return space + text if right else text + space


def fold(text: str, width: int | None, indent: int = 0, first: int | None = None) -> list[str]:
    """A sentence as lines no wider than the screen, indented; `first` for the first line.

    >>> fold("one two three", 9, indent=1)
    [' one two', ' three']
    """
    first = indent if first is None else first
    return [" " * first + text] if width is None else hang(_BREAK.split(text), width, indent, first)


def hang(words: Iterable[str], width: int, indent: int, first: int) -> list[str]:
    """Words laid out as lines with a hanging indent; one too wide for a line is broken."""
    lines, line, used, cells = [], " " * first, 0, first
    room = width - max(indent, first)
    for word in map(as_printed, words):
        size = width_of(word)
        for piece in [word] if size <= room else chop_cells(word, max(room, 2)):
            size = width_of(piece)
            if used and cells + 1 + size > width:
                lines.append(line)
                line, used, cells = " " * indent, 0, indent
            line += f" {piece}" if used else piece
            cells += size + (used > 0)
            used += 1
    return [*lines, line]


def find(names: Sequence[str], axis: str, label: str) -> int:
    """The entry of an axis with these names: its label, as '"bank" (5)' too, or its number from 1.

    Positions and the dimensions of their waves have the numbers that tables print, from 0.
    Raises ShapeError where there is none, or more than one of that label.
    """
    if label not in names:
        label = re.sub(r'^"([^"]+)"', r"\1", label)
    same = [at for at, name in enumerate(names) if name == label]
    if len(same) == 1:
        return same[0]
    is_placed = axis in ("position", "dimension")
    start = re.fullmatch(r"pos (-?\d+)|2i=0", names[0]) if is_placed else None
    first = int(start[1] or 0) if start else 1
    if label.isdecimal() and first <= int(label) < first + len(names):
        return int(label) - first
    numbered = re.fullmatch(r"(.*?) ?\((\d+)\)", label)
    if numbered and [*names[int(numbered[2]) - 1 : int(numbered[2])]] == [numbered[1]]:
        return int(numbered[2]) - 1
    if same:
        which = " or ".join(f"{label}({at + 1})" for at in same[:3])
        raise ShapeError(f"more than one {axis} is called {clean(label)!r}", f"use {clean(which)}")
    some = captions(names, range(min(len(names), 8)))
    there = ", ".join(f'"{name}"' if name == "," else name for name in some)
    more = f" … ({len(names)} in all)" if len(names) > 8 else ""
    raise ShapeError(
        f"there is no {axis} {label!r}", f"there are {there}{more}, or a number from {first}"
    )
