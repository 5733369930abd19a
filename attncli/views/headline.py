"""The words above the matrices: how large everything is, which choices are not the usual ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attncli.convention import Convention
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
    return tuple(
        _WORDS[name](value, convention)
        for name, value in sorted(convention.changes().items(), key=lambda item: _ORDER[item[0]])
        if name in _WORDS
    )


def _causal(value: bool, how: Convention) -> str:
    aligned = how.causal_align == "bottom-right"
    return "causal, the last query at the last key" if aligned else "causal"


def _window(value: tuple[int, int], how: Convention) -> str:
    sides = ["all" if size < 0 else str(size) for size in value]
    return f"window of {sides[0]} keys before and {sides[1]} after"


def _scale(value: float | str, how: Convention) -> str:
    return "not scaled" if value == "none" else f"scaled by {short(float(value), 4)}"


def _softcap(value: float, how: Convention) -> str:
    after = " after the mask" if how.softcap_place == "after-mask" else ""
    return f"softcap {short(value, 4)}{after}"


_WORDS: dict[str, Callable[[Any, Convention], str]] = {
    "causal": _causal,
    "window": _window,
    "scale": _scale,
    "softcap": _softcap,
    "softmax_over": lambda value, how: f"softmax over {value}",
    "mask_means": lambda value, how: "true in the mask = ignored",
    "mask_value": lambda value, how: f"mask value {short(value, 4)}",
    "empty_rows": lambda value, how: f"empty rows {'NaN' if value == 'nan' else value}",
    "head_order": lambda value, how: "key heads shared in turn (tiled)",
    "dropout": lambda value, how: f"dropout {short(value, 4)} (seed {how.seed})",
}
_ORDER = {
    name: at for at, name in enumerate((*_WORDS, "causal_align", "softcap_place", "seed", "dtype"))
}
