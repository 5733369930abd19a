"""attncli explain: a sentence → tokens → vectors → Q, K, V → every stage → what it means."""

from __future__ import annotations

import typer

from attncli.cli.choices import Choices
from attncli.cli.command import command_of
from attncli.cli.explain_options import Block, Vectors, Words
from attncli.cli.options import Show

app = typer.Typer(add_completion=False)


@command_of(app, without=("batch",))
def explain(words: Words, vectors: Vectors, block: Block, choices: Choices, show: Show) -> None:
    """A sentence → tokens → vectors → Q, K, V → every stage → what it means.

    Words become vectors, vectors get positions, and a block mixes them: an
    attention, an encoder or a decoder. Each matrix on the way, and what it is for.

    Example: attncli explain "She visited the money bank, near the river bank"
    """
    from attncli.cli.explain_flags import Flags, check_company
    from attncli.cli.explain_inputs import trace_of
    from attncli.cli.explain_show import check_form, kept, present_way
    from attncli.cli.remarks import remark

    flags = Flags(words=words, vectors=vectors, block=block, choices=choices)
    check_form(show, outline=block.outline)
    check_company(flags)
    trace, warnings = trace_of(flags, kept(show))
    for text in warnings:
        remark(text, quiet=show.quiet)
    present_way(trace, show, outline=block.outline)
