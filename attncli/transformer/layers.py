"""Transformer layers as steps of one flat plan: sub-layers, each with its residual and norm.

    x ── encoder.1 ── … ── encoder.N ── [norm] ── memory
                                                    │
    y ── decoder.1 ── … ── decoder.N ── [norm] ─────┴── the decoder's output

    norm="post"  x ─┬─ sub-layer ── [dropout] ── residual ── mean, deviation, norm   the paper, 3.1
                    └───────────────────────────┘
    norm="pre"   x ─┬─ mean, deviation, norm ── sub-layer ── [dropout] ── residual   Xiong (2020)
                    └─────────────────────────────────────────────────────┘
    norm="rms"   the same with N = γ X / √(ρ² + ε), without a mean         Zhang & Sennrich (2019)
    norm="none"  x + sub-layer(x)

A layer is a block of its sub-layers, `attention`, `cross_attention` (decoder) and `feed_forward`;
the last stage of a layer is what it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array, Like
from attncli.attention import formulas as page
from attncli.attention.backward import backward
from attncli.attention.heads import shape_text
from attncli.attention.inputs import cast_input, parameters
from attncli.attention.plan import Plan, Sizes
from attncli.attention.run import Heading, Labels, Step, Values, run, trace_of, within
from attncli.attention.shapes import (
    Gradient,
    check_projection,
    given_gradient,
    projected,
    restrictions,
    result_shape,
    token_rows,
    value_width,
)
from attncli.convention import Convention
from attncli.errors import ConventionError, ShapeError
from attncli.formula.kernels import draw_kept, like_kept
from attncli.formula.matrices import plain, subscript
from attncli.stages import GIVEN_GRADIENT, spec_of
from attncli.trace import Stage, Trace
from attncli.transformer.weights import (
    ATTENTION,
    FEED_FORWARD,
    NORM,
    Architecture,
    Weights,
    n_layers_of,
    named_seed,
)

Alter = Callable[[list[Step], Values], tuple[list[Step], Mapping[str, tuple[int, ...]]]]
BACKWARD = "backward"
"""What the names of all gradients of layers begin with."""


class LayerPlan:
    """A flat plan of layers in the making; each method adds to it and gives the stage it ends with.

    convention   that of the block
    weights      every array by its dotted name
    gains        q_gain and k_gain, of the norms of queries and keys in every attention
    alter        what is done to the steps of an attention and the shapes of what they read, once
                 they are made; it gives the steps, and the shapes of those that it has added
    inputs       what goes in, by dotted name: the rows x, masks and the weights that were used
    steps        the steps so far
    headings     titles, conventions and labels of their blocks
    like         an array of the shape of each stage that a sub-layer may read
    labels       the names of its tokens
    letters      its symbol; that of a sub-layer has its number
    n_sublayers  how many there are so far

    The methods raise ShapeError where a width does not fit.
    """

    def __init__(
        self,
        block: Architecture,
        weights: Weights,
        alter: Alter | None = None,
        gains: Mapping[str, npt.ArrayLike] = {},
    ) -> None:
        self.block, self.convention, self.weights = block, block.convention, weights
        self.alter, self.gains = alter, gains
        self.inputs: dict[str, Array] = {}
        self.steps: list[Step] = []
        self.headings = {"": Heading("")}
        self.like: dict[str, Array] = {}
        self.labels: dict[str, Labels] = {}
        self.letters: dict[str, str] = {}
        self.n_sublayers = 0

    def rows(self, name: str, x: npt.ArrayLike, labels: Labels = None, letter: str = "") -> str:
        """Rows of tokens under a name, [n, d_model] or [batch, n, d_model], and their symbol."""
        self.inputs[name] = self.like[name] = cast_input(token_rows(x), self.convention)
        self.labels[name], self.letters[name] = labels, letter or spec_of(name).symbol
        return name

    def stack(
        self,
        x: str,
        memory: str = "",
        *,
        mask: npt.ArrayLike | None = None,
        memory_mask: npt.ArrayLike | None = None,
    ) -> str:
        """The encoder that reads the stage x; with a memory, the encoder's output, the decoder.

        Each layer, `encoder.1` and so on, is self-attention, in a decoder also cross-attention to
        the memory, and feed-forward where its weights hold one. A decoder's self-attention is
        causal, its cross-attention has neither a causal mask nor a window, whatever the convention
        says; `mask` and `memory_mask` restrict the two further. A stack ends with a norm where its
        weights hold one: a pre-norm stack needs it, because its last residual is a plain sum.

        Source: "Attention Is All You Need", section 3.1; the last norm: Xiong et al. (2020),
        figure 1.

        >>> from attncli.transformer.weights import random_weights
        >>> block = Architecture(kind="encoder", d_model=2, n_layers=2)
        >>> layers = LayerPlan(block, random_weights(block))
        >>> layers.stack(layers.rows("x", np.eye(2)))
        'encoder.2.feed_forward.norm'
        >>> layers.trace()["encoder.2.attention.weights"].value.shape
        (1, 2, 2)
        """
        convention, stack = self.convention, "decoder" if memory else "encoder"
        causal = replace(convention, causal=True)
        crossing = replace(convention, causal=False, window=None)
        self._head(stack, stack.capitalize(), convention, x)
        if not (n_layers := n_layers_of(self.weights, stack)):
            raise ShapeError(f"the {stack} has no layers", "give it at least one")
        for name in (f"{stack}.{number}" for number in range(1, n_layers + 1)):
            self._head(name, f"{stack.capitalize()} layer", convention, x)
            x = self.attention(
                f"{name}.attention", x, convention=causal if memory else convention, mask=mask
            )
            if memory:
                cross = f"{name}.cross_attention"
                x = self.attention(cross, x, memory, convention=crossing, mask=memory_mask)
            if f"{name}.feed_forward.w_1" in self.weights:
                x = self.feed_forward(f"{name}.feed_forward", x)
        if not (gain := self._weights(stack, NORM)):
            return x
        rows = of_rows(convention, {"x": self.letters[x]})
        add_norm(rows, "x", gain, self.like[x].shape, self.block, f"N_{stack[0]}")
        return self._added(stack, rows, x)

    def attention(
        self,
        name: str,
        x: str,
        context: str = "",
        *,
        convention: Convention | None = None,
        mask: npt.ArrayLike | None = None,
        alone: bool = False,
        d_output: Gradient | None = None,
    ) -> str:
        """Self-attention of the stage x, or cross-attention to a context.

        Without w_q (w_k, w_v) the vectors themselves are the queries (keys, values).

        convention  where it is not that of the block
        alone       without dropout, residual and norm
        d_output    of one alone the gradient of its last stage, for the gradients of all before it
        """
        convention = convention or self.convention
        if convention.dropout:
            convention = replace(convention, seed=named_seed(convention.seed, f"{name}.dropped"))
        weights, outer = self._weights(name, ATTENTION), {"x_kv": context} if context else {}
        rows = {"x": self.like[x]} | {key: self.like[read] for key, read in outer.items()}
        n_heads, n_kv_heads = self.block.n_heads, self.block.n_kv_heads
        sizes = projected(rows | weights, n_heads, n_kv_heads)
        restricting = restrictions(sizes, mask, None)
        sizes = sizes.naming(
            {*sizes.inputs, *restricting}, convention, restricting.get("given_mask")
        )
        gains = parameters(self.gains, sizes, convention)
        gains = {key: cast_input(gain, convention) for key, gain in gains.items()}
        sizes = sizes._replace(inputs=sizes.inputs | gains.keys())
        others = restricting | gains
        self.inputs |= {f"{name}.{key}": value for key, value in others.items()}
        words = ["masked"] * convention.causal + ["multi-head"] * (n_heads > 1)
        title = " ".join([*words, f"{'cross' if context else 'self'}-attention"])
        self._head(name, title.capitalize(), convention, x, context)
        plan = Plan(convention, sizes, {"x": self.letters[x]})
        source = "x" if alone else self._source(name, x, plan)
        page.attention(plan, source, "shown" if n_heads > 1 else "needed")
        shapes: Mapping[str, tuple[int, ...]] = {}
        if self.alter is not None:
            (*lead, n_q, n_k), d_v = sizes.scores, value_width(rows | weights, sizes.n_kv_heads)
            shared = (*lead[:-1], sizes.n_kv_heads, n_k)
            qkv = {"q": (*lead, n_q, sizes.d_k), "k": (*shared, sizes.d_k), "v": (*shared, d_v)}
            inputs = {name: np.broadcast_to(0.0, shape) for name, shape in qkv.items()}
            read = {**rows, **weights, **others, **inputs}
            plan.steps, shapes = self.alter(plan.steps, read)
        shape = result_shape(rows | weights, n_heads, sizes.n_kv_heads)
        if not alone:
            return self._sublayer(name, x, plan, shape[-1], **outer)
        last = plan.steps[-1].name
        if d_output is not None:
            gradient = given_gradient(d_output, shape, last, convention.seed)
            self.inputs[f"{name}.{GIVEN_GRADIENT}"] = cast_input(gradient, convention)
            plan.steps += backward(plan.steps, shapes=shapes)
        self._within(name, plan, x, **outer)
        return f"{name}.{last}"

    def feed_forward(self, name: str, x: str) -> str:
        """The position-wise feed-forward of the stage x: FFN(X) = max(0, X W₁ + b₁) W₂ + b₂.

        Source: "Attention Is All You Need", section 3.3, equation 2.
        """
        weights, convention = self._weights(name, FEED_FORWARD), self.convention
        for leaf in ("w_1", "w_2"):
            if leaf not in weights:
                raise ShapeError(f"the weights hold no {name}.{leaf}", "give both w_1 and w_2")
        check_projection(self.like[x], weights["w_1"])
        check_projection(Like((1, weights["w_1"].shape[1])), weights["w_2"])
        self._head(name, "Position-wise feed-forward", convention, x)
        rows = of_rows(convention, {"x": self.letters[x]})
        source = self._source(name, x, rows)
        b_1, b_2 = ({"b": bias} if bias in weights else {} for bias in ("b_1", "b_2"))
        hidden = rows.add("hidden", page.HIDDEN, "", source, reads={"w": "w_1"} | b_1)
        rows.add("feed_forward", page.FEED_FORWARD, "", hidden, reads={"w": "w_2"} | b_2)
        return self._sublayer(name, x, rows, weights["w_2"].shape[1])

    def gradients(self, last: str, d_output: Gradient) -> None:
        """Those of everything that goes into the stage `last`, as a part of their own: `backward`.

        d_output  the gradient of a loss with respect to that stage
        """
        gradient = given_gradient(d_output, self.like[last].shape, last, self.convention.seed)
        self.inputs[GIVEN_GRADIENT] = cast_input(gradient, self.convention)
        self.steps += backward(self.steps, within=f"{BACKWARD}.", letters=self.letters)
        before = [(name, heading) for name, heading in self.headings.items() if name]
        self.headings[BACKWARD] = self.headings[""]._replace(title="Backward pass", notes=())
        for name, heading in before:
            title = f"{heading.title}: gradients"
            self.headings[f"{BACKWARD}.{name}"] = heading._replace(title=title, notes=())
        for name in self.letters.keys() & self.inputs.keys():  # of the rows that go in
            place = f"{BACKWARD}.{name}".rpartition(".")[0]
            heading = self.headings.get(place, Heading("Gradients of what goes in"))
            labels = {**heading.labels, "token": self.labels[name], "query": self.labels[name]}
            self.headings[place] = heading._replace(labels=labels)

    def trace(
        self, outputs: Collection[str] | None = None, stages: Mapping[str, Stage] = {}
    ) -> Trace:
        """Runs the plan: the trace of the wanted stages, all that are shown where None are named.

        stages  those that exist already, by dotted name; they come first
        """
        results = run(self.steps, self.inputs, outputs)
        visible = {*(results if outputs is None else outputs)}
        visible -= self.like.keys() & self.inputs.keys() - stages.keys()
        names = [*self.inputs, *(step.name for step in self.steps)]
        values = {name: results[name] for name in names if name in results and name in visible}
        first = {n: replace(x, value=self.inputs.get(n, x.value)) for n, x in stages.items()}
        return trace_of(self.steps, values, self.headings, first, self.inputs)

    def _head(
        self, name: str, title: str, convention: Convention, x: str, context: str = ""
    ) -> None:
        labels = {"query": self.labels[x], "key": self.labels[context or x]}
        whose = ", the encoder's output" if context.startswith("encoder.") else ""
        letter = self.letters.get(context, "")
        notes = (f"C, from which keys and values are computed, is {letter}{whose} ({context}).",)
        shown_convention = (
            convention if self.alter is None else None
        )  # other formulas say what is computed
        self.headings[name] = Heading(title, shown_convention, labels, notes if context else ())

    def _source(self, name: str, x: str, plan: Plan) -> str:
        """What the first step of a sub-layer reads: x, or its norm, which is added first."""
        if not self.block.is_pre_norm:
            return "x"
        gain, symbol = self._weights(name, NORM), self._numbered("N")
        return add_norm(plan, "x", gain, self.like[x].shape, self.block, symbol)

    def _numbered(self, letter: str) -> str:
        """A letter with the number of the sub-layer in the making."""
        return f"{letter}{subscript(self.n_sublayers + 1)}"

    def _weights(self, place: str, leaves: Collection[str]) -> dict[str, Array]:
        """The weights of a block that there are, by their own names, as inputs."""
        names = {leaf: f"{place}.{leaf}" for leaf in leaves if f"{place}.{leaf}" in self.weights}
        arrays = {
            leaf: cast_input(self.weights[name], self.convention) for leaf, name in names.items()
        }
        self.inputs |= {names[leaf]: x for leaf, x in arrays.items()}
        return arrays

    def _sublayer(self, name: str, x: str, plan: Plan, width: int, **outer: str) -> str:
        """The sub-layer's steps, then dropout and residual, and the norm where it comes last."""
        block, convention, shape = self.block, self.convention, self.like[x].shape
        last = plan.steps[-1].name
        if width != shape[-1]:
            result, rows = (" × ".join(map(str, (*shape[:-1], n))) for n in (width, shape[-1]))
            raise ShapeError(
                f"{last} ({result}) cannot be added to the sub-layer's input ({rows})",
                f"its last weights need {shape[-1]} columns",
            )
        if p := block.dropout:
            seed, mask = named_seed(convention.seed, f"{name}.sublayer_dropped"), "sublayer_kept"
            plan.add_function(mask, draw_kept, like=like_kept, shape=shape, p=p, seed=seed)
            words, back = page.dropout(page.DROPPED_ROWS, p)
            fields, dropped = {"symbol": f"{spec_of(last).symbol}'"}, "sublayer_dropped"
            more: dict[str, Any] = {"reads": {"kept": mask}, "back": back, "fields": fields, "p": p}
            last = plan.add(dropped, page.DROPPED_ROWS, words, last, **more)
            plan.letters[last] = fields["symbol"]
        added = plan.letters["residual"] = self._numbered("R")
        plan.add("residual", page.RESIDUAL, "", "x", reads={"y": last}, fields={"symbol": added})
        if block.norm == "post":
            gain, symbol = self._weights(name, NORM), self._numbered("N")
            add_norm(plan, "residual", gain, shape, block, symbol)
        self.n_sublayers += 1
        return self._added(name, plan, x, **outer)

    def _within(self, name: str, plan: Plan, x: str, **outer: str) -> None:
        """Adds the steps of a plan as a block. ConventionError where two have one name."""
        names = [step.name for step in plan.steps]
        for repeated in (repeated for at, repeated in enumerate(names) if repeated in names[:at]):
            message = f"{name} has a stage of its own called {repeated}"
            raise ConventionError(message, "give that of the formulas another name")
        self.steps += within(f"{name}.", plan.steps, x=x, **outer)

    def _added(self, name: str, plan: Plan, x: str, **outer: str) -> str:
        self._within(name, plan, x, **outer)
        end = f"{name}.{plan.steps[-1].name}"
        self.like[end], self.labels[end] = self.like[x], self.labels[x]
        self.letters[end] = plan.steps[-1].symbol or spec_of(end).symbol
        return end


def of_rows(convention: Convention, letters: Mapping[str, str] = {}) -> Plan:
    """A plan of stages of rows of tokens; the letters are symbols of stages."""
    return Plan(convention, Sizes((), 1, 1), letters)


def add_norm(
    rows: Plan,
    x: str,
    gain: Weights,
    shape: tuple[int, ...],
    block: Architecture,
    symbol: str = "N",
) -> str:
    """Adds the norm of the stage x of this shape, under a letter, and gives the stage's name.

    N = γ (X − μ) / √(σ² + ε) + β, as mean, deviation and norm; that of an RMS norm is
    N = γ X / √(ρ² + ε), as rms and norm. ShapeError unless γ and β have a number for each column.
    """
    for name, value in gain.items():
        if value.shape != shape[-1:]:
            raise ShapeError(
                f"{name} ({shape_text(value)}) does not fit x ({' × '.join(map(str, shape))})",
                f"it needs one number for each of the {shape[-1]} columns",
            )
    gains = {name: name for name in NORM if name in gain}
    if block.norm == "rms":
        back: dict[str, Any] = {"x": (page.D_RMS, "")}
        reads = {"rms": rows.add("rms", page.RMS, "√(mean of {x}²)", x, back=back)}
        text, ways, words = page.RMS_NORM, page.D_RMS_NORM, "{x} / √(ρ² + ε)"
        note = "each token's numbers over their root mean square, then times γ (gain)"
    else:
        note = ""
        mean = {"mean": rows.add("mean", page.MEAN, "mean of each row of {x}", x)}
        back = {"mean": None, "x": (page.D_DEVIATION, "")}
        rows.add("deviation", page.DEVIATION, "√(mean of ({x} − μ)²)", x, reads=mean, back=back)
        reads = mean | {"deviation": "deviation"}
        text, ways, words = page.NORM, page.D_NORM, "({x} − μ) / √(σ² + ε)"
    words = f"{'γ ' * ('gamma' in gain)}{words}{' + β' * ('beta' in gain)}"
    words += f", ε = {plain(block.epsilon)}"
    of_gain = " ∘ γ" * ("gamma" in gain)
    back = {name: (line, way.replace("{γ}", of_gain)) for name, (line, way) in ways.items()}
    more: dict[str, Any] = {"fields": {"symbol": symbol, "note": note}, "back": back}
    more["epsilon"] = block.epsilon
    rows.letters["norm"] = symbol
    return rows.add("norm", text, words, x, reads=reads | gains, **more)
