"""Other programs that read what attncli writes, as consumers.py and latex.py call them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def run(call: Sequence[str], folder: Path, stdin: str = "") -> str:
    """The output of a program, or the end of all with what it says."""
    try:
        done = subprocess.run(
            call, cwd=folder, input=stdin, capture_output=True, text=True, check=False, timeout=280
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        sys.exit(f"{call[0]} cannot be had: {problem}")
    if done.returncode:
        sys.exit(f"{' '.join(call)}\n{done.stdout}{done.stderr}")
    return done.stdout
