"""The options of a page, its flags and its keywords in Python say the same."""

from typing import Any, get_type_hints

import pytest

import attncli
from attncli.cli.options import DisplayFlags
from attncli.page.options import FLAGS, DisplayOptions, PlotKeywords, RenderKeywords
from tests.page.traces import attention

WIDER = {"stages", "precision", "cell", "blank"}
"""Keywords that take more than the field holds: one name by itself, a number of a cell, None."""


@pytest.mark.parametrize("kind", [RenderKeywords, PlotKeywords])
def test_a_keyword_is_a_field_with_a_flag(kind: type) -> None:
    keywords, options = get_type_hints(kind), get_type_hints(DisplayOptions)
    assert keywords.keys() <= FLAGS.keys()
    same = keywords.keys() - WIDER
    assert {name: keywords[name] for name in same} == {name: options[name] for name in same}


def test_every_row_is_a_flag() -> None:
    flags = {option.name: option.help for option in DisplayFlags.OPTIONS}  # type: ignore[attr-defined]
    rows = {row.name or name: row for name, row in FLAGS.items()}
    assert {name: flags[name] for name in rows} == {n: row.help for n, row in rows.items()}
    helps = {row.help for row in rows.values()}
    assert {name for name, text in flags.items() if text in helps} == {*rows}


def test_a_keyword_that_the_function_has_not() -> None:
    keywords: dict[str, Any]
    for keywords in ({"rows": (0, 1)}, {"query": "1"}, {"every": True}, {"colour": True}):
        (name,) = keywords
        with pytest.raises(
            TypeError, match=rf"render\(\) got an unexpected keyword argument '{name}'"
        ):
            attncli.render(attention(), **keywords)
    with pytest.raises(TypeError, match=r"plot\(\) got an unexpected keyword argument 'work'"):
        attncli.plot(attention(), work=True)  # type: ignore[call-arg]
