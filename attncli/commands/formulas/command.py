"""attncli formulas: the program of a call's conventions, and the variants that ship."""

from __future__ import annotations

from typing import Any

import numpy as np

from attncli.attention.inputs import inputs_of
from attncli.cli.groups import given_of
from attncli.cli.options import ConventionFlags, InputFlags, ending_of
from attncli.cli.output import note
from attncli.cli.results import TextResult
from attncli.commands.formulas.flags import ProgramFlags
from attncli.convention import Convention, flag_of, flag_text
from attncli.errors import ConventionError
from attncli.files.inputs import read
from attncli.files.roles import D_OUTPUT, ONES
from attncli.programs.variants import text_of, variants
from attncli.programs.written import written

_FORMS = {"tex": "latex", "md": "markdown"}


def formulas(program: ProgramFlags, inputs: InputFlags, choices: ConventionFlags) -> TextResult:
    """The program that a call with these flags computes, or that of a variant."""
    if program.list:
        names = variants()
        width = max(map(len, names))
        lines = [
            f"{n.ljust(width)}  {x.partition(chr(10))[0].lstrip('# ')}" for n, x in names.items()
        ]
        return TextResult(pieces=[f"{line}\n" for line in lines], show=program)
    if program.name is not None and (others := [*given_of(inputs), *choices.fields]):
        problem = f"{flag_of(others[0])} has no effect on a variant"
        raise ConventionError(problem, "leave it out, or print the program without a name")
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
        rows = [f"  {math(name)} &= {math(shown(formula))}" for name, formula in sides]
        body = " \\\\\n".join(rows)
        text = f"{''.join(comments)}\\begin{{align*}}\n{body}\n\\end{{align*}}\n"
    return TextResult(pieces=[text], show=program)


def _of_flags(inputs: InputFlags, choices: ConventionFlags, *, quiet: bool) -> str:
    """The program of the conventions, for the inputs that are given or for any."""
    if given_of(inputs, "q", "k", "v", "x", "weights"):
        attention = read(inputs.sources(choices)).inputs
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
