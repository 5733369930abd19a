"""The options of `attncli explain`, and which contradict: the sentence, its vectors, the block."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from attncli.cli.groups import argument, flag
from attncli.cli.options import MASK, Choices, DisplayFlags
from attncli.errors import ConventionError

Problem = tuple[str, str]  # what is wrong, and how to mend it


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Words:
    """What is read: a sentence, or tokens, and what is asked of it."""

    PANEL: ClassVar = "Words"

    sentence: str | None = argument("The sentence to explain.", "SENTENCE")
    tokens: str | None = flag(
        "Tokens instead of a sentence: separated by commas, or as a JSON list.", "A,B,C"
    )
    lowercase: bool = flag("Lowercase all tokens.")
    pad_to: int | None = flag("Pad to N tokens with <pad>, masked as keys.", min=1)
    mask: str | None = MASK
    target: str | None = flag(
        "Cross-attention: queries from this one, keys and values from the sentence.", "SENTENCE"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Vectors:
    """Word vectors and positional encodings."""

    PANEL: ClassVar = "Vectors"

    dim: int | None = flag("Size of a random vector (default: 8).", min=1)
    glove: str | None = flag("Word vectors in GloVe's text format.", "FILE")
    unknown: Literal["random", "zero", "error"] | None = flag(
        "Vector of a word missing from the file (default: random)."
    )
    positions: Literal["paper", "article", "none"] | None = flag(
        "Sines and cosines to add (default: paper), or none."
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Block:
    """What the vectors go through, and with which weights."""

    PANEL: ClassVar = "Block"

    block: Literal["attention", "encoder", "decoder"] | None = flag(
        "What to compute (default: attention); decoder needs --target."
    )
    layers: int | None = flag("Layers of encoder and decoder (default: 1).", min=1)
    heads: int | None = flag("Heads (default: 1).", min=1)
    kv_heads: int | None = flag("Heads of K and V, if fewer.", min=1)
    d_k: int | None = flag("Width of a query and key (default: dim / heads).", min=1)
    d_v: int | None = flag("Width of a value (default: that of a key).", min=1)
    d_ff: int | None = flag("Width of the feed-forward (default: 4 · dim); 0 = none.", min=0)
    norm: Literal["pre", "post", "none"] | None = flag(
        "Layer norm before a sub-layer, or after (the default), or none."
    )
    weights: str | None = flag("A file of w_q, w_k, w_v, w_o and so on.", "SOURCE")
    projection: Literal["learned", "identity"] | None = flag(
        "identity: the vectors themselves are Q, K and V."
    )
    outline: bool = flag("Show only each step's formula and shape.")

    @property
    def kind(self) -> Literal["attention", "encoder", "decoder"]:
        """What is computed."""
        return self.block or "attention"


def check_flags(
    words: Words, vectors: Vectors, block: Block, choices: Choices, show: DisplayFlags
) -> None:
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
    for name, given in (("--stage", show.stage), ("--cell", show.cell), ("--work", show.work)):
        if block.outline and given:
            raise ConventionError(f"{name} has no effect with --outline", "leave it out")
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
    sizes = {"--d-k": block.d_k, "--d-v": block.d_v, "--kv-heads": block.kv_heads}
    given = [name for name, size in sizes.items() if size is not None]
    given += ["--weights"] if block.weights is not None else []
    if block.projection == "identity":
        for name in given:
            why = "with --projection identity, Q, K and V are the vectors themselves"
            yield f"{name} is given, but {why}", "leave one of the two out"
