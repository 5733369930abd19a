"""What a call writes, in bytes, known before anything large is made.

Counted from the shapes alone. tests/benchmarks/memory.py compares it with what is measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from attncli.budget import FLOAT, check_free
from attncli.cli.options import DisplayFlags
from attncli.cli.parsing import is_of, slice_of
from attncli.formats import EXACT, FIGURE, PAGE
from attncli.page.matrix import LARGE
from attncli.page.places import MOST
from attncli.page.select import check_written
from attncli.stages import spec_of

LABEL = 100
"""Bytes of a name that is made for a row: a text of 60, and its place in four tuples."""


_TEXT = 400
"""Bytes of a number in a table that is shown whole: its text before and after it is aligned, each
with its parts, and its cell."""
_MARKS = 4
"""Bytes of a number of a table with masked cells: which are, in the matrix and in sentences."""
_SHADE = 34
"""Bytes of a number of a figure while its shade is found."""
_PIXEL = 65  # bytes of one of a picture of many numbers
_SIDE = 1500  # pixels of the side of a picture; several share it
_DRAWN = 55 * 10**6  # bytes of Matplotlib and its fonts
_PAGE = 26 * 10**6  # bytes of a page of HTML: its tables, formulas and script
_ON_PAGE = 300
"""Bytes of a number of a page that holds all: its eight in base64, its name, and copies of both."""
_NAMED, _LABELLED = 200, 400
"""Bytes of the name of a row or column that is shown, in a table, and beside a picture."""
_MAPPED, _MAPS = 5, 4_000_000  # bytes of a weight while its picture is made, of so many at most
_BUFFER = 1 << 24  # bytes of the pieces in which NumPy writes an array into an archive


def check_text(show: DisplayFlags, shapes: Iterable[tuple[str, tuple[int, ...]]]) -> None:
    """SizeError where a form that writes every number as text would have more than are allowed.

    shapes  stages by dotted name, all or the largest, with their shapes. Only those count that are
            named, and of them the heads, rows and columns that are chosen
    """
    form, count = show.form, 0
    if form.holds != EXACT or form.binary:
        return
    for name, shape in shapes:
        is_named = is_of(name, show.stage or ())
        is_input = spec_of(name).role == "input"  # which json has beside what follows from it
        if is_named or not (show.stage or (is_input and form.name != "json")):
            sizes = [1, 1, *shape]
            for at, chosen in ((-4, show.batch), (-3, show.head)):
                if chosen is not None and len(shape) >= -at:
                    sizes[at] = 1
            if len(shape) > 1:
                sizes[-2:] = _asked(show, shape)
            count += math.prod(sizes)
    check_written(count)


def check_written_out(show: DisplayFlags, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """SizeError where these stages, by dotted name, cannot be held and written.

    What is on the way to a stage is not counted here.
    """
    check_text(show, shapes.items())
    kept = sum(map(math.prod, shapes.values())) * FLOAT
    written = [
        (of_output(show, shape if len(shape) > 1 else (1, *(shape or (1,)))), name)
        for name, shape in shapes.items()
        if not show.stage or is_of(name, show.stage)
    ]
    more, name = max(written, default=(0, ""))
    numbers = " × ".join(map(str, shapes.get(name, ())))
    what = f"{name} of {numbers or 1} numbers as {show.form.name} needs"
    hint = "leave out --full" if show.full else "name another --stage, or use --format npz"
    check_free(kept + more, what, hint)


def _asked(show: DisplayFlags, shape: tuple[int, ...]) -> list[int]:
    """How many rows and columns are asked for."""
    asked = []
    for size, text in zip(shape[-2:], (show.rows, show.cols), strict=True):
        start, stop, _ = slice(*(slice_of(text, "") if text else (None,))).indices(size)
        asked.append(max(stop - start, 0))
    return asked


def of_output(
    show: DisplayFlags, shape: tuple[int, ...], *, masked: bool = False, weights: bool = False
) -> int:
    """Bytes of writing stages of which the largest has this shape; weights: of an attention."""
    form = show.form
    if form.name == "npz":
        return 2 * min(math.prod(shape) * FLOAT, _BUFFER)  # a piece, and its bytes
    if form.name == "html" and show.full:
        return _PAGE + _ON_PAGE * math.prod(shape)
    if form.name == "html":
        return _PAGE + _MAPPED * min(math.prod(shape), _MAPS) * weights
    if form.holds not in {PAGE, FIGURE}:
        return 0  # written row by row
    asked = _asked(show, shape)
    if form.holds == FIGURE:
        from attncli.formats.pictured import ACROSS, MANY

        n_panels = math.prod(shape[:-2]) if show.full else min(math.prod(shape[:-2]), MOST)
        one = (_SIDE // min(max(n_panels, 1), ACROSS)) ** 2
        pixels = (n_panels + 1) * one if math.prod(asked) * n_panels > MANY else 0
        named = sum(asked) * _LABELLED
        return math.prod(asked) * _SHADE + named + _DRAWN + pixels * _PIXEL
    n_rows, n_cols = asked if show.full else (min(asked[0], LARGE), min(asked[1], show.width or 0))
    summed = min(asked[0], LARGE) * shape[-1] * FLOAT  # a copy of the rows shown, for their sums
    return (
        n_rows * n_cols * _TEXT
        + (n_rows + n_cols) * _NAMED
        + summed
        + math.prod(shape[-2:]) * _MARKS * masked
    )
