"""What the edits of the catalogue may name of a setup: conditions and numbers.

… when causal and size[i] < size[j]        a condition
d_q: => right / scale                      a number
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from attncli.arrays import Array
from attncli.errors import joined
from attncli.stages import QKV, gradient_of
from attncli.tolerance.rule import largest
from attncli.tolerance.run import PROJECTION
from attncli.tolerance.setup import Setup

BLOCKS = 16, 32, 64, 128
"""The sizes of blocks in which kernels compute."""

LOOPS = (1, 2, 4, 8, *BLOCKS)
"""And those of loops over gradients."""

FACTORS = "2", "1 / 2", "-1", "0", "ln(2)", "1 / ln(2)"
"""What a number may be multiplied by by mistake."""

OF_STAGES = (*FACTORS, "scale", "1 / scale")
"""What a whole formula may be."""

HIDES = -1e3
"""Numbers of a mask that are no larger stand for −∞."""

# ---- what is so


def factor_of(setup: Setup) -> float:
    """What the scores are multiplied by; 0 where that is nothing."""
    return setup.convention.scale_factor(setup.d_k) if setup.convention.scale != "none" else 0.0


def is_padding(mask: Array) -> bool:
    """Whether a mask says of each key, not of each query, whether it may be attended to."""
    return mask.ndim < 2 or bool((mask == mask[..., :1, :]).all())


def hides_by_inf_alone(mask: Array) -> bool:
    """Whether a mask of numbers is 0 where a query may attend, and −inf where it may not."""
    return bool(np.isin(mask, (0.0, -np.inf)).all())


def is_one_step(setup: Setup) -> bool:
    """Whether the numbers of the mask are added, and what it hides is hidden, in one step."""
    between = (
        setup.convention.softcap is not None and setup.convention.softcap_place == "after-bias"
    )
    return not (between and setup.is_added)


def _given(holds: Callable[[Setup, Array], object]) -> Callable[[Setup], bool]:
    """Whether there is a mask of which something holds."""

    def fact(setup: Setup) -> bool:
        mask = setup.inputs.get("given_mask")
        return mask is not None and bool(holds(setup, mask))

    return fact


def _is_truth(setup: Setup, mask: Array) -> bool:
    return mask.dtype != np.bool_ and setup.convention.mask_numbers == "truth"


def _hides(setup: Setup) -> bool:
    """Whether something is hidden, not only weighed by numbers of the mask."""
    convention, mask = setup.convention, setup.inputs.get("given_mask")
    by_rule = convention.causal or convention.window is not None or "kv_len" in setup.inputs
    return by_rule or (mask is not None and bool((mask == -np.inf).any()))


def _has_qkv_alone(setup: Setup) -> bool:
    """Whether nothing but q, k, v and a causal mask over as many heads says what is computed."""
    is_causal = setup.convention.causal and setup.inputs["k"].shape[1] != setup.shape[1]
    return (
        setup.inputs.keys() <= {*QKV, *PROJECTION}
        and setup.convention.window is None
        and not is_causal
    )


def _model_width(setup: Setup) -> int:
    """How wide x is, of which q, k and v are made; 0 where they are given."""
    return 0 if setup.projected is None else int(setup.projected.originals["x"].shape[-1])


def _largest_score(setup: Setup) -> float:
    inputs = setup.placed().inputs
    return largest(inputs["q"]) * largest(inputs["k"]) * setup.d_k


FACTS: Mapping[str, Callable[[Setup], float]] = {
    "n_q": lambda setup: setup.shape[2],
    "n_k": lambda setup: setup.shape[3],
    "n_h": lambda setup: setup.shape[1],
    "n_past": lambda setup: setup.n_past,
    "n_cached": lambda setup: setup.n_past or max(0, setup.shape[3] - setup.shape[2]),
    "square": lambda setup: setup.shape[2] == setup.shape[3] > 1,
    "grouped": lambda setup: setup.shape[1] != setup.inputs["k"].shape[1],
    "group": lambda setup: setup.shape[1] // setup.inputs["k"].shape[1],
    "step": lambda setup: 1 if setup.convention.head_order == "tiled" else FACTS["group"](setup),
    "apart": lambda setup: (
        1 if setup.convention.head_order == "blocks" else setup.inputs["k"].shape[1]
    ),
    "scale": factor_of,
    "scaled": lambda setup: factor_of(setup) != 0,
    "factor": lambda setup: setup.convention.scale_factor(setup.d_k),
    "largest_score": _largest_score,
    "softcap": lambda setup: setup.convention.softcap or 0.0,
    "dropout": lambda setup: setup.convention.dropout,
    "sinks": lambda setup: "sinks" in setup.inputs,
    "qk_norm": lambda setup: setup.convention.qk_norm,
    "lse_base": lambda setup: math.log(2) if setup.convention.lse_base == "2" else 1.0,
    "over_keys": lambda setup: setup.convention.softmax_over == "keys",
    "positions": lambda setup: setup.positions is not None,
    "base": lambda setup: setup.positions.base if setup.positions is not None else 0.0,
    "rotary": lambda setup: setup.positions is not None and setup.positions.is_rotary,
    "added": lambda setup: setup.positions is not None and not setup.positions.is_rotary,
    "masks": lambda setup: setup.may_mask(),
    "causal": lambda setup: setup.convention.causal,
    "aligned_left": lambda setup: setup.convention.causal_align == "top-left",
    "window": lambda setup: setup.convention.window is not None,
    "own": lambda setup: setup.convention.window_counts == "own",
    "back": lambda setup: (setup.convention.window or (-1, -1))[0],
    "before": lambda setup: (setup.convention.reach or (-1, -1))[0],
    "ahead": lambda setup: (setup.convention.reach or (-1, -1))[1],
    "tiles": lambda setup: setup.tiles,
    "lengths": lambda setup: "kv_len" in setup.inputs,
    "hides": _hides,
    "adds_mask": lambda setup: setup.is_added,
    "one_step": is_one_step,
    "finite_mask": lambda setup: setup.convention.mask_value != -np.inf,
    "given_mask": _given(lambda setup, mask: True),
    "boolean_mask": _given(lambda setup, mask: mask.dtype == np.bool_),
    "number_mask": _given(lambda setup, mask: mask.dtype != np.bool_),
    "truth_mask": _given(_is_truth),
    "only_inf": _given(lambda setup, mask: hides_by_inf_alone(mask)),
    "has_zero": _given(lambda setup, mask: (mask == 0).any()),
    "mask_hides": _given(lambda setup, mask: mask.dtype == np.bool_ or (mask <= HIDES).any()),
    "padding_mask": _given(lambda setup, mask: is_padding(mask)),
    "mask_of_keys": _given(lambda setup, mask: mask.shape[-1] == setup.shape[3] > 1),
    "mask_axes": lambda setup: np.ndim(setup.inputs.get("given_mask", 0)),
    "mask_items": _given(lambda setup, mask: mask.ndim == 4 and mask.shape[0] > 1),
    "mask_heads": _given(lambda setup, mask: mask.ndim == 4 and mask.shape[1] > 1),
    "keys_not_finite": lambda setup: not np.isfinite(setup.inputs["k"]).all(),
    "values_not_finite": lambda setup: not np.isfinite(setup.inputs["v"]).all(),
    "qkv_alone": _has_qkv_alone,
    "d_model": _model_width,
}
"""Conditions are 1 or 0; numbers are those of the right setup. `apart` is how far the query heads
of a key head are from each other, `step` how far the first ones of two neighbouring key heads;
`back` is the window's first bound, `before` and `ahead` the keys that it shows around the query's
own."""


def last_block_text(first: int, n: int) -> str:
    """Of which sizes the block is that begins there and is the last of several of n; "": of none.

    >>> last_block_text(32, 40)
    'the last block of 16 or 32'
    """
    sizes = [str(size) for size in BLOCKS if first == (n - 1) // size * size > 0]
    return f"the last block of {joined(sizes, 'or')}" if sizes else ""


def last_blocks(n: int, sizes: Sequence[int] = BLOCKS) -> list[int]:
    """Where the last block of n begins, if it is not the only one, in blocks of these sizes.

    >>> last_blocks(40)
    [32]
    """
    return [*dict.fromkeys(start for size in sizes if (start := (n - 1) // size * size))]


def sizes_of(setup: Setup, place: str = "") -> dict[str, int]:
    """How long the letters of axes are; d is the width of a value in those that heads share."""
    d_v = setup.inputs["v"].shape[-1]
    d = d_v if place in ("v_shared", gradient_of("v")) else setup.d_k
    n = setup.inputs["k"].shape[1]
    sizes = {"g": n, "d": d, "e": d_v, "n": setup.shape[1] // max(1, n)}
    return {**dict(zip("bhij", setup.shape, strict=True)), **sizes}
