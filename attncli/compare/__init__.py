"""Two traces compared, stage by stage.

a, b ── diff ──> Comparison ── sentences, trace
"""

from attncli.compare.comparison import Comparison, StageDifference, nested
from attncli.compare.diff import diff

__all__ = ["Comparison", "StageDifference", "diff", "nested"]
