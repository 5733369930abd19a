"""Rotary positions: each pair of entries of a query or key is turned by an angle.

position ids → angles → cos, sin → x turned     the dot product of two turned
                                                vectors knows only their distance
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from attncli import formulas
from attncli.arrays import Array, FloatArray
from attncli.attention.heads import shape_text
from attncli.attention.matrices import plain
from attncli.attention.numbers import as_numbers
from attncli.attention.positions import check_base
from attncli.attention.run import Step
from attncli.attention.traces import Heading, traced
from attncli.errors import ConventionError, ShapeError
from attncli.trace import Trace

Layout = Literal["halves", "interleaved"]


def rotary_angles(
    position_ids: npt.ArrayLike, rotary_dim: int, *, base: float = 10000.0
) -> FloatArray:
    """How far each pair of entries is turned at each position, in radians; r is `rotary_dim`.

    θ[pos, i] = pos · base^(−2i/r),  i = 0 … r/2 − 1     # [..., n] -> [..., n, r/2]

    Source: Su et al., "RoFormer" (2021), section 3.4.2, equation 15.
    """
    if rotary_dim < 2 or rotary_dim % 2:
        raise ConventionError(f"the rotary dim is {rotary_dim}", "use an even number from 2")
    check_base(base)
    positions = as_numbers(position_ids, "position ids").astype(np.float64)
    if not np.isfinite(positions).all():
        raise ShapeError("position ids are not all finite numbers")
    return positions[..., None] * base ** (-np.arange(0, rotary_dim, 2) / rotary_dim)


def rotary_table(n_positions: int, dim: int, *, base: float = 10000.0, start: int = 0) -> Trace:
    """The angles by which rotary positions turn each pair of entries, and their cos and sin.

    Stages angles, cos, sin [n, d/2]; `start` is the first position.
    Raises ConventionError for sizes below 1 and an odd d.
    """
    if n_positions < 1:
        raise ConventionError(f"the number of positions is {n_positions}", "use one from 1")
    if dim < 2 or dim % 2:
        raise ConventionError(f"dim is {dim}", "rotary positions turn pairs: use an even number")
    ids = np.arange(start, start + n_positions)
    labels = [f"pos {at}" for at in ids.tolist()]
    return traced(_tables(ids, dim, base), Heading("Rotary positions", None, {"position": labels}))


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
    Raises ShapeError where shapes do not fit, ConventionError for a choice that does not exist.
    Source: Su et al., "RoFormer" (2021), section 3.4.2, equation 34; ONNX RotaryEmbedding.

    >>> rotary([[1.0, 0.0]], position_ids=[1])["rotated"].value.round(4).tolist()
    [[0.5403, 0.8415]]
    """
    if layout not in get_args(Layout):
        raise ConventionError(f"layout is {layout!r}", "use halves or interleaved")
    vectors = as_numbers(x, "x").astype(np.float64)
    if not 2 <= vectors.ndim <= 4:
        hint = "give (n, d), (heads, n, d) or (batch, heads, n, d)"
        raise ShapeError(f"x has {vectors.ndim} dimensions", hint)
    n, dim = vectors.shape[-2:]
    r = dim if rotary_dim is None else rotary_dim
    if r > dim:
        raise ShapeError(f"the rotary dim is {r} but x has only {dim} entries a row")
    if r < 2 or r % 2:
        hint = "use an even number from 2 up to the size of a row"
        raise ConventionError(f"the rotary dim is {r}", hint)
    if position_ids is None and caches is None:
        position_ids = np.arange(n)
    ids = None if position_ids is None else as_numbers(position_ids, "the list of position ids")
    steps = [Step("x", "", {}, {}, "as given", kind="unrotated", function=lambda: vectors)]
    if caches is None:
        steps += _tables(ids, r, base)
    for name, cache in zip(("cos", "sin"), caches or (), strict=False):
        rows = partial(_rows, cache, ids, name)
        steps.append(Step(name, "", {}, {}, "from the cache", function=rows))
    pairs = "i and i + r/2" if layout == "halves" else "2i and 2i + 1"
    note = f"{layout}: entries {pairs} are a pair"
    note += f"; the last {dim - r} of {dim} stay as they are" if dim > r else ""
    reads, pairing = {name: name for name in ("x", "cos", "sin")}, {"r": r, "layout": layout}
    formula = "(a, b) → (a·cos θ − b·sin θ, a·sin θ + b·cos θ)"
    turned = Step("rotated", formulas.TURNED[layout], reads, pairing, formula, function=_turned)
    steps.append(turned._replace(note=note))
    labels = None if ids is None or ids.ndim != 1 else [f"pos {at}" for at in ids.tolist()]
    return traced(steps, Heading("Rotary positions", None, {"position": labels}))


def _tables(ids: Any, r: int, base: float) -> list[Step]:
    """The steps of the angles, and their cos and sin."""
    angles, reads = partial(rotary_angles, ids), {"angles": "angles"}
    sizes, formula = {"rotary_dim": r, "base": base}, f"θ = pos · {plain(base)}^(−2i/r)"
    return [
        Step("angles", formulas.ROTARY_ANGLES, {}, sizes, formula, function=angles),
        Step("cos", formulas.COS, reads, {}, "cos θ"),
        Step("sin", formulas.SIN, reads, {}, "sin θ"),
    ]


def _turned(x: Array, cos: Array, sin: Array, r: int, layout: Layout) -> Array:
    """[..., n, d], [..., n, r/2], [..., n, r/2] -> [..., n, d]; a table of a batch has no heads."""
    tables = []
    for name, table in (("cos", cos), ("sin", sin)):
        has_batch, whole = table.ndim == 3 and x.ndim == 4, (x.shape[-2], r // 2)
        if table.shape not in ([(1, *whole), (x.shape[0], *whole)] if has_batch else [whole]):
            needed = "×".join(map(str, whole))
            hint = f"one row of {r // 2} numbers per position is needed: {needed}"
            hint += f" or {x.shape[0]}×{needed}" if x.ndim == 4 else ""
            raise ShapeError(f"{name} is {shape_text(table)}, x is {shape_text(x)}", hint)
        tables.append(table[:, None] if has_batch else table)
    cos, sin = tables
    first, second = slice(0, r // 2), slice(r // 2, r)
    if layout == "interleaved":
        first, second = slice(0, r, 2), slice(1, r, 2)
    a, b, turned = x[..., first], x[..., second], x.copy()
    turned[..., first] = a * cos - b * sin
    turned[..., second] = a * sin + b * cos
    return turned


def _rows(cache: npt.ArrayLike, ids: Array | None, name: str) -> FloatArray:
    """The rows of a cache that position ids pick, or all of them."""
    values = as_numbers(cache, f"the {name} cache").astype(np.float64)
    if ids is None:
        return values
    if values.ndim != 2 or ids.dtype.kind not in "iu":
        what = f"position ids of type {ids.dtype} cannot pick rows from a {name} cache of"
        hint = "give whole numbers and a cache of shape (longest, r/2)"
        raise ShapeError(f"{what} {values.ndim} dimensions", hint)
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < len(values):
        ends = f"position ids run from {ids.min()} to {ids.max()}"
        raise ShapeError(f"{ends}, the {name} cache from 0 to {len(values) - 1}")
    picked: FloatArray = values[ids]
    return picked
