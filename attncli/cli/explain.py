"""attncli explain: a sentence → tokens → vectors → Q, K, V → every stage → what it means."""

from __future__ import annotations

import typer

from attncli.cli.command import command_of
from attncli.cli.explain_options import Block, Vectors, Words
from attncli.cli.options import Masking, Scores, Show

app = typer.Typer(add_completion=False)


@command_of(app, without=("batch",))
def explain(
    words: Words, vectors: Vectors, block: Block, masking: Masking, scores: Scores, show: Show
) -> None:
    """A sentence → tokens → vectors → Q, K, V → every stage → what it means.

    Words become vectors, vectors get positions, and attention (or an encoder, or a decoder) mixes
    them: each matrix on the way, and a sentence on what it is for.

    Example: attncli explain "She visited the money bank, near the river bank"
    """
    from dataclasses import replace

    from attncli.cli import explain_inputs as inputs
    from attncli.cli.explain_flags import Flags, check_company, plan_of
    from attncli.cli.explain_show import check_form, kept, n_layers_kept, present_way
    from attncli.cli.explain_weights import weights_of
    from attncli.cli.remarks import remark
    from attncli.explain.sentence import Sentence
    from attncli.explain.way import explain as explained

    flags = Flags(words=words, vectors=vectors, block=block, masking=masking, scores=scores)
    check_form(show, outline=block.outline)
    check_company(flags)
    plan, keep = plan_of(flags), kept(show)
    said, asked = inputs.sentences_of(words)
    n_keys = max(len(said), words.pad_to or 0)
    n_queries = max(n_keys, len(asked or ()))
    inputs.check_room(flags, n_queries, n_keys, n_layers_kept(keep, block.layers or 1))
    vocabulary = inputs.vocabulary_of(vectors, (*said, *(asked or ())), flags.seed)
    weights, notes = weights_of(flags, vocabulary.dim)
    trace = explained(
        Sentence.padded(said, words.pad_to),
        vocabulary,
        weights,
        replace(plan, notes=notes),
        target=None if asked is None else Sentence.padded(asked),
        mask=inputs.mask_of(masking),
        keep=keep,
    )
    for text in vocabulary.warnings:
        remark(text, quiet=show.quiet)
    present_way(trace, show, outline=block.outline)
