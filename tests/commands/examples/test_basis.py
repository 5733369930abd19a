"""Where the expected numbers come from: what is called printed stands in the document."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from attncli.commands.examples.article import html, markdown
from attncli.commands.examples.judge import judge
from attncli.commands.examples.page import (
    result_lines,
    verification_data,
    verification_lines,
)
from attncli.commands.examples.schema import Example, load_catalog
from attncli.errors import InputError
from tests.commands.examples.made import CATALOG, example, judged

DOCUMENTS = Path(os.environ.get("ATTNCLI_DOCUMENTS", ""))
EXAMPLES = {example.name: example for example in load_catalog()}
SIGNS = {"−": "-", "\\sqrt{2}": "√2", "\\cos": "cos", "\\sin": "sin"}
NUMBER = re.compile(r"(?:sin|cos)\([\d.]+\)|\d+/√\d+|-?\d+(?:\.\d+)?")
# Numbers that the document has at several places, not beside each other.
APART = {"PE(0, 2i) and PE(0, 2i+1)", "shape of WQ", "shape of WK", "shape of WV"}


def numbers_of(text: str) -> list[str]:
    """The numbers of a document in their order, each as it is written."""
    for sign, plain in SIGNS.items():
        text = text.replace(sign, plain)
    text = re.sub(r"\\frac\{(\d)\}\{(√?\d)\}", r"\1/\2", text)
    inner = re.findall(r"(?:sin|cos)\(([\d.]+)\)", text)
    return NUMBER.findall(text) + inner


def rows_of(printed: Any) -> list[list[str]]:
    """The innermost rows of printed numbers."""
    if isinstance(printed, str):
        return [[printed]]
    if all(isinstance(x, str) for x in printed):
        return [printed]
    return [row for part in printed for row in rows_of(part)]


ARTICLES = ["000", "001", "002", "003", "004"]


@pytest.mark.skipif(
    "ATTNCLI_DOCUMENTS" not in os.environ, reason="needs ATTNCLI_DOCUMENTS=FOLDER of the documents"
)
@pytest.mark.parametrize("document", ARTICLES)
def test_what_is_printed_stands_in_the_document(document: str) -> None:
    (path,) = DOCUMENTS.glob(f"{document}_*.txt")
    found = numbers_of(path.read_text("utf-8"))
    missing = []
    for one in EXAMPLES.values():
        for claim in one.claims if one.article.id == document else ():
            for row in rows_of(claim.printed.text) if claim.printed else ():
                parts = [[x] for x in row] if claim.text in APART else [row]
                stands = [
                    any(found[at : at + len(x)] == x for at in range(len(found))) for x in parts
                ]
                missing += [] if all(stands) else [(one.name, claim.text, row)]
    assert missing == []


@pytest.mark.skipif("ATTNCLI_DOCUMENTS" not in os.environ, reason="needs ATTNCLI_DOCUMENTS=FOLDER")
@pytest.mark.parametrize("document", ARTICLES)
def test_the_place_of_a_number_is_where_it_stands(document: str) -> None:
    """Headings of the document, the outer one first; the number comes after the last of them."""
    (path,) = DOCUMENTS.glob(f"{document}_*.txt")
    text, starts = path.read_text("utf-8"), []
    for one in EXAMPLES.values():
        for claim in one.claims if one.article.id == document else ():
            if not claim.printed:
                continue
            at = 0
            for heading in (claim.place or one.place).split(" > "):
                assert heading in text[at:], (one.name, heading)
                at = text.index(heading, at) + len(heading)
            first = rows_of(claim.printed.text)[0][0]
            assert first in numbers_of(text[at:]), (one.name, claim.text)
            starts.append(at)
    assert starts == sorted(starts)  # in the order of the article


def test_a_printed_number_of_the_catalogue_names_its_place() -> None:
    claims = [(one, claim) for one in EXAMPLES.values() for claim in one.claims if claim.printed]
    assert [one.name for one, claim in claims if not (claim.place or one.place)] == []
    for form in (html, markdown):
        text = "\n".join(form([judge(EXAMPLES["004-first-example"])], None))
        assert text.count("Numerical Example") == 4
        assert "recomputed" in text


def test_every_claim_of_the_catalogue_says_which_it_is() -> None:
    for path in CATALOG.glob("*.json"):
        for one in json.loads(path.read_text("utf-8"))["examples"]:
            for claim in one.get("claims", []):  # none where it names another example
                assert (claim["basis"] == "printed") == ("printed" in claim), one["name"]


# Ours, of which the documents have no number: found where they were called printed, or reproduced.
OURS = """000-dot-formula 000-dropout 000-rotation 000-skip 001-masked-heads 001-cross-attention
004-longer-sequences"""


@pytest.mark.parametrize("name", OURS.split())
def test_no_number_of_ours_is_called_printed(name: str) -> None:
    result = judge(EXAMPLES[name])
    text = "\n".join(result_lines(result, None))
    assert not re.search(r"^ *printed", text, re.MULTILINE)
    assert "    shown here  " in text
    own = [x for x in result.judgements if x.claim.basis == "shown here"]
    assert {x.verdict for x in own} <= {"agrees", "agrees as rounded", "not printed"}
    assert "| printed" not in "\n".join(markdown([result], None))
    (data,) = verification_data([result])["examples"]
    assert {claim["printed"] for claim in data["claims"]} == {None}
    assert {claim["basis"] for claim in data["claims"]} <= {"claimed", "shown here"}


def lines_of(one: Example) -> list[str]:
    return [line.strip() for line in result_lines(judge(one), None)]


def test_what_has_nothing_to_compare_with_has_no_line_for_it() -> None:
    lines = lines_of(EXAMPLES["000-dot-products"])
    assert [line for line in lines if line.startswith(("printed", "claimed", "shown"))] == []
    assert [line for line in lines if line.startswith("recomputed")] == [
        "recomputed  5.395124",
        "recomputed  -10.02365",
    ]


PAIR = "compute --q '[[1, 0]]' --k '[[1, 1], [0, 1]]' --v '[[10, 0], [0, 10]]'"


def test_the_basis_of_a_claim_and_its_verdict() -> None:
    for claim, basis, verdict in (
        ({"printed": [["1", "0"]]}, "printed", "reproduced"),
        ({"expected": [["1", "0"]]}, "claimed", "reproduced"),
        ({"expected": [["1", "0"]], "basis": "shown here"}, "shown here", "agrees"),
        ({"expected": [["1", "2"]], "basis": "shown here"}, "shown here", "differs"),
        ({"states": {"above": -1}}, "claimed", "reproduced"),
        ({"states": {"above": -1}, "basis": "shown here"}, "shown here", "agrees"),
        ({}, "claimed", "not printed"),
    ):
        (judgement,) = judged(PAIR, {"stage": "scores", **claim})
        assert (judgement.claim.basis, judgement.verdict) == (basis, verdict)
    for wrong in ({"printed": ["1"], "basis": "claimed"}, {"states": {"above": 0}, "basis": "printed"},
                  {"basis": "printed"}, {"printed": ["1"], "expected": ["1"]}):  # fmt: skip
        with pytest.raises(InputError, match="printed"):
            example(PAIR, {"stage": "scores", **wrong})


def test_the_summary_counts_each_basis_by_itself() -> None:
    one = example(PAIR, {"stage": "scores", "printed": [["1", "0"]]},
                  {"stage": "scores", "expected": [["1", "0"]], "basis": "shown here"})  # fmt: skip
    assert [line.split() for line in verification_lines([judge(one)])][-3:] == [
        ["printed", "1", "reproduced"], ["claimed", "none"], ["shown", "here", "1", "agrees"],
    ]  # fmt: skip
