"""--against: a call once more with further options, and the comparison of the two."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import typer

from attncli.cli.extensions import extended
from attncli.cli.groups import check_flags, given_of
from attncli.cli.options import DisplayFlags
from attncli.cli.registry import COMMANDS
from attncli.commands.diff.command import check_diff_flags, check_room, present_diff
from attncli.commands.diff.comparison import Comparison
from attncli.commands.diff.diff import diff
from attncli.convention import flag_of
from attncli.errors import ConventionError
from attncli.trace import Trace

OPTIONS = ("against", "against_order")
CALL = "this call"
"""What the call without the further options is called."""


def with_options(call: Any, options: str) -> int:
    """A call beside itself with further options; the exit code."""
    groups = further(call.command, options, call.show, *call.groups)
    try:
        other = call.again(*groups)
    except ConventionError as error:
        raise ConventionError(f"--against {options!r}: {error.message}", error.hint) from None
    return compared(_both(call, other), options, call.show)


def in_order(call: Any, sentence: str) -> int:
    """A sentence beside its words in another order, matched by word; the exit code."""
    check_diff_flags(call.show)
    other = call.reordered(sentence)
    return compared(_both(call, other), repr(sentence), call.show, by_name=True)


def _both(call: Any, other: Any) -> list[Trace]:
    """The traces of a call, with every stage whole, and of another one."""
    first, second = map(extended, (call.again(*call.groups), other))
    assert not isinstance(first, int)  # noqa: S101 - only what is before --against answers a call
    traces: list[Trace] = first.beside(second)
    return traces


def further(command: str, options: str, show: DisplayFlags, *groups: Any) -> list[Any]:
    """The option groups of a call with further options; one that is given in both is replaced."""
    check_diff_flags(show)
    values = _parsed(command, options)
    of_display = [x for x in (*(x.name for x in fields(DisplayFlags)), *OPTIONS) if x in values]
    if of_display:
        problem = f"--against {options!r} changes what is shown"
        raise ConventionError(problem, f"write {flag_of(of_display[0])} outside of it")
    try:
        others = [
            replace(group, **{x.name: values[x.name] for x in fields(group) if x.name in values})
            for group in groups
        ]
        row = COMMANDS[command]
        every = [*others, replace(show, stage=None)]
        every.sort(key=lambda group: row.ordered.index(type(group)))
        check_flags(every, row.needs)
    except ConventionError as error:  # a text that is not understood, or a flag without effect
        raise ConventionError(f"--against {options!r}: {error.message}", error.hint) from None
    for group in others:
        if any(str(value).split("::")[0] == "-" for value in given_of(group).values()):
            problem = "standard input can be read only once, and --against computes twice"
            raise ConventionError(problem, "save it to a file")
    return others


def _parsed(command: str, options: str) -> dict[str, Any]:
    """The options that are given in a text, as the command parses them."""
    from attncli.cli.main import LazyGroup
    from attncli.cli.usage_errors import in_words

    try:
        words = shlex.split(options)
    except ValueError as problem:
        hint = "close the quotation mark"
        raise ConventionError(f"--against {options!r} is not understood", hint) from problem
    if not words or {"--help", "-h"} & {*words}:
        text = f"--against {options!r} computes nothing"
        raise ConventionError(text, 'write --against "--scale none"')
    parser = LazyGroup().get_command(None, command)
    try:
        with parser.make_context(f"attncli {command}", [*words]) as context:
            values = dict(context.params)
    except typer.TyperException as error:
        text = in_words(error, [command, *words], list(COMMANDS))
        raise ConventionError(f"--against {options!r}: {text}") from None
    return {name: x for name, x in values.items() if x is not None and x is not False}


def compared(
    traces: Sequence[Trace], against: str, show: DisplayFlags, *, by_name: bool = False
) -> int:
    """Shows the comparison of the two calls, by name with what it says of order; the exit code."""
    first, second = traces
    check_room(first, second, show)
    comparison = diff(first, second, names=(CALL, against), by_name=by_name)
    labels = (*comparison.labels, _on_order(comparison)) if by_name else comparison.labels
    # what the conventions differ in is what was asked for
    return present_diff(replace(comparison, conventions=(), labels=labels), show)


def _on_order(comparison: Comparison) -> str:
    """What two sentences of the same words in another order show of attention."""
    is_placed = "positions" in comparison.a
    if comparison.same:
        why = "" if is_placed else "without positions, "
        return f"{why}attention ignores the order: each word has the same vector in both sentences"
    if is_placed:
        return "with positions, order matters: the vector of a word depends on where it stands"
    return "no positions are added, but the mask depends on where a word stands: so order matters"
