"""The README: its commands run, its pictures are real, every command and flag is in it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attncli.cli.commands import COMMANDS
from attncli.cli.main import LazyGroup, run
from attncli.presets import PRESETS
from attncli.semantics.cases import CASES
from tests.reference import GROUPS, rows_of

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
SPAN = re.compile(r"`((?:[a-z]+ [^`]*\| )?attncli [^`]*-[^`]+)`")
JSON = re.compile(r"```json\n(.*?)```", re.DOTALL)
CHANGES_THE_SHELL = "attncli --install-completion"


def sessions() -> list[tuple[str, str]]:
    """Every `$ command` of the README with the output shown under it."""
    found = []
    for block in CONSOLE.findall(README):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output.rstrip("\n")))
    return found


def examples() -> list[str]:
    """Every command that the README mentions, in a session or in a line of a table."""
    spans = [span.replace("\\|", "|") for span in SPAN.findall(README)]
    return sorted({*(command for command, _ in sessions()), *spans} - {CHANGES_THE_SHELL})


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints that the README's commands name; none without transformers."""
    from tests.models import checkpoints

    folder = tmp_path_factory.mktemp("models")
    pytest.importorskip("transformers", reason="attncli model needs attncli[models]")
    checkpoints.gpt2(folder / "gpt2")
    checkpoints.t5(folder / "t5")
    return folder


@pytest.fixture(autouse=True)
def _in_a_copy_of_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "samples", tmp_path / "samples")
    (tmp_path / "file.json").write_text(JSON.findall(README)[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def run_line(line: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Runs one line, a pipe of attncli calls included, as a shell would."""
    if "|" not in line:
        code = run(shlex.split(line)[1:])
        return code, capfd.readouterr().out
    shell = re.sub(r"\battncli(?= )", f"{shlex.quote(sys.executable)} -m attncli", line)
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("line", examples())
def test_every_example_runs(
    line: str, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    if line.startswith("attncli model"):
        made: Path = request.getfixturevalue("models")
        for model in made.iterdir():
            Path(model.name).symlink_to(model)
    code, _ = run_line(line, capfd)
    compares = line.startswith(("attncli check", "attncli diff")) or "--against" in line
    assert code == 0 or (code == 1 and compares)  # 1: it differs


@pytest.mark.parametrize(("line", "output"), [s for s in sessions() if s[1]])
def test_every_picture_is_real(line: str, output: str, capfd: pytest.CaptureFixture[str]) -> None:
    _, printed = run_line(line, capfd)
    assert [row.rstrip() for row in printed.rstrip("\n").split("\n")] == output.split("\n")


@pytest.mark.parametrize("group", GROUPS)
def test_every_flag_is_in_its_table_with_its_help_and_an_example(group: str) -> None:
    rows = {tuple(row[:2]): row[2] for row in map(cells_of, README.splitlines()) if len(row) == 3}
    for flags, words in rows_of(group):
        assert (flags, words) in rows
        flag = re.findall("`(-[^`]+)`", flags)[0]
        assert flag in rows[flags, words], f"no example of {flag}"


def cells_of(line: str) -> list[str]:
    """The cells of a row of a table."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_of_a_command_is_in_the_reference(name: str) -> None:
    known = {flag for group in GROUPS for flags, _ in rows_of(group) for flag in flags.split("`")}
    for param in LazyGroup().get_command(None, name).params:
        for flag in (*param.opts, *param.secondary_opts):
            assert not flag.startswith("--") or flag in known | {"--help"}, f"{name} {flag}"


def test_the_python_example_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(import attncli\n.*?)```", README, flags=re.DOTALL)
    exec(example, {})  # noqa: S102 - it is ours
    assert "Scaled dot-product attention" in capsys.readouterr().out


def test_the_figure_is_what_the_command_below_it_draws(capfd: pytest.CaptureFixture[str]) -> None:
    (path, line), *others = re.findall(r"!\[[^\]]*\]\(([^)]+)\)\n\n`(attncli [^`]+)`", README)
    assert not others
    code, _ = run_line(line, capfd)
    assert code == 0
    assert Path("attention.svg").read_bytes() == (ROOT / path).read_bytes()


def test_it_can_be_read_at_once() -> None:
    assert len(README.splitlines()) <= 350


def test_the_two_commands_that_do_everything() -> None:
    lines = re.findall(r"^python3 -m venv .*$", README, flags=re.MULTILINE)
    assert len(lines) == 2
    assert lines[0].endswith("attncli compute --q samples/three-tokens.json")
    assert "pytest" in lines[1]


def test_completion_is_installed_for_the_shell(tmp_path: Path) -> None:
    # It asks which shell called it, so one has to stay there: the tests may run without any.
    call = f"{shlex.quote(sys.executable)} -m {CHANGES_THE_SHELL}; exit $?"
    done = subprocess.run(
        ["bash", "-c", call],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
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
    found = [cells_of(line) for line in README.splitlines() if line.startswith("|")]
    at = found.index(rows[0])
    assert [found[at], *found[at + 2 : at + 1 + len(rows)]] == rows
