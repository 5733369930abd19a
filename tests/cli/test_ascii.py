"""Encodings that lack our signs: plain ASCII stands for them, and files stay UTF-8."""

from __future__ import annotations

import ast
import codecs
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import attncli
from attncli.cli.ascii import near
from attncli.cli.commands import COMMANDS

from .conftest import SAMPLES, Call

CALLS = [
    "compute three-tokens.json --causal --work",
    "compute three-tokens.json --cell 2,1 --softcap 2",
    "compute three-tokens.json --d-output random --work --softcap 2",
    "compute three-tokens.json --d-output random --cell 2,1",
    "compute three-tokens.json --heatmap --dropout 0.3",
    "compute three-tokens.json --format markdown",
    "explain 'The bank' --outline",
    "explain 'The river bank' --block decoder --target la --work --dropout .1",
    "explain 'The bank' --format mermaid",
    "posenc --len 3 --dim 12 --work",
    "posenc --len 200 --dim 4",
    "posenc --kind rope --apply heads.json --work",
    "posenc --kind alibi --len 3 --heads 2 --work",
    "similarity a=1,2 b=2,1 --work",
    "similarity a=1,2 b=2,1 c=0,1 --pca --work",
    "similarity a=1,2 b=2,1 c=0,1 --analogy a b c",
    "examples",
    "examples --verify",
    "examples 004-first-example",
    "check dump.json --decimals 4",
    "check three-tokens.json --observed '[[5,5.1]]' --rows 1",
    "compute '[[1 …]]'",
    "--help",
    *(f"{name} --help" for name in COMMANDS),
]
# What may stand in our strings without an ASCII form: signs that are only looked for.
ONLY_READ = {"words/tokens.py", "models/tokens.py", "files/table.py", "views/formats/tex.py"}
MARKS = {"\ue000", "\ue001", "\ue002"}  # within equations, and in nothing that is written


def run(line: str, **environment: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "attncli", *shlex.split(line)],
        cwd=SAMPLES,
        env={**os.environ, "COLUMNS": "80", **environment},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("line", CALLS)
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_no_output_holds_an_escape(call: Call, line: str, encoding: str) -> None:
    codecs.register_error("attncli", near)
    result = call(*(str(SAMPLES / part) if ".json" in part else part for part in shlex.split(line)))
    text = (result.out + result.err).encode(encoding, "attncli").decode(encoding)
    assert len(text) > 40
    assert not re.search(r"\\[xuU][0-9a-f]{2}", text)


@pytest.mark.parametrize("line", ["--help", "explain --help", "compute three-tokens.json --work"])
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_none_is_on_a_stream_of_that_encoding(line: str, encoding: str) -> None:
    text = run(line, PYTHONIOENCODING=encoding).decode(encoding)
    assert not re.search(r"\\[xuU][0-9a-f]{2}", text)


def test_the_c_locale_is_utf_8_or_plain() -> None:
    out = run("compute three-tokens.json --stage scaled", LC_ALL="C", PYTHONUTF8="0",
              PYTHONCOERCECLOCALE="0")  # fmt: skip
    assert b"Z = S / sqrt d_k = S / 1.4142" in out


def test_signs_that_a_learner_sees() -> None:
    scores = run("compute three-tokens.json --stage scores", PYTHONIOENCODING="cp1252")
    assert b"S = Q K^T" in scores
    outline = run("explain 'The bank' --outline", PYTHONIOENCODING="ascii")
    assert b"|-- tokens" in outline
    assert b"`-- contextual" in outline
    angle = run("similarity a=1,2 b=2,1 --stage angles", PYTHONIOENCODING="ascii")
    assert b"arccos(0.8) = 36.8699 deg" in angle


def test_a_file_is_utf_8_whatever_the_terminal(tmp_path: Path) -> None:
    target = tmp_path / "out.md"
    run(f"compute three-tokens.json --output {target}", PYTHONIOENCODING="ascii")
    assert "S = Q Kᵀ" in target.read_text(encoding="utf-8")


def test_every_sign_of_ours_has_a_form_in_ascii() -> None:
    folder = Path(attncli.__file__).parent
    lacking = set()
    for path in folder.rglob("*.py"):
        if str(path.relative_to(folder)) in ONLY_READ:
            continue
        nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        documented = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if not isinstance(node, ast.Constant) or id(node) in documented:
                continue
            text = node.value
            for sign in set(text) if isinstance(text, str) else ():
                if not sign.isascii() and not sign.isalpha():
                    error = UnicodeEncodeError("ascii", sign, 0, 1, "")
                    lacking |= {sign} if near(error)[0].startswith("\\") else set()
    assert lacking - MARKS - {"⋱"} == set()  # a backslash is its form
