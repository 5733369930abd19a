"""attncli semantics: what each library means by attention, and where they differ on an input."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from attncli.attention.memory import of_attention
from attncli.budget import FLOAT, check_free
from attncli.cli.groups import check_flags, given_of
from attncli.cli.inputs import read_inputs
from attncli.cli.options import ConventionFlags, DisplayFlags, InputFlags
from attncli.cli.output import note, present
from attncli.commands.semantics.flags import SemanticsFlags
from attncli.commands.semantics.outcomes import outcomes
from attncli.commands.semantics.page import library_page, outcomes_page, porting_page
from attncli.commands.semantics.port_code import Call
from attncli.commands.semantics.porting import recipe
from attncli.commands.semantics.tables import APART, of_input, of_one, of_two, table
from attncli.convention import flag_of
from attncli.errors import ConventionError
from attncli.files.load import load
from attncli.files.lookup import only
from attncli.formats import FIGURE, PAGE
from attncli.page.page import parts
from attncli.presets import PRESETS, kind_of_mask

_AS_GIVEN = "torch-sdpa"  # with its semantics a mask is read as it is: what it means is not asked
_NUMBERS = ("rows", "cols", "precision")  # say how numbers are shown, and the page holds words


def semantics(
    libraries: SemanticsFlags, inputs: InputFlags, choices: ConventionFlags, show: DisplayFlags
) -> None:
    """Shows the table, one library, two libraries, or what they give for an input."""
    names = libraries.names or []
    for message, hint in _contradictions(names, inputs, choices, show):
        raise ConventionError(message, hint)
    if _has_input(inputs):
        _of_input(inputs, choices, show)
    elif not names:
        present(table(), show, page=parts)
    elif len(names) == 1:
        present(of_one(names[0]), show, page=library_page)
    else:
        first, second = names
        call = None
        if inputs.mask is not None or choices.fields:
            mask = None if inputs.mask is None else only(load(inputs.mask, role="mask"), "mask")
            call = Call(kind_of_mask(mask), causal="causal" in choices.fields)
        steps = recipe(first, second, call)
        present(of_two(steps), show, page=porting_page(steps))


def _has_input(inputs: InputFlags) -> bool:
    return any(source is not None for source in (inputs.q, inputs.x, inputs.weights))


def _contradictions(
    names: list[str], inputs: InputFlags, choices: ConventionFlags, show: DisplayFlags
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
    for flag in given_of(inputs, "mask") | given_of(choices, "causal") if len(names) < 2 else ():
        yield f"{flag_of(flag)} has no effect without --q", "add --q SOURCE, or leave it out"


def _of_input(inputs: InputFlags, choices: ConventionFlags, show: DisplayFlags) -> None:
    source = read_inputs(inputs, replace(choices, semantics=_AS_GIVEN))
    check_flags([inputs, choices], facts=source.facts)
    note(*source.notes, quiet=show.quiet)
    of_outputs = len(PRESETS) * math.prod(source.inputs.output_shape) * FLOAT
    need = of_attention(source.inputs) + of_outputs
    check_free(need, "the outputs of all libraries need", "give fewer queries or heads")
    arguments = source.arguments
    defaults = PRESETS[_AS_GIVEN].fields.items() - choices.fields.items()
    fields = dict(arguments.pop("convention").changes().items() - defaults)
    results = outcomes(**arguments, fields=fields)
    if show.form.holds == FIGURE and not show.stage:
        show = replace(show, stage=[APART])
    trace = of_input(results, source.labels["query_labels"])
    present(trace, show, stdin_used=source.stdin_used, page=outcomes_page(results))
