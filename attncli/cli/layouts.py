"""Arrays as they were read in the form that `attend` takes: the order of axes, heads, the mask."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.heads import heads_first, shape_text, split_heads
from attncli.attention.masks import checked_mask
from attncli.cli.options import ConventionFlags, InputFlags
from attncli.cli.sources import Files
from attncli.convention import Convention
from attncli.errors import ConventionError, ShapeError
from attncli.files.roles import ATTENDED, D_OUTPUT, Role, kv_len_of, name_of
from attncli.stages import QKV

if TYPE_CHECKING:
    from attncli.cli.inputs import AttentionInputs

CACHE = ("past_k", "past_v")


def arrange(arrays: dict[str, Array], inputs: InputFlags) -> None:
    """Brings q, k, v and the cache into the order (batch, head, token, d), split into heads."""
    n_heads, shared, layout = inputs.heads, inputs.kv_heads or inputs.heads, inputs.layout
    if inputs.kv_heads is not None and n_heads is None:
        raise ConventionError("--kv-heads is given without --heads", "give both")
    if n_heads and shared and n_heads % shared:
        what = f"{n_heads} query heads cannot evenly share {shared} key heads"
        raise ConventionError(what, "--heads must be a multiple of --kv-heads")
    if n_heads and layout not in (None, "bsd"):
        what = f"--heads splits (tokens, d) or bsd, but --layout is {layout}"
        raise ConventionError(what, "leave one of the two out")
    n_axes = arrays["q"].ndim
    for name in ("q", "k", "v", *CACHE, D_OUTPUT):
        may_be_split = name in (*CACHE, D_OUTPUT)
        if name in arrays and not (may_be_split and arrays[name].ndim > n_axes):
            heads = n_heads if name in ("q", D_OUTPUT) else shared
            try:
                arrays[name] = in_heads(arrays[name], layout, heads)
            except ShapeError as error:
                raise ShapeError(f"{name}: {error.message}", error.hint) from None


def observed_inputs(given: AttentionInputs) -> dict[str, Any]:
    """The inputs that the observed file brings itself, arranged as the given ones are."""
    loaded, inputs = given.observed, given.flags
    if loaded is None or loaded.member in loaded.arrays:
        return {}
    lengths = kv_len_of(loaded)
    arrays: dict[str, Any] = {} if lengths is None else {"kv_len": lengths}
    for role in ATTENDED:
        name = name_of(loaded, role)
        if name is None:
            continue
        arrays[role] = loaded.arrays[name]
        is_split = role in CACHE and arrays[role].ndim == len(given.inputs.sizes.scores)
        if role in (*QKV, *CACHE) and not is_split:
            arrays[role] = as_given(arrays[role], role, inputs)
    return arrays


def as_given(array: Array, role: Role, inputs: InputFlags) -> Array:
    """An observed array in the layout and heads of the given ones, where it has their axes."""
    heads = inputs.heads if role == "q" else inputs.kv_heads or inputs.heads
    with suppress(ShapeError):  # in heads already, or of other axes: then it differs
        if inputs.layout or inputs.heads:
            return in_heads(array, inputs.layout, heads)
    return array


def in_heads(array: Array, layout: Any, n_heads: int | None) -> Array:
    """An array of several tokens with its heads before them, as the flags say it has them."""
    if layout is not None:
        return heads_first(array, layout, n_heads)
    if array.ndim != 2:
        what = f"--heads splits (tokens, d) or bsd, this is {shape_text(array)}"
        raise ShapeError(what, "if it is (batch, tokens, d), add --layout bsd")
    return split_heads(array, n_heads or 1)


def with_mask(
    arrays: dict[str, Array],
    files: Files,
    choices: ConventionFlags,
    fields: Mapping[str, Any],
    convention: Convention,
) -> Convention:
    """Brings the mask into its form, once its numbers have a meaning; the convention then."""
    main = files["q"]
    if main.trace is not None and "mask" not in files:
        arrays["mask"] = arrays["mask"].astype(np.float64)
        if arrays["mask"].any() and np.isin(arrays["mask"], (0, 1)).all():
            return replace(convention, mask_numbers="add")
    else:
        means = choices.given.get("mask_means", fields.get("mask_means"))
        name = f"the mask of {files.get('mask', main).origin}"
        is_said = "mask_means" in choices.given and "mask_numbers" not in choices.given
        is_truth = is_said and np.isin(arrays["mask"], (0, 1)).all()
        if convention.mask_numbers is None or is_truth:
            arrays["mask"] = checked_mask(arrays["mask"], means, name, "--mask-means ")
    return convention
