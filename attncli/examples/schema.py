"""The form of a file of examples: a pydantic model, which reads it and writes catalog.schema.json.

    Document ── examples ── Example ── claims ── Claim ── printed, or States
                               └─ inputs           └───── alternatives ── Alternative

A file that does not follow it is refused in one line: which file, example, claim and key, what was
found there, and how to mend it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, Self, TypeVar

from pydantic import (
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails, PydanticKnownError
from typing_extensions import TypeAliasType

from attncli.errors import InputError
from attncli.examples.compute import COMPUTATIONS, AnyComputation, Computation
from attncli.examples.inputs import Model, Name, Number, OneKey, Text, refusal
from attncli.examples.printed import Printed, Recorded, read_printed, shown
from attncli.files.json import parse
from attncli.files.messages import listing, quote
from attncli.files.source import open_source

M = TypeVar("M", bound=Model)

MOST_BYTES = 32 << 20
"""Largest file of examples that is read: a hundred times the catalogue."""
MOST_ENTRIES = 1000
"""Most entries that a place names along an axis."""
SCHEMA = Path(__file__).with_name("catalog.schema.json")

Cause = Literal["rounding only", "carried over", "cut off"]
"""Why a number differs, where that can be told from the numbers alone (see judge.py)."""


# ---- places and statements


def _entries(found: Any) -> Any:
    several = found if isinstance(found, list) else [found]
    if not 0 < len(several) <= MOST_ENTRIES:
        raise refusal(f" names {len(several)} entries", f"1 to {MOST_ENTRIES} are possible")
    if not all(type(entry) in (int, str) for entry in several):
        raise refusal(" is not a whole number", "write one from 1, a label, or a list of them")
    return found


Entries = int | str | list[int | str]
At = dict[str, Annotated[Entries, PlainValidator(_entries, json_schema_input_type=Entries)]]
"""Axis → number from 1, label, or several of them; an axis left out is taken whole."""


class Take(OneKey):
    """What is made of the numbers at a place before they are compared.

    sum, mean, deviation   along this axis (the deviation is the population's)
    shape                  how many entries each axis has
    future                 the cells whose key comes after their query
    minus                  the difference to this place
    """

    sum: Text | None = None
    mean: Text | None = None
    deviation: Text | None = None
    shape: bool | None = None
    future: bool | None = None
    minus: At | None = None


class States(OneKey):
    """A statement about our numbers.

    equal, close_to   each is this value, or within a thousandth of it
    unequal           one of them at least is not this value
    """

    equal: Number | None = None
    close_to: Number | None = None
    unequal: Number | None = None


# ---- claims


def _printed(found: object, info: ValidationInfo) -> Printed:
    try:
        return read_printed(found, "", info.data.get("decimals"))
    except InputError as problem:
        raise refusal(problem.message, problem.hint) from problem


AsPrinted = TypeAliasType("AsPrinted", "list[AsPrinted] | float | str")
PrintedNumbers = Annotated[Printed, PlainValidator(_printed, json_schema_input_type=AsPrinted)]
Decimals = Annotated[int, Field(ge=0, le=30)]


class Alternative(Model):
    """Another way to compute, which gives what was printed, or shows that it cannot be right.

    how       in words
    inputs    those that are not as in the example
    from      stage whose printed numbers replace ours
    at        the place, where it is not the claim's
    gives     what comes out, where it is not what was printed
    decimals  of numbers in `gives` that are not text
    """

    text: Text = Field(alias="how")
    inputs: dict[str, Any] = Field(default_factory=dict)
    start: Text = Field(default="", alias="from")
    at: At | None = None
    decimals: Decimals | None = None
    gives: PrintedNumbers | None = None
    _computation: Computation = PrivateAttr()

    @property
    def computation(self) -> Computation:
        """All inputs: the example's, and these in place of some."""
        return self._computation


class Claim(Model):
    """One thing a document says about its example.

    claim      in words
    stage      dotted name of the stage it is about
    at         axis to number from 1, label or a list of them; an axis left out is taken whole
    take       what is made of the numbers there
    printed    as printed: "0.540", "1/√2", "cos(0.0001)"; or numbers
    decimals   of numbers in `printed` that are not text
    states     a statement in place of `printed`
    free_sign  axis each of whose entries may be negated as a whole
    verdict    as recorded; so are the cause, why it differs in words, and the ways to compute
               what was printed
    """

    model_config = ConfigDict(json_schema_extra={"not": {"required": ["printed", "states"]}})

    text: Text = Field(alias="claim")
    stage: Text
    at: At = Field(default_factory=dict)
    take: Take | None = None
    decimals: Decimals | None = None
    printed: PrintedNumbers | None = None
    states: States | None = None
    free_sign: Text = ""
    verdict: Recorded | None = None
    cause: Cause | None = None
    why: Text = ""
    alternatives: Annotated[list[Alternative], Field(max_length=10)] = Field(
        default_factory=list, alias="ways"
    )

    @model_validator(mode="after")
    def _check_one_expectation(self) -> Self:
        if self.printed and self.states:
            raise refusal(" has both printed and states", "leave one of them out")
        return self


# ---- examples and their document


class Source(Model):
    """The document that examples are from; "" for what is not known."""

    id: Text
    title: Text
    author: Text = ""
    date: Text = ""


class Example(Model):
    """A worked example: what is computed from which inputs, and what is said to come out."""

    name: Name
    title: Text
    compute: str
    inputs: Computation
    claims: Annotated[list[Claim], Field(min_length=1, max_length=200)]
    note: Text = ""
    _source: Source = PrivateAttr()
    _where: str = PrivateAttr()

    @field_validator("compute", mode="before")
    @classmethod
    def _check_known(cls, found: object) -> object:
        if not isinstance(found, str) or found not in COMPUTATIONS:
            raise PydanticKnownError("literal_error", {"expected": listing(COMPUTATIONS)})
        return found

    @field_validator("inputs", mode="plain", json_schema_input_type=AnyComputation)
    @classmethod
    def _read_inputs(cls, found: object, info: ValidationInfo) -> object:
        kind = COMPUTATIONS.get(info.data.get("compute", ""))
        return found if kind is None else kind.model_validate(found)

    @property
    def source(self) -> Source:
        """The document it is from."""
        return self._source

    @property
    def where(self) -> str:
        """What messages call it."""
        return self._where


class Document(Model):
    """The worked examples of a document, for attncli examples."""

    schema_: str | None = Field(default=None, alias="$schema")
    attncli: Literal["examples"]
    version: Literal[1]
    source: Source
    examples: Annotated[list[Example], Field(min_length=1, max_length=200)]


# ---- reading


def load_catalog() -> tuple[Example, ...]:
    """The worked examples of the source documents, in the order of the documents.

    >>> [example.name for example in load_catalog()][:2]
    ['000-length', '000-dot-products']
    """
    folder = files("attncli.examples").joinpath("catalog")
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    return tuple(
        example
        for entry in entries
        if entry.name.endswith(".json")
        for example in read_examples(parse(entry.read_bytes(), entry.name), entry.name)
    )


def load_examples(source: str, *, stdin: BinaryIO | None = None) -> tuple[Example, ...]:
    """The examples of a file, or of standard input where `source` is "-".

    Raises InputError where it cannot be read, is no JSON (with line and column), or does not
    follow the schema (with the example, claim and key).
    """
    with open_source(source, stdin) as found:
        if found.kind != "json" or found.name:
            raise InputError(f"{found.origin} is not a JSON file of examples")
        data = found.read() if (found.size or 0) <= MOST_BYTES else None
        if data is None or len(data) > MOST_BYTES:
            raise InputError(f"{found.origin} is larger than {MOST_BYTES >> 20} MB")
        return read_examples(parse(data, found.origin), found.origin)


def read_examples(document: Any, origin: str) -> tuple[Example, ...]:
    """The examples of one file's JSON. Raises InputError where it does not follow the schema."""
    if isinstance(document, dict) and document.get("attncli") != "examples":
        raise InputError(f'{origin} has no "attncli": "examples"', "is it a file of examples?")
    whole = _validated(Document, document, origin)
    names = [example.name for example in whole.examples]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{origin} has two examples {quote(twice[0])}", "give each its own name")
    for example, given in zip(whole.examples, document["examples"], strict=True):
        example._source = whole.source
        example._where = f"{origin}: example {quote(example.name)}"
        for number, claim in enumerate(example.claims, start=1):
            for other, alternative in enumerate(claim.alternatives, start=1):
                where = f"{example.where}, claim {number}, way {other}, inputs"
                inputs = _merged(example.inputs, given["inputs"], alternative.inputs)
                alternative._computation = _validated(type(example.inputs), inputs, where)
    return tuple(whole.examples)


def _merged(inputs: Computation, given: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The inputs, which were read from `given`, with changes; those of a convention are added.

    Arrays that do not change are shared, not read again: a short file can have thousands of ways.
    """
    merged = {name: getattr(inputs, name) for name in inputs.model_fields_set} | changes
    if "convention" in given:
        after = changes.get("convention", {})
        merged["convention"] = given["convention"] | after if isinstance(after, dict) else after
    if {"vectors", "glove"} <= merged.keys():
        del merged["glove" if "vectors" in changes else "vectors"]
    return merged


# ---- errors in one line


def _validated(model: type[M], found: object, origin: str) -> M:
    """The model of what was found; InputError for the first thing in it that does not fit."""
    try:
        return model.model_validate(found)
    except ValidationError as problem:
        raise _in_one_line(problem.errors(include_url=False)[0], found, origin) from problem


def _in_one_line(error: ErrorDetails, found: object, origin: str) -> InputError:
    keys = _location(error["loc"], found)
    if error["type"] == "refused":
        where, refused = ": ".join(filter(None, [origin, ", ".join(keys)])), error["ctx"]
        return InputError(f"{where}{refused['message']}", refused["hint"])
    where = ": ".join(filter(None, [origin, ", ".join(keys[:-1]), keys[-1]]))
    words = error["msg"].replace("dictionary", "object").replace(" after validation", "")
    if words.startswith("Input "):
        return InputError(f"{where} is {shown(error['input'])}", f"it {words[6:]}")
    return InputError(f"{where}: {words}")


def _location(loc: Sequence[int | str], found: Any) -> list[str]:
    """The keys to a place in the document; examples by their name, others by their number."""
    parts: list[str] = []
    for key in loc:
        if isinstance(key, str):
            parts.append(key if key.isidentifier() and len(key) < 60 else quote(key))
        elif parts == ["examples"]:
            example = found["examples"][key]
            name = example.get("name") if isinstance(example, dict) else None
            is_named = isinstance(name, str) and name
            parts = [f"example {quote(str(name)) if is_named else key + 1}"]
        else:
            around = parts.pop()
            nouns = {"claims": "claim", "ways": "way"}
            parts.append(f"{nouns.get(around, f'{around}, entry')} {key + 1}")
    return parts


# ---- the JSON Schema


class _Short(GenerateJsonSchema):
    """Without titles that repeat each key, and without the defaults of what is left out."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def nullable_schema(self, schema: Any) -> Any:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> Any:
        return self.generate_inner(schema["schema"])


def schema_text() -> str:
    """The JSON Schema of a file of examples, as catalog.schema.json holds it."""
    made = Document.model_json_schema(schema_generator=_Short)
    example = made["$defs"]["Example"]
    example["properties"]["compute"] = {"enum": list(COMPUTATIONS)}
    example["properties"]["inputs"] = {"type": "object"}
    example["allOf"] = [
        {
            "if": {"properties": {"compute": {"const": name}}},
            "then": {"properties": {"inputs": {"$ref": f"#/$defs/{kind.__name__}"}}},
        }
        for name, kind in COMPUTATIONS.items()
    ]
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def write_schema() -> None:
    """Writes catalog.schema.json."""
    SCHEMA.write_text(schema_text(), encoding="utf-8")
