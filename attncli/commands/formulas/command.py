"""attncli formulas: the program of a call's conventions, and the variants that ship.

Also what --formulas and --set mean on compute, check and diff: a trace of the user's own formulas
instead of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.inputs import CACHE, inputs_of
from attncli.cli.groups import given_of
from attncli.cli.inputs import AttentionInputs, read_inputs
from attncli.cli.layouts import complete
from attncli.cli.options import ConventionFlags, DisplayFlags, InputFlags, ending_of
from attncli.cli.output import note, write_text
from attncli.cli.output_size import check_written_out
from attncli.cli.parsing import tokens_of
from attncli.cli.sources import Files, arrays_of, named_arrays, read_files, sources_of
from attncli.commands.formulas.flags import ProgramFlags
from attncli.convention import Convention, flag_of, flag_text
from attncli.errors import ConventionError
from attncli.files.lookup import name_of
from attncli.files.roles import D_OUTPUT, ONES, ROLES, role_of
from attncli.programs.attend import attend_by
from attncli.programs.read import arrays_named, lines_of
from attncli.programs.variants import text_of, variants
from attncli.programs.written import written
from attncli.stages import GIVEN_GRADIENT
from attncli.trace import Trace

_ALIASES = {"given_mask": "mask", GIVEN_GRADIENT: D_OUTPUT}
"""What a printed program calls an input → its role in files."""
_FORMS = {"tex": "latex", "md": "markdown"}


def formulas(program: ProgramFlags, inputs: InputFlags, choices: ConventionFlags) -> None:
    """Prints the program that a call with these flags computes, or that of a variant."""
    if program.list:
        names = variants()
        width = max(map(len, names))
        lines = [
            f"{n.ljust(width)}  {x.partition(chr(10))[0].lstrip('# ')}" for n, x in names.items()
        ]
        write_text([f"{line}\n" for line in lines], program)
        return
    if program.name is not None and (others := [*given_of(inputs), *choices.given]):
        what = f"{flag_of(others[0])} has no effect on a variant"
        raise ConventionError(what, "leave it out, or print the program without a name")
    if program.name is not None:
        text = text_of(program.name)[0]
    else:
        text = _of_flags(inputs, choices, quiet=program.quiet)
    form = program.format or _FORMS.get(ending_of(program.output or "") or "", "text")
    if form == "markdown":
        text = f"```\n{text}```\n"
    elif form == "latex":
        from attncli.formats.tex import escape, math
        from attncli.formula.matrices import shown

        lines = [line for line in text.splitlines() if line.strip()]
        comments = [escape(line.lstrip("# ")) + "\n" for line in lines if line[0] == "#"]
        sides = [line.partition("#")[0].partition(" = ")[::2] for line in lines if line[0] != "#"]
        rows = [f"  {math(left)} &= {math(shown(right))}" for left, right in sides]
        body = " \\\\\n".join(rows)
        text = f"{''.join(comments)}\\begin{{align*}}\n{body}\n\\end{{align*}}\n"
    write_text([text], program)


def _of_flags(inputs: InputFlags, choices: ConventionFlags, *, quiet: bool) -> str:
    """The program of the conventions, for the inputs that are given or for any."""
    if given_of(inputs, "q", "k", "v", "x", "weights"):
        attention = read_inputs(inputs, choices).inputs
    else:
        n_kv_heads = inputs.kv_heads or inputs.heads or 2
        n_heads = inputs.heads or (n_kv_heads if inputs.kv_heads is None else 2 * n_kv_heads)
        shapes = {"q": (2, n_heads, 5, 3), "k": (2, n_kv_heads, 5, 3), "v": (2, n_kv_heads, 5, 7)}
        arrays: dict[str, Any] = {name: np.zeros(shape) for name, shape in shapes.items()}
        more = {"sinks": np.zeros(n_heads), D_OUTPUT: ONES, "mask": np.ones((5, 5), bool)}
        more["kv_len"] = [5, 5]
        arrays |= {name: more[name] for name in given_of(inputs, *more)}
        attention = inputs_of(arrays, choices.over(Convention()))
    if attention.convention.dtype != "float64":
        note(f"run it with {flag_text('dtype', attention.convention.dtype)}, too", quiet=quiet)
    text = written(attention.steps, attention.arrays)
    return f"# {attention.heading.title}\n{text}"


# ---- --formulas and --set


def own_trace(
    inputs: InputFlags,
    choices: ConventionFlags,
    *,
    quiet: bool = False,
    show: DisplayFlags | None = None,
) -> tuple[Trace, bool]:
    """The trace by the user's own formulas, and whether standard input was read for it.

    show  how it will be written, where it will: SizeError, before anything is computed, where that
          takes too much
    """
    ready = None if show is None else partial(check_written_out, show)
    lines, inputs.q = choices.lines or (), inputs.q or inputs.source
    if choices.formulas is None:
        names = arrays_named(x for line in lines for x in lines_of(line, "--set"))
        given = read_inputs(inputs, choices, names=names)
        trace = own_lines(given, lines, ready)
        remarks = (x for x in trace.notes if x.startswith("--set"))  # not on lines of ours
        note(*given.notes, *remarks, quiet=quiet)
        return replace(trace, notes=()), given.stdin_used
    program, origin = text_of(choices.formulas)
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
    wanted = {_ALIASES.get(name, name) for name in names} | {*CACHE.values(), D_OUTPUT}
    if not ("" in main.arrays or name_of(main, "q")):
        wanted.discard("q")
    arrays |= arrays_of([x for x in ROLES if x in wanted - arrays.keys()], files)
    complete(arrays, main, inputs, notes, names)
    for name, past in CACHE.items():
        if past not in names and past in arrays and name in arrays:
            arrays[name] = np.concatenate([arrays.pop(past), arrays[name]], axis=-2)
            notes.append(f"{past} is put before {name}")
    used = {"", *names, *(x for x in main.arrays if role_of(x) in wanted)}
    unused = {*main.arrays, *main.unread} - used
    notes += main.unused_note(sorted(unused))
    return arrays | {own: arrays[role] for own, role in _ALIASES.items() if role in arrays}


def own_lines(
    given: AttentionInputs,
    lines: Sequence[str],
    ready: Callable[[Mapping[str, tuple[int, ...]]], None] | None = None,
) -> Trace:
    """The trace of an attention with other formulas for some of its stages."""
    attention, convention = given.inputs.without(GIVEN_GRADIENT), given.inputs.convention
    drawn = attention.run(["kept"]) if convention.dropout else {}
    others = given.others.keys() - {step.name for step in attention.steps}
    arrays = {**{name: given.others[name] for name in others}, **drawn, **attention.arrays}
    gradient, heading = given.inputs.originals.get(GIVEN_GRADIENT), attention.heading
    left = " and ".join(re.split(r"[\[=:]", line)[0].strip() for line in lines)
    return attend_by(
        written(attention.steps, arrays),
        arrays,
        convention=Convention(dtype=convention.dtype, seed=convention.seed),
        labels=heading.labels,
        d_output=gradient,
        others=lines,
        title=f"{heading.title}, with {left} of your own",
        origin="the formulas",
        ready=ready,
    )
