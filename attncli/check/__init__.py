"""Somebody else's numbers compared with attention: do they match, and if not, which bug is it?

    observed, q, k, v, Convention ── check ──> Verdict ── report_text, verdict_to_dict

The names below are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attncli.check.bugs import CATALOGUE
    from attncli.check.bugs.bug import Bug
    from attncli.check.diagnose import check
    from attncli.check.report import (
        Explanation,
        StageVerdict,
        Verdict,
        Worst,
        report_text,
        verdict_to_dict,
    )
    from attncli.check.suggest import Suggestion, suggest_input

__all__ = [
    "CATALOGUE",
    "Bug",
    "Explanation",
    "StageVerdict",
    "Suggestion",
    "Verdict",
    "Worst",
    "check",
    "report_text",
    "suggest_input",
    "verdict_to_dict",
]


_MODULES = {
    "Bug": "bugs.bug",
    "CATALOGUE": "bugs",
    "Suggestion": "suggest",
    "check": "diagnose",
    "suggest_input": "suggest",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'attncli.check' has no attribute {name!r}")
    return getattr(import_module(f"attncli.check.{_MODULES.get(name, 'report')}"), name)


def __dir__() -> list[str]:
    return __all__
