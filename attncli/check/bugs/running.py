"""Bugs of a walk through tiles of keys: in the running maximum, sum and values themselves.

They are tried where stages of tiles were observed (check(tiles=…)); what they make of the output
alone is in kernels.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention import tiles
from attncli.attention.parts import by_sum
from attncli.attention.run import Step
from attncli.check.bugs.bug import Bug, Evidence, bug
from attncli.check.setup import Setup
from attncli.stages import TILE

TOUCHES = "tiles"
"""What only these bugs touch."""


def _with(compute: Callable[..., Array], instead: Callable[..., Array]) -> Any:
    """The change of every step of a function."""

    def edit(steps: list[Step]) -> list[Step]:
        return [s._replace(compute=instead) if s.compute is compute else s for s in steps]

    def change(setup: Setup, _: Evidence) -> Iterator[Setup]:
        if setup.tiles:
            yield setup.with_edit(edit)

    return change


def own_max(x: Array, before: Array | None = None, **more: Any) -> Array:
    """The largest score of the tile alone, whatever was before."""
    return tiles.running_max(x, None, **more)


def sum_not_rescaled(p: Array, before: Array | None = None, **_: Any) -> Array:
    """l before + Σ p."""
    return tiles.running_sum(p, before, None if before is None else np.ones_like(before))


def values_not_rescaled(p: Array, v: Array, before: Array | None = None, **more: Any) -> Array:
    """acc before + p V."""
    more.pop("alpha", None)
    one = None if before is None else np.ones_like(before[..., 0])
    return tiles.running_values(p, v, before, one, **more)


def values_normalised(total: Array, **more: Any) -> Array:
    """acc / l, which the next tile goes on with."""
    return by_sum(tiles.running_values(**more), total)


def _normalised(steps: list[Step]) -> list[Step]:
    def changed(step: Step) -> Step:
        if step.compute is not tiles.running_values:
            return step
        total = f"{step.name.removesuffix('acc')}l"
        return step._replace(compute=values_normalised, reads={**step.reads, "total": total})

    return [changed(step) for step in steps]


def _normalised_per_tile(setup: Setup, _: Evidence) -> Iterator[Setup]:
    if setup.tiles:
        yield setup.with_edit(_normalised)


def padded_max(x: Array, **more: Any) -> Array:
    """The maximum with a score of 0 beside those of the tile."""
    return np.asarray(np.maximum(tiles.running_max(x, **more), x.dtype.type(0)))


def padded_sum(p: Array, m: Array, *, n: int, **more: Any) -> Array:
    """The sum with n more keys whose score is 0."""
    return np.asarray(tiles.running_sum(p, **more) + n * np.exp(-m))


def _padding_attended(setup: Setup, _: Evidence) -> Iterator[Setup]:
    n = setup.tiles and -setup.shape[3] % setup.tiles
    if not n:
        return
    last = f"{TILE}.{-(-setup.shape[3] // setup.tiles)}."

    def edit(steps: list[Step]) -> list[Step]:
        found = []
        for step in steps:
            if step.name == f"{last}m":
                step = step._replace(compute=padded_max)  # noqa: PLW2901
            elif step.name == f"{last}l":
                reads = {**step.reads, "m": f"{last}m"}
                step = step._replace(compute=partial(padded_sum, n=n), reads=reads)  # noqa: PLW2901
            found.append(step)
        return found

    yield setup.with_edit(edit).with_detail(f"{n} of them, in the last tile of {setup.tiles} keys")


RUNNING: tuple[Bug, ...] = (
    bug(
        "m is the tile's own maximum",
        _with(tiles.running_max, own_max),
        TOUCHES,
        "the maximum of a tile replaces the running one: right until exp(old − new) overflows",
        pairs=False,
    ),
    bug(
        "l not rescaled",
        _with(tiles.running_sum, sum_not_rescaled),
        TOUCHES,
        "the running sum is not multiplied by exp(old maximum − new maximum)",
        pairs=False,
    ),
    bug(
        "acc not rescaled",
        _with(tiles.running_values, values_not_rescaled),
        TOUCHES,
        "the running values are not multiplied by exp(old maximum − new maximum)",
        pairs=False,
    ),
    bug(
        "acc normalised in every tile",
        _normalised_per_tile,
        TOUCHES,
        "the running values are divided by the sum after each tile, not once at the end",
        pairs=False,
    ),
    bug(
        "padding of the last tile attended",
        _padding_attended,
        TOUCHES,
        "the last tile is filled up with keys and values of 0, whose scores of 0 are not masked",
        "jax#27224, flashinfer#5090",
        pairs=False,
    ),
)
"""Bugs of m, l and acc."""
