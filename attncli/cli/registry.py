"""Every command: a line each. What it takes is read from its room when it is called.

A command of another package is an entry point in the group of plugins.COMMANDS.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from attncli import plugins
from attncli.cli.groups import Command
from attncli.errors import AttncliError

HELP = {  # each on one line, which is all that goes where a room is taken out
    "compute": "Q, K, V → every stage of attention, with every number.",
    "explain": "A sentence → tokens → vectors → Q, K, V → every stage → what it means.",
    "model": "A model on disk and a sentence → what every head does, and any layer's stages.",
    "posenc": "Positional encodings: sinusoidal, rotary and ALiBi tables.",
    "similarity": "Lengths, dot products, cosines, analogies and principal components of word vectors.",
    "examples": "Worked examples of tutorial articles, recomputed and compared with what they print.",
    "check": "Does my attention match, and if not, which bug is it?",
    "semantics": "How libraries differ in what they compute: masks, causality, empty rows, heads, scale.",
    "diff": "Two traces, dumps or inputs beside each other: the first stage that differs.",
    "formulas": "The formulas of an attention, to be read, edited and run: compute --formulas FILE.",
}
"""Name → what it does."""

EXTENSIONS = (
    ("compute", "diff.against_flags", "AgainstFlags"),
    ("compute", "formulas.formula_flags", "FormulaFlags"),
    ("explain", "diff.against_flags", "AgainstFlags"),
    ("explain", "diff.against_flags", "OrderFlags"),
    ("explain", "formulas.formula_flags", "FormulaFlags"),
    ("check", "diff.observed_flags", "ObservedFormulaFlags"),
    ("diff", "formulas.formula_flags", "FormulaFlags"),
)
"""Command, module of another room, and the option group there that it adds: those of a command in
the order in which they act on a call."""


def extensions(name: str) -> list[Any]:
    """The option groups that other rooms add to a command; those of rooms that are there."""
    groups = []
    for _, module, group in (row for row in EXTENSIONS if row[0] == name):
        try:
            groups.append(getattr(import_module(f"attncli.commands.{module}"), group))
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("attncli.commands."):
                raise
    return groups


class _Commands(Mapping[str, Command]):
    """Name → what the command takes, imported once it is asked for."""

    def __iter__(self) -> Iterator[str]:
        return iter(HELP)

    def __len__(self) -> int:
        return len(HELP)

    def __contains__(self, name: object) -> bool:
        return name in HELP

    def __getitem__(self, name: str) -> Command:
        if name not in HELP:
            raise KeyError(name)
        command: Command = import_module(f"attncli.commands.{name}.flags").COMMAND
        return command._replace(help=HELP[name], extensions=tuple(extensions(name)))


COMMANDS = _Commands()
"""Ours, by name."""


def names() -> list[str]:
    """Of every command, those of other packages last."""
    others = (name for name in plugins.entry_points(plugins.COMMANDS) if name != "help")
    return [*dict.fromkeys((*COMMANDS, *others))]


def find(name: str) -> Command | None:
    """The command of a name, ours or of another package; AttncliError where that is broken."""
    if name in HELP:
        return COMMANDS[name]
    return _added(name) if name in plugins.entry_points(plugins.COMMANDS) else None


def _added(name: str) -> Command:
    """The command of another package. AttncliError where it cannot be imported, or cannot run."""
    command = plugins.load(plugins.COMMANDS, name, Command)
    if command.run is None:
        raise plugins.broken(plugins.COMMANDS, name, "has no function to run: Command(…, run=…)")
    return command


def summary(name: str) -> str:
    """What a command does, in one line; of one that cannot be imported why not."""
    if name in HELP:
        return HELP[name]
    try:
        return _added(name).help.partition("\n")[0]
    except AttncliError as error:
        return error.message
