"""A worksheet: what was computed is gone from every part of the page, in every format."""

from __future__ import annotations

import re
import zlib
from base64 import b64decode
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.errors import ConventionError, StageError
from attncli.trace import Stage, Trace
from attncli.views.blank import without_numbers
from tests.turns import in_turn

from .traces import CAUSAL, attention, causal, every_kind, numbers

FORMS = ["table", "markdown", "html", "latex"]
DECIMAL = re.compile(r"\d+\.\d{3,}")
KINDS = every_kind()
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {}, "work": {"work": True}, "all": {"work": True, "full": True},
    "heatmap": {"heatmap": True}, "cell": {"cell": ("2", "1")},
}  # fmt: skip
CASES = [(kind, form) for kind in KINDS for form in FORMS]


def opened(page: str) -> str:
    """A page of html without its style and script, and what is packed in it as text."""
    packed = dict(re.findall(r'<script type="[^"]*" id="(\w+)">([^<]*)', page))
    unpacked = {name: zlib.decompress(b64decode(data)) for name, data in packed.items()}
    planes = np.frombuffer(unpacked["numbers"], np.uint8).reshape(4, -1)
    values = np.ascontiguousarray(planes.T).view("<f4").ravel().astype(float)
    finite = " ".join(f"{x:.4f}" for x in np.abs(values[np.isfinite(values)]))
    text = re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    return f"{text} {unpacked['meta'].decode()} {finite}"


def decimals_of(stage: Stage) -> set[str]:
    """The numbers of a stage as a page may round them."""
    if stage.value.dtype.kind not in "iuf":
        return set()
    values = np.abs(stage.value[np.isfinite(stage.value)].astype(float)).tolist()
    return {f"{x:.{decimals}f}" for x in values for decimals in range(3, 8)}


def sheet(trace: Trace, form: Any = "table", blank: Any = True, **options: Any) -> str:
    return attncli.render(trace, form, blank=blank, **options)


@pytest.mark.parametrize(("case", "option"), in_turn(CASES, OPTIONS, name="-".join))
def test_no_number_of_a_worksheet_is_a_computed_one(case: tuple[str, Any], option: str) -> None:
    form, trace, options = case[1], KINDS[case[0]](), OPTIONS[option]
    if options.get("cell") and not {"softmax", "wave"} & {
        stage.work for _, stage in trace.stages()
    }:
        pytest.skip("nothing to derive")
    texts = [sheet(trace, form, **options), attncli.render(trace, form, **options)]
    blank, key = (opened(text) if form == "html" else text for text in texts)
    allowed: set[str] = set()
    for _, stage in without_numbers(trace, ()).stages():
        if stage.value.dtype.kind != "f" or not np.isnan(stage.value).all():
            allowed |= decimals_of(stage)
    for _, stage in trace.stages():
        labels = [label for axis in stage.labels for label in stage.labels[axis]]
        allowed.update(DECIMAL.findall(" ".join([stage.formula, *labels])))
    assert {*DECIMAL.findall(re.sub(r"rule\{.*?\}|#[0-9a-f]{6}", "", blank))} <= allowed
    assert {*DECIMAL.findall(key)} - allowed  # the key has others
    assert "%" not in re.sub(r"<style>.*?</style>|\\?% needs", "", blank, flags=re.DOTALL)
    assert not re.search(r"\bnan\b", blank, re.IGNORECASE)


@pytest.mark.parametrize(
    ("trace", "options", "parts"),
    [  # what the sheet has
        (attention(), {}, ["  q1       1       0\n"]),  # what is given, and weights:
        (attncli.explain("The bank", dim=4, block="encoder"), {}, ["\nw_q ", "\nw_o ", "\ngamma ", "\nw_1 ", "\nb_2 "]),
        (attention(mask=CAUSAL), {"stages": "masked"}, ["q1    ____     ///     ///", "q2    ____    ____     ///", "q3    ____    ____    ____"]),
        (causal(), {"cell": ("cat", "The")}, [
            "S[cat,The] = ____·____ + ____·____", "Z[cat,The] = S[cat,The] / √d_k", "= ____ / (____ + ____",
            "A[cat,The] · V[The] = ____ · [____, ____]"]),
        (attention([[-1.0, -2.0]], [[-3.0, -4.0]], [[-1.0]]), {"work": True}, ["S[q1,k1] = ____·____ + ____·____ = ____\n"]),
        (attention(), {"form": "html", "blank": "weights"}, ["<td class=blank>____<td"]),
        (attention(), {"form": "markdown", "blank": "weights"}, ["| **q1** | \\___\\_ |"]),
        (attention(), {"form": "latex", "blank": "weights"}, [r"\text{q1} & \rule{0pt}{1.8em}\rule{3em}{0.4pt} &"]),
        (attention(), {"blank": "weights"}, ["  q1    ____    ____    ____\n"]),
    ],
)  # fmt: skip
def test_what_stays(trace: Trace, options: Any, parts: list[str]) -> None:
    assert [part for part in parts if part not in sheet(trace, **options)] == []
    if "w_q" in parts[0]:
        assert "\nw_q " not in attncli.render(trace)


def test_one_stage_is_blank_and_others_tell_nothing_of_it() -> None:
    trace = attention(numbers(3, 2), numbers(3, 2, seed=8), numbers(3, 2, seed=9))
    text = sheet(trace, blank=["weights"], work=True)
    assert not decimals_of(trace["weights"]) & {*DECIMAL.findall(text)}
    assert decimals_of(trace["output"]) & {*DECIMAL.findall(text)}
    # The values are given, so they stand beside the room for the weights.
    assert re.search(r"O\[q1,1\] = ____·\(?-?[\d.]+\)? \+ ____·", text)
    assert re.search(r"A\[q1,k1\] = exp\(____\) / \(exp\(____\) \+ ", text)
    assert "attends to" not in text
    assert "Σ" in text  # of the softmax as a table, where there is room for it
    nan = attention([[np.nan, 1.0]], [[1.0, 1.0]], [[1.0]])
    assert "S[q1,k1] = NaN·1 + 1·1 = NaN" in attncli.render(nan, work=True)


def test_notes_are_left_out_where_numbers_are_and_what_cannot_be_blank_is_refused() -> None:
    trace = attncli.explain("The old bank", dim=4)
    assert "cosine -0." in attncli.render(trace)
    assert "cosine " not in sheet(trace)
    some = sheet(trace, blank="attention.weights")
    assert ["cosine " in some, "attends to" in some] == [True, False]
    with pytest.raises(StageError, match="did you mean weights"):
        sheet(attention(), blank="wieghts")
    for form in ("json", "csv", "tsv", "mermaid", "svg"):
        with pytest.raises(ConventionError, match=form):
            sheet(attention(), form)
