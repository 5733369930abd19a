"""Positional encodings, which distinguish equal words at different positions.

sinusoidal       positions              [n, d]        sines and cosines of the position
add_positions    embeddings + positions [n, d]        what goes into the first layer
position_dots    PE · PEᵀ               [n, n]        depends on the distance alone
rotary           pairs of x, turned     [..., n, d]   dot products depend on the distance alone
alibi            bias                   [h, n_q, n_k] added to scores, falls with the distance
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array, FloatArray, Like
from attncli.attention.heads import shape_text
from attncli.attention.run import Heading, Step, traced
from attncli.attention.shapes import as_numbers
from attncli.errors import ConventionError, ShapeError
from attncli.formula import common as formulas
from attncli.formula.matrices import plain
from attncli.trace import Stage, Trace

Exponent = Literal["paper", "article"]
Layout = Literal["halves", "interleaved"]

_EXPONENTS = {"paper": "2i/d", "article": "2·2i/d"}
_COUNTS_TWICE = (
    "article 004 has 4i/d in the exponent where the paper has 2i/d, so past the first pair its "
    "waves are too long"
)
_WAVES = "the wavelength is 2π w; column 2i is its sine, column 2i+1 its cosine"
_FARTHEST = 2**53  # past it two neighbouring positions are the same float64

SUM = Step("input", formulas.ADDED, {"x": "embeddings", "y": "positions"}, {}, "X = E + PE")
"""The step that adds positions to embeddings."""
DOTS = Step("dots", formulas.DOTS, {"x": "positions"}, formula="D = PE · PEᵀ")
"""The step of the dot products of positions."""


def sinusoidal(
    n: int, dim: int, *, exponent: Exponent = "paper", base: float = 10000.0, start: int = 0
) -> Trace:
    """The table of sines and cosines that is added to embeddings.

    PE(pos, 2i) = sin(pos / base^(2i/d)),  PE(pos, 2i+1) = cos(pos / base^(2i/d))

    `exponent="article"` counts 2i twice, pos / base^(2·2i/d), as a loop over the even columns
    does that multiplies its index by 2 again. `start` is the first position.
    Stages: divisors [⌈d/2⌉], angles [n, ⌈d/2⌉] in radians, positions [n, d] in −1 … 1.
    Raises ConventionError for an exponent, base, start or size that does not exist.
    Source: "Attention Is All You Need" (2017), section 3.5.

    >>> sinusoidal(2, 4)["positions"].value.round(4).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.8415, 0.5403, 0.01, 1.0]]
    """
    steps = sinusoidal_steps(n, dim, exponent=exponent, base=base, start=start)
    labels = {
        "position": [f"pos {position}" for position in range(start, start + n)],
        "pair": [f"i={i}" for i in range(-(-dim // 2))],
        "dimension": [f"{('2i', '2i+1')[d % 2]}={d}" for d in range(dim)],
    }
    return traced(steps, Heading("Sinusoidal positions", None, labels))


def sinusoidal_steps(
    n: int, dim: int, *, exponent: Exponent = "paper", base: float = 10000.0, start: int = 0
) -> list[Step]:
    """The steps of `sinusoidal`, from the divisors to the table."""
    for name, size in {"the number of positions": n, "dim": dim}.items():
        if size < 1:
            raise ConventionError(f"{name} is {size}", "use a whole number from 1")
    if exponent not in get_args(Exponent):
        raise ConventionError(f"exponent is {exponent!r}", "use paper or article")
    check_base(base)
    if max(abs(start), abs(start + n)) > _FARTHEST:
        message = f"positions from {start} on cannot be distinguished in float64"
        raise ConventionError(message, "start below 2^53")
    notes = [_COUNTS_TWICE] * (exponent == "article")
    notes += [f"d = {dim} is odd: the last column is a sine without its cosine"] * (dim % 2)
    power = f"{plain(base)}^({_EXPONENTS[exponent]})"
    formula = f"PE(pos, 2i) = sin(pos / {power}), PE(pos, 2i+1) = cos(same)"
    rows, pairs = {"n": n, "start": start}, {"dim": dim, "exponent": exponent, "base": base}
    text, reads, sizes = formulas.DIVISORS[exponent], {"w": "divisors"}, {"c": -(-dim // 2)}
    more: Any = {"note": "; ".join(notes), "function": waves_of, "like": like_waves}
    return [
        Step("divisors", text, {}, pairs, f"w = {power}", note=_WAVES, sizes=sizes),
        Step("angles", formulas.POSITION_ANGLES, reads, rows, "θ = pos / w", sizes={"p": n}),
        Step("positions", formulas.WAVES, {"angles": "angles"}, {"dim": dim}, formula, **more),
    ]


def check_base(base: float) -> None:
    """ConventionError for a base below 1."""
    if not 1 <= base < math.inf:
        raise ConventionError(f"base is {base}", "use a finite number from 1; the paper's is 10000")


def waves_of(angles: Array, dim: int) -> FloatArray:
    """The sine and the cosine of each angle, side by side: [n, ⌈d/2⌉] -> [n, d]."""
    table = np.empty((angles.shape[0], dim))
    np.sin(angles, out=table[:, 0::2])
    np.cos(angles[:, : dim // 2], out=table[:, 1::2])
    return table


def like_waves(angles: Like, dim: int) -> Like:
    """The shape and the type of that."""
    return Like((angles.shape[0], dim))


def add_positions(
    embeddings: npt.ArrayLike, positions: Trace | npt.ArrayLike, *, tokens: Sequence[str] = ()
) -> Trace:
    """Embeddings with their positions added: the input of the first layer.

    `positions` is a trace of `sinusoidal` or any array of the same shape; `tokens` name the rows.
    Raises ShapeError where the shapes differ or a matrix is not one.
    """
    words, stages = _matrix(embeddings, "the matrix of embeddings"), _position_stages(positions)
    table = stages[-1]
    if words.shape != table.value.shape:
        message = f"embeddings are {shape_text(words)} but positions are {shape_text(table.value)}"
        raise ShapeError(message, "both need one row per token and the same number of columns")
    names = tuple(tokens) or table.labels.get("position", ())
    labels, axes = {"token": names} if names else {}, ("token", "dimension")
    before = Stage("embeddings", "E", "one row per token", words, axes, labels)
    places = {axis: names for axis, names in table.labels.items() if axis != "dimension"}
    heading = Heading("Embeddings with positions", None, {**places, **labels})  # a sum is no wave
    return traced([SUM], heading, before, *stages)


def position_dots(positions: Trace | npt.ArrayLike) -> Trace:
    """Every position's dot product with every other: what an encoding says about distance.

    With an even d, D[a, b] = Σᵢ cos((a − b) / base^(2i/d)): it depends on the distance alone.
    """
    stages = _position_stages(positions)
    rows, is_even = stages[-1].labels.get("position", ()), stages[-1].value.shape[1] % 2 == 0
    alike = "each diagonal holds one number: the dot product depends on the distance alone"
    notes = (alike,) if len(stages) > 1 and is_even else ()  # a table as given need not be of waves
    heading = Heading("Dot products of positions", None, {"position": rows, "other": rows}, notes)
    return traced([DOTS], heading, *stages)


def _position_stages(positions: Trace | npt.ArrayLike) -> tuple[Stage, ...]:
    if isinstance(positions, Trace):
        names = ("divisors", "angles", "positions")
        return tuple(positions[name] for name in names if name in positions)
    table = _matrix(positions, "the matrix of positions")
    return (Stage("positions", "PE", "as given", table, ("position", "dimension")),)


def _matrix(values: npt.ArrayLike, name: str) -> FloatArray:
    matrix = as_numbers(values, name).astype(np.float64)
    if matrix.ndim != 2:
        raise ShapeError(f"{name} has {matrix.ndim} dimensions", "give one row per position")
    return matrix


# ---- rotary


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
    return traced(
        rotary_tables(ids, dim, base), Heading("Rotary positions", None, {"position": labels})
    )


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
    tables = rotary_tables(ids, r, base) if caches is None else []
    for name, cache in zip(("cos", "sin"), caches or (), strict=False):
        rows = partial(_rows, cache, ids, name)
        tables.append(Step(name, "", {}, {}, "from the cache", function=rows))
    steps = rotary_steps(vectors, tables, r, layout)
    labels = None if ids is None or ids.ndim != 1 else [f"pos {at}" for at in ids.tolist()]
    return traced(steps, Heading("Rotary positions", None, {"position": labels}))


def rotary_steps(
    vectors: Array | Like, tables: Sequence[Step], r: int, layout: Layout = "halves"
) -> list[Step]:
    """The steps of `rotary`: the vectors, the tables of cos and sin, and the vectors turned."""
    like, dim, x = Like(vectors.shape), vectors.shape[-1], cast(Array, vectors)
    given = Step("x", "", {}, {}, "as given", kind="unrotated", function=lambda: x)
    pairs = "i and i + r/2" if layout == "halves" else "2i and 2i + 1"
    note = f"{layout}: entries {pairs} are a pair"
    note += f"; the last {dim - r} of {dim} stay as they are" if dim > r else ""
    reads, pairing = {name: name for name in ("x", "cos", "sin")}, {"r": r, "layout": layout}
    formula = "(a, b) → (a·cos θ − b·sin θ, a·sin θ + b·cos θ)"
    more: Any = {"note": note, "function": _turned}
    more["like"] = lambda **_: like._replace(takes=5 * like.nbytes // 2)  # and half of it thrice
    turned = Step("rotated", formulas.TURNED[layout], reads, pairing, formula, **more)
    return [given._replace(like=lambda: like), *tables, turned]


def rotary_tables(ids: Any, r: int, base: float = 10000.0) -> list[Step]:
    """The steps of the angles at these positions, and of their cos and sin."""
    angles, reads = partial(rotary_angles, ids), {"angles": "angles"}
    sizes, formula = {"rotary_dim": r, "base": base}, f"θ = pos · {plain(base)}^(−2i/r)"
    more: Any = {"function": angles, "like": lambda **_: Like((*ids.shape, r // 2))}
    return [
        Step("angles", formulas.ROTARY_ANGLES, {}, sizes, formula, **more),
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
        message = f"position ids of type {ids.dtype} cannot pick rows from a {name} cache of"
        hint = "give whole numbers and a cache of shape (longest, r/2)"
        raise ShapeError(f"{message} {values.ndim} dimensions", hint)
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < len(values):
        ends = f"position ids run from {ids.min()} to {ids.max()}"
        raise ShapeError(f"{ends}, the {name} cache from 0 to {len(values) - 1}")
    picked: FloatArray = values[ids]
    return picked


# ---- a bias of the scores


def alibi(
    n_heads: int, n_q: int, n_k: int | None = None, *, causal: bool = True, first_query: int = 0
) -> Trace:
    """The bias that ALiBi adds to the scores, usable as an additive mask.

    causal:     B[h, i, j] = −m_h · (i − j), and −∞ for a key after its query
    symmetric:  B[h, i, j] = −m_h · |i − j|, as its authors have it for encoders

    The slopes of n heads, n a power of two, are m = 2^(−8/n), 2^(−16/n), …, 2^(−8). Otherwise, with
    p the power of two below n: the p slopes of p heads, then every other slope of 2p heads. The
    first query is at position `first_query` (n_k − n_q puts the last query at the last key).
    Stages: slopes [heads], bias [heads, n_q, n_k]. Raises ConventionError for sizes below 1.
    Source: Press et al., "Train Short, Test Long" (2022), section 3; other counts: its code.
    """
    n_k = n_q if n_k is None else n_k
    steps = alibi_steps(n_heads, n_q, n_k, causal=causal, first_query=first_query)
    return traced(steps, Heading("ALiBi"))


def alibi_steps(
    n_heads: int, n_q: int, n_k: int, *, causal: bool, first_query: int = 0
) -> list[Step]:
    """The steps of `alibi`: the slopes, and the bias."""
    for name, size in {"queries": n_q, "keys": n_k, "heads": n_heads}.items():
        if size < 1:
            raise ConventionError(f"there are {size} {name}", "use a whole number from 1")

    def slopes_of(heads: int) -> FloatArray:
        first, between = (np.exp2(-8.0 / n * np.arange(1, n + 1)) for n in (heads, 2 * heads))
        slopes: FloatArray = np.concatenate([first, between[::2]])[:n_heads]
        return slopes

    def bias_of(m: FloatArray, first_query: int, causal: bool) -> FloatArray:
        distance = (np.arange(n_q) + first_query)[:, None] - np.arange(n_k)
        bias: FloatArray = m[:, None, None] * np.abs(distance)
        np.subtract(0.0, bias, out=bias)  # 0 − x, as −x would give −0
        if causal:
            np.copyto(bias, -np.inf, where=distance < 0)
        return bias

    below = 1 << (n_heads.bit_length() - 1)
    slope = f"m = 2^(−8h/{below}) for head h"
    if below != n_heads:
        slope += f" to {below}, then every other of {2 * below} heads"
    rule = "B = −m·(i − j), −∞ where the key comes after its query" if causal else "B = −m·|i − j|"
    params, text = {"first_query": first_query, "causal": causal}, formulas.DISTANCES[causal]
    bias, distances = Like((n_heads, n_q, n_k)), 2 * Like((n_q, n_k)).nbytes
    ways: Any = {
        "function": bias_of,
        "like": lambda **_: bias._replace(takes=bias.nbytes + distances),
    }
    like = Like((n_heads,))
    return [
        Step(
            "slopes",
            formulas.SLOPES,
            {},
            {"heads": below},
            slope,
            function=slopes_of,
            like=lambda **_: like,
        ),
        Step("bias", text, {"m": "slopes"}, params, rule, **ways),
    ]
