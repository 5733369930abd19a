"""What the edits of the catalogue name of a setup: conditions, numbers, and numbers to repeat for.

… when causal and size[i] < size[j]        a condition
d_q: => right / scale                      a number
… for last_blocks(j)                       one variant for each, with its words
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import get_args

import numpy as np

from attncli.arrays import Array
from attncli.check.bugs.bug import Evidence
from attncli.check.setup import Setup
from attncli.check.tolerance import largest
from attncli.convention import EmptyRows
from attncli.files.messages import count
from attncli.stages import GIVEN_GRADIENT, QKV

BLOCKS = 16, 32, 64, 128
"""The sizes of blocks in which kernels compute."""

LOOPS = (1, 2, 4, 8, *BLOCKS)
"""And those of loops over gradients."""

FINITE = (-100.0, -1e3, -1e4, -65504.0, -1e5, -1e9, float(np.finfo(np.float32).min))
"""The finite mask values used in real code."""

SWALLOWED = 0.02
"""Where numbers of the observed type are so far apart at the mask value, a score that it is added
to is lost in rounding: adding the value is then the same as replacing the score."""

HIDES = -1e3
"""Numbers of a mask that are no larger stand for −∞."""

# ---- what is so


def factor_of(setup: Setup) -> float:
    """What the scores are multiplied by; 0 where that is nothing."""
    return setup.how.scale_factor(setup.d_k) if setup.how.scale != "none" else 0.0


def is_padding(mask: Array) -> bool:
    """Whether a mask says of each key, not of each query, whether it may be attended to."""
    return mask.ndim < 2 or bool((mask == mask[..., :1, :]).all())


def hides_by_inf_alone(mask: Array) -> bool:
    """Whether a mask of numbers is 0 where a query may attend, and −inf where it may not."""
    return bool(np.isin(mask, (0.0, -np.inf)).all())


def n_cached(setup: Setup) -> int:
    """How many keys come before the queries' own."""
    return setup.n_past or max(0, setup.shape[3] - setup.shape[2])


def is_one_step(setup: Setup) -> bool:
    """Whether the numbers of the mask are added, and what it hides is hidden, in one step."""
    between = setup.how.softcap is not None and setup.how.softcap_place == "after-bias"
    return not (between and setup.is_added)


def _given(holds: Callable[[Setup, Array], object]) -> Callable[[Setup], bool]:
    """Whether there is a mask of which something holds."""

    def fact(setup: Setup) -> bool:
        mask = setup.inputs.get("given_mask")
        return mask is not None and bool(holds(setup, mask))

    return fact


def _is_truth(setup: Setup, mask: Array) -> bool:
    return mask.dtype != np.bool_ and setup.how.mask_numbers == "truth"


def _hides(setup: Setup) -> bool:
    """Whether something is hidden, not only weighed by numbers of the mask."""
    how, mask = setup.how, setup.inputs.get("given_mask")
    by_rule = how.causal or how.window is not None or "kv_len" in setup.inputs
    return by_rule or (mask is not None and bool((mask == -np.inf).any()))


def _has_qkv_alone(setup: Setup) -> bool:
    """Whether nothing but q, k, v and a causal mask over as many heads says what is computed."""
    is_causal = setup.how.causal and setup.inputs["k"].shape[1] != setup.shape[1]
    return setup.inputs.keys() <= {*QKV} and setup.how.window is None and not is_causal


def _model_width(setup: Setup) -> int:
    """How wide x is, of which q, k and v are made; 0 where they are given."""
    return 0 if setup.projected is None else int(setup.projected.originals["x"].shape[-1])


def _largest_score(setup: Setup) -> float:
    inputs = setup.placed().inputs
    return largest(inputs["q"]) * largest(inputs["k"]) * setup.d_k


FACTS: Mapping[str, Callable[[Setup], float]] = {
    "n_q": lambda setup: setup.shape[2],
    "n_k": lambda setup: setup.shape[3],
    "n_h": lambda setup: setup.shape[1],
    "n_past": lambda setup: setup.n_past,
    "n_cached": n_cached,
    "square": lambda setup: setup.shape[2] == setup.shape[3] > 1,
    "grouped": lambda setup: setup.shape[1] != setup.inputs["k"].shape[1],
    "scale": factor_of,
    "scaled": lambda setup: factor_of(setup) != 0,
    "factor": lambda setup: factor_of(setup) if setup.how.scale != "none" else 1.0,
    "largest_score": _largest_score,
    "softcap": lambda setup: setup.how.softcap or 0.0,
    "dropout": lambda setup: setup.how.dropout,
    "sinks": lambda setup: "sinks" in setup.inputs,
    "qk_norm": lambda setup: setup.how.qk_norm,
    "lse_base": lambda setup: math.log(2) if setup.how.lse_base == "2" else 1.0,
    "over_keys": lambda setup: setup.how.softmax_over == "keys",
    "positions": lambda setup: setup.positions is not None,
    "rotary": lambda setup: setup.positions is not None and setup.positions.is_rotary,
    "added": lambda setup: setup.positions is not None and not setup.positions.is_rotary,
    "masks": lambda setup: setup.may_mask(),
    "causal": lambda setup: setup.how.causal,
    "aligned_left": lambda setup: setup.how.causal_align == "top-left",
    "window": lambda setup: setup.how.window is not None,
    "lengths": lambda setup: "kv_len" in setup.inputs,
    "hides": _hides,
    "adds_mask": lambda setup: setup.is_added,
    "one_step": is_one_step,
    "finite_mask": lambda setup: setup.how.mask_value != -np.inf,
    "given_mask": _given(lambda setup, mask: True),
    "boolean_mask": _given(lambda setup, mask: mask.dtype == np.bool_),
    "number_mask": _given(lambda setup, mask: mask.dtype != np.bool_),
    "truth_mask": _given(_is_truth),
    "only_inf": _given(lambda setup, mask: hides_by_inf_alone(mask)),
    "has_zero": _given(lambda setup, mask: (mask == 0).any()),
    "mask_hides": _given(lambda setup, mask: mask.dtype == np.bool_ or (mask <= HIDES).any()),
    "padding_mask": _given(lambda setup, mask: is_padding(mask)),
    "mask_of_keys": _given(lambda setup, mask: mask.shape[-1] == setup.shape[3] > 1),
    "mask_items": _given(lambda setup, mask: mask.ndim == 4 and mask.shape[0] > 1),
    "mask_heads": _given(lambda setup, mask: mask.ndim == 4 and mask.shape[1] > 1),
    "keys_not_finite": lambda setup: not np.isfinite(setup.inputs["k"]).all(),
    "values_not_finite": lambda setup: not np.isfinite(setup.inputs["v"]).all(),
    "qkv_alone": _has_qkv_alone,
    "d_model": _model_width,
}
"""Conditions are 1 or 0; numbers are those of the right setup."""

# ---- what is repeated

Texts = dict[str, str]
"""What stands for the names in braces of a line; `words` is for its detail."""


def alike(numbers: Mapping[int, int]) -> Iterator[tuple[int, str]]:
    """The numbers but 0, and the sizes that come to each."""
    for number in dict.fromkeys(numbers.values()):
        if number:
            yield number, " or ".join(str(size) for size, x in numbers.items() if x == number)


def last_blocks(n: int, sizes: Sequence[int] = BLOCKS) -> Iterator[tuple[int, str]]:
    """Where the last block of n begins, if it is not the only one, and for which sizes.

    >>> [*last_blocks(40)]
    [(32, '16 or 32')]
    """
    return alike({size: (n - 1) // size * size for size in sizes})


def paddings(n: int, sizes: Sequence[int] = BLOCKS) -> Iterator[tuple[int, str]]:
    """How many are missing until the last block of n is full, and for which sizes.

    >>> [*paddings(40)]
    [(8, '16'), (24, '32 or 64'), (88, '128')]
    """
    return alike({size: -n % size for size in sizes})


def sizes_of(setup: Setup) -> dict[str, int]:
    """How long the letters of axes are."""
    own = {"g": setup.inputs["k"].shape[1], "d": setup.d_k, "e": setup.inputs["v"].shape[-1]}
    return {**dict(zip("bhij", setup.shape, strict=True)), **own}


def _last_blocks(setup: Setup, _: Evidence, letter: str) -> Iterator[Texts]:
    n = sizes_of(setup)[letter]
    for start, sizes in last_blocks(n):
        yield {"n": str(start), "words": f"{start + 1} to {n}, the last of {sizes}"}


def _lasts(setup: Setup, _: Evidence, letter: str) -> Iterator[Texts]:
    """The same with the small blocks that loops over gradients have."""
    n = sizes_of(setup)[letter]
    for start, sizes in last_blocks(n, LOOPS):
        yield {"n": str(start), "words": f"{start + 1} to {n}, the last of {sizes}"}


def _firsts(setup: Setup, _: Evidence, letter: str) -> Iterator[Texts]:
    for block in BLOCKS:
        if 2 * block < sizes_of(setup)[letter]:
            yield {"n": str(block), "words": f"1 to {block}"}


def _blocks(setup: Setup, _: Evidence, letter: str) -> Iterator[Texts]:
    yield from ({"n": str(n)} for n in BLOCKS if n < sizes_of(setup)[letter])


def _paddings(setup: Setup, _: Evidence, letter: str, *sizes: str) -> Iterator[Texts]:
    for n, words in paddings(sizes_of(setup)[letter], [*map(int, sizes)]):
        yield {"n": str(n), "words": words}


def _parts_of(setup: Setup, _: Evidence, letter: str) -> Iterator[Texts]:
    """Blocks of keys, each with a log-sum-exp of its own: n of them, the last from `start` on."""
    n_k = sizes_of(setup)[letter]
    for n in dict.fromkeys((-(-n_k // 2), *BLOCKS)):
        if n < n_k:
            yield {
                "n": str(n),
                "start": str((n_k - 1) // n * n),
                "size_c": str(-(-n_k // n)),
                "size_l": str(n),
            }


_COUNTED = {"b": "batch items", "h": "heads", "i": "queries", "j": "keys", "e": "dimensions of v"}


def _counts(setup: Setup, _: Evidence, *letters: str) -> Iterator[Texts]:
    """How many there are of something, if more than one: over them a mean may have been taken."""
    counts = dict[int, str]()
    for letter in letters:
        match letter:
            case "tokens":
                counts.setdefault(setup.shape[0] * setup.shape[2], "tokens")
            case "numbers":
                counts.setdefault(setup.inputs[GIVEN_GRADIENT].size, "numbers")
            case _:
                counts.setdefault(sizes_of(setup)[letter], _COUNTED[letter])
    yield from ({"n": str(n), "words": words} for n, words in counts.items() if n > 1)


def _layouts(setup: Setup, _: Evidence, head: str, row: str) -> Iterator[Texts]:
    """Where an entry really is if heads and tokens are taken for each other by a reshape."""
    if sizes_of(setup)[head] > 1:
        at, n_heads, n = f"({head} * size[{row}] + {row})", f"size[{head}]", f"size[{row}]"
        words = "stored as (tokens, heads, d), read as (heads, tokens, d)"
        yield {"at": f"{at} % {n_heads},{at} // {n_heads}", "words": words}
        at = f"({row} * size[{head}] + {head})"
        words = "stored as (heads, tokens, d), read as (tokens, heads, d)"
        yield {"at": f"{at} // {n},{at} % {n}", "words": words}


def _columns(setup: Setup, _: Evidence, row: str, column: str) -> Iterator[Texts]:
    at, n = f"({row} * size[{column}] + {column})", f"size[{row}]"
    yield {"at": f"{at} % {n},{at} // {n}", "words": "stored as (d, tokens), read as (tokens, d)"}


def _empty_rules(setup: Setup, _: Evidence) -> Iterator[Texts]:
    """Each rule for empty rows, where over another axis others may be empty.

    A causal mask alone leaves every key a query, where there are as many.
    """
    restricts = setup.inputs.keys() & {"given_mask", "kv_len"} or setup.how.window is not None
    may_empty = restricts or (setup.how.causal and setup.shape[2] < setup.shape[3])
    in_text = {"zero": "", "nan": ", empty=nan", "uniform": ", empty=uniform"}
    for rule in get_args(EmptyRows) if may_empty else (setup.empty_rows,):
        yield {"rule": rule, "empty": in_text.get(rule, "")}


def _origin(setup: Setup, _: Evidence) -> Iterator[Texts]:
    """The key position of the first query: where key lengths count, one of each batch item."""
    (n_q, n_k), is_last = setup.shape[2:], setup.how.causal_align == "bottom-right"
    if is_last and "kv_len" in setup.inputs:
        yield {"first": f"kv_len[b] - {n_q}"}
    else:
        yield {"first": str(n_k - n_q if is_last else setup.n_past)}


def _chunks(setup: Setup, evidence: Evidence) -> Iterator[Texts]:
    left, right = setup.how.reach or (-1, -1)
    (first,) = _origin(setup, evidence)
    for chunk in sorted({left, left + 1, left + 1 + max(right, 0)}) if left >= 1 else ():
        yield first | {"n": str(chunk), "right": str(right), "words": f"chunks of {chunk}"}


def _windows(setup: Setup, _: Evidence, step: str) -> Iterator[Texts]:
    """Each bound of the window moved by a step, one side at a time and then both."""
    least, by = (int(setup.how.window_counts == "own"), 0), int(step)
    bounds = setup.how.window or (-1, -1)
    for words, left, right in (("left", by, 0), ("right", 0, by), ("left and right", by, by)):
        moved = bounds[0] + left, bounds[1] + right
        if all(min(a, b) >= n for a, b, n in zip(bounds, moved, least, strict=True) if a != b):
            yield {"size": str(moved), "words": f"on the {words}"}


def _moved_windows(setup: Setup, _: Evidence) -> Iterator[Texts]:
    """The window of the weights computed again, one key larger or smaller on one side."""
    for side, name in enumerate(("before", "after")):
        for by in (1, -1):
            size = [*(setup.how.reach or (-1, -1))]
            if size[side] >= max(0, -by):
                words = f"the window {size[side] + by} keys {name} the query, not {size[side]}"
                size[side] += by
                yield {"size": str(tuple(size)), "words": words}


def _key_lengths(setup: Setup, _: Evidence) -> Iterator[Texts]:
    kv_len = setup.inputs["kv_len"]
    names: dict[int, list[str]] = {}
    for words, n in (("first", kv_len[0]), ("longest", kv_len.max()), ("shortest", kv_len.min())):
        names.setdefault(int(n), []).append(words)
    for n, some in names.items() if kv_len.size > 1 else ():
        yield {"n": str(n), "words": f"{n}, that of the {' or '.join(some)}"}


def _mask_values(setup: Setup, _: Evidence) -> Iterator[Texts]:
    yield from ({"v": f"{value:g}", "value": repr(value)} for value in FINITE)


def _added_mask_values(setup: Setup, evidence: Evidence) -> Iterator[Texts]:
    """Those that are added and leave something of the score."""
    for texts in _mask_values(setup, evidence):
        if abs(float(texts["value"])) * evidence.eps < SWALLOWED:
            yield texts


def _last_tile(setup: Setup, _: Evidence) -> Iterator[Texts]:
    """How many keys are missing until the last tile is full."""
    if n := setup.tiles and -setup.shape[3] % setup.tiles:
        last = -(-setup.shape[3] // setup.tiles)
        yield {"n": str(n), "tile": f"tile.{last}", "words": str(setup.tiles)}


def _groups(setup: Setup, _: Evidence) -> Iterator[Texts]:
    """The query heads of a key head g: r consecutive ones, or every n-th."""
    n, r = sizes_of(setup)["g"], sizes_of(setup)["h"] // max(1, sizes_of(setup)["g"])
    in_blocks = setup.how.head_order == "blocks"
    first, last = (
        (f"g * {r}", f"g * {r} + {r - 1}") if in_blocks else ("g + 0", f"{r - 1} * size[g] + g")
    )
    other = f"h % {n}" if in_blocks else f"h // {r}"
    yield {"n": str(n), "r": str(r), "first": first, "last": last, "other": other}


def _readings(setup: Setup, _: Evidence) -> Iterator[Texts]:
    """K and V in another layout, of another head, or of one batch item or chunk for all."""
    (n_batch, n_heads, _q, n_k), n_keys = setup.shape, setup.inputs["k"].shape[1]
    if n_heads == n_keys:
        for texts in _layouts(setup, _, "h", "j"):
            yield {"at": f"b,{texts['at']}", "words": texts["words"]}
    if n_batch > 1:
        yield {"at": "0,h,j", "words": "of the first batch item"}
    if n_keys > 1:
        yield {"at": "b,(h - 1) % size[h],j", "words": "of the head before"}
    for parts in (parts for parts in (2, 4, 8) if parts < n_k):
        at = f"b,h,(j % {n_k // parts} if j < {n_k // parts * parts} else j)"
        yield {"at": at, "words": f"the first of {parts} chunks for all"}


def _elsewhere(setup: Setup, _: Evidence, head: str, row: str) -> Iterator[Texts]:
    """Numbers of a neighbour or the first, along one axis; or in another layout."""
    at = ["b", head, row]
    for axis, letter in enumerate(at):
        if sizes_of(setup)[letter] > 1:
            for other in (
                f"({letter} - 1) % size[{letter}]",
                f"({letter} + 1) % size[{letter}]",
                "0",
            ):
                yield {"at": ",".join([*at[:axis], other, *at[axis + 1 :]]), "words": ""}
    for texts in _layouts(setup, _, head, row):
        yield {"at": f"b,{texts['at']}", "words": texts["words"]}


def _places(setup: Setup, _: Evidence, letter: str) -> Iterator[Texts]:
    """Every place along a short axis."""
    n = sizes_of(setup)[letter]
    yield from ({"n": str(at)} for at in range(n if n <= 64 else 0))


def _each(setup: Setup, _: Evidence, letter: str) -> Iterator[Texts]:
    """Every term of a sum, as people count them."""
    kind = {"d": "dimension", "j": "key"}[letter]
    for n in range(sizes_of(setup)[letter]):
        yield {"n": str(n), "words": f"that of {kind} {n + 1}"}


def _decimals(_: Setup, __: Evidence, *places: str) -> Iterator[Texts]:
    """What numbers are multiplied by before they are rounded."""
    for n in map(int, places):
        yield {"n": str(10**n), "words": f"to {count(n, 'decimal') if n else 'whole numbers'}"}


SOURCES: Mapping[str, Callable[..., Iterator[Texts]]] = {
    "last_blocks": _last_blocks, "lasts": _lasts, "firsts": _firsts, "blocks": _blocks,
    "paddings": _paddings, "parts_of": _parts_of, "counts": _counts, "layouts": _layouts,
    "columns": _columns, "empty_rules": _empty_rules, "origin": _origin, "chunks": _chunks,
    "windows": _windows, "moved_windows": _moved_windows, "key_lengths": _key_lengths,
    "mask_values": _mask_values, "added_mask_values": _added_mask_values,
    "last_tile": _last_tile, "elsewhere": _elsewhere, "places": _places, "groups": _groups,
    "readings": _readings, "each": _each, "decimals": _decimals,
}  # fmt: skip
