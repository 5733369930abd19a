"""Pages of every kind of trace in Firefox. A step of .ci/run; by hand:

    .venv/bin/python tests/benchmarks/firefox.py

All stages are computed again, a number is typed, changed by a key and taken back, and nothing is
said on the console. Playwright cannot drive Debian's Firefox, so this is no part of tests/browser.

Needs npm, and firefox-esr (which root gets from Debian); exit code 1 where anything is wrong.
"""

import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import attncli  # noqa: E402
from tests.benchmarks.programs import installed, of_npm  # noqa: E402
from tests.views.traces import attention, every_kind  # noqa: E402

PACKAGES = ("puppeteer-core@24.43.1",)


def main() -> int:
    installed("firefox-esr", "firefox-esr")
    with tempfile.TemporaryDirectory() as made:
        folder, pages = Path(made), []
        for number, make in enumerate([attention, *every_kind().values()]):
            pages.append(folder / f"{number}.html")
            pages[-1].write_text(attncli.render(make(), "html"), encoding="utf-8")
        what = {"firefox": shutil.which("firefox-esr"), "pages": [*map(str, pages)]}
        wrong = of_npm(PACKAGES, "firefox.mjs", what, folder)
    print(*wrong, sep="\n")
    print(f"{len(pages)} pages in Firefox: {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
