"""Gathering: what a file holds besides arrays (labels, a scale), and what of it can be left out.

The readers of JSON, npz and safetensors meet the same names in different clothes; what those
names mean is said here once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError
from attncli.files.loaded import Loaded
from attncli.files.messages import ask_for, listing, location, quote
from attncli.files.roles import role_of

LABELS = ("tokens", "query_tokens", "key_tokens")
"""Names under which a file holds labels; `tokens` names queries and keys alike."""


class Gathering:
    """Collects what one file holds, name by name, and becomes its Loaded.

    An array that cannot be read is an error where it was asked for or has a role, else it is left
    out with a warning: a capture may hold things that are none of attncli's business.
    """

    def __init__(self, origin: str, member: str | None) -> None:
        self.origin = origin
        self.member = member
        self.names: list[str] = []
        self.arrays: dict[str, npt.NDArray[Any]] = {}
        self.labels: dict[str, tuple[str, ...]] = {}
        self.scale: float | None = None
        self.warnings: list[str] = []
        self._failed: InputError | None = None

    def add(self, name: str, read: Callable[[], npt.NDArray[Any]]) -> None:
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
        if _is_scale(name) and name != self.member:
            self.set_scale(array.item() if array.size == 1 else array)
        else:
            self.arrays[name] = array

    def leave_out(self, name: str, what: str) -> None:
        """Note a thing that is no array."""
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

    def done(self) -> Loaded:
        """What was gathered; InputError where there is no array, or not the one asked for."""
        if not self.arrays:
            if self.member is not None and self.names:
                raise self._no_member(self.member)
            raise self._failed or InputError(
                f"{self.origin} holds no array" + self._instead(), "it should hold q, or q, k and v"
            )
        tokens = self.labels.get("tokens")
        return Loaded(
            self.origin,
            self.arrays,
            query_labels=self.labels.get("query_tokens", tokens),
            key_labels=self.labels.get("key_tokens", tokens),
            scale=self.scale,
            warnings=tuple(self.warnings),
            member=self.member,
        )

    def _instead(self) -> str:
        return f", only {listing(self.names)}" if self.names else ""

    def _no_member(self, member: str) -> InputError:
        if self.names == [""]:
            return InputError(
                f"{self.origin} holds one array without a name, not {quote(member)}",
                "leave out ::name",
            )
        return InputError(
            f"{self.origin} holds no {quote(member)}; it holds {listing(self.names)}",
            f"name one: {ask_for(self.origin, self.names[0])}",
        )


def lone(
    origin: str, member: str | None, read: Callable[[], npt.NDArray[Any]], **labels: Any
) -> Loaded:
    """The Loaded of a format that holds one array without a name."""
    gathering = Gathering(origin, member)
    gathering.add("", read)
    gathering.done()
    return Loaded(origin, gathering.arrays, **labels)


def label_tuple(found: object, spot: str) -> tuple[str, ...]:
    """A list of strings as labels; InputError where it is none."""
    if not isinstance(found, Iterable) or isinstance(found, str | dict):
        raise InputError(f"{spot} is no list of strings", 'write ["the", "cat"]')
    labels = tuple(found)
    for index, label in enumerate(labels):
        if not isinstance(label, str):
            raise InputError(f"{spot}: entry {index + 1} is not a string", 'write ["the", "cat"]')
    return labels


def _is_scale(name: str) -> bool:
    return name.lower() == "scale"
