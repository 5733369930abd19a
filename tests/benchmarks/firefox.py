"""The tests of pages in Firefox. A step of .ci/run; by hand, with the extra `browser`:

    .venv/bin/python tests/benchmarks/firefox.py

They are those of tests/browser: numbers, what if, drag, keyboard, walk, quiz, axe, print, no script,
labels of strangers, policy and requests. Playwright drives Chromium, tests/browser/firefox.py Debian's
Firefox. What takes long and asks nothing of a browser that others do not is left to Chromium.

Needs firefox-esr (which root gets from Debian); exit code 1 where anything is wrong.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks.programs import installed  # noqa: E402

LEFT_OUT = (
    "twelve_layers",
    "stack_of_layers",
    "many",
    "sinks",
    "factor",
    "unscaled",
    "added",
    "article",
)


def main() -> int:
    installed("firefox-esr", "firefox-esr")
    env = {**os.environ, "ATTNCLI_BROWSER": str(shutil.which("firefox-esr"))}
    only = " and ".join(f"not ({what})" for what in LEFT_OUT)
    call = [sys.executable, "-m", "pytest", "-q", "tests/browser", "-k", only]
    return subprocess.run(call, cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
