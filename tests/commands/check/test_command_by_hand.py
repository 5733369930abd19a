"""attncli check --by-hand: one sheet, a folder of them, what is assumed, and what cannot be used."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.calls import Call
from tests.turns import in_turn

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
    number = {"name": "S[q3,k1]", "at": [3, 1], "written": "3", "expected": "2", "off": "1"}
    assert mistake["cells"] == [number]
    assert mistake["cause"] in ONE_TEXT


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
    monkeypatch.setattr("attncli.commands.check.by_hand.command.text_width", lambda output: 61)
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
        assert "where it differs most" in call("check", path, *flags).out


def test_it_is_assumed_of_letters_and_names_of_libraries_too(call: Call) -> None:
    letters = {"S": ONE["scores"], "Z": ONE["scaled"], "A": ONE["weights"], "O": ONE["output"]}
    done = call("check", write("letters.json", **INPUTS, **letters))
    assert (done.code, done.out.endswith(ONE_TEXT)) == (1, True)
    observed = write("observed.json", attn_weights=ONE["weights"], attn_output=ONE["output"])
    apart = call("check", "--q", write("qkv.json", **INPUTS), "--observed", observed)
    assert (apart.code, "marked by hand" in apart.out) == (1, True)


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


# S = (1 1 0; 1 0 1; 2 1 1) and Z = S / 1.4142: e^0.7071 = 2.0281, e^1.4142 = 4.1133
OF_A_HAND = {  # slip → the weights that somebody wrote
    # all exponentials: 4 · 2.0281 + 4.1133 + 2 · 2.0281 + 2 · 1 = 18.282
    "softmax of the whole table, not of the row": [
        [0.1109, 0.1109, 0.0547], [0.1109, 0.0547, 0.1109], [0.225, 0.1109, 0.1109],
    ],
    # e^0.4011 = 1.4935, e^0.1978 = 1.2187, e^0.5035 = 1.6545, e^0.2483 = 1.2818
    "softmax twice": [
        [0.3551, 0.3551, 0.2898], [0.3551, 0.2898, 0.3551], [0.3922, 0.3039, 0.3039],
    ],
    # e^−0.7071 = 0.4931, e^−1.4142 = 0.2431
    "exp(−Z) in place of exp(Z)": [
        [0.2483, 0.2483, 0.5035], [0.2483, 0.5035, 0.2483], [0.1978, 0.4011, 0.4011],
    ],
    "no exp, each score is divided by the sum of its row": [
        [0.5, 0.5, 0], [0.5, 0, 0.5], [0.5, 0.25, 0.25],
    ],
}  # fmt: skip


def form_of(form: str, weights: list[list[float]]) -> tuple[str, ...]:
    """The words of a call that give the weights in this form."""
    if form == "npz":
        np.savez("weights.npz", weights=np.array(weights))
    elif form == "csv":
        Path("weights.csv").write_text("\n".join(",".join(map(str, row)) for row in weights))
    elif form == "stages":
        return ("--observed", write("stages.json", weights=weights))
    source = {"literal": json.dumps(weights)}.get(form, f"weights.{form}")
    return "--observed", source, "--stage", "weights"


@pytest.mark.parametrize(("name", "form"), in_turn(OF_A_HAND, ["literal", "csv", "stages", "npz"]))
def test_numbers_of_a_hand_are_known_in_whatever_form_they_come(
    call: Call, name: str, form: str
) -> None:
    words = ("check", "--q", write("qkv.json", **INPUTS), *form_of(form, OF_A_HAND[name]))
    asked = call(*words, "--by-hand")
    assert (asked.code, name in asked.out) == (1, True)
    unasked = call(*words)
    assert (unasked.code, unasked.out.partition("\n")[2]) == (1, asked.out)
    marks = call(*words, "--by-hand", "--format", "json").json
    assert name in marks["mistakes"][0]["cause"]


def test_numbers_of_a_program_are_not_marked_unasked(call: Call) -> None:
    words = ("check", "--q", write("qkv.json", **INPUTS), "--stage", "weights", "--rows", "1")
    assert "marked by hand" not in call(*words, "--observed", "[[0.31234567, 0.3, 0.2]]").out
    rounded = ("--observed", "[[0.31, 0.3, 0.2]]")
    assert "marked by hand" not in call(*words, *rounded, "--dtype", "float32").out


def test_some_rows_are_marked_and_the_others_are_not_blank(call: Call) -> None:
    """O[q1,2] = 0.40 · 10 + 0.20 · 5 = 5; without the term of key 3 it is 4."""
    call_of_row = ("check", "--q", write("qkv.json", **INPUTS), "--rows", "1", "--observed")
    text = "one mistake: O[q1,2] is 4, should be 5: a term is left out, that of key 3\n"
    done = call(*call_of_row, "[5, 4]", "--by-hand")
    assert (done.code, done.out) == (1, text)
    assert call(*call_of_row, "[5, 4]").out.endswith(text)
    assert call(*call_of_row, "[5, 5]", "--by-hand").out == "all right: 2 numbers\n"
    blank = call(*call_of_row, "[5, null]", "--by-hand")
    assert blank.out == "all right: 1 number, 1 cell left blank\n"
    assert call(*call_of_row, "[5, 5, 5]", "--by-hand").code == 2


def test_one_head_is_marked(call: Call) -> None:
    """Of the second head q1·k1 = 2·1, q1·k2 = 2·3, and of q2 half as much."""
    heads = {
        "q": [[[1], [0]], [[2], [1]]],
        "k": [[[1], [2]], [[1], [3]]],
        "v": [[[1], [2]], [[1], [2]]],
    }
    q = ("--q", write("heads.json", **heads), "--head", "2", "--stage", "scores")
    assert call("check", *q, "--observed", "[[2, 6], [1, 3]]", "--by-hand").code == 0
    done = call("check", *q, "--observed", "[[2, 5], [1, 3]]", "--by-hand")
    assert done.out.startswith("one mistake: S[head 2,q1,k2] is 5, should be 6: ")


def test_a_cause_that_is_not_known_is_said_to_be_unknown(call: Call) -> None:
    """0.50 · 0 + 0.25 · 10 + 0.25 · 5 = 3.75, or of unrounded weights 3.72."""
    output = [["5.00", "5.00"], [6.02, 3.98], [6.28, 4.3]]
    done = call("check", write("off.json", **INPUTS, output=output), "--by-hand")
    assert done.out == "one mistake: O[q3,2] is 4.30, should be 3.72: off by 0.58, cause unknown\n"


def test_a_form_with_scaled_scores_where_the_scale_is_none(call: Call) -> None:
    sheet = {**INPUTS, "scale": "none", "scores": RIGHT["scores"], "scaled": RIGHT["scores"]}
    assert call("check", write("form.json", **sheet), "--by-hand").code == 0
    sheet["scaled"] = RIGHT["scaled"]
    assert call("check", write("form.json", **sheet), "--by-hand").code == 1


def test_the_marks_of_a_class_are_a_row_for_each_sheet(call: Call) -> None:
    """Of ONE the score of q3 and k1 is wrong; the other three stages only follow from it."""
    write("sheets/anna.json", **INPUTS, **RIGHT, name=" Anna B. ")
    write("sheets/ben.json", **INPUTS, **ONE, name="=1+1")
    write("sheets/cem.json", **INPUTS, scores=[[1, "two"]])
    write("sheets/dora.json", **INPUTS, scores=[[None] * 3] * 3, output=[[None] * 2] * 3)
    assert call("check", "sheets", "--by-hand", "-o", "marks.csv").code == 2
    head, anna, ben, cem, dora = csv.reader(Path("marks.csv").read_text().splitlines())
    assert head[:6] == ["sheet", "name", "right", "of", "blank", "mistakes"]
    assert [*zip(head[9:], anna[9:], strict=True)] == [
        ("scores", "9"), ("scores of", "9"), ("scaled", "9"), ("scaled of", "9"),
        ("weights", "8"), ("weights of", "9"), ("output", "6"), ("output of", "6"),
    ]  # fmt: skip
    assert anna[:9] == ["anna.json", "Anna B.", "32", "33", "1", "0", "", "", ""]
    assert ben[:7] == ["ben.json", "'=1+1", "32", "33", "0", "1", "S[q3,k1] is 3, should be 2"]
    assert (ben[8], ben[9:]) == (
        "scaled, weights, output",
        ["8", "9", "9", "9", "9", "9", "6", "6"],
    )
    assert (cem[:6], cem[6]) == (["cem.json", "cem", *[""] * 4], "cannot be used")
    assert dora[2:7] == ["0", "15", "15", "0", "nothing is filled in"]
    shown = call("check", "sheets/anna.json", "sheets/ben.json", "--by-hand")
    assert ("32/33" in shown.out, "all right" in shown.out) == (True, True)
    one = call("check", "sheets/ben.json", "--by-hand", "--format", "json").json
    assert (one["name"], one["points"]["scores"]) == ("=1+1", {"right": 8, "of": 9})


@pytest.mark.parametrize("name", ["sheet.md", "sheet.html", "sheet.tex", "sheet.txt"])
def test_a_sheet_for_people_names_the_form_that_works(call: Call, name: str) -> None:
    call("compute", "--random", "3x2", "--blank", "--output", name)
    done = call("check", name, "--by-hand")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert "fill in the sheet as JSON or csv" in done.err


def test_csv_is_a_form_of_marks_alone(call: Call) -> None:
    path = write("one.json", **INPUTS, **ONE)
    for words in (("-o", "marks.csv"), ("--format", "tsv")):
        done = call("check", path, *words)
        assert (done.code, "is a form of marks" in done.err) == (2, True)
    assert not Path("marks.csv").exists()
