"""What a file says of its attention besides the arrays: its convention, key lengths and layout.

Each is a field of JSON, an array of one entry in an npz, or text in the metadata of safetensors;
`convention` holds several, as a JSON object or as the text of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

from attncli.convention import CHOICES, KNOBS, LAYOUTS, Convention, Layout, ScaleRule
from attncli.errors import ConventionError, InputError
from attncli.files.messages import listing, location, quote

if TYPE_CHECKING:
    from attncli.files.load import Loaded

KV_LEN, LAYOUT, NESTED = "kv_len", "layout", "convention"
FIELDS = {*KNOBS, KV_LEN, LAYOUT, NESTED} - {"scale"}
"""Their names, in lowercase. `scale` is read from every file, whoever asks."""

_TRUTH = {"true": True, "false": False, "1": True, "0": False}


def field_name(name: str) -> str:
    """The field that a file may mean by a name: in any case of letters, with - or _."""
    return name.lower().replace("-", "_")


def is_field(name: str) -> bool:
    """Whether a file may say something of its attention by this name."""
    return field_name(name) in FIELDS


def fields_of(loaded: Loaded) -> dict[str, Any]:
    """The fields of Convention that a file names, and their values."""
    nested = loaded.fields.get(NESTED) or {}
    if isinstance(nested, str):
        from attncli.files.json import parse

        nested = parse(nested.encode(), location(loaded.origin, NESTED))
    if not isinstance(nested, Mapping):
        hint = 'write {"causal": true, "scale": 0.125}'
        raise InputError(f"{location(loaded.origin, NESTED)} is not an object", hint)
    nested = {field_name(str(name)): value for name, value in nested.items()}
    if unknown := sorted(set(nested) - set(KNOBS)):
        message = f"{location(loaded.origin, NESTED)} has no field {quote(str(unknown[0]))}"
        raise InputError(message, f"known are {', '.join(sorted(KNOBS))}")
    values = {name: _value(name, x) for name, x in nested.items() if x is not None}
    own = {name: x for name, x in loaded.fields.items() if name in KNOBS and x is not None}
    own |= {} if loaded.scale is None else {"scale": loaded.scale}
    for name, x in own.items():
        value = _value(name, x)
        if name in values and values[name] != value:
            message = f"{loaded.origin} has {name} twice, and they differ"
            raise InputError(message, "keep one of them")
        values[name] = value
    try:
        how = Convention(**values)
    except ConventionError as error:
        raise InputError(f"{loaded.origin}, {error.message}", error.hint) from error
    return {name: getattr(how, name) for name in values}


def kv_len_of(loaded: Loaded) -> list[int] | None:
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


def layout_of(loaded: Loaded) -> Layout | None:
    """The order of the axes that a file names, or None; InputError for another name."""
    layout: Any = loaded.fields.get(LAYOUT)
    if isinstance(layout, list) and len(layout) == 1:
        (layout,) = layout
    layout = layout.lower() if isinstance(layout, str) else layout
    if layout is not None and layout not in LAYOUTS:
        message = f"{location(loaded.origin, LAYOUT)} is {quote(str(layout))}"
        raise InputError(message, f"use {listing(LAYOUTS)}")
    known: Layout | None = layout
    return known


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
