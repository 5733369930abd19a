"""A call of a command in Python, parsed and computed as the command line does.

trace_of("compute --random --causal") ── parsed ── trace_from ──> Trace
"""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from attncli.cli.groups import Command, called
from attncli.cli.registry import find, names
from attncli.cli.results import TraceResult
from attncli.errors import ConventionError
from attncli.trace import Trace


def parsed(command: str, words: Sequence[str]) -> dict[str, Any]:
    """The values of a command's options in the words after its name.

    ConventionError where they are not understood, or there is no such command.
    """
    from attncli.cli.main import LazyGroup

    _found(command)
    parser = LazyGroup().get_command(None, command)
    try:
        with parser.make_context(f"attncli {command}", [*words]) as context:
            return dict(context.params)
    except typer.TyperException as error:
        from attncli.cli.usage_errors import in_words

        raise ConventionError(in_words(error, [command, *words], names())) from None


def trace_of(call: str | Sequence[str], stdin: str = "") -> Trace:
    """The trace that a call of a command computes, without `attncli` before it.

    call   as in a shell, or its words
    stdin  the text of standard input, for a source that is "-"

    Raises ConventionError for a call that is not understood or gives no trace, such as a list, and
    whatever the command raises.

    >>> trace_of("posenc --len 5 --dim 4")["positions"].value.shape
    (5, 4)
    >>> trace_of("compute --q -", "[[1, 2], [3, 4]]")["weights"].value.shape
    (2, 2)
    """
    name, *words = shlex.split(call) if isinstance(call, str) else call
    return trace_from(name, parsed(name, words), stdin)


def trace_from(command: str, values: Mapping[str, Any], stdin: str = "") -> Trace:
    """The trace of a command for the values of its options, as `parsed` gives them."""
    with _standard_input(stdin), called(command, _found(command), values) as result:
        if not isinstance(result, TraceResult):
            raise ConventionError(f"{command} gives no trace here", "ask it for one computation")
        return result.trace


def _found(name: str) -> Command:
    command = find(name)
    if command is None:
        raise ConventionError(f"there is no command {name!r}", f"use {', '.join(names())}")
    return command


@contextmanager
def _standard_input(text: str) -> Iterator[None]:
    """Within it standard input is this text."""
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8")
    try:
        yield
    finally:
        sys.stdin = before
