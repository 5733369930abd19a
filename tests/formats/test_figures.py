"""Figures: the artists in their Axes, and well-formed files, in the style that is set."""

import io
import os
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import matplotlib.style
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import LineCollection, PathCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.text import Text as TextArtist

import attncli
from attncli.attention.sweep import MEASURED, sweep_widths
from attncli.errors import ConventionError
from attncli.formats import figure
from attncli.formats.colours import page_colours
from attncli.formats.pictured import pictured
from attncli.formats.scatter import beside
from attncli.page.options import DisplayOptions
from attncli.trace import Stage, Trace
from attncli.words.measures import pca
from tests.formats.hostile import LABELS
from tests.page.traces import CAUSAL, NEVER, attention, matrix, numbers

SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
plot: Any = Trace.plot  # the artists in Axes are of many types
WORKED = np.array([[0.4011, 0.4011, 0.1978], [0.4011, 0.1978, 0.4011], [0.5035, 0.2483, 0.2483]])


def written(form: str, trace: Trace, **options: Any) -> bytes:
    figure.write(trace, DisplayOptions(**options), file := io.BytesIO(), form)
    return file.getvalue()


def drawn(trace: Trace, **options: Any) -> ET.Element:
    """The SVG, parsed; nothing in it acts or points outside."""
    root = ET.fromstring("".join(figure.text(trace, DisplayOptions(**options))))  # noqa: S314 - it is ours
    for element in root.iter():
        assert element.tag not in (f"{SVG}script", f"{SVG}a", f"{SVG}foreignObject")
        assert not any(name.startswith("on") or (name != LINK and "nan" in value) for name, value in element.attrib.items())  # fmt: skip
        assert element.attrib.get(LINK, "#").startswith(("#", "data:image/png;base64,"))
    return root


def texts(trace: Trace, **options: Any) -> list[str]:
    return [x.text for x in drawn(trace, **options).iter(f"{SVG}text") if x.text]


def one(ax: Any, kind: type) -> Any:
    (artist,) = (x for x in ax.collections if isinstance(x, kind))
    return artist


def names(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def cells(ax: Any) -> Any:
    """The numbers that have a colour, else NaN."""
    return np.ma.filled(one(ax, QuadMesh).get_array(), np.nan)


def colours(ax: Any) -> list[tuple[int, ...]]:
    """Those of the first row, 0 to 255."""
    mesh = one(ax, QuadMesh)
    return [tuple(rgb) for rgb in np.rint(255 * mesh.to_rgba(mesh.get_array())[0, :, :3]).tolist()]


def arcs(ax: Any) -> list[tuple[int, int, float, tuple[float, ...]]]:
    """Query, key, width and colour of each line."""
    lines = one(ax, PathCollection)
    looks = zip(lines.get_paths(), lines.get_linewidths(), lines.get_edgecolors(), strict=True)
    return [(int(p.vertices[0, 1]), int(p.vertices[-1, 1]), w, tuple(c[:3].round(6))) for p, w, c in looks]  # fmt: skip


def heads(n: int, size: int, **convention: Any) -> Trace:
    return attention(*(numbers(n, size, 2, seed=seed) for seed in range(3)), **convention)


def test_cells_are_where_their_labels_say() -> None:
    ax = plot(attention(labels={"query": ("a", "b", "c")}))
    assert (names(ax.xaxis), names(ax.yaxis)) == (["k1", "k2", "k3"], ["a", "b", "c"])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("keys", "queries")
    assert cells(ax) == pytest.approx(WORKED, abs=5e-5)
    assert (ax.get_xlim(), ax.get_ylim()) == ((-0.5, 2.5), (2.5, -0.5))  # rows go down
    part = plot(attention(), rows=(1, 3), cols=(0, 2), precision=4)
    assert (names(part.xaxis), names(part.yaxis)) == (["k1", "k2"], ["q2", "q3"])
    assert [(*x.get_position(), x.get_text()) for x in part.texts] == [(0, 0, "0.4011"), (1, 0, "0.1978"), (0, 1, "0.5035"), (1, 1, "0.2483")]  # fmt: skip


SHOWN: dict[tuple[Any, bool], dict[int, tuple[int, ...]]] = {  # by Chromium for oklch(…) of the page
    ("share", False): {0: (250, 250, 250), 128: (136, 193, 168), 256: (0, 136, 91)}, ("share", True): {0: (29, 29, 29), 128: (65, 121, 98)},
    ("signed", False): {0: (47, 112, 191), 128: (250, 250, 250), 192: (212, 169, 134), 256: (169, 88, 0)}, ("signed", True): {64: (80, 110, 148), 128: (29, 29, 29)},
}  # fmt: skip


@pytest.mark.parametrize(("ramp", "is_dark"), SHOWN)
def test_colours_are_those_of_the_page_in_equal_steps(ramp: Any, is_dark: bool) -> None:
    rgb = np.array(page_colours(ramp, is_dark))
    for at, expected in SHOWN[ramp, is_dark].items():
        assert tuple(np.rint(255 * rgb[at])) == expected
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16  # L* of CIELAB: its grey
    steps = np.diff((lightness[128:] if ramp == "signed" else lightness)[::16])
    assert np.abs(steps).min() > 0.75 * np.abs(steps).max()
    assert (steps > 0).all() == is_dark


def test_a_number_has_its_colour_and_its_text_is_legible() -> None:
    shares = plot(matrix([[0.0, 0.25, 0.5, 1.0]], name="weights"))
    assert colours(shares) == [(250, 250, 250), (194, 222, 208), (136, 193, 168), (0, 136, 91)]
    signed = plot(matrix([[-2.0, 0.0, 2.0, np.inf, -np.inf]]))
    blue, white, orange = (47, 112, 191), (250, 250, 250), (169, 88, 0)
    assert colours(signed) == [blue, white, orange, orange, blue]
    assert [(x.get_text(), x.get_color()) for x in signed.texts[:4]] == [("-2", "white"), ("0", "black"), ("2", "white"), ("inf", "white")]  # fmt: skip
    bare = plot(attention(), heatmap=False)  # without shades, and so without a scale
    assert (len(bare.texts), len(bare.figure.axes), np.isfinite(cells(bare)).any()) == (9, 1, False)
    with pytest.raises(ConventionError, match="50 × 50"):
        plot(matrix(numbers(50, 50)), heatmap=False)
    assert [x.get_text() for x in plot(matrix([["the", "cat"]], name="tokens")).texts] == ["the", "cat"]  # fmt: skip


def test_numbers_below_0_have_a_minus_where_their_digits_have_no_room() -> None:
    """In grey both ends of the scale are alike."""
    values = numbers(45, 45)
    lines = one(plot(matrix(values)), LineCollection)
    middles = {tuple(np.rint(x.vertices.mean(axis=0))) for x in lines.get_paths()}
    assert middles == {(j, i) for i, j in np.argwhere(values < 0).tolist()}
    assert all(x.vertices[0, 1] == x.vertices[1, 1] for x in lines.get_paths())
    assert {tuple(ink[:3]) for ink in lines.get_colors()} <= {(0, 0, 0), (1, 1, 1)}
    assert not one(plot(matrix([[-1.0, 2.0]])), LineCollection).get_paths()  # it has its digits
    assert not one(
        plot(matrix(-np.ones((500, 1)))), LineCollection
    ).get_paths()  # a line has no room


def test_what_the_rows_are_is_whole_beside_a_single_row() -> None:
    ax = plot(matrix([["the", "cat"]], name="tokens"))
    ax.figure.draw_without_rendering()
    box = ax.yaxis.label.get_window_extent()
    assert 0 <= box.y0 < box.y1 <= ax.figure.bbox.y1


def test_masked_cells_are_crossed_out_and_nan_is_grey() -> None:
    ax = plot(attention(mask=CAUSAL))
    middles = {tuple(np.rint(x.vertices.mean(axis=0))) for x in one(ax, LineCollection).get_paths()}
    assert (middles, len(ax.texts)) == ({(1, 0), (2, 0), (2, 1)}, 6)  # column, row
    assert np.isnan(cells(ax)).tolist() == (CAUSAL != 0).tolist()
    assert "/// masked: may not attend, its weight is 0" in " ".join(texts(attention(mask=CAUSAL)))
    holes = matrix([[np.nan, 1.0]])
    assert one(plot(holes), QuadMesh).cmap.get_bad().tolist() == [0.5, 0.5, 0.5, 0.3]
    assert {"NaN", "grey is not a number (NaN)"} <= {*texts(holes)}
    empty = attention(mask=np.array([[0, NEVER, 0], [NEVER] * 3, [0, 0, 0]]))
    assert any(text.startswith("q2: every key is masked") for text in texts(empty))


def test_heads_are_beside_each_other_on_one_scale() -> None:
    trace, many = heads(5, 3, labels={"key": ("x", "y", "z")}), heads(11, 2)
    axes = [ax for ax in plot(trace).figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in axes] == [f"head {n}" for n in range(1, 6)]
    assert len({one(ax, QuadMesh).get_clim() for ax in axes}) == 1
    boxes = [ax.get_position() for ax in axes]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    assert [round(boxes[0].y1 - box.y1, 3) > 0 for box in boxes] == [False] * 3 + [True] * 2
    shown, batched = texts(trace), attention(*(numbers(2, 2, 3, 5, seed=n) for n in range(3)))
    assert (shown.count("x"), shown.count("q1")) == (3, 2)  # at the outer ones alone
    assert "left out: 3 of 11 heads (--head N or --full)" in texts(many)
    assert ["head 8" in texts(many), "head 9" in texts(many), "head 11" in texts(many, full=True)] == [True, False, True]  # fmt: skip
    assert [x for x in texts(batched, head=1) if "head" in x] == ["batch 1 · head 2", "batch 2 · head 2"]  # fmt: skip


def test_the_stages_of_a_figure() -> None:
    stack = Trace("Encoder", tuple(Trace("", attention().steps, name=name) for name in "12"))
    vector = Trace("", (Stage("lengths", "‖a‖", "", np.array([3.0, 5.0]), ("word",)),))
    cases: list[tuple[Trace, Any, set[str]]] = [
        (attncli.posenc(2, kind="alibi", heads=2), {}, {"bias", "head 1", "head 2"}), (attncli.posenc(3, 4, kind="rope"), {}, {"angles", "cos", "sin"}),
        (matrix([[1.0]], name="something"), {}, {"something"}), (stack, {"stages": ("2.scores",)}, {"scores"}),
        (stack, {}, {"weights"}), (stack, {"full": True}, {"1.weights", "2.weights"}), (vector, {}, {"lengths", "‖a‖", "1", "2", "3", "5"}),
        (attention(), {"stages": ("scores", "output")}, {"scores", "output"}), (matrix(np.zeros((0, 3))), {}, {"nothing to show"}),
        (matrix([[2.5e12]]), {}, {"2.5e12"}), (attncli.explain("a b", target="c", dim=4, block="decoder"), {}, {"decoder.1.cross_attention.weights"}),
    ]  # fmt: skip
    for trace, options, words in cases:
        assert words <= {text.partition(":")[0] for text in texts(trace, **options)}, words


def test_many_numbers_are_a_picture_with_round_labels() -> None:
    assert names(plot(attncli.posenc(512, 512)).yaxis) == [f"pos {n}" for n in range(0, 512, 50)]
    assert names(plot(matrix(numbers(2, 120))).xaxis)[:3] == ["k10", "k20", "k30"]
    wide = np.full((2, 5000), 0.5)
    wide[:, :4], wide[:, 4:8] = 1.0, np.nan
    trace = matrix(wide, name="weights", axes=("position", "dimension"))
    values = (image := plot(trace).images[0]).get_array()
    assert image.get_extent() == [-0.5, 4999.5, 1.5, -0.5]
    assert (values[0, 3], np.ma.is_masked(values[0, 7]), values[0, 8]) == (1.0, True, 0.5)
    assert len(written("svg", trace)) < 100_000  # Matplotlib draws no more pixels than are seen
    trace = attention(*[numbers(60, 3)] * 3, mask=np.triu(np.full((60, 60), NEVER), 1))
    is_grey = np.ma.getmaskarray(plot(trace).images[0].get_array())
    assert is_grey.tolist() == np.triu(np.ones((60, 60), bool), 1).tolist()
    assert "grey is masked: may not attend, its weight is 0" in texts(trace)
    peak = np.full((60, 60), 0.01)
    peak[0, 0] = 1.0  # beyond the scale of the others
    assert plot(matrix(peak, name="weights")).images[0].get_clim() == (0, 0.01)
    assert one(plot(matrix(peak[:9, :9], name="weights")), QuadMesh).get_clim() == (0, 1)
    for shape in ((1, 1), (1, 500), (500, 1), (3, 70), (70, 3), (2, 2500)):  # none is too thin
        ax = plot(matrix(numbers(*shape)))
        inches = ax.get_position().size * ax.figure.get_size_inches()
        assert ((inches > 0.15) & (inches < 8)).all(), shape


def test_arcs_are_as_wide_as_weights_and_a_query_has_one_colour() -> None:
    ax, masked = plot(attention(), arcs=True), attention(mask=CAUSAL)
    assert (names(ax.yaxis), names(ax.child_axes[0].yaxis)) == (["q1", "q2", "q3"], ["k1", "k2", "k3"])  # fmt: skip
    widths = [width for *_, width, _ in arcs(ax)]
    assert np.array(widths) / widths[-1] == pytest.approx([WORKED[i, j] / 0.5035 for i, j, *_ in arcs(ax)], abs=1e-3)  # fmt: skip
    assert widths == sorted(widths)  # the largest on top
    for n in (3, 40):
        ax = plot(matrix(np.eye(n) + np.eye(n, k=1), name="weights"), arcs=True)
        of_query = {(i, colour) for i, _, _, colour in arcs(ax)}
        assert len(of_query) == len({colour for _, colour in of_query}) == n
        assert of_query == {(i, tuple(np.round(mpl.colors.to_rgb(x.get_color()), 6))) for i, x in enumerate(ax.get_yticklabels())}  # fmt: skip
    assert {(i, j) for i, j, *_ in arcs(plot(masked, arcs=True))} == {(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)}  # fmt: skip
    assert "the widest line is 1; 3 of 9 weights are" in " ".join(texts(masked, arcs=True))
    assert len(arcs(plot(matrix([[np.nan, 0.5]], name="weights"), arcs=True))) == 1
    many = attention(*[numbers(101, 2)] * 3)
    for trace, stages, words in (
        (attention(), ("scores",), "scores are not"), (attncli.posenc(3, 4), (), "there are none"), (many, (), "101 × 101"),
    ):  # fmt: skip
        with pytest.raises(ConventionError, match=words):
            plot(trace, arcs=True, stages=stages)


def test_points_are_as_far_apart_as_their_numbers_and_no_two_names_meet() -> None:
    trace = pca(["a", "b", "c"], np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 1.0]]))
    ax = plot(trace)
    ax.figure.draw_without_rendering()
    a, b, c = ax.transData.transform(one(ax, PathCollection).get_offsets())
    apart = np.array([np.hypot(*x) for x in (a - b, a - c, b - c)])
    assert apart / apart[1] == pytest.approx([3, 1, np.sqrt(10)], rel=0.02)
    assert [ax.get_xlabel(), ax.get_ylabel(), *(x.get_text() for x in ax.texts)] == ["PC 1", "PC 2", "a", "b", "c"]  # fmt: skip
    assert cells(plot(trace, heatmap=True)).shape == (3, 2)
    words = [f"word {n}" for n in range(60)]
    crowd = np.random.default_rng(3).normal(size=(60, 3)) * [1, 0.3, 0]
    crowd[40:] = crowd[:20]  # the same places
    ax = plot(pca(words, crowd))
    assert [text.get_text() for text in ax.texts] == words
    boxes = [TextArtist.get_window_extent(text).padded(-1) for text in ax.texts]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    inside = ax.get_window_extent()
    assert all(inside.contains(*box.min) and inside.contains(*box.max) for box in boxes)
    ways = [np.hypot(*text.xyann) for text in ax.texts]
    assert (min(ways) < 15, max(ways) > 40) == (True, True)  # beside it, or at the end of a line
    assert all(text.arrow_patch is not None for text in ax.texts)
    full = beside(np.full((30, 2), 10.0), np.full((30, 2), [30.0, 10.0]), np.full(2, 20.0))
    assert all(abs(a[0] - b[0]) >= 30 or abs(a[1] - b[1]) >= 10 for a, b in combinations(full, 2))


@pytest.mark.parametrize("label", ["the", "m" * 12])
@pytest.mark.parametrize("size", [(1, 9), (8, 9), (1, 40), (1, 90), (1, 300)])
def test_labels_do_not_collide(size: tuple[int, int], label: str) -> None:
    words = [label] * size[1]
    ax = plot(heads(*size, labels={"query": words, "key": words}))
    ax.figure.draw_without_rendering()
    for axis, side in ((ax.xaxis, 0), (ax.yaxis, 1)):
        places = ax.transData.transform([(x, x) for x in axis.get_ticklocs()])[:, side]
        step, first = np.abs(np.diff(places)).min(), axis.get_ticklabels()[0]
        turn, height = np.radians(first.get_rotation()), first.get_fontsize() * ax.figure.dpi / 72
        if axis is ax.xaxis and not turn:
            assert max(x.get_window_extent().width for x in axis.get_ticklabels()) <= step
        else:  # letters are as high as 0.76 of their size, with what hangs below as 1
            assert step * (np.sin(turn) if turn else 1) >= 0.9 * height


def test_one_matrix_is_drawn_into_an_axes_of_ones_own() -> None:
    trace = heads(2, 3)
    left, right, tiny = Figure(figsize=(9, 3)).subplots(1, 3, width_ratios=[5, 5, 1])
    assert (plot(trace, left, head=1), plot(trace, right, head=0, arcs=True)) == (left, right)
    assert cells(left) == pytest.approx(trace["weights"].value[1])
    assert len(left.figure.axes) == 3  # no scale beside it: that is up to its owner
    plot(trace, tiny, head=0)
    assert (len(left.texts), len(tiny.texts)) == (9, 0)  # numbers where there is room
    for options, words in (
        ({}, "one Axes cannot hold head 1, head 2"), ({"stages": ["scores", "output"]}, "cannot hold scores, output"), ({"precision": -1}, "precision is -1"),
    ):  # fmt: skip
        with pytest.raises(ConventionError, match=words):
            plot(trace, left, **options)


def test_the_style_that_is_set_applies_and_any_installed_font_that_has_a_letter() -> None:
    style = {"font.size": 20, "axes.prop_cycle": "cycler('color', 'rgb')"}
    with matplotlib.style.context(["dark_background", style]):
        ax = plot(matrix([[0.0, 1.0]], name="weights"))
        assert colours(ax)[0] == (29, 29, 29)  # 0 is as dark as the ground
        assert [(x.get_color(), x.get_fontsize()) for x in ax.texts] == [("white", 20), ("black", 20)]  # fmt: skip
        assert {colour for *_, colour in arcs(plot(attention(), arcs=True))} == {(1, 0, 0), (0, 0.5, 0), (0, 0, 1)}  # fmt: skip
    assert mpl.rcParams["svg.fonttype"] == "path"  # what a file needs is not left set
    assert figure.fonts("aé") == mpl.rcParams["font.family"] == ["sans-serif"]
    found = figure.fonts("⌖")[1:]  # which DejaVu Sans has not, but STIX has
    assert [bool(get_font(findfont(name)).get_char_index(ord("⌖"))) for name in found] == [True]
    assert figure.fonts("\U000f0001") == ["sans-serif"]  # which none has


def test_files_are_the_same_each_time_and_without_a_date() -> None:
    trace = heads(2, 3, mask=CAUSAL)
    png, pdf, svg = files = [written(form, trace) for form in ("png", "pdf", "svg")]
    assert files == [written(form, trace) for form in ("png", "pdf", "svg")]
    assert (png[:8], pdf[:5]) == (b"\x89PNG\r\n\x1a\n", b"%PDF-")
    assert not any(word in data for data in files for word in (b"CreationDate", b"<dc:date", b"tIME"))  # fmt: skip
    assert {"q1", "k3", "head 2", "keys"} <= {*texts(trace)}  # text is text
    assert b"head 2 of 2: q1 attends to k1 alone (100 %)" in svg  # for those who cannot see it


def test_a_sweep_is_lines_over_its_values() -> None:
    trace = sweep_widths([2, 8, 128])
    parts = figure.figure(pictured(trace, DisplayOptions())[0]).axes
    for ax, name in zip(parts, ("without_scale", "with_scale"), strict=True):
        lines = {line.get_label(): np.asarray(line.get_ydata()).tolist() for line in ax.lines}
        assert lines == dict(zip(trace[name].labels["measure"], trace[name].value.T.tolist(), strict=True))  # fmt: skip
        assert [x.get_text() for x in ax.get_xticklabels()] == ["2", "8", "128"]
        assert (ax.get_xlabel(), ax.get_yscale()) == ("d_k", "log")
        assert ax.get_ylim() == parts[0].get_ylim()  # the two are compared by their heights
        assert ax.get_ylim()[0] < min(trace[x].value.min() for x in ("without_scale", "with_scale"))
        assert ax.get_ylim()[1] > max(trace[x].value.max() for x in ("without_scale", "with_scale"))
    assert {"deviation", "entropy", "d_k"} <= {*texts(trace)}
    assert len(figure.figure(pictured(trace, DisplayOptions(heatmap=True))[0]).axes[0].lines) == 0
    zero = Stage(
        "spread", "", "", np.array([[0.0, 1], [0.5, 2]]), ("value", "measure"), spec=MEASURED
    )
    (ax,) = figure.figure(pictured(Trace("", (zero,)), DisplayOptions())[0]).axes
    assert ax.get_yscale() == "linear"
    positive = replace(zero, name="positive", value=np.array([[0.25, 1], [0.5, 7]]))
    others = replace(zero, name="others", labels={"measure": ("a", "b")})
    axes = figure.figure(pictured(Trace("", (zero, positive, others)), DisplayOptions())[0]).axes
    assert [ax.get_yscale() for ax in axes] == ["linear"] * 3
    assert axes[0].get_ylim() == axes[1].get_ylim() != axes[2].get_ylim()
    assert axes[2].get_ylim() == ax.get_ylim()  # of other measures: its own


@pytest.mark.parametrize("form", ["svg", "png", "pdf"])
def test_labels_are_texts_whatever_they_hold(form: str, capfd: pytest.CaptureFixture[str]) -> None:
    strange = ("שלום", "注意力", "√Kᵀ γ₁", "🙂", "é", "مرحبا", "$x^2", "$a$", r"\frac{", "x" * 10_000)  # fmt: skip
    words = (*strange, *[*LABELS.values()][: [*LABELS].index("tag") + 1])
    x = numbers(len(words), 3)
    trace = attention(x, x, x, labels={"query": words, "key": words}, notes=words)
    traces: list[tuple[Trace, dict[str, Any]]] = [(trace, {}), (pca(words, x), {}), (trace, {"arcs": True}), (Trace(r"$x \input <b>&", trace.steps), {"head": None})]  # fmt: skip
    for some, options in traces if form == "svg" else traces[:2]:
        assert written(form, some, **options)
    if form == "svg":
        assert {*strange[:8], r"\frac{", "<b>x</b>", r"a\x00b", "x" * 15 + "…"} <= {*texts(trace)}
    assert capfd.readouterr() == ("", "")


@given(st.data(), st.sampled_from(["weights", "scores", "positions"]), st.booleans())
def test_any_labels_and_numbers_fit(data: st.DataObject, name: str, arcs: bool) -> None:
    n, m = (data.draw(st.integers(1, 4)) for _ in "nm")
    words = {axis: data.draw(st.lists(st.text(max_size=30), min_size=size, max_size=size)) for axis, size in (("query", n), ("key", m))}  # fmt: skip
    values = data.draw(st.lists(st.floats(), min_size=n * m, max_size=n * m))
    trace = matrix(np.reshape(values, (n, m)), name=name, labels=words)
    assert drawn(trace, arcs=arcs and name == "weights").attrib["viewBox"]


def test_matplotlib_is_imported_for_figures_alone_and_pyplot_never() -> None:
    code = """import sys
from attncli.cli.main import run
call = ["compute", "--q", "[[1, 0], [0, 1]]", "--format"]
assert not any(run([*call, form]) for form in ("table", "html")) and "matplotlib" not in sys.modules
assert not any(run([*call, form]) for form in ("svg", "png", "pdf")) and "matplotlib" in sys.modules
assert "matplotlib.pyplot" not in sys.modules"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_a_backend_that_there_is_not_is_named() -> None:
    q = '{"q": [[1]], "k": [[1]], "v": [[1]]}'
    call = [sys.executable, "-m", "attncli", "compute", "--q", q, "--format", "svg"]
    env = {**os.environ, "MPLBACKEND": "nonsense"}
    done = subprocess.run(call, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "MPLBACKEND=nonsense" in done.stderr
