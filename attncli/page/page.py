"""A trace as parts in reading order: which stages, at which heads and batch entries.

All stages of head 1 come before those of head 2; stages without heads, such as the concatenation,
come after them as they do in the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from attncli.convention import KNOBS
from attncli.page.matrix import Matrix
from attncli.page.numbers import short
from attncli.page.parts import Closing, Heading, Headline, Part, Plot, Remark
from attncli.page.select import (
    HEADS,
    KEY_HEADS,
    BlankStage,
    Block,
    DisplayOptions,
    Index,
    chosen,
    is_computed,
)
from attncli.page.sentences import attention, sentences
from attncli.page.text import clean, sentence, shorten
from attncli.stages import PARTS, QKV, WEIGHTS, spec_of
from attncli.trace import Stage, Trace

MOST = 8  # heads and batch entries shown of many

Page = Callable[[Trace, DisplayOptions], Iterator[Part]]
"""What lays a trace out in parts: `parts`, or another page."""

# axis → one of them, many of them; the first ones are counted in the headline, in this order
_WORDS = {
    "layer": ("layer", "layers"),
    "batch": ("batch entry", "batch entries"),
    HEADS: ("head", "heads"),
    "query": ("query", "queries"),
    "key": ("key", "keys"),
    "token": ("token", "tokens"),
    "position": ("position", "positions"),
    "dimension": ("dimension", "dimensions"),
}
_WIDTHS = ("d_k", "d_v", "d_model")
_ENTRIES = {axis: many for axis, (_, many) in _WORDS.items()} | {
    **dict.fromkeys(_WIDTHS, "dimensions"),
    "word": "words",
    "entry": "entries",
    "other": "the same",
    "pair": "pairs of dimensions",
    "component": "components",
    "count": "number and word id",
    "measure": "measures",
    "part": "parts of the keys",
    "library": "libraries",
    "case": "cases",
    "d_ff": "hidden dimensions",
    **dict.fromkeys(("h·d_k", "h·d_v", "h_kv·d_k", "h_kv·d_v"), "dimensions of all heads"),
}
_FLAGS = {"batch": ("batch entries", "--batch N"), HEADS: ("heads", "--head N")}
_FLAGS[KEY_HEADS] = ("key heads", "--head N")


class Place(NamedTuple):
    """A matrix of a stage.

    where    at which heads and batch entries
    heading  in words, such as "head 2 of 3"; "" where there is but one
    names    the same without the counts: ("batch 1", "head 2")
    """

    stage: Stage
    where: Index
    heading: str
    names: tuple[str, ...]


def parts(trace: Trace, options: DisplayOptions) -> Iterator[Part]:
    """Everything that is shown of a trace, in reading order.

    An attention whose q or x is given begins with its inputs, so that it can be checked by hand.
    Raises StageError or ShapeError for what is asked for and not there.
    """
    is_part = (
        options.stages or options.cell or options.query or {*options.rows, *options.cols} - {None}
    )
    steps = {step.name: step for step in trace.steps}
    inputs = [step for name, step in steps.items() if name in ("q", "x")]
    is_of_inputs = any(isinstance(x, Stage) and not is_computed(x) for x in inputs)
    if not is_part and is_of_inputs and {WEIGHTS, *PARTS} & steps.keys():
        options = replace(options, given=True)
    names = chosen(trace, options)
    if options.given:  # the keys of a tile are among those of all
        names = {n for n in names if n.split(".")[0] not in PARTS or is_computed(trace[n])}
    if options.query is not None:
        from attncli.page.walk import walks

        yield from walks(trace, names, options)
    elif options.cell is None:
        blocks = {name[:at] for name in names for at, x in enumerate(name) if x == "."}
        yield from _block(Block(trace), names | blocks, options)
    else:
        from attncli.page.derivation import derivations

        yield from derivations(trace, names, options)


def _block(block: Block, names: Collection[str], options: DisplayOptions) -> Iterator[Part]:
    """A block and those within it; `names` are those of the chosen stages and of their blocks."""
    first = next((s for s in block.trace.steps if block.prefix + s.name in names), None)
    if first is None:
        return
    if isinstance(first, Stage) or not block.prefix:
        yield headline(block, options)  # a block that begins with another has none of its own
    axes_named: set[tuple[str, ...]] = set()
    steps, above = block.trace.steps, ""
    start = next((at for at, x in enumerate(steps) if spec_of(x.name).heading), len(steps))
    for part in filter(None, (steps[:start], steps[start:])):  # the computation, its gradients
        heading = spec_of(part[0].name).heading
        above = heading or above
        are_blocks = (isinstance(step, Trace) for step in part)
        for _, group in groupby(zip(are_blocks, part, strict=True), key=itemgetter(0)):
            run, left_out = [step for _, step in group], ""
            if block.trace.name in PARTS and not (options.full or options.every):
                run, left_out = _few(block, run, names)
            stages = [
                block.stages[s.name]
                for s in run
                if block.prefix + s.name in names
                if isinstance(s, Stage)
            ]
            yield from _matrices(block, stages, axes_named, options, above)
            for step in run:
                if isinstance(step, Trace):
                    above = f"{sentence(block.trace.title)}, continued"
                    inner = Block(step, f"{block.prefix}{step.name}.", block.root)
                    yield from _block(inner, names, options)
            yield from [Remark(left_out)] if left_out else []
        stage, tell = block.weights, attention
        if heading:
            from attncli.page.sentences_of_gradients import wishes, wishing

            stage, tell = wishing(block), wishes
        if stage and not isinstance(stage, BlankStage) and block.prefix + stage.name in names:
            places, _ = places_of(block, [stage], options)
            indices = tuple(place.where for place in places)
            texts = sentences(block, stage, indices, options, tell)
            heads = zip((place.heading for place in places), texts, strict=True)
            yield Closing(tuple(heads), indices, stage.name)


def _few(
    block: Block, steps: list[Stage | Trace], names: Collection[str]
) -> tuple[list[Stage | Trace], str]:
    """Of many tiles or splits the first and last; and a line on the others, or ""."""
    kind, own = block.trace.name, [step for step in steps if block.prefix + step.name in names]
    left = own[MOST // 2 : -MOST // 2]
    if not left:
        return steps, ""
    what = f"left out: {len(left)} of {len(own)} {kind}s, {left[0].name} to {left[-1].name}"
    return own[: MOST // 2] + own[-MOST // 2 :], f"{what} (--stage {kind}.N or --full)"


def headline(block: Block, options: DisplayOptions) -> Headline:
    """The title of a block, its sizes, its convention where it is not the default, its notes.

    Weights that are not shown are named, because the formulas below use their letters.
    """
    sizes = block.sizes
    n_heads, n_key_heads = sizes[HEADS], sizes[KEY_HEADS]
    facts = []
    for axis, (one, many) in _WORDS.items():
        size = sizes[axis]
        if axis == "query" and not sizes["key"]:  # rows that ask nothing: of a feed-forward
            one, many = _WORDS["token"]  # noqa: PLW2901
        if size > 1 or (size == 1 and axis not in ("batch", HEADS)):
            shared = axis == HEADS and n_key_heads not in (0, n_heads)
            on = f" on {n_key_heads} key head{'s' * (n_key_heads > 1)}" if shared else ""
            facts.append(f"{size} {one if size == 1 else many}{on}")
    facts += [f"{axis} {sizes[axis]}" for axis in _WIDTHS if sizes[axis]]
    whole = block.root.convention or block.convention
    convention = replace(block.convention, seed=whole.seed)  # from which that of a block is derived
    facts += [convention.dtype] if convention.dtype != "float64" else []
    changed = convention.changes()
    words = (
        write(value, convention, lambda x: short(float(x), 4))
        for name, value in changed.items()
        if (write := KNOBS[name].words) and KNOBS[name].has_effect(changed)
    )
    title, name = sentence(block.trace.title), sentence(block.prefix.removesuffix("."))
    notes = [sentence(note) for note in block.trace.notes]
    weights = [s for s in block.stages.values() if s.kind.role == "parameter"]
    if weights and not options.given:
        given = (f"{clean(s.symbol)} {' × '.join(map(str, s.value.shape))}" for s in weights)
        notes.append(f"parameters: {' · '.join(given)}")
    choices = tuple(filter(None, words))
    return Headline(f"{title} ({name})" if name else title, tuple(facts), choices, tuple(notes))


def _matrices(
    block: Block,
    stages: Sequence[Stage],
    axes_named: set[tuple[str, ...]],
    options: DisplayOptions,
    above: str,
) -> Iterator[Part]:
    """The matrices of these stages; what rows and columns are is named once for each kind."""
    if stages and above:
        yield Heading(above, is_whole=True)
    places, left_out = places_of(block, stages, options)
    heading = ""
    given = [s for s in stages if s.name in QKV and s.name not in block.numbers]
    pairs = ((s, x) for at, s in enumerate(given) for x in given[:at])  # such as K and Q: K = Q
    same = {s.name: x for s, x in pairs if np.array_equal(x.value, s.value)}
    for place in places:
        if place.heading and place.heading != heading:
            yield Heading(place.heading)
        heading, axes = place.heading, place.stage.axes[-2:]
        is_new = axes not in axes_named
        axes_named.add(axes)
        entries = entries_of(place.stage, block) if is_new else ()
        matrix = Matrix(block, place.stage, place.where, options, entries)
        if place.stage.name in same and not options.every:
            symbols = place.stage.symbol, same[place.stage.name].symbol
            matrix.formula = " = ".join(map(sentence, symbols))
            matrix.rows, matrix.facts, matrix.is_repeated = range(0), (), True
        yield matrix
        if options.work:
            from attncli.page.walk import softmax_tables

            yield from softmax_tables(matrix)
        if place.stage.kind.plotted and not matrix.is_blank:
            rows = slice(matrix.rows.start, matrix.rows.stop)
            points = matrix.values[rows, :2].astype(np.float64)
            yield Plot(tuple(place.stage.names(axes[0])[rows]), points)
    yield from [Remark(left_out)] if left_out else []


def entries_of(stage: Stage, block: Block | None = None) -> list[str]:
    """What the entries of its last axes are; those of x, and rows that ask nothing, are tokens.

    block  of which it is; None: an attention of several heads
    """
    what = [_ENTRIES.get(axis, axis) for axis in stage.axes[-2:] if axis]
    if stage.axes[-2:-1] == ("value",):  # of a sweep: its labels are scale 0.1, scale 0.2 …
        own = stage.label("value", 0).rpartition(" ")[0]
        what[0] = own if own == "d_k" else f"{own}s"
    asks = stage.name != "x" and (block is None or block.sizes["key"])
    if stage.axes[-2:-1] == ("query",) and not asks:
        what[0] = _ENTRIES["token"]
    if block is not None and block.n_heads <= 1:
        what = [words.removesuffix(" of all heads") for words in what]
    return what


# ---- heads and batch entries


def places_of(
    block: Block, stages: Sequence[Stage], options: DisplayOptions
) -> tuple[list[Place], str]:
    """The matrices of these stages in order, of many heads the first, and a line on the others."""
    found = list(_indices(block, stages, options, {}))
    indices = (tuple(index.items()) for index, _ in found if block.several & {*index})
    kept = list(dict.fromkeys(indices))
    hidden = set() if options.full or options.every else set(kept[MOST:])
    places = []
    shown_before: set[str] = set()
    for index, stage in found:
        if tuple(index.items()) in hidden:
            continue
        names = names_of(block, index) if index else {}
        words = [
            f"{name} of {block.sizes[axis]}" if block.sizes[axis] > 1 else name
            for axis, name in names.items()
        ]
        for axis, same in (("batch", "batch"), (HEADS, KEY_HEADS)):
            is_of_all = axis in shown_before and not {axis, same} & {*index}
            if is_of_all and block.sizes[axis] > 1:
                words.append(f"all {_FLAGS[axis][0]}")
        shown_before |= {*index}
        own = tuple(name for axis, name in names.items() if axis in index)
        places.append(Place(stage, index, " · ".join(words), own))
    if not hidden:
        return places, ""
    axes = {axis for index in hidden for axis, _ in index if block.sizes[axis] > 1}
    what, flags = zip(*(_FLAGS[axis] for axis in _FLAGS if axis in axes), strict=True)
    left_out = f"{len(hidden)} of {len(kept)} {' and '.join(what)}"
    return places, f"left out: {left_out} ({', '.join(dict.fromkeys(flags))} or --full)"


def _indices(
    block: Block, stages: Sequence[Stage], options: DisplayOptions, index: Index
) -> Iterator[tuple[Index, Stage]]:
    """Every stage at every index, the outermost axis first; key heads not shared are heads."""
    left = []  # of each stage: but for axes along which one number holds for all of the block's
    for stage in stages:
        axes = zip(stage.axes[:-2], stage.value.shape, strict=False)
        several = (axis for axis, size in axes if size > 1 or block.sizes[axis] <= 1)
        left.append([axis for axis in several if block.entry(axis, index) is None])
    shared = block.sizes[KEY_HEADS] != block.sizes[HEADS]
    outermost = [HEADS if a[:1] == [KEY_HEADS] and not shared else a[0] if a else "" for a in left]
    for axis, group in groupby(zip(outermost, stages, strict=True), key=itemgetter(0)):
        here = [stage for _, stage in group]
        if not axis:
            yield from ((index, stage) for stage in here)
            continue
        wanted = block.entry(axis, options.index)
        for entry in range(block.sizes[axis]) if wanted is None else (wanted,):
            yield from _indices(block, here, options, {**index, axis: entry})


def names_of(block: Block, index: Index) -> dict[str, str]:
    """What the entries of an index are called, and the key head that a head reads.

    Where there is but one, and it has no label, it has no name.
    """
    entries = dict(index)
    if HEADS in index and 1 < block.sizes[KEY_HEADS] != block.sizes[HEADS]:
        entries[KEY_HEADS] = block.key_head(index[HEADS])
    return {
        axis: shorten(block.owners[axis].label(axis, entry))
        for axis, entry in entries.items()
        if axis in block.several
    }
