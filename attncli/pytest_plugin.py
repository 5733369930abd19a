"""pytest shows the report of a check that fails: after `assert check(…)`, in a section of its own.

An assertion has its text from pytest alone (pytest_assertrepr_compare sees comparisons, and a repr
is cut and put on one line), so the report is added to that of the test. pytest loads this by the
entry point of the package; nothing of attncli is imported before a test imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the report of every verdict without a match in the function whose assertion failed."""
    report = yield
    module, failure = sys.modules.get("attncli.commands.check.verdict"), call.excinfo
    if module is None or failure is None or not failure.errisinstance(AssertionError):
        return report
    texts = map(module.report_text, _verdicts(failure.traceback[-1].frame.f_locals, module.Verdict))
    for text in dict.fromkeys(texts):
        if text not in str(failure.value):  # as assert_attention has it
            report.sections.append(("attncli check", text))
    return report


def _verdicts(local: Mapping[str, Any], kind: type) -> list[Any]:
    """Those that the assertion itself computed, else those that have a name."""
    verdicts = {name: x for name, x in local.items() if isinstance(x, kind) and not x.matches}  # type: ignore[attr-defined]
    computed = [x for name, x in verdicts.items() if name.startswith("@py_assert")]
    return computed or list(verdicts.values())
