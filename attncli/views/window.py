"""What of a large matrix fits: its corners, and the blocks its columns are printed in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from attncli.views.showing import Showing

LARGE = 100  # rows or columns a matrix is shown whole up to, where no screen sets a limit
EDGE = 8  # rows or columns at each end of one that is larger
GAP = 2  # spaces between columns
FEWEST_LINES = 16
MARGIN = 6  # lines of the screen that a stage's title, notes and the prompt take

Kept = tuple[int | None, ...]
"""Indices in order; None stands for those left out."""


def corners(indices: Sequence[int], room: int) -> Kept:
    """The first and last of the indices, no more than `room` of them.

    >>> corners(range(9), 4)
    (0, 1, None, 7, 8)
    """
    if len(indices) <= room:
        return tuple(indices)
    last = room // 2
    return (*indices[: room - last], None, *indices[len(indices) - last :])


def rows_shown(indices: Sequence[int], showing: Showing) -> Kept:
    """The rows that a screen holds; 100 where there is no screen."""
    lines = screen_lines(showing)
    if lines is None or len(indices) < lines:
        return _unlimited(indices, showing) if lines is None else tuple(indices)
    return corners(indices, lines - 2)  # less the column labels and the ⋮


def columns_worth_writing(indices: Sequence[int], showing: Showing, n_lines: int) -> Kept:
    """The columns that could be shown if each were as narrow as can be."""
    most = max_blocks(showing, n_lines)
    if showing.width is None or most is None:
        return _unlimited(indices, showing)
    return corners(indices, most * (showing.width // (1 + GAP)) + 2)


def _unlimited(indices: Sequence[int], showing: Showing) -> Kept:
    large = len(indices) > LARGE and not showing.full
    return corners(indices, 2 * EDGE) if large else tuple(indices)


def screen_lines(showing: Showing) -> int | None:
    """The lines one matrix may take; None = unlimited."""
    if showing.full or showing.height is None:
        return None
    return max(showing.height - MARGIN, FEWEST_LINES)


def max_blocks(showing: Showing, n_lines: int) -> int | None:
    """How many column blocks of so many lines the screen holds, each with a blank line before."""
    lines = screen_lines(showing)
    if lines is None:
        return None
    return max(1, (lines + 1) // (n_lines + 1))


def fit(widths: Sequence[int], last: int, room: int | None, most: int | None) -> Fit:
    """Which columns of these widths are shown, and in which blocks.

    last  the width of one more column at the end that is never left out (0 = none)
    room  cells beside the row labels; None = unlimited
    most  blocks there may be; None = unlimited

    >>> fit([6, 6, 6], 0, 16, 2)
    Fit(kept=(0, 1, 2), blocks=(range(0, 2), range(2, 3)))
    >>> fit([6, 6, 6, 6], 0, 20, 1)
    Fit(kept=(0, None, 3), blocks=(range(0, 3),))
    """
    tail = [last] if last else []
    blocks = _pack([*widths, *tail], room)
    if room is None or most is None or len(blocks) <= most or len(widths) < 2:
        return Fit(tuple(range(len(widths))), blocks)
    left, right = _ends(widths, room - sum(width + GAP for width in (1, *tail)))
    kept = (*range(left), None, *range(len(widths) - right, len(widths)))
    kept_widths = [1 if at is None else widths[at] for at in kept]
    return Fit(kept, _pack([*kept_widths, *tail], room))  # one block, if not a very narrow screen


class Fit(NamedTuple):
    """Which columns are kept, and the blocks the kept (and the last one) are printed in."""

    kept: Kept
    blocks: tuple[range, ...]


def _pack(widths: Sequence[int], room: int | None) -> tuple[range, ...]:
    """As few blocks as fit into the room, at least one column each."""
    starts, used = [0], 0
    for at, width in enumerate(widths):
        used += width + GAP
        if room is not None and used > room and at > starts[-1]:
            starts.append(at)
            used = width + GAP
    return tuple(map(range, starts, [*starts[1:], len(widths)]))


def _ends(widths: Sequence[int], room: int) -> tuple[int, int]:
    """How many columns from the left and from the right fit side by side, at least one in all."""
    left, right = 1, 0
    used = widths[0] + GAP
    while left + right < len(widths) - 1:
        take_left = left <= right
        used += GAP + (widths[left] if take_left else widths[-1 - right])
        if used > room:
            break
        left, right = (left + 1, right) if take_left else (left, right + 1)
    return left, right
