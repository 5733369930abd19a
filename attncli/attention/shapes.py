"""Checks of the shapes of q, k, v, masks and caches, and their error messages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.heads import shape_text
from attncli.convention import Convention
from attncli.errors import ConventionError, ShapeError

AXES = ("batch", "head", "query", "key")


def as_numbers(x: npt.ArrayLike, name: str) -> Array:
    """x as an array of numbers; ShapeError where it is ragged or holds something else."""
    try:
        array = np.asarray(x)
    except ValueError:
        raise ShapeError(f"{name} is ragged", "every row needs the same length") from None
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    if array.dtype.kind not in "fiub":
        raise ShapeError(f"{name} holds {array.dtype} entries", "it must hold real numbers")
    return array


def with_past(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    past_k: npt.ArrayLike | None,
    past_v: npt.ArrayLike | None,
) -> tuple[dict[str, Array], int]:
    """q, k, v by name, the cache put before k and v, and its length; checked to fit."""
    given = {name: as_numbers(x, name) for name, x in (("q", q), ("k", k), ("v", v))}
    new = given["k"].shape[-2:-1]
    for name, past in (("k", past_k), ("v", past_v)):
        if past is not None:
            before, x = as_numbers(past, f"past_{name}"), given[name]
            fits = before.ndim == x.ndim >= 2 and before.shape[:-2] == x.shape[:-2]
            if not fits or before.shape[-1] != x.shape[-1]:
                raise ShapeError(
                    f"past_{name} ({shape_text(before)}) cannot be put before {name} "
                    f"({shape_text(x)})",
                    "only the number of tokens may differ",
                )
            given[name] = np.concatenate([before, x], axis=-2)
    check_qkv(**given)
    return given, given["k"].shape[-2] - new[0]


def check_qkv(q: Array, k: Array, v: Array) -> None:
    """ShapeError unless q [..., n_q, d_k], k [..., n_k, d_k] and v [..., n_k, d_v] fit."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not 2 <= x.ndim <= 4:
            raise ShapeError(
                f"{name} is {x.ndim}-dimensional ({shape_text(x) or 'one number'})",
                "use 2 (tokens, d), 3 (heads, tokens, d) or 4 (batch, heads, tokens, d)",
            )
        if x.size == 0:
            hint = "every axis needs at least one entry"
            raise ShapeError(f"{name} is empty ({shape_text(x)})", hint)
        if x.ndim != q.ndim:
            raise ShapeError(
                f"q has {q.ndim} dimensions ({shape_text(q)}) but {name} has {x.ndim} "
                f"({shape_text(x)})",
                "all three need the same number of dimensions",
            )
    equal = [("d_k", "q", q, "k", k, -1), ("number of tokens", "k", k, "v", v, -2)]
    equal += [("number of heads", "k", k, "v", v, -3)] if q.ndim > 2 else []
    equal += [("batch size", "q", q, "k", k, 0), ("batch size", "k", k, "v", v, 0)] * (q.ndim > 3)
    for what, name, x, other, y, axis in equal:
        if x.shape[axis] != y.shape[axis]:
            raise ShapeError(
                f"{name} and {other} must have the same {what}: {name} ({shape_text(x)}) has "
                f"{x.shape[axis]}, {other} ({shape_text(y)}) has {y.shape[axis]}"
            )
    if q.ndim > 2 and q.shape[-3] % k.shape[-3]:
        raise ShapeError(
            f"{q.shape[-3]} query heads in q ({shape_text(q)}) cannot evenly share "
            f"{k.shape[-3]} key heads in k ({shape_text(k)})",
            "the number of query heads must be a multiple of the number of key heads",
        )


def check_mask(mask: Array, score_shape: tuple[int, ...]) -> None:
    """ShapeError unless the mask broadcasts, from the right, to the scores."""
    names = AXES[-len(score_shape) :]
    target = " × ".join(f"{size} {name}" for size, name in zip(score_shape, names, strict=True))
    if mask.ndim > len(score_shape):
        raise ShapeError(
            f"the mask ({shape_text(mask)}) has {mask.ndim} dimensions, the scores have "
            f"{len(score_shape)} ({target})",
            "leave out the axes that the scores do not have",
        )
    for axis in range(1, mask.ndim + 1):
        if mask.shape[-axis] not in {1, score_shape[-axis]}:
            raise ShapeError(
                f"the mask ({shape_text(mask)}) has {mask.shape[-axis]} entries along the "
                f"{names[-axis]} axis, the scores have {score_shape[-axis]} ({target})",
                "each axis, counted from the right, must be 1 or equal",
            )


def check_rows(rows: Sequence[int], n_q: int, how: Convention) -> npt.NDArray[np.intp]:
    """The indices of queries as an array.

    Raises ShapeError where they are out of range, ConventionError where a row depends on others.
    """
    if how.softmax_over == "queries" or how.dropout:
        what = "dropout is" if how.dropout else "sums over queries are"
        raise ConventionError(f"{what} of all queries, not of some rows", "leave out rows")
    picked = np.asarray(rows)
    are_indices = picked.ndim == 1 and picked.size and picked.dtype.kind in "iu"
    if not are_indices or picked.min() < 0 or picked.max() >= n_q:
        raise ShapeError(f"rows is {rows!r} with {n_q} queries", f"use 0 to {n_q - 1}")
    return picked.astype(np.intp)
