"""Weights as they are published, brought to one form: w_q … b_o, [in, out], heads side by side.

    names, arrays ── grouped ── one array a matrix ── turned ── cut (qkv) ── merged (heads)

What a name says is in names.py, which way round a matrix is in axes.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention import axes as ways
from attncli.attention.axes import ORDER, READS_X, Axes, Piece, Turn, listed
from attncli.attention.heads import shape_text
from attncli.attention.names import parse
from attncli.attention.numbers import as_numbers
from attncli.errors import InputError, ShapeError


class Published(NamedTuple):
    """The weights of one attention."""

    arrays: dict[str, Array]  # w_q, w_k, w_v, and w_o and b_* if there are any, [in, out] and [out]
    names: dict[str, tuple[str, ...]]  # each of them → the names that it came under
    turned: frozenset[str] = frozenset()  # those that came as [out, in]
    n_heads: int | None = None  # that the arrays themselves have; None where they are one matrix
    n_kv_heads: int | None = None  # heads of K and V, where they differ
    columns: bool = False  # tokens are the columns of x
    notes: tuple[str, ...] = ()  # what was assumed, for one line


def blocks(names: Iterable[str]) -> dict[str, list[str]]:
    """The names of each attention's weights, by what stands before them in its first name.

    >>> blocks(["h.0.attn.c_attn.weight", "h.0.mlp.c_proj.weight", "wte.weight"])
    {'h.0.attn': ['h.0.attn.c_attn.weight']}
    """
    scopes: dict[str, dict[str, str]] = {}
    for name in names:
        if parsed := parse(name):
            scopes.setdefault(parsed.scope, {})[name] = parsed.leaf
    blocks = {}
    for scope, leaves in scopes.items():
        if not {*leaves.values()}.isdisjoint(READS_X):
            start = next(iter(leaves))[: len(scope)]  # the scope as it is written there
            is_same = start.lower().replace("/", ".") == scope
            blocks[start if is_same else scope] = [*leaves]
    return blocks


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
    pieces = _pieces(arrays, place)
    names = _names(pieces, place, whole=whole)
    turns, columns = ways.turns_of(pieces, shapes, axes, whole=whole)
    matrices: dict[str, Array] = {}
    for leaf in turns:
        w = ways.turned(pieces[leaf], turns[leaf])
        matrices |= _cut(w, leaf, pieces[leaf], n_heads, n_kv_heads)
    heads = {leaf: w.shape[0] for leaf, w in matrices.items() if w.ndim == 3}
    weights = dict(matrices)
    for leaf in heads:  # side by side: [head, in, d] -> [in, head·d]
        w = matrices[leaf]
        weights[leaf] = w.transpose(1, 0, 2).reshape(w.shape[1], -1)
    own_heads, own_kv_heads = _heads_of(weights, heads, n_heads, n_kv_heads)
    if "w_o" in pieces:
        n = own_heads or n_heads or 1
        width = _width(weights, "w_v") // (own_kv_heads or n) * n
        out = 0 if whole else shapes[0][-1]
        weights["w_o"], turns["w_o"] = ways.output_of(
            pieces, (width, out), turns, axes, whole=whole
        )
    for leaf, piece in pieces.items():
        if leaf[0] == "b":
            weights |= _biases(piece, leaf, weights, whole=whole)
    notes = tuple(_notes(pieces, turns, columns, own_heads, own_kv_heads, matrices))
    letters = {x for leaf, turn in turns.items() if turn == "turned" for x in leaf[2:]}
    came_turned = frozenset(leaf for leaf in weights if leaf[0] == "w" and leaf[2] in letters)
    return Published(weights, names, came_turned, own_heads, own_kv_heads, columns, notes)


# ---- one array a matrix


def _pieces(arrays: Mapping[str, npt.ArrayLike], place: str) -> dict[str, Piece]:
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
    pieces = {}
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
        pieces[leaf] = Piece(names, parsed[names[0]].form, value)
    return pieces


def twice(name: str, other: str, meaning: str) -> InputError:
    return InputError(f"{name} and {other} both mean {meaning}", "give it once")


def _names(pieces: Mapping[str, Piece], place: str, *, whole: bool) -> dict[str, tuple[str, ...]]:
    """The names under which each matrix and bias came, each once; whole: W_q, W_k and W_v too."""
    names: dict[str, tuple[str, ...]] = {}
    for leaf, piece in pieces.items():
        for letter in leaf[2:]:
            name = f"{leaf[0]}_{letter}"
            if name in names:
                raise twice(listed(names[name]), listed(piece.names), f"{place}{name}")
            names[name] = piece.names
    missing = [leaf for leaf in ("w_q", "w_k", "w_v") if leaf not in names]
    if missing and whole:
        given = listed([name for piece in pieces.values() for name in piece.names]) or "none"
        hint = "x needs w_q, w_k and w_v, or all three in one: in_proj_weight, c_attn or qkv"
        raise InputError(f"there is no {listed(missing)} among the weights ({given})", hint)
    return names


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
        hint = "where K and V have fewer heads, give the heads and the key heads too"
        raise ShapeError(f"{piece.text} cannot be cut in {parts}, for {listed(keys)}", hint)
    ends = np.cumsum(shares)[:-1] * (w.shape[1] // sum(shares))
    return dict(zip(keys, np.split(w, ends, axis=1), strict=True))


def _width(weights: Mapping[str, Array], leaf: str) -> int:
    """The columns of a matrix; 0 where there is none."""
    return weights[leaf].shape[-1] if leaf in weights and weights[leaf].ndim else 0


def _heads_of(
    weights: Mapping[str, Array], heads: Mapping[str, int], n_heads: int | None, n_kv: int | None
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
    d_k, rest = divmod(_width(weights, "w_q"), own or 1)
    if own and d_k and not (own_kv or n_kv or rest or _width(weights, "w_k") % d_k):
        own_kv = _width(weights, "w_k") // d_k  # heads of the width that those of W_q have
    return own, own_kv or n_kv


# ---- the output's projection, and biases


def _biases(
    piece: Piece, leaf: str, weights: Mapping[str, Array], *, whole: bool
) -> dict[str, Array]:
    """A bias as [out], or those of several matrices in one; [n, 1] and [head, d] too."""
    matrices, keys = [f"w_{name}" for name in leaf[2:]], [f"b_{name}" for name in leaf[2:]]
    lacking = [name for name in matrices if name not in weights]
    if lacking and whole:
        raise InputError(f"{piece.text} has no {lacking[0]}", "leave it out, or give the matrix")
    flat, widths = piece.value.reshape(-1), [_width(weights, name) for name in matrices]
    if not lacking and flat.size == sum(widths) and piece.value.ndim <= 3:
        return dict(zip(keys, np.split(flat, np.cumsum(widths)[:-1]), strict=True))
    if whole or flat.size % len(keys):
        needed = f"it needs {sum(widths)} numbers"
        raise ShapeError(f"{piece.text} does not fit {listed(matrices)}", needed)
    if len(keys) == 1:
        return {keys[0]: piece.value}
    return dict(zip(keys, np.split(flat, len(keys)), strict=True))


# ---- what was assumed


def _notes(
    pieces: Mapping[str, Piece],
    turns: Mapping[str, Turn],
    columns: bool,
    n_heads: int | None,
    n_kv_heads: int | None,
    matrices: Mapping[str, Array],
) -> Iterator[str]:
    """What was assumed and the names do not say by themselves."""
    if columns:
        yield "the tokens are the columns of x"
    odd = [x for x, turn in turns.items() if turn not in ("turned", ORDER[pieces[x].form][0])]
    turned = [x for x, turn in turns.items() if turn == "turned"]
    for leaves, form in ((turned, "[out, in]: X Wᵀ"), (odd, "[in, out]: X W")):
        if leaves:
            names = [name for leaf in leaves for name in pieces[leaf].names]
            yield f"{listed(names)} taken as {form}"
    for leaf in ("w_qkv", "w_kv"):
        if leaf in pieces:
            side = "rows" if turns[leaf] == "turned" else "columns"
            order = listed(f"w_{name}" for name in leaf[2:])
            yield f"{listed(pieces[leaf].names)} cut by {side} into {order}"
    shared = f"{n_kv_heads} heads of K and V" if n_kv_heads not in (None, n_heads) else ""
    own = f"{n_heads} heads" if any(w.ndim == 3 for w in matrices.values()) else ""
    if own or shared:
        yield ", ".join(filter(None, (own, shared)))
