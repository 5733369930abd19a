"""Several formulas of the same arrays: a part that some of them have is computed once.

formulas ── nodes that several have ──> compiled once, computed once ──> the array of each
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.formula.compute import Compiler, Function, Letters
from attncli.formula.evaluate import sizes_of
from attncli.formula.expression import Formula, walk


class Together:
    """Computes formulas one after another: a part that several of them have is computed once.

    A part is known by its id: it is the same node in them.
    """

    def __init__(self, formulas: Sequence[Formula]) -> None:
        self.formulas = formulas  # so that the ids stay those of their nodes
        times = Counter(id(x) for formula in formulas for x in walk(formula.body, guards=True))
        self.shared = [part for part, n in times.items() if n > 1]
        self.compilers = dict[tuple[Any, ...], Compiler]()

    def compute(
        self, formula: Formula, values: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> Array:
        """The array of one of the formulas, as `compute` gives it."""
        shapes = {name: x.shape for name, x in values.items() if isinstance(x, np.ndarray)}
        lengths = sizes_of(formula, (), shapes, sizes)
        same = ((name, id(x) if name in shapes else x) for name, x in values.items())
        key = frozenset(same), frozenset(lengths.items())
        if key not in self.compilers:
            parts: dict[int, dict[Letters, Function]] = {part: {} for part in self.shared}
            self.compilers[key] = Compiler(shapes, lengths, False, [], {}, parts)
        array: Array = self.compilers[key].whole(formula).run(values)
        return array
