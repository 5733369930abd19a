"""attncli formulas: the program of a call's conventions, and the variants that ship.

Also what --formulas and --set mean on compute, explain, check and diff: a trace of the user's own
formulas instead of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.inputs import CACHE, Inputs, inputs_of
from attncli.attention.kernels import draw_kept
from attncli.cli.commands import Observed, Program
from attncli.cli.groups import given_of
from attncli.cli.inputs import read_inputs
from attncli.cli.layouts import arrange
from attncli.cli.options import Choices, InputFlags, ending_of
from attncli.cli.output import note, write_report, write_text
from attncli.cli.parsing import tokens_of
from attncli.compare import diff as compare
from attncli.convention import Convention, flag_of, flag_text
from attncli.errors import ConventionError, InputError, nearest
from attncli.files.load import IF_NUMBERS, load
from attncli.files.roles import (
    D_OUTPUT,
    ONES,
    RANDOM,
    ROLES,
    gradient_named,
    name_of,
    only,
    role_of,
)
from attncli.programs.attend import attend_by
from attncli.programs.read import needs, replaced
from attncli.programs.variants import text_of, variants
from attncli.programs.written import written
from attncli.stages import CALLED, GIVEN_GRADIENT, QKV
from attncli.trace import Stage, Trace

_ALIASES = {"given_mask": "mask", GIVEN_GRADIENT: D_OUTPUT}
"""What a printed program calls an input → its role in files."""
_FORMS = {"tex": "latex", "md": "markdown"}


def formulas(program: Program, inputs: InputFlags, choices: Choices) -> None:
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
        from attncli.attention.matrices import shown
        from attncli.views.formats.tex import escape, math

        lines = [line for line in text.splitlines() if line.strip()]
        comments = [escape(line.lstrip("# ")) + "\n" for line in lines if line[0] == "#"]
        sides = [line.partition("#")[0].partition(" = ")[::2] for line in lines if line[0] != "#"]
        rows = [f"  {math(left)} &= {math(shown(right))}" for left, right in sides]
        body = " \\\\\n".join(rows)
        text = f"{''.join(comments)}\\begin{{align*}}\n{body}\n\\end{{align*}}\n"
    write_text([text], program)


def _of_flags(inputs: InputFlags, choices: Choices, *, quiet: bool) -> str:
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
    changed = attention.how.changes()
    beside = [flag_text(n, changed[n]) for n in ("dtype",) if n in changed]
    note(*(f"run it with {text}, too" for text in beside), quiet=quiet)
    text = written(attention.steps, attention.arrays, attention.sizes.scores)
    return f"# {attention.heading.title}\n{text}"


# ---- --formulas and --set


def check_own(inputs: InputFlags, choices: Choices, observed: Observed, source: str) -> int:
    """Compares what was observed with the stages of the formulas; 0 where all match, else 1."""
    given = {n: getattr(observed, n) for n in ("rows", "head", "positions", "suggest", "single")}
    for name in (name for name, value in given.items() if value):
        hint = "leave it out: no bug is looked for in formulas of your own"
        raise ConventionError(f"{flag_of(name)} has no effect with --formulas", hint)
    trace, _ = own_trace(inputs, choices, quiet=observed.quiet)
    forward = [name for name, x in trace.stages() if x.expression and not x.kind.heading]
    file = load(source, wanted=lambda name: True if _stage_of(name, trace) else IF_NUMBERS)
    stages = {own: x for name, x in file.arrays.items() if (own := _stage_of(name, trace))}
    stages = {name: x for name, x in stages.items() if trace[name].expression}
    if observed.stage is not None or (not stages and len(file.arrays) == 1):
        name = observed.stage or forward[-1]
        array = stages.get(name, next(iter(file.arrays.values())))
        if name not in trace or (name not in stages and len(file.arrays) > 1):
            raise InputError(f"{file.origin} holds no {name}", nearest(name, forward))
        stages = {name: array}
    if not stages:
        hint = f"the stages are {', '.join(forward)}"
        raise InputError(f"{file.origin} holds none of the stages of the formulas", hint)
    numbers = tuple(
        Stage(name, trace[name].symbol, "", x, _axes(trace[name], x.ndim))
        for name, x in stages.items()
    )
    tolerance = given_of(observed, "decimals", "rtol", "atol", "inside")
    comparison = compare(trace.keep({*stages}), Trace("", numbers), **tolerance)
    lines, data = [], list[dict[str, Any]]()
    for x in comparison.stages:
        one: dict[str, Any] = {"stage": x.name, "matches": x.same, "tolerance": x.rule}
        text = f"{x.name}: matches, within {x.rule}"
        if x.shapes:
            text = f"{x.name}: differs in shape: {x.shapes}"
        elif not x.same:
            expected, found = x.values()
            one |= {"differ": x.n_wrong, "of": x.wrong.size, "largest": x.largest, "at": x.place}
            text = f"{x.name}: differs in {x.n_wrong} of {x.wrong.size} numbers, the most at "
            text += f"{x.place}: {expected:.6g} by the formulas, {found:.6g} observed"
        lines.append(text)
        data.append(one)
    first = next((x.name for x in comparison.stages if not x.same), None)
    head = "It matches: the numbers are those of these formulas."
    if first is not None:
        head = f"It differs. The first stage that does is {first}."
    report = {"matches": first is None, "first": first, "stages": data}
    as_json = observed.format == "json" or (observed.output or "").endswith(".json")
    write_report("\n".join([head, *lines]), report, observed, as_json=as_json)
    return 0 if first is None else 1


def _axes(stage: Stage, n: int) -> tuple[str, ...]:
    own = stage.axes[-n:] if n <= len(stage.axes) else ()
    return own or tuple(f"axis {at + 1}" for at in range(n))


def _stage_of(name: str, trace: Trace) -> str:
    """The stage that an array of this name is, or ""."""
    names = (name, gradient_named(name), CALLED.get(name.lower(), ""))
    return next((x for x in names if x in trace), "")


def own_trace(inputs: InputFlags, choices: Choices, *, quiet: bool = False) -> tuple[Trace, bool]:
    """The trace by the user's own formulas, and whether standard input was read for it."""
    lines = choices.lines or ()
    if choices.formulas is None:
        given = read_inputs(inputs, choices)
        note(*given.notes, quiet=quiet)
        return own_lines(given.inputs, lines, _others(inputs, lines)), given.stdin_used
    text, origin = text_of(choices.formulas)
    text = replaced(text, lines)
    own = _read(inputs, text)
    note(*own.notes, quiet=quiet)
    trace = attend_by(
        text,
        own.arrays,
        how=choices.over(Convention(), "seed"),
        labels=own.labels,
        d_output=own.d_output,
        origin=origin,
    )
    note(*trace.notes, quiet=quiet)
    return replace(trace, notes=()), own.stdin_used


def own_lines(attention: Inputs, lines: Sequence[str], others: Mapping[str, Array]) -> Trace:
    """The trace of an attention with other formulas for some of its stages."""
    forward, how = attention.without(GIVEN_GRADIENT), attention.how
    arrays = {**others, **forward.arrays}
    if how.dropout:
        arrays["kept"] = draw_kept(attention.sizes.scores, how.dropout, how.seed)
    text = replaced(written(forward.steps, arrays, attention.sizes.scores), lines)
    gradient = attention.originals.get(GIVEN_GRADIENT)
    heading = attention.heading
    title = f"{heading.title}, with {' and '.join(map(_left, lines))} of your own"
    how = Convention(dtype=how.dtype, seed=how.seed)
    return attend_by(text, arrays, how=how, labels=heading.labels, d_output=gradient, title=title)


def _left(line: str) -> str:
    return line.partition("[")[0].partition("=")[0].partition(":")[0].strip()


class _Given(NamedTuple):
    """What a program is given: arrays by the names that it has for them."""

    arrays: dict[str, Array]
    labels: dict[str, tuple[str, ...] | None]
    d_output: Any
    notes: list[str]
    stdin_used: bool


def _read(inputs: InputFlags, text: str) -> _Given:
    """The arrays that a text of formulas may read: from their own flags, else by name."""
    names = needs(text)
    wanted = {_ALIASES.get(name, name) for name in names} | {*QKV, *CACHE.values(), D_OUTPUT}
    flags = {role: getattr(inputs, role) for role in ROLES if getattr(inputs, role) is not None}
    drawn = flags.pop(D_OUTPUT) if flags.get(D_OUTPUT) in (ONES, RANDOM) else None
    main = flags.pop("q", None) or flags.get("x") or inputs.weights
    if main is None:
        raise ConventionError("there is nothing to compute from", "name a file: --q SOURCE")
    file = load(main, wanted=lambda name: not name or name in names or role_of(name) in wanted)
    arrays = {name: file.arrays[name] for name in names if name in file.arrays}
    for role in (role for role in wanted if role in ROLES and role not in arrays):
        own = "" if role == "q" and "" in file.arrays else name_of(file, role)
        arrays |= {} if own is None else {role: file.arrays[own]}
    arrays |= {role: only(load(source, role=role), role) for role, source in flags.items()}
    notes = [*file.warnings]
    for role, instead in (("k", "q"), ("v", "k")):
        if role in names and role not in arrays and instead in arrays:
            arrays[role] = arrays[instead]
            notes.append(f"{file.origin} has no {role}, so {role.upper()} = {instead.upper()}")
    if (inputs.heads or inputs.kv_heads or inputs.layout) and "q" in arrays:
        arrange(arrays, inputs)
    for name, past in CACHE.items():
        if past not in names and past in arrays and name in arrays:
            arrays[name] = np.concatenate([arrays.pop(past), arrays[name]], axis=-2)
            notes.append(f"{past} is put before {name}")
    arrays |= {own: arrays[role] for own, role in _ALIASES.items() if role in arrays}
    unused = {*file.arrays, *file.unread} - names - {x for x in file.arrays if role_of(x) in wanted}
    notes += file.unused_note(sorted(unused))
    queries = tokens_of(inputs.tokens) if inputs.tokens else file.query_labels or file.row_labels
    keys = file.key_labels or queries
    d_output = drawn if drawn is not None else arrays.pop(D_OUTPUT, None)
    stdin = "-" in [source.split("::")[0] for source in (main, *flags.values())]
    return _Given(arrays, {"query": queries, "key": keys}, d_output, notes, stdin)


def _others(inputs: InputFlags, lines: Sequence[str]) -> dict[str, Array]:
    """The arrays that own lines read from the input by name, beside those of an attention."""
    names, main = needs("\n".join(lines)), inputs.q or inputs.x or inputs.weights
    if main is None or main.split("::")[0] == "-" or main.startswith("["):
        return {}
    arrays = load(main, wanted=lambda name: name in names or bool(role_of(name))).arrays
    return {name: x for name, x in arrays.items() if name in names}
