"""The page of a comparison: both matrices and their difference, where it is largest."""

from __future__ import annotations

import io
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from attncli.compare import Comparison, diff
from attncli.convention import Convention
from attncli.errors import StageError
from attncli.trace import Stage, Trace
from attncli.views.diff import diff_page
from attncli.views.formats import FORMATS
from attncli.views.formats.table import Screen, blocks
from attncli.views.matrix import Matrix
from attncli.views.page import parts
from attncli.views.parts import Heading, Remark
from attncli.views.select import DisplayOptions

from .hostile import LABELS
from .test_golden import check_golden
from .traces import CAUSAL, attention, numbers

WORDS = {"query": ("The", "cat", "sat"), "key": ("The", "cat", "sat")}
NAMES = ("ours.json", "theirs.json")


def masked() -> Comparison:
    a = attention(convention=Convention(), labels=WORDS)
    return diff(
        a, attention(mask=CAUSAL, convention=Convention(causal=True), labels=WORDS), names=NAMES
    )


def heads(n: int, *at: tuple[int, ...]) -> Comparison:
    """Weights of n heads, n × 20 × 30, that differ at some places."""
    value = numbers(n, 20, 30)
    other = value.copy()
    for size, index in enumerate(at, 1):
        other[index] += size
    axes = ("head", "query", "key")
    a, b = (Trace("", (Stage("weights", "A", "", x, axes),)) for x in (value, other))
    return diff(a, b, names=NAMES)


def parts_of(found: Comparison, **options: Any) -> list[Any]:
    return list(diff_page(found)(found.trace(()), DisplayOptions(**options)))


def matrices(found: Comparison, **options: Any) -> list[Matrix]:
    return [x for x in parts_of(found, **options) if isinstance(x, Matrix) and x.name]


def table(found: Comparison, colour: bool = False, **options: Any) -> str:
    page = blocks(
        found.trace(()), DisplayOptions(**options), diff_page(found), Screen(80, 24, colour)
    )
    return "\n".join(block.plain.rstrip("\n") for block in page) + "\n"


def test_the_page_at_80_columns() -> None:
    found = table(masked())
    assert max(map(len, found.splitlines())) <= 80
    assert not any(line.endswith(" ") for line in found.splitlines())
    check_golden("diff.txt", found)


def test_the_page_with_marks() -> None:
    check_golden("diff_marks.txt", table(masked(), stages=("weights",), heatmap=True))


def test_the_page_in_markdown() -> None:
    found, markdown = masked(), import_module("attncli.views.formats.markdown")
    check_golden(
        "diff.md", "".join(markdown.text(found.trace(()), DisplayOptions(), diff_page(found)))
    )


def test_what_is_the_same_is_marked_and_not_shown_as_a_number() -> None:
    *_, difference = matrices(masked(), stages=("weights",))
    grid = difference.grid((0, 1, 2), (0, 1, 2))
    texts = [[cell.text.strip() for cell in row] for row in grid.cells]
    assert texts[2] == ["·", "·", "·"]  # the last query may attend to all
    assert difference.sums == ""
    assert texts[0][0] == "0.5989"  # 1 − 0.4011


def test_the_head_with_the_largest_difference_is_shown() -> None:
    found = heads(12, (3, 5, 7), (10, 15, 2))
    first, second, difference = matrices(found)
    assert [m.where for m in (first, second, difference)] == 3 * [{"head": 10}]
    assert 15 in difference.rows
    assert 2 in difference.columns
    assert (len(difference.rows), len(difference.columns)) == (12, 8)
    assert any("1 more of 12 places" in x.text for x in parts_of(found) if isinstance(x, Remark))


def test_other_heads_are_shown_where_they_are_asked_for() -> None:
    found = heads(12, (3, 5, 7), (10, 15, 2))
    assert {m.where["head"] for m in matrices(found, head=3)} == {3}
    assert {m.where["head"] for m in matrices(found, full=True)} == {3, 10}
    assert {len(m.rows) for m in matrices(found, full=True)} == {20}
    assert {len(m.rows) for m in matrices(found, rows=(0, 4))} == {4}


def test_both_have_the_same_scale_of_shades() -> None:
    value = np.array([[0.1, 0.2]])
    a, b = (
        Trace("", (Stage("weights", "A", "", x, ("query", "key")),)) for x in (value, 4 * value)
    )
    shown = matrices(diff(a, b))
    tops = [m.grid((0,), (0, 1), colour=True).shading for m in shown]
    assert [t and (t.ramp, t.top) for t in tops] == [
        ("share", 1.0),
        ("share", 1.0),
        ("signed", 1.0),
    ]


def test_a_stage_that_is_the_same_can_be_asked_for_and_one_that_is_not_there_cannot() -> None:
    assert [m.name for m in matrices(masked(), stages=("scores",))] == [*NAMES, "difference"]
    with pytest.raises(StageError, match="there is no stage 'score'"):
        parts_of(masked(), stages=("score",))


def test_blocks_that_are_the_same_are_counted() -> None:
    inner = [replace(attention(), name=str(n)) for n in (1, 2, 3)]
    other = [*inner[:1], replace(attention(mask=CAUSAL), name="2"), *inner[2:]]
    found = diff(*(Trace("Stack", tuple(x)) for x in (inner, other)))
    page = parts_of(found)
    assert next(x.text for x in page if isinstance(x, Heading)) == "2"
    assert any(
        x.text == "the same: 1 (7 stages), 3 (7 stages)" for x in page if isinstance(x, Remark)
    )


@pytest.mark.parametrize("name", [n for n in FORMATS if n != "mermaid"])
def test_every_format_holds_a_comparison_with_hostile_labels(name: str) -> None:
    if FORMATS[name].needs:
        pytest.importorskip(FORMATS[name].needs)
    words = tuple(LABELS.values())
    value = numbers(len(words), 2)
    axes, labels = ("query", "d_v"), {"query": words}
    a, b = (
        Trace("\x1b[31m", (Stage("output", "O", "", x, axes, labels),), notes=("</script>",))
        for x in (value, value + 1)
    )
    found = diff(a, b, names=("\x1b[31m<b>", "]8;;"))
    module: Any = import_module(f"attncli.views.formats.{name}")
    trace, options = found.trace(), DisplayOptions(full=True)
    if FORMATS[name].binary:
        module.write(trace, options, io.BytesIO())
        return
    text = "".join(module.text(trace, options, diff_page(found)))
    assert text
    assert not {"\x1b", "\u202e", "\x07"} & {*text}
    assert name not in ("html", "svg") or "<b>x" not in text


def test_a_page_of_html_holds_every_head_of_both() -> None:
    found = heads(3, (2, 5, 7))
    html = import_module("attncli.views.formats.html")
    text = "".join(html.text(found.trace(()), DisplayOptions(), diff_page(found)))
    for head in (1, 2, 3):
        assert text.count(f'data-head="{head}"') >= 4  # a title, both matrices, the difference


def test_a_difference_of_weights_is_shaded_around_zero() -> None:
    a, b = attention(), attention(mask=CAUSAL)
    trace = diff(a, b).trace()
    (difference,) = (
        x
        for x in parts(trace, DisplayOptions(stages=("difference.weights",)))
        if isinstance(x, Matrix)
    )
    shading = difference.grid((0, 1, 2), (0, 1, 2), colour=True).shading
    assert shading is not None
    assert shading.ramp == "signed"
