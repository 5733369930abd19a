"""Reading one object of an example's JSON: its keys, their kinds, and the words for what is wrong.

Nothing in such a file is run, and no size in it is believed before it is checked.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError
from attncli.files.messages import listing, quote
from attncli.files.numbers import to_array

Array = npt.NDArray[Any]

MOST_NUMBERS = 1 << 20
"""Most numbers in one array of an example."""
MOST_SIDE = 1 << 11
"""Longest side of a matrix in an example."""
MOST_TEXT = 4000
_FARTHEST = 2**53


@dataclass(frozen=True)
class Node:
    """An object of the document, and its place for messages."""

    fields: dict[str, Any]
    spot: str

    def keys(self, needed: Collection[str], known: Collection[str]) -> None:
        """InputError unless it has the needed keys and no unknown one."""
        every = [*needed, *known]
        for key in self.fields:
            if key not in every:
                near = difflib.get_close_matches(key, every, n=1)
                hint = f"did you mean {quote(near[0])}?" if near else f"known are {listing(every)}"
                raise InputError(f"{self.spot} has the unknown key {quote(key)}", hint)
        if missing := [key for key in needed if key not in self.fields]:
            raise InputError(
                f"{self.spot} has no {quote(missing[0])}", f"it needs {listing(needed)}"
            )

    def text(self, key: str) -> str:
        """The text under a key; "" where there is none."""
        found = self.fields.get(key, "")
        if not isinstance(found, str) or len(found) > MOST_TEXT:
            raise InputError(f"{self.spot}: {key} is not a text of at most {MOST_TEXT} letters")
        return found

    def one_of(self, key: str, choices: Collection[str]) -> str | None:
        """The word under a key, one of the choices; None where there is none."""
        found = self.fields.get(key)
        if found is not None and not (isinstance(found, str) and found in choices):
            shown = quote(str(found), 40)
            raise InputError(f"{self.spot}: {key} is {shown}", f"use {listing(choices)}")
        return found

    def part(self, key: str) -> Node:
        """The object under a key; an empty one where there is none."""
        return node(self.fields.get(key, {}), f"{self.spot}, {key}")

    def items(self, key: str, most: int) -> list[Any]:
        """The list under a key; an empty one where there is none."""
        found = self.fields.get(key, [])
        if not isinstance(found, list) or len(found) > most:
            raise InputError(f"{self.spot}: {key} is not a list of at most {most}")
        return found


def node(found: object, spot: str) -> Node:
    """An object of the document; InputError where it is something else."""
    if not isinstance(found, dict):
        raise InputError(f"{spot} is not an object", 'write {"key": …}')
    return Node(found, spot)


def whole(found: object, spot: str) -> int:
    """A whole number that float64 holds exactly."""
    if not isinstance(found, int) or isinstance(found, bool) or abs(found) > _FARTHEST:
        raise InputError(f"{spot} is not a whole number", "write one such as 4")
    return found


def number(found: object, spot: str) -> float:
    """One number, finite or written "Infinity", "-Infinity", "NaN"."""
    if isinstance(found, list | bool):
        raise InputError(f"{spot} is not one number")
    return float(to_array([found], spot)[0])


def flag(found: object, spot: str) -> bool:
    """True or false."""
    if not isinstance(found, bool):
        raise InputError(f"{spot} is neither true nor false")
    return found


def choice(*words: str) -> Callable[[object, str], str]:
    """A reader of one of these words."""

    def read(found: object, spot: str) -> str:
        if not isinstance(found, str) or found not in words:
            raise InputError(f"{spot} is {quote(str(found), 40)}", f"use {' or '.join(words)}")
        return found

    return read


def words(found: object, spot: str) -> tuple[str, ...]:
    """A list of words, at least one."""
    if not isinstance(found, list) or not 0 < len(found) <= MOST_SIDE:
        raise InputError(f"{spot} is not a list of 1 to {MOST_SIDE} words")
    if any(not isinstance(word, str) or not word or len(word) > MOST_TEXT for word in found):
        raise InputError(f"{spot} holds something else than words")
    return tuple(found)


def array(found: object, spot: str) -> Array:
    """Nested lists of numbers, or {"random": shape, "seed": n}: drawn evenly from [0, 1)."""
    if isinstance(found, dict):
        return _random(Node(found, spot))
    if not isinstance(found, list):
        raise InputError(f"{spot} is not a list of numbers", 'or {"random": [3, 4], "seed": 0}')
    made = to_array(found, spot)
    _check_size(made.shape, spot)
    return made if made.dtype == np.bool_ else made.astype(np.float64)


def matrix(found: object, spot: str) -> Array:
    """An array of rows and columns, neither more than MOST_SIDE."""
    made = array(found, spot)
    if made.ndim != 2 or made.dtype == np.bool_:
        raise InputError(f"{spot} is not a matrix of numbers", "give a list of rows")
    if max(made.shape) > MOST_SIDE:
        raise InputError(f"{spot} is {made.shape[0]} × {made.shape[1]}", f"{MOST_SIDE} is the most")
    return made


def row(found: object, spot: str) -> Array:
    """An array of one dimension."""
    made = array(found, spot)
    if made.ndim != 1 or made.dtype == np.bool_ or made.size > MOST_SIDE:
        raise InputError(f"{spot} is not a list of at most {MOST_SIDE} numbers")
    return made


def _random(given: Node) -> Array:
    given.keys(["random"], ["seed"])
    sizes = given.items("random", 4)
    shape = tuple(whole(size, f"{given.spot}, random") for size in sizes)
    _check_size(shape, given.spot)
    seed = whole(given.fields.get("seed", 0), f"{given.spot}, seed")
    if seed < 0:
        raise InputError(f"{given.spot}: the seed is {seed}", "use a whole number from 0")
    return np.random.default_rng(seed).random(shape)


def _check_size(shape: tuple[int, ...], spot: str) -> None:
    total = 1
    for size in shape:
        total *= size
    if not shape or min(shape) < 1 or total > MOST_NUMBERS:
        raise InputError(f"{spot} has {total} numbers", f"1 to {MOST_NUMBERS} are possible")
