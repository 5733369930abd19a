"""Masks: who may attend to whom.

A mask is additive, M [..., n_q, n_k]: 0 where a query may attend to a key, −inf where it may not,
any other number is added to the score. `window` gives a boolean array (True = may attend),
`total_mask` one additive mask of everything that restricts, by the formula of `mask_formula`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array, BoolArray, Like
from attncli.convention import (
    ADDED,
    MASK,
    NUMBERS,
    REPLACED,
    SHARED,
    CausalAlign,
    Convention,
    MaskMeans,
    MaskNumbers,
)
from attncli.errors import ConventionError
from attncli.formula.compute import Compiled, compiled, compute
from attncli.formula.expression import line_of
from attncli.formula.parser import parse

Offset = int | npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp] | None


def window(
    n_q: int, n_k: int, left: int, right: int, offset: Offset = 0, rows: Rows = None
) -> BoolArray:
    """Query i may attend to key j where −left ≤ j − (i + offset) ≤ right; −1 means no limit.

    offset  keys before the first query's own; of one per batch item, [batch, 1, n_q, n_k]
    rows    the queries that are wanted, all where left out
    Source: "Attention Is All You Need", section 3.2.3; Beltagy et al. (2020), section 3.1.

    >>> window(3, 3, 1, 0).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 1, 1]])
    """
    queries = np.arange(n_q) if rows is None else rows
    start = np.reshape(offset, (-1, 1, 1, 1)) if np.ndim(offset) else np.asarray(offset)
    distance = np.arange(n_k) - (queries[:, None] + start)
    allowed = np.ones(distance.shape, dtype=bool)
    if left >= 0:
        allowed &= distance >= -left
    if right >= 0:
        allowed &= distance <= right
    return allowed


def total_mask(
    given_mask: Array | None = None,
    kv_len: npt.NDArray[np.int64] | None = None,
    rows: Rows = None,
    **restrictions: Any,
) -> Array:
    """One additive mask of everything that restricts: causality, window, key lengths, a given mask.

    -> [n_q, n_k] or [rows, n_k], with a batch and a head axis before where they differ.

    given_mask  broadcasts from the right to the scores, of all queries or of the rows
    kv_len      valid keys of each batch item
    rows        the queries wanted; all where left out
    restrictions  as in `mask_formula`
    """
    n_q, n_k = restrictions["n_q"], restrictions["n_k"]
    arrays: dict[str, Any] = {"kv_len": kv_len, "rows": rows}
    if given_mask is not None:
        mask = given_mask[..., rows, :] if picks(given_mask, rows, n_q) else given_mask
        given_mask = mask if mask.dtype == np.bool_ else mask.astype(np.float64, copy=False)
    text = mask_formula(given_mask, kv_len, rows, **restrictions)
    sizes = {"i": n_q if rows is None else len(rows), "j": n_k}
    total = compute(text, {**arrays, "given_mask": given_mask}, sizes)
    n_given = 0 if given_mask is None else given_mask.ndim
    return total.reshape((1,) * (n_given - total.ndim) + total.shape)  # it may be one for all


def compiled_mask(
    given_mask: Like | None = None,
    kv_len: Like | None = None,
    rows: Like | None = None,
    **restrictions: Any,
) -> Compiled:
    """The formula of that mask, for arrays of these shapes and types."""
    n_q, n_k = restrictions["n_q"], restrictions["n_k"]
    if given_mask is not None and rows is not None and picks(given_mask, rows, n_q):
        *lead, _, width = given_mask.shape
        given_mask = given_mask._replace(shape=(*lead, *rows.shape, width))
    text = mask_formula(given_mask, kv_len, rows, **restrictions)
    arrays = {"given_mask": given_mask, "kv_len": kv_len, "rows": rows}
    shapes = tuple([(name, x.shape) for name, x in arrays.items() if x is not None])
    return compiled(text, shapes, (("i", n_q if rows is None else rows.size), ("j", n_k)))


def picks(given_mask: Array | Like, rows: Array | Like | None, n_q: int) -> bool:
    """Whether only these rows of a given mask count: it has one for each query."""
    return rows is not None and given_mask.ndim > 1 and given_mask.shape[-2] == n_q > 1


def mask_formula(  # noqa: PLR0913 - everything that can restrict
    given_mask: Array | Like | None = None,
    kv_len: npt.NDArray[np.int64] | Like | None = None,
    rows: Rows | Like = None,
    *,
    n_q: int,
    n_k: int,
    n_past: int,
    n_axes: int,
    causal: bool = False,
    align: CausalAlign = "top-left",
    window_size: tuple[int, int] | None = None,
    means: MaskMeans = "keep",
    numbers: MaskNumbers | None = None,
    unmasks: bool = False,
    shift: int = 0,
) -> str:
    """The formula of the mask of everything that restricts, for arrays of these shapes and types.

    n_past      keys before the first query's own position, where causality is aligned top-left
    n_axes      how many axes the scores have
    unmasks     a query that may attend to no key is restricted by causality and window alone
    shift       moves the causal diagonal; 0 but for what `check` tries

    >>> mask_formula(n_q=3, n_k=3, n_past=0, n_axes=4, causal=True, window_size=(2, -1))
    'M[i,j] = 0 if j <= i and j - i >= -2 else -inf'
    """
    length = "" if kv_len is None else "kv_len[b]" if n_axes > 3 else "kv_len[0]"
    query, size = ("i", "size[i]") if rows is None else ("rows[i]", f"{n_q}")
    first = f"({length or 'size[j]'} - {size})" if align == "bottom-right" else n_past
    place = f"{query} + {first}" if first else query
    around = [f"j <= {place}{f' + {shift}' * bool(shift)}"] if causal else []
    if causal and align == "open-last" and n_q < n_k:
        around = [f"({around[0]} or {query} == {size} - 1)"]
    left, right = window_size or (-1, -1)
    around += [f"j - ({place}) >= -{left}"] * (left >= 0)
    around += [f"j - ({place}) <= {right}"] * (right >= 0)
    may, number, letters = around + [f"j < {length}"] * bool(length), "0", ["j"] * bool(length)
    if around or given_mask is None or unmasks:
        letters += ["i", "j"]
    letters, index = letters + ["b"] * ("b" in length), []
    if given_mask is not None:
        whole = {"i": n_q if rows is None else rows.size, "j": n_k}
        axes = zip("bhij"[4 - given_mask.ndim :], given_mask.shape, strict=True)
        index = [x if n > 1 or whole.get(x) == n else "_" for x, n in axes]
        number = _number(f"given_mask[{','.join(index)}]", given_mask, means, numbers)
        letters += index
    text = f"{number} if {' and '.join(may)} else -inf" if may else number
    if unmasks:
        other = f"(0 if {' and '.join(around)} else -inf)" if around else "0"
        is_empty = f"({text}) == -inf"
        is_empty = f"all[j]({is_empty})" if may or "j" in index else is_empty
        text = f"{other} if {is_empty} else {text}"
    last = "bhij"[min(("bhij".index(x) for x in letters if x != "_"), default=4) :]
    return _printed(f"M[{','.join(x if x in letters else '_' for x in last)}] = {text}")


@lru_cache(1024)
def _printed(line: str) -> str:
    """A formula as the language prints it."""
    return line_of(parse(line))


def _number(cell: str, mask: Array | Like, means: MaskMeans, numbers: MaskNumbers | None) -> str:
    """What a cell of a mask adds to the score: see `meaning`."""
    if mask.dtype != np.bool_:
        if numbers != "truth":
            return cell
        cell = f"{cell} != 0"
    cell = f"not ({cell})" if means == "ignore" else cell
    return f"(1 if {cell} else 0)" if means == "add" else f"(0 if {cell} else -inf)"


def meaning(mask: Array, means: MaskMeans, numbers: MaskNumbers | None = None) -> Array:
    """A mask as true = may attend, or as numbers to add.

    means    what true says: "keep", it may attend; "ignore", it may not; "add", 1 is added
    numbers  "truth": what is not 0, so −inf too, is true; else numbers are added
    """
    is_truth = mask.dtype == np.bool_ or numbers == "truth"
    if is_truth and means != "add":
        return np.asarray((mask != 0) == (means == "keep"))
    return (mask != 0 if is_truth else mask).astype(np.float64, copy=False)


def adds(mask: Array | None, convention: Convention) -> bool:
    """Whether numbers of the mask are added to the scores."""
    if mask is None:
        return False
    is_truth = mask.dtype == np.bool_ or convention.mask_numbers == "truth"
    return convention.mask_means == "add" or not is_truth


def facts_of(convention: Convention, mask: Array | None, heads: tuple[int, int]) -> set[str]:
    """What of a call its convention, its mask as read, and its heads of Q and K have."""
    is_added = mask is not None and adds(mask, convention)
    holds = {
        MASK: mask is not None,
        NUMBERS: mask is not None and mask.dtype.kind != "b",
        ADDED: is_added,
        SHARED: heads[0] != heads[1],
        REPLACED: not (is_added and convention.empty_rows_inf),
    }
    return {*convention.changes(), *(fact for fact, is_so in holds.items() if is_so)}


def meant_mask(mask: Array, means: MaskMeans | None, convention: Convention) -> Array:
    """The mask of a call; one of nothing but 0 and 1 is made true and false, as `means` says.

    means  the keyword mask_means, else what the convention has chosen; "keep", its default, is
           no choice

    Raises ConventionError as `checked_mask` does.
    """
    is_said = mask.dtype == np.bool_ or convention.mask_numbers is not None
    if is_said or (means is None and not _is_binary(mask)):
        return mask
    return checked_mask(
        mask, means or convention.changes().get("mask_means"), "the mask", "mask_means="
    )


def checked_mask(mask: Array, means: str | None, name: str, flag: str) -> Array:
    """A mask as true and false, or as numbers to add; 0 and 1 are either, as `means` says.

    name, flag  what messages call the mask, and what says what it means

    Raises ConventionError where it could mean either, or cannot mean what was said. Floats of
    nothing but 0, which is what models add where nothing is masked, are added.
    """
    if mask.dtype == np.bool_:
        return mask
    if means is None and _is_binary(mask) and (mask.dtype.kind != "f" or mask.any()):
        library = "--semantics NAME" if flag.startswith("--") else "Convention.of(NAME)"
        hint = f"say what 1 means: {flag}keep, ignore or add; or what a library means: {library}"
        raise ConventionError(f"{name} holds nothing but 0 and 1", hint)
    is_truth = means in {"keep", "ignore"}
    if is_truth and not _is_binary(mask):
        message = f"{flag}{means} needs a mask of true/false or 0/1, {name} has others"
        raise ConventionError(message, f"use {flag}add")
    return mask.astype(np.bool_ if is_truth else np.float64)


def _is_binary(mask: Array) -> bool:
    return bool(((mask == 0) | (mask == 1)).all())


def is_masked(mask: Array) -> BoolArray:
    """Where an additive mask is meant to let no query attend: −inf, or the least of a type.

    >>> is_masked(np.array([0.0, -np.inf, -65504.0, -1e9])).tolist()
    [False, True, True, False]
    """
    lowest = [float(np.finfo(dtype).min) for dtype in (np.float16, np.float32, np.float64)]
    return np.isin(mask, [-np.inf, *lowest, -(2.0**128 - 2.0**120)])  # the last is bfloat16's


def first_position(
    align: CausalAlign, n_q: int, n_k: int, n_past: int, kv_len: npt.NDArray[np.int64] | None
) -> Offset:
    """The key position of the first query; where key lengths count, one for each batch item."""
    if align != "bottom-right":
        return n_past
    return n_k - n_q if kv_len is None else kv_len - n_q
