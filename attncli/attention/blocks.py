"""What stands around an attention in a Transformer layer: one function, one step.

    x ── sub-layer ── dropout ── residual ── layer_norm        feed_forward: W₁, ReLU, W₂
    └─────────────────────────────┘

Everything works on x [n, d_model] or [batch, n, d_model], a row for each token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.attention import functional
from attncli.attention.heads import shape_text
from attncli.attention.multi_head import project
from attncli.attention.precision import round_to, widen
from attncli.attention.shapes import as_numbers
from attncli.attention.weights import FeedForwardWeights, NormWeights
from attncli.convention import Convention
from attncli.errors import ConventionError, ShapeError
from attncli.trace import Stage, Trace

Array = npt.NDArray[Any]
Labels = Sequence[str] | None


def layer_norm(
    x: npt.ArrayLike,
    weights: NormWeights | None = None,
    *,
    epsilon: float = 1e-5,
    labels: Labels = None,
    convention: Convention | None = None,
    symbol: str = "X",
) -> Trace:
    """Each row with mean 0 and deviation 1, then gain and bias: N = γ (X − μ) / √(σ² + ε) + β.

    x [..., n, d] -> stages `mean` μ [..., n], `deviation` σ [..., n] (the population's: divided by
    d), `norm` [..., n, d]. γ and β are [d]; without weights γ = 1 and β = 0.

    Raises ShapeError where γ or β does not fit x, ConventionError for an ε below 0.
    Source: Ba et al. (2016), section 3.1; ε as in PyTorch and ONNX LayerNormalization-17.

    >>> trace = layer_norm([[1.0, 3.0]], epsilon=0)
    >>> list(trace), trace["deviation"].value.tolist(), trace["norm"].value.tolist()
    (['mean', 'deviation', 'norm'], [1.0], [[-1.0, 1.0]])
    """
    if not 0 <= epsilon < np.inf:
        raise ConventionError(f"epsilon is {epsilon!r}", "use a finite number from 0")
    how, given = convention or Convention(), weights or NormWeights()
    wide = widen(token_rows(x), how.dtype)
    axes, names = token_axes(wide), token_labels(labels)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean = round_to(wide.mean(axis=-1), how.dtype)
        centred = wide - widen(mean, how.dtype)[..., None]
        deviation = round_to(np.sqrt(np.mean(centred * centred, axis=-1)), how.dtype)
        norm = centred / np.sqrt(widen(deviation, how.dtype)[..., None] ** 2 + epsilon)
        norm = round_to(_with_gain(norm, given, how), how.dtype)
    centre = f"({symbol} − μ)"
    formula = f"N = {'γ ' if given.gamma is not None else ''}{centre} / √(σ² + ε)"
    formula += f"{' + β' if given.beta is not None else ''}, ε = {epsilon:g}"
    steps = (
        Stage("mean", "μ", f"μ = mean of each row of {symbol}", mean, axes[:-1], names),
        Stage("deviation", "σ", f"σ = √(mean of {centre}²)", deviation, axes[:-1], names),
        Stage("norm", "N", formula, norm, axes, names),
    )
    return Trace("Layer norm", steps, how)


def _with_gain(norm: Array, weights: NormWeights, how: Convention) -> Array:
    for name, x in (("gamma", weights.gamma), ("beta", weights.beta)):
        if x is not None and x.shape != norm.shape[-1:]:
            raise ShapeError(
                f"{name} ({shape_text(x)}) does not fit x ({shape_text(norm)})",
                f"it needs one number for each of the {norm.shape[-1]} columns",
            )
    gained = norm if weights.gamma is None else norm * widen(weights.gamma, how.dtype)
    return gained if weights.beta is None else gained + widen(weights.beta, how.dtype)


def feed_forward(
    x: npt.ArrayLike,
    weights: FeedForwardWeights,
    *,
    labels: Labels = None,
    convention: Convention | None = None,
    symbol: str = "X",
) -> Trace:
    """FFN(X) = max(0, X W₁ + b₁) W₂ + b₂, the same for every token.

    x [..., n, d_model] -> stages `hidden` [..., n, d_ff] and `feed_forward` [..., n, d_model].

    Raises ShapeError where the widths do not fit.
    Source: "Attention Is All You Need", section 3.3, equation 2.

    >>> eye = np.eye(2)
    >>> trace = feed_forward([[3.0, -4.0]], FeedForwardWeights(eye, 2 * eye))
    >>> trace["hidden"].value.tolist(), trace["feed_forward"].value.tolist()
    ([[3.0, 0.0]], [[6.0, 0.0]])
    """
    how, names = convention or Convention(), token_labels(labels)
    rows = token_rows(x)
    axes = token_axes(rows)
    linear = project(rows, weights.w_1, weights.b_1, how)
    hidden = np.maximum(linear, linear.dtype.type(0))
    value = project(hidden, weights.w_2, weights.b_2, how)
    b_1 = "" if weights.b_1 is None else " + b₁"
    b_2 = "" if weights.b_2 is None else " + b₂"
    first = f"G = max(0, {symbol} W₁{b_1})"
    steps = (
        Stage("hidden", "G", first, hidden, (*axes[:-1], "d_ff"), names),
        Stage("feed_forward", "F", f"F = G W₂{b_2}", value, axes, names),
    )
    return Trace("Position-wise feed-forward", steps, how)


def sublayer_dropout(stage: Stage, share: float, seed: int, convention: Convention) -> Stage:
    """A sub-layer's output with a share of it set to 0 and the rest divided by 1 − share.

    Source: "Attention Is All You Need", section 5.4, residual dropout.
    """
    dropped = functional.dropout(widen(stage.value, convention.dtype), share, seed)
    symbol = f"{stage.symbol}'"
    formula = (
        f"{symbol} = {stage.symbol} with a share of {share:g} set to 0, the rest / {1 - share:g}"
    )
    value = round_to(dropped, convention.dtype)
    return Stage("sublayer_dropped", symbol, formula, value, stage.axes, stage.labels)


def residual(x: Array, stage: Stage, convention: Convention) -> Stage:
    """A sub-layer's input added to its output: R = X + Sublayer(X).

    Raises ShapeError where the two have different shapes.
    Source: He et al. (2016), section 3.1; "Attention Is All You Need", section 3.1.

    >>> y = Stage("projected", "Y", "", np.array([[10.0]]), ("query", "d_model"))
    >>> stage = residual(np.array([[1.0]]), y, Convention())
    >>> stage.formula, stage.value.tolist()
    ('R = X + Y', [[11.0]])
    """
    if x.shape != stage.value.shape:
        raise ShapeError(
            f"{stage.name} ({shape_text(stage.value)}) cannot be added to the sub-layer's input "
            f"({shape_text(x)})",
            f"its last weights need {x.shape[-1]} columns",
        )
    with np.errstate(over="ignore", invalid="ignore"):
        total = widen(x, convention.dtype) + widen(stage.value, convention.dtype)
    value = round_to(total, convention.dtype)
    return Stage("residual", "R", f"R = X + {stage.symbol}", value, stage.axes, stage.labels)


def token_rows(x: npt.ArrayLike) -> Array:
    """x as numbers, [n, d_model] or [batch, n, d_model]; ShapeError where it is neither."""
    array = as_numbers(x, "x")
    if array.ndim not in {2, 3} or array.size == 0:
        raise ShapeError(
            f"x has the shape {shape_text(array) or 'of one number'}",
            "use (tokens, d_model) or (batch, tokens, d_model), with at least one entry each",
        )
    return array


def token_axes(x: Array) -> tuple[str, ...]:
    """The axis names of rows of tokens."""
    return ("batch", "query", "d_model")[-x.ndim :]


def token_labels(labels: Labels) -> dict[str, tuple[str, ...]]:
    """Labels of the token axis, as a Stage takes them."""
    return {"query": tuple(labels)} if labels else {}
