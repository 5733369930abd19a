"""Meanings: the libraries as whose conventions have it the observed numbers are right.

what was asked ── each preset, what was chosen kept ── Search.fits ── fields in effect ──> Meaning …
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.masks import meant_mask
from attncli.check.comparison import Fit
from attncli.check.search import Match, Search
from attncli.check.setup import Setup
from attncli.check.verdict import Meaning
from attncli.convention import KNOBS, Convention, MaskMeans, flag_of
from attncli.errors import ConventionError
from attncli.presets import PRESETS, Preset
from attncli.semantics.words import sentences


class Asked(NamedTuple):
    """What the caller said: of the other fields a preset may have its own.

    chosen  names of the fields of the convention that were chosen
    mask    the mask as it was given, before its 0 and 1 are made true and false; None: none
    means   what the keyword mask_means says of these
    """

    chosen: Collection[str]
    mask: Array | None = None
    means: MaskMeans | None = None


def meanings_of(search: Search, asked: Asked, found: Sequence[Match]) -> tuple[Meaning, ...]:
    """The conventions of libraries that explain what was observed, the fewest fields first.

    What the caller chose is kept; where none explains it so, it is kept but for what is said of
    the mask's meaning and the like.

    found  the bugs that do: where both may, within the noise of 16 bits, and a bug's errors exclude
           the convention, it is not named
    """
    meant = MEANT & {*asked.chosen}
    meanings = _meanings(search, asked, found)
    if meanings or not meant:
        return meanings
    means = None if "mask_means" in meant else asked.means
    meanings = _meanings(search, Asked({*asked.chosen} - meant, asked.mask, means), found)
    without = []
    for meaning in meanings:  # the flags of what contradicts it are left out
        flags = " ".join(flag_of(x) for x in KNOBS if x in meant and x in meaning.fields)
        flag = f"{meaning.flag}, without {flags}" if flags else meaning.flag
        without.append(replace(meaning, flag=flag))
    return tuple(without)


MEANT = {
    "causal_align", "mask_and_causal", "window_counts", "mask_means", "mask_numbers", "mask_value",
    "mask_value_rule", "empty_rows", "empty_rows_inf", "head_order",
}  # fmt: skip
"""The fields of a convention that say what a call means, not what is asked for."""


def _meanings(search: Search, asked: Asked, found: Sequence[Match]) -> tuple[Meaning, ...]:
    plain = search.comparison.setup
    named: dict[Convention, list[str]] = {}
    for preset in PRESETS.values():
        with suppress(ConventionError):  # what was chosen contradicts it, or 0 and 1 mean nothing
            if (how := _convention(preset, plain, asked)) is not None and how != plain.how:
                named.setdefault(how, []).append(preset.name)

    @cache
    def fit_of(how: Convention) -> Fit | None:
        with suppress(ConventionError):  # under it nobody says what 0 and 1 mean
            return next(iter(search.fits([_under(how, plain, asked)])), None)
        return None

    needed: dict[Convention, list[str]] = {}
    for how, names in named.items():
        if fit_of(how) is not None:
            needed.setdefault(_in_effect(how, plain.how, fit_of), []).extend(names)
    matches = {how: Match((), [fit]) for how in needed if (fit := fit_of(how))}
    kept = search.distinct([*found, *matches.values()])
    meanings = []
    for how, match in matches.items():
        if any(match is one for one in kept):
            names, fields = needed[how], _differing(how, plain.how)
            flag = f"--semantics {names[0]}"
            meanings.append(Meaning(tuple(names), tuple(sentences(fields)), flag, fields))
    return tuple(sorted(meanings, key=lambda meaning: len(meaning.fields)))


def _convention(preset: Preset, plain: Setup, asked: Asked) -> Convention | None:
    """The preset's convention in this call, with what was chosen; None where it refuses the call.

    A field that has no part in the call is as it was asked for: what means the same is equal.
    """
    chosen = {name: getattr(plain.how, name) for name in asked.chosen}
    setup = _under(Convention(**{**preset.fields, **chosen}), plain, asked)
    (_, n_heads, n_q, n_k), inputs = setup.shape, setup.inputs
    sizes = {"heads": (n_heads, inputs["k"].shape[1]), "lengths": (n_q, n_k - setup.n_past)}
    sizes["widths"] = setup.d_k, inputs["v"].shape[-1]
    refusal = preset.refuses_call(setup.how, inputs.get("given_mask"), **sizes)
    if setup.is_refused or refusal is not None:
        return None
    if plain.how.empty_rows_inf is None:  # one rule for one call
        setup = setup.with_empty_rows(setup.empty_rows)
    return replace(setup.how, **{x: getattr(plain.how, x) for x in _without_part(setup, plain)})


def _under(how: Convention, plain: Setup, asked: Asked) -> Setup:
    """What was given under another convention."""
    if asked.mask is None:
        return replace(plain, how=how)
    mask = meant_mask(asked.mask, asked.means, how)
    return replace(plain, how=how, inputs={**plain.inputs, "given_mask": mask})


def _without_part(setup: Setup, plain: Setup) -> Iterator[str]:
    """The fields of the convention of a setup that change nothing in its call."""
    how, mask = setup.how, setup.inputs.get("given_mask")
    changed = how.changes()
    yield from (name for name, knob in KNOBS.items() if not knob.has_effect(changed))
    if mask is None:
        yield from ("mask_means", "mask_and_causal", "mask_numbers")
    elif mask.dtype == np.bool_ or (plain.is_added and how.mask_numbers == "add"):
        yield "mask_numbers"
    if not setup.is_added:
        yield "empty_rows_inf"


def _in_effect(
    how: Convention, asked: Convention, fit_of: Callable[[Convention], Fit | None]
) -> Convention:
    """The convention with every field as it was asked for that need not differ to fit."""
    for name in _differing(how, asked):
        back = replace(how, **{name: getattr(asked, name)})
        if fit_of(back) is not None:
            return _in_effect(back, asked, fit_of)
    return how


def _differing(how: Convention, asked: Convention) -> dict[str, Any]:
    """The fields in which two conventions differ, as the first has them."""
    values = {name: getattr(how, name) for name in KNOBS}
    return {name: x for name, x in values.items() if x != getattr(asked, name)}
