"""The command line as a whole: version, help, completion, misspelt words."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import attncli
from attncli.cli.commands import COMMANDS
from attncli.cli.main import LazyGroup

from .conftest import Call


def test_version(call: Call) -> None:
    assert call("--version").out == f"attncli {attncli.__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_names_every_command(call: Call, arguments: Any) -> None:
    result = call(*arguments)
    assert result.code == 0
    assert result.err == ""
    for name in COMMANDS:
        assert name in result.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name: str) -> None:
    command = LazyGroup().get_command(None, name)
    for param in command.params:
        assert getattr(param, "help", None), f"{name} {param.name}"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_shown_whole(call: Call, name: str) -> None:
    # by a library to which [models] is markup; a long word is broken at any place
    def joined(text: str) -> str:
        return re.sub(r"[\s│]", "", text)

    shown, listed = joined(call(name, "--help").out), joined(call("--help").out)
    assert joined(COMMANDS[name].help) in shown
    assert joined(COMMANDS[name].help.partition("\n\n")[0]) in listed
    for param in LazyGroup().get_command(None, name).params:
        for word in re.findall(r"\S*\[\S*", f"{param.help} {param.metavar}"):
            assert word in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("compte",), "No such command 'compte'; did you mean compute?"),
        (
            ("compute",),
            "there is nothing to compute; write attncli compute FILE, or give embeddings by --x, "
            "and their --weights",
        ),
        (("compute", "--q", "x", "--fomat", "json"), "option: --fomat; did you mean --format?"),
        (("compute", "--q", "x", "--format", "jsn"), "'jsn' is not one of 'table', 'json'"),
        (("compute", "--q", "x", "--heads", "0"), "greater than or equal to 1"),
        (("compute", "--q", "x", "--heads", "two"), "valid integer"),
        (
            ("compute", "--q", "x", "--softcap", "much"),
            "--softcap 'much' is not understood; write --softcap a number above 0",
        ),
        (("compute", "--q", "x", "extra"), "both 'extra' and --q are given; leave one of the two"),
        (("posenc", "extra"), "unexpected extra argument"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(call: Call, arguments: Any, says: str) -> None:
    result = call(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert result.err.startswith("attncli: ")
    assert says in result.err


def modules_after(*arguments: str) -> set[str]:
    """The modules that a call has imported when it ends."""
    script = (
        "import sys; from attncli.cli.main import run; run(sys.argv[1:]); "
        "print('\\n' + ' '.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split("\n")[-2].split())


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("compute", "--help"), ("explain", "-h")]
)
def test_asking_for_help_does_not_load_numpy(arguments: Any) -> None:
    assert "numpy" not in modules_after(*arguments)


def test_computing_loads_nothing_it_does_not_need() -> None:
    loaded = modules_after("compute", "--q", "[[1,2],[3,4]]")
    assert "numpy" in loaded
    unneeded = {"threadpoolctl", "attncli.attention.streaming", "concurrent.futures"}
    unneeded |= {"pydantic", "numpy.random", "zipfile", "csv", "safetensors", "rich.markdown"}
    assert loaded & unneeded == set()


def test_explaining_loads_nothing_it_does_not_need() -> None:
    loaded = modules_after("explain", "the river bank")
    assert "numpy.random" in loaded
    unneeded = {"pydantic", "zipfile", "csv", "json", "rich.markdown", "attncli.files.word_vectors"}
    unneeded |= {"attncli.files.load", "attncli.attention.state_dict"}
    assert loaded & unneeded == set()


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "attncli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"attncli {attncli.__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_choices(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "attncli"],
        env={
            "_ATTNCLI_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": "attncli compute --form",
            "COMP_CWORD": "2",
            "_TYPER_COMPLETE_ARGS": "attncli compute --form",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert "--format" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("compute", "--q", "{}"),
        ("compute", "--q", "[[1]]", "--mask", "{}"),
        ("compute", "--q", "[[1]]", "--stage", "{}", "--quiet"),
        ("compute", "--q", "[[1]]", "--cell", "{},1", "--quiet"),
        ("compute", "--q", "[[1]]", "--window", "{}"),
        ("compute", "--q", "[[1]]", "--output", "{}"),
        ("compute", "--q", "[[1]]", "--output", "x.{}"),
        ("compute", "--q", "esc.json"),
        ("compute", "--q", "esc.json::{}3"),
        ("check", "--q", "[[1]]", "--observed", "esc.json"),
        ("check", "--q", "[[1]]", "--observed", "[[1]]", "--stage", "{}"),
        ("explain", "a", "--weights", "esc.json"),
        ("explain", "a", "--glove", "{}"),
        ("similarity", "{}=x"),
        ("similarity", "a", "--vectors", "esc.json"),
        ("posenc", "--len", "{}"),
        ("examples", "{}"),
        ("examples", "--verify", "--file", "esc.json"),
        ("{}",),
        ("compute", "--{}"),
    ],
)
@pytest.mark.parametrize("text", ["a\x1b[31mb\x9b\u202e\u200b", "x" * 5000])
def test_no_message_acts_on_a_terminal_or_fills_it(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], text: str
) -> None:
    (tmp_path / "esc.json").write_text(json.dumps({text: [[1]], f"{text}2": [["x"]], "b": [[2]]}))
    result = call(*(argument.replace("{}", text) for argument in arguments))
    assert result.code == 2, result.out
    assert result.err.count("\n") == 1
    assert result.err[:-1].isprintable()
    assert len(result.err) < 1000
