r"""Every kind of page as LaTeX, compiled and rendered. A step of .ci/run; by hand:

    .venv/bin/python tests/benchmarks/latex.py [FOLDER]

pdflatex  every page as a document, hostile labels among them: it compiles without an error, and no
          line is more than 10 points too wide
KaTeX     all that is between \[ and \] or $ and $: none of it is an error, in its strict mode

Needs npm, and pdflatex (which root gets from Debian); exit code 1 where a document or a formula is
wrong, or where one of the two cannot be had. The PDFs stay in FOLDER.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import attncli  # noqa: E402
from attncli.cli.main import run as cli  # noqa: E402
from attncli.formats import latex  # noqa: E402
from attncli.page.options import DisplayOptions  # noqa: E402
from attncli.trace import Stage, Trace  # noqa: E402
from tests.benchmarks.programs import installed, of_npm  # noqa: E402
from tests.formats.hostile import LABELS  # noqa: E402
from tests.page.traces import attention, causal, every_kind, numbers  # noqa: E402

PACKAGES = ("katex@0.19.1",)
TOO_WIDE = 10.0  # points: less is not seen
_EXPLAIN = 'explain "She visited the money bank, near the river bank"'
_DECODER = f"{_EXPLAIN} --target 'La banque près de la rive' --block decoder --heads 2"
_WORDS = "similarity mom=0.2,0.7,0.9 dad=0.9,0.7,0.9 größer=-1.5,0.1,2"
CALLS = (
    "compute --q samples/three-tokens.json --causal --work",
    "compute --q samples/three-tokens.json --softcap 3 --dropout 0.5 --seed 1 --work --full",
    "compute --x samples/homework.json --work",
    _EXPLAIN,
    f"{_EXPLAIN} --heads 2 --work",
    f"{_EXPLAIN} --heads 2 --outline",
    f"{_EXPLAIN} --cell money,near --dim 64",
    f"{_EXPLAIN} --block encoder --layers 2 --work --precision 6",
    f"{_EXPLAIN} --block encoder --full --dim 4",
    f"{_DECODER} --work --dropout 0.1",
    f"{_DECODER} --outline --full --layers 2",
    f"{_DECODER} --cell 1,2",
    f"{_DECODER} --stage decoder.1.feed_forward.norm --cell 1,2 --dim 32",
    "posenc --len 5 --dim 6 --work",
    "posenc --len 50 --dim 64 --dots",
    "posenc --len 5 --dim 6 --positions article --cell 2,3",
    "posenc --len 5 --dim 6 --kind rope --work",
    "posenc --len 5 --kind alibi --heads 3 --work",
    f"{_WORDS} --work",
    f"{_WORDS} --pca --work",
    f"{_WORDS} --analogy mom dad größer --work",
    "examples 004-first-example --work",
    "compute --q samples/three-tokens.json --causal --work --blank",
    "compute --q samples/three-tokens.json --cell q1,k2 --blank",
    f"{_EXPLAIN} --work --blank",
    f"{_EXPLAIN} --full --work --block encoder --dim 4 --blank weights",
)
_OVERFULL = re.compile(r"Overfull \\[hv]box \(([\d.]+)pt too (?:wide|high)\)[^\n]*")
_DISPLAY = re.compile(r"\\\[(.*?)\\\]", re.DOTALL)
_INLINE = re.compile(r"(?<!\\)\$(.*?)(?<!\\)\$", re.DOTALL)


def sheets() -> Iterator[tuple[str, Trace, DisplayOptions]]:
    """A page of every kind of trace, and those of hostile labels."""
    work = DisplayOptions(work=True, full=True)
    for name, made in every_kind().items():
        yield name, made(), work
    yield "all work", causal(), work
    large = attention(numbers(40, 3), numbers(40, 3), numbers(40, 2), causal=True)
    yield "large, elided", large, DisplayOptions()
    yield "large, a stage whole", large, replace(work, stages=("weights",))
    labels = {**LABELS, "hebrew": "שלום", "han": "日本語", "emoji": "👍🏽", "greek": "Ωμέγα"}
    for name, label in labels.items():
        yield f"label {name}", hostile(label), work
        yield f"label {name}, a cell", hostile(label), DisplayOptions(cell=("1", "1"))


def hostile(label: str) -> Trace:
    """An attention in which the label is everything that a stranger can write."""
    names = (label, "other")
    x = np.array([[1.0, -2.0], [0.5, 0.25]])
    trace = attncli.attend(x, x, x, query_labels=names, key_labels=names)
    words = Stage(label or "x", label, label, x, ("query", "key"), note=label)
    return Trace(label, (*trace.steps, words), trace.convention, notes=(label,))


def written(folder: Path) -> dict[str, Path]:
    """Every page as a document in the folder, by what it is."""
    found = {}
    for number, (name, trace, options) in enumerate(sheets()):
        path = folder / f"trace-{number:03}.tex"
        path.write_text("".join(latex.standalone(trace, options)), encoding="utf-8")
        found[name] = path
    for number, call in enumerate(CALLS):
        path = folder / f"call-{number:03}.tex"
        if cli([*shlex.split(call), "--output", str(path), "--force", "--quiet"]):
            sys.exit(f"attncli {call}: no document")
        found[f"attncli {call}"] = path
    return found


def wrong_documents(found: Mapping[str, Path], folder: Path) -> Iterator[str]:
    """What pdflatex says of them."""
    installed("pdflatex", "texlive-latex-base", "texlive-latex-recommended", "lmodern")
    for name, path in found.items():
        call = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape"]
        path.with_suffix(".pdf").unlink(missing_ok=True)
        subprocess.run([*call, path.name], cwd=folder, capture_output=True, check=False)
        log = path.with_suffix(".log").read_text(encoding="utf-8", errors="replace")
        if not path.with_suffix(".pdf").exists():
            said = log[log.index("\n!") :][:400] if "\n!" in log else log[-400:]
            yield f"pdflatex, {name} ({path.name}): {said}"
        for match in _OVERFULL.finditer(log):
            if float(match[1]) > TOO_WIDE:
                yield f"pdflatex, {name} ({path.name}): {match[0]}"


def main() -> int:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else made).absolute()
        folder.mkdir(exist_ok=True)
        os.chdir(ROOT)  # where the samples of the calls are
        found = written(folder)
        texts = [path.read_text(encoding="utf-8") for path in found.values()]
        inline = {formula for text in texts for formula in _INLINE.findall(_DISPLAY.sub("", text))}
        formulas = sorted(inline.union(*map(_DISPLAY.findall, texts)))
        said = of_npm(PACKAGES, "katex.mjs", formulas, folder)
        wrong = [*(f"KaTeX: {problem}" for problem in said), *wrong_documents(found, folder)]
    print(*wrong, sep="\n")
    print(f"{len(found)} documents, {len(formulas)} formulas: {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
