"""--color, --no-color, NO_COLOR and FORCE_COLOR, in a pipe, a file and on a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Call

pty = pytest.importorskip("pty")

TRUE, EIGHT = "\x1b[38;2;", "\x1b[97;44m"
"""What a shade begins with: of 16 million colours, and of eight."""


@pytest.fixture
def weights(call: Call, three: Path) -> list[str | Path]:
    return ["compute", three, "--stage", "weights"]


@pytest.mark.parametrize(
    ("flags", "environment", "coloured"),
    [
        ([], {}, False),
        (["--color", "auto"], {}, False),
        (["--color", "always"], {}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        (["--no-color"], {"FORCE_COLOR": "1"}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "0"}, True),  # whatever its value
        ([], {"FORCE_COLOR": ""}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
        (["--color", "auto"], {"FORCE_COLOR": "1"}, True),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--no-color", "--color", "never"], {}, False),
    ],
)
def test_in_a_pipe_a_flag_wins_over_the_environment(
    call: Call,
    weights: list[str],
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    environment: dict[str, str],
    coloured: bool,
) -> None:
    for name, value in (environment | {"TERM": "xterm", "COLORTERM": "truecolor"}).items():
        monkeypatch.setenv(name, value)
    found = call(*weights, *flags)
    assert found.code == 0
    assert (TRUE in found.out) == coloured
    assert ("\x1b" in found.out) == coloured


def test_a_pipe_with_colours_is_as_wide_as_one_without(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    row = str([*range(90)]).replace("0]", "0.5]")
    wide = call("compute", f"[{row}]", "--stage", "q", "--color", "always")
    plain = call("compute", f"[{row}]", "--stage", "q")
    assert max(map(len, plain.out.splitlines())) > 300
    assert len(wide.out.splitlines()) == len(plain.out.splitlines())


@pytest.mark.parametrize(
    ("term", "begins"),
    [
        ("xterm", EIGHT),
        ("linux", EIGHT),
        ("dumb", EIGHT),
        ("", EIGHT),
        ("screen-256color", "\x1b[38;5;231;48;5;"),
    ],
)
def test_the_colours_of_a_pipe_are_those_that_the_terminal_names(
    three: Path, term: str, begins: str
) -> None:  # in processes of their own, as Rich keeps the codes of a style
    call = [sys.executable, "-m", "attncli", "compute", str(three), "--color", "always"]
    env = {name: x for name, x in os.environ.items() if name != "COLORTERM"} | {"TERM": term}
    done = subprocess.run(call, capture_output=True, text=True, check=True, env=env)
    assert begins in done.stdout


def test_a_file_has_colours_where_they_are_asked_for(
    call: Call, weights: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    assert call(*weights, "--color", "always", "--output", "colours.txt").code == 0
    text = Path("colours.txt").read_text(encoding="utf-8")
    assert TRUE in text
    assert text == call(*weights, "--color", "always").out
    monkeypatch.setenv("FORCE_COLOR", "1")  # which is about the terminal
    assert call(*weights, "--output", "plain.txt").code == 0
    assert "\x1b" not in Path("plain.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--color", "always", "--no-color"], "--no-color cannot be used with --color"),
        (["--color", "auto", "--no-color"], "--no-color cannot be used with --color"),
        (["--color", "always", "--format", "json"], "--color always has no effect on json"),
        (["--color", "always", "--output", "a.md"], "--color always has no effect on markdown"),
        (["--color", "yes"], "'yes' is not one of 'auto', 'always', 'never'"),
        (["--color", "alway"], "did you mean always?"),
    ],
)
def test_what_is_refused(call: Call, weights: list[str], flags: list[str], message: str) -> None:
    found = call(*weights, *flags)
    assert (found.code, found.out) == (2, "")
    assert message in found.err


def on_a_terminal(*arguments: str | Path, **environment: str) -> str:
    """What a call writes to a terminal of 80 columns."""
    master, slave = pty.openpty()
    names = ("COLORTERM", "NO_COLOR", "FORCE_COLOR")
    env = {name: x for name, x in os.environ.items() if name not in names}
    env |= {"COLUMNS": "80", "LINES": "24", **environment}
    call = [sys.executable, "-m", "attncli", *map(str, arguments)]
    done = subprocess.Popen(call, stdout=slave, env=env)
    os.close(slave)
    found = b""
    try:
        while more := os.read(master, 4096):
            found += more
    except OSError:  # its other end is closed
        pass
    os.close(master)
    assert done.wait() == 0
    return found.decode()


def test_on_a_terminal_of_eight_colours_marks_stand_beside_the_shades(weights: list[str]) -> None:
    for term in ("linux", "xterm", "screen"):
        text = on_a_terminal(*weights, TERM=term)
        assert "\x1b[97;45m ▒ 0.4011 \x1b[0m" in text
        assert "░▒▓█ the number, from 0.2 to 1" in text
    assert "▒" not in on_a_terminal(*weights, TERM="xterm-256color")
    assert "▒" not in on_a_terminal(*weights, TERM="linux", NO_COLOR="1")
    assert "▒" not in on_a_terminal(*weights, "--color", "never", TERM="linux")
