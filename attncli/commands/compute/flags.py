"""What attncli compute takes."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from attncli.cli.groups import Command, flag, group
from attncli.cli.options import DROPOUT, PRECISION_HELP, ConventionFlags, DisplayFlags, InputFlags


@group("Learning")
class ExerciseFlags:
    """Inputs that are drawn, and one number of the computation varied."""

    random: str | None = flag(
        "An exercise to be computed by hand: small whole numbers as Q, K and V, for N tokens of "
        "width D (default: 3x2); NxDxM gives V the width M. --seed N draws other numbers.",
        "[NxD]",
        excludes="--q, --k, --v, --x",
        provides="input",
    )
    seeds: str | None = flag(
        "A worksheet for each seed from A to B into the folder of --output, which is made: as a "
        "page, or in the form of --format, as JSON to be filled in, and its solution in keys/.",
        "A:B",
        needs="--random, --blank, --output",
        excludes="--seed, --sweep, --against, --step, --open",
    )
    sweep: tuple[str, str] | None = flag(
        "Vary d_k of --random (why scores are divided by √d_k), scale, temperature or softcap, "
        "such as --sweep temperature 0.25,1,4, and show how far the weights spread; with --query, "
        "its weights.",
        "NAME A,B,C",
        excludes="--against, --cell, --work, --blank, --tiles, --split, --d-output, "
        "--softmax-over queries",
    )

    @property
    def writes_folder(self) -> bool:
        """Whether --output names a folder, also without a slash at its end."""
        return self.seeds is not None


COMMAND = Command(
    (InputFlags, ConventionFlags, ExerciseFlags, DisplayFlags),
    other_help={"dropout": DROPOUT, "precision": PRECISION_HELP.format(4)},
    apart=("Kernels", "Libraries"),
)
