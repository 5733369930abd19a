"""A program in the place of an attention: of a sentence that is explained, or in a layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from attncli.attention.kernels import draw_kept
from attncli.attention.layers import Alter
from attncli.attention.run import Step, Values
from attncli.convention import DType
from attncli.errors import ShapeError
from attncli.expression import Shape
from attncli.programs.read import read
from attncli.programs.text import replaced
from attncli.programs.written import written
from attncli.stages import OUTPUT, QKV


def replacing(source: tuple[str, str] | None, lines: Sequence[str], dtype: DType) -> Alter:
    """What puts the stages of a program in the place of those of an attention.

    source  the text of a program and what messages call it; None: that of the attention itself
    lines   other lines for some of its stages

    -> a function of the steps and of what they read (of q, k and v only the shapes count), to the
    steps with those of the program from the scores to the output, and the shapes of all of these
    """

    def alter(steps: list[Step], given: Values) -> tuple[list[Step], Mapping[str, Shape]]:
        names = [step.name for step in steps]
        first = max((at + 1 for at, name in enumerate(names) if name in QKV), default=0)
        last = names.index(OUTPUT) + 1
        text, origin = source or ("", "the formulas")
        (*lead, n_q, _), d_v = given["q"].shape, given["v"].shape[-1]
        if source is None:
            text = written(steps[first:last], given)
        drawn = [step for step in steps if step.function is draw_kept]
        kept = {step.name: np.broadcast_to(True, step.params["shape"]) for step in drawn}
        program = read(replaced(text, lines), {**given, **kept}, origin, dtype)
        own = [*(steps[:first] if {*program.inputs} & {*QKV} else []), *drawn, *program.steps]
        end, shape = own[-1].name, program.shapes[own[-1].name]
        if shape == (*lead, n_q, d_v):
            after = (s._replace(reads=_renamed(s.reads, end)) for s in steps[last:])
            return [*own, *after], program.shapes
        if shape != (n_q, np.prod(lead, dtype=int) * d_v) and len(shape) != 2:
            what = f"{end} is {' × '.join(map(str, shape))}, and should be the output of the heads"
            raise ShapeError(what, f"{' × '.join(map(str, (*lead, n_q, d_v)))}, or rows of tokens")
        return own, program.shapes

    return alter


def _renamed(reads: Mapping[str, str], end: str) -> dict[str, str]:
    return {own: end if name == OUTPUT else name for own, name in reads.items()}
