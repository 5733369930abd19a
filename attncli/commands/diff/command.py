"""attncli diff: two traces, dumps or inputs beside each other: the first stage that differs.

SOURCE ── load ──┬── a saved trace            as it is
                 ├── named stages             a trace of them, nothing is computed
                 ├── q, k, v, or x and w_q …  every stage computed, as `compute` does
                 └── one array                beside another one, or a stage of the other
"""

from __future__ import annotations

from dataclasses import replace
from os.path import basename
from typing import NamedTuple

from attncli.arrays import Array
from attncli.attention.heads import heads_first
from attncli.budget import FLOAT, check_free
from attncli.cli.extensions import Program
from attncli.cli.groups import given_of
from attncli.cli.options import ConventionFlags, DisplayFlags, InputFlags
from attncli.cli.output import note
from attncli.cli.results import TraceResult
from attncli.commands.diff.comparison import Comparison, Names, nested
from attncli.commands.diff.diff import diff as compare
from attncli.commands.diff.flags import DiffFlags
from attncli.commands.diff.page import diff_page
from attncli.convention import Convention
from attncli.errors import ConventionError, InputError, ShapeError
from attncli.files.contents import IF_NUMBERS, FileContents
from attncli.files.input_sources import Sources, holds_x
from attncli.files.inputs import read
from attncli.files.load import read_source
from attncli.files.lookup import fields_of, layout_of, name_of
from attncli.files.messages import LITERAL, ask_for, listing
from attncli.files.roles import is_field, role_of
from attncli.formats import FIGURE, PAGE
from attncli.page.select import check_written
from attncli.stages import OUTPUT, QKV, SPECS, StageSpec, spec_of, stages_called
from attncli.tolerance.rule import rule_of
from attncli.trace import Stage, Trace
from attncli.transformer.names import is_published

ARRAY = "array"
"""What one array is called that has no name in either file."""
_GENERIC = ("batch", "head", "row", "column")
_COPIES = 5  # of the largest stage: both in float64, their difference, its size, which differ


def diff(compared: DiffFlags, show: DisplayFlags, program: Program | None = None) -> TraceResult:
    """The comparison of the two; 0 where they are the same, else 1."""
    check_diff_flags(show)
    rule_of(compared.decimals, compared.rtol, compared.atol, "float64", compared.inside)
    if compared.a is None or compared.b is None:
        raise ConventionError("two things are compared", "write attncli diff A B")
    sources = compared.a, compared.b
    if all(source.split("::")[0] == "-" for source in sources):
        problem = "standard input can be read only once"
        raise ConventionError(problem, "save one of the two to a file")
    operands = [_operand(source, show, program) for source in sources]
    if program is not None and not any(x.is_computed for x in operands):
        problem = "formulas have no effect: neither of the two is computed"
        raise ConventionError(problem, "give a file of inputs: q, k and v")
    a, b = _traces(operands)
    for operand, trace in zip(operands, (a, b), strict=True):
        if show.form.name == "python" and not any(x.expression for _, x in trace.stages()):
            problem = f"{operand.origin} holds numbers without formulas, which no script computes"
            raise ConventionError(problem, "use another --format")
    tolerance = given_of(compared, "decimals", "rtol", "atol", "inside", "by_name")
    check_room(a, b, show)
    comparison = compare(a, b, names=_names(operands, sources), **tolerance)
    stdin_used = "-" in [x.split("::")[0] for x in sources]
    return result_of(comparison, show, stdin_used=stdin_used)


def check_diff_flags(show: DisplayFlags) -> None:
    """ConventionError for flags that mean nothing beside a comparison."""
    if show.form.name == "mermaid":
        raise ConventionError("mermaid draws the steps of one computation", "use another --format")
    for name in given_of(show, "work", "cell", "query", "blank", "arcs"):
        raise ConventionError(f"--{name} is of one computation", f"leave out --{name}")


def result_of(
    comparison: Comparison, show: DisplayFlags, *, stdin_used: bool = False
) -> TraceResult:
    """A comparison in the form that is asked for; 0 where both are the same, else 1."""
    page = show.form.holds == PAGE
    if show.form.name in ("json", "csv", "tsv") and not show.stage:
        check_written(3 * sum(x.wrong.size for x in comparison.stages))
    trace = comparison.trace(() if page else None)
    if show.form.holds == FIGURE and not show.stage:
        show = replace(show, stage=_pictured(comparison, trace))
    return TraceResult(
        trace=trace,
        show=show,
        page=diff_page(comparison),
        stdin_used=stdin_used,
        remarks=() if show.form.notes else trace.notes,
        code=0 if comparison.same else 1,
    )


def _pictured(comparison: Comparison, trace: Trace) -> list[str]:
    """The names of what a figure shows: the first stage that differs, in both, and by how much."""
    drawn = [x for x in (*comparison.differing, *comparison.stages) if not x.shapes]
    stage = next((x for x in drawn if not x.is_given), drawn[0] if drawn else None)
    if stage is None:
        raise ShapeError("no stage has the same shape in both", "a figure shows their difference")
    prefix, dot, _ = stage.name.rpartition(".")
    both = f"a.{prefix}{dot}{stage.a.name}", f"b.{prefix}{dot}{stage.b.name}"
    return [name for name in (*both, f"difference.{stage.name}") if name in trace]


class _Operand(NamedTuple):
    """One of the two: a trace, or one array; its file, and the name that the array has there."""

    origin: str
    trace: Trace | None = None
    array: Array | None = None
    name: str = ""
    is_computed: bool = False


def _operand(source: str, show: DisplayFlags, program: Program | None) -> _Operand:
    """What a SOURCE holds, computed where it holds inputs alone."""
    loaded = read_source(source, selector=_is_wanted)
    if loaded.trace is not None:
        return _Operand(loaded.origin, loaded.trace)
    member = loaded.member or ""
    if list(loaded.arrays) == [member]:
        return _Operand(loaded.origin, None, loaded.arrays[member], member)
    is_dump = any(map(_is_computed, loaded.arrays))
    # A program may read arrays under any name, those of our stages too.
    if program is not None and program.is_whole and OUTPUT not in loaded.arrays:
        is_dump = is_dump and name_of(loaded, "q") is None
    if is_dump or not (name_of(loaded, "q") is not None or holds_x(loaded)):
        others = [x for x in (*loaded.unread, *loaded.others) if not is_field(x)]
        note(*loaded.unused_note(others), quiet=show.quiet)
        return _Operand(loaded.origin, _dumped(loaded))
    if program is not None:
        trace, _ = program.trace(InputFlags(q=source), ConventionFlags(), quiet=show.quiet)
        return _Operand(loaded.origin, trace, is_computed=True)
    from attncli.cli.traces import every_stage

    inputs = read(Sources(roles={"q": source}), loaded={source: loaded}).inputs
    note(*loaded.warnings, *inputs.notes, quiet=show.quiet)
    return _Operand(loaded.origin, every_stage(inputs, quiet=show.quiet))


def _is_wanted(name: str) -> object:
    """Every array; what has a name that is known must be one."""
    if not name:
        return False
    is_known = role_of(name) or is_field(name) or name.rpartition(".")[2] in SPECS
    return True if is_known else IF_NUMBERS


def _is_computed(name: str) -> bool:
    """Whether an array of this name came out of a computation."""
    last = _own_name(name)
    if last in SPECS:
        return SPECS[last].role == "step"
    return not is_published(name)


def _own_name(name: str) -> str:
    """The last part of a dotted name, as the registry of stages has it."""
    last = name.rpartition(".")[2]
    stages = stages_called(last)
    if len(stages) == 1 and role_of(last) is None:
        return stages[0]
    return role_of(last) or (last.lower() if last.lower() in SPECS else last)


def _dumped(loaded: FileContents) -> Trace:
    """The arrays of a file as a trace, those of each block in the order of computation."""
    fields, layout = fields_of(loaded), layout_of(loaded)
    labels = {"query": loaded.query_labels, "key": loaded.key_labels}
    stages: dict[str, Stage] = {}
    for name, array in loaded.arrays.items():
        prefix, dot, _ = name.rpartition(".")
        last = _own_name(name)
        if f"{prefix}{dot}{last}" in {*loaded.arrays, *stages}:  # Q beside q: each keeps its name
            last = name.rpartition(".")[2]
        if layout is not None and last in (*QKV, OUTPUT) and array.ndim == len(layout):
            try:
                array = heads_first(array, layout)  # noqa: PLW2901
            except ShapeError as error:
                raise ShapeError(f"{loaded.origin}, {name}: {error.message}", error.hint) from None
        stages[f"{prefix}{dot}{last}"] = stage_of(last, array, labels)
    blocks = list(dict.fromkeys(name.rpartition(".")[0] for name in stages))
    order = {name: at for at, name in enumerate(SPECS)}

    def place(name: str) -> tuple[int, int]:
        prefix, _, last = name.rpartition(".")
        return blocks.index(prefix), order.get(last, len(order))

    convention = Convention(**fields) if fields else None
    return nested("Dump", {name: stages[name] for name in sorted(stages, key=place)}, convention)


def stage_of(
    name: str, array: Array, labels: dict[str, tuple[str, ...] | None] | None = None
) -> Stage:
    """An array under its name, with the axes that a stage of this name has."""
    kind = spec_of(name) if name in SPECS else StageSpec("")
    axes = kind.axes_of(array.ndim)
    if len(axes) != array.ndim:
        axes = _GENERIC[-array.ndim :] if 0 < array.ndim <= len(_GENERIC) else ()
    axes = axes or tuple(f"axis {n + 1}" for n in range(array.ndim))
    sizes = dict(zip(axes, array.shape, strict=True))
    fit = {a: x for a, x in (labels or {}).items() if x and len(x) == sizes.get(a)}
    return Stage(name, kind.symbol, "", array, axes, fit)


def _traces(operands: list[_Operand]) -> tuple[Trace, Trace]:
    """Both as traces: of two arrays one stage each, of one array the stage that it is beside."""
    first, second = operands
    if first.trace is not None and second.trace is not None:
        return first.trace, second.trace
    if first.trace is None and second.trace is None:
        own_names = {first.name, second.name} - {""}
        name = own_names.pop() if len(own_names) == 1 else ARRAY
        arrays = [x.array for x in operands if x.array is not None]
        a, b = (nested("Array", {name: stage_of(_own_name(name), x)}) for x in arrays)
        return a, b
    alone, other = (first, second) if first.trace is None else (second, first)
    assert alone.array is not None  # noqa: S101 - just seen
    assert other.trace is not None  # noqa: S101
    stages = [*other.trace]
    names = [name for name in stages if name.rpartition(".")[2] == alone.name]
    if alone.name in other.trace:
        names = [alone.name]
    if not alone.name and len(stages) == 1:
        names = stages
    if len(names) != 1:
        problem = f"{alone.origin} is one array" + f", {alone.name}" * bool(alone.name)
        several = f"{other.origin} holds several stages: {listing(stages)}"
        raise InputError(f"{problem}; {several}", f"name one: {ask_for(other.origin, stages[-1])}")
    single = nested("Array", {names[0]: stage_of(_own_name(names[0]), alone.array)})
    counterpart = other.trace.keep({names[0]})
    return (single, counterpart) if alone is first else (counterpart, single)


def _names(operands: list[_Operand], sources: tuple[str, str]) -> Names:
    """What the two are called: their files, or, where these are the same, first and second."""
    ordinal = "the first", "the second"
    first, second = (
        nth if x.origin == LITERAL else basename(x.origin) + f"::{x.name}" * bool(x.name)
        for x, nth in zip(operands, ordinal, strict=True)
    )
    if first != second:
        return first, second
    return sources if sources[0] != sources[1] else ordinal


def check_room(a: Trace, b: Trace, show: DisplayFlags) -> None:
    """SizeError where two traces cannot be compared, and the result written, in the memory left."""
    sizes = [[x.value.size for _, x in trace.stages()] for trace in (a, b)]
    need = _COPIES * max(map(max, sizes)) * FLOAT + sum(sizes[0])  # a byte each: which differ
    if show.form.holds != PAGE:  # the differences of all stages
        need += sum(sizes[0]) * FLOAT
    check_free(need, "the comparison needs", "name one stage of each: FILE::NAME")
