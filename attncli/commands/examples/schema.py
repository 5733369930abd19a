"""The form of a file of examples: a pydantic model, which reads it.

    Document ── examples ── Example ── claims ── Claim ── printed, expected, or states
                               └─ run              └───── ways ── Alternative

A file that does not follow it is refused in one line: which file, example, claim and key, what was
found there, and how to mend it.

A file holds one document and its examples:

    {"attncli": "examples", "version": 1,
     "source": {"id": "004", "title": "…", "author": "…", "date": "…"},
     "examples": [
       {"name": "004-first-example", "title": "…",
        "run": "compute --q '[[1, 0]]' --k '…' --v '…'",
        "claims": [
          {"claim": "weights of query 1", "stage": "weights", "at": {"query": 1},
           "printed": ["0.42", "0.42", "0.16"], "verdict": "differs", "why": "…",
           "ways": [{"how": "without the scale", "options": "--scale none"}]}]}]}
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)

from attncli.commands.examples.model import Model, OneKey, validated
from attncli.commands.examples.printed import Printed, Recorded, Relation, read_printed
from attncli.commands.examples.runs import Run, read_options, read_stdin, read_words
from attncli.errors import InputError
from attncli.files.json_text import described, parse
from attncli.files.messages import quote
from attncli.files.numbers import text_to_nan
from attncli.files.source import open_source

MOST_BYTES = 32 << 20
"""Largest file of examples that is read: a hundred times the catalogue."""

MOST_ENTRIES = 1000
"""Most entries of an axis that a place names."""

Cause = Literal["rounding only", "carried over", "cut off"]
"""Why a number differs, where that follows from the numbers alone (see judge.py)."""


# ---- places and statements


def _read_place(data: object) -> Any:
    if not isinstance(data, dict):
        raise InputError(" is not an object", 'write {"query": 1}')
    for axis, entries in data.items():
        several = entries if isinstance(entries, list) else [entries]
        if len(several) > MOST_ENTRIES:
            hint = f"{MOST_ENTRIES} is the most"
            raise InputError(f", {quote(axis)[1:-1]} names {len(several)} entries", hint)
        if not several or not all(type(entry) in (int, str) for entry in several):
            hint = "write a whole number from 1, a label, or a list of them"
            raise InputError(f", {quote(axis)[1:-1]} is {described(entries)}", hint)
    return data


At = Annotated[dict[str, int | str | list[int | str]], PlainValidator(_read_place)]
"""Axis → number from 1, label, or several of them; an axis left out is taken whole."""


class Take(OneKey):
    """What is computed from the numbers at a place before they are compared.

    sum, mean, deviation   along this axis (the deviation is the population's)
    shape                  how many entries each axis has
    future                 the cells whose key comes after their query
    minus, cosine          the difference to this place, the cosine of the angle to it
    """

    sum: str | None = None
    mean: str | None = None
    deviation: str | None = None
    shape: bool | None = None
    future: bool | None = None
    minus: At | None = None
    cosine: At | None = None


Number = Annotated[float, BeforeValidator(text_to_nan)]
States = Annotated[dict[Relation, Number], Field(min_length=1, max_length=1)]
"""Each of our numbers is this value, or within a thousandth of it, or above or below it; or one at
least is not it."""


# ---- claims


def _read_printed(data: object, info: ValidationInfo) -> Printed:
    return read_printed(data, "", info.data.get("decimals"))


PrintedNumbers = Annotated[Printed, PlainValidator(_read_printed)]
Decimals = Annotated[int, Field(ge=0, le=30)]
Words = Annotated[tuple[str, ...], PlainValidator(read_words)]
Options = Annotated[tuple[str, ...], PlainValidator(read_options)]
StandardInput = Annotated[str, PlainValidator(read_stdin)]


class Alternative(Model):
    """Another way to compute, which gives what was printed, or shows that it cannot be right.

    how       in words
    options   further ones of the example's run, which replace those that it has
    run       another call, in place of the example's and its input
    input     standard input, in place of the example's
    from      stage whose printed numbers replace ours
    at        the place, where it is not the claim's
    gives     what comes out, where it is not what was printed
    decimals  of numbers in `gives` that are not text
    """

    text: str = Field(alias="how")
    options: Options = ()
    run: Words | None = None
    input: StandardInput | None = None
    start: str = Field(default="", alias="from")
    at: At | None = None
    decimals: Decimals | None = None
    gives: PrintedNumbers | None = None


Basis = Literal["printed", "claimed", "shown here"]
"""Where the number comes from that ours are compared with: it stands in the document; a sentence,
formula or code of the document says so, without the number; it is an illustration of our own."""


class Claim(Model):
    """One statement of a document about its example, or one that illustrates it.

    claim      in words
    basis      where the expected number comes from; where it is left out, that is "printed" for
               `printed`, and "claimed" for others
    stage      dotted name of the stage it is about
    at         axis to number from 1, label or a list of them; an axis left out is taken whole
    take       what is computed from the numbers there
    printed    as printed: "0.540", "1/√2", "cos(0.0001)"; or numbers
    expected   in place of `printed`: numbers in this form that do not stand in the document
    decimals   of numbers in `printed` or `expected` that are not text
    states     in place of both: each number is `equal` or `close_to` (within a thousandth) to
               this value, or `above` or `below` it, or one of them at least is `unequal`
    free_sign  axis each of whose entries may be negated as a whole
    verdict    as recorded; so are the cause, why it differs in words, and the ways to compute
               what was printed
    """

    text: str = Field(alias="claim")
    stated_basis: Basis | None = Field(None, alias="basis")
    stage: str
    at: At = Field({})
    take: Take | None = None
    decimals: Decimals | None = None
    printed: PrintedNumbers | None = None
    expected: PrintedNumbers | None = None
    states: States | None = None
    free_sign: str = ""
    verdict: Recorded | None = None
    cause: Cause | None = None
    why: str = ""
    alternatives: Annotated[list[Alternative], Field(max_length=10)] = Field([], alias="ways")

    @model_validator(mode="after")
    def _check_one_expectation(self) -> Self:
        names = ("printed", "expected", "states")
        if len(expectations := [name for name in names if getattr(self, name)]) > 1:
            raise InputError(
                f" has both {expectations[0]} and {expectations[1]}", "leave one of them out"
            )
        if (self.basis == "printed") != bool(self.printed):
            hint = 'write "printed" for numbers of the document, else "expected" or "states"'
            raise InputError(
                f" has the basis {self.basis} and {expectations[0] if expectations else 'nothing'}",
                hint,
            )
        return self

    @property
    def basis(self) -> Basis:
        """Where the expected number comes from."""
        return self.stated_basis or ("printed" if self.printed else "claimed")

    @property
    def numbers(self) -> Printed | None:
        """The numbers that ours are compared with, whether they stand in the document or not."""
        return self.printed or self.expected


# ---- examples and their document


class Source(Model):
    """The document that examples are from; "" for what is not known."""

    id: str
    title: str
    author: str = ""
    date: str = ""


class Example(Model):
    """A worked example: a call, and what should come out.

    run    a call of attncli, as it is typed into a shell
    input  its standard input, where it reads `-`: a text, or anything that is sent as JSON
    needs  the word of the run that stands for a file of word vectors, given with --glove FILE
    """

    name: Annotated[str, Field(min_length=1)]
    title: str
    words: Words = Field(alias="run")
    input: StandardInput | None = None
    needs: str = ""
    claims: Annotated[list[Claim], Field(min_length=1, max_length=200)]
    note: str = ""
    _source: Source = PrivateAttr()
    _where: str = PrivateAttr()

    @model_validator(mode="after")
    def _check_needs(self) -> Self:
        if self.needs and self.needs not in self.words:
            raise InputError(f", needs: its run has no word {quote(self.needs)}")
        return self

    @property
    def run(self) -> Run:
        """The call."""
        return Run(self.words, (), self.input, self.needs)

    def run_of(self, way: Alternative) -> Run:
        """The call of another way to compute a claim."""
        stdin = self.input if way.input is None else way.input
        if way.run is None:
            return Run(self.words, way.options, stdin, self.needs)
        return Run(way.run, way.options, way.input)

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

    attncli: Literal["examples"]
    version: Literal[1]
    source: Source
    examples: Annotated[list[Example], Field(min_length=1, max_length=200)]


# ---- reading


def load_catalog() -> tuple[Example, ...]:
    """The worked examples of the source documents, in the order of the documents."""
    return tuple(
        example
        for path in sorted(Path(__file__).with_name("catalog").glob("*.json"))
        for example in read_examples(parse(path.read_bytes(), path.name), "")
    )


def load_examples(source: str, *, stdin: BinaryIO | None = None) -> tuple[Example, ...]:
    """The examples of a file, or of standard input where `source` is "-"; InputError for no JSON,
    with line and column, and for what does not follow the schema, with example, claim and key."""
    with open_source(source, stdin) as file:
        if file.kind != "json" or file.name:
            raise InputError(f"{file.origin} is not a JSON file of examples")
        data = file.read() if (file.size or 0) <= MOST_BYTES else None
        if data is None or len(data) > MOST_BYTES:
            raise InputError(f"{file.origin} is larger than {MOST_BYTES >> 20} MB")
        return read_examples(parse(data, file.origin), file.origin)


def read_examples(document: Any, origin: str) -> tuple[Example, ...]:
    """The examples of one file's JSON. Raises InputError where it does not follow the schema."""
    if isinstance(document, dict) and document.get("attncli") != "examples":
        raise InputError(f'{origin} has no "attncli": "examples"', "is it a file of examples?")
    whole = validated(Document, document, origin)
    names = [example.name for example in whole.examples]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{origin} has two examples {quote(twice[0])}", "give each its own name")
    for example in whole.examples:
        example._source = whole.source
        example._where = f"{origin}: example {quote(example.name)}".removeprefix(": ")
    return tuple(whole.examples)
