"""The screen: colours, encodings, text that a terminal must not obey, help, and --blank."""

import ast
import codecs
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import attncli
from attncli.cli.main import LazyGroup
from attncli.cli.registry import COMMANDS
from attncli.files.characters import near
from tests.calls import SAMPLES, Call

TRUE = "\x1b[38;2;"  # what a shade of 16 million colours begins with


@pytest.mark.parametrize(
    ("flags", "environment", "coloured"),
    [  # FORCE_COLOR is on whatever its value, and is about the terminal alone

        ("", "", False), ("--color always", "", True), ("--color never", "FORCE_COLOR=1", False),
        ("--no-color", "FORCE_COLOR=1", False), ("", "FORCE_COLOR=1", True),
        ("", "FORCE_COLOR=0", True), ("", "FORCE_COLOR=", False),
        ("", "FORCE_COLOR=1 NO_COLOR=1", False), ("", "FORCE_COLOR=1 NO_COLOR=", True),
        ("--color auto", "FORCE_COLOR=1", True), ("--color always", "NO_COLOR=1", True),
        ("--color always --output a.txt", "", True), ("--output a.txt", "FORCE_COLOR=1", False),
    ],
)  # fmt: skip
def test_in_a_pipe_a_flag_wins_over_the_environment(
    call: Call, three: Path, monkeypatch: pytest.MonkeyPatch, flags: str, environment: str,
    coloured: bool,
) -> None:  # fmt: skip
    for setting in ["TERM=xterm", "COLORTERM=truecolor", *environment.split()]:
        monkeypatch.setenv(*setting.split("="))
    result = call("compute", three, "--stage", "weights", *flags.split())
    assert result.code == 0
    text = result.out or Path("a.txt").read_text(encoding="utf-8")
    assert ("\x1b" in text, TRUE in text) == (coloured, coloured)


def test_a_pipe_with_colours_is_as_wide_as_one_without(call: Call) -> None:
    row = str([0.5] * 90)
    wide = call("compute", f"[{row}]", "--stage", "q", "--color", "always").out.splitlines()
    plain = call("compute", f"[{row}]", "--stage", "q").out.splitlines()
    assert max(map(len, plain)) > 300
    assert len(wide) == len(plain)


# ---- encodings

SHOWN = [
    "compute three-tokens.json --causal --work --d-output random",
    "compute three-tokens.json --heatmap --dropout 0.3 --format markdown",
    "explain 'The river bank' --block decoder --target la --work --dropout .1",
    "explain 'The bank' --format mermaid", "posenc --kind rope --apply heads.json --work",
    "similarity a=1,2 b=2,1 c=0,1 --pca --work", "examples --verify", "check dump.json --decimals 4",
    "compute '[[1 …]]'", *(f"{name} --help" for name in ("", *COMMANDS)),
    *(f"help {page.stem}" for page in (Path(attncli.__file__).parent / "help").glob("*.md")),
]  # fmt: skip
# Signs that are only looked for, or are within equations and in nothing that is written.
ONLY_READ = {"tokens.py", "table.py", "tex.py"}
MARKS = {"\ue000", "\ue001", "\ue002", "⋱"}  # and one whose form is a backslash


@pytest.mark.parametrize("line", SHOWN)
def test_no_output_holds_an_escape(call: Call, line: str) -> None:
    codecs.register_error("attncli", near)
    result = call(*(str(SAMPLES / part) if ".json" in part else part for part in shlex.split(line)))
    for encoding in ("ascii", "cp1252"):
        text = (result.out + result.err).encode(encoding, "attncli").decode(encoding)
        assert len(text) > 40
        assert not re.search(r"\\[xuU][0-9a-f]{2}", text), encoding


def test_every_sign_of_ours_has_a_form_in_ascii() -> None:
    signs: set[str] = set()
    for path in Path(attncli.__file__).parent.rglob("*.py"):
        nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        documented = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        texts = (str(x.value) for x in nodes if isinstance(x, ast.Constant) and id(x) not in documented)  # fmt: skip
        signs |= {*"".join(texts if path.name not in ONLY_READ else "")}
    ours = {sign for sign in signs if not sign.isascii() and not sign.isalpha()} - MARKS
    assert len(ours) > 40
    assert [x for x in ours if near(UnicodeEncodeError("ascii", x, 0, 1, ""))[0][0] == "\\"] == []


@pytest.mark.parametrize(
    "line",
    [
        "compute three-tokens.json --causal --work", "similarity a=1,2 b=2,1 c=0,1 --work",
        "posenc --len 4 --dim 4 --work", "explain 'Ein Zug f\u00e4hrt' --dim 4 --outline",
    ],
)  # fmt: skip
def test_lines_fit_where_signs_are_printed_as_words(line: str) -> None:
    """√d_k is printed as sqrt d_k, ä as \\xe4: it is laid out as what is printed."""
    words = [str(SAMPLES / word) if ".json" in word else word for word in shlex.split(line)]
    command = [sys.executable, "-m", "attncli", *words, "--width", "47", "--quiet"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(command, capture_output=True, env=environment, check=True)
    lines = result.stdout.decode("ascii").splitlines()
    assert {"sqrt", "^T", "||", "pi", "\\xe4"} & {
        *re.findall(r"sqrt|\^T|\|\||pi|\\xe4", " ".join(lines))
    }
    assert max(map(len, lines)) <= 47


# ---- version and help


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_the_names_of_its_groups(call: Call, name: str) -> None:
    end = call(name, "--help").out.split("--help GROUP")[1]
    refusal = call(name, "--help", "none").err
    groups = refusal.split("only ")[1].split(";")[0].split(", ")
    assert {*re.findall(r"\w+", end)} >= {*groups}


def joined(text: str) -> str:
    """Without blanks and borders, as a long word is broken at any place."""
    return re.sub(r"[\s│]", "", text)


def test_the_version_and_help_that_names_every_command(call: Call) -> None:
    assert call("--version").out == f"attncli {attncli.__version__}\n"
    for arguments in ((), ("--help",), ("-h",)):
        result = call(*arguments)
        assert (result.code, result.err) == (0, "")
        assert [name for name in COMMANDS if f" {name} " not in result.out] == []
        shown = joined(result.out)
        for name, command in COMMANDS.items():
            assert joined(command.help.partition("\n\n")[0]) in shown, name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_shown_whole(call: Call, name: str) -> None:
    shown = joined(call(name, "--help", "all").out)
    assert joined(COMMANDS[name].help) in shown
    for param in LazyGroup().get_command(None, name).params:
        assert getattr(param, "help", None), param.name
        # by a library to which [models] is markup
        for word in re.findall(r"\S*\[\S*", f"{param.help} {param.metavar}"):
            assert word in shown, param.name


# ---- --blank: a worksheet instead of its key


def test_blank_leaves_out_what_is_computed_or_named(call: Call, three: Path) -> None:
    everything = call("compute", three, "--blank", "-o", "x.txt")
    assert (everything.code, everything.out, everything.err) == (0, "", "")
    sheets = {flags: call("compute", three, *flags.split()).out for flags in
              ("--blank", "--blank=", "--blank weights --blank", "--blank weights",
               "--blank=WEIGHTS", "--blank weights --blank output")}  # fmt: skip
    key, again, too, one, same, two = sheets.values()
    assert Path("x.txt").read_text(encoding="utf-8") == key == again == too
    assert one == same
    assert [text.count("  q1    ____") for text in (key, one, two)] == [4, 1, 2]
    assert ["0.7071" in one, "6.2762" in one, "0.4011" in one] == [True, True, False]
    line = "explain 'The bank' --block encoder --blank encoder.1.attention.weights"
    assert call(*shlex.split(line)).out.count("____  ") == 2


def test_every_command_that_shows_stages_has_it(call: Call, three: Path) -> None:
    for line in (
        "posenc --len 3 --dim 4 --blank --work",
        "posenc --len 3 --dim 4 --cell 2,3 --blank",
        "similarity mom=0.2,0.7,0.9 dad=0.9,0.7,0.9 --pca --blank",
        "examples 004-first-example --blank",
        "similarity mom=0.2,0.7,0.9 dad=0.9,0.7,0.9 --blank cosines",
        "examples 003-cosines --blank cosines",
        "explain --blank contextual --dim 4 'She visited'",
        "explain --blank --dim 4 'She visited'",  # which is not taken for a stage
        "compute --blank -",
    ):
        result = call(*shlex.split(line), stdin=three.read_bytes())
        assert (result.code, result.err, "____" in result.out) == (0, "", True), line
