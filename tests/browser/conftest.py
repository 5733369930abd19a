"""Chromium without a network, driven by Playwright; every page is closed with no complaint of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
Opener = Any
"""What `opened` gives: a function from text and options of a browser's context to its page."""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install attncli[browser]")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Iterator[Opener]:
    """Opens text as a file; at the end: no request but of that file, no error, no dialog.

    complaints  what has been complained of so far
    """
    contexts: list[Any] = []
    complaints: list[str] = []

    def complain_of_others(request: Any) -> None:
        if not request.url.startswith(("file:", "data:")):
            complaints.append(request.url)

    def open_page(text: str, ready: bool = True, **options: Any) -> Any:
        options = {"viewport": {"width": 1300, "height": 900}, **options}
        contexts.append(chromium.new_context(offline=True, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(10_000)
        page.on("request", complain_of_others)
        page.on("pageerror", lambda problem: complaints.append(str(problem)))
        page.on("console", lambda words: complaints.append(words.text))
        page.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
        file = tmp_path / f"page{len(contexts)}.html"
        file.write_text(text, encoding="utf-8")
        page.goto(file.as_uri())
        if ready:
            page.locator("html[data-ready]").wait_for()
        return page

    open_page.complaints = complaints  # type: ignore[attr-defined]
    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
