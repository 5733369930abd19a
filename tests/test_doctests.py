"""The examples in the docstrings of the package."""

import doctest
import importlib
from pathlib import Path

import attncli

PACKAGE = Path(attncli.__file__).parent
MODEL = PACKAGE / "commands" / "model"
NEEDS_TORCH = {MODEL / "pytorch", MODEL / "checkpoint.py"}


def test_every_example_gives_what_it_shows() -> None:
    failed = attempted = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        if not NEEDS_TORCH & {path, path.parent} and path.stem != "__main__":
            name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            module = importlib.import_module(name.removesuffix(".__init__"))
            result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
            failed, attempted = failed + result.failed, attempted + result.attempted
    assert failed == 0  # what failed is in the captured output
    assert attempted > 200
