"""Gradients without the score matrix: a few queries at a time, in memory for O(L · d) numbers.

for each key head, for each part of the queries              (in threads, BLAS limited to one each)
    for each block of queries of the heads that share it
        P = exp(scores) ── dA = dO Vᵀ ── δ = Σ P ∘ dA ── dS = P ∘ (dA − δ)
        dQ = dS K        dK += dSᵀ Q        dV += Pᵀ dO

Of a block the scores of all its keys are held, so that each is computed once. What this is not made
for (softcap, scores or values that are not finite, …) is computed by `run` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.heads import four_axes
from attncli.attention.inputs import Inputs, from_keywords
from attncli.attention.plan import plan
from attncli.attention.run import run
from attncli.attention.shapes import Gradient, given_gradient
from attncli.attention.streaming import (
    CELLS,
    LOG2_E,
    Job,
    Rows,
    check_streams,
    in_threads,
)
from attncli.convention import Convention, Fields
from attncli.formula.kernels import widen
from attncli.stages import GIVEN_GRADIENT, OUTPUT, QKV, gradient_of

ROWS, KEYS = 256, 2048
"""The most queries and keys of a block."""
PARTS = 4
"""A head's queries are summed in so many parts where there are fewer heads: one for each thread."""


def stream_gradients(  # noqa: PLR0913 - those of `attend`, and how it runs
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    d_output: Gradient,
    *,
    mask: npt.ArrayLike | None = None,
    past_k: npt.ArrayLike | None = None,
    past_v: npt.ArrayLike | None = None,
    kv_len: npt.ArrayLike | None = None,
    q_gain: npt.ArrayLike | None = None,
    k_gain: npt.ArrayLike | None = None,
    convention: Convention | None = None,
    n_threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **fields: Unpack[Fields],
) -> dict[str, Array]:
    """d_q, d_k and d_v of `attend`, without the stages before them.

    d_q has the shape of q, d_k and d_v have that of k and v with the cache before them. In which
    order numbers are summed does not depend on the threads.

    Raises ShapeError, and ConventionError as `check_streams` does.
    Source: Dao et al., "FlashAttention" (2022), appendix B.4, algorithm 4.

    >>> found = stream_gradients([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]], [[1, 0]])
    >>> found["d_q"].round(4).tolist()
    [[1.564, -0.0]]
    """
    arrays: dict[str, Any] = {"mask": mask, "past_k": past_k, "past_v": past_v, "kv_len": kv_len}
    arrays |= {"q_gain": q_gain, "k_gain": k_gain}
    inputs = from_keywords(q, k, v, **arrays, convention=convention, **fields)
    return streamed_gradients(inputs, d_output, n_threads=n_threads, progress=progress)


def streamed_gradients(
    inputs: Inputs,
    d_output: Gradient,
    *,
    n_threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Array]:
    """The gradients of these inputs; raises as `stream_gradients` does."""
    check_streams(inputs.convention)
    d = given_gradient(d_output, inputs.output_shape, OUTPUT, inputs.convention.seed)
    job = _Job(inputs, d)
    for at, d_k, d_v in in_threads(job, job.gradients, job.parts, n_threads, progress):
        job.d_k[at] += d_k
        job.d_v[at] += d_v
    names = {operand: gradient_of(job.reads[operand]) for operand in QKV}
    each_d = dict(zip(QKV, (job.d_q, job.d_k, job.d_v), strict=True))
    gradients = {
        names[operand]: x.reshape(job.whole[operand].shape) for operand, x in each_d.items()
    }
    if before := [operand for operand, name in names.items() if name != gradient_of(operand)]:
        # What came before the scores, such as a norm, has gradients by the plan.
        arrays = inputs.qkv | inputs.gains
        values = {name: widen(x, inputs.convention.dtype) for name, x in arrays.items()}
        values |= {job.reads[operand]: job.whole[operand] for operand in before}
        with_d = inputs.sizes._replace(inputs=inputs.sizes.inputs | {GIVEN_GRADIENT})
        gradients |= run(
            plan(inputs.convention, with_d), {**values, **gradients}, [*map(gradient_of, before)]
        )
    return {gradient_of(operand): gradients[gradient_of(operand)] for operand in QKV}


class _Job(Job):
    """One call: what `stream` has of it, the gradient of the output, and those that are asked.

    parts  blocks of queries that share a key head
    """

    def __init__(self, inputs: Inputs, d: Array) -> None:
        super().__init__(inputs, d)
        self.d = four_axes(d)
        arrays = (self.q, self.k, self.v)
        self.d_q, self.d_k, self.d_v = (np.zeros(x.shape, self.dtype) for x in arrays)
        (n_batch, n_kv_heads), n_q = self.k.shape[:2], self.q.shape[2]
        n = max(1, -(-n_q // -(-PARTS // (n_batch * n_kv_heads))))
        self.n_rows = max(1, min(ROWS, CELLS // self.n_k))
        self.parts = [
            [
                Rows(batch, head, at, min(at + self.n_rows, start + n, n_q))
                for head in (
                    head for head, key_head in enumerate(self.key_head) if key_head == kv_head
                )
                for at in range(start, min(start + n, n_q), self.n_rows)
            ]
            for batch in range(n_batch)
            for kv_head in range(n_kv_heads)
            for start in range(0, n_q, n)
        ]

    def gradients(self, part: Sequence[Rows]) -> tuple[tuple[int, int], Array, Array]:
        """Fills in d_q of these queries; the key head, and what they add to its d_k and d_v."""
        k, v, *_ = self.head(part[0])
        room = np.empty((2, self.n_rows * self.n_k), self.dtype)
        sums = np.zeros_like(k), np.zeros_like(v)
        for rows in part:
            if self.is_stopped:
                break
            at = rows.batch, rows.head, slice(rows.start, rows.stop)
            q, d = (
                widen(np.ascontiguousarray(x[at]), self.convention.dtype) for x in (self.q, self.d)
            )
            with np.errstate(all="ignore"):
                is_made_for, shifted = self.limits(rows, q)
                is_summed = is_made_for and np.isfinite(d).all()
                d_q = self._summed_back(rows, q, d, sums, room, shifted) if is_summed else None
                self.d_q[at] = self._by_plan(rows, q, d, sums) if d_q is None else d_q
        return (part[0].batch, self.key_head[part[0].head]), *sums

    def _summed_back(
        self, rows: Rows, q: Array, d: Array, sums: tuple[Array, Array], room: Array, shifted: bool
    ) -> Array | None:
        """d_q of a block of queries; adds to the sums, d_k and d_v. None where a query has no key.

        room     for the weights of all keys, and for their gradients
        shifted  the largest score of each query is subtracted first
        """
        (k, v, *_), (d_k, d_v) = self.head(rows), sums
        n, blocks = len(q), [*self.scores(rows, q, k, room, KEYS)]
        top = np.zeros((n, 1), self.dtype)
        if shifted and blocks:
            top = np.max([x.max(axis=1, keepdims=True) for _, (x, _) in blocks], axis=0)
            top[np.isneginf(top)] = 0
        total, delta = np.zeros((n, 1), self.dtype), np.zeros(n, self.dtype)
        for keys, (x, d_weights) in blocks:
            if shifted:
                np.subtract(x, top, out=x)
            np.exp2(x, out=x)
            np.matmul(d, v[keys].T, out=d_weights)
            total += x @ np.ones((x.shape[1], 1), self.dtype)  # four times as quick as a sum
            delta += np.einsum("qk,qk->q", x, d_weights)
        if not total.all():
            return None
        d_q, mean = np.zeros_like(q), delta[:, None] / total
        # The weights are never divided by their total: what they are multiplied by is.
        factor = self.dtype.type(self.factor / LOG2_E) / total
        keyed, shares = q * factor, d / total
        for keys, (x, d_weights) in blocks:
            d_v[keys] += x.T @ shares
            np.subtract(d_weights, mean, out=d_weights)
            np.multiply(d_weights, x, out=d_weights)
            d_k[keys] += d_weights.T @ keyed
            d_q += d_weights @ k[keys]
        return np.asarray(d_q * factor)

    def _by_plan(self, rows: Rows, q: Array, d: Array, sums: tuple[Array, Array]) -> Array:
        """The same by the steps of the plan, with every stage of a few queries at a time."""
        k, v, *_ = self.head(rows)
        inputs, d_q = {"q": q, "k": k, "v": v, GIVEN_GRADIENT: d}, []
        names = [gradient_of(self.reads[name]) for name in QKV]
        for part, *others in self.by_plan(rows, inputs, names):
            d_q.append(part)
            for total, gradient in zip(sums, others, strict=True):
                np.add(total, gradient, out=total)
        return np.concatenate(d_q)
