"""Attention's output without the score matrix: block by block, in memory for O(L · d) numbers.

for each head, for each block of queries              (in threads, BLAS limited to one each)
    for each block of keys that any of them attends to
        scores ── exp(x − shift) ──┬── Σ ──────── total     [rows, 1]
                                   └── · V, Σ ─── values    [rows, d_v]
    output = values / total

The second path to the output, for its speed alone; what it is not made for (softcap, scores or
values that are not finite, …) is computed by `run` itself, a few rows at a time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.heads import four_axes, key_head_of, shape_text
from attncli.attention.inputs import Inputs, from_keywords
from attncli.attention.masks import adds, first_position, meaning, window
from attncli.attention.plan import Sizes, plan
from attncli.attention.run import run
from attncli.convention import Convention, Fields
from attncli.errors import ConventionError, ShapeError
from attncli.formula.kernels import widen
from attncli.stages import OUTPUT, SCORES

QUERIES, KEYS = 256, 512  # of a block: its float32 scores take half a megabyte of cache
CELLS = 1 << 20  # scores that `run` computes at once: 8 MB of float64 a stage
LOG2_E = math.log2(math.e)


def stream(  # noqa: PLR0913 - those of `attend`, and how it runs
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    mask: npt.ArrayLike | None = None,
    past_k: npt.ArrayLike | None = None,
    past_v: npt.ArrayLike | None = None,
    kv_len: npt.ArrayLike | None = None,
    q_gain: npt.ArrayLike | None = None,
    k_gain: npt.ArrayLike | None = None,
    convention: Convention | None = None,
    n_threads: int | None = None,
    out: Array | None = None,
    progress: Callable[[int, int], None] | None = None,
    **fields: Unpack[Fields],
) -> Array:
    """The output [..., n_q, d_v] of `attend`, without the stages before it.

    n_threads  blocks computed at a time; None = one per processor
    out        [..., n_q, d_v] of the convention's number type: filled and returned
    progress   called with (blocks done, blocks in all) as they are finished
    fields     those of Convention, as `attend` takes them

    While it runs, the BLAS library of the whole process is limited to one thread.
    Raises ShapeError, and ConventionError as `check_streams` does.
    Source: Milakov & Gimelshein, "Online normalizer calculation for softmax" (2018); Rabe &
    Staats, "Self-attention does not need O(n²) memory" (2021).

    >>> stream([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]]).round(4)
    array([[6.6976, 3.3024]])
    """
    arrays: dict[str, Any] = {"mask": mask, "past_k": past_k, "past_v": past_v, "kv_len": kv_len}
    arrays |= {"q_gain": q_gain, "k_gain": k_gain}
    inputs = from_keywords(q, k, v, **arrays, convention=convention, **fields)
    return streamed(inputs, out, n_threads=n_threads, progress=progress)


def streamed(
    inputs: Inputs,
    out: Array | None = None,
    *,
    n_threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Array:
    """The output of these inputs; raises as `stream` does."""
    check_streams(inputs.convention)
    shape, convention = inputs.output_shape, inputs.convention
    out = np.empty(shape, convention.dtype) if out is None else out
    if out.shape != shape or out.dtype != convention.dtype:
        needed = f"{' × '.join(map(str, shape))} of {convention.dtype}"
        raise ShapeError(f"out is {shape_text(out)} of {out.dtype}", f"it must be {needed}")
    job = Job(inputs, out)
    for _ in in_threads(job, job.compute, job.blocks, n_threads, progress):
        pass
    return out


def check_streams(convention: Convention) -> None:
    """ConventionError for dropout, a softmax over queries and 16-bit numbers."""
    if convention.softmax_over == "queries":
        message = "a softmax over queries needs whole columns and cannot be streamed"
        raise ConventionError(message, "use attend")
    if convention.dropout:
        message = "dropout is drawn for all weights and cannot be streamed"
        raise ConventionError(message, "use attend")
    if convention.dtype not in {"float32", "float64"}:
        message = f"{convention.dtype} rounds every stage of a whole row and cannot be streamed"
        raise ConventionError(message, "use float32 or float64")


class Rows(NamedTuple):
    """Queries start … stop − 1 of one head of one batch item."""

    batch: int
    head: int
    start: int
    stop: int


class Job:
    """One call: every array with the axes (batch, head, token, d), and what restricts.

    reads  q, k and v → the stage that the scores, or the output, read as that: q, or its norm
    whole  those stages; where the plan is followed it is given them by these names, so that no step
           before the scores is applied again
    """

    def __init__(self, inputs: Inputs, out: Array) -> None:
        convention, self.n_past = inputs.convention, inputs.sizes.n_past
        self.dtype, self.n_k = np.dtype(convention.dtype), inputs.sizes.scores[-1]
        n_k, scores = self.n_k, next(step for step in inputs.steps if step.name == SCORES)
        self.reads = {**scores.reads, "v": "v"}
        self.whole = arrays = inputs.qkv
        if names := [name for name in self.reads.values() if name not in arrays]:
            before = arrays | inputs.gains
            wide = {name: widen(x, convention.dtype) for name, x in before.items()}
            values = run(inputs.steps, wide, names)
            self.whole = {operand: values[name] for operand, name in self.reads.items()}
            del before, wide, values
        self.q, self.k, self.v, self.out = (four_axes(x) for x in (*self.whole.values(), out))
        self.is_stopped = False
        n_batch, n_heads, n_q, d_k = self.q.shape
        self.key_head = key_head_of(n_heads, self.k.shape[1], convention.head_order).tolist()
        self.mask = inputs.originals.get("given_mask")
        causal, is_masked = convention.restricting(self.mask is not None)
        convention = self.convention = replace(convention, causal=causal, mask_and_causal="both")
        self.mask = self.mask if is_masked else None
        self.adds = adds(self.mask, convention)
        if self.mask is not None:
            means = meaning(self.mask, convention.mask_means, convention.mask_numbers)
            self.mask = np.broadcast_to(means, (n_batch, n_heads, n_q, n_k))
        valid = inputs.originals.get("kv_len")
        first = first_position(convention.causal_align, n_q, n_k, self.n_past, valid)
        self.first = np.broadcast_to(np.asarray(first), (n_batch,)).tolist()
        self.valid = [n_k] * n_batch if valid is None else valid.tolist()
        left, right = convention.reach or (-1, -1)
        self.reach = left, 0 if causal else right
        self.factor = convention.scale_factor(d_k) * LOG2_E
        # Each head's last queries first: causality lets those attend to most keys.
        self.blocks = [
            Rows(batch, head, start, min(start + QUERIES, n_q))
            for batch in range(n_batch)
            for head in range(n_heads)
            for start in reversed(range(0, n_q, QUERIES))
        ]
        self._heads: dict[tuple[int, int], tuple[Array, Array, float, float]] = {}

    def compute(self, rows: Rows) -> None:
        """Fills in the output of these queries."""
        batch, head, start, stop = rows
        k, v, *_ = self.head(rows)
        q = widen(self.q[batch, head, start:stop], self.convention.dtype)
        with np.errstate(all="ignore"):
            is_made_for, shifted = self.limits(rows, q)
            output = self._summed(rows, q, k, v, shifted) if is_made_for else None
            if output is None:
                inputs = {"q": q, "k": k, "v": v}
                output = np.concatenate([part for (part,) in self.by_plan(rows, inputs, [OUTPUT])])
            self.out[batch, head, start:stop] = output

    def head(self, rows: Rows) -> tuple[Array, Array, float, float]:
        """K and V of these queries, the largest ‖key‖, and the largest number of the values."""
        at = rows.batch, self.key_head[rows.head]
        if at not in self._heads:
            k, v = (np.ascontiguousarray(x[at], self.dtype) for x in (self.k, self.v))
            self._heads[at] = k, v, largest_norm(k), float(np.abs(v).max())
        return self._heads[at]

    def limits(self, rows: Rows, q: Array) -> tuple[bool, bool]:
        """Whether these queries can be summed block by block, and the largest score subtracted."""
        info, (_, _, k_top, v_top) = np.finfo(self.dtype), self.head(rows)
        power = largest_norm(q) * k_top * abs(self.factor)  # ≥ every |score|, as a power of 2
        # Half of a score's digits are left for what follows its point, and no sum overflows.
        is_safe = power <= 2 ** (info.nmant / 2) and v_top * self.n_k < info.max / 2
        is_open = self.convention.causal and self.convention.causal_align == "open-last"
        is_hidden = self.convention.hidden_value(self.adds) == -np.inf
        is_plain = is_hidden and not self.convention.softcap and not is_open
        # Within half of the range of exponents nothing overflows or vanishes unshifted.
        size = power + abs(math.log2(v_top or 1)) + math.log2(self.n_k)
        return is_plain and is_safe, self.adds or size > info.maxexp / 2

    def _summed(self, rows: Rows, q: Array, k: Array, v: Array, shifted: bool) -> Array | None:
        """Σ 2^x V / Σ 2^x; None where the mask counts only in rows that it leaves a key.

        shifted  the largest score so far is subtracted, and what has been summed scaled down when
                 a larger one comes (Milakov & Gimelshein, algorithm 3)
        """
        n, dtype = len(q), q.dtype
        total, values = np.zeros((n, 1), dtype), np.zeros((n, v.shape[1]), dtype)
        shift = np.full((n, 1), -np.inf, dtype)
        room, ones = np.empty((1, n * KEYS), dtype), np.ones((KEYS, 1), dtype)
        for keys, (powers,) in self.scores(rows, q, k, room, KEYS):
            if shifted:
                top = np.maximum(shift, powers.max(axis=1, keepdims=True))
                finite = np.where(np.isneginf(top), 0, top)
                np.subtract(powers, finite, out=powers)
                before = np.exp2(shift - finite)
                total *= before
                values *= before
                shift = top
            np.exp2(powers, out=powers)
            total += powers @ ones[: powers.shape[1]]  # four times as quick as a sum
            values += powers @ v[keys]
        output = values / total
        if not total.all():
            empty = self.convention.empty_rule(self.adds)
            if empty == "unmasked":
                return None
            filler = {"zero": 0.0, "nan": np.nan, "uniform": v.mean(axis=0)}[empty]
            output[total[:, 0] == 0] = filler
        return output

    def by_plan(
        self, rows: Rows, arrays: Mapping[str, Array], stages: Sequence[str]
    ) -> Iterator[list[Array]]:
        """These stages of these queries by the steps of the plan, a few queries at a time.

        arrays  q, k and v of the head, as the scores read them, and what else the stages follow
                from, by query
        """
        d_k = arrays["q"].shape[1]
        arrays = {self.reads.get(operand, operand): x for operand, x in arrays.items()}
        inputs = {self.reads[operand]: arrays[self.reads[operand]] for operand in ("k", "v")}
        if self.mask is not None:
            inputs["given_mask"] = self.mask[rows.batch, rows.head]
        if self.valid[rows.batch] < self.n_k:
            inputs["kv_len"] = np.array([self.valid[rows.batch]])
        scores, names = (self.q.shape[2], self.n_k), {*inputs, *arrays, "rows"}
        convention = replace(
            self.convention, mask_means="keep", mask_numbers=None
        )  # as self.mask has it
        steps = plan(convention, Sizes(scores, 1, d_k, self.n_past, frozenset(names), self.adds))
        at_once, every = max(1, CELLS // self.n_k), np.arange(rows.stop - rows.start)
        for start in range(0, len(every), at_once):
            at = every[start : start + at_once]
            block = {name: x[at] for name, x in arrays.items() if name not in inputs}
            values = run(steps, {**inputs, **block, "rows": rows.start + at}, stages)
            yield [values[name] for name in stages]

    def scores(
        self, rows: Rows, q: Array, k: Array, room: Array, size: int
    ) -> Iterator[tuple[slice, Array]]:
        """The scores of these queries with the keys that any of them attends to, block by block.

        They have the scale and log2 e, which makes powers of 2 those of e. A block of `size` keys
        is [len(room), rows, keys], a part of the room, of which the first has the scores. A block
        takes the place of another where the room has no place behind it.
        """
        q, n, end = q * q.dtype.type(self.factor), len(q), 0
        (left, right), valid = self.reach, self.valid[rows.batch]
        first = rows.start + self.first[rows.batch]
        last = min(valid, first + n + right) if right >= 0 else valid
        for begin in range(max(0, first - left) if left >= 0 else 0, last, size):
            if self.is_stopped:
                return
            keys, at = slice(begin, min(begin + size, last)), first - begin
            n_keys, hidden, bias = keys.stop - begin, None, None
            if 0 <= left < at + n - 1 or 0 <= right < n_keys - at - 1:
                hidden = _out_of_reach(n, n_keys, left, right, at)
            if self.mask is not None:
                mask = self.mask[rows.batch, rows.head, rows.start : rows.stop, keys]
                if self.adds:
                    bias = mask
                else:
                    hidden = ~mask if hidden is None else hidden | ~mask
            if hidden is not None and hidden.all():
                continue
            start = end if end + n * n_keys <= room.shape[1] else 0
            end = start + n * n_keys
            block = room[:, start:end].reshape(-1, n, n_keys)
            x = np.matmul(q, k[keys].T, out=block[0])
            if bias is not None:
                x += (bias * LOG2_E).astype(x.dtype)
            if hidden is not None and hidden.any():
                np.copyto(x, -np.inf, where=hidden)
            yield keys, block


@lru_cache(maxsize=16)
def _out_of_reach(n_rows: int, n_keys: int, left: int, right: int, first: int) -> Array:
    """The cells that causality and a window hide; kept, as blocks along the diagonal are alike."""
    return ~window(n_rows, n_keys, left, right, first)


def largest_norm(x: Array) -> float:
    """The largest ‖row‖ of x [n, d], rounded up; not finite where an entry is not.

    By the inequality of Cauchy and Schwarz no score is larger than the product of two of these.
    """
    d, info = x.shape[1], np.finfo(x.dtype)
    squares = np.einsum("nd,nd->n", x, x)
    # d · ε bounds what summing the squares loses, d · tiny what squares below the normal range do.
    return math.sqrt(float(squares.max()) * (1 + d * info.eps) + d * float(info.tiny))


def in_threads(
    job: Job,
    function: Callable[[Any], Any],
    blocks: Sequence[Any],
    n_threads: int | None,
    progress: Callable[[int, int], None] | None,
) -> Iterator[Any]:
    """What a function gives of each block, in order, in threads of which each has one of BLAS.

    When interrupted, the job stops.
    """
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import threadpool_limits

    may_use = getattr(os, "sched_getaffinity", None)  # not so on macOS and Windows
    pool = ThreadPoolExecutor(n_threads or (len(may_use(0)) if may_use else os.cpu_count()))
    try:
        with threadpool_limits(1, user_api="blas"):
            for done, result in enumerate(pool.map(function, blocks), start=1):
                yield result
                if progress is not None:
                    progress(done, len(blocks))
    finally:
        job.is_stopped = True
        pool.shutdown(cancel_futures=True)
