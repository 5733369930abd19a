"""The bytes of a check, counted from shapes alone."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from attncli.arrays import Array
from attncli.attention.memory import size_of
from attncli.budget import FLOAT
from attncli.commands.check.search import most_at_once
from attncli.tolerance.run import CELLS


def of_check(
    arguments: Mapping[str, Any],
    scores: tuple[int, ...],
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
    q, k, v = (arguments[name] for name in "qkv")
    inputs = size_of([q, k, v, arguments.get("past_k"), arguments.get("past_v")], FLOAT)
    piece, n_mask = min(math.prod(scores), CELLS), scores[-2] * scores[-1]
    if whole:  # a key head with the query heads that share it, and twice as many stages
        n_heads, n_kv_heads = (x.shape[-3] if x.ndim > 2 else 1 for x in (q, k))
        piece = 2 * max(piece, n_mask * (n_heads // n_kv_heads))
    if searches and n_mask <= most_at_once():  # of a softmax over queries
        piece = max(piece, n_mask)
    of_piece = 4 * piece + 8 * min(n_mask, piece) if searches else 5 * piece
    of_stage = sum(x.size for x in observed)
    stages = (3 + searches) * of_stage + max(of_stage, of_piece)
    return inputs + size_of(observed, 0) + stages * FLOAT
