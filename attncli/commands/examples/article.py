"""The examples of an article as a page of Markdown or HTML.

results ── rows ──> a table of claims for each example, its call, its figures ──> .md, .html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape as markup
from importlib.resources import files
from string import Template

from attncli.commands.examples.judge import Result
from attncli.commands.examples.page import (
    Row,
    call_lines,
    counted_bases,
    figures,
    plot_of,
    rows,
)
from attncli.commands.examples.runs import Run
from attncli.commands.examples.titles import Article
from attncli.files.messages import visible
from attncli.formats.markdown import code, escape, fenced
from attncli.page.text import clean, sentence

BASES = {
    "printed": "the number stands in the article",
    "claimed": "the article says so, without the number",
    "shown here": "an illustration made for attncli",
}
WIDTH = 88  # of a call in a page
GOOD = ("reproduced", "agrees as rounded", "agrees")
SEVERAL = "Worked examples of articles"
"""The title of a page where the examples are of several articles."""


# ---- Markdown


def markdown(results: Sequence[Result], article: Article | None) -> Iterator[str]:
    """A table of claims for each example; article: the one in which all of them stand."""
    yield f"# {escape(clean(article.title if article else SEVERAL))}"
    yield from ["", escape(article.named())] if article else []
    yield ""
    for basis, words in BASES.items():
        yield f"- **{basis}**: {words}"
    yield from ["", *(f"- {escape(line)}" for line in counted_bases(results))]
    for result in results:
        yield from _markdown_example(result, article)


def _markdown_example(result: Result, above: Article | None) -> Iterator[str]:
    example = result.example
    yield from ["", f"## {escape(clean(example.name))}: {escape(sentence(example.title))}", ""]
    if example.article != above:
        yield from [escape(example.article.line), ""]
    for words in _remarks(result):
        yield from [escape(words), ""]
    yield from fenced([*call_lines(result.run, WIDTH, 0)], "sh")
    if not result.needs:
        yield from ["", "| claim | basis | expected | recomputed | verdict | why |"]
        yield "| :-- | :-- | :-- | :-- | :-- | :-- |"
    for row in rows(result) if not result.needs else ():
        why = " ".join(f"{reason.rstrip('.')}." for reason in row.reasons)
        call = "" if row.run == result.run else f" {_code(row.run)}"
        basis = f"{row.basis} ({row.place})" if row.place else row.basis
        cells = (basis, row.expected, row.ours, row.verdict, why)
        yield f"| {escape(row.claim)}{call} | {' | '.join(map(escape, cells))} |"
    for name, run in figures(result):
        call_of_figure = fenced([*call_lines(run, WIDTH, 0)], "sh")
        yield from ["", f"To see {escape(name)}:", "", *call_of_figure]
    if plot := plot_of(result):
        yield from ["", *fenced(plot)]


def _code(run: Run) -> str:
    """A call within a cell of a table, which a bar would end."""
    return code(run.shown).replace("|", "\\|")


def _remarks(result: Result) -> Iterator[str]:
    """The note, and what a file of word vectors is needed for or would add."""
    note = sentence(result.example.note)
    yield from [note] if note else []
    yield from [f"Needs {clean(result.needs)}."] if result.needs else []
    yield from [clean(f"--vectors FILE {result.adds}")] if result.adds else []


# ---- HTML


def html(results: Sequence[Result], article: Article | None) -> Iterator[str]:
    """The same as a document of HTML without a script."""
    title = article.title if article else SEVERAL
    bases = "; ".join(f"<b>{basis}</b>: {words}" for basis, words in BASES.items())
    lines = [f"<h1>{_text(title)}</h1>"]
    lines += [f"<p>{_text(article.named())}</p>"] if article else []
    lines += [f'<p class="quiet">{bases}.</p>']
    lines += [f'<p class="quiet">{_text(line)}</p>' for line in counted_bases(results)]
    if len(results) > 1:
        items = (
            f'<li><a href="#{_text(x.example.name)}">{_text(sentence(x.example.title))}</a></li>'
            for x in results
        )
        lines += [f"<nav><ol>{''.join(items)}</ol></nav>"]
    for result in results:
        lines += _html_example(result, article)
    page = files("attncli.commands.examples").joinpath("article.html").read_text("utf-8")
    yield Template(page).substitute(title=_text(title), body="\n".join(lines))


def _html_example(result: Result, above: Article | None) -> Iterator[str]:
    example = result.example
    yield f'<h2 id="{_text(example.name)}">{_text(sentence(example.title))}</h2>'
    line = example.name if example.article == above else f"{example.name}, {example.article.line}"
    yield f'<p class="quiet">{_text(line)}</p>'
    for words in _remarks(result):
        yield f"<p>{_text(words)}</p>"
    yield _pre(call_lines(result.run, WIDTH, 0))
    if not result.needs:
        names = "".join(f"<th>{name}" for name in ("claim", "expected", "recomputed", "verdict"))
        yield f"<table><thead><tr>{names}</thead><tbody>"
        yield from (_html_row(row, result.run) for row in rows(result))
        yield "</tbody></table>"
    for name, run in figures(result):
        yield f"<p>To see {_text(name)}:</p>"
        yield _pre(call_lines(run, WIDTH, 0))
    if plot := plot_of(result):
        yield _pre(plot, "plot")


def _html_row(row: Row, above: Run) -> str:
    reasons = "".join(f'<span class="why">{_text(reason)}</span>' for reason in row.reasons)
    call = _pre(call_lines(row.run, WIDTH, 0)) if row.run != above else ""
    place = f'<span class="place">{_text(row.place)}</span>' if row.place else ""
    is_good = row.verdict.startswith(GOOD)
    kind = "good" if is_good else "differs" if row.verdict.startswith("differs") else ""
    expected = f"{row.basis}: {_text(row.expected)}" if row.expected else ""
    return (
        f"<tr><td>{_text(row.claim)}{reasons}{call}"
        f'<td class="numbers">{expected}{place}'
        f'<td class="numbers" data-of="recomputed">{_text(row.ours)}'
        f'<td class="verdict {kind}">{_text(row.verdict)}'
    )


def _pre(lines: Iterable[str], kind: str = "call") -> str:
    return f'<pre class="{kind}">{_text(chr(10).join(lines))}</pre>'


def _text(text: str) -> str:
    """Text as a page shows it; a terminal that is shown the page does not act on it, either."""
    return markup(visible(text))
