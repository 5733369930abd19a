"""load: from a SOURCE to Loaded, whatever the format; and the builder that the formats fill.

SOURCE ── open_source ── Source ── json, npy, table, safetensors ── LoadedBuilder ── Loaded
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, BinaryIO

import numpy as np

from attncli.errors import InputError
from attncli.files.messages import ask_for, entry_at, listing, location, quote
from attncli.files.numbers import Array
from attncli.files.roles import role_of
from attncli.files.source import open_source
from attncli.trace import Trace

LABELS = ("tokens", "query_tokens", "key_tokens")
"""Names under which a file holds labels; `tokens` names queries and keys alike."""

# kind of a source → module with `read(source) -> Loaded`; each brings its own libraries
_READERS = {
    "json": "attncli.files.json",
    "npy": "attncli.files.npy",
    "npz": "attncli.files.npy",
    "table": "attncli.files.table",
    "safetensors": "attncli.files.safetensors",
}


@dataclass(frozen=True, eq=False)
class Loaded:
    """What a source holds.

    origin         what messages call it: its path, "standard input", "the inline literal"
    arrays         name as in the file → array; a matrix without a name is called ""
    query_labels   names of the queries (`tokens`, `query_tokens`; of a trace: its labels), or None
    key_labels     names of the keys, or None
    row_labels     labels of the rows of a csv or tsv: names of queries or of keys, by its role
    column_labels  the header of a csv or tsv, without its corner
    scale          the factor on the scores that the file names, or None
    trace          the trace, where the file is one saved by attncli; arrays then holds the values
                   of its stages by dotted name. `path::part` gives the trace inside called so
    warnings       remarks for the user, one line each
    member         what `::name` asked for, or None

    How many labels there should be is not checked: which axis they name depends on a layout.
    """

    origin: str
    arrays: dict[str, Array]
    query_labels: tuple[str, ...] | None = None
    key_labels: tuple[str, ...] | None = None
    row_labels: tuple[str, ...] | None = None
    column_labels: tuple[str, ...] | None = None
    scale: float | None = None
    trace: Trace | None = None
    warnings: tuple[str, ...] = ()
    member: str | None = None


def load(source: str, *, stdin: BinaryIO | None = None, role: str | None = None) -> Loaded:
    """Read what a SOURCE holds.

    A SOURCE is a path, `path::name` for one array in a file that holds several (or one part of a
    saved trace), `-` or `-::name` for standard input, or inline JSON, which begins with [ or {. A
    gzipped file and a member of a zip (`file.zip::member`) are unpacked. `role` is the role of an
    array whose name has none; it only silences the remark on −∞ in a mask.

    Raises InputError where the source cannot be read as arrays, MissingExtraError where that
    needs a package, SizeError where it does not fit into memory.

    >>> load("[[1, 0], [0.5, 2]]").arrays[""].tolist()
    [[1.0, 0.0], [0.5, 2.0]]
    """
    with open_source(source, stdin) as found:
        loaded: Loaded = import_module(_READERS[found.kind]).read(found)
    if loaded.trace is not None:  # its −∞ and NaN are results, shown as such
        return loaded
    remarks = (
        nonfinite_remark(
            location(loaded.origin, name), array, is_mask=(role_of(name) or role) == "mask"
        )
        for name, array in loaded.arrays.items()
    )
    return replace(loaded, warnings=(*loaded.warnings, *filter(None, remarks)))


def nonfinite_remark(where: str, array: Array, *, is_mask: bool) -> str:
    """A line that counts the NaN and infinities of an array; "" where there are none.

    In a mask −∞ is meant, and so it is in an array of nothing but 0 and −∞.

    >>> nonfinite_remark("q.npy", np.array([[1.0, np.nan]]), is_mask=False)
    'q.npy holds 1 NaN of 2 numbers, the first at row 1, column 2'
    """
    if array.dtype.kind != "f" or not array.size:
        return ""
    with np.errstate(all="ignore"):  # min and max carry NaN and infinity, and need no second array
        if np.isfinite(array.min()) and np.isfinite(array.max()):
            return ""
    nan, infinite = np.isnan(array), np.isinf(array)
    if is_mask or (not nan.any() and bool(np.all((array == 0) | (array == -np.inf)))):
        infinite &= array > 0
    counts = [(int(nan.sum()), "NaN"), (int(infinite.sum()), "infinite")]
    found = " and ".join(f"{number} {word}" for number, word in counts if number)
    if not found:
        return ""
    first = np.unravel_index(int(np.argmax(nan | infinite)), array.shape)
    entry = entry_at([int(i) for i in first], array.ndim) if array.ndim else "its only entry"
    return f"{where} holds {found} of {array.size} numbers, the first at {entry}"


class LoadedBuilder:
    """Collects what one file holds, name by name, and becomes its Loaded.

    An array that cannot be read is an error where it was asked for or has a role; else it is left
    out with a warning, as a file may hold more than an attention.
    """

    def __init__(self, origin: str, member: str | None) -> None:
        self.origin = origin
        self.member = member or None
        self.names: list[str] = []
        self.arrays: dict[str, Array] = {}
        self.labels: dict[str, tuple[str, ...]] = {}
        self.scale: float | None = None
        self.warnings: list[str] = []
        self._failed: InputError | None = None

    def add(self, name: str, read: Callable[[], Array]) -> None:
        """Read one array; nothing is read where `::name` asked for another."""
        self.names.append(name)
        if self.member not in (None, name):
            return
        try:
            array = read()
        except InputError as problem:
            if name == self.member or role_of(name) or not name:
                raise
            self._failed = self._failed or problem
            self.warnings.append(f"{problem.message}: left out")
            return
        if name.lower() == "scale" and name != self.member:
            self.set_scale(array.item() if array.size == 1 else array)
        else:
            self.arrays[name] = array

    def leave_out(self, name: str, what: str) -> None:
        """Note what is no array."""
        self.names.append(name)
        if name == self.member:
            raise InputError(f"{location(self.origin, name)} is {what}, not an array")
        self.warnings.append(f"{location(self.origin, name)} is {what}, no array: left out")

    def set_labels(self, name: str, found: object) -> None:
        """Take the labels under one of LABELS; `tokens` may hold {"queries": […], "keys": […]}."""
        if not isinstance(found, dict):
            self.labels[name] = label_tuple(found, location(self.origin, name))
            return
        if name != "tokens" or not found or not set(found) <= {"queries", "keys"}:
            raise InputError(
                f"{location(self.origin, name)} names {listing(map(str, found))}",
                'write {"queries": […], "keys": […]}, or one list for both',
            )
        for key, kind in (("queries", "query_tokens"), ("keys", "key_tokens")):
            if key in found:
                self.labels[kind] = label_tuple(found[key], f"{self.origin}, tokens.{key}")

    def set_scale(self, found: object) -> None:
        """Take the factor on the scores: one finite number."""
        if isinstance(found, bool) or not isinstance(found, int | float | np.number):
            raise InputError(f"{self.origin}, scale is not a number", "write one number")
        try:
            scale = float(found)
        except OverflowError:
            scale = math.inf
        if not math.isfinite(scale):
            raise InputError(f"{self.origin}, scale is not finite", "write one finite number")
        self.scale = scale

    def done(self, **more: Any) -> Loaded:
        """What was collected; InputError where there is no array, or not the one asked for."""
        if not self.arrays:
            raise self._nothing()
        tokens = self.labels.get("tokens")
        return Loaded(
            self.origin,
            self.arrays,
            query_labels=self.labels.get("query_tokens", tokens),
            key_labels=self.labels.get("key_tokens", tokens),
            scale=self.scale,
            warnings=(*self.warnings, *more.pop("warnings", ())),
            member=self.member,
            **more,
        )

    def _nothing(self) -> InputError:
        if self.member is None or not self.names:
            only = f", only {listing(self.names)}" if self.names else ""
            hint = "it should hold q, or q, k and v"
            return self._failed or InputError(f"{self.origin} holds no array{only}", hint)
        if self.names == [""]:
            message = f"{self.origin} holds one array without a name, not {quote(self.member)}"
            return InputError(message, "leave out ::name")
        return InputError(
            f"{self.origin} holds no {quote(self.member)}; it holds {listing(self.names)}",
            f"name one: {ask_for(self.origin, self.names[0])}",
        )


def one_array(origin: str, member: str | None, read: Callable[[], Array], **labels: Any) -> Loaded:
    """The Loaded of a format that holds one array without a name."""
    builder = LoadedBuilder(origin, member)
    builder.add("", read)
    return builder.done(**labels)


def label_tuple(found: object, where: str) -> tuple[str, ...]:
    """A list of strings as labels; InputError where it is none."""
    if not isinstance(found, Iterable) or isinstance(found, str | dict):
        raise InputError(f"{where} is no list of strings", 'write ["the", "cat"]')
    labels = tuple(found)
    for index, label in enumerate(labels):
        if not isinstance(label, str):
            raise InputError(f"{where}: entry {index + 1} is not a string", 'write ["the", "cat"]')
    return labels
