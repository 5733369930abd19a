"""The page of a comparison: both matrices and their difference, where it is largest."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

import attncli
from attncli.compare import Comparison
from attncli.errors import StageError
from attncli.trace import Trace
from attncli.views.diff import diff_page
from attncli.views.formats import FORMATS
from attncli.views.select import DisplayOptions

from .hostile import LABELS
from .rendering import shown, table_of
from .traces import WORDS, attention, causal, matrix, numbers

NAMES = ("ours.json", "theirs.json")


def page(comparison: Comparison, form: str = "table", **options: Any) -> str:
    own = {"width": 80} if form == "table" else {}
    return shown(comparison.trace(()), form, page=diff_page(comparison), **own, **options)


def masked() -> Comparison:
    return attncli.diff(attention(labels=WORDS), causal(), names=NAMES)


def heads(n: int, *at: tuple[int, ...]) -> Comparison:
    """Weights of n heads, n × 20 × 30, that differ at some places."""
    value, other = numbers(n, 20, 30), numbers(n, 20, 30)
    for size, index in enumerate(at, 1):
        other[index] += size
    a, b = (matrix(x, "weights", ("head", "query", "key")) for x in (value, other))
    return attncli.diff(a, b, names=NAMES)


def test_what_is_the_same_is_marked_and_not_shown_as_a_number() -> None:
    text = page(masked(), stages=("weights",))
    assert table_of(text, "difference")[1][1] == "0.5989"  # 1 − 0.4011
    assert table_of(text, "difference")[3] == ["sat", "·", "·", "·"]  # it may attend to all
    assert "Σ" not in text.partition("\ndifference ")[2]
    assert max(map(len, text.splitlines())) <= 80


def test_the_head_with_the_largest_difference_is_shown_and_others_if_asked_for() -> None:
    comparison = heads(12, (3, 5, 7), (10, 15, 2))
    text = page(comparison)
    assert {*re.findall(r"head (\d+) of 12", text)} == {"11"}
    assert "1 more of 12 places" in text
    rows = table_of(text, "difference")
    assert "k3" in rows[0]
    assert "q16" in [row[0] for row in rows]
    assert {*re.findall(r"head (\d+) of 12", page(comparison, head=3))} == {"4"}
    whole = page(comparison, full=True)
    assert {*re.findall(r"head (\d+) of 12", whole)} == {"4", "11"}
    assert whole.count("\n  q20 ") % (2 * 3) == 0
    assert "\n  q4 " in page(comparison, rows=(0, 4))
    assert "\n  q5 " not in page(comparison, rows=(0, 4))
    html = page(heads(3, (2, 5, 7)), "html")
    for head in (1, 2, 3):
        assert html.count(f'data-head="{head}"') >= 4  # a title, both matrices, the difference


def test_both_have_the_same_scale_of_shades_and_a_difference_one_around_zero() -> None:
    a, b = (matrix([[x, 2 * x]], "weights") for x in (0.1, 0.4))
    text = page(attncli.diff(a, b), heatmap=True)
    tops = re.findall(r"(size of the )?number, from \S+ to (\S+)", text)
    assert tops == [("", "1"), ("", "1"), ("size of the ", "1")]
    trace = attncli.diff(attention(), attention(causal=True)).trace()
    assert "size of the number" in shown(trace, stages=("difference.weights",), heatmap=True)


def test_stages_and_blocks_that_are_the_same() -> None:
    assert all(name in page(masked(), stages=("scores",)) for name in (*NAMES, "difference"))
    with pytest.raises(StageError, match="'score'"):
        page(masked(), stages=("score",))
    inner = [replace(attention(), name=str(n)) for n in (1, 2, 3)]
    other = [inner[0], replace(attention(causal=True), name="2"), inner[2]]
    text = page(attncli.diff(*(Trace("Stack", tuple(x)) for x in (inner, other))))
    assert re.search(r"^2$", text, re.MULTILINE)
    assert re.search(r"the same: 1 \(\d stages\), 3 \(\d stages\)", text)


@pytest.mark.parametrize("name", [n for n in FORMATS if n != "mermaid"])
def test_every_format_holds_a_comparison_with_hostile_labels(name: str) -> None:
    if FORMATS[name].needs:
        pytest.importorskip(FORMATS[name].needs)
    words = tuple(LABELS.values())
    traces = (matrix(numbers(len(words), 2) + x, "output", labels={"query": words}) for x in (0, 1))
    a, b = (replace(trace, title="\x1b[31m", notes=("</script>",)) for trace in traces)
    comparison = attncli.diff(a, b, names=("\x1b[31m<b>", "]8;;"))
    if FORMATS[name].binary:
        module: Any = import_module(f"attncli.views.formats.{name}")
        module.write(comparison.trace(), DisplayOptions(full=True), io.BytesIO())
        return
    text = page(comparison, name, full=True)
    assert text
    assert not {"\x1b", "\u202e", "\x07"} & {*text}
    assert name not in ("html", "svg") or "<b>x" not in text
