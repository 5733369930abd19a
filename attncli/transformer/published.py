"""Weights as they are published, brought to one form: w_q … b_o, [in, out], heads side by side.

    names, arrays ── grouped ── one array a matrix ── arranged ── cut (qkv) ── merged (heads)

What a name says is in names.py. The axes of a matrix are as its name says, else in the one order
that fits: it is multiplied with x, so its rows, or of PyTorch's Linear its columns, are as many as
x is wide. The matrices of one form have one order; a square one tells nothing by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.heads import shape_text
from attncli.attention.shapes import as_numbers
from attncli.errors import InputError, ShapeError, listed
from attncli.transformer.names import READS_X, Form, parse

Axes = Literal["auto", "in-out", "out-in"]

ORDERS: dict[Form, tuple[str, ...]] = {
    "plain": ("in out", "out in", "head in out", "head out in", "in head out"),
    "conv1d": ("in out", "out in", "head in out", "head out in"),
    "linear": ("out in", "in out", "head out in", "head in out"),
    "kernel": ("in out", "out in", "in head out", "head in out", "head out in"),
}
"""What the axes of a matrix of each form may be, in the order in which they are tried."""


class Parameter(NamedTuple):
    """A matrix or bias and the names that it came under: several where its heads are numbered."""

    names: tuple[str, ...]
    form: Form
    value: Array
    order: str = ""  # as what the axes were taken that it came with
    n_heads: int | None = None  # those that had an axis of their own

    @property
    def text(self) -> str:
        """Its name and shape, for a message."""
        return f"{listed(self.names)} ({shape_text(self.value) or 'one number'})"

    @property
    def is_transposed(self) -> bool:
        """Whether it came as [out, in]."""
        return self.order.endswith("in")

    def orders(self, axes: Axes = "auto", form: Form | None = None) -> list[str]:
        """What its axes may be, or those of a matrix of this form, in the order to be tried."""
        n_axes = 3 if self.value.ndim == 3 else 2
        orders = [order for order in ORDERS[form or self.form] if len(order.split()) == n_axes]
        return [x for x in orders if axes == "auto" or x.endswith("in") == (axes == "out-in")]

    def arranged(self, order: str, *, heads_first: bool = False) -> Parameter:
        """The matrix as [in, out], its heads side by side: [in, head·out], or [head·in, out]."""
        axes = order.split()
        target = ("head", "in", "out") if heads_first else ("in", "head", "out")
        if len(axes) != self.value.ndim:
            return self._replace(order=order)
        if heads_first or len(self.names) > 1:  # numbered, or of W_o: on the first axis already
            axes.sort(key="head".__ne__)
        w = self.value.transpose([axes.index(axis) for axis in target if axis in axes])
        if "head" not in axes:
            return self._replace(value=w, order=order)
        n_heads = w.shape[target.index("head")]
        w = w.reshape(-1, w.shape[-1]) if heads_first else w.reshape(w.shape[0], -1)
        return self._replace(value=w, order=order, n_heads=n_heads)


class Published(NamedTuple):
    """The weights of one attention.

    parameters  w_q, w_k, w_v, and w_o and b_* if there are any, [in, out] and [out]
    """

    parameters: dict[str, Parameter]
    n_heads: int | None = None  # that the arrays themselves have; None where they are one matrix
    n_kv_heads: int | None = None  # heads of K and V, where they differ
    columns: bool = False  # tokens are the columns of x
    notes: tuple[str, ...] = ()  # what was assumed, for one line

    @property
    def arrays(self) -> dict[str, Array]:
        """The matrices and biases alone."""
        return {leaf: parameter.value for leaf, parameter in self.parameters.items()}


def published(
    arrays: Mapping[str, npt.ArrayLike],
    shapes: Sequence[tuple[int, ...]],
    *,
    axes: Axes = "auto",
    n_heads: int | None = None,
    n_kv_heads: int | None = None,
    whole: bool = True,
    place: str = "",
) -> Published:
    """The weights of one attention, from arrays by the names under which they are published.

    shapes  of what W_q, W_k and W_v are multiplied with: x, or x, x_kv and x_v
    axes    the order of each matrix's axes, instead of what names and shapes say
    n_*     heads into which packed matrices of grouped queries are cut
    whole   False: some may be missing, and what does not fit is left as its name says
    place   what messages put before a name: encoder.1.attention.

    Raises InputError where one is missing or there twice, ShapeError where one fits no way round.
    """
    parameters = _grouped(arrays, place)
    _check_each_once(parameters, place, whole=whole)
    matrices, columns = _arranged(parameters, shapes, axes, whole=whole)
    weights: dict[str, Parameter] = {}
    for leaf, parameter in matrices.items():
        weights |= _cut(parameter, leaf, parameters[leaf].text, n_heads, n_kv_heads)
    heads = {leaf: parameter.n_heads for leaf, parameter in weights.items() if parameter.n_heads}
    own_heads, own_kv_heads = _heads_of(weights, heads, n_heads, n_kv_heads)
    if "w_o" in parameters:
        n = own_heads or n_heads or 1
        width = _width(weights, "w_v") // (own_kv_heads or n) * n
        d_out = None if whole else shapes[0][-1]
        matrices["w_o"] = weights["w_o"] = _output(parameters["w_o"], matrices, width, axes, d_out)
    for leaf, bias in parameters.items():
        if leaf[0] == "b":
            weights |= _biases(bias, leaf, weights, whole=whole)
    notes = tuple(
        _notes(parameters, matrices, columns, own_heads, own_kv_heads, has_heads=bool(heads))
    )
    return Published(weights, own_heads, own_kv_heads, columns, notes)


# ---- one array a matrix


def _grouped(arrays: Mapping[str, npt.ArrayLike], place: str) -> dict[str, Parameter]:
    """The matrices and biases by leaf, the numbered heads of each in order."""
    parsed = {name: meaning for name in arrays if (meaning := parse(name))}
    if any(not meaning.bare for meaning in parsed.values()):  # `weights` is a stage's name as well
        parsed = {name: meaning for name, meaning in parsed.items() if not meaning.bare}
    leaves: dict[str, dict[int | None, str]] = {}
    for name, (_, leaf, _, number, _) in parsed.items():
        heads = leaves.setdefault(leaf, {})
        if number in heads:
            raise twice(heads[number], name, f"{place}{leaf}")
        heads[number] = name
    grouped = {}
    for leaf in sorted(leaves, key=lambda leaf: (leaf[0] == "b", "qkvo".index(leaf[2]))):
        heads = leaves[leaf]
        names = tuple(heads[head] for head in sorted(heads, key=lambda head: head or 0))
        if len(heads) > 1 and None in heads:
            other = next(name for name in heads.values() if name != heads[None])
            raise twice(heads[None], other, f"{place}{leaf}")
        parts = [as_numbers(arrays[name], name) for name in names]
        for name, part in zip(names, parts, strict=True):
            if part.shape != parts[0].shape:
                message = f"{name} is {shape_text(part)}, {names[0]} is {shape_text(parts[0])}"
                raise ShapeError(message, "the heads need matrices of one shape")
        value = parts[0] if len(parts) == 1 else np.stack(parts)
        grouped[leaf] = Parameter(names, parsed[names[0]].form, value)
    return grouped


def twice(name: str, other: str, meaning: str) -> InputError:
    return InputError(f"{name} and {other} both mean {meaning}", "give it once")


def _check_each_once(parameters: Mapping[str, Parameter], place: str, *, whole: bool) -> None:
    """InputError for a matrix or bias that is there twice; whole: for W_q, W_k or W_v missing."""
    names: dict[str, tuple[str, ...]] = {}
    for leaf, parameter in parameters.items():
        for name in (f"{leaf[0]}_{letter}" for letter in leaf[2:]):
            if name in names:
                raise twice(listed(names[name]), listed(parameter.names), f"{place}{name}")
            names[name] = parameter.names
    missing = [leaf for leaf in ("w_q", "w_k", "w_v") if leaf not in names]
    if missing and whole:
        every = (
            listed([name for parameter in parameters.values() for name in parameter.names])
            or "none"
        )
        hint = "x needs w_q, w_k and w_v, or all three in one: in_proj_weight, c_attn or qkv"
        raise InputError(f"there is no {listed(missing)} among the weights ({every})", hint)


# ---- in which order the axes are


def _arranged(
    parameters: Mapping[str, Parameter],
    shapes: Sequence[tuple[int, ...]],
    axes: Axes,
    *,
    whole: bool,
) -> tuple[dict[str, Parameter], bool]:
    """The matrices that x is multiplied with, and whether tokens are its columns, tried last."""
    shapes = [*shapes, *[shapes[-1]] * (3 - len(shapes))]
    forms: dict[tuple[Form, int], dict[str, Parameter]] = {}
    for leaf, parameter in parameters.items():
        if leaf in READS_X:
            forms.setdefault((parameter.form, parameter.value.ndim), {})[leaf] = parameter

    def fits(leaf: str, parameter: Parameter, axis: int) -> bool:
        return (
            parameter.value.ndim == 2
            and len(parameter.value) == shapes["qkv".index(leaf[-1])][axis]
        )

    def fitting(axis: int) -> dict[str, Parameter]:
        """Those that can be multiplied with an axis of x: its columns, or its rows."""
        result: dict[str, Parameter] = {}
        for (form, _), alike in forms.items():
            # with tokens as columns the formula is W X, so a square matrix is [out, in] too
            orders = next(iter(alike.values())).orders(axes, form if axis else "linear")
            tried = [
                {leaf: parameter.arranged(x) for leaf, parameter in alike.items()} for x in orders
            ]
            fit = [
                x
                for x in tried
                if all(fits(leaf, parameter, axis) for leaf, parameter in x.items())
            ]
            result |= fit[0] if fit else {}
        return result

    matrices = fitting(-1)
    every = [(leaf, parameter) for alike in forms.values() for leaf, parameter in alike.items()]
    lacking = {leaf: parameter for leaf, parameter in every if leaf not in matrices}
    if not (lacking and whole):
        as_named = {
            leaf: parameter.arranged(parameter.orders(axes)[0])
            for leaf, parameter in lacking.items()
        }
        return matrices | as_named, False
    if all(len(shape) == 2 for shape in shapes) and len(columns := fitting(0)) == len(every):
        return columns, True
    as_named = {
        leaf: parameter.arranged(parameter.orders()[0]) for leaf, parameter in lacking.items()
    }
    unfit = [leaf for leaf, parameter in as_named.items() if not fits(leaf, parameter, -1)]
    leaf = [*unfit, *lacking][0]
    raise _no_fit(lacking[leaf], shapes["qkv".index(leaf[-1])][-1], "x", axes)


def _no_fit(parameter: Parameter, width: int, target: str, axes: Axes) -> ShapeError:
    if parameter.value.ndim not in {2, 3}:
        hint = "a matrix of weights has 2, one for each head 3"
        return ShapeError(f"{parameter.text} has {parameter.value.ndim} dimensions", hint)
    need = {"auto": "one of its axes", "in-out": "its rows", "out-in": "its columns"}[axes]
    message = f"{parameter.text} does not fit {target}, which has the width {width}"
    return ShapeError(message, f"{need} must be {width}")


def _output(
    parameter: Parameter, others: Mapping[str, Parameter], width: int, axes: Axes, d_out: int | None
) -> Parameter:
    """W_o as [width, d_out], in the order that the other matrices of its form have, if it fits.

    d_out  None: any, and one that does not fit is refused
    """
    like = [other.is_transposed for other in others.values() if other.form == parameter.form]
    alike = [next(x for x in parameter.orders() if x.endswith("in") == way) for way in like]
    tried = [parameter.arranged(x, heads_first=True) for x in (*alike, *parameter.orders(axes))]
    fit = [x for x in tried if x.value.ndim == 2 and len(x.value) == width]
    fit = [x for x in fit if d_out in (None, x.value.shape[1])]
    if d_out is None and not fit:
        raise _no_fit(parameter, width, "the heads side by side", axes)
    return [*fit, *tried][0]


# ---- cut in three, their heads, and biases


def _cut(
    parameter: Parameter, leaf: str, text: str, n_heads: int | None, n_kv_heads: int | None
) -> dict[str, Parameter]:
    """The matrices that are in one, side by side or on an axis of their own."""
    w, keys = parameter.value, [f"w_{name}" for name in leaf[2:]]
    if len(keys) == 1:
        return {leaf: parameter}
    shares, parts = [1] * len(keys), parameter.n_heads  # an axis of their own
    if n_heads and n_kv_heads and len(keys) == 3 and parts != 3:
        shares = [n_heads, n_kv_heads, n_kv_heads]
    if w.ndim != 2 or parts not in (None, len(keys)) or w.shape[1] % sum(shares):
        n_parts = {2: "two", 3: "three"}[len(keys)] if len(set(shares)) == 1 else sum(shares)
        hint = "where K and V have fewer heads, give the heads and the key heads too"
        raise ShapeError(f"{text} cannot be cut in {n_parts}, for {listed(keys)}", hint)
    ends = np.cumsum(shares)[:-1] * (w.shape[1] // sum(shares))
    parameter = parameter._replace(n_heads=None)
    columns = zip(keys, np.split(w, ends, axis=1), strict=True)
    return {key: parameter._replace(value=x) for key, x in columns}


def _width(weights: Mapping[str, Parameter], leaf: str) -> int:
    """The columns of a matrix; 0 where there is none."""
    return weights[leaf].value.shape[-1] if leaf in weights and weights[leaf].value.ndim else 0


def _heads_of(
    weights: Mapping[str, Parameter],
    heads: Mapping[str, int],
    n_heads: int | None,
    n_kv: int | None,
) -> tuple[int | None, int | None]:
    """The heads of Q, and of K and V where they are fewer, as far as the arrays say so."""
    q_heads, kv_heads = heads.get("w_q"), heads.get("w_k", heads.get("w_v"))
    if n_heads is not None and q_heads not in (None, n_heads):
        raise ShapeError(f"w_q holds {q_heads} heads, not {n_heads}", "leave out --heads")
    if n_kv is not None and kv_heads not in (None, n_kv):
        raise ShapeError(f"w_k holds {kv_heads} heads, not {n_kv}", "leave out --kv-heads")
    if heads.get("w_k", kv_heads) != heads.get("w_v", kv_heads):
        raise ShapeError(f"w_k holds {heads['w_k']} heads, w_v {heads['w_v']}", "they need as many")
    q_heads = q_heads or n_heads
    d_k, rest = divmod(_width(weights, "w_q"), q_heads or 1)
    if q_heads and d_k and not (kv_heads or n_kv or rest or _width(weights, "w_k") % d_k):
        kv_heads = _width(weights, "w_k") // d_k  # heads of the width that those of W_q have
    return q_heads, kv_heads or n_kv


def _biases(
    parameter: Parameter, leaf: str, weights: Mapping[str, Parameter], *, whole: bool
) -> dict[str, Parameter]:
    """A bias as [out], or those of several matrices in one; [n, 1] and [head, d] too."""
    matrices, keys = [f"w_{name}" for name in leaf[2:]], [f"b_{name}" for name in leaf[2:]]
    lacking = [name for name in matrices if name not in weights]
    if lacking and whole:
        raise InputError(
            f"{parameter.text} has no {lacking[0]}", "leave it out, or give the matrix"
        )
    flat, widths = parameter.value.reshape(-1), [_width(weights, name) for name in matrices]
    if lacking or flat.size != sum(widths) or parameter.value.ndim > 3:
        if whole or flat.size % len(keys):
            needed = f"it needs {sum(widths)} numbers"
            raise ShapeError(f"{parameter.text} does not fit {listed(matrices)}", needed)
        if len(keys) == 1:
            return {keys[0]: parameter}
        widths = [flat.size // len(keys)] * len(keys)
    parts = np.split(flat, np.cumsum(widths)[:-1])
    return {key: parameter._replace(value=x) for key, x in zip(keys, parts, strict=True)}


# ---- what was assumed


def _notes(
    parameters: Mapping[str, Parameter],
    matrices: Mapping[str, Parameter],
    columns: bool,
    n_heads: int | None,
    n_kv_heads: int | None,
    *,
    has_heads: bool,
) -> Iterator[str]:
    """What was assumed and the names do not say by themselves."""
    if columns:
        yield "the tokens are the columns of x"
    transposed = [parameter for parameter in matrices.values() if parameter.is_transposed]
    others = {
        leaf: parameter for leaf, parameter in matrices.items() if not parameter.is_transposed
    }
    odd = [
        parameter
        for leaf, parameter in others.items()
        if parameter.order != parameters[leaf].orders()[0]
    ]
    for each, form in ((transposed, "[out, in]: X Wᵀ"), (odd, "[in, out]: X W")):
        if each:
            names = listed([name for parameter in each for name in parameter.names])
            yield f"{names} taken as {form}"
    for leaf in ("w_qkv", "w_kv"):
        if parameter := matrices.get(leaf):
            side = "rows" if parameter.is_transposed else "columns"
            order = listed(f"w_{name}" for name in leaf[2:])
            yield f"{listed(parameter.names)} cut by {side} into {order}"
    shared = f"{n_kv_heads} heads of K and V" if n_kv_heads not in (None, n_heads) else ""
    if has_heads or shared:
        yield ", ".join(filter(None, (f"{n_heads} heads" * has_heads, shared)))
