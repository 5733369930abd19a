"""A Trace as a document (JSON) and back; the same document describes the arrays of an npz.

    {"attncli": "trace", "version": 1, "title": "…", "convention": {…}, "notes": ["…"],
     "steps": [{"kind": "stage", "name": "scaled", "symbol": "Z", "formula": "Z = S / √d_k",
                "axes": ["query", "key"], "labels": {"query": ["the", "cat"]}, "shape": [2, 2],
                "dtype": "float64", "value": [[1.0, "-Infinity"], [0.5, 2.0]], …},
               {"kind": "trace", "name": "…", "title": "…", …, "steps": […]}]}

trace_model.py declares every field, and trace.schema.json is the JSON Schema. What is read back
equals what was written, bit for bit (NaN aside, which is one value). NaN and infinity are not JSON:
they are the strings "NaN", "Infinity" and "-Infinity".

In an npz each stage is an array under its dotted name (`encoder.1.attention.weights`), and the
array `__trace__` is a string: this document, in which a stage has "array", that name, instead of
"value".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from attncli.errors import InputError, StageError
from attncli.files.load import Loaded
from attncli.files.messages import ask_for, listing, quote
from attncli.files.numbers import MAX_DEPTH, Array, nan_to_text
from attncli.files.roles import attention_prefix
from attncli.trace import Stage, Trace

Labels = tuple[str, ...] | None
Encode = Callable[[str, Array], dict[str, Any]]

ENTRY = "__trace__"
"""The array of an npz that holds the document."""
VERSION = 1
"""The version of the format that is written, and the only one there is."""


def document_of(trace: Trace, encode: Encode | None = None) -> dict[str, Any]:
    """The document of a trace, each value as `encode(dotted name, value)` puts it, or as lists.

    >>> scores = Stage("scores", "S", "S = Q Kᵀ", np.array([[1.0, np.inf]]), ("query", "key"))
    >>> document_of(Trace("Attention", (scores,)))["steps"][0]["value"]
    [[1.0, 'Infinity']]
    """
    encode = encode or (lambda _, value: {"value": plain_lists(value)})
    return {"attncli": "trace", "version": VERSION, **_written(trace, "", encode)}


def plain_lists(value: Array) -> Any:
    """An array as nested lists of numbers (or true and false), NaN and infinity as strings.

    >>> plain_lists(np.array([0.1, -np.inf]))
    [0.1, '-Infinity']
    """
    cells = value.tolist()
    finite = value.dtype.kind != "f" or bool(np.isfinite(value).all())
    return cells if finite else nan_to_text(cells)


def _written(trace: Trace, prefix: str, encode: Encode) -> dict[str, Any]:
    return {
        "title": trace.title,
        **({"name": trace.name} if trace.name else {}),
        "convention": trace.convention and nan_to_text(asdict(trace.convention)),
        "notes": list(trace.notes),
        "steps": [
            _written_stage(step, f"{prefix}{step.name}", encode)
            if isinstance(step, Stage)
            else {"kind": "trace", **_written(step, f"{prefix}{step.name}.", encode)}
            for step in trace.steps
        ],
    }


def _written_stage(stage: Stage, dotted: str, encode: Encode) -> dict[str, Any]:
    optional = {
        "note": stage.note,
        "reads": dict(stage.reads),
        "params": nan_to_text(stage.params),
        "work": stage.work,
    }
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
        **{name: found for name, found in optional.items() if found},
    }


def trace_from(
    document: dict[str, Any], origin: str, arrays: dict[str, Array] | None = None
) -> Trace:
    """The trace that a document describes; `arrays` are those of an npz, by dotted name.

    Raises InputError, naming `origin` and the step, where something is missing or does not fit.
    """
    from attncli.files.trace_model import trace_in

    if document.get("attncli") != "trace":
        raise InputError(f'{origin} has no "attncli": "trace"', "save a trace with --format json")
    if document.get("version") != VERSION:
        raise InputError(
            f"{origin} has version {quote(str(document.get('version')))} of the trace format, "
            f"this attncli reads version {VERSION}",
            "save it again with this attncli",
        )
    trace = trace_in(document, origin, arrays)
    names = list(trace)
    if not names:
        raise InputError(f"{origin} is a trace without a stage", "save it again")
    if len(set(names)) < len(names):
        raise InputError(f"{origin} has two stages of one name", "give each its own")
    if max(name.count(".") for name in names) > MAX_DEPTH:
        raise InputError(f"{origin} is nested more than {MAX_DEPTH} deep", "save it in parts")
    return trace


def loaded_trace(trace: Trace, origin: str, member: str | None) -> Loaded:
    """A saved trace as Loaded: all of it, the part inside it called `member`, or one stage."""
    stages = dict(trace.stages())
    if member in stages:
        stage = stages[member]
        return Loaded(origin, {member: stage.value}, *_labels([stage]), member=member)
    try:
        part = trace.part(member or "")
    except StageError as problem:
        raise InputError(
            f"{origin} holds no stage or part {quote(member or '')}; it holds {listing(stages)}",
            f"name one: {ask_for(origin, next(iter(stages)))}",
        ) from problem
    inner = dict(part.stages())
    try:
        prefix = attention_prefix(list(inner), origin) or ""
    except InputError:  # several attentions: an error where q is asked for, not here
        prefix = ""
    labels = _labels([stage for name, stage in inner.items() if name.startswith(prefix)])
    arrays = {name: stage.value for name, stage in inner.items()}
    return Loaded(origin, arrays, *labels, trace=part, member=member)


def _labels(stages: list[Stage]) -> tuple[Labels, Labels]:
    """The names of the queries and of the keys, where a stage names all of them."""
    return _names(stages, "query"), _names(stages, "key")


def _names(stages: list[Stage], axis: str) -> Labels:
    """The labels of the first stage that has them, unless it is cut: shorter than the input."""
    sizes = [stage.value.shape[stage.axes.index(axis)] for stage in stages if axis in stage.axes]
    named = (stage.labels[axis] for stage in stages if axis in stage.labels)
    return next((labels for labels in named if len(labels) == sizes[0]), None)
