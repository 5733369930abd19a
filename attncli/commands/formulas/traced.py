"""What --formulas and --set mean: a trace of the user's own formulas instead of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from attncli.arrays import Array
from attncli.attention.inputs import CACHE
from attncli.cli.inputs import AttentionInputs, read_inputs
from attncli.cli.layouts import complete
from attncli.cli.options import ConventionFlags, DisplayFlags, InputFlags
from attncli.cli.output import note
from attncli.cli.output_size import check_written_out
from attncli.cli.parsing import tokens_of
from attncli.cli.sources import Files, arrays_of, named_arrays, read_files, sources_of
from attncli.convention import Convention
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
    if formulas is None:
        names = arrays_named(x for line in lines for x in lines_of(line, "--set"))
        attention = read_inputs(inputs, choices, names=names)
        trace = lines_trace(attention, lines, ready)
        remarks = (x for x in trace.notes if x.startswith("--set"))  # not on lines of ours
        note(*attention.notes, *remarks, quiet=quiet)
        return replace(trace, notes=()), attention.stdin_used
    program, origin = text_of(formulas)
    (sources, drawn), notes = sources_of(inputs), list[str]()
    names = arrays_named(lines_of(program, origin, lines))
    files = read_files(sources, (), notes, {}, names)
    arrays, main = _arrays(files, inputs, names, notes), files["q"]
    queries = tokens_of(inputs.tokens) if inputs.tokens else main.query_labels or main.row_labels
    d_output = drawn or arrays.pop(D_OUTPUT, None)
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
    note(*notes, *trace.notes, quiet=quiet)
    stdin_used = any(source.split("::")[0] == "-" for source in sources.values())
    return replace(trace, notes=()), stdin_used


def _arrays(
    files: Files, inputs: InputFlags, names: set[str], notes: list[str]
) -> dict[str, Array]:
    """The arrays that a program may read: by name, else by the role that a name is."""
    main, arrays = files["q"], named_arrays(files, names)
    roles = {_ALIASES.get(name, name) for name in names} | {*CACHE.values(), D_OUTPUT}
    if not ("" in main.arrays or name_of(main, "q")):
        roles.discard("q")
    arrays |= arrays_of([x for x in ROLES if x in roles - arrays.keys()], files)
    complete(arrays, main, inputs, notes, names)
    for name, past in CACHE.items():
        if past not in names and past in arrays and name in arrays:
            arrays[name] = np.concatenate([arrays.pop(past), arrays[name]], axis=-2)
            notes.append(f"{past} is put before {name}")
    used = {"", *names, *(x for x in main.arrays if role_of(x) in roles)}
    unused = {*main.arrays, *main.unread} - used
    notes += main.unused_note(sorted(unused))
    return arrays | {name: arrays[role] for name, role in _ALIASES.items() if role in arrays}


def lines_trace(
    source: AttentionInputs,
    lines: Sequence[str],
    ready: Callable[[Mapping[str, tuple[int, ...]]], None] | None = None,
) -> Trace:
    """The trace of an attention with other formulas for some of its stages."""
    attention, convention = source.inputs.without(GIVEN_GRADIENT), source.inputs.convention
    drawn = attention.run(["kept"]) if convention.dropout else {}
    others = source.others.keys() - {step.name for step in attention.steps}
    arrays = {**{name: source.others[name] for name in others}, **drawn, **attention.arrays}
    gradient, heading = source.inputs.originals.get(GIVEN_GRADIENT), attention.heading
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
