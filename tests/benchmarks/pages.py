"""How long a page of html takes to write and to open, and how large it is. Run by hand:

    .venv/bin/pip install -e '.[browser]' && .venv/bin/python tests/benchmarks/pages.py

write    html.text of a trace in memory: what comes on top of computing it
ready    from the start of loading until the page answers, in Chromium (Debian's), the network off
size     the file

3 × 3, 12 × 12 heads (as 12 batch entries of 12 heads) of 24 and of 64 tokens with d_k 64, full and
causal, and 8 heads of 256 tokens.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import attncli
from attncli.trace import Trace
from attncli.views.formats import html
from attncli.views.select import DisplayOptions

ROUNDS = 5
LIMITS = {"3 × 3": 60, "12 × 12 × 24": 300, "12 × 12 × 64": 2000}  # kB


def traces() -> Iterator[tuple[str, Trace]]:
    yield "3 × 3", attncli.attend(*3 * [[[1, 0], [0, 1], [1, 1]]])
    rng = np.random.default_rng(0)
    for n in (24, 64):
        q, k, v = rng.normal(size=(3, 12, 12, n, 64))
        for causal in (False, True):
            words = f"12 × 12 × {n}{', causal' * causal}"
            yield words, attncli.attend(q, k, v, causal=causal)
    yield "8 × 256", attncli.attend(*rng.normal(size=(3, 8, 256, 64)))


def milliseconds_until_ready(file: Path) -> float:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        found = []
        for _ in range(ROUNDS):
            context = browser.new_context(offline=True)
            page = context.new_page()
            page.add_init_script(
                "new MutationObserver(() => { if (document.documentElement?.dataset.ready) "
                "window.readyAt ??= performance.now(); })"
                ".observe(document, {subtree: true, attributes: true, childList: true});"
            )
            page.goto(file.as_uri())
            page.locator("html[data-ready]").wait_for()
            found.append(page.evaluate("window.readyAt"))
            context.close()
        browser.close()
    return float(statistics.median(found))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for name, trace in traces():
            times = []
            for _ in range(ROUNDS):
                start = time.perf_counter()
                text = "".join(html.text(trace, DisplayOptions()))
                times.append(time.perf_counter() - start)
            path = Path(folder, "page.html")
            path.write_text(text, encoding="utf-8")
            limit = LIMITS.get(name.removesuffix(", causal"))
            most = f" (at most {limit})" if limit else ""
            print(
                f"{name:<22} written in {statistics.median(times) * 1e3:5.0f} ms, "
                f"ready in {milliseconds_until_ready(path):5.0f} ms, "
                f"{path.stat().st_size / 1e3:6.0f} kB{most}"
            )
