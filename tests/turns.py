"""Cases in one set-up, in turn, or every second one: the rest is left to `pytest --exhaustive`."""

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest


def every_second(cases: Iterable[Any]) -> list[Any]:
    """The cases, of which every second one is marked."""
    return [
        pytest.param(case, marks=pytest.mark.exhaustive if number % 2 else ())
        for number, case in enumerate(cases)
    ]


def in_turn(
    cases: Iterable[Any], *axes: Iterable[Any], name: Callable[[Any], str] = str
) -> list[Any]:
    """Each case with every combination of the axes; all combinations but one, in turn, are marked."""
    combinations = list(product(*axes))
    return [
        pytest.param(
            case,
            *combination,
            id="-".join(map(str, (name(case), *combination))),
            marks=() if number % len(combinations) == place else pytest.mark.exhaustive,
        )
        for number, case in enumerate(cases)
        for place, combination in enumerate(combinations)
    ]
