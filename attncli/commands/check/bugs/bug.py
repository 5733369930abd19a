"""Bug: one row of the catalogue, with the changes of a setup that it can be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.tolerance.comparison import Comparison
from attncli.tolerance.run import Indices, Subset, all_of
from attncli.tolerance.setup import Setup

ENOUGH = 256
"""So many rows say as much as all of them, take little memory and are read in milliseconds."""


class Evidence(NamedTuple):
    """What a bug may look at to find its parameter: the stages over the observed subset.

    eps     the distance from 1 to the next number of the observed type
    sample  a few rows, to fit a number to; None where none is to be fitted
    wide    a few rows of every batch item and head
    subset  which batch items, heads and rows were observed; None: unknown
    example  the number that an edit has where one is fitted; None: it is fitted, to the sample
    """

    observed: Mapping[str, Array]
    expected: Mapping[str, Array]
    eps: float = 2.0**-52
    sample: Comparison | None = None
    wide: Comparison | None = None
    subset: Subset | None = None
    example: float | None = None

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


_WORDS = {"√": "sqrt ", "ᵀ": "-t", "δ": "delta", "∞": "inf", "−": "minus ", "'": ""}


def slug(name: str) -> str:
    """A name in kebab case and ASCII.

    >>> slug("√d_model instead of √d_k"), slug("δ added, not subtracted")
    ('sqrt-d-model-instead-of-sqrt-d-k', 'delta-added-not-subtracted')
    """
    for sign, word in _WORDS.items():
        name = name.replace(sign, word)
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


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
    edits     what it changes, as text; none where a function looks at what was observed
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
    edits: tuple[str, ...] = ()
    pairs: bool = True
    is_fitted: bool = False
    probe: Probe | None = None
    fits_many: bool = False

    @property
    def id(self) -> str:
        """The name in kebab case: stable, public."""
        return slug(self.name)

    def __repr__(self) -> str:
        return f"<Bug {self.name!r}>"
