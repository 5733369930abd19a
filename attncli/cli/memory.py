"""What a call will take at its largest, known before anything large is made.

    what the process has taken so far     the interpreter, the libraries, the inputs as read
  + what will be kept                     stages, their inputs in the number type
  + what is made on the way               by the step, or the page, that makes the most

Counted from the shapes alone. tests/benchmarks/memory.py compares it with what is measured.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from attncli import budget
from attncli.arrays import Array
from attncli.attention.plan import Sizes, plan
from attncli.cli.options import DisplayFlags
from attncli.cli.parsing import is_of, slice_of
from attncli.convention import Convention
from attncli.files.roles import D_OUTPUT
from attncli.formats import EXACT, FIGURE, PAGE
from attncli.page.matrix import LARGE
from attncli.page.page import MOST
from attncli.page.select import check_written
from attncli.stages import DROPPED, GIVEN_GRADIENT, MAPS, gradient_of, spec_of

FLOAT = 8  # bytes of a float64
WIDTHS = {"float64": 8, "float32": 4, "bfloat16": 4, "float16": 2}
"""Bytes of a number of each type; a bfloat16 is held as a float32."""
WIDENED = {"float64": 0, "float32": 0, "bfloat16": 4, "float16": 8}
"""Bytes for each number of the largest stage while it is computed and not yet rounded: its float32,
and that of the stage that it reads where that is not one already."""
LABEL = 100
"""Bytes of a name that is made for a row: a text of 60, and its place in four tuples."""


def fits(more: int) -> bool:
    """Whether so many bytes more are allowed, and free."""
    held = budget.taken()
    return budget.fits(held + more, resident=held)


def check_fits(more: int, what: str, hint: str = "") -> None:
    """SizeError where so many bytes more are not: `what` is such as "the stages need"."""
    held = budget.taken()
    budget.check_bytes(held + more, what, hint, resident=held)


def size_of(arrays: Iterable[Any], width: int) -> int:
    """Bytes of a copy of these arrays in a width, and of mapped files once they are read."""
    there = [x for x in arrays if isinstance(x, np.ndarray)]
    mapped = {id(x): x.nbytes for x in there if _is_mapped(x)}
    return sum(x.size for x in there) * width + sum(mapped.values())


def _is_mapped(x: Any) -> bool:
    while x is not None and not isinstance(x, mmap.mmap):
        x = getattr(x, "base", None)
    return x is not None


# ---- attention


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
    d_output = arguments.get(D_OUTPUT)
    if d_output is not None:  # and the gradients of q, k and v
        need += size_of([q, d_output], width) + size_of([k, v, *past], width * copies)
    restricts = {name: arguments.get(name) for name in ("mask", "kv_len", D_OUTPUT)}
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
    need = size_of([*given, arguments[D_OUTPUT]], width) + sum(x.size for x in given) * width
    n_threads, of_head = os.cpu_count() or 1, sum(x.shape[-2] * x.shape[-1] for x in given)
    n_rows = max(1, min(ROWS, CELLS // scores[-1]))
    need += 3 * size_of(given, width) * convention.qk_norm  # before and after, and both gradients
    return int(need + n_threads * (2 * of_head + 3 * n_rows * scores[-1]) * width)


class Sentences(NamedTuple):
    """How many tokens there are."""

    n_keys: int  # of the sentence, with its padding
    n_target: int  # of the target; 0 where there is none
    n_words: int  # whose vectors are compared at the end: no padding
    mask: str | None  # what else restricts the attention, or None


def of_explanation(
    convention: Convention,
    n_heads: int,
    d: Mapping[str, int],
    sizes: Sentences,
    block: str,
    *,
    n_layers: int,
    n_kept: int,
) -> int:
    """Bytes of the stages from the vectors to what they mean, without the weights.

    d       the width behind each axis of the weights
    n_kept  of how many layers of a stack the stages are kept
    """
    width = WIDTHS[convention.dtype]
    n_k, n = sizes.n_keys, sizes.n_target or sizes.n_keys
    residual = 2 * d["d_model"]  # and its norm
    of_head = d["h·d_k"] + d["h_kv·d_k"] + d["h_kv·d_v"] + 2 * d["h·d_v"]  # q, k, v, output, concat
    is_padded = sizes.n_target > 0 or n_k > sizes.n_words
    masks = ["mask"] if is_padded or sizes.mask else []

    def attention(n_q: int, n_k: int, *, causal: bool = convention.causal) -> int:
        own = replace(convention, causal=causal)
        is_whole = causal or convention.window is not None or sizes.mask
        maps = of_maps(own, (n_heads, n_q, n_k), masks, n_q * n_k if is_whole else n_k)
        return maps + n_q * (of_head + d["d_model"] + residual) * width

    if block == "attention":
        layers = attention(n, n_k)
    else:
        feed_forward = (2 * d["d_ff"] + d["d_model"] + residual) * width
        layer = attention(n_k, n_k) + n_k * feed_forward
        if "decoder" in block:
            layer += attention(n, n, causal=True) + attention(n, n_k) + n * feed_forward
        layers = layer * n_kept + n_layers * _LAYER
        if n_layers > n_kept:  # of the others a stage and the one that it reads
            widest = max(n_heads * n_k, 2 * d["d_ff"], d["d_model"])
            layers += 2 * max(n, n_k) * widest * width
    entry = 5 * (n_k + sizes.n_target) * d["d_model"] * FLOAT  # embeddings to input, and its copy
    meaning = 6 * sizes.n_words**2 * FLOAT  # cosines before and after; four tables to compare them
    return layers + entry + meaning


_LAYER = 10**5  # bytes of the steps and stages of a layer, however narrow: about 30, 3 kB each


# ---- rotary positions, check


def of_rotary(shape: tuple[int, ...], *, turned: bool) -> int:
    """Bytes of the angles, their cos and sin; of x turned by them also x and two halves of it."""
    *_, n, dim = shape
    return (3 * n * (dim // 2) + 3 * math.prod(shape) * turned) * FLOAT + n * LABEL


def of_check(
    arguments: Mapping[str, Any],
    scores: tuple[int, ...],
    observed: Collection[Array],
    *,
    searches: bool = False,
    whole: bool = False,
) -> int:
    """Bytes of comparing the observed stages with those computed, or of searching for a bug.

    A stage as observed, as expected and as rounded, for its noise, and in the search as a bug has
    it; and either a difference of two or, while a piece is computed, five stages of it (with the
    errors put into each), in the search four, and masks. whole: gradients, for which all queries
    are computed at once.
    """
    from attncli.commands.check.search import most_at_once
    from attncli.tolerance.run import CELLS

    q, k, v = (arguments[name] for name in "qkv")
    inputs = size_of([q, k, v, arguments.get("past_k"), arguments.get("past_v")], FLOAT)
    piece, n_mask = min(math.prod(scores), CELLS), scores[-2] * scores[-1]
    if whole:  # a key head with the query heads that share it, and twice as many stages
        n_heads, n_kv_heads = (x.shape[-3] if x.ndim > 2 else 1 for x in (q, k))
        piece = 2 * max(piece, n_mask * (n_heads // n_kv_heads))
    if searches and n_mask <= most_at_once():  # of a softmax over queries
        piece = max(piece, n_mask)
    of_piece = 4 * piece + 8 * min(n_mask, piece) if searches else 5 * piece
    of_stage = sum(x.size for x in observed)
    stages = (3 + searches) * of_stage + max(of_stage, of_piece)
    return inputs + size_of(observed, 0) + stages * FLOAT


# ---- what is shown


_TEXT = 400
"""Bytes of a number in a table that is shown whole: its text before and after it is aligned, each
with its parts, and its cell."""
_MARKS = 4
"""Bytes of a number of a table with masked cells: which are, in the matrix and in sentences."""
_SHADE = 34
"""Bytes of a number of a figure while its shade is found."""
_PIXEL = 65  # bytes of one of a picture of many numbers
_SIDE = 1500  # pixels of the side of a picture; several share it
_DRAWN = 55 * 10**6  # bytes of Matplotlib and its fonts
_PAGE = 26 * 10**6  # bytes of a page of HTML: its tables, formulas and script
_ON_PAGE = 300
"""Bytes of a number of a page that holds all: its eight in base64, its name, and copies of both."""
_NAMED, _LABELLED = 200, 400
"""Bytes of the name of a row or column that is shown, in a table, and beside a picture."""
_MAPPED, _MAPS = 5, 4_000_000  # bytes of a weight while its picture is made, of so many at most
_BUFFER = 1 << 24  # bytes of the pieces in which NumPy writes an array into an archive


def check_text(show: DisplayFlags, shapes: Iterable[tuple[str, tuple[int, ...]]]) -> None:
    """SizeError where a form that writes every number as text would have more than are allowed.

    shapes  stages by dotted name, all or the largest, with their shapes. Only those count that are
            named, and of them the heads, rows and columns that are chosen
    """
    form, count = show.form, 0
    if form.holds != EXACT or form.binary:
        return
    for name, shape in shapes:
        is_named = is_of(name, show.stage or ())
        is_input = spec_of(name).role == "input"  # which json has beside what follows from it
        if is_named or not (show.stage or (is_input and form.name != "json")):
            sizes = [1, 1, *shape]
            for at, chosen in ((-4, show.batch), (-3, show.head)):
                if chosen is not None and len(shape) >= -at:
                    sizes[at] = 1
            if len(shape) > 1:
                sizes[-2:] = _asked(show, shape)
            count += math.prod(sizes)
    check_written(count)


def check_written_out(show: DisplayFlags, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """SizeError where these stages, by dotted name, cannot be held and written.

    What is on the way to a stage is not counted here.
    """
    check_text(show, shapes.items())
    kept = sum(map(math.prod, shapes.values())) * FLOAT
    written = [
        (of_output(show, shape if len(shape) > 1 else (1, *(shape or (1,)))), name)
        for name, shape in shapes.items()
        if not show.stage or is_of(name, show.stage)
    ]
    more, name = max(written, default=(0, ""))
    numbers = " × ".join(map(str, shapes.get(name, ())))
    what = f"{name} of {numbers or 1} numbers as {show.form.name} needs"
    hint = "leave out --full" if show.full else "name another --stage, or use --format npz"
    check_fits(kept + more, what, hint)


def maps_of(
    convention: Convention, scores: tuple[int, ...], given: Iterable[str]
) -> list[tuple[str, tuple[int, ...]]]:
    """The stages with a number for every query and key, as `check_text` reads them."""
    return [(name, scores) for name in _maps(convention, scores, given)]


def _maps(convention: Convention, scores: tuple[int, ...], given: Iterable[str]) -> frozenset[str]:
    """The names of those stages; of what is given only what restricts, and d_output, counts."""
    own = {"mask": "given_mask", D_OUTPUT: GIVEN_GRADIENT}
    inputs = {"q", "k", "v", *(own.get(name, name) for name in given)}
    names = {step.name for step in plan(convention, Sizes(scores, 1, 1, inputs=frozenset(inputs)))}
    return frozenset(names & {"mask", *MAPS, *map(gradient_of, MAPS)})


def _asked(show: DisplayFlags, shape: tuple[int, ...]) -> list[int]:
    """How many rows and columns are asked for."""
    asked = []
    for size, text in zip(shape[-2:], (show.rows, show.cols), strict=True):
        start, stop, _ = slice(*(slice_of(text, "") if text else (None,))).indices(size)
        asked.append(max(stop - start, 0))
    return asked


def of_output(
    show: DisplayFlags, shape: tuple[int, ...], *, masked: bool = False, weights: bool = False
) -> int:
    """Bytes of writing stages of which the largest has this shape; weights: of an attention."""
    form = show.form
    if form.name == "npz":
        return 2 * min(math.prod(shape) * FLOAT, _BUFFER)  # a piece, and its bytes
    if form.name == "html" and show.full:
        return _PAGE + _ON_PAGE * math.prod(shape)
    if form.name == "html":
        return _PAGE + _MAPPED * min(math.prod(shape), _MAPS) * weights
    if form.holds not in {PAGE, FIGURE}:
        return 0  # written row by row
    asked = _asked(show, shape)
    if form.holds == FIGURE:
        from attncli.formats.pictured import ACROSS, MANY

        n_panels = math.prod(shape[:-2]) if show.full else min(math.prod(shape[:-2]), MOST)
        one = (_SIDE // min(max(n_panels, 1), ACROSS)) ** 2
        pixels = (n_panels + 1) * one if math.prod(asked) * n_panels > MANY else 0
        named = sum(asked) * _LABELLED
        return math.prod(asked) * _SHADE + named + _DRAWN + pixels * _PIXEL
    n_rows, n_cols = asked if show.full else (min(asked[0], LARGE), min(asked[1], show.width or 0))
    summed = min(asked[0], LARGE) * shape[-1] * FLOAT  # a copy of the rows shown, for their sums
    return (
        n_rows * n_cols * _TEXT
        + (n_rows + n_cols) * _NAMED
        + summed
        + math.prod(shape[-2:]) * _MARKS * masked
    )
