"""From the flags of `attncli explain` to tokens, vectors and a mask, and to the trace of it all."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.cli.explain_flags import Flags, model_of
from attncli.cli.explain_options import Vectors, Words
from attncli.cli.explain_weights import weights_of
from attncli.cli.memory import check_fits
from attncli.convention import Convention
from attncli.errors import InputError
from attncli.explain.pipeline import Keep, explain
from attncli.explain.sentence import Sentence, Vocabulary, from_file, made_up
from attncli.trace import Trace
from attncli.words.tokens import tokenize

Array = npt.NDArray[Any]

DIM = 8


def trace_of(flags: Flags, keep: Keep | None) -> tuple[Trace, tuple[str, ...]]:
    """The way that the flags ask for, and what was wrong with the file of vectors.

    `keep` says which stages of a layer are held. Raises AttncliError for whatever does not fit.
    """
    words = flags.words
    model_of(flags, {}, ())  # refuses what contradicts before anything is read
    said, asked = sentences_of(words)
    n_keys = max(len(said), words.pad_to or 0)
    check_room(flags, max(n_keys, len(asked or ())), n_keys, keep)
    vocabulary = vocabulary_of(flags.vectors, (*said, *(asked or ())), flags.seed)
    weights, notes = weights_of(flags, vocabulary.dim)
    trace = explain(
        Sentence.padded(said, words.pad_to),
        vocabulary,
        model_of(flags, weights, notes),
        target=None if asked is None else Sentence.padded(asked),
        mask=mask_of(words.mask, flags.choices.given.get("mask_means")),
        keep=keep,
    )
    return trace, vocabulary.warnings


def sentences_of(words: Words) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """The tokens of the sentence and of the target, without padding.

    Raises InputError where one of them is empty.
    """
    if words.tokens is None:
        said = tokenize(words.sentence or "", words.lowercase)
    else:
        said = _given_tokens(words.tokens)
        said = tuple(token.lower() for token in said) if words.lowercase else said
    if words.target is None:
        return said, None
    try:
        return said, tokenize(words.target, words.lowercase)
    except InputError as error:
        raise InputError(f"--target: {error.message}", error.hint) from None


def _given_tokens(text: str) -> tuple[str, ...]:
    """A,B,C or a JSON list of strings; spaces around a comma are none of a token's."""
    if not text.startswith("["):
        tokens = tuple(part.strip() for part in text.split(","))
        if not all(tokens):
            raise InputError("--tokens holds an empty token", "write --tokens a,b,c")
        return tokens
    import json

    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(x, str) and x for x in found) or not found:
        raise InputError("--tokens is no JSON list of strings", """write --tokens '["a", ","]'""")
    return tuple(found)


def vocabulary_of(vectors: Vectors, words: tuple[str, ...], seed: int) -> Vocabulary:
    """The vectors of these words, made up or from the file of --glove."""
    if vectors.glove is None:
        return made_up(words, vectors.dim or DIM, seed)
    unknown = vectors.unknown or "random"
    return from_file(vectors.glove, words, unknown=unknown, seed=seed, dim=vectors.dim)


def mask_of(source: str | None, means: str | None) -> Array | None:
    """The mask of --mask as numbers to add: −∞ where a token may not attend."""
    if source is None:
        return None
    from attncli.cli.masks import checked_mask
    from attncli.files.load import load
    from attncli.files.roles import only

    loaded = load(source, role="mask")
    mask = checked_mask(only(loaded, "mask"), means, loaded.origin)
    if mask.dtype != np.bool_:
        return mask
    return np.where(mask == (means != "ignore"), 0.0, -np.inf)


def check_room(flags: Flags, n_queries: int, n_keys: int, keep: Keep | None) -> None:
    """SizeError where the stages do not fit into memory."""
    n_layers = flags.block.layers or 1
    n_held = n_layers if keep is None else min(n_layers, 2)
    matrices = (flags.block.heads or 1) * n_held + 2  # and the cosines of the closing words
    dtype = flags.choices.given.get("dtype", "float64")
    check_fits((matrices, n_queries, n_keys), Convention(dtype=dtype))
