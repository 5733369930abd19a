"""attncli examples: worked examples of articles, recomputed and compared with what they print."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from attncli.cli.groups import given_of
from attncli.cli.options import DisplayFlags
from attncli.cli.output import note, text_width
from attncli.cli.results import Result, TextResult, TraceResult
from attncli.commands.examples import page as views
from attncli.commands.examples.flags import ExampleFlags
from attncli.commands.examples.judge import judge
from attncli.commands.examples.page import list_lines
from attncli.commands.examples.schema import Example, load_catalog, load_examples
from attncli.errors import ConventionError
from attncli.files.messages import listing, safe
from attncli.files.write import json_text


def examples(which: ExampleFlags, show: DisplayFlags) -> Result:
    """The list, an example or the verdicts that the flags ask for."""
    catalog = load_catalog() if which.file is None else load_examples(which.file)
    selection = catalog if which.name is None else _named(catalog, which.name)
    names = [example.name for example in selection]
    if (which.name is None or len(names) > 1) and not which.verify:
        return _list(selection, which, show)
    if which.glove is not None and not any(example.needs for example in selection):
        why = f"{listing(names, 3)} {'needs' if len(names) == 1 else 'need'} no file of vectors"
        note(f"--glove {safe(which.glove)} is not used: {why}", quiet=show.quiet)
    if _of_a_trace(show):
        trace = _trace(selection, which)
        return TraceResult(trace=trace, show=show, stdin_used=which.file == "-")
    if show.color == "always":
        raise ConventionError("verdicts have no colours", "add --stage NAME, or leave out --color")
    if show.form.name not in {"table", "markdown", "json"}:
        message = f"{show.form.name} cannot show a comparison with an article"
        raise ConventionError(message, "add --stage NAME, or use json")
    return _verdicts(selection, which, show)


def _of_a_trace(show: DisplayFlags) -> list[str]:
    """The flags that ask for the computation itself instead of its verdicts."""
    flags = given_of(
        show, "stage", "work", "cell", "query", "blank", "step", "head", "batch", "heatmap", "rows",
        "cols", "precision",
    )  # fmt: skip
    return [f"--{name}" for name in flags] + ["--no-heatmap"] * (show.heatmap is False)


def _named(catalog: Iterable[Example], name: str) -> list[Example]:
    """The example of this name, else all whose names begin so: those of an article, as 004."""
    by_name = {example.name: example for example in catalog}
    if name in by_name:
        return [by_name[name]]
    if several := [example for full_name, example in by_name.items() if full_name.startswith(name)]:
        return several
    close = " or ".join(map(safe, get_close_matches(name, by_name, n=3)))
    hint = f"did you mean {close}?" if close else "attncli examples lists all"
    raise ConventionError(f"there is no example {name!r}", hint)


def _list(selection: Iterable[Example], which: ExampleFlags, show: DisplayFlags) -> TextResult:
    form = show.form.name
    wrong = [*_of_a_trace(show), *["--color"] * (show.color == "always")]
    wrong += ["--glove"] * (which.glove is not None) + [f"the format {form}"] * (form != "table")
    if wrong:
        message = f"{wrong[0]} has no effect on the list of examples"
        raise ConventionError(message, "name an example, or --verify")
    width = text_width(show.output, show.width)
    lines = list_lines(tuple(selection), width)
    return TextResult(pieces=(f"{line}\n" for line in lines), show=show)


def _trace(selection: Iterable[Example], which: ExampleFlags) -> Any:
    example, *others = selection
    if others or which.name is None:
        raise ConventionError("stages can be shown of one example only", "name it")
    result = judge(example, which.glove)
    if result.trace is None:
        raise ConventionError(f"{example.name} needs {result.needs}", "add it")
    return result.trace


def _verdicts(selection: Iterable[Example], which: ExampleFlags, show: DisplayFlags) -> TextResult:
    """What was recomputed beside what is printed; 1 where --verify finds a difference."""
    results = [judge(example, which.glove) for example in selection]
    form = show.form.name
    if form == "json":
        lines: Iterable[str] = [json_text(views.verification_data(results), indent=2)]
    elif form == "markdown":
        lines = views.errata(results)
    elif which.name is None or len(results) > 1:
        lines = views.verification_lines(results, text_width(show.output, show.width))
    else:
        lines = views.result_lines(results[0], text_width(show.output, show.width))
    code = 0 if all(result.ok for result in results) or not which.verify else 1
    pieces = (f"{line}\n" for line in lines)
    return TextResult(pieces=pieces, show=show, is_safe=form == "json", code=code)
