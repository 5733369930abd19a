"""The pages of `attncli semantics`: functions from a trace of words to parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attncli.commands.semantics.differences import differences
from attncli.commands.semantics.outcomes import Group, Outcomes
from attncli.commands.semantics.tables import APART, words_of
from attncli.page.options import DisplayOptions
from attncli.page.page import Page, parts
from attncli.page.parts import Closing, Headline, Part
from attncli.page.text import captions, sentence
from attncli.trace import Trace

NAMED = 5  # queries called by name


def library_page(trace: Trace, options: DisplayOptions) -> Iterator[Part]:
    """What a library means as a table, then how it is known."""
    call, *others = trace.notes
    yield from parts(replace(trace, notes=(call,)), options)
    if not options.stages:
        yield Closing((("", tuple(map(sentence, others))),))


def two_libraries_page(source: str, target: str) -> Page:
    """What differs as a table, then in words."""

    def page(trace: Trace, options: DisplayOptions) -> Iterator[Part]:
        yield from parts(trace, options)
        for about, ours, theirs in [] if options.stages else differences(source, target):
            sentences = f"{source}: {ours}", f"{target}: {theirs}"
            yield Closing(((about, tuple(map(sentence, sentences))),))

    return page


def outcomes_page(outcomes: Outcomes) -> Page:
    """The libraries in groups that give the same, and what this input cannot show."""

    def page(trace: Trace, options: DisplayOptions) -> Iterator[Part]:
        if options.stages:
            yield from parts(trace, options)
            return
        lengths = zip(outcomes.lengths, (("query", "queries"), ("key", "keys")), strict=True)
        facts = tuple(f"{n} {words[n != 1]}" for n, words in lengths)
        yield Headline(sentence(trace.title), facts, (), ())
        names = tuple(trace[APART].names("query"))
        for at, group in enumerate(outcomes.groups):
            lines = (" · ".join(group.names), *_rows(group, names if at else ()))
            yield Closing(((words_of(group.does), lines),))
        refused = (f"{name}: {why}" for name, why in outcomes.refused.items())
        yield from (
            [Closing((("refused", tuple(map(sentence, refused))),))] if outcomes.refused else []
        )
        unseen = tuple(f"{case.words} (give {case.show})" for case in outcomes.unseen)
        yield Closing((("Not shown by this input", unseen),))

    return page


def _rows(group: Group, names: tuple[str, ...]) -> Iterator[str]:
    """Which queries part the group from the first, and how far."""
    if not names:
        return
    rows = np.flatnonzero(group.apart)
    queries = captions(names, rows[:NAMED].tolist(), quotes=True)
    more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    place = "every query" if len(rows) == len(names) else f"{', '.join(queries)}{more}"
    largest = group.apart[rows].max()
    far = "NaN" if np.isnan(largest) else f"up to {largest:.3g} apart"
    yield f"differs from the first group in {place}: {far}"
