"""What was observed: somebody else's arrays, whatever they are made of, and their shapes.

An array may be a subset of the heads and rows; one of a wrong shape may be right after a change of
its layout, such as splitting its heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.heads import heads_first, shape_text, split_heads
from attncli.attention.inputs import GAINS, cast_input
from attncli.attention.masks import is_masked, meaning
from attncli.attention.shapes import as_numbers, in_order, type_name
from attncli.attention.tiles import tile_bounds
from attncli.convention import DType, Layout
from attncli.errors import ConventionError, ShapeError, StageError, nearest
from attncli.stages import (
    BEFORE_SOFTMAX,
    CONCAT,
    GIVEN_GRADIENT,
    GRADIENTS,
    LEFT_OUT,
    LSE,
    MAPS,
    MEAN_WEIGHTS,
    OF_TILES,
    OF_X,
    OUTPUT,
    PROJECTED,
    TILE,
    gradient_of,
)
from attncli.tolerance.number_types import EPS, fitting_type, narrower, sizes
from attncli.tolerance.rule import distance
from attncli.tolerance.run import Indices, Subset, all_of, computes, mask_of, steps_of
from attncli.tolerance.setup import Setup
from attncli.tolerance.shapes import fitted
from attncli.tolerance.spans import D_BIAS, OF_ALL_HEADS, axes_of, is_whole, span_of

Pick = int | slice | Sequence[int] | None


@dataclass(frozen=True, eq=False)
class Observation:
    """Observed stages over a subset of batch items, heads and rows.

    stages  name → array [batch, head, row, …], in the order of the computation
    dtype   their narrowest number type, or that before they were widened
    notes   what was assumed of them
    """

    stages: Mapping[str, Array]
    subset: Subset
    dtype: DType
    notes: tuple[str, ...] = ()


def to_numpy(x: Any, name: str = "observed") -> tuple[Array, DType]:
    """x as an array of numbers and the type it came in: anything NumPy or DLPack takes.

    Raises ShapeError for an array of anything but real numbers.

    >>> to_numpy([[1, 2]])[1]
    'float64'
    """
    kind = type_name(x)
    return as_numbers(x, name), next((name for name in EPS if name == kind), "float64")


def observe(
    observed: Mapping[str, Any],
    setup: Setup,
    *,
    rows: Pick = None,
    heads: Pick = None,
    layout: Layout | None = None,
) -> Observation:
    """The observed stages, their shapes checked against the setup.

    layout  the order of the axes of the output: the other stages have their heads first
    Raises StageError for an unknown stage, WrongShapeError for a shape that does not fit.
    """
    whole = all_of(setup.shape)
    head, row = _picked(heads, whole.head, "heads"), _picked(rows, whole.row, "rows")
    subset = whole._replace(head=head, row=row)
    names = _in_order(observed, setup)
    if LSE in names and setup.convention.softmax_over == "queries":
        raise StageError("this attention has no lse", LEFT_OUT[LSE])
    _check_gradients(names, setup, is_all=rows is None and heads is None)
    if heads is not None and (joint := [name for name in names if name in OF_ALL_HEADS]):
        raise StageError(f"{joint[0]} is made of all heads", "leave out heads (--head)")
    arrays: dict[str, Array] = {}
    types: list[DType] = []
    notes: list[str] = []
    for name in names:
        array, dtype = to_numpy(observed[name], name)
        if axes_of(name)[-1] in ("d_k", "d_v"):  # it has a layout
            is_of_keys = axes_of(name)[1] == "kv_head"
            sizes = setup.inputs["k"].shape[1:3] if is_of_keys else subset.sizes[1:]
            array = heads_to_front(array, layout, sizes)
        if name == CONCAT and (setup.ndim < 3 or array.ndim != setup.ndim - 1):
            raise ShapeError("concat was observed, but q has no heads", "name the stage output")
        if name == CONCAT:
            array = split_heads(array, setup.shape[1])
        stage = OUTPUT if name == CONCAT else name
        arrays[stage] = fitted(stage, array, dtype, setup, subset)
        types.append(fitting_type(arrays[stage], dtype))
        if types[-1] != dtype:
            notes.append(f"every number of {name} fits {types[-1]}, so it is judged as such")
    return Observation(arrays, subset, narrower(*types), tuple(notes))


def _check_gradients(names: Sequence[str], setup: Setup, *, is_all: bool) -> None:
    """Raises where gradients were observed that cannot be compared."""
    gradients = [name for name in names if name in GRADIENTS]
    if not gradients:
        return
    projected = {} if setup.projected is None else setup.projected.values
    for name in gradients:
        if name in OF_X and name not in {gradient_of(x) for x in projected}:
            message = f"{name} is of {name[2:]}, which is not given"
            raise StageError(message, "give x and its weights")
    if GIVEN_GRADIENT not in setup.inputs:
        message = f"{gradients[0]} follows from the gradient of the output, which is not given"
        raise ConventionError(message, "add d_output (--d-output)")
    if not is_all and is_whole(gradients, setup.convention.softmax_over):
        whole = next(x for x in gradients if span_of(x, setup.convention.softmax_over) != "rows")
        message = f"{whole} is a sum over all queries, so it is compared whole"
        raise ConventionError(message, "leave out rows and heads (--rows, --head)")
    for name in gradients:
        if not computes(setup, [name]):
            lacks = {"d_sinks": "sinks", D_BIAS: "mask of numbers that are added"}
            lacks |= {gradient_of(gain): f"norm with {gain}" for gain in GAINS.values()}
            lack = lacks.get(name, name)
            raise StageError(f"this attention has no {name}", f"it has no {lack}")


def heads_to_front(array: Array, layout: Layout | None, sizes: Sequence[int]) -> Array:
    """An output of a layout with its heads before its tokens; one that has them so, as it is.

    sizes  how many heads and rows were observed

    >>> heads_to_front(np.zeros((5, 3, 7)), "shd", (3, 5)).shape
    (3, 5, 7)
    """
    if layout is None or not layout.endswith("shd") or array.ndim != len(layout):
        return array
    turned = np.swapaxes(array, -3, -2)
    is_in_front = array.shape[-3:-1] == tuple(sizes) != turned.shape[-3:-1]
    return array if is_in_front else turned


def differing_inputs(
    observed: Mapping[str, Any], arrays: Mapping[str, Any], setup: Setup, layout: Layout | None
) -> dict[str, str]:
    """The observed inputs that are not the given ones, and how each differs.

    >>> from attncli.tolerance.setup import setup_of
    >>> q, other = [[1.0]], [[2.0]]
    >>> differing_inputs({"q": other}, {"q": q}, setup_of(q, q, q), None)
    {'q': 'the observed q is not the given one: they differ by up to 1'}
    """
    sentences = {}
    for name in (name for name in GIVEN if observed.get(name) is not None):
        array, dtype = to_numpy(observed[name], name)
        if layout and name in TURNED and array.ndim == len(layout):
            array = heads_first(array, layout)
        if name == "mask":
            array = _additive(array, setup)
        inputs = [*_allowed(name, arrays, setup, layout)]
        if setup.convention.dtype != "float64" and name not in EXACT:
            inputs += [cast_input(x, setup.convention) for x in inputs]
        differences = [_difference(name, array, x, dtype) for x in inputs]
        if not differences:
            sentences[name] = f"the observed numbers have a {name}, and none is given"
        elif all(differences):
            sentences[name] = f"the observed {name} is not the given one: {differences[0]}"
    return sentences


GIVEN = ("q", "k", "v", "mask", "past_k", "past_v", "kv_len", "sinks", gradient_of(OUTPUT))
"""The inputs of an attention, as `check` and `attend` name them."""
TURNED = ("q", "k", "v", "past_k", "past_v", gradient_of(OUTPUT))
"""Those of them that have a layout."""
EXACT = ("mask", "kv_len")
"""Those that are never rounded to the number type."""


def _allowed(
    name: str, inputs: Mapping[str, Any], setup: Setup, layout: Layout | None
) -> Iterator[Array]:
    """What an observed input may be: the given one, or what it is together with others."""
    if name == "mask":
        for mask in (setup.inputs.get("given_mask"), mask_of(setup, np.arange(setup.shape[2]))):
            if mask is not None:
                yield _additive(mask, setup)
        if not setup.may_mask():
            yield np.zeros((1, 1))
    elif inputs.get(name) is not None:
        x = in_order(inputs[name], name, layout if name in TURNED else None)
        yield x
        if name in ("k", "v") and inputs.get(f"past_{name}") is not None:
            past = in_order(inputs[f"past_{name}"], name, layout)
            yield np.concatenate([past, x], axis=-2)
    elif name == "kv_len":
        yield np.array([setup.shape[3]])


def _additive(mask: Array, setup: Setup) -> Array:
    """A mask as numbers to add, −∞ where it lets nothing attend; 0 and 1 are true and false."""
    convention, is_binary = setup.convention, np.isin(mask, (0, 1)).all() and mask.any()
    mask = mask.astype(bool) if is_binary and convention.mask_numbers != "add" else mask
    mask = meaning(mask, convention.mask_means, convention.mask_numbers)
    mask = np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else mask
    return np.where(is_masked(mask), -np.inf, mask)


def _difference(name: str, array: Array, allowed: Array, dtype: DType) -> str:
    """How an observed input differs from an allowed one; "" where it does not."""
    if name in EXACT:
        with suppress(ValueError):
            array, allowed = np.broadcast_arrays(array, allowed)
    if array.shape != allowed.shape:
        return f"they are {shape_text(array) or 'one number'} and {shape_text(allowed)}"
    array, allowed = array.astype(np.float64), allowed.astype(np.float64)
    apart = distance(array, allowed)
    size = np.where(np.isfinite(apart), sizes(allowed), 0.0)
    if not (apart > EPS[fitting_type(array, dtype)] * size).any():
        return ""
    return f"they differ by up to {float(apart.max()):.4g}"


def _in_order(observed: Mapping[str, Any], setup: Setup) -> list[str]:
    stage_names = (*MAPS, MEAN_WEIGHTS, LSE, OUTPUT, CONCAT, PROJECTED, *GRADIENTS)
    there = ", ".join(stage_names)
    if setup.tiles:
        numbers = range(1, len(tile_bounds(setup.shape[3], setup.tiles)))
        planned = [step.name for step in steps_of(setup)]
        tile_stages = (*BEFORE_SOFTMAX, *OF_TILES, LSE)
        each = [(f"{TILE}.{number}.{name}", name) for number in numbers for name in tile_stages]
        stage_names = (
            *(x for x, name in each if x in planned or name in BEFORE_SOFTMAX),
            OUTPUT,
            LSE,
        )
        there = f"{OUTPUT}, {LSE}, and of tile.1 to tile.{numbers[-1]} {', '.join(tile_stages)}"
    names = [name for name in stage_names if name in observed]
    if unknown := sorted(set(observed) - set(stage_names) - set(GIVEN)):
        hint = f"there are {there}" if setup.tiles else nearest(unknown[0], stage_names)
        raise StageError(f"there is no stage {unknown[0]!r} to check", hint)
    if not names:
        raise StageError("no stage was observed", f"name one of {there}")
    if PROJECTED in names and "w_o" not in setup.inputs:
        message = "projected follows from the output by w_o, which is not given"
        raise StageError(message, "give w_o, or x and its weights")
    return names


def _picked(pick: Pick, axis: Indices, noun: str) -> Indices:
    if pick is None:
        return axis
    try:
        return np.atleast_1d(axis[pick if isinstance(pick, slice) else np.asarray(pick, np.intp)])
    except (IndexError, ValueError):
        hint = f"there are {len(axis)}, counted from 0"
        raise ShapeError(f"{noun} {pick} do not all exist", hint) from None
