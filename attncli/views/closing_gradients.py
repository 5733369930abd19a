"""What gradients say of the weights: q1 lowers the loss with less weight on k1."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.errors import joined
from attncli.stages import gradient_of
from attncli.trace import Stage
from attncli.views.closing import Shares, shares_of, some, told
from attncli.views.matrix import is_of_softmax
from attncli.views.numbers import short
from attncli.views.select import BlankStage, Block, DisplayOptions, Index
from attncli.views.words import factors

ROUNDING = 4  # units of the number type: what the few roundings of a row leave of a gradient of 0
_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


class _Row(NamedTuple):
    """One query's (or, with softmax over queries, one key's) numbers, those of all others.

    wish    gradients of the scores
    own     gradients of what softmax reads
    offer   gradients of the weights
    weight  the weights
    masked  what it may not attend to
    """

    wish: Array
    own: Array
    offer: Array
    weight: Array
    masked: BoolArray


def wishing(block: Block) -> Stage | None:
    """The gradients of the scores, where the block holds them and what they came from.

    They are what that of the queries is computed from, for a step that changes no gradient has none
    of its own.
    """
    own = block.stages.get(gradient_of("q"))
    product = own and factors(own)
    stages = [own and product and block.read(own, product.left), *_sources(block)]
    whole = all(stage and not isinstance(stage, BlankStage) for stage in stages)
    return stages[0] if whole else None


def _sources(block: Block) -> list[Stage | None]:
    """The gradients of what softmax reads, those of the weights, and the weights."""
    own = next((s for s in block.stages.values() if is_of_softmax(s)), None)
    weights = "a" if own and "a" in own.reads else "y"  # in traces of version 1, and now
    return [own, *(own and block.read(own, parameter) for parameter in ("d", weights))]


def wishes(
    block: Block, index: Index, options: DisplayOptions, n_heads: int = 1
) -> tuple[str, ...]:
    """Of every query shown which score lowers the loss fastest when it changes, or why none does.

    What is no more than rounding beside the gradients of the weights is no gradient.
    """
    stages = [wishing(block), *_sources(block)]
    shares, *others = (shares_of(block, index, options, stage) for stage in stages if stage)
    within = ROUNDING * _EPSILON[block.convention.dtype]

    def sentence(i: int) -> str:
        wish, own, offer, weight = (x.values[i].astype(np.float64) for x in (shares, *others))
        row = _Row(wish, own, offer, weight, shares.masked[i])
        return _sentence(row, shares, within, options.precision)

    return told(shares, sentence, options, n_heads)


def _sentence(row: _Row, shares: Shares, within: float, precision: int) -> str:
    other = "query" if shares.over_queries else "key"
    if row.masked.all() and not row.own.any():
        return f"has no gradient: every {other} is masked"
    if not np.isfinite(row.wish).all():
        return "has gradients that are not numbers"
    allowed = ~row.masked | (row.weight != 0)
    offer = row.offer[allowed]
    rounding = within * float(np.abs(offer).max(initial=0))
    if np.abs(row.own).max(initial=0) <= rounding or not row.wish.any():
        return f"has no gradient{_why(row, shares, offer, rounding, precision)}"
    lower, raise_ = float(row.wish.max()), -float(row.wish.min())
    near = within * max(lower, raise_)
    least = _named(np.flatnonzero(row.wish >= lower - near), shares) if lower > near else ""
    most = _named(np.flatnonzero(-row.wish >= raise_ - near), shares) if raise_ > near else ""
    both = [(word, other) for word, other in (("less", least), ("more", most)) if other]
    if lower < raise_ - near:  # the score of the first changes the loss most
        both.reverse()
    texts = [
        f"{word} {'on' if at else 'weight on'} {other}" for at, (word, other) in enumerate(both)
    ]
    return f"lowers the loss fastest with {' and '.join(texts)}"


def _why(row: _Row, shares: Shares, offer: Array, rounding: float, precision: int) -> str:
    """Why no score of a row changes the loss, where the numbers show it."""
    other = "query" if shares.over_queries else "key"
    some = np.flatnonzero(row.weight)
    if len(some) == 1:
        return f": its weight is on {shares.others[some[0]].spoken()} alone"
    if len(offer) and np.ptp(offer) <= rounding:
        number = short(float(offer[0]), precision)
        return f": dA is {number} for every {other}, so no change of its weights changes the loss"
    return ""


def _named(at: Array, shares: Shares) -> str:
    """Some of the others by name, those that are alike together."""
    return joined(some([shares.others[i].spoken() for i in at.tolist()]))
