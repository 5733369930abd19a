"""Wrong attentions, by what is wrong with them."""

from __future__ import annotations

from tests.check.planted.rows import Row
from tests.check.planted.wrong import kernels, layouts, masks, others, scores

GROUPS: dict[str, tuple[Row, ...]] = {
    "scores and weights": scores.ROWS,
    "masks and caches": masks.ROWS,
    "layouts": layouts.ROWS,
    "kernels": kernels.ROWS,
    "inputs": others.INPUTS,
    "positions": others.POSITIONS,
    "pairs": others.PAIRS,
    "no known bug": others.CONTROLS,
}
ROWS = tuple(row for rows in GROUPS.values() for row in rows)
