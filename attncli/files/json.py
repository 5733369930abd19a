"""Reads JSON: a nested list (one matrix), an object that names q, k, v, …, or a saved trace.

    {"q": [[…]], "k": …, "v": …, "mask": …, "scale": 0.5, "tokens": ["the", "cat"]}

`tokens` may be {"queries": […], "keys": […]}. A name with null is as if it were not there. The
names of nested objects are joined, attention.query.weight, and those of a list of objects too:
heads.0.w_q. An array may be {"word": [numbers], …}: a row for each word.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from attncli.arrays import Array
from attncli.budget import check_cells
from attncli.errors import InputError
from attncli.files.fields import is_field
from attncli.files.load import (
    LABELS,
    Loaded,
    check_once,
    collected,
    part_of,
    popped_fields,
    scale_of,
    within_name,
)
from attncli.files.messages import decoded, location, quote
from attncli.files.numbers import MAX_DEPTH, NOT_JSON, decimals_of, described, number_of, to_array
from attncli.files.roles import EMBEDDINGS, is_attended, role_of
from attncli.files.source import ARRAY, TEXT, Source

# escapes one after the other, so that neither \\\\ud800 nor a whole pair is taken for a half
_ESCAPES = re.compile(
    r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>\\u[dD][89a-fA-F]..)|\\.", re.DOTALL
)

_MARKS = re.compile(r"[\s,;\[\]]+")  # what separates two numbers

# half-cells by the sign that shows them: the comma or bracket before a value, both quotes of a text
_COSTS = ((b",", 2), (b"[", 2), (b"{", 8), (b'"', 1))

_PARAMETERS = {"weight", "kernel", "bias", "w", "b"}
"""In an object called `query`: those of what projects it. It is no array of queries then."""


def read(source: Source, wanted: Callable[[str], object]) -> Loaded:
    """What a JSON text holds; InputError where it is malformed or holds no array."""
    origin = source.origin
    document = parse(source.read(TEXT), origin, other_forms=True)
    decimals: dict[str, int] = {}

    def array(name: str, nested: list[Any]) -> Array:
        made = to_array(nested, location(origin, name))
        decimals[name] = decimals_of(nested)
        return made

    if isinstance(document, list):
        readers = {"": partial(array, "", document)}
        return collected(source, wanted, readers, decimals=decimals)
    if not isinstance(document, dict):
        what = f"{origin} holds neither a list nor an object"
        raise InputError(what, 'write [[1, 2], [3, 4]] or {"q": [[1, 2], [3, 4]]}')
    if document.get("attncli") == "trace":
        from attncli.files.trace import loaded_trace, trace_from

        return loaded_trace(trace_from(document, origin), origin, source.name or None)
    arrays: dict[str, Callable[[], Array]] = {}
    labels: dict[str, object] = {}
    others: dict[str, str] = {}
    words: dict[str, tuple[str, ...]] = {}
    scale = None
    document, source = _part(document, source)
    check_once((name for name, value in document.items() if value is not None), origin)
    fields = popped_fields(document, wanted, source.name)
    if wanted("") and _are_vectors(document) and not any(map(wanted, document)):
        document = {"": document}
    for name, value in _joined(document, origin):
        if value is None:
            continue
        if name in arrays or name in others:  # with a dot, and joined
            raise InputError(f"{origin} has {quote(name)} twice", "keep one of them")
        if name.lower() in LABELS:
            labels[name.lower()] = value
        elif name.lower() == "scale":
            scale = scale_of(value, origin)
        elif isinstance(value, dict) and _are_vectors(value):
            arrays[name], words[name] = partial(array, name, [*value.values()]), (*value,)
        elif isinstance(value, list) and not (role_of(name) in EMBEDDINGS and _is_text(value)):
            arrays[name] = partial(array, name, value)
        else:
            others[name] = f"{location(origin, name)} is {described(value)}, not an array"
    more = {"decimals": decimals, "words": words, "scale": scale, "fields": fields}
    return collected(source, wanted, arrays, labels, others, **more)


def _part(document: dict[str, Any], source: Source) -> tuple[dict[str, Any], Source]:
    """The part that `::name` asks for, with what it says of its attention; else the document."""
    if not source.name:
        return document, source
    joined = dict(_joined(document, source.origin))
    part, own = part_of(joined, within_name(joined, source))
    return (part, own) if source.name and not own.name else (document, source)


def _joined(document: dict[str, Any], origin: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """What a document holds by name, that of nested objects by their names joined with dots."""
    if depth > MAX_DEPTH:
        raise InputError(f"{origin} is nested too deeply", "use 2 to 4 levels")
    for name, value in document.items():
        inside = value
        if isinstance(value, list) and value and all(isinstance(x, dict) for x in value):
            inside = {str(number): x for number, x in enumerate(value)}
        is_whole = not isinstance(inside, dict)
        is_whole = is_whole or not any(isinstance(x, list | dict) for x in inside.values())
        if depth == 0 and not is_whole:
            is_own = name.lower() in LABELS or is_field(name)
            is_role = is_attended(name) and _PARAMETERS.isdisjoint(map(str.lower, inside))
            is_array = bool(not name or role_of(name)) and _are_vectors(inside)
            is_whole = is_own or is_role or is_array
        if is_whole:
            yield name, value
            continue
        for own, x in _joined(inside, origin, depth + 1):
            yield f"{name}.{own}", x


def _are_vectors(document: dict[str, Any]) -> bool:
    """Whether it may be {"word": [numbers], …}."""
    rows = document.values()
    are_lists = bool(rows) and all(isinstance(row, list) and row for row in rows)
    return are_lists and not any(isinstance(row[0], list | dict | str) for row in rows)


def _is_text(items: list[Any]) -> bool:
    """Whether a list begins with text that is no number."""
    return bool(items) and isinstance(items[0], str) and items[0] not in NOT_JSON


def parse(
    data: bytes,
    origin: str,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
    *,
    other_forms: bool = False,
) -> Any:
    """The document in a JSON text; numbers beyond float64 become Beyond.

    Objects are made by `pairs`, from their keys and values. Without it they are dicts, and a key
    that is there twice is refused. With `other_forms` it may be written as forms.py has it.
    """
    check_cells(_cells(data), f"{origin} has", "save the arrays as npy or npz", unit="values")
    text = decoded(data, json.detect_encoding(data), origin)
    del data  # it may be as large as all that follows
    if not text or text.isspace():
        raise InputError(f"{origin} is empty", "it should hold arrays")

    def unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
        document = dict(items)
        if len(document) < len(items):
            (twice, _), *_ = Counter(name for name, _ in items).most_common(1)
            raise InputError(f"{origin} has the key {quote(twice)} twice", "keep one of them")
        return document

    read = partial(json.loads, parse_float=number_of, object_pairs_hook=pairs or unique)
    try:
        try:
            document = read(text)
        except json.JSONDecodeError as problem:
            if not other_forms:
                raise _malformed(problem, origin) from problem
            document = _other_form(text, origin, problem, read)
    except InputError:
        raise
    except ValueError as problem:  # Python reads no whole number of more than 4300 digits
        message = f"{origin} holds a number beyond float64"
        raise InputError(message, "the limit is 1.8e308") from problem
    except RecursionError as problem:
        raise InputError(f"{origin} is nested too deeply", "use 2 to 4 levels") from problem
    for escape in _ESCAPES.finditer(text) if "\\u" in text else ():
        if escape["half"]:  # which no encoding can write
            message = f"{origin} holds {escape['half']}, half of a surrogate pair"
            raise InputError(message, "write whole characters")
    return document


def _other_form(
    text: str, origin: str, problem: json.JSONDecodeError, read: Callable[[str], Any]
) -> Any:
    """The document of a text that is not JSON; InputError where it has no other form either."""
    from attncli.files.forms import HINT, as_json

    check_cells(_MARKS.sub(" ", text).count(" "), f"{origin} has", "save it as npy", unit="values")
    plain = as_json(text, origin)
    check_cells(_cells(plain.encode()), f"{origin} has", "save it as npy", unit="values")
    try:
        return read(plain)
    except json.JSONDecodeError:
        if ARRAY.match(text):
            raise InputError(f"{origin} is no array that is understood", HINT) from problem
        raise _malformed(problem, origin) from problem


def _cells(data: bytes) -> int:
    """How many values a text has at most; one that Python holds in more bytes counts as more."""
    return sum(data.count(sign) * cost for sign, cost in _COSTS) // 2


def _malformed(problem: json.JSONDecodeError, origin: str) -> InputError:
    where = f"line {problem.lineno}, column {problem.colno}"
    hint = "put commas between entries, none after the last, and names in double quotes"
    if "'" in problem.doc and '"' not in problem.doc:
        hint = "use double quotes"
    return InputError(f"{origin} is not JSON: {where}: {problem.msg}", hint)
