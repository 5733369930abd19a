"""For every test: one thread of BLAS, two profiles of hypothesis, `--exhaustive` and `--all`."""

import gc
import os

gc.set_threshold(200_000)  # as attncli/__main__.py has it

# Its threads wait by spinning, on cores that the workers share.
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from tests.calls import call, three  # noqa: E402

__all__ = ["call", "three"]

settings.register_profile(
    "default", max_examples=25, deadline=None, derandomize=True, database=None
)
settings.register_profile("thorough", max_examples=100, deadline=None, database=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    text = (
        "run what the default run leaves out: cases marked exhaustive, properties with 100 examples"
    )
    parser.addoption("--exhaustive", action="store_true", help=text)
    text = "of the tests of this run, each N-th alone"
    parser.addoption("--every", type=int, default=1, metavar="N", help=text)
    parser.addoption("--all", action="store_true", help="run both in one run")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "exhaustive: one more set-up of a case; runs with --exhaustive"
    )
    is_thorough = config.getoption("--exhaustive") or config.getoption("--all")
    settings.load_profile("thorough" if is_thorough else "default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        is_marked = item.get_closest_marker("exhaustive") is not None
        is_property = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        runs = is_marked or is_property if config.getoption("--exhaustive") else not is_marked
        runs = runs or config.getoption("--all")
        (kept if runs else left_out).append(item)
    n = config.getoption("--every")
    left_out += [item for at, item in enumerate(kept) if at % n]
    items[:] = kept[::n]
    config.hook.pytest_deselected(items=left_out)
