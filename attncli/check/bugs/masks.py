"""Bugs of who may attend to whom: masks misread, left out, shifted; lengths, caches, arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.kernels import softmax
from attncli.attention.masks import first_position
from attncli.check.bugs.bug import Evidence
from attncli.check.bugs.kernels import without_keys
from attncli.check.bugs.patch import Function, Patch
from attncli.check.bugs.scores import how, ieee_softmax
from attncli.check.bugs.words import Variants, only_if
from attncli.check.setup import Setup
from attncli.convention import EmptyRows
from attncli.stages import MASKED, OUTPUT, WEIGHTS

FINITE = (-100.0, -1e3, -1e4, -65504.0, -1e5, -1e9, float(np.finfo(np.float32).min))
"""The finite mask values used in real code."""

SWALLOWED = 0.02
"""Where numbers of the observed type are so far apart at the mask value, a score that it is added
to is lost in rounding: adding the value is then the same as replacing the score."""


def with_mask(mask: Array | None, detail: str = "") -> Patch:
    """Another given mask; None: none."""
    return Patch(inputs={"given_mask": mask}, detail=detail)


def with_lengths(kv_len: Array | None, detail: str = "") -> Patch:
    """Other key lengths; None: none."""
    return Patch(inputs={"kv_len": kv_len}, detail=detail)


# ---- the given mask


def _is_boolean(setup: Setup) -> bool:
    return "given_mask" in setup.inputs and setup.inputs["given_mask"].dtype == np.bool_


def _is_truth(setup: Setup) -> bool:
    """Whether a mask of numbers is given, which mean true or false."""
    is_given = "given_mask" in setup.inputs and not _is_boolean(setup)
    return is_given and setup.how.mask_numbers == "truth"


def _hides_by_inf_alone(mask: Array) -> bool:
    """Whether a mask of numbers is 0 where a query may attend, and −inf where it may not."""
    return bool(np.isin(mask, (0.0, -np.inf)).all())


def is_padding(mask: Array) -> bool:
    """Whether a mask says of each key, not of each query, whether it may be attended to."""
    return mask.ndim < 2 or bool((mask == mask[..., :1, :]).all())


def _inverted(setup: Setup, _: Evidence) -> Iterator[Patch]:
    mask, means = setup.inputs.get("given_mask"), setup.how.mask_means
    if mask is None:
        return
    if _is_boolean(setup) or (_is_truth(setup) and not _hides_by_inf_alone(mask)):
        if means != "add":
            yield how(mask_means="ignore" if means == "keep" else "keep")
    elif not _is_truth(setup) and _hides_by_inf_alone(mask):
        yield with_mask(np.where(np.isneginf(mask), 0.0, -np.inf))


def _numbers_as_truth(setup: Setup, _: Evidence) -> Iterator[Patch]:
    """Not where that is the same as a mask the other way round, or as none."""
    mask = setup.inputs.get("given_mask")
    if mask is None or _is_boolean(setup) or setup.how.mask_numbers == "truth":
        return
    if not _hides_by_inf_alone(mask) and (mask == 0).any():
        yield how(mask_numbers="truth")


def _transposed(setup: Setup, _: Evidence, *, padding: bool) -> Iterator[Patch]:
    if setup.shape[2] != setup.shape[3]:
        return
    if padding and "kv_len" in setup.inputs:
        yield Patch({"mask": _with_padded_queries})
    mask = setup.inputs.get("given_mask")
    if mask is not None and is_padding(mask) == padding:
        whole = np.broadcast_to(mask, (*mask.shape[:-2], *setup.shape[2:]))
        yield with_mask(np.swapaxes(whole, -1, -2))


def _with_padded_queries(right: Function, kv_len: Array, rows: Array) -> Array:
    """The mask with the key lengths applied to the queries."""
    padded = (rows >= kv_len[:, None])[:, None, :, None]
    return np.where(padded, -np.inf, right(kv_len=None))


# ---- causal masks and windows


def _positions(rows: Array, kv_len: Array | None, sizes: tuple[Any, int, int, int]) -> Array:
    """[…, rows, n_k]: how far after each query's own position a key is."""
    first = first_position(*sizes, kv_len)
    start = np.reshape(first, (-1, 1, 1, 1)) if np.ndim(first) else np.asarray(first)
    return np.asarray(rows[:, None] + start)


def _reversed(
    right: Function, rows: Array, align: Any, n_q: int, n_k: int, n_past: int,
    kv_len: Array | None = None, *, least: int,
) -> Array:  # fmt: skip
    """The mask in which a query attends to keys from `least` places after its own on."""
    query = _positions(rows, kv_len, (align, n_q, n_k, n_past))
    return np.where(np.arange(n_k) >= query + least, right(causal=False), -np.inf)


def _in_chunks(
    right: Function, rows: Array, align: Any, n_q: int, n_k: int, n_past: int,
    window_size: tuple[int, int], kv_len: Array | None = None, *, chunk: int,
) -> Array:  # fmt: skip
    """The mask in which a query attends to the keys of its own chunk, as far as it may look."""
    query = _positions(rows, kv_len, (align, n_q, n_k, n_past))
    others = right(window_size=(-1, window_size[1]))
    return np.where(query // chunk == np.arange(n_k) // chunk, others, -np.inf)


def _chunks(setup: Setup, _: Evidence) -> Iterator[Patch]:
    left, right = setup.how.reach or (-1, -1)
    for chunk in sorted({left, left + 1, left + 1 + max(right, 0)}) if left >= 1 else ():
        yield Patch({"mask": partial(_in_chunks, chunk=chunk)}, f"chunks of {chunk}")


def _window_by(step: int, setup: Setup, _: Evidence) -> Iterator[Patch]:
    """Each bound of the window moved by a step, one side at a time and then both."""
    least = int(setup.how.window_counts == "own"), 0
    bounds = setup.how.window or (-1, -1)
    sides = {"left": (step, 0), "right": (0, step), "left and right": (step, step)}
    for words, by in sides.items():
        moved = bounds[0] + by[0], bounds[1] + by[1]
        if all(min(a, b) >= n for a, b, n in zip(bounds, moved, least, strict=True) if a != b):
            yield how(f"on the {words}", window=moved)


def _is_causal(setup: Setup) -> bool:
    return setup.how.causal


def _wanted(setup: Setup, _: Evidence, *, align: str) -> Iterator[Patch]:
    """A causal mask where none is wanted; both restrict: one that is not wanted hides keys."""
    both = {"mask_and_causal": "both"} if "given_mask" in setup.inputs else {}
    if not setup.how.causal:
        yield how(causal=True, causal_align=align, **both)


def _last_query(place: str, now: tuple[str, ...], setup: Setup, _: Evidence) -> Iterator[Patch]:
    """The last query of more keys than queries: attends to all, or as the others."""
    has_more_keys = setup.shape[2] < setup.shape[3]
    if setup.how.causal and has_more_keys and setup.how.causal_align in now:
        yield how(causal_align=place)


# ---- lengths and caches


def _off_by_one(setup: Setup, _: Evidence) -> Iterator[Patch]:
    for step, words in ((1, "one more"), (-1, "one fewer")):
        if (kv_len := setup.inputs.get("kv_len")) is not None:
            other = np.clip(kv_len + step, 0, setup.shape[3])
            if (other != kv_len).any():
                yield with_lengths(other, words)


def _one_length(setup: Setup, _: Evidence) -> Iterator[Patch]:
    kv_len = setup.inputs.get("kv_len")
    if kv_len is None or kv_len.size < 2:
        return
    names: dict[int, list[str]] = {}
    for words, n in (("first", kv_len[0]), ("longest", kv_len.max()), ("shortest", kv_len.min())):
        names.setdefault(int(n), []).append(words)
    for n, some in names.items():
        yield with_lengths(np.full_like(kv_len, n), f"{n}, that of the {' or '.join(some)}")


def _padded_on_the_left(right: Function, kv_len: Array, n_k: int) -> Array:
    """The mask in which the last keys of each batch item are the valid ones, not the first."""
    padded = (np.arange(n_k) < n_k - kv_len[:, None])[:, None, None, :]
    return np.where(padded, -np.inf, right(kv_len=None))


def _other_side(setup: Setup, _: Evidence) -> Iterator[Patch]:
    mask = setup.inputs.get("given_mask")
    if "kv_len" in setup.inputs:
        yield Patch({"mask": _padded_on_the_left})
    elif mask is not None and mask.shape[-1] == setup.shape[3] > 1 and is_padding(mask):
        yield with_mask(mask[..., ::-1])


def _of_another_item(setup: Setup, _: Evidence) -> Iterator[Patch]:
    """The masks or lengths of the batch items in another order, or that of the first for all."""
    n_batch, n_heads = setup.shape[:2]
    mask, kv_len = setup.inputs.get("given_mask"), setup.inputs.get("kv_len")
    steps = (1, "that of the item before"), (-1, "that of the item after")
    if mask is not None and mask.ndim == 4 and mask.shape[0] > 1:
        yield with_mask(mask[:1], "that of the first for all")
        if mask.shape[1] == 1 < n_heads:
            at = np.arange(n_batch * n_heads).reshape(n_batch, n_heads) % n_batch
            words = "repeated in the order (heads, batch), used as (batch, heads)"
            yield with_mask(mask[at, 0], words)
        yield from (with_mask(np.roll(mask, step, axis=0), words) for step, words in steps)
    if kv_len is not None and kv_len.size > 1:
        yield from (with_lengths(np.roll(kv_len, step), words) for step, words in steps)


def _cached(setup: Setup) -> int:
    """How many keys come before the queries' own."""
    return setup.n_past or max(0, setup.shape[3] - setup.shape[2])


def _not_cached(setup: Setup, _: Evidence) -> Iterator[Patch]:
    n = setup.shape[3] - _cached(setup)
    if _cached(setup):
        yield without_keys(setup, slice(-1, None), "the last one is missing")
        if n > 1:
            words = f"the last {n} are missing, all that are new"
            yield without_keys(setup, slice(-n, None), words)


def _overwritten(setup: Setup, _: Evidence) -> Iterator[Patch]:
    """The key before the new ones is lost: they are written one place too early."""
    if last := _cached(setup):
        yield without_keys(setup, slice(last - 1, last), f"key {last} is lost")


# ---- how a mask is applied


def _finite_value(setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    for value in FINITE:
        yield how(f"masked scores become {value:g}", mask_value=value, mask_value_rule="replace")
        if abs(value) * evidence.eps < SWALLOWED:
            words = f"{value:g} is added to masked scores"
            yield how(words, mask_value=value, mask_value_rule="add")


def _empty(rule: EmptyRows, setup: Setup, _: Evidence) -> Iterator[Patch]:
    """Another rule for rows with nothing to attend to."""
    if setup.may_mask() and setup.empty_rows != rule:
        yield Patch(empty_rows=rule)


def _is_one_step(setup: Setup) -> bool:
    """Whether the numbers of the mask are added, and what it hides is hidden, in one step."""
    between = setup.how.softcap is not None and setup.how.softcap_place == "after-bias"
    return not (between and setup.is_added)


def _added(x: Array, mask: Array) -> Array:
    """Scores with the numbers of a mask, but for its −∞."""
    return np.asarray(x + np.where(np.isneginf(mask), 0, mask).astype(x.dtype, copy=False))


def _masked_weights(right: Function, x: Array, allowed: Array | None = None) -> Array:
    """Weights of which those of masked keys are set to 0."""
    weights = softmax(x)
    return weights if allowed is None else np.where(allowed, weights, 0)


def _nan_where_allowed(x: Array, mask: Array) -> Array:
    """Scores with a mask that is (1 − allowed) · −inf: 0 · −inf is NaN."""
    return np.asarray(x + np.where(np.isneginf(mask), -np.inf, np.nan).astype(x.dtype))


def _is_not_finite(name: str, setup: Setup) -> bool:
    """Whether something may be masked, and keys or values are not finite."""
    return setup.may_mask() and not np.isfinite(setup.inputs[name]).all()


MASK_BUGS: dict[str, Variants] = {
    "boolean mask read the other way round": _inverted,
    "boolean mask added as numbers": only_if(_is_boolean, how(mask_means="add")),
    "boolean mask not added as numbers": only_if(
        lambda setup: _is_boolean(setup) and setup.how.mask_means == "add", how(mask_means="keep")
    ),
    "numbers of the mask read as true or false": _numbers_as_truth,
    "numbers of the mask added, not read as true or false": only_if(
        _is_truth, how(mask_numbers="add")
    ),
    "mask left out": with_mask(None),
    "padding left out": with_lengths(None),
    "padding mask on queries, not keys": partial(_transposed, padding=True),
    "mask transposed": partial(_transposed, padding=False),
    "causal the wrong way round": only_if(
        _is_causal,
        Patch({"mask": partial(_reversed, least=0)}, "its own and later positions"),
        Patch({"mask": partial(_reversed, least=1)}, "later positions alone"),
    ),
    "causal mask left out": only_if(_is_causal, how(causal=False, causal_align="top-left")),
    "mask and causal both applied, not one alone": only_if(
        lambda setup: setup.how.causal and setup.how.mask_and_causal in ("mask", "causal"),
        how(mask_and_causal="both"),
    ),
    "causal mask where none is wanted": partial(_wanted, align="top-left"),
    "causal mask where none is wanted, bottom-right": only_if(
        lambda setup: not setup.n_past and setup.shape[2] != setup.shape[3],
        partial(_wanted, align="bottom-right"),
    ),
    "causal mask aligned bottom-right, not top-left": how(causal_align="bottom-right"),
    "causal mask aligned top-left, not bottom-right": only_if(
        lambda setup: setup.how.causal_align == "bottom-right", how(causal_align="top-left")
    ),
    "causal mask leaves the last query all keys": partial(
        _last_query, "open-last", ("top-left", "bottom-right")
    ),
    "causal mask for the last query too": partial(_last_query, "top-left", ("open-last",)),
    "causal mask hides each query's own position": only_if(
        _is_causal, {"mask": lambda right: right(shift=-1)}
    ),
    "causal mask shows the next position": only_if(
        _is_causal, {"mask": lambda right: right(shift=1)}
    ),
    "cached decode masks its own history": only_if(
        lambda setup: setup.how.causal and setup.n_past,
        Patch({"mask": lambda right: right(n_past=0)}, how={"causal_align": "top-left"}),
    ),
    "window one too wide": partial(_window_by, 1),
    "window one too narrow": partial(_window_by, -1),
    "window left out": how(window=None),
    "chunks, not a sliding window": _chunks,
    "key lengths off by one": _off_by_one,
    "one batch item's key length for all": _one_length,
    "padding on the left taken for right": _other_side,
    "mask of another batch item": _of_another_item,
    "newest key not cached": _not_cached,
    "newest key overwrites the last one": _overwritten,
    "cache ignored": lambda setup, _: (
        without_keys(setup, slice(setup.n_past)) if setup.n_past else ()
    ),
    "mask applied after softmax, not renormalised": only_if(
        _is_one_step,
        Patch({MASKED: _added, WEIGHTS: _masked_weights}, how={"mask_value": -np.inf}),
    ),
    "mask multiplied into the scores": how(mask_value=0.0, mask_value_rule="replace"),
    "finite mask value": _finite_value,
    "mask value −∞, not the finite one given": only_if(
        lambda setup: setup.how.mask_value != -np.inf,
        how(mask_value=-np.inf, mask_value_rule="replace"),
    ),
    "rows with nothing to attend to become NaN": partial(_empty, "nan"),
    "rows with nothing to attend to become zero": partial(_empty, "zero"),
    "rows with nothing to attend to get the mean of V": partial(_empty, "uniform"),
    "rows with nothing to attend to as if unmasked": partial(_empty, "unmasked"),
    "0 · −∞ in the mask": only_if(
        _is_one_step, Patch({MASKED: _nan_where_allowed, WEIGHTS: ieee_softmax})
    ),
    "NaN leaks from masked keys": only_if(
        lambda setup: _is_one_step(setup) and _is_not_finite("k", setup),
        {MASKED: lambda x, mask: x + mask.astype(x.dtype), WEIGHTS: ieee_softmax},
    ),
    "NaN leaks from masked values": only_if(
        partial(_is_not_finite, "v"), {OUTPUT: lambda right: right(allowed=None)}
    ),
}
