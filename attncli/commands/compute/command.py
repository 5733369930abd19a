"""attncli compute: Q, K, V → every stage, or, where that is too much, what is asked for alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from attncli.cli.extensions import Call, extended
from attncli.cli.groups import check_flags, of_lse
from attncli.cli.inputs import AttentionInputs, read_inputs
from attncli.cli.options import ConventionFlags, DisplayFlags, InputFlags
from attncli.cli.output import note, present
from attncli.cli.traces import computed, names_of_queries
from attncli.commands.compute.flags import ExerciseFlags
from attncli.errors import ConventionError
from attncli.files.messages import quote
from attncli.page.text import find
from attncli.stages import LSE
from attncli.trace import Trace


@dataclass(frozen=True, kw_only=True)
class ComputeCall(Call):
    """A call of compute, as its extensions see it."""

    command: ClassVar[str] = "compute"
    inputs: InputFlags
    choices: ConventionFlags
    show: DisplayFlags
    is_drawn: bool = False

    @property
    def groups(self) -> tuple[Any, ...]:
        """What its flags say, but for what is shown."""
        return self.inputs, self.choices, *self.extensions

    def again(self, inputs: InputFlags, choices: ConventionFlags, *extensions: Any) -> ComputeCall:
        """The same call with other groups, and with every stage whole."""
        show = replace(self.show, full=True, stage=None, rows=None)
        return replace(self, inputs=inputs, choices=choices, show=show, extensions=extensions)

    def beside(self, other: ComputeCall) -> list[Trace]:
        """The traces of two calls, whose notes are said once."""
        traces, notes = list[Trace](), list[str]()
        for call in (self, other):
            if call.program is not None:
                quiet = call.show.quiet
                traces.append(call.program.trace(call.inputs, call.choices, quiet=quiet)[0])
                continue
            inputs = _read(call)
            note(*(text for text in inputs.notes if text not in notes), quiet=call.show.quiet)
            notes += inputs.notes
            traces.append(computed(inputs, call.show)[0])
        return traces


def compute(
    inputs: InputFlags,
    choices: ConventionFlags,
    exercise: ExerciseFlags,
    show: DisplayFlags,
    *extensions: Any,
) -> int | None:
    """Computes what the flags ask for, and shows it, unless an extension does something else."""
    name, values, is_drawn = "", list[float](), exercise.random is not None
    if exercise.sweep is not None or is_drawn:
        from attncli.commands.compute.drawn import WIDTHS, draw, of_widths, swept

        name, values = swept(exercise, choices)
        if name == WIDTHS:
            present(of_widths(values, exercise, inputs, choices, show), show)
            return None
        inputs = draw(inputs, choices, exercise)
    call = extended(
        ComputeCall(
            inputs=inputs, choices=choices, show=show, is_drawn=is_drawn, extensions=extensions
        )
    )
    if isinstance(call, int):
        return call
    if call.program is not None:
        trace, stdin_used = call.program.trace(inputs, choices, quiet=show.quiet, show=show)
        present(trace, show, stdin_used=stdin_used)
        return None
    source = _read(call)
    note(*source.notes, quiet=show.quiet)
    if name:
        from attncli.commands.compute.drawn import of_knob

        row = None if show.query is None else find(names_of_queries(source), "query", show.query)
        present(of_knob(name, values, source, row), replace(show, query=None))
        return None
    trace, choice = computed(source, show)
    if choices.semantics is not None:
        trace = replace(trace, title=choices.named(trace.title))
    present(trace, choice, stdin_used=source.stdin_used)
    return None


def _read(call: ComputeCall) -> AttentionInputs:
    """The inputs. ConventionError for a flag that has no effect on them."""
    inputs, choices, show = call.inputs, call.choices, call.show
    if inputs.q is not None and inputs.source is not None:
        problem = f"both {quote(inputs.source)} and --q are given"
        raise ConventionError(problem, "leave one of the two out")
    inputs.q = inputs.source if inputs.q is None else inputs.q
    source = read_inputs(inputs, choices)
    in_parts = inputs.tiles is not None or inputs.split is not None
    facts = source.facts | ({"dropout"} if call.is_drawn else set())  # both have a seed
    if in_parts or show.stage:
        facts |= of_lse([*(show.stage or ()), *[LSE] * in_parts])
    check_flags([inputs, choices], facts=facts)
    return source
