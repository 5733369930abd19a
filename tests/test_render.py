"""A trace in Python and in a notebook: printed, as a page of HTML, in every other form."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import attncli

Q, K, V = [[1, 0], [0, 1], [1, 1]], [[1, 1], [1, 0], [0, 1]], [[10, 0], [0, 10], [5, 5]]
FILE = "samples/three-tokens.json"


def trace() -> attncli.Trace:
    return attncli.attend(Q, K, V, causal=True)


@pytest.mark.parametrize(
    "form", ["table", "markdown", "html", "mermaid", "svg", "csv", "tsv", "json"]
)
def test_a_form_is_what_the_command_prints(form: attncli.views.render.Form) -> None:
    call = [sys.executable, "-m", "attncli", "compute", "--q", FILE, "--causal", "--format", form]
    printed = subprocess.run(call, capture_output=True, text=True, check=True)
    rendered = attncli.render(trace(), form)
    assert rendered == printed.stdout


def test_print_shows_the_tables() -> None:
    assert str(trace()) == attncli.render(trace())
    assert str(trace()).startswith("Scaled dot-product attention")


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    shown = trace()._repr_html_()
    assert shown.startswith('<iframe title="Scaled dot-product attention" ')
    assert shown.endswith("</iframe>\n")
    assert shown.count("<") == 2  # what is within is escaped


def test_a_repr_is_one_line() -> None:
    assert repr(trace()) == (
        "<Trace 'Scaled dot-product attention': q k v mask scores scaled masked weights output>"
    )
    assert repr(trace()["weights"]) == "<Stage 'weights': 3 query × 3 key>"


def test_options_are_those_of_the_flags() -> None:
    text = attncli.render(trace(), stages=["weights"], precision=2, work=True)
    assert "A[q1,k1] = " in text
    assert "0.67  0.33" in text
    assert "A[q2,k1] = " in attncli.render(trace(), cell=(2, 1))
    assert attncli.render(trace(), stages="weights") == attncli.render(trace(), stages=["weights"])


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"cell": "x"}, "cell is 'x'; give a query and a key"),
        ({"cell": "q1"}, "cell is 'q1'"),
        ({"cell": (1,)}, "cell is"),
        ({"cell": 3}, "cell is 3"),
        ({"precision": -1}, "precision is -1"),
        ({"head": -1}, "there is no head 0"),
        ({"head": 2}, "there is no head 3"),
        ({"batch": 0}, "there is no batch entry to choose"),
        ({"stages": "weihgts"}, "there is no stage 'weihgts'"),
    ],
)
def test_an_option_that_cannot_be_is_named(option: dict[str, Any], says: str) -> None:
    heads = attncli.attend([Q, Q], [K, K], [V, V])
    with pytest.raises(attncli.AttncliError, match=says):
        attncli.render(heads, **option)


def test_decimals_of_a_form_where_none_and_where_some_are_asked_for() -> None:
    assert ">0.67<" in attncli.render(trace(), "svg")
    assert ">0.670<" in attncli.render(trace(), "svg", precision=3)
    assert "0.670,0.330" in attncli.render(trace(), "csv", precision=3)
    assert ">queries<" in attncli.render(trace(), "svg", arcs=True)


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(attncli.ConventionError, match="form is 'pdf'; use table"):
        attncli.render(trace(), "pdf")  # type: ignore[arg-type]
    with pytest.raises(attncli.StageError, match="nothing"):
        attncli.render(trace(), stages=["nothing"])
