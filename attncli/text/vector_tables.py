"""Vectors that are read whole: JSON, and what is written on the command line.

{"king": [0.9, 0.5, 0.1]}            a file, or the source itself
king=0.9,0.5,0.1 queen=0.2,0.5,0.1   separated by spaces or semicolons
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError

Array = npt.NDArray[np.float64]

MOST_JSON = 1 << 28
_INLINE = re.compile(r"\s*[^\s=][^=]*=\s*[-+.\d]")


@dataclass(frozen=True)
class Table:
    """Words and what stands for their vectors, not yet looked at one by one."""

    rows: dict[str, Any]
    dim: int
    origin: str
    repeated: frozenset[str] = frozenset()

    def row(self, word: str) -> Array | str:
        """The vector of a word, or what is wrong with it."""
        values = self.rows[word]
        if not _are_numbers(values):
            return "holds something that is no list of numbers"
        if len(values) != self.dim:
            numbers = "number" if len(values) == 1 else "numbers"
            return f"holds {len(values)} {numbers}, not {self.dim}"
        try:
            row = np.array([float(value) for value in values])
        except OverflowError:
            return "holds a number that is not finite"
        return row if np.isfinite(row).all() else "holds a number that is not finite"


def inline_table(source: str) -> Table | None:
    """The vectors written in the source itself; None where it names a file.

    >>> inline_table("king=0.9,0.5 queen=0.2,0.5").rows["queen"]
    [0.2, 0.5]
    """
    if os.path.exists(source):
        return None
    if source.lstrip().startswith("{"):
        return json_table(source, "the JSON given")
    if not _INLINE.match(source):
        return None
    rows: dict[str, Any] = {}
    repeated = set()
    for part in re.split(r"[;\s]+", re.sub(r"\s*([,=])\s*", r"\1", source.strip(" ;\t\n"))):
        word, _, numbers = part.rpartition("=")
        if word in rows:
            repeated.add(word)
        rows.setdefault(word, _numbers(word, numbers, part))
    return _table(rows, "the vectors given", frozenset(repeated))


def json_table(text: str | bytes, origin: str) -> Table:
    """The vectors of a JSON object {word: [numbers]}; InputError where it is none.

    >>> json_table('{"king": [0.9, 0.5]}', "v.json").dim
    2
    """
    repeated: set[str] = set()

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for word, values in pairs:
            if found.setdefault(word, values) is not values:
                repeated.add(word)
        return found

    try:
        rows = json.loads(
            text if isinstance(text, str) else text.decode("utf-8-sig"), object_pairs_hook=once
        )
    except UnicodeDecodeError:
        raise InputError(f"{origin} is JSON but not UTF-8", "save it as UTF-8") from None
    except RecursionError:
        raise InputError(f"{origin} is nested too deep", 'write {"word": [numbers]}') from None
    except ValueError as error:
        raise InputError(f"{origin} is not valid JSON: {error}") from None
    if not isinstance(rows, dict):
        raise InputError(f"{origin} is JSON but no object", 'write {"word": [numbers]}')
    return _table(rows, origin, frozenset(repeated))


def _table(rows: dict[str, Any], origin: str, repeated: frozenset[str]) -> Table:
    sizes = Counter(len(values) for values in rows.values() if _are_numbers(values) and values)
    if not sizes:
        raise InputError(f"{origin} holds no vectors", 'write {"word": [numbers]}')
    return Table(rows, sizes.most_common(1)[0][0], origin, repeated)


def _are_numbers(values: object) -> bool:
    return isinstance(values, list) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )


def _numbers(word: str, numbers: str, part: str) -> list[float]:
    try:
        values = [float(number) for number in numbers.split(",")]
    except ValueError:
        values = []
    if not word or not values or "_" in numbers or not all(map(math.isfinite, values)):
        raise InputError(f"{part!r} is no word with its numbers", "write king=0.9,0.5,0.1")
    return values
