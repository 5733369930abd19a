"""Attention's output without the score matrix: block by block, in memory for O(L · d) numbers.

for each head, for each block of queries            (in threads, BLAS held to one each)
    for each block of keys that any of them sees    (visibility.py)
        add its powers and weighted values          (block_sums.py)
    divide: the output of these queries is done
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.attention.block_sums import Keys, RowBlock
from attncli.attention.dot_product import masking_hides, title_of
from attncli.attention.heads import key_head_of, shape_text
from attncli.attention.precision import widen
from attncli.attention.shapes import as_numbers, check_mask, lengths, with_past
from attncli.attention.visibility import Rows, Visibility
from attncli.convention import Convention
from attncli.errors import ConventionError, ShapeError
from attncli.trace import Stage, Trace

Array = npt.NDArray[Any]
Progress = Callable[[int, int], None]

_QUERIES = 256  # rows in a block


class Streamed(NamedTuple):
    """The output [..., n_q, d_v] and log Σ exp of each row of scores [..., n_q].

    A row with nothing to attend to has the log-sum-exp −inf.
    """

    output: Array
    lse: Array


def stream(  # noqa: PLR0913 - those of `attend`, and how it runs
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    mask: npt.ArrayLike | None = None,
    past_k: npt.ArrayLike | None = None,
    past_v: npt.ArrayLike | None = None,
    kv_len: npt.ArrayLike | None = None,
    convention: Convention | None = None,
    n_threads: int | None = None,
    out: Array | None = None,
    progress: Progress | None = None,
) -> Streamed:
    """The output of `attend` and the row-wise log-sum-exp, without any stage in between.

    O = softmax(x) V, L = log Σ exp(x), with x the masked scores of the convention

    q, k, v, mask, past_k, past_v, kv_len   as in `attend`
    n_threads   blocks computed at a time; None = as many as there are processors
    out         [..., n_q, d_v] of the convention's number type: filled and returned
    progress    called with (blocks done, blocks in all) as they are finished

    While it runs, the BLAS library of the whole process is held to one thread.
    Raises ConventionError for a softmax over queries and for 16-bit numbers, ShapeError where the
    arrays do not fit together.
    Source: Milakov & Gimelshein, "Online normalizer calculation for softmax" (2018); Rabe &
    Staats, "Self-attention does not need O(n²) memory" (2021); Dao et al., "FlashAttention"
    (2022), algorithm 1.

    >>> streamed = stream([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]])
    >>> streamed.output.round(4), streamed.lse.round(4)
    (array([[6.6976, 3.3024]]), array([1.1079]))
    """
    how = convention or Convention()
    check_streams(how)
    given, n_past = with_past(q, k, v, past_k, past_v)
    given_mask = None if mask is None else as_numbers(mask, "the mask")
    out = _room_for(given["q"], given["v"], how, out)
    lse = np.empty(out.shape[:-1], out.dtype)
    n_threads = n_threads or _processors()
    with _in_threads(n_threads) as in_threads:
        job = _job(given, given_mask, how, n_past, kv_len, (out, lse), in_threads)
        tasks = list(_tasks(job.q.shape))
        for done, _ in enumerate(in_threads(job.compute, tasks), start=1):
            if progress is not None:
                progress(done, len(tasks))
    return Streamed(out, lse)


def streamed_trace(
    streamed: Streamed,
    q: Array,
    k: Array,
    *,
    query_labels: Sequence[str] | None = None,
    convention: Convention | None = None,
) -> Trace:
    """The streamed output as a trace of that stage alone, for what reads traces.

    >>> q = np.eye(2)
    >>> trace = streamed_trace(stream(q, q, q), q, q)
    >>> list(trace), trace["output"].axes
    (['output'], ('query', 'd_v'))
    """
    how = convention or Convention()
    axes = (*("batch", "head", "query")[-(streamed.output.ndim - 1) :], "d_v")
    labels = {"query": tuple(query_labels)} if query_labels else {}
    formula = f"O = {'D' if how.dropout else 'A'} V"
    stage = Stage("output", "O", formula, streamed.output, axes, labels)
    return Trace(title_of(q, k, how), (stage,), how)


def check_streams(how: Convention) -> None:
    """ConventionError for a convention whose output cannot be computed block by block."""
    if how.softmax_over == "queries":
        raise ConventionError(
            "a softmax over queries needs whole columns and cannot be streamed", "use attend"
        )
    if how.dtype not in {"float32", "float64"}:
        raise ConventionError(
            f"{how.dtype} rounds every stage of a whole row and cannot be streamed",
            "use float32 or float64",
        )


@dataclass(frozen=True)
class _Job:
    """One call: every array with the axes (batch, head, token, d)."""

    q: Array
    keys: list[list[Keys]]  # [batch][key head]
    key_head: list[int]  # of each query head
    visible: Visibility
    how: Convention
    out: Array
    lse: Array

    def compute(self, rows: Rows) -> None:
        """Fills in the output and the log-sum-exp of these queries."""
        _, n_heads, n_q, _ = self.q.shape
        batch, head, start, stop = rows
        block = RowBlock(
            q=widen(self.q[batch, head, start:stop], self.how.dtype),
            rows=rows,
            first_row=(batch * n_heads + head) * n_q + start,
            keys=self.keys[batch][self.key_head[head]],
            visible=self.visible,
            how=self.how,
        )
        with np.errstate(all="ignore"):
            output, lse = block.attend()
        self.out[batch, head, start:stop] = output
        self.lse[batch, head, start:stop] = lse


InThreads = Callable[[Callable[[Any], Any], list[Any]], Iterator[Any]]


def _job(
    given: dict[str, Array],
    mask: Array | None,
    how: Convention,
    n_past: int,
    kv_len: npt.ArrayLike | None,
    results: tuple[Array, Array],
    in_threads: InThreads,
) -> _Job:
    score_shape = (*given["q"].shape[:-1], given["k"].shape[-2])
    if mask is not None:
        check_mask(mask, score_shape)
    q, k, v, out = (_four_axes(x) for x in (*given.values(), results[0]))
    n_batch, n_kv_heads = k.shape[:2]
    valid = lengths(kv_len, n_batch, k.shape[2])
    shape = (*q.shape[:-1], k.shape[2])
    places = [(batch, head) for batch in range(n_batch) for head in range(n_kv_heads)]
    keys = list(in_threads(lambda at: Keys.of(k[at], v[at], how.dtype), places))
    return _Job(
        q=q,
        keys=[keys[batch * n_kv_heads :][:n_kv_heads] for batch in range(n_batch)],
        key_head=key_head_of(q.shape[1], n_kv_heads, how.head_order).tolist(),
        visible=Visibility.of(how, mask, shape, n_past, valid, hides=masking_hides(how)),
        how=how,
        out=out,
        lse=results[1].reshape(out.shape[:-1]),
    )


def _four_axes(x: Array) -> Array:
    return x.reshape((1,) * (4 - x.ndim) + x.shape)


def _room_for(q: Array, v: Array, how: Convention, out: Array | None) -> Array:
    shape = (*q.shape[:-1], v.shape[-1])
    if out is None:
        return np.empty(shape, how.dtype)
    if out.shape != shape or out.dtype != how.dtype:
        raise ShapeError(
            f"out is {shape_text(out)} of {out.dtype}",
            f"it must be {' × '.join(map(str, shape))} of {how.dtype}",
        )
    return out


def _tasks(shape: tuple[int, ...]) -> Iterator[Rows]:
    """Blocks of queries, each head's last ones first: causality lets those see most keys."""
    n_batch, n_heads, n_q, _ = shape
    for batch in range(n_batch):
        for head in range(n_heads):
            for start in reversed(range(0, n_q, _QUERIES)):
                yield Rows(batch, head, start, min(start + _QUERIES, n_q))


@contextmanager
def _in_threads(n_threads: int) -> Iterator[InThreads]:
    """A `map` over threads while BLAS uses one in each; when interrupted, no new work begins."""
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import threadpool_limits

    pool = ThreadPoolExecutor(n_threads)
    try:
        with threadpool_limits(1, user_api="blas"):
            yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)


def _processors() -> int:
    """Processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1
