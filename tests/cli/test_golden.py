"""Eleven screens as people see them, whole. No other test asserts a whole sentence.

ATTNCLI_UPDATE_GOLDEN=1 writes the files anew; look at them before you keep them.
"""

from __future__ import annotations

import json
import os

import pytest
from rich.cells import cell_len

from tests.calls import ROOT, SAMPLES, Call

HERE = ROOT / "tests" / "golden"
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
}  # fmt: skip


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen(call: Call, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    code, arguments = SCREENS[name]
    is_wide = name.endswith("txt") and "check" not in arguments  # which is not laid out
    monkeypatch.chdir(SAMPLES)
    result = call(*arguments, *(["--width", "80"] if is_wide else []))
    if os.environ.get("ATTNCLI_UPDATE_GOLDEN"):
        (HERE / name).write_text(result.out, encoding="utf-8")
    expected = (HERE / name).read_text(encoding="utf-8")
    assert (result.code, result.out, result.err) == (code, expected, "")
    if is_wide:
        lines = result.out.splitlines()
        assert max(map(cell_len, lines)) <= 80
        assert not any(line.endswith(" ") for line in lines)


def test_every_file_is_a_screen() -> None:
    assert {path.name for path in HERE.iterdir() if path.is_file()} == {*SCREENS}
