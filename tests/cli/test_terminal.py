"""Text that a terminal must not obey: hostile labels, names and arguments through every command.

The registry drives it: a command that is not in CALLS fails, and so does an option whose wrong
values would act. Each call is made in every text format, in a pipe and on a terminal.
"""

import io
import json
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import attncli
from attncli.cli.groups import typer_command
from attncli.cli.main import run
from attncli.cli.registry import COMMANDS
from attncli.formats import FORMATS
from tests.calls import SAMPLES
from tests.formats.hostile import LABELS

HELP = Path(attncli.__file__).parent / "help"
TEXTS = [name for name, form in FORMATS.items() if not form.binary]
PAGES = sorted(path.stem for path in HELP.glob("*.md"))
LAID_OUT = ["table", "markdown"]

# As one argument: none can hold NUL; and one word, without what separates words and members.
SENTENCE = "".join(LABELS[name] for name in (
    "blink", "colour", "title", "hyperlink", "clipboard", "clear", "cursor", "C1", "device",
    "controls", "override", "isolates", "marks", "zero width", "tags", "soft hyphen", "style",
))  # fmt: skip
BAD = SENTENCE + LABELS["forged"] + LABELS["overwritten"]
WORD = "\x1b[5m\x07\x9b\u202e\u2066b\u200b\u00ad[red]"
ACTS = WORD + LABELS["clipboard"] + LABELS["hyperlink"]
FILE = f"f{WORD}.json"
IN_A_FILE = [label for label in LABELS.values() if "\ud83d" not in label]  # which no JSON holds
MERGED = ["".join(IN_A_FILE[n::8]) for n in range(8)]

OURS = re.compile(r"\x1b\[[0-9;]*m|\r\x1b\[K")  # styles (a label's blinks), and a prompt erased
IN_DATA = {"tsv": "\t", "html": "\t"}
CONTROLS = {"Cc", "Cf", "Cs", "Zl", "Zp"}


class Shown(NamedTuple):
    """What a call wrote."""

    code: int
    out: str
    err: str

    def problems(self, form: str) -> Iterator[str]:
        """What of it acts on a terminal, or looks like a line of attncli's own."""
        for name, text in (("out", self.out), ("err", self.err)):
            if "\x1b[5m" in text:
                yield f"{name}: a style of a label"
            rest = OURS.sub("", text).replace("\n", "").replace(IN_DATA.get(form, "\n"), "")
            yield from (f"{name}: {x!r}" for x in {*rest} if unicodedata.category(x) in CONTROLS)
        if re.search(r"^\s*FORGED", OURS.sub("", self.out + self.err), re.MULTILINE):
            yield "a forged line"


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def shown(arguments: list[str], stream: type[io.TextIOWrapper], columns: str = "") -> Shown:
    """A call whose standard output and standard error are streams of this kind."""
    streams = [stream(io.BytesIO(), "utf-8", "surrogatepass", write_through=True) for _ in "oe"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("COLUMNS", columns)
        for name in ("FORCE_COLOR", "NO_COLOR"):
            patch.delenv(name, raising=False)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        code = run(arguments)
    raw: list[Any] = [stream.buffer for stream in streams]
    return Shown(code, *(x.getvalue().decode("utf-8", "surrogatepass") for x in raw))


def poisoned(document: Any, names: set[str], inside: bool = False) -> Any:
    """A document whose texts under these names all end in what is hostile."""
    if isinstance(document, Mapping):
        return {key: poisoned(x, names, inside or key in names) for key, x in document.items()}
    if isinstance(document, list):
        return [poisoned(item, names, inside) for item in document]
    return f"{document}{BAD}" if inside and isinstance(document, str) else document


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of every kind that holds text."""
    path = tmp_path_factory.mktemp("hostile")

    def write(name: str, document: object) -> None:
        (path / name).write_text(json.dumps(document))

    n = len(IN_A_FILE)
    x = [[at % 7, at % 3] for at in range(n)]
    write("all.json", {"q": x, "k": x[:5], "v": x[:5], "tokens": IN_A_FILE})
    x = [[1, 2], [0, 1], [2, 1], [3, 0], [1, 1], [2, 2], [0, 3], [1, 0]]
    write("tokens.json", {"q": x, "k": x, "v": x, "tokens": MERGED, BAD: "x"})
    write(
        "keys.json", {"q": x[:2], "k": x, "v": x, "tokens": {"queries": MERGED[:2], "keys": MERGED}}
    )
    write("near.json", {"q": x, "k": x, "v": x[::-1], "tokens": MERGED})
    write("names.json", {label or "e": [[1, 0]] for label in IN_A_FILE})
    write(FILE, {"q": [["NaN", 1], [0, 1]]})
    write("word.json", {WORD: [1, 2], "b": [2, 1], "c": [0, 1]})
    write("weights.json", {key: [[1, 0], [0, 1]] for key in ("w_q", "w_k", "w_v")})
    (path / "t.csv").write_text(f',"{BAD}",d\n"{BAD}",1,0\nx,0,1\n', newline="")
    x = x[:4]
    scores = [[a * c + b * d + (row == col) for col, (c, d) in enumerate(x)] for row, (a, b) in enumerate(x)]  # fmt: skip
    sheet = {"q": x, "k": x, "v": x, "tokens": MERGED[:4], "scores": scores}
    write("sheet.json", sheet)
    write("wrong.json", {**sheet, "scores": [[1 / 3, *row[1:]] for row in scores]})
    (path / "sheets").mkdir()
    for at, label in enumerate(MERGED[4:]):
        own = {"q": x[:2], "k": x[:2], "v": x[:2], "tokens": [label, "b"], label: 1}
        write(f"sheets/{at}.json", {**own, "scores": [[9, 0], [0, 9]]})
    write(f"sheets/{WORD}.json", {"q": [[BAD]], "scores": [[1]]})
    (path / "own.attn").write_text(f"scores: S[i,j] = q[i,{BAD}] # {WORD}\n")
    (path / "noted.attn").write_text(f"# {WORD}\nS[i,j] = sum[d](q[i,d] * k[j,d])\n")
    (path / "model").mkdir()
    write("model/config.json", {"model_type": BAD, "architectures": [BAD], "hidden_size": BAD})
    first = shown(["compute", str(path / "tokens.json"), "--quiet", "--format", "json"], io.TextIOWrapper)  # fmt: skip
    trace = json.loads(first.out)
    names = {"title", "symbol", "formula", "note", "notes", "labels", "remark"}
    write("trace.json", poisoned(trace, names))
    other = json.loads(json.dumps(trace).replace("0.2,", "0.21,"))
    other["steps"].append({**other["steps"][0], "name": BAD})
    write("other.json", poisoned(other, names))
    named = poisoned(trace, {*names, "name"})
    write("named.json", named)
    examples = json.loads((SAMPLES / "my-examples.json").read_text())
    del examples["examples"][1]
    texts = {"title", "author", "date", "why", "note", "id", "claim", "how"}
    write("examples.json", poisoned(examples, texts))
    write("refused.json", poisoned(examples, {*texts, "stage", "verdict", "name"}))
    return path


DIFFS = [form for form in TEXTS if form != "mermaid"]
VERDICTS = ["text", "json"]
PROGRAMS = ["text", "latex", "markdown"]
# What each command makes of the files; {} is hostile text, and no call needs more than is installed.
CALLS: dict[str, list[tuple[list[str], list[str]]]] = {
    "compute": [
        *(([name], TEXTS) for name in ("all.json", "keys.json", "t.csv", "trace.json", FILE)),
        (["tokens.json", "--work", "--d-output", "random"], [*LAID_OUT, "latex"]),
        (["tokens.json", "--cell", "1,2"], LAID_OUT), (["tokens.json", "--query", "1"], LAID_OUT),
        (["keys.json", "--query", MERGED[0]], LAID_OUT), (["tokens.json", "--full"], LAID_OUT),
        (["[[1,0],[0,1]]", "--tokens", json.dumps([BAD, "b"])], DIFFS),
        (["tokens.json", "--against=--scale 2"], DIFFS), (["tokens.json", "--stage", "{}"], LAID_OUT),
        (["names.json"], LAID_OUT), (["tokens.json::{}"], LAID_OUT), (["named.json"], LAID_OUT),
        (["t.csv", "--formulas", "own.attn"], LAID_OUT), (["t.csv", "--formulas", "noted.attn"], LAID_OUT),
        (["t.csv", "--set", "A[i,j] = {}"], LAID_OUT), (["tokens.json", "--cell", "{},1"], LAID_OUT),
    ],
    "explain": [
        ([ACTS], TEXTS), (["a", "--target", ACTS], TEXTS), ([SENTENCE, "--outline"], LAID_OUT),
        (["--tokens", json.dumps([WORD, "b"]), "--vectors", "word.json"], TEXTS),
        ([ACTS, "--dim", "2", "--weights", "weights.json"], LAID_OUT), (["--vectors", "{}", "a"], LAID_OUT),
        ([f"{WORD} b", "--against-order", f"b {WORD}"], DIFFS), ([WORD, "--pad-to", "4"], LAID_OUT),
    ],
    "model": [(["{}", "b"], LAID_OUT), (["model", "{}"], LAID_OUT), (["model", "b", "--stage", "{}"], LAID_OUT)],
    "posenc": [
        (["--add", "t.csv"], TEXTS), (["--add", "tokens.json::q"], LAID_OUT),
        (["--kind", "rope", "--apply", "t.csv"], TEXTS), (["--add", "names.json"], LAID_OUT),
    ],
    "similarity": [
        ([f"{WORD}=1,2", "b=2,1", "c=1,1", "--pca"], TEXTS), (["{}", "b"], LAID_OUT),
        ([WORD, "b", "--vectors", "word.json", "--nearest", "2"], TEXTS),
        ([WORD, "b", "c", "--vectors", "word.json", "--work"], LAID_OUT),
        (["--analogy", WORD, "b", "c", "--vectors", "word.json"], TEXTS),
    ],
    "examples": [
        (["--file", "examples.json"], ["table"]), (["{}"], LAID_OUT), (["--file", "{}"], LAID_OUT),
        (["--file", "examples.json", "--verify"], [*LAID_OUT, "json"]),
        (["exercise-1", "--file", "examples.json"], [*LAID_OUT, "json"]),
        (["--file", "refused.json", "--verify"], [*LAID_OUT, "json"]),
    ],
    "check": [
        (["sheet.json", "--by-hand"], VERDICTS), (["sheet.json", "--single"], VERDICTS),
        (["wrong.json"], VERDICTS), (["sheets", "--by-hand"], VERDICTS),
        (["wrong.json", "--no-by-hand", "--single"], VERDICTS),
        (["sheet.json", "wrong.json", "--by-hand"], VERDICTS), (["names.json"], VERDICTS),
        (["--q", "tokens.json", "--observed", "[[1, 2]]"], VERDICTS),
        (["--q", "tokens.json", "--observed", "near.json::v", "--single"], VERDICTS),
        (["--q", "tokens.json", "--observed", "names.json"], VERDICTS), ([FILE], VERDICTS),
        (["--q", "trace.json", "--observed", "other.json", "--single"], VERDICTS),
        (["--bug", "{}"], VERDICTS), (["{}", "--bugs"], VERDICTS), (["named.json"], VERDICTS),
        (["sheet.json", "--formulas", "own.attn"], VERDICTS),
        (["sheet.json", "--formulas", "noted.attn"], VERDICTS),
    ],
    "semantics": [(["{}"], LAID_OUT), (["jax", "{}"], LAID_OUT), (["--q", "tokens.json"], DIFFS),
                  (["--q", "keys.json", "--causal"], LAID_OUT)],
    "formulas": [
        ([SENTENCE], PROGRAMS), (["--q", "tokens.json"], PROGRAMS),
        (["--q", "names.json"], PROGRAMS), (["--q", FILE], PROGRAMS),
    ],
    "diff": [
        (["trace.json", "other.json"], DIFFS), (["tokens.json", "near.json"], DIFFS),
        (["trace.json", "named.json"], LAID_OUT), (["trace.json", "other.json", "--by-name"], LAID_OUT),
        (["names.json", "keys.json"], LAID_OUT), ([FILE, "tokens.json"], LAID_OUT),
        (["names.json", "names.json"], DIFFS), (["trace.json", "{}"], LAID_OUT),
    ],
}  # fmt: skip


def calls_of(command: str, stream: type[io.TextIOWrapper], *, every: bool) -> Iterator[list[str]]:
    """The calls of a command in each format; or in one of them, on a terminal or in a pipe."""
    for at, (call, forms) in enumerate(CALLS[command]):
        kept = forms if every else forms[at % len(forms) :][: (stream is Terminal) == at % 2]
        for form in kept:
            yield [command, *(x.replace("{}", BAD) for x in call), "--format", form]


def test_every_command_is_called_with_hostile_text() -> None:
    assert CALLS.keys() == COMMANDS.keys()


STREAMS = pytest.mark.parametrize("stream", [io.TextIOWrapper, Terminal], ids=["pipe", "terminal"])


@STREAMS
@pytest.mark.parametrize("command", CALLS)
@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.exhaustive)], ids=["some", "every"]
)
def test_no_text_of_a_file_acts_on_a_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, every: bool,
    stream: type[io.TextIOWrapper],
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    monkeypatch.setattr("attncli.cli.output.PATIENCE", 1e9)  # a progress bar moves the cursor
    problems = [
        (call[1:], problem)
        for call in calls_of(command, stream, every=every)
        for problem in shown(call, stream).problems(call[-1])
    ]
    assert problems == []


def wrong_calls(command: str) -> Iterator[list[str]]:
    """The command with a hostile value of each of its options, and with what it does not know."""
    for param in typer_command(command, COMMANDS[command]).params:
        name: Any = (*param.opts, *param.secondary_opts)[-1]
        is_option = param.param_type_name == "option"
        is_switch = getattr(param, "is_flag", False)
        yield [
            command,
            *([f"{name}={ACTS}"] if is_switch else [name, ACTS] if is_option else [ACTS]),
        ]
    yield from ([command, f"--{BAD}"], [command, "--help", BAD], [command, "a", ACTS, ACTS])
    yield from ([f"{command}{BAD}"], ["help", f"{command}{BAD}"], [BAD])


@STREAMS
@pytest.mark.parametrize("command", COMMANDS)
def test_no_text_of_a_call_acts_on_a_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, stream: type[io.TextIOWrapper]
) -> None:
    monkeypatch.chdir(folder)
    problems = []
    for call in [*wrong_calls(command)][stream is Terminal :: 2]:
        result = shown(call, stream)
        problems += [(call, problem) for problem in result.problems("")]
        assert "internal error" not in result.err, call
    assert problems == []


@pytest.mark.parametrize("text", ["x" * 5000, "xq\n" * 5000])
def test_no_message_is_long(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(folder)
    for call in (
        ["compute", "--q", text],
        ["compute", f"names.json::{text}"],
        [text],
        ["examples", text],
        ["explain", "a", "--vectors", text],
        ["compute", f"--{text}"],
    ):
        result = shown(call, io.TextIOWrapper)  # fmt: skip
        assert (result.code, result.err.count("\n")) == (2, 1)
        assert len(result.err) < 1000


# ---- messages as wide as the terminal


@pytest.mark.parametrize("columns", [60, 80, 140])
@pytest.mark.parametrize("call", [
    "similarity kng queen", "explain love --format csv", "posenc --len 5 --dim 4 --positions papr",
    "compute [[1,0]] --temperature warm", "compute --q nosuch.json --query q1", "examples 004-frist",
])  # fmt: skip
def test_a_message_is_broken_between_words_and_on_a_terminal_alone(call: str, columns: int) -> None:
    one_line, broken = (
        shown(call.split(), stream, str(columns)).err.splitlines()
        for stream in (io.TextIOWrapper, Terminal)
    )
    assert all(line.startswith("attncli: ") for line in one_line)
    assert max(map(len, broken)) <= columns
    assert len(broken) > len(one_line) or max(map(len, one_line)) <= columns
    words = [line.split() for line in (" ".join(one_line), " ".join(broken))]
    assert words[0] == words[1]


def test_a_terminal_without_a_known_width_gets_whole_lines() -> None:
    result = shown(["similarity", "kng", "queen"], Terminal)
    assert (result.code, result.err.count("\n")) == (2, 1)


# ---- pages of help


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_help_without_styles_keeps_its_backticks(page: str) -> None:
    text = re.sub(r"^```.*?^```", "", (HELP / f"{page}.md").read_text("utf-8"), flags=re.M | re.S)
    plain, styled = (shown(["help", page], stream, "80") for stream in (io.TextIOWrapper, Terminal))
    assert plain.out.count("`") == text.count("`") > 0
    assert [line for line in plain.out.splitlines() if line != line.rstrip()] == []
    assert max(map(len, plain.out.splitlines())) <= 80
    assert "`" not in styled.out.replace("``", "")
    assert "\x1b[1" in styled.out
