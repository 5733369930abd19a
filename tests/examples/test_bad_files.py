"""Invalid files of examples: each is refused in one line, and never with another exception."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.errors import AttncliError, InputError
from attncli.examples import Example, judge, load_examples
from attncli.examples.compute import Attention
from attncli.examples.schema import read_examples
from tests.examples.made import catalog_documents, document, example, plain

QKV: dict[str, Any] = {"q": [[1, 0]], "k": [[1, 0], [0, 1]], "v": [[1, 0], [0, 1]]}
WEIGHTS: dict[str, Any] = {"stage": "weights"}


def refused(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "mine.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        load_examples(str(path))
    message = str(caught.value)
    assert "mine.json" in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"attncli": "examples",\n "version" 1}', "is not JSON: line 2, column 12"),
        ("", "is empty"),
        ("[]", "is not an object"),
        ("{}", 'has no "attncli": "examples"'),
        ('{"attncli": "examples", "attncli": "examples"}', "has the key 'attncli' twice"),
        (b"\xff\xfe\x00", "is not text"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_files_that_hold_no_document(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert message in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version is 2; it should be 1"),
        ({"extra": 1}, "has the unknown key 'extra'; known are"),
        ({"exampels": []}, "did you mean 'examples'?"),
        ({"source": {"id": "x"}}, "source, title is missing"),
        ({"source": {"id": 3, "title": ""}}, "source, id is 3; it should be a valid string"),
        ({"examples": []}, "examples: List should have at least 1 item"),
        ({"examples": {}}, "examples is an object; it should be a valid list"),
        ({"examples": [3]}, "example 1 is not an object"),
    ],
)
def test_invalid_documents_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    whole = {**document(plain("attention", QKV, WEIGHTS)), **change}
    assert message in refused(tmp_path, json.dumps(whole))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"compute": "magic"},
            "example 'it', compute is the text 'magic'; it should be 'attention', 'self-attention'",
        ),
        ({"compute": None}, "compute is null"),
        ({"claims": []}, "example 'it', claims: List should have at least 1 item, not 0"),
        ({"name": ""}, "example 1, name: String should have at least 1 character"),
        ({"inputs": {"q": [[1]], "k": [[1]]}}, "inputs, v is missing"),
        ({"inputs": {**QKV, "w": 1}}, "inputs has the unknown key 'w'"),
        ({"inputs": {**QKV, "q": [[1, 0], [1]]}}, "inputs, q: row 2 has 1 entry, row 1 has 2"),
        ({"inputs": {**QKV, "q": "code"}}, "inputs, q is not a list of numbers"),
        ({"inputs": {**QKV, "q": [["x"]]}}, "expected a number"),
        ({"inputs": {**QKV, "q": {"random": [99999, 99999]}}}, "has 9999800001 numbers"),
        (
            {"inputs": {**QKV, "q": {"random": []}}},
            "inputs, q, random: List should have at least 1 item",
        ),
        (
            {"inputs": {**QKV, "q": {"random": [2, -1]}}},
            "random, entry 2 is -1; it should be greater than",
        ),
        (
            {"inputs": {**QKV, "q": {"random": [2, 2], "seed": -1}}},
            "inputs, q, seed is -1; it should be greater than or equal to 0",
        ),
        (
            {"inputs": {**QKV, "n_heads": 1.5}},
            "inputs, n_heads is 1.5; it should be a valid integer",
        ),
        ({"inputs": {**QKV, "keys": ["a", 1]}}, "keys, entry 2 is 1; it should be a valid string"),
        ({"inputs": {**QKV, "keys": {}}}, "inputs, keys is an object; it should be a valid list"),
        ({"inputs": {**QKV, "convention": 3}}, "inputs, convention is not an object"),
        ({"inputs": {**QKV, "convention": {"scale": "big"}}}, "convention: scale is 'big'"),
        ({"inputs": {**QKV, "convention": {"window": ["a"]}}}, "convention: window is"),
        ({"inputs": {**QKV, "convention": {"scale": 10**400}}}, "scale is a number beyond float64"),
        ({"compute": "similarity", "inputs": {}}, "needs exactly one of vectors, glove"),
        (
            {"compute": "pca", "inputs": {"vectors": {"a": [1], "b": [1, 2]}}},
            "vectors differ in length: 'a' 1, 'b' 2",
        ),
        (
            {"compute": "positions", "inputs": {"n": 2, "dim": 2, "exponent": "x"}},
            "exponent is the text 'x'",
        ),
        (
            {
                "compute": "self-attention",
                "inputs": {"x": {"tokens": ["a"], "vectors": {"b": [1]}}},
            },
            "has no vector for 'a'",
        ),
    ],
)
def test_invalid_examples_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    whole = document({**plain("attention", QKV, WEIGHTS), **change})
    assert message in refused(tmp_path, json.dumps(whole))


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({}, "claim 1, stage is missing"),
        ({**WEIGHTS, "print": ["1"]}, "did you mean 'printed'?"),
        ({**WEIGHTS, "printed": ["one"]}, "printed holds the text 'one', which is no number"),
        ({**WEIGHTS, "printed": ["1"], "decimals": 99}, "decimals is 99"),
        ({**WEIGHTS, "printed": "1", "states": {"equal": 1}}, "has both printed and states"),
        ({**WEIGHTS, "states": {}}, "states: Object should have at least 1 item"),
        ({**WEIGHTS, "states": {"equal": "x"}}, "equal"),
        ({**WEIGHTS, "verdict": "right"}, "verdict is the text 'right'; it should be 'reproduced'"),
        (
            {**WEIGHTS, "at": {"query": 1.5}},
            "at, query is 1.5; write a whole number from 1, a label",
        ),
        (
            {**WEIGHTS, "at": {"query": []}},
            "at, query is a list; write a whole number from 1, a label",
        ),
        ({**WEIGHTS, "take": {"sum": 1}}, "take, sum is 1; it should be a valid string"),
        ({**WEIGHTS, "take": {"shape": 1}}, "take, shape is 1; it should be a valid boolean"),
        ({**WEIGHTS, "ways": [{}]}, "way 1, how is missing"),
    ],
)
def test_invalid_claims_are_refused(tmp_path: Path, claim: dict[str, Any], message: str) -> None:
    assert message in refused(tmp_path, json.dumps(document(plain("attention", QKV, claim))))


@pytest.mark.parametrize(
    ("inputs", "claim", "message"),
    [
        ({}, {"stage": "wieghts"}, "claim 1: there is no stage 'wieghts'"),
        ({}, {**WEIGHTS, "at": {"row": 1}}, "stage weights has no axis 'row'; it has query, key"),
        (
            {},
            {**WEIGHTS, "at": {"query": 2}},
            "has no entry '2' along query; use a number from 1 to 1",
        ),
        (
            {},
            {**WEIGHTS, "at": {"key": "k9"}},
            "has no entry 'k9' along key; use a number from 1 to 2, or one of k1, k2",
        ),
        (
            {"keys": ["a", "a"]},
            {**WEIGHTS, "at": {"key": "a"}},
            "several entries 'a' along key; use a number from 1 to 2",
        ),
        ({}, {**WEIGHTS, "printed": ["1", "2"]}, "printed numbers are 2, computed are 1 × 2"),
        ({}, {**WEIGHTS, "take": {"sum": "head"}}, "there is no axis 'head' left"),
        (
            {},
            {**WEIGHTS, "take": {"future": True}, "at": {"query": 1}},
            "not a table of queries and keys",
        ),
        ({}, {**WEIGHTS, "free_sign": "key"}, "free_sign names no axis of the printed"),
        ({"v": [[1]]}, WEIGHTS, "example 'it': k and v must have the same number of tokens"),
        ({"n_heads": 3}, WEIGHTS, "does not divide into 3 heads"),
        ({"n_heads": 2**53}, WEIGHTS, "scores or outputs are too many"),
        (
            {"q": [[[1, 0]]], "k": [[[1, 0], [0, 1]]], "v": [[[1], [2]]]},
            {**WEIGHTS, "at": {axis: [1] * 1000 for axis in ("head", "query", "key")}},
            "1000000000 numbers of stage weights; 4194304 is the most",
        ),
        ({}, {**WEIGHTS, "at": {str(i): 1 for i in range(2048)}}, "has no axis '0'"),
        (
            {},
            {**WEIGHTS, "ways": [{"how": "", "inputs": {"z": 1}}]},
            "claim 1, way 1: inputs has the unknown key 'z'",
        ),
        (
            {"q": {"random": [4096, 2]}, "k": {"random": [4096, 2]}, "v": {"random": [4096, 1]}},
            WEIGHTS,
            "16777216 scores or outputs are too many",
        ),
    ],
)
def test_errors_found_while_computing(
    inputs: dict[str, Any], claim: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        judge(example("attention", {**QKV, **inputs}, claim))
    assert message in str(caught.value)
    assert str(caught.value).startswith("made.json: example 'it'")


@pytest.mark.parametrize(
    ("size", "change", "message"),
    [
        (4000, lambda n: {"title": "x" * n}, "title: String should have at most 4000"),
        (2**53, lambda n: {"inputs": {**QKV, "n_heads": n}}, "n_heads is 9007199254740993; it"),
        (200, lambda n: {"claims": [{"claim": "", **WEIGHTS}] * n}, "claims: List should have"),
        (
            2048,
            lambda n: {"compute": "layer norm", "inputs": {"x": {"random": [n, 1]}}},
            "inputs, x is 2049 × 1; 2048 is the most",
        ),
        (
            2048,
            lambda n: {"compute": "positions", "inputs": {"n": n, "dim": 1}},
            "n is 2049; it should be less than or equal to 2048",
        ),
        (
            2048,
            lambda n: {"compute": "share", "inputs": {"tokens": ["a"] * n, "of": ["a"]}},
            "tokens: List should have at most 2048",
        ),
    ],
)
def test_sizes_are_bounded(
    tmp_path: Path, size: int, change: Callable[[int], dict[str, Any]], message: str
) -> None:
    whole = document({**plain("attention", QKV, WEIGHTS), **change(size)})
    assert len(read_examples(whole, "it")) == 1
    whole = document({**plain("attention", QKV, WEIGHTS), **change(size + 1)})
    assert message in refused(tmp_path, json.dumps(whole))


@pytest.mark.parametrize(
    ("size", "change", "message"),
    [
        (10, lambda n: {"ways": [{"how": ""}] * n}, "ways: List should have at most 10 items"),
        (30, lambda n: {"decimals": n}, "decimals is 31; it should be less than or equal to 30"),
        (1000, lambda n: {"at": {"query": [1] * n}}, "at, query names 1001 entries"),
        (
            2048,
            lambda n: {"at": {str(i): 1 for i in range(n)}},
            "claim 1, at has 2049 keys; 2048 is the most",
        ),
    ],
)
def test_sizes_of_a_claim_are_bounded(
    tmp_path: Path, size: int, change: Callable[[int], dict[str, Any]], message: str
) -> None:
    example("attention", QKV, {**WEIGHTS, **change(size)})
    whole = document(plain("attention", QKV, {**WEIGHTS, **change(size + 1)}))
    assert message in refused(tmp_path, json.dumps(whole))


def test_an_array_is_bounded_whether_it_is_written_or_drawn(tmp_path: Path) -> None:
    rows = ", ".join(["[" + "1," * 1023 + "1]"] * 1025)
    for q in (rows.join("[]"), '{"random": [1025, 1024]}'):
        whole = json.dumps(document(plain("attention", {**QKV, "q": 0}, WEIGHTS)))
        message = "q has 1049600 numbers; 1048576 is the most"
        assert message in refused(tmp_path, whole.replace('"q": 0', f'"q": {q}'))


def test_a_file_is_bounded_in_size(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    with path.open("wb") as file:
        file.write(b"{")
        file.truncate((32 << 20) + 1)
    with pytest.raises(InputError, match=r"mine\.json is larger than 32 MB"):
        load_examples(str(path))


def test_null_is_the_same_as_leaving_a_key_out() -> None:
    claim = {**WEIGHTS, "take": None, "printed": None, "states": None, "verdict": None}
    (judgement,) = judge(example("attention", {**QKV, "mask": None}, claim)).judgements
    assert judgement.verdict == "not printed"


def test_text_of_a_file_is_escaped_in_its_messages(tmp_path: Path) -> None:
    vectors = {"\x1b[31m": ["x"]}
    whole = document(plain("similarity", {"vectors": vectors}, {"stage": "dots"}))
    assert "vectors, '\\x1b[31m': entry 1" in refused(tmp_path, json.dumps(whole))


def test_changed_inputs_share_unchanged_arrays() -> None:
    inputs = example("attention", {**QKV, "convention": {"scale": "none"}}, WEIGHTS).inputs
    changed = inputs.changed({"v": [[3], [4]], "convention": {"causal": True}})
    assert isinstance(inputs, Attention)
    assert isinstance(changed, Attention)
    assert changed.q is inputs.q
    assert changed.v.tolist() == [[3], [4]]
    assert (changed.convention.scale, changed.convention.causal) == ("none", True)


@pytest.mark.parametrize(
    ("compute", "inputs"),
    [
        ("self-attention", {"x": {"tokens": ["a", "a"], "vectors": {"a": [1, 2]}}}),
        ("similarity", {"vectors": {"a": [1], "b": [2]}}),
        ("similarity", {"glove": {"words": ["a"], "file": "g"}}),
        ("share", {"tokens": ["a"], "of": ["a"]}),
        ("layer norm", {"x": [[1, 2]], "gamma": [1, 2]}),
    ],
)
def test_inputs_without_changes_are_equal(compute: str, inputs: dict[str, Any]) -> None:
    read = example(compute, inputs, {"stage": "any"}).inputs
    assert dict(read.changed({})) == dict(read)


def test_vectors_of_an_alternative_replace_the_vector_file() -> None:
    glove = {"words": ["a"], "file": "g"}
    way = {"how": "others", "inputs": {"vectors": {"a": [3, 4]}}, "gives": ["5"]}
    claim = {"stage": "lengths", "printed": ["1"], "ways": [way], "verdict": "differs"}
    (read,) = [example("similarity", {"glove": glove}, claim)]
    (judgement,) = judge(read, "a=6,8").judgements
    assert (judgement.verdict, judgement.ok) == ("differs", True)


def test_an_unknown_key_is_escaped() -> None:
    with pytest.raises(InputError) as caught:
        read_examples(document({**plain("attention", QKV, WEIGHTS), "\x1b[31m": 1}), "mine.json")
    assert str(caught.value).isprintable()


def test_two_examples_with_one_name_are_refused() -> None:
    twice = [plain("attention", QKV, WEIGHTS)] * 2
    with pytest.raises(InputError, match="two examples 'it'"):
        read_examples(document(*twice), "mine.json")


def test_examples_are_read_from_standard_input() -> None:
    text = json.dumps(document(plain("attention", QKV, WEIGHTS))).encode()
    (read,) = load_examples("-", stdin=io.BytesIO(text))
    assert read.name == "it"


def test_an_array_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_text("1,2\n")
    with pytest.raises(InputError, match="is not a JSON file of examples"):
        load_examples(str(path))


SINGLE = [
    {**whole, "examples": [one]} for whole in catalog_documents() for one in whole["examples"]
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.sampled_from([10**30, 1e308, -0.0, "NaN", "Infinity", "-Infinity"]),
    st.floats(),
    st.sampled_from(
        ["", "weights", "output", "query", "key", "paper", "1/√2", "\x00", "attention"]
    ),
    st.text(max_size=4),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["q", "at", "random", "scale", "word"]), inner, max_size=2
        )
    ),
    max_leaves=6,
)


def containers(node: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a document."""
    pairs = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
    inner = [(node, key) for key, _ in pairs]
    return inner + [c for _, v in pairs if isinstance(v, dict | list) for c in containers(v)]


def error_of(read: Callable[[], tuple[Example, ...]]) -> str | None:
    """The message with which examples are refused; None where they are judged."""
    try:
        for one in read():
            assert len(judge(one).judgements) == len(one.claims)
    except AttncliError as problem:
        return str(problem)
    return None


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_damaged_example_gives_an_attncli_error_or_a_result(data: st.DataObject) -> None:
    whole = copy.deepcopy(data.draw(st.sampled_from(SINGLE)))
    for _ in range(data.draw(st.integers(1, 3))):
        places = containers(whole)
        container, key = places[data.draw(st.integers(0, len(places) - 1))]
        if data.draw(st.booleans()):
            container[key] = data.draw(VALUES)
        elif isinstance(container, dict):
            del container[key]
        else:
            container.insert(key, data.draw(VALUES))
    message = error_of(lambda: read_examples(whole, "damaged.json"))
    assert message is None or "damaged.json" in message


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(SINGLE),
    st.integers(0, 10**6),
    st.sampled_from(["", "{", "]", '"', ",", "9", "\\"]),
)
def test_damaged_text_gives_an_attncli_error_or_a_result(
    whole: dict[str, Any], at: int, put: str
) -> None:
    text = json.dumps(whole)
    at %= len(text)
    damaged = (text[:at] + put + text[at + 1 :]).encode()
    message = error_of(lambda: load_examples("-", stdin=io.BytesIO(damaged)))
    assert message is None or "standard input" in message
