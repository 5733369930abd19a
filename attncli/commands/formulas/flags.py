"""What attncli formulas takes."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from typing import Literal

import typer

from attncli.cli.groups import Command, flag, group
from attncli.cli.options import DROPOUT, MAX_SIZE, ConventionFlags, InputFlags


@group("Program")
class ProgramFlags:
    """What is printed of formulas, and where."""

    name: str | None = flag(
        "A variant to be printed; without it, the program of the conventions that follow.",
        "NAME",
        make=typer.Argument,
    )
    list: bool = flag("List the variants, each with its source.")
    format: Literal["text", "latex", "markdown"] | None = flag(
        "Form: text (the default), latex or markdown."
    )
    output: str | None = flag("Write the program to a file.", "FILE", names=("--output", "-o"))
    force: bool = flag("Replace the file of --output.", needs="--output")
    quiet: bool = flag("Print no notes on standard error.")
    debug: bool = flag("Show a traceback where something fails.")
    max_size: str | None = MAX_SIZE


COMMAND = Command(
    (ProgramFlags, InputFlags, ConventionFlags),
    without=("source", "tiles", "split", "tokens"),
    other_help={"dropout": DROPOUT},
)
