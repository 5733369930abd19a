"""Pictures of matrices: read by a decoder written from the standard, and compared by pixel."""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from attncli.views.formats.png import NOTHING, data_uri, picture
from attncli.views.matrix import Shading

SHARE, SIGNED = Shading("share", 1.0), Shading("signed", 2.0)
Rgb = tuple[int, int, int]


def pixels(png: bytes) -> list[list[Rgb]]:
    """The colours of a palette PNG of 8 bits without filters; every length and sum is checked."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        (crc,) = struct.unpack(">I", png[at + 8 + length : at + 12 + length])
        assert crc == zlib.crc32(kind + data)
        chunks[kind] = data
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height, *how = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert how == [8, 3, 0, 0, 0]
    palette = [tuple(chunks[b"PLTE"][i : i + 3]) for i in range(0, len(chunks[b"PLTE"]), 3)]
    lines = zlib.decompress(chunks[b"IDAT"])
    assert len(lines) == height * (width + 1)
    rows = [lines[i : i + width + 1] for i in range(0, len(lines), width + 1)]
    assert {row[0] for row in rows} <= {0}
    return [[palette[index] for index in row[1:]] for row in rows]  # type: ignore[misc]


def test_ends_and_middle_have_the_colours_of_the_ramps() -> None:
    # white and the last of ColorBrewer's Blues, and blue, white and orange, those of paper
    shares = pixels(picture(np.array([[0.0, 1.0]]), SHARE))
    assert shares == [[(0xFF, 0xFF, 0xFF), (0x08, 0x30, 0x6B)]]
    signed = pixels(picture(np.array([[-2.0], [0.0], [2.0]]), SIGNED))
    assert signed == [[(0x21, 0x66, 0xAC)], [(0xFF, 0xFF, 0xFF)], [(0xB3, 0x58, 0x06)]]


def test_what_is_beyond_the_scale_has_the_colour_of_its_end() -> None:
    values = np.array([[-np.inf, -5.0, -2.0], [np.inf, 7.0, 2.0]])
    low, high = pixels(picture(values, SIGNED))
    assert len({*low}) == len({*high}) == 1
    assert pixels(picture(np.array([[-1.0, 0.0]]), SHARE))[0][0] == (0xFF, 0xFF, 0xFF)


def test_nan_and_hidden_cells_are_grey_and_nothing_else_is() -> None:
    values = np.array([[np.nan, 0.5, 0.25], [1.0, 0.0, 1.0]])
    hidden = np.array([[False, True, False], [False, False, True]])
    is_grey = [[rgb == NOTHING for rgb in row] for row in pixels(picture(values, SHARE, hidden))]
    assert is_grey == [[True, True, False], [False, False, True]]


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_an_empty_matrix_is_a_grey_pixel(shape: tuple[int, int]) -> None:
    assert pixels(picture(np.zeros(shape), SHARE)) == [[NOTHING]]


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float16, np.float32])
def test_any_kind_of_number(dtype: type) -> None:
    assert pixels(picture(np.eye(2).astype(dtype), SHARE)) == pixels(picture(np.eye(2), SHARE))


@given(arrays(np.float64, array_shapes(min_dims=2, max_dims=2), elements=st.floats(0, 1)))
def test_a_larger_number_is_never_brighter(values: np.ndarray[Any, Any]) -> None:
    shown = pixels(picture(values, SHARE))
    assert (len(shown), len(shown[0])) == values.shape
    bright = np.array([sum(rgb) for row in shown for rgb in row])[np.argsort(values, axis=None)]
    assert all(a >= b - 3 for a, b in pairwise(bright.tolist()))  # each channel is rounded


def test_the_address_holds_the_picture() -> None:
    address = data_uri(np.eye(2), SHARE)
    kind, _, data = address.partition(",")
    assert kind == "data:image/png;base64"
    assert b64decode(data) == picture(np.eye(2), SHARE)
