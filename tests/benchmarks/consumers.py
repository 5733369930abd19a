"""Hostile labels as Mermaid and LibreOffice read them. A step of .ci/run; by hand:

    .venv/bin/python tests/benchmarks/consumers.py

mermaid      every label as a token, a formula, a stage's name and a block's title: the chart is
             drawn, has the nodes and arrows it should, and each node's text is the label
LibreOffice  every label in csv and tsv, split at tabs, commas and semicolons alike, formulas being
             evaluated: no cell is a formula, and every label is a cell

Needs npm, and LibreOffice (which root gets from Debian); exit code 1 where a label acts or is lost,
or where one of the two cannot be had.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from attncli.files.table import guarded  # noqa: E402
from attncli.formats import mermaid  # noqa: E402
from attncli.formats.exact import csv_text  # noqa: E402
from attncli.page.options import DisplayOptions  # noqa: E402
from attncli.page.text import clean, sentence, shorten  # noqa: E402
from attncli.trace import Stage, Trace  # noqa: E402
from tests.benchmarks.programs import installed, of_npm, run  # noqa: E402
from tests.formats.hostile import LABELS  # noqa: E402

WHOLE = DisplayOptions(full=True)
PACKAGES = ("mermaid@11.17.2", "jsdom@29.1.1")
# Separators tab, comma and semicolon, text in ", UTF-8; the last two: formulas are evaluated.
SPLIT = "44/59/9,34,76,1,,0,false,true,false,false,false,-1,true"
NUMBERS = ("number", "date")  # which a spreadsheet shows as it likes
FORMULA = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}formula"
CELL = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}table-cell"
TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}p"


# ---- mermaid


def chart(label: str) -> Trace:
    """Two stages in a block: the label is the token, the formula, the title and the name."""
    ones = np.ones((1, 1))
    tokens = Stage("tokens", "", label, ones, ("token", "dimension"), {"token": (label,)})
    named = Stage(label or "x", "", "", ones, ("query", "key"), reads={"x": "tokens"})
    block = Trace(label, (named,), name="block")
    return Trace("A chart", (tokens, block))


def expected(label: str) -> dict[str, Any]:
    """What Mermaid should draw of it: lines of its nodes and boxes; outer blanks do not show."""
    words = ["tokens", shorten(label), sentence(label), "1 × 1"]
    return {
        "nodes": [_seen("\n".join(filter(None, words))), _seen(f"{clean(label or 'x')}\n1 × 1")],
        "boxes": [_seen(f"block: {sentence(label)}")],
        "arrows": 1,
        "acting": 0,
    }


def _seen(text: str) -> str:
    """As HTML shows it: each run of blanks is one."""
    return "\n".join(" ".join(line.split()) for line in text.strip().split("\n"))


def wrong_charts(folder: Path) -> list[str]:
    """What Mermaid draws otherwise."""
    charts = ["".join(mermaid.text(chart(label), WHOLE)) for label in LABELS.values()]
    drawn, wrong = of_npm(PACKAGES, "mermaid.mjs", charts, folder), []
    for (name, label), found in zip(LABELS.items(), drawn, strict=True):
        for kind in ("nodes", "boxes"):
            found[kind] = [_seen(text) for text in found.get(kind, ())]
        if found != expected(label):
            wrong.append(f"mermaid, {name}: {found}, not {expected(label)}")
    return wrong


# ---- LibreOffice


def cells_of(path: Path, text: str) -> tuple[list[str], int]:
    """The cells that LibreOffice makes of a file, and how many of them are formulas."""
    path.write_text(text, encoding="utf-8")
    profile = f"-env:UserInstallation=file://{path.parent}/profile"
    call = ["soffice", profile, "--headless", f"--infilter=Text - txt - csv (StarCalc):{SPLIT}"]
    run([*call, "--convert-to", "fods", str(path)], path.parent)
    tree = ElementTree.parse(path.with_suffix(".fods"))  # noqa: S314 - made here
    cells = list(tree.iter(CELL))
    texts = ["\n".join("".join(p.itertext()) for p in cell.iter(TEXT)) for cell in cells]
    return texts, sum(FORMULA in cell.attrib for cell in cells)


def wrong_cells(folder: Path) -> list[str]:
    """What LibreOffice takes for a formula, or does not have."""
    installed("soffice", "libreoffice-calc-nogui")
    _, formulas = cells_of(folder / "control.csv", "a,=1+1\n")
    if formulas != 1:
        sys.exit("LibreOffice evaluates no formula here, so it can find none")
    labels = tuple(LABELS.values())
    ones = np.ones((len(labels), len(labels)))
    stage = Stage("scaled", "Z", "", ones, ("query", "key"), {"query": labels, "key": labels})
    wrong = []
    for form, delimiter in (("csv", ","), ("tsv", "\t")):
        text = "".join(csv_text(Trace("Labels", (stage,)), WHOLE, delimiter=delimiter))
        cells, formulas = cells_of(folder / f"labels.{form}", text)
        if formulas:
            wrong.append(f"LibreOffice, {form}: {formulas} formulas")
        for name, label in LABELS.items() if form == "csv" else ():
            if not (";" in label or name in NUMBERS) and guarded(label).strip() not in cells:
                wrong.append(f"LibreOffice, {name}: no cell is {guarded(label)!r}")
    return wrong


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        wrong = [*wrong_charts(Path(folder)), *wrong_cells(Path(folder))]
    print(*wrong, sep="\n")
    print(f"{len(LABELS)} labels in Mermaid and LibreOffice: {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
