"""Bugs of what goes in and comes out: exchanged, misread, of another place, positions, weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.heads import four_axes, key_head_of
from attncli.attention.kernels import softmax, weighted_sum
from attncli.attention.masks import window
from attncli.check.bugs.bug import Evidence
from attncli.check.bugs.patch import Function, Patch
from attncli.check.bugs.words import Variants, only_if, patches
from attncli.check.positions import PositionKind
from attncli.check.run import Indices
from attncli.check.setup import Setup
from attncli.stages import MAPS, MASKED, OUTPUT, QKV, SCALED, SCORES

BATCH, HEAD, ROW = 0, 1, 2
KINDS = {BATCH: "batch items", HEAD: "heads"}


def with_inputs(detail: str = "", **arrays: Any) -> Variants:
    """Other arrays for q, k or v, exchanged before their positions are put in, or after."""
    patch = Patch(inputs=arrays, detail=detail)
    after = patch.also("after the positions are put in", placed=True)
    both = patch.also("before the positions are put in"), after
    return lambda setup, _: patch if setup.positions is None else both


# ---- layouts


def without_transpose(x: Array) -> Array:
    """Heads made by reshape alone: (n, h·d) read as (h, n, d) instead of (n, h, d)."""
    return np.swapaxes(x, 1, 2).reshape(x.shape)


def with_transpose(x: Array) -> Array:
    """What was reshaped from (n, h, d) to (h, n, d), transposed instead."""
    n_batch, n_heads, n, d = x.shape
    return np.swapaxes(x.reshape(n_batch, n, n_heads, d), 1, 2)


def columns_first(x: Array) -> Array:
    """What was stored as (d, tokens), read as (tokens, d)."""
    return np.swapaxes(x, -1, -2).reshape(x.shape)


def of(name: str, read: Callable[[Array], Array] = np.asarray) -> Function:
    """An input, read otherwise."""
    return lambda inputs: read(inputs[name])


MISREAD = {
    "stored as (tokens, heads, d), read as (heads, tokens, d)": without_transpose,
    "stored as (heads, tokens, d), read as (tokens, heads, d)": with_transpose,
    "stored as (d, tokens), read as (tokens, d)": columns_first,
}


def _misread(name: str, setup: Setup, _: Evidence) -> Iterator[Variants]:
    """One input read with the strides of another layout."""
    *_b, n_heads, n, d = setup.inputs[name].shape
    for words, read in MISREAD.items() if not setup.n_past else ():
        applies = n != d if read is columns_first else n_heads > 1  # n = d: "K not transposed"
        if applies:
            yield with_inputs(words, **{name: of(name, read)})


def _split(setup: Setup, evidence: Evidence) -> Iterator[Variants]:
    split = with_inputs("", **{name: of(name, without_transpose) for name in QKV})
    if setup.shape[HEAD] > 1 and not setup.n_past:
        yield split
        for patch in patches(split, setup, evidence) if evidence.has_all(setup, OUTPUT) else ():
            if isinstance(patch, Patch):
                merged = {OUTPUT: without_transpose}
                yield patch.also("and merged in the same way", relayout=merged)


def _merged(setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    if setup.shape[HEAD] > 1 and evidence.has_all(setup, OUTPUT):
        yield Patch(relayout={OUTPUT: without_transpose})
        detail = "the reverse: (tokens, heads, d) was reshaped to (heads, tokens, d)"
        yield Patch(relayout={OUTPUT: with_transpose}, detail=detail)


def _columns_as_rows(setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    seen = any(evidence.has_all(setup, stage) for stage in MAPS)
    if seen and setup.shape[2] == setup.shape[3] > 1:
        yield Patch(relayout=dict.fromkeys(MAPS, lambda x: np.swapaxes(x, -1, -2)))


def _named(stage: str, setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    """What was observed as `scores` is a later stage."""
    later = stage == SCALED or setup.may_mask() or setup.how.softcap is not None
    if SCORES in evidence.observed and later:
        yield Patch(relabel={SCORES: stage})


def _heads_as_tokens(setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    """Attention over the heads of one token, as (tokens, heads, d) taken for (heads, tokens, d)."""
    known, how = setup.inputs.keys() <= {"q", "k", "v"}, setup.how
    is_causal = how.causal and setup.inputs["k"].shape[1] != setup.shape[HEAD]
    if not known or how.window is not None or is_causal or OUTPUT not in evidence.observed:
        return
    factor = how.scale_factor(setup.d_k) if how.scale != "none" else 1.0

    def output(v: Array, q: Array, k: Array, rows: Indices) -> Array:
        q, k, v = (np.swapaxes(x, 1, 2) for x in (q, k[..., rows, :], v[..., rows, :]))
        x = q @ np.swapaxes(k, -1, -2) * q.dtype.type(factor)
        x = x if how.softcap is None else how.softcap * np.tanh(x / how.softcap)
        may = window(x.shape[-2], x.shape[-1], -1, 0 if how.causal else -1)
        weights = softmax(np.where(may, x, -np.inf))
        return np.swapaxes(weighted_sum(weights, v), 1, 2)

    if setup.shape[2] == setup.shape[3]:
        yield Patch({OUTPUT: output}, whole=(HEAD,))


# ---- numbers of another batch item, head or row


def errors_along(axis: int, evidence: Evidence) -> Array:
    """The mean squared error of each batch item or head, relative to its numbers."""
    total: Array = np.zeros(1)
    others = tuple(i for i in range(4) if i != axis)
    for name in evidence.observed:
        observed, expected, _ = evidence.few(name)
        known = np.isfinite(observed) & np.isfinite(expected)
        apart = np.where(known, observed - expected, 0.0)
        size = np.mean(np.square(np.where(known, expected, 0.0)), axis=others) + 1e-300
        total = total + np.mean(apart * apart, axis=others) / size
    return np.asarray(total)


def _each_and_both(indices: Indices, axis: int, words: str) -> Iterator[Patch]:
    """K and V, then each of them, of these batch items or heads."""
    taken = {name: of(name, lambda x: np.take(x, indices, axis)) for name in ("k", "v")}
    yield Patch(inputs=taken, detail=words.format("K and V"))
    for name, x in taken.items():
        yield Patch(inputs={name: x}, detail=words.format(name.upper()))


def _two_exchanged(axis: int, setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    """The two batch items or heads with the largest errors, or all neighbours, exchanged."""
    over = next((evidence.over(setup, stage) for stage in evidence.observed), None)
    if over is None:
        return
    worst = over[axis][np.argsort(-errors_along(axis, evidence), kind="stable")]
    for words, swap in _swaps(axis, setup.shape[axis], worst):
        yield Patch(instead={axis: swap}, detail=f"the outputs of {words}")
    by_key = setup.key_heads[worst] if axis == HEAD else worst
    for words, swap in _swaps(axis, setup.inputs["k"].shape[axis], by_key):
        yield from _each_and_both(swap, axis, f"{{}} of {words}")


def _swaps(axis: int, n: int, worst: Indices) -> Iterator[tuple[str, Indices]]:
    """The indices 0 to n − 1 with the first two of `worst` exchanged, or each two neighbours."""
    first = list(dict.fromkeys(worst.tolist()))[:2]
    if len(first) == 2:
        swap = np.arange(n)
        swap[first] = swap[first[::-1]]
        one, other = sorted(first)
        yield f"{KINDS[axis]} {one + 1} and {other + 1}", swap
    if n > 2:
        neighbours = np.arange(n) ^ 1
        yield "all neighbours", np.where(neighbours < n, neighbours, np.arange(n))


def _one_for_all(axis: int, setup: Setup, _: Evidence) -> Iterator[Patch]:
    """The keys, the values, both or the outputs of the first batch item or head, for all."""
    if (n := setup.inputs["k"].shape[axis]) > 1:
        yield from _each_and_both(np.zeros(n, dtype=np.intp), axis, "of {}")
    if (n := setup.shape[axis]) > 1:
        yield Patch(instead={axis: np.zeros(n, dtype=np.intp)}, detail="of the output")


def _rows_shifted(setup: Setup, _: Evidence) -> Iterator[Patch]:
    at = np.arange(n := setup.shape[ROW])
    for step, words in ((-1, "the row before"), (1, "the row after")):
        edge = np.where((at + step < 0) | (at + step >= n), -1, at + step)
        for indices, more in (((at + step) % n, "around the end"), (edge, "and 0 at the end")):
            if n > 1:
                yield Patch(instead={ROW: indices}, detail=f"{words}, {more}")


def _transposed_sum(a: Array, v: Array, allowed: Array | None = None) -> Array:
    """Aᵀ V."""
    if allowed is not None:
        allowed = np.swapaxes(np.broadcast_to(allowed, a.shape), -1, -2)
    return weighted_sum(np.swapaxes(a, -1, -2), v, allowed)


def _weights_transposed(setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    if setup.shape[2] == setup.shape[3] > 1 and OUTPUT in evidence.observed:
        yield Patch({OUTPUT: _transposed_sum}, whole=(ROW,))


# ---- norms and residuals


def root_mean_square(x: Array, epsilon: float) -> Array:
    """x over the root of the mean square of its last axis: RMS norm without a gain."""
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon))


def to_length_1(x: Array) -> Array:
    """x over its length."""
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12))


def layer_norm(x: Array, epsilon: float) -> Array:
    """x less its mean, over its standard deviation."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + epsilon))


_NORMS: Mapping[str, Callable[[Array], Array]] = {
    "L2 norm": to_length_1,
    "RMS norm": partial(root_mean_square, epsilon=1e-300),
    "RMS norm with ε 1e-5": partial(root_mean_square, epsilon=1e-5),
    "layer norm with ε 1e-6": partial(layer_norm, epsilon=1e-6),
    "layer norm with ε 1e-5": partial(layer_norm, epsilon=1e-5),
}
"""float32 shows which ε it was; without one nothing is divided by 0."""


def _residual(setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    """The output with the rows of an input added, whose heads may be shared."""
    if OUTPUT not in evidence.observed or setup.positions is not None:
        return
    width, order = setup.inputs["v"].shape[-1], setup.how.head_order
    is_square = setup.shape[2] == setup.shape[3]

    def shared(x: Array, a: Array) -> Array:
        return np.take(x, key_head_of(a.shape[-3], x.shape[-3], order), axis=-3)

    functions: dict[str, Function] = {
        "q": lambda right, q: right() + q,
        "k": lambda right, a, k, rows: right() + shared(k[..., rows, :], a),
        "v": lambda right, a, v, rows: right() + shared(v[..., rows, :], a),
    }
    for name, function in functions.items():
        if setup.inputs[name].shape[-1] == width and (name == "q" or is_square):
            yield Patch({OUTPUT: function}, f"+ {name.upper()}")


# ---- positions


def positions(detail: str = "", **fields: Any) -> Patch:
    """Other fields of the positions."""
    return Patch(positions=fields, detail=detail)


def _kind(was: PositionKind, other: PositionKind, setup: Setup, _: Evidence) -> Iterator[Patch]:
    if setup.positions is not None and setup.positions.kind == was:
        yield positions(kind=other)


def _is_rotary(setup: Setup) -> bool:
    return setup.positions is not None and setup.positions.is_rotary


def _is_added(setup: Setup) -> bool:
    return setup.positions is not None and not setup.positions.is_rotary


def _left_out(setup: Setup, _: Evidence) -> Iterator[Patch]:
    if setup.positions is not None:
        yield Patch(positions=None)
        yield positions("of the queries alone", on=setup.positions.on - {"q"})
        yield positions("of the keys alone", on=setup.positions.on - {"k"})


def _from_1(setup: Setup, _: Evidence) -> Iterator[Patch]:
    starts = "from_query", "from_past", "from_new"
    yield positions(**{name: getattr(setup.positions, name) + 1 for name in starts})


# ---- the weights that make q, k and v: tried singly, for to project x anew takes long


def _remade(
    change: Callable[[Array], Array | None], names: Collection[str], setup: Setup, _: Evidence
) -> Iterator[Patch]:
    """q, k and v of other arrays for each of these weights by itself and for all of them."""
    if (made := setup.projected) is None:
        return
    others = {name: change(made.values[name]) for name in names if name in made.values}
    changed = {name: x for name, x in others.items() if x is not None}
    singly = [{name: x} for name, x in changed.items()]
    for weights in [*singly, changed] if len(changed) > 1 else singly:
        changed_rows = [name for name in QKV if {f"w_{name}", f"b_{name}"} & weights.keys()]
        arrays = made.run(changed_rows, **weights)
        arrays = {name: four_axes(x).astype(np.float64) for name, x in arrays.items()}
        yield Patch(inputs=arrays, detail=" and ".join(weights))


INPUT_BUGS: dict[str, Variants] = {
    "rotary pairs interleaved, not in halves": partial(_kind, "rope-halves", "rope-interleaved"),
    "rotary pairs in halves, not interleaved": partial(_kind, "rope-interleaved", "rope-halves"),
    "sinusoid exponent 2·2i/d, not 2i/d": partial(_kind, "paper", "article"),
    "sinusoid exponent 2i/d, not 2·2i/d": partial(_kind, "article", "paper"),
    "sines, then cosines, not interleaved": only_if(_is_added, positions(in_halves=True)),
    "positions left out": _left_out,
    "positions left out of the values": only_if(_is_added, positions(on=frozenset("qk"))),
    "rotary positions in the values too": only_if(
        lambda setup: _is_rotary(setup) and setup.inputs["v"].shape[-1] % 2 == 0,
        positions(on=frozenset("qkv")),
    ),
    "positions counted from 1, not 0": only_if(_is_added, _from_1),
    "positions restarted at 0 after the past": only_if(
        lambda setup: setup.positions is not None and setup.n_past,
        positions("of the queries alone", from_query=0),
        positions("of the new keys as well", from_query=0, from_new=0),
    ),
    "heads split by reshape without transpose": _split,
    "heads merged by reshape without transpose": _merged,
    "K and V swapped": with_inputs(k=of("v"), v=of("k")),
    "Q and K swapped": with_inputs(q=of("k"), k=of("q")),
    "K not transposed": Patch(inputs={"k": of("k", lambda x: np.swapaxes(x, -1, -2))}, placed=True),
    "key heads tiled, not in blocks": Patch(how={"head_order": "tiled"}),
    "key heads in blocks, not tiled": Patch(how={"head_order": "blocks"}),
    "rows and columns exchanged": _columns_as_rows,
    "the observed scores are scaled already": partial(_named, SCALED),
    "the observed scores are masked already": partial(_named, MASKED),
    "heads and tokens exchanged in the inputs": _heads_as_tokens,
    **{f"{name.upper()} read with wrong strides": partial(_misread, name) for name in "qkv"},
    "two heads exchanged": partial(_two_exchanged, HEAD),
    "two batch items exchanged": partial(_two_exchanged, BATCH),
    "one head for all": partial(_one_for_all, HEAD),
    "one batch item for all": partial(_one_for_all, BATCH),
    "K used as V": with_inputs(v=of("k")),
    "V used as K": with_inputs(k=of("v")),
    "Q used as K": with_inputs(k=of("q")),
    "K used as Q": lambda setup, _: with_inputs(q=lambda inputs: inputs["k"][:, setup.key_heads]),
    "rows shifted by one": _rows_shifted,
    "weights transposed before the sum": _weights_transposed,
    "weights of a projection transposed": partial(
        _remade, lambda w: w.T if w.shape == w.T.shape else None, ("w_q", "w_k", "w_v")
    ),
    "bias of a projection left out": partial(_remade, np.zeros_like, ("b_q", "b_k", "b_v")),
    "queries and keys normalised": only_if(
        lambda setup: not setup.how.qk_norm,
        Patch(how={"qk_norm": True}, detail="RMS norm with ε 1e-6"),
        *(
            Patch({SCORES: lambda right, q, k, norm=norm: right(q=norm(q), k=norm(k))}, words)
            for words, norm in _NORMS.items()
        ),
    ),
    "queries and keys not normalised": only_if(
        lambda setup: setup.how.qk_norm, Patch(how={"qk_norm": False})
    ),
    "residual already in the output": _residual,
}
