"""The form of a file of examples: a pydantic model, which reads it.

    Document ── examples ── Example ── claims ── Claim ── printed, expected, or states
                            │  └─ run              └───── ways ── Alternative
                            └──── figures ── Figure

A file that does not follow it is refused in one line: which file, example, claim and key, what was
found there, and how to mend it.

A file holds one article and its examples, in the order of the article. In place of one,
{"see": "why-scale"} names an example of those that come with attncli.

    {"attncli": "examples", "version": 1,
     "source": {"id": "004", "title": "…", "author": "…", "date": "…"},
     "examples": [
       {"name": "004-first-example", "title": "…", "place": "1. Dot-Product Attention",
        "run": "compute --q '[[1, 0]]' --k '…' --v '…'",
        "figures": [{"figure": "Attention Flow", "options": "--format mermaid"}],
        "claims": [
          {"claim": "weights of query 1", "stage": "weights", "at": {"query": 1},
           "printed": ["0.42", "0.42", "0.16"], "verdict": "differs", "why": "…",
           "ways": [{"how": "without the scale", "options": "--scale none"}]}]}]}
"""

from __future__ import annotations

from collections.abc import Iterable
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
from attncli.commands.examples.titles import PATHS, Article, Title, title_of, titles
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

    def run_in_place_of(self, run: Run) -> Run:
        """The call of this way, in place of that of the claim."""
        if self.run is not None:
            return Run(self.run, self.options, self.input)
        stdin = run.stdin if self.input is None else self.input
        return run._replace(options=self.options, stdin=stdin)


Basis = Literal["printed", "claimed", "shown here"]
"""Where the number comes from that ours are compared with: it stands in the article; a sentence,
formula or code of the article says so, without the number; it is an illustration of our own."""


class Claim(Model):
    """One statement of an article about its example, or one that illustrates it.

    claim      in words
    run        another call, in place of the example's, that computes it; it reads no input
    place      where the number stands in the article, if not where the example does
    basis      where the expected number comes from; where it is left out, that is "printed" for
               `printed`, and "claimed" for others
    stage      dotted name of the stage it is about
    at         axis to number from 1, label or a list of them; an axis left out is taken whole
    take       what is computed from the numbers there
    printed    as printed: "0.540", "1/√2", "cos(0.0001)"; or numbers
    expected   in place of `printed`: numbers in this form that do not stand in the article
    decimals   of numbers in `printed` or `expected` that are not text
    states     in place of both: each number is `equal` or `close_to` (within a thousandth) to
               this value, or `above` or `below` it, or one of them at least is `unequal`
    free_sign  axis each of whose entries may be negated as a whole
    verdict    as recorded; so are the cause, why it differs in words, and the ways to compute
               what was printed
    """

    text: str = Field(alias="claim")
    words: Words | None = Field(None, alias="run")
    place: str = ""
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
            hint = 'write "printed" for numbers of the article, else "expected" or "states"'
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
        """The numbers that ours are compared with, whether they stand in the article or not."""
        return self.printed or self.expected


# ---- examples and their article


class Source(Model):
    """The article that examples are from; "" for what is not known."""

    id: str
    title: str
    author: str = ""
    date: str = ""


class Offline(Model):
    """What is computed where there is no file of word vectors, and what such a file adds."""

    words: Words = Field(alias="run")
    adds: str


class Figure(Model):
    """A figure or diagram of the article and the call that draws it, which is shown, not run.

    options  further ones of the example's run; run: another call
    """

    text: str = Field(alias="figure")
    options: Options = ()
    words: Words | None = Field(None, alias="run")


class Example(Model):
    """A worked example: a call, and what should come out.

    run      a call of attncli, as it is typed into a shell
    input    its standard input, where it reads `-`: a text, or anything that is sent as JSON
    needs    the word of the run that stands for a file of word vectors, given with --vectors FILE
    offline  what is computed without that file; where it is left out, nothing is
    place    where it stands in the article: its headings, the outer one first, with > between
    """

    name: Annotated[str, Field(min_length=1)]
    title: str
    place: str = ""
    words: Words = Field(alias="run")
    input: StandardInput | None = None
    needs: str = ""
    offline: Offline | None = None
    figures: Annotated[list[Figure], Field(max_length=20)] = Field([])
    claims: Annotated[list[Claim], Field(min_length=1, max_length=200)]
    note: str = ""
    _source: Source = PrivateAttr()
    _where: str = PrivateAttr()

    @model_validator(mode="after")
    def _check_needs(self) -> Self:
        if self.needs and self.needs not in self.words:
            raise InputError(f", needs: its run has no word {quote(self.needs)}")
        if self.offline and not self.needs:
            raise InputError(" has offline, but needs nothing", "leave it out")
        return self

    def run_with(self, vectors: str | None) -> Run:
        """The call, with this file of word vectors where it needs one."""
        if vectors is None and self.offline:
            return Run(self.offline.words)
        return Run(self.words, (), self.input, self.needs).with_vectors(vectors)

    def run_of_figure(self, figure: Figure) -> Run:
        """The call that draws a figure."""
        if figure.words is not None:
            return Run(figure.words)
        return Run((*self.words, *figure.options), (), self.input)

    @property
    def article(self) -> Article:
        """The article it is from."""
        source = self._source
        return Article(source.id, source.title, source.author, source.date)

    @property
    def heading(self) -> Title:
        """Its title, and the text in which words are looked for."""
        claims = [{"claim": claim.text} for claim in self.claims]
        entry = {"name": self.name, "title": self.title, "note": self.note, "claims": claims}
        return title_of(entry, self.article._asdict())

    @property
    def where(self) -> str:
        """What messages call it."""
        return self._where


class Document(Model):
    """The worked examples of an article, for attncli examples."""

    attncli: Literal["examples"]
    version: Literal[1]
    source: Source
    examples: Annotated[list[Example], Field(max_length=200)]


# ---- reading


def load_catalog(some: Iterable[Title] | None = None) -> tuple[Example, ...]:
    """The examples of these titles, or all that come with attncli, each once."""
    selection = titles() if some is None else some
    names = dict.fromkeys((title.path, title.name) for title in selection)
    examples: dict[tuple[Path | None, str], Example] = {
        (path, example.name): example
        for path in PATHS
        if any(path == of for of, _ in names)
        for example in read_examples(parse(path.read_bytes(), path.name), "")
    }
    return tuple(examples[name] for name in names)


def load_examples(source: str, *, stdin: BinaryIO | None = None) -> tuple[Example, ...]:
    """The examples of a file, or of standard input where `source` is "-"; InputError for no JSON,
    with line and column, and for what does not follow the schema, with example, claim and key."""
    with open_source(source, stdin) as file:
        if file.kind != "json" or file.name:
            raise InputError(f"{file.origin} is not a JSON file of examples")
        data = file.read() if (file.size or 0) <= MOST_BYTES else None
        if data is None or len(data) > MOST_BYTES:
            raise InputError(f"{file.origin} is larger than {MOST_BYTES >> 20} MB")
        document, origin = parse(data, file.origin), file.origin
    of_file = iter(read_examples(document, origin))
    others = {title.name: title for title in titles()}
    examples = []
    for entry in document["examples"]:
        if not is_reference(entry):
            examples.append(next(of_file))
        elif entry["see"] in others:
            examples += load_catalog([others[entry["see"]]])
        else:
            message = f"{origin}: attncli has no example {quote(str(entry['see']))}"
            raise InputError(message, "attncli examples lists all")
    return tuple(examples)


def read_examples(document: Any, origin: str) -> tuple[Example, ...]:
    """The examples of one file's JSON without those that it only names.

    Raises InputError where it does not follow the schema.
    """
    if isinstance(document, dict) and document.get("attncli") != "examples":
        raise InputError(f'{origin} has no "attncli": "examples"', "is it a file of examples?")
    entries = document.get("examples") if isinstance(document, dict) else None
    if isinstance(entries, list) and not entries:
        raise InputError(f"{origin} has no examples", 'write "examples": [{"name": …}]')
    if isinstance(entries, list):
        of_file = [entry for entry in entries if not is_reference(entry)]
        document = {**document, "examples": of_file}
    whole = validated(Document, document, origin)
    names = [example.name for example in whole.examples]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{origin} has two examples {quote(twice[0])}", "give each its own name")
    for example in whole.examples:
        example._source = whole.source
        example._where = f"{origin}: example {quote(example.name)}".removeprefix(": ")
    return tuple(whole.examples)


def is_reference(entry: Any) -> bool:
    """Whether an entry names an example of those that come with attncli."""
    return isinstance(entry, dict) and entry.keys() == {"see"} and isinstance(entry["see"], str)
