"""What a file has for an attention: the array of each role, and its fields.

A field is what a file says of its attention besides the arrays: its convention, key lengths and
layout. Each is a field of JSON, an array of one entry in an npz, or text in the metadata of
safetensors; `convention` holds several, as a JSON object or as the text of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args, overload

from attncli.arrays import Array
from attncli.convention import CHOICES, KNOBS, LAYOUTS, Convention, Layout, ScaleRule
from attncli.errors import ConventionError, InputError
from attncli.files.contents import FileContents
from attncli.files.messages import (
    ask_for,
    attentions,
    count,
    lacking,
    listing,
    location,
    quote,
    several,
)
from attncli.files.roles import (
    KV_LEN,
    LAYOUT,
    NESTED,
    ROLES,
    Role,
    attention_prefix,
    is_attended,
)


@overload
def pick(loaded: FileContents, role: Literal["q"]) -> Array: ...


@overload
def pick(loaded: FileContents, role: Role) -> Array | None: ...


def pick(loaded: FileContents, role: Role) -> Array | None:
    """The array that a source given for everything (`--q SOURCE`) holds for one role.

    By its name; in a trace, the stage of the outermost attention. An array that `::name` asked for,
    or the only one, is q, and there is no other then. None where there is none, except for q.
    """
    name = loaded.member if loaded.member in loaded.arrays else name_of(loaded, role)
    if role != "q" and (name is None or name == loaded.member):
        return None
    if name is None and (loaded.trace is not None or any(map(is_attended, _every_name(loaded)))):
        raise _absent(loaded, role)
    return _checked(loaded, role, name)


def only(loaded: FileContents, role: Role) -> Array:
    """The array of a source given for one role alone, such as `--k SOURCE`.

    The one that `::name` asked for, else the one that the role's name names, else the only one.
    """
    name = loaded.member if loaded.member in loaded.arrays else name_of(loaded, role)
    return _checked(loaded, role, name)


def _checked(loaded: FileContents, role: Role, name: str | None) -> Array:
    """The array of this name, or the only one; InputError where it cannot have the role."""
    if name is None and len(loaded.arrays) == 1 and not loaded.unread:
        (name,) = loaded.arrays
    if name is None:
        raise _absent(loaded, role)
    array, row = loaded.arrays[name], ROLES[role]
    if array.size == 0:
        problem, hint = f"is empty: its shape is {array.shape}", "give it numbers"
    elif not row.fewest <= array.ndim <= row.most:
        most = f" to {row.most}" if row.most > row.fewest else ""
        problem = f"has {count(array.ndim, 'dimension')}, {role} needs {row.fewest}{most}"
        is_row = row.fewest == 2 and array.ndim == 1
        hint = "write [[1, 2]] for one row" if is_row else row.form
    elif array.dtype.kind == "b" and not row.booleans:
        problem, hint = f"holds true and false, {role} needs numbers", "write 1 and 0"
    else:
        return array
    raise InputError(f"{location(loaded.origin, name)} {problem}", hint)


def outermost(loaded: FileContents) -> str | None:
    """The dotted prefix of the outermost attention of a saved trace: see `attention_prefix`."""
    return attention_prefix([*loaded.arrays], loaded.origin, loaded.member or "")


def name_of(loaded: FileContents, role: Role) -> str | None:
    """The name of the array with this role, or of its stage in a trace; None where none has it."""
    if loaded.trace is not None:
        prefix = outermost(loaded)
        name = f"{prefix}{role}"
        return name if prefix is not None and name in loaded.arrays else None
    names = loaded.names.get(role, [])
    if len(names) > 1:
        message = (
            f"{loaded.origin} holds {len(names)} arrays that could be {role}: {listing(names)}"
        )
        raise InputError(message, f"say which: {ask_for(loaded.origin, names[0])}")
    return names[0] if names else None


def _every_name(loaded: FileContents) -> list[str]:
    """Those of all its arrays, read or not."""
    return [*loaded.arrays, *loaded.unread]


def _absent(loaded: FileContents, role: Role) -> InputError:
    names = _every_name(loaded)
    if (parts := attentions(names)) and loaded.member is None:
        return several(loaded.origin, parts)
    return lacking(loaded.origin, role, names)


_TRUTH = {"true": True, "false": False, "1": True, "0": False}


def fields_of(loaded: FileContents) -> dict[str, Any]:
    """The fields of Convention that a file names, and their values."""
    nested = loaded.fields.get(NESTED) or {}
    if isinstance(nested, str):
        from attncli.files.json_text import parse

        nested = parse(nested.encode(), location(loaded.origin, NESTED))
    if not isinstance(nested, Mapping):
        hint = 'write {"causal": true, "scale": 0.125}'
        raise InputError(f"{location(loaded.origin, NESTED)} is not an object", hint)
    nested = {str(name).lower().replace("-", "_"): value for name, value in nested.items()}
    if unknown := sorted(set(nested) - set(KNOBS)):
        message = f"{location(loaded.origin, NESTED)} has no field {quote(str(unknown[0]))}"
        raise InputError(message, f"known are {', '.join(sorted(KNOBS))}")
    values = {name: _value(name, x) for name, x in nested.items() if x is not None}
    outer = {name: x for name, x in loaded.fields.items() if name in KNOBS and x is not None}
    outer |= {} if loaded.scale is None else {"scale": loaded.scale}
    for name, x in outer.items():
        value = _value(name, x)
        if name in values and values[name] != value:
            message = f"{loaded.origin} has {name} twice, and they differ"
            raise InputError(message, "keep one of them")
        values[name] = value
    try:
        convention = Convention(**values)
    except ConventionError as error:
        raise InputError(f"{loaded.origin}, {error.message}", error.hint) from error
    return {name: getattr(convention, name) for name in values}


def kv_len_of(loaded: FileContents) -> list[int] | None:
    """The key lengths that a file names, one for each batch item, or None."""
    value: Any = loaded.fields.get(KV_LEN)
    if value is None:
        return None
    if isinstance(value, str):
        value = [int(part) if part.strip().isdecimal() else part for part in value.split(",")]
    lengths = [*map(_whole, value if isinstance(value, list) else [value])]
    if not lengths or not all(type(n) is int for n in lengths):
        hint = "give one whole number for each batch item"
        raise InputError(f"{location(loaded.origin, KV_LEN)} holds no lengths", hint)
    return lengths


def layout_of(loaded: FileContents) -> Layout | None:
    """The order of the axes that a file names, or None; InputError for another name."""
    layout: Any = loaded.fields.get(LAYOUT)
    if isinstance(layout, list) and len(layout) == 1:
        (layout,) = layout
    layout = layout.lower() if isinstance(layout, str) else layout
    if layout is not None and layout not in LAYOUTS:
        message = f"{location(loaded.origin, LAYOUT)} is {quote(str(layout))}"
        raise InputError(message, f"use {listing(LAYOUTS)}")
    result: Layout | None = layout
    return result


def _value(name: str, value: Any) -> Any:
    """A value as a field has it: text is read as that of a flag, a list is a pair."""
    knob, default = KNOBS[name], getattr(Convention, name)
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    word = str(value).lower()
    if name == "scale" and word in get_args(ScaleRule):
        return word
    if word == "none":
        return None
    if name in CHOICES:
        word = word.removeprefix("torch.").replace("_", "-")
        return word if word in CHOICES[name] else value
    if isinstance(default, bool):
        return _TRUTH.get(word, value)
    if isinstance(value, str) and value != default:
        try:
            return knob.parse(value) if knob.parse else value
        except (ValueError, OverflowError):
            return value
    if isinstance(value, list):
        return tuple(map(_whole, value))
    return _whole(value) if name == "seed" else value


def _whole(number: Any) -> Any:
    """A float that is a whole number, as an array of floats holds it, as that."""
    return int(number) if isinstance(number, float) and number.is_integer() else number
