"""What the page says of weights after a change, by node: the sentences of the terminal."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from html import unescape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.arrays import Array
from attncli.page.options import DisplayOptions
from attncli.page.select import blocks_of
from attncli.page.sentences import sentences
from attncli.trace import Trace
from tests.formats.test_command import traced
from tests.page.traces import attention, numbers

NODE = shutil.which("node")
RUN = """
const { readFileSync } = require("fs");
const [script, pages] = process.argv.slice(2).map(path => readFileSync(path, "utf8"));
for (const textContent of pages.trim().split("\\n")) {
  const document = { createElement: () => ({ append() {}, setAttribute() {} }), getElementById: () => ({ textContent }), querySelectorAll: () => [] };
  new Function("document", script + `
    Object.assign(globalThis, { meaningNow });
    const showChange = () => {};
    begin();
    const s = part("weights"), changes = JSON.parse($("data").textContent).changes ?? [];
    for (const one of changes) change(...one);
    const result = changes.length ? sentencesNow().map(([, lines]) => lines) : range(s.n).map(p => sentencesOf(s, p));
    console.log(JSON.stringify(result));
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


Q, K, V = numbers(3, 2), numbers(5, 2), numbers(5, 7)
D_OUTPUT = numbers(3, 7)
BANK = [[1.0, 0, 2], [0, 1, 1], [1, 0, 2], [0.5, -1, 0]]
Q_OTHER, V_OTHER = Q.copy(), V.copy()
Q_OTHER[1, 0], V_OTHER[2] = -2.5, V[3]
BANK_OTHER = [*BANK[:3], [0.5, -1, 3]]
TWO = {"a": [1, 2, 0.5], "b": [-1, 0.5, 2]}
CAUSAL = np.triu(np.full((3, 5), -np.inf), 1)


def gradients(q: Array = Q, k: Array = K, v: Array = V, **options: Any) -> Trace:
    return attncli.attend(q, k, v, **{"d_output": D_OUTPUT, **options})


def meaning(vectors: Any, options: str = "--positions none --projection identity") -> Trace:
    return traced(f"explain 'a bank a to' --embeddings '{json.dumps(vectors)}' {options}")


CHANGES: dict[str, tuple[Trace, list[list[Any]], Trace]] = {
    "gradients": (gradients(), [["cell", "q", 2, -2.5]], gradients(Q_OTHER)),
    "gradients, of heads": (
        gradients(Q, K, np.ones_like(V)),
        [["cell", "q", 2, -2.5], ["parameter", "root", 3]],
        gradients(Q_OTHER, K, np.ones_like(V), scale=1 / 3),
    ),
    "gradients, causal": (gradients(), [["causal", True]], gradients(mask=CAUSAL)),
    "gradients, over queries": (
        gradients(softmax_over="queries"),
        [["cell", "q", 2, -2.5]],
        gradients(Q_OTHER, softmax_over="queries"),
    ),
    "gradients, no weights": (
        gradients(mask=np.full((3, 5), -np.inf)),
        [["cell", "q", 2, -2.5]],
        gradients(Q_OTHER, mask=np.full((3, 5), -np.inf)),
    ),
    "gradients, alike": (
        gradients(),
        [["cell", "d_output", at, 0] for at in range(21)],
        gradients(d_output=np.zeros((3, 7))),
    ),
    "meaning": (meaning(BANK), [["cell", "embeddings", 11, 3]], meaning(BANK_OTHER)),
    "meaning, of one word with two vectors": (
        meaning(BANK),
        [["cell", "embeddings", 0, -4.25]],
        meaning([[-4.25, 0, 2], *BANK[1:]]),
    ),
    "meaning, causal": (
        meaning(BANK),
        [["causal", True]],
        meaning(BANK, "--positions none --projection identity --causal"),
    ),
    "meaning, not causal": (
        meaning(BANK, "--positions none --projection identity --causal"),
        [["causal", False]],
        meaning(BANK),
    ),
    "meaning, positions": (
        meaning(BANK, "--positions paper --projection learned"),
        [["cell", "embeddings", 11, 3]],
        meaning(BANK_OTHER, "--positions paper --projection learned"),
    ),
    "meaning, encoder": (
        meaning(BANK, "--block encoder --heads 1"),
        [["cell", "embeddings", 11, 3]],
        meaning(BANK_OTHER, "--block encoder --heads 1"),
    ),
    "meaning, of two words": (
        attncli.explain("a b", vectors=TWO),
        [["parameter", "root", 2]],
        attncli.explain("a b", vectors=TWO, scale=0.5),
    ),
}


def by_node(tmp_path: Path, data: Sequence[str]) -> list[Any]:
    """What the script says of each page."""
    names = ("read", "formula", "words", "state", "sentences", "gradients", "meaning")
    folder = files("attncli.formats.html")
    script = "\n".join(folder.joinpath(f"{name}.js").read_text("utf-8") for name in names)
    for name, text in {"run.js": RUN, "script": script, "pages": "\n".join(data)}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    words = [str(NODE), *(str(tmp_path / name) for name in ("run.js", "script", "pages"))]
    process = subprocess.run(words, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return [json.loads(line) for line in process.stdout.splitlines()]


def data_of(page: str) -> str:
    data: str = re.findall(r'id="data">([^<]*)', page)[0]
    return data


@pytest.mark.skipif(NODE is None, reason="there is no node")
def test_the_sentences_of_the_page_are_those_of_the_terminal(tmp_path: Path) -> None:
    traces: dict[str, Trace] = {name: make() for name, make in TRACES.items()}
    results = by_node(tmp_path, [data_of(attncli.render(x, "html")) for x in traces.values()])
    for (name, trace), result in zip(traces.items(), results, strict=True):
        (block,) = (block for block in blocks_of(trace) if block.weights)
        assert block.weights is not None
        heads = range(block.n_heads) if block.n_heads > 1 else [None]
        places: list[Any] = [{} if head is None else {"head": head} for head in heads]
        theirs = sentences(block, block.weights, places, DisplayOptions(every=True))
        for ours, expected in zip(result, theirs, strict=True):
            assert ours[:12] == [*expected][:12], name
            assert len(ours) == len(expected)


@pytest.mark.skipif(NODE is None, reason="there is no node")
def test_after_a_change_they_are_those_of_a_page_of_the_changed_numbers(tmp_path: Path) -> None:
    """Of weights, gradients and meaning."""
    pages = []
    for trace, changes, _ in CHANGES.values():
        data = json.loads(data_of(attncli.render(trace, "html"))) | {"changes": changes}
        pages.append(json.dumps(data))
    results = by_node(tmp_path, pages)
    for (name, (_, _, other)), ours in zip(CHANGES.items(), results, strict=True):
        page = attncli.render(other, "html")
        sections = re.findall(r'<section class="closing">.*?</section>', page, re.DOTALL)
        lists = [re.findall("<li>(.*?)</li>", section) for section in sections]
        texts = [[unescape(re.sub("<.*?>", "", line)) for line in lines] for lines in lists]
        assert len(ours) == 2, name
        assert ours == texts, name
