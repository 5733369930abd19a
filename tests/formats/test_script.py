"""The script of a page of HTML, by node: every stage of every kind of trace from its formula."""

import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.formats.html.data import PageData, packed
from attncli.words.sentence import random_vectors
from tests.page.traces import attention, grouped
from tests.test_stages import MAKERS

NODE = shutil.which("node")
RUN = """
const { readFileSync } = require("fs");
const numbersOf = ({ float64 }) => new Float64Array(Uint8Array.from(atob(float64), char => char.charCodeAt(0)).buffer);
for (const line of readFileSync(process.argv[2], "utf8").trim().split("\\n")) {
  byName.clear();
  const { stages } = JSON.parse(line), numbers = {};
  for (const stage of stages) {
    const size = stage.shape.reduce((n, each) => n * each, 1), params = Object.entries(stage.params ?? {});
    stage.data = stage.float64 ? numbersOf(stage) : new Float64Array(size);
    stage.params = Object.fromEntries(params.map(([name, x]) => [name, numberOfText(x)]));
    for (const array of Object.values(stage.arrays ?? {})) array.data = numbersOf(array);
    byName.set(stage.id, Object.assign(stage, { all: [] }));
  }
  const dark = []; // cells on which one depends that is not lit with it
  for (const stage of stages.filter(stage => stage.is)) {
    prepare(stage);
    compute(stage);
    numbers[stage.id] = [...stage.data].map(String);
    for (const at of new Set([0, Math.floor(stage.data.length / 2), stage.data.length - 1])) {
      const cell = cellOf(stage, at), lit = [...readsAt(cell).keys()].map(read => `${read.s.id} ${read.at}`);
      for (const source of Object.values(stage.sources))
        for (let other = 0; other < Math.min(source.data.length, 60); other++) {
          const x = source.data[other], before = stage.tree.run(placesOf(cell));
          source.data[other] += 0.37; // −∞ stays what it is
          const isSame = Object.is(stage.tree.run(placesOf(cell)), before);
          source.data[other] = x;
          if (!isSame && !lit.includes(`${source.id} ${other}`)) dark.push([stage.id, at, source.id, other]);
        }
    }
  }
  console.log(JSON.stringify([numbers, dark]));
}
"""


@pytest.mark.skipif(NODE is None, reason="there is no node")
@pytest.mark.parametrize("make", MAKERS)
def test_the_script_computes_every_stage_and_lights_all_that_a_cell_depends_on(
    make: Any, tmp_path: Path
) -> None:
    """As NumPy did, within 1e-12, each stage from those before it; angles near 0 within 1e-6."""
    traces, lines = list(make()), []
    for trace in traces:
        data = PageData()
        data.add(trace)
        lines.append(packed({}, data))
    (tmp_path / "traces").write_text("\n".join(lines))
    formula = files("attncli.formats.html").joinpath("formula.js").read_text("utf-8")
    (tmp_path / "run.js").write_text(formula + RUN)
    words = [str(NODE), str(tmp_path / "run.js"), str(tmp_path / "traces")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for trace, line in zip(traces, done.stdout.splitlines(), strict=True):
        numbers, dark = json.loads(line)
        assert dark == [], trace.title
        assert numbers.keys() == {name for name, stage in trace.stages() if stage.expression}
        for name, texts in numbers.items():
            stage = trace[name]
            near = 1e-6 if "arccos" in stage.expression else 1e-12
            expected = pytest.approx(stage.value.astype(float).ravel(), 1e-12, near, nan_ok=True)
            assert np.array([float(x) for x in texts]) == expected, (trace.title, name)


def test_script_and_style_are_small_and_ship_as_they_are_written() -> None:
    """Less comments and indentation; the page of a sentence, in heads, has all of it."""
    folder = files("attncli.formats.html")
    sources = [x for x in folder.iterdir() if x.name.endswith((".js", ".css"))]
    written = {line.strip() for x in sources for line in x.read_text("utf-8").splitlines()}
    assert sum(len(x.read_text("utf-8").splitlines()) for x in sources) <= 2_320
    sentence = attncli.explain("I love AI", dim=4, heads=2, block="encoder")
    for trace in (attention(), grouped(), sentence):
        text = attncli.render(trace, "html")
        (style,), (script,) = (
            re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL) for tag in ("style", "script")
        )
        assert len((style + script).encode()) <= 118_000
        for line in f"{style}\n{script}".splitlines():
            assert any(own.startswith(line) for own in written), line
    many = attncli.explain("the bank " * 16, block="encoder", dim=32, heads=8, layers=6)
    assert len(attncli.render(many, "html").encode()) <= 250_000  # of heads a byte a weight


WORDS = ["bank", "Fluß", "u\u0308ber", "ü", "日本語", "🧑🏽\u200d🚀", "", "x" * 126, "y" * 300]


@pytest.mark.skipif(NODE is None, reason="there is no node")
def test_the_script_draws_the_vectors_of_words_as_numpy_does(tmp_path: Path) -> None:
    """To the last bit, of words in all planes of Unicode, and of one block of BLAKE2b and more."""
    rng = np.random.default_rng(11)
    letters = [*"abcXYZäß'-éλЖ漢😀"]
    words = [*WORDS, *("".join(rng.choice(letters, size=n % 23 + 1)) for n in range(200))]
    cases = [(word, n % 13 + 1, seed) for n, word in enumerate(words) for seed in (0, 7, 2**53 - 1)]
    script = files("attncli.formats.html").joinpath("vectors.js").read_text("utf-8")
    run = "console.log(JSON.stringify(JSON.parse(require('fs').readFileSync(0)).map(each => randomVector(...each))));"
    (tmp_path / "run.js").write_text(f"const range = n => [...Array(n).keys()];\n{script}\n{run}")
    done = subprocess.run(
        [str(NODE), str(tmp_path / "run.js")], input=json.dumps(cases), capture_output=True, text=True, check=True
    )  # fmt: skip
    for (word, width, seed), vector in zip(cases, json.loads(done.stdout), strict=True):
        assert vector == random_vectors([word], width, seed)[word].tolist(), (word, seed)
