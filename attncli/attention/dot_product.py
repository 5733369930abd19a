"""Scaled dot-product attention: q, k, v in, a Trace of every stage out.

S = Q Kᵀ  →  Z = S / √d_k  →  X = Z + M  →  A = softmax(X)  →  O = A V
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.attention import functional, masks
from attncli.attention.heads import share_heads
from attncli.attention.precision import round_to, widen
from attncli.attention.shapes import as_numbers, check_mask, check_rows, lengths, with_past
from attncli.convention import Convention
from attncli.errors import ShapeError
from attncli.trace import Stage, Trace

Array = npt.NDArray[Any]
Labels = Sequence[str] | None


def attend(  # noqa: PLR0913 - what goes in, how, and which part of it
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    mask: npt.ArrayLike | None = None,
    past_k: npt.ArrayLike | None = None,
    past_v: npt.ArrayLike | None = None,
    kv_len: npt.ArrayLike | None = None,
    query_labels: Labels = None,
    key_labels: Labels = None,
    rows: Sequence[int] | None = None,
    convention: Convention | None = None,
) -> Trace:
    """Attention of queries to keys and values, with every stage on the way.

    softmax(Q Kᵀ / √d_k) V, and whatever else the convention asks for.

    q            [n_q, d_k], [head, n_q, d_k] or [batch, head, n_q, d_k]
    k, v         [..., n_k, d_k], [..., n_k, d_v]; fewer heads than q are shared between them
    mask         True/False, or numbers that are added to the scores; broadcasts from the right
    past_k/_v    a cache of earlier keys and values, put before k and v
    kv_len       valid keys per batch item; those past it are padding
    *_labels     names of the tokens
    rows         the stages of these queries alone, counted from 0; each keeps its place and name

    Raises ShapeError where these do not fit together, ConventionError for `rows` where a row
    depends on the others: a softmax over queries, and dropout, which is drawn for all.
    Source: "Attention Is All You Need", section 3.2.1, equation 1.

    >>> trace = attend([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]])
    >>> list(trace)
    ['q', 'k', 'v', 'scores', 'scaled', 'weights', 'output']
    >>> trace["weights"].value.round(4)
    array([[0.6698, 0.3302]])
    """
    how = convention or Convention()
    given, n_past = with_past(q, k, v, past_k, past_v)
    total = _total_mask(mask, how, given["q"], given["k"], n_past, kv_len, rows)
    if rows is not None:
        n_q = given["q"].shape[-2]
        if query_labels and len(query_labels) != n_q:
            raise ShapeError(
                f"there are {n_q} queries but {len(query_labels)} query labels",
                "give one for each query, not for the rows alone",
            )
        query_labels = [query_labels[row] if query_labels else f"q{row + 1}" for row in rows]
        given["q"] = given["q"][..., rows, :]
    labels = {"query": query_labels, "key": key_labels}
    return _run(given, total, how, {axis: tuple(names) for axis, names in labels.items() if names})


def _total_mask(
    mask: npt.ArrayLike | None,
    how: Convention,
    q: Array,
    k: Array,
    n_past: int,
    kv_len: npt.ArrayLike | None,
    rows: Sequence[int] | None,
) -> Array | None:
    """Everything that restricts, as one additive mask with the scores' number of axes at most."""
    n_k = k.shape[-2]
    picked = None if rows is None else check_rows(rows, q.shape[-2], how)
    score_shape = (*q.shape[:-1], n_k)
    given = None if mask is None else as_numbers(mask, "the mask")
    if given is not None:
        check_mask(given, score_shape)
        if rows is not None and given.ndim > 1 and given.shape[-2] > 1:
            given = given[..., rows, :]
    valid = lengths(kv_len, q.shape[0] if q.ndim == 4 else 1, n_k)
    total = masks.combined(given, how, q.shape[-2], n_k, n_past, valid, picked)
    return None if total is None else total.reshape(total.shape[-len(score_shape) :])


def _run(
    given: Mapping[str, Array],
    mask: Array | None,
    how: Convention,
    labels: Mapping[str, tuple[str, ...]],
) -> Trace:
    """Every stage in order, each rounded to the number type before the next one reads it."""
    inputs = {name: _rounded_copy(x, how) for name, x in given.items()}
    q, k, v = inputs.values()
    n_heads = q.shape[-3] if q.ndim > 2 else 1
    axes = ("batch", "head", "query", "key")[-q.ndim :]
    x = _rounded(functional.scores(_wide(q, how), _wide(_shared(k, n_heads, how), how)), how)

    steps = [_input_stage(name, value, labels) for name, value in inputs.items()]
    if mask is not None:
        meaning = "0 = may attend, −inf = may not, other numbers are added"
        steps.append(Stage("mask", "M", meaning, np.broadcast_to(mask, x.shape), axes, labels))
    steps.append(Stage("scores", "S", "S = Q Kᵀ", x, axes, labels))
    for step in plan(how, q.shape[-1], mask):
        x = _rounded(step.compute(_wide(x, how)), how)
        formula = step.formula.format(x=steps[-1].symbol)
        steps.append(Stage(step.name, step.symbol, formula, x, axes, labels))

    values = _wide(_shared(v, n_heads, how), how)
    output = _rounded(functional.weighted_sum(_wide(x, how), values, unseen(how, mask)), how)
    formula = f"O = {steps[-1].symbol} V"
    steps.append(Stage("output", "O", formula, output, (*axes[:-1], "d_v"), labels))
    return Trace(title_of(q, k, how), tuple(steps), how)


@dataclass(frozen=True)
class Step:
    """A stage still to be computed; {x} in its formula is the symbol of the stage before."""

    name: str
    symbol: str
    formula: str
    compute: Callable[[Array], Array]


def plan(how: Convention, d_k: int, mask: Array | None) -> list[Step]:
    """What happens between the scores and the weighted sum, under this convention.

    mask: everything that restricts, additive, broadcasting to the scores [..., n_q, n_k].
    `attend` runs these steps as they are; a comparison changes one and runs the rest.

    >>> [step.name for step in plan(Convention(softcap=2.0), d_k=4, mask=None)]
    ['scaled', 'capped', 'weights']
    """
    steps = score_steps(how, d_k, mask)
    axis, sums = (-1, "each row") if how.softmax_over == "keys" else (-2, "each column")
    formula = f"A = softmax({{x}}) over {how.softmax_over}: {sums} sums to 1"
    hidden = unseen(how, mask)
    steps.append(
        Step(
            "weights",
            "A",
            formula,
            lambda x: functional.softmax(x, axis, hidden, how.empty_rows),
        )
    )
    if how.dropout:
        formula = f"D = A with a share of {how.dropout:g} set to 0, the rest / {1 - how.dropout:g}"
        steps.append(
            Step("dropped", "D", formula, lambda x: functional.dropout(x, how.dropout, how.seed))
        )
    return steps


def score_steps(how: Convention, d_k: int, mask: Array | None) -> list[Step]:
    """What happens between the scores and the softmax, under this convention."""
    steps = []
    if how.scale != "none":
        factor = how.scale_factor(d_k)
        formula = _scale_formula(how, d_k)
        steps.append(Step("scaled", "Z", formula, lambda x: functional.scale(x, factor)))
    return steps + _cap_and_mask(how, mask)


def _scale_formula(how: Convention, d_k: int) -> str:
    if how.scale == "1/sqrt(d_k)":
        return f"Z = {{x}} / √d_k = {{x}} / {d_k**0.5:.5g}"
    return f"Z = {{x}} · {how.scale_factor(d_k):g}"


def _cap_and_mask(how: Convention, mask: Array | None) -> list[Step]:
    steps = []
    if how.softcap is not None:
        cap = how.softcap
        formula = f"C = c · tanh({{x}} / c), c = {cap:g}"
        steps.append(Step("capped", "C", formula, lambda x: functional.softcap(x, cap)))
    if mask is not None:
        formula = "X = {x} + M"
        if how.mask_value != -np.inf:
            formula += f", masked scores become {how.mask_value:g}"
        steps.append(
            Step(
                "masked",
                "X",
                formula,
                lambda x: functional.apply_mask(x, mask, how.mask_value),
            )
        )
    return steps if how.softcap_place == "before-mask" else steps[::-1]


def unseen(how: Convention, mask: Array | None) -> npt.NDArray[np.bool_] | None:
    """The cells that must get no weight: those whose score is −inf when softmax reads it."""
    return np.isneginf(mask) if mask is not None and masking_hides(how) else None


def masking_hides(how: Convention) -> bool:
    """Whether a masked cell's score is −inf when softmax reads it: not one that is capped after."""
    capped_after = how.softcap is not None and how.softcap_place == "after-mask"
    return how.mask_value == -np.inf and not capped_after


def _shared(x: Array, n_heads: int, how: Convention) -> Array:
    return share_heads(x, n_heads, how.head_order)


def _wide(x: Array, how: Convention) -> Array:
    return widen(x, how.dtype)


def _rounded(x: Array, how: Convention) -> Array:
    return round_to(x, how.dtype)


def _rounded_copy(x: Array, how: Convention) -> Array:
    """An input in the number type, and never the caller's own memory, which may change."""
    value = _rounded(_wide(x, how), how)
    return value.copy() if np.may_share_memory(value, x) else value


def _input_stage(name: str, value: Array, labels: Mapping[str, tuple[str, ...]]) -> Stage:
    token, width = {"q": ("query", "d_k"), "k": ("key", "d_k"), "v": ("key", "d_v")}[name]
    head = "head" if name == "q" else "kv_head"
    axes = ("batch", head, token, width)[-value.ndim :]
    return Stage(name, name.upper(), "", value, axes, labels)


def title_of(q: Array, k: Array, how: Convention) -> str:
    """What this attention is called: by its scale, and by whether heads share keys."""
    scaled = "Dot-product attention" if how.scale == "none" else "Scaled dot-product attention"
    if q.ndim > 2 and q.shape[-3] != k.shape[-3]:
        kind = "Multi-query" if k.shape[-3] == 1 else "Grouped-query"
        return f"{kind} {scaled[0].lower()}{scaled[1:]}"
    return scaled
