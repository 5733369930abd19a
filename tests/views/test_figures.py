"""Figures: well-formed SVG in the colours of the scale, and its PNG and PDF by Typst."""

import io
import re
import struct
import zlib
from base64 import b64decode
from importlib import import_module
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attncli
from attncli.budget import limited
from attncli.errors import ConventionError, SizeError
from attncli.trace import Stage, Trace
from attncli.views.select import DisplayOptions
from attncli.words.similarity import pca

from .hostile import LABELS
from .traces import CAUSAL, NEVER, attention, matrix, numbers, shown

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
ELEMENTS = "svg title desc g rect path text tspan circle image defs linearGradient stop".split()  # fmt: skip  # noqa: SIM905
WHITE, BLUE, GREY = (0xFF,) * 3, (0x08, 0x30, 0x6B), (0xD9,) * 3  # of paper; the last of Blues
BELOW, ABOVE = (0x21, 0x66, 0xAC), (0xB3, 0x58, 0x06)  # blue and orange


def drawn(trace: Trace, **options: Any) -> ET.Element:
    """The figure, parsed; its elements are those of SVG alone and point nowhere but inside."""
    root = ET.fromstring(shown(trace, "svg", **{"precision": 2, **options}))  # noqa: S314 - it is ours
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in ELEMENTS
        for name, value in element.attrib.items():
            assert not name.startswith("on")
            assert name != "href"
            assert "nan" not in value or name == LINK
            assert name != LINK or value.startswith("data:image/png;base64,")
    return root


def texts(root: ET.Element) -> list[str]:
    return [x.text for x in root.iter() if x.tag[-4:] in ("text", "span") and x.text]


def fills(root: ET.Element) -> set[str]:
    """The colours of the cells; those of one colour are one path."""
    return {path.attrib["fill"] for path in root.iter(f"{SVG}path") if "fill" in path.attrib}


def curves(trace: Trace) -> list[float]:
    """The widths of the lines of its arcs."""
    paths = drawn(trace, arcs=True).iter(f"{SVG}path")
    return [float(path.attrib["stroke-width"]) for path in paths if "C" in path.attrib["d"]]


def picture(root: ET.Element) -> list[list[tuple[int, ...]]]:
    """The pixels of the image: a palette PNG of 8 bits without filters; every sum is checked."""
    (image,) = root.iter(f"{SVG}image")
    png = b64decode(image.attrib[LINK].partition(",")[2])
    chunks, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert int.from_bytes(png[at + 8 + length :][:4]) == zlib.crc32(kind + data)
        chunks[kind] = data
        at += 12 + length
    width, height, *how = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (png[:8], how) == (b"\x89PNG\r\n\x1a\n", [8, 3, 0, 0, 0])
    palette = np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    return [[tuple(rgb) for rgb in row] for row in palette[rows[:, 1:]].tolist()]


# ---- what is drawn

ROPE = attncli.posenc(3, 4, kind="rope")
STACK = Trace("Encoder", tuple(Trace("", attention().steps, name=name) for name in "12"))
HEADS = attention(*(numbers(4, 3, 2, seed=n) for n in range(3)))
MANY = attention(*[numbers(11, 2, 2)] * 3)
EMPTY = attention(mask=np.array([[0, NEVER, 0], [NEVER] * 3, [0, 0, 0]]))
HOLES = np.where(np.eye(45) == 1, np.nan, numbers(45, 45))
PEAK = np.full((60, 60), 0.01)
PEAK[0, 0] = 1.0
VECTOR = Trace("", (Stage("lengths", "‖a‖", "", np.array([3.0, 5.0]), ("word",), {"word": ("a", "b")}),))  # fmt: skip


def test_the_texts_of_a_figure() -> None:
    cases: list[tuple[Trace, Any, int, list[str]]] = [  # the texts from `start` on
        (attncli.posenc(2, kind="alibi", heads=2), {}, 0, ["bias"]), (ROPE, {}, 0, ["angles"]),
        (matrix([[1.0]], name="something"), {}, 0, ["something"]), (STACK, {"stages": ("2.scores",)}, 0, ["scores"]),
        (MANY, {}, -1, ["left out: 3 of 11 heads (--head N or --full)"]),
        (attention(), {"rows": (1, 3), "cols": (0, 2), "precision": 4, "rounded": True}, 3,
         ["q2", "q3", "k1", "k2", "0.4011", "0.1978", "0.5035", "0.2483"]),
        (matrix([[np.nan, np.inf], [-np.inf, 2.0]]), {}, -7, ["NaN", "inf", "-inf", "2", "scaled", "-2", "2"]),
        (matrix(HOLES), {}, -1, ["not a number (NaN)"]), (matrix(np.zeros((0, 3))), {}, -1, ["nothing to show"]),
        (VECTOR, {}, 1, ["1 × 2", "‖a‖", "a", "b", "3"]), (matrix([[2.5e12]]), {}, -4, ["2.5e12"]),
        (matrix(PEAK, name="weights"), {}, -2, ["0", "0.01 or more"]), (matrix(PEAK[:9, :9], name="weights"), {}, -2, ["0", "1"]),
        (attncli.posenc(512, 512), {}, 3, ["0", "100", "200", "300", "400", "500", "100", "200", "300", "400", "500"]),
        (matrix(numbers(2, 120), labels={"key": ["the"] * 120}), {}, 4, ["20", "40", "60", "80", "100", "120"]),
        (attention(), {"arcs": True}, 3, ["queries", "q1", "q2", "q3", "keys", "k1", "k2", "k3"]),
        (attention(mask=CAUSAL), {"arcs": True}, -1, ["3 of 9 weights are below 0.1 and left out"]),
    ]  # fmt: skip
    for trace, options, start, words in cases:
        assert texts(drawn(trace, **options))[start:][: len(words)] == words


def test_places_that_share_a_figure() -> None:
    words = texts(root := drawn(HEADS))
    assert [word for word in words if word[:4] == "head"] == [f"head {n}" for n in range(1, 5)]
    assert (words.count("k1"), words.count("q1")) == (4, 1)  # four beside each other
    assert len([*root.iter(f"{SVG}linearGradient")]) == 1
    assert ["head 8" in texts(drawn(MANY)), "head 9" in texts(drawn(MANY))] == [True, False]
    assert "head 11" in texts(drawn(MANY, full=True))
    batched = attention(*(numbers(2, 2, 3, 5, seed=n) for n in range(3)))
    places = [word for word in texts(drawn(batched, head=1)) if "head" in word]
    assert places == ["batch 1 · head 2", "batch 2 · head 2"]
    assert {"angles", "cos", "sin"} <= {*texts(drawn(ROPE))}
    assert texts(drawn(STACK)).count("weights") == 2
    assert "2.weights" in texts(drawn(STACK, full=True))
    assert texts(drawn(EMPTY))[-1].startswith("q2: every key is masked")


def test_without_shades_there_are_the_numbers_alone() -> None:
    assert fills(drawn(matrix([[np.nan, np.inf], [-np.inf, 2.0]]))) == {"#d9d9d9", "#2166ac", "#b35806"}  # fmt: skip
    root = drawn(attention(), heatmap=False)
    assert (fills(root), [*root.iter(f"{SVG}linearGradient")]) == ({"#f4f4f4"}, [])
    with pytest.raises(ConventionError, match="50 × 50"):
        drawn(matrix(numbers(50, 50)), heatmap=False)


# ---- pictures of many numbers


def test_the_colours_of_a_picture() -> None:
    assert picture(drawn(attncli.posenc(512, 512)))[0] == [WHITE, ABOVE] * 256  # sin 0, cos 0
    values = np.resize([-np.inf, -2.0, 0.0, 2.0, np.inf, np.nan], (3, 996))
    (line,) = {tuple(row) for row in picture(drawn(matrix(values, axes=("position", "d"))))}
    assert line[:6] == (BELOW, BELOW, WHITE, ABOVE, ABOVE, GREY)
    shares = np.sort([*np.random.default_rng(2).random(2999), 1.0]).reshape(3, 1000)
    pixels = picture(drawn(matrix(shares, name="weights", axes=("position", "d"))))
    assert pixels[-1][-1] == BLUE
    assert (np.diff(np.array(pixels).sum(axis=2)) <= 3).all()  # larger is never brighter
    wide = np.full((2, 4100), 0.5)  # three columns a pixel
    wide[:, :3], wide[:, 3:6] = 1.0, np.nan
    root = drawn(matrix(wide, name="weights", axes=("position", "dimension")))
    assert picture(root)[0][:2] == [BLUE, GREY]
    assert len(picture(root)[0]) == 1367
    assert texts(root)[-1] == "each pixel is the mean of 1 × 3 numbers"


def test_masked_cells_of_a_picture_are_grey() -> None:
    hidden = np.triu(np.ones((60, 60)), 1)
    root = drawn(attention(*[numbers(60, 3)] * 3, mask=np.where(hidden, NEVER, 0)))
    is_grey = np.array([[rgb == GREY for rgb in row] for row in picture(root)])
    size = len(is_grey) // 60  # a square for each number, which no reader smooths
    assert size > 1
    assert (is_grey == np.kron(hidden, np.ones((size, size)))).all()
    assert texts(root)[-1].startswith("masked")


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (3, 70), (70, 3), (2, 2500)])
def test_no_shape_is_too_thin_or_too_large(shape: tuple[int, int]) -> None:
    root = drawn(matrix(numbers(*shape)))
    assert 60 < float(root.attrib["width"]) < 1000
    assert 60 < float(root.attrib["height"]) < 900
    assert all(float(image.attrib["height"]) >= 24 for image in root.iter(f"{SVG}image"))


# ---- lines and points


def test_the_lines_of_arcs_are_as_wide_as_the_weights() -> None:
    widths = curves(attention())
    assert (len(widths), widths) == (9, sorted(widths))  # the largest on top
    assert max(widths) == pytest.approx(5 * 0.5035 / 0.6, abs=0.05)
    assert len(curves(attention(mask=CAUSAL))) == 6  # none of 0
    assert len(curves(matrix([[np.nan, 0.5]], name="weights"))) == 1
    many = attention(*[numbers(101, 2)] * 3)
    for trace, stages, words in (
        (attention(), ("scores",), "scores are not"), (attncli.posenc(3, 4), (), "there are none"), (many, (), "101 × 101"),
    ):  # fmt: skip
        with pytest.raises(ConventionError, match=words):
            drawn(trace, arcs=True, stages=stages)
    drawn(many, arcs=True, full=True)


def test_points_are_as_far_apart_as_their_numbers() -> None:
    vectors = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
    root = drawn(pca(["a", "b", "c"], vectors))
    places = [complex(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in root.iter(f"{SVG}circle")]  # fmt: skip
    apart = np.array([abs(places[i] - places[j]) for i, j in ((0, 1), (0, 2), (1, 2))])
    assert apart / apart[1] == pytest.approx([3, 1, np.sqrt(10)], rel=0.01)
    assert {"a", "b", "c", "PC 1", "PC 2"} <= {*texts(root)}
    assert [*drawn(pca(["a", "b"], vectors[:2]), heatmap=True).iter(f"{SVG}linearGradient")]


@given(st.data(), st.sampled_from(["weights", "scores", "positions"]), st.booleans())
def test_any_labels_and_numbers_fit(data: st.DataObject, name: str, arcs: bool) -> None:
    n, m = (data.draw(st.integers(1, 6)) for _ in "nm")
    words = {axis: data.draw(st.lists(st.text(max_size=30), min_size=size, max_size=size)) for axis, size in (("query", n), ("key", m))}  # fmt: skip
    values = data.draw(st.lists(st.floats(), min_size=n * m, max_size=n * m))
    trace = matrix(np.reshape(values, (n, m)), name=name, labels=words)
    root = drawn(trace, arcs=arcs and name == "weights")
    assert root.attrib["viewBox"] == f"0 0 {root.attrib['width']} {root.attrib['height']}"
    for element in root.iter():
        for side in ("x", "y", "width", "height"):
            assert re.fullmatch(r"-?\d+(\.\d)?|100%", element.attrib.get(side, "0"))


# ---- PNG and PDF: drawn by Typst as the SVG says, read by decoders of our own


def binary(form: str, trace: Trace, **options: Any) -> bytes:
    pytest.importorskip("typst", reason="typst is not installed: pip install 'attncli[figures]'")
    module: Any = import_module(f"attncli.views.formats.{form}")
    module.write(trace, DisplayOptions(**options), file := io.BytesIO())
    return file.getvalue()


def test_the_size_of_a_png_and_of_the_page_of_a_pdf_that_is_the_same_each_time() -> None:
    root = drawn(attention())
    size = [float(root.attrib[name]) for name in ("width", "height")]
    png, pdf = (binary(form, attention()) for form in ("png", "pdf"))
    assert [*struct.unpack(">II", png[16:24])] == [round(2 * side) for side in size]
    box = re.search(rb"/MediaBox ?\[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    assert pdf.startswith(b"%PDF-")
    assert box is not None
    assert [float(box[1]), float(box[2])] == pytest.approx([0.75 * x for x in size], abs=0.1)
    assert pdf == binary("pdf", attention())
    shaded, plain = (binary("png", matrix([[1.0, 0.0]], "weights"), heatmap=x) for x in (True, False))  # fmt: skip
    assert shaded != plain
    with limited(10**6), pytest.raises(SizeError, match="the picture needs"):
        binary("png", attention())


@pytest.mark.parametrize("form", ["png", "pdf"])
def test_hostile_labels_pictures_marks_and_letters_of_any_script_are_drawn(form: str) -> None:
    labels = tuple(LABELS.values())
    x = numbers(len(labels), 2)
    trace = attention(x, x, x, labels={"query": labels, "key": labels})
    words = {"query": ("שלום", "注意力", "√Kᵀ γ₁"), "key": ("🙂", "a", "é")}
    noted = attention(mask=CAUSAL, labels=words, notes=("#panic()",))
    for own in (trace, noted, matrix(numbers(80, 90)), matrix(np.zeros((0, 3)))):
        assert binary(form, own)
    assert binary(form, trace, arcs=True)
    assert b"panic" in binary("pdf", Trace('#panic("x") $x$ \\input', attention().steps))
