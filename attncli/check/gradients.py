"""What observed gradients can tell, and what they cannot."""

from __future__ import annotations

from collections.abc import Sequence

from attncli.check.bugs import BACKWARD, GRADIENT
from attncli.check.bugs.bug import Bug, Evidence
from attncli.check.comparison import Comparison
from attncli.check.run import computes
from attncli.check.samples import sample_of, wide_sample_of
from attncli.check.search import Match, differ
from attncli.stages import GRADIENTS

FEATURES = frozenset(["softcap", "dropout", "sinks", "key-heads", "mask"])
"""What an input may lack, so that it cannot show the bugs that touch it."""


def hidden_bugs(comparison: Comparison) -> list[Bug]:
    """The bugs of the backward pass that compute the right numbers here, or do not apply."""
    sample = wide_sample_of(comparison) or sample_of(comparison)
    right = sample.expected(comparison.setup)
    evidence = Evidence(right, right, subset=sample.subset)

    def is_hidden(bug: Bug) -> bool:
        """Whether none of its variants has other numbers; where it has none, what it touches."""
        is_computed = False
        for setup in bug.change(comparison.setup, evidence):
            if setup.relayout or setup.relabel:
                return False
            if not computes(setup, right):
                continue
            is_computed = True
            other = sample.expected(setup)
            if any(differ(x, other[name]) for name, x in right.items()):
                return False
        return is_computed or bool(bug.touches & FEATURES)

    return [bug for bug in BACKWARD if is_hidden(bug)]


def of_one_pass(
    matches: Sequence[Match], comparison: Comparison
) -> tuple[list[Match], Sequence[str]]:
    """Without the bugs of both passes where one of the backward pass alone fits; with a note."""
    back = [match for match in matches if any(GRADIENT in bug.touches for bug in match.bugs)]
    both = [match for match in matches if match not in back]
    if not back or not both or not all(name in GRADIENTS for name in comparison.errors):
        return list(matches), ()
    names = ", ".join(bug.name for match in both for bug in match.bugs)
    note = f"the forward pass was not observed; a bug in it gives the same gradients: {names}"
    return back, (note,)
