"""What attncli diff takes."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

import typer

from attncli.cli.groups import Command, flag, group
from attncli.cli.options import (
    ATOL,
    DECIMALS,
    INSIDE,
    PRECISION_HELP,
    RTOL,
    SOURCE,
    DisplayFlags,
    Inside,
)


@group("Comparing")
class DiffFlags:
    """The two that are compared, and how closely they have to match."""

    a: str | None = flag(
        "A saved trace, a file of named stages, inputs (q, k, v, a convention), or one array.",
        "A",
        make=typer.Argument,
        provides="input",
        reads=SOURCE,
    )
    b: str | None = flag(
        "What to compare it with, in any of these forms.",
        "B",
        make=typer.Argument,
        provides="input",
        reads=SOURCE,
    )
    decimals: int | None = DECIMALS
    rtol: float | None = RTOL
    atol: float | None = ATOL
    inside: Inside | None = INSIDE
    by_name: bool = flag("Match tokens by their names, whatever their order.")


COMMAND = Command(
    (DiffFlags, DisplayFlags),
    without=("work", "cell", "query", "blank", "arcs"),
    other_help={
        "stage": "Show this stage (repeatable), instead of the first that differs.",
        "full": "Show every stage that differs, whole.",
        "precision": PRECISION_HELP.format(4),
    },
)
