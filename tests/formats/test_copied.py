"""The JSON that a page copies, by node: `attncli compute --q FILE` gives the numbers of the page again."""

import contextlib
import io
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.cli.main import run
from attncli.trace import Trace
from tests.page.traces import CAUSAL, WORDS, attention, grouped, numbers, projected

NODE = shutil.which("node")
RUN = """
const { readFileSync } = require("fs");
const [script, pages] = process.argv.slice(2).map(path => readFileSync(path, "utf8"));
const ACTS = [() => {}, () => {  // numbers that are given, and parameters
  const inputs = stages.filter(s => s.isInput && s.short !== "mask");
  inputs.forEach((s, n) => change("cell", s.id, (5 * n + 2) % s.data.length, ((n * 91 + 37) % 400 - 200) / 64));
  for (const name of ["root", "factor", "cap", "value"]) {
    const s = stages.find(each => isFinite(each.params[name]));
    if (s) change("parameter", name, 1.25 * s.params[name]);
  }
}, () => {
  const changed = part("mask");  // one key more is hidden
  if (changed?.isInput && changed.data[changed.cols - 1] !== -Infinity) change("maskCell", changed.cols - 1);
}];
const TAIL = `
  const showChange = () => {};
  begin();
  const results = [${ACTS}].map(act => {
    act();
    const { prefix } = filed(), own = stages.filter(s => s.id.startsWith(prefix));
    return [prefix, fileNow(), own.map(s => [s.id, s.shape, [...s.data].map(String)])];
  });
  console.log(JSON.stringify(results));
`;
for (const textContent of pages.trim().split("\\n")) {
  const document = { createElement: () => ({ append() {}, setAttribute() {} }), getElementById: () => ({ textContent }) };
  new Function("document", script + TAIL)(document);
}
"""


def batched(**convention: Any) -> Trace:
    q, k, v = (numbers(2, 2, n, 3, seed=seed) for seed, n in enumerate((3, 5, 5)))
    return attncli.attend(q, k, v, **convention)


def of_x(n_kv: int = 2, **convention: Any) -> Trace:
    """Four heads on fewer key heads, biases, keys and values of another sequence."""
    widths = {"q": 12, "k": 3 * n_kv, "v": 5 * n_kv}
    own = {f"w_{x}": numbers(7, n, seed=n) for x, n in widths.items()}
    own |= {f"b_{x}": numbers(n, seed=n) for x, n in widths.items()} | {"w_o": numbers(20, 7)}
    heads: dict[str, Any] = {"n_heads": 4, "n_kv_heads": n_kv}
    return attncli.multi_head_attention(numbers(3, 7), own, context=numbers(5, 7, seed=9), **heads, **convention)  # fmt: skip


PAGES: dict[str, Any] = {
    "plain": lambda: attention(labels=WORDS),
    "causal": lambda: attention(causal=True),
    "not scaled": lambda: attention(scale="none", causal=True),
    "a temperature": lambda: attention(temperature=2.0, causal=True),
    "a temperature and a factor": lambda: attention(scale=0.3, temperature=0.5),
    "a factor": lambda: attention(scale=0.3, softcap=1.5, window=(1, 0)),
    "cap after the mask": lambda: attention(softcap=3.0, softcap_place="after-mask", causal=True),
    "over queries": lambda: attention(softmax_over="queries"),
    "a mask value that is added": lambda: attention(causal=True, mask_value=-5.0, mask_value_rule="add"),
    "a mask value": lambda: attention(mask=CAUSAL, mask_value=-3.0),
    "a bias": lambda: attention(mask=[[0, 1, 0], [1, 0, 0], [0.5, 0, -2]]),
    "a bias of 0 and 1": lambda: attention(mask=np.eye(3), mask_means="add", scale=2.0),
    "empty rows": lambda: attention(mask=np.full((3, 3), -np.inf), empty_rows="uniform"),
    "dropout": lambda: attention(dropout=0.3, seed=4, causal=True),
    "sinks": lambda: grouped(d_output=None, sinks=[1, 2, 3, 4], causal=True),
    "tiled heads": lambda: grouped(head_order="tiled", softcap=2.0),
    "QK-norm": lambda: attention(qk_norm=True, causal=True),
    "QK-norm with gains": lambda: attention(qk_norm=True, q_gain=[2.0, 0.5], k_gain=[1.0, -3.0]),
    "fewer queries": lambda: batched(causal=True, causal_align="bottom-right"),
    "lengths": lambda: batched(kv_len=[2, 4], window=(2, 1)),
    "cached": lambda: attncli.attend(*numbers(3, 2, 3), past_k=numbers(4, 3), past_v=numbers(4, 3, seed=1), causal=True),
    "x": lambda: projected(1, d_output="random", scale=0.7),
    "heads of x": lambda: projected(2, causal=True, d_output="random"),
    "shared heads, cross": lambda: of_x(softcap=2.5),
    "one key head": lambda: of_x(1, window=(1, 1)),
    "a sentence": lambda: attncli.explain("The bank near the bank", dim=4, heads=2, causal=True),
    "layers": lambda: attncli.explain("The old bank", dim=4, heads=2, block="encoder", layers=2),
    "another sentence": lambda: attncli.explain("A bank", target="La rive", dim=4),
}  # fmt: skip


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of each page, before and after changes: the block, the file, and the numbers of the page."""
    if NODE is None:
        pytest.skip("there is no node")
    folder = tmp_path_factory.mktemp("copied")
    data = [re.findall(r'id="data">([^<]*)', attncli.render(make(), "html"))[0] for make in PAGES.values()]  # fmt: skip
    names = ("read", "formula", "words", "state", "command")
    script = "\n".join(files("attncli.formats.html").joinpath(f"{name}.js").read_text("utf-8") for name in names)  # fmt: skip
    for name, text in {"run.js": RUN, "script": script, "pages": "\n".join(data)}.items():
        (folder / name).write_text(text, encoding="utf-8")
    words = [str(NODE), *(str(folder / name) for name in ("run.js", "script", "pages"))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(PAGES, map(json.loads, done.stdout.splitlines()), strict=True))


def stages_of(file: Path) -> dict[str, Any]:
    """What `attncli compute --q FILE` computes, by name."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = run(["compute", "--q", str(file), "--format", "json"])
    assert code == 0, errors.getvalue()
    steps: Iterator[Any] = (x for x in json.loads(out.getvalue())["steps"] if x["kind"] == "stage")
    return {step["name"]: np.array(step["value"], dtype=float) for step in steps}


@pytest.mark.parametrize("name", PAGES)
def test_the_copied_file_gives_the_numbers_of_the_page(
    name: str, copied: dict[str, Any], tmp_path: Path
) -> None:
    trace, seen = PAGES[name](), set()
    for prefix, document, stages in copied[name]:
        (tmp_path / "copied.json").write_text(json.dumps(document), encoding="utf-8")
        theirs = stages_of(tmp_path / "copied.json")
        for dotted, shape, texts in stages:
            own = dotted.removeprefix(prefix)
            if own not in theirs or own in ("mask", "sublayer_dropped"):
                continue
            ours = np.array([float(x) for x in texts]).reshape(shape)
            expected = pytest.approx(np.squeeze(ours), rel=1e-12, abs=1e-12, nan_ok=True)
            assert np.squeeze(theirs[own]) == expected, own
            seen.add(own)
    needed = {"q", "k", "v", "scores", "weights", "output"}
    own = {n.removeprefix(prefix): stage for n, stage in trace.stages() if n.startswith(prefix)}
    needed |= {n for n, x in own.items() if x.expression and re.match(r"projected$|d_", n)}
    assert needed <= seen


def test_the_copied_file_says_what_is_not_the_default_and_names_what_it_can(
    copied: dict[str, Any],
) -> None:
    first = {name: results[0][1] for name, results in copied.items()}
    assert {*first["plain"]} == {"q", "k", "v", "tokens"}
    assert first["plain"]["tokens"] == ["The", "cat", "sat"]
    assert first["not scaled"]["scale"] == "none"
    assert (first["causal"]["causal"], "mask" in first["causal"]) == (True, False)
    assert first["tiled heads"]["head_order"] == "tiled"
    assert {*first["another sentence"]} >= {"x", "x_kv", "w_q", "query_tokens", "key_tokens"}
    assert copied["plain"][1][1]["scale"] == pytest.approx(1 / (1.25 * 2**0.5))
