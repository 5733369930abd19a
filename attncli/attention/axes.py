"""Which way round a matrix of weights is: as its name says, else the one way that fits.

It is multiplied with x, so its rows, or of PyTorch's Linear its columns, are as many as x is wide.
The matrices of one form are turned together or not at all; a square one tells nothing by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from attncli.arrays import Array
from attncli.attention.heads import shape_text
from attncli.attention.names import Form
from attncli.errors import ShapeError

Axes = Literal["auto", "in-out", "out-in"]

READS_X = ("w_q", "w_k", "w_v", "w_qkv", "w_kv")
"""The matrices that x, x_kv or x_v is multiplied with."""


class Piece(NamedTuple):
    """One matrix or bias as it is given, its numbered heads put together on a first axis."""

    names: tuple[str, ...]
    form: Form
    value: Array

    @property
    def text(self) -> str:
        """Its name and shape, for a message."""
        return f"{listed(self.names)} ({shape_text(self.value) or 'one number'})"


Turn = Literal["as it is", "turned", "kernel"]

ORDER: dict[Form, tuple[Turn, ...]] = {
    "plain": ("as it is", "turned", "kernel"),
    "conv1d": ("as it is", "turned"),
    "linear": ("turned", "as it is"),
    "kernel": ("kernel", "as it is", "turned"),
}
"""The ways round to be tried for each form, in order. A kernel of 2 axes is as it is."""


def turned(piece: Piece, turn: Turn) -> Array:
    """The matrix as [in, out] or [head, in, out], where it has so many axes."""
    w = piece.value
    if turn == "kernel" and w.ndim == 3 and len(piece.names) == 1:
        return w.transpose(1, 0, 2)
    return w.swapaxes(-1, -2) if turn == "turned" and w.ndim in {2, 3} else w


def _orders(form: Form, axes: Axes) -> Sequence[Turn]:
    if axes == "out-in":
        return ["turned"]
    return [turn for turn in ORDER[form] if axes == "auto" or turn != "turned"]


def turns_of(
    pieces: Mapping[str, Piece], shapes: Sequence[tuple[int, ...]], axes: Axes, *, whole: bool
) -> tuple[dict[str, Turn], bool]:
    """How each matrix is turned, and whether tokens are the columns of x, which is tried last."""
    shapes = [*shapes, *[shapes[-1]] * (3 - len(shapes))]
    forms: dict[tuple[Form, int], list[str]] = {}
    for leaf in filter(READS_X.__contains__, pieces):
        forms.setdefault((pieces[leaf].form, pieces[leaf].value.ndim), []).append(leaf)

    def fits(leaf: str, turn: Turn, axis: int) -> bool:
        w, width = turned(pieces[leaf], turn), shapes["qkv".index(leaf[-1])][axis]
        return w.ndim in {2, 3} and w.shape[-2] == width

    def fitting(axis: int) -> dict[str, Turn]:
        """How each is turned to be multiplied with an axis of x: its columns, or its rows."""
        turns: dict[str, Turn] = {}
        for (form, _), leaves in forms.items():
            # with tokens as columns the formula is W X, so a square matrix is [out, in] too
            order = _orders("linear" if axis == 0 else form, axes)
            fit = [turn for turn in order if all(fits(leaf, turn, axis) for leaf in leaves)]
            turns |= dict.fromkeys(leaves, fit[0]) if fit else {}
        return turns

    turns, read = fitting(-1), [leaf for leaves in forms.values() for leaf in leaves]
    lacking = [leaf for leaf in read if leaf not in turns]
    if not (lacking and whole):
        return turns | {leaf: _orders(pieces[leaf].form, axes)[0] for leaf in lacking}, False
    if all(len(shape) == 2 for shape in shapes) and (columns := fitting(0)).keys() == {*read}:
        return columns, True
    odd = next((x for x in lacking if not fits(x, ORDER[pieces[x].form][0], -1)), lacking[0])
    raise _no_fit(pieces[odd], shapes["qkv".index(odd[-1])][-1], "x", axes)


def _no_fit(piece: Piece, width: int, what: str, axes: Axes) -> ShapeError:
    if piece.value.ndim not in {2, 3}:
        hint = "a matrix of weights has 2, one for each head 3"
        return ShapeError(f"{piece.text} has {piece.value.ndim} dimensions", hint)
    need = {"auto": "one of its axes", "in-out": "its rows", "out-in": "its columns"}[axes]
    message = f"{piece.text} does not fit {what}, which has the width {width}"
    return ShapeError(message, f"{need} must be {width}")


def output_of(
    pieces: Mapping[str, Piece],
    shape: tuple[int, int],
    turns: Mapping[str, Turn],
    axes: Axes,
    *,
    whole: bool,
) -> tuple[Array, Turn]:
    """W_o as [h·d_v, out]; a square one is turned as the other matrices of its form are.

    shape  it should have; an out of 0 is any
    """
    piece, ways = pieces["w_o"], list[tuple[Array, Turn]]()
    like = [turn for leaf, turn in turns.items() if pieces[leaf].form == piece.form]
    for turn in (*like, *_orders(piece.form, axes)):
        w = turned(piece, "turned") if turn == "turned" else piece.value
        w = w.reshape(-1, w.shape[-1]) if w.ndim == 3 else w  # [head, d_v, out] as a kernel too
        if w.ndim == 2 and w.shape[0] == shape[0] and shape[1] in (0, w.shape[1]):
            return w, turn
        ways.append((w, turn))
    if whole:
        raise _no_fit(piece, shape[0], "the heads side by side", axes)
    return ways[0]


def listed(names: Iterable[str], most: int = 4) -> str:
    """Names for a message: the first few, and how many more there are."""
    known = list(names)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more


def joined(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> joined(["jax", "mlx", "onnx"]), joined(["jax"])
    ('jax, mlx and onnx', 'jax')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
