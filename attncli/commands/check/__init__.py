"""Somebody else's numbers compared with attention: do they match, and if not, which bug is it?

observed, q, k, v, Convention ── check ──> Verdict ── report_text, verdict_to_dict
"""

from attncli.commands.check.bugs import CATALOGUE
from attncli.commands.check.bugs.bug import Bug
from attncli.commands.check.diagnose import check
from attncli.commands.check.report import (
    report_text,
    summary_text,
    summary_to_dict,
    verdict_to_dict,
)
from attncli.commands.check.suggest import Suggestion, suggest_input
from attncli.commands.check.verdict import Explanation, Meaning, StageVerdict, Verdict, Worst

__all__ = [
    "CATALOGUE",
    "Bug",
    "Explanation",
    "Meaning",
    "StageVerdict",
    "Suggestion",
    "Verdict",
    "Worst",
    "check",
    "report_text",
    "suggest_input",
    "summary_text",
    "summary_to_dict",
    "verdict_to_dict",
]
