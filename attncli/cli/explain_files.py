"""What explain reads from files: embeddings instead of words' vectors, and the block's weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attncli.attention.names import is_published
from attncli.attention.published import blocks, published
from attncli.attention.state_dict import is_weight, weights_from_arrays
from attncli.attention.weights import Dimensions, Weights
from attncli.cli.commands import Block
from attncli.errors import InputError
from attncli.explain.sentence import Vocabulary
from attncli.files.load import Loaded, load
from attncli.files.messages import ask_for, count, listing
from attncli.files.roles import EMBEDDINGS, only, role_of


class Embedded(NamedTuple):
    """The tokens of a file of embeddings, their vectors, and the file where it holds weights."""

    tokens: tuple[str, ...]
    vocabulary: Vocabulary
    file: Loaded
    notes: tuple[str, ...]


def embedded(source: str | None, tokens: tuple[str, ...] | None) -> Embedded | None:
    """The embeddings of a file; their tokens are the sentence's, else the file's, else x1, x2 …"""
    if source is None:
        return None
    file = load(
        source,
        role="x",
        wanted=lambda name: not name or role_of(name) == "x" or is_published(name),
    )
    x = only(file, "x")
    if x.ndim != 2:
        shape = " × ".join(map(str, x.shape))
        hint = f"explain takes one sentence: (tokens, d); name a part of {file.origin}"
        raise InputError(f"{file.origin}, x is {shape}", hint)
    name = next(name for name, array in file.arrays.items() if array is x)
    tokens = tokens or file.query_labels or file.row_labels or file.words.get(name)
    tokens = tokens or tuple(f"x{number}" for number in range(1, len(x) + 1))
    if len(tokens) != len(x):
        hint = "give a row for each token"
        what = f"{count(len(x), 'row')} for {count(len(tokens), 'token')}"
        raise InputError(f"{file.origin} has {what}", hint)
    note = f"read from {file.origin}"
    vocabulary = Vocabulary({}, x.shape[1], note, matrix=x.astype(np.float64))
    rest = (n for n in (*file.unread, *file.others) if not is_published(n))
    return Embedded(tokens, vocabulary, file, (*file.warnings, *file.unused_note(rest)))


def weights_file(block: Block, given: Embedded | None) -> Loaded | None:
    """The file of the weights: that of --weights, or that of the embeddings where it holds some."""
    if block.weights is None:
        file = given.file if given is not None and block.projection is None else None
        return file if file and any(map(is_published, file.arrays)) else None
    kind = block.weights_kind
    return load(
        block.weights,
        wanted=lambda name: is_weight(name, kind) or (kind == "attention" and is_published(name)),
    )


def take_heads(block: Block, file: Loaded, dim: int) -> tuple[str, ...]:
    """Takes the heads that an attention's arrays have, unless --heads is given; what was assumed.

    Of many layers the first one says so for all.
    """
    own = next(iter(blocks(file.arrays).values()), [])
    arrays = {name: file.arrays[name] for name in own}
    found = published(
        arrays, [(1, dim)], n_heads=block.heads, n_kv_heads=block.kv_heads, whole=False
    )
    block.heads, block.kv_heads = found.n_heads, found.n_kv_heads
    return tuple(f"{note[0].upper()}{note[1:]}." for note in ["; ".join(found.notes)] if note)


def weights_of(
    block: Block, file: Loaded, dimensions: Dimensions
) -> tuple[Weights, tuple[str, ...]]:
    """The weights of a file, and notes on them. InputError or ShapeError where they do not fit."""
    kind = block.weights_kind
    if "" in file.arrays and block.weights is not None:
        raise InputError(
            f"{file.origin} holds one matrix without a name", "name w_q, w_k and so on"
        )
    arrays = {name: x for name, x in file.arrays.items() if is_weight(name, kind)}
    found = blocks(file.arrays)
    if kind == "attention" and len(found) == 1 and not arrays:  # of a model that has other names
        ((scope, names),) = found.items()
        arrays = {name[len(scope) + 1 :]: file.arrays[name] for name in names}
    if kind == "attention" and len(found) > 1 and not arrays:
        raise InputError(
            f"{file.origin} holds the weights of {len(found)} attentions: {listing(found, 4)}",
            f"name one: {ask_for(file.origin, next(iter(found)))}",
        )
    rest = [name for name in file.unread if role_of(name) in (*EMBEDDINGS, "mask")]
    if block.weights is not None:  # any other is refused by its name
        arrays |= {name: np.zeros(0) for name in file.unread if name not in rest}
    weights = weights_from_arrays(arrays, kind, dimensions, n_layers=block.layers)
    used, given = (sum(x.size for x in own.values()) for own in (weights, arrays))
    notes = [f"The weights are those of {file.origin}: {listing(arrays)}."]
    if used < given:
        notes.append(f"{given - used} of its {given} numbers are for other blocks and not used.")
    if block.weights is None:
        return weights, tuple(notes)
    return weights, (*notes, *file.warnings, *file.unused_note((*rest, *file.others)))
