"""The tests of pages in Firefox. A step of .ci/run; by hand, with the extra `browser`:

    .venv/bin/python tests/benchmarks/firefox.py

They are those of tests/browser: numbers, what if, drag, keyboard, walk, quiz, axe, print, no script,
labels of strangers, policy and requests. Playwright drives Chromium, tests/browser/firefox.py Debian's
Firefox. Of each test at least one case runs here; cases that differ in what is computed, and ask nothing
of a browser that others do not, are left to Chromium.

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

LEFT_OUT = {  # test → its cases, by how their names begin
    "test_every_stage_is_computed_again_and_the_copied_command_gives_what_the_page_shows": (
        "unscaled", "factor", "columns", "mask value", "sinks", "no key", "cross", "pre",
    ),
    "test_pages_of_other_kinds_are_changed_and_copied": (
        "article", "dots", "analogy", "split", "added",
    ),
    "test_a_page_of_own_formulas_is_copied_with_them": (
        "variant with gradients", "variant with a line", "a file", "layers",
    ),
    "test_a_stack_of_layers_has_one_mask_and_one_scale": ("convention0", "convention2"),
    "test_a_mask_where_there_was_none": (
        "cap after the mask", "a number", "dropout", "sinks", "gradients",
    ),
    "test_a_field_says_beside_it_what_it_refuses_and_keeps_its_number": ("factor", "cap", "value"),
    "test_a_worksheet_of_any_size_starts_and_is_checked_where_all_is_there": (
        "45", "110-True", "5-True",
    ),
    "test_axe_has_no_complaint_and_nothing_scrolls_sideways": ("many",),
    "test_the_size_of_twelve_layers_of_twelve_heads": ("64",),
}  # fmt: skip


def main() -> int:
    installed("firefox-esr", "firefox-esr")
    env = {**os.environ, "ATTNCLI_BROWSER": str(shutil.which("firefox-esr"))}
    file = "tests/browser/test_page.py"
    cases = [f"{file}::{test}[{case}" for test, cases in LEFT_OUT.items() for case in cases]
    call = [sys.executable, "-m", "pytest", "-q", file, *(f"--deselect={case}" for case in cases)]
    return subprocess.run(call, cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
