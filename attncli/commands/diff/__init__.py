"""Two traces compared, stage by stage.

a, b ── diff ──> Comparison ── sentences, trace
"""

from attncli.commands.diff.comparison import Comparison, StageDifference, nested
from attncli.commands.diff.diff import diff

__all__ = ["Comparison", "StageDifference", "diff", "nested"]
