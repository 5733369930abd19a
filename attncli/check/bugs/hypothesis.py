"""Hypothesis: a named way in which an attention can be computed differently."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from attncli.check.setup import Array, Setup


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a hypothesis may look at to find its parameter: the arrays over the observed cut.

    eps: the distance from 1 to the next number of the observed type
    """

    observed: Mapping[str, Array] = field(default_factory=dict)
    expected: Mapping[str, Array] = field(default_factory=dict)
    eps: float = 2.0**-52


@dataclass(frozen=True, eq=False)
class Variant:
    """A changed setup, and what of it the hypothesis's name leaves open."""

    setup: Setup
    detail: str = ""


Change = Callable[[Setup, Evidence], Iterable[Variant]]


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """One row of the catalogue.

    name      stable, public
    sentence  what the other implementation does
    threads   where real projects met it, as repository#number
    touches   what it changes; two that touch the same thing are not tried together
    change    the changed setups it stands for; none where it does not apply
    """

    name: str
    sentence: str
    threads: tuple[str, ...]
    touches: frozenset[str]
    change: Change

    def __repr__(self) -> str:
        return f"<Hypothesis {self.name!r}>"


def hypothesis(  # one row of a table
    name: str, change: Change, touches: str, sentence: str, threads: str = ""
) -> Hypothesis:
    """A Hypothesis from words: touches and threads are separated by spaces and commas."""
    cited = tuple(thread.strip() for thread in threads.split(",") if thread.strip())
    return Hypothesis(name, sentence, cited, frozenset(touches.split()), change)
