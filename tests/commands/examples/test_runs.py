"""The call of an example: shown so that a shell runs it as it is, and computed under the same limits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from attncli.commands.examples.judge import judge
from attncli.commands.examples.page import call_lines
from attncli.commands.examples.runs import Run
from tests.calls import Call
from tests.commands.examples.made import document, example, plain

LABELS = {"x": [[1], [2]], "tokens": ["it's", 'back\\slash "quoted" $(touch made) `touch made`']}
SHELL = f'attncli() {{ "{sys.executable}" -m attncli "$@"; }}; '


@pytest.mark.parametrize("width", [None, 40])
@pytest.mark.parametrize(
    "run",
    [
        Run(("compute", "--q", "[[1, 0], [0, 1]]", "--tokens", "$(touch made),`touch made`")),
        Run(("similarity", "*=1,0", "a|touch=1,1", "it's=0,1", "--pca")),
        Run(("explain", "--embeddings", "-", "--projection", "identity"), (), json.dumps(LABELS)),
    ],
    ids=["a literal", "words", "standard input"],
)
def test_a_shell_runs_the_call_as_it_is_shown(run: Run, width: int | None, tmp_path: Path) -> None:
    shown = "\n".join(call_lines(run, width, 2))
    assert (" \\\n" in shown) is (width is not None)
    done = subprocess.run(
        ["sh", "-c", f"{SHELL}{shown} --format json --quiet"],
        cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    steps = [step for step in json.loads(done.stdout)["steps"] if "value" in step]
    trace = run.trace()
    assert [step["labels"] for step in steps] == [
        {axis: list(names) for axis, names in trace[step["name"]].labels.items()} for step in steps
    ]
    assert [*tmp_path.iterdir()] == []


def test_attncli_before_the_command_is_as_if_it_were_not_there() -> None:
    with_name, without = (example(f"{name}posenc --len 1 --dim 2", {"stage": "positions"})
                          for name in ("attncli ", ""))  # fmt: skip
    assert with_name.words == without.words == ("posenc", "--len", "1", "--dim", "2")


def test_a_run_has_the_memory_that_the_call_around_it_has(call: Call) -> None:
    claims = {"stage": "positions", "take": {"shape": True}, "expected": ["300", "300"]}
    file = document(plain("posenc --len 300 --dim 300", claims))
    Path("mine.json").write_text(json.dumps(file))
    assert call("examples", "it", "--file", "mine.json").code == 0
    done = call("examples", "it", "--file", "mine.json", "--max-size", "1MB")
    assert (done.code, done.out) == (2, "")
    assert "mine.json: example 'it': a table of 300 × 300 needs" in done.err


def test_a_file_of_standard_input_has_runs_with_an_input_of_their_own(call: Call) -> None:
    claims = {"stage": "weights", "printed": [["0.5", "0.5"]]}
    one = plain("compute --q -", claims)
    done = call("examples", "--verify", "--file", "-", stdin=json.dumps(document(one)).encode())
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert "its run reads standard input, but there is no input" in done.err
    file = json.dumps(document({**one, "input": {"q": [[0]], "k": [[1], [2]]}}))
    done = call("examples", "it", "--file", "-", stdin=file.encode())
    assert (done.code, done.err) == (0, "")
    assert '  echo \'{"q": [[0]], "k": [[1], [2]]}\' | attncli compute --q -\n' in done.out


def test_notes_of_a_run_are_not_printed(call: Call) -> None:
    Path("mine.json").write_text(json.dumps(document(plain("compute --q [[1]]", {"stage": "v"}))))
    assert call("compute", "--q", "[[1]]").err.count("note") == 2  # K = Q, and V = K
    assert call("examples", "it", "--file", "mine.json").err == ""


def test_a_text_is_standard_input_as_it_is() -> None:
    claims = {"stage": "dots", "at": {"word": "cat", "other": "the"}, "printed": "11"}
    run = "similarity cat the --vectors -"
    (judgement,) = judge(example(run, claims, input="cat 1 2\nthe 3 4\n")).judgements
    assert judgement.verdict == "reproduced"
