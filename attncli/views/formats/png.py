"""A matrix as a PNG of one pixel a cell, for pages of html.

It is written by hand, by zlib and struct: signature, IHDR, PLTE, IDAT, IEND (PNG, third edition,
W3C 2025). A palette of 255 shades and a grey keeps a pixel at one byte.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from functools import lru_cache

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.views.formats.colours import Rgb, colour
from attncli.views.matrix import Ramp, Shading

SHADES = 255  # an odd number, so that the middle one is 0 of a signed ramp
NOTHING: Rgb = (217, 217, 217)
"""The grey of a cell without a number, NaN or masked: no shade of either ramp is like it."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PALETTE = 3  # the colour type of a picture whose pixels are indices into PLTE
_LEVEL = 6  # of zlib: higher ones take twice as long for a hundredth less


def picture(values: Array, shading: Shading, hidden: BoolArray | None = None) -> bytes:
    """The matrix [n, m] as a PNG of m × n pixels; grey is NaN or hidden, or nothing at all.

    >>> picture(np.eye(3), Shading("share", 1.0))[1:4]
    b'PNG'
    """
    size = values.shape if values.size else (1, 1)
    indices = np.full(size, SHADES, np.uint8)
    if values.size:
        low = -1.0 if shading.ramp == "signed" else 0.0
        share = np.clip((values / np.float64(shading.top)).astype(np.float32), low, 1.0)
        has_shade = ~np.isnan(share) if hidden is None else ~np.isnan(share) & ~hidden
        steps = (share[has_shade] - low) / (1 - low) * (SHADES - 1)
        indices[has_shade] = np.rint(steps).astype(np.uint8)
    height, width = size
    lines = np.pad(indices, ((0, 0), (1, 0)))  # before each line its filter, which is 0: none
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, _PALETTE, 0, 0, 0),
        b"PLTE": _palette(shading.ramp),
        b"IDAT": zlib.compress(lines.tobytes(), _LEVEL),
        b"IEND": b"",
    }
    named = ((len(data), kind + data) for kind, data in chunks.items())
    packed = (struct.pack(">I", n) + x + struct.pack(">I", zlib.crc32(x)) for n, x in named)
    return b"".join((_SIGNATURE, *packed))


def data_uri(values: Array, shading: Shading, hidden: BoolArray | None = None) -> str:
    """The same as an address that holds the picture itself, for `href` and `src`."""
    return f"data:image/png;base64,{b64encode(picture(values, shading, hidden)).decode()}"


@lru_cache
def _palette(ramp: Ramp) -> bytes:
    low = -1.0 if ramp == "signed" else 0.0
    shades = (low + (1 - low) * step / (SHADES - 1) for step in range(SHADES))
    return b"".join(bytes(colour(shade, ramp, paper=True)) for shade in shades) + bytes(NOTHING)
