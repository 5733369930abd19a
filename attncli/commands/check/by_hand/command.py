"""attncli check --by-hand: sheets as pupils fill them in, marked one by one.

A sheet is JSON: q, k, v or x and weights, the convention, and the stages under the names and
letters that --observed reads. A cell may be null or "" where it is blank, and text such as "1/3",
"0.50" or "-inf". Of a csv, and of every other file that holds numbers, its stages are read; an
array without a name is the stage that --stage names, or its --rows.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attncli.cli.groups import given_of
from attncli.cli.options import ConventionFlags, InputFlags, ending_of
from attncli.cli.output import note, text_width
from attncli.cli.parsing import rows_of
from attncli.cli.results import ReportResult, Result, TextResult
from attncli.commands.check.by_hand.judge import MOST_CELLS, mark
from attncli.commands.check.by_hand.marking import Marking, Written
from attncli.commands.check.by_hand.marks import Row, csv_text, table
from attncli.commands.check.flags import CheckFlags
from attncli.commands.check.observe import observe, to_numpy
from attncli.commands.check.observed import check_names
from attncli.convention import Layout, flag_of
from attncli.errors import AttncliError, ConventionError, InputError, ShapeError
from attncli.files.contents import IF_NUMBERS, FileContents
from attncli.files.inputs import Reading, read
from attncli.files.json_text import Printed, parse
from attncli.files.load import read_source
from attncli.files.messages import listing, location, quote
from attncli.files.roles import ATTENDED, is_field, role_of, stages_named
from attncli.files.source import TEXT, literal, open_source
from attncli.files.table import cells_of
from attncli.formats import of_ending
from attncli.formula.numerals import number
from attncli.stages import CONCAT, GRADIENTS, LSE, MAPS, OUTPUT, QKV
from attncli.tolerance.setup import Setup, setup_of
from attncli.tolerance.shapes import WrongShapeError
from attncli.transformer.names import is_published

STAGES = (*MAPS, OUTPUT)
_PART = "stage", "rows", "head"
_BLANK = re.compile(r"[\s_/·.?-]*")
_BINARY = ("npy", "npz", "zip", "safetensors")
_INFINITE = ("inf", "infinity", "∞")
_NOT_BY_HAND = "positions", "decimals", "rtol", "atol", "inside", "single"
DELIMITERS = {"csv": ",", "tsv": "\t"}
UNREAD = {"markdown": "Markdown", "html": "a page", "latex": "LaTeX"}
"""Formats of worksheets that are for people."""
FILL_IN = "fill in the sheet as JSON or csv (--blank --output sheet.json)"
MOST_DECIMALS = 4
"""So many decimals are written by hand; numbers with more come from a program."""


def by_hand(inputs: InputFlags, choices: ConventionFlags, observed: CheckFlags) -> Result:
    """The marks of every sheet; 0 where all is right, 1 where there is a mistake or nothing is
    filled in, 2 for a sheet that cannot be used."""
    if used := [*given_of(observed, *_NOT_BY_HAND)]:
        raise ConventionError(
            f"--by-hand cannot be used with {flag_of(used[0])}", "leave one of them out"
        )
    inputs, sheets = _sheets(inputs, observed)
    if not sheets:
        raise ConventionError("there is no sheet to mark", "name one: check SHEET --by-hand")
    sheets = [path for sheet in sheets for path in _paths(sheet)]
    rows = [_row(sheet, inputs, choices, observed, is_one=len(sheets) == 1) for sheet in sheets]
    results, form = [row.result for row in rows], observed.verdict_form
    codes = (bool(x.mistakes or not x.numbers) if isinstance(x, Marking) else 2 for x in results)
    code = int(max(codes))
    if form in DELIMITERS and (observed.output or not observed.quiet):
        pieces = csv_text(rows, DELIMITERS[form])
        return TextResult(pieces=pieces, show=observed, code=code)
    is_one, data = len(rows) == 1, {row.sheet: row.to_dict() for row in rows}
    return ReportResult(
        text=str(results[0]) if is_one else table(rows, text_width(observed.output)),
        data=data[sheets[0]] if is_one else {"sheets": data},
        show=observed,
        as_json=form == "json",
        code=code,
    )


def _row(
    sheet: str, inputs: InputFlags, choices: ConventionFlags, observed: CheckFlags, *, is_one: bool
) -> Row:
    """The marks of a sheet; of several, one that cannot be used has its error, also in a note."""
    name = "" if literal(sheet)[1] or sheet == "-" else Path(sheet).stem
    try:
        marking, written = marked(sheet, inputs, choices, observed, quiet=observed.quiet)
        if is_one and not marking.numbers:
            raise InputError(f"{sheet} holds no number to mark", "all its cells are blank")
        return Row(sheet, written or name, marking)
    except AttncliError as error:
        is_named = Path(sheet).name in error.message
        message = error.message if is_named else f"{sheet}: {error.message}"
        if is_one:
            raise type(error)(message, error.hint) from None
        note(message, quiet=observed.quiet)
        return Row(sheet, name, error)


def assumed(
    inputs: InputFlags,
    choices: ConventionFlags,
    observed: CheckFlags,
    reading: Reading,
    numbers: Mapping[str, Any],
) -> Marking | None:
    """The marking of numbers with so few decimals as are written by hand, in whatever form they
    came, where the call asks for nothing of kernels; None for all others, and where it says less
    than the usual check."""
    flags = given_of(observed, *_NOT_BY_HAND) | given_of(choices, "semantics", "dtype")
    flags |= given_of(inputs, "tiles", "split")
    try:
        names = {**_stages(numbers, of_x=False), **{n: n for n in numbers if n == CONCAT}}
    except InputError:  # a stage is there twice
        return None
    tables = {stage: numbers[name] for stage, name in names.items()}
    is_large = math.prod(reading.inputs.sizes.scores) > MOST_CELLS
    if flags or not tables or is_large or any(np.size(x) > MOST_CELLS for x in tables.values()):
        return None
    _, sheets = _sheets(inputs, observed)
    is_file = bool(sheets) and sheets[0].endswith(".json") and not given_of(observed, *_PART)
    others = numbers.keys() - {*names.values()}
    if others & {*GRADIENTS, LSE} or (others and not is_file):  # these come from a program
        return None
    try:
        written = {name: _of_array(x, name, reading) for name, x in tables.items()}
        if max(x.decimals for x in written.values()) > MOST_DECIMALS:
            return None
        if is_file:
            marking, _ = marked(sheets[0], inputs, choices, observed, quiet=True)
        else:
            marking = _marking(reading, written, observed)
    except AttncliError:  # it is no sheet: the usual check has said what it found
        return None
    # where no slip is known, or an array has a wrong shape, the usual check says more
    is_known = len(tables) > 1 or not marking.mistakes or any(x.slips for x in marking.mistakes)
    has_shape = is_file or not any(mistake.shape for mistake in marking.mistakes)
    return marking if is_known and has_shape else None


def _sheets(inputs: InputFlags, observed: CheckFlags) -> tuple[InputFlags, list[str]]:
    """What the sheets are computed from, where they do not say so themselves, and the sheets."""
    inputs, sheets = replace(inputs), [inputs.source, observed.observed, *(observed.sheets or ())]
    if inputs.source and inputs.q is None and observed.observed and inputs.x is None:
        inputs.q, *sheets = sheets
    if not any(sheets):
        sheets, inputs.q = [inputs.q], None
    return inputs, [sheet for sheet in sheets if sheet]


def _paths(sheet: str) -> list[str]:
    """The sheet, or those of a folder."""
    if not sheet.lstrip().startswith(("[", "{")) and Path(sheet).is_dir():
        if paths := sorted(map(str, Path(sheet).glob("*.json"))):
            return paths
        raise InputError(f"{sheet} holds no sheet", "sheets end in .json")
    return [sheet]


def marked(
    sheet: str, inputs: InputFlags, choices: ConventionFlags, observed: CheckFlags, *, quiet: bool
) -> tuple[Marking, str]:
    """The marking of one sheet, and the name on it."""
    if observed.stage not in (None, *STAGES, *QKV):
        hint = f"there are {', '.join(STAGES)}"
        raise InputError(f"{observed.stage} is not computed by hand", hint)
    origin, text, document = _document(sheet, observed.stage or OUTPUT)
    if is_trace := document.get("attncli") == "trace":
        steps = [x for x in document.get("steps", ()) if isinstance(x, dict)]
        document = {str(x.get("name")): x.get("value") for x in steps}
    roles = {*map(role_of, document)}
    names = _stages(document, of_x="x" in roles or inputs.x is not None)
    if observed.stage is not None:
        names = {stage: name for stage, name in names.items() if stage == observed.stage}
    tables = {x: _written(document[name], location(origin, name)) for x, name in names.items()}
    inputs, contents = replace(inputs), dict[str, FileContents]()
    if not (inputs.q or inputs.x or inputs.weights):
        if not (is_trace or roles & {"q", "x"}):
            raise InputError(f"{origin} holds no q", "add q, k and v, or --q SOURCE")

        def wanted(name: str) -> bool:  # what goes into an attention, or into q, k and v
            is_read = role_of(name) is not None or is_field(name) or is_published(name)
            return bool(name) and is_read and name not in names.values()

        inputs.q = sheet
        if text:
            contents[sheet] = read_source(
                "-", stdin=io.BytesIO(text), selector=wanted, origin=origin
            )
        if text and not is_trace:
            check_names(contents[sheet])
    reading = read(inputs.sources(choices), loaded=contents, stages={*names.values()})
    if not tables:
        hint = "stages are called scores, scaled, masked, weights, output"
        raise InputError(f"{origin} holds no stage to mark", hint)
    is_said = f"{origin} sets ", f"{origin}: not used: {listing(names.values())}"
    note(*(text for text in reading.inputs.notes if not text.startswith(is_said)), quiet=quiet)
    writer = document.get("name")
    return _marking(reading, tables, observed), writer.strip() if isinstance(writer, str) else ""


def _of_array(x: Any, name: str, reading: Reading) -> Written:
    """An array as it was written; its decimals may end in zeros, where that is known."""
    values, _ = to_numpy(x, name)
    if np.isnan(values).any():
        raise InputError(f"{name} holds NaN, which is no number", "leave out --by-hand")
    printed = {} if reading.observed is None else reading.observed.decimals
    decimals = [_number(float(number), name)[1] for number in values[np.isfinite(values)].flat]
    may_be = {key: {key, *stages_named(key)} for key in printed}
    zeros = [n for key, n in printed.items() if len(printed) == 1 or name in may_be[key]]
    return Written(values.astype(np.float64), max([*decimals, *zeros], default=0))


def _marking(reading: Reading, tables: Mapping[str, Written], observed: CheckFlags) -> Marking:
    """The marking of stages of an attention, or of the rows and heads that were asked for."""
    is_batch = len(reading.inputs.sizes.scores) > 3
    layout: Layout | None = None
    if reading.sources.layout is not None:
        layout = "bhsd" if is_batch else "hsd"
    setup = setup_of(**reading.inputs.keywords, layout=layout)
    setup = replace(setup, projected=reading.inputs if reading.inputs.is_of_x else None)
    is_part = given_of(observed, "rows", "head") or CONCAT in tables
    sheet = _whole(setup, tables, observed, layout) if is_part else tables
    blank = int(sum(np.isnan(x.values).sum() for x in tables.values()))
    return mark(setup, sheet, reading.inputs.labels)._replace(blank=blank)


def _whole(
    setup: Setup, tables: Mapping[str, Written], observed: CheckFlags, layout: Layout | None
) -> dict[str, Written]:
    """The stages with all their rows and heads, blank where these were not asked for."""
    rows = None if observed.rows is None else rows_of(observed.rows, setup.shape[2])
    heads = None if observed.head is None else observed.head - 1
    values = {name: x.values for name, x in tables.items()}
    try:
        observation = observe(values, setup, rows=rows, heads=heads, layout=layout)
    except WrongShapeError as error:
        raise ShapeError(error.message, "give the rows and heads that were asked for") from None
    sheet = dict[str, Written]()
    for name, x in observation.stages.items():
        whole = np.full((*setup.shape[:3], x.shape[-1]), np.nan)
        whole[np.ix_(observation.subset.batch, observation.subset.head, observation.subset.row)] = x
        sheet[name] = Written(whole, tables[name if name in tables else CONCAT].decimals)
    return sheet


def _document(sheet: str, stage: str) -> tuple[str, bytes, dict[str, Any]]:
    """What a sheet is called, its text where that is JSON, and what it holds by name.

    stage  which one a table without a name is
    """
    if (form := of_ending(ending_of(sheet))) in UNREAD and not literal(sheet)[1]:
        message = f"{sheet} is {UNREAD[form]}, from which no answers are read"
        raise InputError(message, FILL_IN)
    with open_source(sheet) as opened:
        if opened.kind == "table":
            try:
                cells = cells_of(opened)
            except InputError as problem:
                hint = FILL_IN if form == "table" else problem.hint
                raise InputError(problem.message, hint) from None
            return opened.origin, b"", {name or stage: x for name, x in cells.items()}
        origin, is_binary = opened.origin, opened.kind in _BINARY
        text = b"" if is_binary and sheet != "-" else opened.read(TEXT)
    if is_binary:
        loaded = read_source(sheet, stdin=io.BytesIO(text), selector=lambda _: IF_NUMBERS)
        return origin, b"", {name or stage: x.tolist() for name, x in loaded.arrays.items()}
    document = parse(text, origin, other_forms=True)
    if isinstance(document, list):
        document = {stage: document}
    if not isinstance(document, dict):
        raise InputError(f"{origin} is no sheet", "it should name q, k, v and the stages")
    return origin, text, document


def _stages(document: Mapping[str, Any], *, of_x: bool) -> dict[str, str]:
    """The stages that were written, and their names there; of x and weights q, k and v, too.

    A name that may mean several is the first of them that is not there under another name.
    """
    names, options = dict[str, str](), (*STAGES, *(QKV if of_x else ()))
    may_be = dict[str, list[str]]()
    for name, value in document.items():
        if isinstance(value, Mapping):  # such as the weights of an attention
            continue
        plain = name.lower().replace("-", "_")
        stages = [plain] if plain in options else [x for x in stages_named(name) if x in options]
        if value is not None and stages and not (is_field(name) or role_of(name) in ATTENDED):
            may_be[name] = stages
        elif value is not None and plain in QKV and of_x:
            may_be[name] = [plain]
    for name, stages in sorted(may_be.items(), key=lambda item: len(item[1])):
        stage = next((x for x in stages if x not in names), stages[0])
        if stage in names:
            message = f"{stage} is there twice, as {names[stage]} and {name}"
            raise InputError(message, "keep one")
        names[stage] = name
    order = [*document]
    return dict(sorted(names.items(), key=lambda item: order.index(item[1])))


def _written(nested: Any, place: str) -> Written:
    """A table as it was written; InputError where it is ragged or a cell is no number."""
    cells = np.array(nested, dtype=object)
    is_ragged = any(isinstance(cell, list) for cell in cells.flat)
    if not isinstance(nested, list) or is_ragged or not cells.size:
        raise InputError(f"{place} is no table", "give it rows of equal length")
    values, decimals = zip(*(_number(cell, place) for cell in cells.flat), strict=True)
    return Written(np.reshape(values, cells.shape), max(decimals))


def _number(cell: Any, place: str) -> tuple[float, int]:
    """The number of a cell, NaN where it is blank, and how many decimals it has."""
    if isinstance(cell, Printed):
        return float(cell), cell.decimals
    text = "" if cell is None else str(cell).strip().replace("−", "-").replace(",", ".")
    text = np.format_float_positional(cell, 12, trim="-") if isinstance(cell, float) else text
    if _BLANK.fullmatch(text):
        return np.nan, 0
    if text.removeprefix("-").lower() in _INFINITE:
        return -np.inf if text.startswith("-") else np.inf, 0
    if (value := number(text)) is None or not math.isfinite(value):
        message = f"{place} holds {quote(str(cell))}, which is no number"
        raise InputError(message, "write null for a blank cell")
    places = text.partition(".")[2]
    return value, len(places) if places.isdigit() else 0
