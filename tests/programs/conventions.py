"""Attentions of random sizes, inputs and conventions, as their plans compute them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from attncli.attention.inputs import Inputs, inputs_of
from attncli.convention import Convention
from attncli.errors import ConventionError, ShapeError


def fields_of(r: random.Random) -> dict[str, Any]:
    """Any choice for every field of Convention."""
    pick: Any = r.choice
    return {
        "causal": pick([False, True]),
        "causal_align": pick(["top-left", "bottom-right", "open-last"]),
        "mask_and_causal": pick(["both", "both", "mask", "causal"]),
        "window": pick([None, None, (1, 0), (2, 1), (-1, 1), (1, -1)]),
        "window_counts": pick(["others", "own"]),
        "scale": pick(["1/sqrt(d_k)", "none", 0.3]),
        "softcap": pick([None, None, 2.0, 30.0]),
        "softcap_place": pick(["before-mask", "after-bias", "after-mask"]),
        "mask_means": pick(["keep", "keep", "ignore", "add"]),
        "mask_numbers": pick([None, "add", "truth"]),
        "mask_value": pick([-np.inf, -np.inf, -1e9, -3.0]),
        "mask_value_rule": pick(["replace", "add"]),
        "empty_rows": pick(["zero", "nan", "uniform", "unmasked"]),
        "empty_rows_inf": pick([None, None, "zero", "nan", "uniform"]),
        "head_order": pick(["blocks", "tiled"]),
        "lse_base": pick(["e", "2"]),
        "qk_norm": pick([False, False, True]),
        "dropout": pick([0.0, 0.0, 0.0, 0.3]),
        "seed": r.randrange(9),
        "softmax_over": pick(["keys", "keys", "keys", "queries"]),
        "dtype": pick(["float64"] * 5 + ["float32", "float16", "bfloat16"]),
    }


def of_qkv(seed: int) -> Inputs | None:
    """Of q, k and v, with whatever may restrict; None where these do not fit together."""
    rng, r = np.random.default_rng(seed), random.Random(seed)  # noqa: S311
    pick: Any = r.choice
    fields, ndim, g = fields_of(r), pick([2, 3, 4, 4]), pick([1, 2])
    h = g * pick([1, 1, 2, 3])
    n_q, n_k, d, e, b = (r.randrange(1, n) for n in (6, 7, 5, 5, 4))
    if ndim == 2:
        h = g = 1
    lead, shared = {2: ((), ()), 3: ((h,), (g,)), 4: ((b, h), (b, g))}[ndim]
    size = pick([1.0, 1.0, 1.0, 100.0, 1e4])
    arrays: dict[str, Any] = {
        "q": rng.normal(size=(*lead, n_q, d)) * size,
        "k": rng.normal(size=(*shared, n_k, d)),
        "v": rng.normal(size=(*shared, n_k, e)),
    }
    total = n_k
    if r.random() < 0.25:
        total += (n_past := r.randrange(1, 4))
        arrays["past_k"] = rng.normal(size=(*shared, n_past, d))
        arrays["past_v"] = rng.normal(size=(*shared, n_past, e))
    if r.random() < 0.5:
        shapes = [(n_q, total), (1, total), (n_q, 1), (h, n_q, total), (b, 1, 1, total), (total,)]
        shape = pick(shapes)
        arrays["mask"] = _mask(rng, r, shape[-min(len(shape), ndim) :])
    if ndim == 4 and r.random() < 0.3:
        arrays["kv_len"] = rng.integers(0, total + 1, size=b)
    if r.random() < 0.25:
        arrays["sinks"] = rng.normal(size=h)
    if r.random() < 0.6:
        arrays["d_output"] = pick(["ones", "random"])
    name, number = pick("qkv"), pick([np.nan, np.inf, -np.inf])
    if r.random() < 0.3:
        arrays[name].flat[r.randrange(arrays[name].size)] = number
    try:
        return inputs_of(arrays, Convention(**fields))
    except (ConventionError, ShapeError):
        return None


def _mask(rng: np.random.Generator, r: random.Random, shape: tuple[int, ...]) -> Any:
    match r.randrange(5):
        case 0:
            return rng.random(shape) < 0.6
        case 1:
            return rng.normal(size=shape)
        case 2:
            return np.where(rng.random(shape) < 0.5, -np.inf, r.choice([0.0, 1.5]))
        case 3:
            return np.where(rng.random(shape) < 0.4, -65504.0, 0.25)
    return (rng.random(shape) < 0.6).astype(int)


def of_x(seed: int) -> Inputs | None:
    """Of x and weights, with a cache now and then; None where these do not fit together."""
    rng, r = np.random.default_rng(seed), random.Random(seed)  # noqa: S311
    pick: Any = r.choice
    fields, g = fields_of(r), pick([1, 2])
    h = g * pick([1, 2, 3])
    d, e, m, n_q, n_k = (r.randrange(1, 5) for _ in range(5))
    lead = pick([(), (2,), (3,)])
    arrays: dict[str, Any] = {"x": rng.normal(size=(*lead, n_q, m))}
    if r.random() < 0.4:
        arrays["x_kv"] = rng.normal(size=(*lead, n_k, m))
    widths = {"q": h * d, "k": g * d, "v": g * e}
    arrays |= {f"w_{name}": rng.normal(size=(m, n)) for name, n in widths.items()}
    if r.random() < 0.5:
        arrays |= {f"b_{name}": rng.normal(size=n) for name, n in widths.items()}
    if r.random() < 0.7:
        arrays["w_o"] = rng.normal(size=(h * e, m))
    if "w_o" in arrays and r.random() < 0.5:
        arrays["b_o"] = rng.normal(size=m)
    if r.random() < 0.3:
        n_past = r.randrange(1, 4)
        own = (*lead, g) if lead or h > 1 else ()
        arrays |= {f"past_{x}": rng.normal(size=(*own, n_past, n)) for x, n in (("k", d), ("v", e))}
    if r.random() < 0.8:
        arrays["d_output"] = pick(["ones", "random"])
    try:
        return inputs_of(arrays, Convention(**fields), n_heads=h, n_kv_heads=g)
    except (ConventionError, ShapeError):
        return None
