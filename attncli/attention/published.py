"""Weights as they are published, brought to one form: w_q … b_o, [in, out], heads side by side.

    names, arrays ── grouped ── one array a matrix ── turned ── cut (qkv) ── merged (heads)

Which way round a matrix is: as its name says (names.py), else the one way that fits the width of
what it is multiplied with. The matrices of one form are turned together or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.heads import shape_text
from attncli.attention.names import Form, parse
from attncli.attention.numbers import as_numbers
from attncli.errors import InputError, ShapeError

Axes = Literal["auto", "in-out", "out-in"]

_IN = ("w_q", "w_k", "w_v", "w_qkv", "w_kv")
"""The matrices that x, x_kv or x_v is multiplied with."""


class Piece(NamedTuple):
    """One matrix or bias as it is given, its numbered heads put together on a first axis."""

    names: tuple[str, ...]
    form: Form
    value: Array

    @property
    def text(self) -> str:
        """Its name and shape, for a message."""
        return f"{_listed(self.names)} ({shape_text(self.value) or 'one number'})"


class Published(NamedTuple):
    """The weights of one attention.

    arrays      w_q, w_k, w_v, and w_o and b_* where there are any, [in, out] and [out]
    names       each of them → the names that it came under
    turned      those that came as [out, in]
    n_heads     the heads that the arrays themselves have; None where they are one matrix
    n_kv_heads  heads of K and V, where they differ
    columns     tokens are the columns of x
    notes       what was assumed, for one line
    """

    arrays: dict[str, Array]
    names: dict[str, tuple[str, ...]]
    turned: frozenset[str] = frozenset()
    n_heads: int | None = None
    n_kv_heads: int | None = None
    columns: bool = False
    notes: tuple[str, ...] = ()


def blocks(names: Iterable[str]) -> dict[str, list[str]]:
    """The names of each attention's weights, by what stands before them in its first name.

    >>> blocks(["h.0.attn.c_attn.weight", "h.0.mlp.c_proj.weight", "wte.weight"])
    {'h.0.attn': ['h.0.attn.c_attn.weight']}
    """
    found: dict[str, list[str]] = {}
    for name in names:
        if said := parse(name):
            found.setdefault(said.scope, []).append(name)
    projects = {scope: any(_leaf(name) in _IN for name in own) for scope, own in found.items()}
    return {_written(own[0], scope): own for scope, own in found.items() if projects[scope]}


def _leaf(name: str) -> str:
    said = parse(name)
    return said.leaf if said else ""


def _written(name: str, scope: str) -> str:
    """The scope as it is written in the name."""
    own = name[: len(scope)]
    return own if own.lower().replace("/", ".") == scope else scope


def published(
    arrays: Mapping[str, npt.ArrayLike],
    shapes: Sequence[tuple[int, ...]],
    *,
    axes: Axes = "auto",
    n_heads: int | None = None,
    n_kv_heads: int | None = None,
    whole: bool = True,
) -> Published:
    """The weights of one attention, from arrays by the names under which they are published.

    shapes  of what W_q, W_k and W_v are multiplied with: x, or x, x_kv and x_v
    axes    the order of each matrix's axes, instead of what names and shapes say
    n_*     heads into which packed matrices of grouped queries are cut
    whole   False: some may be missing, and what does not fit is left as its name says

    Raises InputError where one is missing or there twice, ShapeError where one fits no way round.

    >>> found = published({"Wq": [[1], [2]], "Wk": [[3], [4]], "Wv": [[5], [6]]}, [(3, 2)])
    >>> found.arrays["w_v"].tolist(), found.notes
    ([[5], [6]], ())
    >>> published({"in_proj_weight": np.ones((9, 5))}, [(2, 5)]).arrays["w_k"].shape
    (5, 3)
    """
    pieces = _pieces(arrays)
    names = _names(pieces, whole=whole)
    turns, columns = _turns(pieces, shapes, axes, whole=whole)
    matrices: dict[str, Array] = {}
    for leaf in turns:
        w = _turned(pieces[leaf], turns[leaf])
        matrices |= _cut(w, leaf, pieces[leaf], n_heads, n_kv_heads)
    found = {leaf: _merged(w) for leaf, w in matrices.items()}
    heads = {leaf: w.shape[0] for leaf, w in matrices.items() if w.ndim == 3}
    own_heads, own_kv_heads = _heads_of(found, heads, n_heads, n_kv_heads)
    if "w_o" in pieces:
        n, d = own_heads or n_heads or 1, found["w_v"].shape[-1] if "w_v" in found else 0
        width = d // (own_kv_heads or n) * n
        out = 0 if whole else shapes[0][-1]
        found["w_o"], turns["w_o"] = _output(pieces, (width, out), turns, axes, whole=whole)
    for leaf, piece in pieces.items():
        if leaf[0] == "b":
            found |= _biases(piece, leaf, found, whole=whole)
    notes = tuple(_notes(pieces, turns, columns, own_heads, own_kv_heads, matrices))
    turned = frozenset(leaf for leaf in found if _is_turned(leaf, turns))
    return Published(found, names, turned, own_heads, own_kv_heads, columns, notes)


# ---- one array a matrix


def _pieces(arrays: Mapping[str, npt.ArrayLike]) -> dict[str, Piece]:
    """The matrices and biases by leaf, the numbered heads of each in order."""
    said = {name: own for name in arrays if (own := parse(name))}
    if any(not own.bare for own in said.values()):  # `weights` is a stage's name as well
        said = {name: own for name, own in said.items() if not own.bare}
    found: dict[str, dict[int | None, str]] = {}
    for name, own in said.items():
        heads = found.setdefault(own.leaf, {})
        if own.head in heads:
            raise InputError(f"{heads[own.head]} and {name} both mean {own.leaf}", "give it once")
        heads[own.head] = name
    pieces = {}
    for leaf in sorted(found, key=lambda leaf: (leaf[0] == "b", "qkvo".index(leaf[2]))):
        heads = found[leaf]
        if len(heads) > 1 and None in heads:
            one = next(name for head, name in heads.items() if head is not None)
            raise InputError(f"{heads[None]} and {one} both mean {leaf}", "give it once")
        names = tuple(heads[head] for head in sorted(heads, key=lambda head: head or 0))
        parts = [as_numbers(arrays[name], name) for name in names]
        for name, part in zip(names, parts, strict=True):
            if part.shape != parts[0].shape:
                raise ShapeError(
                    f"{name} is {shape_text(part)}, {names[0]} is {shape_text(parts[0])}",
                    "the heads need matrices of one shape",
                )
        value = parts[0] if len(parts) == 1 else np.stack(parts)
        pieces[leaf] = Piece(names, said[names[0]].form, value)
    return pieces


def _names(pieces: Mapping[str, Piece], *, whole: bool) -> dict[str, tuple[str, ...]]:
    """The names under which each matrix and bias came; InputError for one that is there twice.

    whole  whether W_q, W_k and W_v must be there
    """
    found: dict[str, tuple[str, ...]] = {}
    for leaf, piece in pieces.items():
        for name in leaf[2:]:
            own = f"{leaf[0]}_{name}"
            if own in found:
                both = f"{_listed(found[own])} and {_listed(piece.names)}"
                raise InputError(f"{both} both mean {own}", "give it once")
            found[own] = piece.names
    missing = [leaf for leaf in ("w_q", "w_k", "w_v") if leaf not in found]
    if missing and whole:
        given = _listed([name for piece in pieces.values() for name in piece.names]) or "none"
        raise InputError(
            f"there is no {_listed(missing)} among the weights ({given})",
            "x needs w_q, w_k and w_v, or all three in one: in_proj_weight, c_attn or qkv",
        )
    return found


# ---- which way round


Turn = Literal["as it is", "turned", "kernel"]

_ORDER: dict[Form, tuple[Turn, ...]] = {
    "plain": ("as it is", "turned", "kernel"),
    "conv1d": ("as it is", "turned"),
    "linear": ("turned", "as it is"),
    "kernel": ("kernel", "as it is", "turned"),
}
"""The ways round to be tried for each form, in order. A kernel of 2 axes is as it is."""


def _turned(piece: Piece, turn: Turn) -> Array:
    """The matrix as [in, out] or [head, in, out], where it has so many axes."""
    w = piece.value
    if w.ndim not in {2, 3}:
        return w
    if turn == "kernel" and w.ndim == 3 and len(piece.names) == 1:
        return w.transpose(1, 0, 2)
    return w.swapaxes(-1, -2) if turn == "turned" else w


def _orders(form: Form, axes: Axes) -> tuple[Turn, ...]:
    if axes == "out-in":
        return ("turned",)
    order = _ORDER[form]
    return order if axes == "auto" else tuple(turn for turn in order if turn != "turned")


def _turns(
    pieces: Mapping[str, Piece], shapes: Sequence[tuple[int, ...]], axes: Axes, *, whole: bool
) -> tuple[dict[str, Turn], bool]:
    """How each matrix is turned, and whether tokens are the columns of x.

    Tokens as columns are tried last: where no way round fits x as it is.
    """
    shapes = [*shapes, *[shapes[-1]] * (3 - len(shapes))]
    forms: dict[tuple[Form, int], list[str]] = {}
    for leaf in filter(_IN.__contains__, pieces):
        forms.setdefault((pieces[leaf].form, pieces[leaf].value.ndim), []).append(leaf)

    def fits(leaf: str, turn: Turn, axis: int) -> bool:
        w, width = _turned(pieces[leaf], turn), shapes["qkv".index(leaf[-1])][axis]
        return w.ndim in {2, 3} and w.shape[-2] == width

    def fitting(axis: int) -> dict[str, Turn]:
        """How each is turned to be multiplied with an axis of x: its columns, or its rows."""
        found: dict[str, Turn] = {}
        for (form, _), leaves in forms.items():
            # with tokens as columns the formula is W X, so a square matrix is [out, in] too
            for turn in _orders("linear" if axis == 0 else form, axes):
                if all(fits(leaf, turn, axis) for leaf in leaves):
                    found |= dict.fromkeys(leaves, turn)
                    break
        return found

    turns = fitting(-1)
    lacking = [leaf for leaves in forms.values() for leaf in leaves if leaf not in turns]
    if lacking and whole and all(len(shape) == 2 for shape in shapes):
        columns = fitting(0)
        if all(leaf in columns for leaves in forms.values() for leaf in leaves):
            return columns, True
    if lacking and whole:
        odd = next((x for x in lacking if not fits(x, _ORDER[pieces[x].form][0], -1)), lacking[0])
        raise _no_fit(pieces[odd], shapes["qkv".index(odd[-1])][-1], "x", axes)
    return turns | {leaf: _orders(pieces[leaf].form, axes)[0] for leaf in lacking}, False


def _no_fit(piece: Piece, width: int, what: str, axes: Axes) -> ShapeError:
    if piece.value.ndim not in {2, 3}:
        return ShapeError(
            f"{piece.text} has {piece.value.ndim} dimensions",
            "a matrix of weights has 2, one for each head 3",
        )
    need = {"auto": "one of its axes", "in-out": "its rows", "out-in": "its columns"}[axes]
    return ShapeError(
        f"{piece.text} does not fit {what}, which has the width {width}",
        f"{need} must be {width}",
    )


# ---- cut in three, and heads side by side


def _cut(
    w: Array, leaf: str, piece: Piece, n_heads: int | None, n_kv_heads: int | None
) -> dict[str, Array]:
    """The matrices that are in one: columns of [in, out], or entries of a first axis."""
    keys = [f"w_{name}" for name in leaf[2:]]
    if len(keys) == 1:
        return {leaf: w}
    if w.ndim == 3 and w.shape[0] == len(keys):
        return dict(zip(keys, w, strict=True))
    shares = [1] * len(keys)
    if n_heads and n_kv_heads and len(keys) == 3:
        shares = [n_heads, n_kv_heads, n_kv_heads]
    if w.ndim != 2 or w.shape[1] % sum(shares):
        parts = {2: "two", 3: "three"}[len(keys)] if len(set(shares)) == 1 else sum(shares)
        raise ShapeError(
            f"{piece.text} cannot be cut in {parts}, for {_listed(keys)}",
            "where K and V have fewer heads, give the heads and the key heads too",
        )
    each = w.shape[1] // sum(shares)
    ends = np.cumsum([share * each for share in shares])[:-1]
    return dict(zip(keys, np.split(w, ends, axis=1), strict=True))


def _merged(w: Array) -> Array:
    """The matrices of the heads side by side: [head, in, d] -> [in, head·d]."""
    return w.transpose(1, 0, 2).reshape(w.shape[1], -1) if w.ndim == 3 else w


def _heads_of(
    found: Mapping[str, Array], heads: Mapping[str, int], n_heads: int | None, n_kv: int | None
) -> tuple[int | None, int | None]:
    """The heads of Q, and of K and V where they are fewer, as far as the arrays say so."""
    own, own_kv = heads.get("w_q"), heads.get("w_k", heads.get("w_v"))
    if n_heads is not None and own not in (None, n_heads):
        raise ShapeError(f"w_q holds {own} heads, not {n_heads}", "leave out --heads")
    if n_kv is not None and own_kv not in (None, n_kv):
        raise ShapeError(f"w_k holds {own_kv} heads, not {n_kv}", "leave out --kv-heads")
    if heads.get("w_k", own_kv) != heads.get("w_v", own_kv):
        raise ShapeError(f"w_k holds {heads['w_k']} heads, w_v {heads['w_v']}", "they need as many")
    own = own or n_heads
    width, wide = (found[leaf].shape[-1] if leaf in found else 1 for leaf in ("w_k", "w_q"))
    if own and not own_kv and not n_kv and not wide % own and not width % (wide // own):
        own_kv = width // (wide // own)  # heads of the width that those of W_q have
    return own, own_kv or n_kv


# ---- the output's projection, and biases


def _output(
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
    piece = pieces["w_o"]
    like = [turn for leaf, turn in turns.items() if pieces[leaf].form == piece.form]
    order = [*like, *_orders(piece.form, axes)]
    found = []
    for turn in order:
        w = piece.value  # of 3 axes it is [head, d_v, out] as a kernel too
        w = w.swapaxes(-1, -2) if turn == "turned" and w.ndim in {2, 3} else w
        w = w.reshape(-1, w.shape[-1]) if w.ndim == 3 else w
        if w.ndim == 2 and w.shape[0] == shape[0] and shape[1] in (0, w.shape[1]):
            return w, turn
        found.append(w)
    if whole:
        raise _no_fit(piece, shape[0], "the heads side by side", axes)
    return found[0], order[0]


def _biases(
    piece: Piece, leaf: str, found: Mapping[str, Array], *, whole: bool
) -> dict[str, Array]:
    """A bias as [out], or those of several matrices in one; [n, 1] and [head, d] too."""
    matrices = [f"w_{name}" for name in leaf[2:]]
    keys = [f"b_{name}" for name in leaf[2:]]
    lacking = [name for name in matrices if name not in found]
    if lacking and whole:
        raise InputError(f"{piece.text} has no {lacking[0]}", "leave it out, or give the matrix")
    flat, widths = piece.value.reshape(-1), [found[n].shape[-1] for n in matrices if n in found]
    if not lacking and flat.size == sum(widths) and piece.value.ndim <= 3:
        return dict(zip(keys, np.split(flat, np.cumsum(widths)[:-1]), strict=True))
    if not whole and not flat.size % len(keys):
        return dict(zip(keys, np.split(piece.value, len(keys)), strict=True))
    raise ShapeError(
        f"{piece.text} does not fit {_listed(matrices)}", f"it needs {sum(widths)} numbers"
    )


# ---- what was assumed


def _is_turned(leaf: str, turns: Mapping[str, Turn]) -> bool:
    """Whether the matrix is one of those that were turned."""
    return leaf[0] == "w" and any(
        leaf[2] in of[2:] for of, turn in turns.items() if turn == "turned"
    )


def _notes(
    pieces: Mapping[str, Piece],
    turns: Mapping[str, Turn],
    columns: bool,
    n_heads: int | None,
    n_kv_heads: int | None,
    matrices: Mapping[str, Array],
) -> Iterator[str]:
    """What was assumed and the names do not say by themselves."""
    turned = [leaf for leaf, turn in turns.items() if turn == "turned"]
    if columns:
        yield "the tokens are the columns of x"
    if turned:
        names = [name for leaf in turned for name in pieces[leaf].names]
        yield f"{_listed(names)} taken as [out, in]: X Wᵀ"
    odd = [leaf for leaf, turn in turns.items() if turn != _ORDER[pieces[leaf].form][0]]
    odd = [leaf for leaf in odd if leaf not in turned]
    if odd:
        names = [name for leaf in odd for name in pieces[leaf].names]
        yield f"{_listed(names)} taken as [in, out]: X W"
    for leaf in ("w_qkv", "w_kv"):
        if leaf in pieces:
            side = "rows" if turns[leaf] == "turned" else "columns"
            order = _listed(f"w_{name}" for name in leaf[2:])
            yield f"{_listed(pieces[leaf].names)} cut by {side} into {order}"
    shared = f"{n_kv_heads} heads of K and V" if n_kv_heads not in (None, n_heads) else ""
    own = f"{n_heads} heads" if any(w.ndim == 3 for w in matrices.values()) else ""
    if own or shared:
        yield ", ".join(filter(None, (own, shared)))


def _listed(names: Iterable[str], most: int = 4) -> str:
    known = list(names)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more
