"""Two bugs at once; the second shows in few items, heads or rows."""

from __future__ import annotations

import numpy as np

from tests.check.planted.parts import Array, Inputs, attend, masked
from tests.check.planted.rows import Row
from tests.check.planted.worlds import (
    CAUSAL,
    GROUPED_KERNEL,
    MASKED_CAUSAL,
    ONE_PADDED,
    ONE_ROW,
    PADDED,
    TWO_SIDED,
    WINDOW,
)


def no(x: Inputs) -> Array:
    return np.zeros((1, 1), bool)


ROWS = (
    Row("scale and one padded item", ("scale left out + padding left out",), lambda x: attend(x, scale=1.0, hide=no(x)), (ONE_PADDED, PADDED)),
    Row("scale and one masked row", ("scale left out + mask left out",), lambda x: attend(x, scale=1.0, hide=no(x)), (ONE_ROW,)),
    Row("d_k and one masked row", ("divided by d_k, not √d_k + mask left out", "scale applied twice + mask left out"), lambda x: attend(x, scale=1 / x.d_k, hide=no(x)), (ONE_ROW,)),
    Row("scale and causal", ("scale left out + causal mask left out",), lambda x: attend(x, scale=1.0, hide=no(x)), (CAUSAL,)),
    Row("k_scale and v_scale ignored", ("another scale + output times a factor",), lambda x: attend(x, k=x.k / 0.25, v=x.v / 0.5), (GROUPED_KERNEL,), "flashinfer#4979"),
    Row("mask and causal", ("mask left out + causal mask left out",), lambda x: attend(x, hide=no(x)), (MASKED_CAUSAL,)),
    Row("mask inverted and causal", ("boolean mask read the other way round + causal mask left out",), lambda x: attend(x, hide=~masked(x)), (MASKED_CAUSAL,)),
    Row("tiled and unscaled", ("key heads tiled, not in blocks + scale left out",), lambda x: attend(x, scale=1.0, k=np.tile(x.k, (1, 2, 1, 1)), v=np.tile(x.v, (1, 2, 1, 1))), (GROUPED_KERNEL,)),
    Row("window and causal", ("window left out + causal mask left out",), lambda x: attend(x, hide=no(x)), (WINDOW,)),
    Row("window and scale", ("window left out + scale left out",), lambda x: attend(x, scale=1.0, hide=no(x)), (TWO_SIDED,)),
)  # fmt: skip
