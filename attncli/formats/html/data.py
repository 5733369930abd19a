"""What the script of a page computes from: every stage with its numbers and its formula.

    {"title": "…", "groups": [{"prefix": "attention.", …}], "labels": [["q1", "q2"], …],
     "stages": [{"id": "attention.scores", "group": 0, "shape": [3, 3], "float64": "AAAA…",
                 "rows": 3, "cols": 3, "names": [0, 1], "is": […], …}], …}

Numbers are the bytes of float64 in base64, so that none is rounded. A matrix that is only looked
at, as are those of the other heads of a large trace, is a byte a cell: the square root of its
share of the largest number.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.plan import Sizes, plan
from attncli.attention.run import Step
from attncli.files.write import plain_lists
from attncli.formats.html.copied import file_of
from attncli.formats.html.tree import bytes_of, formula, stage_tree
from attncli.formula.evaluate import sizes_of
from attncli.formula.expression import Shape
from attncli.formula.parser import parse
from attncli.page.select import BlankStage, Block, blocks_of
from attncli.page.sentences_of_gradients import rounding_of, sources_of_wishes, wishing
from attncli.page.text import clean, sentence, shorten
from attncli.stages import (
    GIVEN_GRADIENT,
    MASKED,
    OUTPUT,
    PARTS,
    SCORES,
    SPECS,
    WEIGHTS,
    gradient_of,
)
from attncli.trace import Stage, Trace
from attncli.words.tokens import is_padding

LABEL = 40  # cells of a label
PIXELS = 1_000_000  # of all pictures
EDGES = 24, 512  # rows or columns of one, at least and at most
BRIGHTEST = 254
_CALLED = {
    **{"q": "queries", "k": "keys", "v": "values", "x": "input", "gamma": "gain", "beta": "bias"},
    **dict.fromkeys(("w_q", "w_k", "w_v", "w_o", "w_1", "w_2", "b_1", "b_2"), ""),
}
_UNSHADED = ("tokens", "divisors", "deviation", "rms", "lengths", "lse", "angles")
"""Stages whose numbers are of another kind than scores and vectors: a shade would say nothing."""
_AS_NEVER = 1e4  # added to a score as −∞ is (−1e4, −1e9, the least of a type); a bias is smaller
_COLUMNS = ("query", "key", "token", "position")
"""Axes along which a vector is written as a column, beside the matrix whose rows they are."""


def packed(more: Mapping[str, Any], data: PageData) -> str:
    """The data as text of an element that no label can end."""
    whole = {**more, "labels": [*data.labels], "groups": data.groups, "stages": data.stages}
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


class PageData:
    """The data in the making; lists of labels are there once."""

    def __init__(self) -> None:
        self.labels: dict[tuple[str, ...], int] = {}
        self.groups: list[dict[str, Any]] = []
        self.stages: list[dict[str, Any]] = []

    def add(self, trace: Trace, *, has_formulas: bool = True, is_locked: bool = False) -> None:
        """Adds every stage of a trace; is_locked: without what only changes need."""
        blocks = {block.prefix: block for block in blocks_of(trace)}
        places = {prefix: at for at, prefix in enumerate(blocks)}
        # Those of a decoder and its encoder differ, and a call has one.
        has_one_mask = not any(prefix.startswith("decoder.") for prefix in blocks)
        has_file = not is_locked
        for block in blocks.values():
            has_mask = has_one_mask and block.trace.convention is not None  # not of own formulas
            group: dict[str, Any] = {"prefix": block.prefix, **_layer(block)}
            group |= {"tiled": "1"} if block.convention.head_order == "tiled" else {}
            self.groups.append(group)
            if has_formulas:
                roles = {x: n for x, n in _roles(block).items() if has_mask or x != "mask"}
                group |= {"attention": roles} if roles else {}
                wishes = _wishes(block) if roles and not is_locked else {}
                group |= {"wishes": wishes} if wishes else {}
                file = file_of(block) if has_file else {}
                group |= {"file": file} if file else {}
                added = self.masked(block) if has_mask and not is_locked else []
                group |= {"ifMasked": added} if added else {}
        for name, stage in trace.stages():
            if stage.name == "tokens" and len([*trace]) > 1:  # which labels say already
                continue
            block = blocks[name[: len(name) - len(stage.name)]]
            tree = stage_tree(block, block.stages[stage.name]) if has_formulas else {}
            entry = self.stage(block, stage) | {"group": places[block.prefix]}
            entry |= {"isFixed": 1} if stage.name == "mask" and not has_one_mask else {}
            self.stages.append(entry | self.numbers(stage) | tree)
        there = {stage["id"] for stage in self.stages}
        for entry in self.stages:
            if not there.issuperset(entry.get("reads", {}).values()):
                del entry["is"]

    def masked(self, block: Block) -> list[dict[str, Any]]:
        """The stages of a mask that may be added, and the formulas that others have with it."""
        changed = _if_masked(block)
        if not changed:
            return []
        scores, zeros = block.stages[SCORES], np.zeros(block.stages[SCORES].value.shape)
        masked = replace(scores, name=MASKED, symbol=SPECS[MASKED].symbol, value=zeros)
        words, heading = "0 = may attend, −∞ = may not", _heading(block, scores)
        plane, axes = zeros[(0,) * (zeros.ndim - 2)], scores.axes[-2:]
        mask = replace(masked, name="mask", symbol="M", formula=words, value=plane, axes=axes)
        new = {
            block.prefix + s.name: self.stage(block, s) | self.numbers(s) | {"heading": heading}
            for s in (mask, masked)
        }
        first = new.pop(f"{block.prefix}mask")
        return [first, *(new.get(step["id"], {}) | step for step in changed)]

    def add_pictures(self, trace: Trace, names: Sequence[str]) -> None:
        """Adds stages of which only a picture is shown, the coarser, the more of them there are."""
        n_maps = sum(math.prod(trace[name].value.shape[:-2]) for name in names)
        edge = min(max(int((PIXELS / max(1, n_maps)) ** 0.5), EDGES[0]), EDGES[1])
        for block in blocks_of(trace):
            self.groups.append({"prefix": block.prefix, **_layer(block)})
            for name in (n for n in block.stages if block.prefix + n in names):
                stage = block.stages[name]
                entry = self.stage(block, stage)
                self.stages.append(entry | picture(stage, edge) | {"id": f"{entry['id']}, all"})

    def stage(self, block: Block, stage: Stage) -> dict[str, Any]:
        """What is known of a stage beside its numbers: where it stands, and its names."""
        shape, kind = stage.value.shape, stage.kind
        n_lead = min(_n_lead(stage), max(0, len(shape) - 1))
        axes = stage.axes[n_lead:]
        vector = len(axes) < 2 and ("column" if axes and axes[0] in _COLUMNS else "row")
        names = [(*map(clean, stage.names(axis)),) if axis else () for axis in axes]
        labels = [tuple(shorten(x, LABEL) if x else '""' for x in each) for each in names]
        symbol = (clean(stage.symbol),)
        if vector:
            labels = [*labels, symbol] if vector == "column" else [symbol, *(labels or [symbol])]
        rows, columns = labels
        batches = shape[stage.axes.index("batch")] if "batch" in stage.axes[:n_lead] else 1
        between = {"row": ["", *axes, ""], "column": [*axes, ""]}.get(vector or "", axes)
        is_share = kind.shade == "share" and float(np.max(stage.value, initial=0)) <= 1
        is_input = kind.role not in ("step", "inner", "aside") or stage.formula.endswith("given")
        is_read = any(stage.name in other.reads.values() for other in block.stages.values())
        is_given = is_read and not (stage.formula or stage.reads or stage.expression)
        is_input = is_input or is_given or stage.name == "embeddings"
        finite = stage.value[np.isfinite(stage.value)] if stage.name == "mask" else np.zeros(0)
        is_bias = 0 < float(np.abs(finite).max(initial=0)) < _AS_NEVER
        is_plain = stage.value.dtype.kind not in "f" or (kind.role == "input" and not is_bias)
        shade = "share" if is_share else "" if is_plain or stage.name in _UNSHADED else "signed"
        has_dash = kind.undefined and not isinstance(stage, BlankStage)
        why = f"– {kind.undefined}" if has_dash and np.isnan(stage.value).any() else ""
        note = "; ".join(filter(None, [stage.note, why]))
        optional: dict[str, Any] = {
            "called": _CALLED.get(stage.name, stage.name),
            "note": sentence(note),
            "formula": sentence(stage.formula),
            "shade": shade,
            "vector": vector or "",
            "heading": _heading(block, stage),
            "sums": "rows" if kind.sums and block.convention.softmax_over == "keys" else "",
            "input": 1 if is_input else 0,
            "isBackward": 1 if kind.heading else 0,
            "unit": 1 if stage.symbol.startswith("cos") else 0,
            "quotes": [axis in stage.labels for axis in axes] if is_share else 0,
            "wide": [*map(is_width, between[:2])] if any(map(is_width, axes)) else 0,
            "isWork": 1 if kind.for_work else 0,
            "isParameter": 1 if kind.role == "parameter" else 0,
            "undefined": kind.undefined,
        }
        return {
            "id": clean(block.prefix + stage.name),
            "group": len(self.groups) - 1,
            "symbol": clean(stage.symbol),
            "axes": between[:2],
            "shape": shape,
            "batches": batches,
            "rows": len(rows),
            "cols": len(columns),
            "names": [self.list_of(rows), self.list_of(columns)],
            **{name: x for name, x in optional.items() if x or name == "called"},
        }

    def list_of(self, names: tuple[str, ...]) -> int:
        """Which list of labels begins with these names: of words that of all, padding included."""
        for labels, at in self.labels.items():
            if labels[: len(names)] == names and all(map(is_padding, labels[len(names) :])):
                return at
        return self.labels.setdefault(names, len(self.labels))

    def numbers(self, stage: Stage) -> dict[str, Any]:
        """The numbers of a stage, or its words; none where they are left out."""
        if isinstance(stage, BlankStage):
            return {"blank": 1}
        if stage.value.dtype.kind not in "biuf":
            return {"words": [shorten(str(x), LABEL) for x in stage.value.ravel().tolist()]}
        kind = {} if stage.value.dtype.kind == "f" else {"whole": 1}
        return {"float64": bytes_of(stage.value), **kind}


def _heading(block: Block, stage: Stage) -> str:
    """What the part of the page is called in which a stage stands."""
    names = [*block.stages]
    if stage.kind.heading or not _roles(block) or stage.name not in names:
        return stage.kind.heading or sentence(block.trace.title)
    if names.index(stage.name) < names.index(SCORES):
        return "Where queries, keys and values come from"
    is_within = names.index(stage.name) <= names.index(OUTPUT)
    return "Attention: each row is one query" if is_within else "The heads together"


def _layer(block: Block) -> dict[str, str]:
    """The layer of a block; a tile has a number too, but is none."""
    is_layer = block.layer and block.prefix.split(".")[0] not in PARTS
    return {"layer": block.layer} if is_layer else {}


def _roles(block: Block) -> dict[str, str]:
    """Which stages of a block are those of an attention, by their dotted names."""
    weights = block.weights
    names = {name: name for name in ("q", "k", "v", SCORES, OUTPUT, "mask") if name in block.stages}
    if weights is None or not {SCORES, OUTPUT} <= names.keys():
        return {}
    return {
        name: block.prefix + stage_name
        for name, stage_name in (names | {WEIGHTS: weights.name}).items()
    }


def _wishes(block: Block) -> dict[str, Any]:
    """The stages that sentences on gradients read, and what of them is no more than rounding."""
    scores = wishing(block)
    if scores is None:
        return {}
    names = zip(("gradient", "offers", "weights"), sources_of_wishes(block), strict=True)
    ids = {name: block.prefix + stage.name for name, stage in names if stage}
    within = rounding_of(block)
    return {"scores": block.prefix + scores.name, **ids, "within": within}


def is_width(axis: str) -> bool:
    """Whether the columns along an axis are those of vectors: neither words nor positions."""
    return axis == "dimension" or axis.rpartition("·")[2].startswith("d_")


def _n_lead(stage: Stage) -> int:
    """How many axes come before the matrix: batch entries and heads."""
    n_lead = 0
    while n_lead < len(stage.axes) and stage.axes[n_lead] in ("batch", "head", "kv_head"):
        n_lead += 1
    n_lead = n_lead if stage.axes[n_lead:] else 0
    return max(n_lead, len(stage.axes) - 2)


def picture(stage: Stage, edge: int) -> dict[str, Any]:
    """A stage of shares as bytes; of more rows or columns than the edge means of neighbours."""
    values: Array = np.asarray(stage.value, float)
    for axis in (-2, -1):
        if (size := values.shape[axis]) > edge:
            starts = np.linspace(0, size, edge, endpoint=False).astype(int)
            counts = np.diff([*starts, size]).reshape([-1, 1] if axis == -2 else [-1])
            values = np.add.reduceat(values, starts, axis=axis) / counts
    pixels = np.rint(np.sqrt(np.clip(np.nan_to_num(values), 0, 1)) * BRIGHTEST)
    data = pixels.astype(np.uint8)
    fields = {"shape": values.shape, "rows": values.shape[-2], "cols": values.shape[-1]}
    return {**fields, "bytes": b64encode(data.tobytes()).decode()}


# ---- a mask that is added on the page


def _if_masked(block: Block) -> list[dict[str, Any]]:
    """What the formulas of an attention without a mask are with one, to be added on the page.

    They are those of attncli's own plan with a mask, so cap, dropout, sinks and gradients stay in
    the order of the convention. Nothing where there is a mask, or where it would take more stages
    than the masked scores.
    """
    stages, convention = block.stages, block.convention
    needed = {SCORES, WEIGHTS, OUTPUT, "q", "k", "v"}
    if not needed <= stages.keys() or block.mask is not None or convention.softmax_over != "keys":
        return []
    shapes = {name: stage.value.shape for name, stage in stages.items()}
    n_kv = shapes["k"][-3] if len(shapes["k"]) > 2 else 1
    sizes = Sizes(shapes[SCORES], n_kv, shapes["q"][-1])
    inputs = {"q", "k", "v", *({"sinks", "q_gain", "k_gain"} & stages.keys())}
    if any(stage.kind.heading for stage in stages.values()):
        inputs.add(GIVEN_GRADIENT)
    steps = [*plan(replace(convention, causal=True), sizes._replace(inputs=frozenset(inputs)))]
    old = next((n for n, stage in stages.items() if "delta" in stage.reads), "")
    new = next((step.name for step in steps if "delta" in step.reads), "")
    shapes["mask"], shapes[MASKED] = shapes[SCORES][-2:], shapes[SCORES]
    steps = [step for step in steps if step.name not in ("mask", "kept", "lse", *inputs)]
    present = {*shapes, GIVEN_GRADIENT, "kept", new}
    if any(step.name not in present for step in steps if step.name != gradient_of(OUTPUT)):
        return []

    def name_of(name: str) -> str:
        name = gradient_of(OUTPUT) if name == GIVEN_GRADIENT else name
        return old if name == new and new else name

    return [*_changed(block, steps, shapes, name_of)]


def _changed(
    block: Block, steps: Sequence[Step], shapes: dict[str, Shape], name_of: Callable[[str], str]
) -> Iterator[dict[str, Any]]:
    """Those of the steps that are not what the trace has, as the page adds them."""
    for step in steps:
        name = name_of(step.name)
        stage = block.stages.get(name)
        reads = {p: name_of(n) for p, n in step.reads.items() if p != "kept"}
        is_same = stage and (stage.expression, dict(stage.reads)) == (step.expression, reads)
        if name not in shapes or not step.expression or is_same:
            continue
        line = parse(step.expression)
        read_shapes = {p: shapes[n] for p, n in reads.items()} | {"mask": shapes["mask"]}
        sizes = sizes_of(line, shapes[name], read_shapes, step.sizes)
        reads |= {"mask": "mask"} if "mask[" in step.expression else {}
        params = {p: x for p, x in step.params.items() if isinstance(x, int | float)}
        yield {
            "id": block.prefix + name,
            "formula": step.formula,
            **formula(line, sizes),
            "reads": {p: block.prefix + n for p, n in reads.items()},
            "params": {p: plain_lists(np.asarray(float(x))) for p, x in params.items()},
        }
