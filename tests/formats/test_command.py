"""The call that a page copies, by node: run again it gives every stage of the page, bit for bit."""

import contextlib
import io
import json
import re
import shlex
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.cli.calls import trace_of
from attncli.recorded import CallOption, RecordedCall
from attncli.trace import Trace
from tests.page.traces import CAUSAL, attention, grouped, numbers, projected

NODE = shutil.which("node")
ROOT = Path(__file__).parents[2]
RUN = """
const { readFileSync } = require("fs");
const [script, pages] = process.argv.slice(2).map(path => readFileSync(path, "utf8"));
const TAIL = `
  const showChange = () => {};
  begin();
  const { numbers, python } = page.command ?? {}, copies = page.command ? [command()] : [];
  if (page.command) copies.push(!numbers ? "" : python ? inPython(numbers) : inShell(numbers));
  const { drawn, file, flags } = numbers ?? { drawn: [], flags: {} };
  const inputs = stages.filter(s => s.isInput && !s.isFixed && s.short !== "mask" && !drawn.includes(s.id));
  inputs.forEach((s, n) => change("cell", s.id, (5 * n + 2) % s.data.length, ((n * 91 + 37) % 400 - 200) / 64));
  for (const name of file ? ["root", "factor", "temperature", "cap"] : keys(flags))
    if (stages.some(s => isFinite(s.params[name]))) change("parameter", name, 1.25 * stages.find(s => isFinite(s.params[name])).params[name]);
  if (page.command) copies.push(command());
  console.log(JSON.stringify([copies, stages.filter(s => s.tree && !isStale(s)).map(s => [s.id, [...s.data].map(String)])]));
`;
for (const textContent of pages.trim().split("\\n")) {
  const document = { createElement: () => ({ append() {}, setAttribute() {} }), getElementById: () => ({ textContent }), querySelectorAll: () => [] };
  new Function("document", script + TAIL)(document);
}
"""

# What is read is in the folder of samples. "alone": no numbers can stand in the call.
WHOLE = """
explain 'I love AI' --heads 2
explain 'I love AI' --block encoder --layers 2 --norm rms
explain 'a b' --target 'c d e' --block decoder
explain 'the bank of the river' --positions none --causal --qk-norm
explain 'I love AI' --dim 4 --qk-norm --q-gain '[2,1,3,1]' --d-output random
explain 'I love AI' --formulas sparsemax
explain 'I love AI' --formulas softcap --set 'cap = 3'
explain 'I love AI' --set 'scaled[h,i,j] = scores[h,i,j]/2' --causal
explain 'I love AI' --heads 2 --seed 7 --dim 6 --d-output random
explain 'The Bank' --target 'La Rive' --lowercase --dim 4 --seed 3
explain 'the bank' --pad-to 4
explain 'the bank' --projection identity
explain 'I love AI' --kv-heads 1 --heads 2 --d-k 3 --d-v 5
explain 'I love AI' --block encoder --d-ff 0 --norm none
explain 'I love AI' --block encoder --eps 0.001 --norm pre --dropout 0.2
explain 'a b c' --block decoder --target 'c d' --window 1,0
explain 'I love AI' --semantics torch-sdpa --causal
explain 'I love AI' --mask '[[1,1,0],[1,1,1],[0,1,1]]' --mask-means keep
explain --tokens '["a b","-c","d"]' --causal
explain 'it'"'"'s "quoted" $HOME' --heads 2
explain --heads 2 -- '-minus sign'
explain 'I love AI' --heads 2 --temperature 0.5
compute --random 3x2 --temperature 2 --causal
compute --random --scale 1/8 --temperature 3
compute --random 4x3 --seed 5 --window 1,0
compute --random
compute --softcap 2 --random 3x2 --causal
compute --random 3x2 --formulas softcap --set 'cap = 3'
compute --q '[[1,2,3,4],[3,4,5,6]]' --heads 2
compute --q '[[-1,2],[3,-4]]' --mask-value -5 --causal
posenc --len 5 --dim 4 --positions article --base 100
posenc --len 5 --dim 4 --dots --start 3
posenc --len 5 --dim 4 --kind rope
posenc --kind alibi --len 4 --heads 2 --symmetric
posenc --add '[[1,2],[3,4]]' --base 50
posenc --kind rope --apply '[[1,2,3,4],[3,4,5,6]]' --layout interleaved
similarity a=1,0 b=0,1 c=1,1 --pca
similarity a=1,0 b=0.5,1 c=1,-1 --analogy a b c
similarity --pca -- -x=1,0 y=0,1 z=1,1
"""
ALONE = """
compute --random 3x2 --sweep scale 0.1,0.35
compute --random 2x2 --sweep d_k 2,8
compute --random 2x2 --sweep temperature 2,8
compute --random 4x3 --against '--scale none'
explain 'I love AI' --against-order 'AI love I'
compute --q samples/three-tokens.json --sweep softcap 1,2
diff samples/three-tokens.json samples/dump.json
similarity king queen man --nearest 2
similarity --analogy king man woman
"""
READING = """
compute --q samples/three-tokens.json --softcap 2 --causal
compute samples/three-tokens.json
compute --q samples/heads.json
compute --q samples/homework.json
compute --q samples/batch.npz
compute --q samples/batch.npz --causal --d-output random
compute --q samples/cache.npz --causal
compute --q samples/dump.json
compute --q samples/heads.json --sinks '[1,2,0,1]'
compute --x samples/sentence.json --weights samples/weights.json
compute --x samples/sentence.json --weights samples/weights.json --heads 2 --d-output ones
compute --q samples/three-tokens.json --tiles 2 --causal
compute --q samples/three-tokens.json --split 1 --lse-base 2
compute --q samples/three-tokens.json --formulas sparsemax --d-output random
compute --q samples/three-tokens.json --set 'scores[i,j] = sum[d](q[i,d]*k[j,d])/2'
compute --q samples/three-tokens.json --mask samples/mask.json
compute --q samples/three-tokens.json --mask samples/bias.csv --softcap 3 --softcap-place after-bias
compute --q samples/three-tokens.json --semantics jax --causal
compute --q samples/three-tokens.json --semantics torch-sdpa
compute --q samples/three-tokens.json --scale none
compute --q samples/three-tokens.json --scale none --temperature 3
compute --q samples/three-tokens.json --temperature 3 --d-output random
compute --q samples/three-tokens.json --scale 1/8 --mask-value -5 --causal
compute --q samples/three-tokens.json --scale 1/3 --softmax-over queries
compute --q samples/three-tokens.json --kv-len 2
compute --q samples/three-tokens.json --window 1,0
compute --q samples/three-tokens.json --dropout 0.3 --seed 4
compute --q samples/three-tokens.json --d-output random --seed 2
compute --q samples/three-tokens.json --tokens "a,b,it's"
explain 'the bank' --vectors samples/vectors.txt
explain --embeddings samples/words.txt
posenc --kind rope --apply samples/heads.json --start 2 --base 50
posenc --add samples/words.txt
"""


def lists(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def traced(call: str, stdin: str = "") -> Trace:
    """The trace of a call whose page is made; notes are not printed."""
    words = shlex.split(call)
    at = words.index("--") if "--" in words else len(words)
    words[at:at] = ["--format", "html"]
    with contextlib.redirect_stderr(io.StringIO()):
        return trace_of(words, stdin)


def again(text: str) -> Trace:
    """The trace of what was copied."""
    if text.startswith("attncli."):
        trace: Trace = eval(text, {"attncli": attncli})  # noqa: S307 - what the page copies
        return trace
    first, _, rest = text.partition(" <<'END'\n")
    return traced(first.removeprefix("attncli "), rest.removesuffix("\nEND"))


PYTHON: dict[str, Any] = {
    "plain": attention,
    "causal, labels": lambda: attention(causal=True, labels={"query": ("a", "b", "c")}),
    "a factor": lambda: attention(scale=0.3, softcap=1.5, window=(1, 0)),
    "a mask value": lambda: attention(mask=CAUSAL, mask_value=-3.0),
    "grouped": lambda: grouped(head_order="tiled", sinks=[1, 2, 3, 4], d_output=None),
    "gradients": lambda: grouped(causal=True, dropout=0.3),
    "x": lambda: projected(1, d_output="random", scale=0.7),
    "heads of x": lambda: projected(2, causal=True, d_output="random"),
    "tiles": lambda: attncli.attend_tiles(*numbers(3, 2, 5, 3), tiles=2, causal=True),
    "split": lambda: attncli.attend_split(*numbers(3, 5, 3), split=[1, 3]),
    "posenc": lambda: attncli.posenc(4, 6, base=50.0),
    "added": lambda: attncli.posenc(add=numbers(3, 5), start=2),
    "similarity": lambda: attncli.similarity({"a": [1, 0], "b": [0.5, 1]}),
}
MAKERS: dict[str, Any] = {
    **{call: (lambda call=call: traced(call)) for call in lists(WHOLE + ALONE + READING)},
    **PYTHON,
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of each page: its trace, what it copies (as it came, and after changes), and its numbers."""
    if NODE is None:
        pytest.skip("there is no node")
    folder = tmp_path_factory.mktemp("command")
    with contextlib.chdir(ROOT):
        traces = {name: make() for name, make in MAKERS.items()}
    data = [re.findall(r'id="data">([^<]*)', attncli.render(x, "html"))[0] for x in traces.values()]
    names = ("read", "formula", "words", "state", "command", "vectors")
    folder_of = files("attncli.formats.html")
    script = "\n".join(folder_of.joinpath(f"{name}.js").read_text("utf-8") for name in names)
    for name, text in {"run.js": RUN, "script": script, "pages": "\n".join(data)}.items():
        (folder / name).write_text(text, encoding="utf-8")
    words = [NODE, *(str(folder / name) for name in ("run.js", "script", "pages"))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = map(json.loads, done.stdout.splitlines())
    return {name: (x, *each) for (name, x), each in zip(traces.items(), results, strict=True)}


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_copied_gives_the_stages_of_the_page_bit_for_bit(
    name: str, pages: dict[str, Any]
) -> None:
    """As it came, and with its numbers in the place of what it is computed from."""
    trace, (whole, with_numbers, _), _ = pages[name]
    assert whole
    assert bool(with_numbers) == (name not in lists(ALONE))
    for text in filter(None, (whole, with_numbers)):
        with contextlib.chdir(ROOT):
            theirs = again(text)
        for stage, ours in trace.stages():
            assert np.array_equal(
                ours.value, theirs[stage].value, equal_nan=ours.value.dtype.kind == "f"
            ), stage


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in lists(ALONE)])
def test_after_changes_it_gives_the_numbers_of_the_page(name: str, pages: dict[str, Any]) -> None:
    _, (*_, changed), stages = pages[name]
    theirs, seen = again(changed), 0
    for stage, texts in stages:
        expected = np.ravel(theirs[stage].value).astype(float)
        near = 1e-5 if stage == "angles" else 1e-12  # of a small angle few digits are known
        ours = np.array([float(x) for x in texts])
        assert ours == pytest.approx(expected, rel=1e-12, abs=near, nan_ok=True), stage
        seen += 1
    assert seen >= 1


@pytest.mark.parametrize("call", lists(WHOLE + READING))
def test_a_call_is_copied_as_it_was_given(call: str, pages: dict[str, Any]) -> None:
    _, (whole, *_), _ = pages[call]
    assert shlex.split(whole) == ["attncli", *shlex.split(call)]


def test_options_stay_as_they_were_given_until_their_number_is_changed(
    pages: dict[str, Any],
) -> None:
    call = "compute --q samples/three-tokens.json --softcap 2 --causal"
    _, (_, numbers_alone, changed), _ = pages[call]
    assert numbers_alone.startswith("attncli compute --q - --softcap 2 --causal <<'END'\n")
    assert "softcap" not in numbers_alone.partition("\n")[2]
    assert changed.startswith("attncli compute --q - --causal <<'END'\n")
    assert '"softcap":2.5' in changed


def test_what_is_only_display_is_left_out() -> None:
    shown = "--precision 2 --full --no-heatmap --work --quiet --width 90"
    assert str(trace_of(f"compute --random 3x2 {shown}").call) == "attncli compute --random 3x2"
    call = trace_of("explain 'a b' --outline --heads 2").call
    assert str(call) == "attncli explain 'a b' --heads 2"


def test_the_call_of_python_is_one_that_can_be_pasted() -> None:
    trace = attncli.explain("the river bank", dim=4, causal=True)
    assert str(trace.call) == "attncli.explain('the river bank', dim=4, causal=True)"
    assert attention().again(q=numbers(3, 2)).call is None  # of other numbers


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("attncli x; rm -r ~ #", ("--q", "1")),
        ("attncli compute", ("--q", "\x1b[201~rm")),
        ("attncli.attend", ("q=__import__('os').getcwd()",)),
    ],
)
def test_a_call_of_a_file_that_is_none_of_attncli_is_not_copied(
    function: str, words: tuple[str, ...]
) -> None:
    from attncli.formats.html.command import command

    call = RecordedCall(function, (CallOption("q", words),))
    assert command(Trace("One", attention().steps, call=call)) == {}
