"""Twelve screens as people see them, whole. No other test asserts a whole sentence.

ATTNCLI_UPDATE_GOLDEN=1 writes the files anew; look at them before you keep them.
"""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from attncli.cli.main import run

HERE = Path(__file__).parent
SAMPLES = HERE.parents[1] / "samples"
THREE, HEADS = "three-tokens.json", "heads.json"
HARD = json.dumps(  # wide, of several code points, right to left, hostile, combining, too long
    ["incomprehensibilities", "日本語", "👍🏽 [red]", "שלום", "\x1b[31m\n", " the", "e\u0301t\u0301", "=1|*b*"]
)  # fmt: skip
MATRIX = json.dumps([[(i * j) % 5 - 1.5 for j in range(3)] for i in range(8)])
SCREENS: dict[str, tuple[int, list[str]]] = {  # the exit code, and the call
    "compute.txt": (0, ["compute", THREE, "--causal", "--work"]),
    "labels.txt": (0, ["compute", "--q", MATRIX, "--tokens", HARD, "--quiet"]),
    "gradients.md": (0, ["compute", HEADS, "--head", "2", "--softcap", "3", "--sinks", "[0.5,1,0,-1]", "--d-output", "random", "--seed", "1", "--work", "--format", "markdown"]),
    "explain.txt": (0, ["explain", "The old bank", "--target", "La banque", "--block", "decoder", "--dim", "4", "--pad-to", "4"]),
    "posenc.txt": (0, ["posenc", "--len", "5", "--dim", "6", "--work"]),
    "similarity.txt": (0, ["similarity", "mom=0.2,0.7,0.9", "dad=0.9,0.7,0.9", "größer=-1.5,0.1,2", "--pca"]),
    "examples.txt": (0, ["examples", "004-first-example"]),
    "check.txt": (1, ["check", THREE, "--observed", "observed.json::output"]),
    "diff.txt": (1, ["diff", THREE, "dump.json"]),
    "semantics.txt": (0, ["semantics", "torch-mha", "torch-sdpa"]),
    "dropout.tex": (0, ["compute", THREE, "--dropout", "0.5", "--seed", "1", "--window", "0,1", "--work", "--format", "latex"]),
    "causal.svg": (0, ["compute", THREE, "--causal", "--format", "svg"]),
}  # fmt: skip


def screen(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> tuple[int, str, str]:
    """The exit code, the output and the errors of a call, in the folder of the samples."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in "oe")
    with monkeypatch.context() as patch:
        patch.chdir(SAMPLES)
        for name in ("LINES", "FORCE_COLOR", "NO_COLOR"):
            patch.delenv(name, raising=False)
        patch.setenv("COLUMNS", "80")
        for name, stream in (("stdin", io.StringIO()), ("stdout", out), ("stderr", err)):
            patch.setattr(sys, name, stream)
        code = run(arguments)
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return code, texts[0], texts[1]


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    code, arguments = SCREENS[name]
    if name.endswith("txt") and "check" not in arguments:  # which is not laid out
        arguments = [*arguments, "--width", "80"]
    result = screen(monkeypatch, arguments)
    if os.environ.get("ATTNCLI_UPDATE_GOLDEN"):
        (HERE / name).write_text(result[1], encoding="utf-8")
    assert result == (code, (HERE / name).read_text(encoding="utf-8"), "")
    if "--width" in arguments:
        lines = result[1].splitlines()
        assert max(map(cell_len, lines)) <= 80
        assert "semantics" in arguments or not any(line.endswith(" ") for line in lines)


def test_every_file_is_a_screen() -> None:
    assert {path.name for path in HERE.iterdir() if path.suffix not in (".py", "")} == {*SCREENS}
