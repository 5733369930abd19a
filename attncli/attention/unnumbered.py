"""Steps without the values of their numbers: of these the gradients are derived once.

A gradient has the numbers of the steps that it is of, whatever these are; only −∞ decides what has
a gradient at all. So the search for a number derives the gradients of a plan for all its values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from attncli.attention.run import Step

Worded = Callable[[Mapping[str, Any]], str]
"""From the numbers of a step to its formula in matrices."""
_MAPPINGS = "reads", "params", "sizes", "back"


class Origin(NamedTuple):
    """The number that a step has by this name, whatever it is."""

    step: str
    name: str


def without_numbers(step: Step) -> Step:
    """What the gradients of a step follow from, in which every mapping is a tuple of its items."""
    infinite = -float("inf")
    origins = {n: x if x == infinite else Origin(step.name, n) for n, x in step.params.items()}
    bare = step._replace(params=origins, formula="", note="", function=None, like=None)
    items: dict[str, Any] = {x: (*getattr(bare, x).items(),) for x in _MAPPINGS}
    return bare._replace(**items)


def with_origins(step: Step) -> Step:
    """The step of one without numbers: it has their origins instead."""
    mappings: dict[str, Any] = {x: dict(getattr(step, x)) for x in _MAPPINGS}
    return step._replace(**mappings)


class Derived(NamedTuple):
    """The step of a gradient, with the origins of its numbers, and its formula of these."""

    step: Step
    worded: Worded | None

    def of(self, numbers: Mapping[str, Mapping[str, Any]]) -> Step:
        """The step with the numbers of each step, by their names."""
        if self.worded is None:
            return self.step
        params = {
            name: numbers[x.step][x.name] if isinstance(x, Origin) else x
            for name, x in self.step.params.items()
        }
        return self.step._replace(params=params, formula=self.worded(params))
