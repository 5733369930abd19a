"""Invalid files of examples: each is refused in one line. Damaged ones are among tests/fuzz."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attncli.commands.examples.judge import judge
from attncli.commands.examples.schema import load_examples, read_examples
from attncli.errors import InputError
from tests.commands.examples.made import document, example, plain

QKV: dict[str, Any] = {"q": [[1, 0]], "k": [[1, 0], [0, 1]], "v": [[1, 0], [0, 1]]}
WEIGHTS: dict[str, Any] = {"stage": "weights"}
HEADS = {"q": [[[1, 0]]], "k": [[[1, 0], [0, 1]]], "v": [[[1, 0], [0, 1]]]}


def refusal(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "mine.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        load_examples(str(path))
    message = str(caught.value)
    assert "mine.json" in message
    assert message.isprintable()
    return message


def test_files_that_hold_no_document(tmp_path: Path) -> None:
    """What is no JSON is refused as in every other file: tests/files."""
    long = document(plain("attention", {**QKV, "q": [[1] * 1024] * 1025}))
    texts = {
        b"[]": "is not an object", b"{}": 'no "attncli": "examples"', b"\xff\xfe\x00": "is not text",
        b"{" + bytes(32 << 20): "larger than 32 MB",
        json.dumps(long).encode(): "q has 1049600 numbers; 1048576 is the most",
    }  # fmt: skip
    for text, key in texts.items():
        assert key in refusal(tmp_path, text)


def inputs(**changes: Any) -> dict[str, Any]:
    return {"inputs": {**QKV, **changes}}


def computed(compute: str, **its: Any) -> dict[str, Any]:
    return {"compute": compute, "inputs": its}


# Changes of the document, of its one example, or of that example's one claim: one for each kind of
# refusal; where they apply is declared in the schema, which test_catalog.py compares.
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "document": [
        ({"version": 2}, "version is 2"), ({"\x1b[31m": 1}, "unknown key '\\x1b[31m'"),
        ({"source": {"id": 3, "title": ""}}, "source, id is 3"), ({"examples": [3]}, "example 1 is not an object"),
        ({"examples": [plain("attention", QKV, WEIGHTS)] * 2}, "two examples 'it'"),
    ],
    "example": [
        ({"compute": "magic"}, "'it', compute is the text 'magic'; it should be 'attention', 'self"),
        ({"inputs": {"q": [[1]], "k": [[1]]}}, "inputs, v is missing"),
        (inputs(q=[[1, 0], [1]]), "inputs, q: row 2 has 1 entry, row 1 has 2"),
        (inputs(q="code"), "inputs, q is not a list of numbers"),
        (inputs(q={"random": [99999, 99999]}), "has 9999800001 numbers"),
        (inputs(q={"random": [2, -1]}), "random, entry 2 is -1"),
        (inputs(convention=3), "inputs, convention is not an object"),
        (inputs(convention={"scale": 10**400}), "scale is a number beyond float64"),
        (computed("similarity"), "exactly one of vectors, glove"),
        (computed("similarity", vectors={"\x1b[31m": ["x"]}), "vectors, '\\x1b[31m': entry 1"),
        (computed("pca", vectors={"a": [1], "b": [1, 2]}), "differ in length: 'a' 1, 'b' 2"),
        (computed("self-attention", x={"tokens": ["a"], "vectors": {"b": [1]}}), "no vector for 'a'"),
    ],
    "claim": [
        ({"print": ["1"]}, "did you mean 'printed'?"), ({"printed": ["one"]}, "the text 'one', which is no number"),
        ({"printed": "1", "states": {"equal": 1}}, "both printed and states"), ({"at": 3}, "at is not an object"),
        ({"at": {"query": 1.5}}, "at, query is 1.5"), ({"ways": [{}]}, "claim 1, way 1, how is missing"),
    ],
}  # fmt: skip


def within(level: str, change: dict[str, Any]) -> dict[str, Any]:
    """A document with a change at this level."""
    claim = {**WEIGHTS, **(change if level == "claim" else {})}
    one = {**plain("attention", QKV, claim), **(change if level == "example" else {})}
    return {**document(one), **(change if level == "document" else {})}


@pytest.mark.parametrize("level", REFUSED)
def test_documents_that_are_refused(tmp_path: Path, level: str) -> None:
    for change, key in REFUSED[level]:
        assert key in refusal(tmp_path, json.dumps(within(level, change)))


# Inputs, the claim, and a key word.
UNCOMPUTABLE: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"stage": "wieghts"}, "claim 1: there is no stage 'wieghts'"),
    ({}, {"at": {"row": 1}}, "weights has no axis 'row'; it has query, key"),
    ({}, {"at": {"key": "k9"}}, "no entry 'k9' along key; use a number from 1 to 2, or one of k1"),
    ({"keys": ["a", "a"]}, {"at": {"key": "a"}}, "several entries 'a' along key"),
    ({}, {"printed": ["1", "2"]}, "the printed numbers are 2, the computed ones 1 × 2"),
    ({}, {"take": {"sum": "head"}}, "no axis 'head' left"),
    ({}, {"take": {"future": True}, "at": {"query": 1}}, "not a table of queries and keys"),
    ({}, {"free_sign": "key"}, "free_sign names no axis"),
    ({"v": [[1]]}, {}, "k and v must have the same number of tokens"), ({"n_heads": 2**53}, {}, "too many"),
    (HEADS, {"at": {axis: [1] * 1000 for axis in ("head", "query", "key")}}, "4194304 is the most"),
    ({}, {"at": {str(i): 1 for i in range(2048)}}, "no axis '0'"),
    ({}, {"ways": [{"how": "", "inputs": {"z": 1}}]}, "claim 1, way 1: inputs has the unknown"),
    ({name: {"random": [4096, 2]} for name in "qkv"}, {}, "16777216 scores or outputs are too"),
]  # fmt: skip


def test_errors_while_computing() -> None:
    for its, claim, key in UNCOMPUTABLE:
        with pytest.raises(InputError) as caught:
            judge(example("attention", {**QKV, **its}, {**WEIGHTS, **claim}))
        assert key in str(caught.value)
        assert str(caught.value).startswith("made.json: example 'it'")


def test_sizes_are_bounded(tmp_path: Path) -> None:
    """Those of which the schema does not say the most."""
    bounds: list[tuple[str, int, Callable[[int], dict[str, Any]]]] = [
        ("example", 4000, lambda n: {"title": "x" * n}), ("claim", 1000, lambda n: {"at": {"query": [1] * n}}),
        ("example", 2048, lambda n: computed("layer norm", x={"random": [n, 1]})),
        ("claim", 2048, lambda n: {"at": {str(i): 1 for i in range(n)}}),
    ]  # fmt: skip
    for level, most, change in bounds:
        assert len(read_examples(within(level, change(most)), "it")) == 1
        message = refusal(tmp_path, json.dumps(within(level, change(most + 1))))
        assert str(most) in message or str(most + 1) in message


def test_another_format_standard_input_and_null(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("1,2\n")
    with pytest.raises(InputError, match="is not a JSON file of examples"):
        load_examples(f"{tmp_path}/q.csv")
    text = json.dumps(document(plain("attention", QKV, WEIGHTS))).encode()
    (read,) = load_examples("-", stdin=io.BytesIO(text))
    assert read.name == "it"
    empty = dict.fromkeys(("take", "printed", "states", "verdict"))  # null: as if left out
    (judgement,) = judge(example("attention", {**QKV, "mask": None}, WEIGHTS | empty)).judgements
    assert judgement.verdict == "not printed"
