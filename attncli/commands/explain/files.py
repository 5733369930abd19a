"""What explain reads from files: embeddings instead of words' vectors, and the block's weights."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.commands.explain.flags import BlockFlags
from attncli.commands.explain.setup import GivenWeights, is_of_block, weights_among
from attncli.errors import InputError
from attncli.files.contents import FileContents
from attncli.files.embeddings import several_weights
from attncli.files.load import read_source
from attncli.files.lookup import only
from attncli.files.roles import EMBEDDINGS, role_of
from attncli.transformer.names import is_published
from attncli.transformer.weights import BlockKind
from attncli.words.sentence import Vocabulary, row_vocabulary


class Embedded(NamedTuple):
    """The tokens of a file of embeddings, their vectors, the file, and the name of x in it."""

    tokens: tuple[str, ...]
    vocabulary: Vocabulary
    file: FileContents
    name: str

    def notes(self, *, holds_weights: bool) -> tuple[str, ...]:
        """What was wrong with the file, and which of its arrays are not used.

        holds_weights  whether those that are not x are the weights
        """
        names = [] if holds_weights else [name for name in self.file.arrays if name != self.name]
        unused = (*names, *self.file.unread, *self.file.others)
        return (*self.file.warnings, *self.file.unused_note(unused))


def embedded(
    source: str | None, tokens: tuple[str, ...] | None, kind: BlockKind
) -> Embedded | None:
    """The embeddings of a file; their tokens are the sentence's, else the file's, else x1, x2 …"""
    if source is None:
        return None

    def is_wanted(name: str) -> bool:
        return not name or role_of(name) == "x" or is_of_block(name, kind)

    file = read_source(source, role="x", selector=is_wanted)
    x = only(file, "x")
    name = next(name for name, array in file.arrays.items() if array is x)
    tokens = tokens or file.query_labels or file.row_labels or file.words.get(name)
    tokens = tokens or tuple(f"x{number}" for number in range(1, len(x) + 1))
    return Embedded(tokens, row_vocabulary(x, len(tokens), file.origin), file, name)


def given_weights(
    flags: BlockFlags, embeddings: Embedded | None, kind: BlockKind
) -> GivenWeights | None:
    """The weights of --weights, or those of the file of embeddings where it holds some."""
    if flags.weights is not None:
        file = read_source(flags.weights, selector=lambda name: is_of_block(name, kind))
        rest = [name for name in file.unread if role_of(name) in (*EMBEDDINGS, "mask")]
        refused = {name: np.zeros(0) for name in file.unread if name not in rest}
        remarks = (*file.warnings, *file.unused_note((*rest, *file.others)))
    elif embeddings is None or flags.projection is not None:
        return None
    else:
        file, refused, remarks = embeddings.file, {}, ()
        if not any(map(is_published, file.arrays)):
            return None

    def chosen() -> dict[str, npt.ArrayLike]:
        if "" in file.arrays and flags.weights is not None:
            problem = f"{file.origin} holds one matrix without a name"
            raise InputError(problem, "name w_q, w_k and so on")
        return weights_among(file.arrays, kind, partial(several_weights, file)) | refused

    return GivenWeights(file.arrays, chosen, file.origin, remarks)
