"""Random programs: text of the language, and beside it plain NumPy that computes the same numbers.

Each letter has an axis of its own, so that a sum is a sum along an axis, and what is read is picked
by places. A first axis holds several versions of the inputs, so that all slopes are one call. The
numbers are of 64 bits of mantissa: the slopes by differences are right to about 1e-9.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

SIZES = {"i": 2, "j": 3, "l": 5, "r": 7}
AXIS = {letter: at for at, letter in enumerate(SIZES, start=1)}
INPUTS = {
    "x": ("i",),
    "y": ("j",),
    "m": ("i", "j"),
    "n": ("j", "l"),
    "t": ("l", "i", "j"),
    "p": ("i·j",),
    "w": ("l", "j·i"),
}
WIDE = {"z": ("r", "i")}
"""Its letter r is long: it is read in few programs."""
HOLDERS = {x: [name for name in INPUTS if x in "·".join(INPUTS[name])] for x in "ijl"}
PARAMS = {"on": 1.0, "half": 0.5, "low": -2.0}

Array = Any
Function = Callable[[Mapping[str, Array]], Array]


class EmptyError(ArithmeticError):
    """A largest number, a mean and so on of nothing: it is infinite, or none."""


class Node(NamedTuple):
    """An expression, what computes it, and the letters that it has numbers along."""

    text: str
    run: Function
    letters: frozenset[str]


class Program(NamedTuple):
    """A text, the inputs, and the same in NumPy: versions of the inputs → those of the result."""

    text: str
    inputs: dict[str, Array]
    run: Function


def _along(letter: str) -> Array:
    shape = [1] * (1 + len(SIZES))
    shape[AXIS[letter]] = SIZES[letter]
    return np.arange(SIZES[letter]).reshape(shape)


def _cell(name: str, axes: Sequence[Sequence[str | int]]) -> Node:
    """An array at letters, or at fixed places; several are side by side on one axis."""
    sizes = INPUTS.get(name) or WIDE.get(name)

    def run(arrays: Mapping[str, Array]) -> Array:
        whole = arrays[name]
        index = [np.arange(len(whole)).reshape(-1, *[1] * len(SIZES))]
        for n, axis in enumerate(axes):
            own = sizes[n].split("·") if sizes else [""]  # a stage has a letter on each axis
            at: Array = 0
            for letter, x in zip(own, axis, strict=True):
                at = at * SIZES.get(letter, 1) + (_along(x) if isinstance(x, str) else x)
            index.append(at)
        return whole[tuple(np.broadcast_arrays(*index))]

    text = f"{name}[{','.join('·'.join(map(str, axis)) for axis in axes)}]"
    return Node(text, run, frozenset(x for axis in axes for x in axis if isinstance(x, str)))


def _applied(form: str, function: Callable[..., Array], *args: Node) -> Node:
    text = form.format(*(x.text for x in args))
    letters = frozenset[str]().union(*(x.letters for x in args))
    return Node(text, lambda arrays: function(*(x.run(arrays) for x in args)), letters)


SMOOTH: dict[str, Callable[..., Array]] = {
    "tanh({})": np.tanh,
    "exp(sin({}))": lambda x: np.exp(np.sin(x)),
    "sigmoid({})": lambda x: 1 / (1 + np.exp(-x)),
    "softplus({})": lambda x: np.log1p(np.exp(x)),
    "cos({})": np.cos,
    "ln(1 + ({}) ** 2)": lambda x: np.log1p(x**2),
    "log2(2 + abs({}))": lambda x: np.log2(2 + np.abs(x)),
    "exp2(tanh({}))": lambda x: np.exp2(np.tanh(x)),
    "abs({})": np.abs,
    "sqrt(0.3 + abs({}))": lambda x: np.sqrt(0.3 + np.abs(x)),
    "(-({}))": np.negative,
    "({}) ** 2": np.square,
    "arccos(0.9 * tanh({}))": lambda x: np.arccos(0.9 * np.tanh(x)),
    "(({}) % 1.7)": lambda x: np.mod(x, 1.7),
}
PAIRS: dict[str, Callable[..., Array]] = {
    "({} + {})": np.add,
    "({} - {})": np.subtract,
    "({} * {})": np.multiply,
    "({} / (1.5 + abs({})))": lambda a, b: a / (1.5 + np.abs(b)),
    "(1 + abs({})) ** tanh({})": lambda a, b: (1 + np.abs(a)) ** np.tanh(b),
    "max({}, {})": np.maximum,
    "min({}, {})": np.minimum,
}
SIGNS: dict[str, Callable[..., Array]] = {
    "<=": np.less_equal, "<": np.less, ">": np.greater, ">=": np.greater_equal,
    "!=": np.not_equal, "==": np.equal,
}  # fmt: skip


class Maker:
    """Draws expressions of letters.

    arrays  name → its letters, of the inputs and of the stages so far
    left    the letters on the left of a line
    """

    def __init__(self, r: random.Random, arrays: Mapping[str, Sequence[str]], left: str) -> None:
        self.r, self.arrays, self.left = r, arrays, left

    def number(self, depth: int, around: frozenset[str]) -> Node:
        """A number of at most these operators within each other, of the letters around it."""
        r = self.r
        if depth <= 0 or r.random() < 0.08:
            return self.leaf(around)
        match r.choices(("over", "pair", "one", "if", "softmax"), (5, 5, 3, 2, 3))[0]:
            case "over":
                return self.over(depth, around)
            case "pair":
                form = r.choices([*PAIRS], (5, 4, 5, 3, 1, 1, 1))[0]
                both = self.number(depth - 1, around), self.number(r.randrange(depth), around)
                return _applied(form, PAIRS[form], *(both if r.random() < 0.5 else both[::-1]))
            case "one":
                form = r.choice([*SMOOTH])
                return _applied(form, SMOOTH[form], self.number(depth - 1, around))
            case "if":
                parts = self.condition(1, around), self.number(depth - 1, around)
                return self.case(*parts, self.number(r.randrange(depth), around))
        return self.softmax(depth, around)

    def case(self, test: Node, a: Node, b: Node) -> Node:
        """One of two cases."""
        return _applied("({1} if {0} else {2})", np.where, test, a, b)

    def leaf(self, around: frozenset[str]) -> Node:
        """A cell whose letters are there, some of its axes at a fixed place; rarely a number."""
        r = self.r
        if r.random() < 0.06:
            return _applied("half", lambda: np.longdouble(0.5))
        name = r.choice([x for x in self.arrays if _fits(self.arrays[x], around)])
        axes = list[list[str | int]]()
        for axis in self.arrays[name]:
            letters = axis.split("·")
            axes.append([self.place(x, around, is_packed=len(letters) > 1) for x in letters])
        return _cell(name, axes)

    def place(self, letter: str, around: frozenset[str], *, is_packed: bool) -> str | int:
        """The letter, or a fixed place where it is not around."""
        if letter in around and (is_packed or self.r.random() < 0.9):
            return letter
        return self.r.randrange(SIZES[letter])

    def condition(self, depth: int, around: frozenset[str]) -> Node:
        """A condition of places, of numbers, or of parameters alone."""
        r = self.r
        if depth > 0 and r.random() < 0.3:
            parts = self.condition(depth - 1, around), self.condition(depth - 1, around)
            match r.randrange(3):
                case 0:
                    return _applied("({} and {})", np.logical_and, *parts)
                case 1:
                    return _applied("({} or {})", np.logical_or, *parts)
            return _applied("not ({})", np.logical_not, parts[0])
        sign = r.choice([*SIGNS])
        letters = sorted(around)
        match r.choice("llpcck"):
            case "l" if len(letters) > 1:
                a, b = (_place(x) for x in r.sample(letters, 2))
                return _applied(f"{{}} {sign} {{}}", SIGNS[sign], a, b)
            case "l" | "p" if letters:
                n = r.randrange(3)
                a = _place(r.choice(letters))
                return _applied(f"{{}} {sign} {n}", lambda a: SIGNS[sign](a, n), a)
            case "k":
                return _applied("on > 0", lambda: np.bool_(1))
        sign, low = r.choice("<>"), r.choice((-0.3, 0.2, 0.6))
        cell = self.leaf(around)
        return _applied(f"{{}} {sign} {low}", lambda a: SIGNS[sign](a, np.longdouble(low)), cell)

    def inner(self, depth: int, around: frozenset[str], letters: str) -> tuple[Node, Node | None]:
        """The terms of a sum, in which each letter occurs, and which of them count."""
        body = self.number(depth - 1, around)
        where = self.condition(1, around) if self.r.random() < 0.35 else None
        for letter in letters:
            if letter not in body.letters | (where.letters if where else frozenset()):
                scope = {letter, *around}
                name = self.r.choice([x for x in HOLDERS[letter] if _fits(INPUTS[x], scope)])
                axes = [[x if x in scope else 0 for x in axis.split("·")] for axis in INPUTS[name]]
                form = self.r.choice(("({} + {})", "({} - {})", "({} * {})"))
                body = _applied(form, PAIRS[form], body, _cell(name, axes))
        return body, where

    def over(self, depth: int, around: frozenset[str]) -> Node:
        """A sum, a product and so on along one letter or two."""
        r = self.r
        kind = r.choices(("sum", "mean", "prod", "lse", "max", "min"), (6, 2, 2, 2, 1, 1))[0]
        others = [x for x in "ijl" if x not in around or x in self.left]
        if not others:
            return self.leaf(around)
        letters = "".join(r.sample(others, min(len(others), r.choice((1, 1, 1, 2)))))
        body, where = self.inner(depth, around | {*letters}, letters)
        sink = self.leaf(around) if kind == "lse" and r.random() < 0.3 else None
        axes = tuple(AXIS[x] for x in letters)
        size = {x: SIZES[x] for x in letters}

        def run(arrays: Mapping[str, Array]) -> Array:
            x = body.run(arrays)
            full = [*np.shape(x)] or [1] * (1 + len(SIZES))
            for letter in letters:
                full[AXIS[letter]] = size[letter]
            counts = np.bool_(1) if where is None else where.run(arrays)
            x, counts = np.broadcast_arrays(x, counts, np.empty(full))[:2]
            if kind not in ("sum", "prod") and not counts.any(axis=axes).all():
                raise EmptyError(kind)
            lowest = np.where(counts, x, -np.inf)
            match kind:
                case "sum":
                    return np.where(counts, x, 0).sum(axis=axes, keepdims=True)
                case "mean":
                    n = counts.sum(axis=axes, keepdims=True)
                    return np.where(counts, x, 0).sum(axis=axes, keepdims=True) / n
                case "prod":
                    return np.where(counts, x, 1).prod(axis=axes, keepdims=True)
                case "max":
                    return lowest.max(axis=axes, keepdims=True)
                case "min":
                    return np.where(counts, x, np.inf).min(axis=axes, keepdims=True)
            powers = np.exp(lowest).sum(axis=axes, keepdims=True)
            return np.log(powers if sink is None else powers + np.exp(sink.run(arrays)))

        more = f" where {where.text}" if where else ""
        more += f", sink={sink.text}" if sink else ""
        inner = body.letters | (where.letters if where else frozenset())
        outer = (inner - {*letters}) | (sink.letters if sink else frozenset())
        return Node(f"{kind}[{','.join(letters)}]({body.text}{more})", run, outer)

    def softmax(self, depth: int, around: frozenset[str]) -> Node:
        """A softmax along one letter or two that are there."""
        r = self.r
        if not around & {*"ijl"}:
            return self.over(depth, around)
        few = sorted(around & {*"ijl"})
        letters = "".join(r.sample(few, min(len(few), r.choice((1, 1, 2)))))
        body, where = self.inner(depth, around, letters)
        sink = self.leaf(around - {*letters}) if r.random() < 0.2 else None
        axes = tuple(AXIS[x] for x in letters)

        def run(arrays: Mapping[str, Array]) -> Array:
            x = body.run(arrays)
            full = [*np.shape(x)] or [1] * (1 + len(SIZES))
            for letter in letters:
                full[AXIS[letter]] = SIZES[letter]
            counts = np.bool_(1) if where is None else where.run(arrays)
            x, counts = np.broadcast_arrays(x, counts, np.empty(full))[:2]
            powers = np.where(counts, np.exp(x), 0)
            whole = powers.sum(axis=axes, keepdims=True)
            whole = whole if sink is None else whole + np.exp(sink.run(arrays))
            return powers / np.where(whole == 0, 1, whole)

        more = f" where {where.text}" if where else ""
        more += f", sink={sink.text}" if sink else ""
        every = [x.letters for x in (body, where, sink) if x]
        own = frozenset(letters).union(*every)
        return Node(f"softmax[{','.join(letters)}]({body.text}{more})", run, own)


def _fits(axes: Sequence[str], letters: Collection[str]) -> bool:
    """Whether of letters side by side one at most is not there: it may be at a fixed place."""
    return all(len({*axis.split("·")} - {*letters}) < 2 for axis in axes if "·" in axis)


def _place(letter: str) -> Node:
    return Node(letter, lambda _: _along(letter).astype(np.longdouble), frozenset(letter))


def random_program(seed: int, *, depth: int = 4, stages: int = 3) -> Program:
    """A program of one to some stages, each of the inputs and of the stages before it."""
    r, rng = random.Random(seed), np.random.default_rng(seed)  # noqa: S311
    arrays: dict[str, Sequence[str]] = {**INPUTS, **(WIDE if r.random() < 0.1 else {})}
    lines = [f"size[{x}] = {n}" for x, n in SIZES.items()]
    lines += [f"{name} = {x}" for name, x in PARAMS.items()]
    made = list[tuple[str, str, Node]]()
    for number in range(r.randrange(1, stages + 1)):
        left = "".join(r.sample("ijl", r.choice((0, 1, 1, 2, 2))))
        name = f"S{number}"
        maker = Maker(r, arrays if number == 0 else {**arrays, **{made[-1][0]: made[-1][1]}}, left)
        body = maker.number(r.randrange(1, depth + 1), frozenset(left))
        if number:  # each stage is read by the next
            last, index, _ = made[-1]
            cell = _cell(last, [[x if x in left else r.randrange(SIZES[x])] for x in index])
            form = r.choice([*PAIRS])
            body = _applied(form, PAIRS[form], body, cell)
        lines.append(f"{name}[{','.join(left)}] = {body.text}")
        made.append((name, left, body))

    def run(given: Mapping[str, Array]) -> Array:
        values = dict(given)
        for name, left, body in made:
            n = len(next(iter(given.values())))
            whole = body.run(values)
            full = [n] + [SIZES[x] if x in left else 1 for x in SIZES]
            whole = np.broadcast_to(whole, full)
            order = [0, *(AXIS[x] for x in left), *(AXIS[x] for x in SIZES if x not in left)]
            shape = [n, *(SIZES[x] for x in left)]
            values[name] = whole.transpose(order).reshape(shape)
        return values[made[-1][0]]

    inputs = {
        name: rng.uniform(-1.5, 1.5, [_length(axis) for axis in axes])
        for name, axes in arrays.items()
    }
    return Program("\n".join(lines), inputs, run)


def _length(axis: str) -> int:
    return reduce(lambda n, letter: n * SIZES[letter], axis.split("·"), 1)


def slopes(program: Program, name: str, d: Array, step: float = 1e-4) -> tuple[Array, Array]:
    """How fast Σ d · result grows with each number of an input, and where that is smooth.

    Central differences of two steps, of which the error of order step² is taken away.
    """
    given = {x: np.asarray(a, np.longdouble) for x, a in program.inputs.items()}
    n = given[name].size
    moves = np.concatenate([np.eye(n) * h for h in (step, -step, step / 2, -step / 2)])
    moved = given[name] + moves.astype(np.longdouble).reshape(-1, *given[name].shape)
    own = {x: np.broadcast_to(a, (4 * n, *a.shape)) for x, a in given.items()} | {name: moved}
    with np.errstate(all="ignore"):
        results = program.run(own)
    losses = (results * d).reshape(4, n, -1).sum(axis=-1)
    coarse, fine = (losses[0] - losses[1]) / (2 * step), (losses[2] - losses[3]) / step
    slope = (4 * fine - coarse) / 3
    is_smooth = np.abs(fine - coarse) <= 1e-6 + 1e-5 * np.abs(fine)
    shape = program.inputs[name].shape
    return slope.reshape(shape), is_smooth.reshape(shape)
