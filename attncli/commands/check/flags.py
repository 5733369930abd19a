"""What attncli check takes."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from typing import Literal

import typer

from attncli.cli.completion import complete_positions
from attncli.cli.groups import Command, flag, group
from attncli.cli.options import (
    ATOL,
    DECIMALS,
    DROPOUT,
    INSIDE,
    MAX_SIZE,
    RTOL,
    ConventionFlags,
    InputFlags,
    Inside,
    ending_of,
)
from attncli.errors import ConventionError
from attncli.files.roles import gradient_named
from attncli.stages import (
    CONCAT,
    GRADIENTS,
    LSE,
    MAPS,
    MEAN_WEIGHTS,
    OUTPUT,
    PROJECTED,
    stages_called,
)

STAGES = (*MAPS, MEAN_WEIGHTS, LSE, OUTPUT, CONCAT, PROJECTED, *GRADIENTS)
"""The stages that can be checked."""

ENDINGS = {"json": "json", "txt": "text", "log": "text", "csv": "csv", "tsv": "tsv"}
"""Ending of --output → format of the verdict."""


@group("Checking")
class CheckFlags:
    """What was observed, and how closely it has to match."""

    observed: str | None = flag(
        "The numbers to check: one stage, or a file of several named stages.", "SOURCE"
    )
    stage: str | None = flag(f"Which stage the numbers are: {', '.join(STAGES)}.", "NAME")
    rows: str | None = flag("Only these query rows, from 1.", "A:B")
    head: int | None = flag("Only this head, from 1.", min=1)
    positions: str | None = flag(
        "Apply these positional encodings before comparing: sinusoidal ones, added to q, k and v "
        "(paper, article), or rotary ones, of q and k (rope-halves, rope-interleaved). Give all "
        "inputs without them. Numbers follow a colon, as in rope-halves:base=5e5, and commas: "
        "base, part (of the width, which is rotated) and factor (by which positions are divided).",
        "KIND[:NUMBERS]",
        autocompletion=complete_positions,
    )
    decimals: int | None = DECIMALS
    rtol: float | None = RTOL
    atol: float | None = ATOL
    inside: Inside | None = INSIDE
    single: bool = flag("Try single bugs only, not pairs of them.")
    by_hand: bool | None = flag(
        "Mark sheets by hand: each stage is judged from the sheet's own stage before it. The "
        "default where no known bug fits numbers of at most four decimals.",
        names=("--by-hand/--no-by-hand",),
    )
    sheets: list[str] | None = flag(
        "More sheets, with --by-hand, or a folder of them.", "SHEET", make=typer.Argument
    )
    probe: str | None = flag(
        "Write an input like the given one whose values are the identity, so that the output of "
        "your attention is its weights; then check that output with it.",
        "FILE",
    )
    bugs: bool = flag("List the known bugs, or those that have the words of SOURCE.")
    bug: str | None = flag("Explain this bug: its formula, right and wrong, and an example.", "ID")
    format: Literal["text", "json", "csv", "tsv"] | None = flag(
        "Form: text (the default) or json; of marks by hand also csv and tsv."
    )
    output: str | None = flag("Write the verdict to a file.", "FILE", names=("--output", "-o"))
    force: bool = flag("Replace the file written.", needs="--output or --probe")
    quiet: bool = flag("Print nothing; use the exit code.")
    debug: bool = flag("Show a traceback where something fails.")
    max_size: str | None = MAX_SIZE

    def __post_init__(self) -> None:
        """A stage is found in any case of letters, and by the names that libraries have for it."""
        if self.stage and len(stages := stages_called(self.stage)) != 1:
            self.stage = self.stage if stages else gradient_named(self.stage.lower())
        elif self.stage:
            self.stage = stages[0]

    @property
    def verdict_form(self) -> str:
        """The form of the verdict: --format, else what the ending of --output says, else text."""
        ending = None if self.output is None else ending_of(self.output)
        if self.format is None and ending is not None and ending not in ENDINGS:
            message = f"{self.output} does not end in a format of a verdict"
            raise ConventionError(message, "add --format text or json")
        form = self.format or ENDINGS.get(ending or "", "text")
        if form in ("csv", "tsv") and not self.by_hand:
            raise ConventionError(f"{form} is a form of marks", "add --by-hand, or use json")
        return form

    def sources(self, inputs: InputFlags) -> tuple[str, str]:
        """Where q and the observed numbers come from: SOURCE is what is not named, or both."""
        q = inputs.q or inputs.x or inputs.weights
        numbers, source = self.observed, inputs.source
        if None not in (q, numbers, source):
            message = "SOURCE is given beside --q and --observed"
            raise ConventionError(message, "leave one of the three out")
        q, numbers = q or source or numbers, numbers or source or q
        if q is None or numbers is None:
            hint = "name a file that holds q, k, v and the output, or add --q and --observed"
            raise ConventionError("there is nothing to check", hint)
        return q, numbers


COMMAND = Command(
    (InputFlags, ConventionFlags, CheckFlags),
    other_help={
        "split": "The keys were split after the A-th, the B-th, …, and the parts merged by "
        "log-sum-exp: try the bugs of such a merge.",
        "tiles": "The numbers are m, l and acc of a kernel that processes the keys in tiles of "
        "N: tile.1.m, tile.2.l and so on.",
        "source": "A file that holds q, k and v, their convention, and the numbers to check "
        "under the names of their stages.",
        "dropout": DROPOUT,
    },
)
