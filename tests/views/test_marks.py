"""Numbers and labels within an equation are marked, and nothing else can be taken for a mark."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from attncli.views.arithmetic import equation
from attncli.views.cell import Entry
from attncli.views.formats import FORMATS, PAGE, table
from attncli.views.parts import Equation
from attncli.views.select import Block, DisplayOptions
from attncli.views.text import END, LABEL, NUMBER, number_mark, plain

from .traces import CAUSAL, attention

FORGED = (f"{NUMBER}7{END}", f"{LABEL}x", END)
MARKED = re.compile(f"({NUMBER}|{LABEL})([^{NUMBER}{LABEL}{END}]*){END}")


def equation_of(name: str, row: int, column: int, **options: Any) -> Equation:
    trace = attention(mask=CAUSAL, labels={"query": FORGED, "key": FORGED})
    block = Block(trace)
    found = equation(Entry(block, block.stages[name], {}, row, column, 4, 12, **options))
    assert found is not None
    return found


def marked(found: Equation) -> tuple[list[str], list[str]]:
    """The numbers and the labels of an equation."""
    text = " ".join([found.left, *(word for form in found.forms for word in form)])
    assert plain(MARKED.sub("", text)) == MARKED.sub("", text)  # no mark is left, or is within one
    pieces = MARKED.findall(text)
    numbers = [piece for kind, piece in pieces if kind == NUMBER]
    return numbers, [piece for kind, piece in pieces if kind == LABEL]


def test_numbers_and_labels_of_a_sum() -> None:
    numbers, labels = marked(equation_of("scores", 2, 1))
    assert numbers == ["1", "1", "1", "0", "1"]  # 1·1 + 1·0 = 1
    assert labels == ["\\ue002", "\\ue001x"]


def test_numbers_of_a_template_and_of_softmax() -> None:
    numbers, labels = marked(equation_of("scaled", 0, 0))
    assert numbers == ["1", "1.4142", "0.7071"]
    assert labels == ["\\ue0007\\ue0…"] * 4
    numbers, _ = marked(equation_of("weights", 1, 1, at_length=True))
    # exp(0) / (exp(0.7071) + exp(0)) = 1 / (2.0281 + 1) = 1 / 3.0281 = 0.3302
    expected = ["0", "0.7071", "0", "1", "2.0281", "1", "1", "3.0281", "0.3302"]
    assert numbers == expected


def test_a_negative_number_after_an_operator_is_one_number_with_its_parentheses() -> None:
    trace = attention([[1.0, -2.0]], [[-3.0, -4.0]], [[1.0]])
    block = Block(trace)
    found = equation(Entry(block, block.stages["scores"], {}, 0, 0, 4, 12))
    assert found is not None
    assert marked(found)[0] == ["1", "(-3)", "(-2)", "(-4)", "5"]
    assert found.plain.forms == (("1·(-3)", "+ (-2)·(-4)"), ("5",))


def test_a_number_left_out_is_room_to_write_one() -> None:
    assert plain(f"1 + {number_mark('')}") == "1 + ____"


@pytest.mark.parametrize("name", [n for n, form in FORMATS.items() if form.holds == PAGE])
@pytest.mark.parametrize(
    "options", [{"work": True}, {"cell": ("2", "1")}, {"stages": ("weights",)}]
)
def test_no_page_has_a_mark(name: str, options: dict[str, Any]) -> None:
    trace = attention(mask=CAUSAL, labels={"query": FORGED, "key": FORGED}, notes=FORGED)
    trace = trace.mapped(lambda stage: replace(stage, symbol=FORGED[0], note=FORGED[1]))
    module: Any = import_module(f"attncli.views.formats.{name}")
    text = "".join(module.text(replace(trace, title=END), DisplayOptions(**options)))
    assert not set(text) & {NUMBER, LABEL, END}


def test_no_page_has_a_mark_of_a_template() -> None:
    trace = attention().mapped(lambda stage: replace(stage, work=stage.work and f"{END}{NUMBER}1"))
    text = "".join(table.text(trace, DisplayOptions(work=True)))
    assert r"S[q1,k1] = \ue002\ue0001 = 1" in text
    assert not set(text) & {NUMBER, LABEL, END}
