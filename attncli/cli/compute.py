"""attncli compute: Q, K, V → every stage, or, where that is too much, what is asked for alone.

the output is all that is asked for   streamed, block by block
all stages fit into memory            attend
they do not                           attend, for the rows that are shown
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

from attncli.attention.attend import Block, attend, title_of, trace_of, with_concat
from attncli.attention.plan import Sizes, plan
from attncli.attention.run import Step
from attncli.budget import is_limited
from attncli.cli.commands import Against, Drawn
from attncli.cli.effects import check_facts, of_lse
from attncli.cli.inputs import AttentionInputs, read_inputs
from attncli.cli.options import Choices, DisplayFlags, Inputs
from attncli.cli.output import check_flags, form_of, note, present
from attncli.cli.parsing import cell_of, rows_of, whole_numbers
from attncli.errors import ConventionError, ShapeError
from attncli.files.messages import quote
from attncli.files.roles import D_OUTPUT
from attncli.stages import CONCAT, GIVEN_GRADIENT, LSE, OUTPUT, QKV, gradient_of, kind_of
from attncli.trace import Trace
from attncli.views.formats import PAGE
from attncli.views.select import check_written
from attncli.views.text import find

_WORTH_STREAMING = 1 << 22  # scores; of fewer, all stages are there in no time
_SURELY_FITS = 1 << 16  # scores, in any memory
_ROWS = 16  # shown of a matrix too large to compute, where no rows are named
_TEXTS = ("json", "csv", "tsv")  # forms that hold every number as text
_FEWER = "give fewer queries, heads or batch items, or --dtype float32"
_WHOLE_GRADIENTS = "gradients are sums over all queries, whose stages need"
_FEWER_OF_GRADIENTS = "ask for those of q, k, v, x and weights alone, or give fewer queries"
_ADVICE = "name some with --rows A:B, or ask for the output alone with --stage output"


def compute(
    inputs: Inputs,
    choices: Choices,
    drawn: Drawn,
    show: DisplayFlags,
    against: Against | None = None,
) -> int | None:
    """Computes what the flags ask for, and shows it; or compares it with other flags."""
    check_flags(show)
    name, values = "", list[float]()
    if drawn.sweep is not None or drawn.random is not None:
        from attncli.cli.drawn import WIDTHS, draw, of_widths, swept

        name, values = swept(drawn, choices)
        if name == WIDTHS:
            present(of_widths(values, drawn, inputs, choices, show), show)
            return None
        inputs = draw(inputs, choices, drawn)
    if against is not None and against.against is not None:
        return _compared(inputs, choices, show, against.against, is_drawn=drawn.random is not None)
    given = _read(inputs, choices, show, is_drawn=drawn.random is not None)
    note(*given.notes, quiet=show.quiet)
    if name:
        from attncli.cli.drawn import of_knob

        row = None if show.query is None else find(_names(given), "query", show.query)
        present(of_knob(name, values, given, row), replace(show, query=None))
        return None
    trace, shown = computed(given, show)
    trace = replace(trace, title=choices.named(trace.title))
    present(trace, shown, stdin_used=given.stdin_used)
    return None


def _compared(
    inputs: Inputs, choices: Choices, show: DisplayFlags, options: str, *, is_drawn: bool
) -> int:
    """The call beside itself with further options; the exit code."""
    from attncli.cli.against import compared, further

    others = further("compute", options, show, inputs, choices)
    whole = replace(show, full=True, stage=None, rows=None)
    calls: list[AttentionInputs] = []
    for own, knobs in ((inputs, choices), others):
        given = _read(own, knobs, whole, is_drawn=is_drawn)
        earlier = calls[0].notes if calls else ()
        note(*(text for text in given.notes if text not in earlier), quiet=show.quiet)
        calls.append(given)
    return compared([computed(given, whole)[0] for given in calls], options, show)


def _read(
    inputs: Inputs, choices: Choices, show: DisplayFlags, *, is_drawn: bool
) -> AttentionInputs:
    """The inputs. ConventionError for a flag that has no effect on them."""
    if inputs.q is not None and inputs.source is not None:
        what = f"both {quote(inputs.source)} and --q are given"
        raise ConventionError(what, "leave one of the two out")
    inputs.q = inputs.source if inputs.q is None else inputs.q
    given = read_inputs(inputs, choices)
    in_parts = inputs.tiles is not None or inputs.split is not None
    facts = given.facts | ({"dropout"} if is_drawn else set())  # both have a seed
    check_facts([inputs, choices], facts | of_lse([*(show.stage or ()), *[LSE] * in_parts]))
    return given


def computed(given: AttentionInputs, show: DisplayFlags) -> tuple[Trace, DisplayFlags]:
    """The trace of what is asked for, from x to heads side by side, and what is left to choose."""
    trace, shown = _attention(given, show)
    if OUTPUT not in trace:  # gradients alone
        return trace, shown
    if given.projected is not None:
        trace = given.projected.around(trace)
    elif given.in_heads:
        trace = with_concat(trace)
    return trace, shown


def _attention(given: AttentionInputs, show: DisplayFlags) -> tuple[Trace, DisplayFlags]:
    shape, how = given.score_shape, given.arguments["convention"]
    if given.inputs.tiles is not None or given.inputs.split is not None:
        return _in_parts(given, quiet=show.quiet), show
    streams = math.prod(shape) > _WORTH_STREAMING and _is_output_alone(given, show)
    if math.prod(shape) <= _SURELY_FITS and not streams:
        return attend(**given.arguments, **given.labels), show
    from attncli.cli import memory

    if streams:
        what = f"the output of {shape[-2]} queries needs"
        memory.check_fits(memory.of_streaming(given.arguments, shape), what, _FEWER)
        return _streamed(given, show), show
    if form_of(show).name in _TEXTS and not (show.stage or show.rows or show.head or show.batch):
        check_written(2 * math.prod(shape))  # the scores and the weights, at least
    if memory.fits(_need(given, shape, show)):
        return attend(**given.arguments, **given.labels), show
    rows, shown, hint = None, show, _FEWER
    if D_OUTPUT in given.arguments:
        if any(kind_of(name).heading for name in show.stage or ()):
            if _are_streamed(given, show):
                return _streamed_gradients(given, show), show
            memory.check_fits(_need(given, shape, show), _WHOLE_GRADIENTS, _FEWER_OF_GRADIENTS)
            return attend(**given.arguments, **given.labels), show
        note(f"no gradients: {_WHOLE_GRADIENTS} more than is allowed", quiet=show.quiet)
        del given.arguments[D_OUTPUT]
    if not how.dropout and how.softmax_over == "keys":  # else no row can be computed alone
        rows, shown = _rows(given, show)
        shape, hint = (*shape[:-2], len(rows), shape[-1]), _ADVICE
    what = f"the stages of {' × '.join(map(str, shape))} scores need"
    memory.check_fits(_need(given, shape, shown), what, hint)
    text = f"too large for memory at once: {shape[-2]} of {given.score_shape[-2]} queries computed"
    note(f"{text}; {_ADVICE}", quiet=show.quiet or bool(show.rows) or len(rows or ()) == 1)
    return attend(**given.arguments, **given.labels, rows=rows), shown


def _in_parts(given: AttentionInputs, *, quiet: bool) -> Trace:
    """The trace of --tiles or --split. SizeError where it does not fit into memory."""
    from attncli.attention.split import attend_split, split_bounds
    from attncli.attention.tiles import attend_tiles, tile_bounds
    from attncli.cli import memory

    inputs, shape = given.inputs, given.score_shape
    if D_OUTPUT in given.arguments and inputs.d_output is None:
        note("the gradient in the file is not used: parts of the keys have none", quiet=quiet)
        del given.arguments[D_OUTPUT]
    places = inputs.split and whole_numbers(inputs.split, "--split", "A,B,…, such as 2,5")
    if inputs.tiles is None:
        bounds = split_bounds(shape[-1], places or [])
    else:
        bounds = tile_bounds(shape[-1], inputs.tiles)
    need = memory.of_parts(given.arguments, shape, len(bounds) - 1)
    what = f"the stages of {len(bounds) - 1} parts of the keys need"
    memory.check_fits(need, what, "give larger parts, or fewer queries or heads")
    if inputs.tiles is None:
        return attend_split(**given.arguments, **given.labels, split=places or [])
    return attend_tiles(**given.arguments, **given.labels, tiles=inputs.tiles)


def _need(given: AttentionInputs, shape: tuple[int, ...], show: DisplayFlags) -> int:
    """Bytes of the stages of scores of this shape, and of writing them."""
    from attncli.cli.memory import of_attention, of_output

    how = given.arguments["convention"]
    masks = (given.arguments.get(name) is not None for name in ("mask", "kv_len"))
    is_masked = how.causal or how.window is not None or any(masks)
    need = of_attention(given.arguments, shape)
    return need + of_output(show, shape, masked=is_masked, weights=True)


def _is_output_alone(given: AttentionInputs, show: DisplayFlags) -> bool:
    """Whether nothing but the output is asked for, and it can be streamed."""
    from attncli.attention.streaming import stream

    last = {OUTPUT, CONCAT} if given.in_heads else {OUTPUT}
    last |= set(given.projected.last) if given.projected else set()
    asked = set(show.stage or (last if form_of(show).one_stage else ()))
    if not asked or asked - last or show.work or show.cell or show.query:
        return False
    return _can_be(stream, given, besides={D_OUTPUT})


def _can_be(streamed: Callable[..., Any], given: AttentionInputs, besides: set[str]) -> bool:
    """Whether a function that streams takes these arguments, but those besides, and convention."""
    from attncli.attention.streaming import check_streams

    if given.arguments.keys() - signature(streamed).parameters.keys() - besides:
        return False
    try:
        check_streams(given.arguments["convention"])
    except ConventionError:
        return False
    return True


def _streamed(given: AttentionInputs, show: DisplayFlags) -> Trace:
    from attncli.attention.streaming import stream
    from attncli.cli.terminal import progress_bar

    with progress_bar("blocks of queries", quiet=show.quiet) as progress:
        n_threads = 1 if is_limited() else None
        arguments = {name: x for name, x in given.arguments.items() if name != D_OUTPUT}
        output = stream(**arguments, n_threads=n_threads, progress=progress)
    step = Step(OUTPUT, "", {}, formula="O = A V")
    return trace_of([step], {OUTPUT: output}, {"": _block(given)})


def _sizes(given: AttentionInputs) -> Sizes:
    q, k = given.arguments["q"], given.arguments["k"]
    names = {"q", "k", "v", GIVEN_GRADIENT}
    return Sizes(given.score_shape, k.shape[-3] if k.ndim > 2 else 1, q.shape[-1], given=names)


def _block(given: AttentionInputs) -> Block:
    names = {"query": given.labels["query_labels"], "key": given.labels["key_labels"]}
    how = given.arguments["convention"]
    return Block(title_of(_sizes(given), how), how, names)


def _are_streamed(given: AttentionInputs, show: DisplayFlags) -> bool:
    """Whether the gradients asked for are those of q, k and v and what they are made of alone."""
    from attncli.attention.stream_gradients import stream_gradients

    own = {gradient_of(name) for name in QKV}
    own |= {*given.projected.gradient_names} if given.projected else set()
    if {*(show.stage or ())} - own or show.work or show.cell or show.query:
        return False
    return _can_be(stream_gradients, given, besides=set())


def _streamed_gradients(given: AttentionInputs, show: DisplayFlags) -> Trace:
    from attncli.attention.stream_gradients import stream_gradients
    from attncli.cli import memory
    from attncli.cli.terminal import progress_bar

    made, asked = given.projected, {*(show.stage or ())}
    need = memory.of_stream_gradients(given.arguments, given.score_shape)
    need += memory.size_of(made.values.values(), memory.FLOAT) if made else 0
    memory.check_fits(need, f"the gradients of {given.score_shape[-2]} queries need", _FEWER)
    with progress_bar("heads", quiet=show.quiet) as progress:
        n_threads = 1 if is_limited() else None
        values = stream_gradients(**given.arguments, n_threads=n_threads, progress=progress)
    planned = plan(given.arguments["convention"], _sizes(given))
    if made is not None:
        of_w_o = gradient_of("w_o") in asked
        output = {OUTPUT: _streamed(given, show)[OUTPUT].value} if of_w_o else {}
        values |= made.gradients(asked & {*made.gradient_names}, values | output)
        planned += made.all_steps
    steps = [step._replace(reads={}, text="") for step in planned if step.name in values]
    return trace_of(steps, values, {"": _block(given)})


def _rows(given: AttentionInputs, show: DisplayFlags) -> tuple[list[int], DisplayFlags]:
    """The queries to compute, and the flags that choose from what is computed of them."""
    n_q, asked = given.score_shape[-2], {*(show.stage or ())}
    inputs = {name for name in asked if kind_of(name).role in ("operand", "parameter")} - {"q"}
    if inputs and inputs == asked:
        return [0], show
    if inputs and show.rows is not None:
        what = f"the rows of {', '.join(sorted(inputs))} are not those of the queries"
        raise ShapeError(what, "ask for it by itself")
    if show.cell is not None:
        query, key = cell_of(show.cell)
        return [find(_names(given), "query", query)], replace(show, cell=f"1,{key}")
    if show.query is not None:
        return [find(_names(given), "query", show.query)], replace(show, query="1")
    if show.rows is None and form_of(show).holds == PAGE and not show.full:
        return sorted({*range(n_q)[: _ROWS // 2], *range(n_q)[-_ROWS // 2 :]}), show
    rows = slice(None) if show.rows is None else rows_of(show.rows, n_q)
    return list(range(n_q)[rows]), replace(show, rows=None)


def _names(given: AttentionInputs) -> tuple[str, ...]:
    """What the queries are called."""
    names: tuple[str, ...] | None = given.labels["query_labels"]
    return names or tuple(f"q{row + 1}" for row in range(given.score_shape[-2]))
