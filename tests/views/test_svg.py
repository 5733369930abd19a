"""Figures: well-formed SVG with the numbers of the worked example, in the colours of the scale.

Whole figures are in golden/; ATTNCLI_UPDATE_GOLDEN=1 writes them anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.attention.positions import alibi, sinusoidal
from attncli.attention.rotary import rotary_table
from attncli.errors import ConventionError, ShapeError, StageError
from attncli.trace import Stage, Trace
from attncli.views.formats import svg
from attncli.views.formats.colours import css
from attncli.views.formats.drawing import text_width
from attncli.views.formats.layout import ticks
from attncli.views.formats.png import NOTHING
from attncli.views.select import DisplayOptions
from attncli.words.similarity import pca, similarity

from . import hostile
from .test_figures import pixels as true_colours
from .test_golden import GOLDEN, HARD, batched, causal, extreme, grouped
from .test_png import pixels
from .traces import CAUSAL, NEVER, attention, matrix, numbers

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
ELEMENTS = {
    "svg", "title", "desc", "g", "rect", "path", "text", "tspan", "circle", "image",
    "defs", "linearGradient", "stop",
}  # fmt: skip
NUMBER = re.compile(r"-?\d+(\.\d)?")


def drawn(trace: Trace, **options: Any) -> ET.Element:
    """The figure, parsed; its elements are those of SVG alone and point nowhere but inside."""
    root = ET.fromstring(written(trace, **options))  # noqa: S314 - it is ours
    assert {element.tag for element in root.iter()} <= {SVG + name for name in ELEMENTS}
    for element in root.iter():
        for name, value in element.attrib.items():
            assert not name.startswith("on")
            assert name != "href"
            if name == LINK:
                assert value.startswith("data:image/png;base64,")
            else:
                assert "nan" not in value.lower()
    return root


def written(trace: Trace, **options: Any) -> str:
    return "".join(svg.text(trace, DisplayOptions(**options)))


def texts(root: ET.Element) -> list[str]:
    found = (
        element.text for element in root.iter() if element.tag in {f"{SVG}text", f"{SVG}tspan"}
    )
    return [words for words in found if words]


def fills(root: ET.Element) -> list[str]:
    """The colours of the cells; those of one colour are one path."""
    return [path.attrib["fill"] for path in root.iter(f"{SVG}path") if "fill" in path.attrib]


FIGURES: dict[str, tuple[Callable[[], Trace], dict[str, Any]]] = {
    "three_tokens": (attention, {}),
    "causal": (causal, {"stages": ("masked", "weights"), "precision": 3, "rounded": True}),
    "causal_arcs": (causal, {"arcs": True}),
    "grouped": (grouped, {"stages": ("k", "weights")}),
    "labels": (lambda: attention(numbers(8, 2), labels={"query": HARD}), {"stages": ("q",)}),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures(name: str) -> None:
    make, options = FIGURES[name]
    drawn(make(), **options)
    found, path = written(make(), **options), GOLDEN / f"{name}.svg"
    if os.environ.get("ATTNCLI_UPDATE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


# ---- what is drawn


def test_the_weights_of_the_worked_example() -> None:
    root = drawn(attention())
    assert texts(root) == [
        "weights", "A = softmax(Z) over keys: each row sums to 1",
        "3 × 3 · rows are queries, columns are keys",
        "q1", "q2", "q3", "k1", "k2", "k3",
        "0.40", "0.40", "0.20", "0.40", "0.20", "0.40", "0.50", "0.25", "0.25",
        "weights", "0", "0.6",
    ]  # fmt: skip
    # exp(1/√2), exp(1/√2), 1 over their sum: 0.4011, 0.4011, 0.1978; and 0.5035, 0.2483, 0.2483
    shades = {
        css(weight / 0.6, "share", paper=True)[0] for weight in (0.4011, 0.1978, 0.5035, 0.2483)
    }
    assert set(fills(root)) == shades


def test_the_description_says_what_is_seen() -> None:
    root = drawn(attention())
    assert root.attrib["role"] == "img"
    assert root.findtext(f"{SVG}title") == "Scaled dot-product attention"
    said = root.findtext(f"{SVG}desc") or ""
    assert said.startswith("weights: 3 × 3 · rows are queries, columns are keys. q1 attends to k1")


@pytest.mark.parametrize(
    ("trace", "stage"),
    [
        (attention(), "weights"),
        (sinusoidal(3, 4), "positions"),
        (alibi(2, 3), "bias"),
        (similarity(["a", "b"], np.array([[1.0, 2.0], [3.0, 1.0]])), "cosines"),
        (pca(["a", "b", "c"], np.array([[1.0, 2.0], [3.0, 1.0], [0.0, 1.0]])), "coordinates"),
        (matrix([[1.0]], name="something"), "something"),
    ],
)
def test_the_stage_of_a_figure_where_none_is_named(trace: Trace, stage: str) -> None:
    assert texts(drawn(trace))[0] == stage


def test_where_nothing_is_shaded_it_is_the_last_stage_and_those_of_its_axes() -> None:
    found = texts(drawn(rotary_table(3, 4)))
    assert [words for words in found if words in {"angles", "cos", "sin"}][::2] == [
        "angles",
        "cos",
        "sin",
    ]


def test_of_a_stack_the_first_layer_unless_all_are_asked_for() -> None:
    layers = tuple(Trace("", attention().steps, name=name) for name in "12")
    trace = Trace("Encoder", layers)
    assert [words for words in texts(drawn(trace)) if "weights" in words] == ["weights"] * 2
    assert "2.weights" in texts(drawn(trace, full=True))
    assert texts(drawn(trace, stages=("2.scores",)))[0] == "scores"


def test_heads_share_the_scale_and_the_labels_of_their_rows() -> None:
    root = drawn(attention(numbers(4, 3, 2), numbers(4, 3, 2), numbers(4, 3, 2)))
    found = texts(root)
    assert [words for words in found if words.startswith("head")] == [
        f"head {n}" for n in range(1, 5)
    ]
    assert found.count("k1") == 4
    assert found.count("q1") == 1  # four beside each other
    assert len(list(root.iter(f"{SVG}linearGradient"))) == 1


def test_more_than_eight_heads_are_left_out_unless_all_are_asked_for() -> None:
    x = numbers(11, 2, 2)
    found = texts(drawn(attention(x, x, x)))
    assert "head 8" in found
    assert "head 9" not in found
    assert found[-1] == "left out: 3 of 11 heads (--head N or --full)"
    assert "head 11" in texts(drawn(attention(x, x, x), full=True))


def test_batch_entries_and_one_head_of_many() -> None:
    found = texts(drawn(batched(), head=1))
    assert [words for words in found if "head" in words] == ["batch 1 · head 2", "batch 2 · head 2"]


def test_rows_columns_and_precision() -> None:
    root = drawn(attention(), rows=(1, 3), cols=(0, 2), precision=4, rounded=True)
    found = texts(root)
    assert "2 × 2 of 3 × 3 · rows are queries, columns are keys" in found
    assert found[3:11] == ["q2", "q3", "k1", "k2", "0.4011", "0.1978", "0.5035", "0.2483"]


def test_masked_cells_are_hatched_and_have_no_number() -> None:
    root = drawn(attention(mask=CAUSAL))
    found = texts(root)
    assert found[9:15] == ["1.00", "0.67", "0.33", "0.50", "0.25", "0.25"]
    assert found[-1] == "masked: may not attend, its weight is 0"
    hatch = next(path for path in root.iter(f"{SVG}path") if path.attrib.get("stroke") == "#999")
    assert hatch.attrib["d"].count("M") == 3


def test_rows_without_any_key_are_explained() -> None:
    mask = np.array([[0, NEVER, 0], [NEVER] * 3, [0, 0, 0]])
    assert texts(drawn(attention(mask=mask)))[-1].startswith("q2: every key is masked")


def test_numbers_that_are_none() -> None:
    root = drawn(matrix([[np.nan, np.inf], [-np.inf, 2.0]]))
    assert texts(root)[-7:] == ["NaN", "inf", "-inf", "2", "scaled", "-2", "2"]
    grey = "#{:02x}{:02x}{:02x}".format(*NOTHING)
    assert set(fills(root)) == {
        grey,
        css(1, "signed", paper=True)[0],
        css(-1, "signed", paper=True)[0],
    }


def test_cells_too_many_for_numbers_say_what_is_grey() -> None:
    values = numbers(45, 45)
    values[3, 4] = np.nan
    assert texts(drawn(matrix(values)))[-1] == "not a number (NaN)"


def test_without_shades_there_are_the_numbers_alone() -> None:
    root = drawn(attention(), heatmap=False)
    assert set(fills(root)) == {"#f4f4f4"}
    assert not list(root.iter(f"{SVG}linearGradient"))
    with pytest.raises(ConventionError, match="without shades shows nothing: 50 × 50"):
        written(matrix(numbers(50, 50)), heatmap=False)


def test_numbers_of_every_kind_and_words() -> None:
    names = ("scaled", "small", "whole", "tokens")
    found = texts(drawn(extreme(), stages=names))
    assert "2.5e12" in found
    assert found[-2:] == ["The", "cat"]


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_an_empty_matrix_says_so(shape: tuple[int, int]) -> None:
    assert texts(drawn(matrix(np.zeros(shape))))[-1] == "nothing to show"


def test_vectors_and_single_numbers() -> None:
    stage = Stage("lengths", "‖a‖", "", np.array([3.0, 5.0]), ("word",), {"word": ("a", "b")})
    assert texts(drawn(Trace("", (stage,))))[1:6] == ["1 × 2", "‖a‖", "a", "b", "3"]
    assert "7" in texts(drawn(Trace("", (Stage("n", "n", "", np.array(7), ()),))))


# ---- many cells


def picture(root: ET.Element) -> tuple[ET.Element, bytes]:
    (image,) = root.iter(f"{SVG}image")
    return image, b64decode(image.attrib[LINK].partition(",")[2])


def test_many_positions_are_a_picture_with_a_pixel_for_each() -> None:
    root = drawn(sinusoidal(512, 512))
    image, png = picture(root)
    assert (image.attrib["width"], image.attrib["height"]) == ("512", "512")
    shown = pixels(png)
    assert (len(shown), len(shown[0])) == (512, 512)
    white, orange = (0xFF, 0xFF, 0xFF), (0xB3, 0x58, 0x06)
    assert shown[0] == [white, orange] * 256  # sin 0, cos 0
    assert texts(root)[3:9] == ["0", "100", "200", "300", "400", "500"]  # from pos 0 on
    assert texts(root)[9:14] == ["100", "200", "300", "400", "500"]


def test_a_pixel_of_a_very_large_matrix_is_the_mean_of_several_numbers() -> None:
    values = np.full((2, 4100), 0.5)  # three columns a pixel
    values[:, :3] = [[1.0, 1.0, 1.0]]
    values[:, 3:6] = np.nan
    root = drawn(matrix(values, name="weights", axes=("position", "dimension")))
    _, png = picture(root)
    line, *same = pixels(png)
    assert all(other == line for other in same)
    assert len(line) == 1367
    assert line[0] == (0x08, 0x30, 0x6B)
    assert line[1] == NOTHING
    assert texts(root)[-1] == "each pixel is the mean of 1 × 3 numbers"


def test_of_many_weights_the_scale_shows_nearly_all() -> None:
    weights = np.full((60, 60), 0.01)
    weights[0, 0] = 1.0
    found = texts(drawn(matrix(weights, name="weights")))
    assert found[-2:] == ["0", "0.01 or more"]
    few = texts(drawn(matrix(weights[:9, :9], name="weights")))
    assert few[-2:] == ["0", "1"]


def test_masked_cells_of_a_picture_are_grey() -> None:
    n = 60
    root = drawn(
        attention(numbers(n, 3), numbers(n, 3), numbers(n, 2), np.triu(np.full((n, n), NEVER), 1))
    )
    _, png = picture(root)
    is_grey = np.array([[rgb == NOTHING for rgb in row] for row in pixels(png)])
    size = len(is_grey) // n  # a square for each number, which no reader smooths
    squares = np.kron(np.triu(np.ones((n, n)), 1), np.ones((size, size)))
    assert size > 1
    assert (is_grey == squares).all()
    assert texts(root)[-1].startswith("masked")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([f"pos {n}" for n in range(7, 64)], ["10", "20", "30", "40", "50", "60"]),
        ([f"q{n}" for n in range(1, 501)], ["100", "200", "300", "400", "500"]),
        (["the"] * 120, ["20", "40", "60", "80", "100", "120"]),
        (["sin λ6.28", *["x"] * 98, "cos λ628"], ["20", "40", "60", "80", "100"]),
        (["q1", "q2"], ["1", "2"]),
    ],
)
def test_ticks_are_at_round_numbers(names: list[str], expected: list[str]) -> None:
    assert [number for _, number in ticks(names)] == expected


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (3, 70), (70, 3), (2, 2500)])
def test_no_shape_is_too_thin_or_too_large(shape: tuple[int, int]) -> None:
    root = drawn(matrix(numbers(*shape)))
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    assert 60 < width < 1000
    assert 60 < height < 900
    if shape[0] * shape[1] > 2500:
        image, _ = picture(root)
        assert float(image.attrib["height"]) >= 24


# ---- lines and points


def test_the_lines_of_arcs_are_as_wide_as_the_weights() -> None:
    root = drawn(attention(), arcs=True)
    lines = [p for p in root.iter(f"{SVG}path") if "C" in p.attrib["d"]]
    assert len(lines) == 9  # every weight is more than 0.06
    widths = [float(line.attrib["stroke-width"]) for line in lines]
    assert widths == sorted(widths)  # the largest on top
    assert max(widths) == pytest.approx(5 * 0.5035 / 0.6, abs=0.05)
    assert texts(root)[-4:] == ["0.06", "0.3", "0.6", "no weight is below 0.06 and left out"]
    assert texts(root)[3:11] == ["queries", "q1", "q2", "q3", "keys", "k1", "k2", "k3"]


def test_small_weights_have_no_line_which_is_said() -> None:
    root = drawn(attention(mask=CAUSAL), arcs=True)
    assert len([p for p in root.iter(f"{SVG}path") if "C" in p.attrib["d"]]) == 6
    assert texts(root)[-1] == "3 of 9 weights are below 0.1 and left out"


def test_what_is_no_weight_has_no_lines() -> None:
    with pytest.raises(ConventionError, match="--arcs draws weights, which scores are not"):
        written(attention(), arcs=True, stages=("scores",))
    with pytest.raises(ConventionError, match="--arcs draws weights, and there are none"):
        written(sinusoidal(3, 4), arcs=True)
    x = numbers(101, 2)
    with pytest.raises(ConventionError, match="up to 100 queries and keys, these are 101 × 101"):
        written(attention(x, x, x), arcs=True)
    drawn(attention(x, x, x), arcs=True, rows=(0, 50), cols=(0, 50))
    drawn(attention(x, x, x), arcs=True, full=True)


def test_weights_that_are_no_numbers_have_no_lines() -> None:
    root = drawn(matrix([[np.nan, 0.5]], name="weights"), arcs=True)
    assert len([p for p in root.iter(f"{SVG}path") if "C" in p.attrib["d"]]) == 1


def test_points_are_as_far_apart_as_their_numbers() -> None:
    vectors = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
    root = drawn(pca(["a", "b", "c"], vectors))
    places = np.array(
        [[float(c.attrib[n]) for n in ("cx", "cy")] for c in root.iter(f"{SVG}circle")]
    )
    apart = [float(np.linalg.norm(places[i] - places[j])) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert np.array(apart) / apart[1] == pytest.approx([3, 1, np.sqrt(10)], rel=0.01)
    assert {"a", "b", "c", "PC 1", "PC 2"} <= set(texts(root))
    as_matrix = drawn(pca(["a", "b"], vectors[:2]), heatmap=True)
    assert list(as_matrix.iter(f"{SVG}linearGradient"))


# ---- whatever the labels and numbers


@pytest.mark.parametrize("options", [{}, {"arcs": True}, {"stages": ("q", "output")}])
def test_hostile_labels_are_text_and_nothing_else(options: dict[str, Any]) -> None:
    labels = tuple(hostile.LABELS.values())
    x = numbers(len(labels), 2)
    trace = attention(x, x, x, labels={"query": labels, "key": labels}, notes=labels)
    found = "\n".join(texts(drawn(trace, **options)))
    for shown in ("<b>x</b>", "\\x1b[31mred", "\\input{/etc/pas", '""'):
        assert shown in found


def test_a_hostile_title_formula_and_head() -> None:
    for words in hostile.LABELS.values():
        stage = Stage(
            "w" + words,
            words,
            words,
            np.ones((2, 1, 1)),
            ("head", "a", "b"),
            {"head": (words, "b")},
            note=words,
        )
        drawn(Trace(words, (stage,)))


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    name=st.sampled_from(["weights", "scores", "positions"]),
)
def test_any_labels_and_numbers_stay_within_the_figure(
    data: st.DataObject, shape: tuple[int, int], name: str
) -> None:
    labels = {
        axis: tuple(data.draw(st.lists(st.text(max_size=30), min_size=n, max_size=n)))
        for axis, n in zip(("query", "key"), shape, strict=True)
    }
    values = data.draw(
        st.lists(st.floats(), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])
    )
    trace = matrix(np.reshape(values, shape), name=name, labels=labels)
    arcs = name == "weights" and data.draw(st.booleans())
    root = drawn(trace, arcs=arcs)
    assert root.attrib["viewBox"] == f"0 0 {root.attrib['width']} {root.attrib['height']}"
    assert all(NUMBER.fullmatch(root.attrib[side]) for side in ("width", "height"))
    for element in root.iter():
        for side in ("x", "y", "width", "height"):
            assert NUMBER.fullmatch(element.attrib.get(side, "0")) or element.attrib[side] == "100%"


def test_wide_letters_are_counted_as_wide() -> None:
    assert text_width("注意") >= 2 * 12
    assert text_width("MMMM") > 4 * 0.86 * 12  # DejaVu Sans: 0.863 of the size
    assert text_width("mmmm") >= 4 * 0.88 * 12  # 0.974, which few words are made of


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"stages": ("wieghts",)}, StageError),
        ({"head": 1}, ShapeError),
        ({"rows": (9, None)}, ShapeError),
    ],
)
def test_what_is_not_there_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        written(attention(), **options)


@pytest.mark.skipif(shutil.which("rsvg-convert") is None, reason="rsvg-convert is not installed")
@pytest.mark.parametrize("name", FIGURES)
def test_rsvg_draws_it_in_the_size_it_names(name: str, tmp_path: Path) -> None:
    make, options = FIGURES[name]
    root = drawn(make(), **options)
    (tmp_path / "a.svg").write_text(written(make(), **options), encoding="utf-8")
    done = subprocess.run(["rsvg-convert", "a.svg"], cwd=tmp_path, capture_output=True, check=True)
    assert done.stderr == b""
    width, height = (int.from_bytes(done.stdout[at : at + 4]) for at in (16, 20))
    assert width == pytest.approx(float(root.attrib["width"]), abs=1)
    assert height == pytest.approx(float(root.attrib["height"]), abs=1)


@pytest.mark.skipif(shutil.which("rsvg-convert") is None, reason="rsvg-convert is not installed")
def test_no_text_is_wider_than_guessed_in_a_wide_font(tmp_path: Path) -> None:
    make, options = FIGURES["labels"]
    wide = re.sub('font-family="[^"]*"', 'font-family="DejaVu Sans"', written(make(), **options))
    (tmp_path / "a.svg").write_text(wide, encoding="utf-8")
    done = subprocess.run(["rsvg-convert", "a.svg"], cwd=tmp_path, capture_output=True, check=True)
    shown = true_colours(done.stdout)[..., :3]
    for edge in (shown[:9], shown[-9:], shown[:, :9], shown[:, -9:]):
        assert (edge == 255).all()
