"""Shades: how large a number is, as a colour behind it.

Two ramps, both dark where the number is small and bright where it is large, both readable to
colour-blind eyes: cividis (Nuñez, Anderton and Renslow 2018) for weights, and blue, grey, orange
around 0 for numbers of both signs. Figures have the colours of the page instead. The text on a
shade is black or white, whichever contrasts more, so it does not depend on the terminal's own
colours.

Where there are 16 colours or 8, whose ramps would end in two or three shades, marks say how large
a number is (see matrix.SHADES). Behind each fifth of a share is one of the eight colours, behind a
signed number one for each sign, and none behind the smallest. They differ from terminal to
terminal, and the text on them is legible in each.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from rich.color import Color, ColorSystem
from rich.style import Style

from attncli.page.matrix import Ramp, fifth

Rgb = tuple[int, int, int]

STEPS = 32  # shades a ramp is cut into
MIDDLE = 0.179  # luminance on which black and white are read equally well: √(1.05 · 0.05) − 0.05

# Dark to bright; the stops step over the greys on which neither black nor white is legible.
_CIVIDIS = "00224e 123570 3b496c 575d6d 8a8678 a59c74 c3b369 e1cc55 fee838"
_BLUE_TO_ORANGE = "8fc4ff 5a9ee6 1c528c 26282c 8a3e1c e88a4a ffd0a0"
_STOPS: dict[Ramp, list[str]] = {"share": _CIVIDIS.split(), "signed": _BLUE_TO_ORANGE.split()}

# From OKLab to the cube roots of what the cones respond, and from the responses to linear sRGB.
_ROOTS_OF_LAB = np.array(
    [[1, 0.39633778, 0.21580376], [1, -0.10556135, -0.06385417], [1, -0.08948418, -1.29148555]]
)
_RGB_OF_CONES = np.array(
    [
        [4.07674166, -3.30771159, 0.23096993],
        [-1.26843800, 2.60975740, -0.34131940],
        [-0.00419609, -0.70341861, 1.70761470],
    ]
)

# of the standard colours those on which bright white or black is legible, whichever they are
_FIFTHS = ("black", "blue", "magenta", "cyan", "white")
_DARK_TEXT = ("cyan", "white")


_OF_256: dict[Ramp, tuple[int, ...]] = {  # picked by hand: a ramp cut to the 256 changes its hue
    "share": (17, 60, 102, 144, 185, 227),
    "signed": (153, 75, 25, 235, 94, 208, 223),
}


def style(shade: float, ramp: Ramp, *, few: bool = False, of_256: bool = False) -> Style:
    """Background and text colour of a shade: 0 to 1 of a share, −1 to 1 of a signed number.

    few     whether there are 16 colours or 8: then one of those, to stand behind a mark, and none
            behind the smallest fifth
    of_256  whether there are 256 colours
    """
    if of_256:
        colours = _OF_256[ramp]
        share = (shade + 1) / 2 if ramp == "signed" else shade
        behind = Color.from_ansi(colours[round(min(max(share, 0.0), 1.0) * (len(colours) - 1))])
        is_bright = luminance(*behind.get_truecolor()) > MIDDLE
        return Style(color=Color.from_ansi(16 if is_bright else 231), bgcolor=behind)
    if few:
        size = fifth(shade)
        if not size:
            return Style()
        background = _FIFTHS[size] if ramp == "share" else "red" if shade > 0 else "blue"
        text = "black" if background in _DARK_TEXT else "bright_white"
        return Style(color=text, bgcolor=background)
    return _style(round(shade * STEPS), ramp)


@lru_cache(maxsize=512)
def _style(step: int, ramp: Ramp) -> Style:
    background = Color.from_rgb(*colour(step / STEPS, ramp))
    nearest = background.downgrade(ColorSystem.EIGHT_BIT)  # in a terminal of 256 colours
    both = [luminance(*x.get_truecolor()) for x in (background, nearest)]
    text = (0, 0, 0) if max(both) * min(both) > MIDDLE**2 else (255, 255, 255)
    return Style(color=Color.from_rgb(*text), bgcolor=background)


def colour(shade: float, ramp: Ramp) -> Rgb:
    """The colour of a shade, interpolated between its two neighbouring stops."""
    stops = _STOPS[ramp]
    share = (shade + 1) / 2 if ramp == "signed" else shade
    at = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    low = min(int(at), len(stops) - 2)
    first, second = map(bytes.fromhex, stops[low : low + 2])
    red, green, blue = (round(a + (b - a) * (at - low)) for a, b in zip(first, second, strict=True))
    return red, green, blue


def page_colours(ramp: Ramp, is_dark: bool, count: int = 257) -> list[tuple[float, ...]]:
    """The colours of a figure, from the ground to the largest number: red, green, blue, 0 to 1.

    They are those of the page, lines in OKLCH (CSS Color 4, section 9): equal steps are equal to
    the eye, in grey too. Shares are green, numbers above 0 orange and those below it blue.
    """
    low = -1.0 if ramp == "signed" else 0.0
    shares = np.linspace(low, 1.0, count)
    sizes = np.abs(shares)
    lightness = 0.23 + 0.6 * sizes if is_dark else 0.985 - 0.44 * sizes
    hue = np.radians(np.where(shares < 0, 255.0, 60.0) if ramp == "signed" else 165.0)
    lab = np.array([lightness, 0.14 * sizes * np.cos(hue), 0.14 * sizes * np.sin(hue)])
    linear = np.clip(_RGB_OF_CONES @ (_ROOTS_OF_LAB @ lab) ** 3, 0, 1)
    rgb = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return [*zip(*rgb.tolist(), strict=True)]


def text_on(*rgb: float) -> str:
    """Black or white, whichever is read better on a colour."""
    return "black" if luminance(*rgb) > MIDDLE else "white"


def luminance(*rgb: float) -> float:
    """The relative luminance of WCAG 2.2, 0 to 1."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (x / 255 for x in rgb)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
