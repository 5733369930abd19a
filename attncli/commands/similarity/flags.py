"""What attncli similarity takes."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from functools import partial

import typer

from attncli.cli.groups import Command, flag, group
from attncli.cli.options import PRECISION_HELP, STAGE_HELP, DisplayFlags
from attncli.cli.recording import names_file


@group("Words")
class WordFlags:
    """Which words, their vectors, and what to compute of them."""

    words: list[str] | None = flag(
        "Words, or words with their vectors: king=0.9,0.5,0.1.",
        "WORD",
        make=typer.Argument,
        provides="input",
    )
    vectors: str | None = flag(
        "GloVe or word2vec text (also .gz, .zip, .zip::name), JSON {word: [numbers]}, or builtin, "
        "the default: 2,717 frequent words of GloVe.",
        "FILE",
        old=("--glove",),
        provides="input",
        reads=partial(names_file, ["builtin"]),
    )
    analogy: tuple[str, str, str] | None = flag("A is to B as C is to …: B − A + C.", "A B C")
    nearest: int | None = flag("Show the N words nearest to each word.", min=1)
    pca: bool = flag("Show two principal components, and a plot.", excludes="--analogy, --nearest")


STAGES = (
    *("vectors", "lengths", "cosines", "difference", "analogy"),
    *("centred", "components", "shares", "coordinates"),
)
"""The stages that this command alone makes."""

COMMAND = Command(
    (WordFlags, DisplayFlags),
    stages=STAGES,
    without=("head", "batch", "cell", "query", "arcs"),
    other_help={
        "stage": STAGE_HELP.format("cosines or coordinates"),
        "precision": PRECISION_HELP.format(4),
    },
)
