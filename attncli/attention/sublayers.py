"""One sub-layer with its dropout, residual and norm: what encoder and decoder layers are made of.

norm="post"  x ─┬─ compute ── [dropout] ── residual ── mean, deviation, norm
                └──────────────────────────┘
norm="pre"   x ─┬─ mean, deviation, norm ── compute ── [dropout] ── residual
                └──────────────────────────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from attncli.attention.architecture import Architecture
from attncli.attention.blocks import (
    Labels,
    feed_forward,
    layer_norm,
    residual,
    sublayer_dropout,
    token_rows,
)
from attncli.attention.multi_head import Projections, multi_head_attention
from attncli.attention.precision import round_to, widen
from attncli.attention.seeds import named_seed
from attncli.attention.weights import FeedForwardWeights, NormWeights
from attncli.convention import Convention
from attncli.trace import Stage, Trace

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Place:
    """Where a sub-layer stands: the architecture, the tokens' names, the layer's dotted name."""

    how: Architecture
    labels: Labels
    name: str

    def rows(self, x: npt.ArrayLike) -> Array:
        """The layer's input in the number type."""
        dtype = self.how.convention.dtype
        return round_to(widen(token_rows(x), dtype), dtype)

    def layer(self, title: str, steps: list[Trace]) -> Trace:
        """The sub-layers as one trace, called by the last part of the dotted name."""
        name = self.name.rpartition(".")[2]
        return Trace(title, tuple(steps), self.how.convention, name)

    def attention(
        self, x: Array, weights: Projections, norm: NormWeights, rule: Convention, **given: Any
    ) -> Trace:
        """Self-attention of x, or cross-attention where a `context` is given."""
        crossing = "context" in given
        name = "cross_attention" if crossing else "attention"
        if rule.dropout:
            rule = replace(rule, seed=named_seed(rule.seed, f"{self.name}.{name}.dropped"))

        def attend(rows: Array, symbol: str) -> Trace:
            return multi_head_attention(
                rows,
                weights,
                n_heads=self.how.n_heads,
                n_kv_heads=self.how.n_kv_heads,
                convention=rule,
                query_labels=self.labels,
                symbol=symbol,
                **given,
            )

        words = ["masked"] * rule.causal + ["multi-head"] * (self.how.n_heads > 1)
        title = " ".join([*words, f"{'cross' if crossing else 'self'}-attention"])
        title = title[0].upper() + title[1:]
        return self._sublayer(x, norm, title, name, attend)

    def feed_forward(self, x: Array, weights: FeedForwardWeights, norm: NormWeights) -> Trace:
        """The position-wise feed-forward of x."""
        rule = self.how.convention

        def feed(rows: Array, symbol: str) -> Trace:
            return feed_forward(rows, weights, labels=self.labels, convention=rule, symbol=symbol)

        return self._sublayer(x, norm, "Position-wise feed-forward", "feed_forward", feed)

    def _sublayer(
        self,
        x: Array,
        norm: NormWeights,
        title: str,
        name: str,
        compute: Callable[[Array, str], Trace],
    ) -> Trace:
        """The sub-layer's steps, then dropout and residual, with the norm where it belongs."""
        how, rule = self.how, self.how.convention
        before = self._norm(x, norm, "X") if how.norm == "pre" else ()
        inner = compute(before[-1].value, "N") if before else compute(x, "X")
        last = inner.steps[-1]
        if not isinstance(last, Stage):
            raise TypeError(f"the sub-layer {name} does not end with a stage")
        after = []
        if how.dropout:
            seed = named_seed(rule.seed, f"{self.name}.{name}.sublayer_dropped")
            last = sublayer_dropout(last, how.dropout, seed, rule)
            after.append(last)
        after.append(residual(x, last, rule))
        if how.norm == "post":
            after += self._norm(after[-1].value, norm, "R")
        steps = (*before, *inner.steps, *after)
        return replace(inner, title=title, steps=steps, name=name)

    def _norm(self, x: Array, weights: NormWeights, symbol: str) -> tuple[Stage, ...]:
        trace = layer_norm(
            x,
            weights,
            epsilon=self.how.epsilon,
            labels=self.labels,
            convention=self.how.convention,
            symbol=symbol,
        )
        return tuple(stage for _, stage in trace.stages())
