"""What stands for the names in a line of the catalogue: numbers, texts, and loops over both.

for n in 1, 2 as two                         {n} is this text, and {words} what is said of it
for n = size[d], size[e] as d_v, 0 to 3      numbers, of which those that are equal are one
for n = (size[j] - 1) // block * block of block in 16, 32; m = {n} + 1      not 0; and another
for layouts(h,i)                             what has this name below
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from attncli.commands.check.bugs.bug import Evidence
from attncli.commands.check.bugs.rewrite import names_in
from attncli.commands.check.bugs.terms import BLOCKS, FACTS, LOOPS, OF_STAGES, sizes_of
from attncli.convention import EmptyRows
from attncli.formula.compute import compute
from attncli.stages import QKV, gradient_of
from attncli.tolerance.setup import Setup

Texts = dict[str, str]
"""What stands for the names in braces of a line; `words` is for its detail."""


@lru_cache(1)
def catalogue() -> list[str]:
    """The parts of catalogue.md: how to read it, the bugs, the units, and the templates."""
    return (Path(__file__).parent / "catalogue.md").read_text(encoding="utf-8").split("\n---\n")


@lru_cache(1)
def macros() -> dict[str, str]:
    """The texts that several rows have, by their names in angle brackets."""
    lists = {"blocks": BLOCKS, "loops": LOOPS, "factors": OF_STAGES}
    texts = re.findall(r"^    ([a-z ]+) = (.+)$", catalogue()[0], re.M)
    return {name: ", ".join(map(str, x)) for name, x in lists.items()} | dict(texts)


@lru_cache(1024)
def _literals(text: str) -> tuple[Any, ...]:
    """What Python writes so; none where it is no number, text, or the like."""
    try:
        return (ast.literal_eval(text),)
    except (ValueError, SyntaxError):
        return ()


def full(text: str, texts: Mapping[str, str]) -> str:
    """A text with what stands for its names in braces, and for those in angle brackets."""
    if "{" not in text and "<" not in text:
        return text
    for name, other in texts.items():
        text = text.replace(f"{{{name}}}", other)
    while (macro := re.search(r"<([a-z][a-z ]+)>", text)) is not None:
        formulas = macros()
        name = macro[1] if macro[1] in formulas else macro[1].partition(" ")[0]
        formula = formulas[name]
        for sign, letter in zip("XY", macro[1].removeprefix(name).split(), strict=False):
            formula = formula.replace(sign, letter)
        text = text.replace(macro[0], formula)
    return text


def number_text(x: Any, form: str = "") -> str:
    """A number, or several, as a sentence has them; of keys: how many."""
    if isinstance(x, np.ndarray) and x.ndim:
        more = f" and {x.size - MOST_SAID} more" if x.size > MOST_SAID else ""
        return ", ".join(f"{value:.6g}" for value in x.ravel()[:MOST_SAID]) + more
    if form == "keys":
        return "any number of keys" if x < 0 else f"{x:g} key{'s' * (x != 1)}"
    return f"{x:{form or '.6g'}}"


MOST_SAID = 8
"""So many numbers are said, one for each head or batch item."""


class Facts(NamedTuple):
    """What edits may name of a setup and of what was observed, and what stands for ?."""

    setup: Setup
    evidence: Evidence
    fitted: Any = None

    def of(self, text: str) -> dict[str, Any]:
        """The numbers that a text names."""
        names = {*re.findall(r"\b[a-z_]{2,}\b", text)}
        numbers = {name: FACTS[name](self.setup) for name in names & FACTS.keys()}
        if "other_gradients" in names:
            others = self.evidence.expected.keys() - {*map(gradient_of, QKV)}
            numbers["other_gradients"] = bool(others)
        more = {"eps": self.evidence.eps, "fitted": self.fitted}
        return numbers | {name: more[name] for name in names & more.keys()}

    def number(self, text: str, constants: Mapping[str, Any] = {}) -> Any:
        """The number, or the truth, of a text, which may read inputs."""
        if text.removeprefix("-").isdigit():
            return int(text)
        arrays = {
            name: self.setup.inputs[name] for name in names_in(text) & self.setup.inputs.keys()
        }
        values = {**arrays, **self.of(text), **constants}
        return compute(f"X[] = {text}", values, sizes_of(self.setup)).item()

    def value(self, text: str, constants: Mapping[str, Any] = {}) -> Any:
        """What Python writes so, or a number, or two whole ones."""
        if literal := _literals(text):
            return literal[0]
        if pair := re.fullmatch(r"\((.+), (.+)\)", text):
            return tuple(int(self.number(x, constants)) for x in pair.groups())
        return self.number(text, constants)

    def detail(self, text: str, texts: Mapping[str, str], constants: Mapping[str, Any] = {}) -> str:
        """A sentence with the numbers and texts that it has in braces."""

        def in_words(braces: re.Match[str]) -> str:
            name, _, form = braces[1].partition(":")
            every = {**self.setup.inputs, **constants, **({} if form else texts)}
            if (x := every.get(name)) is not None:
                return x if isinstance(x, str) else number_text(x, form)
            for key, other in texts.items():
                name = re.sub(rf"\b{re.escape(key)}\b", other, name)
            return number_text(self.number(name, constants), form)

        return re.sub(r"\{([^{}]+)\}", in_words, text)

    def loop(self, text: str, condition: str) -> Iterator[Texts]:
        """What stands for the names in braces, once for each variant whose condition holds."""
        base = {"first": first_key_of(self.setup)}
        if condition and "{" not in condition and not self.number(condition):
            return
        for texts in self.repeated(full(text, base)):
            if "{" not in condition or self.number(full(condition, texts)):
                yield base | texts

    def repeated(self, text: str) -> Iterator[Texts]:
        """The texts of a loop."""
        if not text:
            yield {}
        elif call := re.fullmatch(r"(\w+)\(([\w,]*)\)", text):
            yield from SOURCES[call[1]](self.setup, *filter(None, call[2].split(",")))
        else:
            text, *others = text.split("; ")
            name, sign, values = re.split(" (in|=) ", text, maxsplit=1)
            formula, _, items = values.rpartition(" of block in ")
            for value, words in self.values(items, formula, sign == "=").items():
                texts = {name: value, "words": " or ".join(words)}
                for other in others:
                    also, _, number = other.partition(" = ")
                    texts[also] = f"{self.number(full(number, texts)):g}"
                yield texts

    def values(self, items: str, formula: str, are_numbers: bool) -> dict[str, list[str]]:
        """The texts, or numbers, of a loop: each once, with the words of all that give it."""
        values = dict[str, list[str]]()
        for item in self.items(items):
            value, _, words = item.partition(" as ")
            if are_numbers:
                constants = {"block": float(value)} if formula else {}
                value = f"{self.number(formula or value, constants):.17g}"
            if not (formula and value == "0"):
                values.setdefault(value, []).append(words or item)
        return values

    def items(self, text: str) -> Iterator[str]:
        """What is between the commas; from one number to another all of them."""
        for item in re.split(r", (?![^(]*\))", text):
            first, _, last = item.partition(" to ")
            if last:
                yield from map(str, range(int(self.number(first)), int(self.number(last)) + 1))
            else:
                yield item


# ---- texts to repeat for


def _layouts(setup: Setup, head: str, row: str) -> Iterator[Texts]:
    """Where an entry really is if heads and tokens are taken for each other by a reshape."""
    if sizes_of(setup)[head] > 1:
        words = "stored as (tokens, heads, d), read as (heads, tokens, d)"
        yield {"at": f"<split {head} {row}>", "words": words}
        words = "stored as (heads, tokens, d), read as (tokens, heads, d)"
        yield {"at": f"<merged {head} {row}>", "words": words}


def _empty_rules(setup: Setup) -> Iterator[Texts]:
    """Each rule for empty rows, where over another axis others may be empty.

    A causal mask alone leaves every key a query, where there are as many.
    """
    restricts = (
        setup.inputs.keys() & {"given_mask", "kv_len"} or setup.convention.window is not None
    )
    may_empty = restricts or (setup.convention.causal and setup.shape[2] < setup.shape[3])
    in_text = {"zero": "", "nan": ", empty=nan", "uniform": ", empty=uniform"}
    for rule in get_args(EmptyRows) if may_empty else (setup.empty_rows,):
        yield {"rule": rule, "empty": in_text.get(rule, "")}


def first_key_of(setup: Setup) -> str:
    """The key position of the first query: where key lengths count, one of each batch item."""
    (n_q, n_k), is_last = setup.shape[2:], setup.convention.causal_align == "bottom-right"
    if is_last and "kv_len" in setup.inputs:
        return f"kv_len[b] - {n_q}"
    return str(n_k - n_q if is_last else setup.n_past)


def _readings(setup: Setup) -> Iterator[Texts]:
    """K and V in another layout, of another head, or of one batch item or chunk for all."""
    (n_batch, n_heads, _q, n_k), n_keys = setup.shape, setup.inputs["k"].shape[1]
    if n_heads == n_keys:
        yield from ({**x, "at": f"b,{x['at']}"} for x in _layouts(setup, "h", "j"))
    if n_batch > 1:
        yield {"at": "0,h,j", "words": "of the first batch item"}
    if n_keys > 1:
        yield {"at": "b,(h - 1) % size[h],j", "words": "of the head before"}
    for parts in (parts for parts in (2, 4, 8) if parts < n_k):
        at = f"b,h,(j % {n_k // parts} if j < {n_k // parts * parts} else j)"
        yield {"at": at, "words": f"the first of {parts} chunks for all"}


def _elsewhere(setup: Setup, head: str, row: str) -> Iterator[Texts]:
    """Numbers of a neighbour or the first, along one axis; or in another layout."""
    at = ["b", head, row]
    for axis, x in enumerate(at):
        if sizes_of(setup)[x] > 1:
            for other in (f"({x} - 1) % size[{x}]", f"({x} + 1) % size[{x}]", "0"):
                yield {"at": ",".join([*at[:axis], other, *at[axis + 1 :]]), "words": ""}
    yield from ({**x, "at": f"b,{x['at']}"} for x in _layouts(setup, head, row))


SOURCES: Mapping[str, Callable[..., Iterator[Texts]]] = {
    "layouts": _layouts,
    "empty_rules": _empty_rules,
    "readings": _readings,
    "elsewhere": _elsewhere,
}
