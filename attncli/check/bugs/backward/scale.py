"""Bugs of gradients in the scale: left out, applied twice, or another one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from attncli.check.bugs.backward.edits import (
    D_K,
    D_Q,
    D_SCORES,
    D_V,
    apply,
    edited,
    last,
    of_gradients,
    row,
    times,
    times_scale,
)
from attncli.check.bugs.bug import Bug, Evidence
from attncli.check.fitting import roots
from attncli.check.setup import Setup


def _scale_again(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """Another factor in dS: one of another width, or of base 2."""
    if not of_gradients(setup, evidence):
        return
    (_, n_heads, _, n_k), d_v = setup.shape, setup.inputs["v"].shape[-1]
    d_k = setup.d_k
    given = setup.how.scale_factor(d_k)
    if setup.how.scale == "none" or not given:
        return
    for factor, words in (
        (d_v**-0.5, "1/√d_v"),
        (1 / d_k, "1/d_k"),
        ((d_k * n_heads) ** -0.5, "1/√(heads · d_k)"),
        (n_k**-0.5, "1/√(number of keys)"),
        (d_k**0.5, "√d_k"),
    ):
        if not any(math.isclose(factor, x, rel_tol=1e-6) for x in (given, given * given)):
            own = apply(setup, [times(D_SCORES, factor / given)])
            if own is not None:
                yield own.with_detail(words)
    if (sample := evidence.sample) is None:
        return
    for name in (D_Q, D_K):
        if (stage := sample.errors.get(name)) is None:
            continue
        known = np.isfinite(stage.observed) & np.isfinite(stage.expected)
        observed, expected = stage.observed[known], stage.expected[known]
        size = float(np.square(expected).sum())
        times_it = float((observed * expected).sum()) / size if size else 0.0
        if times_it and (own := apply(setup, [times(D_SCORES, times_it)])) is not None:
            factor = times_it * given
            forms = [words for x, words, _ in roots(factor) if abs(x / factor - 1) < FORM]
            yield own.with_detail(f"{factor:.6g}" + (f" = {forms[0]}" if forms else ""))


FORM = 0.01
"""A fitted factor is that of a width where it is as near."""


_BASE_2 = 1 / math.log(2)


def _base_2() -> Any:
    for factor, words in ((_BASE_2, "log₂ e times too large"), (1 / _BASE_2, "ln 2 times")):
        for names in ((D_Q,), (D_K,), (D_Q, D_K), (D_V,), (D_Q, D_K, D_V)):
            yield f"{' and '.join(names)}, {words}", [times(name, factor) for name in names]
    for names in ((D_Q,), (D_K,), (D_Q, D_K)):
        edits = [times(name, _BASE_2) for name in names] + [times_scale(name) for name in names]
        yield f"{' and '.join(names)}, scale · log₂ e times too large", edits


SCALE: tuple[Bug, ...] = (
    row(
        "scale left out of dQ",
        edited(("", [times_scale(D_Q, divided=True)])),
        "dQ is dS K times the scale of the scores",
        "triton#2059",
    ),
    row(
        "scale left out of dK",
        edited(("", [times_scale(D_K, divided=True)])),
        "dK is dSᵀ Q times the scale of the scores",
        "flash-attention#2657",
    ),
    row(
        "scale left out of dS (dQ and dK)",
        edited(("", [times_scale(D_SCORES, divided=True)])),
        "the scores were scaled, so their gradient is scaled as well",
        "triton#2059",
    ),
    row(
        "scale applied twice in dS",
        edited(("", [times_scale(D_SCORES)])),
        "dQ and dK are multiplied by the scale twice",
        "triton#2059, FastVideo#1730",
    ),
    row(
        "scale applied twice in dQ",
        edited(("", [times_scale(D_Q)])),
        "the keys that dQ is made of are scaled already",
        "FastVideo#1730",
    ),
    row(
        "scale applied twice in dK",
        edited(("", [times_scale(D_K)])),
        "the queries that dK is made of are scaled already",
        "FastVideo#1730",
    ),
    row(
        "base 2 of the exponent left in the gradient",
        edited(*_base_2()),
        "scores times log₂ e for exp2 must not stay in the gradient, or ln 2 was not put in",
        "attention-gym#200, triton_docs_tutorials#6",
    ),
)


OTHER_SCALES: tuple[Bug, ...] = (
    last(
        "another scale in dS",
        _scale_again,
        "the scale on the way back is not that of the scores",
        "TransformerEngine#3216",
    ),
    last(
        "scale applied to dV",
        edited(("", [times_scale(D_V)])),
        "dV has no scale: it is Aᵀ dO",
    ),
)
"""Tried where no other bug fits: a factor alone may have many causes."""
