"""attncli examples: worked examples of articles, recomputed and compared with what they print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attncli.cli.groups import given_of
from attncli.cli.options import DisplayFlags
from attncli.cli.output import note, text_width, with_file_to_open
from attncli.cli.results import Result, TextResult, TraceResult
from attncli.commands.examples.flags import ExampleFlags
from attncli.commands.examples.titles import Article, Title, find, list_lines, titles
from attncli.errors import ConventionError
from attncli.files.messages import listing, safe

if TYPE_CHECKING:
    from attncli.commands.examples.judge import Result as Judged
    from attncli.commands.examples.schema import Example
    from attncli.trace import Trace

COMPARISONS = ("table", "markdown", "html", "json")
"""The formats of a comparison with an article; others show one computation."""


def examples(which: ExampleFlags, show: DisplayFlags) -> Result:
    """The list, what comes out of an example or an article, or the verdicts that are asked for."""
    of_file = None if which.file is None else _of_file(which.file)
    everything = titles() if of_file is None else [x.heading for x in of_file]
    selection, is_computed = everything, False
    if which.name is not None:
        selection, is_computed = find(everything, which.name)
    if not (which.verify or is_computed):
        return _list(selection, which, show)
    some = _examples(selection, of_file)
    if which.vectors is not None and not any(example.needs for example in some):
        names = [example.name for example in some]
        why = f"{listing(names, 3)} {'needs' if len(names) == 1 else 'need'} no file of vectors"
        note(f"--vectors {safe(which.vectors)} is not used: {why}", quiet=show.quiet)
    is_report = show.form.name in COMPARISONS
    if flags := [*_of_a_trace(show), *([] if is_report else [f"the format {show.form.name}"])]:
        if len(some) > 1:
            message = f"{flags[0]} is for one example, not for {len(some)}"
            raise ConventionError(message, "name one example")
        trace = _trace(some[0], which)
        return TraceResult(trace=trace, show=show, stdin_used=which.file == "-")
    if show.color == "always":
        raise ConventionError("verdicts have no colours", "add --stage NAME, or leave out --color")
    from attncli.commands.examples.judge import judge

    articles = {title.article for title in selection}
    article = articles.pop() if len(articles) == 1 else None
    return _report([judge(example, which.vectors) for example in some], article, which, show)


def _of_file(path: str) -> tuple[Example, ...]:
    from attncli.commands.examples.schema import load_examples

    return load_examples(path)


def _examples(selection: Sequence[Title], of_file: tuple[Example, ...] | None) -> list[Example]:
    """The examples of these titles, each once."""
    names = dict.fromkeys(title.name for title in selection)
    if of_file is not None:
        return [example for example in of_file if example.name in names]
    from attncli.commands.examples.schema import load_catalog

    return [*load_catalog(selection)]


def _of_a_trace(show: DisplayFlags) -> list[str]:
    """The flags that ask for the computation itself instead of its verdicts."""
    flags = given_of(
        show, "stage", "work", "cell", "query", "blank", "step", "head", "batch", "heatmap", "rows",
        "cols", "precision", "full", "arcs",
    )  # fmt: skip
    return [f"--{name}" for name in flags] + ["--no-heatmap"] * (show.heatmap is False)


def _list(selection: Sequence[Title], which: ExampleFlags, show: DisplayFlags) -> TextResult:
    form = show.form.name
    wrong = [*_of_a_trace(show), *["--color"] * (show.color == "always")]
    wrong += ["--vectors"] * (which.vectors is not None) + [f"the format {form}"] * (
        form != "table"
    )
    if wrong:
        message = f"{wrong[0]} has no effect on the list of examples"
        raise ConventionError(message, "name an example or an article, or add --verify")
    width = text_width(show.output, show.width)
    return TextResult(pieces=(f"{line}\n" for line in list_lines(selection, width)), show=show)


def _trace(example: Example, which: ExampleFlags) -> Trace:
    from attncli.commands.examples.judge import judge

    result = judge(example, which.vectors)
    if result.trace is None:
        raise ConventionError(f"{example.name} needs {result.needs}", "add it")
    return result.trace


def _report(
    results: Sequence[Judged], article: Article | None, which: ExampleFlags, show: DisplayFlags
) -> TextResult:
    """What was recomputed beside what is printed; 1 where --verify finds a difference.

    article  the one in which all of them stand
    """
    from attncli.commands.examples import article as pages
    from attncli.commands.examples import page

    form, width = show.form.name, text_width(show.output, show.width)
    show = with_file_to_open(show)
    if form == "json":
        from attncli.files.write import json_text

        lines = iter([json_text(page.verification_data(results), indent=2)])
    elif form == "markdown":
        lines = pages.markdown(results, article)
    elif form == "html":
        lines = pages.html(results, article)
    elif which.name is None or article is None or (which.verify and len(results) > 1):
        lines = page.verification_lines(results, width)
    elif len(results) > 1:
        lines = page.article_lines(results, width, article)
    else:
        lines = page.result_lines(results[0], width)
    code = 0 if all(result.ok for result in results) or not which.verify else 1
    pieces = (f"{line}\n" for line in lines)
    is_safe = form in ("json", "html")
    return TextResult(pieces=pieces, show=show, is_safe=is_safe, is_page=show.open, code=code)
