"""The state of a page, by node: random changes, after which switches, numbers, call and undo agree."""

import contextlib
import json
import re
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

import attncli
from tests.formats.test_command import ROOT, again, traced

NODE = shutil.which("node")
CALLS = [
    "compute --q samples/three-tokens.json",
    "compute --q samples/three-tokens.json --causal",
    "compute --q samples/three-tokens.json --mask samples/bias.csv --scale 0.3 --softcap 2",
    "compute --random 5x3 --seed 11 --mask-value -5 --causal",
    "compute --q '[[1,2],[0,1]]' --k '[[1,0],[3,1],[0,2]]' --causal --causal-align bottom-right",
    "explain 'I love AI' --heads 2 --dim 4",
    "explain 'I love AI' --block encoder --layers 2 --dim 4",
    "explain 'She visited the money bank, near the river bank' --vectors samples/bank.txt "
    "--weights samples/bank.json --mask samples/near.json --positions none",
    "posenc --add '[[1,2,0,1],[3,4,1,0]]' --base 50",
]
LENGTH = 9
"""So many changes has a sequence."""
RUN = """
const { readFileSync } = require("fs");
const [script, pages] = process.argv.slice(2, 4).map(path => readFileSync(path, "utf8"));
const [sequences, length] = process.argv.slice(4).map(Number);
const TAIL = `
  let seed = SEED;
  const random = n => ((seed = (Math.imul(seed, 1103515245) + 12345) >>> 0), (seed >>> 8) % n);
  const assert = (is, ...words) => { if (!is) throw new Error(words.concat(JSON.stringify(changeList)).join(" ")); };
  const texts = () => JSON.stringify(stages.map(s => [s.id, [...s.data].map(String), s.rowNames, s.colNames]));
  const showChange = () => {};
  begin();
  const first = texts(), firstControls = JSON.stringify(controls()), firstCommand = command();
  const inputs = stages.filter(s => s.isInput && !s.isFixed && !masks().includes(s));
  const number = () => (random(800) - 400) / 64;
  const switches = () => {
    const before = controls(), isOn = !before.causal;
    change("causal", isOn);
    assert(controls().causal === isOn, "causal does not switch");
    if (random(2)) {
      change("causal", !isOn);
      assert(controls().causal === before.causal, "causal does not switch back");
    }
  };
  const ACTIONS = [
    () => { const s = inputs[random(inputs.length)]; change("cell", s.id, random(s.data.length), number()); },
    () => { const s = inputs[random(inputs.length)], at = random(s.data.length); for (let n = 0; n < 4; n++) { isLive = true; change("cell", s.id, at, number()); } endDrag(); },
    () => { const name = ["root", "factor", "cap", "value", "base"].filter(has)[0]; if (name) change("parameter", name, 1 + random(64) / 8); },
    () => embeddings()?.isInput && change("word", random(embeddings().rows), ["hate", "AI", "river", "I"].filter(word => vectorOf(word, embeddings()))[0] ?? embeddings().rowNames[0].name),
    () => aMask() && switches(), () => aMask() && switches(),
    () => { if (groupsToMask().length) { const isOn = !controls().mask; change("byCell", isOn); assert(controls().mask === isOn, "the mask does not switch"); } },
    () => mask() && change("maskCell", random(mask().data.length)), () => mask() && change("maskCell", random(mask().data.length)),
    () => turnBack(-1), () => turnBack(-1), () => turnBack(1), () => change("reset"),
  ];
  for (let n = 0; n < LENGTH; n++) {
    const before = texts(), count = done, undone = changeList.length;
    ACTIONS[random(ACTIONS.length)]();
    const after = texts(), { causal, undo, redo, reset } = controls();
    assert(causal === Boolean(mask() && mask().data.every((x, at) => x === -Infinity || !isLater(at))), "causal shows what is not so");
    assert(undo === done > 0 && redo === done < changeList.length, "undo");
    assert(reset || after === first, "reset");
    computed().forEach(compute);
    assert(after === texts() || !state.edited, "the numbers do not follow from the inputs");
    for (const s of stages) if (!state.edited) s.data.set(s.original);
    if (done === count + 1 && undone === count) {
      turnBack(-1);
      assert(texts() === before, "undo does not bring back what was");
      turnBack(1);
      assert(texts() === after, "redo does not bring it again");
    }
  }
  const last = texts(), result = [hasCall() ? command() : "", stages.filter(s => s.tree && !isStale(s)).map(s => [s.id, [...s.data].map(String)])];
  const count = done;
  turnBack(-count);
  assert(texts() === first && JSON.stringify(controls()) === firstControls.replace('"redo":false', '"redo":' + (changeList.length > 0)) && command() === firstCommand, "undoing all is not the start");
  turnBack(count);
  assert(texts() === last, "redoing all is not the end");
  console.log(JSON.stringify(result));
`;
for (const textContent of pages.trim().split("\\n"))
  for (let n = 0; n < sequences; n++) {
    const document = { createElement: () => ({ append() {}, setAttribute() {} }), getElementById: () => ({ textContent }), querySelectorAll: () => [] };
    new Function("document", script + TAIL.replace("SEED", 7919 * n + 17).replace("LENGTH", length))(document);
  }
"""


@pytest.fixture(scope="module", params=[10, pytest.param(40, marks=pytest.mark.exhaustive)])
def ends(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Any]]:
    """Of each call: of so many sequences what is copied at the end, and the numbers there."""
    if NODE is None:
        pytest.skip("there is no node")
    folder, n_sequences = tmp_path_factory.mktemp("state"), request.param
    with contextlib.chdir(ROOT):
        texts = [attncli.render(traced(call), "html") for call in CALLS]
    data = [re.findall(r'id="data">([^<]*)', text)[0] for text in texts]
    names = ("read", "formula", "words", "state", "command", "vectors")
    script = "\n".join(
        files("attncli.formats.html").joinpath(f"{name}.js").read_text("utf-8") for name in names
    )
    for name, text in {"run.js": RUN, "script": script, "pages": "\n".join(data)}.items():
        (folder / name).write_text(text, encoding="utf-8")
    words = [NODE, *(str(folder / name) for name in ("run.js", "script", "pages"))]
    words += [str(n_sequences), str(LENGTH)]
    process = subprocess.run(words, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-1500:]
    lines = [json.loads(line) for line in process.stdout.splitlines()]
    return {call: lines[n_sequences * n : n_sequences * (n + 1)] for n, call in enumerate(CALLS)}


@pytest.mark.parametrize("call", CALLS)
def test_after_random_changes_what_is_copied_gives_the_numbers_of_the_page(
    call: str, ends: dict[str, list[Any]]
) -> None:
    """Switches, numbers and undo are compared in node after every change."""
    n_compared = 0
    for text, stages in ends[call]:
        if not text:
            continue
        with contextlib.chdir(ROOT):
            theirs = again(text)
        for stage, texts in stages:
            ours = np.array([float(x) for x in texts])
            expected = np.broadcast_to(theirs[stage].value, theirs[stage].value.shape).ravel()
            assert ours == pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True), (text, stage)
        n_compared += 1
    assert n_compared >= len(ends[call]) / 2
