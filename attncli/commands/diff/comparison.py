"""Comparison: what two traces have in common, where they differ, in words and as a trace.

Comparison ── trace ──> summary, a, b, difference
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.convention import Convention
from attncli.files.messages import listing
from attncli.files.roles import EMBEDDINGS
from attncli.stages import QKV, SPECS, spec_of
from attncli.trace import Stage, Trace

Names = tuple[str, str]

SAID = 3
"""So many inputs that differ are described, the others named."""

HIDDEN = -1e30
"""A number of a mask that is as small hides a key: it is −∞, or the least of a number type."""

MEASURES = ("differ", "of", "largest", "rms")
"""The columns of the stage `summary`: numbers that differ, all of them, and the errors."""


@dataclass(frozen=True, eq=False)
class StageDifference:
    """One stage in both traces.

    name     its dotted name
    a, b     the stage in each; b with the axes of a. Where one of them leaves the stage out, as it
             would do nothing, it is the stage in its place
    is_given whether it went in: q, k, v, a mask, weights of x
    shapes   how the shapes differ, in words, or ""; then nothing else is known
    wrong    which numbers differ by more than the tolerance
    largest  |b − a| at most, and `at` the index where; inf where one of two is NaN or infinite
    rms      the root mean square of the differences that are finite
    rule     the tolerance in words
    """

    name: str
    a: Stage
    b: Stage
    is_given: bool
    shapes: str = ""
    wrong: BoolArray = field(default_factory=lambda: np.zeros(0, bool))
    largest: float = 0.0
    at: tuple[int, ...] = ()
    rms: float = 0.0
    rule: str = ""

    @property
    def same(self) -> bool:
        """Whether the shapes are the same, and all numbers within the tolerance."""
        return not self.shapes and not self.wrong.any()

    @property
    def n_wrong(self) -> int:
        """How many numbers differ."""
        return int(np.count_nonzero(self.wrong))

    @property
    def place(self) -> str:
        """Where the largest difference is: head 2, q1, k3."""
        words = []
        for axis, size, at in zip(self.a.axes, self.a.value.shape, self.at, strict=True):
            if size > 1 or axis not in ("batch", "head", "kv_head"):
                name = self.a.label(axis, at)
                if axis in self.a.labels and not re.fullmatch(r"[qk]\d+", name):
                    name = f'"{name}"'  # a token
                words.append(f"{axis} {name}" if name.isdecimal() else name)
        return ", ".join(words)

    def values(self) -> tuple[float, float]:
        """Both numbers where the difference is largest."""
        return float(self.a.value[self.at]), float(self.b.value[self.at])

    def difference(self, names: Names) -> Stage:
        """b − a as a stage; 0 where both are NaN or the same infinity."""
        a, b = (x.value.astype(np.float64) for x in (self.a, self.b))
        with np.errstate(invalid="ignore", over="ignore"):
            value = b - a
        np.copyto(value, 0.0, where=(a == b) | (np.isnan(a) & np.isnan(b)))
        last, formula = self.name.rpartition(".")[2], f"{names[1]} − {names[0]}"
        spec = self.a.spec
        symbol = (spec_of(last) if spec is None or last in SPECS else spec).symbol
        return Stage(last, f"Δ{symbol}", formula, value, self.a.axes, self.a.labels, spec=spec)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two traces compared, stage by stage, in the order of computation.

    a, b         the traces; names: what they are called
    stages       those that both have
    only         the names of those that one of them has alone, of a and of b
    conventions  where the conventions differ, a sentence each
    labels       where the names of tokens differ, a sentence each
    """

    a: Trace
    b: Trace
    names: Names
    stages: tuple[StageDifference, ...]
    only: tuple[tuple[str, ...], tuple[str, ...]]
    conventions: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether every stage that both have is the same in both, within the tolerance."""
        return all(stage.same for stage in self.stages)

    @property
    def differing(self) -> list[StageDifference]:
        """The stages that differ."""
        return [stage for stage in self.stages if not stage.same]

    @property
    def first(self) -> StageDifference | None:
        """The first stage that differs, of those that were computed."""
        return next((stage for stage in self.differing if not stage.is_given), None)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """What was found, in words: the inputs first, then the first stage that differs."""
        return tuple(self._sentences())

    @cached_property
    def following(self) -> list[StageDifference]:
        """The inputs that differ because a stage of an earlier block does, such as q of layer 2."""
        if self.first is None:
            return []
        first, differing = self.first, self.differing
        later = differing[differing.index(first) + 1 :]
        block = first.name.rpartition(".")[0]
        names = (*QKV, *EMBEDDINGS)
        return [
            stage
            for stage in later
            if stage.is_given
            and stage.name.rpartition(".")[0] != block
            and stage.name.rpartition(".")[2] in names
        ]

    def _sentences(self) -> Iterator[str]:
        inputs = [x for x in self.differing if x.is_given and x not in self.following]
        for stage in inputs[:SAID]:
            yield f"the inputs differ: {self._said(stage)}"
        if others := inputs[SAID:]:
            yield f"other inputs that differ: {listing(stage.name for stage in others)}"
        if self.first is not None:
            yield f"the first stage that differs is {self._said(self.first)}"
            yield from filter(None, [self._of_empty_rows(self.first)])
        if self.following:
            names = listing(stage.name for stage in self.following)
            yield f"inputs of later blocks differ, too, as what they are made of does: {names}"
        if self.same:
            n = len(self.stages)
            every = f"all {n} stages that both have are" if n > 1 else "the stage that both have is"
            computed = [stage for stage in self.stages if not stage.is_given] or self.stages
            rules = dict.fromkeys(stage.rule for stage in computed)
            both = " and ".join(self.names)
            yield f"{every} the same in {both}, within {listing(rules)}"
        for name, only in zip(self.names, self.only, strict=True):
            if only:
                yield f"only in {name}: {listing(only)}"
        yield from self.labels

    def _of_empty_rows(self, stage: StageDifference) -> str:
        """That all that differs is in rows with nothing to attend to, by the mask beside it."""
        prefix = stage.name[: stage.name.rfind(".") + 1]
        mask, axes = f"{prefix}mask", stage.a.axes
        if stage.shapes or mask not in self.a or "query" not in axes[-2:-1]:
            return ""
        value = self.a[mask].value
        hidden = ~value if value.dtype == bool else value <= HIDDEN
        is_empty = hidden.all(axis=-1)
        try:
            is_empty = np.broadcast_to(is_empty, stage.wrong.shape[:-1])
        except ValueError:  # of other axes
            return ""
        rows = stage.wrong.any(axis=-1)
        if (rows & ~is_empty).any():
            return ""
        means = self._means(f"{prefix}v", stage)
        texts = []
        for x, name in zip((stage.a, stage.b), self.names, strict=True):
            is_mean = means is not None and np.allclose(x.value[rows], means[rows], rtol=1e-3)
            texts.append(f"{'the mean of V' if is_mean else _kind(x.value[rows])} in {name}")
        return f"all of it is in rows with nothing to attend to: {', '.join(texts)}"

    def _means(self, values: str, stage: StageDifference) -> Array | None:
        """The mean of all values of each head, in every row; None where they do not fit."""
        if values not in self.a:
            return None
        means = self.a[values].value.mean(axis=-2, keepdims=True)
        if means.ndim > 2:  # of the query heads that share them
            means = np.repeat(means, stage.a.value.shape[-3] // means.shape[-3] or 1, axis=-3)
        fits = means.shape[-1] == stage.a.value.shape[-1] and means.ndim == stage.a.value.ndim
        return np.broadcast_to(means, stage.a.value.shape) if fits else None

    def _said(self, stage: StageDifference) -> str:
        if stage.shapes:
            return f"{stage.name}, of another shape: {stage.shapes}"
        (a, b), (x, y), n = self.names, stage.values(), stage.n_wrong
        count = f"{n} of {stage.wrong.size} numbers {'differs' if n == 1 else 'differ'}"
        position = f" at {stage.place}" if stage.place else ""
        most = f"the largest difference is {_text(stage.largest, 4)}{position}"
        both = f"({_text(x, 6)} in {a} and {_text(y, 6)} in {b})"
        typical = f"; RMS {stage.rms:.3g}" if np.isfinite(stage.largest) else ""
        return f"{stage.name}: {count} by more than {stage.rule}; {most} {both}{typical}"

    def trace(self, names: Collection[str] | None = None) -> Trace:
        """The comparison as a trace: a summary, both traces, and the differences of stages.

        `a.weights`, `b.weights` and `difference.weights`; `summary` has a row for each stage.
        names  the dotted names of the differences to compute; None: all of them
        """
        differences = [
            x for x in self.stages if not x.shapes and (names is None or x.name in names)
        ]
        inner = nested("Difference", {x.name: x.difference(self.names) for x in differences})
        title = f"{self.names[1]} compared with {self.names[0]}"
        parts = (
            _inside(self.a, "a", f"{self.names[0]}: {self.a.title}"),
            _inside(self.b, "b", f"{self.names[1]}: {self.b.title}"),
            replace(inner, name="difference"),
        )
        rows = [
            (x.n_wrong, x.wrong.size, x.largest, x.rms) if not x.shapes else (np.nan,) * 4
            for x in self.stages
        ]
        labels = {"stage": tuple(x.name for x in self.stages), "measure": MEASURES}
        formula = "numbers that differ, of how many; the largest |b − a|, its root mean square"
        summary = Stage("summary", "", formula, np.array(rows), ("stage", "measure"), labels)
        return Trace(title, (summary, *parts), notes=(*self.conventions, *self.sentences))

    def __str__(self) -> str:
        return "\n".join((*self.conventions, *self.sentences))


def _kind(values: Array) -> str:
    """What numbers of rows without a key are: zeros, NaN, or other numbers."""
    if not values.any():
        return "zeros"
    return "NaN" if np.isnan(values).all() else "other numbers"


def _text(x: float, digits: int) -> str:
    return "NaN" if np.isnan(x) else f"{x:.{digits}g}"


def nested(title: str, stages: Mapping[str, Stage], convention: Convention | None = None) -> Trace:
    """The trace of stages by dotted name, those of one prefix in one block."""
    inside: dict[str, dict[str, Stage]] = {}
    for name, stage in stages.items():
        block, _, rest = name.partition(".") if "." in name else ("", "", name)
        inside.setdefault(block or f".{name}", {})[rest] = stage
    steps: list[Stage | Trace] = []
    for block, members in inside.items():
        if block.startswith("."):
            steps += members.values()
        else:
            steps.append(replace(nested(block, members, convention), name=block))
    return Trace(title, tuple(steps), convention)


def _inside(trace: Trace, name: str, title: str) -> Trace:
    """The trace as a part called so: what its stages read is named within the whole."""

    def within(part: Trace) -> Trace:
        siblings = {step.name for step in part.steps}

        def moved(stage: Stage) -> Stage:
            reads = {p: x if x in siblings else f"{name}.{x}" for p, x in stage.reads.items()}
            return replace(stage, reads=reads)

        steps = (within(x) if isinstance(x, Trace) else moved(x) for x in part.steps)
        return replace(part, steps=tuple(steps))

    return replace(within(trace), name=name, title=title)
