"""Who may import whom, and what is public."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import attncli

PACKAGE = Path(attncli.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# Each may import from those above it; packages of one level do not import each other.
LEVELS = """
_version arrays errors numerals
presets expression
parser
formulas evaluate
budget convention stages
trace
attention
files
words semantics
commands examples pipeline programs
testing pytest_plugin compare models
views
cli
__init__ __main__
"""
ONLY_IN = {"rich": {"views", "cli"}, "typer": {"cli"}, "pydantic": {"examples", "files"},
           "matplotlib": {"views", "trace"}, "torch": {"models"}, "transformers": {"models"}}  # fmt: skip
LEVEL = {part: n for n, line in enumerate(LEVELS.split("\n")) for part in line.split()}


def imports(tree: ast.AST) -> Iterator[str]:
    """The modules a file imports, wherever in it the import is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module}.{alias.name}" for alias in node.names)


def test_imports_run_one_way_and_libraries_have_their_place() -> None:
    culprits = []
    for path in MODULES:
        here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        culprits += [] if ast.get_docstring(tree) else [f"{path.name}: no docstring"]
        for name in imports(tree):
            library, _, rest = name.partition(".")
            there = rest.partition(".")[0]
            is_wrong = not library or here not in ONLY_IN.get(library, {here})
            if library == "attncli" and there in LEVEL and there != here:
                is_wrong |= LEVEL[there] >= LEVEL[here]
            culprits += [f"{path.name}: {name}"] * is_wrong
    assert culprits == []


PUBLIC = """
AttncliError Convention ConventionError InputError MissingExtraError OutputError Projections
ShapeError SizeError Stage StageError Trace __version__ attend attend_by attend_heads
attend_split attend_tiles capture check diff explain heads_first merge_heads multi_head_attention
plot posenc program_of render similarity split_heads stream stream_gradients
"""


def test_the_public_api_is_this_and_documented() -> None:
    assert attncli.__all__ == PUBLIC.split()
    things = {name: getattr(attncli, name) for name in PUBLIC.split()}
    assert [name for name, thing in things.items() if not thing.__doc__] == []
    assert not hasattr(attncli, "attned")
    assert (PACKAGE / "py.typed").exists()


def test_it_can_be_installed_beside_whatever_asks_for_a_newer_typer() -> None:
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    assert [x[-2:] for x in project["dependencies"] if x.startswith("typer")] == ["<1"]
    versions = {f"Programming Language :: Python :: 3.{n}" for n in (11, 12, 13)}
    assert versions <= {*project["classifiers"]}
