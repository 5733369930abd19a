"""The reading half of `trace_file`: a document is held against the format, step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from attncli.convention import Convention
from attncli.errors import ConventionError, InputError, ShapeError
from attncli.files.load import label_tuple
from attncli.files.messages import count, quote
from attncli.files.numbers import MAX_DEPTH, to_array
from attncli.trace import Stage, Trace

VERSION = 1
"""The version of the format that is written, and the only one there is."""

_DTYPES = {"float64", "float32", "float16", "bool", "int64", "int32", "int16", "int8"}
_DTYPES |= {"uint64", "uint32", "uint16", "uint8"}
_KINDS = {str: "a string", list: "a list", dict: "an object"}

T = TypeVar("T", str, list[Any], dict[str, Any])


def read_trace(
    document: dict[str, Any], origin: str, arrays: dict[str, npt.NDArray[Any]] | None
) -> Trace:
    """The trace that a document describes; see `trace_file.trace_from_dict`."""
    if document.get("attncli") != "trace":
        raise InputError(f'{origin} has no "attncli": "trace"', "save a trace with --format json")
    if document.get("version") != VERSION:
        raise InputError(
            f"{origin} has version {quote(str(document.get('version')))} of the trace format, "
            f"this attncli reads version {VERSION}",
            "save it again with this attncli",
        )
    trace = _Reader(origin, arrays).trace(document, "the trace", 0)
    names = list(trace)
    if not names:
        raise InputError(f"{origin} is a trace without a stage", "save it again")
    if len(set(names)) < len(names):
        raise InputError(f"{origin} has two stages of one name", "give each its own")
    return trace


@dataclass(frozen=True)
class _Reader:
    origin: str
    arrays: dict[str, npt.NDArray[Any]] | None

    def trace(self, node: dict[str, Any], spot: str, depth: int) -> Trace:
        if depth > MAX_DEPTH:
            raise self.error(spot, f"is nested more than {MAX_DEPTH} deep")
        steps = self.field(node, "steps", list, spot)
        notes = label_tuple(node.get("notes", []), f"{self.origin}: {spot}, notes")
        name = self.field(node, "name", str, spot) if "name" in node else ""
        inner = f"{name}." if depth else ""
        return Trace(
            self.field(node, "title", str, spot),
            tuple(self.step(step, i, inner, depth) for i, step in enumerate(steps)),
            self.convention(node.get("convention"), spot),
            name,
            notes,
        )

    def step(self, node: object, index: int, prefix: str, depth: int) -> Stage | Trace:
        spot = f"step {prefix}{index + 1}"
        if not isinstance(node, dict) or node.get("kind") not in ("stage", "trace"):
            raise self.error(spot, 'is neither of kind "stage" nor "trace"')
        if node["kind"] == "trace":
            return self.trace(node, spot, depth + 1)
        return self.stage(node, spot)

    def stage(self, node: dict[str, Any], spot: str) -> Stage:
        name = self.field(node, "name", str, spot)
        spot = f"{spot} ({quote(name)})"
        labels = self.field(node, "labels", dict, spot) if "labels" in node else {}
        try:
            return Stage(
                name,
                self.field(node, "symbol", str, spot),
                self.field(node, "formula", str, spot),
                self.value(node, spot),
                label_tuple(self.field(node, "axes", list, spot), f"{self.origin}: {spot}, axes"),
                {
                    axis: label_tuple(found, f"{self.origin}: {spot}, labels of {quote(axis)}")
                    for axis, found in labels.items()
                },
                self.field(node, "note", str, spot) if "note" in node else "",
            )
        except ShapeError as problem:
            raise self.error(spot, f"does not fit: {problem.message}") from problem

    def value(self, node: dict[str, Any], spot: str) -> npt.NDArray[Any]:
        shape = self.field(node, "shape", list, spot)
        if self.arrays is None:
            if "value" not in node:
                raise self.error(spot, "has no value")
            value = to_array(node["value"], f"{self.origin}: {spot}")
            value = self.typed(value, node.get("dtype", value.dtype.name), spot)
        else:
            name = self.field(node, "array", str, spot)
            if name not in self.arrays:
                raise self.error(spot, f"names the array {quote(name)}, which is not in the file")
            value = self.arrays[name]
        if list(value.shape) != shape:
            found = count(value.ndim, "dimension")
            raise self.error(
                spot, f"says shape {quote(str(shape))[1:-1]}, found {list(value.shape)} ({found})"
            )
        return value

    def typed(self, value: npt.NDArray[Any], dtype: object, spot: str) -> npt.NDArray[Any]:
        if dtype not in _DTYPES:
            raise self.error(spot, f"has dtype {quote(str(dtype))}, which is none of attncli's")
        with np.errstate(all="ignore"):
            cast = value.astype(str(dtype))
        if not np.array_equal(cast, value, equal_nan=value.dtype.kind == "f"):
            raise self.error(spot, f"holds numbers that {dtype} cannot")
        return cast

    def convention(self, node: object, spot: str) -> Convention | None:
        if node is None:
            return None
        if not isinstance(node, dict):
            raise self.error(spot, "has a convention that is no object")
        values = dict(node)
        if values.get("mask_value") == "-Infinity":
            values["mask_value"] = -math.inf
        try:
            return Convention.from_mapping(values)
        except ConventionError as problem:
            raise self.error(spot, f"has a convention that does not fit: {problem}") from problem
        except (TypeError, ValueError, OverflowError) as problem:  # of a type no field has
            raise self.error(spot, "has a convention that does not fit") from problem

    def field(self, node: dict[str, Any], key: str, kind: type[T], spot: str) -> T:
        found = node.get(key)
        if not isinstance(found, kind):
            raise self.error(spot, f"has no {key}, which should be {_KINDS[kind]}")
        return found

    def error(self, spot: str, what: str) -> InputError:
        return InputError(f"{self.origin}: {spot} {what}", "save the trace again")
