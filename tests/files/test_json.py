"""JSON in: what is read, and the place that each refusal names."""

from __future__ import annotations

import numpy as np
import pytest

from .saved import Folder, cell_name


def test_object_with_everything(folder: Folder) -> None:
    text = """{"q": [[1, 2], [3, 4.5]], "Keys": [[1, 2]], "v": [[5, 6, 7]],
        "mask": [[true], [false]], "scale": 0.25, "title": "x", "comment": null,
        "tokens": {"queries": ["the", "cat"], "keys": ["sat"]}}"""
    loaded = folder.load(text, "x.json")
    assert list(loaded.arrays) == ["q", "Keys", "v", "mask"]
    assert loaded.arrays["q"].tolist() == [[1.0, 2.0], [3.0, 4.5]]
    assert loaded.arrays["mask"].dtype == np.bool_
    assert loaded.scale == 0.25
    assert (loaded.query_labels, loaded.key_labels) == (("the", "cat"), ("sat",))
    assert (loaded.others, loaded.notes) == (("title",), ())  # null is nothing


@pytest.mark.parametrize(
    ("text", "dtype", "values"),
    [
        ("[[1, 0], [0, 1]]", "int64", [[1, 0], [0, 1]]),
        ("[[1, 0.0]]", "float64", [[1.0, 0.0]]),
        ("[[true, false]]", "bool", [[True, False]]),
        ("[[9223372036854775807]]", "int64", [[2**63 - 1]]),
        ("[[9223372036854775808]]", "float64", [[2.0**63]]),
        ('[["Infinity", 1], ["-Infinity", 2]]', "float64", [[np.inf, 1.0], [-np.inf, 2.0]]),
        ("[[Infinity, -Infinity]]", "float64", [[np.inf, -np.inf]]),
        ("[[1e-400, -0.0, 5e-324]]", "float64", [[0.0, -0.0, 5e-324]]),
        *(("[[1, 2]]".encode(e), "int64", [[1, 2]]) for e in ("utf-8-sig", "utf-16", "utf-32")),
    ],
)
def test_types_and_encodings(text: str, dtype: str, values: list[float], folder: Folder) -> None:
    array = folder.load(text, "x.json").arrays[""]
    assert array.dtype == dtype
    assert array.tolist() == values


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ('"tokens": ["a", "b"]', (("a", "b"), ("a", "b"))),
        ('"tokens": ["a"], "query_tokens": ["b"]', (("b",), ("a",))),
        ('"tokens": ["\\ud83d\\ude00\\\\ud800"]', (("\U0001f600\\ud800",),) * 2),
    ],
)
def test_labels(text: str, labels: tuple[tuple[str, ...], ...], folder: Folder) -> None:
    loaded = folder.load(f'{{"q": [[1]], {text}}}', "x.json")
    assert (loaded.query_labels, loaded.key_labels) == labels


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('[["NaN", 1]]', ["1 NaN of 2 numbers, the first at row 1, column 1"]),
        ("[[2, NaN]]", ["1 NaN of 2 numbers, the first at row 1, column 2"]),
        ('{"k": [[[1, 2, 3], [4, 5, "Infinity"], ["NaN", 7, 8]]]}',
         ["k holds 1 NaN and 1 infinite of 9 numbers, the first at row 2, column 3 of head 1"]),
        ('{"q": [[1]], "mask": [[0, "-Infinity"]]}', []),
        ('{"q": [[1]], "mask": [[0, "Infinity"]]}', ["mask holds 1 infinite of 2"]),
        ('[[0, "-Infinity"], [0, 0]]', []),
        ('[[0.5, "-Infinity"]]', ["1 infinite of 2"]),
        ('{"q": [[1, "NaN"]], "k": [["Infinity", 1]], "v": [[1, 2]]}', ["q holds", "k holds"]),
    ],
)  # fmt: skip
def test_nan_and_infinity_are_counted_but_for_minus_infinity_in_a_mask(
    text: str, keys: list[str], folder: Folder
) -> None:
    warnings = folder.load(text, "x.json").warnings
    assert len(warnings) == len(keys)
    assert all(key in warning for key, warning in zip(keys, warnings, strict=True))


ZEROS = "0" * 309
REFUSED = [
    ("[[1, 2],\n [3, 4],,]", "JSON: line 2, column 9"),
    ("[[1, 2]", "JSON: line 1, column 8"),
    ("{'q': [[1]]}", "JSON: line 1, column 2"),
    ("[[1]] x", "JSON: line 1, column 7"),
    ("   \n", "is empty"),
    ("5", "neither a list nor an object"),
    ("[]", "is empty"),
    ("[[], []]", "is empty"),
    ("{}", "no array"),
    ('{"title": "x"}', "no array"),
    ('{"n": 5}', "no array, only n"),
    ("[[1, 2, 3], [4, 5], [6, 7, 8]]", "row 2 has 2 entries, row 1 has 3"),
    ('{"q": [[[1, 2], [3, 4]], [[5, 6], [7]]]}', "q: row 2 of head 2 has 1 entry, row 1 of head 1"),
    ('{"q": [[[1], [2]], [[3]]]}', "q: head 2 has 1 entry, head 1 has 2"),
    ('{"v": [[[[1]], [[2]]], [[[3]], [[4, 5]]]]}', "v: row 1 of head 2 of batch 2 has 2"),
    ("[[1, 2], 3]", "row 2 is 3, row 1 is a list"),
    ("[1, [2]]", "entry 2 is a list, entry 1 is 1"),
    ('[[1, 2], [3, "x"]]', "row 2, column 2 is the text 'x'"),
    ('[["1.5"]]', "the text '1.5'"),
    ('[["nan"]]', "the text 'nan'"),
    ('[[1, "a\\u001b[31m"]]', "the text 'a\\x1b[31m'"),
    ("[[1, null]]", "row 1, column 2 is null"),
    ("[[1, {}]]", "row 1, column 2 is an object"),
    ("[[1, true]]", "row 1, column 2 is true, expected a number"),
    ("[[true, 0]]", "row 1, column 2 is 0, expected true or false"),
    ("[[true, NaN]]", "row 1, column 2 is nan, expected true or false"),
    ("[[1, 1e999]]", "row 1, column 2 is 1e999, beyond float64"),
    ("[[1], [-1e999]]", "row 2, column 1 is -1e999, beyond float64"),
    (f"[[0.5, 1{ZEROS}]]", "row 1, column 2 is 1000000000"),
    (f"[[1, 1{ZEROS}]]", "row 1, column 2 is 1000000000"),
    ("[[" + "9" * 5000 + "]]", "beyond float64"),
    ('{"q": [[1]], "q": [[2]]}', "key 'q' twice"),
    ('{"q": [[1]], "x": {"a": 1, "a": 2}}', "key 'a' twice"),
    ('{"a.b": [[1]], "a": {"b": [[2]]}}', "'a.b' twice"),
    ("[" * 100_000, "nested too deeply"),
    ("[" * 20 + "1" + "]" * 20, "nested more than 16 deep"),
    ('{"a": ' * 20 + "[[1]]" + "}" * 20, "nested too deeply"),
    ('{"q": [[1]], "scale": "x"}', "scale is not a number"),
    ('{"q": [[1]], "scale": true}', "scale is not a number"),
    ('{"q": [[1]], "scale": 1e999}', "scale is not a number"),
    ('{"q": [[1]], "scale": NaN}', "scale is not finite"),
    (f'{{"q": [[1]], "scale": 1{ZEROS}}}', "scale is not finite"),
    ('{"q": [[1]], "scale": 1, "Scale": 2}', "scale twice"),
    ('{"q": [[1]], "tokens": ["a"], "Tokens": ["b"]}', "tokens twice"),
    ('{"q": [[1]], "tokens": []}', "tokens is an empty list"),
    ('{"q": [[1]], "tokens": ["a", 1]}', "tokens: entry 2 is not a string"),
    ('{"q": [[1]], "tokens": 5}', "tokens is not a list"),
    ('{"q": [[1]], "tokens": {"query": []}}', "tokens names query"),
    ('{"q": [[1]], "tokens": {"keys": [1]}}', "tokens.keys: entry 1"),
    ('{"q": [[1]], "tokens": ["\\ud800"]}', "\\ud800, half of a surrogate"),
    (b'{"q": [[1]], "t": "\xff"}', "not text: byte 20 is not utf-8"),
    ('{"q": {"the": [1, 0], "cat": [0]}}', "q: row 2 has 1 entry, row 1 has 2"),
    ('{"q": [[1]], "k": {"m": [[2]]}}', "k is an object, not an array"),
    ('{"q": [[1]], "k": {"the": ["a"]}}', "k is an object, not an array"),
    ('{"q": [[1]], "k": 3}', "k is 3, not an array"),
    ('{"q": [[1]], "mask": {"causal": true}}', "mask is an object, not an array"),
    ('{"q": [[1]], "attention_mask": true}', "attention_mask is true, not an array"),
    ('{"q": [[1]], "past_k": "x"}', "past_k is the text 'x', not an array"),
    ('{"q": [[1]], "Values": {}}', "Values is an object, not an array"),
]


@pytest.mark.parametrize(("text", "key"), REFUSED, ids=cell_name)
def test_refusals_name_the_place(text: str, key: str, folder: Folder) -> None:
    assert key in folder.refusal(text, "x.json")


def test_a_long_number_is_shortened_in_the_message(folder: Folder) -> None:
    assert len(folder.refusal("[[" + "9" * 4000 + "]]", "x.json")) < 120


def test_what_has_no_role_is_said_to_be_unused(folder: Folder) -> None:
    text = '{"n": 5, "q": [[1]], "meta": {"a": 1}, "names": ["a"], "maks": "x"}'
    loaded = folder.load(text, "x.json")
    (note,) = loaded.notes
    assert list(loaded.arrays) == ["q"]
    assert "not used: names, n, meta, maks; did you mean mask?" in note


NESTED = '{"layer": {"q": [[1]], "k": {"deep": [[2]]}, "name": "x"}, "heads": [{"v": [[3]]}, {"v": [[4]]}]}'


@pytest.mark.parametrize(
    ("text", "member", "arrays"),
    [
        ('{"a": [[1]], "b": [[2]], "c": [null]}', "b", {"b": [[2]]}),
        (NESTED, "layer.k.deep", {"layer.k.deep": [[2]]}),
        (NESTED, "heads.1.v", {"heads.1.v": [[4]]}),
        (NESTED, "layer", {"q": [[1]]}),  # all in it, by what its name is there
    ],
)
def test_members(text: str, member: str, arrays: dict[str, list[float]], folder: Folder) -> None:
    loaded = folder.load(text, "x.json", member)
    assert {name: array.tolist() for name, array in loaded.arrays.items()} == arrays
    assert loaded.warnings == ()
    assert loaded.unread == (("k.deep",) if member == "layer" else loaded.unread)


def test_scale_is_read_with_a_member(folder: Folder) -> None:
    text = '{"q": [[1]], "k": [[2]], "scale": 0.5}'
    assert folder.load(text, "x.json", "k").scale == 0.5


@pytest.mark.parametrize(
    ("text", "member", "key"),
    [
        ('{"a": [[1]], "b": 5}', "c", "no 'c'; it holds a, b; name one: x.json::a"),
        ('{"a": [[1]], "b": 5}', "b", "b is 5, not an array"),
        ('{"a": [[1]], "b": [null]}', "b", "b: entry 1 is null"),
        ("[[1]]", "q", "one array without a name, not 'q'"),
        (NESTED, "nothing", "it holds layer.q, layer.k.deep, heads.0.v, heads.1.v, layer.name"),
    ],
)
def test_members_that_are_not_there(text: str, member: str, key: str, folder: Folder) -> None:
    assert key in folder.refusal(text, "x.json", member)


def test_an_array_may_have_a_row_for_each_word(folder: Folder) -> None:
    loaded = folder.load('{"q": {"the": [1, 0], "cat": [0, 1]}, "k": [[1, 1]]}', "x.json")
    assert loaded.arrays["q"].tolist() == [[1, 0], [0, 1]]
    assert loaded.words == {"q": ("the", "cat")}


def test_an_object_called_key_may_hold_its_weights(folder: Folder) -> None:
    loaded = folder.load('{"q": [[1]], "key": {"weight": [[2]]}}', "x.json")
    assert (list(loaded.arrays), loaded.unread) == (["q"], ("key.weight",))
