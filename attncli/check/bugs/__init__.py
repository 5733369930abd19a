"""Every bug that is tried, in this order: singly, then in pairs.

Those of positions come first, so that in a pair the other bug works on positions that are already
wrong. They apply only where `check` is asked to put positions in; q, k and v that have theirs
already are taken as they are. Those whose number is fitted to what was observed come last, and are
tried only where no other bug fits.
"""

from __future__ import annotations

from attncli.check.bugs.backward import BACKWARD
from attncli.check.bugs.bug import Bug
from attncli.check.bugs.caches import CACHES
from attncli.check.bugs.dropout import DROPOUT
from attncli.check.bugs.fitted import FITTED
from attncli.check.bugs.fitted_places import FITTED_PLACES
from attncli.check.bugs.heads import HEADS
from attncli.check.bugs.inputs import INPUTS
from attncli.check.bugs.kernels import KERNELS
from attncli.check.bugs.layouts import LAYOUTS
from attncli.check.bugs.mask_arithmetic import MASK_ARITHMETIC
from attncli.check.bugs.masking import MASKING
from attncli.check.bugs.merged import MERGED
from attncli.check.bugs.positions import POSITIONS
from attncli.check.bugs.projections import PROJECTIONS
from attncli.check.bugs.queries import QUERIES
from attncli.check.bugs.running import RUNNING
from attncli.check.bugs.scaling import SCALING
from attncli.check.bugs.sums import SUMS
from attncli.errors import ConventionError

CATALOGUE: tuple[Bug, ...] = (
    *POSITIONS,
    *HEADS,
    *LAYOUTS,
    *PROJECTIONS,
    *INPUTS,
    *SCALING,
    *MASKING,
    *CACHES,
    *MASK_ARITHMETIC,
    *DROPOUT,
    *KERNELS,
    *MERGED,
    *SUMS,
    *RUNNING,
    *BACKWARD,
    *FITTED,
    *FITTED_PLACES,
    *QUERIES,
)


def named(name: str) -> Bug:
    """The bug of this name; ConventionError where there is none.

    >>> named("scale left out").threads
    ('cntkx#10', 'PAIR-code/tiny-transformers#71')
    """
    for bug in CATALOGUE:
        if bug.name == name:
            return bug
    known = ", ".join(bug.name for bug in CATALOGUE)
    raise ConventionError(f"no bug is called {name!r}", f"known are {known}")
