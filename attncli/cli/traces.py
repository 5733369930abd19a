"""The trace of inputs, as a call has them: every stage, or, where that is too much, a part of them.

the output is all that is asked for   streamed, block by block
all stages fit into memory            attend
they do not                           attend, for the rows that are shown
"""

from __future__ import annotations

import math
from dataclasses import replace

from attncli.arrays import Array
from attncli.attention.inputs import Inputs
from attncli.budget import SURELY_FITS, check_free, is_free, is_limited
from attncli.cli.options import DisplayFlags, InputFlags
from attncli.cli.output import note, progress_bar
from attncli.cli.parsing import cell_of, rows_of, whole_numbers
from attncli.errors import ConventionError, ShapeError
from attncli.formats import PAGE
from attncli.page.text import find
from attncli.stages import GIVEN_GRADIENT, OUTPUT, QKV, SCORES, gradient_of, spec_of
from attncli.trace import Trace

_WORTH_STREAMING = 1 << 22  # scores; of fewer, all stages are there in no time
_ROWS = 16  # shown of a matrix too large to compute, where no rows are named
_FEWER = "give fewer queries, heads or batch items, or --dtype float32"
_WHOLE_GRADIENTS = "gradients are sums over all queries, whose stages need"
_FEWER_OF_GRADIENTS = "ask for those of q, k, v, x and weights alone, or give fewer queries"
_ADVICE = "name some with --rows A:B, or ask for the output alone with --stage output"


def computed(
    attention: Inputs, show: DisplayFlags, flags: InputFlags
) -> tuple[Trace, DisplayFlags]:
    """The trace of what is asked for, from x to heads side by side, and what is left to choose."""
    shape, convention = attention.sizes.scores, attention.convention
    if flags.tiles is not None or flags.split is not None:
        return _in_parts(attention, show, flags), show
    streams = math.prod(shape) > _WORTH_STREAMING and _is_output_alone(attention, show)
    if math.prod(shape) <= SURELY_FITS and not streams:
        return attention.trace(), show
    from attncli.attention import memory
    from attncli.cli.output_size import check_text

    if streams:
        need = f"the output of {shape[-2]} queries needs"
        check_free(memory.of_streaming(attention), need, _FEWER)
        return attention.trace_of({OUTPUT: _streamed(attention, show)}), show
    check_text(show, attention.maps)
    if is_free(_need(attention, show)):
        return attention.trace(), show
    rows, selection, hint = None, show, _FEWER
    if GIVEN_GRADIENT in attention.originals:
        if any(spec_of(name).heading for name in show.stage or ()):
            if _are_streamed(attention, show):
                return _streamed_gradients(attention, show), show
            check_free(_need(attention, show), _WHOLE_GRADIENTS, _FEWER_OF_GRADIENTS)
            return attention.trace(), show
        attention = _without_gradients(attention, quiet=show.quiet)
    # With dropout, or with softmax over queries, no row can be computed alone.
    if not convention.dropout and convention.softmax_over == "keys":
        rows, selection = _rows(attention, show)
        shape, hint = (*shape[:-2], len(rows), shape[-1]), _ADVICE
        attention = attention.of_rows(rows)
    need = f"the stages of {' × '.join(map(str, shape))} scores need"
    check_free(_need(attention, selection), need, hint)
    n_q = attention.sizes.scores[-2]
    text = f"too large for memory at once: {shape[-2]} of {n_q} queries computed"
    note(f"{text}; {_ADVICE}", quiet=show.quiet or bool(show.rows) or len(rows or ()) == 1)
    return attention.trace(), selection


def every_stage(attention: Inputs, *, quiet: bool) -> Trace:
    """The trace of all stages, without gradients where these are too large.

    SizeError where the stages do not fit into memory.
    """
    shape, show = attention.sizes.scores, DisplayFlags(full=True)
    if math.prod(shape) > SURELY_FITS and not is_free(_need(attention, show)):
        if GIVEN_GRADIENT in attention.originals:
            attention = _without_gradients(attention, quiet=quiet)
        need = f"the stages of {' × '.join(map(str, shape))} scores need"
        check_free(_need(attention, show), need, _ADVICE)
    return attention.trace()


def _without_gradients(attention: Inputs, *, quiet: bool) -> Inputs:
    """The inputs without the gradient of the output, which a note says."""
    note(f"no gradients: {_WHOLE_GRADIENTS} more than is allowed", quiet=quiet)
    return attention.without(GIVEN_GRADIENT)


def _in_parts(attention: Inputs, show: DisplayFlags, flags: InputFlags) -> Trace:
    """The trace of --tiles or --split. SizeError where it does not fit into memory."""
    from attncli.attention import memory
    from attncli.attention.tiles import (
        split_bounds,
        split_steps,
        tile_bounds,
        tile_steps,
        trace_in_splits,
        trace_in_tiles,
    )
    from attncli.cli.output_size import check_text

    shape = attention.sizes.scores
    if GIVEN_GRADIENT in attention.originals and flags.d_output is None:
        note("the gradient in the file is not used: parts of the keys have none", quiet=show.quiet)
        attention = attention.without(GIVEN_GRADIENT)
    places = whole_numbers(flags.split, "--split", "A,B,…, such as 2,5") if flags.split else []
    if flags.tiles is None:
        bounds = split_bounds(shape[-1], places)
    else:
        bounds = tile_bounds(shape[-1], flags.tiles)
    check_text(show, [] if show.stage else attention.maps)
    steps_of = split_steps if flags.tiles is None else tile_steps
    need = memory.of_parts(attention, steps_of, len(bounds) - 1)
    purpose = f"the stages of {len(bounds) - 1} parts of the keys need"
    check_free(need, purpose, "give larger parts, or fewer queries or heads")
    if flags.tiles is None:
        return trace_in_splits(attention, places)
    return trace_in_tiles(attention, flags.tiles)


def _need(attention: Inputs, show: DisplayFlags) -> int:
    """Bytes of all stages, and of writing them."""
    from attncli.attention.memory import of_attention
    from attncli.cli.output_size import of_output

    maps = dict(attention.maps)
    shape = maps[SCORES]
    return of_attention(attention) + of_output(show, shape, masked="mask" in maps, weights=True)


def _is_output_alone(attention: Inputs, show: DisplayFlags) -> bool:
    """Whether nothing but the output is asked for, and it can be streamed."""
    last = {OUTPUT, *attention.last}
    names = set(show.stage or (last if show.form.one_stage else ()))
    if not names or names - last or show.work or show.cell or show.query:
        return False
    return _can_be_streamed(attention)


def _can_be_streamed(attention: Inputs) -> bool:
    from attncli.attention.streaming import check_streams

    if "sinks" in attention.originals:
        return False
    try:
        check_streams(attention.convention)
    except ConventionError:
        return False
    return True


def _streamed(attention: Inputs, show: DisplayFlags) -> Array:
    from attncli.attention.streaming import streamed

    with progress_bar("blocks of queries", quiet=show.quiet) as progress:
        return streamed(attention, n_threads=1 if is_limited() else None, progress=progress)


def _are_streamed(attention: Inputs, show: DisplayFlags) -> bool:
    """Whether the gradients asked for are those of q, k and v and what they are made of alone."""
    gradients = {*map(gradient_of, QKV), *attention.gradients_around}
    if {*(show.stage or ())} - gradients or show.work or show.cell or show.query:
        return False
    return _can_be_streamed(attention)


def _streamed_gradients(attention: Inputs, show: DisplayFlags) -> Trace:
    from attncli.attention import memory
    from attncli.attention.stream_gradients import streamed_gradients

    names = {*(show.stage or ())}
    shape = attention.sizes.scores
    need = memory.of_stream_gradients(attention)
    check_free(need, f"the gradients of {shape[-2]} queries need", _FEWER)
    with progress_bar("heads", quiet=show.quiet) as progress:
        n_threads, d = 1 if is_limited() else None, attention.d_output
        values = streamed_gradients(attention, d, n_threads=n_threads, progress=progress)
    if around := names & {*attention.gradients_around}:
        of_w_o = gradient_of("w_o") in names
        output = {OUTPUT: _streamed(attention, show)} if of_w_o else {}
        values |= attention.run(around, **values, **output)
    return attention.trace_of(values)


def _rows(attention: Inputs, show: DisplayFlags) -> tuple[list[int], DisplayFlags]:
    """The queries to compute, and the flags that choose from what is computed of them."""
    n_q, names = attention.sizes.scores[-2], {*(show.stage or ())}
    inputs = {name for name in names if spec_of(name).role in ("operand", "parameter")} - {"q"}
    if inputs and inputs == names:
        return [0], show
    if inputs and show.rows is not None:
        problem = f"the rows of {', '.join(sorted(inputs))} are not those of the queries"
        raise ShapeError(problem, "ask for it by itself")
    if show.cell is not None:
        query, key = cell_of(show.cell)
        return [find(attention.query_names, "query", query)], replace(show, cell=f"1,{key}")
    if show.query is not None:
        return [find(attention.query_names, "query", show.query)], replace(show, query="1")
    if show.rows is None and show.form.holds == PAGE and not show.full:
        return sorted({*range(n_q)[: _ROWS // 2], *range(n_q)[-_ROWS // 2 :]}), show
    rows = slice(None) if show.rows is None else rows_of(show.rows, n_q)
    return list(range(n_q)[rows]), replace(show, rows=None)
