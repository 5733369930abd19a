"""Which flags have an effect: each says what it needs and what it excludes, and this reads it.

    unknown = flag("Vector of a word that is missing …", needs="--glove")
    layers = flag("Layers of encoder and decoder …", needs="--block encoder|decoder")
    cell = flag("Derive one weight …", needs=PAGES, excludes="--rows, --cols, --work")
    weights_axes = flag("in-out: X W …", needs="the weights of x")

Commas separate what is needed together, "or" what may stand for each other, and a flag is followed
by the values that will do. What is no flag is a fact of the input, such as "the weights of x", a
role, or a field of Convention, which a file may set as well: it is known once the input is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.masks import adds
from attncli.cli.options import DisplayFlags
from attncli.cli.output import form_of
from attncli.convention import (
    ADDED,
    KNOBS,
    LOG_SUM,
    MASK,
    NUMBERS,
    REPLACED,
    SHARED,
    Convention,
    flag_of,
)
from attncli.errors import ConventionError
from attncli.files.roles import ROLES
from attncli.stages import LSE


def check_flags(groups: Sequence[Any], needs: Mapping[str, str] = MappingProxyType({})) -> None:
    """ConventionError for a flag that another one makes useless, or that misses one it needs.

    needs  field → what its flag needs in this command, in place of what it declares
    """
    flags = _flags(groups)
    values = {own: str(value) for _, own, value in flags if value is not None}
    values |= {own: row["default"] for row, own, _ in flags if row["default"] and own not in values}
    for show in (group for group in groups if isinstance(group, DisplayFlags)):
        values["--format"] = form_of(show).name
    for row, own, _ in (flag for flag in flags if flag[2] is not None):
        for other in _parts(row["excludes"]):
            if _holds(other, values):
                what = f"{own} cannot be used with {_text(other)}"
                raise ConventionError(what, "leave one of the two out")
        for need in _parts(needs.get(row["name"], row["needs"])):
            if need.startswith("--") and not _is_met(need, values):
                raise _no_effect(own, need, values)


def check_facts(groups: Sequence[Any], facts: Collection[str]) -> None:
    """ConventionError for a flag that needs a fact of the input which is not among these."""
    known = dict.fromkeys(facts, "")
    for row, own, value in _flags(groups):
        for need in _parts(row["needs"]) if value is not None else ():
            if not need.startswith("--") and not _is_met(need, known):
                raise _no_effect(own, need, {})


def facts_of(how: Convention, mask: Array | None, heads: tuple[int, int]) -> set[str]:
    """What of a call its convention, its mask as read, and its heads of Q and K have."""
    is_added = adds(mask, how)
    holds = {
        MASK: mask is not None,
        NUMBERS: mask is not None and mask.dtype != np.bool_,
        ADDED: is_added,
        SHARED: heads[0] != heads[1],
        REPLACED: not (is_added and how.empty_rows_inf),
    }
    return {*how.changes(), *(fact for fact, is_so in holds.items() if is_so)}


def of_lse(stages: Iterable[str]) -> set[str]:
    """The fact that a log-sum-exp is among these stages."""
    return {LOG_SUM for name in stages if name.rpartition(".")[2] == LSE}


def _flags(groups: Sequence[Any]) -> list[tuple[Mapping[str, Any], str, Any]]:
    """What every flag declares, the flag, and its value; None where it is not given."""
    flags: list[tuple[Mapping[str, Any], str, Any]] = []
    for group in groups:
        for own in (own for own in fields(group) if own.metadata):
            on, _, off = next(iter(own.metadata["names"]), flag_of(own.name)).partition("/")
            value = getattr(group, own.name)
            if value is False:  # a switch that is off, unless its flag is of the form --on/--off
                on, value = (off, False) if off else (on, None)
            flags.append(({**own.metadata, "name": own.name}, on, value))
    return flags


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part]


def _is_met(need: str, values: Mapping[str, str]) -> bool:
    return any(_holds(one, values) for one in need.split(" or "))


def _holds(condition: str, values: Mapping[str, str]) -> bool:
    """Whether a flag is given with one of these values, or a fact is there."""
    if not condition.startswith("--"):
        return condition in values
    flag, _, choices = condition.partition(" ")
    return flag in values and (not choices or values[flag] in choices.split("|"))


def _text(condition: str) -> str:
    """A condition as a message has it: `--block encoder or decoder`, `--mask`."""
    if condition in KNOBS or condition in ROLES:
        return flag_of(condition)
    *others, last = condition.split("|")
    return f"{', '.join(others)} or {last}" if others else last


def _no_effect(flag: str, need: str, values: Mapping[str, str]) -> ConventionError:
    """The error for a flag that misses what it needs."""
    needed = " or ".join(map(_text, need.split(" or ")))
    form = values.get("--format", "")
    if need.startswith("--format"):
        return ConventionError(f"{flag} has no effect on {form}", f"use {needed}, or leave it out")
    mend = "add it, or leave" if needed.startswith("--") else "leave"
    return ConventionError(f"{flag} has no effect without {needed}", f"{mend} {flag} out")
