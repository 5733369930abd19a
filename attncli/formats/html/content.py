"""What a page shows of a trace: all of it, or a part where that is too much.

A page holds so many numbers to the last digit. Of a trace with more it holds one head, batch entry
and layer, of one that is still larger the first rows and columns, and of all heads a picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from attncli.errors import StageError
from attncli.files.messages import listing
from attncli.formats.html.command import command
from attncli.formats.html.data import PageData, is_width, packed
from attncli.formats.html.slips import slips_of
from attncli.formats.python import code_of
from attncli.page.matrix import Matrix
from attncli.page.options import HEADS, KEY_HEADS, Bounds, DisplayOptions
from attncli.page.page import Page
from attncli.page.parts import Heading, Part, Remark
from attncli.page.select import BlankStage, blocks_of, has_blanks, is_computed, named_stages, select
from attncli.page.text import clean, find
from attncli.stages import CONCAT, OUTPUT, PARTS, PROJECTED, QKV, SCORES, WEIGHTS
from attncli.trace import Stage, Trace

NUMBERS = 16_000  # that a page holds to the last digit: 11 to 18 bytes each
WIDE_NUMBERS = (
    128_000  # the same of wide vectors and their weights, of which a few columns are shown
)
WIDE = 16  # columns of a vector that are not wide
NUMBERS_OF_ONE = 12_000  # where the weights of other heads are there as pictures too
BLANKS = 10  # of a worksheet that cost as much as a number: it has no bytes, but is computed
ROOMS = (40, 16)  # rows and columns of tables of which only a part is there
ALL = (None, None)


class Content(NamedTuple):
    """What a page shows: its parts, and the data of its script.

    names   dotted names of all stages that are shown, of a large trace by their part
    script  files of the script that are needed: of heads and words, of vectors that are drawn, of
            what judges numbers that are filled in, of sentences on gradients and on meaning
    """

    parts: tuple[Part, ...]
    names: frozenset[str]
    data: str
    script: tuple[str, ...]


def content(trace: Trace, options: DisplayOptions, page: Page) -> Content:
    """Every stage that is to be shown, with its formula where all that it reads is there."""
    whole = replace(
        options, given=not options.stages, every=True, work=False, cell=None, query=None
    )
    page_parts, listed = _shown(trace, whole, page)
    part = _Part(whole, listed, _why_locked(trace, options))
    is_asked = options.cell is not None or options.query is not None
    name, place = _place(trace, options) if is_asked else ("", (0, 0))
    if not options.full and not part.fits(trace):
        page_parts, part = _reduced(trace, whole, page, place)
    data = PageData()
    data.add(part.of(trace), has_formulas=not part.is_cut, is_locked=bool(part.locked))
    if part.options is not whole:
        data.add_pictures(trace, [n for n in listed if n.rpartition(".")[2] == WEIGHTS])
        lost = ", so the query is not followed" if options.query and part.is_cut else ""
        page_parts.insert(1, Remark(f"{part.locked}{lost} (--full shows all)"))
    is_sheet = has_blanks(trace)
    is_fixed = bool(part.locked) or is_sheet
    call = {} if is_fixed else command(trace)
    more: dict[str, Any] = {"command": call} if call else {}
    slips = {} if part.locked else _slips(trace, is_sheet=is_sheet)
    more |= {"locked": part.locked} if part.locked else {"slips": slips}
    vectors = trace["embeddings"].params if "embeddings" in trace and not is_fixed else {}
    seed = vectors.get("seed")  # from which those of other words are drawn
    more |= {} if seed is None else {"seed": seed}
    for scores in (f"{part_of}.1.{SCORES}" for part_of in PARTS):  # not at a copy of a key
        more |= {"open": {"id": scores, "at": 0}} if scores in trace else {}
    if is_asked:
        starts = [bounds[0] or 0 for bounds in (part.options.rows, part.options.cols)]
        at = np.ravel_multi_index(np.subtract(place, starts), part.of(trace)[name].value.shape[-2:])
        more["open"] = {"id": name, "at": int(at), **({"walk": 1} if options.query else {})}
    if not is_fixed and (code := code_of(trace, {stage["id"] for stage in data.stages})):
        more["script"] = code
    shares = (s for s in data.stages if s.get("shade") == "share" and "vector" not in s)
    weights = [s for s in shares if list(s["axes"]) == ["query", "key"]]
    n_maps = sum(math.prod(s["shape"][:-2]) for s in weights)
    has_words = n_maps and any(name.endswith("tokens") for name in trace)
    script = ("heads",) * (n_maps > 1 or bool(has_words)) + ("vectors",) * (seed is not None)
    script += ("judge",) * bool(is_sheet or slips.get("of"))  # what can be filled in
    script += ("gradients",) * any("wishes" in group for group in data.groups)
    script += ("meaning",) * ("meaning.static" in trace and not is_fixed)
    title = [Heading(clean(trace.title))]
    script += ("script",) * ("script" in more)  # of NumPy, which a page copies
    return Content(tuple(page_parts or title), frozenset(listed), packed(more, data), script)


class _Part(NamedTuple):
    """What of a trace the script makes tables of.

    options  the heads, batch entries, rows and columns
    names    dotted names of the stages
    locked   why no number can be changed, "" if it can
    """

    options: DisplayOptions
    names: Sequence[str]
    locked: str

    @property
    def is_cut(self) -> bool:
        """Whether rows or columns are missing, without which nothing can be computed again."""
        return not (self.options.rows == ALL == self.options.cols)

    def of(self, trace: Trace) -> Trace:
        """The stages themselves."""
        if not self.names or not (self.is_cut or self.options.index):
            return trace.keep(set(self.names))
        part = select(trace, replace(self.options, stages=tuple(self.names)))
        return part.mapped(_shortened) if self.is_cut else part

    def size(self, trace: Trace, widest: float = math.inf) -> int:
        """How many numbers they have; one that is left out is but computed by the page.

        widest  so many columns of a vector count at most
        """

        def count_of(stage: Stage) -> int:
            wide = (is_width(axis) for axis in stage.axes)
            sizes = zip(stage.value.shape, wide, strict=True)
            return int(math.prod(min(n, widest) if is_wide else n for n, is_wide in sizes))

        stages = [stage for _, stage in self.of(trace).stages()]
        n_blank = sum(count_of(stage) for stage in stages if isinstance(stage, BlankStage))
        return sum(map(count_of, stages)) - n_blank + n_blank // BLANKS

    def fits(self, trace: Trace) -> bool:
        """Whether a page holds all numbers: if they are many, as vectors are wide alone."""
        size = self.size(trace)
        return size <= NUMBERS or (size <= WIDE_NUMBERS and self.size(trace, WIDE) <= NUMBERS)


def _place(trace: Trace, options: DisplayOptions) -> tuple[str, tuple[int, int]]:
    """The stage, row and column at which the page begins; of a query its row is followed.

    Raises StageError where there is none to begin at, ShapeError for a name that is not there.
    """
    names = [name for pattern in options.stages for name in named_stages(trace, pattern)]
    names = names or [b.prefix + b.weights.name for b in blocks_of(trace) if b.weights]
    names += [name for name in trace if name == "positions"]
    if not names or (options.query and not trace[names[0]].kind.summarized):
        raise StageError("there are no weights to derive", f"there are {listing(trace)}")
    stage, (row, column) = trace[names[0]], options.cell or (options.query or "", "1")
    rows, columns = stage.axes[-2:]
    places = find(stage.names(rows), rows, row), find(stage.names(columns), columns, column)
    return names[0], places


def _slips(trace: Trace, *, is_sheet: bool) -> dict[str, Any]:
    """The slips of attentions, each list once, and which list is that of which attention."""
    lists: list[Any] = []
    numbers: dict[str, int] = {}
    for block in blocks_of(trace):
        if rows := slips_of(block, is_sheet=is_sheet):
            if rows not in lists:
                lists.append(rows)
            numbers[block.prefix] = lists.index(rows)
    return {"lists": lists, "of": numbers}


def _why_locked(trace: Trace, options: DisplayOptions) -> str:
    """Why numbers of these stages cannot be changed; "" if they can."""
    if options.stages or options.index or not options.rows == ALL == options.cols:
        return "only a part of the computation is here"
    dtypes = {block.convention.dtype for block in blocks_of(trace)} - {"float64"}
    return f"the numbers are {dtypes.pop()}, the page computes in float64" if dtypes else ""


def _reduced(
    trace: Trace, whole: DisplayOptions, page: Page, place: tuple[int, int]
) -> tuple[list[Part], _Part]:
    """Of a large trace one head, of that the attention, or rows and columns that have a place."""
    options = replace(first_place(trace, whole), given=False)
    page_parts, names = _shown(trace, options, page)
    names += [name for name in trace if name in (*QKV, "mask") and name not in names]
    n_layers = len({block.layer for block in blocks_of(trace) if block.layer})
    is_part = {
        "head": options.head != whole.head,
        "batch entry": options.batch != whole.batch,
        "layer": n_layers > 1,
    }
    parts = [name for name, is_one in is_part.items() if is_one]
    size = _Part(whole, names, "").size(trace)
    reason = (
        f"only one {' and '.join(parts)} is here" if parts else f"{size:,} numbers are too many"
    )
    part = _Part(options, names, reason)
    if part.size(trace) > NUMBERS_OF_ONE:
        attention = next((n for n in names if n.endswith(WEIGHTS)), "")
        prefix = attention.removesuffix(WEIGHTS)
        attention_names = [n for n in names if n.startswith(prefix)]
        ends = [
            at for at, n in enumerate(attention_names) if n.endswith((OUTPUT, CONCAT, PROJECTED))
        ]
        part = part._replace(names=attention_names[: ends[-1] + 1] if ends else attention_names)
    spans = whole.rows, whole.cols
    for room in ROOMS:
        if part.size(trace) > NUMBERS_OF_ONE:
            rows, cols = (_cut(span, room, at) for span, at in zip(spans, place, strict=True))
            extent = "first rows and columns" if max(place) < room else "rows and columns around it"
            options = replace(part.options, rows=rows, cols=cols)
            part = _Part(options, part.names, f"only the {extent} are here")
    return page_parts, part


def _shown(trace: Trace, options: DisplayOptions, page: Page) -> tuple[list[Part], list[str]]:
    """The parts of a page, and the names of those of its matrices that are stages of the trace."""
    page_parts = list(page(trace, options))
    matrices = (part for part in page_parts if isinstance(part, Matrix) and part.stage.name)
    stages = {m.block.prefix + m.stage.name: m.stage for m in matrices}
    is_of = np.may_share_memory
    names = [n for n, x in stages.items() if n in trace and is_of(trace[n].value, x.value)]
    if not options.stages:  # keys and values of a tile are no tables of other formats
        there = {*names}
        names += [n for n in trace if n.split(".")[0] in PARTS and n not in there]
    return page_parts, names


def _shortened(stage: Stage) -> Stage:
    """The stage; of a vector, which has neither rows nor columns to choose, the first entries."""
    room = ROOMS[0]
    if stage.value.ndim != 1 or stage.value.size <= room:
        return stage
    labels = {axis: names[:room] for axis, names in stage.labels.items()}
    return replace(stage, value=stage.value[:room], labels=labels)


def _cut(bounds: Bounds, room: int, at: int) -> Bounds:
    """At most so many rows or columns of those asked for, among them one of these."""
    start, stop = bounds[0] or 0, bounds[1]
    if stop is not None and 0 <= stop < start + room:
        return bounds
    start = start if at < start + room else at - room // 2
    return start, start + room


def first_place(trace: Trace, options: DisplayOptions) -> DisplayOptions:
    """The same for the first head, batch entry and layer alone, where there are several."""
    sizes = [(block.n_heads, block.sizes["batch"]) for block in blocks_of(trace)]
    n_heads, n_entries = (max(each, default=0) for each in zip(*sizes, strict=True))
    axes = {axis for _, stage in trace.stages() if is_computed(stage) for axis in stage.axes}
    has_heads, has_entries = bool(axes & {HEADS, KEY_HEADS}), "batch" in axes
    head = 0 if options.head is None and n_heads > 1 and has_heads else options.head
    batch = 0 if options.batch is None and n_entries > 1 and has_entries else options.batch
    return replace(options, head=head, batch=batch, every=False)
