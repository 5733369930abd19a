"""Sheets judged by the page's script in node and by `check --by-hand`: the same mistakes and slips.

The sheets are those of tests/commands/check: slips planted in NumPy, wrong digits, blank cells.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import attncli
from attncli.arrays import Array
from attncli.commands.check.by_hand.judge import mark
from attncli.commands.check.by_hand.marking import Written
from attncli.convention import Convention
from attncli.tolerance.setup import setup_of
from tests.commands.check.planted_slips import (
    ELSEWHERE,
    PLANTED,
    exercise,
    one,
    rounded,
    sheet_of,
    sheet_with,
    stages,
)
from tests.turns import every_second

NODE = shutil.which("node")
RUN = """
const { readFileSync } = require("fs");
const [script, cases] = process.argv.slice(2).map(path => readFileSync(path, "utf8"));
const TAIL = `
  const showChange = () => {};
  begin();
  const texts = new Map();
  for (const [name, rows] of Object.entries(SHEET)) {
    const of = new Map(rows.map((text, at) => [at, text]).filter(([, text]) => text !== ""));
    if (of.size) texts.set(byName.get(name), of);
  }
  let calls = 0;
  const numberOnce = numberAt;
  numberAt = (...all) => (calls++, numberOnce(...all));
  const { mistakes, follows, right } = judged(texts);
  console.log(JSON.stringify([
    mistakes.map(({ s, cells, slips }) => [s.id, cells.map(({ cell }) => cell.at), slips.map(slip => slip.words)]),
    follows.map(s => s.id), right.map(s => s.id), calls,
  ]));
`;
for (const line of cases.trim().split("\\n")) {
  const { page: textContent, sheet } = JSON.parse(line);
  const document = { createElement: () => ({ append() {}, setAttribute() {} }), getElementById: () => ({ textContent }), querySelectorAll: () => [], addEventListener() {} };
  new Function("document", "SHEET", script + TAIL)(document, sheet);
}
"""


class Case(NamedTuple):
    """A sheet, and what it is computed from."""

    inputs: tuple[Array, ...]
    sheet: dict[str, Written]
    causal: bool


def planted() -> Iterator[tuple[str, Case]]:
    """Every slip in sheets of several exercises, of two and of four decimals."""
    rows = [(name, *slip) for name, slip in [*PLANTED.items(), *ELSEWHERE]]
    for n, (name, stage, slip, needs) in enumerate(rows):
        for seed in (n % 3, 3):
            inputs = exercise(np.random.default_rng(100 * n + seed), needs)
            causal = "causal" in needs
            try:
                with np.errstate(all="ignore"):
                    wrong = slip(sheet_with(inputs, causal=causal))
            except (ValueError, IndexError):  # of other sizes than it needs
                continue
            right = stages(inputs, {}, causal=causal)
            if wrong.shape != right[stage].shape or not np.isfinite(inputs[0]).all():
                continue
            decimals = (
                4 if seed == 2 else 2
            )  # of 1 each stage is computed from the rounded one before
            numbers = (
                rounded(inputs, {stage: wrong}, decimals, causal=causal)
                if seed == 1
                else stages(inputs, {stage: wrong}, causal=causal)
            )
            if any(np.isnan(x).any() for x in numbers.values()):
                continue
            yield f"{name} ({stage}, {seed})", Case(inputs, sheet_of(numbers, decimals), causal)


def digits() -> Iterator[tuple[str, Case]]:
    """Single wrong numbers, right sheets, and sheets with blank cells and blank stages."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        inputs, decimals = exercise(rng), int(rng.integers(1, 4))
        numbers = rounded(inputs, {}, decimals, causal=False)
        if any(np.isnan(x).any() for x in numbers.values()):
            continue
        stage = [*numbers][seed % len(numbers)]
        at = tuple(int(rng.integers(n)) for n in numbers[stage].shape)
        wrong = {
            0: numbers[stage],
            1: one(numbers[stage], at, numbers[stage][at] + 10.0**-decimals * rng.integers(2, 40)),
            2: one(numbers[stage], at, -numbers[stage][at]),
            3: one(numbers[stage], at, round(float(numbers[stage][at]), 1) + 0.3),
        }[seed % 4]
        numbers[stage] = wrong
        if seed % 3 == 0:
            numbers.pop("scaled" if stage != "scaled" else "scores")
        if seed % 5 == 0:
            numbers["weights"] = one(numbers["weights"], (0, 0), np.nan)
        yield f"digits {seed}", Case(inputs, sheet_of(numbers, decimals), causal=False)


def alone() -> Iterator[tuple[str, Case]]:
    """Sheets of the output alone with one wrong number, with a slip before it, and with no right one."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        inputs = (*(rng.normal(size=shape).round(1) for shape in ((3, 2), (5, 2), (5, 7))),)
        right, causal = stages(inputs, {}), False
        by_rounded = stages(inputs, {"weights": right["weights"].round(1)})["output"]
        outputs = {
            "one wrong": one(right["output"], (1, 1), right["output"][1, 1] + 0.37),
            "all wrong": right["output"] + rng.integers(5, 90, (3, 7)) / 100,
            "rounded too early": by_rounded,
            "scores by rows swapped": stages(inputs, {"scores": right["scores"][[1, 0, 2]]})[
                "output"
            ],
        }
        for name, output in outputs.items():
            yield (
                f"output alone, {name} {seed}",
                Case(inputs, sheet_of({"output": output}, 2), causal),
            )


CASES = dict([*planted(), *digits(), *alone()])


def text_of(x: float, decimals: int) -> str:
    return "" if np.isnan(x) else f"{x:.{decimals}f}"


@pytest.fixture(scope="module")
def by_page(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Of each case that is tested the mistakes, what follows from them, and what is right."""
    if NODE is None:
        pytest.skip("there is no node")
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    tested = {call.params.get("name") for call in calls if call is not None}
    names = [name for name in CASES if name in tested]
    results = judged_by_page(tmp_path_factory.mktemp("judge"), [CASES[name] for name in names])
    return dict(zip(names, results, strict=True))


def judged_by_page(folder: Path, cases: Sequence[Case]) -> list[Any]:
    """The same of each of some cases, and how many numbers it took."""
    lines = []
    for case in cases:
        trace = attncli.attend(*case.inputs, causal=case.causal)
        page = attncli.render(trace, "html", blank=True)
        data = re.findall(r'id="data">([^<]*)', page)[0]
        sheet = {
            name: [text_of(float(x), own.decimals) for x in own.values.ravel()]
            for name, own in case.sheet.items()
        }
        lines.append(json.dumps({"page": data, "sheet": sheet}))
    names = ("read", "formula", "words", "state", "command", "judge")
    folder_of = files("attncli.formats.html")
    script = "\n".join(folder_of.joinpath(f"{name}.js").read_text("utf-8") for name in names)
    for name, text in {"run.js": RUN, "script": script, "cases": "\n".join(lines)}.items():
        (folder / name).write_text(text, encoding="utf-8")
    words = [str(NODE), *(str(folder / name) for name in ("run.js", "script", "cases"))]
    process = subprocess.run(words, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-1500:]
    return [*map(json.loads, process.stdout.splitlines())]


@pytest.mark.parametrize("name", every_second(CASES))
def test_the_page_and_by_hand_say_the_same_of_a_sheet(name: str, by_page: dict[str, Any]) -> None:
    inputs, sheet, causal = CASES[name]
    marking = mark(setup_of(*inputs, convention=Convention(causal=causal)), sheet)
    shapes = {stage: own.values.shape for stage, own in sheet.items()}
    theirs = [
        [
            mistake.stage,
            [int(np.ravel_multi_index(cell.at, shapes[mistake.stage])) for cell in mistake.cells],
            [*mistake.slips],
        ]
        for mistake in marking.mistakes
    ]
    mistakes, follows, right, _ = by_page[name]
    assert mistakes == theirs
    assert (follows, right) == ([*marking.follows], [*marking.right_stages])


@pytest.mark.skipif(NODE is None, reason="there is no node")
def test_a_sheet_of_scores_and_output_takes_numbers_by_the_square_of_its_keys(
    tmp_path: Path,
) -> None:
    """Not by its fourth power, as without what cells of a row have in common."""
    cases, sizes = [], (11, 23)
    for size in sizes:
        inputs = (*np.random.default_rng(size).normal(size=(3, size, 2)).round(1),)
        trace = attncli.attend(*inputs)
        numbers = {stage: trace[stage].value for stage in ("scores", "output")}
        cases.append(Case(inputs, sheet_of(numbers, 2), causal=False))
    (*verdict, few), (*other, many) = judged_by_page(tmp_path, cases)
    assert verdict == other == [[], [], ["scores", "output"]]
    assert many / few <= (sizes[1] / sizes[0]) ** 2 * 1.1


@pytest.mark.skipif(NODE is None, reason="there is no node")
@pytest.mark.parametrize("wrong", [1, 22])
def test_a_wrong_number_takes_few_numbers_for_each_slip(wrong: int, tmp_path: Path) -> None:
    """Of 11 keys there are some 500 slips of an output; each is followed back to all scores by its
    slopes, where by moving every number before it some 1,000 numbers were computed for each."""
    inputs = (*np.random.default_rng(11).normal(size=(3, 11, 2)).round(1),)
    output = stages(inputs, {})["output"].ravel()
    output[:wrong] += np.linspace(0.37, 0.71, wrong)
    sheet = sheet_of({"output": output.reshape(11, 2)}, 2)
    ((mistakes, _, _, numbers),) = judged_by_page(tmp_path, [Case(inputs, sheet, causal=False)])
    assert sum(len(cells) for _, cells, _ in mistakes) == wrong
    assert numbers <= (60_000 if wrong == 1 else 400_000)
