"""attncli compute: Q, K, V → every stage, or, where that is too much, what is asked for alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attncli.cli.extensions import Program
from attncli.cli.groups import check_flags, of_lse
from attncli.cli.options import ConventionFlags, DisplayFlags, InputFlags
from attncli.cli.output import note
from attncli.cli.results import Result, TraceResult
from attncli.cli.traces import computed
from attncli.commands.compute.flags import ExerciseFlags
from attncli.errors import ConventionError
from attncli.files.inputs import Reading, read
from attncli.files.messages import quote
from attncli.page.text import find
from attncli.stages import LSE


def compute(
    inputs: InputFlags,
    choices: ConventionFlags,
    exercise: ExerciseFlags,
    show: DisplayFlags,
    program: Program | None = None,
) -> Result:
    """The trace that the flags ask for, by the formulas of `program` where there are some; with
    --seeds one for each seed."""
    if exercise.seeds is not None:
        from attncli.commands.compute.sheets import SheetsResult, seeds_of

        def of_seed(seed: int) -> TraceResult:
            field: Any = {"seed": str(seed)}
            of_one = replace(exercise, seeds=None), show, program
            result = compute(replace(inputs), replace(choices, **field), *of_one)
            assert isinstance(result, TraceResult)  # noqa: S101 - as it is without --seeds
            return result

        return SheetsResult(seeds=seeds_of(exercise.seeds), of_seed=of_seed, show=show)
    name, values, is_drawn = "", list[float](), exercise.random is not None
    if exercise.sweep is not None or is_drawn:
        from attncli.commands.compute.drawn import WIDTHS, draw, of_knob, of_widths, swept

        name, values = swept(exercise, choices)
        if name == WIDTHS:
            trace = of_widths(values, exercise, inputs, choices, show)
            return TraceResult(trace=trace, show=show)
        inputs = draw(inputs, choices, exercise)
    if program is not None:
        trace, stdin_used = program.trace(inputs, choices, quiet=show.quiet, show=show)
        return TraceResult(trace=trace, show=show, stdin_used=stdin_used)
    reading = _read(inputs, choices, show, is_drawn=is_drawn)
    attention = reading.inputs
    note(*attention.notes, quiet=show.quiet)
    if name:
        row = None if show.query is None else find(attention.query_names, "query", show.query)
        trace = of_knob(name, values, attention, row)
        return TraceResult(trace=trace, show=replace(show, query=None))
    trace, choice = computed(attention, show, inputs)
    if choices.semantics is not None:
        trace = replace(trace, title=choices.named(trace.title))
    return TraceResult(trace=trace, show=choice, stdin_used=reading.sources.reads_stdin)


def _read(
    inputs: InputFlags, choices: ConventionFlags, show: DisplayFlags, *, is_drawn: bool
) -> Reading:
    """The inputs. ConventionError for a flag that has no effect on them."""
    if inputs.q is not None and inputs.source is not None:
        problem = f"both {quote(inputs.source)} and --q are given"
        raise ConventionError(problem, "leave one of the two out")
    inputs.q = inputs.source if inputs.q is None else inputs.q
    reading = read(inputs.sources(choices))
    in_parts = inputs.tiles is not None or inputs.split is not None
    facts = reading.facts | ({"dropout"} if is_drawn else set())  # both have a seed
    if in_parts or show.stage:
        facts |= of_lse([*(show.stage or ()), *[LSE] * in_parts])
    check_flags([inputs, choices], facts=facts)
    return reading
