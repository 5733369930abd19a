"""The options of `attncli explain`: the sentence, its vectors, the block it goes through."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from typer import Argument

from attncli.cli.options import option


def _words(*names: str, **more: Any) -> Any:
    return option("Words", *names, **more)


def _vectors(*names: str, **more: Any) -> Any:
    return option("Vectors", *names, **more)


def _block(*names: str, **more: Any) -> Any:
    return option("Block", *names, **more)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Words:
    """What is read: a sentence, or tokens, and what is asked of it."""

    sentence: Annotated[
        str | None,
        Argument(metavar="SENTENCE", show_default=False, help="The sentence to explain."),
    ] = None
    tokens: Annotated[
        str | None,
        _words(
            "--tokens",
            metavar="A,B,C",
            help="Tokens instead of a sentence: with commas between, or as a JSON list.",
        ),
    ] = None
    lowercase: Annotated[bool, _words("--lowercase", help="Write every word in small letters.")] = (
        False
    )
    pad_to: Annotated[
        int | None,
        _words("--pad-to", min=1, help="Fill up to so many tokens with <pad>, masked as keys."),
    ] = None
    mask: Annotated[
        str | None,
        option(
            "Masking",
            "--mask",
            metavar="SOURCE",
            help="True/false, or numbers added to the scores; broadcasts from the right.",
        ),
    ] = None
    target: Annotated[
        str | None,
        _words(
            "--target",
            metavar="SENTENCE",
            help="Cross-attention: queries from this one, keys and values from the sentence.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Vectors:
    """Where words get their vectors and places theirs."""

    dim: Annotated[
        int | None, _vectors("--dim", min=1, help="Numbers in a made-up vector (default: 8).")
    ] = None
    glove: Annotated[
        str | None,
        _vectors("--glove", metavar="FILE", help="Word vectors from a file, as GloVe's text."),
    ] = None
    unknown: Annotated[
        Literal["random", "zero", "error"] | None,
        _vectors("--unknown", help="What a word gets that the file lacks (default: random)."),
    ] = None
    positions: Annotated[
        Literal["paper", "article", "none"] | None,
        _vectors("--positions", help="Sines and cosines to add (default: paper), or none."),
    ] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Block:
    """What the vectors go through, and with which weights."""

    block: Annotated[
        Literal["attention", "encoder", "decoder"] | None,
        _block("--block", help="What to compute (default: attention); decoder needs --target."),
    ] = None
    layers: Annotated[
        int | None, _block("--layers", min=1, help="Layers of encoder and decoder (default: 1).")
    ] = None
    heads: Annotated[int | None, _block("--heads", min=1, help="Heads (default: 1).")] = None
    kv_heads: Annotated[
        int | None, _block("--kv-heads", min=1, help="Heads of K and V, if fewer.")
    ] = None
    d_k: Annotated[
        int | None, _block("--d-k", min=1, help="Width of a query and key (default: dim / heads).")
    ] = None
    d_v: Annotated[
        int | None, _block("--d-v", min=1, help="Width of a value (default: that of a key).")
    ] = None
    d_ff: Annotated[
        int | None,
        _block("--d-ff", min=0, help="Width of the feed-forward (default: 4 · dim); 0 = none."),
    ] = None
    norm: Annotated[
        Literal["pre", "post", "none"] | None,
        _block("--norm", help="Layer norm before a sub-layer, or after (the default), or none."),
    ] = None
    weights: Annotated[
        str | None,
        _block("--weights", metavar="SOURCE", help="A file of w_q, w_k, w_v, w_o and so on."),
    ] = None
    projection: Annotated[
        Literal["learned", "identity"] | None,
        _block("--projection", help="identity: the vectors themselves are Q, K and V."),
    ] = None
    outline: Annotated[
        bool, _block("--outline", help="Only the way: each step, its formula and shape.")
    ] = False
