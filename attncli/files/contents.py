"""What a file holds: its arrays by name, labels, a scale and fields; and how a reader collects it.

what a reader found ── within_name, part_of, popped_fields ── collected ── FileContents
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, get_args

import numpy as np

from attncli.arrays import Array
from attncli.convention import ScaleRule
from attncli.errors import InputError
from attncli.files.messages import attentions, lacking, listing, quote, several
from attncli.files.roles import (
    EMBEDDINGS,
    FIELDS,
    NESTED,
    WIDTHS,
    Role,
    is_attended,
    role_of,
    similar_role,
)
from attncli.files.source import Source
from attncli.formula.numerals import number as read_number
from attncli.trace import Trace

Labels = tuple[str, ...] | None


T = TypeVar("T")


LABELS = ("tokens", "query_tokens", "key_tokens")
"""Names under which a file holds labels; `tokens` names queries and keys alike."""


_ONCE = {*LABELS, *FIELDS, "scale"}


DESCRIPTIONS = ("title", "name", "description", "comment", "note", "notes", "source")
"""Names under which a file may say what it is: not to be used, so it need not be said."""


IF_NUMBERS = "if numbers"
"""What a `selector` says of a name that is read where it is an array, else no error."""


@dataclass(frozen=True, eq=False)
class FileContents:
    """What a source holds.

    How many labels there should be is not checked: which axis they name depends on a layout.
    """

    origin: str  # what messages call it: its path, "standard input", "what you typed"
    arrays: dict[str, Array]  # by their names in the file; a matrix without a name is called ""
    query_labels: Labels = None  # of `tokens` or `query_tokens`; of a trace: its labels
    key_labels: Labels = None  # names of the keys
    row_labels: Labels = None  # of the rows of a csv or tsv: queries or keys, by its role
    corner: str = ""  # of a csv or tsv, where it names a stage: that which the matrix is
    column_labels: Labels = None  # the header of a csv or tsv, without its corner
    decimals: Mapping[str, int] = field(default_factory=dict)  # the most, where they end in zeros
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # those of an array's rows
    scale: float | str | None = None  # the factor that the file names, "none" or "1/sqrt(d_k)"
    fields: Mapping[str, object] = field(default_factory=dict)  # what else it says, as in FIELDS
    trace: Trace | None = None  # a saved one, or its part `path::part`; arrays are its stages then
    warnings: tuple[str, ...] = ()  # remarks for the user, one line each
    unread: tuple[str, ...] = ()  # names of arrays that nobody asked for: they were not read
    others: tuple[str, ...] = ()  # names of what is not an array and has no role
    member: str | None = None  # what `::name` asked for

    @cached_property
    def names(self) -> Mapping[Role, list[str]]:
        """The arrays that each role may have, by their names."""
        names: dict[Role, list[str]] = {}
        for name in self.arrays:
            if (role := role_of(name)) is not None:
                names.setdefault(role, []).append(name)
        return names

    @property
    def notes(self) -> tuple[str, ...]:
        """The warnings, and which names without a role there are beside what was asked for."""
        unused = (name for name in (*self.unread, *self.others) if not is_attended(name))
        return (*self.warnings, *self.unused_note(unused))

    def unused_note(self, names: Iterable[str]) -> tuple[str, ...]:
        """That these names are not used, but for descriptions, and what they may mean."""
        parts = ((name, name.rpartition(".")[2]) for name in names if self.member is None)
        names = [name for name, last in parts if last not in (*DESCRIPTIONS, NESTED)]
        if not names:
            return ()
        near = filter(None, map(similar_role, names))
        question = next((f"; did you mean {name}?" for name in near), "")
        return (f"{self.origin}: not used: {listing(names)}{question}",)


def collected(
    source: Source,
    selector: Callable[[str], object],
    readers: Mapping[str, Callable[[], Array]],
    labels: Mapping[str, object] | None = None,
    others: Mapping[str, str] | None = None,
    **more: Any,
) -> FileContents:
    """The contents of a file: the arrays that are selected, the only one, or that of `::name`.

    selector  whether an array of this name is to be read; an error then where it cannot be
    readers   name → what reads the array. "" where the array has no name
    labels    one of LABELS → a list of strings; `tokens` may be {"queries": […], "keys": […]}
    others    name → the message about what is not an array; an error where it is selected
    more      further fields of FileContents
    """
    origin, member, others = source.origin, source.name or None, others or {}
    n_matrices = sum(name.lower() != "scale" for name in readers)
    names = {
        name
        for name in readers
        if name == member
        or name.lower() == "scale"
        or (member is None and (selector(name) or n_matrices == 1))
    }
    for name, message in others.items():
        is_selected = selector(name) and selector(name) != IF_NUMBERS and name.lower() not in WIDTHS
        is_selected = is_selected and role_of(name) not in EMBEDDINGS  # `inputs` may be a text
        if name == member or (member is None and is_selected):
            raise InputError(message, "give it numbers, or leave it out")
    arrays = {}
    for name, read in readers.items():
        if name in names:
            try:
                arrays[name] = read()
            except InputError as problem:
                if name == member or n_matrices == 1 or selector(name) != IF_NUMBERS:
                    raise
                others = {**others, name: problem.message}
    for name in [name for name in arrays if name.lower() == "scale" and name != member]:
        scale = arrays.pop(name)
        if member is None or scale.size == 1:  # beside a member it may be a layer's own, of a norm
            more["scale"] = scale_of(scale.item() if scale.size == 1 else scale, origin)
    if labels:
        more["query_labels"], more["key_labels"] = _labels(labels, origin)
    unread = tuple(name for name in readers if name not in names)
    if not arrays and (member is not None or not unread):
        raise _lacking(origin, member, [*readers, *others])
    more["warnings"] = tuple(more.pop("warnings", ()))
    return FileContents(origin, arrays, unread=unread, others=tuple(others), member=member, **more)


def within_name(names: Iterable[str], source: Source) -> Source:
    """The source with the whole name of the attention that `::name`, as `::layers.3`, is in."""
    names, inner = list(names), source.name
    around = [part for part in attentions(names) if f".{inner}." in f".{part}."] if inner else []
    if len(around) > 1 and inner not in names:
        raise several(source.origin, around, inner)
    return replace(source, name=around[0]) if around and inner not in names else source


def part_of(entries: Mapping[str, T], source: Source) -> tuple[dict[str, T], Source]:
    """What `::name` asks for of all that a file holds by name, and a source that asks for no more.

    Where nothing has the name itself, all that is called `name.…` is the part, by what follows;
    where nothing is, everything as it was.
    """
    starts = f"{source.name}.", f"{source.name}/"
    inside = {name[len(starts[0]) :]: x for name, x in entries.items() if name.startswith(starts)}
    if source.name and source.name not in entries and inside:
        return inside, replace(source, name="")
    return dict(entries), source


def popped_fields(
    entries: dict[str, Any],
    source: Source,
    selector: Callable[[str], object],
    beside: Iterable[str] = (),
) -> dict[str, Any]:
    """What a file says of its attention, taken out of all that it holds, by its field.

    InputError where labels or a field are there twice, in other cases of letters: among these names
    and those `beside` them.
    """
    plain = {name: name.lower().replace("-", "_") for name in (*entries, *beside)}
    present = [*(name for name, x in entries.items() if x is not None), *beside]
    labels_and_scale = [plain[name] for name in present if plain[name] in _ONCE]
    for name in labels_and_scale:
        if labels_and_scale.count(name) > 1:
            message = f"{source.origin} has {name} twice, in other letters"
            raise InputError(message, "keep one of them")
    fields = [name for name in entries if plain[name] in FIELDS and name != source.name]
    return {plain[name]: entries.pop(name) for name in fields if selector(name)}


def scale_of(value: object, origin: str) -> float | str:
    """The factor on the scores that a file names: one finite number, or a rule such as "none"."""
    if isinstance(value, str) and value.lower() in get_args(ScaleRule):
        return value.lower()
    value = read_number(value) if isinstance(value, str) else value
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise InputError(f"{origin}, scale is not a number", "write one number")
    scale = math.inf
    with suppress(OverflowError):  # of a whole number beyond float64
        scale = float(value)
    if not math.isfinite(scale):
        raise InputError(f"{origin}, scale is not finite", "write one finite number")
    return scale


def _labels(labels: Mapping[str, object], origin: str) -> tuple[Labels, Labels]:
    """The names of the queries and of the keys."""
    lists = dict(labels)
    tokens = lists.get("tokens")
    if isinstance(tokens, dict):
        if not tokens or not set(tokens) <= {"queries", "keys"}:
            message = f"{origin}, tokens names {listing(map(str, tokens))}"
            raise InputError(message, 'write {"queries": […], "keys": […]}, or one list for both')
        del lists["tokens"]
        lists |= {f"tokens.{part}": names for part, names in tokens.items()}

    def first_of(*keys: str) -> Labels:
        key = next((key for key in keys if key in lists), None)
        if key is None:
            return None
        names, hint = lists[key], 'write ["the", "cat"]'
        if not isinstance(names, list) or not names:
            description = "an empty list" if isinstance(names, list) else "not a list of strings"
            raise InputError(f"{origin}, {key} is {description}", hint)
        for number, name in enumerate(names, start=1):
            if not isinstance(name, str):
                raise InputError(f"{origin}, {key}: entry {number} is not a string", hint)
        return tuple(names)

    queries = first_of("query_tokens", "tokens.queries", "tokens")
    return queries, first_of("key_tokens", "tokens.keys", "tokens")


def _lacking(origin: str, member: str | None, names: Sequence[str]) -> InputError:
    """The error where there is no array, or not the one that `::name` asked for."""
    if member is None or not names:
        only = f", only {listing(names)}" if names else ""
        hint = "it should hold q, or q, k and v"
        return InputError(f"{origin} holds no array{only}", hint)
    names = attentions(names) or names
    if names == [""]:
        message = f"{origin} holds one array without a name, not {quote(member)}"
        return InputError(message, "leave out ::name")
    return lacking(origin, quote(member), names)
