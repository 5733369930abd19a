"""The questions in their order: first of everything, then of the part alone that is wrong.

Search ── unwritten rows apart ── look-up ── … ──> Solution: rows of the catalogue, or answers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from attncli.commands.check.questions.answer import Answer, bug_of, places_text
from attncli.commands.check.questions.blocks import blocks_read
from attncli.commands.check.questions.gradients import read_elsewhere_backward
from attncli.commands.check.questions.lookup import look_up
from attncli.commands.check.questions.maps import read_elsewhere
from attncli.commands.check.questions.masks import parts_of_mask
from attncli.commands.check.questions.unwritten import KINDS, without_unwritten
from attncli.commands.check.search import Match, Search, enough_evidence
from attncli.tolerance.comparison import Comparison, comparison_of, fit
from attncli.tolerance.run import Subset

Question = Callable[[Search], Iterable[Answer]]

QUESTIONS: tuple[Question, ...] = (
    look_up,
    parts_of_mask,
    read_elsewhere,
    blocks_read,
    read_elsewhere_backward,
)
"""What is asked, in this order; each yields what the numbers may be, the likeliest first."""


MOST_ANSWERS = 2**12
"""About so many answers there may be: numbers that could not tell them apart are not asked."""


class Solution(NamedTuple):
    """What the questions found.

    matches     each explains what is compared
    comparison  which that is: everything, or the part that is wrong
    part        the part in words, such as "batch item 4"; "" for everything
    """

    matches: list[Match]
    comparison: Comparison
    part: str = ""


def solved(search: Search) -> Solution | None:
    """What the numbers say of their cause; None where they say nothing, or are too few."""
    if search.only_nan or not enough_evidence(search.comparison, MOST_ANSWERS):
        return None
    if matches := answered(search):
        return Solution(matches, search.comparison)
    if (apart := without_unwritten(search.comparison)) is not None:
        rest, rows_text = apart
        unwritten = bug_of(rows_text)
        if rest.matches:
            whole = fit(rest.setup, search.comparison)
            return Solution([Match((unwritten,), [whole])], search.comparison) if whole else None
        written = Search(rest, search.progress)
        matches = written.distinct(written.singles()) or answered(written)
        both = [Match((*match.bugs, unwritten), match.fits) for match in matches]
        return Solution(both, search.comparison) if both else None
    if (wrong := wrong_part(search.comparison)) is not None:
        comparison, part_text = wrong
        alone = Search(comparison, search.progress)
        matches = alone.distinct(alone.singles()) or answered(alone)
        return Solution(matches, comparison, part_text) if matches else None
    return None


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
    return part, part_text(at, comparison)


def part_text(at: Subset, comparison: Comparison) -> str:
    """The part in words, such as "batch item 4, queries 5 to 7"."""

    def parts() -> Iterator[str]:
        for axis, (kind, places) in enumerate(zip(KINDS, at, strict=True)):
            if len(places) < comparison.subset.sizes[axis]:
                yield places_text(kind, comparison.subset[axis][places].tolist())

    return ", ".join(parts())
