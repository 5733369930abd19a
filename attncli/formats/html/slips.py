"""Slips of those who compute an attention by hand, as the page has them: trees of formulas.

The page's quiz compares a wrong number with what they give, and calls the slip by its name, which
is that of `check --by-hand`: both read the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from attncli.attention.slips import slips
from attncli.errors import InputError
from attncli.formats.html.tree import tree_of
from attncli.formula.evaluate import sizes_of
from attncli.formula.expression import Formula, cells
from attncli.formula.parser import parse
from attncli.page.arithmetic import formula_of
from attncli.page.select import Block
from attncli.stages import MASKED, OUTPUT, SCALED, SCORES, WEIGHTS

_STAGES = (SCORES, SCALED, MASKED, WEIGHTS, OUTPUT)
_OWN = {"q": "id", "k": "jd", "v": "je"}  # letters by which arrays are read; others have i and j
_CELL = re.compile(r"(\w+)\[(b,h|\{g\}),(\w),(\w)\]")


@lru_cache(1)
def _formulas() -> dict[str, list[tuple[str, str]]]:
    """The slips that are whole formulas of a stage: what they are called, and the formula.

    {o} are the letters before the matrix: those of the head, and {g} of the key head.
    """
    formulas: dict[str, list[tuple[str, str]]] = {stage: [] for stage in _STAGES}
    for slip in slips():
        for line in slip.edits:
            place, _, text = re.split(" when |; | -- ", line)[0].partition(": => ")
            is_plain = place in _STAGES and not re.search(
                r" for |\bright\b|d_model|size\[h\]", line
            )
            if is_plain and text:
                text = re.sub(r"\{[^}]*\}", "", text).replace("unmasked[", f"{SCALED}[")
                text = re.sub(r"\b([kv])_of_head\[b,h", r"\1[{g}", text)
                formulas[place].append((slip.name, _CELL.sub(_cell, text)))
    return formulas


def _cell(cell: re.Match[str]) -> str:
    """A cell of any head; where other letters than its own are there, these say no size."""
    name, outer, *letters = cell.groups()
    pairs = zip(letters, _OWN.get(name, "ij"), strict=True)
    places = ",".join(x if x == letter else f"{x} + 0" for x, letter in pairs)
    return f"{name}[{'{o}' if outer == 'b,h' else outer},{places}]"


def slips_of(block: Block) -> dict[str, list[list[Any]]]:
    """The slips of each stage of an attention: what they are called, and their trees."""
    if block.weights is None or not {SCORES, OUTPUT} <= block.stages.keys():
        return {}
    each = {name: [*_of_stage(block, name)] for name in _STAGES if name in block.stages}
    return {block.prefix + name: slips for name, slips in each.items() if slips}


def _of_stage(block: Block, name: str) -> Iterator[list[Any]]:
    stage = block.stages[name]
    formula = formula_of(stage)
    if formula is None:
        return
    outer = _outer(formula.index)
    keys = next((c.index for c in cells(formula.body) if c.name in ("k", "v")), formula.index)
    places = {"o": outer, "g": _outer(keys)}
    reads = {"k": "k", **stage.reads, SCORES: SCORES, SCALED: SCALED}
    for words, text in _formulas()[name]:
        line = _parsed(text.format(**places).replace("[,", "["))
        names = dict.fromkeys(cell.name for cell in cells(line.body)) if line else {}
        if line is None or not all(reads.get(x) in block.stages for x in names):
            continue
        shapes = {x: block.stages[reads[x]].value.shape for x in names}
        lengths = sizes_of(formula, stage.value.shape, shapes, stage.sizes)
        sizes = sizes_of(line, (), shapes, lengths)
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
