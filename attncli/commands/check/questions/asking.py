"""The questions in their order: first of everything, then of the part alone that is wrong.

Search ── unwritten rows apart ── look-up ── … ──> Solution: rows of the catalogue, or answers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import numpy as np

from attncli.commands.check.questions.again import read_again_elsewhere
from attncli.commands.check.questions.answer import Answer, Solution, bug_of, places_text
from attncli.commands.check.questions.backward import read_elsewhere_backward
from attncli.commands.check.questions.blocks import blocks_read
from attncli.commands.check.questions.channels import channels_elsewhere
from attncli.commands.check.questions.columns import columns_otherwise
from attncli.commands.check.questions.counting import counted, zero_keys
from attncli.commands.check.questions.factors import two_factors
from attncli.commands.check.questions.gradients import (
    causes_beside,
    one_by_one,
)
from attncli.commands.check.questions.grouped_heads import heads_summed
from attncli.commands.check.questions.harmless import add_constants
from attncli.commands.check.questions.lookup import look_up
from attncli.commands.check.questions.maps import other_sinks, read_elsewhere
from attncli.commands.check.questions.masks import parts_of_mask
from attncli.commands.check.questions.merges import merged
from attncli.commands.check.questions.norms import norm_otherwise
from attncli.commands.check.questions.output_rows import (
    channels_of_one_number,
    rows_multiplied,
    rows_shifted,
    sums_otherwise,
)
from attncli.commands.check.questions.renamed import renamed
from attncli.commands.check.questions.rotary import place_otherwise
from attncli.commands.check.questions.row_numbers import other_delta, other_log_sum_exp
from attncli.commands.check.questions.smoothed import smoothed
from attncli.commands.check.questions.terms import terms_counted
from attncli.commands.check.questions.unwritten import KINDS_OF, without_unwritten
from attncli.commands.check.questions.views import attended_over, read_by_a_view
from attncli.commands.check.search import Match, Search, enough_evidence
from attncli.stages import GRADIENTS
from attncli.tolerance.comparison import Comparison, comparison_of, fit
from attncli.tolerance.run import GRADIENTS_OF_GAINS, Subset, all_of
from attncli.tolerance.spans import OF_ALL_HEADS, span_of

Question = Callable[[Search], Iterable[Answer]]

QUESTIONS: tuple[Question, ...] = (
    renamed,
    heads_summed,
    look_up,
    parts_of_mask,
    channels_elsewhere,
    read_elsewhere,
    blocks_read,
    read_by_a_view,
    attended_over,
    terms_counted,
    read_elsewhere_backward,
    read_again_elsewhere,
    add_constants,
    columns_otherwise,
    channels_of_one_number,
    counted,
    sums_otherwise,
    two_factors,
    merged,
    smoothed,
    place_otherwise,
    norm_otherwise,
    rows_shifted,
    other_delta,
    other_log_sum_exp,
)
"""What is asked, in this order; each yields what the numbers may be, the likeliest first."""


AT_LAST: tuple[Question, ...] = (rows_multiplied,)
"""What is asked where no edit of the formulas gives the numbers either: it says less than one."""

MOST_ANSWERS = 2**12
"""About so many answers there may be: numbers that could not tell them apart are not asked."""


LEAST_WRONG = 8
"""A part of fewer wrong numbers, or different ones, is not asked for a cause of its own."""

MOST_JUDGED = 128
"""So many answers of a question are judged: where noise allows more, none is the cause."""


def solved(search: Search) -> list[Solution]:
    """What the numbers say of their causes; none where they say nothing, or are too few.

    Rows of NaN alone have many causes: they are said to be unwritten where they are a whole block.
    Several where several gradients are wrong for reasons of their own.
    """
    comparison = search.comparison
    if not enough_evidence(comparison, MOST_ANSWERS):
        return []
    apart = without_unwritten(comparison, of_blocks=search.only_nan)
    if apart and apart[0].matches and (whole := fit(apart[0].setup, comparison)):
        return [Solution([Match((bug_of(apart[1]),), [whole])], comparison)]
    if search.only_nan:
        matches = answered(search, [columns_otherwise, channels_of_one_number])
        return [Solution(matches, comparison)] if matches else []
    if matches := answered(search):
        return [Solution(matches, comparison)]
    if apart and not apart[0].matches:
        rest, rows_text = apart
        matches = causes(Search(rest, search.progress))
        if both := [Match((*match.bugs, bug_of(rows_text)), match.fits) for match in matches]:
            return [Solution(both, comparison)]
    if (wrong := wrong_part(comparison)) is not None:
        part, part_text = wrong
        others = comparison.errors.keys() - part.errors.keys()
        n_wrong = sum(int(stage.wrong.sum()) for stage in part.errors.values())
        is_enough = n_wrong >= LEAST_WRONG and part.has_different(LEAST_WRONG)
        is_enough = is_enough and enough_evidence(part, MOST_ANSWERS)
        if is_enough and (matches := causes_beside(others, part, search, causes)):
            return [Solution(matches, part, part_text)]
    return one_by_one(search, causes)


def solved_at_last(search: Search) -> list[Match]:
    """What is said where neither a bug nor an edit gives the numbers."""
    is_enough = enough_evidence(search.comparison, MOST_ANSWERS) and not search.only_nan
    return answered(search, AT_LAST) if is_enough else []


def causes(search: Search) -> list[Match]:
    """The single bugs that fit, else the first answer, else that all of it was not written."""
    if matches := search.causes(looked_up) or answered(search):
        return matches
    return all_unwritten(search.comparison)


def all_unwritten(comparison: Comparison) -> list[Match]:
    """All that is wrong, as rows that were not written; none where that is not all."""
    apart = without_unwritten(comparison)
    whole = fit(apart[0].setup, comparison) if apart and apart[0].matches else None
    return [Match((bug_of(apart[1]),), [whole])] if apart and whole else []


def looked_up(search: Search) -> list[Match]:
    """The right rows of other places, which no fitted number gives; of exact numbers with all rows
    written alone."""
    comparison = search.comparison
    if comparison.rule.kind != "noise" or comparison.rule.printed or search.only_nan:
        return []
    return [] if without_unwritten(comparison) else answered(search, [look_up])


def instead_of_fitted(search: Search, matches: list[Match]) -> list[Match]:
    """In the place of numbers that were fitted, the sinks of other heads, or keys of zeros where so
    many whole ones fit too; in the place of factors of every key, what some keys are alone. Of
    gradients that are 0 it is said that they were not written."""
    bugs = [bug for match in matches for bug in match.bugs]
    wrong = {x: y for x, y in search.comparison.errors.items() if not y.matches}
    are_zeros = wrong.keys() <= {*GRADIENTS} and not any(x.observed.any() for x in wrong.values())
    are_of_gains = wrong.keys() <= GRADIENTS_OF_GAINS  # which are made of other gradients
    if bugs and are_zeros and (are_of_gains or all(bug.is_fitted for bug in bugs)):
        return all_unwritten(search.comparison) or matches
    instead = [columns_otherwise] if bugs and all(bug.fits_many for bug in bugs) else []
    if bugs and all(bug.is_fitted for bug in bugs):
        instead += [other_sinks, zero_keys]
    return answered(search, instead) or matches


def answered(search: Search, questions: Sequence[Question] | None = None) -> list[Match]:
    """The first answer that gives all numbers, as a match; none where no question has one.

    questions  those that are asked; None: all
    """
    for question in QUESTIONS if questions is None else questions:
        for answer in islice(question(search), MOST_JUDGED):
            bug = bug_of(answer.sentence, answer.formula, is_fitted=answer.is_fitted)
            if matches := search.among([((bug,), answer.setups)]):
                return [Match(matches[0].bugs, matches[0].fits[:1])]
    return []


def wrong_part(comparison: Comparison) -> tuple[Comparison, str] | None:
    """The comparison of those places alone at which stages are wrong, and the places in words.

    None where they are wrong at all places, or are stages of queries and of keys.
    """
    setup, errors = comparison.setup, comparison.errors
    wrong = {name: stage for name, stage in errors.items() if not stage.matches}
    spans = {span_of(name, setup.convention.softmax_over) for name in wrong}
    if {*wrong} & {*OF_ALL_HEADS} or spans not in ({"rows"}, {"keys"}):
        return None
    of_keys = spans == {"keys"}
    if of_keys and comparison.subset.sizes != setup.shape[:3]:
        return None
    is_wrong = np.any([stage.wrong.any(axis=-1) for stage in wrong.values()], axis=0)
    at = Subset(*(np.flatnonzero(is_wrong.any(axis=tuple({0, 1, 2} - {x}))) for x in range(3)))
    every = all_of(is_wrong.shape) if of_keys else comparison.subset
    if of_keys:  # they depend on all queries, of the heads that share the keys
        at = at._replace(row=every.row)
        heads = np.flatnonzero(np.isin(setup.key_heads_by_grouping, at.head))
        subset = comparison.subset._replace(batch=at.batch, head=heads)
    else:
        subset = comparison.subset.take(at)
    if at.sizes == is_wrong.shape:
        return None
    observed = {name: stage.observed[np.ix_(*at)] for name, stage in wrong.items()}
    part = comparison_of(setup, subset, observed, comparison.rule)
    kinds = KINDS_OF["keys" if of_keys else "rows"]
    return part, text_of_part(at, every, kinds)


def text_of_part(at: Subset, every: Subset, kinds: Sequence[str]) -> str:
    """The part in words, such as "batch item 4, queries 5 to 7"."""
    sizes = every.sizes
    parts = (
        places_text(kind, every[axis][places].tolist())
        for axis, (kind, places) in enumerate(zip(kinds, at, strict=True))
        if len(places) < sizes[axis]
    )
    return ", ".join(parts)
