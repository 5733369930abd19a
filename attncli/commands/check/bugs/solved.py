"""Bugs whose numbers follow from the observed ones at once: a bias, a projection, dropout.

More numbers must agree with each one that is computed from them than it has of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from attncli.arrays import Array
from attncli.attention.heads import four_axes, merge_heads
from attncli.commands.check.bugs.bug import ENOUGH, Change, Evidence
from attncli.commands.check.bugs.facts import number_text
from attncli.commands.check.bugs.fits import EXPLAINED
from attncli.stages import DROPPED, OUTPUT, PROJECTED, QKV, WEIGHTS
from attncli.tolerance.comparison import n_different
from attncli.tolerance.rule import rms
from attncli.tolerance.run import PROJECTION, all_of, stages
from attncli.tolerance.setup import Setup
from attncli.tolerance.spans import OF_ALL_HEADS

TIMES = 3
"""So many numbers must agree with each one that is computed from them."""


def _rows_of(x: Array, heads: Array) -> Array:
    """[row, d]: the rows of some heads, of all batch items."""
    return x[:, heads].reshape(-1, x.shape[-1])


def _value_bias(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The median of the errors of each column of a head, which is the same in every row.

    No bias is a number beside which the right ones are less than a rounding: the column is that
    number. One number for all columns is none: "everywhere, by one addend" says more.
    """
    over, v = evidence.over(setup, OUTPUT), setup.inputs["v"]
    if over is None or setup.positions is not None:
        return
    observed, expected, _ = evidence.few(OUTPUT)
    apart = observed - expected
    key_heads, bias = setup.key_heads[over.head], np.zeros((v.shape[1], 1, v.shape[-1]))
    for head in np.unique(key_heads):
        errors, right = (_rows_of(x, key_heads == head) for x in (apart, expected))
        is_finite = np.isfinite(errors).all(axis=-1)
        errors, right = errors[is_finite], right[is_finite]
        if len(errors) < TIMES:
            return
        bias[head] = np.median(errors, axis=0)
        if rms(np.abs(errors - bias[head])) > EXPLAINED * rms(np.abs(errors)):
            return
        spread = np.ptp(right, axis=0)
        if ((evidence.eps * np.abs(bias[head]) > spread) & (spread > 0)).any():
            return
    if np.ptp(bias) > EXPLAINED * rms(np.abs(bias)):
        yield setup.with_inputs(v=v + bias)


TINY = 1e-24
"""A mean square below this one is that of rounding in float64."""


def _output_times(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """One factor, one a head, one a channel: the least that fit."""
    observed, expected = (x.get(OUTPUT) for x in (evidence.observed, evidence.expected))
    if observed is None or expected is None or observed.shape != expected.shape:
        return
    if not (np.isfinite(observed) & np.isfinite(expected)).all():
        return
    fits, plain = [], float(np.square(observed - expected).mean())
    axes = {"all of it": (0, 1, 2, 3), "head by head": (0, 2, 3), "channel by channel": (0, 2)}
    for words, over in axes.items():
        squares = np.square(expected).sum(axis=over, keepdims=True)
        times = (observed * expected).sum(axis=over, keepdims=True) / np.maximum(squares, 1e-300)
        loss = float(np.square(observed - times * expected).mean())
        if loss <= EXPLAINED * plain and _confirms_each(expected, observed, over):
            fits.append((loss, times, words))
    if not fits:
        return
    least = min(loss for loss, _, _ in fits)
    best = [(x, words) for loss, x, words in fits if loss <= 2 * least + TINY]
    if not best or (best[0][0] == 0).any():
        return
    times, words = best[0]
    if PROJECTED in evidence.expected and times.size <= MOST_FACTORS:
        times = _times_of_projected(times, setup, evidence)
    if times.size == 1:
        changed = setup.with_result(OUTPUT, partial(np.multiply, float(times.item())))
    elif PROJECTED in evidence.expected:
        changed = setup.with_whole(1).with_result(OUTPUT, partial(np.multiply, times))
    elif (subset := evidence.over(setup, OUTPUT)) is None:
        return
    else:
        every = np.ones((1, setup.shape[1], 1, times.shape[3]))
        every[:, subset.head] = times
        changed = setup.with_whole(1).with_result(OUTPUT, partial(np.multiply, every))
    yield changed.with_detail(f"times {number_text(times.ravel())}, {words}")


def _times_of_projected(times: Array, setup: Setup, evidence: Evidence) -> Array:
    """The factors as they follow from the projected numbers: what W_o was inverted for is less
    exact. Those that are as good as 0 are 0."""
    projected, right, rows = evidence.few(PROJECTED)
    residuals = (projected - right)[:, 0].ravel()
    output = evidence.expected[OUTPUT][:, :, rows]
    parts = np.eye(times.size).reshape(times.size, *times.shape)
    columns = [merge_heads(output * part) @ setup.inputs["w_o"] for part in parts]
    more = np.linalg.lstsq(np.stack([x.ravel() for x in columns], axis=-1), residuals)[0]
    result = 1 + more.reshape(times.shape)
    return np.where(np.abs(result) < ROUND_OFF, 0.0, result)


def _confirms_each(expected: Array, observed: Array, over: tuple[int, ...]) -> bool:
    """Whether so many different numbers confirm each factor of those along some axes."""
    pairs = np.moveaxis(expected + 1j * observed, over, range(-len(over), 0))
    of_factors = pairs.reshape(-1, math.prod(pairs.shape[-len(over) :]))
    each = (x[np.flatnonzero(x.real)[:ENOUGH]] for x in of_factors)
    return all(x.size >= TIMES and n_different(x) >= TIMES for x in each)


MOST_FACTORS = 64
"""So many are solved for at once: of each there is a column as long as what was observed."""

ROUND_OFF = 1e-6
"""A factor that is so small is 0, and the rounding of float32."""

# ---- a projection that was solved for

DEPENDENT = 1e-6
"""Below this share of the largest, a column follows from the others: any factor of it would do."""

SINGLE = 0.9
"""A column of which one entry has so large a share copies one channel: that is another bug."""


def solved(x: Array, y: Array) -> Array | None:
    """The matrix and, as its last row, the bias that give y from x, or None: [n, d], [n, m].

    None where there are not enough rows, where they leave it open, where it leaves too much of y
    unexplained, and where each column of y is one of x times a factor.
    """
    x = np.concatenate([x, np.ones((len(x), 1))], axis=-1)
    if len(x) < TIMES * x.shape[1] or not (np.isfinite(x).all() and np.isfinite(y).all()):
        return None
    products = x.T @ x
    try:
        diagonal = np.diag(np.linalg.cholesky(products))
    except np.linalg.LinAlgError:
        return None
    if diagonal.min() <= DEPENDENT * diagonal.max():
        return None
    for some in (y[:, :4], y):  # a few columns first: most often they refuse it
        matrix = np.linalg.solve(products, x.T @ some)
        matrix = matrix + np.linalg.solve(products, x.T @ (some - x @ matrix))  # the last digits
        spread = rms(np.abs(some - some.mean(axis=0)))
        if rms(np.abs(some - x @ matrix)) > EXPLAINED * spread:
            return None
    columns = matrix[:-1]
    share = np.abs(columns).max(axis=0) / np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
    return matrix if np.median(share) < SINGLE else None


def _projected(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """One matrix for each head, or one for all heads side by side."""
    over, v = evidence.over(setup, OUTPUT), setup.inputs["v"]
    if over is None or setup.positions is not None or "w_o" in setup.inputs:
        return
    observed, expected, _ = evidence.few(OUTPUT)
    key_heads, projected = setup.key_heads[over.head], np.zeros(v.shape)
    for head in np.unique(key_heads):
        rows = (_rows_of(x, key_heads == head) for x in (expected, observed))
        if (matrix := solved(*rows)) is None:
            break
        projected[:, head] = v[:, head] @ matrix[:-1] + matrix[-1]
    else:
        yield setup.with_inputs(v=projected).with_detail("by a matrix for each head")
        return
    if setup.shape[1] > 1 and evidence.has_all(setup, OUTPUT):
        yield from _projected_together(setup, evidence.expected[OUTPUT], evidence.observed[OUTPUT])


WIDEST = 512
"""To solve for a wider matrix takes longer than all other bugs together."""


def _projected_together(setup: Setup, expected: Array, observed: Array) -> Iterator[Setup]:
    n_batch, n_heads, n_q, d_v = expected.shape
    if n_heads * d_v > WIDEST:
        return
    n = TIMES * (n_heads * d_v + 1)
    rows = np.arange(0, n_q, max(1, n_batch * n_q // n))
    x, y = (
        np.swapaxes(a[:, :, rows], 1, 2).reshape(-1, n_heads * d_v) for a in (expected, observed)
    )
    if (matrix := solved(x, y)) is not None:
        changed = setup.with_whole(1).with_result(OUTPUT, partial(projected, matrix=matrix))
        yield changed.with_detail("by one matrix for all heads side by side")


def projected(output: Array, matrix: Array) -> Array:
    """The heads side by side, through a matrix whose last row is a bias, and split again."""
    output = np.swapaxes(output, 1, 2)
    wide = output.reshape(*output.shape[:2], -1)
    weights = matrix.astype(wide.dtype)
    result = wide @ weights[:-1] + weights[-1]
    return np.swapaxes(result.reshape(output.shape), 1, 2)


# ---- dropout: its share follows from the weights, observed, or solved from the output

DISTINCT = 3
"""Kept weights of as many different sizes must have grown by one factor: the factor comes from the
observed weights themselves, so one size confirms nothing and two could agree by chance."""

SPREAD = 4.0
"""How many standard deviations of the binomial distribution the number of zeros may be from what
the factor implies: beyond 4 is one right dropout in 16,000."""

COUNTED = 1e-3
"""Weights are counted from this share of the largest on: smaller ones may be 0 by rounding."""

GROWN = 1.001, 100.0
"""Between which factors dropout is believed: of a share from 0.001 to 0.99."""

ROUND = 1e-3
"""A share as near as this to one of two decimals is that one: nobody drops 0.2003."""


def share_dropped(observed: Array, expected: Array) -> float | None:
    """The p of which kept weights are larger by 1/(1−p) and a share p of them is 0, or None."""
    counted = np.isfinite(expected) & (expected > COUNTED * np.nanmax(expected, initial=0.0))
    weights, plain = observed[counted], expected[counted]
    is_kept = weights != 0
    if is_kept.all() or np.unique(plain[is_kept].astype(np.float32)).size < DISTINCT:
        return None
    grown = float(np.median(weights[is_kept] / plain[is_kept]))
    if not GROWN[0] < grown < GROWN[1]:
        return None
    exact = 1 - 1 / grown
    share = round(exact, 2) if abs(round(exact, 2) - exact) < ROUND else exact
    spread = SPREAD * float(np.sqrt(share * (1 - share) / is_kept.size))
    return share if abs(float(1 - is_kept.mean()) - share) <= spread else None


HALF = 0.5
"""A weight solved from the output was kept where it is more than half of what it should be."""

SINGULAR = 1e-3
"""Values must differ so much: below this share of the largest singular value, noise decides."""


def solved_weights(output: Array, v: Array) -> Array | None:
    """The weights A of O = A V, or None where V does not determine them."""
    if not (np.isfinite(output).all() and np.isfinite(v).all()):
        return None
    sizes = np.linalg.svd(v, compute_uv=False)
    if v.shape[-2] > v.shape[-1] or (sizes[..., -1] < SINGULAR * sizes[..., 0]).any():
        return None
    return np.asarray(output @ np.linalg.pinv(v))


def _dropout(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """Seen from the weights, or from the output alone, whose values are never rotated."""
    stage = next((x for x in (DROPPED, WEIGHTS) if x in evidence.observed), OUTPUT)
    if "kept" in setup.inputs or not evidence.has_all(setup, stage):
        return
    observed, expected = evidence.observed[stage], evidence.expected[stage]
    if stage == OUTPUT:
        weights = solved_weights(observed, setup.placed().inputs["v"][:, setup.key_heads])
        if weights is None:
            return
        expected = stages(setup, all_of(setup.shape), [WEIGHTS])[WEIGHTS]
        observed = np.where(weights > HALF * expected, weights, 0)
    share = share_dropped(observed, expected)
    if share is not None:
        changed = setup.with_convention(dropout=share).with_inputs(kept=observed != 0)
        if stage != OUTPUT:
            changed = replace(changed, relabel={**setup.relabel, WEIGHTS: DROPPED})
        yield changed.with_detail(f"share {share:.4g}")


# ---- the weights that make q, k and v: tried singly, for to project x anew takes long


def _remade(
    change: Callable[[Array], Array | None],
    names: Collection[str],
    setup: Setup,
    evidence: Evidence,
) -> Iterator[Setup]:
    """q, k and v of other arrays for each of these weights by itself and for all of them; and the
    output projection."""
    of_output = [x for x in names if x in PROJECTION and x in setup.inputs]
    for name in of_output if PROJECTED in evidence.expected else ():
        if (x := change(setup.inputs[name])) is not None:
            yield setup.with_inputs(**{name: x}).with_detail(name)
    if (inputs := setup.projected) is None:
        return
    names = [name for name in names if name not in PROJECTION]
    others = {name: change(inputs.values[name]) for name in names if name in inputs.values}
    changed = {name: x for name, x in others.items() if x is not None}
    singly = [{name: x} for name, x in changed.items()]
    for weights in [*singly, changed] if len(changed) > 1 else singly:
        changed_rows = [name for name in QKV if {f"w_{name}", f"b_{name}"} & weights.keys()]
        arrays = inputs.run(changed_rows, **weights)
        arrays = {name: four_axes(x).astype(np.float64) for name, x in arrays.items()}
        if all(x.shape == setup.inputs[name].shape for name, x in arrays.items()):
            yield setup.with_inputs(**arrays).with_detail(" and ".join(weights))


def _transposed(names: Collection[str], setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """Square weights the other way round."""
    return _remade(lambda w: w.T if w.shape == w.T.shape else None, names, setup, evidence)


def _without_weights(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """x itself where its projections are due: one of them, all, and the output projection too."""
    if (inputs := setup.projected) is None:
        return
    sizes = {name: w.shape for name, w in inputs.values.items() if name in ("w_q", "w_k", "w_v")}
    square = [name for name, shape in sizes.items() if len(shape) == 2 and shape[0] == shape[1]]
    w_o = setup.inputs.get("w_o", np.zeros((0, 1)))
    for names in [*([name] for name in square), square] if len(square) > 1 else [square]:
        weights = {name: np.eye(*sizes[name]) for name in names}
        biases = [name.replace("w", "b") for name in names]
        weights |= {x: np.zeros_like(inputs.values[x]) for x in biases if x in inputs.values}
        arrays = inputs.run([name.removeprefix("w_") for name in names], **weights)
        arrays = {name: four_axes(x).astype(np.float64) for name, x in arrays.items()}
        if not names or any(x.shape != setup.inputs[name].shape for name, x in arrays.items()):
            continue
        without = setup.with_inputs(**arrays)
        yield without.with_detail(" and ".join(names))
        if PROJECTED not in evidence.expected or len(names) < len(QKV):
            continue
        others = [without]
        if setup.shape[1] > 1 and not {"sinks", "kept", "given_mask"} & setup.inputs.keys():
            whole = {name: merge_heads(without.inputs[name])[:, None] for name in QKV}
            others.append(without.with_inputs(**whole).with_detail("in one head"))
            yield others[-1].with_detail(" and ".join(names))
        for other in others if w_o.shape[0] == w_o.shape[1] else ():
            yield other.with_inputs(w_o=np.eye(len(w_o)), b_o=None).with_detail(
                "w_q, w_k, w_v, w_o"
            )


def _of_another_x(setup: Setup, _: Evidence) -> Iterator[Setup]:
    """Keys and values of the queries' embeddings, or queries of those of keys and values."""
    inputs = setup.projected
    if inputs is None or "x_kv" not in inputs.originals or "x_v" in inputs.originals:
        return
    x, x_kv = inputs.values["x"], inputs.values["x_kv"]
    fits = x.shape == x_kv.shape or not {"given_mask", "kv_len"} & setup.inputs.keys()
    if x.shape[-1] != x_kv.shape[-1] or not fits or setup.n_past:
        return
    ways = {("k", "v"): "keys and values of x", ("k",): "keys of x", ("v",): "values of x"}
    for names, words in (ways if x.shape == x_kv.shape else {("k", "v"): ways["k", "v"]}).items():
        arrays = inputs.run(names, x_kv=x)
        arrays = {name: four_axes(y).astype(np.float64) for name, y in arrays.items()}
        yield setup.with_inputs(**arrays).with_detail(f"{words}, not of x_kv")
    if x.shape == x_kv.shape:
        q = four_axes(inputs.run(["q"], x=x_kv)["q"]).astype(np.float64)
        yield setup.with_inputs(q=q).with_detail("queries of x_kv, not of x")


def _unprojected(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The heads side by side, where that is as wide as what W_o makes of it."""
    w_o = setup.inputs.get("w_o")
    if w_o is not None and PROJECTED in evidence.expected and w_o.shape[0] == w_o.shape[1]:
        yield setup.with_inputs(w_o=np.eye(len(w_o)), b_o=None)


def _unsplit(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """One head as wide as all of them: what is made of all heads shows it."""
    (_, n_heads, *_), mask = setup.shape, setup.inputs.get("given_mask")
    is_by_head = mask is not None and mask.ndim > 2 and mask.shape[-3] > 1
    shared = setup.inputs["k"].shape[1] != n_heads
    if n_heads == 1 or shared or is_by_head or {"sinks", "kept"} & setup.inputs.keys():
        return
    compared = {} if evidence.sample is None else evidence.sample.errors
    if compared and compared.keys() <= {*OF_ALL_HEADS} and setup.positions is None:
        *_, transposed = setup, *_transposed(("w_q", "w_k", "w_v"), setup, evidence)
        for other in [setup, transposed] if transposed is not setup else [setup]:
            wide = {name: merge_heads(other.inputs[name])[:, None] for name in QKV}
            unsplit = other.with_inputs(**wide)
            if other is not setup:
                words = f"and {', '.join(other.details)} are applied the other way round: W for Wᵀ"
                unsplit = replace(unsplit, details=(words,))
            yield unsplit
            if setup.convention.scale == "1/sqrt(d_k)":
                of_head = unsplit.with_convention(scale=setup.convention.scale_factor(setup.d_k))
                yield of_head.with_detail("the scale is that of one of the heads")


SOLVED: Mapping[str, Change] = {
    "output times a factor": _output_times,
    "bias of the values missing": _value_bias,
    "output projected already": _projected,
    "dropout left on": _dropout,
    "weights of a projection transposed": partial(_transposed, ("w_q", "w_k", "w_v", "w_o")),
    "weights of a projection not applied": _without_weights,
    "x in place of x_kv": _of_another_x,
    "bias of a projection left out": partial(_remade, np.zeros_like, ("b_q", "b_k", "b_v", "b_o")),
    "output projection left out": _unprojected,
    "heads not split": _unsplit,
}
