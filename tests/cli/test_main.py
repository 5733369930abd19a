"""The command line as a whole: version and help."""

from __future__ import annotations

import re

import pytest

import attncli
from attncli.cli.commands import COMMANDS
from attncli.cli.main import LazyGroup

from .conftest import Call


def test_version(call: Call) -> None:
    assert call("--version").out == f"attncli {attncli.__version__}\n"


def joined(text: str) -> str:
    """Without blanks and borders, as a long word is broken at any place."""
    return re.sub(r"[\s│]", "", text)


def test_help_names_every_command(call: Call) -> None:
    for arguments in ((), ("--help",), ("-h",)):
        result = call(*arguments)
        assert (result.code, result.err) == (0, "")
        assert [name for name in COMMANDS if f" {name} " not in result.out] == []
        shown = joined(result.out)
        for name, command in COMMANDS.items():
            assert joined(command.help.partition("\n\n")[0]) in shown, name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_shown_whole(call: Call, name: str) -> None:
    shown = joined(call(name, "--help").out)
    assert joined(COMMANDS[name].help) in shown
    for param in LazyGroup().get_command(None, name).params:
        assert getattr(param, "help", None), param.name
        # by a library to which [models] is markup
        for word in re.findall(r"\S*\[\S*", f"{param.help} {param.metavar}"):
            assert word in shown, param.name
