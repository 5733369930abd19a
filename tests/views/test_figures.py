"""PNG and PDF of a figure: drawn by Typst as the SVG says, read by decoders of our own."""

from __future__ import annotations

import io
import re
import struct
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from attncli.budget import limited
from attncli.errors import SizeError
from attncli.trace import Trace
from attncli.views.select import DisplayOptions

from .hostile import LABELS
from .rendering import shown
from .traces import CAUSAL, attention, matrix, numbers

pytestmark = pytest.mark.usefixtures("typst")


@pytest.fixture(scope="module")
def typst() -> None:
    pytest.importorskip("typst", reason="typst is not installed: pip install 'attncli[figures]'")


def written(form: str, trace: Trace, **options: Any) -> bytes:
    module: Any = import_module(f"attncli.views.formats.{form}")
    module.write(trace, DisplayOptions(**options), file := io.BytesIO())
    return file.getvalue()


def size_of(trace: Trace) -> tuple[float, float]:
    """The width and height of the SVG."""
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', shown(trace, "svg"))
    assert size is not None
    return float(size[1]), float(size[2])


def test_a_png_has_two_pixels_for_each_of_the_figure() -> None:
    png = written("png", attention())
    assert struct.unpack(">II", png[16:24]) == tuple(round(2 * side) for side in size_of(attention()))  # fmt: skip
    shaded, plain = (written("png", matrix([[1.0, 0.0]], "weights"), heatmap=x) for x in (True, False))  # fmt: skip
    assert shaded != plain


def test_a_pdf_has_a_page_of_the_size_of_the_figure_and_is_the_same_each_time() -> None:
    pdf = written("pdf", attention())
    assert pdf.startswith(b"%PDF-")
    box = re.search(rb"/MediaBox ?\[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    assert box is not None
    points = [0.75 * size for size in size_of(attention())]  # a pixel is 3/4 of a point
    assert [float(box[1]), float(box[2])] == pytest.approx(points, abs=0.1)
    assert pdf == written("pdf", attention())


@pytest.mark.parametrize("form", ["png", "pdf"])
def test_hostile_labels_pictures_marks_and_letters_of_any_script_are_drawn(form: str) -> None:
    labels = tuple(LABELS.values())
    x = numbers(len(labels), 2)
    trace = attention(x, x, x, labels={"query": labels, "key": labels})
    assert written(form, trace)
    assert written(form, trace, arcs=True)
    words = {"query": ("שלום", "注意力", "√Kᵀ γ₁"), "key": ("🙂", "a", "é")}
    assert written(form, attention(mask=CAUSAL, labels=words, notes=("#panic()",)))
    assert written(form, matrix(numbers(80, 90)))
    assert written(form, matrix(np.zeros((0, 3))))


def test_a_title_that_means_something_to_typst_is_text() -> None:
    assert b"panic" in written("pdf", Trace('#panic("x") $x$ \\input', attention().steps))


def test_a_png_too_large_for_memory_is_refused() -> None:
    with limited(10**6), pytest.raises(SizeError, match="the picture needs"):
        written("png", attention())
