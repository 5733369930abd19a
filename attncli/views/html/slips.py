"""Slips of those who compute an attention by hand: each is another formula of the stage.

The page's quiz compares a wrong number with what they give, and calls the slip by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attncli.errors import InputError
from attncli.evaluate import sizes_of
from attncli.expression import Formula, cells
from attncli.parser import parse
from attncli.stages import OUTPUT, SCALED, SCORES, WEIGHTS
from attncli.views.html.tree import tree_of
from attncli.views.select import Block
from attncli.views.words import formula_of

# o are the letters before the matrix: those of the head, and of the key head g
_SLIPS = {
    SCORES: (
        ("the keys are not transposed", "sum[d](q[{o},i,d] * k[{g},d + 0,j + 0])"),
        ("added where it is multiplied", "sum[d](q[{o},i,d] + k[{g},j,d])"),
    ),
    SCALED: (
        ("not scaled: it is still to be divided by √d_k", "x[{o},i,j]"),
        ("divided by d_k, not by its root", "x[{o},i,j] / size[d]"),
        ("multiplied where it is divided", "x[{o},i,j] * sqrt(size[d])"),
        ("divided by the root of the number of keys", "x[{o},i,j] / sqrt(size[j] + 0)"),
    ),
    WEIGHTS: (
        ("no exp: shares of the scores themselves", "x[{o},i,j] / sum[j](x[{o},i,j])"),
        ("softmax over columns, not rows", "softmax[i](x[{o},i,j])"),
        ("softmax of the scores before they were scaled", "softmax[j](scores[{o},i,j])"),
        ("softmax without the mask", "softmax[j](scaled[{o},i,j])"),
        ("exp, but not divided by the sum of the row", "exp(x[{o},i,j])"),
        (
            "softmax of the whole table, not of the row",
            "exp(x[{o},i,j]) / sum[i,j](exp(x[{o},i,j]))",
        ),
        ("exp of the negative", "softmax[j](-x[{o},i,j])"),
        ("no softmax", "x[{o},i,j]"),
    ),
    OUTPUT: (
        ("a column of the weights where their row belongs", "sum[j](a[{o},j,i + 0] * v[{g},j,e])"),
        ("the values without their weights", "sum[j](v[{g},j,e])"),
        ("the plain mean of the values", "sum[j](v[{g},j,e]) / size[j]"),
        ("added where it is multiplied", "sum[j](a[{o},i,j] + v[{g},j,e])"),
    ),
    "masked": (("the mask is left out", "x[{o},i,j]"),),
}


def slips_of(block: Block) -> dict[str, list[list[Any]]]:
    """The slips of each stage of an attention: what they are called, and their trees."""
    if block.weights is None or not {SCORES, OUTPUT} <= block.stages.keys():
        return {}
    each = {name: [*_of_stage(block, name)] for name in _SLIPS if name in block.stages}
    return {block.prefix + name: slips for name, slips in each.items() if slips}


def _of_stage(block: Block, name: str) -> Iterator[list[Any]]:
    stage = block.stages[name]
    own = formula_of(stage)
    if own is None:
        return
    outer = _outer(own.index)
    keys = next((c.index for c in cells(own.body) if c.name in ("k", "v")), own.index)
    places = {"o": outer, "g": _outer(keys)}
    reads = {**stage.reads, SCORES: SCORES, SCALED: SCALED}
    for words, text in _SLIPS[name]:
        line = _parsed(text.format(**places).replace("[,", "["))
        names = dict.fromkeys(cell.name for cell in cells(line.body)) if line else {}
        if line is None or not all(reads.get(x) in block.stages for x in names):
            continue
        shapes = {x: block.stages[reads[x]].value.shape for x in names}
        known = sizes_of(own, stage.value.shape, shapes, stage.sizes)
        sizes = sizes_of(line, (), shapes, known)
        used = {x: block.prefix + reads[x] for x in names}
        yield [words, {"is": tree_of(line.body), "reads": used, "sizes": sizes}]


def _outer(index: Any) -> str:
    axes = ["·".join(map(str, axis)) for axis in index[:-2] if isinstance(axis, tuple)]
    return ",".join(axes)


def _parsed(text: str) -> Formula | None:
    try:
        return parse(f"x[i,j] = {text}")
    except InputError:
        return None
