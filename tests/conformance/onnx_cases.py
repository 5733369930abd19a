"""The test cases of the ONNX standard made in-process by the onnx package."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

with warnings.catch_warnings():  # its generators overflow on purpose
    warnings.simplefilter("ignore")
    from onnx.backend.test.case.node import collect_testcases


@cache
def _all() -> list[Any]:
    # Asked for one operator, the package would run no generator at the second call.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return collect_testcases(None)


def cases(prefix: str) -> list[Any]:
    """The cases whose name begins so."""
    return [case for case in _all() if case.name.startswith(prefix)]
