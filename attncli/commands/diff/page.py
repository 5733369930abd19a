"""The page of a comparison: what was found, a table of all stages, the first that differs shaded.

A function from a Comparison to a page, as `page.parts` is one of a trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from attncli.commands.diff.comparison import Comparison, StageDifference, nested
from attncli.page.headline import entries_of
from attncli.page.matrix import Matrix, table_of
from attncli.page.numbers import short
from attncli.page.options import HEADS, KEY_HEADS, DisplayOptions
from attncli.page.page import Page
from attncli.page.parts import Closing, Heading, Headline, Part, Remark
from attncli.page.places import Place, places_of
from attncli.page.select import Block, as_matrix, blocks_of, chosen
from attncli.page.text import clean, sentence, shorten
from attncli.trace import Stage, Trace

SAME = "·"
"""What stands in place of a number of the difference that is within the tolerance."""
ROWS, COLUMNS = 12, 8
"""Of a matrix with more rows or columns so many are shown, those around the largest difference."""


def diff_page(comparison: Comparison) -> Page:
    """The page of a comparison; the trace that a format gives it is that of the comparison."""
    return partial(_parts, comparison)


def _parts(comparison: Comparison, trace: Trace, options: DisplayOptions) -> Iterator[Part]:
    stages = _shown(comparison, options)
    n, m = len(comparison.stages), len(comparison.differing)
    facts = [f"{n} stage{'s' * (n != 1)} in both", f"{m or 'none'} differ{'s' * (m == 1)}"]
    if options.every:  # where the weights of both stand beside the page, by these names
        facts += [
            f"{letter}: {sentence(name)}"
            for letter, name in zip("ab", comparison.names, strict=True)
        ]
    yield Headline(
        sentence(trace.title), tuple(facts), (), tuple(map(sentence, comparison.conventions))
    )
    yield Closing((("", tuple(map(sentence, comparison.sentences))),))
    yield from _table(comparison, options)
    for stage in stages:
        yield from _stage(comparison, stage, options)
    others = [x.name for x in comparison.differing if x not in stages and not x.shapes]
    if others and not options.stages:
        names = ", ".join(map(sentence, others[:3])) + " …" * (len(others) > 3)
        yield Remark(f"also different: {names} (--stage NAME or --full)")


def _shown(comparison: Comparison, options: DisplayOptions) -> list[StageDifference]:
    """The stages whose matrices are shown: those named, all that differ, or the first of each role.

    Raises StageError or ShapeError for what is asked for and not there.
    """
    pairs = {x.name: x for x in comparison.stages if not x.shapes}
    stages = {name: replace(x.a, name=name.rpartition(".")[2]) for name, x in pairs.items()}
    requests = tuple(name.removeprefix("difference.") for name in options.stages)
    names = chosen(nested("", stages), replace(options, stages=requests))
    if options.stages:
        return [x for name, x in pairs.items() if name in names]
    differing = [x for x in pairs.values() if not x.same]
    if options.full:
        return differing
    computed = [x for x in differing if not x.is_given][:1]
    inputs = [x for x in differing if x.is_given and x not in comparison.following]
    inputs = [x for x in inputs if x.a.name != "mask" or not computed][:1]
    return inputs + computed


# ---- all stages as a table


def _table(comparison: Comparison, options: DisplayOptions) -> Iterator[Part]:
    """A row for each stage; of several blocks the first that differs, and a line on the others."""
    blocks: dict[str, list[StageDifference]] = {}
    for stage in comparison.stages:
        blocks.setdefault(stage.name.rpartition(".")[0], []).append(stage)
    differing = [name for name, stages in blocks.items() if not all(x.same for x in stages)]
    listed = blocks if options.full or len(blocks) == 1 else differing[:1]
    for name in listed:
        yield from [Heading(sentence(name))] if name else []
        yield _rows(blocks[name], options)
    for words, names in (
        ("different too", [x for x in differing if x not in listed]),
        ("the same", [x for x in blocks if x not in differing and x not in listed]),
    ):
        counted = (_counted(name, blocks[name]) for name in names)
        yield from [Remark(f"{words}: {', '.join(counted)}")] if names else []


def _counted(name: str, stages: Sequence[StageDifference]) -> str:
    """A block in words: how many of its stages differ."""
    n = sum(not x.same for x in stages)
    count = f"{n} of {len(stages)}" if n else f"{len(stages)}"
    return f"{sentence(name) or 'outside of blocks'} ({count} stage{'s' * (len(stages) > 1)})"


def _rows(stages: Sequence[StageDifference], options: DisplayOptions) -> Matrix:
    """What is known of each stage: the numbers that differ, how many, by how much and where."""
    rows = [[*_counts(stage), *_place(stage)] for stage in stages]
    names = ("differ", "of", "largest", "RMS", "batch", "head", "row", "column")
    used = [j for j in range(len(names)) if j < 4 or any(row[j] for row in rows)]
    cells = np.array([[row[j] for j in used] for row in rows])
    stage_names = tuple(x.name.rpartition(".")[2] for x in stages)
    labels = {"stage": stage_names, "measure": tuple(names[j] for j in used)}
    table = table_of(Stage("", "", "", cells, ("stage", "measure"), labels), options)
    table.empty, table.facts = cells == "", ()
    return table


def _counts(stage: StageDifference) -> list[str]:
    if stage.shapes:
        return ["shape", "", "", ""]
    total = str(stage.wrong.size)
    if stage.same:
        return ["same", total, "", ""]
    typical = short(stage.rms, 4) if np.isfinite(stage.largest) else ""
    return [str(stage.n_wrong), total, short(stage.largest, 4), typical]


def _place(stage: StageDifference) -> list[str]:
    """Batch entry, head, row and column of the largest difference, each "" where there is none."""
    stage = _as_matrix(stage)
    if stage.same or stage.shapes or not stage.at:
        return [""] * 4
    axes = [*zip(stage.a.axes, stage.a.value.shape, stage.at, strict=True)]
    words = [clean(stage.a.label(axis, at)) for axis, _, at in axes]
    row, column = words[-2:] if len(words) > 1 else (words[0], "")
    before = {"batch": "", "head": ""}
    for axis, size, at in axes[:-2]:
        if size > 1:
            name = "head" if axis in (HEADS, KEY_HEADS) else "batch"
            before[name] = ".".join(filter(None, (before[name], str(at + 1))))
    return [*before.values(), row, column]


# ---- a stage in both


def _stage(
    comparison: Comparison, stage: StageDifference, options: DisplayOptions
) -> Iterator[Part]:
    """Both matrices and their difference, where it is largest; with --full at every place."""
    stage = _as_matrix(stage)
    difference = stage.difference(comparison.names)
    prefix = stage.name.rpartition(".")[0]
    blocks = [
        _block(trace, prefix, x) for trace, x in ((comparison.a, stage.a), (comparison.b, stage.b))
    ]
    places, _ = places_of(blocks[0], [stage.a], replace(options, full=True))
    index_of = {id(place): blocks[0].place(stage.a, place.where) for place in places}
    differing = [x for x in places if stage.wrong[index_of[id(x)]].any()]
    is_selected = options.full or (options.head, options.batch) != (None, None)
    n = len(stage.a.axes[:-2])
    selection = (
        differing if is_selected else [x for x in differing if index_of[id(x)] == stage.at[:n]]
    )
    if options.every:  # one of them is seen at a time
        selection = places
    selection = selection or places[:1]
    for place in selection:
        yield Heading(sentence(", ".join(filter(None, (_title(comparison, stage), place.heading)))))
        index = index_of[id(place)]
        yield from _matrices(comparison, stage, difference, blocks, place, index, options)
    if rest := len(differing) - len([x for x in selection if x in differing]):
        more = f"it differs at {rest} more of {len(places)} places"
        yield Remark(f"{more} (--head N, --batch N or --full)")


def _as_matrix(stage: StageDifference) -> StageDifference:
    """The same, a vector beside a map with the axis that makes it a row or a column."""
    a, b = as_matrix(stage.a), as_matrix(stage.b)
    if stage.shapes or a is stage.a or b is stage.b:
        return stage
    at = list(stage.at)
    if at:
        at.insert(a.axes.index(""), 0)
    wrong = stage.wrong.reshape(a.value.shape)
    return replace(stage, a=a, b=b, wrong=wrong, at=tuple(at))


def _title(comparison: Comparison, stage: StageDifference) -> str:
    """The name of a stage, and of that in its place where it is left out of one of the two."""
    last = stage.name.rpartition(".")[2]
    both = zip(comparison.names, (stage.a, stage.b), strict=True)
    others = [
        f"{name} has no {last}; {x.name} is compared instead" for name, x in both if x.name != last
    ]
    return f"{stage.name} ({others[0]})" if others else stage.name


def _block(trace: Trace, prefix: str, stage: Stage) -> Block:
    """The block of a stage, which may have axes of other names there."""
    dotted = f"{prefix}." if prefix else ""
    block = next(x for x in blocks_of(trace) if x.prefix == dotted)
    steps = (stage if x.name == stage.name else x for x in block.trace.steps)
    return Block(replace(block.trace, steps=tuple(steps)), dotted, trace)


def _matrices(
    comparison: Comparison,
    stage: StageDifference,
    difference: Stage,
    blocks: Sequence[Block],
    place: Place,
    index: tuple[int, ...],
    options: DisplayOptions,
) -> Iterator[Part]:
    wrong = np.atleast_2d(stage.wrong[index])
    cut = _around(wrong, np.atleast_2d(difference.value[index]), options)
    entries = entries_of(stage.a) if "row" not in stage.a.axes else ()
    first = Matrix(blocks[0], stage.a, place.where, cut, entries)
    matrices = [first, Matrix(blocks[1], stage.b, place.where, cut)]
    sizes = [np.abs(m.values[np.isfinite(m.values)].astype(np.float64)) for m in matrices]
    least = max(float(x.max(initial=0.0)) for x in sizes)
    for name, matrix in zip(comparison.names, matrices, strict=True):
        matrix.name, matrix.number = shorten(name, 24), None
        matrix.shade, matrix.least = matrix.shade or "signed", least
        yield matrix
    matrix = Matrix(Block(Trace("", (difference,))), difference, place.where, cut)
    matrix.name, matrix.number, matrix.sums, matrix.shade = "difference", None, "", "signed"
    matrix.marked, matrix.sign = ~wrong, SAME
    matrix.mark = f"{SAME} the same, within {stage.rule}"
    yield matrix
    if cut is not options:
        around = "shown: rows and columns around the largest difference, of {} × {}"
        yield Remark(f"{around.format(*wrong.shape)} (--rows A:B, --cols A:B or --full)")


def _around(wrong: np.ndarray, difference: np.ndarray, options: DisplayOptions) -> DisplayOptions:
    """The options with the rows and columns around the largest difference of a large matrix."""
    if options.full or (*options.rows, *options.cols) != (None,) * 4:
        return options
    size = np.where(wrong, np.nan_to_num(np.abs(difference), nan=np.inf), 0.0)
    centre = np.unravel_index(int(size.argmax()), size.shape)
    bounds = []
    for at, n, most in zip(map(int, centre), wrong.shape, (ROWS, COLUMNS), strict=True):
        start = min(max(at - most // 2, 0), max(n - most, 0))
        bounds.append((start, start + most) if n > most else (None, None))
    if bounds == [(None, None)] * 2:
        return options
    return replace(options, rows=bounds[0], cols=bounds[1])
