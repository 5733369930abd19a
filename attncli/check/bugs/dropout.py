"""Dropout left on: its share is computed from the observed weights, or those that follow from the
observed output where there are at most as many keys as values are wide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attncli.arrays import Array
from attncli.check.bugs.bug import Bug, Evidence, bug
from attncli.check.run import all_of, stages
from attncli.check.setup import Setup
from attncli.stages import DROPPED, OUTPUT, WEIGHTS

DISTINCT = 3
"""Kept weights of as many different sizes must have grown by one factor: the factor comes from the
observed weights themselves, so one size confirms nothing and two could agree by chance."""

SPREAD = 4.0
"""How many standard deviations of the binomial distribution the number of zeros may be from what
the factor implies: beyond 4 is one right dropout in 16,000."""

COUNTED = 1e-3
"""Weights are counted from this share of the largest on: smaller ones may be 0 by rounding."""

GROWN = 1.001, 100.0
"""Between which factors dropout is believed: of a share from 0.001 to 0.99."""

ROUND = 1e-3
"""A share as near as this to one of two decimals is that one: nobody drops 0.2003."""


def share_dropped(observed: Array, expected: Array) -> float | None:
    """The p of which kept weights are larger by 1/(1−p) and a share p of them is 0, or None.

    >>> kept, weights = np.arange(1, 9) % 4 != 0, np.linspace(0.1, 0.2, 8)
    >>> share_dropped(np.where(kept, weights / 0.75, 0), weights)
    0.25
    """
    counted = np.isfinite(expected) & (expected > COUNTED * np.nanmax(expected, initial=0.0))
    weights, plain = observed[counted], expected[counted]
    kept = weights != 0
    if kept.all() or np.unique(plain[kept].astype(np.float32)).size < DISTINCT:
        return None
    grown = float(np.median(weights[kept] / plain[kept]))
    if not GROWN[0] < grown < GROWN[1]:
        return None
    exact = 1 - 1 / grown
    share = round(exact, 2) if abs(round(exact, 2) - exact) < ROUND else exact
    spread = SPREAD * float(np.sqrt(share * (1 - share) / kept.size))
    return share if abs(float(1 - kept.mean()) - share) <= spread else None


HALF = 0.5
"""A weight solved from the output was kept where it is more than half of what it should be."""

SINGULAR = 1e-3
"""Values must differ so much: below this share of the largest singular value, noise decides."""


def solved_weights(output: Array, v: Array) -> Array | None:
    """The weights A of O = A V, or None where V does not determine them.

    >>> solved_weights(np.array([[3.0, 4.0]]), np.eye(2))
    array([[3., 4.]])
    """
    if not (np.isfinite(output).all() and np.isfinite(v).all()):
        return None
    sizes = np.linalg.svd(v, compute_uv=False)
    if v.shape[-2] > v.shape[-1] or (sizes[..., -1] < SINGULAR * sizes[..., 0]).any():
        return None
    return np.asarray(output @ np.linalg.pinv(v))


def _dropout_by_output(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """Dropout seen from the output alone; positions are never in the values that are rotated."""
    if not evidence.has_all(setup, OUTPUT) or "kept" in setup.inputs:
        return
    v = setup.placed().inputs["v"][:, setup.key_heads]
    if v.shape[-2] > v.shape[-1]:
        return
    weights = solved_weights(evidence.observed[OUTPUT], v)
    if weights is None:
        return
    expected = stages(setup, all_of(setup.shape), [WEIGHTS])[WEIGHTS]
    kept = weights > HALF * expected
    share = share_dropped(np.where(kept, weights, 0), expected)
    if share is not None:
        changed = setup.with_how(dropout=share).with_inputs(kept=kept)
        yield changed.with_detail(f"share {share:.4g}")


def _dropout(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    if not evidence.observed.keys() & {DROPPED, WEIGHTS}:
        yield from _dropout_by_output(setup, evidence)
    stage = DROPPED if DROPPED in evidence.observed else WEIGHTS
    if stage not in evidence.observed or "kept" in setup.inputs:
        return
    observed = evidence.observed[stage]
    share = share_dropped(observed, evidence.expected[stage])
    if share is not None and observed.shape == setup.shape:
        changed = setup.with_how(dropout=share).with_inputs(kept=observed != 0)
        changed = replace(changed, relabel={**setup.relabel, WEIGHTS: DROPPED})
        yield changed.with_detail(f"share {share:.4g}")


DROPOUT: tuple[Bug, ...] = (
    bug(
        "dropout left on",
        _dropout,
        "dropout",
        "some weights are 0 and the rest are larger by 1/(1−p)",
        "pytorch#124464, timm#1978, torchtune#1791",
    ),
)
