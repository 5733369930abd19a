"""What attncli explain takes."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from dataclasses import replace
from functools import partial
from typing import Literal, Self

import typer

from attncli.cli.groups import Command, flag, group
from attncli.cli.options import (
    PAGES,
    PRECISION_HELP,
    SOURCE,
    ConventionFlags,
    DisplayFlags,
    array_flag,
)
from attncli.cli.parsing import tokens_of
from attncli.cli.recording import names_file
from attncli.errors import ConventionError, InputError
from attncli.files.roles import D_OUTPUT


@group("Words")
class SentenceFlags:
    """What is read: a sentence, or tokens, and what is asked of it."""

    sentence: str | None = flag(
        "The sentence to explain.", "SENTENCE", make=typer.Argument, provides="input"
    )
    tokens: str | None = flag(
        "Tokens instead of a sentence, separated by commas or as a JSON list.",
        "A,B,C",
        provides="input",
    )
    lowercase: bool = flag("Lowercase all tokens.", provides="input")
    pad_to: int | None = flag(
        "Pad to N tokens with <pad>, masked as keys.", min=1, provides="input"
    )
    mask: str | None = array_flag("mask")
    target: str | None = flag(
        "Cross-attention: the queries come from this sentence, the keys and values from the first.",
        "SENTENCE",
        excludes="--block encoder",
    )

    def read(self) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
        """The tokens of the sentence and of the target, without padding; InputError for none."""
        from attncli.words.tokens import tokenize

        if self.tokens is None:
            tokens = tokenize(self.sentence or "", self.lowercase)
        else:
            tokens = tokens_of(self.tokens)
            tokens = tuple(token.lower() for token in tokens) if self.lowercase else tokens
        if self.target is None:
            return tokens, None
        try:
            return tokens, tokenize(self.target, self.lowercase)
        except InputError as error:
            raise InputError(f"--target: {error.message}", error.hint) from None

    def reordered(self, sentence: str) -> Self:
        """The same words in another order; ConventionError where they are others."""
        words = replace(self, sentence=sentence, tokens=None)
        if sorted(self.read()[0]) != sorted(words.read()[0]):
            hint = 'use each of them once, such as "AI love I" for "I love AI"'
            raise ConventionError("--against-order has other words than the sentence", hint)
        return words


@group("Vectors")
class VectorFlags:
    """Word vectors and positional encodings."""

    dim: int | None = flag("Size of a random vector (default: 8).", min=1, provides="input")
    vectors: str | None = flag(
        "Word vectors in GloVe's text format, or builtin: 2,717 frequent words of GloVe.",
        "FILE",
        old=("--glove",),
        provides="input",
        reads=partial(names_file, ["builtin"]),
    )
    embeddings: str | None = flag(
        "The vectors of the tokens, one row each. If the file also holds weights, they are used.",
        "SOURCE",
        excludes="--vectors, --dim, --target",
        provides="input",
        reads=SOURCE,
    )
    unknown: Literal["random", "zero", "error"] | None = flag(
        "Vector of a word missing from the file (default: random).",
        needs="--vectors",
        provides="input",
    )
    positions: str | None = flag(
        "Positional encodings to add: the sines and cosines of the paper (the default) or of the "
        "article, none (the default with --embeddings), or a matrix of learned ones.",
        "paper, article, none, SOURCE",
        provides="input",
        reads=partial(names_file, ["paper", "article", "none"]),
    )


_BLOCKS, _IDENTITY = "--block encoder|decoder", "--projection identity"


@group("Block")
class BlockFlags:
    """What the vectors go through, and with which weights."""

    block: Literal["attention", "encoder", "decoder"] | None = flag(
        "What to compute (default: attention); decoder needs --target.", default="attention"
    )
    layers: int | None = flag("Layers of encoder and decoder (default: 1).", min=1, needs=_BLOCKS)
    heads: int | None = flag("Heads (default: 1).", min=1, provides="input")
    kv_heads: int | None = flag(
        "Heads of K and V, if fewer.", min=1, excludes=_IDENTITY, provides="input"
    )
    d_k: int | None = flag(
        "Width of queries and keys (default: dim / heads).", min=1, excludes=_IDENTITY
    )
    d_v: int | None = flag("Width of values (default: that of keys).", min=1, excludes=_IDENTITY)
    d_ff: int | None = flag(
        "Width of the feed-forward (default: 4 · dim); 0 = none.", min=0, needs=_BLOCKS
    )
    norm: Literal["pre", "post", "rms", "none"] | None = flag(
        "Layer norm before each sub-layer, after it (post, the default), an RMS norm before it "
        "(rms), or none.",
        needs=_BLOCKS,
    )
    eps: float | None = flag(
        "ε of the norms (default: 1e-5).", needs=_BLOCKS, excludes="--norm none"
    )
    weights: str | None = flag(
        "A file of w_q, w_k, w_v, w_o and so on, under any names they are published with.",
        "SOURCE",
        excludes=_IDENTITY,
        provides="input",
        reads=SOURCE,
    )
    projection: Literal["learned", "identity"] | None = flag(
        "identity: the vectors themselves are Q, K and V (the default with vectors and without "
        "weights); learned: random weights."
    )
    outline: bool = flag(
        "Show only each step's formula and shape.",
        panel="Learning",
        needs=PAGES,
        excludes="--stage, --head, --rows, --cols, --precision, --work, --cell, --query, "
        "--heatmap, --no-heatmap, --blank, --against",
        provides="display",
    )
    q_gain: str | None = array_flag("q_gain")
    k_gain: str | None = array_flag("k_gain")
    d_output: str | None = array_flag(D_OUTPUT)


COMMAND = Command(
    (SentenceFlags, VectorFlags, BlockFlags, ConventionFlags, DisplayFlags),
    stages=("static", "contextual", "added"),
    without=("batch",),
    other_help={"precision": PRECISION_HELP.format(3)},
    apart=("Kernels", "Libraries"),
)
