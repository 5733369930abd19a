"""A Trace as a document (JSON) and back; the same document describes the arrays of an npz.

The document, version 1; `trace.schema.json` beside this module says the same as a JSON Schema:

    {"attncli": "trace", "version": 1,
     "title": "…", "name": "…",            name only where there is one
     "convention": {every field of Convention} or null,
     "notes": ["…"],
     "steps": [
       {"kind": "stage", "name": "scores", "symbol": "S", "formula": "S = Q Kᵀ",
        "axes": ["query", "key"], "labels": {"query": ["the", "cat"]},
        "shape": [2, 2], "dtype": "float64",
        "value": [[1.0, "-Infinity"], [0.5, 2.0]], "note": "…"},     note only where there is one
       {"kind": "trace", "title": "…", "name": "…", "convention": …, "notes": …, "steps": […]}]}

NaN and infinity are not JSON: they are the strings "NaN", "Infinity" and "-Infinity". Numbers have
all digits: what is read back equals what was written, bit for bit (NaN aside, which is one value).
True and false stay so. An axis without an entry in labels is numbered.

In an npz each stage is an array under its dotted name (`encoder.1.attention.weights`), and the
array `__trace__` is a string: this document, where a stage has "array": its dotted name, instead of
"value". No pickles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.convention import Convention
from attncli.errors import InputError
from attncli.files.load import Loaded
from attncli.files.messages import ask_for, listing, quote
from attncli.files.numbers import nan_to_text
from attncli.files.roles import attention_prefix
from attncli.files.trace_reader import VERSION, read_trace
from attncli.trace import Stage, Trace

ENTRY = "__trace__"
"""The array of an npz that holds the document."""

Encode = Callable[[str, npt.NDArray[Any]], dict[str, Any]]


def trace_to_dict(trace: Trace) -> dict[str, Any]:
    """The document of a trace, in plain lists, numbers and strings.

    >>> scores = Stage("scores", "S", "S = Q Kᵀ", np.array([[1.0, np.inf]]), ("query", "key"))
    >>> trace_to_dict(Trace("Attention", (scores,)))["steps"][0]["value"]
    [[1.0, 'Infinity']]
    """
    return outline(trace, lambda _, value: {"value": plain_lists(value)})


def trace_from_dict(
    document: dict[str, Any], origin: str, arrays: dict[str, npt.NDArray[Any]] | None = None
) -> Trace:
    """The trace that a document describes; `arrays` are those of an npz, by dotted name.

    Raises InputError, naming `origin` and the step, where something is missing or does not fit.
    """
    return read_trace(document, origin, arrays)


def is_trace(document: dict[str, Any]) -> bool:
    """Whether a JSON object says that it is a trace."""
    return document.get("attncli") == "trace"


def outline(trace: Trace, encode: Encode) -> dict[str, Any]:
    """The document, each value as `encode(dotted name, value)` puts it."""
    return {"attncli": "trace", "version": VERSION, **_trace(trace, "", encode)}


def plain_lists(value: npt.NDArray[Any]) -> Any:
    """An array as nested lists of numbers (or true and false), NaN and infinity as strings.

    >>> plain_lists(np.array([0.1, -np.inf]))
    [0.1, '-Infinity']
    """
    cells = value.tolist()
    finite = value.dtype.kind != "f" or bool(np.isfinite(value).all())
    return cells if finite else nan_to_text(cells)


def loaded_trace(trace: Trace, origin: str, member: str | None) -> Loaded:
    """A saved trace as Loaded: all of it, the part inside it called `member`, or one stage."""
    parts = dict(_parts(trace))
    stages = dict(trace.stages())
    if member in stages:
        stage = stages[member]
        return Loaded(origin, {member: stage.value}, *_labels([stage]), member=member)
    if member is not None and member not in parts:
        raise InputError(
            f"{origin} holds no stage or part {quote(member)}; it holds {listing(stages)}",
            f"name one: {ask_for(origin, next(iter(stages)))}",
        )
    part = trace if member is None else parts[member]
    inner = dict(part.stages())
    prefix = _prefix(list(inner), origin)
    labels = _labels([stage for name, stage in inner.items() if name.startswith(prefix)])
    arrays = {name: stage.value for name, stage in inner.items()}
    return Loaded(origin, arrays, *labels, trace=part, member=member)


def _prefix(names: list[str], origin: str) -> str:
    try:
        return attention_prefix(names, origin) or ""
    except InputError:  # several attentions: an error for who asks for q, not for who looks
        return ""


def _labels(stages: list[Stage]) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """The names of the queries and of the keys, where a stage names all of them."""
    queries, keys = (_names(stages, axis) for axis in ("query", "key"))
    return queries, keys


def _names(stages: list[Stage], axis: str) -> tuple[str, ...] | None:
    """The labels of the first stage that has them, unless it is cut: shorter than the input."""
    sizes = [s.value.shape[s.axes.index(axis)] for s in stages if axis in s.axes]
    named = (stage.labels[axis] for stage in stages if axis in stage.labels)
    return next((labels for labels in named if len(labels) == sizes[0]), None)


def _parts(trace: Trace, prefix: str = "") -> Iterator[tuple[str, Trace]]:
    for step in trace.steps:
        if isinstance(step, Trace):
            yield f"{prefix}{step.name}", step
            yield from _parts(step, f"{prefix}{step.name}.")


def _trace(trace: Trace, prefix: str, encode: Encode) -> dict[str, Any]:
    return {
        "title": trace.title,
        **({"name": trace.name} if trace.name else {}),
        "convention": None if trace.convention is None else _convention(trace.convention),
        "notes": list(trace.notes),
        "steps": [
            _stage(step, f"{prefix}{step.name}", encode)
            if isinstance(step, Stage)
            else {"kind": "trace", **_trace(step, f"{prefix}{step.name}.", encode)}
            for step in trace.steps
        ],
    }


def _stage(stage: Stage, dotted: str, encode: Encode) -> dict[str, Any]:
    return {
        "kind": "stage",
        "name": stage.name,
        "symbol": stage.symbol,
        "formula": stage.formula,
        "axes": list(stage.axes),
        "labels": {axis: list(names) for axis, names in stage.labels.items()},
        "shape": list(stage.value.shape),
        "dtype": stage.value.dtype.name,
        **encode(dotted, stage.value),
        **({"note": stage.note} if stage.note else {}),
    }


def _convention(convention: Convention) -> dict[str, Any]:
    plain: dict[str, Any] = nan_to_text(asdict(convention))
    return plain
