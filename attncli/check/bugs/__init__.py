"""Every bug that is tried, in the order in which it is: singly, then in pairs.

Those of positions come first, so that in a pair the other bug meets positions that are already
wrong. They apply only where `check` is told which positions to put in; q, k and v in which
positions have been put elsewhere are taken as they are.
"""

from __future__ import annotations

from attncli.check.bugs.dropout import DROPOUT
from attncli.check.bugs.heads import HEADS
from attncli.check.bugs.hypothesis import Hypothesis
from attncli.check.bugs.mask_arithmetic import MASK_ARITHMETIC
from attncli.check.bugs.masking import MASKING
from attncli.check.bugs.positions import POSITIONS
from attncli.check.bugs.scaling import SCALING
from attncli.errors import ConventionError

CATALOGUE: tuple[Hypothesis, ...] = (
    *POSITIONS,
    *HEADS,
    *SCALING,
    *MASKING,
    *MASK_ARITHMETIC,
    *DROPOUT,
)


def named(name: str) -> Hypothesis:
    """The hypothesis of this name; ConventionError where there is none.

    >>> named("scale left out").threads
    ('cntkx#10', 'PAIR-code/tiny-transformers#71')
    """
    for hypothesis in CATALOGUE:
        if hypothesis.name == name:
            return hypothesis
    known = ", ".join(hypothesis.name for hypothesis in CATALOGUE)
    raise ConventionError(f"no bug is called {name!r}", f"known are {known}")
