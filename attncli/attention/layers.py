"""Transformer layers as steps of one flat plan: sub-layers, each with its residual and norm.

    norm="post"  x ─┬─ sub-layer ── [dropout] ── residual ── mean, deviation, norm   the paper, 3.1
                    └───────────────────────────┘
    norm="pre"   x ─┬─ mean, deviation, norm ── sub-layer ── [dropout] ── residual   Xiong (2020)
                    └─────────────────────────────────────────────────────┘
    norm="none"  x + sub-layer(x)

A layer is a block of its sub-layers, `attention`, `cross_attention` (decoder) and `feed_forward`;
the last stage of a layer is what it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention import functional as f
from attncli.attention.attend import (
    Block,
    check_projection,
    entered,
    projected_sizes,
    restrictions,
    token_rows,
    trace_of,
)
from attncli.attention.heads import shape_text
from attncli.attention.run import Step, dropout_words, plan, run, within
from attncli.attention.shapes import as_numbers
from attncli.attention.weights import ATTENTION, FEED_FORWARD, NORM, Weights, named_seed
from attncli.convention import Convention
from attncli.errors import ConventionError, ShapeError
from attncli.stages import kind_of
from attncli.trace import Stage, Trace

Labels = Sequence[str] | None
NormPlace = Literal["post", "pre", "none"]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """How a layer is put together, the same in all layers of a stack.

    | field | meaning |
    |---|---|
    | n_heads, n_kv_heads | query heads, and key heads they share (None: as many) |
    | norm | "post": after the residual; "pre": before the sub-layer; "none" |
    | epsilon | ε of the layer norms |
    | dropout | share of each sub-layer's output that is set to 0; the share of the attention \
weights is the convention's |
    | convention | how attention is computed, the number type of every stage and the seed |

    Raises ConventionError for a value outside these.

    >>> Architecture(norm="before")
    Traceback (most recent call last):
        ...
    attncli.errors.ConventionError: norm is 'before'; use post, pre or none
    """

    n_heads: int = 1
    n_kv_heads: int | None = None
    norm: NormPlace = "post"
    epsilon: float = 1e-5
    dropout: float = 0.0
    convention: Convention = field(default_factory=Convention)

    def __post_init__(self) -> None:
        if self.norm not in get_args(NormPlace):
            raise ConventionError(f"norm is {self.norm!r}", "use post, pre or none")
        Convention(dropout=self.dropout)  # refuses a share that is none
        if not 0 <= self.epsilon < np.inf:
            raise ConventionError(f"epsilon is {self.epsilon!r}", "use a finite number from 0")


class LayerPlan:
    """A flat plan of layers in the making: `attention` and `feed_forward` add a sub-layer each.

    how      the architecture
    weights  every array by its dotted name
    inputs   what goes in, by dotted name: the rows x, masks and the weights that were used
    steps    the steps so far; blocks: the titles, conventions and labels of their blocks
    shapes   name → shape, of the stages that a sub-layer may read
    """

    def __init__(self, how: Architecture, weights: Weights) -> None:
        self.how, self.weights = how, weights
        self.inputs: dict[str, Array] = {}
        self.steps: list[Step] = []
        self.blocks = {"": Block("")}
        self.shapes: dict[str, tuple[int, ...]] = {}

    def rows(self, name: str, x: npt.ArrayLike) -> str:
        """Adds rows of tokens under a name, [n, d_model] or [batch, n, d_model]."""
        value = entered(token_rows(x), self.how.convention)
        self.inputs[name], self.shapes[name] = value, value.shape
        return name

    def attention(
        self,
        name: str,
        x: str,
        context: str = "",
        *,
        rule: Convention | None = None,
        mask: npt.ArrayLike | None = None,
        query_labels: Labels = None,
        key_labels: Labels = None,
        alone: bool = False,
    ) -> str:
        """Self-attention of the stage x, or cross-attention to a context; gives its last stage.

        Without w_q (w_k, w_v) the vectors themselves are the queries (keys, values).

        rule   the convention, where it is not that of the architecture
        alone  without dropout, residual and norm

        Raises ShapeError where a width does not fit.
        """
        how, rule = self.how, rule or self.how.convention
        if rule.dropout:
            rule = replace(rule, seed=named_seed(rule.seed, f"{name}.dropped"))
        weights = self._given(name, ATTENTION)
        like = {"x": np.broadcast_to(0.0, self.shapes[x])}
        if context:
            like["x_kv"] = np.broadcast_to(0.0, self.shapes[context])
        n_kv_heads = how.n_kv_heads or how.n_heads
        sizes = projected_sizes(like | weights, how.n_heads, n_kv_heads)
        restricting = restrictions(sizes, mask, None)
        self.inputs |= {f"{name}.{own}": value for own, value in restricting.items()}
        sizes = sizes._replace(given={*like, *weights, *restricting})
        last = weights.get("w_o", weights.get("w_v", like.get("x_kv", like["x"])))
        width = last.shape[-1] * (1 if "w_o" in weights else how.n_heads // n_kv_heads)
        title = " ".join(
            ["masked"] * rule.causal
            + ["multi-head"] * (how.n_heads > 1)
            + [f"{'cross' if context else 'self'}-attention"]
        )
        labels = {"query": query_labels, "key": key_labels}
        self.blocks[name] = Block(title[0].upper() + title[1:], rule, labels)

        def inner(source: str) -> list[Step]:
            return plan(rule, sizes, source=source, show_concat=how.n_heads > 1)

        outer = {"x_kv": context} if context else {}
        if not alone:
            return self._sublayer(name, x, inner, width, outer)
        steps = inner("x")
        self.steps += within(f"{name}.", steps, x=x, **outer)
        return f"{name}.{steps[-1].name}"

    def feed_forward(self, name: str, x: str, labels: Labels = None) -> str:
        """The position-wise feed-forward of the stage x; gives its last stage.

        Raises ShapeError where a width does not fit.
        """
        weights = self._given(name, FEED_FORWARD)
        for leaf in ("w_1", "w_2"):
            if leaf not in weights:
                raise ShapeError(f"the weights hold no {name}.{leaf}", "give both w_1 and w_2")
        check_projection(np.broadcast_to(0.0, self.shapes[x]), weights["w_1"])
        check_projection(np.broadcast_to(0.0, (1, weights["w_1"].shape[1])), weights["w_2"])
        title, rule = "Position-wise feed-forward", self.how.convention
        self.blocks[name] = Block(title, rule, {"query": labels})

        def inner(source: str) -> list[Step]:
            return feed_forward_steps(source, weights, rule)

        return self._sublayer(name, x, inner, weights["w_2"].shape[1], {})

    def norm(self, block: str, x: str, labels: Labels = None) -> str:
        """A norm of its own, such as the one after the last layer; gives its last stage."""
        weights = self._given(block, NORM)
        check_gain(weights, self.shapes[x])
        steps = norm_steps("x", weights, self.how)
        self.steps += within(f"{block}.", steps, x=x)
        self.shapes[f"{block}.norm"] = self.shapes[x]
        return f"{block}.norm"

    def _given(self, block: str, leaves: Collection[str]) -> dict[str, Array]:
        """The weights of a block that there are, by their own names, as inputs."""
        found = {leaf: self.weights.get(f"{block}.{leaf}") for leaf in leaves}
        given = {n: entered(x, self.how.convention) for n, x in found.items() if x is not None}
        self.inputs |= {f"{block}.{name}": x for name, x in given.items()}
        return given

    def _sublayer(
        self,
        name: str,
        x: str,
        inner: Callable[[str], list[Step]],
        width: int,
        outer: Mapping[str, str],
    ) -> str:
        """The sub-layer's steps, then dropout and residual, with the norm where it belongs."""
        how, rule, shape = self.how, self.how.convention, self.shapes[x]
        gain = self._given(name, NORM) if how.norm != "none" else {}
        check_gain(gain, shape)
        steps = norm_steps("x", gain, how) if how.norm == "pre" else []
        steps += inner("norm" if steps else "x")
        last = steps[-1].name
        symbol = kind_of(last).symbol
        if width != shape[-1]:
            raise ShapeError(
                f"{last} ({' × '.join(map(str, (*shape[:-1], width)))}) cannot be added to the "
                f"sub-layer's input ({' × '.join(map(str, shape))})",
                f"its last weights need {shape[-1]} columns",
            )
        if p := how.dropout:
            seed = named_seed(rule.seed, f"{name}.sublayer_dropped")
            drawn = {"shape": shape, "p": p, "seed": seed}
            steps.append(Step("sublayer_kept", f.draw_kept, {}, drawn))
            words: dict[str, Any] = dropout_words(f"{symbol}'", symbol, p)
            reads = {"x": last, "kept": "sublayer_kept"}
            words |= {"dtype": rule.dtype}
            steps.append(Step("sublayer_dropped", f.dropout, reads, {"p": p}, **words))
            last, symbol = "sublayer_dropped", f"{symbol}'"
        formula, work = f"R = X + {symbol}", "[x] + [y] = {x} + {y}"
        reads = {"x": "x", "y": last}
        steps.append(Step("residual", f.add, reads, {}, formula, work, rule.dtype))
        steps += norm_steps("residual", gain, how) if how.norm == "post" else []
        self.steps += within(f"{name}.", steps, x=x, **outer)
        end = f"{name}.{steps[-1].name}"
        self.shapes[end] = shape
        return end

    def trace(
        self, wanted: Collection[str] | None = None, stages: Mapping[str, Stage] = {}
    ) -> Trace:
        """Runs the plan: the trace of the wanted stages, all that are shown where None are named.

        stages  those that exist already, by dotted name; they come first
        """
        values = run(self.steps, self.inputs, wanted)
        if wanted is not None:
            values = {name: x for name, x in values.items() if name in wanted}
        hidden = [name for name in self.shapes if name in self.inputs and name not in stages]
        values = {name: x for name, x in values.items() if name not in hidden}
        return trace_of(self.steps, values, self.blocks, stages)


def norm_steps(x: str, gain: Weights, how: Architecture) -> list[Step]:
    """Layer norm of the stage x: N = γ (X − μ) / √(σ² + ε) + β, as mean, deviation and norm."""
    symbol, dtype = kind_of(x).symbol, how.convention.dtype
    centre = f"({symbol} − μ)"
    formula = f"N = {'γ ' if 'gamma' in gain else ''}{centre} / √(σ² + ε)"
    formula += f"{' + β' if 'beta' in gain else ''}, ε = {how.epsilon:g}"
    given = {name: name for name in NORM if name in gain}
    reads, both = {"x": x}, {"x": x, "mean": "mean"}
    every, params = both | {"deviation": "deviation"} | given, {"epsilon": how.epsilon}
    return [
        Step("mean", f.mean, reads, {}, f"μ = mean of each row of {symbol}", "", dtype),
        Step("deviation", f.deviation, both, {}, f"σ = √(mean of {centre}²)", "", dtype),
        Step("norm", f.normalize, every, params, formula, "", dtype),
    ]


def feed_forward_steps(x: str, weights: Weights, how: Convention) -> list[Step]:
    """FFN(X) = max(0, X W₁ + b₁) W₂ + b₂ of the stage x.

    Source: "Attention Is All You Need", section 3.3, equation 2.
    """
    symbol, dtype = kind_of(x).symbol, how.dtype
    b_1, b_2 = ({"b": name} if name in weights else {} for name in ("b_1", "b_2"))
    first = f"G = max(0, {symbol} W₁{' + b₁' * len(b_1)})"
    reads, last = {"x": "hidden", "w": "w_2"} | b_2, f"F = G W₂{' + b₂' * len(b_2)}"
    return [
        Step("linear", f.project, {"x": x, "w": "w_1"} | b_1, dtype=dtype),
        Step("hidden", f.relu, {"x": "linear"}, {}, first, "relu", dtype),
        Step("feed_forward", f.project, reads, {}, last, "products", dtype),
    ]


def check_gain(gain: Weights, shape: tuple[int, ...]) -> None:
    """ShapeError unless γ and β have a number for each column."""
    for name, value in gain.items():
        if value.shape != shape[-1:]:
            raise ShapeError(
                f"{name} ({shape_text(value)}) does not fit x ({' × '.join(map(str, shape))})",
                f"it needs one number for each of the {shape[-1]} columns",
            )


def layer_norm(
    x: npt.ArrayLike,
    gamma: npt.ArrayLike | None = None,
    beta: npt.ArrayLike | None = None,
    *,
    epsilon: float = 1e-5,
    labels: Labels = None,
    convention: Convention | None = None,
) -> Trace:
    """Each row with mean 0 and deviation 1, then gain and bias: N = γ (X − μ) / √(σ² + ε) + β.

    x [..., n, d] -> stages `mean` μ [..., n], `deviation` σ [..., n] (the population's: divided by
    d), `norm` [..., n, d]. γ and β are [d]; γ = 1 and β = 0 where they are left out.

    Raises ShapeError where γ or β does not fit x, ConventionError for an ε below 0.
    Source: Ba et al. (2016), section 3.1; ε as in PyTorch and ONNX LayerNormalization-17.

    >>> trace = layer_norm([[1.0, 3.0]], epsilon=0)
    >>> list(trace), trace["deviation"].value.tolist(), trace["norm"].value.tolist()
    (['mean', 'deviation', 'norm'], [1.0], [[-1.0, 1.0]])
    """
    how = Architecture(epsilon=epsilon, convention=convention or Convention())
    gain = {"gamma": gamma, "beta": beta}
    weights = {n: as_numbers(w, n) for n, w in gain.items() if w is not None}
    rows = entered(token_rows(x), how.convention)
    check_gain(weights, rows.shape)
    steps = norm_steps("x", weights, how)
    values = run(steps, {"x": rows, **{n: entered(w, how.convention) for n, w in weights.items()}})
    shown = {step.name: values[step.name] for step in steps}
    return trace_of(steps, shown, {"": Block("Layer norm", how.convention, {"query": labels})})
