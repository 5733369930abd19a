"""Several gradients that are wrong for several reasons: each is explained by itself."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from attncli.commands.check.questions.answer import Solution
from attncli.commands.check.search import Causes, Match, Search
from attncli.errors import joined
from attncli.stages import GRADIENTS
from attncli.tolerance.comparison import Comparison, fit


def one_by_one(search: Search, causes: Causes) -> list[Solution]:
    """The cause of each wrong gradient, together with the others that it explains; none where one
    has no cause, or where all have the same."""
    errors = search.comparison.errors
    wrong = [name for name, stage in errors.items() if not stage.matches]
    if len(wrong) < 2 or not {*wrong} <= {*GRADIENTS}:
        return []
    solutions, unexplained = list[Solution](), [*wrong]
    while unexplained:
        first = unexplained[0]
        others = [name for name in errors if name not in unexplained]
        alone = stages_alone(search.comparison, [first])
        if not (matches := causes_beside(others, alone, search, causes)):
            return []
        groups = [_explained_by(match, unexplained, search.comparison) for match in matches]
        most = max(map(len, groups))
        names = next(group for group in groups if len(group) == most)
        best = [match for match, group in zip(matches, groups, strict=True) if group == names]
        solutions.append(Solution(best, stages_alone(search.comparison, names), joined(names)))
        unexplained = [name for name in unexplained if name not in names]
    return solutions if len(solutions) > 1 else []


def causes_beside(
    names: Collection[str], wrong: Comparison, search: Search, causes: Causes
) -> list[Match]:
    """The causes of what is wrong that leave these stages as they are; any, where none does.

    A kernel may compute again what each gradient needs, and have the bug in one of them alone.
    """
    sample = search.samples[0]
    if right := [name for name in sample.errors if name in names]:
        beside = Search(wrong, search.progress, stages_alone(sample, right))
        return causes(beside) or beside.otherwise()
    return causes(Search(wrong, search.progress))


def stages_alone(comparison: Comparison, names: list[str]) -> Comparison:
    """The comparison of these stages alone."""
    return replace(comparison, errors={name: comparison.errors[name] for name in names})


def _explained_by(match: Match, names: list[str], comparison: Comparison) -> list[str]:
    """The stages, the first among them, of which this cause explains each."""
    setup, (first, *others) = match.fits[0].setup, names
    return [first, *(name for name in others if fit(setup, stages_alone(comparison, [name])))]
