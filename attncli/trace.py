"""Stage and Trace: the hinge of the whole program.

A computation returns a Trace of named stages; tables, exports and checks only read it.

    Trace ── steps ──┬── Stage  q, k, v, mask        what went in
                     ├── Stage  scores … output      what came out, in the order of computation
                     └── Trace  (a block nests an attention)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.convention import Convention
from attncli.errors import ShapeError, StageError, nearest
from attncli.recorded import RecordedCall
from attncli.stages import HIDDEN, QKV, SPECS, StageSpec, spec_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INPUTS = (*QKV, *(name for name, kind in SPECS.items() if kind.role == "input"))
"""Names of the stages that went into an attention; the others came out of it."""

# Axes whose entries are called by a letter and a number where no token names them.
_LETTERS = {"query": "q", "key": "k", "head": "head ", "kv_head": "key head ", "batch": "batch "}


@dataclass(frozen=True, eq=False, repr=False)
class Numbered(Sequence[str]):
    """The names of so many entries without labels: a letter and a number from 1, no two alike.

    >>> names = Numbered("k", 10**9)
    >>> names[0], names[-1], names[7:9]
    ('k1', 'k1000000000', ('k8', 'k9'))
    """

    letter: str
    size: int

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[str, ...]: ...
    def __getitem__(self, at: int | slice) -> str | tuple[str, ...]:
        numbers = range(1, self.size + 1)[at]
        if isinstance(numbers, range):
            return tuple(f"{self.letter}{number}" for number in numbers)
        return f"{self.letter}{numbers}"

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, tuple | Numbered) else False

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclass(frozen=True, eq=False, repr=False)
class Stage:
    """One named step of a computation and the array it gave.

    name     stable, public: `trace["weights"]`
    symbol   the paper's letter, such as "S" or "A"
    formula  how it was computed, such as "S = Q Kᵀ"
    value    the array, write-locked
    axes     one name per dimension, such as ("head", "query", "key")
    labels   axis → names along it; an axis without an entry is numbered
    note     a sentence for the reader, or ""
    reads    what it was computed from: parameter of the computation → name of a stage, of the same
             block or, with dots, of the whole trace
    params   the other parameters, such as {"factor": 0.5}
    expression  how each cell is computed: "Z[b,h,i,j] = x[b,h,i,j] * factor", see
             attncli/formula/expression.py; "" where no formula says it
    sizes    of letters in it that no array has: {"d": 2}
    spec     its row, where it is of a command's own stages; None: the row of its name, if any
    kind     what its row says of stages of its name and axes

    Raises ShapeError where axes or labels do not fit the value.

    >>> stage = Stage("scores", "S", "S = Q Kᵀ", np.array([[1.0, 2.0]]), ("query", "key"))
    >>> stage.label("key", 1)
    'k2'
    >>> stage.value[0, 0] = 3
    Traceback (most recent call last):
        ...
    ValueError: assignment destination is read-only
    """

    name: str
    symbol: str
    formula: str
    value: Array
    axes: tuple[str, ...]
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    note: str = ""
    reads: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    expression: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    spec: StageSpec | None = None
    kind: StageSpec = field(init=False)

    def __post_init__(self) -> None:
        locked = np.asarray(self.value).view()
        locked.flags.writeable = False
        labels = {axis: tuple(names) for axis, names in self.labels.items() if axis in self.axes}
        object.__setattr__(self, "value", locked)
        object.__setattr__(self, "labels", MappingProxyType(labels))
        kind = self.spec or spec_of(self.name)
        axes = kind.axes_of(len(self.axes))
        is_vector = kind.vector and len(axes) == self.value.ndim
        is_other = kind.axes and "" not in self.axes and axes != self.axes and not is_vector
        if is_other or (kind.role in HIDDEN and self.expression):  # of a program of the user's own
            kind = StageSpec(self.symbol, heading=kind.heading)
        object.__setattr__(self, "kind", kind)
        stage, n_axes = f"stage {self.name}", len(self.axes)
        if n_axes != self.value.ndim:
            raise ShapeError(f"{stage}: {self.value.ndim} dimensions but {n_axes} axis names")
        for axis, names in self.labels.items():
            size, n = self.value.shape[self.axes.index(axis)], len(names)
            if n != size:
                raise ShapeError(f"{stage} has {size} entries along {axis} but {n} labels")

    def __repr__(self) -> str:
        sizes = zip(self.value.shape, self.axes, strict=True)
        axes = " × ".join(f"{n} {axis}" for n, axis in sizes)
        return f"<Stage {self.name!r}: {axes or 'one number'}>"

    def label(self, axis: str, index: int) -> str:
        """The name of one entry of an axis: its token, or a letter and a 1-based number."""
        if axis in self.labels:
            return self.labels[axis][index]
        return f"{_LETTERS.get(axis, '')}{index + 1}"

    def names(self, axis: str) -> Sequence[str]:
        """All names along an axis; those that are no labels are made as they are read."""
        if axis in self.labels:
            return self.labels[axis]
        return Numbered(_LETTERS.get(axis, ""), self.value.shape[self.axes.index(axis)])


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """Named steps in the order of computation, and the convention they follow.

    A step is a Stage or another Trace; a stage is found by its dotted name.

    later  further stages by name, each computed when it is asked for: they take time, and few ask
    compute  what computes the trace of other numbers for some stages, as `again` has it; None of a
           trace that was read from a file
    call   the call that gave it, of a command or of a function in Python; None where none is known

    >>> scores = Stage("scores", "S", "S = Q Kᵀ", np.eye(2), ("query", "key"))
    >>> block = Trace("Block", (Trace("Attention", (scores,), name="attention"),))
    >>> block["attention.scores"] is scores
    True
    >>> list(block)
    ['attention.scores']
    """

    title: str
    steps: tuple[Stage | Trace, ...]
    convention: Convention | None = None
    name: str = ""
    notes: tuple[str, ...] = ()
    later: Mapping[str, Callable[[], Stage]] = field(default_factory=dict)
    compute: Callable[[Mapping[str, Array]], Trace] | None = None
    call: RecordedCall | None = None

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.stages())

    def __str__(self) -> str:
        """The tables that `attncli` prints, without colour."""
        import attncli

        return attncli.render(self)

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        import attncli

        return attncli.render(self, "notebook")

    @property
    def program(self) -> str:
        """The text of formulas that computes its stages again (`attncli help formulas`)."""
        import attncli

        return attncli.program_of(self)

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draws it by Matplotlib; the options are those of `attncli.plot`."""
        import attncli

        return attncli.plot(self, ax, **options)

    def __repr__(self) -> str:
        return f"<Trace {self.title!r}: {' '.join(step.name for step in self.steps)}>"

    def __contains__(self, name: object) -> bool:
        return name in self._named

    @cached_property
    def _named(self) -> Mapping[str, Stage]:
        """The stages by their dotted names; of two of one name the first."""
        return dict(reversed([*self.stages()]))

    def __getitem__(self, name: str) -> Stage:
        if name in self._named:
            return self._named[name]
        *places, leaf = name.split(".")
        blocks = [self]
        for place in places:
            inner = (step for block in blocks for step in block.steps if isinstance(step, Trace))
            blocks = [step for step in inner if step.name == place]
        for block in blocks:
            if leaf in block.later:
                return block.later[leaf]()
        raise StageError(f"there is no stage {name!r}", nearest(name, self))

    def stages(self) -> Iterator[tuple[str, Stage]]:
        """Every stage with its dotted name, in the order of computation."""
        for step in self.steps:
            if isinstance(step, Stage):
                yield step.name, step
            else:
                for name, stage in step.stages():
                    yield f"{step.name}.{name}", stage

    def computing(self, names: Collection[str], prefix: str = "") -> Trace:
        """The same with what is computed only where it is asked for, if one of these names does.

        Each is such a stage's dotted name, or the end of it. They come last, before any gradients.
        """
        ends = tuple(f".{name}" for name in names)
        requested = [leaf for leaf in self.later if f".{prefix}{leaf}".endswith(ends)]
        steps = [
            step.computing(names, f"{prefix}{step.name}.") if isinstance(step, Trace) else step
            for step in self.steps
        ]
        computed = [self.later[leaf]() for leaf in requested]
        rest = {leaf: make for leaf, make in self.later.items() if leaf not in requested}
        backward = (at for at, step in enumerate(steps) if spec_of(step.name).heading)
        at = next(backward, len(steps))
        return replace(self, steps=(*steps[:at], *computed, *steps[at:]), later=rest)

    def again(self, stages: Mapping[str, npt.ArrayLike] = {}, **more: npt.ArrayLike) -> Trace:
        """The same trace with other numbers for some stages, and what follows from them.

        stages, more  by dotted name, or as keywords: an input, or any stage on the way

        Raises StageError for a stage that is not in the trace, and for a trace of a file;
        ShapeError where the numbers have not the shape of the stage.

        >>> import attncli
        >>> trace = attncli.attend([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]])
        >>> trace.again(weights=[[1, 0]])["output"].value
        array([[10.,  0.]])
        """
        if self.compute is None:
            raise StageError(
                "a trace of a file is not computed again", "compute it from its inputs"
            )
        arrays = {name: np.asarray(x, float) for name, x in {**stages, **more}.items()}
        for name, x in arrays.items():
            if x.shape != (shape := self[name].value.shape):
                raise ShapeError(f"{name} has the shape {x.shape}, the stage {shape}")
        return self.compute(arrays)

    def part(self, name: str) -> Trace:
        """The trace of this dotted name within this one; "" is this one itself.

        Raises StageError where there is none.
        """
        part = self
        for place in name.split(".") if name else ():
            inner = {step.name: step for step in part.steps if isinstance(step, Trace)}
            if place not in inner:
                raise StageError(f"there is no part {name!r}", nearest(name, self))
            part = inner[place]

        def within(stage: Stage) -> Stage:
            """The stage with the part's name taken off the names of what it reads."""
            reads = {p: read.removeprefix(f"{name}.") for p, read in stage.reads.items()}
            return replace(stage, reads=reads)

        return part.mapped(within) if name else part

    def mapped(self, change: Callable[[Stage], Stage]) -> Trace:
        """The same trace with every stage changed."""
        steps = (s.mapped(change) if isinstance(s, Trace) else change(s) for s in self.steps)
        return replace(self, steps=tuple(steps))

    def keep(self, names: Collection[str]) -> Trace:
        """The same trace with only the stages of these dotted names."""
        inside: dict[str, list[str]] = {}  # what comes after the first part of each name
        for name in names:
            first, _, rest = name.partition(".")
            inside.setdefault(first, []).append(rest)
        steps: list[Stage | Trace] = []
        for step in self.steps:
            if isinstance(step, Stage):
                steps += [step] if "" in inside.get(step.name, ()) else []
                continue
            inner = step.keep([name for name in inside.get(step.name, ()) if name])
            steps += [inner] if inner.steps else []
        return replace(self, steps=tuple(steps))
