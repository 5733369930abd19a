"""The conventions of libraries by which the observed numbers are right.

PRESETS ── what was chosen kept ── Search.among ── fields in effect ──> Meaning …
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from attncli.arrays import Array
from attncli.attention.masks import meant_mask
from attncli.check.search import Match, Search
from attncli.check.setup import Setup
from attncli.check.verdict import Meaning
from attncli.convention import KNOBS, Convention, MaskMeans, flag_of, flag_text
from attncli.errors import ConventionError
from attncli.presets import PRESETS, Preset
from attncli.semantics.words import sentences


class Asked(NamedTuple):
    """What the caller said: of the other fields a library may have its own.

    chosen  names of the fields of the convention that were chosen
    mask    the mask as it was given, before its 0 and 1 are made true and false; None: none
    means   what the keyword mask_means says of these
    """

    chosen: Collection[str]
    mask: Array | None = None
    means: MaskMeans | None = None


MEANT = {
    "causal_align", "mask_and_causal", "window_counts", "mask_means", "mask_numbers", "mask_value",
    "mask_value_rule", "empty_rows", "empty_rows_inf", "head_order",
}  # fmt: skip
"""The fields of a convention that say what a call means, not what is asked for."""


def library_conventions(
    search: Search, asked: Asked, matches: Sequence[Match]
) -> tuple[Meaning, ...]:
    """The conventions of libraries that explain what was observed, the fewest fields first.

    What the caller chose is kept; where none explains it so, it is kept but for what is said of
    the mask's meaning and the like.

    matches  the bugs that do: where both may, within the rounding of 16 bits, and a bug's errors
             exclude the convention, it is not named
    """
    meant = MEANT & {*asked.chosen}
    conventions = _kept(search, asked, matches)
    if conventions or not meant:
        return conventions
    means = None if "mask_means" in meant else asked.means
    conventions = _kept(search, Asked({*asked.chosen} - meant, asked.mask, means), matches)
    without = (" ".join(flag_of(x) for x in KNOBS if x in meant & {*y.fields}) for y in conventions)
    return tuple(
        replace(one, flag=", without ".join(filter(None, (one.flag, flags))))
        for one, flags in zip(conventions, without, strict=True)
    )


def _kept(search: Search, asked: Asked, matches: Sequence[Match]) -> tuple[Meaning, ...]:
    """The conventions that fit, with what was chosen, and that no bug excludes."""
    plain, names = search.comparison.setup, dict[Convention, list[str]]()
    kept = {name: getattr(plain.how, name) for name in asked.chosen}

    @cache
    def is_likely(how: Convention) -> bool:
        with suppress(ConventionError):  # under it nobody says what 0 and 1 mean
            setup = _under(how, plain, asked)
            return search.has_all(setup) and search.fits_samples(setup)
        return False

    is_single = plain.shape[2] == 1
    for preset in sorted(PRESETS.values(), key=lambda preset: bool(preset.one_query)):
        with suppress(ConventionError):  # what was chosen contradicts it
            own = {**preset.fields, **(preset.one_query if is_single else {})}
            how = _convention(preset, Convention(**{**own, **kept}), plain, asked)
            if how is not None and is_likely(how):
                names.setdefault(_in_effect(how, plain.how, is_likely), []).append(preset.name)
    fitting = {
        how: match for how in names for match in search.among([((), [_under(how, plain, asked)])])
    }
    left = search.distinct([*matches, *fitting.values()])
    conventions = []
    for how, match in fitting.items():
        if any(match is one for one in left):
            fields, flag = _differing(how, plain.how), f"--semantics {names[how][0]}"
            if is_single and PRESETS[names[how][0]].one_query:  # which the name does not say
                flag = " ".join(flag_text(*field) for field in fields.items())
            conventions.append(Meaning((*names[how],), (*sentences(fields),), flag, fields))
    return tuple(sorted(conventions, key=lambda one: len(one.fields)))


def _convention(preset: Preset, how: Convention, plain: Setup, asked: Asked) -> Convention | None:
    """The convention of a library in this call, empty rows by one rule; None where it refuses."""
    setup = _under(how, plain, asked)
    (_, n_heads, n_q, n_k), inputs = setup.shape, setup.inputs
    sizes = {"heads": (n_heads, inputs["k"].shape[1]), "lengths": (n_q, n_k - setup.n_past)}
    sizes["widths"] = setup.d_k, inputs["v"].shape[-1]
    if setup.is_refused or preset.refuses_call(how, inputs.get("given_mask"), **sizes):
        return None
    is_one_rule = plain.how.empty_rows_inf is None
    return setup.with_empty_rows(setup.empty_rows).how if is_one_rule else how


def _under(how: Convention, plain: Setup, asked: Asked) -> Setup:
    """What was given under another convention."""
    if asked.mask is None:
        return replace(plain, how=how)
    return replace(plain, how=how).with_inputs(given_mask=meant_mask(asked.mask, asked.means, how))


def _in_effect(
    how: Convention, asked: Convention, is_likely: Callable[[Convention], bool]
) -> Convention:
    """The convention with every field as it was asked for that need not differ to fit."""
    for name in _differing(how, asked):
        back = replace(how, **{name: getattr(asked, name)})
        if is_likely(back):
            return _in_effect(back, asked, is_likely)
    return how


def _differing(how: Convention, asked: Convention) -> Mapping[str, Any]:
    """The fields in which two conventions differ, as the first has them."""
    values = {name: getattr(how, name) for name in KNOBS}
    return {name: x for name, x in values.items() if x != getattr(asked, name)}
