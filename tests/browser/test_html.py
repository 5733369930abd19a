"""The page of --format html as people use it: pointing, choosing, stepping, copying, printing."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.formulas import ROW_COSINES
from attncli.models.stacks import model_trace
from attncli.trace import Stage, Trace
from attncli.views.model import summary_page
from tests.models.test_stacks import made
from tests.turns import in_turn
from tests.views.hostile import LABELS
from tests.views.traces import CAUSAL, attention, grouped, shown

# ---- Chromium without a network, driven by Playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
Opener = Any  # what `opened` gives: a function from text and options of a context to its page


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install attncli[browser]")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Iterator[Opener]:
    """Opens text as a file; at the end: no request but of that file, no error, no dialog.

    complaints  what has been complained of so far
    """
    contexts: list[Any] = []
    complaints: list[str] = []

    def complain_of_others(request: Any) -> None:
        if not request.url.startswith(("file:", "data:")):
            complaints.append(request.url)

    def open_page(text: str, ready: bool = True, **options: Any) -> Any:
        options = {"viewport": {"width": 1300, "height": 900}, **options}
        contexts.append(chromium.new_context(offline=True, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(10_000)
        page.on("request", complain_of_others)
        page.on("pageerror", lambda problem: complaints.append(str(problem)))
        page.on("console", lambda words: complaints.append(words.text))
        page.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
        file = tmp_path / f"page{len(contexts)}.html"
        file.write_text(text, encoding="utf-8")
        page.goto(file.as_uri())
        if ready:
            page.locator("html[data-ready]").wait_for()
        return page

    open_page.complaints = complaints  # type: ignore[attr-defined]
    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


# ---- pages and what is on them


def html_of(trace: Trace, **options: Any) -> str:
    return shown(trace, "html", **options)


def heads(n_heads: int, n: int, *, batch: int = 1) -> Trace:
    q, k, v = np.random.default_rng(7).normal(size=(3, batch, n_heads, n, 5))
    return attncli.attend(*(x if batch > 1 else x[0] for x in (q, k, v)))


def cell(page: Any, stage: str, row: int, column: int) -> Any:
    """The cell of a stage's visible table, rows and columns counted from 1."""
    title = page.locator(f".stage:text-matches('^([0-9]+ )?{stage}\\\\b')")
    section = page.locator("section:visible").filter(has=title).first
    return section.locator("tr").nth(row).locator("th, td").nth(column)


def number(page: Any, stage: str, row: int, column: int) -> Any:
    """What a cell shows, which has four decimals."""
    return pytest.approx(float(cell(page, stage, row, column).inner_text()), abs=5e-5)


def say(page: Any) -> list[str]:
    """The lines that are said of the cell that is pointed at."""
    return list(page.locator("#say").inner_text().split("\n"))


def choose(page: Any, what: str, value: int | str) -> None:
    page.get_by_label(what, exact=True).select_option(str(value))


def lit(page: Any) -> dict[str, list[str]]:
    """The lit cells by stage, as "row,column" of their labels."""
    places = page.evaluate(
        """() => [...document.querySelectorAll("td.from")].map(td => {
             const table = td.closest("table"), title = td.closest("section").querySelector(".stage");
             const names = [td.parentElement.cells[0], table.rows[0].cells[td.cellIndex]];
             return [title.firstChild.textContent.trim().split(" ").pop(), names.map(th => th.textContent.trim()).join(",")];
           })"""
    )
    stages: dict[str, list[str]] = {}
    for stage, place in places:
        stages.setdefault(stage, []).append(place)
    return stages


# ---- what a cell was computed from


THREE = attention(mask=CAUSAL)
BACK = attention(d_output=[[1, 0], [0, 1], [1, 1]])

# S[q2,k3] = Q[q2,:] · K[k3,:], L[q2,k1] = Z[q2,k1] + M[q2,k1], A[q2,k1] of the whole row q2 of L,
# O[q3,2] = A[q3,:] · V[:,2]; dZ[q1,k3] = A[q1,k3] (dA[q1,k3] − δ[q1]), dK[k3,1] = dS[:,k3] · Q[:,1].
# That all else is lit which a cell is computed from is seen in tests/views/test_pages.py.
SOURCES: list[tuple[str, int, int, dict[str, list[str]]]] = [
    ("scores", 2, 3, {"q": ["q2,1", "q2,2"], "k": ["k3,1", "k3,2"]}),
    ("masked", 2, 1, {"scaled": ["q2,k1"], "mask": ["q2,k1"]}),
    ("weights", 2, 1, {"masked": ["q2,k1", "q2,k2", "q2,k3"]}),
    ("output", 3, 2, {"weights": ["q3,k1", "q3,k2", "q3,k3"], "v": ["k1,2", "k2,2", "k3,2"]}),
    ("d_scaled", 1, 3, {"weights": ["q1,k3"], "d_weights": ["q1,k3"], "delta": ["q1,δ"]}),
    ("d_k", 3, 1, {"q": ["q1,1", "q2,1", "q3,1"], "d_scores": ["q1,k3", "q2,k3", "q3,k3"]}),
]


def test_pointing_at_a_cell_lights_what_it_was_computed_from(opened: Opener) -> None:
    forward, backward = opened(html_of(THREE)), opened(html_of(BACK))
    for stage, row, column, sources in SOURCES:
        page = backward if stage.startswith("d_") else forward
        cell(page, stage, row, column).hover()
        assert lit(page) == sources, stage
    cell(backward, "delta", 1, 1).hover()  # a column is called by its row
    assert [line.strip() for line in say(backward)[-2:]] == ["= 5", "δ[q1] = 5"]


def test_the_arithmetic_is_that_of_cell_and_the_number_exact(opened: Opener) -> None:
    page = opened(html_of(THREE))
    assert len(html_of(THREE).encode()) <= 60_000  # a small page is small
    for stage in ("scores", "scaled", "masked", "weights", "output"):
        for row, column in np.ndindex(THREE[stage].value.shape):
            cell(page, stage, row + 1, column + 1).click()
            work = [line.strip() for line in say(page)[:-1]]
            derived = attncli.render(THREE, stages=[stage], cell=(row + 1, column + 1))
            lines = [line.strip() for line in derived.splitlines()]
            start = lines.index(work[0])
            assert lines[start : start + len(work)] == work
    cell(page, "weights", 3, 1).hover()
    name, _, exact = say(page)[-1].partition(" = ")
    assert (name, np.float32(exact)) == ("A[q3,k1]", np.float32(THREE["weights"].value[2, 0]))
    assert len(exact) > len("0.5035")


def test_weights_and_other_numbers_have_ramps_of_their_own(opened: Opener) -> None:
    """Their ends on paper and on a dark screen: 1 of 1 weights, 10 of 10."""
    ends = {"light": ["rgb(8, 48, 107)", "rgb(179, 88, 6)"], "dark": ["rgb(254, 232, 56)", "rgb(255, 208, 160)"]}  # fmt: skip
    for scheme, colours in ends.items():
        page = opened(html_of(THREE), color_scheme=scheme)
        for stage, colour in zip(("weights", "v"), colours, strict=True):
            style = cell(page, stage, 1, 1).evaluate("td => getComputedStyle(td).backgroundColor")
            assert style == colour, (stage, scheme)


def test_every_way_to_a_cell(opened: Opener) -> None:
    """A mouse, a finger, the keyboard alone; Tab reaches every table."""
    page = opened(html_of(THREE), has_touch=True, viewport={"width": 390, "height": 800})
    cell(page, "output", 1, 1).tap()
    assert say(page)[0].startswith("O[q1,1] = ")
    page.keyboard.press("Escape")
    assert page.locator("#say").is_hidden()
    cell(page, "scores", 1, 1).focus()
    steps = ("ArrowRight", "ArrowDown", "q2,k2"), ("ArrowUp", "ArrowUp", "q1,k2")  # and no further
    for first, second, place in steps:
        page.keyboard.press(first)
        page.keyboard.press(second)
        assert say(page)[0].startswith(f"S[{place}] = ")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(say(page)[0].partition("[")[0])
    assert {"Q", "K", "V", "M", "S", "Z", "L", "A", "O"} <= reached


# ---- stages, heads, layers


def test_stages_one_after_another(opened: Opener) -> None:
    page = opened(html_of(THREE))
    names = []
    for _ in range(10):  # there are nine; the last stays
        page.get_by_role("button", name="next stage").click()
        current = page.locator("section.current .stage").inner_text()
        names.append(re.sub(r"^\d+ ", "", current).split()[0])
    assert " ".join(names) == "q k v mask scores scaled masked weights output output"
    page.get_by_role("button", name="previous stage").click()
    page.get_by_label("hide later stages").check()
    assert page.locator("section:visible").count() == 8
    page.get_by_label("hide later stages").uncheck()
    assert page.locator("section:visible").count() == 9


def test_a_head_is_chosen_and_the_key_head_that_it_shares(opened: Opener) -> None:
    trace = grouped()
    page = opened(html_of(trace))
    for head, key_head in ((0, 0), (1, 0), (2, 1), (3, 1)):
        choose(page, "head", head + 1)
        assert trace["weights"].value[head, 1, 2] == number(page, "weights", 2, 3)
        assert trace["k"].value[key_head, 0, 0] == number(page, "k", 1, 1)
        cell(page, "scores", 1, 1).hover()
        assert lit(page) == {"q": ["q1,1", "q1,2"], "k": ["k1,1", "k1,2"]}
        assert page.locator("td.from:visible").count() == 4
        assert page.locator("h2:visible", has_text="Backward").count() == 1
    choose(page, "head", "")
    assert page.locator("section:visible").count() == sum(len(x.value) for _, x in trace.stages())


def test_layers_and_heads_at_a_glance(opened: Opener) -> None:
    """By a mouse, and by keyboard, for which all of them are one stop."""
    trace = attncli.explain("the river bank", heads=2, layers=3, block="encoder")
    page = opened(html_of(trace))
    assert page.locator("#overview button").count() == 6
    page.get_by_label("weights: encoder.2.attention, layer 2, head 2").click()
    assert [page.get_by_label(x, exact=True).input_value() for x in ("layer", "head")] == ["2", "2"]
    assert trace["encoder.2.attention.weights"].value[1, 2, 0] == number(page, "weights", 3, 1)
    page = opened(html_of(heads(3, 4, batch=2)))
    for keys in (["Tab"], ["ArrowRight", "ArrowDown", "Enter"]):
        page.get_by_label("weights: batch 1, head 1").focus()
        for key in keys:
            page.keyboard.press(key)
        outside = page.evaluate("document.activeElement.closest('.overview')") is None
        assert outside == (keys == ["Tab"])
    assert say(page) == ["shown: batch 2, head 2"]


def test_columns_of_a_packed_weight_and_of_the_heads_side_by_side(opened: Opener) -> None:
    page = opened(html_of(attncli.explain("the river bank", heads=2, dim=6)))
    choose(page, "head", 2)
    cell(page, "q", 1, 2).hover()  # column 2 of head 2, d_k 3, is column 5 of W_q
    assert lit(page)["w_q"] == [f"{row},5" for row in range(1, 7)]
    cell(page, "concat", 3, 4).hover()  # the first column of head 2
    assert lit(page)["output"] == ["bank,1"]


@pytest.mark.parametrize(("n", "most"), [(24, 300_000), (64, 2_000_000)])
def test_the_size_of_twelve_layers_of_twelve_heads(opened: Opener, n: int, most: int) -> None:
    causal = n == 24
    q, k, v = np.random.default_rng(5).normal(size=(3, 12, 12, n, 64))
    trace = attncli.attend(q, k, v, causal=causal)
    text = html_of(trace)
    assert len(text.encode()) <= most
    page = opened(text)
    assert "(--head N, --batch N or --full)" in page.locator("main").inner_text()
    page.get_by_label("weights: batch 5, head 7", exact=True).click()
    table = page.locator("#detail table")
    cells = "t => [...t.rows].slice(1).map(r => [...r.cells].slice(1).map(c => c.textContent))"
    weights = trace["weights"].value[4, 6]
    table.locator("tr").nth(3).locator("td").nth(1).hover()
    assert say(page) == [f"A[q3,k2] = {weights[2, 1]:.4f}"]
    for i, row in enumerate(table.evaluate(cells)):
        assert row == ["///" if causal and j > i else f"{weights[i, j]:.4f}" for j in range(n)]


def test_what_is_left_out_is_said(opened: Opener) -> None:
    page = opened(html_of(heads(8, 24)))  # too many cells for the arithmetic of all
    cell(page, "scores", 3, 2).hover()
    assert say(page)[-1] == "how: --stage scores --cell 3,2 --head 1"
    page = opened(html_of(heads(2, 300)))
    assert "left out: 284 rows and 284 columns" in page.locator("main").inner_text()
    page.get_by_label("weights: head 2", exact=True).click()
    page.locator("#detail canvas").hover(position={"x": 5, "y": 5})
    assert re.match(r"A\[q\d+,k\d+\] = 0\.\d+", say(page)[0])


@pytest.mark.parametrize("sizes", [(3, 2, 5), (7, 11, 23)])  # all tables, or those of one head
def test_a_model(opened: Opener, sizes: tuple[int, int, int]) -> None:
    """Its measures as tables, and the weights of the head that is chosen."""
    n_layers, n_heads, n = sizes
    attentions = [made(f"h.{layer}.attn", n, n, n_heads) for layer in range(n_layers)]
    trace = model_trace("m", attentions, kept={"mask", "weights"})
    page = opened(html_of(trace, page=summary_page, precision=2))
    assert page.locator("#overview button").count() == n_layers * n_heads
    page.get_by_label("weights: layer.2, layer 2, head 2", exact=True).click()
    table = page.locator("section:visible").filter(has_text="weights").locator("table").first
    row = [float(x) for x in table.locator("tr").nth(3).locator("td").all_inner_texts()[:n]]
    np.testing.assert_allclose(row, trace["layer.2.weights"].value[1, 2], atol=0.0051)
    for name in ("entropy", "previous"):
        assert page.get_by_role("heading", name=name).is_visible()
    if n == 23:  # its sentences are of all heads
        assert "all stages are shown of one head" not in page.content()
        assert page.get_by_text("the token before gets the most from").is_visible()
        assert page.get_by_text(" attends to ").count() == 0


# ---- copies, labels from strangers, other readers, other screens


def test_copies_are_those_of_the_formats(opened: Opener) -> None:
    labels = {"query": ("the", "a|b", "*x*_y"), "key": ("k1", "＝1+1", 'a,"b"')}
    trace = attention(mask=CAUSAL, labels=labels)
    page = opened(html_of(trace), permissions=["clipboard-read", "clipboard-write"])

    def copied(form: str) -> str:
        page.get_by_label(f"copy weights as {form}").click()
        page.locator("#say", has_text=f"copied as {form}").wait_for()
        return str(page.evaluate("navigator.clipboard.readText()"))

    texts = {form: shown(trace, form, stages=("weights",)) for form in ("markdown", "csv", "latex")}
    lines = texts["markdown"].splitlines()
    assert copied("markdown").splitlines() == [line for line in lines if line.startswith("|")]
    # Labels as attncli's own csv has them; the numbers as they are shown.
    copy = copied("csv").splitlines()
    assert copy[0].split(",", 1)[1] == texts["csv"].splitlines()[0].split(",", 1)[1] + ",Σ"
    assert copy[1:3] == ["the,1.0000,///,///,1", "a|b,0.6698,0.3302,///,1"]
    array = copied("LaTeX")
    assert array.startswith("\\[\\begin{array}{r|rrr|r}\n & \\text{k1}")
    assert array in texts["latex"]


BAD = (
    "</script><script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "<svg onload=alert(3)>",
)  # fmt: skip


def test_labels_are_inert_wherever_they_stand(opened: Opener) -> None:
    names = (*BAD, *LABELS.values())
    rng = np.random.default_rng(1)
    labels = {"query": names, "key": names, "head": BAD[:2]}
    q, k, v = rng.normal(size=(3, 2, len(names), 3))
    base = attention(q, k, v, labels=labels, notes=names)
    square, axes = rng.normal(size=(len(names), len(names))), ("query", "key")
    odd = Stage(*BAD, square, axes, labels, reads={"x": "q"}, expression=ROW_COSINES)
    inner = Trace(BAD[1], base.steps, base.convention, name="inner")
    trace = Trace(BAD[0], (*base.steps, odd, inner), base.convention, notes=names)
    for options in ({}, {"work": True}, {"cell": ("1", "2"), "stages": ("weights",)}):
        page = opened(html_of(trace, **options))
        for td in page.locator("section:visible td").all()[:40:7]:
            td.hover(force=True)
        for button in page.locator("#overview button").all()[:2]:
            button.click()
        foreign = "img:not(.picture), svg, main script, a, iframe"
        assert page.evaluate(f"document.querySelectorAll('{foreign}').length") == 0
        assert page.evaluate("document.scripts.length") == 4  # three of data, one that runs


def test_no_other_script_runs(opened: Opener) -> None:
    """The policy itself: a script that would have got into the page does nothing."""
    text = html_of(attention()).replace("</main>", "<script>document.title = 'ran'</script></main>")
    assert opened(text).title() != "ran"
    (complaint,) = opened.complaints
    assert "Content Security Policy directive" in complaint
    opened.complaints.clear()


PAGES = {
    "three": lambda: THREE, "many": lambda: heads(5, 70, batch=3), "positions": lambda: attncli.posenc(7, 4),
    "sentence": lambda: attncli.explain("the bank, near the river bank", heads=2),
    "layers": lambda: attncli.explain("the bank", heads=2, layers=2, block="encoder"),
}  # fmt: skip


@pytest.mark.parametrize(("which", "scheme"), in_turn(PAGES, ["light", "dark"]))
def test_axe_has_no_complaint(opened: Opener, which: str, scheme: str) -> None:
    name = "axe_playwright_python.sync_playwright"
    axe = pytest.importorskip(name, reason="pip install attncli[browser]")
    text = html_of(PAGES[which](), work=which == "sentence")
    page = opened(text, color_scheme=scheme, bypass_csp=True)
    page.locator("section:visible td").nth(5).hover()
    assert axe.Axe().run(page).response["violations"] == []


def test_on_paper_without_scripts_and_in_a_notebook(opened: Opener) -> None:
    page = opened(html_of(THREE))
    cell(page, "scores", 1, 1).click()
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("#tools, #say, .copy").locator("visible=true").count() == 0
    assert page.locator("section:visible").count() == 9
    assert page.pdf()[:5] == b"%PDF-"
    page = opened(html_of(heads(2, 3)), ready=False, java_script_enabled=False)
    assert page.locator("section:visible").count() == 14
    assert page.locator("#tools").is_hidden()
    notebook = f"<!doctype html><title>notebook</title>{THREE._repr_html_()}"
    page = opened(notebook, ready=False)
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready]").wait_for()
    frame.locator("section td").last.hover()
    assert frame.locator("#say").inner_text() != ""
    assert page.evaluate("document.querySelector('iframe').clientHeight") > 600


def test_right_to_left_tokens_keep_their_place(opened: Opener) -> None:
    labels = {"query": ("הבנק", "the", "river"), "key": ("הבנק", "the", "river")}
    page = opened(html_of(attention(labels=labels)))
    header = page.locator("section:visible", has_text="weights").locator("tr").first.locator("th")
    boxes = [box.bounding_box()["x"] for box in header.all()]
    assert boxes == sorted(boxes)
    assert page.locator("li bdi").first.inner_text() == "הבנק"
