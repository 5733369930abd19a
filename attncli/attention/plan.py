"""A plan: the steps that a convention asks for, each a formula bound to what there is.

The formulas, and which of them there are in which order, are in attention.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np

from attncli.arrays import Array, Like
from attncli.attention.backward import backward
from attncli.attention.formulas import attention, concat
from attncli.attention.masks import adds
from attncli.attention.run import Step
from attncli.convention import Convention
from attncli.formula.common import after_cache
from attncli.formula.compute import Compiled, Items
from attncli.formula.matrices import formula_of, worded
from attncli.formula.parser import letters_of, parse, relettered, without_heads, written
from attncli.stages import GIVEN_GRADIENT, OUTPUT, spec_of

Merge = Literal["shown", "needed", "never"]


class Sizes(NamedTuple):
    """All that a plan must know of the inputs: their sizes, and which there are.

    scores      shape of the scores: [batch, head, n_q, n_k] or its last axes; n_k with the past
    n_kv_heads  key heads
    d_k         width of a query
    n_past      keys before the first query's own
    inputs      names of the inputs
    adds        whether numbers of the given mask are added to the scores
    mask        shape of the given mask
    """

    scores: tuple[int, ...]
    n_kv_heads: int
    d_k: int
    n_past: int = 0
    inputs: frozenset[str] = frozenset("qkv")
    adds: bool = False
    mask: tuple[int, ...] = ()

    @property
    def n_heads(self) -> int:
        """Query heads."""
        return self.scores[-3] if len(self.scores) > 2 else 1

    def naming(
        self, inputs: Collection[str], convention: Convention, mask: Array | None = None
    ) -> Sizes:
        """The same with the names of these inputs, one of which may be a mask."""
        if mask is None:
            return self._replace(inputs=frozenset(inputs), adds=False, mask=())
        return self._replace(inputs=frozenset(inputs), adds=adds(mask, convention), mask=mask.shape)


@lru_cache(1024)
def plan(
    convention: Convention,
    sizes: Sizes,
    *,
    source: str = "x",
    letter: str = "",
    merge: Merge | None = None,
    spreads: bool = False,
) -> tuple[Step, ...]:
    """The steps from what is given to the output, in the order of the computation.

    Where the gradient of the last stage is given, those of all that goes in follow.

    source       the stage that is projected where x is given, such as its norm
    letter       its symbol, where it is not that of the registry
    merge        what becomes of the outputs of heads: they are put side by side, "shown"; or only
                 as far as "needed", for rows as wide as x; or "never". None: "shown" where they
                 are made of x
    spreads      whether the key head of each query head is a step of its own: `k_shared`

    >>> [step.name for step in plan(Convention(softcap=2.0), Sizes((3, 5), 1, 7))]
    ['scores', 'scaled', 'capped', 'weights', 'lse', 'output']
    """
    merge = merge or ("shown" if "x" in sizes.inputs else "never")
    new = Plan(convention, sizes, {source: letter} if letter else {}, spreads=spreads)
    attention(new, source, merge)
    gradients = backward(new.steps) if GIVEN_GRADIENT in sizes.inputs else []
    if merge == "shown" and "x" not in sizes.inputs:  # the gradient is that of the output
        concat(new, OUTPUT)
    return tuple(new.steps + gradients)


def after_past(step: Step, past: Array, n_cached: int, **more: Any) -> Array:
    """The rows of a step after those of a cache."""
    return np.ascontiguousarray(np.concatenate([past, step.compute(**more)], axis=-2))


def like_after_past(step: Step, past: Like, n_cached: int, **more: Like) -> Like:
    """The shape and the type of that."""
    new = past._replace(shape=step.alike(**more).shape)
    *lead, n_new, d = new.shape
    whole = new._replace(shape=(*lead, past.shape[-2] + n_new, d))
    return whole._replace(takes=whole.nbytes + new.nbytes)


class Plan:
    """The steps so far.

    letters    symbols of stages, where they are not those of the registry
    spreads    whether the key head of each query head is a step of its own
    has_heads  whether q, k and v have an axis of heads, if only of one
    is_shared  whether several query heads share a key head
    """

    def __init__(
        self,
        convention: Convention,
        sizes: Sizes,
        letters: Mapping[str, str] = {},
        *,
        spreads: bool = False,
    ) -> None:
        self.convention, self.sizes, self.letters = convention, sizes, dict(letters)
        self.has_heads = len(sizes.scores) > 2
        self.is_shared = self.has_heads and sizes.scores[-3] != sizes.n_kv_heads
        self.spreads = spreads and self.is_shared
        self.steps: list[Step] = []

    def inputs(self, **reads: str) -> dict[str, str]:
        """Those of these reads, name in a formula → stage, whose stage is an input."""
        return {parameter: name for parameter, name in reads.items() if name in self.sizes.inputs}

    def add(
        self,
        name: str,
        text: str,
        words: str = "",
        x: str = "",
        *,
        reads: Mapping[str, str] = {},
        letters: Mapping[str, str] = {},
        sizes: Mapping[str, int] = {},
        back: Mapping[str, tuple[str, str] | None] = {},
        fields: Mapping[str, Any] = {},
        **params: Any,
    ) -> str:
        """Adds a step, and gives its name.

        text     its formula by cells, of which a part in braces is kept where all of it is read
        words    its formula in words, in which {names} are symbols; "": that in matrices
        x        the stage that the formula calls x
        reads    the others: name in the formula → stage
        letters  other letters for some of the formula
        sizes    of letters that no array has alone
        back     as in Step
        fields   other fields of the step, such as its symbol
        params   the formula's numbers
        """
        reads = {"x": x, **reads} if x else reads
        backs = {
            operand: way and (self.bound(way[0], letters), way[1]) for operand, way in back.items()
        }
        text = self.bound(text, letters)
        line = written(text, frozenset(reads))
        symbols = tuple(
            [(x, self.letters.get(stage) or spec_of(stage).symbol) for x, stage in reads.items()]
        )
        symbol = fields.get("symbol") or spec_of(name).symbol
        formula = in_matrices(symbol, words, line, symbols, tuple(params.items()))
        if "·" in line and self.is_shared:
            sizes = {"g": self.sizes.n_kv_heads, **sizes}
        step = Step(name, text, reads, params, formula, self.convention.dtype)
        step = step._replace(sizes=sizes, back=backs, **fields)
        self.steps.append(step)
        return name

    def add_function(
        self,
        name: str,
        function: Callable[..., Array],
        words: str = "",
        *,
        like: Callable[..., Like | Compiled],
        reads: Mapping[str, str] = {},
        **params: Any,
    ) -> str:
        """Adds a step that a function computes, not a formula, and gives its name."""
        self.steps.append(Step(name, "", reads, params, words, function=function, like=like))
        return name

    def shared(self, name: str) -> str:
        """Adds keys or values for every query head, and gives the stage's name."""
        text = relettered("X[b,h,j,d] = x[b,g,j,d]", h=self.of_group)
        sizes, order = self.sizes, self.convention.head_order
        params = {"n_kv_heads": sizes.n_kv_heads, "order": order}
        step = Step(f"{name}_shared", text, {"x": name}, params, dtype=self.convention.dtype)
        self.steps.append(
            step._replace(sizes={"g": sizes.n_kv_heads, "r": sizes.n_heads // sizes.n_kv_heads})
        )
        return step.name

    def after_cache(self, name: str) -> None:
        """Puts the cache before the keys or values that the last step makes of x."""
        last, n_cached = self.steps.pop(), self.sizes.n_past
        letter, _, product = last.formula.partition(" = ")

        step = last._replace(
            text=after_cache(last.text),
            reads={**last.reads, "past": f"past_{name}"},
            params={"n_cached": n_cached},
            formula=f"{letter} = [cache; {product}]",
            sizes={**last.sizes, "i": self.sizes.scores[-1] - n_cached},
            back={"past": None},
            function=partial(after_past, last),
            like=partial(like_after_past, last),
        )
        self.steps.append(step)

    def of_rows(self) -> None:
        """Makes of x, in the last step, the queries that are asked for alone."""
        last = self.steps.pop()

        def queries(x: Array, rows: Array, **more: Any) -> Array:
            return last.compute(x=x[..., rows, :], **more)

        def like(x: Like, rows: Like, **more: Any) -> Like | Compiled:
            rows_of_x = x._replace(shape=(*x.shape[:-2], *rows.shape, x.shape[-1]))
            return last.alike(x=rows_of_x, **more)

        reads = {**last.reads, "rows": "rows"}
        self.steps.append(last._replace(text="", reads=reads, function=queries, like=like))

    @property
    def of_group(self) -> str:
        """The letters of query heads: side by side on each key head, or the key heads in turn."""
        return "g·r" if self.convention.head_order == "blocks" else "r·g"

    def bound(self, text: str, letters: Mapping[str, str]) -> str:
        """A formula with its letters: of query heads and key heads, where there are any."""
        line = relettered(text, **letters)
        if not self.has_heads:
            return without_heads(line)
        if self.spreads or not self.is_shared:
            return relettered(line, g="h")
        return relettered(line, h=self.of_group) if letters_of(line) >= {"g", "h"} else line


@lru_cache(4096)
def in_matrices(symbol: str, words: str, line: str, symbols: Items, params: Items) -> str:
    """The formula of a stage in words, or where it has none as its cells say it, in matrices."""
    if words:
        return f"{symbol} = {worded(words, dict(symbols), dict(params))}"
    return formula_of(replace(parse(line), symbol=symbol), dict(symbols), dict(params))
