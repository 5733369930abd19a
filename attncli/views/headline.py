"""The words above the matrices: how large everything is, which choices are not the usual ones."""

from __future__ import annotations

from attncli.convention import KNOBS, Convention
from attncli.views.numbers import short
from attncli.views.places import HEADS, KEY_HEADS, Level

# axis → one of them, many of them; the order is that of the headline
_COUNTED = {
    "batch": ("batch entry", "batch entries"),
    HEADS: ("head", "heads"),
    "query": ("query", "queries"),
    "key": ("key", "keys"),
    "token": ("token", "tokens"),
    "position": ("position", "positions"),
    "dimension": ("dimension", "dimensions"),
}
_WIDTHS = ("d_k", "d_v", "d_model")
_ENTRIES = {axis: many for axis, (_, many) in _COUNTED.items()} | {
    **dict.fromkeys(_WIDTHS, "dimensions"),
    "word": "words",
    "other": "the same",
    "pair": "pairs of dimensions",
    "component": "components",
    "count": "counts",
}


def facts(level: Level) -> tuple[str, ...]:
    """The sizes of an attention: 3 queries, 3 keys, d_k 2, d_v 2.

    The number type is among them where it is not float64.
    """
    sizes = {axis: level.size(axis) for axis in (*_COUNTED, *_WIDTHS, KEY_HEADS)}
    said = [
        f"{sizes[axis]} {one if sizes[axis] == 1 else many}{_key_heads(axis, sizes)}"
        for axis, (one, many) in _COUNTED.items()
        if sizes[axis] and not (axis in ("batch", HEADS) and sizes[axis] == 1)
    ]
    said += [f"{axis} {sizes[axis]}" for axis in _WIDTHS if sizes[axis]]
    if level.convention.dtype != "float64":
        said.append(level.convention.dtype)
    return tuple(said)


def _key_heads(axis: str, sizes: dict[str, int]) -> str:
    n_key_heads = sizes[KEY_HEADS]
    if axis != HEADS or n_key_heads in (0, sizes[HEADS]):
        return ""
    return f" on {n_key_heads} key head{'' if n_key_heads == 1 else 's'}"


def entries(axis: str) -> str:
    """What the entries of an axis are: queries, keys, dimensions."""
    return _ENTRIES.get(axis, axis)


def choices(convention: Convention) -> tuple[str, ...]:
    """The convention where it is not the default, in words.

    >>> choices(Convention(causal=True, mask_value=-1e9))
    ('causal', 'mask value -1e9')
    """
    found = (
        KNOBS[name].words(value, convention, lambda x: short(float(x), 4))  # type: ignore[misc]
        for name, value in convention.changes().items()
        if KNOBS[name].words
    )
    return tuple(filter(None, found))
