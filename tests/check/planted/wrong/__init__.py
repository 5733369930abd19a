"""Wrong attentions, by what is wrong with them."""

from __future__ import annotations

from tests.check.planted.rows import Row
from tests.check.planted.wrong import (
    caches,
    controls,
    inputs,
    kernels,
    layouts,
    masks,
    pairs,
    positions,
    scaling,
    weighting,
)

GROUPS: dict[str, tuple[Row, ...]] = {
    "scale and factors": scaling.ROWS,
    "softmax": weighting.ROWS,
    "masks and padding": masks.ROWS,
    "caches": caches.ROWS,
    "layouts": layouts.ROWS,
    "kernels": kernels.ROWS,
    "inputs": inputs.ROWS,
    "positions": positions.ROWS,
    "pairs": pairs.ROWS,
    "no known bug": controls.ROWS,
}
