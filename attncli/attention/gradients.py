"""Gradients: the plan read in reverse, each step's own gradient.

    dO ── d_v, d_weights ── delta ── d_masked ── d_scaled ── d_scores ── d_q, d_k ── d_w_q …, d_x

The gradient of a stage is how fast the loss grows with each of its numbers: d_scores = ∂loss/∂S,
of the shape of the scores. It is written with a d before the stage's letter: dS. A step that
changes nothing, such as a mask of −inf, has no stage: the gradient after it is also the one before.

To add the gradient of a step: its mathematics here, a method of `_Backward`, a row in `_RULES`.
Source: Dao et al., "FlashAttention" (2022), appendix B.2 and B.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from attncli import formulas
from attncli.arrays import Array, BoolArray
from attncli.attention import functional as f
from attncli.attention.heads import key_head_of, merge_heads, split_heads
from attncli.attention.run import Step, plain
from attncli.convention import DType, HeadOrder
from attncli.stages import GIVEN_GRADIENT, gradient_of, kind_of

if TYPE_CHECKING:
    from attncli.attention.plan import Sizes

# ---- the mathematics: gradients in, gradients out; the axes are those after each signature


def as_given(x: Array) -> Array:
    """The gradient that everything else follows from."""
    return x


def column_products(a: Array, b: Array) -> Array:  # [n, m], [n, p] -> [m, p]
    """Aᵀ B, such as dV = Aᵀ dO and dK = dSᵀ Q: the gradient of the right factor of a product."""
    return np.asarray(np.swapaxes(a, -1, -2) @ b)


def summed_heads(x: Array, n_kv_heads: int, order: HeadOrder) -> Array:  # [h, n, d] -> [h_kv, n, d]
    """The gradients of all query heads that share a key head, summed."""
    key_head = key_head_of(x.shape[-3], n_kv_heads, order)
    parts = [x[..., key_head == head, :, :].sum(axis=-3) for head in range(n_kv_heads)]
    return np.stack(parts, axis=-3)


def delta(a: Array, d: Array, axis: int = -1, allowed: BoolArray | None = None) -> Array:
    """δ = Σ A ∘ dA over each row: what softmax takes off every gradient of the row.

    [n_q, n_k], [n_q, n_k] -> [n_q]; over each column where the axis is −2. It is also Σ O ∘ dO.
    What is not `allowed` has no weight, so what is NaN there does not count.
    Source: Dao et al. (2022), appendix B.4, D.
    """
    product = a * d if allowed is None else np.where(allowed, a * d, a.dtype.type(0))
    return np.asarray(product.sum(axis=axis))


def d_softmax(
    a: Array, d: Array, delta: Array, axis: int = -1, allowed: BoolArray | None = None
) -> Array:  # [n_q, n_k], [n_q, n_k], [n_q] -> [n_q, n_k]
    """A ∘ (dA − δ): a score that offers more than the row's average δ would rather be larger.

    0 where a key is not `allowed`: its weight does not depend on its score.
    """
    dx = np.asarray(a * (d - np.expand_dims(delta, axis)))
    return dx if allowed is None else np.where(allowed, dx, a.dtype.type(0))


def d_of_sinks(x: Array, sinks: Array, delta: Array) -> Array:
    """−Σ δ exp(s) / (Σ exp(X) + exp(s)) over the queries: the share of a sink times −δ.

    [h, n_q, n_k], [h], [h, n_q] -> [h]. A sink has no value: it only takes weight from the keys.
    """
    sink = sinks.reshape(-1, *[1] * min(x.ndim - 1, 2))
    top = np.maximum(x.max(axis=-1, keepdims=True), sink)
    power = np.exp(sink - top)
    share = power / (np.exp(x - top).sum(axis=-1, keepdims=True) + power)
    rows = -(share[..., 0] * delta)
    heads = rows.reshape(-1, *rows.shape[-2:]) if rows.ndim > 1 else rows[None, None]
    return np.asarray(heads.sum(axis=(0, 2)))


def d_softcap(d: Array, b: Array, cap: float) -> Array:
    """dB ∘ (1 − (B / c)²), the derivative of c · tanh(X / c)."""
    return np.asarray(d * (1 - np.square(b / b.dtype.type(cap))))


def d_hidden(d: Array, mask: Array) -> Array:
    """0 where the mask puts a number in place of the score; else the gradient as it is."""
    return np.where(np.isneginf(mask), d.dtype.type(0), d)


def d_of_mask(d: Array, mask: Array, given: Array) -> Array:
    """The gradient of the numbers of the mask: summed over what they were broadcast over.

    [n_q, n_k], [n_q, n_k] -> the shape of the given mask. 0 where the mask is −inf.
    """
    cells = d_hidden(d, mask)
    summed = cells.sum(axis=tuple(range(cells.ndim - given.ndim)))
    axes = tuple(axis for axis, size in enumerate(given.shape) if size == 1)
    return np.asarray(summed.sum(axis=axes, keepdims=True))


def d_of_weights(x: Array, d: Array) -> Array:  # [n, d], [n, m] -> [d, m]
    """Xᵀ dY, the gradient of the weights of Y = X W: summed over all tokens of all batch items."""
    rows = x.reshape(-1, x.shape[-1])
    return np.asarray(rows.T @ d.reshape(-1, d.shape[-1]))


def d_of_bias(d: Array) -> Array:  # [n, m] -> [m]
    """Σ dY over all tokens of all batch items: the gradient of the bias of Y = X W + b."""
    return np.asarray(d.reshape(-1, d.shape[-1]).sum(axis=0))


def d_of_rows(  # [n, m] and [d, m], up to three times -> [n, d]
    d_q: Array | None = None,
    w_q: Array | None = None,
    d_k: Array | None = None,
    w_k: Array | None = None,
    d_v: Array | None = None,
    w_v: Array | None = None,
) -> Array:
    """dQ W_qᵀ + dK W_kᵀ + dV W_vᵀ: the gradient of the X that queries, keys, values are made of.

    Of those that are made of it; where one has no weights, its gradient itself.
    """
    pairs = [(d, w) for d, w in ((d_q, w_q), (d_k, w_k), (d_v, w_v)) if d is not None]
    return np.asarray(sum(d if w is None else d @ w.T for d, w in pairs))


# ---- the plan in reverse


def backward(steps: Sequence[Step], sizes: Sizes) -> list[Step]:
    """The steps of the gradients of everything that a plan of these sizes was given.

    The first is the gradient of the last stage, which is given (GIVEN_GRADIENT); then each step's
    own, in reverse order.
    """
    way = _Backward({step.name: step for step in steps}, sizes, steps[-1].dtype)
    last = steps[-1].name
    name, symbol = gradient_of(last), kind_of(gradient_of(last)).symbol
    given = {"x": GIVEN_GRADIENT}
    way.steps.append(Step(name, as_given, given, formula=f"{symbol} given", dtype=way.dtype))
    way.gradients[last] = name
    for step in reversed(steps):
        way.through(step)
    for x in way.parts:
        way.rows(x)
    return way.steps


@dataclass
class _Backward:
    """The gradient steps so far; each method is the backward step of one kind of step.

    forward    the plan, by stage
    gradients  stage → the stage that holds its gradient
    parts      rows that several stages are made of → parameters of `d_of_rows`
    done       stages whose backward step is already taken
    """

    forward: Mapping[str, Step]
    sizes: Sizes
    dtype: DType | None
    steps: list[Step] = field(default_factory=list)
    gradients: dict[str, str] = field(default_factory=dict)
    parts: dict[str, dict[str, str]] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)

    @cached_property
    def order(self) -> HeadOrder:
        """Which query heads share a key head."""
        shares = (step for step in self.forward.values() if step.compute is f.share)
        return next((step.params["order"] for step in shares), "blocks")

    def step(
        self,
        of: str,
        compute: Callable[..., Array],
        reads: Mapping[str, str],
        params: Mapping[str, Any] = {},
        formula: str = "",
        text: str = "",
        **own: Any,
    ) -> str:
        """Adds the gradient of the stage `of`: {parameters} in its formula become symbols."""
        name = gradient_of(of)
        symbols = {parameter: kind_of(read).symbol for parameter, read in reads.items()}
        formula = f"{kind_of(name).symbol} = {formula.format(**symbols)}" if formula else ""
        text = formulas.shared(text, self.sizes.n_heads, self.sizes.n_kv_heads, self.order)
        self.steps.append(Step(name, compute, reads, params, formula, text, self.dtype, **own))
        self.gradients[of] = name
        return name

    def through(self, step: Step) -> None:
        """Adds the backward step of a step whose gradient is there, once."""
        rule = _RULES.get(step.compute)
        if rule is not None and step.name in self.gradients and step.name not in self.done:
            self.done.add(step.name)
            rule(self, step, self.gradients[step.name])

    def operand(self, name: str) -> None:
        """Takes the step that shares the heads of a key or value back at once, beside its own."""
        if name in self.forward and self.forward[name].compute is f.share:
            self.through(self.forward[name])

    # one method for each function of a plan: the step, and the name of its gradient

    def weighted_sum(self, step: Step, d: str) -> None:
        a, v = step.reads["a"], step.reads["v"]
        reads = {"a": a, "b": d}
        self.step(v, column_products, reads, {}, "{a}ᵀ {b}", formulas.D_VALUES)
        self.operand(v)
        self.step(a, f.scores, {"q": d, "k": v}, {}, "{q} {k}ᵀ", formulas.D_WEIGHTS)

    def dropout(self, step: Step, d: str) -> None:
        p = step.params["p"]
        formula = f"{{x}} / {1 - p:g}, and 0 for what was dropped"
        reads = {"x": d, "kept": step.reads["kept"]}
        self.step(step.reads["x"], f.dropout, reads, {"p": p}, formula, formulas.DROPPED)

    def softmax(self, step: Step, d: str) -> None:
        x, axis = step.reads["x"], {"axis": step.params.get("axis", -1)}
        allowed = {name: read for name, read in step.reads.items() if name == "allowed"}
        a, symbol = step.name, kind_of(step.name).symbol
        each = "row" if axis["axis"] == -1 else "column"
        formula = f"δ = Σ {symbol} ∘ {kind_of(d).symbol} over each {each}"
        kind = "delta" if axis["axis"] == -1 else "delta_of_keys"
        reads = {"a": a, "d": d} | allowed
        counted = ["mask"] * len(allowed)
        letters = formulas.SUMS_TO_1[axis["axis"]]
        text = formulas.written(formulas.DELTA, *counted, **letters)
        self.steps.append(Step("delta", delta, reads, axis, formula, text, self.dtype, kind))
        reads = {"a": a, "d": d, "delta": "delta"} | allowed
        sums = f"each {each} sums to 0"
        if "sinks" in step.reads:
            sums = f"each {each} sums to δ times what the sink takes"
        text = formulas.written(formulas.D_SOFTMAX, *counted, **letters)
        self.step(x, d_softmax, reads, axis, f"{{a}} ∘ ({{d}} − δ): {sums}", text)
        if "sinks" in step.reads:
            reads = {"x": x, "sinks": step.reads["sinks"], "delta": "delta"}
            formula = "−Σ δ exp({sinks}) / (Σ exp({x}) + exp({sinks}))"
            self.step(step.reads["sinks"], d_of_sinks, reads, {}, formula, formulas.D_SINKS)

    def apply_mask(self, step: Step, d: str) -> None:
        x, mask = step.reads["x"], step.reads["mask"]
        replaces = step.params.get("rule", "replace") == "replace"
        if step.params["value"] != -np.inf and replaces:
            formula = "{d}, but 0 where masked"
            d = self.step(x, d_hidden, {"d": d, "mask": mask}, {}, formula, formulas.D_HIDDEN)
        self.gradients[x] = d
        if step.compute is f.apply_mask:
            self.of_mask(mask, d)

    def add_bias(self, step: Step, d: str) -> None:
        self.gradients[step.reads["x"]] = d
        self.of_mask(step.reads["mask"], d)

    def of_mask(self, mask: str, d: str) -> None:
        """The gradient of the numbers of the given mask, where they are added."""
        given = self.forward[mask].reads.get("given_mask")
        if self.sizes.adds and given:
            reads = {"d": d, "mask": mask, "given": given}
            formula = "{d}, summed over what {mask} was broadcast over, 0 where it is −inf"
            text = formulas.d_of_mask(self.sizes.scores, self.sizes.mask)
            self.step(given, d_of_mask, reads, {}, formula, text)

    def softcap(self, step: Step, d: str) -> None:
        reads, cap = {"d": d, "b": step.name}, step.params["cap"]
        formula = f"{{d}} ∘ (1 − ({{b}} / c)²), c = {plain(cap)}"
        self.step(step.reads["x"], d_softcap, reads, {"cap": cap}, formula, formulas.D_CAPPED)

    def scale(self, step: Step, d: str) -> None:
        # the formula of the step itself, of which only the letter of x is another: Z = S / √d_k
        x = kind_of(step.reads["x"]).symbol
        formula = step.formula.partition(" = ")[2].replace(x, "{x}")
        text, sizes = step.expression, step.sizes
        self.step(step.reads["x"], f.scale, {"x": d}, step.params, formula, text, sizes=sizes)

    def scores(self, step: Step, d: str) -> None:
        q, k = step.reads["q"], step.reads["k"]
        allowed = {"allowed": "allowed"} if "allowed" in self.forward else {}
        reads = {"a": d, "v": k, **allowed}
        self.step(q, f.weighted_sum, reads, {}, "{a} {v}", formulas.D_QUERIES)
        self.step(k, column_products, {"a": d, "b": q}, {}, "{a}ᵀ {b}", formulas.D_KEYS)
        self.operand(k)

    def share(self, step: Step, d: str) -> None:
        inner = self.steps[-1]
        formula = inner.formula.partition(" = ")[2] + ", summed over the heads of each key head"
        x = step.reads["x"]
        params = {"n_kv_heads": self.sizes.n_kv_heads, "order": step.params["order"]}
        self.step(x, summed_heads, {"x": d}, params, formula, inner.expression)

    def split_heads(self, step: Step, d: str) -> None:
        x = step.reads["x"]
        if x in self.forward and self.forward[x].compute is f.project:
            self.step(x, merge_heads, {"x": d})
        else:
            wide = f"{step.name}_wide"
            self.part(step.name, x, self.step(wide, merge_heads, {"x": d}))

    def merge_heads(self, step: Step, d: str) -> None:
        params = {"n_heads": self.sizes.n_heads}
        formula, text = "the part of {x} that each head gave", formulas.D_HEADS
        if kind_of(step.name).role == "inner":  # of one head: no stage of its own
            formula, text = self.steps[-1].formula.partition(" = ")[2], formulas.D_PROJECTED_HEADS
        self.step(step.reads["x"], split_heads, {"x": d}, params, formula, text)

    def project(self, step: Step, d: str) -> None:
        x, w = step.reads["x"], step.reads["w"]
        of = {"w_q": "q", "w_o": "o"}.get(w.rpartition(".")[2], "k")
        text = formulas.D_OF_W[f"{of} of heads" if x == "wide_output" else of]
        self.step(w, d_of_weights, {"x": x, "d": d}, {}, "{x}ᵀ {d}", text)
        if "b" in step.reads:
            formula, text = "Σ {d} over the tokens", formulas.D_OF_B[of]
            self.step(step.reads["b"], d_of_bias, {"d": d}, {}, formula, text)
        if x in self.forward:  # the heads, side by side
            self.step(x, f.scores, {"q": d, "k": w}, {}, "{q} {k}ᵀ", formulas.D_CONCAT)
        else:
            self.part(step.name.removesuffix("_wide"), x, d, w)

    def part(self, name: str, x: str, d: str, w: str = "") -> None:
        """Notes what q, k or v, the stage of this name, gives the gradient of x."""
        weights = {f"w_{name}": w} if w else {}
        self.parts[x] = {f"d_{name}": d, **weights, **self.parts.get(x, {})}

    def rows(self, x: str) -> None:
        """The gradient of rows that queries, keys or values were made of."""
        reads = self.parts[x]
        terms = [
            f"{{d_{name}}}" + (f" {{w_{name}}}ᵀ" if f"w_{name}" in reads else "")
            for name in ("q", "k", "v")
            if f"d_{name}" in reads
        ]
        self.step(x, d_of_rows, reads, {}, " + ".join(terms), formulas.d_of_rows(reads))


_RULES: dict[Callable[..., Array], Callable[[_Backward, Step, str], None]] = {
    f.weighted_sum: _Backward.weighted_sum,
    f.dropout: _Backward.dropout,
    f.softmax: _Backward.softmax,
    f.apply_mask: _Backward.apply_mask,
    f.hide: _Backward.apply_mask,
    f.add_bias: _Backward.add_bias,
    f.softcap: _Backward.softcap,
    f.scale: _Backward.scale,
    f.scores: _Backward.scores,
    f.share: _Backward.share,
    split_heads: _Backward.split_heads,
    merge_heads: _Backward.merge_heads,
    f.project: _Backward.project,
}
"""The backward step of each function of a plan."""
