"""Where examples come from: the catalogue that is shipped, and files of other people."""

from __future__ import annotations

from importlib.resources import files
from typing import BinaryIO

from attncli.documents.example import Example
from attncli.documents.reader import read_examples
from attncli.errors import InputError
from attncli.files.json import parse
from attncli.files.source import open_source

MOST_BYTES = 32 << 20
"""Largest file of examples that is read."""


def load_catalog() -> tuple[Example, ...]:
    """The worked examples of the source documents, in the order of the documents.

    >>> [example.name for example in load_catalog()][:2]
    ['000-length', '000-dot-products']
    """
    folder = files("attncli.documents").joinpath("catalog")
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    return tuple(
        example
        for entry in entries
        if entry.name.endswith(".json")
        for example in read_examples(parse(entry.read_bytes(), entry.name), entry.name)
    )


def load_examples(source: str, *, stdin: BinaryIO | None = None) -> tuple[Example, ...]:
    """The examples of somebody's file, or of standard input where `source` is "-".

    A file holds one document's examples, as the package's docstring and catalog.schema.json
    describe. It is data: nothing in it is run, and sizes are checked before they are believed.

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
