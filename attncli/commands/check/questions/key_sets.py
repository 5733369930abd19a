"""Some keys or queries in words and as a condition: "the last 2 of every 6 keys", j % 6 >= 4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from attncli.arrays import BoolArray
from attncli.commands.check.questions.answer import places_text

NAMES, LETTERS = {"key": "keys", "query": "queries"}, {"key": "j", "query": "i"}


class KeySet(NamedTuple):
    """Some keys, or queries: in words, and by the letter j, or i.

    is_one  whether the words are of one key
    inside, outside  the conditions under which a key is in the set, and is not; "" for both: a list
    """

    words: str
    is_one: bool
    inside: str = ""
    outside: str = ""


def key_set(members: BoolArray, is_known: BoolArray, kind: str = "key") -> KeySet:
    """The set of those keys, or queries, that are known to be members; others may be in it or not.

    >>> key_set(np.arange(12) % 6 > 3, np.ones(12, dtype=bool)).words
    'the last 2 of every 6 keys'
    >>> key_set(np.arange(12) > 7, np.ones(12, dtype=bool))
    KeySet(words='the keys from 9 on', is_one=False, inside='j >= 8', outside='j < 8')
    """
    x = LETTERS[kind]
    places, at = np.arange(len(members)), np.flatnonzero(members & is_known)
    if len(at) == 1:
        place = int(at[0])
        return KeySet(f"{kind} {place + 1}", True, f"{x} == {place}", f"{x} != {place}")
    for candidate, is_member in (*_runs(places, at, kind), *_periods(places, at, kind)):
        if (is_member == members)[is_known].all():
            return candidate
    return KeySet(places_text(kind, at.tolist()), False)


Candidates = Iterator[tuple[KeySet, BoolArray]]


def _runs(x: np.ndarray, at: np.ndarray, kind: str) -> Candidates:
    """Those in a row: to the end, from the beginning, or between others."""
    keys, j = NAMES[kind], LETTERS[kind]
    n, first, end = len(x), int(at[0]), int(at[-1]) + 1
    yield (
        KeySet(f"the {keys} from {first + 1} on", False, f"{j} >= {first}", f"{j} < {first}"),
        x >= first,
    )
    yield KeySet(f"the first {end} {keys}", False, f"{j} < {end}", f"{j} >= {end}"), x < end
    if end < n:
        inside, outside = f"{j} >= {first} and {j} < {end}", f"{j} < {first} or {j} >= {end}"
        words = places_text(kind, range(first, end))
        yield KeySet(words, False, inside, outside), (x >= first) & (x < end)


def _periods(x: np.ndarray, at: np.ndarray, kind: str) -> Candidates:
    """The same ones of every few."""
    keys, j = NAMES[kind], LETTERS[kind]
    for n in range(2, int(at[-1] - at[0]) + 1):  # of two periods at least
        first, end = int((at % n).min()), int((at % n).max()) + 1
        count = end - first
        if count == n:
            continue
        if end == n:
            words = (
                f"the last {count} of every {n} {keys}"
                if count > 1
                else f"the last of every {n} {keys}"
            )
            inside, outside = f"{j} % {n} >= {first}", f"{j} % {n} < {first}"
        elif first == 0:
            words = (
                f"the first {count} of every {n} {keys}"
                if count > 1
                else f"the first of every {n} {keys}"
            )
            inside, outside = f"{j} % {n} < {end}", f"{j} % {n} >= {end}"
        else:
            words = f"{places_text(kind, range(first, end))} of every {n}"
            inside = f"{j} % {n} >= {first} and {j} % {n} < {end}"
            outside = f"{j} % {n} < {first} or {j} % {n} >= {end}"
        yield KeySet(words, count == 1, inside, outside), (x % n >= first) & (x % n < end)
