"""The formulas that an attention without a mask has with one: a page adds it when it is asked to.

They are those of attncli's own plan with a mask, so cap, dropout, sinks and gradients stay in the
order of the convention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attncli.attention.plan import Sizes, plan
from attncli.attention.run import Step
from attncli.files.write import plain_lists
from attncli.formats.html.tree import formula
from attncli.formula.evaluate import sizes_of
from attncli.formula.expression import Shape
from attncli.formula.parser import parse
from attncli.page.select import Block
from attncli.stages import GIVEN_GRADIENT, MASKED, OUTPUT, SCORES, WEIGHTS, gradient_of


def if_masked(block: Block) -> list[dict[str, Any]]:
    """What the formulas of an attention without a mask are with one, to be added on the page.

    Nothing where there is a mask, or where it would take more stages than the masked scores.
    """
    stages, convention = block.stages, block.convention
    needed = {SCORES, WEIGHTS, OUTPUT, "q", "k", "v"}
    if not needed <= stages.keys() or block.mask is not None or convention.softmax_over != "keys":
        return []
    shapes = {name: stage.value.shape for name, stage in stages.items()}
    n_kv = shapes["k"][-3] if len(shapes["k"]) > 2 else 1
    sizes = Sizes(shapes[SCORES], n_kv, shapes["q"][-1])
    inputs = {"q", "k", "v", *({"sinks"} & stages.keys())}
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
