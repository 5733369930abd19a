"""Somebody else's numbers held against a Trace: do they match, and if not, which bug is it?

    observed, q, k, v, Convention ── check ──> Verdict ── report_text, verdict_to_dict

The names below are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attncli.check.bugs.catalogue import CATALOGUE
    from attncli.check.bugs.hypothesis import Hypothesis
    from attncli.check.judge import check
    from attncli.check.report import report_text, verdict_to_dict
    from attncli.check.suggest import Suggestion, suggest_input
    from attncli.check.verdict import Bug, Explanation, StageVerdict, Verdict, Worst

_HOME = {
    "attncli.check.bugs.catalogue": ("CATALOGUE",),
    "attncli.check.bugs.hypothesis": ("Hypothesis",),
    "attncli.check.judge": ("check",),
    "attncli.check.report": ("report_text", "verdict_to_dict"),
    "attncli.check.suggest": ("Suggestion", "suggest_input"),
    "attncli.check.verdict": ("Bug", "Explanation", "StageVerdict", "Verdict", "Worst"),
}

__all__ = [
    "CATALOGUE",
    "Bug",
    "Explanation",
    "Hypothesis",
    "StageVerdict",
    "Suggestion",
    "Verdict",
    "Worst",
    "check",
    "report_text",
    "suggest_input",
    "verdict_to_dict",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'attncli.check' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
