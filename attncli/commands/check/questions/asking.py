"""The questions in their order: first of everything, then of the part alone that is wrong.

Search ── unwritten rows apart ── look-up ── … ──> Solution: rows of the catalogue, or answers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from attncli.commands.check.questions.answer import Answer, Solution, bug_of, places_text
from attncli.commands.check.questions.gradients import one_by_one
from attncli.commands.check.questions.lookup import look_up
from attncli.commands.check.questions.unwritten import KINDS, without_unwritten
from attncli.commands.check.search import Match, Search, enough_evidence
from attncli.tolerance.comparison import Comparison, comparison_of, fit
from attncli.tolerance.run import Subset

Question = Callable[[Search], Iterable[Answer]]

QUESTIONS: tuple[Question, ...] = (look_up,)
"""What is asked, in this order; each yields what the numbers may be, the likeliest first."""


MOST_ANSWERS = 2**12
"""About so many answers there may be: numbers that could not tell them apart are not asked."""


def solved(search: Search) -> list[Solution]:
    """What the numbers say of their causes; none where they say nothing, or are too few.

    Several where several gradients are wrong for reasons of their own.
    """
    comparison = search.comparison
    if search.only_nan or not enough_evidence(comparison, MOST_ANSWERS):
        return []
    if matches := answered(search):
        return [Solution(matches, comparison)]
    if (apart := without_unwritten(comparison)) is not None:
        rest, rows_text = apart
        unwritten = bug_of(rows_text)
        if rest.matches:
            whole = fit(rest.setup, comparison)
            return [Solution([Match((unwritten,), [whole])], comparison)] if whole else []
        matches = causes(Search(rest, search.progress))
        both = [Match((*match.bugs, unwritten), match.fits) for match in matches]
        if both:
            return [Solution(both, comparison)]
    if (wrong := wrong_part(comparison)) is not None:
        part, part_text = wrong
        matches = causes(Search(part, search.progress))
        return [Solution(matches, part, part_text)] if matches else []
    return one_by_one(search, causes)


def causes(search: Search) -> list[Match]:
    """The single bugs that fit, else the first answer, else that all of it was not written."""
    if matches := search.distinct(search.singles()) or answered(search):
        return matches
    apart = without_unwritten(search.comparison)
    whole = fit(apart[0].setup, search.comparison) if apart and apart[0].matches else None
    return [Match((bug_of(apart[1]),), [whole])] if apart and whole else []


def answered(search: Search) -> list[Match]:
    """The first answer that gives all numbers, as a match; none where no question has one."""
    for question in QUESTIONS:
        for answer in question(search):
            candidate = (bug_of(answer.sentence, answer.formula),), answer.setups
            if matches := search.among([candidate]):
                return [Match(matches[0].bugs, matches[0].fits[:1])]
    return []


def wrong_part(comparison: Comparison) -> tuple[Comparison, str] | None:
    """The comparison of those batch items, heads and queries alone that are wrong, in words too.

    None where all of them are, or where a stage is no stage of rows.
    """
    stages = comparison.of_rows().errors
    if stages.keys() != comparison.errors.keys():
        return None
    sizes = comparison.subset.sizes
    if any(stage.expected.shape[:3] != sizes for stage in stages.values()):
        return None
    wrong = np.any([stage.wrong.any(axis=-1) for stage in stages.values()], axis=0)
    at = Subset(*(np.flatnonzero(wrong.any(axis=tuple({0, 1, 2} - {x}))) for x in range(3)))
    if at.sizes == sizes or not wrong.any():
        return None
    subset, index = comparison.subset.take(at), np.ix_(*at)
    observed = {name: stage.observed[index] for name, stage in stages.items()}
    part = comparison_of(comparison.setup, subset, observed, comparison.rule)
    return part, text_of_part(at, comparison)


def text_of_part(at: Subset, comparison: Comparison) -> str:
    """The part in words, such as "batch item 4, queries 5 to 7"."""

    def parts() -> Iterator[str]:
        for axis, (kind, places) in enumerate(zip(KINDS, at, strict=True)):
            if len(places) < comparison.subset.sizes[axis]:
                yield places_text(kind, comparison.subset[axis][places].tolist())

    return ", ".join(parts())
