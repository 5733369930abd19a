"""PDF, and PNG for png.py: the figure of svg.py, drawn by the compiler Typst (the extra `figures`).

The page is as large as the figure. Letters come from the fonts of the system, else from those that
Typst brings; a letter that none of them has is a box.
"""

from __future__ import annotations

from typing import BinaryIO, Literal

from attncli.budget import check_bytes
from attncli.trace import Trace
from attncli.views.formats import svg
from attncli.views.select import DisplayOptions
from attncli.views.text import sentence

_PPI = 192.0  # two pixels of a PNG for each of the figure's, as a sharp screen has them
_PIXEL = 16  # bytes that one takes while it is drawn and packed
_PAGE = b"""
#set page(width: auto, height: auto, margin: 0pt)
#set document(title: sys.inputs.title, date: none)
#image(bytes(sys.inputs.figure), format: "svg", alt: sys.inputs.alt)
"""


def write(trace: Trace, options: DisplayOptions, file: BinaryIO) -> None:
    """Writes the figure as PDF: of the same trace always the same bytes."""
    file.write(compiled(trace, options, "pdf"))


def compiled(trace: Trace, options: DisplayOptions, form: Literal["pdf", "png"]) -> bytes:
    """The figure as Typst draws it; what is given to it is text, in which nothing is run."""
    import typst

    drawing, description = svg.figure(trace, options)
    if form == "png":
        pixels = drawing.width * drawing.height * (_PPI / 96) ** 2
        check_bytes(int(pixels) * _PIXEL, "the picture needs", "choose fewer with --head or --rows")
    title = sentence(trace.title)
    figure = "".join(svg.document(title, drawing, description))
    inputs = {"figure": figure, "title": title, "alt": description}
    drawn: bytes = typst.compile(_PAGE, format=form, ppi=_PPI, sys_inputs=inputs)
    return drawn
