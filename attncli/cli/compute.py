"""attncli compute: Q, K, V → every stage."""

from __future__ import annotations

import typer

from attncli.cli.choices import Choices
from attncli.cli.command import command_of
from attncli.cli.options import Inputs, Show

app = typer.Typer(add_completion=False)


@command_of(app)
def compute(inputs: Inputs, choices: Choices, show: Show) -> None:
    """Q, K, V → every stage of attention, with every number.

    Softmax(Q Kᵀ / √d_k) V, step by step: scores, scaled, masked, weights, output.
    Rows are queries, columns are keys.

    Example: attncli compute --q samples/three-tokens.json --causal --work
    """
    from attncli.attention.attend import with_concat
    from attncli.cli.inputs import gather
    from attncli.cli.large import computed
    from attncli.cli.present import check_flags, present
    from attncli.cli.remarks import remark

    check_flags(show)
    given = gather(inputs, choices)
    for text in given.remarks:
        remark(text, quiet=show.quiet)
    trace, shown = computed(given, show)
    present(with_concat(trace) if given.in_heads else trace, shown, stdin_used=given.stdin_used)
