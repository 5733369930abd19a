"""What gradients say of the weights: q1 lowers the loss with less weight on k1."""

from __future__ import annotations

import numpy as np

from attncli.page.arithmetic import factors
from attncli.page.matrix import is_of_softmax
from attncli.page.numbers import short
from attncli.page.select import BlankStage, Block
from attncli.page.sentences import Shares
from attncli.stages import gradient_of
from attncli.trace import Stage

ROUNDING = 4  # units of the number type: what the few roundings of a row leave of a gradient of 0
_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def wishing(block: Block) -> Stage | None:
    """The gradients of the scores, where the block holds them and what they came from.

    They are what that of the queries is computed from, for a step that changes no gradient has none
    of its own.
    """
    d_q = block.stages.get(gradient_of("q"))
    product = d_q and factors(d_q)
    stages = [d_q and product and block.read(d_q, product[0]), *sources_of_wishes(block)]
    whole = all(stage and not isinstance(stage, BlankStage) for stage in stages)
    return stages[0] if whole else None


def sources_of_wishes(block: Block) -> list[Stage | None]:
    """The gradients of what softmax reads, those of the weights, and the weights."""
    stage = next((s for s in block.stages.values() if is_of_softmax(s)), None)
    return [stage, *(stage and block.read(stage, parameter) for parameter in ("d", "y"))]


def rounding_of(block: Block) -> float:
    """How large rounding is beside the largest number of a row."""
    return ROUNDING * _EPSILON[block.convention.dtype]


def wishes(shares: Shares, i: int) -> str:
    """Which score of a row lowers the loss fastest when it changes, or why none does.

    What is no more than rounding beside the gradients of the weights is no gradient.
    """
    block, other = shares.block, "query" if shares.over_queries else "key"
    matrices = [block.matrix(stage, shares.where) for stage in sources_of_wishes(block) if stage]
    matrices = [shares.values, *(x.T if shares.over_queries else x for x in matrices)]
    wish, gradient, offers, weight = (x[i].astype(np.float64) for x in matrices)
    masked = shares.masked[i]
    if masked.all() and not gradient.any():
        return f"has no gradient: every {other} is masked"
    if not np.isfinite(wish).all():
        return "has gradients that are not numbers"
    offer = offers[~masked | (weight != 0)]
    within = rounding_of(block)
    rounding = within * float(np.abs(offer).max(initial=0))
    if np.abs(gradient).max(initial=0) <= rounding or not wish.any():
        if np.count_nonzero(weight) == 1:
            alone = shares.joined(np.flatnonzero(weight).tolist())
            return f"has no gradient: its weight is on {alone} alone"
        if len(offer) and np.ptp(offer) <= rounding:
            number = short(float(offer[0]), shares.options.precision)
            why = "so no change of its weights changes the loss"
            return f"has no gradient: dA is {number} for every {other}, {why}"
        return "has no gradient"
    lower, raise_ = float(wish.max()), -float(wish.min())
    near = within * max(lower, raise_)
    both = []
    for word, size, numbers in (("less", lower, wish), ("more", raise_, -wish)):
        if size > near:  # those that are alike together
            both.append((word, shares.joined(np.flatnonzero(numbers >= size - near).tolist())))
    if lower < raise_ - near:  # the score of the first changes the loss most
        both.reverse()
    texts = [f"{word} {'on' if at else 'weight on'} {name}" for at, (word, name) in enumerate(both)]
    return f"lowers the loss fastest with {' and '.join(texts)}"
