"""A probe: an input whose values are the identity; the output of an attention is its weights then.

    check --q FILE --probe probe.npz                    writes it
    check --q probe.npz --observed yours.npz            reads the weights from what it gave

Where a value is narrower than there are keys, V is the identity of one block of keys after another:
item b · n + t of the batch is item b of the input with block t of n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, prod
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.attention.heads import merge_heads
from attncli.attention.inputs import Inputs
from attncli.convention import Layout
from attncli.stages import OUTPUT, SCORES, WEIGHTS
from attncli.tolerance.comparison import Comparison
from attncli.tolerance.run import all_of, stages

# ---- written


def probe_inputs(inputs: Inputs, layout: Layout | None) -> dict[str, Array]:
    """The arrays of a call with values that are one-hot, in the layout of the call.

    V is the identity [n_k, d_v] where d_v ≥ n_k; with fewer than four axes d_v becomes n_k; else
    each batch item stands there n = ⌈n_k / d_v⌉ times, with V of the t-th block of d_v keys.
    """
    arrays = {name: x for name, x in inputs.keywords.items() if isinstance(x, np.ndarray)}
    arrays.pop("d_output", None)
    v, n_k = arrays["v"], inputs.sizes.scores[-1]
    width = v.shape[-1] if v.ndim == 4 else max(v.shape[-1], n_k)
    n_blocks = -(-n_k // width)
    if n_blocks > 1:
        by_batch = {name: x for name, x in arrays.items() if _has_batch(name, x)}
        arrays |= {name: np.repeat(x, n_blocks, axis=0) for name, x in by_batch.items()}
    shape = (*arrays["k"].shape[:-2], n_k, width)
    values = np.zeros(shape, v.dtype)
    keys = np.arange(n_k)
    if n_blocks == 1:
        values[..., keys, keys] = 1
    for block in range(n_blocks if n_blocks > 1 else 0):
        some = keys[block * width : (block + 1) * width]
        values[block::n_blocks, :, some, some - block * width] = 1
    n_past = arrays["past_v"].shape[-2] if "past_v" in arrays else 0
    arrays["v"] = values[..., n_past:, :]
    if n_past:
        arrays["past_v"] = values[..., :n_past, :]
    headed = {"q", "k", "v", "past_k", "past_v"}
    return {name: _turned(x, layout) if name in headed else x for name, x in arrays.items()}


def _has_batch(name: str, x: Array) -> bool:
    """Whether an array has numbers of its own for each batch item."""
    if name == "kv_len":
        return x.ndim > 0
    is_shared = name == "sinks" or (name == "mask" and len(x) == 1)
    return x.ndim == 4 and not is_shared


def _turned(x: Array, layout: Layout | None) -> Array:
    """An array with its heads first, in another layout."""
    if layout == "bsd":
        return merge_heads(x)
    return np.swapaxes(x, -2, -3) if layout and layout.endswith("shd") else x


# ---- read


@dataclass(frozen=True)
class Probe:
    """What the weights of an attention say, which a probe shows.

    sentences  which keys are seen that should not be, and the reverse; scale and bias, as the
               logarithms of the weights have them
    drawing    the mask of the worst head as it is right, and as it was observed, line by line
    n_extra, n_missing  how many pairs of a query and a key are seen that should not be, and not
               seen that should be
    """

    sentences: tuple[str, ...]
    drawing: tuple[str, ...]
    n_extra: int
    n_missing: int


MOST_CELLS = 2**22
"""Of more scores the weights are not read: 32 MB a stage."""

SEEN = 1e-6
"""A key takes part where its weight is this share of the largest weight of its row, or more."""


def read_probe(comparison: Comparison) -> Probe | None:
    """What the observed output of a probe says; None where the values are none, or are too many."""
    setup, stage = comparison.setup, comparison.errors.get(OUTPUT)
    is_all = stage is not None and stage.expected.shape[:3] == setup.shape[:3]
    if stage is None or not is_all or prod(setup.shape) > MOST_CELLS or setup.convention.dropout:
        return None
    values = setup.inputs["v"]
    n_blocks = _blocks_of(values)
    if not n_blocks:
        return None
    n_k, observed = setup.shape[3], stage.observed
    weights = np.concatenate([observed[t::n_blocks] for t in range(n_blocks)], axis=-1)[..., :n_k]
    right = stages(setup, all_of(setup.shape), [SCORES, WEIGHTS])
    pairs = _Weights(weights, right[WEIGHTS][::n_blocks], right[SCORES][::n_blocks])
    extra, missing = pairs.sees & ~pairs.should_see, pairs.should_see & ~pairs.sees
    counts = int(extra.sum()), int(missing.sum())
    sentences = [*_of_keys(pairs, extra, missing), *_of_logarithms(pairs, comparison)]
    drawing = _drawing(pairs) if any(counts) else []
    return Probe(tuple(sentences), tuple(drawing), *counts)


def _blocks_of(values: Array) -> int:
    """Into how many blocks of keys these values are cut; 0 where they are no probe."""
    n_batch, _, n_k, width = values.shape
    n_blocks: int = -(-n_k // width)
    if n_batch % n_blocks:
        return 0
    keys = np.arange(n_k)
    for block in range(n_blocks):
        right = np.zeros((n_k, width))
        some = keys[block * width : (block + 1) * width]
        right[some, some - block * width] = 1
        if not (values[block::n_blocks] == right).all():
            return 0
    return n_blocks


class _Weights(NamedTuple):
    """[batch, head, query, key]: the observed weights, the right ones, and Q Kᵀ."""

    observed: Array
    right: Array
    scores: Array

    @property
    def sees(self) -> BoolArray:
        """Where a query sees a key."""
        return _visible(self.observed)

    @property
    def should_see(self) -> BoolArray:
        """Where a query should see a key."""
        return _visible(self.right)


def _visible(weights: Array) -> BoolArray:
    top = np.abs(weights).max(axis=-1, keepdims=True, initial=0.0)
    return np.asarray(np.abs(weights) > SEEN * np.where(np.isfinite(top), top, 0))


def _of_keys(pairs: _Weights, extra: BoolArray, missing: BoolArray) -> list[str]:
    """How many keys are seen that should not be, and the reverse, with an example."""
    sentences = list[str]()
    parts = (
        (extra, "take part that should not", "sees"),
        (missing, "are missing", "does not see"),
    )
    for cells, words, verb in parts:
        if not cells.any():
            continue
        rows = int(cells.any(axis=-1).sum())
        batch, head, query, _ = (int(x) for x in np.argwhere(cells)[0])
        keys = np.flatnonzero(cells[batch, head, query])
        listed = ", ".join(f"k{key + 1}" for key in keys[:MOST_LISTED])
        more = f" and {len(keys) - MOST_LISTED} more" * (len(keys) > MOST_LISTED)
        places = [f"batch item {batch + 1}"] * (cells.shape[0] > 1)
        places += [f"head {head + 1}"] * (cells.shape[1] > 1)
        place = ", ".join([*places, f"q{query + 1}"])
        of_rows = f"in {rows} row{'s' * (rows > 1)}"
        pairs_text = f"{cells.sum()} pairs of a query and a key {words}, {of_rows}"
        sentences.append(f"{pairs_text}: {place} {verb} {listed}{more}")
    if not sentences:
        sentences.append("every query sees the keys that it should, and no others")
    return sentences


MOST_LISTED = 8


def _of_logarithms(pairs: _Weights, comparison: Comparison) -> list[str]:
    """The scale, and a bias, that the logarithms of the weights have.

    ln A = scale · Q Kᵀ + bias + c, with one number c for each row.
    """
    both = pairs.sees & pairs.should_see & (pairs.observed > 0)
    counted = both & (both.sum(axis=-1, keepdims=True) > 1)
    if counted.sum() < 3:
        return []
    logarithms = _centred(np.log(np.where(counted, pairs.observed, 1)), counted)
    scores = _centred(pairs.scores, counted)
    squares = float(np.square(scores).sum())
    if not squares:
        return []
    scale = float((scores * logarithms).sum()) / squares
    right = comparison.setup.convention.scale_factor(comparison.setup.d_k)
    size = float(np.square(logarithms).sum())
    rest = logarithms - scale * scores
    if float(np.square(rest).sum()) <= EXPLAINED * size:
        return [f"the scale that the weights have is {scale:.5g}{_beside(scale, right)}"]
    keys = np.broadcast_to(np.arange(rest.shape[-1], dtype=np.float64), rest.shape)
    distances = _centred(keys, counted)
    columns = np.stack([scores[counted], distances[counted]], axis=-1)
    (scale, slope), *_ = np.linalg.lstsq(columns, logarithms[counted])
    rest = logarithms - scale * scores - slope * distances
    if float(np.square(rest).sum()) <= EXPLAINED * size:
        return [
            f"the scale that the weights have is {scale:.5g}{_beside(scale, right)}",
            f"there is a bias of {slope:+.5g} for each key to the right",
        ]
    return _bias_of_keys(logarithms, scores, counted, right)


EXPLAINED = 1e-6
"""The share of a sum of squares that rounding, and nothing else, may leave."""


def _beside(scale: float, right: float) -> str:
    is_right = abs(scale - right) <= 1e-3 * abs(right)
    return ", as it should be" if is_right else f"; it should be {right:.5g}"


def _bias_of_keys(logarithms: Array, scores: Array, counted: BoolArray, right: float) -> list[str]:
    """The scale, and what each key has beside it in every row; nothing where that is not all."""
    n_k = logarithms.shape[-1]
    cells = np.argwhere(counted)
    if len(cells) > MOST_ROWS or n_k > MOST_ROWS // 8:
        return []
    rows = {tuple(row): at for at, row in enumerate(np.unique(cells[:, :3], axis=0).tolist())}
    of_row = np.array([rows[tuple(cell[:3])] for cell in cells.tolist()])
    columns = np.zeros((len(cells), 1 + n_k + len(rows)))
    columns[:, 0] = scores[counted]
    columns[np.arange(len(cells)), 1 + cells[:, 3]] = 1
    columns[np.arange(len(cells)), 1 + n_k + of_row] = 1
    values, *_ = np.linalg.lstsq(columns, logarithms[counted])
    rest = logarithms[counted] - columns @ values
    if float(np.square(rest).sum()) > EXPLAINED * float(np.square(logarithms).sum()):
        return []
    bias = values[1 : 1 + n_k]
    bias = np.where(np.isin(np.arange(n_k), cells[:, 3]), bias - np.median(bias[cells[:, 3]]), 0)
    most = sorted(np.argsort(-np.abs(bias))[:MOST_LISTED].tolist())
    others = [at for at in most if abs(bias[at]) > 1e-3]
    listed = ", ".join(f"k{at + 1} counts {exp(bias[at]):.4g} times" for at in others)
    scale = float(values[0])
    return [f"the scale that the weights have is {scale:.5g}{_beside(scale, right)}", listed]


MOST_ROWS = 2000
"""Of so many weights a bias of each key is solved for."""


def _centred(x: Array, counted: BoolArray) -> Array:
    """Less the mean of its row over what is counted; 0 elsewhere."""
    n = np.maximum(counted.sum(axis=-1, keepdims=True), 1)
    mean = np.where(counted, x, 0).sum(axis=-1, keepdims=True) / n
    return np.where(counted, x - mean, 0.0)


MOST_DRAWN = 24, 32
"""So many rows and columns of a mask are drawn."""


def _drawing(pairs: _Weights) -> list[str]:
    """The two masks of the head in which most differs, beside each other."""
    differ = pairs.sees != pairs.should_see
    batch, head = np.unravel_index(int(differ.sum(axis=(2, 3)).argmax()), differ.shape[:2])
    sees, should = pairs.sees[batch, head], pairs.should_see[batch, head]
    n_rows, n_columns = (min(a, b) for a, b in zip(sees.shape, MOST_DRAWN, strict=True))
    first = 0
    if differ.shape[2] > n_rows:  # the rows around the first that differs
        rows = np.flatnonzero(differ[batch, head].any(axis=-1))
        first = min(int(rows[0]), differ.shape[2] - n_rows)
    names = [f"q{row + 1}" for row in range(first, first + n_rows)]
    width, gap = max(map(len, names)), " " * 3
    places = [f"batch item {batch + 1}"] * (differ.shape[0] > 1)
    places += [f"head {head + 1}"] * (differ.shape[1] > 1)
    columns = f"k1 to k{n_columns}"
    lines = [", ".join([*places, columns]) + " (# sees, + should not, - should and does not)"]
    lines.append(f"{'':{width}} {'right':{max(n_columns, 5)}}{gap}observed")
    for row, name in enumerate(names, first):
        right = _signs(should[row, :n_columns], should[row, :n_columns])
        observed = _signs(sees[row, :n_columns], should[row, :n_columns])
        lines.append(f"{name:{width}} {right:{max(n_columns, 5)}}{gap}{observed}")
    return lines


def _signs(sees: Sequence[bool] | BoolArray, should: Sequence[bool] | BoolArray) -> str:
    signs: Mapping[tuple[bool, bool], str] = {
        (True, True): "#",
        (False, False): ".",
        (True, False): "+",
        (False, True): "-",
    }
    return "".join(signs[bool(x), bool(y)] for x, y in zip(sees, should, strict=True))
