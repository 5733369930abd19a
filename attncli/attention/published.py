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

_IN = {"w_q": "q", "w_k": "k", "w_v": "v", "w_qkv": "qkv", "w_kv": "kv"}
"""Matrix → what it projects to; all of them read the width of x, of x_kv or of x_v."""


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
) -> Published:
    """The weights of one attention, from arrays by the names under which they are published.

    shapes  of what W_q, W_k and W_v are multiplied with: x, or x, x_kv and x_v
    axes    the order of each matrix's axes, instead of what names and shapes say
    n_*     heads into which packed matrices of grouped queries are cut

    Raises InputError where one is missing or there twice, ShapeError where one fits no way round.

    >>> found = published({"Wq": [[1], [2]], "Wk": [[3], [4]], "Wv": [[5], [6]]}, [(3, 2)])
    >>> found.arrays["w_v"].tolist(), found.notes
    ([[5], [6]], ())
    >>> published({"in_proj_weight": np.ones((9, 5))}, [(2, 5)]).arrays["w_k"].shape
    (5, 3)
    """
    pieces = _pieces(arrays)
    _check_complete(pieces)
    turns, columns = _turns(pieces, shapes, axes)
    matrices: dict[str, Array] = {}
    names = {leaf: piece.names for leaf, piece in pieces.items() if leaf[2:] in "qkvo"}
    for leaf, piece in pieces.items():
        if leaf in _IN:
            whole = _turned(piece, turns[leaf])
            assert whole is not None  # noqa: S101 - `_turns` looked
            cut = _cut(whole, leaf, piece, n_heads, n_kv_heads)
            matrices |= cut
            names |= dict.fromkeys(cut, piece.names)
    heads = {leaf: w.shape[0] for leaf, w in matrices.items() if w.ndim == 3}
    found = {leaf: _merged(matrices[leaf]) for leaf in ("w_q", "w_k", "w_v")}
    own_heads, own_kv_heads = _heads_of(found, heads, n_heads, n_kv_heads)
    if "w_o" in pieces:
        n = own_heads or n_heads or 1
        width = int(found["w_v"].shape[1]) // (own_kv_heads or n) * n
        found["w_o"], turns["w_o"] = _output(pieces["w_o"], width, turns, pieces, axes)
    for leaf, piece in pieces.items():
        if leaf[0] == "b":
            cut_biases = _biases(piece, leaf, found)
            found |= cut_biases
            names |= dict.fromkeys(cut_biases, piece.names)
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


def _check_complete(pieces: Mapping[str, Piece]) -> None:
    """InputError unless there are W_q, W_k and W_v, each once."""
    gives = {"w_qkv": ("w_q", "w_k", "w_v"), "w_kv": ("w_k", "w_v")}
    known: dict[str, tuple[str, ...]] = {}
    for leaf, piece in pieces.items():
        for own in gives.get(leaf, (leaf,)):
            if own in known:
                both = f"{_listed(known[own])} and {_listed(piece.names)}"
                raise InputError(f"{both} both mean {own}", "give it once")
            known[own] = piece.names
    missing = [leaf for leaf in ("w_q", "w_k", "w_v") if leaf not in known]
    if missing:
        given = _listed([name for piece in pieces.values() for name in piece.names]) or "none"
        raise InputError(
            f"there is no {_listed(missing)} among the weights ({given})",
            "x needs w_q, w_k and w_v, or all three in one: in_proj_weight, c_attn or qkv",
        )


# ---- which way round


Turn = Literal["as it is", "turned", "kernel"]

_ORDER: dict[Form, tuple[Turn, ...]] = {
    "plain": ("as it is", "turned", "kernel"),
    "conv1d": ("as it is", "turned"),
    "linear": ("turned", "as it is"),
    "kernel": ("kernel", "as it is", "turned"),
}
"""The ways round to be tried for each form, in order. A kernel of 2 axes is as it is."""


def _turned(piece: Piece, turn: Turn) -> Array | None:
    """The matrix as [in, out] or [head, in, out]; None where it has not so many axes."""
    w = piece.value
    if w.ndim == 2:
        return w.T if turn == "turned" else w
    if w.ndim != 3 or (turn == "kernel" and len(piece.names) > 1):
        return None
    if turn == "kernel":
        return w.transpose(1, 0, 2)
    return w.swapaxes(1, 2) if turn == "turned" else w


def _orders(form: Form, axes: Axes) -> tuple[Turn, ...]:
    if axes == "out-in":
        return ("turned",)
    order = _ORDER[form]
    return order if axes == "auto" else tuple(turn for turn in order if turn != "turned")


def _turns(
    pieces: Mapping[str, Piece], shapes: Sequence[tuple[int, ...]], axes: Axes
) -> tuple[dict[str, Turn], bool]:
    """How each matrix is turned, and whether tokens are the columns of x.

    Tokens as columns are tried last: where no way round fits x as it is.
    """
    shapes = [*shapes, *[shapes[-1]] * (3 - len(shapes))]
    widths = {name: shape[-1] for name, shape in zip("qkv", shapes, strict=True)}
    forms: dict[tuple[Form, int], list[str]] = {}
    for leaf in filter(_IN.__contains__, pieces):
        forms.setdefault((pieces[leaf].form, pieces[leaf].value.ndim), []).append(leaf)

    def fitting(widths: Mapping[str, int], *, columns: bool) -> dict[str, Turn]:
        found: dict[str, Turn] = {}
        for (form, _), leaves in forms.items():
            # with tokens as columns the formula is W X, so a square matrix is [out, in] too
            order = _orders("linear" if columns else form, axes)
            for turn in order:
                turned = [(leaf, _turned(pieces[leaf], turn)) for leaf in leaves]
                if all(w is not None and w.shape[-2] == widths[leaf[-1]] for leaf, w in turned):
                    found |= dict.fromkeys(leaves, turn)
                    break
        return found

    for columns in (False, True) if all(len(shape) == 2 for shape in shapes) else (False,):
        of_x = {name: shape[-1 - columns] for name, shape in zip("qkv", shapes, strict=True)}
        turns = fitting(of_x, columns=columns)
        if len(turns) == sum(map(len, forms.values())):
            return turns, columns
    turns = fitting(widths, columns=False)
    leaf = next(leaf for leaves in forms.values() for leaf in leaves if leaf not in turns)
    raise _no_fit(pieces[leaf], widths[leaf[-1]], "x", axes)


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
    names = _IN[leaf]
    if len(names) == 1:
        return {leaf: w}
    keys = [f"w_{name}" for name in names]
    if w.ndim == 3 and w.shape[0] == len(names):
        return dict(zip(keys, w, strict=True))
    if w.ndim != 2:
        raise ShapeError(f"{piece.text} cannot be cut into {_listed(keys)}", "give it 2 axes")
    return dict(zip(keys, _split(w, names, piece, n_heads, n_kv_heads), strict=True))


def _split(
    w: Array, names: str, piece: Piece, n_heads: int | None, n_kv_heads: int | None
) -> list[Array]:
    """The last axis cut for q, k and v: in equal parts, or as many as they have heads."""
    shares = [1] * len(names)
    if n_heads and n_kv_heads and "q" in names:
        shares = [n_heads, n_kv_heads, n_kv_heads]
    if w.shape[-1] % sum(shares):
        raise ShapeError(
            f"{piece.text} cannot be cut into {_listed([f'w_{name}' for name in names])}: "
            f"{w.shape[-1]} does not divide by {sum(shares)}",
            "with fewer heads of K and V, give --heads and --kv-heads",
        )
    each = w.shape[-1] // sum(shares)
    return np.split(w, np.cumsum([share * each for share in shares])[:-1], axis=-1)


def _merged(w: Array) -> Array:
    """The matrices of the heads side by side: [head, in, d] -> [in, head·d]."""
    return w if w.ndim == 2 else w.transpose(1, 0, 2).reshape(w.shape[1], -1)


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
    width, wide = found["w_k"].shape[1], found["w_q"].shape[1]
    if own and not own_kv and not n_kv and not wide % own and not width % (wide // own):
        own_kv = width // (wide // own)  # heads of the width that those of W_q have
    return own, own_kv or n_kv


# ---- the output's projection, and biases


def _output(
    piece: Piece,
    width: int,
    turns: Mapping[str, Turn],
    pieces: Mapping[str, Piece],
    axes: Axes,
) -> tuple[Array, Turn]:
    """W_o as [h·d_v, out]; a square one is turned as the other matrices of its form are."""
    like = [turn for leaf, turn in turns.items() if pieces[leaf].form == piece.form]
    for turn in (*like, *_orders(piece.form, axes)):
        w = piece.value
        w = w.swapaxes(-1, -2) if turn == "turned" and w.ndim > 1 else w
        w = w.reshape(-1, w.shape[-1]) if w.ndim == 3 else w  # of a kernel, too, [head, d_v, out]
        if w.ndim == 2 and w.shape[0] == width:
            return w, turn
    raise _no_fit(piece, width, "the heads side by side", axes)


def _biases(piece: Piece, leaf: str, found: Mapping[str, Array]) -> dict[str, Array]:
    """A bias as [out], or those of several matrices in one; [n, 1] and [head, d] too."""
    names = leaf[2:]
    flat = piece.value.reshape(-1)
    lacking = [f"w_{name}" for name in names if f"w_{name}" not in found]
    if lacking:
        raise InputError(f"{piece.text} has no {lacking[0]}", "leave it out, or give the matrix")
    widths = [found[f"w_{name}"].shape[1] for name in names]
    if flat.size != sum(widths) or piece.value.ndim > 3:
        raise ShapeError(
            f"{piece.text} does not fit {_listed([f'w_{name}' for name in names])}",
            f"it needs {sum(widths)} numbers",
        )
    parts = np.split(flat, np.cumsum(widths)[:-1])
    return {f"b_{name}": part for name, part in zip(names, parts, strict=True)}


# ---- what was assumed


def _is_turned(leaf: str, turns: Mapping[str, Turn]) -> bool:
    packed = ("w_qkv",) if leaf == "w_q" else ("w_qkv", "w_kv") if leaf in ("w_k", "w_v") else ()
    return any(turns.get(name) == "turned" for name in (leaf, *packed))


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
            order = ", ".join(f"w_{name}" for name in _IN[leaf])
            yield f"{_listed(pieces[leaf].names)} cut by {side} into {order}"
    shared = f"{n_kv_heads} heads of K and V" if n_kv_heads not in (None, n_heads) else ""
    own = f"{n_heads} heads" if any(w.ndim == 3 for w in matrices.values()) else ""
    if own or shared:
        yield ", ".join(filter(None, (own, shared)))


def _listed(names: Iterable[str], most: int = 4) -> str:
    known = list(names)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more
