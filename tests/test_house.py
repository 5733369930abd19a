"""Who may import whom, what is public, and what is at the top of the package."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

import attncli

PACKAGE = Path(attncli.__file__).parent

# Each may import from those before it; packages of one level do not import each other.
LEVELS = [
    {"_version", "arrays", "errors", "numerals"},
    {"presets"},
    {"budget", "convention", "stages"},
    {"trace"},
    {"attention", "files"},
    {"words", "semantics"},
    {"examples", "check", "pipeline"},
    {"testing", "pytest_plugin", "compare", "models"},
    {"views"},
    {"cli"},
    {"__init__", "__main__"},
]
ONLY_IN = {
    "rich": {"views", "cli"},
    "typer": {"cli"},
    "pydantic": {"examples", "files"},
    "torch": {"models"},
    "transformers": {"models"},
}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def level(part: str) -> int:
    return next(number for number, parts in enumerate(LEVELS) if part in parts)


def imports(path: Path) -> set[str]:
    """The modules a file imports, wherever in it the import is."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path: Path) -> None:
    here = part_of(path)
    for name in imports(path):
        if not name.startswith("attncli."):
            continue
        there = name.split(".")[1]
        if there == here or not any(there in parts for parts in LEVELS):
            continue
        assert level(there) < level(here), f"{here} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_some_packages_import_a_library(path: Path) -> None:
    for library, packages in ONLY_IN.items():
        used = any(name == library or name.startswith(f"{library}.") for name in imports(path))
        assert not used or part_of(path) in packages, f"{path} imports {library}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_has_a_docstring(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_the_public_api_is_this() -> None:
    assert attncli.__all__ == [
        "AttncliError",
        "Convention",
        "ConventionError",
        "InputError",
        "MissingExtraError",
        "OutputError",
        "Projections",
        "ShapeError",
        "SizeError",
        "Stage",
        "StageError",
        "Trace",
        "__version__",
        "attend",
        "attend_heads",
        "attend_split",
        "attend_tiles",
        "capture",
        "diff",
        "explain",
        "heads_first",
        "merge_heads",
        "multi_head_attention",
        "posenc",
        "render",
        "similarity",
        "split_heads",
        "stream",
        "stream_gradients",
    ]


@pytest.mark.parametrize("name", attncli.__all__)
def test_everything_public_exists_and_is_documented(name: str) -> None:
    thing = getattr(attncli, name)
    assert name == "__version__" or (thing.__doc__ or "").strip()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'attned'"):
        attncli.attned  # noqa: B018


def test_the_type_marker_is_there() -> None:
    assert (PACKAGE / "py.typed").exists()


def test_the_metadata_says_who_made_it_where_it_is_and_what_it_runs_on() -> None:
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["authors"]
    assert project["urls"]
    classifiers = project["classifiers"]
    assert {f"Programming Language :: Python :: 3.{n}" for n in (11, 12, 13)} <= {*classifiers}
    typer = next(x for x in project["dependencies"] if x.startswith("typer"))
    assert typer.endswith("<1")  # so that it can be installed beside whatever asks for a newer one
