"""The README: its commands run, its pictures are real, every command and flag is in it."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from attncli.cli.commands import COMMANDS
from attncli.cli.main import LazyGroup, run
from attncli.presets import PRESETS
from attncli.semantics.cases import CASES
from tests.cli.test_model import models

__all__ = ["models"]

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
SPAN = re.compile(r"`((?:[a-z]+ [^`]*\| )?attncli [^`]*-[^`]+)`")
CHANGES_THE_SHELL = "attncli --install-completion"

# Every `$ command` with the output shown under it, and every command within a line.
SESSIONS = [
    (command, output.rstrip("\n"))
    for block in CONSOLE.findall(README)
    for command, _, output in (s.partition("\n") for s in re.split(r"^\$ ", block, flags=re.M)[1:])
]
SPANS = {span.replace("\\|", "|") for span in SPAN.findall(README)} - {CHANGES_THE_SHELL}
FIGURE = re.findall(r"!\[[^\]]*\]\(([^)]+)\)\n\n`(attncli [^`]+)`", README)


@pytest.fixture(autouse=True)
def _in_a_copy_of_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "samples", tmp_path / "samples")
    (document,) = re.findall(r"```json\n(.*?)```", README, re.DOTALL)[:1]
    (tmp_path / "file.json").write_text(document, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def run_line(
    line: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str]:
    """Runs one line as a shell would, with what another program of a pipe would write or read."""
    code, text = 0, ""
    for part in line.split(" | "):
        if part == "yes ''":
            text = "\n" * 100
        elif part.startswith("head"):
            text = "".join(text.splitlines(keepends=True)[: int(part.split("-")[1])])
        elif part != "cat":
            stream = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
            monkeypatch.setattr(sys, "stdin", stream)
            program, *arguments = shlex.split(part)
            assert program == "attncli"
            code, text = run(arguments), capfd.readouterr().out
    return code, text


LINES = [*SESSIONS, *((span, "") for span in sorted(SPANS - {line for line, _ in SESSIONS}))]


@pytest.mark.parametrize(("line", "output"), LINES)
def test_every_example_runs_and_gives_what_is_shown(
    line: str, output: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    if line.startswith("attncli model"):
        for model in request.getfixturevalue("models").iterdir():
            Path(model.name).symlink_to(model)
    code, printed = run_line(line, capfd, monkeypatch)
    compares = line.startswith(("attncli check", "attncli diff")) or "--against" in line
    assert code == 0 or (code == 1 and compares)  # 1: it differs
    if output:
        assert [row.rstrip() for row in printed.rstrip("\n").split("\n")] == output.split("\n")
    for path, drawing in FIGURE:  # of which one is the README's own
        assert line != drawing or Path("attention.svg").read_bytes() == (ROOT / path).read_bytes()


def cells_of(line: str) -> list[str]:
    """The cells of a row of a table."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_every_flag_is_in_a_table_with_its_choices_help_and_an_example() -> None:
    def plain(text: str) -> str:
        return re.sub(r" \(default: .*?\)", "", text)  # which a command may have of its own

    helps: dict[frozenset[str], set[str]] = {}
    takes: dict[frozenset[str], set[str]] = {}
    for name in COMMANDS:
        for param in LazyGroup().get_command(None, name).params:
            flags = frozenset(f for f in (*param.opts, *param.secondary_opts) if f[0] == "-")
            if flags and "--help" not in flags:
                kind = param.type_descriptor.annotation
                choices = ", ".join(x for x in get_args(kind) if isinstance(x, str))
                helps.setdefault(flags, set()).add(plain(param.help))
                takes.setdefault(flags, set()).add((param.metavar or choices).replace("|", "\\|"))
    seen = set()
    for row in map(cells_of, README.splitlines()):
        named = re.findall("`(-[^`]+)`", row[0]) if row[0:1] and row[0][:2] == "`-" else []
        if named and "--help" not in named:
            seen.add(flags := frozenset(named))
            assert plain(row[1]) in helps[flags], row[0]
            assert any(words in row[0] for words in takes[flags]), row[0]
            assert named[0] in row[2], f"no example of {row[0]}"
    assert helps.keys() - seen == set()


def test_the_python_example_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(import attncli\n.*?)```", README, flags=re.DOTALL)
    exec(example, {})  # noqa: S102 - it is ours
    assert "Scaled dot-product attention" in capsys.readouterr().out


def test_completion_is_installed_for_the_shell(tmp_path: Path) -> None:
    # It asks which shell called it, so one has to stay there: the tests may run without any.
    call = f"{shlex.quote(sys.executable)} -m {CHANGES_THE_SHELL}; exit $?"
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", call], env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "attncli" in (tmp_path / ".bashrc").read_text()


SHORT = ("true", "numbers 0, −∞", "causal 3 × 5", "mask, causal", "no key", "no key by −∞")
"""The cases of the short table of what libraries mean: in these they part most often."""


def test_the_short_table_of_libraries_is_what_semantics_shows() -> None:
    groups: dict[tuple[str, ...], list[str]] = {}
    for preset in PRESETS.values():
        cells = tuple(CASES[name].cell(preset) for name in SHORT)
        groups.setdefault(cells, []).append(f"`{preset.name}`")
    rows = [["library", *SHORT]] + [[", ".join(names), *cells] for cells, names in groups.items()]
    tables = [cells_of(line) for line in README.splitlines() if line.startswith("|")]
    at = tables.index(rows[0])
    assert [tables[at], *tables[at + 2 : at + 1 + len(rows)]] == rows
