"""JSON in: a nested list (one matrix), an object that names q, k, v, …, or a saved trace.

    {"q": [[…]], "k": …, "v": …, "mask": …, "scale": 0.5, "tokens": ["the", "cat"]}

`tokens` may be {"queries": […], "keys": […]}. Keys with a string or null are passed over, others
that hold no array with a warning.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from functools import partial
from typing import Any

from attncli.errors import InputError
from attncli.files.blob import Blob
from attncli.files.gather import LABELS, Gathering, lone
from attncli.files.loaded import Loaded
from attncli.files.messages import location, quote
from attncli.files.numbers import Beyond, to_array
from attncli.files.trace_file import is_trace, loaded_trace, trace_from_dict

# escapes one after the other, so that neither \\\\ud800 nor a whole pair is taken for a half
_ESCAPES = re.compile(
    r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>\\u[dD][89a-fA-F]..)|\\.", re.DOTALL
)


def read(blob: Blob, member: str | None) -> Loaded:
    """What a JSON text holds; InputError where it is malformed or holds no array."""
    origin = blob.origin
    document = parse(blob.read(), origin)
    if isinstance(document, list):
        return lone(origin, member, partial(to_array, document, origin))
    if not isinstance(document, dict):
        raise InputError(
            f"{origin} holds neither a list nor an object",
            'write [[1, 2], [3, 4]] or {"q": [[1, 2], [3, 4]]}',
        )
    if is_trace(document):
        return loaded_trace(trace_from_dict(document, origin), origin, member)
    return _object(document, origin, member)


def _object(document: dict[str, Any], origin: str, member: str | None) -> Loaded:
    gathering = Gathering(origin, member)
    for name, found in document.items():
        if found is None or isinstance(found, str):
            if name.lower() == "scale" and found is not None:
                gathering.set_scale(found)
            continue
        if name.lower() in LABELS:
            gathering.set_labels(name.lower(), found)
        elif name.lower() == "scale":
            gathering.set_scale(found)
        elif isinstance(found, list):
            gathering.add(name, partial(to_array, found, location(origin, name)))
        else:
            gathering.leave_out(name, "an object" if isinstance(found, dict) else "one value")
    return gathering.done()


def parse(data: bytes, origin: str) -> Any:
    """The document in a JSON text; numbers beyond float64 stand in it as Beyond.

    Raises InputError with line and column where it is malformed, and for a key that stands twice.
    """
    text = _decode(data, origin)
    del data  # it may be as large as all that follows
    if not text or text.isspace():
        raise InputError(f"{origin} is empty", "it should hold arrays")
    try:
        document = json.loads(
            text, parse_float=_float, parse_int=_int, object_pairs_hook=partial(_once, origin)
        )
    except json.JSONDecodeError as problem:
        at = f"line {problem.lineno}, column {problem.colno}"
        raise InputError(f"{origin} is not JSON: {at}: {problem.msg}", _mend(text)) from problem
    except RecursionError as problem:
        raise InputError(f"{origin} is nested too deeply", "use 2 to 4 levels") from problem
    if half := _half_pair(text):
        raise InputError(
            f"{origin} holds {half}, half of a surrogate pair", "write whole characters"
        )
    return document


def _decode(data: bytes, origin: str) -> str:
    try:
        return data.decode(json.detect_encoding(data))
    except UnicodeDecodeError as problem:
        raise InputError(
            f"{origin} is not text: byte {problem.start + 1} is not {problem.encoding}",
            "save it as UTF-8",
        ) from problem


def _mend(text: str) -> str:
    if "'" in text and '"' not in text:
        return "JSON wants double quotes"
    return "put commas between entries, none after the last, and names in double quotes"


def _float(text: str) -> float | Beyond:
    number = float(text)
    return Beyond(text) if math.isinf(number) else number


def _int(text: str) -> int | Beyond:
    # Python refuses to read more than 4300 digits, and float64 ends at 309
    return int(text) if len(text) < 400 else Beyond(text)


def _once(origin: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise InputError(f"{origin} has the key {quote(twice)} twice", "keep one of them")
    return document


def _half_pair(text: str) -> str | None:
    """The first escape of half a surrogate pair that stands without its other half."""
    return next((found[0] for found in _ESCAPES.finditer(text) if found["half"]), None)
