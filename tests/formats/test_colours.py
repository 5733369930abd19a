"""Shades that can be read and distinguished, in every ramp and on every terminal."""

import re
from itertools import product

import numpy as np
import pytest
from rich.color import ColorSystem

from attncli.formats.colours import Rgb, colour, style
from attncli.page.matrix import Ramp
from tests.page.traces import CAUSAL, attention, coloured, lines_of, matrix, shown, widest

RAMPS: tuple[Ramp, ...] = ("share", "signed")
SHADES = {"share": np.linspace(0, 1, 129), "signed": np.linspace(-1, 1, 257)}


def luminance(rgb: Rgb) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    channels = np.array(rgb) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


@pytest.mark.parametrize("ramp", RAMPS)
def test_text_is_legible_on_every_shade(ramp: Ramp) -> None:
    for shade in SHADES[ramp]:
        text = style(shade, ramp)
        for system in (ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT):
            pair = [luminance(x.downgrade(system).get_truecolor()) for x in (text.color, text.bgcolor) if x]  # fmt: skip
            assert contrast(*pair) >= 4.5


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


@pytest.mark.parametrize("palette", PALETTES)
def test_text_is_legible_on_the_shades_of_sixteen_colours(palette: str) -> None:
    numbers = np.frombuffer(bytes.fromhex(PALETTES[palette]), np.uint8).reshape(-1, 3)
    colours = [luminance((r, g, b)) for r, g, b in numbers.tolist()]
    for ramp in RAMPS:
        for shade in SHADES[ramp]:
            few = style(shade, ramp, few=True)
            front, back = (x and x.number for x in (few.color, few.bgcolor))
            assert back in {None, *range(8)}  # that every terminal has as a background
            if back is not None:
                assert contrast(colours[front or 0], colours[back]) >= 4.5, shade
            cube = style(shade, ramp, of_256=True)
            both = [luminance(x.get_truecolor()) for x in (cube.color, cube.bgcolor) if x]
            assert contrast(*both) >= 4.5, shade


def test_each_fifth_of_a_share_has_a_colour_of_its_own_and_each_sign() -> None:
    fifths = [style(x, "share", few=True).bgcolor for x in (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)]
    assert len({*fifths}) == 5
    below, none, above = (style(x, "signed", few=True).bgcolor for x in (-0.5, 0.1, 0.5))
    assert len({below, none, above}) == 3
    assert style(-0.9, "signed", few=True).bgcolor == below


@pytest.mark.parametrize("ramp", RAMPS)
def test_larger_is_brighter(ramp: Ramp) -> None:
    bright = [luminance(colour(x, ramp)) for x in np.linspace(0, 1, 33)]
    assert bright == sorted({*bright})
    assert len(bright) == 33
    for sign in (1, -1):  # which differ in hue
        red, _, blue = colour(sign * 0.6, "signed")
        assert (red - blue) * sign > 0
    assert colour(2.0, "share") == colour(1.0, "share") == (0xFE, 0xE8, 0x38)


def test_the_scale_ends_at_a_round_number_and_marks_are_fifths() -> None:
    for largest, top in ((0.4, 0.5), (0.5, 0.5), (0.9, 1), (11, 20), (0, 1), (6e-5, "0.0001")):
        legend = lines_of(matrix([[largest, -largest]]), heatmap=True)[-1]
        assert legend.endswith(f" to {top}")
    values = [[0, 0.19, 0.2, 0.5, 0.7, 0.8, 1, -1]]
    line, legend = lines_of(matrix(values), heatmap=True)[-2:]
    marks = "q1 0 0.19 ░ 0.20 ▒ 0.50 ▓ 0.70 █ 0.80 █ 1.00 █ -1.00"
    assert " ".join(line.split()) == marks
    assert re.search("░▒▓█ .*0.2 to 1", legend)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def test_which_stages_are_shaded() -> None:
    masked = attention(mask=CAUSAL)
    every = ["q", "k", "v", "mask", "scores", "scaled", "masked", "weights", "output"]
    for heatmap, names in ((None, ["weights"]), (False, []), (True, every)):
        stages = re.split(r"\n\n", coloured(masked, heatmap=heatmap))[1:]
        titles = (plain(stage).split() for stage in stages if ";48;" in stage)
        assert [words[words[0].isdecimal()] for words in titles] == names
    assert not set("░▒▓█") & {*shown(masked)}
    assert shown(masked, heatmap=True).count("░▒▓█") == 9  # a legend for each
    text = coloured(masked, stages=("weights",))
    assert "\x1b[38;2;0;0;0;48;2;254;232;56m 1.0000 \x1b[0m" in text
    row = next(line for line in text.splitlines() if "///" in line)
    assert "48;2" not in row.partition("///")[2]


def test_beside_few_colours_there_are_marks_and_what_they_mean() -> None:
    assert re.search(r"q1 +▒ +0.4011 +▒ +0.4011 +0.1978 +1", plain(coloured(attention(), few=True)))
    signed = coloured(attention(), few=True, heatmap=True)
    assert re.search(r"from 0.4 to 2; red above 0, blue below", signed)


def test_shaded_lines_fit() -> None:
    trace = attention(np.ones((3, 2)), np.ones((17, 2)), np.ones((17, 2)))
    for width, few in product((40, 57, 80), (False, True)):
        assert widest(plain(coloured(trace, width, few, heatmap=True))) <= width
