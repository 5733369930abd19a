"""Bug: one row of the catalogue, with the changes of a setup that it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention import run
from attncli.check.comparison import Comparison
from attncli.check.run import Indices, Subset, all_of
from attncli.check.setup import Setup

ENOUGH = 256
"""So many rows say as much as all of them, take little memory and are read in milliseconds."""


class Evidence(NamedTuple):
    """What a bug may look at to find its parameter: the stages over the observed subset.

    eps     the distance from 1 to the next number of the observed type
    sample  a few rows, to fit a number to; None where none is to be fitted
    wide    a few rows of every batch item and head
    subset  which batch items, heads and rows were observed; None: unknown
    """

    observed: Mapping[str, Array]
    expected: Mapping[str, Array]
    eps: float = 2.0**-52
    sample: Comparison | None = None
    wide: Comparison | None = None
    subset: Subset | None = None

    def over(self, setup: Setup, stage: str) -> Subset | None:
        """Which batch items, heads and rows of a stage were observed; None: unknown, or none."""
        if stage not in self.observed:
            return None
        is_all = self.observed[stage].shape[:3] == setup.shape[:3]
        return all_of(setup.shape) if self.subset is None and is_all else self.subset

    def few(self, stage: str) -> tuple[Array, Array, Indices]:
        """Some rows of a stage as observed and as expected, and which of the observed rows."""
        observed = self.observed[stage]
        n = observed.shape[2]
        rows = np.arange(0, n, max(1, n // ENOUGH))
        return observed[:, :, rows], self.expected[stage][:, :, rows], rows

    def has_all(self, setup: Setup, stage: str) -> bool:
        """Whether a stage was observed with all its batch items, heads and rows, in order."""
        over = self.over(setup, stage)
        every = all_of(setup.shape)
        return over is not None and all(map(np.array_equal, over, every))


Change = Callable[[Setup, Evidence], Iterable[Setup]]
Probe = Callable[[Setup], tuple[Setup, Callable[[float], Setup | None]] | None]


@dataclass(frozen=True, eq=False)
class Bug:
    """A difference in how attention is computed.

    name      stable, public
    sentence  what the other implementation does
    threads   where real projects had it, as repository#number
    touches   what it changes; two that touch the same thing are not tried together
    change    the changed setups that it can be; none where it does not apply
    pairs     whether it is tried together with another bug, not alone only
    is_fitted whether a number in it is fitted to what was observed
    fits_many whether it fits so many numbers that it is tried only where nothing else fits
    probe     if it may be quiet: the setup with a little of it, and the setup with so many times as
              much, for errors within the noise
    """

    name: str
    sentence: str
    threads: tuple[str, ...]
    touches: frozenset[str]
    change: Change
    pairs: bool = True
    is_fitted: bool = False
    probe: Probe | None = None
    fits_many: bool = False

    def __repr__(self) -> str:
        return f"<Bug {self.name!r}>"


def bug(
    name: str,
    change: Change,
    touches: str,
    sentence: str,
    threads: str = "",
    *,
    pairs: bool = True,
    is_fitted: bool = False,
    probe: Probe | None = None,
    fits_many: bool = False,
) -> Bug:
    """A row of a table: touches are separated by spaces, threads by commas.

    What is fitted is not tried in pairs: it would be fitted anew with every other.
    """
    cited = tuple(thread.strip() for thread in threads.split(",") if thread.strip())
    return Bug(
        name,
        sentence,
        cited,
        frozenset(touches.split()),
        change,
        pairs and not is_fitted,
        is_fitted,
        probe,
        fits_many,
    )


def changing(
    *,
    when: Callable[[Setup], bool] = lambda _: True,
    steps: Mapping[str, run.Change] = {},
    positions: Mapping[str, Any] = {},
    inputs: Mapping[str, Array | None] = {},
    **how: Any,
) -> Change:
    """The change of some steps of the plan, of the positions, of inputs (None: left out), and of
    some fields of the convention, which may be functions of the setup.

    None where `when` is false, or where nothing changes.
    """

    def change(setup: Setup, _: Evidence) -> Iterator[Setup]:
        if not when(setup):
            return
        fields = {name: x(setup) if callable(x) else x for name, x in how.items()}
        changed = setup.with_how(**fields).with_positions(**positions).with_inputs(**inputs)
        same = changed.how == setup.how and changed.positions == setup.positions
        if steps or not same or changed.inputs.keys() != setup.inputs.keys():
            yield changed.with_steps(**steps)

    return change
