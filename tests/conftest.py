"""For every test: one thread of BLAS, two profiles of hypothesis, and `--exhaustive`."""

from __future__ import annotations

import os

for library in (
    "OPENBLAS",
    "OMP",
    "MKL",
):  # its threads wait by spinning, on cores that the workers share
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile(
    "default", max_examples=25, deadline=None, derandomize=True, database=None
)
settings.register_profile("thorough", max_examples=100, deadline=None, database=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    text = (
        "run what the default run leaves out: cases marked exhaustive, properties with 100 examples"
    )
    parser.addoption("--exhaustive", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "exhaustive: one more set-up of a case; runs with --exhaustive"
    )
    settings.load_profile("thorough" if config.getoption("--exhaustive") else "default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    is_exhaustive = bool(config.getoption("--exhaustive"))
    left_out = [item for item in items if _is_exhaustive(item) != is_exhaustive]
    if is_exhaustive:
        left_out = [item for item in left_out if not _is_property(item)]
    config.hook.pytest_deselected(items=left_out)
    dropped = {*map(id, left_out)}
    items[:] = [item for item in items if id(item) not in dropped]


def _is_exhaustive(item: pytest.Item) -> bool:
    return item.get_closest_marker("exhaustive") is not None


def _is_property(item: pytest.Item) -> bool:
    return getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
