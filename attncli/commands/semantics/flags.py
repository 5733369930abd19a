"""What attncli semantics takes."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from dataclasses import fields

import typer

from attncli.cli.completion import complete_library
from attncli.cli.groups import Command, flag, group
from attncli.cli.options import (
    DROPOUT,
    PRECISION_HELP,
    STAGE_HELP,
    ConventionFlags,
    DisplayFlags,
    InputFlags,
)
from attncli.convention import flag_of


@group("Libraries")
class SemanticsFlags:
    """Which libraries."""

    names: list[str] | None = flag(
        "One library, or two to see what differs when code moves from the first to the second.",
        "NAME",
        make=typer.Argument,
        autocompletion=complete_library,
    )


_OF_AN_INPUT = "--q or --x or --weights"


_OF_ONE_CALL = """
source semantics work cell query blank arcs title batch head heatmap tiles split lse_base
d_output
"""

COMMAND = Command(
    (SemanticsFlags, InputFlags, ConventionFlags, DisplayFlags),
    without=(*_OF_ONE_CALL.split(),),
    other_help={
        "stage": STAGE_HELP.format("libraries, outcomes or apart"),
        "precision": PRECISION_HELP.format(4),
        "dropout": DROPOUT,
    },
    needs={
        option.name: _OF_AN_INPUT
        for option in (*fields(InputFlags), *fields(ConventionFlags))
        if flag_of(option.name) not in _OF_AN_INPUT.split(" or ")
    }
    | {"precision": _OF_AN_INPUT},
)
