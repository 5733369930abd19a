"""Reads JSON: a nested list (one matrix), an object that names q, k, v, …, or a saved trace.

    {"q": [[…]], "k": …, "v": …, "mask": …, "scale": 0.5, "tokens": ["the", "cat"]}

`tokens` may be {"queries": […], "keys": […]}. A name with null is as if it were not there. The
names of nested objects are joined, attention.query.weight, and those of a list of objects too:
heads.0.w_q. An array may be {"word": [numbers], …}: a row for each word. Or it is drawn, where the
numbers do not matter: {"random": [7, 16], "seed": 1} is 7 rows of 16 numbers, evenly from 0 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.budget import check_cells
from attncli.errors import InputError
from attncli.files.contents import (
    LABELS,
    FileContents,
    collected,
    part_of,
    popped_fields,
    scale_of,
    within_name,
)
from attncli.files.json_text import decimals_of, described, parse, to_array
from attncli.files.messages import location, quote
from attncli.files.numbers import MAX_DEPTH, NOT_JSON
from attncli.files.roles import EMBEDDINGS, is_attended, is_field, role_of
from attncli.files.source import TEXT, Source

_PARAMETERS = {"weight", "kernel", "bias", "w", "b"}
"""In an object called `query`: those of what projects it. It is no array of queries then."""


def read(source: Source, selector: Callable[[str], object]) -> FileContents:
    """What a JSON text holds; InputError where it is malformed or holds no array."""
    origin = source.origin
    document = parse(source.read(TEXT), origin, other_forms=True)
    decimals: dict[str, int] = {}

    def array(name: str, nested: list[Any] | dict[str, Any]) -> Array:
        if isinstance(nested, dict):
            return _drawn(location(origin, name), **nested)
        values = to_array(nested, location(origin, name))
        decimals[name] = decimals_of(nested) if values.dtype.kind == "f" else 0
        return values

    if isinstance(document, list):
        readers = {"": partial(array, "", document)}
        return collected(source, selector, readers, decimals=decimals)
    if not isinstance(document, dict):
        message = f"{origin} holds neither a list nor an object"
        raise InputError(message, 'write [[1, 2], [3, 4]] or {"q": [[1, 2], [3, 4]]}')
    if document.get("attncli") == "trace":
        from attncli.files.trace import loaded_trace, trace_from

        return loaded_trace(trace_from(document, origin), origin, source.name or None)
    arrays: dict[str, Callable[[], Array]] = {}
    labels: dict[str, object] = {}
    others: dict[str, str] = {}
    words: dict[str, tuple[str, ...]] = {}
    scale = None
    if source.name:
        joined = dict(_joined(document, origin))
        joined, part = part_of(joined, within_name(joined, source))
        document, source = (document, source) if part.name else (joined, part)
    fields = popped_fields(document, source, selector)
    if selector("") and _are_vectors(document) and not any(map(selector, document)):
        document = {"": document}
    for name, value in (item for item in _joined(document, origin) if item[1] is not None):
        first = value[0] if isinstance(value, list) and value else None
        is_text = isinstance(first, str) and first not in NOT_JSON
        is_of_words = is_text and role_of(name) in EMBEDDINGS  # whose embeddings are not there
        if name in arrays or name in others:  # with a dot, and joined
            raise InputError(f"{origin} has {quote(name)} twice", "keep one of them")
        if name.lower() in LABELS:
            labels[name.lower()] = value
        elif name.lower() == "scale":
            scale = scale_of(value, origin)
        elif isinstance(value, dict) and _are_vectors(value):
            arrays[name], words[name] = partial(array, name, [*value.values()]), (*value,)
        elif (isinstance(value, list) and not is_of_words) or _is_drawn(value):
            arrays[name] = partial(array, name, value)
        else:
            others[name] = f"{location(origin, name)} is {described(value)}, not an array"
    more = {"decimals": decimals, "words": words, "scale": scale, "fields": fields}
    return collected(source, selector, arrays, labels, others, **more)


def _joined(document: dict[str, Any], origin: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """What a document holds by name, that of nested objects by their names joined with dots."""
    if depth > MAX_DEPTH:
        raise InputError(f"{origin} is nested too deeply", "use 2 to 4 levels")
    for name, value in document.items():
        inside = value
        if isinstance(value, list) and value and all(isinstance(x, dict) for x in value):
            inside = {str(number): x for number, x in enumerate(value)}
        is_whole = not isinstance(inside, dict) or _is_drawn(inside)
        is_whole = is_whole or not any(isinstance(x, list | dict) for x in inside.values())
        if depth == 0 and not is_whole:
            is_own = name.lower() in LABELS or is_field(name)
            is_role = is_attended(name) and _PARAMETERS.isdisjoint(map(str.lower, inside))
            is_array = bool(not name or role_of(name)) and _are_vectors(inside)
            is_whole = is_own or is_role or is_array
        if is_whole:
            yield name, value
            continue
        for inner_name, x in _joined(inside, origin, depth + 1):
            yield f"{name}.{inner_name}", x


def _is_drawn(value: object) -> bool:
    """Whether it is {"random": [n, …], "seed": n}."""
    if not isinstance(value, dict) or value.keys() != {"random", "seed"}:
        return False
    return isinstance(value["random"], list) and type(value["seed"]) is int


def _drawn(place: str, random: list[Any], seed: int) -> Array:
    """Numbers drawn evenly from 0 to 1, in an array of this shape."""
    if not 1 <= len(random) <= MAX_DEPTH or not all(type(n) is int and n > 0 for n in random):
        shape = quote(str(random))[1:-1]
        raise InputError(f"{place}: {shape} is no shape", 'write "random": [7, 16]')
    if seed < 0:
        raise InputError(f"{place}: the seed is {seed}", "use a whole number from 0")
    check_cells(math.prod(random), f"{place} has", "draw fewer")
    return np.random.default_rng(seed).random(random)


def _are_vectors(document: dict[str, Any]) -> bool:
    """Whether it may be {"word": [numbers], …}."""
    rows = document.values()
    are_lists = bool(rows) and all(isinstance(row, list) and row for row in rows)
    return are_lists and not any(isinstance(row[0], list | dict | str) for row in rows)
