"""A room can be taken out: without the folder of a command and its line, all others work as before.

So do --help, wrong calls and the manual, and a trace that the command saved is read.
"""

import re
import shutil
import sys
from pathlib import Path

import pytest

from attncli.cli.groups import check_flags, flag, group
from attncli.cli.registry import COMMANDS
from attncli.errors import ConventionError
from tests.calls import ROOT, SAMPLES, Result, forked
from tests.turns import in_turn

if sys.platform == "win32":
    pytest.skip("a process is forked for each call", allow_module_level=True)

THREE, OBSERVED, DUMP = (
    str(SAMPLES / name) for name in ("three-tokens.json", "observed.json", "dump.json")
)
CALLS = {
    "compute": ["--q", THREE, "--causal", "--d-output", "ones", "--work"],
    "explain": ["The river bank", "--block", "encoder", "--heads", "2"],
    "model": ["nowhere", "The river bank"],
    "posenc": ["--len", "5", "--dim", "4"],
    "similarity": ["a=1,0", "b=0,1", "c=1,1", "--pca"],
    "examples": [],
    "check": ["--q", THREE, "--observed", OBSERVED],
    "semantics": ["torch-mha"],
    "diff": [THREE, DUMP],
    "formulas": ["--causal"],
}
SAVED = {  # a trace of each room that makes one, or that has a part in it
    "compute": ["compute", "--q", THREE, "--tiles", "2"],
    "explain": ["explain", "The river bank", "--block", "decoder", "--target", "la rive"],
    "posenc": ["posenc", "--kind", "rope", "--len", "5", "--dim", "4"],
    "similarity": ["similarity", *CALLS["similarity"]],
    "diff": ["diff", *CALLS["diff"]],
    "formulas": ["compute", "--random", "--formulas", "linear"],
}
SHARED = "import numpy, pydantic, importlib.metadata, rich.table, attncli.page.page, attncli.attention.inputs"
ROOMS = """
import sys
from attncli.cli.main import run

run({!r})
print(*sorted(x.split(".")[2] for x in sys.modules if x.startswith("attncli.commands.") and x.count(".") == 2))
"""
READ = "from attncli.files.load import read_source; import attncli; print(attncli.render(read_source({!r}).trace))"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package, whose modules are compiled once for all rooms."""
    folder = tmp_path_factory.mktemp("house")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "attncli", folder / "attncli", ignore=ignored)
    return folder


def called(house: Path, calls: list[list[str]]) -> list[Result]:
    pyc = {"PYTHONPYCACHEPREFIX": str(house / "pyc"), "PYTHONDONTWRITEBYTECODE": ""}
    return forked(calls, house, house, first=SHARED, **pyc)


@pytest.fixture(scope="module")
def whole(house: Path) -> dict[str, Result]:
    """What each call gives in the whole house, and what a saved trace looks like when it is read."""
    saving = [
        [*call, "-o", f"{name}.{ending}", "--quiet"]
        for name, call in SAVED.items()
        for ending in ("json", "npz")
    ]
    assert {(x.code, x.err) for x in called(house, saving)} <= {(0, ""), (1, "")}
    results = called(house, [[name, *CALLS[name]] for name in COMMANDS] + readings(*SAVED))
    assert [x.code for x in results[: len(COMMANDS)]] == [0, 0, 2, 0, 0, 0, 1, 0, 1, 0]
    assert {(x.err, bool(x.out)) for x in results[len(COMMANDS) :]} == {("", True)}
    read = (f"{name}.{ending}" for name in SAVED for ending in ("json", "npz"))
    return dict(zip((*COMMANDS, *read), results, strict=True))


def readings(*names: str) -> list[list[str]]:
    """Calls that read the traces that these rooms saved."""
    files = (f"{name}.{ending}" for name in names for ending in ("json", "npz"))
    return [["-c", READ.format(file)] for file in files]


@pytest.mark.parametrize(("room", "half"), in_turn(COMMANDS, [0, 1]))
def test_a_room_can_be_taken_out(
    room: str, half: int, house: Path, whole: dict[str, Result]
) -> None:
    """Half of the other commands are called, in turn."""
    rest = [name for name in COMMANDS if name != room]
    others = rest[half::2]
    registry, folder = house / "attncli/cli/registry.py", house / "attncli/commands" / room
    text = registry.read_text("utf-8")
    folder.rename(house / "taken-out")
    registry.write_text(re.sub(rf'(?m)^\s+"{room}":.*\n', "", text), "utf-8")
    try:
        calls = [[name, *CALLS[name]] for name in others]
        calls += [["--help"], ["help", "options"], ["help", *rest]]
        calls += [[room, *CALLS[room]], ["nonsense"], [others[0], "--nonsense"]]
        results = called(house, calls + readings(*({room} & {*SAVED})))
    finally:
        registry.write_text(text, "utf-8")
        (house / "taken-out").rename(folder)
    for name, result in zip(others, results, strict=False):
        assert result == whole[name], name
    helps, wrong, read = (results[len(others) :][at] for at in (slice(3), slice(3, 6), slice(6, 8)))
    assert [(x.code, x.err, bool(x.out)) for x in helps] == [(0, "", True)] * 3
    assert re.findall(r"(?m)^│ ([a-z]+) ", helps[0].out) == [*rest, "help"]
    assert f"attncli {room} " not in helps[0].out
    assert [(x.code, x.err.count("\n")) for x in wrong] == [(2, 1)] * 3
    for ending, result in zip(("json", "npz"), read, strict=False):
        assert result == whole[f"{room}.{ending}"]


def test_a_room_is_entered_where_it_is_called_and_no_other(house: Path) -> None:
    calls = [
        ["--help"],
        ["nonsense"],
        ["compute", "--help"],
        ["help", "check"],
        ["posenc", *CALLS["posenc"]],
    ]
    results = called(house, [["-c", ROOMS.format(call)] for call in calls])
    assert [result.out.splitlines()[-1] for result in results] == ["", "", "", "", "posenc"]


def test_a_flag_that_names_one_of_a_room_that_is_not_there_is_no_error() -> None:
    @group("Here")
    class Flags:
        here: int | None = flag("…", needs="--there", excludes="--elsewhere")
        near: int | None = flag("…", needs="--there or --here")

    check_flags([Flags(here=1, near=2)])
    with pytest.raises(ConventionError, match="--near has no effect without --there or --here"):
        check_flags([Flags(near=2)])
