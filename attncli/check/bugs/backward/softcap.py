"""Bugs of gradients in the softcap: its derivative is 1 − (C / c)²."""

from __future__ import annotations

from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention import gradients as g
from attncli.attention.run import Step
from attncli.check.bugs.backward.edits import Given, Plan, edited, instead, named, replaced, row
from attncli.check.bugs.bug import Bug
from attncli.check.setup import Edit


def _softcap(change: Any) -> Edit:
    return instead(g.d_softcap, change)


def _cap_of_x(given: Given) -> Array:
    return np.asarray(given["d"] * (1 - np.square(given["b"])))


def _cap_once(given: Given) -> Array:
    return np.asarray(given["d"] * (1 - np.abs(given["b"]) / given["cap"]))


def _cap_signed(given: Given) -> Array:
    return np.asarray(given["d"] * (1 - given["b"] / given["cap"]))


def _cap_twice(given: Given) -> Array:
    return np.asarray(given["d"] * np.square(1 - np.square(given["b"] / given["cap"])))


def _cap_of_capped(given: Given) -> Array:
    return np.asarray(given["d"] * (1 - np.square(np.tanh(given["b"] / given["cap"]))))


def _of_scores(step: Step, plan: Plan) -> Step | None:
    """tanh of what was capped, without the cap beneath it."""
    capped = named(plan, step.reads["b"])

    def compute(d: Array, b: Array, cap: float) -> Array:
        return np.asarray(d * (1 - np.square(np.tanh(b))))

    return capped and step._replace(compute=compute, reads={**step.reads, "b": capped.reads["x"]})


SOFTCAP: tuple[Bug, ...] = (
    row(
        "softcap's derivative left out",
        edited(("", [_softcap(lambda given: given["d"])])),
        "the gradient of c · tanh(x / c) is 1 − tanh²(x / c), not 1",
        "flash-attention#1033, tokamax#1121",
        touches="gradients softcap",
    ),
    row(
        "softcap's derivative of C, not C/c",
        edited(("", [_softcap(_cap_of_x)])),
        "the gradient is 1 − (C / c)², with the capped score over the cap",
        "flash-attention#1033",
        touches="gradients softcap",
    ),
    row(
        "softcap's derivative of the score before it",
        edited(("", [replaced(g.d_softcap, _of_scores)])),
        "tanh is taken of the score without the cap beneath it",
        "meganeura#60",
        touches="gradients softcap",
    ),
    row(
        "softcap's derivative without its square",
        edited(("", [_softcap(_cap_signed)]), ("of its size", [_softcap(_cap_once)])),
        "the gradient is 1 − (C / c)², not 1 − C / c",
        "TorchCode#10",
        touches="gradients softcap",
    ),
    row(
        "softcap's derivative with tanh taken twice",
        edited(("", [_softcap(_cap_of_capped)])),
        "C / c is tanh(Z / c) already: the gradient is 1 − (C / c)², not 1 − tanh²(C / c)",
        "tokamax#1121",
        touches="gradients softcap",
    ),
    row(
        "softcap's derivative applied twice",
        edited(("", [_softcap(_cap_twice)])),
        "the gradient has the factor 1 − (C / c)² twice",
        "tokamax#1121",
        touches="gradients softcap",
    ),
)
