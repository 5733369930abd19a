"""Other programs that read what attncli writes, as consumers.py and latex.py call them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


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


def of_npm(packages: Sequence[str], script: str, given: Any, folder: Path) -> Any:
    """What a script beside this file makes of a value, with packages of npm."""
    run(["npm", "init", "-y"], folder)
    run(["npm", "install", "--no-audit", "--no-fund", *packages], folder)
    shutil.copy(Path(__file__).with_name(script), folder)
    return json.loads(run(["node", script], folder, json.dumps(given)))


def installed(program: str, *packages: str) -> None:
    """Root gets what is missing from Debian; for others it is the end."""
    if not shutil.which(program):
        if os.geteuid():
            sys.exit(f"{program} is missing: apt-get install {' '.join(packages)}")
        run(["apt-get", "update", "-qq"], Path())
        run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], Path())
