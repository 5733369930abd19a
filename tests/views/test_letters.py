"""One letter means one thing on a page, and every letter in a formula is defined there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from attncli.attention.attend import attend, attend_heads
from attncli.attention.positions import add_positions, position_dots, sinusoidal
from attncli.stages import KINDS
from attncli.trace import Stage, Trace
from attncli.views.page import headline
from attncli.views.select import Block, blocks_of
from attncli.words.similarity import pca, similarity
from tests.test_stages import HOWS, gradients, gradients_of_weights, numbers, sentences

# A letter: of one or two signs with an index, as a formula separates them by spaces and brackets.
LETTER = re.compile(r"(?<![\w₀-₉])(?:PE|b(?=[₀-₉_])|[A-Zγβμσwθ])(?:[₀-₉]+|_\w+)?['′]?(?![\w₀-₉])")
KNOWN = {kind.symbol for kind in KINDS.values()} - {"x", ""}
GIVEN = {"Q": "quer", "K": "key", "V": "d_v", "M": "mask"}  # and where the page says what they are


def pages() -> Iterator[Trace]:
    for changes in HOWS:
        yield attend(numbers(2, 3, 5), numbers(2, 3, 5), numbers(2, 3, 2), **changes)
    yield attend(numbers(3, 2), numbers(5, 2), numbers(5, 7), mask=numbers(3, 5), sinks=[1.0])
    yield attend_heads(numbers(3, 6), numbers(5, 6), numbers(5, 4), n_heads=2, dropout=0.5)
    yield from gradients()
    yield from gradients_of_weights()
    yield from sentences()
    yield position_dots(sinusoidal(3, 5))
    yield add_positions(numbers(3, 4), sinusoidal(3, 4))
    yield similarity(("a", "b"), numbers(2, 3))
    yield pca(("a", "b", "c"), numbers(3, 5))


def letters_of(formula: str) -> set[str]:
    """The letters that a formula reads: those on its right."""
    right = formula.partition(" = ")[2]
    letters = (letter.removesuffix("ᵀ") for letter in LETTER.findall(right))
    return {x for x in letters if x[0] in "".join(KNOWN) and x not in ("T", "I")}


@pytest.mark.parametrize("trace", [*pages()], ids=lambda trace: trace.title)
def test_a_letter_is_one_stage_of_a_block(trace: Trace) -> None:
    for block in blocks_of(trace):
        found: dict[str, Stage] = {}
        own = [*block.stages.values()]
        read = [block.read(stage, name) for stage in own for name in stage.reads]
        outside = [stage for stage in read if stage and stage not in own]
        for stage in [*own, *outside]:
            is_context = f"({_name(block, stage)})." in " ".join(
                block.trace.notes
            )  # it is called C
            if not is_context:
                other = found.setdefault(stage.symbol, stage)
                assert other is stage, f"{block.prefix}: {stage.symbol} is {other.name} too"


def _name(block: Block, stage: Stage) -> str:
    if block.stages.get(stage.name) is stage:
        return f"{block.prefix}{stage.name}"
    return next(name for name, other in block.root.stages() if other is stage)


@pytest.mark.parametrize("trace", [*pages()], ids=lambda trace: trace.title)
def test_every_letter_of_a_formula_is_defined_on_the_page(trace: Trace) -> None:
    defined = {kind.symbol for name, kind in KINDS.items() if name in trace and name[0] == "x"}
    defined |= {stage.symbol for _, stage in trace.stages() if stage.formula}
    for block in blocks_of(trace):
        head = headline(block)
        words = " ".join([head.title, *head.facts, *head.choices, *head.notes])
        for stage in block.stages.values():
            for letter in letters_of(stage.formula.replace("[O₁ … O_h]", "[O … O]")):
                said = letter in words or f"{letter} =" in stage.formula
                given = GIVEN.get(letter, "?") in words
                assert letter in defined or said or given, f"{stage.name}: {stage.formula}"


def test_what_a_formula_reads_is_what_its_letters_name() -> None:
    """The letters of the stages that are read are in the formula: R₂ = N₁ + F reads N₁ and F."""
    for trace in pages():
        for block in blocks_of(trace):
            for stage in block.stages.values():
                read = {block.read(stage, name) for name in stage.reads}
                names = {other.symbol for other in read if other} & KNOWN
                formula = stage.formula.replace("C W", "C N₁ N₂ N₃ N X E W")
                if stage.name in ("output", "residual", "hidden", "q", "k", "v", "weights"):
                    wanted = {x for x in names if not x.startswith(("M", "s"))}
                    assert wanted <= set(LETTER.findall(formula)), (stage.name, stage.formula)
