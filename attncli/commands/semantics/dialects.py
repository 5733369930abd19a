"""How each array language writes what porting needs, and how each library is called.

    LANGUAGES["jax"].where     the idiom of a language, a template
    TARGETS["jax"].boolean     the argument by which a library takes a boolean mask

To add a library: a row of dialects.toml beside its row in attncli/presets.py.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple


class Language(NamedTuple):
    """Idioms of an array language as templates; the defaults are NumPy's.

    {x}, {y}, {c}  arrays, a condition
    {d}, {_d}      a diagonal, "" for the main one; the same after a comma
    {n}, {axis}    a number, an axis
    {m}            `module`
    """

    module: str
    imports: Mapping[str, str]  # what stands in the code → the line that imports it
    swap: str = "{x}.swapaxes(1, 2)"
    split: str = "{x}.reshape(*{x}.shape[:2], {n}, -1)"
    merge: str = "{x}.reshape(*{x}.shape[:2], -1)"
    any: str = "{x}.any(-1, keepdims=True)"
    where: str = "{m}.where({c}, {x}, {y})"
    tri: str = "{m}.tri(n_q, n_k{_d}, dtype=bool)"  # [n_q, n_k], true up to the diagonal
    tril: str = "{m}.tril({x})"
    last: str = "{m}.arange(n_q)[:, None] == n_q - 1"  # [n_q, 1], true for the last query
    mean: str = "{x}.mean({axis}, keepdims=True)"
    repeat: str = "{m}.repeat({x}, {n}, {axis})"
    cast: str = "{x}.astype(q.dtype)"
    pad: str = "{m}.pad({x}, [(0, 0)] * 3 + [(0, {n})])"


class Argument(NamedTuple):
    """How a call takes a mask."""

    text: str  # the argument; {mask} is the mask [n_q, n_k]
    before: str = ""  # a statement before the call
    node: str = ""  # for a call of a node: the inputs that its list of names gets


class Target(NamedTuple):
    """How a library is called on arrays of its own layout."""

    language: str  # of LANGUAGES
    call: str  # the call; {more} are its further arguments
    imports: Mapping[str, str] = MappingProxyType({})  # as, and beside, those of the language
    boolean: Argument | None = None  # how it takes a boolean mask, in the sense of the preset
    number: Argument | None = None  # the same for numbers that are added
    causal: Argument | None = None  # how it is asked for causal, aligned as the preset says
    scale: str = ""  # the argument of the factor, "" where there is none
    needs_scale: bool = False  # the factor has no default
    grouped: str = ""  # the argument for fewer key heads than query heads, where one is needed
    unmasked: str = ""  # the argument that is needed where there is neither a mask nor causal
    joins: str = ""  # why a mask and causal are joined into one mask though the preset takes both
    before: str = ""  # the statement before the call that makes its node
    first: tuple[str, str] = ("", "")  # what comes before q, such as a layer, and what that is
    takes: str = ""  # layout of its arrays here, where it is not that of the preset
    returns: str = ""  # the same of its output
    own_call: str = ""  # the call on arrays of the preset's layout, where `takes` is another
    is_layer: bool = False  # it projects q, k, v and its output by weights of its own
    instead: str = "torch-sdpa"  # the preset for what it cannot do


def _target(row: Mapping[str, Any]) -> Target:
    """A row of the table; an argument that is text alone needs no more than this text."""
    fields = dict(row) | {"first": tuple(row.get("first", ("", "")))}
    for name in {"boolean", "number", "causal"} & row.keys():
        text = row[name]
        fields[name] = Argument(text) if isinstance(text, str) else Argument(**text)
    return Target(**fields)


_ROWS = tomllib.loads((files(__package__) / "dialects.toml").read_text("utf-8"))
LANGUAGES = MappingProxyType({name: Language(**row) for name, row in _ROWS["languages"].items()})
"""The array languages, by name."""
TARGETS = MappingProxyType({name: _target(row) for name, row in _ROWS["targets"].items()})
"""The libraries to which code can be moved, by preset."""

NO_TARGET = MappingProxyType({name: tuple(why) for name, why in _ROWS["no_target"].items()})
"""Presets to which no code is written: why, and the preset to use instead."""
AXES: Mapping[str, str] = MappingProxyType(_ROWS["axes"])
"""The axes of each layout; "one head" is that of an attention without heads."""
FLAT = frozenset({"bsd", "sd"})
"""Layouts that have the heads side by side."""


def moves(layout: str, to: str) -> tuple[str, ...]:
    """What brings an array to another layout: names of idioms, such as split, or templates."""
    if layout == to:
        return ()
    if (direct := _ROWS["direct"].get(f"{layout} > {to}")) is not None:
        return tuple(direct)
    return (*_ROWS["to_bshd"][layout], *_ROWS["from_bshd"][to])
