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

QKV = "compute --q '[[1, 0]]' --k '[[1, 0], [0, 1]]' --v '[[1, 0], [0, 1]]'"
WEIGHTS: dict[str, Any] = {"stage": "weights"}
HEADS = "compute --q '[[[1, 0]]]' --k '[[[1, 0], [0, 1]]]' --v '[[[1, 0], [0, 1]]]'"
STDIN = {"q": [[1, 0]], "k": [[1, 0], [0, 1]]}


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
    texts = {
        b"[]": "is not an object", b"{}": 'no "attncli": "examples"', b"\xff\xfe\x00": "is not text",
        b"{" + bytes(32 << 20): "larger than 32 MB",
    }  # fmt: skip
    for text, key in texts.items():
        assert key in refusal(tmp_path, text)
    far = json.dumps(document(plain("compute --q -", WEIGHTS, input=[[0.25]]))).replace(
        "0.25", "1e999"
    )
    assert "'it', input holds a number beyond float64" in refusal(tmp_path, far)


# Changes of the document, of its one example, or of that example's one claim: one for each kind of
# refusal.
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "document": [
        ({"version": 2}, "version is 2"), ({"\x1b[31m": 1}, "unknown key '\\x1b[31m'"),
        ({"source": {"id": 3, "title": ""}}, "source, id is 3"), ({"examples": []}, "has no examples"), ({"examples": [3]}, "example 1 is not an object"),
        ({"examples": [plain(QKV, WEIGHTS)] * 2}, "two examples 'it'"),
    ],
    "example": [
        ({"run": "magic --q x"}, "'it', run calls 'magic'; use compute, explain"), ({"run": None}, "run is null"),
        ({"run": "check --q [[1]] --observed [[1]]"}, "run calls 'check'; use compute"),
        ({"run": "examples 004-her"}, "run calls 'examples'; use compute"), ({"run": "attncli"}, "run calls nothing"),
        ({"run": "formulas"}, "run calls 'formulas'"), ({"run": "attncli help masks"}, "run calls 'help'"),
        ({"run": "compute --q '[[1]]"}, "run ends within a quotation; close the quotation mark"),
        ({"run": ["compute"]}, "run is a list; write \"compute --q"), ({"run": " "}, "run computes nothing"),
        ({"run": "compute --help"}, "run computes nothing"),
        ({"compute": "attention"}, "unknown key 'compute'"), ({"needs": "g.txt"}, "its run has no word 'g.txt'"),
        ({"place": 3}, "'it', place is 3"), ({"offline": {"run": QKV, "adds": "x"}}, "has offline, but needs nothing"),
        ({"figures": [{"figure": "1", "run": "magic"}]}, "figures, entry 1, run calls 'magic'"),
    ],
    "claim": [
        ({"print": ["1"]}, "did you mean 'printed'?"), ({"printed": ["one"]}, "the text 'one', which is no number"),
        ({"printed": "1", "states": {"equal": 1}}, "both printed and states"), ({"at": 3}, "at is not an object"),
        ({"at": {"query": 1.5}}, "at, query is 1.5"), ({"run": "magic"}, "claim 1, run calls 'magic'"), ({"ways": [{}]}, "claim 1, way 1, how is missing"),
        ({"ways": [{"how": "", "options": "'"}]}, "claim 1, way 1, options ends within a quotation"),
        ({"ways": [{"how": "", "run": "diff'"}]}, "claim 1, way 1, run ends within a quotation"),
    ],
}  # fmt: skip


def within(level: str, change: dict[str, Any]) -> dict[str, Any]:
    """A document with a change at this level."""
    claim = {**WEIGHTS, **(change if level == "claim" else {})}
    one = {**plain(QKV, claim), **(change if level == "example" else {})}
    return {**document(one), **(change if level == "document" else {})}


@pytest.mark.parametrize("level", REFUSED)
def test_documents_that_are_refused(tmp_path: Path, level: str) -> None:
    for change, key in REFUSED[level]:
        assert key in refusal(tmp_path, json.dumps(within(level, change)))


# The run, the claim, and a key word.
UNCOMPUTABLE: list[tuple[str, dict[str, Any], str]] = [
    (QKV, {"stage": "wieghts"}, "claim 1: there is no stage 'wieghts'"),
    (QKV, {"at": {"row": 1}}, "weights has no axis 'row'; it has query, key"),
    (QKV, {"at": {"key": "k9"}}, "no entry 'k9' along key; use a number from 1 to 2, or one of k1"),
    (f"{QKV.replace('[[1, 0]]', '[[1, 0], [1, 0]]')} --tokens a,a", {"at": {"key": "a"}}, "several entries 'a' along key"),
    (QKV, {"printed": ["1", "2"]}, "the printed numbers are 2, the computed ones 1 × 2"),
    (QKV, {"take": {"sum": "head"}}, "no axis 'head' left"),
    (QKV, {"take": {"future": True}, "at": {"query": 1}}, "not a table of queries and keys"),
    (QKV, {"free_sign": "key"}, "free_sign names no axis"),
    (f"{QKV} --heads 3", {}, "3 heads"), (QKV.replace("--k", "--x-kv"), {}, "'it': --q and --x-kv are both given"),
    (HEADS, {"at": {axis: [1] * 1000 for axis in ("head", "query", "key")}}, "4194304 is the most"),
    (QKV, {"at": {str(i): 1 for i in range(2048)}}, "no axis '0'"),
    (QKV, {"ways": [{"how": "", "options": "--sise 3"}]}, "claim 1, way 1: No such option: --sise"),
    ("posenc --len 99999 --dim 9999", {"stage": "positions"}, "12.04 GB, 1 GB are allowed"),
    ("compute --random --scale x", {}, "'it': --scale"), ("compute --q nosuch.json", {}, "nosuch.json does not exist"),
    ("compute --q [[1]] --scale 1 --scale 2", {}, "--scale is given twice"),
    ("compute --q -", {}, "'it': its run reads standard input, but there is no input; write"),
    ("explain --embeddings -::x", {}, "there is no input"),
    (QKV, {"ways": [{"how": "", "options": "--mask -"}]}, "way 1: its run reads standard input, but"),
    ("explain 'a b' --block encoder", {"stage": "norm"}, "there are 2 stages 'norm'; use encoder.1.attention.norm"),
]  # fmt: skip
WRITES = {
    "--output x.json": "--output, which writes a file", "-o x.json": "--output, which writes a file",
    "--output x.html --open": "--output, which", "--step": "--step, which waits for keys",
    "--max-size 9GB": "--max-size, which is for whoever runs the example",
}  # fmt: skip


def test_errors_while_computing() -> None:
    for run, claim, key in UNCOMPUTABLE:
        with pytest.raises(InputError) as caught:
            judge(example(run, {**WEIGHTS, **claim}))
        assert key in str(caught.value)
        assert str(caught.value).startswith("made.json: example 'it'")
    with pytest.raises(InputError, match="there is an input, which its run does not read"):
        judge(example(QKV, WEIGHTS, input=STDIN))


def test_a_run_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = {f"{QKV} {flags}": key for flags, key in WRITES.items()}
    runs["model nosuch 'the cat' --dump x.npz"] = "--dump, which writes a file"
    for run, key in runs.items():
        with pytest.raises(InputError, match=f"'it': its run has {key}"):
            judge(example(run, WEIGHTS))
    way = {"how": "", "options": "--output x.json"}
    with pytest.raises(InputError, match="way 1: its run has --output"):
        judge(example(QKV, {**WEIGHTS, "ways": [way]}))
    assert [*tmp_path.iterdir()] == []


def test_sizes_are_bounded(tmp_path: Path) -> None:
    """Those of which the schema does not say the most."""
    bounds: list[tuple[str, int, Callable[[int], dict[str, Any]]]] = [
        ("example", 4000, lambda n: {"title": "x" * n}), ("claim", 1000, lambda n: {"at": {"query": [1] * n}}),
        ("example", 1 << 17, lambda n: {"run": f"explain {'x' * (n - 8)}"}),
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
    text = json.dumps(document(plain(QKV, WEIGHTS))).encode()
    (read,) = load_examples("-", stdin=io.BytesIO(text))
    assert read.name == "it"
    empty = dict.fromkeys(("take", "printed", "states", "verdict"))  # null: as if left out
    (judgement,) = judge(example(QKV, WEIGHTS | empty)).judgements
    assert judgement.verdict == "not printed"
