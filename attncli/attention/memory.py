"""The bytes that an attention takes at its largest, counted from the shapes of what it is given.

    inputs ── copies in the number type
    plan ──── each step: what it reads, makes on the way and gives; what is kept, what is dropped

`bytes_of` follows the steps as `run` does. tests/benchmarks/memory.py compares what is said with
what is measured.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Like
from attncli.attention.inputs import CACHE, Inputs
from attncli.attention.run import Step, needed
from attncli.convention import Convention
from attncli.formula import memory
from attncli.formula.compute import Compiled
from attncli.formula.kernels import NUMBERS
from attncli.stages import GIVEN_GRADIENT, OUTPUT, QKV, SCORES, gradient_of


class Taken(NamedTuple):
    """Bytes of stages, the most that are there at once until they are, and all of their shapes."""

    value: int
    most: int
    likes: Mapping[str, Like]


def bytes_of(
    steps: Sequence[Step], inputs: Mapping[str, Like], names: Collection[str] | None = None
) -> Taken:
    """What `run` takes for these stages, beside the inputs; of all shown, where none are named.

    >>> text = "S[i,j] = exp(sum[d](q[i,d] * k[j,d]))"
    >>> steps = [Step("scores", text, {"q": "q", "k": "k"})]
    >>> bytes_of(steps, {"q": Like((3, 7)), "k": Like((5, 7))})[:2]
    (120, 240)
    """
    likes, sizes, most = dict(inputs), dict[str, int](), 0
    for step, unread in needed(steps, inputs, names):
        likes[step.name], of_stage, of_step = step_bytes(step, likes)
        most = max(most, sum(sizes.values()) + of_step)
        sizes[step.name] = of_stage
        for name in unread:
            sizes.pop(name, None)
    return Taken(sum(sizes.values()), most, likes)


def step_bytes(step: Step, likes: Mapping[str, Like]) -> tuple[Like, int, int]:
    """A stage, the bytes that it keeps, and the most that its step takes, these included."""
    reads = {name: likes[stage] for name, stage in step.reads.items()}
    is_float64 = step.dtype in (None, "float64")
    width, copies = np.dtype(np.float64 if is_float64 else np.float32).itemsize, 0
    if not is_float64:  # what is read is widened to float32, in which it is computed
        floats = [x for x in reads.values() if x.dtype.kind == "f"]
        copies = sum(x.size * width for x in floats if x.dtype.itemsize != width)
    stage = step.alike(**reads)
    if isinstance(stage, Compiled):
        value, most = memory.bytes_of(stage, width)
        stage = Like(stage.shape, np.dtype(NUMBERS[step.dtype or "float64"]))
    else:
        most = stage.nbytes if stage.takes is None else stage.takes
        value = min(most, stage.nbytes)
    if step.dtype in ("float16", "bfloat16"):
        wide, is_nan = stage.size * width, stage.size * (step.dtype == "bfloat16")
        value, most = stage.nbytes, max(most, wide + stage.nbytes + is_nan)
    return stage, value, copies + most


# ---- one attention

EXACT = ("given_mask", "kv_len", "rows")
"""What is read as it is, in no number type."""


def size_of(arrays: Iterable[Any], width: int) -> int:
    """Bytes of a copy of these arrays in a width, and of mapped files once they are read."""
    there = [x for x in arrays if isinstance(x, np.ndarray)]
    mapped = {id(x): x.nbytes for x in there if _is_mapped(x)}
    return sum(x.size for x in there) * width + sum(mapped.values())


def _is_mapped(x: Any) -> bool:
    while x is not None and not isinstance(x, mmap.mmap):
        x = getattr(x, "base", None)
    return x is not None


def width_of(convention: Convention) -> int:
    """Bytes of a number of a stage."""
    return np.dtype(NUMBERS[convention.dtype]).itemsize


def likes_of(inputs: Inputs) -> dict[str, Like]:
    """What the plan reads: the shapes and types of `Inputs.arrays`."""
    number, likes = np.dtype(NUMBERS[inputs.convention.dtype]), dict[str, Like]()
    for name, x in inputs.originals.items():
        if name in inputs.sizes.inputs:
            likes[name] = Like(x.shape, x.dtype if name in EXACT else number)
    for name in likes.keys() & {"k", "v"}:  # a cache is put before them
        *lead, _, d = likes[name].shape
        likes[name] = Like((*lead, inputs.sizes.scores[-1], d), number)
    if "rows" in likes and "q" in likes:
        *lead, _, d = likes["q"].shape
        likes["q"] = Like((*lead, *likes["rows"].shape, d), number)
    return likes


def of_attention(inputs: Inputs, names: Collection[str] | None = None) -> int:
    """Bytes of these stages, of all that are shown where none are named, and of the inputs."""
    return of_inputs(inputs) + bytes_of(inputs.steps, likes_of(inputs), names).most


def of_inputs(inputs: Inputs) -> int:
    """Bytes of the inputs in the number type; a mask is read as it is."""
    copied = (x for name, x in inputs.originals.items() if name not in EXACT)
    return size_of(copied, width_of(inputs.convention))


def of_parts(inputs: Inputs, parts_of: Any, n_parts: int) -> int:
    """Bytes of the stages of so many tiles or splits of the keys, and of the output in one piece.

    parts_of  the steps for keys that are cut at these places; of a third part there is as much
              more as of a second
    """
    inputs = inputs.without(GIVEN_GRADIENT)  # which is refused once the parts are computed
    likes, n_k = likes_of(inputs), inputs.sizes.scores[-1]
    bounds = [0, n_k], [0, n_k // 2, n_k]
    plans = (parts_of(inputs.convention, inputs.sizes, places) for places in bounds)
    first, two = (bytes_of(steps, likes).value for steps in plans)
    of_stages = first + (n_parts - 1) * (two - first) + n_parts * _PART
    return of_inputs(inputs) + of_stages + bytes_of(inputs.steps, likes, [OUTPUT]).most


_PART = 80_000  # bytes of the steps and stages of a tile, however narrow, and of writing them


# ---- one attention in blocks, of which no stage is kept


def of_streaming(inputs: Inputs) -> int:
    """Bytes of `stream`: q, k and v, the output, and blocks of scores in each thread."""
    from attncli.attention.streaming import CELLS

    width = width_of(inputs.convention)
    of_output = math.prod(inputs.output_shape) * width
    return _of_qkv(inputs) + of_output + (os.cpu_count() or 1) * CELLS * width


def of_stream_gradients(inputs: Inputs) -> int:
    """Bytes of `stream_gradients`: q, k and v and their gradients, and in each thread those of a
    key head, and the weights of some queries with theirs."""
    from attncli.attention.stream_gradients import ROWS
    from attncli.attention.streaming import CELLS

    width, likes, n_k = width_of(inputs.convention), operands_of(inputs), inputs.sizes.scores[-1]
    numbers = sum(x.size for x in likes.values())
    of_head = sum(x.shape[-2] * x.shape[-1] for x in likes.values())
    n_rows = max(1, min(ROWS, CELLS // n_k))
    of_thread = (2 * of_head + 3 * n_rows * n_k) * width
    gradient = size_of([inputs.originals[GIVEN_GRADIENT]], width)
    if inputs.is_of_x:  # and the gradients of it and its weights
        gradient += bytes_of(inputs.steps, likes_of(inputs), [gradient_of(OUTPUT)]).most
        gradient += sum(x.size for x in inputs.originals.values()) * width
    if inputs.convention.qk_norm:  # from the gradients of what is normed
        numbers += likes["q"].size + likes["k"].size
    return _of_qkv(inputs) + gradient + numbers * width + (os.cpu_count() or 1) * of_thread


def operands_of(inputs: Inputs) -> dict[str, Like]:
    """The shapes of q, k and v, with the cache before k and v."""
    sizes, number = inputs.sizes, np.dtype(NUMBERS[inputs.convention.dtype])
    lead, (n_q, n_k) = sizes.scores[:-2], sizes.scores[-2:]
    shared = (*lead[:-1], sizes.n_kv_heads) if lead else ()
    d_v = inputs.output_shape[-1]
    shapes = {"q": (*lead, n_q, sizes.d_k), "k": (*shared, n_k, sizes.d_k)}
    return {n: Like(x, number) for n, x in {**shapes, "v": (*shared, n_k, d_v)}.items()}


def _of_qkv(inputs: Inputs) -> int:
    """Bytes of q, k and v as the scores read them, and of what they are made of."""
    width, likes = width_of(inputs.convention), operands_of(inputs)
    if inputs.is_of_x:
        need = of_inputs(inputs) + bytes_of(inputs.steps, likes_of(inputs), QKV).most
    else:
        arrays = {n: x for n, x in inputs.originals.items() if n in (*QKV, *CACHE.values())}
        copied = [x for n, x in arrays.items() if n != "q" and x.dtype != inputs.convention.dtype]
        need = size_of(arrays.values(), 0) + sum(x.size for x in copied) * width
        if len(arrays) > len(QKV):  # put together first
            need += sum(x.nbytes for n, x in arrays.items() if n != "q")
    if inputs.convention.qk_norm:
        reads = next(step.reads for step in inputs.steps if step.name == SCORES)
        need += (
            sum(x.nbytes for x in likes.values())
            + bytes_of(inputs.steps, likes, reads.values()).most
        )
    return need
