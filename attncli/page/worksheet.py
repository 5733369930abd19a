"""A worksheet: a trace without the numbers that were computed, for every page and format.

The numbers are gone, not covered: in their place is NaN, so nothing that is made of the trace can
tell them. What is shown of such a stage has room to write instead, and so have the numbers of any
line of arithmetic that it takes part in. Its notes are a line for a name, the call that gives the
same numbers, and how many decimals to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from attncli.arrays import Array
from attncli.convention import Convention, flag_of
from attncli.page.select import BlankStage, is_computed, named_stages
from attncli.recorded import CallOption
from attncli.stages import MASKED
from attncli.trace import Stage, Trace

LOOKED_UP = ("tokens", "embeddings", "vectors")
"""Stages that nobody could compute: what a sentence is split into, and the vectors of its words."""
NAME_LINE = f"Name: {'_' * 32}"
"""Where whoever fills it in writes a name."""
DECIMALS = 2
"""So many a rounded number has at least, as `check --by-hand` expects of a sheet."""
LONGEST = 300
"""Characters of a call that is printed: more are its numbers, which stand on the sheet."""


def without_numbers(trace: Trace, names_wanted: Sequence[str], decimals: int = DECIMALS) -> Trace:
    """The trace without the numbers of these stages; of none, without all that were computed.

    decimals  of the numbers to be written, in a note

    Notes of a block that lost a stage go too, for they may tell a result.
    Raises StageError for a stage that is not there.
    """
    names = {name for each in names_wanted for name in named_stages(trace, each)}
    if not names_wanted:
        stages = (stage for _, stage in trace.stages() if is_computed(stage))
        tasks = {id(s) for s in stages if s.expression or s.reads or not s.kind.heading}
        names = {name for name, stage in trace.stages() if id(stage) in tasks}
        names = {name for name in names if name.rpartition(".")[2] not in LOOKED_UP}
    sheet = _without(trace, names, "")
    return replace(sheet, notes=(NAME_LINE, *call_lines(trace), rule_of(decimals), *sheet.notes))


def rule_of(decimals: int) -> str:
    """How the numbers of a worksheet are to be written."""
    return f"Where a number has to be rounded, write at least {decimals} decimals."


def call_lines(trace: Trace) -> list[str]:
    """The call that gives the numbers of a trace, with the seed of those that were drawn; none
    where it is not known, is too long, or is of arrays in Python."""
    call = trace.call
    if call is None or (call.is_python and not call.is_complete):
        return []
    if call.get("random") and not call.get("seed"):
        seed = CallOption("seed", (flag_of("seed"), str(Convention.seed)))
        call = replace(call, options=(*call.options, seed))
    return [text] if len(text := str(call)) <= LONGEST else []


def _without(trace: Trace, names: set[str], prefix: str) -> Trace:
    steps: list[Stage | Trace] = []
    for step in trace.steps:
        if isinstance(step, Trace):
            steps.append(_without(step, names, f"{prefix}{step.name}."))
        else:
            steps.append(blank_stage(step) if prefix + step.name in names else step)
    is_whole = not any(isinstance(step, BlankStage) for step in steps)
    return replace(trace, steps=tuple(steps), notes=trace.notes if is_whole else ())


def blank_stage(stage: Stage) -> BlankStage:
    """The stage without its numbers: NaN, but for −inf where a mask says so."""
    values: Array = np.broadcast_to(np.nan, stage.value.shape)  # takes no memory
    if stage.name == MASKED:  # what the mask says is no result
        values = np.where(np.isneginf(stage.value), stage.value, np.nan)
    values_of_fields = {
        field.name: getattr(stage, field.name) for field in fields(stage) if field.init
    }
    return BlankStage(**{**values_of_fields, "value": values})
