"""What a stage reads: stages by their dotted names, and arrays that no stage of the trace holds."""

from __future__ import annotations

from attncli.arrays import Array, BoolArray
from attncli.formula.evaluate import Values
from attncli.formula.kernels import draw_kept
from attncli.page.select import Block
from attncli.trace import Stage


def dotted(block: Block, stage: Stage, parameter: str, source: Stage) -> str | None:
    """The dotted name of what a stage reads."""
    name = stage.reads.get(parameter, parameter)
    if name in block.stages and block.stages[name] is source:
        return block.prefix + name
    return name if name in block.root else None


def array_aside(block: Block, stage: Stage, name: str, values: Values) -> Array | None:
    """An array that a formula reads and no stage holds; None where the trace does not have it.

    Of a row it is its position, of a weight whether dropout kept it, of keys and values the cache.
    """
    if name == "kept":
        return kept(block, stage)
    if name == "past" and "n_cached" in stage.params:
        cached: Array = stage.value[..., : stage.params["n_cached"], :]
        return cached
    return values.arrays.get(name)


def kept(block: Block, stage: Stage) -> BoolArray | None:
    """Which numbers a dropout kept, of it or of its gradient; None where the trace has none."""
    for dropped in (x for x in block.stages.values() if "kept[" in x.expression):
        x, p = block.read(dropped, "x"), dropped.params.get("p")
        if x is None or not dropped.value.shape == x.value.shape == stage.value.shape:
            continue
        mask = dropped.value != 0
        drawn = draw_kept(mask.shape, float(p or 0), block.convention.seed)
        is_drawn = bool((drawn == mask)[x.value != 0].all())
        return drawn if is_drawn else mask | (x.value == 0)
    return None
