"""attncli check: does this attention match, and if not, which bug is it?"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

from attncli.arrays import Array
from attncli.attention.heads import shape_text
from attncli.attention.inputs import Inputs
from attncli.attention.memory import operands_of, size_of
from attncli.budget import FLOAT, check_free, taken
from attncli.cli.groups import check_flags, given_of, of_lse
from attncli.cli.options import ConventionFlags, InputFlags
from attncli.cli.output import note, progress_bar
from attncli.cli.parsing import rows_of, slice_of, whole_numbers
from attncli.cli.results import ReportResult, Result
from attncli.commands.check.by_hand.marking import Marking
from attncli.commands.check.diagnose import check as compare
from attncli.commands.check.flags import STAGES, CheckFlags
from attncli.commands.check.observe import GIVEN, heads_to_front
from attncli.commands.check.observed import (
    as_observed,
    known_stages,
    numbers_of,
    projection_of,
)
from attncli.commands.check.probe import probe_inputs
from attncli.commands.check.report import summary_text, summary_to_dict, verdict_to_dict
from attncli.commands.check.search import most_at_once
from attncli.commands.check.verdict import Verdict, report_text
from attncli.errors import ConventionError, SeveralError, ShapeError, nearest
from attncli.files.inputs import Reading, read
from attncli.files.messages import named
from attncli.files.roles import stages_named
from attncli.files.write import check_dump, write_dump
from attncli.stages import GRADIENTS, MEAN_WEIGHTS, OF_TILES, OUTPUT, PROJECTED, WEIGHTS
from attncli.tolerance.positions import positions_of
from attncli.tolerance.run import CELLS

ASSUMED = (
    "marked by hand, as no known bug fits and the numbers have at most 4 decimals "
    "(--no-by-hand shows the usual check)"
)
"""What is said where sheets are marked by hand without being asked for."""
ROUNDED = "computed by hand, with rounding at every step, they would be right (--by-hand)"
"""What is said where such a sheet has no mistake."""


def check(inputs: InputFlags, choices: ConventionFlags, observed: CheckFlags) -> Result:
    """What was found, and the exit code: 0 where all matches."""
    if observed.sheets and not observed.by_hand:
        message = f"{observed.sheets[0]} has no effect without --by-hand"
        raise ConventionError(message, "add it to mark several sheets, or give one file")
    if observed.bugs or observed.bug is not None:
        from attncli.commands.check.bugs.command import explain

        options = [*given_of(replace(inputs, source=None)), *choices.fields]
        return explain(inputs.source, options, observed)
    if observed.probe is not None:
        return _written_probe(inputs, choices, observed)
    _check_flags(observed, inputs)
    if observed.by_hand:
        from attncli.commands.check.by_hand.command import by_hand

        return by_hand(inputs, choices, observed)
    main, source = observed.sources(inputs)
    try:
        verdict, reading, numbers = _checked(inputs, choices, observed, main, source)
    except SeveralError as several:
        if main != source or not several.parts:
            raise
        file = main.removesuffix(f"::{several.selection}")
        return _check_each(inputs, choices, observed, file, several.parts)
    marking = None
    if not (verdict or verdict.explanations or verdict.meanings) and observed.by_hand is None:
        from attncli.commands.check.by_hand.command import assumed

        marking = assumed(inputs, choices, observed, reading, numbers)
    return _report(verdict, marking, observed)


def _written_probe(
    inputs: InputFlags, choices: ConventionFlags, observed: CheckFlags
) -> ReportResult:
    """Writes the probe, and says what to do with it."""
    assert observed.probe is not None  # noqa: S101 - it was asked for
    path = observed.probe
    if observed.observed is not None:
        raise ConventionError("--probe is given beside --observed", "write the probe first")
    if inputs.x or inputs.weights or observed.positions:
        message = "--probe takes q, k and v, to which nothing is done before the scores"
        raise ConventionError(message, "give them as your kernel takes them, with --q")
    check_dump(path, force=observed.force)
    inputs = replace(inputs)
    inputs.q, inputs.source = inputs.q or inputs.source, None
    if inputs.q is None:
        raise ConventionError("there is no input for a probe", "add --q FILE with q, k and v")
    reading = read(inputs.sources(choices, None))
    check_flags([inputs, choices], facts=reading.facts)
    note(*reading.inputs.notes, quiet=observed.quiet)
    arrays = probe_inputs(reading.inputs, reading.sources.layout)
    write_dump(path, arrays.items(), force=observed.force)
    shapes = ", ".join(f"{name} {shape_text(x)}" for name, x in arrays.items())
    text = (
        f"{path} holds {shapes}; its values are the identity, or that of one block of keys after "
        f"another.\nRun your attention on it, save what it gives as `output`, and check that with "
        f"the same options:\n  attncli check --q {path} --observed yours.npz"
    )
    data = {"probe": path, "shapes": {name: list(x.shape) for name, x in arrays.items()}}
    is_json = observed.verdict_form == "json"
    return ReportResult(text=text, data=data, show=observed, as_json=is_json, code=0)


def _report(verdict: Verdict, marking: Marking | None, observed: CheckFlags) -> ReportResult:
    """The verdict, or the marking of numbers that were computed by hand."""
    text, data = report_text(verdict), verdict_to_dict(verdict)
    if marking is not None:
        text = f"{ASSUMED}\n{marking}" if marking.mistakes else f"{text}\n{ROUNDED}"
        data = {**data, "by_hand": marking.to_dict()}
    code = 0 if verdict.matches else 1
    return ReportResult(
        text=text, data=data, show=observed, as_json=observed.verdict_form == "json", code=code
    )


def _check_each(
    inputs: InputFlags,
    choices: ConventionFlags,
    observed: CheckFlags,
    file: str,
    parts: tuple[str, ...],
) -> ReportResult:
    """The verdicts on every attention that a file holds; 0 where all match."""
    verdicts, notes = dict[str, Verdict](), list[str]()
    for part in parts:
        source = f"{file}::{part}"
        with named(part):
            verdicts[part] = _checked(replace(inputs), choices, observed, source, source, notes)[0]
    return ReportResult(
        text=summary_text(verdicts),
        data=summary_to_dict(verdicts),
        show=observed,
        as_json=observed.verdict_form == "json",
        code=0 if all(verdicts.values()) else 1,
    )


def _checked(
    inputs: InputFlags,
    choices: ConventionFlags,
    observed: CheckFlags,
    main: str,
    source: str,
    earlier: list[str] | None = None,
) -> tuple[Verdict, Reading, dict[str, Any]]:
    """The verdict on a source, its inputs and what was observed; no note of `earlier` again."""
    is_shared = main == source and None in (inputs.q, observed.observed)
    if not (inputs.x or inputs.weights):
        inputs = replace(inputs)
        inputs.q = main
    stages = known_stages(inputs.tiles) if observed.stage is None else (observed.stage,)
    reading = as_observed(read(inputs.sources(choices, source), stages=stages))
    numbers, notes = numbers_of(observed, reading, is_shared=is_shared, tiles=inputs.tiles)
    lse = of_lse(stage for name in numbers for stage in stages_of(name))
    check_flags([inputs, choices], facts=reading.facts | lse)
    earlier = [] if earlier is None else earlier
    new = [text for text in (*reading.inputs.notes, *notes) if text not in earlier]
    earlier += new
    note(*new, quiet=observed.quiet)
    chosen_fields = _chosen(choices, reading)
    verdict = _verdict(numbers, reading, inputs, observed, chosen_fields)
    return replace(verdict, shape=verdict.shape.replace(" (rows=, heads=)", "")), reading, numbers


def _chosen(choices: ConventionFlags, reading: Reading) -> set[str]:
    """The fields of the convention that a flag or the file has chosen, not --semantics."""
    preset = choices.meant_for(reading.inputs.sizes.scores[-2])
    changes = reading.inputs.convention.changes()
    names = {n for n, value in changes.items() if n not in preset or preset[n] != value}
    return names | {*choices.fields}


def _check_flags(observed: CheckFlags, inputs: InputFlags) -> None:
    """ConventionError for flags that contradict, before anything is read."""
    kind = observed.positions
    if kind is not None and not positions_of(kind).is_rotary and inputs.heads is not None:
        message = f"--positions {kind} would be added to each head, not to the embedding"
        hint = "add them first (attncli posenc --add), or give q, k and v in one head"
        raise ConventionError(message, hint)
    stages = known_stages(inputs.tiles)
    if observed.stage is not None and not any(x in stages for x in stages_of(observed.stage)):
        of_tiles = f"use tile.1.m, {', '.join(OF_TILES)} …"
        hint = nearest(observed.stage, STAGES) if inputs.tiles is None else of_tiles
        raise ConventionError(f"there is no stage {observed.stage!r}", hint)
    _ = observed.verdict_form  # which --output may not have
    if observed.rows is not None:
        slice_of(observed.rows, "--rows")


def stages_of(name: str) -> tuple[str, ...]:
    """The stages that an array of this name may be, one by a stage's own name among them."""
    stages = stages_named(name) or (name,)
    merged_names = {OUTPUT: PROJECTED, WEIGHTS: MEAN_WEIGHTS}  # of all heads
    return (*stages, *(merged_names[x] for x in stages if x in merged_names))


def _verdict(
    numbers: dict[str, Any],
    reading: Reading,
    flags: InputFlags,
    observed: CheckFlags,
    chosen_fields: set[str],
) -> Verdict:
    shape, layout = reading.inputs.sizes.scores, reading.sources.layout
    n_q, n_heads = shape[-2], shape[-3] if len(shape) > 2 else 1
    rows = None if observed.rows is None else rows_of(observed.rows, n_q)
    if observed.head is not None and observed.head > n_heads:
        heads = "is only 1 head" if n_heads == 1 else f"are {n_heads} heads"
        raise ShapeError(f"there is no head {observed.head}", f"there {heads}")
    for name in [name for name in numbers if OUTPUT in stages_named(name)]:
        sizes = (n_heads if observed.head is None else 1, len(range(n_q)[rows or slice(None)]))
        numbers = numbers | {name: heads_to_front(numbers[name], layout, sizes)}
    decimals = {} if reading.observed is None else reading.observed.decimals
    zeros = {stage: n for name, n in decimals.items() for stage in stages_of(name)}
    if len(zeros) == 1:  # the only array, whatever it is called
        zeros = dict.fromkeys(numbers, *zeros.values())
    form = "A,B,…, such as 2,5"
    split = None if flags.split is None else whole_numbers(flags.split, "--split", form)
    check_room = _room(numbers, reading)
    check_room("the comparison needs", searches=False)
    searching = "it differs, and the search for a bug needs"
    with progress_bar("bugs tried", quiet=observed.quiet) as progress:
        return compare(
            numbers,
            rows=rows,
            heads=None if observed.head is None else observed.head - 1,
            projected=reading.inputs if reading.inputs.is_of_x else None,
            pairs=not observed.single,
            tiles=flags.tiles,
            split=split,
            progress=progress,
            before_search=partial(check_room, searching, searches=True),
            chosen=chosen_fields,
            layout=layout and ("bhsd" if len(shape) > 3 else "hsd"),
            **reading.inputs.keywords,
            **reading.inputs.label_keywords,
            **projection_of(reading),
            zeros=zeros,
            **given_of(observed, "positions", "decimals", "rtol", "atol", "inside"),
        )


def _room(numbers: dict[str, Any], reading: Reading) -> Callable[..., None]:
    """What raises SizeError where there is no room for a comparison, or for a search."""
    before = taken()
    arrays = [x for name, x in numbers.items() if name not in GIVEN]
    whole = any(name in GRADIENTS for name in numbers)

    def check_room(subject: str, *, searches: bool) -> None:
        need = _bytes_of(reading.inputs, arrays, searches=searches, whole=whole)
        check_free(before + need - taken(), subject, "check fewer rows or heads: --rows, --head")

    return check_room


_FORMULAS = 5 * 10**6
"""Bytes of the formulas of all bugs and edits, parsed and compiled, however small the arrays."""


def _bytes_of(
    inputs: Inputs,
    observed: Collection[Array],
    *,
    searches: bool = False,
    whole: bool = False,
) -> int:
    """Bytes of comparing the observed stages with those computed, or of searching for a bug.

    A stage as observed, as expected and as rounded, for its noise, and in the search as a candidate
    has it, with two more of what is larger than a piece, in the search four. And either a
    difference of two or, while a piece is computed, five stages of it (with the errors put into
    each), in the search four and 26 masks; and the formulas of all candidates. whole: gradients,
    for which all queries are computed at once.
    """
    sizes, scores = inputs.sizes, inputs.sizes.scores
    operands = sum(x.size for x in operands_of(inputs).values()) * FLOAT
    piece, n_mask = min(math.prod(scores), CELLS), scores[-2] * scores[-1]
    if whole:  # a key head with the query heads that share it, and twice as many stages
        piece = 2 * max(piece, n_mask * (sizes.n_heads // sizes.n_kv_heads))
    if searches and n_mask <= most_at_once():  # of a softmax over queries
        piece = max(piece, n_mask)
    of_piece = 4 * piece + 26 * min(n_mask, piece) if searches else 5 * piece
    of_stage = sum(x.size for x in observed)
    stages = (3 + searches) * of_stage + (2 + 2 * searches) * max(0, of_stage - piece)
    stages += max(of_stage, of_piece)
    return operands + size_of(observed, 0) + stages * FLOAT + searches * _FORMULAS
