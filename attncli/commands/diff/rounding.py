"""What rounding explains: how far apart the numbers of one stage may be in two right results.

Where q, k and v are the same in both, but for rounding on entry, it is what `check` allows on these
inputs: the root mean square of a head's errors, and of a row's, against the noise of a right
implementation. Else it is a few units in the last place of the root mean square of its head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np

from attncli.arrays import Array
from attncli.attention.heads import four_axes
from attncli.convention import Convention, DType
from attncli.errors import AttncliError, StageError
from attncli.formula.kernels import round_to
from attncli.stages import BEFORE_SOFTMAX, MAPS, OUTPUT, QKV, SCORES, WEIGHTS, gradient_of, spec_of
from attncli.tolerance.comparison import compared
from attncli.tolerance.decimals import rounded_to
from attncli.tolerance.number_types import EPS, SMALL, fitting_type, narrower, row_rms, sizes
from attncli.tolerance.rule import Rule, StageErrors, rms
from attncli.tolerance.run import all_of
from attncli.tolerance.setup import Setup, setup_of
from attncli.trace import Stage, Trace

_INSIDE: dict[str, tuple[DType, ...]] = {
    "float32": ("float32",),
    "tf32": ("float16",),  # which has 10 bits after the point too
    "bfloat16": ("bfloat16",),
    "float16": ("float16",),
}
Pairs = Mapping[str, tuple[Stage, Stage]]

UNITS: dict[DType, float] = {"float64": 8.0, "float32": 8.0, "float16": 4.0, "bfloat16": 4.0}
"""Where a stage's inputs are not the same in both, a head may be off by so many units in the last
place of its root mean square, times check's factor of 1.5. In encoders of 12 layers, each of which
reads what the one before has rounded, heads are off by up to 6.8 in float32 and 4.6 in 16 bits."""

FEW_DECIMALS = 5
"""Numbers with no more were rounded by a print; those with 6 to 8 may be float32 written out."""


def is_given(a: Stage, b: Stage) -> bool:
    """Whether a stage went into the computation, in both."""
    role = a.kind.role
    return role in ("input", "parameter") or (role == "operand" and not (a.formula and b.formula))


def rule_as_printed(rule: Rule, *values: Array) -> Rule:
    """Half a unit of the last decimal, where one of two has few decimals and the other more."""
    if rule.kind != "noise" or all(_are_long(x) for x in values):
        return rule
    decimals = [np.inf if _are_long(x) else rounded_to([x]) or np.inf for x in values]
    fewest = min(decimals)
    if fewest > FEW_DECIMALS or decimals[0] == decimals[1]:
        return rule
    return replace(rule, kind="decimals", decimals=int(fewest))


def _are_long(x: Array) -> bool:
    """Whether some numbers of an array have more decimals, so that not all need be looked at."""
    some = _some(x)
    return bool((np.round(some, FEW_DECIMALS) != some).any())


def _some(x: Array) -> Array:
    """About a thousand finite numbers of an array, from all over it."""
    some = x.reshape(-1)[:: max(x.size // 1000, 1)]
    return some[np.isfinite(some)]


def in_four(x: Array) -> Array:
    """[batch, head, row, last] in float64; of more axes the first ones are one."""
    x = x.astype(np.float64, copy=False)
    return x.reshape(-1, *x.shape[-3:]) if x.ndim > 4 else four_axes(np.atleast_1d(x))


def dtype_of(pairs: Iterable[tuple[Stage, Stage]], traces: Sequence[Trace]) -> DType:
    """The narrowest number type of what was computed: as it says, or as its numbers fit."""
    types = [trace.convention.dtype for trace in traces if trace.convention]
    types += [_type_of(x) for pair in pairs if not is_given(*pair) for x in pair]
    return narrower("float64", *types)


def _type_of(stage: Stage) -> DType:
    """The type of a stage's numbers, or that from which they were widened."""
    x, types = stage.value, {np.dtype("float16"): "float16", np.dtype("float32"): "float32"}
    if x.dtype.kind != "f":
        return "float64"
    dtype = cast("DType", types.get(x.dtype, "float64"))
    some = _some(x).astype(np.float64)
    if some.size < x.size and fitting_type(some, dtype) == dtype and some.any():
        return dtype
    return fitting_type(x.astype(np.float64, copy=False), dtype)


class Noise:
    """How far two right results of a stage may be apart."""

    def __init__(self, a: Trace, b: Trace, pairs: Pairs, rule: Rule) -> None:
        self.traces, self.pairs, self.rule = (a, b), pairs, rule
        self.stages = dict(a.stages())
        self.setups: dict[str, Setup | None] = {}

    def put_in(self, name: str, errors: StageErrors) -> StageErrors:
        """The errors of the stage of this dotted name beside their noise."""
        prefix, _, last = name.rpartition(".")
        is_forward, pair = last in (*MAPS, OUTPUT), self.pairs[name]
        if is_forward and prefix not in self.setups:
            self.setups[prefix] = self._setup(prefix)
        setup = self.setups.get(prefix) if is_forward else None
        if setup is not None and pair[0].name == pair[1].name == last:
            width = setup.inputs["v"].shape[-1] if last == OUTPUT else setup.shape[3]
            if errors.expected.shape == (*setup.shape[:3], width):
                return self._of_inputs(last, setup, errors)
        kind = narrower(self.rule.dtype, *_INSIDE.get(self.rule.inside or "", ()))
        rows = row_rms(sizes(errors.expected))
        heads = row_rms(rows)[..., None]  # small rows, such as of scores, are sums that cancel
        rows = np.maximum(np.maximum(rows, heads), self._beside(name))
        return replace(errors, noise=UNITS[kind] * EPS[kind] * rows)

    def _of_inputs(self, name: str, setup: Setup, errors: StageErrors) -> StageErrors:
        """The errors beside the noise that check finds for these inputs."""
        subset = all_of(setup.shape)
        result = compared(setup, subset, {name: errors.observed}, self.rule)[name]
        result = replace(result, expected=errors.expected)
        if self.rule.dtype not in SMALL or result.noise is None:
            return result
        if fitting_type(errors.expected, "float64") != self.rule.dtype:
            return result
        # two results that are off, not one of them beside the exact numbers
        return replace(result, noise=np.sqrt(2) * result.noise)

    def _beside(self, name: str) -> float:
        """The size of the numbers next to which those of a stage may be as good as 0.

        Of scores that is the length of a query times that of a key, of a mean what it is of, of
        what softmax's gradient goes into that of the weights, from which their mean is taken.
        """
        prefix, dot, last = name.rpartition(".")
        stage = self.pairs[name][0]
        q, k, scores = (self.stages.get(prefix + dot + n) for n in ("q", "k", SCORES))
        if last in BEFORE_SOFTMAX and q and k and scores:
            scale = _size(stage) / max(_size(scores), 1e-300)
            return float(q.value.shape[-1]) * _size(q) * _size(k) * scale
        d_weights = self.stages.get(prefix + dot + gradient_of(WEIGHTS))
        factors: dict[str, Stage | None] = dict.fromkeys(map(gradient_of, BEFORE_SOFTMAX))
        factors |= {gradient_of("q"): k, gradient_of("k"): q}
        if last in factors and d_weights:
            factor = factors[last]
            return _size(d_weights) * (_size(factor) if factor else 1.0)
        read = stage.reads.get(spec_of(last).beside or stage.kind.beside, "")
        beside = self.stages.get(prefix + dot + read) or self.stages.get(read)
        return _size(beside) if beside else 0.0

    def _setup(self, prefix: str) -> Setup | None:
        """What an attention was computed from, where q, k and v are the same in both."""
        dot = f"{prefix}." if prefix else ""
        operands = [self.pairs.get(dot + name) for name in QKV]
        convention = self._convention(prefix)
        is_known = all(pair and self._are_equal(*pair) for pair in operands)
        if not is_known or convention is None or convention.dropout:
            return None
        stages = {n: self.stages.get(dot + n) for n in (*QKV, "mask", "sinks")}
        inputs: dict[str, Any] = {n: x.value for n, x in stages.items() if x is not None}
        with suppress(AttncliError):  # inputs that make no attention of ours
            return setup_of(**inputs, convention=convention)
        return None

    def _are_equal(self, a: Stage, b: Stage) -> bool:
        """Whether two inputs are one, as they enter a computation in the number type."""
        x, y = (round_to(in_four(stage.value), self.rule.dtype) for stage in (a, b))
        return np.array_equal(x, y, equal_nan=True)

    def _convention(self, prefix: str) -> Convention | None:
        """The convention of an attention, without what its mask says already."""
        for trace in self.traces:
            with suppress(StageError):
                convention = trace.part(prefix).convention or trace.convention
                if convention is not None:
                    return replace(convention.without_mask_fields(), mask_numbers="add")
        return None


def _size(stage: Stage) -> float:
    """The root mean square of the finite numbers of a stage."""
    return rms(sizes(stage.value.astype(np.float64, copy=False)))
