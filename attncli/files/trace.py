"""A saved trace: its format, declared once; reading it; and its JSON Schema.

    {"attncli": "trace", "version": 2, "call": {…}, "title": "…", "convention": {…}, "notes": ["…"],
     "steps": [{"kind": "stage", "name": "scaled", "symbol": "Z", "formula": "Z = S / √d_k",
                "axes": ["query", "key"], "labels": {"query": ["the", "cat"]}, "shape": [2, 2],
                "dtype": "float64", "value": [[1.0, "-Infinity"], [0.5, 2.0]], …},
               {"kind": "trace", "name": "…", "title": "…", …, "steps": […]}]}

What is read back equals what was written, bit for bit (NaN aside, which is one value). NaN and
infinity are not JSON: they are the strings "NaN", "Infinity" and "-Infinity".

In an npz each stage is an array under its dotted name (`encoder.1.attention.weights`), and the
array `__trace__` is a string: this document, in which a stage has "array", that name, instead of
"value".

    python -m attncli.files.trace > attncli/files/trace.schema.json

write.py writes traces. Importing this module imports pydantic, which takes a tenth of a second:
only reading a trace does.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    SkipValidation,
    ValidationError,
    ValidationInfo,
    create_model,
)
from pydantic.json_schema import GenerateJsonSchema, SkipJsonSchema
from typing_extensions import TypeAliasType

from attncli.arrays import Array
from attncli.budget import check_cells
from attncli.convention import KNOBS, Convention
from attncli.errors import AttncliError, InputError, StageError
from attncli.files.contents import FileContents, Labels
from attncli.files.json_text import to_array
from attncli.files.messages import lacking, listing, quote, safe
from attncli.files.numbers import MAX_DEPTH, text_to_nan
from attncli.files.roles import attention_prefix
from attncli.files.write import OPTIONAL, VERSION
from attncli.recorded import CallOption, Provides, RecordedCall
from attncli.stages import DISPLAY, Role, Shade, StageSpec
from attncli.trace import Stage, Trace

DType = Literal[
    "float64", "float32", "float16", "bool",
    "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
]  # fmt: skip
Number = TypeAliasType("Number", "float | Literal['NaN', 'Infinity', '-Infinity']")
Value = TypeAliasType("Value", "list[Value] | Number | bool")

_STAGE = 200  # cells that a stage takes while it is validated, besides its numbers: about 10 kB


def _as_written(*left_out: str) -> ConfigDict:
    """Its schema describes what attncli writes: all fields, but for the empty ones of these."""

    def describe(schema: dict[str, Any]) -> None:
        for entry in schema["properties"].values():
            entry.pop("default", None)
        schema["required"] = [name for name in schema["properties"] if name not in left_out]
        schema["additionalProperties"] = False

    return ConfigDict(strict=True, json_schema_extra=describe)


def _field(name: str) -> Any:
    """The type of a field of Convention in JSON, and what it is."""
    default, hint = getattr(Convention, name), get_type_hints(Convention)[name]
    if isinstance(default, float) and not math.isfinite(default):
        hint = Number
    return hint, Field(description=KNOBS[name].help)


ConventionModel = create_model(
    "convention", __config__=_as_written(), **{name: _field(name) for name in KNOBS}
)


def _convention(fields: Any) -> Convention | None:
    """The convention in a document; its own checks apply."""
    if not isinstance(fields, dict | None):
        raise ValueError("should be an object")
    return None if fields is None else Convention.from_mapping(text_to_nan(fields))


class DisplayModel(BaseModel):
    """How a stage is shown that only one command makes; what is left out has its default."""

    model_config = _as_written(*DISPLAY)

    role: Role = Field(default="step", description="aside: it is read by a page, and not shown.")
    sums: bool = Field(default=False, description="Its rows sum to 1.")
    masks: bool = Field(default=False, description="Its masked cells are marked.")
    shade: Shade = Field(default="", description="Numbers are shares of 1, or signed around 0.")
    plotted: bool = Field(default=False, description="Its first two columns are points.")
    beside: str = Field(
        default="", description="Parameter next to whose numbers its own may be as good as 0."
    )
    words: bool = Field(default=False, description="Its cells are words.")
    undefined: str = Field(default="", description="What NaN means in it.")


class StageModel(BaseModel):
    """One array, and how it was computed."""

    model_config = _as_written(*OPTIONAL, "display")

    kind: Literal["stage"]
    name: str
    symbol: str
    formula: str
    axes: list[str] = Field(description="One name per dimension.")
    labels: dict[str, list[str]] = Field(
        default={}, description="Axis → the names along it; an axis without an entry is numbered."
    )
    shape: list[Annotated[int, Field(ge=1)]]
    dtype: DType = None  # type: ignore[assignment] # it may be missing in what is read
    value: Annotated[
        SkipValidation[Value],
        Field(description="Nested lists of the shape: its numbers, or true and false."),
    ] = None  # type: ignore[assignment] # in an npz `array` names it
    array: SkipJsonSchema[str | None] = None
    note: str = Field(default="", description="A sentence for the reader.")
    reads: dict[str, str] = Field(
        default={}, description="Parameter of the computation → the stage that it reads."
    )
    params: dict[str, SkipValidation[bool | Number | str]] = Field(
        default={}, description="The other parameters of the computation."
    )
    expression: str = Field(default="", description="How each cell is computed.")
    sizes: dict[str, Annotated[int, Field(ge=1, le=1 << 31)]] = Field(
        default={}, description="Letter of the expression → its size, where no array has it."
    )

    display: DisplayModel | SkipJsonSchema[None] = None

    def build(self, arrays: dict[str, Array] | None) -> Stage:
        """The stage; ValueError or InputError where its array does not fit."""
        value = self._value() if arrays is None else arrays.get(self.array or "")
        if value is None:
            name = quote(str(self.array))
            raise ValueError(f"names the array {name}, which is not in the file")
        if list(value.shape) != self.shape:
            raise ValueError(f"shape is {self.shape}, found {list(value.shape)}")
        for name, number in self.params.items():
            if not isinstance(number, bool | int | float | str):
                raise ValueError(f"params, {quote(name)} should be a number, text, true or false")
        labels = {axis: tuple(names) for axis, names in self.labels.items()}
        params = text_to_nan(self.params)
        spec = None
        if self.display is not None:
            spec = StageSpec(self.symbol, **self.display.model_dump())
        if spec and spec.plotted and (value.ndim < 2 or value.shape[-1] < 2):
            raise ValueError(f"plotted needs two columns, shape is {self.shape}")
        computed = (self.note, self.reads, params, self.expression, self.sizes, spec)
        return Stage(
            self.name, self.symbol, self.formula, value, tuple(self.axes), labels, *computed
        )

    def _value(self) -> Array:
        if "value" not in self.model_fields_set:
            raise ValueError("value is missing")
        value = to_array(self.value, "value")
        with np.errstate(all="ignore"):
            cast = value.astype(self.dtype or value.dtype)
        if not np.array_equal(cast, value, equal_nan=value.dtype.kind == "f"):
            raise ValueError(f"value holds numbers that {self.dtype} cannot")
        return cast


def _built(step: StageModel | TraceModel, info: ValidationInfo) -> Stage | Trace:
    try:
        return step.build(info.context)
    except AttncliError as problem:
        raise ValueError(problem.message) from problem


class _Steps(BaseModel):
    title: str
    name: str = ""
    convention: Annotated[
        Convention | None,
        PlainValidator(_convention, json_schema_input_type=ConventionModel | None),
        Field(description="Every choice on which attentions differ; null where none applies."),
    ] = None
    notes: list[str] = []
    steps: list[
        Annotated[StageModel | TraceModel, Field(discriminator="kind"), AfterValidator(_built)]
    ] = Field(description="In the order of computation.")

    def build(self, _: object = None) -> Trace:
        """The trace of these steps, which are built already."""
        steps: Any = tuple(self.steps)
        return Trace(self.title, steps, self.convention, self.name, tuple(self.notes))


class TraceModel(_Steps):
    """A block inside: the dotted names of its stages begin with its name."""

    model_config = _as_written("name")

    kind: Literal["trace"]


class OptionModel(BaseModel):
    """An option or an argument of a call, with its values."""

    model_config = _as_written("provides")

    name: str
    words: Annotated[list[str], Field(min_length=1)]
    provides: Provides = Field(
        default="", description="input: what is computed from; file: the same, from elsewhere."
    )


class CallModel(BaseModel):
    """The call that gave the trace, without what only says how it is shown."""

    model_config = _as_written()

    function: str = Field(description='"attncli compute", or "attncli.attend" in Python.')
    options: list[OptionModel] = Field(description="In the order of the call.")

    def build(self) -> RecordedCall:
        """The call as a trace has it."""
        options = (CallOption(x.name, tuple(x.words), x.provides) for x in self.options)
        return RecordedCall(self.function, tuple(options))


class Document(_Steps):
    """A trace saved by attncli."""

    model_config = _as_written("name", "call")

    attncli: Literal["trace"]
    version: Literal[2]
    call: CallModel | SkipJsonSchema[None] = None

    def build(self, _: object = None) -> Trace:
        """The trace, with its call where one is known."""
        return replace(super().build(), call=None if self.call is None else self.call.build())


class _WithoutTitles(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # it would only be the name again


def schema() -> dict[str, Any]:
    """The JSON Schema of a saved trace."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return dialect | Document.model_json_schema(schema_generator=_WithoutTitles)


def trace_from(
    document: dict[str, Any], origin: str, arrays: dict[str, Array] | None = None
) -> Trace:
    """The trace that a document describes; `arrays` are those of an npz, by dotted name."""
    if document.get("version") != VERSION:
        version = quote(str(document.get("version")))
        text = f"{origin} has version {version} of the trace format, this attncli reads version"
        raise InputError(f"{text} {VERSION}", "save it again with this attncli")
    check_cells(_STAGE * _count_steps(document), f"{origin} has", unit="cells")
    try:
        trace = Document.model_validate(document, context=arrays).build()
    except ValidationError as problem:
        message = f"{origin}: {_first_error(problem, document)}"
        raise InputError(message, "save the trace again") from problem
    names = list(trace)
    if not names:
        raise InputError(f"{origin} is a trace without a stage", "save it again")
    if len(set(names)) < len(names):
        raise InputError(f"{origin} has two stages of one name", "give each its own")
    if max(name.count(".") for name in names) > MAX_DEPTH:
        raise InputError(f"{origin} is nested more than {MAX_DEPTH} deep", "save it in parts")
    return trace


def _count_steps(document: Any) -> int:
    """How many steps there are, at every depth, whatever they hold."""
    blocks, count = [document], 0
    while blocks:
        block = blocks.pop()
        steps = block.get("steps") if isinstance(block, dict) else None
        if isinstance(steps, list):
            count += len(steps)
            blocks += steps
    return count


_MESSAGES = {
    "missing": "is missing",
    "dict_type": "should be an object",
    "model_attributes_type": "should be an object",
    "union_tag_invalid": 'should be of kind "stage" or "trace"',
    "union_tag_not_found": 'should be of kind "stage" or "trace"',
}


def _first_error(problem: ValidationError, document: Any) -> str:
    """The first of pydantic's errors in a line: `step encoder.2 ('scores'): note should be …`."""
    error = problem.errors(include_url=False, include_input=False)[0]
    location, prefix, step, node = error["loc"], "", "", document
    if len(location) > 3 * MAX_DEPTH:
        return f"the trace is nested more than {MAX_DEPTH} deep"
    while len(location) > 1 and location[0] == "steps" and isinstance(location[1], int):
        node = node["steps"][location[1]]
        name = node.get("name") if isinstance(node, dict) else None
        step = f"step {prefix}{location[1] + 1}"
        step += f" ({quote(name)}): " if isinstance(name, str) else ": "
        prefix += f"{listing([str(name)])}."
        location = location[3:]  # after the number pydantic puts the kind
    # the first is a name of the format, those after it are the file's
    inner = (f"entry {part + 1}" if isinstance(part, int) else quote(part) for part in location[1:])
    place = ", ".join([*map(str, location[:1]), *inner])
    if error["type"] == "value_error":  # raised here
        text, joint = error["msg"].removeprefix("Value error, "), ": "
    else:
        text, joint = _MESSAGES.get(error["type"], error["msg"].removeprefix("Input ")), " "
    return step + (place + joint if place else "") + safe(text)


def loaded_trace(trace: Trace, origin: str, member: str | None) -> FileContents:
    """The contents of a saved trace: all of it, the part called `member`, or one stage."""
    stages = dict(trace.stages())
    part, prefix = None, ""
    if member in stages:
        stages = {member: stages[member]}
    else:
        try:
            part = trace.part(member or "")
        except StageError as problem:
            raise lacking(origin, f"stage or part {quote(member or '')}", [*stages]) from problem
        stages = dict(part.stages())
        with suppress(InputError):  # several attentions: an error where q is asked for, not here
            prefix = attention_prefix(list(stages), origin) or ""
    block = [stage for name, stage in stages.items() if name.startswith(prefix)]
    queries, keys = _labels(block, "query"), _labels(block, "key")
    arrays = {name: stage.value for name, stage in stages.items()}
    return FileContents(origin, arrays, queries, keys, trace=part, member=member)


def _labels(stages: list[Stage], axis: str) -> Labels:
    """The labels of the first stage that has them, unless it is cut: shorter than the input."""
    sizes = [stage.value.shape[stage.axes.index(axis)] for stage in stages if axis in stage.axes]
    all_labels = (stage.labels[axis] for stage in stages if axis in stage.labels)
    return next((labels for labels in all_labels if len(labels) == sizes[0]), None)


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2, ensure_ascii=False))
