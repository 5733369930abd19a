"""A worksheet as a file to be filled in, which `attncli check --by-hand` marks: JSON, or tables.

JSON holds what the attention is computed from, and its convention, under the names that a file has
for them (see html/copied.py), and each stage that is left out with null in place of its numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.convention import KNOBS, flag_text
from attncli.errors import ConventionError
from attncli.files.numbers import nan_to_text
from attncli.formats.html.copied import file_of
from attncli.page.options import DisplayOptions
from attncli.page.select import BlankStage, Block, blocks_of
from attncli.page.worksheet import NAME_LINE
from attncli.stages import MAPS, OUTPUT, QKV
from attncli.trace import Trace

ANSWERED = (*QKV, *MAPS, OUTPUT)
"""The stages that are marked: of x and weights q, k and v, too."""
GRADIENT = "d_output"
_OTHERS = "use html, markdown, latex or table"


def answer_sheet(trace: Trace, options: DisplayOptions) -> dict[str, Any]:
    """The worksheet as a document; ConventionError where it is not that of one whole attention.

    trace  without the numbers that are to be computed
    """
    if options.index or {*options.rows, *options.cols} != {None}:
        raise ConventionError("a worksheet as JSON is whole", "leave out --head, --rows and --cols")
    answers = {block: _answers(block, options) for block in blocks_of(trace)}
    blocks = [block for block, stages in answers.items() if stages]
    file = file_of(blocks[0]) if len(blocks) == 1 else {}
    inputs = {name: trace[stage] for name, stage in file.get("inputs", {}).items()}
    inputs.pop(GRADIENT, None)
    if not inputs:
        message = "as JSON there are worksheets of attention alone, by the formulas of attncli"
        if len(blocks) > 1:
            message = f"a worksheet as JSON is of one attention, and {len(blocks)} are here"
        raise ConventionError(message, _OTHERS)
    for stage in inputs.values():
        if isinstance(stage, BlankStage):
            message = (
                f"as JSON a worksheet has the numbers of {stage.name}, which --blank leaves out"
            )
            raise ConventionError(message, f"name what to leave out: --blank scores, or {_OTHERS}")
    block, shapes = blocks[0], file["shapes"]
    labels = {
        name: [*trace[stage].names(trace[stage].axes[-2 if side == "rowNames" else -1])]
        for name, (stage, side) in file["labels"].items()
    }
    return {
        "title": trace.title,
        "name": "",
        "notes": [note for note in trace.notes if note != NAME_LINE],
        **labels,
        **{
            name: _cells(x.value.reshape(shapes.get(name, x.value.shape)))
            for name, x in inputs.items()
        },
        **nan_to_text(file["constants"]),
        **_mask(block),
        **answers[block],
    }


def answer_tables(trace: Trace) -> Trace:
    """The worksheet without the stages that are not marked, for a form that holds tables alone;
    ConventionError where these do not say all that it is computed from."""
    is_of_qkv = all(name in trace and not isinstance(trace[name], BlankStage) for name in QKV)
    if trace.convention is None or not is_of_qkv:
        message = "a worksheet of tables alone is of queries, keys and values"
        raise ConventionError(message, f"use json, or {_OTHERS.removeprefix('use ')}")
    changes = trace.convention.without_mask_fields().changes()
    for name in (name for name in changes if KNOBS[name].has_effect(changes)):
        raise ConventionError(f"tables cannot say {flag_text(name, changes[name])}", "use json")
    return trace.keep(
        {n for n, x in trace.stages() if n in ANSWERED or not isinstance(x, BlankStage)}
    )


def _answers(block: Block, options: DisplayOptions) -> dict[str, Array]:
    """The stages to be filled in: null, but for −∞ where the mask says so."""
    return {
        name: _cells(stage.value)
        for name, stage in block.stages.items()
        if isinstance(stage, BlankStage) and name in ANSWERED
        if not options.stages or {name, block.prefix + name} & {*options.stages}
    }


def _mask(block: Block) -> dict[str, Any]:
    """What restricts the attention: causal, true where a query may attend, or what is added."""
    if block.mask is None:
        return {}
    mask = block.mask.value
    n_q, n_k = mask.shape[-2:]
    if np.isin(mask, (0, -np.inf)).all():
        is_causal = mask.size == n_q * n_k and n_q == n_k and (mask == 0).reshape(n_q, n_k)
        if np.array_equal(is_causal, np.tri(n_q, n_k, dtype=bool)):
            return {"causal": True}
        return {"mask": mask == 0}
    return {"mask": _cells(mask), "mask_means": "add"}


def _cells(values: Array) -> Array:
    """Numbers as JSON has them: whole ones without a point, none for NaN."""
    cells = np.empty(values.shape, dtype=object)
    for at, x in np.ndenumerate(values):
        if np.isnan(x):
            cells[at] = None
        else:
            cells[at] = int(x) if np.isfinite(x) and x == np.round(x) else nan_to_text(float(x))
    return cells
