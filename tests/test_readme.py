"""The README and the manual: their commands run, their pictures are real, every option is there."""

import doctest
import inspect
import io
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import attncli
from attncli.cli.main import LazyGroup, run
from attncli.cli.registry import COMMANDS
from attncli.commands.semantics.cases import CASES
from attncli.presets import PRESETS
from tests.commands.model.test_command import models

__all__ = ["models"]

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HELP = ROOT / "attncli" / "help"
PAGES = "\n".join([README, *(page.read_text(encoding="utf-8") for page in HELP.glob("*.md"))])
SHORT_HELP = [page.read_text(encoding="utf-8") for page in HELP.parent.rglob("help.txt")]
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
SPAN = re.compile(r"`((?:[a-z]+ [^`]*\| )?attncli [^`]*-[^`]+)`")
CHANGES_THE_SHELL = "attncli --install-completion"

# Every `$ command` with the output shown under it, and every command within a line.
SESSIONS = [
    (command, output.rstrip("\n"))
    for block in CONSOLE.findall(README)
    for command, _, output in (s.partition("\n") for s in re.split(r"^\$ ", block, flags=re.M)[1:])
]
SPANS = {*SPAN.findall(PAGES)} - {CHANGES_THE_SHELL}
SPANS |= {line for page in SHORT_HELP for line in re.findall(r"^  (attncli .*)", page, flags=re.M)}
SPANS = {span for span in SPANS if not re.search("COMMAND|TOPIC", span)}
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
        elif part.startswith("grep"):
            pattern = re.compile(shlex.split(part)[1])
            text = "".join(row for row in text.splitlines(keepends=True) if pattern.search(row))
        elif part != "cat":
            stream = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
            monkeypatch.setattr(sys, "stdin", stream)
            program, *arguments = shlex.split(part)
            assert program == "attncli"
            code, text = run(arguments), capfd.readouterr().out
    return code, text


LINES = [*SESSIONS, *((span, "") for span in sorted(SPANS - {line for line, _ in SESSIONS}))]
OF_MODELS = [line for line, _ in LINES if line.startswith("attncli model")]


@pytest.mark.parametrize("line", OF_MODELS)
def test_every_example_of_a_model_runs(
    line: str, models: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in models.iterdir():
        Path(model.name).symlink_to(model)
    test_every_example_runs_and_gives_what_is_shown(line, "", capfd, monkeypatch)


@pytest.mark.parametrize(("line", "output"), [x for x in LINES if x[0] not in OF_MODELS])
def test_every_example_runs_and_gives_what_is_shown(
    line: str, output: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, printed = run_line(line, capfd, monkeypatch)
    compares = line.startswith(("attncli check", "attncli diff")) or "--against" in line
    compares = compares or "--check" in line
    assert code == 0 or (code == 1 and compares)  # 1: it differs
    assert printed or re.search(r"--output| -o |--open|--quiet", line)
    assert "nothing to show" not in printed
    if output:
        assert [row.rstrip() for row in printed.rstrip("\n").split("\n")] == output.split("\n")
    for path, drawing in FIGURE:  # of which one is the README's own
        if line == drawing:  # places depend on Matplotlib's version, texts and colours do not
            files = (Path("attention.svg"), ROOT / path)
            one, other = (re.findall(r"<text[^>]*>([^<]*)<|fill: (#\w+)", x.read_text("utf-8")) for x in files)  # fmt: skip
            assert one == other


def cells_of(line: str) -> list[str]:
    """The cells of a row of a table."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_an_example(name: str) -> None:
    lines = [*SPANS, *(line for line, _ in SESSIONS)]
    shown = {word for line in lines for word in re.findall(r"(?<= )--?[a-z-]+", line)}
    for param in LazyGroup().get_command(None, name).params:
        options = {*param.opts, *param.secondary_opts} - {"--help", "-h"}
        assert param.param_type_name != "option" or not options or options & shown, param.name


def test_the_python_examples_run_as_they_stand(capsys: pytest.CaptureFixture[str]) -> None:
    for example in re.findall(r"```python\n(import attncli\n.*?)```", PAGES, flags=re.DOTALL):
        exec(example, {})  # noqa: S102 - it is ours
    assert "Scaled dot-product attention" in capsys.readouterr().out


def test_every_function_that_the_python_pages_name_runs_its_own_example() -> None:
    sections = [README.partition("## Python")[2].partition("\n## ")[0]]
    sections.append((HELP / "python.md").read_text(encoding="utf-8"))
    words = {word for text in sections for word in re.findall(r"[a-z_]+", text)}
    names = sorted(words & {*attncli.__all__})
    assert {"check", "diff", "explain", "posenc", "similarity"} <= {*names}
    for name in names:  # `plot` is a method there, `capture` needs PyTorch
        function = getattr(attncli, name)
        assert inspect.isfunction(function), name
        namespace = {one: getattr(attncli, one) for one in attncli.__all__}
        namespace |= {"np": np, "attncli": attncli}
        (example,) = doctest.DocTestFinder(recurse=False).find(function, name, globs=namespace)
        assert example.examples or name == "capture", name
        result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
        assert result.failed == 0, name


def test_completion_is_installed_for_the_shell(tmp_path: Path) -> None:
    # It asks which shell called it, so one has to stay there: the tests may run without any.
    call = f"{shlex.quote(sys.executable)} -m {CHANGES_THE_SHELL}; exit $?"
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", call], env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "attncli" in (tmp_path / ".bashrc").read_text()


SHORT = ("true", "numbers 0, −∞", "causal 3 × 5", "mask, causal", "no key", "no key by −∞")
"""The cases of the short tables of how libraries differ: in these they differ most often."""


def test_the_short_table_of_libraries_is_what_semantics_shows() -> None:
    tables = [cells_of(line) for line in PAGES.splitlines() if line.startswith("|")]
    for half in (SHORT[:3], SHORT[3:]):  # two tables: one is wider than 80 columns
        groups: dict[tuple[str, ...], list[str]] = {}
        for preset in PRESETS.values():
            cells = tuple(CASES[name].cell(preset) for name in half)
            groups.setdefault(cells, []).append(f"`{preset.name}`")
        rows = [["library", *half]] + [[", ".join(x), *cells] for cells, x in groups.items()]
        at = tables.index(rows[0])
        assert [tables[at], *tables[at + 2 : at + 1 + len(rows)]] == rows
