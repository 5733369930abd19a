"""What a cell is computed from: what a page lights is what its arithmetic changes with; letters."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.trace import Stage, Trace

from .traces import every_kind

KINDS = every_kind()
Cell = tuple[str, int, int]


def meta_of(trace: Trace) -> tuple[dict[str, Any], dict[Cell, float]]:
    """The sections of a page of html, and the number of every cell."""
    page = attncli.render(trace, "html", full=True, precision=15)
    packed = {name: zlib.decompress(b64decode(data)) for name, data in re.findall(r'id="(meta|numbers)">([^<]*)', page)}  # fmt: skip
    sections = json.loads(packed["meta"])["sections"]
    planes = np.frombuffer(packed["numbers"], np.uint8).reshape(4, -1)
    numbers = np.ascontiguousarray(planes.T).view("<f4").ravel()
    cells = {}
    for name, own in sections.items():
        places = [(i, j) for i in own["rows"] for j in own["columns"]]
        for at, (i, j) in enumerate(places if own["start"] is not None else ()):
            cells[name, i, j] = float(numbers[own["start"] + at])
    return sections, cells


def index(rule: list[Any], i: int, j: int) -> int | None:
    """The row or column that is read, None for all: as the script of the page has it."""
    own: list[Any] = [*rule, *[None, 1, 0, 1, 0][len(rule) :]]
    of, each, mod, times, plus = own
    n = {"i": i, "j": j}.get(of, 0) // each
    return None if of == "all" else (n % mod if mod else n) * times + plus


def changed(trace: Trace, which: int) -> Trace:
    """One number of each head of every third stage is another one, and nothing else."""
    rng, names = np.random.default_rng(which), iter(range(10**6))

    def change(stage: Stage) -> Stage:
        if next(names) % 3 != which or stage.value.dtype.kind not in "iuf" or not stage.value.size:
            return stage
        value = stage.value.astype(float).copy()
        at: Any = (..., *(int(rng.integers(n)) for n in value.shape[-2:]))
        value[at] = value[at] * 1.3 + 0.0123456  # −inf stays what it is
        return replace(stage, value=value)

    return trace.mapped(change)


@pytest.mark.parametrize("kind", KINDS)
def test_arithmetic_changes_with_what_is_lit_and_with_nothing_else(kind: str) -> None:
    trace = KINDS[kind]()
    sections, cells = meta_of(trace)
    n_lit = 0
    for which in range(3):
        others, after = meta_of(changed(trace, which))
        touched = {cell for cell, x in after.items() if not np.array_equal(x, cells[cell], True)}
        for name, own in sections.items():
            places = [(i, j) for i in own["rows"] for j in own["columns"]]
            lines = zip(places, own.get("work", ()), others[name].get("work", ()), strict=False)
            for (i, j), before, text in lines:
                if own["name"] == "positions":  # whose divisor any angle of its column tells
                    before, text = (full.partition("\n")[2] for full in (before, text))  # noqa: PLW2901
                if before != text and (name, i, j) not in touched:
                    rules = [(s, index(a, i, j), index(b, i, j)) for s, a, b in own["reads"]]
                    is_lit = any(
                        s == source and row in (None, i) and column in (None, j)
                        for source, row, column in rules for s, i, j in touched
                    )  # fmt: skip
                    n_lit += is_lit
                    assert is_lit or not rules, (own["name"], before, text)
    assert n_lit > 1 or kind in ("rope of a part", "analogy")


# ---- letters

# Of one or two signs with an index, as a formula separates them by spaces and brackets.
LETTER = re.compile(r"(?<![\w₀-₉])(?:PE|b(?=[₀-₉_])|[A-Zγβμσwθ])(?:[₀-₉]+|_\w+)?['′]?(?![\w₀-₉])")
KNOWN = {stage.symbol for make in KINDS.values() for _, stage in make().stages()} - {"x", ""}
GIVEN = {"Q": "quer", "K": "key", "V": "d_v", "M": "mask"}  # and where the page says what they are


def blocks_of(trace: Trace) -> dict[str, dict[str, Stage]]:
    """The stages of each block, by the name they have in it."""
    blocks: dict[str, dict[str, Stage]] = {}
    for name, stage in trace.stages():
        prefix, _, own = name.rpartition(".")
        blocks.setdefault(prefix, {})[own] = stage
    return blocks


@pytest.mark.parametrize("kind", KINDS)
def test_a_letter_is_one_stage_of_a_block_and_is_defined_on_the_page(kind: str) -> None:
    trace = KINDS[kind]()
    words = "\n".join(line for line in attncli.render(trace).splitlines() if not re.match(r"\d+ +\w+  | ", line))  # fmt: skip
    defined = {stage.symbol for _, stage in trace.stages() if stage.formula or stage.symbol == "X"}
    for prefix, stages in blocks_of(trace).items():
        symbols = [stage.symbol for stage in stages.values()]
        assert len({*symbols}) == len(symbols), prefix
        for stage in stages.values():
            right = stage.formula.replace("[O₁ … O_h]", "[O … O]").partition(" = ")[2]
            for letter in {found.removesuffix("ᵀ") for found in LETTER.findall(right)} - {"T", "I"}:
                if letter[0] in "".join(KNOWN):
                    is_said = letter in words or f"{letter} =" in stage.formula
                    assert letter in defined or is_said or GIVEN.get(letter, "?") in words, stage.formula  # fmt: skip
