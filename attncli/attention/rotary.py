"""Rotary positions: each pair of entries of a query or key is turned by an angle.

position ids → angles → cos, sin → x turned     the dot product of two turned
                                                vectors knows only their distance
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from attncli.arrays import FloatArray
from attncli.attention.heads import shape_text
from attncli.attention.shapes import as_numbers
from attncli.errors import ConventionError, ShapeError
from attncli.trace import Stage, Trace

Layout = Literal["halves", "interleaved"]

_AXES = ("batch", "head", "position", "dimension")


def rotary_angles(
    position_ids: npt.ArrayLike, rotary_dim: int, *, base: float = 10000.0
) -> FloatArray:
    """How far each pair of entries is turned at each position, in radians.

    θ[pos, i] = pos · base^(−2i/r),  i = 0 … r/2 − 1     # [..., n] -> [..., n, r/2]

    r is `rotary_dim`. Raises ConventionError for an odd r or a base below 1, ShapeError for
    positions that are no finite numbers.
    Source: Su et al., "RoFormer" (2021), section 3.4.2, equation 15.

    >>> rotary_angles([0, 3], 4, base=100).round(6).tolist()
    [[0.0, 0.0], [3.0, 0.3]]
    """
    if rotary_dim < 2 or rotary_dim % 2:
        raise ConventionError(f"the rotary dim is {rotary_dim}", "use an even number from 2")
    if not 1 <= base < math.inf:
        raise ConventionError(f"base is {base}", "use a finite number from 1; the paper's is 10000")
    positions = as_numbers(position_ids, "position ids").astype(np.float64)
    if not np.isfinite(positions).all():
        raise ShapeError("position ids are not all finite numbers")
    return positions[..., None] * base ** (-np.arange(0, rotary_dim, 2) / rotary_dim)


def rotary_table(n_positions: int, dim: int, *, base: float = 10000.0, start: int = 0) -> Trace:
    """The angles by which rotary positions turn each pair of entries, and their cos and sin.

    θ = pos · base^(−2i/d), stages angles, cos, sin [n, d/2]; `start` is the first position.

    Raises ConventionError for sizes below 1 and an odd d.
    Source: Su et al., "RoFormer" (2021), section 3.4.2, equation 34.

    >>> rotary_table(2, 2)["cos"].value.round(4).tolist()
    [[1.0], [0.5403]]
    """
    if n_positions < 1:
        raise ConventionError(f"the number of positions is {n_positions}", "use one from 1")
    if dim < 2 or dim % 2:
        raise ConventionError(f"dim is {dim}", "rotary positions turn pairs: use an even number")
    ids = np.arange(start, start + n_positions)
    turned = rotary(np.zeros((n_positions, dim)), position_ids=ids, base=base)
    return turned.keep({"angles", "cos", "sin"})


def rotary(
    x: npt.ArrayLike,
    *,
    position_ids: npt.ArrayLike | None = None,
    layout: Layout = "halves",
    rotary_dim: int | None = None,
    base: float = 10000.0,
    caches: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> Trace:
    """Queries or keys with their position turned into them.

    (a, b) → (a·cos θ − b·sin θ, a·sin θ + b·cos θ)     # [..., n, d] -> [..., n, d]

    for each pair (a, b) of the first `rotary_dim` entries (all d by default; the others stay):
    entries i and i + r/2 in the layout "halves" (GPT-NeoX, Llama as converted, ONNX's default),
    2i and 2i + 1 in "interleaved" (the paper).

    x is [n, d], [heads, n, d] or [batch, heads, n, d]; `position_ids` [n] or [batch, n], by
    default 0 … n − 1. `caches` are (cos, sin) made elsewhere: [longest, r/2], from which the
    position ids pick rows, or without position ids [n, r/2] or [batch, n, r/2] as they are.

    Stages: x, angles (not with caches), cos, sin, rotated.
    Raises ShapeError where shapes do not fit, ConventionError for a choice that does not exist.
    Source: Su et al., "RoFormer" (2021), section 3.4.2, equation 34; ONNX RotaryEmbedding.

    >>> rotary([[1.0, 0.0]], position_ids=[1])["rotated"].value.round(4).tolist()
    [[0.5403, 0.8415]]
    """
    if layout not in get_args(Layout):
        raise ConventionError(f"layout is {layout!r}", "use halves or interleaved")
    vectors = _vectors(x)
    turned = _rotary_dim(rotary_dim, vectors.shape[-1])
    ids = _ids(position_ids, vectors.shape[-2] if caches is None else None)
    if caches is None:
        angles = rotary_angles(ids, turned, base=base)
        made: dict[str, FloatArray] = {
            "angles": angles,
            "cos": np.cos(angles),
            "sin": np.sin(angles),
        }
    else:
        made = {n: _rows(c, ids, n) for n, c in zip(("cos", "sin"), caches, strict=True)}
    cos, sin = (_beside(made[name], vectors, turned, name) for name in ("cos", "sin"))
    rotated = _turn(vectors, cos, sin, layout)
    return _trace(vectors, made, rotated, layout, base, _labels(ids))


def _turn(x: FloatArray, cos: FloatArray, sin: FloatArray, layout: Layout) -> FloatArray:
    # [..., n, d], [..., n, r/2], [..., n, r/2] -> [..., n, d]
    half = cos.shape[-1]
    first, second = slice(0, half), slice(half, 2 * half)
    if layout == "interleaved":
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    a, b = x[..., first], x[..., second]
    turned = x.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        turned[..., first] = a * cos - b * sin
        turned[..., second] = a * sin + b * cos
    return turned


def _vectors(x: npt.ArrayLike) -> FloatArray:
    vectors = as_numbers(x, "x").astype(np.float64)
    if not 2 <= vectors.ndim <= 4:
        raise ShapeError(
            f"x has {vectors.ndim} dimensions", "give (n, d), (heads, n, d) or (batch, heads, n, d)"
        )
    return vectors


def _rotary_dim(rotary_dim: int | None, dim: int) -> int:
    turned = dim if rotary_dim is None else rotary_dim
    if turned > dim:
        raise ShapeError(f"the rotary dim is {turned} but x has only {dim} entries a row")
    if turned < 2 or turned % 2:
        raise ConventionError(
            f"the rotary dim is {turned}", "use an even number from 2 up to the size of a row"
        )
    return turned


def _ids(position_ids: npt.ArrayLike | None, n: int | None) -> Any:
    """The position ids as an array; 0 … n − 1, or none, where there are none."""
    if position_ids is None:
        return None if n is None else np.arange(n)
    as_numbers(position_ids, "the list of position ids").astype(np.float64)
    return np.asarray(position_ids)


def _rows(cache: npt.ArrayLike, ids: Any, name: str) -> FloatArray:
    """The rows of a cache that position ids pick, or all of them."""
    values = as_numbers(cache, f"the {name} cache").astype(np.float64)
    if ids is None:
        return values
    if values.ndim != 2 or ids.dtype.kind not in "iu":
        raise ShapeError(
            f"position ids of type {ids.dtype} cannot pick rows from a {name} cache of "
            f"{values.ndim} dimensions",
            "give whole numbers and a cache of shape (longest, r/2)",
        )
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < len(values):
        raise ShapeError(
            f"position ids run from {ids.min()} to {ids.max()}, the {name} cache from 0 to "
            f"{len(values) - 1}"
        )
    picked: FloatArray = values[ids]
    return picked


def _beside(table: FloatArray, x: FloatArray, turned: int, name: str) -> FloatArray:
    """The table with an axis for the heads where it has one for the batch."""
    n, batch = x.shape[-2], x.shape[0]
    fits = table.ndim == 2 and table.shape == (n, turned // 2)
    if table.ndim == 3 and x.ndim == 4:
        fits = table.shape[1:] == (n, turned // 2) and table.shape[0] in (1, batch)
    if not fits:
        raise ShapeError(
            f"{name} is {shape_text(table)}, x is {shape_text(x)}",
            f"one row of {turned // 2} numbers per position is needed: {n}×{turned // 2}"
            + (f" or {batch}×{n}×{turned // 2}" if x.ndim == 4 else ""),
        )
    return table[:, None] if table.ndim == 3 else table


def _labels(ids: Any) -> dict[str, tuple[str, ...]]:
    if ids is None or ids.ndim != 1:
        return {}
    return {"position": tuple(f"pos {position}" for position in ids.tolist())}


def _trace(
    x: FloatArray,
    made: Mapping[str, FloatArray],
    rotated: FloatArray,
    layout: Layout,
    base: float,
    labels: dict[str, tuple[str, ...]],
) -> Trace:
    formulas = {"angles": f"θ = pos · {base:g}^(−2i/r)", "cos": "cos θ", "sin": "sin θ"}
    symbols = {"angles": "θ", "cos": "cos θ", "sin": "sin θ"}
    axes = _AXES[-x.ndim :]
    steps = [Stage("x", "x", "as given", x, axes, labels)]
    for name, table in made.items():
        formula = formulas[name] if "angles" in made else "from the cache"
        inner = ("batch", "position", "pair")[-table.ndim :]
        reads = {"angles": "angles"} if name != "angles" and "angles" in made else {}
        steps.append(Stage(name, symbols[name], formula, table, inner, labels, reads=reads))
    pairs = "i and i + r/2" if layout == "halves" else "2i and 2i + 1"
    note = f"{layout}: entries {pairs} are a pair"
    if (stays := x.shape[-1] - 2 * made["cos"].shape[-1]) > 0:
        note += f"; the last {stays} of {x.shape[-1]} stay as they are"
    formula = "(a, b) → (a·cos θ − b·sin θ, a·sin θ + b·cos θ)"
    reads = {name: name for name in ("x", "cos", "sin")}
    steps.append(Stage("rotated", "x′", formula, rotated, axes, labels, note, reads))
    return Trace("Rotary positions", tuple(steps))
