"""What the page says of weights after a change, by node: the sentences of the terminal."""

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
from attncli.page.options import DisplayOptions
from attncli.page.select import blocks_of
from attncli.page.sentences import sentences
from attncli.trace import Trace
from tests.page.traces import attention, numbers

NODE = shutil.which("node")
RUN = """
const { readFileSync } = require("fs");
const [script, pages] = process.argv.slice(2).map(path => readFileSync(path, "utf8"));
for (const textContent of pages.trim().split("\\n")) {
  const document = { createElement: () => ({ append() {}, setAttribute() {} }), getElementById: () => ({ textContent }), querySelectorAll: () => [] };
  new Function("document", script + `
    begin();
    const s = part("weights");
    console.log(JSON.stringify(range(s.n).map(p => sentencesOf(s, p))));
  `)(document);
}
"""
NONE = np.where(np.eye(3) > 0, -np.inf, 0)
TRACES: dict[str, Any] = {
    "plain": attention,
    "causal": lambda: attention(causal=True),
    "over queries": lambda: attention(softmax_over="queries", causal=True),
    "nothing": lambda: attention(mask=np.full((3, 3), -np.inf)),
    "uniform": lambda: attention(mask=np.full((3, 3), -np.inf), empty_rows="uniform"),
    "not a number": lambda: attention(mask=np.full((3, 3), -np.inf), empty_rows="nan"),
    "one alone": lambda: attention(mask=np.where(np.eye(3) > 0, 0, -np.inf)),
    "some": lambda: attention(mask=NONE),
    "sinks": lambda: attention(sinks=[0.5]),
    "dominant": lambda: attention([[90.0, 0], [8, 1], [0, 0]]),
    "many": lambda: attention(numbers(5, 3), numbers(17, 3), numbers(17, 3)),
    "long": lambda: attention(numbers(31, 3), numbers(7, 3), numbers(7, 3)),
    "words": lambda: attncli.explain("the bank of the river near the bank", dim=4, heads=2),
}


@pytest.mark.skipif(NODE is None, reason="there is no node")
def test_the_sentences_of_the_page_are_those_of_the_terminal(tmp_path: Path) -> None:
    traces: dict[str, Trace] = {name: make() for name, make in TRACES.items()}
    data = [
        re.findall(r'id="data">([^<]*)', attncli.render(trace, "html"))[0]
        for trace in traces.values()
    ]
    names = ("read", "formula", "words", "state", "sentences")
    folder = files("attncli.formats.html")
    script = "\n".join(folder.joinpath(f"{name}.js").read_text("utf-8") for name in names)
    for name, text in {"run.js": RUN, "script": script, "pages": "\n".join(data)}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    words = [str(NODE), *(str(tmp_path / name) for name in ("run.js", "script", "pages"))]
    process = subprocess.run(words, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    for (name, trace), line in zip(traces.items(), process.stdout.splitlines(), strict=True):
        (block,) = (block for block in blocks_of(trace) if block.weights)
        assert block.weights is not None
        heads = range(block.n_heads) if block.n_heads > 1 else [None]
        places: list[Any] = [{} if head is None else {"head": head} for head in heads]
        theirs = sentences(block, block.weights, places, DisplayOptions(every=True))
        for ours, expected in zip(json.loads(line), theirs, strict=True):
            assert ours[:12] == [*expected][:12], name
            assert len(ours) == len(expected)
