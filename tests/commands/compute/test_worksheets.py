"""compute --blank: what a worksheet says, and the forms of it that can be filled in and marked."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.calls import SAMPLES, Call, arguments_of

RANDOM = "compute --random 3x2 --seed 7"
MASK = "'[[0, -1, \"-Infinity\"], [0, 0, 0], [1, 0, 0]]'"
CALLS = {  # a call, and how many numbers somebody computes
    RANDOM: 9 + 9 + 9 + 6,
    f"{RANDOM} --causal": 9 + 9 + 6 + 9 + 6,  # of the masked ones three are −∞
    f"{RANDOM} --window 1,0": 9 + 9 + 5 + 9 + 6,
    f"{RANDOM} --mask {MASK}": 9 + 9 + 8 + 9 + 6,
    f"{RANDOM} --scale none --softcap 3": 9 + 9 + 9 + 6,
    f"{RANDOM} --softmax-over queries --tokens a,b,c": 9 + 9 + 9 + 6,
    "compute --random 5x6 --heads 2": 2 * (3 * 25 + 15),
    f"compute --x {SAMPLES / 'homework.json'}": 3 * 6 + 3 * 9 + 6,
}


def filled(cells: Any, numbers: Any) -> Any:
    """What is blank in nested lists, with numbers of two decimals."""
    if isinstance(cells, list):
        return [filled(*pair) for pair in zip(cells, numbers, strict=True)]
    return f"{numbers:.2f}" if cells is None else cells


@pytest.mark.parametrize("line", CALLS)
def test_a_sheet_filled_in_from_its_key_is_right(line: str, call: Call) -> None:
    assert call(*arguments_of(line), "--blank", "-o", "sheet.json").code == 0
    assert call(*arguments_of(line), "-o", "key.npz").code == 0
    sheet, key = json.loads(Path("sheet.json").read_text()), np.load("key.npz")
    blank = [name for name in sheet if "null" in json.dumps(sheet[name])]
    sheet |= {name: filled(sheet[name], key[name].tolist()) for name in blank}
    Path("sheet.json").write_text(json.dumps(sheet))
    done = call("check", "sheet.json", "--by-hand")
    assert (done.code, done.out, done.err) == (0, f"all right: {CALLS[line]} numbers\n", "")


def test_a_sheet_as_csv_is_filled_in_too(call: Call) -> None:
    causal = f"{RANDOM} --causal"
    call(*arguments_of(causal), "--blank", "-o", "sheet.csv")
    call(*arguments_of(causal), "-o", "key.npz")
    key, stage, lines = np.load("key.npz"), "", list[list[str]]()
    for row in csv.reader(Path("sheet.csv").read_text().splitlines()):
        stage = row[0] if row and row[0] in key.files else stage
        at = int(row[0][1:]) - 1 if row and row[0] != stage else 0
        numbers = key[stage][at]
        lines.append([x or f"{numbers[n - 1]:.2f}" for n, x in enumerate(row)])
    lines[-1][-1] = "9.99"
    Path("sheet.csv").write_text("\n".join(map(",".join, lines)))
    done = call("check", "sheet.csv", "--by-hand")
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("one mistake: O[q3,2] is 9.99, should be")


@pytest.mark.parametrize("form", ["table", "markdown", "latex", "html", "json"])
def test_a_sheet_says_its_call_its_seed_and_how_many_decimals(form: str, call: Call) -> None:
    sheet = call("compute", "--random", "3x2", "--blank", "--format", form).out
    text = sheet.replace("-{}-", "--").lower()
    assert "attncli compute --random 3x2 --seed 0" in text
    assert "at least 2 decimals" in text
    assert "name:" in text or '"name": ""' in text
    if form != "json":
        exact = call("compute", "--random", "3x2", "--blank", "--precision", "3", "--format", form)
        assert "at least 3 decimals" in exact.out
    assert "decimals" not in call("compute", "--random", "3x2", "--format", "table").out


def test_a_sheet_of_one_stage_has_what_it_is_computed_from(call: Call) -> None:
    of_all = call(*arguments_of(f"{RANDOM} --blank --stage weights")).out
    assert [f"\n{name} " in of_all for name in "qkv"] == [True, True, False]
    of_scaled = call(*arguments_of(f"{RANDOM} --blank weights --stage weights")).out
    assert ("0.7071" in of_scaled, "\nq " in of_scaled) == (True, False)
    sheet = call(*arguments_of(f"{RANDOM} --blank weights --format json")).json
    assert [name for name in sheet if "null" in json.dumps(sheet[name])] == ["weights"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("explain 'I love AI' --blank --format json", "has the numbers of input"),
        (
            "explain 'a b' --block encoder --layers 2 --blank weights --format json",
            "of one attention, and 2 are",
        ),
        (f"{RANDOM} --formulas softcap --blank --format json", "by the formulas of attncli"),
        ("posenc --len 3 --dim 4 --blank --format json", "of attention alone"),
        (f"{RANDOM} --temperature 2 --blank --format csv", "tables cannot say --temperature 2"),
        (f"compute --x {SAMPLES / 'homework.json'} --blank --format tsv", "use json"),
        (f"{RANDOM} --blank --rows 1 --format json", "leave out --head, --rows and --cols"),
    ],
)
def test_what_no_file_can_be_filled_in_for_is_one_line(line: str, message: str, call: Call) -> None:
    done = call(*arguments_of(line))
    assert (done.code, done.out, message in done.err) == (2, "", True)


CLASS = f"{RANDOM.replace('--seed 7', '--seeds 7:10')} --blank"


def test_a_class_has_a_sheet_and_a_key_for_each_seed(call: Call) -> None:
    done = call(*arguments_of(CLASS), "--output", "sheets/")
    assert (done.code, done.out, done.err) == (0, "", "")
    numbers = ("07", "08", "09", "10")
    files = {f"sheet-{n}.{ending}" for n in numbers for ending in ("html", "json")}
    assert {path.name for path in Path("sheets").iterdir()} == files | {"keys"}
    keys = {path.name: path.read_text() for path in Path("sheets/keys").iterdir()}
    assert {*keys} == {f"key-{n}.html" for n in numbers}
    call(*arguments_of(RANDOM), "--blank", "--output", "one.json")
    assert Path("sheets/sheet-07.json").read_text() == Path("one.json").read_text()
    call(*arguments_of(RANDOM), "--output", "key.html")
    assert keys["key-07.html"] == Path("key.html").read_text()
    call("check", *sorted(Path("sheets").glob("*.json")), "--by-hand", "-o", "marks.csv")
    _, *marks = csv.reader(Path("marks.csv").read_text().splitlines())
    assert [row[:4] for row in marks] == [
        [f"sheet-{n}.json", f"sheet-{n}", "0", "33"] for n in numbers
    ]


@pytest.mark.parametrize("folder", ["sheets", "sheets.2026", "sheets/"])
def test_the_folder_of_a_class_is_made_with_or_without_a_slash(folder: str, call: Call) -> None:
    assert call(*arguments_of(CLASS), "--output", folder).code == 0
    assert Path(folder, "sheet-07.html").exists()


def test_a_class_is_written_whole_or_not_at_all(call: Call) -> None:
    words = (*arguments_of(CLASS), "--format", "json")
    assert call(*words, "--output", "sheets").code == 0
    Path("sheets/sheet-07.json").unlink()
    done = call(*words, "--output", "sheets")
    assert (done.code, "exists already" in done.err) == (2, True)
    assert not Path("sheets/sheet-07.json").exists()
    assert call(*words, "--output", "sheets", "--force").code == 0
    names = {f"sheet-{n}.json" for n in ("07", "08", "09", "10")}
    assert {path.name for path in Path("sheets").iterdir()} == names | {"keys"}
    assert call(*words, "--rows", "1", "--output", "others/").code == 2
    assert [path.name for path in Path().iterdir()] == ["sheets"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--seeds 3:1 --blank --output sheets/", "--seeds '3:1' is not understood"),
        ("--seeds 0:1000 --blank --output sheets/", "at most 1000 seeds"),
        ("--seeds 1:3 --output sheets/", "no effect without --blank"),
        ("--seeds 1:3 --blank", "no effect without --output"),
        ("--seeds 1:3 --seed 2 --blank --output sheets/", "cannot be used with --seed"),
        ("--seeds 1:3 --blank --output none/sheets/", "make the folder none first"),
        ("--seeds 1:3 --blank --output ''", "--output is empty"),
        ("--seeds 1:3 --blank --output -", "- does not end in a format"),
        ("--blank --output sheets", "sheets does not end in a format"),
        ("--blank --output sheets/", "sheets/ is a directory; name a file in it"),
    ],
)
def test_a_class_that_cannot_be_written_is_one_line(words: str, message: str, call: Call) -> None:
    done = call("compute", "--random", "3x2", *arguments_of(words))
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert message in done.err
    assert not Path("sheets").exists()


@pytest.mark.parametrize("sheet", ["sheet.json", "sheet.csv"])
def test_a_sheet_with_blank_cells_needs_to_be_marked_by_hand(sheet: str, call: Call) -> None:
    call(*arguments_of(RANDOM), "--blank", "-o", sheet)
    done = call("check", sheet)
    assert (done.code, done.out) == (2, "")
    assert "a blank cell of a worksheet is read by attncli check --by-hand" in done.err


@pytest.mark.parametrize("sheet", ["sheet.json", "sheet.csv"])
def test_a_sheet_given_back_to_compute_is_computed_from_its_inputs(sheet: str, call: Call) -> None:
    call(*arguments_of(RANDOM), "--blank", "-o", sheet)
    done = call("compute", sheet, "--format", "json")
    assert done.code == 0
    assert done.err.endswith("not used: scores, scaled, output, weights\n")
    steps = [
        json.loads(x)["steps"]
        for x in (done.out, call(*arguments_of(RANDOM), "--format", "json").out)
    ]
    assert [x["value"] for x in steps[0]] == [x["value"] for x in steps[1]]
