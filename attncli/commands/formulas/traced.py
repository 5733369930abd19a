"""What --formulas and --set mean: a trace of the user's own formulas instead of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from attncli.arrays import Array
from attncli.attention.inputs import CACHE
from attncli.cli.options import ConventionFlags, DisplayFlags, InputFlags
from attncli.cli.output import note
from attncli.cli.output_size import check_written_out
from attncli.convention import Convention
from attncli.files.input_sources import Opened, Sources, open_sources
from attncli.files.inputs import Reading, complete, read
from attncli.files.lookup import name_of
from attncli.files.roles import D_OUTPUT, ROLES, role_of
from attncli.programs.attend import attend_by, replacing
from attncli.programs.read import arrays_named, lines_of
from attncli.programs.variants import text_of
from attncli.programs.written import written
from attncli.stages import GIVEN_GRADIENT
from attncli.trace import Trace
from attncli.transformer.layers import Alter

_ALIASES = {"given_mask": "mask", GIVEN_GRADIENT: D_OUTPUT}
"""What a printed program calls an input → its role in files."""


def program_trace(
    formulas: str | None,
    lines: Sequence[str],
    inputs: InputFlags,
    choices: ConventionFlags,
    *,
    quiet: bool = False,
    show: DisplayFlags | None = None,
) -> tuple[Trace, bool]:
    """The trace by the user's own formulas, and whether standard input was read for it.

    formulas  a file or the name of a variant; None: ours, with other lines for some stages
    show      how it will be written, where it will: SizeError, before anything is computed, where
              that takes too much
    """
    ready = None if show is None else partial(check_written_out, show)
    inputs.q = inputs.q or inputs.source
    sources = inputs.sources(choices)
    if formulas is None:
        names = arrays_named(x for line in lines for x in lines_of(line, "--set"))
        reading = read(sources, names=names)
        trace = lines_trace(reading, lines, ready)
        remarks = (x for x in trace.notes if x.startswith("--set"))  # not on lines of ours
        note(*reading.inputs.notes, *remarks, quiet=quiet)
        return replace(trace, notes=()), sources.reads_stdin
    program, origin = text_of(formulas)
    names = arrays_named(lines_of(program, origin, lines))
    opened = open_sources(sources, names=names)
    arrays, main = _arrays(opened, sources, names), opened.main
    queries = sources.tokens or main.query_labels or main.row_labels
    d_output = sources.drawn or arrays.pop(D_OUTPUT, None)
    trace = attend_by(
        program,
        arrays,
        convention=choices.over(Convention(), "seed"),
        labels={"query": queries, "key": main.key_labels or queries},
        d_output=d_output,
        others=lines,
        origin=origin,
        ready=ready,
    )
    note(*opened.notes, *trace.notes, quiet=quiet)
    return replace(trace, notes=()), sources.reads_stdin


def _arrays(opened: Opened, sources: Sources, names: set[str]) -> dict[str, Array]:
    """The arrays that a program may read: by name, else by the role that a name is."""
    main, arrays = opened.main, opened.arrays_named(names)
    roles = {_ALIASES.get(name, name) for name in names} | {*CACHE.values(), D_OUTPUT}
    if not ("" in main.arrays or name_of(main, "q")):
        roles.discard("q")
    arrays |= opened.arrays_of(x for x in ROLES if x in roles - arrays.keys())
    complete(arrays, opened, sources, names)
    for name, past in CACHE.items():
        if past not in names and past in arrays and name in arrays:
            arrays[name] = np.concatenate([arrays.pop(past), arrays[name]], axis=-2)
            opened.notes.append(f"{past} is put before {name}")
    used = {"", *names, *(x for x in main.arrays if role_of(x) in roles)}
    unused = {*main.arrays, *main.unread} - used
    opened.notes += main.unused_note(sorted(unused))
    return arrays | {name: arrays[role] for name, role in _ALIASES.items() if role in arrays}


def lines_trace(
    reading: Reading,
    lines: Sequence[str],
    ready: Callable[[Mapping[str, tuple[int, ...]]], None] | None = None,
) -> Trace:
    """The trace of an attention with other formulas for some of its stages."""
    attention, convention = reading.inputs.without(GIVEN_GRADIENT), reading.inputs.convention
    drawn = attention.run(["kept"]) if convention.dropout else {}
    others = reading.others.keys() - {step.name for step in attention.steps}
    arrays = {**{name: reading.others[name] for name in others}, **drawn, **attention.arrays}
    gradient, heading = reading.inputs.originals.get(GIVEN_GRADIENT), attention.heading
    targets = " and ".join(re.split(r"[\[=:]", line)[0].strip() for line in lines)
    return attend_by(
        written(attention.steps, arrays),
        arrays,
        convention=Convention(dtype=convention.dtype, seed=convention.seed),
        labels=heading.labels,
        d_output=gradient,
        others=lines,
        title=f"{heading.title}, with {targets} of your own",
        origin="the formulas",
        ready=ready,
    )


def replacing_by(formulas: str | None, lines: Sequence[str], choices: ConventionFlags) -> Alter:
    """What puts formulas of the user's own in the place of those of an attention in a layer."""
    source = None if formulas is None else text_of(formulas)
    return replacing(source, lines, choices.over(Convention(), "seed").dtype)
