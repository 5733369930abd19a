"""The options of `attncli explain`, and which contradict: the sentence, its vectors, the block."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from typer import Argument, Option

from attncli.cli.options import MASK, Choices, Show
from attncli.errors import ConventionError

Problem = tuple[str, str]  # what is wrong, and how to mend it


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Words:
    """What is read: a sentence, or tokens, and what is asked of it."""

    PANEL: ClassVar = "Words"

    sentence: Annotated[
        str | None, Argument(metavar="SENTENCE", help="The sentence to explain.")
    ] = None
    tokens: Annotated[
        str | None,
        Option(
            "--tokens",
            metavar="A,B,C",
            help="Tokens instead of a sentence: separated by commas, or as a JSON list.",
        ),
    ] = None
    lowercase: Annotated[bool, Option("--lowercase", help="Lowercase all tokens.")] = False
    pad_to: Annotated[
        int | None, Option("--pad-to", min=1, help="Pad to N tokens with <pad>, masked as keys.")
    ] = None
    mask: Annotated[str | None, MASK] = None
    target: Annotated[
        str | None,
        Option(
            "--target",
            metavar="SENTENCE",
            help="Cross-attention: queries from this one, keys and values from the sentence.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Vectors:
    """Word vectors and positional encodings."""

    PANEL: ClassVar = "Vectors"

    dim: Annotated[
        int | None, Option("--dim", min=1, help="Size of a random vector (default: 8).")
    ] = None
    glove: Annotated[
        str | None, Option("--glove", metavar="FILE", help="Word vectors in GloVe's text format.")
    ] = None
    unknown: Annotated[
        Literal["random", "zero", "error"] | None,
        Option("--unknown", help="Vector of a word missing from the file (default: random)."),
    ] = None
    positions: Annotated[
        Literal["paper", "article", "none"] | None,
        Option("--positions", help="Sines and cosines to add (default: paper), or none."),
    ] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Block:
    """What the vectors go through, and with which weights."""

    PANEL: ClassVar = "Block"

    block: Annotated[
        Literal["attention", "encoder", "decoder"] | None,
        Option("--block", help="What to compute (default: attention); decoder needs --target."),
    ] = None
    layers: Annotated[
        int | None, Option("--layers", min=1, help="Layers of encoder and decoder (default: 1).")
    ] = None
    heads: Annotated[int | None, Option("--heads", min=1, help="Heads (default: 1).")] = None
    kv_heads: Annotated[
        int | None, Option("--kv-heads", min=1, help="Heads of K and V, if fewer.")
    ] = None
    d_k: Annotated[
        int | None, Option("--d-k", min=1, help="Width of a query and key (default: dim / heads).")
    ] = None
    d_v: Annotated[
        int | None, Option("--d-v", min=1, help="Width of a value (default: that of a key).")
    ] = None
    d_ff: Annotated[
        int | None,
        Option("--d-ff", min=0, help="Width of the feed-forward (default: 4 · dim); 0 = none."),
    ] = None
    norm: Annotated[
        Literal["pre", "post", "none"] | None,
        Option("--norm", help="Layer norm before a sub-layer, or after (the default), or none."),
    ] = None
    weights: Annotated[
        str | None,
        Option("--weights", metavar="SOURCE", help="A file of w_q, w_k, w_v, w_o and so on."),
    ] = None
    projection: Annotated[
        Literal["learned", "identity"] | None,
        Option("--projection", help="identity: the vectors themselves are Q, K and V."),
    ] = None
    outline: Annotated[
        bool, Option("--outline", help="Show only each step's formula and shape.")
    ] = False

    @property
    def kind(self) -> Literal["attention", "encoder", "decoder"]:
        """What is computed."""
        return self.block or "attention"


def check_flags(words: Words, vectors: Vectors, block: Block, choices: Choices, show: Show) -> None:
    """ConventionError for flags that contradict each other, or have no effect without another."""
    from attncli.cli import output
    from attncli.views.formats import PAGE

    output.check_flags(show)
    form = output.form_of(show)
    if block.outline and form.holds != PAGE:
        what = "holds numbers" if form.holds == "the exact numbers" else "is an outline already"
        raise ConventionError(
            f"--outline is for tables and markdown; {form.name} {what}", "leave it out"
        )
    for flag, given in (("--stage", show.stage), ("--cell", show.cell), ("--work", show.work)):
        if block.outline and given:
            raise ConventionError(f"{flag} has no effect with --outline", "leave it out")
    if vectors.unknown is not None and vectors.glove is None:
        raise ConventionError(
            "--unknown has no effect without --glove", "add --glove FILE, or leave it out"
        )
    for message, hint in (*_in_words(words, block, choices), *_in_block(block)):
        raise ConventionError(message, hint)


def _in_words(words: Words, block: Block, choices: Choices) -> Iterator[Problem]:
    decodes = block.kind == "decoder"
    if words.sentence is not None and words.tokens is not None:
        yield "there are both a sentence and --tokens", "give one of the two"
    if words.sentence is None and words.tokens is None:
        yield "there is no sentence", 'write attncli explain "…"'
    if decodes and words.target is None:
        yield "--block decoder needs what it decodes", 'add --target "…"'
    if block.kind == "encoder" and words.target is not None:
        yield "an encoder has no target", "use --block decoder, or leave out --target"
    if words.mask is None and "mask_means" in choices.given:
        yield "--mask-means is given, but no mask", "add --mask SOURCE"
    if words.mask is not None and decodes:
        yield "--mask could be for any of a decoder's three attentions", "leave it out"
    if "causal" in choices.given and decodes:
        yield "a decoder's self-attention is causal already", "leave out --causal"


def _in_block(block: Block) -> Iterator[Problem]:
    for name in ("layers", "d_ff", "norm") if block.kind == "attention" else ():
        if getattr(block, name) is not None:
            mend = "add --block encoder, or leave it out"
            yield f"--{name.replace('_', '-')} has no effect on one attention", mend
    projected = ("d_k", "d_v", "kv_heads", "weights")
    for name in projected if block.projection == "identity" else ():
        if getattr(block, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            why = "with --projection identity, Q, K and V are the vectors themselves"
            yield f"{flag} is given, but {why}", "leave one of the two out"
