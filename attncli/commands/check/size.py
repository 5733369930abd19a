"""The bytes of a check, counted from shapes alone."""

from __future__ import annotations

import math
from collections.abc import Collection

from attncli.arrays import Array
from attncli.attention.inputs import Inputs
from attncli.attention.memory import operands_of, size_of
from attncli.budget import FLOAT
from attncli.commands.check.search import most_at_once
from attncli.tolerance.run import CELLS


def of_check(
    inputs: Inputs,
    observed: Collection[Array],
    *,
    searches: bool = False,
    whole: bool = False,
) -> int:
    """Bytes of comparing the observed stages with those computed, or of searching for a bug.

    A stage as observed, as expected and as rounded, for its noise, and in the search as a bug has
    it; and either a difference of two or, while a piece is computed, five stages of it (with the
    errors put into each), in the search four, and masks. whole: gradients, for which all queries
    are computed at once.
    """
    sizes, scores = inputs.sizes, inputs.sizes.scores
    operands = sum(x.size for x in operands_of(inputs).values()) * FLOAT
    piece, n_mask = min(math.prod(scores), CELLS), scores[-2] * scores[-1]
    if whole:  # a key head with the query heads that share it, and twice as many stages
        piece = 2 * max(piece, n_mask * (sizes.n_heads // sizes.n_kv_heads))
    if searches and n_mask <= most_at_once():  # of a softmax over queries
        piece = max(piece, n_mask)
    of_piece = 4 * piece + 8 * min(n_mask, piece) if searches else 5 * piece
    of_stage = sum(x.size for x in observed)
    stages = (3 + searches) * of_stage + max(of_stage, of_piece)
    return operands + size_of(observed, 0) + stages * FLOAT
