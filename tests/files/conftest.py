"""The folder into which the tests write their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from .saved import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)
