"""Shades that can be read and distinguished."""

from __future__ import annotations

import re
from io import StringIO
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from attncli.views.formats.colours import Rgb, colour, style
from attncli.views.formats.table import Screen, blocks
from attncli.views.matrix import Matrix, Ramp
from attncli.views.numbers import round_top
from attncli.views.page import parts
from attncli.views.select import DisplayOptions

from .rendering import lines_of, view
from .traces import CAUSAL, attention, matrix

RAMPS: tuple[Ramp, ...] = get_args(Ramp)


def luminance(rgb: Rgb) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    channels = np.array(rgb) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(found: Style, system: ColorSystem) -> float:
    shown = [
        luminance(color.downgrade(system).get_truecolor())
        for color in (found.color, found.bgcolor)
        if color
    ]
    dark, bright = sorted(shown)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("system", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT])
@pytest.mark.parametrize("ramp", RAMPS)
def test_text_is_legible_on_every_shade(ramp: Ramp, system: ColorSystem) -> None:
    shades = np.linspace(-1 if ramp == "signed" else 0, 1, 257)
    assert min(contrast(style(x, ramp), system) for x in shades) >= 4.5
    if system is ColorSystem.TRUECOLOR:
        assert min(contrast(style(x, ramp, paper=True), system) for x in shades) >= 4.5


# The eight standard colours and the eight bright ones, as terminals show them.
PALETTES = {
    "Linux": "000000 aa0000 00aa00 aa5500 0000aa aa00aa 00aaaa aaaaaa "
    "555555 ff5555 55ff55 ffff55 5555ff ff55ff 55ffff ffffff",
    "xterm": "000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5 "
    "7f7f7f ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff ffffff",
    "Windows": "0c0c0c c50f1f 13a10e c19c00 0037da 881798 3a96dd cccccc "
    "767676 e74856 16c60c f9f1a5 3b78ff b4009e 61d6d6 f2f2f2",
    "GNOME": "171421 c01c28 26a269 a2734c 12488b a347ba 2aa1b3 d0cfcc "
    "5e5c64 f66151 33d17a e9ad0c 2a7bde c061cb 33c7de ffffff",
}


def shown_in(palette: str, found: Style) -> list[float]:
    """The luminance of the text and of the background, the colours being of the sixteen."""
    colours = [bytes.fromhex(text) for text in PALETTES[palette].split()]
    numbers = [color.number for color in (found.color, found.bgcolor) if color]
    return [luminance(tuple(colours[n])) for n in numbers if n is not None]  # type: ignore[arg-type]


@pytest.mark.parametrize("palette", PALETTES)
@pytest.mark.parametrize("ramp", RAMPS)
def test_text_is_legible_on_the_shades_of_sixteen_colours(ramp: Ramp, palette: str) -> None:
    for shade in np.linspace(-1 if ramp == "signed" else 0, 1, 65):
        dark, bright = sorted(shown_in(palette, style(shade, ramp, few=True)))
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, shade


@pytest.mark.parametrize("ramp", RAMPS)
def test_backgrounds_are_of_the_eight_that_every_terminal_has(ramp: Ramp) -> None:
    for shade in np.linspace(-1, 1, 65):
        background = style(abs(shade) if ramp == "share" else shade, ramp, few=True).bgcolor
        assert background is not None
        assert background.number in range(8)


def test_each_fifth_of_a_share_has_a_colour_of_its_own_and_each_sign() -> None:
    fifths = [style(x, "share", few=True).bgcolor for x in (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)]
    assert len({*fifths}) == 5
    below, none, above = (style(x, "signed", few=True).bgcolor for x in (-0.5, 0.1, 0.5))
    assert len({below, none, above}) == 3
    assert style(-0.9, "signed", few=True).bgcolor == below


def test_beside_few_colours_there_are_marks_and_what_they_mean() -> None:
    screen, options = Screen(80, colour=True, few=True), DisplayOptions()
    (_, *_, weights, _, _) = blocks(attention(), options, screen=screen)
    lines = weights.plain.splitlines()
    assert lines[3].split() == ["q1", "▒", "0.4011", "▒", "0.4011", "0.1978", "1"]
    assert lines[6].strip() == "░▒▓█ the number, from 0.2 to 1"
    (_, scores, *_) = blocks(attention(), DisplayOptions(heatmap=True), screen=screen)
    last = scores.plain.splitlines()[-1]
    assert last.endswith("the size of the number, from 0.4 to 2; red above 0, blue below")


@pytest.mark.parametrize("ramp", RAMPS)
def test_larger_is_brighter_and_darker_on_paper(ramp: Ramp) -> None:
    bright = [luminance(colour(x, ramp)) for x in np.linspace(0, 1, 33)]
    assert all(before < after for before, after in pairwise(bright))
    on_paper = [luminance(colour(x, ramp, paper=True)) for x in np.linspace(0, 1, 33)]
    assert all(before > after for before, after in pairwise(on_paper))
    assert on_paper[0] == 1  # an empty cell is white


def test_signs_differ_in_hue_and_not_in_brightness_alone() -> None:
    red, _, blue = colour(0.6, "signed")
    assert red > blue
    red, _, blue = colour(-0.6, "signed")
    assert blue > red


def test_colours_beyond_the_scale_are_those_of_its_ends() -> None:
    assert colour(2.0, "share") == colour(1.0, "share") == (0xFE, 0xE8, 0x38)


@pytest.mark.parametrize(
    ("largest", "top"),
    [
        (0.4, 0.5),
        (0.5, 0.5),
        (0.9, 1),
        (11, 20),
        (0, 1),
        (6e-5, 1e-4),
        (1.7e308, 1.7e308),
        (5e-324, 5e-324),
    ],
)
def test_the_scale_ends_at_a_round_number(largest: float, top: float) -> None:
    assert round_top(largest) == pytest.approx(top)


def test_marks_are_fifths() -> None:
    trace = matrix([[0, 0.19, 0.2, 0.5, 0.7, 0.8, 1, -1]])
    last = lines_of(trace, view(heatmap=True))[-2]
    found = re.findall(r"([░▒▓█]?) +(-?[\d.]+)", last.removeprefix("  q1"))
    assert found == [
        *(("", "0"), ("", "0.19"), ("░", "0.20"), ("▒", "0.50")),
        *(("▓", "0.70"), ("█", "0.80"), ("█", "1.00"), ("█", "-1.00")),
    ]


def ramps(options: DisplayOptions, colour: bool = True) -> dict[str, Ramp | None]:
    """How the matrices are coloured."""
    found = (part for part in parts(attention(mask=CAUSAL), options) if isinstance(part, Matrix))
    grids = {m.name: m.grid((0, 1), (0, 1), colour=colour) for m in found}
    return {name: grid.shading.ramp if grid.shading else None for name, grid in grids.items()}


def test_which_stages_are_shaded() -> None:
    plain = dict.fromkeys(("scores", "scaled", "masked", "weights", "output"))
    assert ramps(DisplayOptions(), colour=False) == plain
    assert ramps(DisplayOptions()) == {**plain, "weights": "share"}
    assert ramps(DisplayOptions(heatmap=False)) == plain
    every = ramps(DisplayOptions(heatmap=True))
    assert every == {**dict.fromkeys(plain, "signed"), "weights": "share"}
    assert ramps(DisplayOptions(heatmap=True), colour=False) == every


def test_without_colour_a_mark_is_before_the_number() -> None:
    lines = lines_of(matrix([[0.1, -0.9, np.nan]]), view(heatmap=True))
    assert lines[-2] == "  q1     0.1  █ -0.9     NaN"
    assert lines[-1].strip() == "░▒▓█ the size of the number, from 0.2 to 1"


def test_shades_reach_the_terminal() -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, color_system="truecolor", width=80)
    screen, options = Screen(width=80, colour=True), DisplayOptions(stages=("weights",))
    for block in blocks(attention(mask=CAUSAL), options, screen=screen):
        console.print(block, soft_wrap=True)
    assert "\x1b[38;2;0;0;0;48;2;254;232;56m 1.0000 \x1b[0m" in out.getvalue()
    masked = next(line for line in out.getvalue().splitlines() if "///" in line)
    assert "48;2" not in masked.partition("///")[2]


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("width", [40, 57, 80])
def test_shaded_lines_fit(width: int, few: bool) -> None:
    console = Console(color_system="truecolor", width=width)
    trace = attention(np.ones((3, 2)), np.ones((17, 2)), np.ones((17, 2)))
    screen = Screen(width=width, colour=True, few=few)
    for block in blocks(trace, DisplayOptions(heatmap=True), screen=screen):
        for line in console.render_lines(block, pad=False):
            assert sum(segment.cell_length for segment in line) <= width
