"""What one attention is computed from, checked to fit: the one argument of all that computes it.

    q, k, v, or x and the weights ──┐              ┌── trace   every stage
    a cache, a mask, lengths, sinks ┼── Inputs ────┼── run     the stages that are asked for
    the gradient of the result ─────┘              └── values  q, k and v for `stream` and `check`

Where q, k and v are made of x the plan begins at x: a cache, the queries that are wanted and the
heads side by side are steps of it like any other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array, Like
from attncli.attention.heads import shape_text
from attncli.attention.masks import meant_mask
from attncli.attention.plan import Merge, Sizes, plan
from attncli.attention.run import Heading, Labels, Step, Values, run, trace_of
from attncli.attention.shapes import (
    Gradient,
    as_numbers,
    check_past,
    check_qkv,
    check_rows,
    given_gradient,
    in_order,
    projected,
    restrictions,
    result_shape,
    token_rows,
    value_width,
)
from attncli.convention import Convention, Layout, MaskMeans, convention_of
from attncli.errors import ConventionError, ShapeError
from attncli.formula.kernels import NUMBERS, round_to, widen
from attncli.stages import CONCAT, GIVEN_GRADIENT, MAPS, OUTPUT, PROJECTED, QKV, gradient_of
from attncli.trace import Trace

EMBEDDINGS = ("x", "x_kv", "x_v")
WEIGHTS = tuple(f"{kind}_{name}" for kind in "wb" for name in "qkvo")
"""Of which q, k and v are made, and by which."""
CACHE = {"k": "past_k", "v": "past_v"}
GAINS = {"q": "q_gain", "k": "k_gain"}
OTHERS = ("mask", *CACHE.values(), "kv_len", "sinks", *GAINS.values(), "d_output", "rows")
"""What else an attention may be given."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """What one attention is computed from, checked to fit.

    originals  the arrays as they came, by the names that the plan reads, and the cache
    merge      what becomes of the outputs of the heads, see `plan`
    labels     axis → the names of all queries, and of all keys
    title      of the trace
    notes      what was assumed where they were read from files, a line each
    """

    originals: Mapping[str, Array]
    convention: Convention
    sizes: Sizes
    merge: Merge
    labels: Mapping[str, Labels]
    title: str
    notes: tuple[str, ...] = ()

    @property
    def is_of_x(self) -> bool:
        """Whether q, k and v are made of x and weights."""
        return "x" in self.originals

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """What the plan reads, in the number type: of q the queries that are wanted."""
        as_they_are = ("given_mask", "kv_len", "rows")
        originals = self.originals if "x" in self.originals else {**self.originals, **self.qkv}
        arrays = {
            name: x if name in as_they_are else cast_input(x, self.convention)
            for name, x in originals.items()
            if name in self.sizes.inputs
        }
        if "rows" in arrays and "q" in arrays:
            arrays["q"] = arrays["q"][..., arrays["rows"], :]
        return arrays

    @property
    def qkv(self) -> dict[str, Array]:
        """q, k and v with the cache before k and v, as they were given or as they are made of x."""
        if "x" in self.originals:
            return {name: self.values[name] for name in QKV}
        whole = {name: self.originals[name] for name in QKV}
        for name, past in CACHE.items():
            if past in self.originals:
                whole[name] = np.concatenate([self.originals[past], whole[name]], axis=-2)
        return whole

    @property
    def gains(self) -> dict[str, Array]:
        """The gains of the norms of queries and keys, those that there are."""
        return {name: self.originals[name] for name in GAINS.values() if name in self.originals}

    @property
    def keywords(self) -> dict[str, Any]:
        """q, k and v, and what else `attend` and `check` take, by their keywords."""
        keyword_of = {"given_mask": "mask", GIVEN_GRADIENT: "d_output"}
        arrays = {keyword_of.get(name, name): x for name, x in self.originals.items()}
        if self.is_of_x:
            arrays |= self.qkv
            for name in CACHE:  # without the cache, which is an argument of its own
                arrays[name] = arrays[name][..., self.sizes.n_past :, :]
            arrays |= {"d_output": self.d_output} if "d_output" in arrays else {}
            arrays = {name: x for name, x in arrays.items() if name not in (*EMBEDDINGS, *WEIGHTS)}
        return {**arrays, "convention": self.convention}

    @property
    def label_keywords(self) -> dict[str, Any]:
        """query_labels and key_labels, as `attend` and `check` take them."""
        return {f"{axis}_labels": names for axis, names in self.labels.items()}

    @property
    def query_names(self) -> tuple[str, ...]:
        """What the queries are called: their labels, else q1, q2 …"""
        labels, n_q = self.labels.get("query"), self.sizes.scores[-2]
        return tuple(labels) if labels else tuple(f"q{row + 1}" for row in range(n_q))

    @cached_property
    def values(self) -> dict[str, Array]:
        """The arrays, and q, k and v where they are made of x."""
        return self.arrays | self.run(QKV)

    @cached_property
    def steps(self) -> Sequence[Step]:
        """The plan."""
        return plan(self.convention, self.sizes, merge=self.merge)

    @property
    def maps(self) -> list[tuple[str, tuple[int, ...]]]:
        """The stages with a number for every query and key, and their shape."""
        *lead, n_q, n_k = self.sizes.scores
        n_q = len(self.originals.get("rows", range(n_q)))
        names = {"mask", *MAPS, *map(gradient_of, MAPS)}
        return [(step.name, (*lead, n_q, n_k)) for step in self.steps if step.name in names]

    def run(self, names: Collection[str], **computed: Array) -> dict[str, Array]:
        """These stages, computed from the inputs and from others that are known already."""
        values = run(self.steps, {**self.arrays, **computed}, names)
        return {name: values[name] for name in names}

    @property
    def last(self) -> list[str]:
        """What follows the output: the heads side by side, and their projection."""
        return [step.name for step in self.steps if step.name in (CONCAT, PROJECTED)]

    @property
    def output_shape(self) -> tuple[int, ...]:
        """That of the output of the heads."""
        if self.is_of_x:
            return (*self.sizes.scores[:-1], value_width(self.originals, self.sizes.n_kv_heads))
        return (*self.sizes.scores[:-1], self.originals["v"].shape[-1])

    def with_gradient(self, d: Gradient) -> Inputs:
        """The same with the gradient of what the whole gives. ShapeError where it does not fit."""
        stage, shape = OUTPUT, self.output_shape
        if self.is_of_x:
            stage = [OUTPUT, *self.last][-1]
            shape = result_shape(self.originals, self.sizes.n_heads, self.sizes.n_kv_heads)
        gradient = given_gradient(d, shape, stage, self.convention.seed)
        if stage == OUTPUT:
            gradient = gradient.reshape(self.output_shape)
        originals = {**self.originals, GIVEN_GRADIENT: gradient}
        return replace(
            self, originals=originals, sizes=self.sizes._replace(inputs=_plan_inputs(originals))
        )

    @property
    def gradients_around(self) -> list[str]:
        """The gradients that follow from those of q, k and v, or from that of the whole."""
        names = {gradient_of(name) for name in {*self.last, OUTPUT, *self.originals} - {*QKV}}
        return [step.name for step in self.steps if step.name in names] if self.is_of_x else []

    @cached_property
    def d_output(self) -> Array:
        """The gradient of the output of the attention itself, that of the whole given."""
        if not self.is_of_x or not self.last:
            return self.originals[GIVEN_GRADIENT]
        return self.run([gradient_of(OUTPUT)])[gradient_of(OUTPUT)]

    def without(self, *names: str) -> Inputs:
        """The same without some of the arrays."""
        originals = {name: x for name, x in self.originals.items() if name not in names}
        return replace(
            self, originals=originals, sizes=self.sizes._replace(inputs=_plan_inputs(originals))
        )

    def of_rows(self, rows: Sequence[int]) -> Inputs:
        """The same for some queries alone; raises as `attend` does."""
        originals = {
            **self.originals,
            "rows": check_rows(rows, self.sizes.scores[-2], self.convention),
        }
        if GIVEN_GRADIENT in originals:
            message = "gradients of keys and values are sums over all queries, not over some rows"
            raise ConventionError(message, "leave out rows")
        return replace(
            self, originals=originals, sizes=self.sizes._replace(inputs=_plan_inputs(originals))
        )

    @property
    def heading(self) -> Heading:
        """Title and labels of what is computed."""
        queries, keys = (self.labels.get(axis) for axis in ("query", "key"))
        n_q = self.sizes.scores[-2]
        if (rows := self.originals.get("rows")) is not None:
            if queries and len(queries) != n_q:
                raise ShapeError(
                    f"there are {n_q} queries but {len(queries)} query labels",
                    "give one for each query, not for the rows alone",
                )
            queries = [queries[row] if queries else f"q{row + 1}" for row in rows]
        return Heading(self.title, self.convention, {"query": queries, "key": keys})

    def trace(self) -> Trace:
        """Every stage."""
        values = self.ordered(run(self.steps, self.arrays))
        stages = {}
        if "rows" in self.originals and self.is_of_x:  # of which all tokens are shown
            headings = {"": Heading("", self.convention, self.labels)}
            stages = {"x": trace_of([], {"x": self.arrays["x"]}, headings)["x"]}
        return trace_of(self.steps, values, {"": self.heading}, stages, self.arrays)

    def trace_of(self, computed: Values) -> Trace:
        """What is known already, computed in another way, and what follows the output of it."""
        last = self.last if OUTPUT in computed else []
        weights = {
            name: cast_input(x, self.convention)
            for name, x in self.originals.items()
            if name in WEIGHTS
        }
        after = run(self.steps, {**weights, **computed}, last)
        steps = [step for step in self.steps if step.name in {*computed, *last}]
        steps = [s._replace(reads={}, text="") if s.name in computed else s for s in steps]
        values = {step.name: after[step.name] for step in steps}
        return trace_of(steps, values, {"": self.heading})

    def ordered(self, values: Values) -> dict[str, Array]:
        """The values in the order in which they are read: x and weights, q, k, v, then others."""
        first = [name for name in values if name in (*EMBEDDINGS, *WEIGHTS)]
        names = dict.fromkeys([*first, *QKV, *values])
        return {name: values[name] for name in names if name in values}


def inputs_of(
    arrays: Mapping[str, Any],
    convention: Convention,
    *,
    n_heads: int = 1,
    n_kv_heads: int | None = None,
    merge: Merge | None = None,
    means: MaskMeans | None = None,
    layout: Layout | None = None,
    labels: Mapping[str, Labels] = {},
    title: str = "",
) -> Inputs:
    """The inputs of one attention by their names, checked; those that are None are left out.

    arrays  q, k and v; or x, and where K and V are of others x_kv and x_v, with w_q … b_o; and
            past_k, past_v, mask, kv_len, sinks, q_gain, k_gain, d_output and rows
    n_*     heads into which the projections of x are split
    title   of the trace; "": by what is computed
    means   what 0 and 1 in a mask mean, where that is not said by the convention
    layout  the order of the axes of q, k, v, the cache and d_output; None: heads before tokens

    Raises ShapeError and ConventionError as `attend` does.
    """
    present = {name: x for name, x in arrays.items() if x is not None}
    if unknown := present.keys() - {*QKV, *EMBEDDINGS, *WEIGHTS, *OTHERS}:
        raise TypeError(f"there is no keyword {min(unknown)!r}")
    if "x" in present:
        originals, sizes = _of_x(present, n_heads, n_kv_heads)
        if len(sizes.scores) == 3 and sizes.n_heads == sizes.n_kv_heads == 1 and merge is None:
            sizes = sizes._replace(scores=sizes.scores[1:])
        merge = merge or ("shown" if sizes.n_heads > 1 else "never")
        words = ["multi-head"] * (sizes.n_heads > 1)
        words.append("cross-attention" if "x_kv" in originals else "self-attention")
    else:
        names = (*QKV, *CACHE.values())
        originals = {n: as_numbers(present[n], n) for n in names if n in present}
        if layout:
            originals = {name: in_order(x, name, layout) for name, x in originals.items()}
        sizes = _of_qkv(originals)
        words = ["scaled"] * convention.is_scaled
        if sizes.n_kv_heads != sizes.n_heads:
            words.insert(0, "multi-query" if sizes.n_kv_heads == 1 else "grouped-query")
        words.append("dot-product attention")
    if present.keys() & {"mask", "kv_len"}:
        originals |= restrictions(sizes, present.get("mask"), present.get("kv_len"))
    if "given_mask" in originals:
        originals["given_mask"] = meant_mask(originals["given_mask"], means, convention)
    originals |= parameters(present, sizes, convention)
    sizes = sizes.naming(_plan_inputs(originals), convention, originals.get("given_mask"))
    title = title or " ".join(words).capitalize()
    inputs = Inputs(originals, convention, sizes, merge or "never", labels, title)
    if (d := present.get("d_output")) is not None:
        is_named = isinstance(d, str) or "x" in originals
        inputs = inputs.with_gradient(d if is_named else in_order(d, gradient_of(OUTPUT), layout))
    return inputs.of_rows(present["rows"]) if "rows" in present else inputs


def from_keywords(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    merge: Merge | None = None,
    layout: Layout | None = None,
    query_labels: Labels = None,
    key_labels: Labels = None,
    convention: Convention | None = None,
    **more: Any,
) -> Inputs:
    """The inputs of one attention by the keywords of `attend`: arrays, and fields of Convention."""
    arrays = {"q": q, "k": k, "v": v} | {n: more.pop(n) for n in OTHERS if n in more}
    convention, labels = convention_of(convention, more), {"query": query_labels, "key": key_labels}
    means = more.get("mask_means")
    return inputs_of(arrays, convention, merge=merge, means=means, layout=layout, labels=labels)


def parameters(
    present: Mapping[str, Any], sizes: Sizes, convention: Convention
) -> dict[str, Array]:
    """The sinks, and the gains of the norms of queries and keys, those that there are.

    ShapeError and ConventionError for those that do not fit.
    """
    names = [name for name in ("sinks", *GAINS.values()) if name in present]
    arrays = {name: as_numbers(present[name], name) for name in names}
    for name, x in arrays.items():
        shape = shape_text(x) or "one number"
        if name == "sinks":
            if x.shape != (sizes.n_heads,):
                raise ShapeError(f"sinks ({shape}) need one score per head: {sizes.n_heads}")
            if convention.softmax_over == "queries":
                raise ConventionError("sinks join a softmax over keys", "leave out softmax_over")
            continue
        if not convention.qk_norm:
            message = f"{name} is given, but queries and keys are not normalised"
            raise ConventionError(message, "add qk_norm (--qk-norm)")
        if x.shape != (sizes.d_k,):
            hint = "give one gain for each entry of a query or key"
            raise ShapeError(f"{name} is {shape}, and d_k is {sizes.d_k}", hint)
    return arrays


def _plan_inputs(originals: Mapping[str, Array]) -> frozenset[str]:
    """The names of what the plan reads: a cache is put before k and v given."""
    return frozenset(originals) - (set() if "x" in originals else {*CACHE.values()})


def _of_qkv(arrays: Mapping[str, Array]) -> Sizes:
    """The sizes of the attention of q, k and v, a cache before them."""
    whole = dict(arrays)
    for name, past in CACHE.items():
        if (before := whole.pop(past, None)) is not None:
            x = whole[name]
            check_past(past, before, name, x)
            shape = (*x.shape[:-2], before.shape[-2] + x.shape[-2], x.shape[-1])
            whole[name] = np.broadcast_to(np.zeros((), x.dtype), shape)  # nothing is copied
    check_qkv(**whole)
    q, k = whole["q"], whole["k"]
    n_kv_heads = k.shape[-3] if k.ndim > 2 else 1
    n_past = k.shape[-2] - arrays["k"].shape[-2]
    return Sizes((*q.shape[:-1], k.shape[-2]), n_kv_heads, q.shape[-1], n_past)


def _of_x(
    present: Mapping[str, Any], n_heads: int, n_kv_heads: int | None
) -> tuple[dict[str, Array], Sizes]:
    """x, the weights and the cache, and the sizes of the attention that is made of them."""
    arrays = {name: token_rows(present[name], name) for name in EMBEDDINGS if name in present}
    for name, x in arrays.items():
        if x.shape[:-2] != arrays["x"].shape[:-2]:
            raise ShapeError(
                f"x ({shape_text(arrays['x'])}) and {name} ({shape_text(x)}) differ in their batch",
                "both are (tokens, d_model), or both (batch, tokens, d_model) of one batch",
            )
    arrays |= {name: as_numbers(present[name], name) for name in WEIGHTS if name in present}
    sizes = projected(arrays, n_heads, n_kv_heads)
    cache = {past: as_numbers(present[past], past) for past in CACHE.values() if past in present}
    if not cache:
        return arrays, sizes
    (*batch, n_heads, n_q, n_new), n_kv_heads = sizes.scores, sizes.n_kv_heads
    has_heads, d_v = bool(batch) or not n_heads == n_kv_heads == 1, value_width(arrays, n_kv_heads)
    shapes = {"q": (n_heads, n_q, sizes.d_k), "k": (n_kv_heads, n_new, sizes.d_k)}
    shapes["v"] = n_kv_heads, n_new, d_v
    whole = {  # of the shapes that they will have; nothing is computed
        name: np.broadcast_to(0.0, (*batch, *shape[not has_heads :]))
        for name, shape in shapes.items()
    }
    n_past = _of_qkv({**whole, **cache}).n_past
    scores = (*batch, n_heads, n_q, n_new + n_past)
    return {**arrays, **cache}, sizes._replace(scores=scores, n_past=n_past)


def cast_input(x: Array, convention: Convention) -> Array:
    """An input in the number type, and never memory of the caller's that may change."""
    if isinstance(x, Like):
        return x._replace(dtype=np.dtype(NUMBERS[convention.dtype]))
    value = x.astype(np.float64, copy=False)
    if convention.dtype != "float64":
        value = round_to(widen(x, convention.dtype), convention.dtype)
    is_fixed = x.base is None and not x.flags.writeable  # a view's memory can change by its base
    return value.copy() if np.may_share_memory(value, x) and not is_fixed else value
