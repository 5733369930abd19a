"""Bugs of the projections: q, k and v made of x by other weights. Only where x and those are given.

Seen from q, k and v alone, nothing tells them from other inputs. They are tried singly: to project
x anew with every other bug would take longer than all others together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from attncli.arrays import Array
from attncli.attention.heads import four_axes
from attncli.check.bugs.bug import Bug, Evidence, bug
from attncli.check.setup import Setup

MATRICES, BIASES = ("w_q", "w_k", "w_v"), ("b_q", "b_k", "b_v")


def _remade(setup: Setup, changed: Mapping[str, Array]) -> Setup:
    """The setup with q, k and v as these weights make them, after the cache that it has."""
    assert setup.projected is not None  # noqa: S101 - or there are no weights to change
    made = {name: four_axes(x) for name, x in setup.projected.made_by(changed).items()}
    for name in made.keys() & {"k", "v"}:
        cached = setup.inputs[name][:, :, : setup.n_past]
        made[name] = np.concatenate([cached, made[name]], axis=2)
    return setup.with_inputs(**{name: x.astype(np.float64) for name, x in made.items()})


def _each_and_all(setup: Setup, changed: Mapping[str, Array]) -> Iterator[Setup]:
    """The setup with each of these weights by itself and, of several, with all of them."""
    for name, x in changed.items():
        yield _remade(setup, {name: x}).with_detail(name)
    if len(changed) > 1:
        yield _remade(setup, changed).with_detail(" and ".join(changed))


def _transposed(setup: Setup, _: Evidence) -> Iterator[Setup]:
    values = setup.projected.values if setup.projected is not None else {}
    given = {name: values[name] for name in MATRICES if name in values}
    yield from _each_and_all(setup, {n: w.T for n, w in given.items() if w.shape == w.T.shape})


def _biases_left_out(setup: Setup, _: Evidence) -> Iterator[Setup]:
    values = setup.projected.values if setup.projected is not None else {}
    yield from _each_and_all(setup, {n: np.zeros_like(values[n]) for n in BIASES if n in values})


PROJECTIONS: tuple[Bug, ...] = (
    bug(
        "weights of a projection transposed",
        _transposed,
        "inputs projections",
        "x is multiplied by Wᵀ where W is due, or the reverse: PyTorch's Linear keeps [out, in]",
        pairs=False,
    ),
    bug(
        "bias of a projection left out",
        _biases_left_out,
        "inputs projections",
        "the bias that belongs to the weights is not added",
        pairs=False,
    ),
)
