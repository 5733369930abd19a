"""What explain reads from files: embeddings instead of words' vectors, and the block's weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attncli.commands.explain.flags import BlockFlags
from attncli.errors import InputError
from attncli.files.contents import FileContents
from attncli.files.embeddings import several_weights
from attncli.files.load import load
from attncli.files.lookup import only
from attncli.files.messages import count, listing, named
from attncli.files.roles import EMBEDDINGS, role_of
from attncli.transformer.names import blocks, is_published
from attncli.transformer.published import published
from attncli.transformer.state_dict import is_weight, weights_from_arrays
from attncli.transformer.weights import Architecture, Weights
from attncli.words.sentence import Vocabulary


class Embedded(NamedTuple):
    """The tokens of a file of embeddings, their vectors, the file, and the name of x in it."""

    tokens: tuple[str, ...]
    vocabulary: Vocabulary
    file: FileContents
    name: str

    def notes(self, weights: FileContents | None) -> tuple[str, ...]:
        """What was wrong with the file, and which of its arrays neither x nor the weights are."""
        file = self.file
        names = [name for name in file.arrays if name != self.name] if weights is not file else []
        return (*file.warnings, *file.unused_note((*names, *file.unread, *file.others)))


def embedded(
    source: str | None, tokens: tuple[str, ...] | None, flags: BlockFlags
) -> Embedded | None:
    """The embeddings of a file; their tokens are the sentence's, else the file's, else x1, x2 …"""
    if source is None:
        return None

    def is_wanted(name: str) -> bool:
        return not name or role_of(name) == "x" or _is_weight(name, flags)

    file = load(source, role="x", selector=is_wanted)
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
        problem = f"{count(len(x), 'row')} for {count(len(tokens), 'token')}"
        raise InputError(f"{file.origin} has {problem}", hint)
    note = f"read from {file.origin}"
    vocabulary = Vocabulary({}, x.shape[1], note, matrix=x.astype(np.float64))
    return Embedded(tokens, vocabulary, file, name)


def _is_weight(name: str, flags: BlockFlags) -> bool:
    is_projection = flags.kind == "attention" and is_published(name)
    return is_projection or is_weight(name, flags.kind)


def weights_file(flags: BlockFlags, embeddings: Embedded | None) -> FileContents | None:
    """The file of the weights: that of --weights, or that of the embeddings where it holds some."""
    if flags.weights is not None:
        return load(flags.weights, selector=lambda name: _is_weight(name, flags))
    file = embeddings.file if embeddings is not None and flags.projection is None else None
    return file if file and any(map(is_published, file.arrays)) else None


def take_heads(flags: BlockFlags, file: FileContents, dim: int) -> tuple[str, ...]:
    """Takes the heads that the arrays have, unless --heads is given; what was assumed."""
    names_of_one = next(iter(blocks(file.arrays).values()), [])
    arrays = {name: file.arrays[name] for name in names_of_one}
    with named(file.origin):
        first = published(
            arrays, [(1, dim)], n_heads=flags.heads, n_kv_heads=flags.kv_heads, whole=False
        )
    flags.heads, flags.kv_heads = first.n_heads, first.n_kv_heads
    return tuple(f"{note[0].upper()}{note[1:]}." for note in ["; ".join(first.notes)] if note)


def weights_of(
    flags: BlockFlags, file: FileContents, block: Architecture
) -> tuple[Weights, tuple[str, ...]]:
    """The weights of a file, and notes on them. InputError or ShapeError where they do not fit."""
    kind = block.kind
    if "" in file.arrays and flags.weights is not None:
        problem = f"{file.origin} holds one matrix without a name"
        raise InputError(problem, "name w_q, w_k and so on")
    arrays = {name: x for name, x in file.arrays.items() if is_weight(name, kind)}
    attentions = blocks(file.arrays)
    if kind == "attention" and len(attentions) == 1 and not arrays:  # of other names
        ((scope, names),) = attentions.items()
        arrays = {name[len(scope) + 1 :]: file.arrays[name] for name in names}
    if kind == "attention" and len(attentions) > 1 and not arrays:
        raise several_weights(file, attentions)
    rest = [name for name in file.unread if role_of(name) in (*EMBEDDINGS, "mask")]
    if flags.weights is not None:  # any other is refused by its name
        arrays |= {name: np.zeros(0) for name in file.unread if name not in rest}
    with named(file.origin):
        weights = weights_from_arrays(arrays, block)
    used, total = (sum(x.size for x in group.values()) for group in (weights, arrays))
    notes = [f"The weights are those of {file.origin}: {listing(arrays)}."]
    if used < total:
        notes.append(f"{total - used} of its {total} numbers are for other blocks and not used.")
    if flags.weights is None:
        return weights, tuple(notes)
    return weights, (*notes, *file.warnings, *file.unused_note((*rest, *file.others)))
