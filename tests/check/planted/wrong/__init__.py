"""Wrong attentions, by what is wrong with them."""

from tests.check.planted.wrong import arrays, others, weights

GROUPS = {
    "scores and weights": weights.SCORES,
    "masks and caches": weights.MASKS,
    "layouts": arrays.LAYOUTS,
    "kernels": arrays.KERNELS,
    "inputs": others.INPUTS,
    "positions": others.POSITIONS,
    "pairs": others.PAIRS,
    "no known bug": others.CONTROLS,
}
ROWS = tuple(row for rows in GROUPS.values() for row in rows)
