"""The bytes that an attention takes at its largest, counted from shapes alone.

  what is kept              stages, their inputs in the number type
+ what is made on the way   by the step that makes the most

tests/benchmarks/memory.py compares it with what is measured.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from attncli.attention.plan import Sizes, plan
from attncli.budget import FLOAT
from attncli.convention import Convention
from attncli.stages import DROPPED, GIVEN_GRADIENT, MAPS, gradient_of, spec_of

WIDTHS = {"float64": 8, "float32": 4, "bfloat16": 4, "float16": 2}
"""Bytes of a number of each type; a bfloat16 is held as a float32."""


WIDENED = {"float64": 0, "float32": 0, "bfloat16": 4, "float16": 8}
"""Bytes for each number of the largest stage while it is computed and not yet rounded: its float32,
and that of the stage that it reads where that is not one already."""


def size_of(arrays: Iterable[Any], width: int) -> int:
    """Bytes of a copy of these arrays in a width, and of mapped files once they are read."""
    there = [x for x in arrays if isinstance(x, np.ndarray)]
    mapped = {id(x): x.nbytes for x in there if _is_mapped(x)}
    return sum(x.size for x in there) * width + sum(mapped.values())


def _is_mapped(x: Any) -> bool:
    while x is not None and not isinstance(x, mmap.mmap):
        x = getattr(x, "base", None)
    return x is not None


def of_maps(
    convention: Convention, scores: tuple[int, ...], given: Iterable[str], n_mask: int
) -> int:
    """Bytes of the stages with a number for every query and key, and of making the last of them.

    scores  their shape
    given   the names of what restricts it, mask and kv_len, and d_output, for gradients
    n_mask  numbers of the mask, where there is one
    """
    names = _maps(convention, scores, given)
    n_scores, width = math.prod(scores), WIDTHS[convention.dtype]
    need = n_scores * (width * len(names - {"mask"}) + WIDENED[convention.dtype])
    if any(spec_of(name).heading for name in names):
        need += n_scores * FLOAT  # weights times their gradients, for δ
    if DROPPED in names:
        need += n_scores  # which weights are kept, a byte each
    if "mask" in names:  # a float64 and a byte each, and a byte a score: which weights are NaN
        need += n_mask * (FLOAT + 1) + n_scores
    return need


def of_attention(arguments: Mapping[str, Any], scores: tuple[int, ...]) -> int:
    """Bytes of the stages of `attend` with these arguments, for scores of all queries or fewer."""
    convention: Convention = arguments["convention"]
    q, k, v = (arguments[name] for name in "qkv")
    width, copies, n_rows = WIDTHS[convention.dtype], 1, scores[-2]
    n_heads, n_kv_heads = (x.shape[-3] if x.ndim > 2 else 1 for x in (q, k))
    if n_heads != n_kv_heads:  # key heads, and one of them for each query head
        copies += n_heads // n_kv_heads
    past = [arguments.get("past_k"), arguments.get("past_v")]
    need = size_of([q], width) + size_of([k, v, *past], width * copies)
    need += math.prod(scores[:-1]) * v.shape[-1] * width  # the output
    d_output = arguments.get("d_output")
    if d_output is not None:  # and the gradients of q, k and v
        need += size_of([q, d_output], width) + size_of([k, v, *past], width * copies)
    restricts = {name: arguments.get(name) for name in ("mask", "kv_len", "d_output")}
    mask, lengths, _ = restricts.values()
    n_mask, is_made = 0, convention.causal or convention.window is not None or lengths is not None
    if is_made:
        n_mask = n_rows * scores[-1] * (1 if lengths is None else scores[0])
    if mask is not None:
        n_mask = max(n_mask, mask.size * n_rows // q.shape[-2])
        if not is_made and mask.dtype != np.bool_:
            need -= n_mask * FLOAT  # it is added as it is
    masks = [name for name, x in restricts.items() if x is not None]
    return int(need) + of_maps(convention, scores, masks, n_mask)


def of_parts(arguments: Mapping[str, Any], scores: tuple[int, ...], n_parts: int) -> int:
    """Bytes of the stages of so many tiles or splits of the keys: those of the whole and more."""
    convention, v = arguments["convention"], arguments["v"]
    # the powers of all scores; and of each part two outputs, and three numbers for each query
    own = math.prod(scores) + n_parts * math.prod(scores[:-1]) * (2 * v.shape[-1] + 3)
    return of_attention(arguments, scores) + int(own * WIDTHS[convention.dtype]) + n_parts * _PART


_PART = 80_000  # bytes of the steps and stages of a tile, however narrow, and of writing them


def of_streaming(arguments: Mapping[str, Any], scores: tuple[int, ...]) -> int:
    """Bytes of `stream`: the output, K and V in the number type, and blocks in each thread."""
    from attncli.attention.streaming import CELLS

    convention: Convention = arguments["convention"]
    q, k, v = (arguments[name] for name in "qkv")
    width = WIDTHS[convention.dtype]
    copied = 0 if k.dtype == v.dtype == convention.dtype else width
    past = [x for x in (arguments.get("past_k"), arguments.get("past_v")) if x is not None]
    need = size_of([q], 0) + size_of([k, v, *past], copied)
    need += sum(x.nbytes for x in (k, v, *past)) if past else 0  # put together first
    need += math.prod(scores[:-1]) * v.shape[-1] * width
    if convention.qk_norm:  # queries and keys before and after
        need += 2 * size_of([q, k, arguments.get("past_k")], width)
    return int(need) + (os.cpu_count() or 1) * CELLS * width


def of_stream_gradients(arguments: Mapping[str, Any], scores: tuple[int, ...]) -> int:
    """Bytes of `stream_gradients`: d_q, d_k and d_v, q, k and v in the number type, and in each
    thread a key head's gradients, and the weights of some queries with theirs."""
    from attncli.attention.stream_gradients import ROWS
    from attncli.attention.streaming import CELLS

    convention: Convention = arguments["convention"]
    width, names = WIDTHS[convention.dtype], ("q", "k", "v", "past_k", "past_v")
    given = [arguments[name] for name in names if arguments.get(name) is not None]
    need = size_of([*given, arguments["d_output"]], width) + sum(x.size for x in given) * width
    n_threads, of_head = os.cpu_count() or 1, sum(x.shape[-2] * x.shape[-1] for x in given)
    n_rows = max(1, min(ROWS, CELLS // scores[-1]))
    need += 3 * size_of(given, width) * convention.qk_norm  # before and after, and both gradients
    return int(need + n_threads * (2 * of_head + 3 * n_rows * scores[-1]) * width)


def maps_of(
    convention: Convention, scores: tuple[int, ...], given: Iterable[str]
) -> list[tuple[str, tuple[int, ...]]]:
    """The stages with a number for every query and key, as `check_text` reads them."""
    return [(name, scores) for name in _maps(convention, scores, given)]


def _maps(convention: Convention, scores: tuple[int, ...], given: Iterable[str]) -> frozenset[str]:
    """The names of those stages; of what is given only what restricts, and d_output, counts."""
    own = {"mask": "given_mask", "d_output": GIVEN_GRADIENT}
    inputs = {"q", "k", "v", *(own.get(name, name) for name in given)}
    names = {step.name for step in plan(convention, Sizes(scores, 1, 1, inputs=frozenset(inputs)))}
    return frozenset(names & {"mask", *MAPS, *map(gradient_of, MAPS)})
