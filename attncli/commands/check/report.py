"""A verdict as data for scripts, and the verdicts of several attentions.

The data (`verdict_to_dict`) are the fields of Verdict by their names; besides them
    schema    6; from 3 on there are meanings and is_default, and the status may be "meaning"; a
              bug has an id from 4 on, and there is edit: None, or {stage, formula, edited, old,
              new, n_alike}; from 5 on there is reading; from 6 on
              the status may be "several", an explanation has a part, a bug that is not listed has
              no id, and there is probe: None, or {sentences, drawing, n_extra, n_missing}
    matches   true | false
    name      of an explanation: the names of its bugs, joined
A bug is {id, name, sentence, threads}. NaN and infinity are strings, as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from attncli.commands.check.verdict import Verdict, headline, report_text
from attncli.files.numbers import nan_to_text

SCHEMA = 6


def verdict_to_dict(verdict: Verdict) -> dict[str, Any]:
    """The verdict as dictionaries, lists, strings and numbers, ready for JSON.

    >>> verdict_to_dict(Verdict("match", "float32"))["status"]
    'match'
    """
    data = asdict(verdict)
    for explanation, source in zip(data["explanations"], verdict.explanations, strict=True):
        fields = "id", "name", "sentence", "threads"
        explanation["bugs"] = [{x: getattr(bug, x) for x in fields} for bug in source.bugs]
        explanation["name"] = source.name
    plain: dict[str, Any] = nan_to_text({"schema": SCHEMA, "matches": verdict.matches, **data})
    return plain


def summary_to_dict(verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    """Verdicts of several attentions by name, ready for JSON."""
    each = {name: verdict_to_dict(verdict) for name, verdict in verdicts.items()}
    return {"schema": SCHEMA, "matches": all(verdicts.values()), "attentions": each}


def summary_text(verdicts: Mapping[str, Verdict]) -> str:
    """Verdicts of several attentions, a line each, and the first that does not match, whole.

    >>> print(summary_text({"layers.0": Verdict("match", "float32")}))
    1 of 1 matches
      layers.0  it matches
    """
    matching = sum(map(bool, verdicts.values()))
    width = max(map(len, verdicts), default=0)
    lines = [f"{matching} of {len(verdicts)} match{'es' * (matching == 1)}"]
    for name, verdict in verdicts.items():
        causes = " or ".join(explanation.name for explanation in verdict.explanations)
        answer = headline(verdict).removesuffix(":")
        if verdict.is_meant:
            answer = f"it differs, and matches {verdict.meanings[0].names[0]}'s conventions"
            causes = ""
        lines.append(f"  {name:{width}}  {answer}{f': {causes}' if causes else ''}")
    if different := [name for name, verdict in verdicts.items() if not verdict]:
        lines += ["", different[0], report_text(verdicts[different[0]])]
    return "\n".join(lines)
