"""Texts of a figure as they are: never read as formulas, in fonts that have their letters."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import matplotlib as mpl
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font


def as_it_is(*texts: str) -> dict[str, Any]:
    """How Matplotlib is to draw these texts."""
    font = get_font(findfont(FontProperties()))
    letters = {x for x in "".join(texts) if not x.isascii() and not font.get_char_index(ord(x))}
    family = [*mpl.rcParams["font.family"], *_fonts_with(frozenset(letters))]
    return {"parse_math": False, "usetex": False, "family": family}


@lru_cache
def _fonts_with(letters: frozenset[str]) -> tuple[str, ...]:
    """For each of these letters an installed font that has it, if any has."""
    names: dict[str, str] = {}
    for entry in fontManager.ttflist if letters else ():
        if entry.name.startswith("Last Resort"):  # it has a box for each; Matplotlib takes it last
            continue
        try:
            font = get_font(entry.fname)
        except (OSError, RuntimeError):  # of coloured pictures, or broken
            continue
        for letter in letters - names.keys():
            if font.get_char_index(ord(letter)):
                names[letter] = entry.name
        if len(names) == len(letters):
            break
    return tuple(sorted({*names.values()}))
