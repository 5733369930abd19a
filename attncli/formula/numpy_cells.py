"""Cells of arrays as the text of NumPy code: which axes they have, and where they are picked.

x[i,m] in the order i, j, m   →   x[:, None]
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.formula.code_text import ATOM, Code, axes_text, selection
from attncli.formula.compute import compute
from attncli.formula.evaluate import lengths_along, place_along
from attncli.formula.expression import (
    Apply,
    Cell,
    Expr,
    Formula,
    Index,
    Over,
    Place,
    children,
    letters_at,
    walk,
)

Letters = Sequence[str]


@dataclass
class Cells(ABC):
    """Writes the cells of one formula.

    names   name of an array → its variable
    used    variables that no other may be called
    places  variables of the places of letters → how many there are
    lines   what is computed before, in this order, → its variable
    """

    arrays: Mapping[str, Array]
    params: Mapping[str, Any]
    sizes: Mapping[str, int]
    names: Mapping[str, str]
    used: set[str]
    places: dict[str, int] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)

    def shape(self, letters: Letters) -> tuple[int, ...]:
        """How long each letter is."""
        return tuple(self.sizes.get(x, 1) for x in letters)

    def value(self, node: Expr, order: Letters) -> Array:
        """The numbers of a node, with an axis for each letter."""
        index: Any = tuple((x,) for x in order)
        with np.errstate(all="ignore"):
            return compute(Formula("", index, node), {**self.params, **self.arrays}, self.sizes)

    def letters(self, node: Expr) -> list[str]:
        """The letters along which an expression has numbers, in their order."""
        match node:
            case Cell(name, index):
                axes = index[len(index) - self.arrays[name].ndim :]
                every = [x for axis in axes for x in self._of_axis(axis)]
            case Place(letter):
                every = [letter]
            case Over(kind, letters, body, where, sink) if kind != "softmax":
                terms = [x for part in (body, where) if part for x in self.letters(part)]
                every = [x for x in terms if x not in letters]
                every += [] if sink is None else self.letters(sink)
            case _:
                every = [x for part in children(node, guards=True) for x in self.letters(part)]
        return [x for x in dict.fromkeys(every) if x in self.sizes]

    def _of_axis(self, axis: Index | Expr) -> list[str]:
        return letters_at([axis]) if isinstance(axis, tuple) else self.letters(axis)

    def variable(self, name: str) -> str:
        """A variable of that name, with a number where it is used already."""
        others = (f"{name}_{n}" for n in count(2))
        return next(x for x in chain([name], others) if x not in self.used)

    @abstractmethod
    def of(self, node: Expr, order: Letters) -> Code:
        """The code of a node, whose axes are aligned to the letters of an order."""

    def aligned(
        self, text: str, letters: Letters, order: Letters, full: Collection[str] | None = None
    ) -> Code:
        """An array of these letters, with an axis for each of the order that is not before all."""
        places = [list(order).index(x) for x in letters]
        ranks = sorted(places)
        if places != ranks:
            turned = [places.index(x) for x in ranks]
            text += ".T" if turned == [1, 0] else f".transpose{axes_text(turned)}"
        axes = [
            ":" if at in ranks else "None"
            for at in range(ranks[0] if ranks else len(order), len(order))
        ]
        if "None" in axes:
            text += selection(axes)
        return Code(text, ATOM, frozenset(letters if full is None else full))

    def cell(self, node: Cell) -> tuple[str, list[str], list[str]]:
        """An array, its letters, and those of them along which it has all entries."""
        array, text = self.arrays[node.name], self.names[node.name]
        index = node.index[len(node.index) - array.ndim :]
        letters, full, apart, picked = list[str](), list[str](), list[int](), list[str]()
        for axis, size in zip(index, array.shape, strict=True):
            is_letter = isinstance(axis, tuple) and len(axis) == 1 and isinstance(axis[0], str)
            if size == 1 and not is_letter:
                apart, picked = [*apart, 1], [*picked, "0"]
                continue
            if not isinstance(axis, tuple):
                of_place = self.letters(axis)
                if len(of_place) > 1 or any(isinstance(x, Over) for x in walk(axis, guards=True)):
                    return self.gathered(node)
                apart, picked = [*apart, size], [*picked, self.place(axis, size, of_place)]
                letters, full = letters + of_place, full + of_place
                continue
            lengths = lengths_along(axis, size, self.sizes) if len(axis) != 1 else [size]
            if math.prod(lengths) != size:
                raise TypeError(f"the letters of an axis of {node.name} do not divide its {size}")
            apart += lengths
            for x, n in zip(axis, lengths, strict=True):
                picked.append(":" if isinstance(x, str) else str(x))
                letters += [x] if isinstance(x, str) else []
                full += [x] if isinstance(x, str) and n == self.sizes.get(x, 1) else []
        n_places = sum(":" not in x for x in picked)  # beside an array of them a number is one
        has_arrays = any(":" not in x and not x.isdecimal() for x in picked)
        if len({*letters}) < len(letters) or (has_arrays and n_places > 1):
            return self.gathered(node)
        text += "" if tuple(apart) == array.shape else f".reshape{axes_text(apart)}"
        text += "" if {*picked} <= {":"} else selection(picked)
        unknown = [x for x in letters if x not in self.sizes]
        if unknown:
            raise TypeError(f"nothing says how long {unknown[0]} is")
        return text, letters, full

    def place(self, axis: Expr, size: int, letters: Letters) -> str:
        """A computed place on an axis: a slice, or the places one after another."""
        match axis:
            case Apply("+" | "-" as sign, (Place(letter), shift)) if [letter] == letters:
                start = int(self.value(shift, ())) * (1 if sign == "+" else -1)
                if start >= 0 and start + self.sizes[letter] <= size:
                    return f"{start}:{start + self.sizes[letter]}"
        return self.bounded(axis, size, letters)

    def bounded(self, axis: Expr, size: int, order: Letters) -> str:
        """A computed place: the nearest one in the array where it would be outside."""
        code, at = self.of(axis, order), self.value(axis, order)
        is_within = bool(np.all((at >= 0) & (at < size)))  # not where it is NaN
        text = code.text if is_within else f"np.clip({code.text}, 0, {size - 1})"
        if code.is_whole:
            return text
        text = (
            text if np.isfinite(at).all() else f"np.clip(np.nan_to_num({code.text}), 0, {size - 1})"
        )
        return f"int({text})" if code.number is not None else f"({text}).astype(int)"

    def gathered(self, node: Cell) -> tuple[str, list[str], list[str]]:
        """The cells at computed places, each picked by all of its places."""
        array = self.arrays[node.name]
        index = node.index[len(node.index) - array.ndim :]
        order = self.letters(node)
        picked = []
        for axis, size in zip(index, array.shape, strict=True):
            if size == 1:
                picked.append("0")
            elif not isinstance(axis, tuple):
                picked.append(self.bounded(axis, size, order))
            else:
                picked.append(self.of(place_along(axis, size, self.sizes), order).text)
        return f"{self.names[node.name]}[{', '.join(picked)}]", order, order
