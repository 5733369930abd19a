"""Attention of x: projected by W_q, W_k and W_v, split into heads, merged and projected by W_o.

    x ── x W_q, x W_k, x W_v ── q, k, v ── attend ── output ── concat ── projected

Where q, k and v are wanted before the attention, for what does not fit into memory, for a cache or
for `check`, the same plan is computed in two parts: `Projected` holds the first and adds the last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Unpack

import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.attend import Block, Labels, entered, trace_of
from attncli.attention.backward import backward
from attncli.attention.heads import shape_text
from attncli.attention.masks import meant_mask
from attncli.attention.numbers import as_numbers
from attncli.attention.plan import Sizes, plan
from attncli.attention.published import published
from attncli.attention.run import Step, Values, run
from attncli.attention.shapes import Gradient, given_gradient, projected, result_shape, token_rows
from attncli.convention import Convention, Fields, convention_of
from attncli.errors import ShapeError
from attncli.formulas import after_cache
from attncli.stages import CONCAT, GIVEN_GRADIENT, OUTPUT, PROJECTED, QKV, gradient_of
from attncli.trace import Stage, Trace


@dataclass(frozen=True, eq=False)
class Projections:
    """The weights of multi-head attention, each applied from the right: x W + b.

    w_q [d_model, h·d_k], w_k [d_context, h_kv·d_k], w_v [d_context, h_kv·d_v], w_o [h·d_v, d_out]
    or None for no output projection; b_* [width] or None.
    Source: "Attention Is All You Need", section 3.2.2 (which has no biases).
    """

    w_q: Array
    w_k: Array
    w_v: Array
    w_o: Array | None = None
    b_q: Array | None = None
    b_k: Array | None = None
    b_v: Array | None = None
    b_o: Array | None = None

    def arrays(self) -> dict[str, Array]:
        """Those that are given, by name."""
        return {name: as_numbers(x, name) for name, x in vars(self).items() if x is not None}


def multi_head_attention(  # noqa: PLR0913 - what goes in, and how
    x: npt.ArrayLike,
    weights: Projections | Mapping[str, npt.ArrayLike],
    *,
    n_heads: int | None = None,
    n_kv_heads: int | None = None,
    context: npt.ArrayLike | None = None,
    mask: npt.ArrayLike | None = None,
    kv_len: npt.ArrayLike | None = None,
    d_output: Gradient | None = None,
    query_labels: Labels = None,
    key_labels: Labels = None,
    convention: Convention | None = None,
    **fields: Unpack[Fields],
) -> Trace:
    """MultiHead(x, c) = [head₁ … head_h] W_o, each head the attention of x W_q to c W_k and c W_v.

    x [..., n_q, d_model]; context c [..., n_k, d_context], x itself where it is left out
    (self-attention). The trace holds x, the weights, `attend`'s stages, `concat` and `projected`.
    `weights` by name may be a state dict, or others as they are published: Wq, in_proj_weight,
    query/kernel …; those of several heads have their n_heads, which else is 1.
    The `fields` are those of Convention, as `attend` takes them. `d_output`, the gradient of a loss
    with respect to the last stage, adds those of x, the weights and every stage between.

    Raises ShapeError where a width does not fit its weights, InputError where one is missing.
    Source: "Attention Is All You Need", section 3.2.2.

    >>> import numpy as np
    >>> eye = np.eye(2)
    >>> trace = multi_head_attention(eye, Projections(eye, eye, eye, 2 * eye), n_heads=1)
    >>> bool((trace["projected"].value == 2 * trace["concat"].value).all())
    True
    """
    how = convention_of(convention, fields)
    inputs = {"x": token_rows(x)}
    if context is not None:
        inputs["x_kv"] = token_rows(context)
    if not isinstance(weights, Projections):
        shapes = [rows.shape for rows in inputs.values()]
        read = published(weights, shapes, n_heads=n_heads, n_kv_heads=n_kv_heads)
        weights = Projections(**read.arrays)
        n_heads, n_kv_heads = read.n_heads, read.n_kv_heads
        if read.columns:
            inputs = {name: rows.T for name, rows in inputs.items()}
    inputs = {name: entered(a, how) for name, a in (inputs | weights.arrays()).items()}
    restricting, sizes = projected(inputs, n_heads or 1, n_kv_heads, mask, kv_len)
    if "given_mask" in restricting:
        means = fields.get("mask_means")
        restricting["given_mask"] = meant_mask(restricting["given_mask"], means, how)
        sizes = sizes.with_mask(restricting["given_mask"], how)
    inputs |= restricting
    if d_output is not None:
        shape = result_shape(inputs, sizes.n_heads, sizes.n_kv_heads)
        of = PROJECTED if "w_o" in inputs else CONCAT
        inputs[GIVEN_GRADIENT] = entered(given_gradient(d_output, shape, of, how.seed), how)
        sizes = sizes._replace(given={*sizes.given, GIVEN_GRADIENT})
    steps = plan(how, sizes)
    title = f"Multi-head {'cross' if context is not None else 'self'}-attention"
    block = Block(title, how, {"query": query_labels, "key": key_labels})
    return trace_of(steps, run(steps, inputs), {"": block}, inputs=inputs)


class Projected(NamedTuple):
    """q, k and v as they are made of x and the weights, and what an attention of them lacks.

    values    x, x_kv, x_v, the weights, and q, k and v: without a head axis where there is one head
    labels    axis → the names of all queries, and of the keys that are made of x or x_kv
    d_result  the gradient of what the whole gives, where gradients are asked for
    """

    steps: list[Step]
    values: dict[str, Array]
    sizes: Sizes
    how: Convention
    labels: Mapping[str, Labels] = {}
    d_result: Array | None = None

    @property
    def last(self) -> list[str]:
        """What follows the output: the heads side by side, where there are several, and W_o."""
        n_heads = self.sizes.n_heads
        return [CONCAT] * (n_heads > 1) + [PROJECTED] * ("w_o" in self.values)

    def with_gradient(self, d: Gradient) -> Projected:
        """The same with the gradient of what the whole gives. ShapeError where it does not fit."""
        shape = result_shape(self.values, self.sizes.n_heads, self.sizes.n_kv_heads)
        of = [OUTPUT, *self.last][-1]
        gradient = given_gradient(d, shape, of, self.how.seed)
        if of == OUTPUT and "q" in self.values:
            gradient = gradient.reshape(*self.values["q"].shape[:-1], shape[-1])
        return self._replace(d_result=entered(gradient, self.how))

    @property
    def d_output(self) -> Array:
        """The gradient of the output of the attention itself, that of the whole given."""
        return self._gradients([gradient_of(OUTPUT)], {})[gradient_of(OUTPUT)]

    def gradients(self, wanted: Collection[str], known: Values) -> dict[str, Array]:
        """Those of x, the weights and the biases, that follow from the gradients of q, k and v.

        known  d_q, d_k and d_v, with the cache; and the output, where w_o is among them
        """
        n_own, given = self.values["k"].shape[-2], dict(known)
        for name in (gradient_of("k"), gradient_of("v")):  # a cache is not made of x
            given[name] = given[name][..., -n_own:, :]
        return self._gradients(wanted, given)

    def _gradients(self, wanted: Collection[str], known: Values) -> dict[str, Array]:
        """These gradients, where some stages are known."""
        own = GIVEN_GRADIENT if self.last else gradient_of(OUTPUT)
        given = {} if self.d_result is None else {own: self.d_result}
        values = run(self.all_steps, {**self.values, **given, **known}, wanted)
        return {name: values[name] for name in wanted}

    @property
    def gradient_names(self) -> list[str]:
        """The gradients that follow from those of q, k and v, or from that of the whole."""
        of = {gradient_of(name) for name in {*self.last, OUTPUT, *self.values} - {*QKV}}
        return [step.name for step in self.all_steps if step.name in of]

    @property
    def all_steps(self) -> list[Step]:
        """All steps, those of gradients among them."""
        return [*self.steps, *backward(self.steps)]

    def made_by(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """Those of q, k and v that other arrays for some weights change, as they are then."""
        given = {name: x for name, x in self.values.items() if name not in QKV}
        changed = [name for name in QKV if {f"w_{name}", f"b_{name}"} & weights.keys()]
        values = run(self.steps, {**given, **weights}, changed)
        return {name: values[name] for name in changed}

    def around(self, trace: Trace) -> Trace:
        """The trace of the attention, with x and the weights before it and what follows it."""
        output = trace[OUTPUT]
        after = run(self.steps, {**self.values, OUTPUT: output.value}, self.last)
        after = {name: after[name] for name in self.last}
        own = trace_of(self.steps, self.values, {"": Block("", self.how, self.labels)})
        ends = trace_of(self.steps, after, {"": Block("", self.how, output.labels)})
        found = {stage.name: stage for stage in trace.steps if isinstance(stage, Stage)}
        parts = [step for step in trace.steps if isinstance(step, Trace)]
        before = [self._made(own[name], found.pop(name)) for name in QKV if name in found]
        given = [own[name] for name in self.values if name not in QKV] if before else []
        last = [ends[name] for name in self.last]
        if self.d_result is not None and gradient_of(OUTPUT) in found:
            last += self._gradients_around(found, after)
        title = "multi-head " * (self.sizes.n_heads > 1)
        title += "cross-attention" if "x_kv" in self.values else "self-attention"
        steps: list[Stage | Trace] = [*given, *before, *parts, *found.values(), *last]
        return replace(trace, title=title.capitalize(), steps=tuple(steps))

    def _gradients_around(self, found: dict[str, Stage], after: Values) -> list[Stage]:
        """Those down to the output, those of the attention (taken from `found`), of the inputs."""
        output = gradient_of(OUTPUT)
        inner = {name: found.pop(name) for name in [*found][[*found].index(output) :]}
        known = dict(after) | {name: x.value for name, x in (inner | found).items()}
        n_own, of_keys = self.values["k"].shape[-2], {gradient_of("k"), gradient_of("v")}
        n_cached = known[gradient_of("k")].shape[-2] - n_own
        del known[output]
        values = self.gradients(self.gradient_names, known)
        block = Block("", self.how, {**self.labels, **inner[output].labels})
        own = []
        for _, stage in trace_of(self.all_steps, values, {"": block}).stages():
            own.append(stage)
            if n_cached and of_keys & {*stage.reads.values()}:
                text = after_cache(stage.expression, ("d", "d_k", "d_v"))
                params = {**stage.params, "n_cached": n_cached}
                own[-1] = replace(stage, params=params, expression=text)
        at = [*values].index(output)
        first = own[at] if self.last else inner[output]  # computed, or given
        return [*own[:at], first, *[*inner.values()][1:], *own[at + 1 :]]

    def _made(self, own: Stage, attended: Stage) -> Stage:
        """q, k or v as it was attended: some of the rows, or a cache before it."""
        stage = replace(attended, formula=own.formula, reads=own.reads)
        if attended.value.shape == own.value.shape:
            return replace(stage, expression=own.expression)
        n, n_own = (x.value.shape[-2] for x in (attended, own))
        letter, _, product = own.formula.partition(" = ")
        if n < n_own:
            return stage
        cached, params = f"{letter} = [cache; {product}]", {"n_cached": n - n_own}
        text = after_cache(own.expression)
        return replace(stage, formula=cached, expression=text, params=params)


def projected_inputs(
    rows: Mapping[str, npt.ArrayLike],
    weights: Projections,
    how: Convention,
    *,
    n_heads: int = 1,
    n_kv_heads: int | None = None,
) -> Projected:
    """q, k and v of x: X W_q + b_q and so on, split into heads where there are several.

    rows  x, and where they are other ones x_kv (of which K and V are made) and x_v (V)

    x is [n, d_model] or [batch, n, d_model]. Raises ShapeError where a width does not fit.

    >>> import numpy as np
    >>> eye = np.eye(2)
    >>> made = projected_inputs({"x": [[1, 0]]}, Projections(eye, 2 * eye, 3 * eye), Convention())
    >>> made.values["v"].tolist(), made.last
    ([[3.0, 0.0]], [])
    """
    given = {name: token_rows(x, name) for name, x in rows.items()}
    for name, x in given.items():
        if x.shape[:-2] != given["x"].shape[:-2]:
            raise ShapeError(
                f"x ({shape_text(given['x'])}) and {name} ({shape_text(x)}) differ in their batch",
                "both are (tokens, d_model), or both (batch, tokens, d_model) of one batch",
            )
    inputs = {name: entered(x, how) for name, x in (given | weights.arrays()).items()}
    _, sizes = projected(inputs, n_heads, n_kv_heads)
    if len(sizes.scores) == 3 and sizes.n_heads == sizes.n_kv_heads == 1:
        sizes = sizes._replace(scores=sizes.scores[1:])
    steps = plan(how, sizes, show_concat=n_heads > 1)
    return Projected(steps, run(steps, inputs, QKV), sizes, how)
