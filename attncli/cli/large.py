"""How much is computed: every stage, or, where that is too much, what is asked for alone.

the output is all that is asked for   streamed, block by block
all stages fit into memory            attend
they do not                           attend, for the rows that are shown
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from attncli.cli.memory import check_fits, check_json, fits
from attncli.cli.options import Show
from attncli.cli.parsing import cell_of, slice_of
from attncli.cli.present import format_of
from attncli.cli.remarks import remark
from attncli.errors import ConventionError, ShapeError
from attncli.trace import Trace

if TYPE_CHECKING:
    from attncli.cli.inputs import Gathered

_WORTH_STREAMING = 1 << 22  # scores; of fewer, all stages are there in no time
_ROWS = 16  # shown of a matrix too large to compute, where nobody says which
_ADVICE = "name some with --rows A:B, or ask for the output alone with --stage output"


def computed(given: Gathered, show: Show) -> tuple[Trace, Show]:
    """The trace of what is asked for, and what is left to choose from it.

    Raises SizeError where even that does not fit into memory.
    """
    from attncli.attention.attend import attend

    shape, how = given.score_shape, given.convention
    if _is_output_alone(given, show):
        return _streamed(given, show), show
    if format_of(show) == "json" and not (show.stage or show.rows or show.head or show.batch):
        check_json(2 * math.prod(shape))  # the scores and the weights, at least
    if fits(shape, how):
        return attend(**given.arguments, **given.labels), show
    if how.dropout or how.softmax_over == "queries":
        check_fits(shape, how)  # no row stands alone
    rows, shown = _rows(given, show)
    check_fits((*shape[:-2], len(rows), shape[-1]), how, _ADVICE)
    text = f"too large for memory at once: {len(rows)} of {shape[-2]} queries computed; {_ADVICE}"
    remark(text, quiet=show.quiet or bool(show.rows or show.cell))
    return attend(**given.arguments, **given.labels, rows=rows), shown


def _is_output_alone(given: Gathered, show: Show) -> bool:
    """Whether nothing but the output is asked for, and streaming it is possible and pays."""
    last = {"output", "concat"} if given.in_heads else {"output"}
    wishes = set(show.stage or (last if format_of(show) == "npy" else ()))
    if not wishes or wishes - last or show.work or show.cell:
        return False
    if math.prod(given.score_shape) < _WORTH_STREAMING:
        return False
    from attncli.attention.streaming import check_streams

    try:
        check_streams(given.convention)
    except ConventionError:
        return False
    return True


def _streamed(given: Gathered, show: Show) -> Trace:
    from attncli.attention.attend import Block, title_of, trace_of
    from attncli.attention.run import Sizes, Step
    from attncli.attention.streaming import stream
    from attncli.cli.progress import progress_bar

    with progress_bar("blocks of queries", quiet=show.quiet) as progress:
        output = stream(**given.arguments, progress=progress)
    n_kv_heads = given.k.shape[-3] if given.k.ndim > 2 else 1
    sizes = Sizes(given.score_shape, n_kv_heads, given.q.shape[-1])
    block = Block(title_of(sizes, given.convention), given.convention, given.token_names)
    step = Step("output", stream, {}, formula="O = A V")
    return trace_of([step], {"output": output}, {"": block})


def _rows(given: Gathered, show: Show) -> tuple[list[int], Show]:
    """The queries to compute, and the flags that choose from what is computed of them."""
    n_q = given.q.shape[-2]
    names = given.query_labels or tuple(f"q{row + 1}" for row in range(n_q))
    cell = cell_of(show.cell)
    if cell is not None:
        row = _row_of(cell[0], names)
        return [row], replace(show, cell=f"1,{cell[1]}")
    if show.rows is None and format_of(show) in {"table", "markdown"} and not show.full:
        return sorted({*range(n_q)[: _ROWS // 2], *range(n_q)[-_ROWS // 2 :]}), show
    rows = list(range(n_q)[slice(*slice_of(show.rows, "--rows"))])
    if not rows:
        raise ShapeError(f"there are no rows {show.rows}", f"there are {n_q} queries")
    return rows, replace(show, rows=None)


def _row_of(wish: str, names: tuple[str, ...]) -> int:
    """The query that --cell names, by its label or its number from 1."""
    if wish in names:
        return names.index(wish)
    if wish.isdecimal() and 1 <= int(wish) <= len(names):
        return int(wish) - 1
    raise ShapeError(f"there is no query {wish!r}", f"use a number from 1 to {len(names)}")
