"""attncli posenc: its tables, and vectors that they turn or are added to."""

import json
import re
from dataclasses import replace
from math import cos, sin
from typing import Any

import numpy as np
import pytest

from attncli import attend, posenc, render
from attncli.cli.calls import trace_of
from attncli.errors import ConventionError
from tests.calls import SAMPLES, Call, arguments_of, stages

THREE = f"--q {SAMPLES / 'three-tokens.json'}"
MINE, WORDS = SAMPLES / "my-examples.json", SAMPLES / "words.txt"
FAMILY = "king=0.9,0.5,0.1 queen=0.2,0.5,0.1 dad=0.9,0.7,0.9 mom=0.2,0.7,0.9"


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("posenc --len 5 --dim 4 --cell 2,3", ["w[i=1] = 10000^(2/4)", "= cos(0.02)", "= 0.9998"]),
        ("posenc --len 5 --dim 4 --cell 'pos 2,2i+1=3'", ["= cos(0.02)"]),
        ("posenc --len 5 --dim 4 --work", ["θ[pos 1,i=0] = 1 / w[i=0] = 1 / 1 = 1", "sin(1) = 0.8415"]),
        ("posenc --len 1 --dim 4 --work", ["PE[pos 0,2i=0]", "sin(0) = 0"]),
        ("posenc --len 2 --dim 5", ["5 is odd"]),
        ("posenc --len 2 --dim 4 --positions article", ["4i/d"]),
    ],
)  # fmt: skip
def test_what_is_shown(call: Call, line: str, texts: list[str]) -> None:
    done = call(*arguments_of(line))
    assert (done.code, done.err) == (0, "")
    assert [text for text in texts if text not in done.out] == []


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("--dim 4", ["positions"]),
        ("--dim 4 --work", ["divisors", "angles", "positions"]),
        ("--dim 4 --full", ["divisors", "angles", "positions"]),
        ("--dim 4 --blank", ["divisors", "angles", "positions"]),
        ("--dim 4 --stage angles", ["angles"]),
        ("--dim 4 --kind rope", ["cos", "sin"]),
        ("--dim 4 --cell 1,2", ["divisors", "angles", "positions"]),
    ],
)
def test_divisors_and_angles_are_there_for_the_arithmetic(
    call: Call, line: str, names: list[str]
) -> None:
    text = call("posenc", "--len", "3", *line.split(), "--format", "markdown").out
    assert re.findall(r"^#### \d\. (\w+)", text, re.MULTILINE) == names
    assert ("left out: " in text) is ("angles" not in names)


def test_a_file_holds_divisors_and_angles() -> None:
    there = json.loads(render(trace_of("posenc --len 3 --dim 4"), "json"))
    assert [step["name"] for step in there["steps"]] == ["divisors", "angles", "positions"]


@pytest.mark.parametrize(
    ("line", "stage", "row"),
    [
        ("--add [[0,0,0,0],[0.5,0.2,0.3,0.1]]", "input",
         [sin(1) + 0.5, cos(1) + 0.2, sin(0.01) + 0.3, cos(0.01) + 0.1]),
        ("--kind rope --apply [[0,0,0,0],[1,2,3,4]] --layout halves", "rotated", [
            cos(1) - 3 * sin(1), 2 * cos(0.01) - 4 * sin(0.01),
            sin(1) + 3 * cos(1), 2 * sin(0.01) + 4 * cos(0.01)]),
        ("--kind rope --apply [[0,0,0,0],[1,2,3,4]] --layout interleaved", "rotated", [
            cos(1) - 2 * sin(1), sin(1) + 2 * cos(1),
            3 * cos(0.01) - 4 * sin(0.01), 3 * sin(0.01) + 4 * cos(0.01)]),
    ],
)  # fmt: skip
def test_positions_and_turned_vectors(call: Call, line: str, stage: str, row: list[float]) -> None:
    table = stages(call("posenc", *line.split(), "--format", "json").json)[stage]
    np.testing.assert_allclose(table[1], row, atol=1e-15)


def test_tables_feed_compute(call: Call) -> None:
    turned = ("--kind", "rope", "--apply", SAMPLES / "heads.json", "--output", "turned.npz")
    assert call("posenc", *turned).code == 0
    flags = ("--q", "turned.npz::queries.rotated", "--k", "turned.npz::keys.rotated")
    assert call("compute", *flags, "--quiet", "--format", "csv").code == 0
    alibi = ("--kind", "alibi", "--heads", "4", "--len", "3", "--output", "bias.npy")
    assert call("posenc", *alibi).code == 0
    bias = np.load("bias.npy")
    assert bias[0, 2].tolist() == [-0.5, -0.25, 0.0]  # slope 2^(−8/4) = 1/4, ALiBi section 3
    q = np.random.default_rng(3).normal(size=(4, 3, 2))
    np.save("q.npy", q)
    done = call("compute", "--q", "q.npy", "--mask", "bias.npy", "--quiet", "--format", "json")
    expected = attend(q, q, q, mask=bias)["output"].value
    np.testing.assert_array_equal(stages(done.json)["output"], expected)


# ---- in Python

X = [[0.5, 0.2, 0.3, 0.1], [1.0, -2.0, 0.0, 3.0]]
TABLES: list[tuple[dict[str, Any], str]] = [
    ({"n": 5, "dim": 3, "positions": "article", "start": 2}, "--len 5 --dim 3 --positions article --start 2"),
    ({"n": 5, "dim": 4, "base": 50.0, "dots": True}, "--len 5 --dim 4 --base 50 --dots"),
    ({"add": X, "n": 2, "base": 7.0}, f"--add '{X}' --len 2 --base 7"),
    ({"add": X[0]}, f"--add '{X[0]}'"),
    ({"add": X, "tokens": ("a", "b")}, f"""--add '{{"x": {X}, "tokens": ["a", "b"]}}'"""),
    ({"n": 3, "dim": 6, "kind": "rope", "start": 1}, "--len 3 --dim 6 --kind rope --start 1"),
    ({"n": 3, "kind": "alibi", "heads": 3}, "--len 3 --kind alibi --heads 3"),
    ({"n": 3, "kind": "alibi", "heads": 2, "symmetric": True}, "--len 3 --kind alibi --heads 2 --symmetric"),
]  # fmt: skip


@pytest.mark.parametrize(("keywords", "line"), TABLES, ids=[line[:30] for _, line in TABLES])
def test_python_gives_what_the_command_gives(keywords: dict[str, Any], line: str) -> None:
    traces = posenc(**keywords), trace_of(f"posenc {line} --format json")
    of_python, of_command = (render(replace(trace, call=None), "json") for trace in traces)
    assert of_python == of_command


def test_embeddings_are_added_and_what_cannot_be_is_refused() -> None:
    added = posenc(add=[0.5, 0.2, 0.3, 0.1])
    np.testing.assert_allclose(added["input"].value, [[0.5, 1.2, 0.3, 1.1]])
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "number of positions is missing"),
        ({"n": 5}, "dim is missing"),
        ({"n": 5, "kind": "alibi"}, "heads is missing"),
        ({"n": 5, "dim": 4, "kind": "learned"}, "kind is 'learned'"),
        ({"add": X, "n": 3}, "n is 3, but add has 2"),
        ({"add": X, "dim": 3}, "dim is 3, but add has 4"),
        ({"add": X, "kind": "rope"}, "add has no effect"),
        ({"add": X, "dots": True}, "add cannot be used with dots"),
        ({"n": 5, "heads": 2, "kind": "alibi", "dots": True}, "dots has no effect"),
    ]
    for keywords, words in wrong:
        with pytest.raises(ConventionError, match=words):
            posenc(**keywords)
