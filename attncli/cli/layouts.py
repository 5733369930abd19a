"""Arrays as they were read in the form that `attend` takes: the order of axes, heads, the mask."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.heads import heads_first, shape_text, split_heads
from attncli.attention.masks import checked_mask
from attncli.cli.options import ConventionFlags, InputFlags
from attncli.cli.sources import Files
from attncli.convention import Convention
from attncli.errors import ConventionError, ShapeError
from attncli.files.contents import FileContents
from attncli.files.roles import D_OUTPUT
from attncli.stages import QKV

CACHE = ("past_k", "past_v")


def complete(
    arrays: dict[str, Array],
    main: FileContents,
    inputs: InputFlags,
    notes: list[str],
    names: Collection[str] = QKV,
) -> None:
    """K = Q and V = K where these names ask for them and there are none; heads as flags say."""
    for role, instead in (("k", "q"), ("v", "k")):
        if role in names and role not in arrays and instead in arrays:
            arrays[role] = arrays[instead]
            notes.append(f"{main.origin} has no {role}, so {role.upper()} = {instead.upper()}")
    if (inputs.heads or inputs.kv_heads or inputs.layout) and "q" in arrays:
        arrange(arrays, inputs)


def arrange(arrays: dict[str, Array], inputs: InputFlags) -> None:
    """Brings q, k, v and the cache into the order (batch, head, token, d), split into heads."""
    n_heads, shared, layout = inputs.heads, inputs.kv_heads or inputs.heads, inputs.layout
    if inputs.kv_heads is not None and n_heads is None:
        raise ConventionError("--kv-heads is given without --heads", "give both")
    if n_heads and shared and n_heads % shared:
        message = f"{n_heads} query heads cannot evenly share {shared} key heads"
        raise ConventionError(message, "--heads must be a multiple of --kv-heads")
    if n_heads and layout not in (None, "bsd"):
        message = f"--heads splits (tokens, d) or bsd, but --layout is {layout}"
        raise ConventionError(message, "leave one of the two out")
    n_axes = arrays["q"].ndim
    for name in ("q", "k", "v", *CACHE, D_OUTPUT):
        may_be_split = name in (*CACHE, D_OUTPUT)
        if name in arrays and not (may_be_split and arrays[name].ndim > n_axes):
            heads = n_heads if name in ("q", D_OUTPUT) else shared
            try:
                arrays[name] = in_heads(arrays[name], layout, heads)
            except ShapeError as error:
                raise ShapeError(f"{name}: {error.message}", error.hint) from None


def in_heads(array: Array, layout: Any, n_heads: int | None) -> Array:
    """An array of several tokens with its heads before them, as the flags say it has them."""
    if layout is not None:
        return heads_first(array, layout, n_heads)
    if array.ndim != 2:
        message = f"--heads splits (tokens, d) or bsd, this is {shape_text(array)}"
        raise ShapeError(message, "if it is (batch, tokens, d), add --layout bsd")
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
        means = choices.fields.get("mask_means", fields.get("mask_means"))
        name = f"the mask of {files.get('mask', main).origin}"
        is_said = "mask_means" in choices.fields and "mask_numbers" not in choices.fields
        is_truth = is_said and np.isin(arrays["mask"], (0, 1)).all()
        if convention.mask_numbers is None or is_truth:
            arrays["mask"] = checked_mask(arrays["mask"], means, name, "--mask-means ")
    return convention
