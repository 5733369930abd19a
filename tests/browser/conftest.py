"""Chromium without a network, driven by Playwright; every page is closed with no complaint of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install attncli[browser]")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


Opener = Any
"""What `opened` gives: a function from text and options of a browser's context to its page."""


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Iterator[Opener]:
    """Opens text as a file; at the end: no request but of that file, no error, no dialog."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def open_page(text: str, **options: Any) -> Any:
        options = {"viewport": {"width": 1300, "height": 900}, **options}
        context = chromium.new_context(offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("request", lambda r: None if is_own(r.url) else complaints.append(r.url))
        page.on("pageerror", lambda problem: complaints.append(str(problem)))
        page.on("console", lambda words: complaints.append(words.text))
        page.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
        file = tmp_path / f"page{len(contexts)}.html"
        file.write_text(text, encoding="utf-8")
        page.goto(file.as_uri())
        return page

    open_page.complaints = complaints  # type: ignore[attr-defined]
    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def is_own(address: str) -> bool:
    return address.startswith(("file:", "data:"))
