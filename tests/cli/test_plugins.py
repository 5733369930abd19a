"""Commands and formats of other packages: the example of the manual, installed; broken ones."""

import re
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.calls import ROOT, forked

if sys.platform == "win32":
    pytest.skip("a process is forked for each call", allow_module_level=True)

PAGE = (ROOT / "attncli" / "help" / "python.md").read_text(encoding="utf-8")
BROKEN = """
[attncli.commands]
broken = attncli_broken:COMMAND
none = attncli_none:COMMAND
other = attncli_onehot:FORMAT
idle = attncli_idle:COMMAND
script = attncli_script:COMMAND
compute = attncli_broken:COMMAND
help = attncli_broken:COMMAND

[attncli.formats]
torn = attncli_broken:FORMAT
json = attncli_broken:FORMAT
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages: the example as a wheel of it installs it, and one that is broken."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    (project,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (module,) = re.findall(r"```python\n(from attncli.*?)```", PAGE, re.DOTALL)
    (source / "pyproject.toml").write_text(project, encoding="utf-8")
    (source / "attncli_onehot.py").write_text(module, encoding="utf-8")
    (wheel,) = WheelBuilder(str(source)).build(directory=str(source), versions=["standard"])
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "attncli_broken.py").write_text("raise RuntimeError('torn\\nin two')\n")
    idle = "from attncli.cli.groups import Command\nCOMMAND = Command((), 'Nothing.')\n"
    (site / "attncli_idle.py").write_text(idle)
    (site / "attncli_script.py").write_text("raise SystemExit(9)\n")
    folder = site / "attncli_broken-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: attncli-broken\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(BROKEN)
    return site


def test_the_example_of_the_manual_adds_a_command_and_a_format(site: Path, tmp_path: Path) -> None:
    q = ["--q", "[[1, 0]]", "--quiet"]
    show = ["--stage", "weights", "--format"]
    calls = [
        ["onehot", "--size", "2", *show, "json"], ["onehot", "--size", "2", *show, "lists"],
        ["compute", *q, *show, "lists"], ["compute", *q, "--output", "trace.lst"],
        ["onehot", "--size", "0"], ["onehot", "--sise", "2"], ["compute", *q, "--work", *show, "lists"],
        ["onehot", "--help"], ["help", "onehot"], ["onehto"], ["compute", *q, *show, "lsts"],
        ["compute", *q, "--output", "trace.xyz"], ["compute", "--help", "showing"],
    ]  # fmt: skip
    results = forked(calls, tmp_path, site, ROOT)
    assert [result.code for result in results] == [0, 0, 0, 0, 2, 2, 2, 0, 0, 2, 2, 2, 0]
    near, far = sorted(results[0].json["steps"][-1]["value"][0], reverse=True)
    assert near / far == pytest.approx(2.718281828459045 ** (1 / 2**0.5))
    assert results[1].out == f"weights = {[[near, far], [far, near]]}\n"
    assert results[2].out == "weights = [[1.0]]\n"
    assert (tmp_path / "trace.lst").read_text().endswith("output = [[1.0, 0.0]]\n")
    assert "--size: it must be 1 or more" in results[4].err
    assert "did you mean --size?" in results[5].err
    assert "--work has no effect on lists" in results[6].err
    for text in ("Attention among one-hot tokens.", "--size", "--heatmap"):
        assert text in results[7].out
    assert "Attention among one-hot tokens." in results[8].out
    assert "did you mean onehot?" in results[9].err
    assert "did you mean lists?" in results[10].err
    assert "|pdf|lists|torn" in results[11].err
    assert "pdf, lists, torn" in results[12].out


def test_a_broken_package_is_a_line_and_replaces_nothing(site: Path, tmp_path: Path) -> None:
    q = ["compute", "--q", "[[1, 0]]", "--quiet"]
    torn = "cannot be imported: RuntimeError: torn in two"
    calls = [
        ["broken"], ["broken", "--help"], ["none", "--causal"], ["other"], [*q, "--format", "torn"],
        ["idle"], ["script"], ["--help"], ["help"], [*q, "--format", "json"], ["compute", "--nonsense"],
        ["help", "help"], [*q, "--output", "a.xyz"],
    ]  # fmt: skip
    results = forked(calls, tmp_path, site, ROOT)
    assert [result.code for result in results] == [2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 2, 0, 2]
    for result in results[:7]:
        assert (result.out, result.err.count("\n")) == ("", 1)
        assert result.err.startswith("attncli: the plug-in ")
    assert f"broken (attncli_broken:COMMAND of attncli-broken) {torn}" in results[0].err
    assert "ModuleNotFoundError: No module named 'attncli_none'" in results[2].err
    assert "is no Command but Format" in results[3].err
    assert torn in results[4].err
    assert "idle (attncli_idle:COMMAND of attncli-broken) has no function to run" in results[5].err
    assert "cannot be imported: SystemExit: 9" in results[6].err
    for result in results[7:9]:
        assert torn in " ".join(result.out.split())
        assert "Attention among one-hot tokens." in result.out
    assert results[9].json["steps"][-1]["value"] == [[1, 0]]
    assert "No such option: --nonsense" in results[10].err
    assert results[11].out == results[8].out


def test_a_call_of_ours_reads_no_entry_points(site: Path, tmp_path: Path) -> None:
    reading = "import sys; from attncli.cli.main import run; run({!r}); print('importlib.metadata' in sys.modules)"
    calls = [
        ["compute", "--q", "[[1, 0]]"],
        ["compute", "--help"],
        ["explain", "a b", "-o", "a.md"],
        ["--help"],
    ]
    results = forked([["-c", reading.format(call)] for call in calls], tmp_path, site, ROOT)
    assert [result.out.splitlines()[-1] for result in results] == [*["False"] * 3, "True"]
