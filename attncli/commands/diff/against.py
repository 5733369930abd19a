"""--against: a call once more with further options, and the comparison of the two."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace
from typing import Any

from attncli.cli.calls import parsed
from attncli.cli.extensions import Call
from attncli.cli.groups import check_flags, given_of
from attncli.cli.options import DisplayFlags
from attncli.cli.output import notes_once
from attncli.cli.registry import COMMANDS
from attncli.cli.results import TraceResult
from attncli.commands.diff.command import check_diff_flags, check_room, result_of
from attncli.commands.diff.comparison import Comparison
from attncli.commands.diff.diff import diff
from attncli.convention import flag_of
from attncli.errors import ConventionError
from attncli.trace import Trace

OPTIONS = ("against", "against_order")
CALL = "this call"
"""What the call without the further options is called."""


def with_options(call: Call, options: str) -> TraceResult:
    """A call beside itself with further options."""
    return _compared(call, _with_further(call, options), options)


def in_order(call: Call, sentence: str) -> TraceResult:
    """A sentence beside its words in another order, matched by word.

    call  of explain, whose first group has the words
    """
    words, *others = call.groups
    check_diff_flags(others[-1])
    other = replace(call, groups=(words.reordered(sentence), *others))
    return _compared(call, other, repr(sentence), by_name=True)


def _with_further(call: Call, options: str) -> Call:
    """A call with further options; one that is given in both is replaced."""
    *groups, show = call.groups
    check_diff_flags(show)
    values = _parsed(call.command, options)
    of_display = [x for x in (*(x.name for x in fields(DisplayFlags)), *OPTIONS) if x in values]
    if of_display:
        problem = f"--against {options!r} changes what is shown"
        raise ConventionError(problem, f"write {flag_of(of_display[0])} outside of it")
    try:
        others = [
            replace(group, **{x.name: values[x.name] for x in fields(group) if x.name in values})
            for group in (*groups, *call.extensions)
        ]
        row = COMMANDS[call.command]
        check_flags([*others, replace(show, stage=None)], row.needs)
    except ConventionError as error:  # a text that is not understood, or a flag without effect
        raise _in_options(error, options) from None
    for group in others:
        if any(str(value).split("::")[0] == "-" for value in given_of(group).values()):
            problem = "standard input can be read only once, and --against computes twice"
            raise ConventionError(problem, "save it to a file")
    n = len(groups)
    return replace(call, groups=(*others[:n], show), extensions=tuple(others[n:]))


def _in_options(error: ConventionError, options: str) -> ConventionError:
    """An error of the further options, which it names."""
    return ConventionError(f"--against {options!r}: {error.message}", error.hint)


def _parsed(command: str, options: str) -> dict[str, Any]:
    """The options that are given in a text, as the command parses them."""
    try:
        words = shlex.split(options)
    except ValueError as problem:
        hint = "close the quotation mark"
        raise ConventionError(f"--against {options!r} is not understood", hint) from problem
    if not words or {"--help", "-h"} & {*words}:
        text = f"--against {options!r} computes nothing"
        raise ConventionError(text, 'write --against "--scale none"')
    try:
        values = parsed(command, words)
    except ConventionError as error:
        raise _in_options(error, options) from None
    return {name: x for name, x in values.items() if x is not None and x is not False}


def _compared(call: Call, other: Call, against: str, *, by_name: bool = False) -> TraceResult:
    """The comparison of two calls, by name with what it says of order; notes are printed once."""
    show = call.groups[-1]
    with notes_once():
        first = _whole_trace(call)
        try:
            second = _whole_trace(other)
        except ConventionError as error:
            raise (error if by_name else _in_options(error, against)) from None
    check_room(first, second, show)
    comparison = diff(first, second, names=(CALL, against), by_name=by_name)
    labels = (*comparison.labels, _on_order(comparison)) if by_name else comparison.labels
    # what the conventions differ in is what was asked for
    return result_of(replace(comparison, conventions=(), labels=labels), show)


def _whole_trace(call: Call) -> Trace:
    """The trace of a call, with every stage whole."""
    *groups, show = call.groups
    whole = replace(show, full=True, stage=None, rows=None)
    result = replace(call, groups=(*groups, whole)).result()
    assert isinstance(result, TraceResult)  # noqa: S101 - as each command gives that --against is on
    return result.trace


def _on_order(comparison: Comparison) -> str:
    """What two sentences of the same words in another order show of attention."""
    is_placed = "positions" in comparison.a
    if comparison.same:
        why = "" if is_placed else "without positions, "
        return f"{why}attention ignores the order: each word has the same vector in both sentences"
    if is_placed:
        return "with positions, order matters: the vector of a word depends on where it stands"
    return "no positions are added, but the mask depends on where a word stands: so order matters"
