"""The README's table of models is the one that the tests are made of."""

from __future__ import annotations

from pathlib import Path

from tests.models.families import ROWS, table

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_readme_names_the_families_that_are_tested() -> None:
    _, _, after = README.partition("\n### Which models\n")
    rows = [line for line in after.partition("\n#")[0].splitlines() if line.startswith("| ")]
    assert rows == ["| family | what is captured | where it is seen |", *table()]


def test_no_family_is_there_twice() -> None:
    titles = [family.title for row in ROWS for family in row.families]
    assert len(titles) == len(set(titles))
