"""The pages of `attncli semantics`: functions from a trace of words to parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attncli.commands.semantics.outcomes import Group, Outcomes
from attncli.commands.semantics.porting import Difference, Recipe
from attncli.commands.semantics.tables import APART, CODE, words_of
from attncli.page.options import DisplayOptions
from attncli.page.page import Page, parts
from attncli.page.parts import Closing, Code, Heading, Headline, Part
from attncli.page.text import captions, clean, sentence
from attncli.trace import Trace

NAMED = 5  # queries called by name


def library_page(trace: Trace, options: DisplayOptions) -> Iterator[Part]:
    """What a library means as a table, then how it is known."""
    call, *others = trace.notes
    yield from parts(replace(trace, notes=(call,)), options)
    if not options.stages:
        yield Closing((("", tuple(map(sentence, others))),))


def porting_page(recipe: Recipe) -> Page:
    """What differs as a table and in words, and what to write."""

    def page(trace: Trace, options: DisplayOptions) -> Iterator[Part]:
        if options.stages:
            yield from parts(trace, options)
            return
        names = tuple(name for name in trace if name != CODE)
        if names:
            yield from parts(trace, replace(options, stages=names))
        else:
            yield Headline(sentence(trace.title), (), (), tuple(map(sentence, trace.notes)))
        for difference in recipe.differences:
            yield from _difference(difference, recipe.source, recipe.target)
        if recipe.code:
            calls = f"for {recipe.call.words}"
            yield Heading(f"{recipe.source}'s numbers by {recipe.target}, {calls}")
            yield Code(tuple(map(clean, recipe.code.rstrip("\n").split("\n"))))

    return page


def _difference(difference: Difference, source: str, target: str) -> Iterator[Part]:
    """What both mean, and what makes up for it, where that is no part of the code."""
    sentences = [f"{source}: {difference.source}", f"{target}: {difference.target}"]
    is_apart = bool(difference.write and difference.why)
    sentences += (
        [f"{difference.why}, write" if is_apart else difference.why] if difference.why else []
    )
    yield Closing(((difference.about, tuple(map(sentence, sentences))),))
    if is_apart:
        yield Code(tuple(map(clean, difference.write.split("\n"))))


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
