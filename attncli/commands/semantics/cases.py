"""The cases in which libraries part, one row each: the columns of the table.

    CASES["empty row"].cell(PRESETS["jax"])  ──>  "mean of V"

A cell is read from the preset's convention and from what it refuses, so it cannot say anything else
than what is computed. To add a case: a row here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.masks import meaning
from attncli.convention import Convention
from attncli.presets import Feature, MaskKind, Preset, kind_of_mask

REFUSED = "–"
_SCALES = {"1/sqrt(d_k)": "1/√d_k", "none": "not scaled"}
_EMPTY = {"zero": "zeros", "nan": "NaN", "uniform": "mean of V", "unmasked": "as if unmasked"}


class Call(NamedTuple):
    """What of a call makes libraries part."""

    shape: tuple[int, ...]  # of the scores, and the number of key heads
    n_kv_heads: int
    widths: tuple[int, int]  # d_k and d_v
    mask: Array | None
    fields: dict[str, Any]  # of Convention that the caller has chosen, such as causal
    n_past: int = 0  # keys before the first query's own

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """Heads, widths and lengths, as `presets.features_of` takes them."""
        n_q, n_k = self.shape[-2:]
        n_heads = self.shape[-3] if len(self.shape) > 2 else 1
        heads, lengths = (n_heads, self.n_kv_heads), (n_q, n_k - self.n_past)
        return {"heads": heads, "widths": self.widths, "lengths": lengths}

    @property
    def causal(self) -> bool:
        """Whether it asks for a causal mask."""
        return bool(self.fields.get("causal"))

    @property
    def kind(self) -> MaskKind | None:
        """What its mask is made of."""
        return kind_of_mask(self.mask)

    @property
    def is_binary(self) -> bool:
        """Whether its mask holds nothing but 0 and 1."""
        return self.mask is not None and bool(((self.mask == 0) | (self.mask == 1)).all())

    @property
    def has_empty_row(self) -> bool:
        """Whether the mask, true for keep and numbers added, hides every key from a query."""
        if self.mask is None:
            return False
        allowed = meaning(self.mask, "keep")
        hidden = ~allowed if allowed.dtype == np.bool_ else np.isneginf(allowed)
        return bool(np.atleast_1d(hidden).all(axis=-1).any())


class Case(NamedTuple):
    """One way in which libraries part."""

    name: str  # of its column
    words: str  # the same in words
    cell_of: Callable[[Convention], str]  # the cell of a convention
    needs: tuple[Feature, ...]  # features of a call without which there is no such case
    arises: Callable[[Call], bool]  # whether a call is such a case
    show: str  # what to give so that a call is one
    fields: tuple[str, ...] = ()  # those of Convention that it is about

    def cell(self, preset: Preset) -> str:
        """What the library does in this case; – where it takes no such call."""
        if preset.refusal(self.needs) is not None:
            return REFUSED
        return self.cell_of(Convention(**preset.fields))


def _numbers(convention: Convention, added: str, truth: str, hides: str) -> str:
    if convention.mask_numbers != "truth":
        return added
    return {"keep": truth, "ignore": hides, "add": "adds 1"}[convention.mask_means]


def _empty(convention: Convention) -> str:
    if convention.mask_means == "add":
        return "nothing hidden"
    if convention.mask_value_rule == "add":
        return _EMPTY["unmasked"]
    return _EMPTY[convention.empty_rows]


def _empty_by_inf(convention: Convention) -> str:
    if convention.mask_numbers == "truth":
        return (
            "nothing hidden" if convention.mask_means != "ignore" else _EMPTY[convention.empty_rows]
        )
    if convention.mask_value_rule == "add" and convention.empty_rows_inf is None:
        return _EMPTY["unmasked"]
    return _EMPTY[convention.empty_rule(adds=True)]


_ROWS = (
    Case(
        "true",
        "what true in a mask does",
        lambda convention: {"keep": "may attend", "ignore": "hides", "add": "adds 1"}[
            convention.mask_means
        ],
        ("boolean mask",),
        lambda call: call.kind == "boolean",
        "a boolean mask",
        ("mask_means",),
    ),
    Case(
        "numbers 0, 1",
        "what a mask of the numbers 0 and 1 means",
        lambda convention: _numbers(convention, "added", "1 may attend", "1 hides"),
        ("number mask",),
        lambda call: call.kind == "number" and call.is_binary,
        "a mask of the numbers 0 and 1",
        ("mask_numbers",),
    ),
    Case(
        "numbers 0, −∞",
        "what a mask of 0 and −∞ means",
        lambda convention: _numbers(convention, "added", "inverted", "−∞ hides"),
        ("number mask",),
        lambda call: call.kind == "number" and not call.is_binary,
        "a mask of numbers such as 0 and −∞",
        ("mask_numbers",),
    ),
    Case(
        "causal 3 × 5",
        "where causality starts with 3 queries and 5 keys",
        lambda convention: convention.causal_align,
        ("causal", "causal alone", "lengths"),
        lambda call: call.causal and call.shape[-2] != call.shape[-1],
        "--causal, with fewer or more queries than keys",
        ("causal_align",),
    ),
    Case(
        "mask, causal",
        "what a mask and causal together mean",
        lambda convention: {"both": "both", "mask": "mask alone", "causal": "causal alone"}.get(
            convention.mask_and_causal, REFUSED
        ),
        ("boolean mask", "causal", "mask and causal"),
        lambda call: call.causal and call.mask is not None,
        "a mask and --causal",
        ("mask_and_causal",),
    ),
    Case(
        "no key",
        "what a query gets if a boolean mask hides all its keys",
        _empty,
        ("boolean mask",),
        lambda call: call.kind == "boolean" and call.has_empty_row,
        "a boolean mask that hides every key from a query",
        ("empty_rows",),
    ),
    Case(
        "no key by −∞",
        "what a query gets if −∞ in a mask hides all its keys",
        _empty_by_inf,
        ("number mask",),
        lambda call: call.kind == "number" and call.has_empty_row,
        "a mask of numbers that hides every key from a query by −∞",
        ("empty_rows_inf", "empty_rows"),
    ),
    Case(
        "heads 6 on 3",
        "how query heads share fewer key heads",
        lambda convention: convention.head_order,
        ("grouped heads",),
        lambda call: call.sizes["heads"][0] != call.n_kv_heads,
        "fewer key heads than query heads",
        ("head_order",),
    ),
    Case(
        "d_v ≠ d_k",
        "whether values may be wider or narrower than keys",
        lambda convention: "yes",
        ("d_v",),
        lambda call: call.widths[0] != call.widths[1],
        "values of another width than the keys",
    ),
    Case(
        "scale",
        "what the scores are multiplied by",
        lambda convention: _SCALES.get(str(convention.scale), str(convention.scale)),
        (),
        lambda call: "scale" not in call.fields,
        "a call without --scale",
        ("scale",),
    ),
    Case(
        "hidden unasked",
        "what is hidden without a mask and without --causal",
        lambda convention: "later keys" if convention.causal else "nothing",
        (),
        lambda call: call.mask is None and not call.causal,
        "neither",
        ("causal",),
    ),
)
CASES: dict[str, Case] = {case.name: case for case in _ROWS}
"""Each row by its name."""
