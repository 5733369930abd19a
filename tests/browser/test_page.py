"""The page of --format html in Chromium or Firefox: numbers, what if, walk, quiz, print, policy."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.cli.calls import trace_of
from attncli.cli.main import run
from attncli.commands.diff.page import diff_page
from attncli.errors import ShapeError, StageError
from attncli.page.worksheet import without_numbers
from attncli.trace import Trace
from tests.formats.hostile import LABELS
from tests.page.traces import CAUSAL, attention, every_kind, matrix, numbers, shown
from tests.turns import in_turn

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
Opener = Any  # what `opened` gives: a function from text and options of a context to its page


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, or what ATTNCLI_BROWSER says: the path of a Firefox."""
    if program := os.environ.get("ATTNCLI_BROWSER"):
        from tests.browser.firefox import started

        with started(program) as firefox:
            yield firefox
        return
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install attncli[browser]")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opener]:
    """Opens text as a file; at the end: no request but of that file, no error, no dialog.

    complaints  what has been complained of so far
    """
    contexts: list[Any] = []
    complaints: list[str] = []

    def complain_of_others(request: Any) -> None:
        if not request.url.startswith(("file:", "data:")):
            complaints.append(request.url)

    def open_page(text: str, ready: bool = True, **options: Any) -> Any:
        options = {"viewport": {"width": 1280, "height": 900}, **options}
        contexts.append(browser.new_context(offline=True, **options))
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
            page.locator("html[data-ready]").wait_for(state="attached")
        return page

    open_page.complaints = complaints  # type: ignore[attr-defined]
    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


# ---- pages and what is on them

THREE = attention()


def of_call(call: str) -> Trace:
    """The trace of a call whose page is made."""
    return trace_of(f"{call} --format html")


NEVER = [[True, True, False], [False, False, False], [True, True, True]]
NAN = [[1, np.nan], [0, 1], [1, 1]]
TRACES: dict[str, Any] = {
    "three": lambda: THREE,
    "causal": lambda: attention(causal=True),
    "unscaled": lambda: attention(scale="none"),
    "factor": lambda: attention(scale=0.3, softcap=1.5, causal=True),
    "cap after the mask": lambda: attention(softcap=3.0, softcap_place="after-mask", causal=True),
    "columns": lambda: attention(softmax_over="queries"),
    "mask value": lambda: attention(causal=True, mask_value=-5.0, mask_value_rule="add"),
    "dropout": lambda: attention(dropout=0.3, seed=1),
    "sinks": lambda: attention(sinks=[0.5], window=(1, 0)),
    "no key": lambda: attncli.attend(*(THREE[x].value for x in "qkv"), mask=NEVER, empty_rows="uniform"),
    "not a number": lambda: attention(NAN, causal=True),
    "gradients": lambda: attention(d_output=[[1, 0], [0, 1], [1, 1]]),
    "attention": lambda: of_call("explain 'the river bank' --heads 2 --dim 4"),
    "encoder": lambda: of_call("explain 'the river bank' --block encoder --layers 2 --heads 2 --dim 4"),
    "decoder": lambda: of_call("explain 'A bank' --target 'La rive' --dim 4 --block decoder"),
    "cross": lambda: of_call("explain 'A bank' --target 'La rive' --dim 4 --heads 2"),
    "pre": lambda: of_call("explain 'the bank' --block encoder --norm pre --heads 2 --dim 4"),
}  # fmt: skip


def html_of(trace: Trace, **options: Any) -> str:
    return shown(trace, "html", **options)


def of_page(page: Any) -> dict[str, Any]:
    """The stages of a page, with all their digits."""
    stages = page.evaluate("stages.map(s => [s.id, s.shape, [...s.data].map(String)])")
    return {
        name: np.array([float(x) for x in values]).reshape(shape) for name, shape, values in stages
    }


def check_all(page: Any, trace: Trace, least: int = 3) -> None:
    """Every stage of the trace that is on the page too is the same there."""
    stages, names = of_page(page), set()
    for name, stage in trace.stages():
        if name in stages and stage.expression:
            expected = np.broadcast_to(stage.value, stages[name].shape)
            assert stages[name] == pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True), name
            names.add(name)
    assert len(names) >= least


def computed_by(call: str) -> dict[str, Any]:
    """Every stage of what a copied command, or a copied call in Python, computes, by dotted name."""
    if call.startswith("attncli."):
        trace = eval(call, {"attncli": attncli})  # noqa: S307 - what the page copies
        return {name: stage.value for name, stage in trace.stages()}
    first, _, rest = call.partition(" <<'END'\n")
    words = ["sh", "-c", f"{sys.executable} -m {first} --quiet --format json"]
    numbers = rest.removesuffix("\nEND")
    done = subprocess.run(words, input=numbers, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    def flat(steps: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
        for step in steps:
            if step["kind"] == "trace":
                yield from flat(step["steps"], f"{prefix}{step['name']}.")
            else:
                yield prefix + step["name"], np.array(step["value"], dtype=float)

    return dict(flat(json.loads(done.stdout)["steps"]))


def cell(page: Any, stage: str, row: int, column: int) -> Any:
    """The cell of a stage's table, rows and columns counted from 1."""
    return page.locator(f"[id='at-{stage}'] tr:nth-child({row + 1}) td:nth-child({column + 1})")


def type_into(page: Any, stage: str, row: int, column: int, text: str) -> None:
    cell(page, stage, row, column).dblclick()
    page.locator("input.edit").fill(text)
    page.keyboard.press("Enter")


def why(page: Any) -> str:
    return str(page.locator("#why").inner_text())


# ---- numbers


CHANGE = """() => {
  const inputs = stages.filter(s => canEdit(s) && s.short !== "mask" && !page.command.numbers.drawn.includes(s.id));
  for (let n = 0; n < 3; n++) {
    const s = inputs[(n * 3 + 1) % inputs.length], at = (n * 5 + 2) % s.data.length;
    change("cell", s.id, at, ((n * 91 + 37) % 400 - 200) / 64);
  }
}"""


@pytest.mark.parametrize("name", TRACES)
def test_every_stage_is_computed_again_and_the_copied_command_gives_what_the_page_shows(
    opened: Opener, name: str
) -> None:
    trace = TRACES[name]()
    page = opened(html_of(trace))
    assert page.evaluate("state.locked") == ""
    page.evaluate("computed().forEach(compute)")
    check_all(page, trace)
    page.evaluate(CHANGE)
    known = [name for name in of_page(page) if name in trace and trace[name].expression]
    agrees(page, trace, least=len(known))
    assert page.locator("td.flash").count() + page.locator("td.new").count() > 0


def agrees(page: Any, trace: Trace, least: int) -> None:
    """What the copied command computes is what the page shows, of every stage with a formula."""
    theirs, ours = computed_by(page.evaluate("command()")), of_page(page)
    same = [x for x in theirs.keys() & ours.keys() if x in trace and trace[x].expression]
    for stage in same:
        expected = np.broadcast_to(theirs[stage], ours[stage].shape)
        near = 1e-5 if stage == "angles" else 1e-12  # of a small angle few digits are known
        assert ours[stage] == pytest.approx(expected, rel=1e-12, abs=near, nan_ok=True), stage
    assert len(same) >= least


OTHERS: dict[str, Any] = {
    **{name: every_kind()[name] for name in ("posenc", "article", "rope", "alibi", "similarity")},
    "dots": lambda: of_call("posenc --len 3 --dim 4 --dots"),
    "analogy": lambda: of_call("similarity --analogy a b c a=0.2,0.4 b=-0.1,0.3 c=1,-0.5"),
    "turned": lambda: of_call("posenc --kind rope --apply '[[1, 2], [3, 4]]'"),
    **{name: every_kind()[name] for name in ("tiles", "split")},
    "added": lambda: attncli.posenc(add=numbers(3, 5), start=2, base=50.0),
    "masked tiles": lambda: attncli.attend_tiles(*numbers(3, 2, 5, 3), tiles=2, causal=True),
    "cache": lambda: attncli.attend(*numbers(3, 2, 3), past_k=numbers(4, 3), past_v=numbers(4, 3, seed=1), causal=True),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_pages_of_other_kinds_are_changed_and_copied(opened: Opener, name: str) -> None:
    trace = OTHERS[name]()
    page = opened(html_of(trace))
    page.evaluate("computed().forEach(compute)")
    check_all(page, trace, least=1)
    before = of_page(page)
    inputs = page.evaluate("stages.filter(s => canEdit(s)).map(s => s.id)")
    if inputs:
        type_into(page, inputs[0], 1, 1, "3,5")
    if page.locator("#param-base").is_visible():
        page.locator("#param-base").fill("77")
        page.keyboard.press("Tab")
    has_attention = name in ("tiles", "split", "masked tiles", "cache")
    assert (
        page.locator("#json").is_visible() == has_attention
    )  # of others no file gives the numbers
    changed = [k for k, x in of_page(page).items() if not np.array_equal(x, before[k], True)]
    assert bool(changed) == (name != "alibi")  # of which nothing is given
    agrees(page, trace, least=2)


def test_what_follows_from_x_comes_after_what_is_cached(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    x = {
        "x": numbers(2, 5),
        **{w: numbers(5, 4, seed=n) for n, w in enumerate(("w_q", "w_k", "w_v"))},
    }
    x |= {"past_k": numbers(2, 3, 2, seed=5), "past_v": numbers(2, 3, 2, seed=6)}
    Path("x.json").write_text(json.dumps({name: array.tolist() for name, array in x.items()}))
    words = ["--past-k", "x.json::past_k", "--past-v", "x.json::past_v", "--output", "x.html"]
    assert run(["compute", "--x", "x.json", "--heads", "2", "--causal", "--quiet", *words]) == 0
    page = opened(Path("x.html").read_text(encoding="utf-8"))
    before = of_page(page)
    cell(page, "k", 1, 1).hover()
    assert "from the cache" in why(page)
    type_into(page, "x", 1, 1, "-1.5")
    ours, theirs = of_page(page), computed_by(page.evaluate("command()"))
    changed = ~np.isclose(ours["k"], before["k"], atol=1e-12).all(axis=(0, 2))
    assert changed.tolist() == [False, False, False, True, False]  # after three that are cached
    for stage in page.evaluate("computed().map(s => s.id)"):
        assert ours[stage] == pytest.approx(theirs[stage], rel=1e-12, abs=1e-12), stage


SET = ["--causal", "--softcap", "3", "--set", "scaled[i,j] = scores[i,j] / (1 + i)"]
OWN: dict[str, tuple[list[str], str]] = {  # a call, and what is in the command
    "variant": (["--formulas", "softcap"], "--formulas softcap --set cap=4 <<"),
    "variant with gradients": (["--formulas", "sigmoid", "--d-output", "random"], "--formulas sigmoid <<"),
    "variant with a line": (["--formulas", "softcap", "--set", "cap = 3"], "--formulas 'cap = 3\nscores: "),
    "a line in place of ours": (SET, "scaled: Z[i,j] = S[i,j] / (1 + i)\n"),
    "a file": (["--formulas", "mine.attn"], "--formulas 'scores: S[i,j] = abs("),
    "a sentence": (["--formulas", "sigmoid"], " --positions paper --formulas sigmoid --heads 2 "),
    "layers": (["--block", "encoder", "--layers", "2", "--formulas", "softcap"], " --set cap=4"),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_a_page_of_own_formulas_is_copied_with_them(
    opened: Opener, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, expected = OWN[name]
    monkeypatch.chdir(tmp_path)
    lines = "scores: S[i,j] = abs(q[i,0] - k[j,1])\nweights: A[i,j] = S[i,j] / sum[l](S[i,l])"
    Path("mine.attn").write_text(lines, encoding="utf-8")
    q, k, v = (numbers(3, 2, seed=seed).tolist() for seed in range(3))
    arrays = json.dumps({"q": q, "k": k, "v": v, "tokens": ["a", "b", "it's"]})
    is_sentence = name in ("a sentence", "layers")
    first = ["explain", "The old bank", "--heads", "2", "--dim", "4"]
    call = first if is_sentence else ["compute", "--q", arrays]
    assert run([*call, *words, "--output", "own.html", "--quiet"]) == 0
    page = opened(Path("own.html").read_text(encoding="utf-8"))
    assert not page.locator("#causal").is_visible()  # which the formulas say
    changed = "embeddings" if is_sentence else "q"
    type_into(page, changed, 2, 1, "-1.5")
    if page.locator("#param-cap").is_visible():
        page.locator("#param-cap").fill("4")
        page.keyboard.press("Tab")
    assert expected in page.evaluate("command()")
    theirs, ours = computed_by(page.evaluate("command()")), of_page(page)
    for stage in page.evaluate("computed().map(s => s.id)"):
        assert ours[stage] == pytest.approx(theirs[stage], rel=1e-12, abs=1e-12), stage
    assert -1.5 in ours[changed]
    assert not page.locator("#json").is_visible()  # a file cannot say formulas


def test_what_cannot_be_copied_or_is_not_known_is_said(opened: Opener) -> None:
    page = opened(html_of(every_kind()["rotated"]()))  # of a function that keeps no call
    assert not page.locator("#command").is_visible()
    page = opened(html_of(attncli.explain("A bank", dim=4)))
    assert page.locator("#command").inner_text() == "Copy as Python"
    assert page.evaluate("command()") == "attncli.explain('A bank', dim=4)"
    type_into(page, "embeddings", 1, 1, "3")
    assert page.get_by_text("No call of attncli gives these numbers").is_visible()
    assert not page.locator("#command").is_visible()
    page.locator("#undo").click()
    assert page.locator("#command").is_visible()
    page = opened(html_of(every_kind()["pca"]()))  # whose components are computed by no formula
    type_into(page, "vectors", 1, 1, "3,5")
    assert {*page.locator("[id='at-coordinates'] td:not(.corner)").all_inner_texts()} == {"?"}
    assert "?" not in page.locator("[id='at-centred']").inner_text()


def test_the_script_of_numpy_is_copied_where_it_gives_what_the_page_shows(opened: Opener) -> None:
    page = opened(html_of(attention(causal=True)))
    page.evaluate("""(() => {
      const others = document.execCommand.bind(document), copy = () => (copied = focused().value);
      document.execCommand = (name, ...rest) => (name === "copy" ? copy() : others(name, ...rest));
    })()""")
    page.locator("#numpy").click()
    assert "q = np.array([[1, 0], [0, 1], [1, 1]], dtype=float)\n" in page.evaluate("copied")
    type_into(page, "q", 2, 1, "-1,5")
    page.locator("#numpy").click()
    assert "q = np.array([[1, 0], [-1.5, 1], [1, 1]], dtype=float)\n" in page.evaluate("copied")
    page.locator("#causal").click()
    assert page.locator("#numpy").evaluate("e => e.disabled")
    page.locator("#undo").click()
    assert not page.locator("#numpy").evaluate("e => e.disabled")
    page = opened(html_of(every_kind()["pca"]()))
    assert not page.locator("#numpy").evaluate("e => e.disabled")
    type_into(page, "vectors", 1, 1, "3,5")  # of which its components are no formula
    assert page.locator("#numpy").evaluate("e => e.disabled")


@pytest.mark.parametrize("options", ["--layers 2", "--layers 2 --causal", "--norm pre"])
def test_a_stack_of_layers_has_one_mask_and_one_scale(opened: Opener, options: str) -> None:
    trace = of_call(f"explain 'The old bank' --dim 4 --block encoder {options}")
    page = opened(html_of(trace))
    if "causal" not in options:
        page.locator("#mask").check()
    cell(page, "encoder.1.attention.mask", 2, 1).click()
    page.locator("#param-root").fill("3")
    page.keyboard.press("Tab")
    masks = page.evaluate("masks().map(mask => mask.data[3])")
    assert masks == [-np.inf] * (2 if "--layers 2" in options else 1)
    assert "--mask" in page.evaluate("command()")
    agrees(page, trace, least=20)
    page.locator("#reset").click()
    check_all(page, trace)


def test_masks_of_a_decoder_and_its_encoder_cannot_be_changed(opened: Opener) -> None:
    """There are several, and --mask is one."""
    page = opened(html_of(attncli.explain("A bank", target="La rive", dim=4, block="decoder")))
    assert not page.locator("#causal").is_visible()
    assert page.evaluate("stages.filter(s => s.short === 'mask' && canEdit(s)).length") == 0


# ---- looking


def test_it_opens_on_the_flow_with_one_number_explained(opened: Opener) -> None:
    """Falk's scheme: Q at the left, Kᵀ above S, S in the corner; one query is one line.

    It opens at its top, and with the largest weight of the row that is most concentrated.
    """
    page = opened(html_of(THREE))
    assert page.evaluate("scrollY") == 0
    assert why(page).startswith("Aq3, k1")
    assert "0.5035" in why(page)  # e^√2 / (e^√2 + 2 e^(√2/2))
    assert [page.locator(f"td.{side}").count() for side in ("left", "here")] == [3, 1]
    cell(page, "output", 3, 1).click()
    assert "row q3 of A times column 1 of V" in why(page)
    assert [page.locator(f"td.{side}").count() for side in ("left", "top", "here")] == [3, 3, 1]
    boxes = [
        page.locator(f"[id='at-{s}'] table").bounding_box()
        for s in ("q", "scores", "scaled", "weights", "output")
    ]
    bottoms = [box["y"] + box["height"] for box in boxes]
    assert max(bottoms) - min(bottoms) < 2
    assert boxes[-1]["x"] + boxes[-1]["width"] <= 1280
    left = [
        page.locator(f"[id='at-{s}'] th[scope=col]").first.bounding_box()["x"]
        for s in ("k", "scores")
    ]
    assert left[0] == pytest.approx(left[1], abs=1.5)


def test_it_opens_at_the_cell_or_the_query_that_is_asked_for(opened: Opener) -> None:
    page = opened(html_of(THREE, cell=("q2", "3")))
    assert why(page).startswith("Aq2, k3")
    page = opened(html_of(THREE, cell=("q1", "2"), stages=("output",)))
    assert why(page).startswith("Oq1, 2")
    page = opened(html_of(attncli.posenc(5, 4), cell=("pos 3", "2")))
    assert re.search(r"PEpos 3, \S+ .*= 0.03", why(page).replace("\n", " "))  # sin(3 / 100)
    page = opened(html_of(THREE, query="q2"))
    assert "Query q2 · step 1 of 4" in why(page)
    page = opened(html_of(attncli.attend_tiles(*numbers(3, 2, 5, 3), tiles=2)))
    assert "row q1 of Q times column k1 of K" in why(page)  # of the first tile
    large = attncli.attend(*np.random.default_rng(7).normal(size=(3, 2, 300, 8)), causal=True)
    page = opened(html_of(large, cell=("q250", "k240"), head=1))
    assert repr(float(large["weights"].value[1, 249, 239])) in why(page)
    assert page.get_by_text(
        "only the rows and columns around it are here (--full shows all)"
    ).is_visible()
    page = opened(html_of(large, query="q250"))
    assert repr(float(large["weights"].value[0, 249, 0])) in why(page)
    assert page.get_by_text("so the query is not followed (--full shows all)").is_visible()
    with pytest.raises(StageError, match="no weights"):
        html_of(attncli.posenc(5, 4), query="1")
    with pytest.raises(ShapeError, match="k9"):
        html_of(THREE, cell=("q1", "k9"))


def test_a_comparison_is_shaded_in_one_scale(opened: Opener) -> None:
    names = ("ours", "theirs")
    comparison = attncli.diff(attention(), attention(causal=True), names=names)
    page = opened(html_of(comparison.trace(()), page=diff_page(comparison), stages=("weights",)))
    tables = page.locator("table.plain").all()[-3:]
    ground = [
        [table.locator(f"tr:nth-child(2) td:nth-child({at})").evaluate(GROUND) for at in (2, 3)]
        for table in tables
    ]
    assert len({colour.split()[-1] for colour in ground[0] + ground[1][:1]}) == 1  # one hue
    assert ground[1][0].startswith("oklch(0.545")  # a weight of 1
    assert ground[2][0].split()[-1] != ground[2][1].split()[-1]  # more, and less


BANK = "She visited the money bank, near the river bank"
WIDTHS = [390, 560, 600, 768, 900, 1024, 1280]
DIGITS = """all("[id$=weights] td:not(.sum, .corner), [id$=scaled] td:not(.sum, .corner)").filter(td => !/\\d|–/.test(td.textContent)).length"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["three", "words", "bank"])
def test_tables_keep_their_digits_and_names_stay_apart(
    opened: Opener, name: str, width: int
) -> None:
    """In as many lines as are needed, at the width of a phone, a tablet and a projector."""
    make: Any = {
        "three": lambda: THREE,
        "words": lambda: attncli.explain("I love AI", heads=2),
        "bank": lambda: attncli.explain(BANK, dim=4),
    }[name]
    page = opened(html_of(make()), viewport={"width": width, "height": 900})
    assert page.evaluate(DIGITS) == 0
    assert page.evaluate("scrollY") == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".shades").count() == 0
    names = page.locator("[id$=weights] th[scope=col]:not(.sum)").all_inner_texts()
    assert len({*names}) == len(names)
    if name == "bank":
        assert [text for text in names if re.search("5|10", text)] != []


@pytest.mark.parametrize("name", ["", "attention."])
def test_a_mask_that_is_switched_on_keeps_scores_weights_and_output_in_view(
    opened: Opener, name: str
) -> None:
    """Of two columns, and of the four that a head of a sentence has."""
    page = opened(html_of(attncli.explain("I love AI", heads=2) if name else THREE))
    page.locator("#causal").check()
    end = page.locator("#why").bounding_box()["y"]
    for stage in ("scores", "mask", "masked", "weights", "output"):
        box = page.locator(f"[id='at-{name}{stage}'] table").bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= end
        assert box["x"] + box["width"] <= 1280


def test_the_first_number_that_is_asked_for_is_not_behind_the_panel(opened: Opener) -> None:
    page = opened(html_of(THREE), viewport={"width": 390, "height": 845})
    page.locator("#bar summary").click()
    page.locator("#quiz").click()
    box = page.locator("input.ask").first.bounding_box()
    assert 0 <= box["y"] <= page.locator("#why").bounding_box()["y"] - box["height"]


def test_causal_on_a_mask_of_numbers_is_switched_on_and_off(opened: Opener) -> None:
    """And Ctrl+Z takes it back while the box has the focus."""
    bias = [[0.0, -1, -2], [-1, 0, -1], [-2, -1, 0]]
    page = opened(html_of(attention(mask=bias)))
    causal = page.locator("#causal")
    causal.click()
    assert causal.is_checked()
    check_all(page, attention(mask=bias, causal=True))
    causal.click()
    assert not causal.is_checked()
    check_all(page, attention(mask=bias))
    causal.click()
    page.keyboard.press("Control+z")
    assert not causal.is_checked()
    check_all(page, attention(mask=bias))


def test_wide_vectors_show_a_few_columns_and_stay_live(opened: Opener) -> None:
    trace = attncli.explain("I love AI", dim=100)
    page = opened(html_of(trace))
    assert page.evaluate("state.locked") == ""
    assert page.locator("[id='at-embeddings'] th[scope=col]").count() == 4
    assert "4 of 100 columns" in page.locator("[id='at-embeddings']").inner_text()
    type_into(page, "embeddings", 1, 1, "-1.5")
    vectors = trace["embeddings"].value.copy()
    vectors[0, 0] = -1.5
    check_all(
        page, attncli.explain("I love AI", vectors=vectors, positions="paper", projection="learned")
    )
    page.locator("[id='at-embeddings'] button").click()
    assert page.locator("[id='at-embeddings'] th[scope=col]").count() == 100


def test_what_is_changed_by_an_option_is_copied_as_one(opened: Opener) -> None:
    page = opened(html_of(of_call("explain 'I love AI' --heads 2 --dim 4")))
    assert page.evaluate("command()") == "attncli explain 'I love AI' --heads 2 --dim 4"
    page.locator("#causal").check()
    page.locator("#param-root").fill("4")
    page.keyboard.press("Tab")
    page.locator("#sentence input").nth(1).fill("hate")
    page.keyboard.press("Enter")
    expected = "attncli explain 'I hate AI' --heads 2 --dim 4 --scale 0.25 --causal"
    assert page.evaluate("command()") == expected
    agrees(page, of_call("explain 'I hate AI' --heads 2 --dim 4 --causal"), least=8)


def test_hidden_stages_are_not_in_the_text_of_the_page(opened: Opener) -> None:
    page = opened(html_of(THREE))
    for _ in range(2):
        page.get_by_label("one stage less").click()
    text = page.locator("body").inner_text()
    assert "1.4142" in text  # of Z
    for result in ("0.4011", "0.5035", "6.2762", "attends"):  # of A, A, O, and of the sentences
        assert result not in text
    page = opened(html_of(TRACES["attention"]()))
    for _ in range(9):
        page.get_by_label("one stage less").click()
    assert "cosine" not in page.locator("body").inner_text()
    assert not page.locator("#words").is_visible()


def test_the_digits_are_those_of_attncli(opened: Opener) -> None:
    """Of every stage in the page's tables, of halves too, and all of them in the panel."""
    for trace in (THREE, attention([[0.03125, 0.21875]]), TRACES["gradients"]()):
        page = opened(html_of(trace))
        for name in trace:
            cells = page.locator(f"[id='at-{name}'] td:not(.sum, .corner)").all_inner_texts()
            decimals = len(cells[0].partition(".")[2])
            values = trace[name].value.T.ravel() if name == "k" else trace[name].value.ravel()
            ours = [float(text.replace("−", "-")) for text in cells]
            assert ours == [float(f"{value:.{decimals}f}") for value in values.tolist()], name
    page = opened(html_of(THREE))
    cell(page, "weights", 3, 1).hover()
    assert repr(float(THREE["weights"].value[2, 0])) in why(page)


GROUND = "td => getComputedStyle(td).backgroundColor"


def test_noise_ids_and_masks_have_no_shade(opened: Opener) -> None:
    words = attncli.similarity(("a", "b", "c"), [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    page = opened(html_of(words))
    shade = "td => td.style.getPropertyValue('--x')"
    assert cell(page, "vectors", 1, 1).evaluate(shade) != ""
    assert cell(page, "lengths", 1, 1).evaluate(shade) == ""  # another kind of number
    page = opened(html_of(attention(causal=True)))
    assert cell(page, "mask", 1, 2).evaluate(shade) == ""
    assert cell(page, "mask", 3, 1).evaluate(shade) == ""
    for least, is_shaded in ((-0.5, True), (-1e9, False)):  # a bias; what is added as −∞ is
        page = opened(html_of(attention(mask=[[0, least, 0]] * 3)))
        assert (cell(page, "mask", 1, 2).evaluate(shade) != "") == is_shaded
    noise = attention([[1e-17, 0], [0, 1], [1, 1]], mask=CAUSAL)
    page = opened(html_of(noise))
    assert cell(page, "q", 1, 1).evaluate(shade) == "0.000"
    strong, none = (cell(page, "q", row, 1).evaluate(GROUND) for row in (3, 1))
    assert none.startswith("oklch(0.985 0 ")
    of_largest = 0.1**0.5  # 1 of 10, by its root
    assert float(strong.split()[0][6:]) == pytest.approx(0.985 - 0.44 * of_largest, abs=1e-3)


# ---- what if


def test_a_number_typed_dragged_and_taken_back(opened: Opener) -> None:
    page = opened(html_of(THREE))
    type_into(page, "q", 3, 1, "-2.5")
    q = [[1, 0], [0, 1], [-2.5, 1]]
    check_all(page, attention(q))
    assert page.locator("td.flash").count() > 5
    sentences = page.locator("#in-words li").all_inner_texts()  # of the numbers as they are now
    row = attention(q)["weights"].value[2]
    assert sentences[2].startswith("q3 attends to k3")
    assert f"({100 * row[2]:.1f} %)" in sentences[2]
    box = cell(page, "v", 1, 1).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y, steps=12)
    page.mouse.up()
    dragged = page.evaluate("byName.get('v').data[0]")
    assert dragged > 10
    check_all(page, attention(q, THREE["k"].value, [[dragged, 0], [0, 10], [5, 5]]))
    page.keyboard.press("Control+z")
    check_all(page, attention(q))
    assert page.locator("td.new").count() > 5
    page.keyboard.press("Control+z")
    check_all(page, THREE)
    assert page.locator("td.new, td.flash").count() == 0  # each number is as it came
    assert page.locator("td.new").count() == 0
    page.keyboard.press("Control+y")
    check_all(page, attention(q))
    page.locator("#reset").click()
    assert page.evaluate("stages.every(s => s.data.every((x, at) => x === s.original[at]))")


@pytest.mark.parametrize(("name", "convention"), [
    ("cap", {"softcap": 2.0}), ("cap after the mask", {"softcap": 2.0, "softcap_place": "after-mask"}),
    ("a number", {"mask_value": -3.0}), ("dropout", {"dropout": 0.3}), ("sinks", {"sinks": [0.5]}),
    ("gradients", {"d_output": [[1, 0], [0, 1], [1, 1]]}), ("not a number", {"empty_rows": "nan"}),
])  # fmt: skip
def test_a_mask_where_there_was_none(opened: Opener, name: str, convention: dict[str, Any]) -> None:
    page = opened(html_of(attention(**convention)))
    page.locator("#causal").check()
    check_all(page, attention(causal=True, **convention))
    assert "causal=True" in page.evaluate("command()")
    if name == "not a number":
        cell(page, "mask", 1, 1).click()
        check_all(page, attention(mask=[[-np.inf] * 3, *CAUSAL.tolist()[1:]], **convention))
    if name == "not a number":  # there is a mask by cell, too
        page.locator("#reset").click()
    else:
        page.locator("#causal").uncheck()
    check_all(page, attention(**convention))
    assert page.locator("#at-mask").count() == 0


def test_the_scale_and_other_words(opened: Opener) -> None:
    page = opened(html_of(THREE))
    page.locator("#param-root").fill("√8")
    page.keyboard.press("Tab")
    check_all(page, attention(scale=8**-0.5))
    for block in ("attention", "encoder"):
        convention: dict[str, Any] = {"heads": 2, "dim": 4, "block": block}
        page = opened(html_of(attncli.explain("I love AI", **convention)))
        page.locator("#sentence input").nth(1).fill("hate")
        page.keyboard.press("Enter")
        check_all(page, attncli.explain("I hate AI", **convention), least=12)
        assert page.locator("main th:visible", has_text="love").count() == 0
        page.locator("#undo").click()
        assert page.locator("main th:visible", has_text="hate").count() == 0


def test_gradients_and_meaning_are_said_again_after_a_change(opened: Opener) -> None:
    page = opened(html_of(of_call("compute --q samples/three-tokens.json --d-output random")))
    closing, now = page.locator(".closing"), page.locator("#in-words h2")
    titles = closing.locator("h2").all_inner_texts()
    type_into(page, "q", 3, 1, "-2.5")
    assert closing.locator("visible=true").count() == 0
    assert now.all_inner_texts() == titles == ["In words", "Gradients in words"]
    page.locator("#undo").click()
    assert closing.locator("visible=true").count() == len(titles)
    page = opened(html_of(of_call("explain 'the bank of the river' --dim 4 --positions none")))
    page.locator("#causal").click()
    text = page.locator("#in-words").inner_text()
    assert '"the" (1) and "the" (4): cosine 1 before, ' in text
    assert "no positions are added, but the mask makes each attend to other words" in text


def test_a_changed_word_has_its_name_in_all_tables_beside_padding(opened: Opener) -> None:
    page = opened(html_of(of_call("explain 'I love AI' --dim 4 --pad-to 5")))
    titles = page.locator(".closing h2").all_inner_texts()
    page.locator("#sentence input").nth(1).fill("hate")
    page.keyboard.press("Enter")
    rows = page.locator("#at-meaning\\.static th[scope=row]")
    assert rows.all_inner_texts() == ["I", "hate", "AI"]
    assert page.locator("main th:visible", has_text="love").count() == 0
    assert page.locator("#in-words h2").all_inner_texts() == titles


@pytest.mark.parametrize("scale", ["1/sqrt(d_k)", 0.3])
def test_the_temperature_is_a_slider(opened: Opener, scale: Any) -> None:
    page = opened(html_of(attention(scale=scale)))
    assert page.locator("#degrees").inner_text() == "1"
    slide = "s.value = 8; s.dispatchEvent(new Event('input', {bubbles: true}))"
    page.evaluate(f"(s => {{ {slide} }})(document.getElementById('scale'))")
    assert page.locator("#degrees").inner_text() == "2"
    check_all(page, attention(scale=scale, temperature=2.0))


REFUSED: dict[str, tuple[Any, list[str]]] = {  # what makes a page, and what its field refuses
    "root": (attention, ["0", "abc", "1e400", "", "1/0"]),
    "factor": (lambda: attention(scale=0.3), ["abc", "1e400"]),
    "cap": (lambda: attention(softcap=2.0), ["0", "-1", "abc", "1e400"]),
    "value": (lambda: attention(causal=True, mask_value=-5.0), ["abc", "1e400"]),
    "base": (lambda: attncli.posenc(4, 6), ["0", "0,5", "abc", "1e400"]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_field_says_beside_it_what_it_refuses_and_keeps_its_number(
    opened: Opener, name: str
) -> None:
    make, texts = REFUSED[name]
    page = opened(html_of(make()))
    field, message = page.locator(f"#param-{name}"), page.get_by_role("alert")
    before, kept = of_page(page), field.input_value()
    for text in texts:
        field.fill(text)
        page.keyboard.press("Enter")
        assert f'"{text}" is not a finite number' in message.inner_text()
        assert message.bounding_box()["y"] == pytest.approx(field.bounding_box()["y"], abs=40)
        assert field.input_value() == kept
    after = of_page(page)
    assert all(np.array_equal(after[k], x, equal_nan=True) for k, x in before.items())
    field.fill("3")
    page.keyboard.press("Enter")
    assert message.count() == 0
    assert field.input_value() == "3"


def test_cells_and_words_say_what_they_refuse(opened: Opener) -> None:
    page = opened(html_of(THREE))
    for text in ("abc", "1e400", "1/0"):
        type_into(page, "q", 3, 1, text)
        assert f'"{text}" is not a finite number' in page.get_by_role("alert").inner_text()
        assert page.evaluate("byName.get('q').data[4]") == 1
    type_into(page, "q", 3, 1, "2")
    assert page.get_by_role("alert").count() == 0
    given = attncli.explain("a b", vectors={"a": [1.0, 0.0], "b": [0.0, 1.0]})
    page = opened(html_of(given))
    page.locator("#sentence input").nth(1).fill("c")
    page.keyboard.press("Enter")
    assert '"c" is not a known word; b is kept' in page.get_by_role("alert").inner_text()


def test_a_vector_of_zeros_has_a_dash_and_why(opened: Opener) -> None:
    page = opened(html_of(attncli.similarity(("a", "b"), [[0.0, 0.0], [1.0, 2.0]])))
    for stage in ("cosines", "angles"):
        cells = page.locator(f"[id='at-{stage}'] td:not(.corner)").all_inner_texts()
        assert [x == "–" for x in cells] == [True, True, True, False]
    cell(page, "cosines", 1, 2).hover()
    assert "a vector of zeros has no direction" in why(page)
    assert "NaN" not in page.locator("body").inner_text()


def test_buttons_are_of_the_cell_that_the_panel_is_about(opened: Opener) -> None:
    """Also where none is chosen, and where it is of a table that is drawn."""
    page = opened(html_of(attention(numbers(500, 4), numbers(3, 4), numbers(3, 5))))
    page.keyboard.press("Escape")
    page.evaluate("light(cellAt(byName.get('q'), 0, 2, 2))")
    assert not page.locator("#change").is_visible()
    page.locator("#way").click()
    page.locator("#copy").select_option("csv")
    assert "q was copied" in page.locator("#live").inner_text()


def test_any_word_has_the_vector_that_attncli_draws(opened: Opener) -> None:
    convention: dict[str, Any] = {"dim": 5, "seed": 11}
    page = opened(html_of(trace_of("explain 'I love AI' --dim 5 --seed 11")))
    words = page.locator("#sentence input")
    for word in ("Fluß", "😀", "über"):
        words.nth(1).fill(word)
        page.keyboard.press("Enter")
        check_all(page, attncli.explain(["I", word, "AI"], **convention), least=8)
    agrees(page, attncli.explain(["I", "über", "AI"], **convention), least=8)
    words.nth(0).fill("<pad>")
    page.keyboard.press("Enter")
    assert words.nth(0).input_value() == "I"
    given = attncli.explain("a b", vectors={"a": [1.0, 0.0], "b": [0.0, 1.0]})
    page = opened(html_of(given))
    page.locator("#sentence input").nth(1).fill("a")
    page.keyboard.press("Enter")
    assert page.evaluate("[...byName.get('embeddings').data]") == [1, 0, 1, 0]
    page.locator("#sentence input").nth(1).fill("c")
    page.keyboard.press("Enter")
    assert page.locator("#sentence input").nth(1).input_value() == "a"


FORMS = {
    "NumPy": "np.array([[1, -np.inf], [0, 2.5]])",
    "csv": ',"k1","\'=1+1"\n"q""1",1,-Infinity\n"q2",0,2.5\n',
    "LaTeX": "\\begin{bmatrix}\n1.0 & -\\infty \\\\\n0.0 & 2.5\n\\end{bmatrix}",
}


def test_a_page_of_positions_begins_with_their_table(opened: Opener) -> None:
    page = opened(html_of(attncli.posenc(5, 8)))
    ids = page.locator("#main .view").evaluate_all("views => views.map(view => view.id)")
    assert ids[0] == "at-positions"
    assert ids.index("at-angles") > 0 < ids.index("at-divisors")
    assert why(page).startswith("PE")


def test_a_table_is_copied(opened: Opener) -> None:
    labels = {"query": ('q"1', "q2"), "key": ("k1", "=1+1")}
    page = opened(html_of(matrix([[1, -np.inf], [0, 2.5]], "masked", labels=labels)))
    page.evaluate("document.execCommand = () => { copied = document.activeElement.value; }")
    cell(page, "masked", 1, 1).click()
    for form, text in FORMS.items():
        page.locator("#copy").select_option(form)
        assert page.evaluate("copied") == text


# ---- learning


def test_one_query_is_followed(opened: Opener) -> None:
    page = opened(html_of(attention(causal=True)))
    page.locator("#walk").click()
    steps = []
    for _ in range(7):
        steps.append(page.locator("#sum-up").inner_text())
        page.keyboard.press("ArrowRight")
    assert len({*steps}) == 5  # S, Z, L, A, O
    page.keyboard.press("ArrowUp")
    assert "Query q1" in why(page)  # above the most concentrated of those that have a choice
    page.keyboard.press("Home")
    page.clock.install()
    page.locator("#walk-play").click()
    page.clock.run_for(3_000)
    assert "step 2 of 5" in why(page)
    page.clock.run_for(60_000)
    assert "step 5 of 5" in why(page)
    page.locator("#walk-back").focus()
    page.keyboard.press("Home")
    assert "step 1 of 5" in why(page)
    page.keyboard.press("Escape")
    assert page.locator("#walkbar").is_hidden()
    assert page.evaluate("document.activeElement.id") == "walk"


def fill(page: Any, values: dict[str, Any]) -> str:
    """Fills in what is asked for, and gives what is said of it."""
    for stage, numbers_of in values.items():
        inputs = page.locator(f"[id='at-{stage}'] input.ask")
        for at, x in enumerate(np.ravel(np.asarray(numbers_of, dtype=object))):
            inputs.nth(at).fill(x if isinstance(x, str) else f"{x:.4f}")
    page.locator("#check").click()
    return str(page.locator("#verdict").inner_text())


def test_the_quiz_names_the_slip_and_what_only_follows_from_it(opened: Opener) -> None:
    page = opened(html_of(THREE))
    right = {name: THREE[name].value for name in ("scores", "scaled", "weights", "output")}
    s, z, a, o = right.values()
    page.locator("#quiz").click()
    shown_text = page.locator("body").inner_text()
    assert "0.4011" not in shown_text
    assert "6.2762" not in shown_text
    assert "All 33 numbers are right" in fill(page, right)
    slip = s.copy()
    slip[2, 0] = 3
    carried = attention()["scaled"].value * 0 + slip / 2**0.5
    shares = np.exp(carried) / np.exp(carried).sum(axis=1, keepdims=True)
    columns = np.exp(z) / np.exp(z).sum(axis=0)
    for values, expected in [
        ({"scores": slip, "scaled": carried, "weights": shares, "output": shares @ THREE["v"].value}, "One mistake, S[q3,k1]"),
        ({**right, "scaled": s}, "not divided by √d_k"), ({**right, "scaled": s / 2}, "divided by d_k"),
        ({**right, "weights": z / z.sum(axis=1, keepdims=True)}, "no exp"),
        ({**right, "weights": columns}, "over columns"), ({**right, "weights": np.exp(z)}, "not divided by the sum"),
        ({**right, "weights": np.exp(z - z.max(axis=1, keepdims=True))}, "not divided by the sum"),
        ({**right, "output": [[a[0, 0] * 10, 5], o[1], o[2]]}, "is left out"),
        ({**right, "output": [o[0], o[1], [-o[2, 0], o[2, 1]]]}, "sign is wrong"),
        ({**right, "weights": [f"{x:.2f}" for x in a.ravel()]}, "All 33"),
        ({**right, "weights": [f"{x:.1f}" for x in a.ravel()]}, "truncated, not rounded, after 1 decimal"),
    ]:  # fmt: skip
        assert expected in fill(page, values)
    page.locator("#hint").click()
    assert "step weights" in page.locator("#verdict").inner_text()
    assert page.evaluate("document.activeElement.className") == "ask"  # where it is typed
    page.locator("#end").click()
    assert page.locator("input.ask").count() == 33  # it asks first
    page.locator("#end").click()
    assert page.locator("input.ask").count() == 0


def test_the_answers_of_a_worksheet_stay_over_a_reload_and_are_what_by_hand_reads(
    opened: Opener, tmp_path: Path
) -> None:
    page = opened(attncli.render(THREE, "html", blank=True))
    inputs = page.locator("[id='at-scores'] input.ask")
    for at, text in enumerate(("1", "1", "0", "3")):
        inputs.nth(at).fill(text)
    page.reload()
    page.locator("html[data-ready]").wait_for(state="attached")
    assert page.locator("[id='at-scores'] input.ask").nth(3).input_value() == "3"
    sheet = page.evaluate("sheetNow()")
    assert sheet["scores"] == [["1", "1", "0"], ["3", None, None], [None, None, None]]
    assert sheet["output"] == [[None, None]] * 3
    (tmp_path / "sheet.json").write_text(json.dumps(sheet), encoding="utf-8")
    words = [sys.executable, "-m", "attncli", "check", str(tmp_path / "sheet.json"), "--by-hand"]
    marks = subprocess.run(words, capture_output=True, text=True, check=False)
    assert marks.stdout.startswith("one mistake: S[q2,k1] is 3, should be 1")
    page.evaluate("answers.clear()")
    assert page.evaluate(f"fillFrom({json.dumps(sheet)})")
    assert page.evaluate("answers.size") == 4


def test_a_worksheet_is_filled_in_on_the_screen(opened: Opener) -> None:
    """The answers are in no text or data of the page; --blank STAGE leaves out that stage alone."""
    page = opened(attncli.render(THREE, "html", blank=True))
    assert "0.4011" not in page.content()
    right = {name: THREE[name].value for name in ("scores", "scaled", "weights", "output")}
    assert "All 33 numbers are right" in fill(page, right)
    page = opened(attncli.render(THREE, "html", blank="output"))
    assert "All 6 numbers are right" in fill(page, {"output": right["output"]})
    page.emulate_media(media="print")
    assert page.locator("input.ask").first.is_visible()
    assert not page.locator("#check").is_visible()


def blank_of(n: int) -> Trace:
    return attncli.attend(*np.random.default_rng(n).integers(-2, 3, size=(3, n, 2)).astype(float))


@pytest.mark.parametrize(("n", "blank", "options", "fields"), [
    (7, True, {}, 3 * 49 + 14), (45, True, {}, 3 * 45 + 90), (110, True, {}, 3 * 110 + 220),
    (110, ["weights"], {}, 1600), (5, True, {"rows": (0, 2)}, 3 * 10 + 4), (5, True, {"stages": ("weights",)}, 25),
])  # fmt: skip
def test_a_worksheet_of_any_size_starts_and_is_checked_where_all_is_there(
    opened: Opener, n: int, blank: Any, options: dict[str, Any], fields: int
) -> None:
    """Of a table that is too large to be written whole, the row of one query is asked for."""
    trace = blank_of(n)
    sheet = without_numbers(trace, [] if blank is True else blank)
    page = opened(html_of(sheet, **options))
    assert page.locator("input.ask").count() == fields
    is_checked = not options and blank is True
    assert page.locator("#check").is_visible() == is_checked
    assert page.get_by_text("They are not checked here").is_visible() == (not is_checked)
    page.locator("input.ask").first.press("Enter")
    if is_checked:
        shown_rows = slice(None) if n < 40 else slice(0, 1)
        right = {x: trace[x].value[shown_rows] for x in ("scores", "scaled", "weights")}
        right["output"] = trace["output"].value
        assert f"All {fields} numbers are right" in fill(page, right)


def test_a_worksheet_opens_at_the_query_that_is_asked_for(opened: Opener) -> None:
    page = opened(html_of(without_numbers(blank_of(60), []), cell=("q50", "k3")))
    assert why(page).startswith("Aq50, k3")
    assert page.locator("#at-weights th[scope=row]").all_inner_texts() == ["q50"]


def test_the_quiz_of_a_wide_output_is_checked(opened: Opener) -> None:
    """A table that would be drawn has a row to fill in while it is asked for."""
    page = opened(html_of(attention(numbers(20, 2), numbers(20, 2), numbers(20, 90))))
    page.locator("#quiz").click()
    page.locator("#check").click()
    assert "still open" in page.locator("#verdict").inner_text()


def test_heads_are_compared_and_chosen(opened: Opener) -> None:
    trace = TRACES["encoder"]()
    page = opened(html_of(trace))
    assert page.locator(".mini").count() == 4
    page.get_by_label("layer 2, head 2", exact=True).click()
    assert float(cell(page, "encoder.2.attention.weights", 3, 1).inner_text()) == pytest.approx(
        trace["encoder.2.attention.weights"].value[1, 2, 0], abs=5e-3
    )
    page.get_by_label("compare").check()
    page.get_by_label("layer 1, head 1", exact=True).click()
    assert page.locator(".graph").count() == 2


# ---- every reader: keyboard, paper, no script, notebook, strangers' labels


def test_the_keyboard_reaches_and_changes_everything(opened: Opener) -> None:
    page = opened(html_of(THREE))
    wanted = {"walk", "quiz", "step", "param-root", "causal", "mask", "command", "json"}
    wanted |= {"at-q", "at-scores", "at-weights", "at-output"}
    place = "(document.activeElement.closest('figure') ?? document.activeElement).id"
    reached: set[str] = set()
    for _ in range(45):
        if not wanted <= reached:  # in Firefox more of them leave the page
            page.keyboard.press("Tab")
            reached.add(page.evaluate(place))
    assert wanted <= reached
    page.locator("#at-q td[tabindex='0']").focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert why(page).startswith("Qq2, 2")
    page.keyboard.type("7")
    page.keyboard.press("Enter")
    assert page.evaluate("byName.get('q').data[3]") == 7
    page.keyboard.press("PageUp")
    assert page.evaluate("byName.get('q').data[3]") == 7.1
    page.keyboard.press("Escape")
    assert page.locator("#why").is_hidden()
    page.locator("#causal").focus()
    page.keyboard.press("Space")
    assert page.evaluate("document.activeElement.id") == "causal"
    assert page.locator("#at-mask").count() == 1


def test_on_paper_without_scripts_and_in_a_notebook(opened: Opener) -> None:
    page = opened(html_of(THREE))
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.locator("#bar").is_visible()
    assert not page.locator("#why").is_visible()
    assert page.pdf()[:5] == b"%PDF-"
    page = opened(html_of(THREE), ready=False, java_script_enabled=False)
    assert page.locator("main table").count() == 7
    assert "6.2762" in page.locator("main").inner_text()
    page = opened(f"<!doctype html><title>n</title>{THREE._repr_html_()}", ready=False)
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready]").wait_for(state="attached")
    assert "0.5035" in frame.locator("#why").inner_text()
    assert 500 < page.evaluate("document.querySelector('iframe').clientHeight") < 900


def test_an_encoder_of_two_layers_is_printed(opened: Opener) -> None:
    page = opened(html_of(TRACES["encoder"]()))
    page.emulate_media(media="print")
    assert page.pdf()[:5] == b"%PDF-"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    widths = "views.filter(view => !parseFloat(view.box.style.getPropertyValue('--cell'))).length"
    assert page.evaluate(widths) == 0


WIDE = "[...document.querySelectorAll('.line')].filter(line => line.scrollWidth > line.clientWidth + 1).length"


def test_paper_and_a_narrow_screen_have_every_number_and_every_formula(opened: Opener) -> None:
    """All of a line is on the paper, no blank is but a shade, and a long formula is no wider than its table."""
    trace = attncli.explain("the old bank near the river " * 3, heads=2, dim=8)
    page = opened(html_of(trace))
    assert page.locator(".shades td").count() > 0
    for kind, has_shades in (("beforeprint", False), ("afterprint", True)):
        page.evaluate(f"dispatchEvent(new Event('{kind}'))")
        assert (page.locator(".shades td").count() > 0) == has_shades
        assert page.evaluate(WIDE) == 0
    page = opened(attncli.render(THREE, "html", blank=True), viewport={"width": 768, "height": 900})
    assert page.locator("input.ask").count() == 33
    long = attncli.attend(*numbers(3, 3, 2), formulas="entmax")
    for width in (1280, 320):
        page = opened(html_of(long), viewport={"width": width, "height": 844})
        widths = "all('.formula').map(formula => formula.offsetWidth - formula.closest('figure').querySelector('table').offsetWidth)"
        assert max(page.evaluate(widths)) < 200
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page = opened(html_of(attncli.posenc(6, 4)))
    assert page.evaluate("all('th').filter(th => th.scrollWidth > th.clientWidth).length") == 0


BEYOND = """[...document.querySelectorAll("main table")].filter(e => e.getBoundingClientRect().right > 719).length"""


def test_a_table_wider_than_a_sheet_is_printed_in_bands_of_columns(opened: Opener) -> None:
    paper = {"viewport": {"width": 718, "height": 1047}}  # A4 between margins of 10 mm
    trace = attention(numbers(3, 2), numbers(100, 2, seed=1), numbers(100, 2, seed=2))
    page = opened(html_of(trace), **paper)
    page.emulate_media(media="print")
    assert page.evaluate(BEYOND) > 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(BEYOND) == 0
    bands = page.locator("#at-weights table")
    assert bands.count() > 5
    texts = [text.split() for text in bands.all_inner_texts()]
    assert [x for words in texts for x in words if x[0] in "kΣ"] == [*(f"k{n}" for n in range(1, 101)), "Σ"]  # fmt: skip
    assert all({"q1", "q2", "q3"} <= {*words} for words in texts)
    ours = [float(x) for words in texts for x in words if x[0] == "0"]
    assert sum(ours) == pytest.approx(3, abs=300 * 0.005)  # two decimals of each weight
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#at-weights table").count() == 1
    trace = attention(numbers(3, 2), numbers(30, 2, seed=1), numbers(30, 2, seed=2))
    page = opened(html_of(trace), ready=False, java_script_enabled=False, **paper)
    page.emulate_media(media="print")
    assert page.evaluate(BEYOND) == 0
    assert page.locator("main th[scope=col]", has_text="k30").count() > 0


BAD = (
    "</script><script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "<svg onload=alert(3)>",
)  # fmt: skip


def test_labels_are_inert_wherever_they_stand(opened: Opener) -> None:
    names = (*BAD, *LABELS.values())
    labels = {"query": names, "key": names, "head": BAD[:2]}
    rng = np.random.default_rng(1)
    q, k, v = rng.normal(size=(3, 2, len(names), 3))
    base = attention(q, k, v, labels=labels, notes=names)
    inner = Trace(BAD[1], base.steps, base.convention, name="inner")
    trace = Trace(BAD[0], (*base.steps, inner), base.convention, notes=names)
    for options in ({"full": True}, {"cell": ("1", "2")}, {"rows": (0, 9), "cols": (0, 9)}):
        page = opened(html_of(trace, **options))
        for td in page.locator("td:visible").all()[:40:7]:
            td.hover(force=True)
        foreign = "img, main script, iframe, [onload], [onerror]"
        assert page.evaluate(f"document.querySelectorAll('{foreign}').length") == 0
        assert page.evaluate("document.scripts.length") == 2  # one of data, one that runs


def test_no_other_script_runs(opened: Opener) -> None:
    """The policy itself: a script that would have got into the page does nothing."""
    text = html_of(THREE).replace("</main>", "<script>document.title = 'ran'</script></main>")
    assert opened(text).title() != "ran"
    (complaint,) = opened.complaints
    assert re.search("Content.Security.Policy", complaint)
    opened.complaints.clear()


VIEWS = [(1280, "light"), (1280, "dark"), (768, "light"), (390, "dark"), (320, "light")]
SEEN = {
    **{name: TRACES[name] for name in ("three", "gradients", "attention", "encoder")},
    "posenc": lambda: attncli.posenc(7, 4), "tiles": every_kind()["tiles"],
    "many": lambda: attncli.attend(*np.random.default_rng(7).normal(size=(3, 3, 5, 70, 4))),
}  # fmt: skip


@pytest.mark.parametrize(("name", "view"), in_turn(SEEN, VIEWS))
def test_axe_has_no_complaint_and_nothing_scrolls_sideways(
    opened: Opener, name: str, view: tuple[int, str]
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="attncli[browser]")
    width, scheme = view
    size = {"width": width, "height": 844}
    page = opened(html_of(SEEN[name]()), viewport=size, color_scheme=scheme, bypass_csp=True)

    def complaints() -> list[Any]:
        return [x["id"] for x in axe.Axe().run(page).response["violations"]]

    assert complaints() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for button in ("#walk", "#quiz"):
        if page.locator(button).is_visible():
            page.locator(button).click()
            assert complaints() == []
            page.keyboard.press("Escape")


# ---- large traces


@pytest.mark.parametrize(("n", "most"), [(24, 320_000), (64, 2_000_000)])
def test_the_size_of_twelve_layers_of_twelve_heads(opened: Opener, n: int, most: int) -> None:
    q, k, v = np.random.default_rng(5).normal(size=(3, 12, 12, n, 64))
    text = html_of(attncli.attend(q, k, v, causal=n == 24))
    assert len(text.encode()) <= most
    page = opened(text)
    assert "(--full shows all)" in page.locator("body").inner_text()
    assert page.locator(".mini").count() == 144
    if n == 24:  # of the first head all numbers are there
        cell(page, "output", 2, 1).hover()
        assert "row q2 of A times column 1 of V" in why(page)
    page.get_by_label("batch entry 5, head 7", exact=True).click()
    assert page.locator(".graph figcaption").inner_text() == "batch entry 5, head 7"
