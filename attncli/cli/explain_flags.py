"""The flags of one call of `attncli explain`: what they ask for, and which contradict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from attncli.attention.layers import Architecture
from attncli.attention.weights import Weights
from attncli.cli.choices import Choices
from attncli.cli.explain_options import Block, Vectors, Words
from attncli.convention import Convention
from attncli.errors import ConventionError
from attncli.explain.pipeline import Model

Wrong = tuple[str, str]  # what is wrong, and how to mend it


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Flags:
    """The groups of one call."""

    words: Words
    vectors: Vectors
    block: Block
    choices: Choices

    @property
    def kind(self) -> str:
        """What is computed: attention, encoder or decoder."""
        return self.block.block or "attention"

    @property
    def seed(self) -> int:
        """The seed of everything that is drawn at random."""
        return int(self.choices.given.get("seed", 0))


def check_company(flags: Flags) -> None:
    """ConventionError for flags that contradict, or do nothing without another one."""
    for message, hint in (*_in_words(flags), *_in_blocks(flags), *_in_vectors(flags)):
        raise ConventionError(message, hint)


def _in_words(flags: Flags) -> Iterator[Wrong]:
    words, decoding = flags.words, flags.kind == "decoder"
    if words.sentence is not None and words.tokens is not None:
        yield "there are both a sentence and --tokens", "give one of the two"
    if words.sentence is None and words.tokens is None:
        yield "there is no sentence", 'write attncli explain "…"'
    if decoding and words.target is None:
        yield "--block decoder needs what it decodes", 'add --target "…"'
    if flags.kind == "encoder" and words.target is not None:
        yield "an encoder has no target", "use --block decoder, or leave out --target"
    if words.mask is None and "mask_means" in flags.choices.given:
        yield "--mask-means is given, but no mask", "add --mask SOURCE"
    if words.mask is not None and decoding:
        yield "--mask could be for any of a decoder's three attentions", "leave it out"
    if "causal" in flags.choices.given and decoding:
        yield "a decoder's self-attention is causal already", "leave out --causal"


def _in_blocks(flags: Flags) -> Iterator[Wrong]:
    block = flags.block
    if flags.kind == "attention":
        for flag, given in (
            ("--layers", block.layers),
            ("--d-ff", block.d_ff),
            ("--norm", block.norm),
        ):
            if given is not None:
                mend = "add --block encoder, or leave it out"
                yield f"{flag} does nothing with one attention", mend
    if block.projection == "identity":
        for flag, value in (
            ("--d-k", block.d_k),
            ("--d-v", block.d_v),
            ("--kv-heads", block.kv_heads),
            ("--weights", block.weights),
        ):
            if value is not None:
                why = "with --projection identity, Q, K and V are the vectors themselves"
                yield f"{flag} is given, but {why}", "leave one of the two out"


def _in_vectors(flags: Flags) -> Iterator[Wrong]:
    if flags.vectors.unknown is not None and flags.vectors.glove is None:
        yield "--unknown does nothing alone", "add --glove FILE, or leave it out"


def model_of(flags: Flags, weights: Weights, notes: tuple[str, ...]) -> Model:
    """What the vectors go through, by the flags; `notes` are on its weights."""
    given = {n: x for n, x in flags.choices.given.items() if n not in ("seed", "mask_means")}
    convention = Choices(given).over(Convention(seed=flags.seed))
    how = Architecture(
        n_heads=flags.block.heads or 1,
        n_kv_heads=flags.block.kv_heads,
        norm=flags.block.norm or "post",
        dropout=convention.dropout if flags.kind != "attention" else 0.0,
        convention=convention,
    )
    kind: Any = flags.kind
    positions = flags.vectors.positions or "paper"
    return Model(block=kind, weights=weights, how=how, positions=positions, notes=notes)
