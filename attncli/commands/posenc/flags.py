"""What attncli posenc takes."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from typing import Literal

from attncli.cli.groups import Command, flag, group
from attncli.cli.options import PRECISION_HELP, SOURCE, STAGE_HELP, DisplayFlags

_SINES = "--kind sinusoidal"


@group("Positions")
class PositionFlags:
    """Which encoding, for how many positions."""

    length: int | None = flag("Number of positions (rows).", min=1, names=("--len",))
    dim: int | None = flag("Number of dimensions (columns).", min=1, needs=f"{_SINES}|rope")
    kind: Literal["sinusoidal", "rope", "alibi"] | None = flag(
        "sinusoidal (the default), rope (rotary) or alibi (a bias).", default="sinusoidal"
    )
    positions: Literal["paper", "article"] | None = flag(
        "Exponent: paper, 2i/d (the default), or article, 4i/d, as one article prints it.",
        old=("--exponent",),
        needs=_SINES,
    )
    base: float | None = flag("Base of the wavelengths (default: 10000).", needs=f"{_SINES}|rope")
    start: int | None = flag("First position (default: 0).", needs=f"{_SINES}|rope")
    add: str | None = flag(
        "Embeddings to which the table is added.",
        "SOURCE",
        needs=_SINES,
        excludes="--dots",
        provides="input",
        reads=SOURCE,
    )
    dots: bool = flag("Show the dot product of each position with every other.", needs=_SINES)
    apply: str | None = flag(
        "rope: queries and keys to rotate.",
        "SOURCE",
        needs="--kind rope",
        excludes="--len, --dim",
        provides="input",
        reads=SOURCE,
    )
    layout: Literal["halves", "interleaved"] | None = flag(
        "rope: dimensions i and i + d/2 are a pair (halves, the default), or 2i and 2i + 1.",
        needs="--kind rope, --apply",
    )
    heads: int | None = flag("alibi: number of heads.", min=1, needs="--kind alibi")
    symmetric: bool = flag(
        "alibi: bias the keys after the query, too, instead of masking them.", needs="--kind alibi"
    )


COMMAND = Command(
    (PositionFlags, DisplayFlags),
    without=("query", "arcs"),
    other_help={
        "stage": STAGE_HELP.format("positions, rotated or bias"),
        "cell": "Derive one number, by label or number of its row and column.",
        "precision": PRECISION_HELP.format(4),
    },
)
