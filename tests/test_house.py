"""The rooms of the package: who may import whom, what is public, and what names are made of."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import attncli

PACKAGE = Path(attncli.__file__).parent
PATHS = sorted(PACKAGE.rglob("*.py"))
TREES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): (
        ast.parse(path.read_text("utf-8"))
    )
    for path in PATHS
}
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("commands/*/command.py"))

# A folder imports from itself and from those above it in this list; the modules beside them come first.
FLOORS = [
    "formula",
    "attention",
    "transformer",
    "programs",
    "files",
    "words",
    "tolerance",
    "page",
    "formats",
    "cli",
    "commands",
]
TOP = ("__init__", "__main__", "pytest_plugin", "testing")  # these may import everything
NUMERALS = "attncli.formula.numerals"  # how numbers are written: the modules at the top need it too

BY_PUBLIC_NAME = ("attncli.trace", "attncli.attention.attend")
"""Methods of a Trace, and `attend(formulas=…)`, call public functions as a user would."""

BETWEEN_ROOMS: dict[str, set[str]] = {
    "model": {"check"},  # the verdict on what a model computed
    "diff": {"formulas"},  # check --formulas takes what --formulas takes
}

LIBRARIES = {
    "rich": {"cli", "formats", "page", "commands"},
    "typer": {"cli", "commands"},
    "pydantic": {"files", "commands.examples"},
    "matplotlib": {"formats", "trace"},
    "torch": {"commands.model"},
    "transformers": {"commands.model"},
    "threadpoolctl": {"attention"},
}

NO_NOUNS = [
    "own",
    "what",
    "how",
    "given",
    "found",
    "known",
    "left",
    "one",
    "where",
    "of",
    "shown",
    "asked",
    "wanted",
    "named",
    "kept",
    "said",
    "seen",
    "made",
    "chosen",
    "held",
    "taken",
    "meant",
]
MOST_NO_NOUNS = 40
"""Of these there may be so many, in all: some of them are right where they stand."""


def imports_of(module: str) -> Iterator[tuple[str, str]]:
    """The modules that a module imports wherever it does, and the names that it takes from them."""
    tree = TREES[module]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{module}: a relative import"
            assert node.level == 0, f"{module}: a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield (inner, "") if inner in TREES else (node.module, alias.name)


def for_types(tree: ast.AST) -> set[ast.AST]:
    """The nodes that only a type checker reads."""
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.If))
    blocks = (node for node in blocks if ast.unparse(node.test) == "TYPE_CHECKING")
    return {inner for block in blocks for inner in ast.walk(block)}


def edges() -> dict[str, set[str]]:
    """Module → the modules of the package that it imports when it runs."""
    result: dict[str, set[str]] = {}
    for module, tree in TREES.items():
        skipped, result[module] = for_types(tree), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node not in skipped:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    result[module].add(inner if inner in TREES else node.module)
        result[module] &= TREES.keys() - {module}
    return result


def floor_of(module: str) -> int:
    """How high the room of a module is."""
    parts = module.split(".")[1:]
    if not parts or parts[0] in TOP:
        return len(FLOORS) + 1
    is_beside = len(parts) == 1 and (PACKAGE / f"{parts[0]}.py").exists()
    return 0 if is_beside else FLOORS.index(parts[0]) + 1


def test_imports_go_down() -> None:
    wrong = [
        f"{module} imports {there}"
        for module in TREES
        for there, _ in imports_of(module)
        if there in TREES and there != NUMERALS and floor_of(there) > floor_of(module)
        if not (there == "attncli" and module in BY_PUBLIC_NAME)
    ]
    assert wrong == []


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, by Tarjan's algorithm."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for there in graph[module]:
            if there not in number:
                visit(there)
                lowest[module] = min(lowest[module], lowest[there])
            elif there in stack:
                lowest[module] = min(lowest[module], number[there])
        if lowest[module] == number[module]:
            at = stack.index(module)
            groups.append(stack[at:])
            del stack[at:]

    for module in graph:
        if module not in number:
            visit(module)
    return [sorted(group) for group in groups if len(group) > 1]


def test_no_modules_import_each_other() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c"]]
    assert circles(edges()) == []


def test_rooms_of_commands_take_from_each_other_only_what_is_listed() -> None:
    wrong = []
    for module in TREES:
        room = module.removeprefix("attncli.commands.").partition(".")[0]
        for there, name in imports_of(module):
            other = there.removeprefix("attncli.commands.").partition(".")[0]
            if not there.startswith("attncli.commands.") or other == room:
                continue
            is_listed = module.startswith("attncli.commands.") and other in BETWEEN_ROOMS.get(
                room, ()
            )
            is_top = module.split(".")[1:2] in ([], *([x] for x in TOP))
            if name.startswith("_") or not (is_listed or is_top):
                wrong.append(f"{module}: {there} {name}")
    assert wrong == []


def test_a_room_has_its_files() -> None:
    assert len(ROOMS) == 10
    for room in ROOMS:
        folder = PACKAGE / "commands" / room
        names = {path.name for path in folder.iterdir()}
        assert names >= {"__init__.py", "flags.py", "command.py", "help.txt"}, room
    for path in PACKAGE.glob("commands/**/__init__.py"):
        (node,) = ast.parse(path.read_text("utf-8")).body
        assert isinstance(node, ast.Expr), f"{path}: more than a docstring"


def test_flags_are_light() -> None:
    modules = [f"attncli.commands.{room}.flags" for room in ROOMS]
    lines = [f"import sys, {', '.join(modules)}", "print(*sys.modules)"]
    result = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    loaded = {*result.stdout.split()}
    assert "numpy" not in loaded
    engines = {x for x in loaded if x.startswith("attncli.commands.") and x.count(".") > 2}
    assert engines == {x for x in engines if x.rpartition(".")[2].endswith("flags")}


@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_have_their_place(library: str) -> None:
    wrong = []
    for module in TREES:
        place = module.removeprefix("attncli.")
        is_allowed = any(f"{place}.".startswith(f"{room}.") for room in LIBRARIES[library])
        for there, _ in imports_of(module):
            if there.partition(".")[0] == library and not is_allowed:
                wrong.append(f"{module}: {there}")
    assert wrong == []


def test_every_module_says_what_it_is() -> None:
    assert [module for module, tree in TREES.items() if not ast.get_docstring(tree)] == []


def test_names_are_nouns() -> None:
    names = Counter[str]()
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] += 1
            elif isinstance(node, ast.arg):
                names[node.arg] += 1
    counts = {name: names[name] for name in NO_NOUNS if names[name]}
    assert sum(counts.values()) <= MOST_NO_NOUNS, counts


def test_no_file_name_stands_three_times() -> None:
    of_rooms = {"__init__.py", "command.py", "page.py", "flags.py"}
    names = Counter(path.name for path in PATHS if path.name not in of_rooms)
    assert [name for name, count in names.items() if count > 2] == []


PUBLIC = """
AttncliError Convention ConventionError InputError Inputs MissingExtraError OutputError
Projections ShapeError SizeError Stage StageError Trace __version__ attend attend_by attend_heads
attend_split attend_tiles capture check diff explain heads_first load merge_heads multi_head_attention
plot posenc program_of render similarity split_heads stream stream_gradients
"""


def test_the_public_api_is_this_and_documented() -> None:
    assert attncli.__all__ == PUBLIC.split()
    things = {name: getattr(attncli, name) for name in PUBLIC.split()}
    assert [name for name, thing in things.items() if not thing.__doc__] == []
    assert not hasattr(attncli, "attned")
    assert (PACKAGE / "py.typed").exists()


def test_no_module_at_the_top_hides_a_public_name() -> None:
    """`attncli.check` is the function: a module of that name would take its place once imported."""
    modules = {module.split(".")[1] for module in TREES if "." in module}
    assert modules & {*attncli.__all__} == set()


def test_it_can_be_installed_beside_whatever_asks_for_a_newer_typer() -> None:
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    assert [x[-2:] for x in project["dependencies"] if x.startswith("typer")] == ["<1"]
    versions = {f"Programming Language :: Python :: 3.{n}" for n in (11, 12, 13)}
    assert versions <= {*project["classifiers"]}
