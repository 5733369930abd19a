"""Shades: how large a number is, as a colour behind it or, without colour, as a mark before it.

Two ramps, both dark where the number is small and bright where it is large, both readable to
colour-blind eyes: cividis (Nuñez, Anderton and Renslow 2018) for weights, and blue, grey, orange
around 0 for numbers of both signs. The text on a shade is black or white, whichever contrasts
more, so it does not depend on the terminal's own colours.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

from rich.color import Color, ColorSystem
from rich.style import Style

Ramp = Literal["share", "signed"]
Rgb = tuple[int, int, int]

SHADED = ("positions", "dots", "cosines")
"""Stages besides the weights that are shaded by default, where there is colour."""

WEIGHTS = ("weights", "dropped")
"""Stages shaded without being asked for."""

MARKS = " ░▒▓█"
STEPS = 32  # shades a ramp is cut into
EIGHT_BIT = ColorSystem.EIGHT_BIT  # what a terminal of 256 colours makes of a shade

# Dark to bright; the stops step over the greys on which neither black nor white is legible.
_CIVIDIS = "00224e 123570 3b496c 575d6d 8a8678 a59c74 c3b369 e1cc55 fee838"
_BLUE_TO_ORANGE = "8fc4ff 5a9ee6 1c528c 26282c 8a3e1c e88a4a ffd0a0"
_STOPS: dict[Ramp, list[str]] = {
    "share": _CIVIDIS.split(),
    "signed": _BLUE_TO_ORANGE.split(),
}


def round_top(largest: float) -> float:
    """The end of the scale: the next of 1, 2, 5, 10, …

    >>> round_top(0.43), round_top(3.0), round_top(0.0)
    (0.5, 5.0, 1.0)
    """
    if largest <= 0 or not math.isfinite(largest):
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    for step in (1, 2, 5, 10):
        top = step * power
        if largest <= top * (1 + 1e-9) < math.inf:
            return top
    return largest  # at the ends of the number range, where no round number is


def mark(shade: float) -> str:
    """The character for a shade: a blank below a fifth of the scale, then ░▒▓█.

    >>> mark(0.1), mark(-0.5), mark(1.0)
    (' ', '▒', '█')
    """
    return MARKS[min(int(abs(shade) * 5), 4)]


def style(shade: float, ramp: Ramp) -> Style:
    """Background and text colour of a shade: 0 to 1 of a share, −1 to 1 of a signed number."""
    return _style(round(shade * STEPS), ramp)


@lru_cache(maxsize=256)
def _style(step: int, ramp: Ramp) -> Style:
    background = Color.from_rgb(*colour(step / STEPS, ramp))
    shown = [background.get_truecolor(), background.downgrade(EIGHT_BIT).get_truecolor()]
    return Style(color=Color.from_rgb(*text_on(*shown)), bgcolor=background)


def colour(shade: float, ramp: Ramp) -> Rgb:
    """The colour of a shade, between the two stops it lies between."""
    stops = _STOPS[ramp]
    share = (shade + 1) / 2 if ramp == "signed" else shade
    at = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    low = min(int(at), len(stops) - 2)
    first, second = _rgb(stops[low]), _rgb(stops[low + 1])
    red, green, blue = (round(a + (b - a) * (at - low)) for a, b in zip(first, second, strict=True))
    return red, green, blue


def text_on(*backgrounds: Rgb) -> Rgb:
    """Black or white, whichever stands out more from all of these."""
    black, white = (0, 0, 0), (255, 255, 255)
    return max(black, white, key=lambda text: min(contrast(text, b) for b in backgrounds))


def contrast(one: Rgb, other: Rgb) -> float:
    """The contrast ratio of WCAG 2.2: 1 for the same colour, 21 for black on white."""
    bright, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(rgb: Rgb) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (x / 255 for x in rgb)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _rgb(hexadecimal: str) -> Rgb:
    red, green, blue = bytes.fromhex(hexadecimal)
    return red, green, blue
