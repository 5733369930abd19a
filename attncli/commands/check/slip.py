"""Slip: one edit of one formula; those of one step are screened on a few rows, many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from attncli.commands.check.bugs.bug import Evidence
from attncli.commands.check.bugs.edits import DELTAS, Edit, rewrites_of
from attncli.commands.check.bugs.facts import Facts
from attncli.commands.check.bugs.patch import named, patched, whole_plan
from attncli.commands.check.bugs.rewrite import Rewrite
from attncli.formula.expression import Cell, Expr, cells, walk
from attncli.tolerance.alternatives import Fork, fork_of
from attncli.tolerance.comparison import Comparison

DELTA_OF_OUTPUT = (Edit("", "delta", DELTAS["either delta"][1]),)
"""Kernels take δ of O and dO, so that it does not follow from another dA."""


class Slip(NamedTuple):
    """One edit of one formula, or of the same part in two.

    right  the right side that is edited: that of the formula, or another form of it
    cost   how many signs differ: of edits with the same numbers the shortest is said
    """

    places: tuple[str, ...]
    again: bool
    body: Expr
    old: Expr
    new: Expr
    right: Expr

    @property
    def cost(self) -> int:
        """How much is written anew; an edit of what is computed again comes after the others."""
        old, new = (sum(1 for _ in walk(x, guards=True)) for x in (self.old, self.new))
        letters = len(cells(self.new, guards=True)[0].index) if isinstance(self.new, Cell) else 0
        return 4 * abs(new - old) + new + letters + 10 * self.again + 5 * (len(self.places) - 1)

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits that it is."""
        kind = "again" if self.again else ""
        return tuple(Edit(kind, place, "", body=self.body) for place in self.places)

    @property
    def ways(self) -> list[tuple[Edit, ...]]:
        """The edits that it may be."""
        also = [(*self.edits, *DELTA_OF_OUTPUT)] if "d_weights" in self.places else []
        return [self.edits, *also]

    @property
    def is_alone(self) -> bool:
        """Whether one step of a plan is another, and nothing else."""
        return len(self.places) == 1 and len(self.ways) == 1

    @property
    def step(self) -> str:
        """The name of the step that is another, the first of them."""
        return f"{self.places[0]}_again" if self.again else self.places[0]


AT_ONCE = 64
"""How many slips of one step are screened at once."""


class Screen:
    """Which slips a comparison of a few rows refuses.

    The slips of one step read the same arrays, and the same steps follow: both are computed once.
    """

    def __init__(self, narrow: Comparison, evidence: Evidence, slips: Sequence[Slip]) -> None:
        self.narrow, self.facts = narrow, Facts(narrow.setup, evidence)
        self.waiting = dict[str, list[Slip]]()  # by step, those that come first at the end
        for slip in reversed(slips):
            if slip.is_alone:
                self.waiting.setdefault(slip.step, []).append(slip)
        self.forks = dict[tuple[str, frozenset[int]], Fork | None]()
        self.results = dict[int, frozenset[int]]()  # the id of a refused slip → its whole axes

    def refused(self, slip: Slip) -> frozenset[int] | None:
        """The axes that a slip needs whole, where it is refused; None where it may fit.

        Slips are asked for in their order.
        """
        waiting = self.waiting.get(slip.step, [])
        if slip.is_alone and waiting and waiting[-1] is slip:
            some = waiting[: -AT_ONCE - 1 : -1]
            del waiting[-AT_ONCE:]
            self._judge(some)
        return self.results.pop(id(slip), None)

    def _judge(self, slips: Sequence[Slip]) -> None:
        """Puts those of some slips of one step that are refused into the results."""
        (place,), name, again = slips[0].places, slips[0].step, slips[0].again
        # Of what is computed again there are copies in the plan once one of them is edited.
        setup = patched(self.narrow.setup, {}, {place: Rewrite()}) if again else self.narrow.setup
        if setup is None or (step := named(whole_plan(setup), name)) is None:
            return
        inputs = [name for name in setup.inputs if "." in name]
        by_axes = dict[frozenset[int], list[tuple[Slip, Rewrite]]]()
        for slip in slips:
            rewrite = rewrites_of(self.facts, slip.edits, {})[place]
            by_axes.setdefault(rewrite.whole(step), []).append((slip, rewrite))
        for whole, group in by_axes.items():
            key = name if again else "", whole
            if key not in self.forks:
                self.forks[key] = fork_of(self.narrow, setup, whole)
            if (fork := self.forks[key]) is None or not (step := named(fork.plan, name)):
                continue
            for start in range(0, len(group), fork.most):
                part = group[start : start + fork.most]
                steps = [rewrite.of(step, fork.plan, inputs) for _, rewrite in part]
                for (slip, _), is_refused in zip(part, fork.refused(step, steps), strict=True):
                    if is_refused:
                        self.results[id(slip)] = whole
