"""A second reading of JSON and npy, by json and NumPy alone, and what its attention must give."""

import io
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from attncli.arrays import Array


class RefusalError(Exception):
    """This must not be accepted."""


class NoOpinionError(Exception):
    """What this means is a choice that the second reading does not make."""


NAMES = {
    "q": r"xq|(q|query|queries)(_states|_layer|_tensor)?",
    "k": r"xk|(k|key|keys)(_states|_layer|_tensor)?",
    "v": r"xv|(v|value|values)(_states|_layer|_tensor)?",
    "past_k": r"past_(k|key|keys)|(k|key|keys)_cache|(cache|cached)_(k|key|keys)",
    "past_v": r"past_(v|value|values)|(v|value|values)_cache|(cache|cached)_(v|value|values)",
    "mask": r"mask|masks|attn_mask|attention_mask|attn_bias|attention_bias|additive_mask",
    "sinks": r"sinks?|attn_sinks|attention_sinks|s_aux",
    "d_output": r"do|d_out(put)?|grad_out(put)?|dout",
}
"""The names under which a file may hold each role, in any case."""
LABELS = ("tokens", "query_tokens", "key_tokens")
NOT_JSON = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def role_of(name: str) -> str | None:
    """The role of an array called so."""
    plain = name.lower().replace("-", "_").replace(" ", "_")
    return next((role for role, names in NAMES.items() if re.fullmatch(names, plain)), None)


def by_role(values: Mapping[str, Any], only: str = "q") -> dict[str, Any]:
    """The arrays of a file by role, and its scale; an array alone, of any name, is `only`."""
    names = [name.lower() for name in values]
    if names.count("scale") > 1 or {*names} & {"attncli", "dtype"}:
        raise NoOpinionError("scale twice, a trace, or a convention within the file")
    arrays = {name: x for name, x in values.items() if isinstance(x, np.ndarray)}
    arrays = {name: x for name, x in arrays.items() if name.lower() not in (*LABELS, "scale")}
    if any(map(role_of, {*values} - {*arrays})):
        raise RefusalError("something else under the name of an array")
    named = [role for name in arrays if (role := role_of(name))]
    if not named and not any(x.size for x in arrays.values()):
        raise NoOpinionError("nothing in it")
    if not named and len(arrays) == 1:
        return {only: next(iter(arrays.values()))}
    if len({*named}) < len(named):
        raise RefusalError("two arrays of one role")
    inputs = {role: x for name, x in arrays.items() if (role := role_of(name))}
    scale = [np.asarray(x) for name, x in values.items() if name.lower() == "scale"]
    return inputs | ({"scale": float(scale[0].reshape(()))} if scale else {})


def json_values(data: bytes) -> dict[str, Any]:
    """The arrays and other values of a JSON document by name; "" where it is one array."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise RefusalError("a key twice")
        return dict(pairs)

    try:
        document = json.loads(data, object_pairs_hook=unique)
    except json.JSONDecodeError as problem:
        if re.search(rb"\.(?!\d)|(?<!\d)\.|\d\s*/", data):
            raise NoOpinionError(".5, 5. and 1/2 are numbers too") from problem
        raise
    json.dumps(document, ensure_ascii=False).encode()  # half a surrogate pair raises
    if isinstance(document, list):
        return {"": json_array(document)}
    for name, x in document.items():  # what has no numbers alone stays as it is
        with suppress(RefusalError, ValueError, OverflowError):
            is_array = isinstance(x, list) and name.lower() not in LABELS
            document[name] = json_array(x) if is_array else x
    return {name: x for name, x in document.items() if x is not None}


def json_array(nested: Any) -> Array:
    """Nested lists of numbers, or of true and false, as an array."""
    kinds = set()

    def read(node: Any) -> Any:
        if isinstance(node, list):
            return [read(inner) for inner in node]
        kinds.add(type(node) is bool)
        number = NOT_JSON.get(node, node) if isinstance(node, str) else node
        if not isinstance(number, bool | int | float):
            raise RefusalError(f"{node!r} among numbers")
        if isinstance(node, float) and math.isinf(node):
            raise NoOpinionError("Infinity, or a number beyond float64")
        return number if isinstance(number, bool) else float(number)

    array = np.array(read(nested))
    if len(kinds) != 1:
        raise RefusalError("no number, or true among numbers")
    return array


def npy_values(data: bytes) -> dict[str, Any]:
    """An npy file of version 1, 2 or 3 that ends with its last number."""
    if data[:8] not in (b"\x93NUMPY\1\0", b"\x93NUMPY\2\0", b"\x93NUMPY\3\0"):
        raise RefusalError("no npy file, or no such version")
    file = io.BytesIO(data)
    array = np.load(file, allow_pickle=False)
    if file.read(1):
        raise RefusalError("bytes after the array")
    return {"": np.asarray(array)}
