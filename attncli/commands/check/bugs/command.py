"""attncli check --bugs and --bug ID: the known bugs, and one of them explained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from attncli.arrays import Array
from attncli.cli.groups import given_of
from attncli.cli.results import ReportResult
from attncli.commands.check.bugs.catalogue import named
from attncli.commands.check.bugs.page import (
    Example,
    Page,
    bug_to_dict,
    group_of,
    listed,
    page,
    page_to_dict,
)
from attncli.commands.check.explanations import Change
from attncli.commands.check.flags import CheckFlags
from attncli.commands.check.report import SCHEMA
from attncli.convention import flag_of
from attncli.errors import ConventionError

WIDTH = 66
"""So much of a formula stands on one line: with its indent and label, 80 columns."""

KEPT = {"bugs", "bug", "format", "output", "force", "quiet", "debug", "max_size"}
"""The options of `check` that have a meaning beside --bugs and --bug."""

MOST = 6
"""So many numbers of a row are shown."""


def explain(text: str | None, flags: Sequence[str], observed: CheckFlags) -> ReportResult:
    """The list of bugs that have these words, or the page of one.

    flags  those that were given beside those of `observed`
    """
    if observed.bugs and observed.bug is not None:
        raise ConventionError("--bugs lists bugs, --bug explains one", "leave one of them out")
    as_json, flag = observed.verdict_form == "json", "--bugs" if observed.bugs else "--bug"
    names = [x.name for x in fields(CheckFlags) if x.name not in KEPT]
    if others := [*flags, *given_of(observed, *names)]:
        message = f"{flag_of(others[0])} has no effect with {flag}"
        raise ConventionError(message, "leave it out: what is known of bugs needs no numbers")
    if observed.bug is not None:
        if text is not None:
            raise ConventionError(f"--bug needs no SOURCE: {text!r}", "leave it out")
        bug_page = page(named(observed.bug))
        data = {"schema": SCHEMA, **page_to_dict(bug_page)}
        report = "\n".join(_page(bug_page))
        return ReportResult(text=report, data=data, show=observed, as_json=as_json)
    bugs = listed(text or "")
    if not bugs:
        raise ConventionError(f"no bug has the words {text!r}", "attncli check --bugs lists all")
    groups = dict[str, list[str]]()
    for bug in bugs:
        groups.setdefault(group_of(bug), []).append(f"  {bug.id}: {bug.sentence}")
    report = "\n\n".join("\n".join([name, *lines]) for name, lines in groups.items())
    data = {"schema": SCHEMA, "bugs": [bug_to_dict(bug) for bug in bugs]}
    return ReportResult(text=report, data=data, show=observed, as_json=as_json)


def _page(bug_page: Page) -> Iterator[str]:
    yield f"{bug_page.bug.name} ({bug_page.bug.id})"
    yield f"  {bug_page.bug.sentence}"
    if bug_page.bug.threads:
        yield f"  seen in {', '.join(bug_page.bug.threads)}"
    for change in bug_page.changes:
        yield ""
        yield from _change(change)
    yield ""
    if bug_page.example is None:
        yield "No example: the bug is read off the numbers that were observed."
    else:
        yield from _example(bug_page.example, bug_page.bug.id)


def _change(change: Change) -> Iterator[str]:
    """The formula that is right above the one that is wrong, with marks below what differs."""
    yield change.place + (f" ({change.detail})" if change.detail else "")
    for label, text, part in zip(("right", "wrong"), change[1:3], change.parts, strict=True):
        below = " " * part[0] + "^" * max(part[1] - part[0], 1)
        for start in range(0, len(text), WIDTH):
            yield f"  {'' if start else label:5}  {text[start : start + WIDTH]}"
            if "^" in (marks := below[start : start + WIDTH]):
                yield f"         {marks}"
    if change.fix:
        yield f"  fix    {change.fix}"


def _example(example: Example, bug: str) -> Iterator[str]:
    batch, head, row = example.first
    yield f"Example: {example.words}"
    yield f"  {example.stage} of batch item {batch + 1}, head {head + 1}, row {row + 1}:"
    for label, x in (("right", example.right), ("wrong", example.wrong)):
        yield f"  {label}  {_numbers(x[batch, head, row])}"
    yield "To see what check says of it:"
    yield f"  attncli check --bug {bug} --format json -o bug.json"
    yield f"  attncli check bug.json::check {example.flags}".rstrip()


def _numbers(row: Array) -> str:
    cells = [f"{x:.4g}" if abs(x) > 1e4 else f"{x:.4f}" for x in row.ravel()[:MOST]]
    return "  ".join(cells) + " …" * (row.size > MOST)
