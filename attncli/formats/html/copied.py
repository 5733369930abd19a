"""What a page copies as JSON: a file from which `attncli compute --q FILE` gives its numbers again.

    {"inputs": {"x": "input", "w_q": "attention.w_q", …}, "shapes": {"w_q": [8, 2, 4], …},
     "constants": {"softcap": 2.0}, "labels": {"tokens": ["attention.scores", "rowNames"]}, …}

The numbers, the mask and the parameters are those of the page when it is copied; what is said here
is which of its tables they are, by the names that a file has for them, and what else the file says.
"""

from __future__ import annotations

from typing import Any

from attncli.files.write import plain_lists
from attncli.formats.html.command import FLAGS
from attncli.page.options import HEADS, KEY_HEADS
from attncli.page.select import Block
from attncli.page.sources import dotted
from attncli.stages import PARTS, QKV, SCORES
from attncli.trace import Stage

_OF_HEADS = tuple(f"{kind}_{name}" for kind in "wb" for name in QKV)
_GRADIENTS = ("d_projected", "d_concat", "d_output")
"""What flows back into an attention, from its last stage to its first: the first there is given."""


def file_of(block: Block) -> dict[str, Any]:
    """The file of one attention; empty where its block is none, or is computed by own formulas.

    inputs     name in the file → stage: q, k and v, or x and the weights where they follow from it
    shapes     of weights and biases of several heads: [d, heads, d_head] or [heads, d_head]
    flags      parameters of the page → fields of the file
    constants  what the file says beside its arrays: the convention, and what was cached
    labels     name in the file → the stage whose rows or columns it names
    """
    is_own = block.trace.convention is None
    if is_own or block.prefix.split(".")[0] in PARTS or not {*QKV} <= block.stages.keys():
        return {}
    inputs = _of_x(block) or {name: block.prefix + name for name in QKV}
    shapes = {name: shape for name in inputs if (shape := _shape(block, name))}
    may_be = ("sinks", "q_gain", "k_gain", *_GRADIENTS)
    more = [name for name in may_be if _is_given(block.stages.get(name))]
    inputs |= {"d_output" if n in _GRADIENTS else n: block.prefix + n for n in more}
    says = dict(block.convention.without_mask_fields().changes())
    for name in "kv" if "x" in inputs else "":
        stage = block.stages[name]
        if n_cached := stage.params.get("n_cached"):
            says[f"past_{name}"] = plain_lists(stage.value[..., :n_cached, :])
    scores = block.stages.get(SCORES)
    labels = {}
    if scores is not None and {"query", "key"} & scores.labels.keys():
        sides = {"query_tokens": "rowNames", "key_tokens": "colNames"}
        if scores.names("query") == scores.names("key"):
            sides = {"tokens": "rowNames"}
        labels = {name: (block.prefix + SCORES, side) for name, side in sides.items()}
    fields = {"inputs": inputs, "shapes": shapes, "flags": FLAGS}
    return {**fields, "constants": says, "labels": labels}


def _of_x(block: Block) -> dict[str, str]:
    """x and the weights, where q, k and v are nothing but their projections."""
    inputs: dict[str, str | None] = {}
    sources: list[str | None] = []
    for name in QKV:
        stage = block.stages[name]
        if not {"x", "w"} <= stage.reads.keys() <= {"x", "w", "b", "past"}:
            return {}
        sources.append(_name(block, stage, "x"))
        inputs |= {f"{p}_{name}": _name(block, stage, p) for p in "wb" if p in stage.reads}
    if last := block.stages.get("projected"):
        inputs |= {f"{p}_o": _name(block, last, p) for p in "wb" if p in last.reads}
    x, x_kv, x_v = sources
    others = ({"x_kv": x_kv} if x_kv != x else {}) | ({"x_v": x_v} if x_v != x_kv else {})
    roles = {"x": x} | others | inputs
    return {} if None in roles.values() else {name: str(x) for name, x in roles.items()}


def _name(block: Block, stage: Stage, parameter: str) -> str | None:
    """The dotted name of what a stage reads; None where the trace does not hold it."""
    read = block.read(stage, parameter)
    return dotted(block, stage, parameter, read) if read else None


def _shape(block: Block, name: str) -> list[int]:
    """The shape in which a weight or bias of q, k or v tells its heads apart; empty for others."""
    if name not in _OF_HEADS:
        return []
    stage, weights = block.stages[name[-1]], block.root[block.prefix + name]
    axes = [axis for axis in (HEADS, KEY_HEADS) if axis in stage.axes]
    n_heads = stage.value.shape[stage.axes.index(axes[0])] if axes else 1
    *before, wide = weights.value.shape
    return [*before, n_heads, wide // n_heads] if n_heads > 1 else []


def _is_given(stage: Stage | None) -> bool:
    return stage is not None and not stage.expression and not stage.reads
