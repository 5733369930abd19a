"""Where examples come from: the catalogue that is shipped, and files of other people."""

from __future__ import annotations

from importlib.resources import files
from typing import BinaryIO

from attncli.errors import InputError
from attncli.examples.example import Example
from attncli.examples.reader import read_examples
from attncli.files.blob import find
from attncli.files.json_file import parse

MOST_BYTES = 32 << 20
"""Largest file of examples that is read."""


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
    """The examples of somebody's file, or of standard input where `source` is "-".

    A file holds one document's examples, as the package's docstring and catalog.schema.json
    describe. It is data: nothing in it is run, and sizes are checked before they are believed.

    Raises InputError where it cannot be read, is no JSON (with line and column), or does not
    follow the schema (with the example, claim and key).
    """
    blob, member = find(source, stdin)
    if blob.kind != "json" or member:
        raise InputError(f"{blob.origin} is not a JSON file of examples")
    if blob.size > MOST_BYTES:
        raise InputError(f"{blob.origin} is larger than {MOST_BYTES >> 20} MB")
    try:
        return read_examples(parse(blob.read(), blob.origin), blob.origin)
    except OSError as problem:
        raise InputError(f"{blob.origin} cannot be read: {problem.strerror}") from problem
