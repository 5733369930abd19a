"""JSON in: what is read, and the location that each error names."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from attncli.errors import InputError
from attncli.files.load import Loaded, load


def read(tmp_path: Path, text: str, member: str = "") -> Loaded:
    path = tmp_path / "x.json"
    path.write_bytes(text.encode())
    return load(f"{path}::{member}" if member else str(path))


def message(tmp_path: Path, text: str, member: str = "") -> str:
    """The error of load, without the folder."""
    with pytest.raises(InputError) as caught:
        read(tmp_path, text, member)
    error = str(caught.value)
    assert "\n" not in error
    return error.replace(f"{tmp_path}/", "")


def test_object_with_everything(tmp_path: Path) -> None:
    loaded = read(
        tmp_path,
        '{"q": [[1, 2], [3, 4.5]], "Keys": [[1, 2]], "v": [[5, 6, 7]], "mask": [[true], [false]],'
        ' "scale": 0.25, "tokens": {"queries": ["the", "cat"], "keys": ["sat"]}, "title": "x",'
        ' "comment": null}',
    )
    assert list(loaded.arrays) == ["q", "Keys", "v", "mask"]
    assert loaded.arrays["q"].tolist() == [[1.0, 2.0], [3.0, 4.5]]
    assert loaded.arrays["mask"].dtype == np.bool_
    assert (loaded.scale, loaded.query_labels, loaded.key_labels) == (
        0.25,
        ("the", "cat"),
        ("sat",),
    )
    assert loaded.warnings == ()


def test_tokens_name_queries_and_keys(tmp_path: Path) -> None:
    loaded = read(tmp_path, '{"q": [[1], [2]], "tokens": ["a", "b"]}')
    assert loaded.query_labels == loaded.key_labels == ("a", "b")


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
    ],
)
def test_types(text: str, dtype: str, values: list[list[float]], tmp_path: Path) -> None:
    array = read(tmp_path, text).arrays[""]
    assert array.dtype == dtype
    assert array.tolist() == values


@pytest.mark.parametrize("text", ['[["NaN", 1]]', "[[NaN, 1]]"])
def test_nan_is_read_with_a_warning(text: str, tmp_path: Path) -> None:
    loaded = read(tmp_path, text)
    assert np.isnan(loaded.arrays[""][0, 0])
    (warning,) = loaded.warnings
    assert warning.endswith("x.json holds 1 NaN of 2 numbers, the first at row 1, column 1")


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        ('{"q": [[1]], "mask": [[0, "-Infinity"]]}', 0),
        ('{"q": [[1]], "mask": [[0, "Infinity"]]}', 1),
        ('[[0, "-Infinity"], [0, 0]]', 0),
        ('[[0.5, "-Infinity"]]', 1),
        ('{"q": [[1, "NaN"]], "k": [["Infinity", 1]], "v": [[1, 2]]}', 2),
    ],
)
def test_minus_infinity_in_a_mask_gives_no_warning(
    text: str, warnings: int, tmp_path: Path
) -> None:
    assert len(read(tmp_path, text).warnings) == warnings


def test_warning_gives_counts_and_location(tmp_path: Path) -> None:
    (warning,) = read(tmp_path, '{"k": [[[1, 2, 3], [4, 5, "Infinity"], ["NaN", 7, 8]]]}').warnings
    assert warning.endswith(
        "x.json, k holds 1 NaN and 1 infinite of 9 numbers, the first at row 2, column 3 of head 1"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[1, 2],\n [3, 4],,]", "x.json is not JSON: line 2, column 9"),
        ("[[1, 2]", "x.json is not JSON: line 1, column 8"),
        ("{'q': [[1]]}", "x.json is not JSON: line 1, column 2"),
        ("[[1]] x", "x.json is not JSON: line 1, column 7: Extra data"),
        ("   \n", "x.json is empty"),
        ("5", "x.json holds neither a list nor an object"),
        ('"q"', "x.json holds neither a list nor an object"),
        ("null", "x.json holds neither a list nor an object"),
        ("[]", "x.json is empty: it holds an empty list"),
        ("[[], []]", "x.json is empty: it holds an empty list"),
        ("{}", "x.json holds no array"),
        ('{"title": "x"}', "x.json holds no array"),
        ('{"n": 5}', "x.json holds no array, only n"),
        ("[[1, 2, 3], [4, 5], [6, 7, 8]]", "x.json: row 2 has 2 entries, row 1 has 3"),
        ("[[1, 2], [3]]", "x.json: row 2 has 1 entry, row 1 has 2"),
        (
            '{"q": [[[1, 2], [3, 4]], [[5, 6], [7]]]}',
            "x.json, q: row 2 of head 2 has 1 entry, row 1 of head 1 has 2",
        ),
        ('{"q": [[[1], [2]], [[3]]]}', "x.json, q: head 2 has 1 entry, head 1 has 2"),
        (
            '{"v": [[[[1]], [[2]]], [[[3]], [[4, 5]]]]}',
            "x.json, v: row 1 of head 2 of batch 2 has 2 entries",
        ),
        ("[[1, 2], 3]", "x.json: row 2 is 3, row 1 is a list"),
        ("[1, [2]]", "x.json: entry 2 is a list, entry 1 is 1"),
        ('[[1, 2], [3, "x"]]', "x.json: row 2, column 2 is the text 'x', expected a number"),
        ('[["1.5"]]', "x.json: row 1, column 1 is the text '1.5'"),
        ('[["nan"]]', "x.json: row 1, column 1 is the text 'nan'"),
        ('[[1, "a\\u001b[31m"]]', "x.json: row 1, column 2 is the text 'a\\x1b[31m'"),
        ("[[1, null]]", "x.json: row 1, column 2 is null, expected a number"),
        ("[[1, {}]]", "x.json: row 1, column 2 is an object, expected a number"),
        ("[[1, true]]", "x.json: row 1, column 2 is true, expected a number; a number may also be"),
        ("[[true, 0]]", "x.json: row 1, column 2 is 0, expected true or false"),
        ("[[true, NaN]]", "x.json: row 1, column 2 is nan, expected true or false"),
        ("[[1, 1e999]]", "x.json: row 1, column 2 is 1e999, beyond float64"),
        ("[[1], [-1e999]]", "x.json: row 2, column 1 is -1e999, beyond float64"),
        ("[[0.5, 1" + "0" * 309 + "]]", "x.json: row 1, column 2 is 1000000000"),
        ("[[1, 1" + "0" * 309 + "]]", "x.json: row 1, column 2 is 1000000000"),
        ("[[" + "9" * 4000 + "]]", "x.json: row 1, column 1 is 999999"),
        ("[[" + "9" * 5000 + "]]", "x.json holds a number beyond float64"),
        ('{"q": [[1]], "q": [[2]]}', "x.json has the key 'q' twice; keep one"),
        ('{"q": [[1]], "x": {"a": 1, "a": 2}}', "x.json has the key 'a' twice"),
        ("[" * 100_000, "x.json is nested too deeply"),
        ("[" * 20 + "1" + "]" * 20, "x.json is nested more than 16 deep"),
        ('{"q": [[1]], "scale": "x"}', "x.json, scale is not a number"),
        ('{"q": [[1]], "scale": 1, "Scale": 2}', "x.json has scale twice, in other letters; keep"),
        ('{"q": [[1]], "tokens": ["a"], "Tokens": ["b"]}', "x.json has tokens twice"),
        ('{"q": [[1]], "tokens": []}', "x.json, tokens is an empty list; write"),
        ('{"q": [[1]], "scale": true}', "x.json, scale is not a number"),
        ('{"q": [[1]], "scale": NaN}', "x.json, scale is not finite"),
        ('{"q": [[1]], "scale": 1' + "0" * 320 + "}", "x.json, scale is not finite"),
        ('{"q": [[1]], "scale": 1e999}', "x.json, scale is not a number"),
        ('{"q": [[1]], "tokens": ["a", 1]}', "x.json, tokens: entry 2 is not a string"),
        ('{"q": [[1]], "tokens": 5}', "x.json, tokens is not a list of strings"),
        ('{"q": [[1]], "tokens": {"query": []}}', "x.json, tokens names query; write"),
        ('{"q": [[1]], "tokens": {"keys": [1]}}', "x.json, tokens.keys: entry 1 is not"),
        ('{"q": [[1]], "tokens": ["\\ud800"]}', "x.json holds \\ud800, half of a surrogate"),
    ],
)
def test_errors_name_file_and_location(text: str, expected: str, tmp_path: Path) -> None:
    assert message(tmp_path, text).startswith(expected)


def test_long_number_is_shortened_in_the_message(tmp_path: Path) -> None:
    assert len(message(tmp_path, "[[" + "9" * 4000 + "]]")) < 120


def test_whole_surrogate_pair_and_escaped_backslash_are_read(tmp_path: Path) -> None:
    loaded = read(tmp_path, '{"q": [[1]], "tokens": ["\\ud83d\\ude00\\\\ud800"]}')
    assert loaded.query_labels == ("\U0001f600\\ud800",)


def test_undecodable_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b'{"q": [[1]], "t": "\xff"}')
    with pytest.raises(InputError, match=r"x\.json is not text: byte 20 is not utf-8"):
        load(str(path))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_other_encodings_of_json(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes("[[1, 2]]".encode(encoding))
    assert load(str(path)).arrays[""].tolist() == [[1, 2]]


def test_what_has_no_role_is_not_used_and_said_to_be(tmp_path: Path) -> None:
    loaded = read(tmp_path, '{"n": 5, "q": [[1]], "meta": {"a": 1}, "names": ["a"], "maks": "x"}')
    assert list(loaded.arrays) == ["q"]
    assert [note.partition("x.json")[2] for note in loaded.notes] == [
        ": not used: names, n, meta, maks; did you mean mask?"
    ]


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("k", "3", "3"),
        ("mask", '{"causal": true}', "an object"),
        ("mask", '"x"', "the text 'x'"),
        ("attention_mask", "true", "true"),
        ("past_k", '"x"', "the text 'x'"),
        ("Values", "{}", "an object"),
    ],
)
def test_a_name_with_a_role_must_hold_an_array(
    tmp_path: Path, name: str, value: str, what: str
) -> None:
    message = f"x.json, {name} is {what}, not an array; give it numbers, or leave it out"
    with pytest.raises(InputError, match=re.escape(message)):
        read(tmp_path, f'{{"q": [[1]], "{name}": {value}}}')


def test_null_is_nothing_and_a_title_need_not_be_used(tmp_path: Path) -> None:
    loaded = read(tmp_path, '{"q": [[1]], "mask": null, "title": "x"}')
    assert (list(loaded.arrays), loaded.others, loaded.notes) == (["q"], ("title",), ())


def test_query_tokens_are_used_before_tokens(tmp_path: Path) -> None:
    loaded = read(tmp_path, '{"q": [[1]], "tokens": ["a"], "query_tokens": ["b"]}')
    assert (loaded.query_labels, loaded.key_labels) == (("b",), ("a",))


def test_scale_is_read_with_a_member(tmp_path: Path) -> None:
    assert read(tmp_path, '{"q": [[1]], "k": [[2]], "scale": 0.5}', "k").scale == 0.5


def test_member(tmp_path: Path) -> None:
    loaded = read(tmp_path, '{"a": [[1]], "b": [[2]], "c": [null]}', "b")
    assert {name: a.tolist() for name, a in loaded.arrays.items()} == {"b": [[2]]}
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("text", "member", "expected"),
    [
        ('{"a": [[1]], "b": 5}', "c", "x.json holds no 'c'; it holds a, b; name one: x.json::a"),
        ('{"a": [[1]], "b": 5}', "b", "x.json, b is 5, not an array"),
        ('{"a": [[1]], "b": [null]}', "b", "x.json, b: entry 1 is null"),
        ("[[1]]", "q", "x.json holds one array without a name, not 'q'; leave out ::name"),
    ],
)
def test_member_that_is_not_there(text: str, member: str, expected: str, tmp_path: Path) -> None:
    assert message(tmp_path, text, member).startswith(expected)


NESTED = '{"layer": {"q": [[1]], "k": {"deep": [[2]]}, "name": "x"}, "heads": [{"v": [[3]]}, {"v": [[4]]}]}'


def test_names_of_nested_objects_are_joined(tmp_path: Path) -> None:
    loaded = read(tmp_path, NESTED, "layer.k.deep")
    assert loaded.arrays["layer.k.deep"].tolist() == [[2]]
    assert read(tmp_path, NESTED, "heads.1.v").arrays["heads.1.v"].tolist() == [[4]]
    part = read(tmp_path, NESTED, "layer")  # everything in it, by what its name is there
    assert {name: x.tolist() for name, x in part.arrays.items()} == {"q": [[1]]}
    assert part.unread == ("k.deep",)
    message_of_all = message(tmp_path, NESTED, "nothing")
    assert "it holds layer.q, layer.k.deep, heads.0.v, heads.1.v, layer.name" in message_of_all


def test_an_array_may_have_a_row_for_each_word(tmp_path: Path) -> None:
    text = '{"q": {"the": [1, 0], "cat": [0, 1]}, "k": [[1, 1]]}'
    loaded = read(tmp_path, text)
    assert loaded.arrays["q"].tolist() == [[1, 0], [0, 1]]
    assert loaded.words == {"q": ("the", "cat")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a.b": [[1]], "a": {"b": [[2]]}}', "x.json has 'a.b' twice; keep one of them"),
        ('{"a": ' * 20 + "[[1]]" + "}" * 20, "x.json is nested too deeply"),
        ('{"q": {"the": [1, 0], "cat": [0]}}', "x.json, q: row 2 has 1 entry, row 1 has 2"),
        ('{"q": [[1]], "k": {"m": [[2]]}}', "x.json, k is an object, not an array"),
        ('{"q": [[1]], "k": {"the": ["a"]}}', "x.json, k is an object, not an array"),
    ],
)
def test_nested_objects_that_are_refused(text: str, expected: str, tmp_path: Path) -> None:
    assert message(tmp_path, text).startswith(expected)


def test_an_object_called_key_may_hold_its_weights(tmp_path: Path) -> None:
    loaded = read(tmp_path, '{"q": [[1]], "key": {"weight": [[2]]}}')
    assert (list(loaded.arrays), loaded.unread) == (["q"], ("key.weight",))
