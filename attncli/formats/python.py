"""A computation as a script of plain NumPy: a few lines a stage, which give the same numbers.

    # scores (3 query × 3 key): S = Q Kᵀ
    scores = q @ k.T

Variables have the names of stages. A formula is written as NumPy by formula/numpy_code.py; what has
none is given: as a literal, or where it is large in a file beside the script. Titles, labels and
formulas, which may be anybody's, stand in comments alone, escaped so that they stay on their line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.masks import mask_formula, total_mask
from attncli.budget import FLOAT, check_bytes, held
from attncli.errors import AttncliError, ConventionError, InputError, StageError
from attncli.formats.variables import RESERVED, variables_of
from attncli.formula.code_text import WIDE, number_text
from attncli.formula.compute import compiled, compute
from attncli.formula.evaluate import AbsentError, Values
from attncli.formula.expression import cells
from attncli.formula.kernels import draw_kept
from attncli.formula.numpy_code import statements
from attncli.formula.parser import parse
from attncli.page.arithmetic import bound_formula
from attncli.page.headline import headline
from attncli.page.options import DisplayOptions
from attncli.page.page import Page, parts
from attncli.page.select import Block, blocks_of, check_written, has_blanks, named_stages
from attncli.page.sources import array_aside, dotted
from attncli.page.text import clean, shorten
from attncli.trace import Stage, Trace

SMALL = 256  # numbers of an array that stands in the script: 16 rows of 16
_CALL = 200  # characters of a call in a comment
_FIRST = "# Plain NumPy, written by attncli: a few lines for each stage, in their order."


class Given(NamedTuple):
    """An array that nothing here computes.

    stage   its dotted name; "" of what no stage holds, such as what dropout kept
    rows    the names of its rows, if any
    is_mask  whether it says which keys a query may attend to
    """

    variable: str
    stage: str
    value: Array
    rows: Sequence[str] = ()
    is_mask: bool = False


class Script(NamedTuple):
    """A script in the order of its lines: text, and what is given.

    head, call   what it is of, and the call that gave it, if that is short, in comments
    is_infinite  whether its numbers overflow, or are NaN
    """

    head: str
    call: str
    is_infinite: bool
    pieces: tuple[str | Given, ...]

    @property
    def large(self) -> dict[str, Array]:
        """The arrays that are too large for a literal, by their variables."""
        every = (x for x in self.pieces if isinstance(x, Given))
        return {x.variable: x.value for x in every if x.value.size > SMALL}

    @property
    def imports(self) -> str:
        """What comes before the first stage."""
        printed = "np.set_printoptions(precision=4, suppress=True)  # in print alone\n"
        quiet = 'np.seterr(all="ignore")  # infinity and NaN are numbers, without a warning\n'
        return f"import numpy as np\n\n{printed}{quiet * self.is_infinite}"

    def text(self, file: str = "") -> Iterator[str]:
        """The script; file: the name of the npz beside it from which it reads large arrays."""
        large = self.large if file else {}
        yield f"{self.head}{self.call}"
        yield "from pathlib import Path\n\n" if large else ""
        yield self.imports
        yield f"arrays = np.load(Path(__file__).with_name({file!a}))\n" if large else ""
        for piece in self.pieces:
            if isinstance(piece, str):
                yield piece
            elif piece.variable in large:
                yield f'{piece.variable} = arrays["{piece.variable}"]\n'
            else:
                yield f"{piece.variable} = {literal(piece)}\n"


def text(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The script with all that is given in it. Raises ConventionError or SizeError if large."""
    script = script_of(trace, options)
    large = script.large
    check_written(sum(x.size for x in large.values()) if options.full else 0)
    if large and not options.full:
        name, array = max(large.items(), key=lambda item: item[1].size)
        hint = "add -o FILE.py, which writes them to a file beside it, or --full, into the script"
        raise ConventionError(f"{name} has {array.size} numbers, too many for a script", hint)
    yield from script.text()


def with_arrays(
    trace: Trace, options: DisplayOptions, file: str
) -> tuple[Iterator[str], Mapping[str, Array]]:
    """The script, and the large arrays that it reads from an npz of this name beside it."""
    script = script_of(trace, options)
    large = {} if options.full else script.large
    return script.text(file if large else ""), large


def code_of(trace: Trace, ids: Collection[str]) -> dict[str, Any]:
    """The script as a page copies it, which has the numbers of stages of these names itself.

    Empty where there is no script, or where it would have a file beside it. The pieces are text, or
    the variable, the stage and the shape of what is given.
    """
    try:
        script = script_of(trace, DisplayOptions())
    except AttncliError:
        return {}
    if script.large:
        return {}
    pieces = list[Any]([script.imports])
    for piece in script.pieces:
        if isinstance(piece, Given) and piece.stage in ids and not piece.is_mask:
            pieces.append({"as": piece.variable, "id": piece.stage, "shape": piece.value.shape})
            continue
        line = piece if isinstance(piece, str) else f"{piece.variable} = {literal(piece)}\n"
        if isinstance(pieces[-1], str):
            pieces[-1] += line
        else:
            pieces.append(line)
    return {"head": script.head, "call": script.call, "pieces": pieces}


# ---- what is written, and in which order


class _Entry(NamedTuple):
    """A stage with its formula, and all that this reads.

    values  None of a stage that has no formula, which is given
    reads   names in the formula → dotted names of stages
    asides  names in the formula → arrays that no stage holds
    """

    block: Block
    stage: Stage
    values: Values | None
    reads: Mapping[str, str]
    asides: Mapping[str, Array]


def script_of(trace: Trace, options: DisplayOptions) -> Script:
    """The script of a trace, or of those of its stages that are named and what they follow from.

    Raises StageError for a stage that is no formula of others, ConventionError for numbers that are
    rounded on the way, and for a part of a stage.
    """
    if options.index or {*options.rows, *options.cols} != {None}:
        hint = "leave out --head, --batch, --rows and --cols"
        raise ConventionError("a script computes whole stages", hint)
    blocks = {block.prefix: block for block in blocks_of(trace)}
    entries = {
        name: _entry(blocks[name[: len(name) - len(stage.name)]], stage.name)
        for name, stage in trace.stages()
    }
    named = [x for query in options.stages for x in named_stages(trace, query)]
    read = {x for entry in entries.values() for x in entry.reads.values()}
    last = named or [x for x, entry in entries.items() if entry.values and x not in read]
    order = _needed(entries, last)
    _check(entries, order, has_blanks(trace))
    writer = _Writer(trace, entries, order)
    pieces = tuple(writer.pieces(last))
    return Script(writer.head(), writer.call(), writer.is_infinite, pieces)


def _entry(block: Block, name: str) -> _Entry:
    """A stage of a block with its formula and what it reads."""
    stage = block.stages[name]
    if not stage.expression:
        return _Entry(block, stage, _mask_values(block, stage), {}, {})
    bound = bound_formula(block, stage)
    if bound is None:
        return _Entry(block, stage, None, {}, {})
    values, stages = bound
    reads, asides = dict[str, str](), dict[str, Array]()
    for read in dict.fromkeys(cell.name for cell in cells(values.formula.body, guards=True)):
        place = dotted(block, stage, read, stages[read]) if read in stages else None
        if place is not None:
            reads[read] = place
        elif (array := array_aside(block, stage, read, values)) is not None:
            asides[read] = array
        else:
            return _Entry(block, stage, None, {}, {})
    return _Entry(block, stage, values, reads, asides)


def _mask_values(block: Block, stage: Stage) -> Values | None:
    """The formula of a mask that follows from the convention alone; None of another one."""
    if "n_q" not in stage.params:
        return None
    restrictions: Any = {**stage.params, "window_size": block.convention.reach}
    try:
        mask = total_mask(**restrictions)
        fits = np.array_equal(np.broadcast_to(mask, stage.value.shape), stage.value)
        formula = parse(mask_formula(**restrictions))
    except (TypeError, ValueError, InputError):  # a file may say anything
        return None
    sizes = {"i": mask.shape[-2], "j": mask.shape[-1]}
    return Values(formula, {}, {}, sizes) if fits else None


def _needed(entries: Mapping[str, _Entry], names: Iterable[str]) -> list[str]:
    """These stages and all that they follow from, in the order of the trace."""
    needed, todo = set[str](), [*names]
    while todo:
        name = todo.pop()
        if name not in needed:
            needed.add(name)
            todo += entries[name].reads.values()
    return [name for name in entries if name in needed]


def _check(entries: Mapping[str, _Entry], order: Sequence[str], is_blank: bool) -> None:
    """Raises as `script_of` does, for what no script can give."""
    if is_blank:
        raise StageError("numbers are left out, which a script computes", "leave out --blank")
    for name in order:
        _, stage, values, _, _ = entries[name]
        if stage.expression and values is None:
            message = f"{name} follows from stages that are not computed here"
            raise StageError(message, "ask for all stages, of an input that fits into memory")
        if stage.value.dtype.kind == "f" and stage.value.dtype != np.float64:
            message = f"{name} is {stage.value.dtype}, and a script computes in float64"
            raise ConventionError(message, "compute it in float64, without --dtype")
    if not any(entries[name].values for name in order):
        raise StageError("no stage here is computed by a formula", "use --format csv or json")


# ---- the text


class _Writer:
    """Writes the stages of a trace.

    arrays   by dotted name, as the variables hold them: a mask has no axis along which it is alike
    defined  variables of places and of what no stage holds → what they are
    again    the same as they are computed one from the other, by the formulas alone
    is_infinite  whether NumPy warns of overflow, 0 / 0 or ∞ − ∞
    """

    def __init__(self, trace: Trace, entries: Mapping[str, _Entry], order: Sequence[str]) -> None:
        self.trace, self.entries, self.order = trace, entries, order
        self.variables = variables_of(order)
        self.arrays = {name: _array(entries[name]) for name in order}
        self.defined = dict[str, Any]()
        self.used = {*self.variables.values(), *RESERVED}
        self.again = dict(self.arrays)
        self.is_infinite = False

    def pieces(self, last: Sequence[str]) -> Iterator[str | Given]:
        """The pieces of the script, which prints the last stages."""
        before = None
        for name in self.order:
            block = self.entries[name].block
            if block.prefix != before and before is not None:
                yield f"\n# ---- {comment(block.prefix.rstrip('.') or block.trace.title)}\n"
            before = block.prefix
            yield from self.stage(name)
        yield "\n"
        for name in last:
            variable = self.variables[name]
            yield f'print("{variable}", {variable}, sep="\\n")\n'

    def head(self) -> str:
        """What the script is of."""
        title = headline(next(blocks_of(self.trace)), DisplayOptions())
        lines = "".join(f"# {comment(line)}\n" for line in [title.title, *title.lines])
        return f"{_FIRST}\n#\n{lines}"

    def call(self) -> str:
        """The call that gave the trace, "" of a long one and of one that takes arrays."""
        call = self.trace.call
        if call is None or (call.is_python and not call.is_complete) or len(str(call)) > _CALL:
            return ""
        return f"# {comment(str(call))}\n"

    def stage(self, name: str) -> Iterator[str | Given]:
        """A stage below a line that says what it is."""
        block, stage, values, reads, asides = self.entries[name]
        variable, value = self.variables[name], self.arrays[name]
        axes = [x for x in stage.axes if x]
        axes = axes[len(axes) - value.ndim :]
        sizes = " × ".join(f"{n} {axis}" for n, axis in zip(value.shape, axes, strict=True))
        formula = f": {stage.formula}" if stage.formula else ""
        yield f"\n# {comment(f'{name} ({sizes}){formula}')}\n"
        if values is None:
            is_matrix = value.ndim == 2 and axes[-2] in stage.labels
            rows = stage.labels[axes[-2]] if is_matrix else ()
            yield Given(variable, name, value, rows, stage.kind.role == "input")
            return
        arrays = {x: self.arrays[read] for x, read in reads.items()}
        names = {x: self.variables[read] for x, read in reads.items()}
        for x, array in asides.items():
            names[x] = self.aside(x, variable, array)
            arrays[x] = array
            if names[x] not in self.used:
                self.defined[names[x]] = array
                self.used.add(names[x])
                drawn = _drawn(block, stage, array) if x == "kept" else ""
                yield f"{names[x]} = {drawn}\n" if drawn else Given(names[x], "", array)
        values = values._replace(arrays=arrays)
        try:
            self.check(
                name, values, {**asides, **{x: self.again[read] for x, read in reads.items()}}
            )
            lines = statements(variable, values, names, self.used, value.ndim)
        except TypeError as problem:
            raise StageError(f"{name} cannot be written as NumPy: {problem}") from None
        except (ValueError, LookupError, ArithmeticError, InputError, AbsentError):  # of a file
            message = f"{name} cannot be written as NumPy: its formula does not fit what it reads"
            raise StageError(message) from None
        for line in lines:
            target, _, code = line.partition(" = ")
            if not code.startswith("np.arange(") or self.defined.get(target) != code:
                yield f"{line}\n"
            if code.startswith("np.arange("):
                self.defined[target] = code

    def aside(self, name: str, variable: str, array: Array) -> str:
        """The variable of an array that no stage holds; of a second one with its stage's name."""
        others = (f"{name}_{variable}" + "_" * n for n in count())
        free = (x for x in chain([name], others) if x not in self.used or x in self.defined)
        return next(x for x in free if np.array_equal(self.defined.get(x, array), array))

    def check(self, name: str, values: Values, arrays: Mapping[str, Array]) -> None:
        """TypeError where the formulas do not give the numbers of a stage; SizeError for too large.

        arrays  what it reads, as the formulas before it gave it
        """
        value = self.arrays[name]
        if not values.fits:  # of rows of a cache and new ones neither array has all
            return
        shapes = tuple([(x, array.shape) for x, array in values.arrays.items()])
        cost, _ = compiled(values.formula, shapes, tuple(values.sizes.items())).cost()
        before = held()  # nothing where attncli is a library in a process of somebody's
        need, subject = before + cost * FLOAT, f"a script of {name} needs"
        check_bytes(need, subject, "give fewer queries or heads", resident=before)
        heard: Any = {"call": lambda *_: setattr(self, "is_infinite", True)}
        with np.errstate(divide="call", over="call", invalid="call", **heard):
            result = compute(values.formula, {**values.params, **arrays}, values.sizes)
        self.again[name] = result.reshape(value.shape) if result.size == value.size else value
        if not np.allclose(result, value, 1e-9, 1e-9, equal_nan=True):
            raise TypeError("its formula does not say all that its numbers follow from")
        self.is_infinite |= bool((np.isnan(value) | (value == np.inf)).any())


def _array(entry: _Entry) -> Array:
    """The numbers of a stage: of a mask without the first axes along which they are alike."""
    stage = entry.stage
    value: Array = stage.value.squeeze(stage.axes.index("")) if "" in stage.axes else stage.value
    if stage.kind.role != "input" or value.ndim < 3:
        return value
    for axis in range(value.ndim - 2):
        first = value.take([0], axis)
        value = first if (value == first).all() else value
    while value.ndim > 2 and len(value) == 1:
        value = value[0]
    return value


def _drawn(block: Block, stage: Stage, array: Array) -> str:
    """How what dropout kept is drawn; "" where it is not drawn so."""
    p, seed = stage.params.get("p"), block.convention.seed
    if not isinstance(p, float) or not np.array_equal(draw_kept(array.shape, p, seed), array):
        return ""
    return f"np.random.default_rng({seed}).random({array.shape}) >= {number_text(p)}"


def comment(words: str) -> str:
    r"""Words in a comment, on one line, in which nothing is hidden.

    >>> comment("a\nimport os\r\u2028")
    'a\\nimport os\\r\\u2028'
    """
    return clean(words)


# ---- numbers


def literal(given: Given) -> str:
    """An array as Python reads it, its rows beside their names.

    >>> print(literal(Given("q", "q", np.array([[1.0, 0.5], [np.nan, -np.inf]]))))
    np.array([[1.0, 0.5], [np.nan, -np.inf]])
    """
    value = given.value
    if value.size > 2 and value.dtype.kind == "f" and value.min() == value.max() in (0.0, 1.0):
        shape = value.shape[0] if value.ndim == 1 else value.shape
        return f"np.{'ones' if value.flat[0] else 'zeros'}({shape})"
    if not given.stage and value.dtype.kind != "b" and value.ndim == 1 and len(value) > 2:
        first, last = value[0], value[-1]
        if np.isfinite(first) and np.array_equal(value, np.arange(len(value)) + first):
            return f"np.arange({number_text(first.item())}, {number_text(last.item() + 1)})"
    short = f"np.array({_nested(value)})"
    if len(short) + len(given.variable) < WIDE and not (given.rows and value.ndim == 2):
        return short
    rows = [comment(shorten(row)) for row in given.rows]
    return f"np.array({_block(value, '', len(given.variable) + 12, rows)})"


def _nested(value: Array) -> str:
    """Numbers in brackets on one line."""
    if value.ndim == 0:
        x = value.item()
        return number_text(x) if isinstance(x, int | float) else ascii(x)
    return f"[{', '.join(map(_nested, value))}]"


def _block(value: Array, indent: str, n_before: int = 0, names: Sequence[str] = ()) -> str:
    """Numbers in brackets, each row on a line of its own, or on several."""
    inner = f"{indent}    "
    if value.ndim < 2:
        whole = _nested(value)
        if len(indent) + n_before + len(whole) < WIDE:
            return whole
        lines = [""]
        for number in whole[1:-1].split(", "):
            if len(inner) + len(lines[-1]) + len(number) > WIDE:
                lines.append("")
            lines[-1] += f"{' ' * bool(lines[-1])}{number},"
        return "\n".join(["[", *(f"{inner}{line}" for line in lines), f"{indent}]"])
    rows = []
    for at, row in enumerate(value):
        remark = f"  # {names[at]}" if names else ""
        rows.append(f"{inner}{_block(row, inner)},{remark}")
    return "\n".join(["[", *rows, f"{indent}]"])
