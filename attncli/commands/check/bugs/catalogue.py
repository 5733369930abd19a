"""Every bug that is tried, in this order: singly, then in pairs.

catalogue.md has their names, words and edits; those that look at what was observed are functions of
the modules here. Those of positions come first, so that in a pair the other bug works on positions
that are already wrong. They apply only where `check` is asked to put positions in; q, k and v that
have theirs already are taken as they are. Those whose number is fitted to what was observed come
last, and are tried only where no other bug fits. Units are no bugs: see conventions.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from attncli.commands.check.bugs import edits
from attncli.commands.check.bugs.bug import Bug, Change, Evidence, slug
from attncli.commands.check.bugs.facts import catalogue
from attncli.commands.check.bugs.fits import fitted, probe_of
from attncli.commands.check.bugs.kernels import KERNELS
from attncli.commands.check.bugs.queries import QUERIES
from attncli.commands.check.bugs.solved import SOLVED
from attncli.errors import ConventionError, nearest
from attncli.stages import GRADIENTS, LSE
from attncli.tolerance.setup import Setup

GRADIENT = "gradients"
"""What bugs of the backward pass touch: they are tried where gradients were observed."""

TILES = "tiles"
"""What bugs of a walk through tiles touch."""

SHOWN_BY: dict[str, tuple[str, ...]] = {GRADIENT: GRADIENTS, "lse": (LSE,)}
"""Bugs that touch one of these are tried only where such a stage was observed."""

FUNCTIONS: Mapping[str, Change] = {**KERNELS, **SOLVED, **QUERIES}
"""The rows that have no edits in the catalogue."""


def _rows(text: str) -> Iterator[Bug]:
    """The rows of a part of catalogue.md."""
    rows = text.splitlines()
    starts = [at for at, row in enumerate(rows) if not row.startswith(" ")]
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        cells = [cell.strip() for cell in f"{rows[start]} | | |".split(" | ")]
        name, sentence, touches, tried, threads = cells[:5]
        lines = tuple(row.strip() for row in rows[start + 1 : end])
        yield Bug(
            name,
            sentence,
            tuple(threads.strip("| ").split(", ")) if threads.strip("| ") else (),
            frozenset(touches.split()),
            partial(_changed, lines, FUNCTIONS.get(name), touches.split()),
            tuple(line for line in lines if not re.search(r" quiet | example$", line)),
            pairs=tried == "in pairs",
            is_fitted=tried.startswith("fitted"),
            probe=probe_of(lines),
            fits_many=tried.endswith("last"),
        )


def _changed(
    lines: Sequence[str],
    function: Change | None,
    touches: Sequence[str],
    setup: Setup,
    evidence: Evidence,
) -> Iterator[Setup]:
    """The setups with each variant, where a stage by which they are shown was observed."""
    stage = next((x for x in SHOWN_BY if x in touches), "")
    if not stage or evidence.expected.keys() & {*SHOWN_BY[stage]}:
        if function is not None:
            yield from function(setup, evidence)
        yield from edits.changed(lines, setup, evidence)
        if evidence.sample is not None:
            yield from fitted(lines, setup, evidence)


_BUGS, _UNITS, _TEMPLATES = catalogue()[1:]
CATALOGUE, UNITS = (tuple(_rows(part)) for part in (_BUGS, _UNITS))
TEMPLATES = tuple(_TEMPLATES.strip().splitlines())
BACKWARD = tuple(bug for bug in CATALOGUE if GRADIENT in bug.touches)


def named(name: str) -> Bug:
    """The bug of this name or id; ConventionError where there is none."""
    for bug in CATALOGUE:
        if name in (bug.name, bug.id):
            return bug
    ids = [bug.id for bug in CATALOGUE]
    hint = nearest(slug(name), ids, "attncli check --bugs lists all")
    raise ConventionError(f"no bug is called {name!r}", hint)
