"""A worksheet: what was computed is gone from every part of the page, in every format."""

from __future__ import annotations

import re
import zlib
from base64 import b64decode
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.errors import ConventionError, StageError
from attncli.trace import Stage, Trace
from attncli.views.blank import without_numbers
from attncli.views.explain import explain_page
from attncli.views.formats import FORMATS
from attncli.views.page import parts
from attncli.views.select import BlankStage, DisplayOptions
from attncli.words.similarity import analogy, pca

from .traces import CAUSAL, NEVER, attention, numbers

FORMS = [name for name, form in FORMATS.items() if form.blanks]
DECIMAL = re.compile(r"\d+\.\d{3,}")
VECTORS = (numbers(4, 3) / 3).tolist()
LABELS = {"query": ("the", "old", "bank"), "key": ("the", "old", "bank")}


def heads() -> Trace:
    mask = np.array([[0, NEVER, NEVER], [0, 0, NEVER], [0, 0, 0]])
    return attention(numbers(2, 3, 4), numbers(2, 3, 4, seed=8), numbers(2, 3, 3, seed=9), mask)


def steps() -> Trace:
    q, k, v = numbers(3, 4), numbers(3, 4, seed=8), numbers(3, 4, seed=9)
    return attncli.attend(q, k, v, softcap=2.0, dropout=0.3, seed=1, causal=True)


TRACES: dict[str, Callable[[], Trace]] = {
    "attention": lambda: attention(numbers(3, 2), numbers(3, 2, seed=8), numbers(3, 2), CAUSAL),
    "over queries": lambda: attention(
        numbers(3, 2), numbers(3, 2, seed=8), numbers(3, 2), convention=attncli.Convention(softmax_over="queries")
    ),
    "heads": heads,
    "steps": steps,
    "explain": lambda: attncli.explain("The bank near the bank", dim=4),
    "encoder": lambda: attncli.explain("The old bank", dim=4, heads=2, block="encoder"),
    "decoder": lambda: attncli.explain("The bank", target="La banque", dim=4, block="decoder"),
    "posenc": lambda: attncli.posenc(4, 6),
    "article": lambda: attncli.posenc(4, 6, exponent="article"),
    "rope": lambda: attncli.posenc(4, 6, kind="rope"),
    "alibi": lambda: attncli.posenc(4, kind="alibi", heads=3),
    "similarity": lambda: attncli.similarity(("a", "b", "c", "d"), VECTORS),
    "pca": lambda: pca(("a", "b", "c", "d"), VECTORS),
    "analogy": lambda: analogy(("a", "b", "c"), VECTORS[:3]),
}  # fmt: skip
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"work": True},
    {"work": True, "full": True},
    {"heatmap": True},
    {"cell": ("2", "1")},
)


def written(trace: Trace, form: str, options: dict[str, Any]) -> str:
    module: Any = import_module(f"attncli.views.formats.{form}")
    page = explain_page if any(name.endswith("tokens") for name in trace) else parts
    text = "".join(module.text(trace, DisplayOptions(**options), page))
    return text if form != "html" else opened(text)


def opened(page: str) -> str:
    """A page of html without its style and script, and what is packed in it as text."""
    packed = dict(re.findall(r'<script type="[^"]*" id="(\w+)">([^<]*)', page))
    unpacked = {name: zlib.decompress(b64decode(data)) for name, data in packed.items()}
    planes = np.frombuffer(unpacked["numbers"], np.uint8).reshape(4, -1)
    numbers = np.ascontiguousarray(planes.T).view("<f4").ravel().astype(float)
    found = " ".join(f"{x:.4f}" for x in np.abs(numbers[np.isfinite(numbers)]))
    text = re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    return f"{text} {unpacked['meta'].decode()} {found}"


def decimals_of(stage: Stage) -> set[str]:
    """The numbers of a stage as a page may round them."""
    values = np.abs(stage.value[np.isfinite(stage.value)].astype(float)).tolist()
    return {f"{x:.{decimals}f}" for x in values for decimals in range(3, 8)}


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("form", FORMS)
def test_every_number_of_a_worksheet_is_given(form: str, options: Any, name: str) -> None:
    trace = TRACES[name]()
    sheet = without_numbers(trace, ())
    if options.get("cell") and not any(
        stage.work in ("softmax", "wave") for _, stage in trace.stages()
    ):
        pytest.skip("nothing to derive")
    text = written(sheet, form, options)
    given = [stage for _, stage in sheet.stages() if not isinstance(stage, BlankStage)]
    allowed: set[str] = set().union(*map(decimals_of, given))
    for _, stage in trace.stages():
        labels = [label for axis in stage.labels for label in stage.labels[axis]]
        allowed.update(DECIMAL.findall(" ".join([stage.formula, *labels])))
    assert set(DECIMAL.findall(re.sub(r"rule\{.*?\}|#[0-9a-f]{6}", "", text))) <= allowed
    assert set(DECIMAL.findall(written(trace, form, options))) - allowed  # the key has others
    assert "%" not in re.sub(r"<style>.*?</style>|\\?% needs", "", text, flags=re.DOTALL)  # a share
    assert not re.search(r"\bnan\b", text, re.IGNORECASE)


@pytest.mark.parametrize("name", TRACES)
def test_the_numbers_are_not_in_the_parts(name: str) -> None:
    trace = without_numbers(TRACES[name](), ())
    for own, stage in trace.stages():
        if isinstance(stage, BlankStage):
            assert not np.isfinite(stage.value).any(), own
    assert not isinstance(trace.steps[0], BlankStage) or name in (
        "posenc",
        "article",
        "rope",
        "alibi",
    )


def test_what_was_given_is_on_the_sheet() -> None:
    text = written(without_numbers(attention(), ()), "table", {})
    assert "q1       1       0" in text
    assert "k2       0      10" in text
    encoder = attncli.explain("The bank", dim=4, block="encoder")
    page = written(without_numbers(encoder, ()), "table", {})
    assert all(f"\n{name} " in page for name in ("w_q", "w_o", "gamma", "w_1", "b_2"))
    assert "\nw_q " not in written(encoder, "table", {})


def test_one_stage_is_blank_and_others_tell_nothing_of_it() -> None:
    trace = attention(numbers(3, 2), numbers(3, 2, seed=8), numbers(3, 2, seed=9))
    text = written(without_numbers(trace, ["weights"]), "table", {"work": True})
    assert not decimals_of(trace["weights"]) & set(DECIMAL.findall(text))
    assert decimals_of(trace["output"]) & set(DECIMAL.findall(text))
    # The values are given, so they stand beside the room for the weights.
    assert re.search(r"O\[q1,1\] = ____·\(?-?[\d.]+\)? \+ ____·", text)
    assert re.search(r"A\[q1,k1\] = exp\(____\) / \(exp\(____\) \+ ", text)
    assert "attends to" not in text
    assert "Σ" in text  # of the softmax as a table, where there is room for it
    assert "sums to 1" in text


def test_what_a_mask_says_stays() -> None:
    text = written(without_numbers(attention(mask=CAUSAL), ()), "table", {"stages": ("masked",)})
    assert [line.split() for line in text.splitlines() if line.startswith("  q")] == [
        ["q1", "____", "///", "///"],
        ["q2", "____", "____", "///"],
        ["q3", "____", "____", "____"],
    ]


def test_the_form_of_the_arithmetic_stays() -> None:
    text = written(
        without_numbers(attention(labels=LABELS), ()), "table", {"cell": ("old", "bank")}
    )
    assert "S[old,bank] = ____·____ + ____·____" in text
    assert "Z[old,bank] = S[old,bank] / √d_k" in text
    assert "= ____ / (____ + ____ + ____)" in text
    assert "A[old,bank] · V[bank] = ____ · [____, ____]" in text


def test_a_negative_number_leaves_no_parentheses() -> None:
    trace = without_numbers(attention([[-1.0, -2.0]], [[-3.0, -4.0]], [[-1.0]]), ())
    assert "S[q1,k1] = ____·____ + ____·____ = ____\n" in written(trace, "table", {"work": True})


def test_how_each_format_draws_it() -> None:
    trace = without_numbers(attention(), ["weights"])
    options = {"stages": ("weights",)}
    assert "<td class=blank>____<td" in written(trace, "html", options)
    assert "| **q1** | \\___\\_ |" in written(trace, "markdown", options)
    assert r"\text{q1} & \rule{0pt}{1.8em}\rule{3em}{0.4pt} &" in written(trace, "latex", options)
    assert "  q1    ____    ____    ____\n" in written(trace, "table", options)


def test_numbers_that_are_not_numbers_stay_where_nothing_is_left_out() -> None:
    trace = attention([[np.nan, 1.0]], [[1.0, 1.0]], [[1.0]])
    assert "S[q1,k1] = NaN·1 + 1·1 = NaN" in written(trace, "table", {"work": True})


def test_notes_and_findings_are_left_out_where_numbers_are() -> None:
    trace = attncli.explain("The old bank", dim=4)
    assert "cosine -0." in written(trace, "table", {})
    assert "cosine " not in written(without_numbers(trace, ()), "table", {})
    some = written(without_numbers(trace, ["attention.weights"]), "table", {})
    assert "cosine " in some
    assert "attends to" not in some


def test_an_unknown_stage_is_refused() -> None:
    with pytest.raises(StageError, match="there is no stage 'wieghts'; did you mean weights"):
        without_numbers(attention(), ["wieghts"])


def test_render() -> None:
    trace = attention()
    assert attncli.render(trace, blank=True) == written(without_numbers(trace, ()), "table", {})
    assert attncli.render(trace, "latex", blank="weights") == (
        written(without_numbers(trace, ["weights"]), "latex", {})
    )
    assert attncli.render(trace, blank=["weights"]) == attncli.render(trace, blank="weights")
    with pytest.raises(ConventionError, match="no numbers can be left out of json"):
        attncli.render(trace, "json", blank=True)


def test_a_format_either_has_blanks_or_is_no_page() -> None:
    assert FORMS == ["table", "markdown", "html", "latex"]
