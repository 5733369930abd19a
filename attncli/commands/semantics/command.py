"""attncli semantics: what each library means by attention, and where they differ on an input."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from attncli.attention.memory import of_attention
from attncli.budget import FLOAT, check_free
from attncli.cli.groups import check_flags, given_of
from attncli.cli.options import ConventionFlags, DisplayFlags, InputFlags
from attncli.cli.output import note
from attncli.cli.results import TraceResult
from attncli.commands.semantics.flags import SemanticsFlags
from attncli.commands.semantics.outcomes import outcomes
from attncli.commands.semantics.page import library_page, outcomes_page, two_libraries_page
from attncli.commands.semantics.tables import APART, of_input, of_one, of_two, table
from attncli.errors import ConventionError
from attncli.files.inputs import read
from attncli.formats import FIGURE, PAGE
from attncli.presets import PRESETS

_AS_GIVEN = "torch-sdpa"  # with its semantics a mask is read as it is: what it means is not asked
_NUMBERS = ("rows", "cols", "precision")  # say how numbers are shown, and the page holds words


def semantics(
    libraries: SemanticsFlags, inputs: InputFlags, choices: ConventionFlags, show: DisplayFlags
) -> TraceResult:
    """The table, one library, two libraries, or what they give for an input."""
    names = libraries.names or []
    for message, hint in _contradictions(names, inputs, show):
        raise ConventionError(message, hint)
    if _has_input(inputs):
        return _of_input(inputs, choices, show)
    if not names:
        return TraceResult(trace=table(), show=show)
    if len(names) == 1:
        return TraceResult(trace=of_one(names[0]), show=show, page=library_page)
    return TraceResult(trace=of_two(*names), show=show, page=two_libraries_page(*names))


def _has_input(inputs: InputFlags) -> bool:
    return any(source is not None for source in (inputs.q, inputs.x, inputs.weights))


def _contradictions(
    names: list[str], inputs: InputFlags, show: DisplayFlags
) -> Iterator[tuple[str, str]]:
    """What is wrong with the names and flags together, and how to mend it."""
    form = show.form
    if form.name == "mermaid":
        yield "a flowchart shows steps, not words", "use another --format"
    if len(names) > 2:
        yield f"{len(names)} libraries are named", "name one, or two to compare"
    if len(names) != len({*names}):
        yield f"{names[0]} is named twice", "name one, or two to compare"
    if _has_input(inputs):
        hint = "leave one of the two out: an input is shown for all libraries"
        yield from [(f"both {names[0]} and an input are given", hint)] if names else []
        for name in given_of(show, *_NUMBERS) if form.holds == PAGE and not show.stage else ():
            yield f"--{name} has no effect without --stage", f"add --stage {APART}"
        return
    if form.holds == FIGURE:
        yield "a figure shows numbers, not words", "use another --format"


def _of_input(inputs: InputFlags, choices: ConventionFlags, show: DisplayFlags) -> TraceResult:
    reading = read(inputs.sources(replace(choices, semantics=_AS_GIVEN)))
    attention = reading.inputs
    check_flags([inputs, choices], facts=reading.facts)
    note(*attention.notes, quiet=show.quiet)
    of_outputs = len(PRESETS) * math.prod(attention.output_shape) * FLOAT
    need = of_attention(attention) + of_outputs
    check_free(need, "the outputs of all libraries need", "give fewer queries or heads")
    arguments = attention.keywords
    defaults = PRESETS[_AS_GIVEN].fields.items() - choices.fields.items()
    fields = dict(arguments.pop("convention").changes().items() - defaults)
    results = outcomes(**arguments, fields=fields)
    if show.form.holds == FIGURE and not show.stage:
        show = replace(show, stage=[APART])
    trace = of_input(results, attention.labels["query"])
    return TraceResult(
        trace=trace, show=show, stdin_used=reading.sources.reads_stdin, page=outcomes_page(results)
    )
