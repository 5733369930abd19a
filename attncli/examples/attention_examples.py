"""Attention as an example asks for it, and recomputed from a stage somebody printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.attention.attend import Projections, attend, attend_heads, multi_head_attention
from attncli.attention.functional import weighted_sum
from attncli.attention.heads import share_heads
from attncli.attention.positions import add_positions, sinusoidal
from attncli.convention import Convention
from attncli.errors import AttncliError, InputError
from attncli.examples.nodes import node
from attncli.trace import Stage, Trace

Inputs = Mapping[str, Any]
Array = npt.NDArray[Any]

MOST_CELLS = 1 << 22
"""Most scores, and most numbers of an output."""


def convention_of(inputs: Inputs) -> Convention:
    """The convention an example asks for: its own changes to the default.

    Raises InputError for a field or value that does not exist.
    """
    given = dict(inputs.get("convention", {}))
    if given.get("mask_value") == "-Infinity":
        given["mask_value"] = -np.inf
    try:
        return Convention.from_mapping(given)
    except AttncliError as problem:
        raise InputError(problem.message, problem.hint) from problem
    except (TypeError, ValueError, OverflowError) as problem:  # of a type no field has
        raise InputError("a value is of a type that no field has") from problem


def read_convention(found: object, spot: str) -> dict[str, Any]:
    """The changes to the default convention; InputError for what is none."""
    given = node(found, spot).fields
    try:
        convention_of({"convention": given})
    except InputError as problem:
        raise InputError(f"{spot}: {problem.message}", problem.hint) from problem
    return given


def attention(inputs: Inputs) -> Trace:
    """`attend` of q, k, v; with n_heads their last axis is split into heads."""
    q, k, v = (inputs[name] for name in "qkv")
    names = {"query_labels": inputs.get("queries"), "key_labels": inputs.get("keys")}
    how: dict[str, Any] = {"mask": inputs.get("mask"), "convention": convention_of(inputs), **names}
    n_heads = inputs.get("n_heads")
    _check_cells(q, k, v, n_heads or 1)
    if n_heads is None:
        return attend(q, k, v, **how)
    return attend_heads(q, k, v, n_heads=n_heads, **how)


def self_attention(inputs: Inputs) -> Trace:
    """Rows of x, with positions if asked for, that attend to each other; identity unless weights
    are given. Its own output projection and residual come last."""
    x, steps = inputs["x"].matrix, []
    if inputs.get("positions", "none") != "none":
        table = sinusoidal(*x.shape, exponent=inputs["positions"])
        before = add_positions(x, table, tokens=inputs["x"].words)
        x, steps = before["input"].value, list(before.steps)
    else:
        names = {"token": inputs["x"].words} if inputs["x"].words else {}
        steps = [Stage("input", "X", "as given", x, ("token", "d_model"), names)]
    _check_cells(x, x, x, inputs.get("n_heads", 1))
    trace = _attended(x, inputs)
    steps += trace.steps
    if inputs.get("residual"):
        steps.append(_residual(x, trace.steps[-1]))
    return Trace("Self-attention", tuple(steps), trace.convention)


def _attended(x: Array, inputs: Inputs) -> Trace:
    labels = inputs["x"].words or None
    how: dict[str, Any] = {"query_labels": labels, "key_labels": labels}
    how |= {"mask": inputs.get("mask"), "convention": convention_of(inputs)}
    given = {name: inputs[name] for name in ("w_q", "w_k", "w_v", "w_o") if name in inputs}
    if not given and "n_heads" not in inputs:
        return attend(x, x, x, **how)
    eye = np.eye(x.shape[1])
    weights = Projections(*[given.get(name, eye) for name in ("w_q", "w_k", "w_v")])
    trace = multi_head_attention(
        x, replace(weights, w_o=given.get("w_o")), n_heads=inputs.get("n_heads", 1), **how
    )
    names = {"x", *(f"w_{name}" for name in "qkvo")} - given.keys()
    return trace.keep({name for name in trace if name not in names})


def _residual(x: Array, last: Stage | Trace) -> Stage:
    if not isinstance(last, Stage) or last.value.shape != x.shape:
        raise InputError("a residual needs an output as wide as x", "give w_o [d_v, d_model]")
    formula = f"R = {last.symbol} + X"
    return Stage("residual", "R", formula, last.value + x, last.axes, last.labels)


def _check_cells(q: Array, k: Array, v: Array, n_heads: int) -> None:
    if not all(2 <= x.ndim <= 4 for x in (q, k, v)) or n_heads < 1:
        return  # what is wrong with these, attend says
    rows = int(np.prod(q.shape[:-1]))
    cells = rows * max(n_heads * k.shape[-2], v.shape[-1])
    if cells > MOST_CELLS:
        raise InputError(f"{cells} scores or outputs are too many", f"{MOST_CELLS} is the most")


def from_stage(inputs: Inputs, trace: Trace, given: Mapping[str, Array], wanted: str) -> Any:
    """A later stage, computed from somebody's scores, scaled scores or weights instead of ours.

    Scores are attended with identity keys: S I = S, so everything after them is `attend`'s own.
    None where it cannot be computed so.
    """
    order = list(trace)
    starts = [name for name in ("weights", "scaled", "scores") if name in given]
    starts = [name for name in starts if order.index(name) < order.index(wanted)]
    if not starts or trace.convention is None or wanted in ("concat", "projected", "residual"):
        return None
    how, v = trace.convention, trace["v"].value
    start, value = starts[0], given[starts[0]]
    if start == "weights":
        heads = value.shape[-3] if value.ndim > 2 else 1
        shared = share_heads(v, heads, how.head_order)
        return weighted_sum(value, shared) if (wanted, how.dropout) == ("output", 0) else None
    factor: Any = "none" if start == "scaled" else how.scale_factor(trace["q"].value.shape[-1])
    eye = np.broadcast_to(np.eye(v.shape[-2]), (*v.shape[:-1], v.shape[-2]))
    mask = trace["mask"].value if "mask" in trace else None
    how = replace(how, scale=factor, causal=False, window=None)
    again = attend(value, eye, v, mask=mask, convention=how)
    return again[wanted].value if wanted in again else None
