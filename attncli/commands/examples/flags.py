"""What attncli examples takes."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

import typer

from attncli.cli.completion import described
from attncli.cli.groups import Command, flag, group
from attncli.cli.options import PRECISION_HELP, DisplayFlags


def complete_example(incomplete: str) -> list[tuple[str, str]]:
    """The articles by number and the examples by name, each with its title."""
    from attncli.commands.examples.titles import titles

    rows = dict[str, str]()
    for title in titles():
        rows |= {title.article.id: title.article.title, title.name: title.title}
    return described({name: rows[name] for name in sorted(rows)}, incomplete)


@group("Examples")
class ExampleFlags:
    """Which examples, and what to do with them."""

    name: str | None = flag(
        "One example; the number or author of an article; or words or the beginning of a name, "
        "which list examples. Without it, all are listed.",
        "NAME",
        make=typer.Argument,
        autocompletion=complete_example,
    )
    verify: bool = flag(
        "Run all examples; exit code 0 if each result is as recorded.",
        excludes="--stage, --head, --batch, --rows, --cols, --precision, --work, --cell, "
        "--query, --heatmap, --no-heatmap, --step, --blank",
    )
    file: str | None = flag("A file of your own examples, in the same form.", "FILE")
    vectors: str | None = flag(
        "Word vectors, for the examples that take them.", "FILE", old=("--glove",)
    )


STAGES = (
    *("vectors", "lengths", "cosines", "difference", "analogy"),
    *("centred", "components", "shares", "coordinates"),
    *("static", "contextual", "added", "without_scale", "with_scale"),
)
"""The stages of examples that have no row in attncli/stages.py."""

COMMAND = Command(
    (ExampleFlags, DisplayFlags),
    stages=STAGES,
    other_help={"precision": PRECISION_HELP.format(4)},
)
