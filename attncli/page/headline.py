"""What stands above: the title of a block with its sizes, and what the rows and columns are."""

from __future__ import annotations

from dataclasses import replace

from attncli.convention import KNOBS
from attncli.page.numbers import short
from attncli.page.options import HEADS, KEY_HEADS, DisplayOptions
from attncli.page.parts import Headline
from attncli.page.select import Block, blocks_of
from attncli.page.text import clean, sentence
from attncli.trace import Stage

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


def headline(block: Block, options: DisplayOptions) -> Headline:
    """The title of a block, its sizes, its convention where it is not the default, its notes.

    Weights that are not shown are named, because the formulas below use their letters.
    """
    sizes = block.sizes
    n_heads, n_key_heads = sizes[HEADS], sizes[KEY_HEADS]
    facts = []
    for axis, (singular, many) in _WORDS.items():
        size = sizes[axis]
        if axis == "query" and not sizes["key"]:  # rows that ask nothing: of a feed-forward
            singular, many = _WORDS["token"]  # noqa: PLW2901
        if size > 1 or (size == 1 and axis not in ("batch", HEADS)):
            shared = axis == HEADS and n_key_heads not in (0, n_heads)
            on = f" on {n_key_heads} key head{'s' * (n_key_heads > 1)}" if shared else ""
            facts.append(f"{size} {singular if size == 1 else many}{on}")
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
    names = {block.prefix + stage.name for stage in weights}
    is_named = not options.stages or bool(names & {*options.stages})
    if weights and not (options.given or (options.work and is_named)):
        shapes = (f"{clean(s.symbol)} {' × '.join(map(str, s.value.shape))}" for s in weights)
        notes.append(f"parameters: {' · '.join(shapes)}")
    choices = tuple(filter(None, words))
    titles = [] if "." in name or not name else [x.trace.title for x in blocks_of(block.root)]
    if "." in name or titles.count(block.trace.title) > 1:  # of a layer, or of two that are alike
        title = f"{title} ({name})"
    return Headline(title, tuple(facts), choices, tuple(notes))


def entries_of(stage: Stage, block: Block | None = None) -> list[str]:
    """What the entries of its last axes are; those of x, and rows that ask nothing, are tokens.

    block  of which it is; None: an attention of several heads
    """
    plurals = [_ENTRIES.get(axis, axis) for axis in stage.axes[-2:] if axis]
    if stage.axes[-2:-1] == ("value",):  # of a sweep: its labels are scale 0.1, scale 0.2 …
        field = stage.label("value", 0).rpartition(" ")[0]
        plurals[0] = field if field == "d_k" else f"{field}s"
    if stage.axes[-1:] == ("other",):  # each beside every other
        plurals[-1] = plurals[0]
    asks = stage.name != "x" and (block is None or block.sizes["key"])
    if stage.axes[-2:-1] == ("query",) and not asks:
        plurals[0] = _ENTRIES["token"]
    if block is not None and block.n_heads <= 1:
        plurals = [words.removesuffix(" of all heads") for words in plurals]
    return plurals
