r"""LaTeX: what stands in it, and that nothing of a label, a formula or a title is obeyed.

That it compiles, and that KaTeX renders it, is seen by benchmarks/latex.py.
"""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attncli
from attncli.formats import latex
from attncli.formats.tex import escape, math, prose
from attncli.page.options import DisplayOptions
from attncli.page.outline import outline_page
from attncli.page.text import END, OVER
from attncli.trace import Trace
from attncli.words.measures import pca
from tests.formats.hostile import LABELS
from tests.page.traces import CAUSAL, attention, matrix, numbers, shown

COMMANDS = r"""\section \subsection \paragraph \par \emph \hfill \begin \end \hline \item \text
    \frac \sqrt \operatorname \phantom \quad \cdot \dots \vdots \ddots \infty \times \| \mathsf
    \left \right \{ \} \$ \& \# \% \_ \\ \[ \] \textbackslash \textasciicircum \textasciitilde
    \textless \nopagebreak \textgreater \textbar \textasciigrave \backslash \wedge \sim \sqcup
    \grave \surd \Sigma \mathit \alpha \beta \mu \circ"""


def written(trace: Trace, **options: Any) -> str:
    return shown(trace, "latex", **options)


def test_a_row_of_numbers() -> None:
    cases: list[tuple[Any, str]] = [
        ([[-0.5, 2]], "-0.5 & 2.0"), ([[-2.5e-7]], r"-2.5 \cdot 10^{-7}"), ([[1e12, -np.inf, np.nan]], r"10^{12} & -\infty & \text{NaN}"),
    ]  # fmt: skip
    for values, row in cases:
        text = re.sub(r"\\phantom\{.*?\}| {2,}", "", written(matrix(values)))
        assert rf"\text{{q1}} & {row}" in text


def test_a_formula_is_mathematics_and_words() -> None:
    cases: list[tuple[str, str | None]] = [
        ("σ = √(mean of (R₃ − μ)²)", r"$\sigma = \sqrt{\text{mean of }(R_{3} - \mu){}^{2}}$"),
        ("dρ = Σ p: a row of dL", r"$\mathrm{d}\rho = \Sigma p$: a row of $\mathrm{d}L$"), ("ln l₁ / x", r"$\operatorname{ln} l_{1} / x$"),
        ("E = the vector of each token", "$E =$ the vector of each token"), ("split into tokens", "split into tokens"),
        ("w = 10000^(2i/d)", "$w = 10000{}^{2i/d}$"),
        ("N = γ (x − μ), ε = 1e-5", r"$N = \gamma (x - \mu), \varepsilon = 10^{-5}$"),
        ("(" * 999 + ")" * 999, f"${'(' * 999 + ')' * 999}$"),
    ]  # fmt: skip
    for formula, expected in cases:
        stage = replace(matrix([[1.0]])["scaled"], formula=formula)
        assert (expected or formula) in written(Trace("T", (stage,)))


def test_the_fractions_of_an_equation_are_those_of_its_formula() -> None:
    layer = attncli.explain("a b", dim=2, block="encoder")
    cases: list[tuple[Trace, str]] = [
        (attention(), r"Z[\text{q1},\text{k1}] &= \frac{S[\text{q1},\text{k1}]}{\sqrt{d_{k}}} = \frac{1}{1.4142} = 0.7071"),
        (attention([[1.0]], [[2.0], [3.0]], [[1.0], [1.0]]), r"\frac{\operatorname{exp}(2)}{\operatorname{exp}(2) + \operatorname{exp}(3)} ="),
        (layer, r"\frac{\gamma [\text{1}] \cdot (R_{1}[\text{a},\text{1}] - \mu [\text{a}])}{\sqrt{\sigma [\text{a}]{}^{2} + \varepsilon}} + \beta [\text{1}]"),
        (attncli.explain("a b", dim=4), r"\operatorname{sin}\left(\frac{1}{10000{}^{0/4}}\right) = 0.841"),
    ]  # fmt: skip
    for trace, expected in cases:
        assert expected in written(trace, work=True)


def test_what_no_formula_says_is_written_as_it_is() -> None:
    cases: list[tuple[str, str]] = [
        ("a / (c + d)", "a / (c + d)"), ("+ exp(1)) / 5", r"+ \operatorname{exp}(1)) / 5"), ("(a + b", "(a + b"),
        ("\x80 °", "\\text{\x80} {}^{\\circ}"), ("√(a", r"\surd (a"), (f"1 {OVER}/ 2{END}", "1/ 2"),
        ("x²²ᵀ'", r"x{}^{2}{}^{2}{}^{\mathsf T}{}'"),
    ]  # fmt: skip
    for equation, expected in cases:
        assert math(equation) == expected


def test_text_and_the_labels_of_an_equation() -> None:
    words = {"query": ("a)_b", "c", "d"), "key": ("Ωμέγα", "e\u0301", '"x"')}
    text = written(attention(labels=words, notes=(r"\input{x} 50 % $1 #2 ^~", '"a" to "b"', "μ")), work=True)  # fmt: skip
    assert r"\textbackslash{}input\{x\} 50 \% \$1 \#2 \textasciicircum{}\textasciitilde{}" in text
    assert "``a'' to ``b''" in text
    assert r"S[\text{a)}\_\text{b}," in text
    assert r"$\mu$" in text
    assert "é" in text


@given(st.text(max_size=20))
@pytest.mark.parametrize("write", [escape, prose, math])
def test_nothing_is_obeyed_and_braces_are_paired(write: Any, text: str) -> None:
    tex = write(text)
    bare = re.sub(r"\\[a-zA-Z]+|\\.", "", tex)
    assert not set(bare) & set("&#%~")
    depth = 0
    for char in bare:
        depth += {"{": 1, "}": -1}.get(char, 0)
        assert depth >= 0
    assert depth == 0
    assert bare.count("$") % 2 == 0
    for left in ("\\left", "\\right"):
        assert len(re.findall(rf"{re.escape(left)}(?![a-z])", tex)) == tex.count(left)


@pytest.mark.parametrize("options", [{"work": True}, {"cell": ("1", "2")}])
def test_a_label_is_no_command(options: dict[str, Any]) -> None:
    for label in LABELS.values():
        names = dict.fromkeys(("query", "key"), (label, "b", "c"))
        trace = replace(attention(mask=CAUSAL, labels=names, notes=(label,)), title=label)
        body = written(trace, **options).partition("\n")[2]
        assert {*re.findall(r"\\(?:[A-Za-z]+|.)", body)} <= {*COMMANDS.split(), "\\ "}, label
        assert not re.search(r"(?<!\\)%", body)
    brackets = written(attention(labels={"query": ("[2em]", "*", "x")}), work=True, full=True)
    assert not re.search(r"\\\\\s*[\[*]", brackets)  # no option of the line before


def test_a_document_declares_the_characters_that_pdflatex_has_not() -> None:
    trace = matrix([[1.0]], labels={"key": ("ש",)})
    text = "".join(latex.standalone(trace, DisplayOptions()))
    assert text.startswith("\\documentclass")
    assert "\\other{ש}{05E9}\n" in text
    assert text.endswith("\\end{document}\n")
    assert written(trace) in text


def test_a_large_matrix_shows_corners_or_parts_no_longer_than_a_page() -> None:
    text = written(matrix(numbers(40, 40)))
    assert text.count(r"\vdots") == 11  # a name and ten numbers; where the gaps cross: \ddots
    assert "left out: 28 rows and 30 columns (-{}-rows" in text  # no dash of two hyphens
    assert r"\vdots" not in written(matrix(numbers(16, 12)))
    wide = written(matrix(numbers(2, 30)), full=True)
    arrays = re.findall(r"\\begin\{array\}\{r\|(r+)\}", wide)
    assert (len(arrays) > 1, sum(map(len, arrays))) == (True, 30)
    assert wide.count(r"\text{q2} &") == len(arrays)  # the names of the rows again
    tall = written(matrix(numbers(70, 2)), full=True).split(r"\begin{array}")[1:]
    assert [block.count(r" \\") for block in tall] == [31, 31, 11]
    long = written(attention(numbers(9, 4), numbers(9, 4), numbers(9, 4)), work=True, full=True)
    displays = re.findall(r"aligned\}(.*?)\\end\{aligned", long, re.DOTALL)
    assert max(display.count("&") for display in displays) <= 40


def test_a_sum_of_many_terms_is_in_displays_that_mathjax_takes_and_shades_are_not_there() -> None:
    sums = attention(numbers(1, 600), numbers(1, 600), [[1.0]])
    text = written(sums, cell=("1", "1"), full=True)
    displays = re.findall(r"\\\[(.*?)\\\]", text, re.DOTALL)
    assert len(displays) > 4
    assert max(map(len, displays)) < 5120
    assert text.count(r"\cdot") > 600
    assert r"\begin{array}{r|rrr|r}" in written(attention(), stages=("weights",))
    assert written(attention(), heatmap=True) == written(attention())


def test_an_outline_is_indented_and_points_are_a_picture() -> None:
    text = written(pca(("a_1", "b", "c"), np.array([[-1.0, 0.0], [1.0, 0.5], [0.0, 0.2]])))
    assert text.count(r"\circle*{4}") == 3
    assert r"\makebox(0,0)[l]{a\_1}" in text
    outline = written(Trace("Outer", (Trace("Inner", attention().steps, name="i"),)), page=outline_page)  # fmt: skip
    assert re.search(r"hspace\*\{1.5em\}\\textbf\{weights\}.*3 \$\\times\$ 3.*\$A = ", outline)
    for points in ([[1e308, 0.0], [-1e308, 0.0]], [[1.0, 1.0], [1.0, 1.0]]):
        picture = written(pca(("a", "b"), np.array(points) / 4)).partition(r"\begin{picture}")[2]
        assert r"\end{picture}" in picture
        assert not re.search("nan|inf", picture)
