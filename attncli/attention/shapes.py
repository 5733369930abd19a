"""What goes into an attention: arrays of any library as NumPy's, checks of their shapes, and the
sizes that follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array, Like
from attncli.attention.heads import check_shared, head_width, heads_first, shape_text
from attncli.attention.plan import Sizes
from attncli.attention.run import Values
from attncli.convention import Convention, Layout
from attncli.errors import ConventionError, ShapeError
from attncli.stages import OUTPUT, gradient_of

AXES = ("batch", "head", "query", "key")

# ---- arrays as they are given


def type_name(x: object) -> str:
    """The name of an array's or a tensor's number type, "" where it has none.

    >>> type_name(np.zeros(2, np.float16)), type_name([0.5])
    ('float16', '')
    """
    dtype = getattr(x, "dtype", "")
    return str(getattr(dtype, "name", dtype)).rpartition(".")[2]


def is_small(dtype: str) -> bool:
    """Whether it is a number type that NumPy lacks: bfloat16, or a float of 8 bits or fewer."""
    return dtype.startswith(("bfloat16", "float8_", "float6_", "float4_"))


def on_host(x: Any) -> Any:
    """A tensor as NumPy can read it; anything else as it is.

    One that tracks gradients is detached, one on a device copied to the host, one of a number type
    that NumPy lacks widened, all by its own methods: no other library is imported.
    """
    if isinstance(x, list | tuple):
        return x
    for method in ("detach", "cpu", "resolve_neg"):
        x = getattr(x, method)() if callable(getattr(x, method, None)) else x
    if is_small(type_name(x)) and callable(getattr(x, "float", None)):
        x = x.float()
    if not hasattr(x, "__array__") and hasattr(x, "__dlpack__"):
        x = np.from_dlpack(x)
    return x


def as_numbers(x: npt.ArrayLike | Like, name: str) -> Array:
    """x as an array of numbers: whatever NumPy or DLPack takes, tensors on a device included.

    A Like, which stands for an array, stays as it is.

    Raises ShapeError where it is ragged, holds something else than real numbers, or nothing that
    can be read, as a tensor on the meta device does.
    """
    if isinstance(x, Like):
        return cast(Array, x)
    try:
        array = np.asarray(x if isinstance(x, np.ndarray) else on_host(x))
    except ValueError:
        raise ShapeError(f"{name} is ragged", "every row needs the same length") from None
    except (RuntimeError, TypeError) as problem:  # the other library's
        message = f"{name} cannot be read: {str(problem).partition(chr(10))[0]}"
        raise ShapeError(message, "give a dense array with its numbers in memory") from problem
    if array.dtype.kind in "fiub" and array.dtype.isbuiltin < 2:  # 2: of another library
        return array
    if is_small(array.dtype.name):
        return array.astype(np.float32)
    raise ShapeError(f"{name} holds {array.dtype} entries", "it must hold real numbers")


# ---- their shapes


def in_order(x: npt.ArrayLike, name: str, layout: Layout | None) -> Array:
    """x as numbers, its heads before its tokens; ShapeError where it has not the layout's axes."""
    array = as_numbers(x, name)
    try:
        return array if layout is None else heads_first(array, layout)
    except ShapeError as error:
        raise ShapeError(f"{name}: {error.message}", error.hint) from None


def check_past(past: str, before: Array, name: str, x: Array) -> None:
    """ShapeError unless a cache, called `past`, can be put before keys or values x."""
    fits = before.ndim == x.ndim >= 2 and before.shape[:-2] == x.shape[:-2]
    if not fits or before.shape[-1] != x.shape[-1]:
        raise ShapeError(
            f"{past} ({shape_text(before)}) cannot be put before {name} ({shape_text(x)})",
            "only the number of tokens may differ",
        )


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
    for quantity, name, x, other, y, axis in equal:
        if x.shape[axis] != y.shape[axis]:
            raise ShapeError(
                f"{name} and {other} must have the same {quantity}: {name} ({shape_text(x)}) has "
                f"{x.shape[axis]}, {other} ({shape_text(y)}) has {y.shape[axis]}",
                layout_hint(q.ndim) if axis == -3 else "",
            )
    if q.ndim > 2 and q.shape[-3] % k.shape[-3]:
        raise ShapeError(
            f"{q.shape[-3]} query heads in q ({shape_text(q)}) cannot evenly share "
            f"{k.shape[-3]} key heads in k ({shape_text(k)})",
            "the number of query heads must be a multiple of the number of key heads; "
            + layout_hint(q.ndim),
        )


def layout_hint(ndim: int) -> str:
    """What to say of q, k and v of 3 or 4 axes that may have their tokens before their heads.

    >>> layout_hint(4)
    "if q, k and v are (batch, tokens, heads, d), say layout='bshd' (--layout bshd)"
    """
    axes, name = [("tokens, heads, d", "shd"), ("batch, tokens, heads, d", "bshd")][ndim - 3]
    return f"if q, k and v are ({axes}), say layout={name!r} (--layout {name})"


def check_mask(mask: Array, score_shape: tuple[int, ...]) -> None:
    """ShapeError unless the mask broadcasts, from the right, to the scores."""
    names = AXES[-len(score_shape) :]
    many = {"batch": "batch entries", "query": "queries"}
    target = " × ".join(
        f"{size} {name if size == 1 else many.get(name, f'{name}s')}"
        for size, name in zip(score_shape, names, strict=True)
    )
    if mask.ndim > len(score_shape):
        raise ShapeError(
            f"the mask ({shape_text(mask)}) has {mask.ndim} dimensions, the scores have "
            f"{len(score_shape)} ({target})",
            "leave out the axes that the scores do not have",
        )
    for axis in range(1, mask.ndim + 1):
        if mask.shape[-axis] not in {1, score_shape[-axis]}:
            hint = "each axis, counted from the right, must be 1 or equal"
            if len(score_shape) > 2 and axis < 3 and mask.shape[-axis] == score_shape[-3]:
                hint += f"; {layout_hint(len(score_shape))}"
            raise ShapeError(
                f"the mask ({shape_text(mask)}) has {mask.shape[-axis]} entries along the "
                f"{names[-axis]} axis, the scores have {score_shape[-axis]} ({target})",
                hint,
            )


Gradient = npt.ArrayLike | Literal["ones", "random"]
"""A gradient as it is given: its numbers, 1 everywhere (that of a sum), or standard normal ones."""


def given_gradient(d: Gradient, shape: tuple[int, ...], stage: str, seed: int) -> Array:
    """The gradient of a stage of this shape; random ones are drawn with the seed, by PCG64.

    Raises ShapeError where it has another shape. It is called d_output, whichever stage it is of.
    """
    name = gradient_of(OUTPUT)
    if isinstance(d, str):
        if d not in ("ones", "random"):
            raise ConventionError(f"{name} is {d!r}", "use an array, ones or random")
        draw = np.random.default_rng(seed)
        return np.ones(shape) if d == "ones" else draw.standard_normal(shape)
    gradient = as_numbers(d, name)
    if gradient.shape != shape:
        actual, needed = shape_text(gradient) or "one number", " × ".join(map(str, shape))
        raise ShapeError(f"{name} is {actual}, {stage} is {needed}", "they have one shape")
    return gradient


def value_width(inputs: Values, n_kv_heads: int) -> int:
    """d_v, the width of a value of one head, where values are made of x."""
    source = inputs.get("x_v", inputs.get("x_kv", inputs["x"]))
    return int(inputs.get("w_v", source).shape[-1]) // n_kv_heads


def result_shape(inputs: Values, n_heads: int, n_kv_heads: int) -> tuple[int, ...]:
    """The shape of what the attention of x gives: its heads side by side, or their projection."""
    width = value_width(inputs, n_kv_heads) * n_heads
    return (*inputs["x"].shape[:-1], inputs["w_o"].shape[-1] if "w_o" in inputs else width)


def check_rows(rows: Sequence[int], n_q: int, convention: Convention) -> npt.NDArray[np.intp]:
    """The indices of queries as an array.

    Raises ShapeError where they are out of range, ConventionError where a row depends on others.
    """
    if convention.softmax_over == "queries" or convention.dropout:
        subject = "dropout is" if convention.dropout else "sums over queries are"
        raise ConventionError(f"{subject} of all queries, not of some rows", "leave out rows")
    picked = np.asarray(rows)
    are_indices = picked.ndim == 1 and picked.size and picked.dtype.kind in "iu"
    if not are_indices or picked.min() < 0 or picked.max() >= n_q:
        raise ShapeError(f"rows is {rows!r} with {n_q} queries", f"use 0 to {n_q - 1}")
    return picked.astype(np.intp)


def projected(inputs: Values, n_heads: int, n_kv_heads: int | None) -> Sizes:
    """The sizes of the attention of x (to x_kv and x_v, where there are such).

    x is projected by w_q, w_k, w_v and w_o, where they are given.
    Raises ShapeError where a width does not fit, or does not divide into the heads.
    """
    n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
    x, context = inputs["x"], inputs.get("x_kv", inputs["x"])
    d = {}  # of one head
    sources = {"q": x, "k": context, "v": inputs.get("x_v", context)}
    for name, source in sources.items():
        wide, heads = inputs.get(f"w_{name}", source), n_heads if name == "q" else n_kv_heads
        if wide is not source:
            check_projection(source, wide)
        d[name] = head_width(wide.shape[-1], heads)
    if d["q"] != d["k"]:
        raise ShapeError(f"q and k must have the same d_k: q has {d['q']}, k has {d['k']}")
    check_shared(n_heads, n_kv_heads)
    if "w_o" in inputs:
        check_projection(Like((1, n_heads * d["v"])), inputs["w_o"])
    scores = (*x.shape[:-2], n_heads, x.shape[-2], context.shape[-2])
    return Sizes(scores, n_kv_heads, d["q"], inputs=frozenset(inputs))


def check_projection(x: Array | Like, w: Array) -> None:
    """ShapeError unless x can be multiplied by the weights."""
    if w.ndim != 2 or x.shape[-1] != w.shape[0]:
        raise ShapeError(
            f"x ({shape_text(x)}) cannot be multiplied by weights of {shape_text(w)}",
            f"the weights need {x.shape[-1]} rows",
        )


def restrictions(
    sizes: Sizes, mask: npt.ArrayLike | None, kv_len: npt.ArrayLike | None
) -> dict[str, Array]:
    """A mask and key lengths as inputs of the plan. ShapeError where they do not fit the scores."""
    arrays = {}
    if mask is not None:
        arrays["given_mask"] = as_numbers(mask, "the mask")
        check_mask(arrays["given_mask"], sizes.scores)
    if kv_len is not None:
        n_batch, n_k = sizes.scores[0] if len(sizes.scores) == 4 else 1, sizes.scores[-1]
        lengths = as_numbers(kv_len, "kv_len")
        if lengths.dtype.kind not in "iu" or lengths.ndim > 1:
            raise ShapeError(f"kv_len is {kv_len!r}", "use one whole number per batch item")
        per_item = np.atleast_1d(lengths).astype(np.int64)
        if per_item.size not in {1, n_batch}:
            message = f"kv_len has {per_item.size} lengths for a batch of {n_batch}"
            raise ShapeError(message, "use one per batch item")
        if per_item.min() < 0 or per_item.max() > n_k:
            message = f"kv_len is {per_item.tolist()} with {n_k} keys"
            raise ShapeError(message, f"use lengths from 0 to {n_k}")
        arrays["kv_len"] = np.broadcast_to(per_item, (n_batch,))
    return arrays


def token_rows(x: npt.ArrayLike, name: str = "x") -> Array:
    """x as numbers, [n, d_model] or [batch, n, d_model]; ShapeError where it is neither."""
    array = as_numbers(x, name)
    if array.ndim not in {2, 3} or array.size == 0:
        raise ShapeError(
            f"{name} has the shape {shape_text(array) or 'of one number'}",
            "use (tokens, d_model) or (batch, tokens, d_model), with at least one entry each",
        )
    return array
