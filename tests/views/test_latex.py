r"""LaTeX: what stands in it, and that nothing of a label, a formula or a title is obeyed.

That it compiles, and that KaTeX renders it, is seen by benchmarks/latex.py.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli.trace import Stage, Trace
from attncli.views.formats import latex
from attncli.views.formats.tex import escape, label, math, number, prose
from attncli.views.outline import outline_page
from attncli.views.parts import Plot
from attncli.views.select import DisplayOptions
from attncli.views.text import label_mark, number_mark

from .hostile import LABELS
from .traces import CAUSAL, attention, matrix, numbers

_COMMANDS = r"""\section \subsection \paragraph \par \emph \hfill \begin \end \hline \item \text
    \frac \sqrt \operatorname \phantom \quad \cdot \dots \vdots \ddots \infty \times \| \mathsf
    \left \right \{ \} \$ \& \# \% \_ \\ \[ \] \textbackslash \textasciicircum \textasciitilde
    \textless \nopagebreak \textgreater \textbar \textasciigrave \backslash \wedge \sim \sqcup \grave \surd
    \Sigma \mathit \alpha \beta \mu \circ"""
COMMANDS = {*_COMMANDS.split(), "\\ "}


def written(trace: Trace, **options: Any) -> str:
    return "".join(latex.text(trace, DisplayOptions(**options)))


def test_a_number() -> None:
    assert number("-0.5") == "-0.5"
    assert number("-2.5e-7") == r"-2.5 \cdot 10^{-7}"
    assert number("1e12") == "10^{12}"
    assert number("(-1e9)") == "(-10^{9})"
    assert number("11e3") == r"11 \cdot 10^{3}"
    assert number("-inf") == r"-\infty"
    assert number("NaN") == r"\text{NaN}"


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("S = Q Kᵀ", r"$S = Q K{}^{\mathsf T}$"),
        ("Z = S / √d_k = S / 1.4142", r"$Z = S / \sqrt{d_{k}} = S / 1.4142$"),
        (
            "A = softmax(Z) over keys: each row sums to 1",
            r"$A = \operatorname{softmax}(Z)$ over keys: each row sums to $1$",
        ),
        (
            "σ = √(mean of (R₃ − μ)²)",
            r"$\sigma = \sqrt{\text{mean}\ \text{of}\ (R_{3} - \mu){}^{2}}$",
        ),
        ("E = the vector of each token", "$E =$ the vector of each token"),
        ("the sentence split into tokens", "the sentence split into tokens"),
        ("w = 10000^(2i/d)", "$w = 10000{}^{2i / d}$"),
        ("N = γ (x − μ), ε = 1e-5", r"$N = \gamma (x - \mu), \varepsilon = 10^{-5}$"),
        ("", ""),
        (" ", ""),
    ],
)
def test_a_formula_is_mathematics_and_words(formula: str, expected: str) -> None:
    assert prose(formula) == expected


@pytest.mark.parametrize(
    ("equation", "expected"),
    [
        ("S / √d_k", r"\frac{S}{\sqrt{d_{k}}}"),
        ("a · b / (c · d)", r"\frac{a \cdot b}{c \cdot d}"),
        ("x + (a + b) / 3", r"x + \frac{a + b}{3}"),
        ("γ (x - μ) / √(σ² + ε) + β", r"\frac{\gamma (x - \mu)}{\sqrt{\sigma{}^{2} + \varepsilon}} + \beta"),
        ("sin(1 / 10000^(2/4))", r"\operatorname{sin}\left(\frac{1}{10000{}^{2 / 4}}\right)"),
        ("+ exp(1)) / 5", r"+ \operatorname{exp}(1) ) / 5"),  # a line of what is longer
        ("(a + b", "( a + b"),
        ("1 / ", "1 /"),
        ("\x80 °", "\\text{\x80}\\ {}^{\\circ}"),
        ("(" * 999 + ")" * 999, f"\\text{{{'(' * 999 + ')' * 999}}}"),
        ("/ 3", "/ 3"),
        ("x²²ᵀ'", r"x{}^{2}{}^{2}{}^{\mathsf T}{}'"),
    ],
)  # fmt: skip
def test_an_equation(equation: str, expected: str) -> None:
    assert math(equation) == expected


def test_a_formula_of_many_parentheses_is_no_fault() -> None:
    assert math("(" * 200 + ")" * 200) == "(" * 200 + ")" * 200
    assert "frac" not in prose("(" * 9999)


def test_numbers_and_labels_of_an_equation() -> None:
    text = f"S[{label_mark('a)_b')}] = {number_mark('(-1e9)')} / {number_mark('2')}"
    assert math(text) == r"S[\text{a)}\_\text{b}] = \frac{(-10^{9})}{2}"


def test_text() -> None:
    assert escape(r"\input{x} 50 % $1 #2 a_b ^~") == (
        r"\textbackslash{}input\{x\} 50 \% \$1 \#2 a\_b \textasciicircum{}\textasciitilde{}"
    )
    assert (
        escape('"bank" attends to "money" (40.1 %)') == "``bank'' attends to ``money'' (40.1 \\%)"
    )
    assert escape("Ωμέγα") == r"$\Omega$$\mu$$\acute{\varepsilon}$$\gamma$$\alpha$"
    assert escape("e\u0301") == "é"


@given(st.text(max_size=20))
@pytest.mark.parametrize("write", [escape, label, prose, math])
def test_nothing_is_obeyed_and_braces_are_paired(write: Any, text: str) -> None:
    found = write(text)
    bare = re.sub(r"\\[a-zA-Z]+|\\.", "", found)
    assert not set(bare) & set("&#%~")
    depth = 0
    for char in bare:
        depth += {"{": 1, "}": -1}.get(char, 0)
        assert depth >= 0
    assert depth == 0
    assert bare.count("$") % 2 == 0
    for left in ("\\left", "\\right"):
        assert len(re.findall(rf"{re.escape(left)}(?![a-z])", found)) == found.count(left)


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("options", [{"work": True}, {"cell": ("1", "2")}])
def test_a_label_is_no_command(name: str, options: dict[str, Any]) -> None:
    names = dict.fromkeys(("query", "key"), (LABELS[name], "b", "c"))
    found = written(attention(mask=CAUSAL, labels=names, notes=(LABELS[name],)), **options)
    body = found.partition("\n")[2]
    assert set(re.findall(r"\\(?:[A-Za-z]+|.)", body)) <= COMMANDS
    assert not re.search(r"(?<!\\)%", body)


def test_a_row_that_begins_with_a_bracket_is_no_option_of_the_line_before() -> None:
    found = written(attention(labels={"query": ("[2em]", "*", "x")}), work=True, full=True)
    assert not re.search(r"\\\\\s*[\[*]", found)


def test_a_document_declares_the_characters_that_pdflatex_has_not() -> None:
    trace = matrix([[1.0]], labels={"key": ("ש",)})
    found = "".join(latex.standalone(trace, DisplayOptions()))
    assert found.startswith("\\documentclass")
    assert "\\other{ש}{05E9}\n" in found
    assert found.endswith("\\end{document}\n")
    assert written(trace) in found
    assert "\\documentclass" not in written(trace)


def test_a_large_matrix_shows_corners_and_says_so() -> None:
    found = written(matrix(numbers(40, 40)))
    assert (
        found.count(r"\vdots") == 11
    )  # a row: its name and ten numbers; where the gaps cross is another sign
    assert r"\emph{left out: 28 rows and 30 columns (--rows A:B, --cols A:B or -{}-full)}" in (
        found.replace("-{}-rows", "--rows").replace("-{}-cols", "--cols")
    )
    assert r"\vdots" not in written(matrix(numbers(16, 12)))


def test_columns_that_do_not_fit_are_in_an_array_below_with_the_names_of_the_rows() -> None:
    found = written(matrix(numbers(2, 30)), full=True)
    arrays = re.findall(r"\\begin\{array\}\{r\|(r+)\}", found)
    assert len(arrays) > 1
    assert sum(map(len, arrays)) == 30
    assert found.count(r"\text{q2} &") == len(arrays)


def test_no_array_or_equation_is_longer_than_a_page() -> None:
    found = written(matrix(numbers(70, 2)), full=True)
    assert [block.count(r" \\") for block in found.split(r"\begin{array}")[1:]] == [31, 31, 11]
    long = written(attention(numbers(9, 4), numbers(9, 4), numbers(9, 4)), work=True, full=True)
    displays = re.findall(r"aligned\}(.*?)\\end\{aligned", long, re.DOTALL)
    assert max(display.count("&") for display in displays) <= 40


def test_a_sum_of_many_terms_is_in_displays_that_mathjax_takes() -> None:
    found = written(
        attention(numbers(1, 600), numbers(1, 600), [[1.0]]), cell=("1", "1"), full=True
    )
    displays = re.findall(r"\\\[(.*?)\\\]", found, re.DOTALL)
    assert len(displays) > 4
    assert max(map(len, displays)) < 5120
    assert found.count(r"\cdot") > 600


def test_sums_are_behind_a_bar() -> None:
    assert r"\begin{array}{r|rrr|r}" in written(attention(), stages=("weights",))


def test_an_outline_is_indented() -> None:
    inner = Trace(
        "Inner", (Stage("q", "Q", "Q = X W_q", np.ones((3, 2)), ("query", "d_k")),), name="i"
    )
    page = latex.text(Trace("Outer", (inner,)), DisplayOptions(), outline_page)
    assert r"\hspace*{1.5em}\textbf{q}\quad 3 $\times$ 2\quad $Q = X W_{q}$\par" in "".join(page)


def test_points_are_a_picture() -> None:
    points = np.array([[-1.0, 0.0], [1.0, 0.5], [np.nan, 0.0]])
    page = latex.text(
        Trace("x", ()),
        DisplayOptions(),
        lambda *_: iter([Plot(("a_1", "b", "c"), points)]),
    )
    found = "".join(page)
    assert found.count(r"\circle*{4}") == 2  # a point that is not a number has no place
    assert r"\begin{picture}(320,80)" in found
    assert r"\put(5.0,0.0){\makebox(0,0)[l]{a\_1}}" in found


@pytest.mark.parametrize("values", [[[1e308, 0.0], [-1e308, 0.0]], [[1.0, 1.0]], [[np.inf, 0.0]]])
def test_points_anywhere(values: list[list[float]]) -> None:
    names = tuple("ab"[: len(values)])
    page = latex.text(
        Trace("x", ()), DisplayOptions(), lambda *_: iter([Plot(names, np.array(values))])
    )
    assert not re.search("nan|inf", "".join(page))


def test_a_shade_is_not_written() -> None:
    trace = attention()
    assert written(trace, heatmap=True) == written(trace)
    assert written(replace(trace, title="$x$")).count(r"\$x\$") == 1
