"""attncli check --by-hand: one sheet, a folder of them, what is assumed, and what cannot be used."""

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Call

INPUTS: dict[str, Any] = {
    "q": [[1, 0], [0, 1], [1, 1]],
    "k": [[1, 1], [1, 0], [0, 1]],
    "v": [[10, 0], [0, 10], [5, 5]],
}
RIGHT: dict[str, Any] = {  # worked by hand, as in article 004
    "scores": [[1, 1, 0], [1, 0, 1], [2, 1, 1]],
    "scaled": [[0.71, 0.71, 0], [0.71, 0, 0.71], [1.41, 0.71, 0.71]],
    "weights": [["0.40", "0.40", "0,20"], [0.4, 0.2, 0.4], ["1/2", 0.25, None]],
    "output": [[5, 5], [6.02, 3.98], [6.28, 3.72]],
}
# q3·k1 = 1·1 + 1·1 = 2, not 3; what follows is computed from the 3: e^2.12 = 8.33, e^0.71 = 2.03
ONE = {
    **RIGHT,
    "scores": [[1, 1, 0], [1, 0, 1], [3, 1, 1]],
    "scaled": [[0.71, 0.71, 0], [0.71, 0, 0.71], [2.12, 0.71, 0.71]],
    "weights": [[0.4, 0.4, 0.2], [0.4, 0.2, 0.4], [0.67, 0.16, 0.16]],
    "output": [[5, 5], [6.02, 3.98], [7.55, 2.45]],
}
ONE_TEXT = (
    "S[q3,k1] is 3, should be 2: a term is counted twice, that of dimension 1 or that of "
    "dimension 2; the rest follows from it\n"
)


def write(path: str, **sheet: Any) -> str:
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text(json.dumps(sheet))
    return path


def test_a_sheet_with_one_mistake_and_one_that_is_right(call: Call) -> None:
    wrong = call("check", write("one.json", **INPUTS, **ONE), "--by-hand")
    assert (wrong.code, wrong.out, wrong.err) == (1, f"one mistake: {ONE_TEXT}", "")
    right = call("check", write("right.json", **INPUTS, **RIGHT), "--by-hand")
    assert (right.code, right.out) == (0, "all right: 32 numbers, 1 cell left blank\n")
    letters = {"S": ONE["scores"], "O": ONE["output"]}
    assert call("check", write("s.json", **INPUTS, **letters), "--by-hand").out == wrong.out
    write("stages.json", **ONE)
    apart = call("check", "stages.json", "--q", write("qkv.json", **INPUTS), "--by-hand")
    assert apart.out == wrong.out


def test_as_json_and_into_a_file(call: Call) -> None:
    call("check", write("one.json", **INPUTS, **ONE), "--by-hand", "-o", "marks.json")
    marks = json.loads(Path("marks.json").read_text())
    assert marks["follows"] == ["scaled", "weights", "output"]
    (mistake,) = marks["mistakes"]
    assert mistake["cells"] == [{"name": "S[q3,k1]", "at": [3, 1], "written": "3", "expected": "2"}]


def test_a_folder_gives_a_table_and_an_unusable_sheet_is_one_line(call: Call) -> None:
    write("sheets/anna.json", **INPUTS, **RIGHT)
    write("sheets/ben.json", **INPUTS, **ONE)
    write("sheets/cem.json", **INPUTS, scores=[[1, "two"]])
    write("sheets/dora.json", **INPUTS, weights=[[0.4, 0.4, 0.2], [0.4, 0.2, 0.4]])
    done = call("check", "sheets", "--by-hand")
    head, anna, ben, cem, dora = done.out.splitlines()
    assert (done.code, head.split("  ")[0]) == (2, "sheet")
    assert "all right" in anna
    assert "S[q3,k1] is 3, should be 2" in ben
    assert "scaled, weights, output" in ben
    assert "cannot be used" in cem
    assert "'two', which is no number" in cem
    assert "weights is 2 × 3, should be 3 × 3" in dora
    assert len(done.err.splitlines()) == 1
    two = call("check", "sheets/anna.json", "sheets/ben.json", "--by-hand", "--format", "json")
    assert (two.code, [*two.json["sheets"]]) == (1, ["sheets/anna.json", "sheets/ben.json"])


def test_in_a_folder_each_sheet_that_cannot_be_used_is_named(call: Call) -> None:
    write("sheets/anna.json", **INPUTS, **RIGHT)
    write("sheets/ben.json", **{**INPUTS, "q": [[1, 0, 2]]}, scores=[[1, 1, 0]])
    done = call("check", "sheets", "--by-hand")
    assert (done.code, done.err.count("ben.json"), len(done.err.splitlines())) == (2, 1, 1)


def test_a_table_of_sheets_is_as_wide_as_the_screen(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("anna", "ben-with-a-name-that-is-longer-than-its-column"):
        write(f"sheets/{name}.json", **INPUTS, **ONE)
    assert max(map(len, call("check", "sheets", "--by-hand").out.splitlines())) > 140
    monkeypatch.setattr("attncli.cli.by_hand.text_width", lambda output: 61)
    lines = call("check", "sheets", "--by-hand").out.splitlines()
    assert max(map(len, lines)) <= 61
    first = [line.split("  ")[0] for line in lines[1:]]  # no letter of a name is lost
    assert "ben-with-a-name-that-is-longer-than-its-column.json" in "".join(first)


def test_what_a_causal_sheet_says_of_itself_is_no_note(call: Call) -> None:
    sheet = write("causal.json", **INPUTS, causal=True, scores=RIGHT["scores"])
    assert call("check", sheet, "--by-hand").err == ""


def test_a_list_where_a_table_belongs(call: Call) -> None:
    done = call("check", write("flat.json", **INPUTS, scores=[1, 1, 0]), "--by-hand")
    assert done.out == "one mistake: scores is one list of 3, should be 3 × 3\n"


def test_two_mistakes_and_slips_that_cannot_be_told_apart(call: Call) -> None:
    both = {**ONE, "output": [[5, 5], [6.02, 3.98], [7.55, 4.25]]}
    done = call("check", write("both.json", **INPUTS, **both), "--by-hand")
    first, *mistakes = done.out.splitlines()
    assert first == "2 mistakes; the rest follows from these"
    assert mistakes[1].startswith("  O[q3,2] is 4.25, should be 2.4")
    square = {"q": [[1, 2], [3, 4]], "k": [[0, 1], [2, 1]], "v": [[1, 0], [0, 1]]}
    # (2, 4; 4, 10) would be Q Kᵀ; K Qᵀ turns it round
    done = call("check", write("t.json", **square, scores=[[2, 4], [4, 10]]), "--by-hand")
    assert done.code == 0
    turned = call("check", write("t.json", **square, scores=[[2, 4], [4, 9]]), "--by-hand")
    assert turned.out.startswith("one mistake: S[q2,k2] is 9, should be 10")


def test_a_causal_sheet_and_cells_that_are_hidden(call: Call) -> None:
    causal = {**INPUTS, "causal": True, "scores": RIGHT["scores"]}
    masked = [[0.71, "-inf", "−∞"], [0.71, 0, -1e9], [1.41, 0.71, 0.71]]
    weights = [[1, 0, 0], [0.67, 0.33, None], [0.5, 0.25, 0.25]]
    right = write("causal.json", **causal, masked=masked, weights=weights)
    assert call("check", right, "--by-hand").code == 0
    zeros = [[0.71, 0, 0], [0.71, 0, 0], [1.41, 0.71, 0.71]]
    done = call("check", write("zeros.json", **causal, masked=zeros), "--by-hand")
    assert done.out.endswith(": 0 in place of −∞; the rest is right\n")


def test_q_k_and_v_of_x_are_marked_too(call: Call) -> None:
    of_x = {"x": [[1, 2], [0, 1]], "w_q": [[1, 0], [1, 1]], "w_k": [[0, 1], [1, 0]],
            "w_v": [[2, 0], [0, 2]]}  # fmt: skip
    # Q = (3 2; 1 1), K = (2 1; 1 0), V = (2 4; 0 2)
    tables = {"q": [[3, 2], [1, 2]], "k": [[2, 1], [1, 0]], "scores": [[8, 3], [4, 1]]}
    done = call("check", write("x.json", **of_x, **tables), "--by-hand")
    assert done.code == 1
    assert done.out.startswith("one mistake: Q[q2,2] is 2, should be 1")
    # q2·k1 = 1·2 + 2·1 = 4 follows from the 2
    assert done.out.endswith("; the rest follows from it\n")


def test_weights_that_are_nested_and_a_q_of_x_with_a_blank(call: Call) -> None:
    weights = {"w_q": [[1, 0], [1, 1]], "w_k": [[0, 1], [1, 0]], "w_v": [[2, 0], [0, 2]]}
    tables = {"q": [[3, None], [1, 1]], "scores": [[8, 3], [3, 1]]}  # as in the test before
    path = write("nested.json", x=[[1, 2], [0, 1]], attention=weights, **tables)
    done = call("check", path, "--by-hand")
    assert (done.code, done.out, done.err) == (0, "all right: 7 numbers, 1 cell left blank\n", "")
    write("apart.json", **tables)
    of_x = ("--x", write("x.json", x=[[1, 2], [0, 1]], **weights))
    assert call("check", "apart.json", *of_x, "--by-hand").out == done.out


def test_a_sheet_from_standard_input(call: Call) -> None:
    sheet = json.dumps({**INPUTS, **ONE}).encode()
    assert call("check", "-", "--by-hand", stdin=sheet).out == f"one mistake: {ONE_TEXT}"


def test_it_is_assumed_where_no_known_bug_fits(call: Call) -> None:
    path = write("one.json", **INPUTS, **ONE)
    done = call("check", path)
    assert done.code == 1
    assert done.out.splitlines()[0].startswith("marked by hand, as no known bug fits")
    assert done.out.endswith(ONE_TEXT)
    assert call("check", path, "--format", "json").json["by_hand"]["mistakes"]
    for flags in (("--no-by-hand",), ("--decimals", "2"), ("--rtol", "1e-3")):
        assert "worst entries" in call("check", path, *flags).out


def test_what_only_rounding_by_hand_explains_is_called_so(call: Call) -> None:
    """A = (0.40, 0.40, 0.20), so O[q1,2] = 0.40 · 10 = 4.00, and exactly 0.40111 · 10 = 4.01."""
    values = [[10, 0], [0, 10], [0.01, 0]]
    sheet = {**INPUTS, "q": [[1, 0]], "v": values, "output": [[4.01, 4.0]]}
    path = write("rounded.json", **sheet)
    assert call("check", path, "--by-hand").code == 0
    done = call("check", path)
    assert (done.code, done.out.splitlines()[0][:10]) == (1, "it differs")
    assert done.out.splitlines()[-1].startswith("computed by hand")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--by-hand",), "there is no sheet to mark"),
        (("none.json", "--by-hand"), "none.json"),
        (("list.json", "--by-hand"), "list.json holds no q"),
        (("empty.json", "--by-hand"), "holds no stage to mark"),
        (("stages.json", "--by-hand"), "stages.json holds no q"),
        (("ragged.json", "--by-hand"), "is no table"),
        (("blank.json", "--by-hand"), "blank.json holds no number to mark"),
        (("nan.json", "--by-hand"), "nan.json, scores holds 'nan', which is no number"),
        (("twice.json", "--by-hand"), "twice.json: scores is there twice"),
        (("masked.json", "--by-hand"), "masked.json: there is no masked in what"),
        (("sizes.json", "--by-hand"), "sizes.json: q and k must have the same d_k"),
        (
            ("score.json", "--by-hand"),
            "score.json names 'score', which is not a stage; did you mean scores?",
        ),
        (("stages.json", "--by-hand", "--decimals", "3"), "cannot be used with --decimals"),
        (("stages.json", "stages.json"), "without --by-hand"),
    ],
)
def test_what_cannot_be_used_is_one_line(call: Call, words: tuple[str, ...], message: str) -> None:
    Path("list.json").write_text("[[1, 2]]")
    write("empty.json", **INPUTS)
    write("stages.json", **ONE)
    write("ragged.json", **INPUTS, scores=[[1, 2], [3]])
    write("blank.json", **INPUTS, scores=[[None, "", "?"]] * 3)
    write("nan.json", **INPUTS, scores=[[1, 2, float("nan")]] * 3)
    write("twice.json", **INPUTS, scores=[[1, 1, 0]] * 3, S=[[1, 1, 0]] * 3)
    write("sizes.json", **{**INPUTS, "q": [[1, 0, 2]]}, scores=[[1, 1, 0]])
    write("masked.json", **INPUTS, masked=[[1, 1, 0]] * 3)
    write("score.json", **INPUTS, score=[[1, 1, 0]] * 3)
    done = call("check", *words)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert message in done.err


def test_a_sheet_that_cannot_be_read_is_named(call: Call) -> None:
    Path("ragged.json").write_text('{"q": [[1, 2], [3]], "scores": [[1]]}', encoding="utf-8")
    outcome = call("check", "ragged.json", "--by-hand")
    assert outcome.code == 2
    assert "ragged.json" in outcome.err
    assert "standard input" not in outcome.err
