"""attncli similarity: the numbers of a published example, and words that are not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import SAMPLES, Call

WORDS = str(SAMPLES / "words.txt")
FAMILY = ["king=0.9,0.5,0.1", "queen=0.2,0.5,0.1", "dad=0.9,0.7,0.9", "mom=0.2,0.7,0.9"]


def stages(document: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for step in document["steps"]:
        if step["kind"] == "trace":
            found |= stages(step)
        else:
            found[step["name"]] = step
    return found


def test_cosines_of_the_published_example(call: Call) -> None:
    found = stages(
        call("similarity", "mom", "dad", "king", "--vectors", WORDS, "--format", "json").json
    )
    cosines = np.array(found["cosines"]["value"])
    assert round(cosines[0, 1], 10) == 0.8801730942
    assert round(cosines[0, 2], 10) == 0.5177825398


def test_two_words_come_with_their_arithmetic(call: Call) -> None:
    out = call("similarity", *FAMILY[2:]).out
    assert "dad · mom = 0.9·0.2 + 0.7·0.7 + 0.9·0.9 = 1.48" in out
    assert "‖dad‖ = √(0.9² + 0.7² + 0.9²) = 1.4526" in out
    assert "cos(dad, mom) = 1.48 / (1.4526 · 1.1576) = 0.8802" in out
    assert "angle(dad, mom) = arccos(0.8802) = 28.3367°" in out


def test_vectors_in_brackets_and_fractions_are_the_same_vectors(call: Call) -> None:
    plain = call("similarity", "king=0.5,2", "dad=1,-0.25")
    assert plain.code == 0
    assert call("similarity", "king=[1/2, 2]", "dad=(1,-.25)") == plain


def test_three_words_have_angles(call: Call) -> None:
    out = call("similarity", "a=1,2", "b=2,4", "c=-2,1", "--stage", "angles").out
    assert out.splitlines()[-3:] == [
        "  a       0       0      90",
        "  b       0       0      90",
        "  c      90      90       0",
    ]


def test_king_is_to_queen_as_dad_is_to_mom(call: Call) -> None:
    result = call("similarity", *FAMILY, "--analogy", "king", "queen", "dad", "--format", "json")
    found = stages(result.json)
    np.testing.assert_allclose(found["analogy"]["value"], [0.2, 0.7, 0.9])
    assert found["nearest"]["labels"]["word"] == ["mom"]


def test_the_words_of_an_analogy_need_not_be_named_again(call: Call) -> None:
    result = call("similarity", "--analogy", "king", "queen", "dad", "--vectors", WORDS)
    assert result.code == 0
    assert "  mom" in result.out


def test_nearest_leaves_the_word_itself_out(call: Call) -> None:
    result = call("similarity", "bank", "--nearest", "2", "--vectors", WORDS, "--format", "json")
    names = stages(result.json)["nearest"]["labels"]["word"]
    assert names[0] == "river"
    assert len(names) == 2
    assert "bank" not in names


def test_components_of_points_in_a_plane_are_those_points(call: Call) -> None:
    points = {"a": (3.0, 0.0), "b": (-3.0, 0.0), "c": (0.0, 1.0), "d": (0.0, -1.0)}
    words = [f"{word}={x},{y}" for word, (x, y) in points.items()]
    found = stages(call("similarity", *words, "--pca", "--format", "json").json)
    np.testing.assert_allclose(found["coordinates"]["value"], list(points.values()), atol=1e-12)
    np.testing.assert_allclose(found["shares"]["value"], [0.9, 0.1])  # 18 and 2 of 20


def test_the_plot_names_every_point(call: Call) -> None:
    out = call("similarity", "a=3,0", "b=-3,0", "c=0,1", "--pca", "--stage", "coordinates").out
    plot = out[out.index("●") - 80 :]
    assert plot.count("●") == 3
    assert all(name in plot for name in "abc")


def test_folded_case_is_noted(call: Call) -> None:
    result = call("similarity", "King", "dad", "--vectors", WORDS)
    assert result.code == 0
    assert "has no 'King', only 'king': taken" in result.err


def test_wide_vectors_are_left_out_unless_asked_for(call: Call) -> None:
    wide = [f"{word}={','.join(['1', *['0'] * 19, str(at)])}" for at, word in enumerate("abc")]
    short = call("similarity", *wide)
    assert "vectors are left out" in short.err
    assert "1  vectors" not in short.out
    assert "1  vectors" in call("similarity", *wide, "--full").out
    assert "vectors" in stages(call("similarity", *wide, "--format", "json").json)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "there are no vectors"),
        (["king", "dad"], "there are no vectors"),
        (["--vectors", WORDS], "no word is named"),
        (["kingg", "--vectors", WORDS], "no vector for 'kingg'; did you mean king?"),
        (["king", "--vectors", "missing.txt"], "missing.txt"),
        (["king=1,2", "dad=1"], "dad has 1 number, king has 2; give every word as many"),
        (["king=", "dad=1"], "'king=' has no numbers; write king=0.9,0.5,0.1"),
        (
            ["--analogy", "a", "b", "--vectors", WORDS],
            "takes three words, not 'a b'; write --analogy A",
        ),
        (
            ["dadd", "zzz", "momm", "--vectors", WORDS],
            "for 'dadd', 'zzz', 'momm'; did you mean dad for 'dadd', mom for 'momm'?",
        ),
        (["king=1,x"], "king"),
        (["king", "--vectors", WORDS, "--pca"], "two components need two words"),
        ([*FAMILY, "--pca", "--nearest", "2"], "--pca cannot be used with --nearest"),
        (
            [*FAMILY, "--pca", "--analogy", "king", "queen", "dad"],
            "--pca cannot be used with --analogy",
        ),
        ([*FAMILY, "--analogy", "king", "queen", "prince"], "prince"),
        (["king", "--vectors", WORDS, "--nearest", "0"], "greater than or equal to 1"),
    ],
)
def test_what_is_refused(call: Call, arguments: Any, says: str) -> None:
    result = call("similarity", *arguments)
    assert (result.code, result.out) == (2, ""), result.err
    assert result.err.count("\n") == 1
    assert says in result.err


def test_a_damaged_line_is_named_where_its_word_is_asked_for(call: Call, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("king 1 2 x\nqueen 1 2 3\nman 1 2 3\n")
    result = call("similarity", "king", "queen", "--vectors", "v.txt")
    assert result.code == 2
    reason = "line 1: king holds something that is not a number; skipped"
    assert result.err == f"attncli: v.txt has no vector for 'king'; {reason}\n"


def test_parallel_vectors(call: Call) -> None:
    out = call("similarity", "a=1,2", "b=3,6").out
    assert "angle(a, b) = arccos(1) = 0°" in out
    assert "e-" not in out


def test_one_decimal(call: Call) -> None:
    out = call("similarity", "mom=0.2,0.7,0.9", "dad=0.9,0.7,0.9", "--precision", "2").out
    assert "cos(mom, dad) = 1.48 / (1.16 · 1.45) = 0.88" in out


def test_csv_is_rounded_where_that_is_asked_for(call: Call) -> None:
    words = ("similarity", "a=1,2", "b=2,1", "--stage", "lengths", "--format", "csv")
    assert call(*words).out.splitlines()[1] == "‖a‖,2.23606797749979,2.23606797749979"
    assert call(*words, "--precision", "2").out.splitlines()[1] == "‖a‖,2.24,2.24"
