"""What makes observed numbers right though they differ: decimals, units, conventions, arithmetic.

decimals     to which the numbers were printed
units        the log-sum-exp of a row, and the maximum of a tile, as a kernel may keep them: rows
             behind the bugs of catalogue.md
conventions  of a library: PRESETS ── what was chosen kept ── Search.among ──> Meaning …
arithmetic   less exact inside than the numbers are: TF32 products in float32, a float32 softmax in
             a float64 model, sums kept in bfloat16. It is no match, unless it is asked for
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.masks import meant_mask
from attncli.commands.check.bugs.bug import Evidence
from attncli.commands.check.bugs.catalogue import UNITS, named
from attncli.commands.check.direction import CLEAR, beta
from attncli.commands.check.findings import Meaning
from attncli.commands.check.places import Labels, stage_verdict
from attncli.commands.check.search import Match, Search
from attncli.commands.check.verdict import Verdict
from attncli.convention import KNOBS, Convention, DType, MaskMeans, flag_of
from attncli.errors import ConventionError
from attncli.files.messages import count, listing
from attncli.page.conventions import sentences
from attncli.presets import PRESETS, Preset
from attncli.stages import CONCAT, LSE, OUTPUT
from attncli.tolerance.comparison import Comparison, comparison_of, fit, is_closer
from attncli.tolerance.decimals import places_of
from attncli.tolerance.noise import simulation
from attncli.tolerance.number_types import SMALL, narrower
from attncli.tolerance.rule import Inside, Places, Rule
from attncli.tolerance.run import stages
from attncli.tolerance.setup import Setup

# ---- the units, and the decimals, that the numbers may be in


def ways_to_read(
    plain: Verdict, comparison: Comparison, zeros: Mapping[str, int], labels: Labels
) -> Iterator[tuple[Verdict, Comparison]]:
    """Each way to read the numbers: in the unit, and to the decimals, that they may be in."""
    comparison, units = _in_units(comparison)
    for candidate, printed in as_printed(comparison, zeros):
        # numbers that were rounded match in another unit only as such
        read, more_units = (candidate, ()) if units else _in_units(candidate)
        stages = tuple(stage_verdict(name, read, labels) for name in read.errors)
        notes = (*plain.notes, *units, *more_units, *printed)
        yield replace(plain, dtype=candidate.rule.dtype, stages=stages, notes=notes), read


def as_printed(
    comparison: Comparison, zeros: Mapping[str, int]
) -> Iterator[tuple[Comparison, tuple[str, ...]]]:
    """The comparison; where numbers look rounded, by half a unit of their last place, with notes.

    Then as float32 numbers that were rounded. Numbers such as 0.375 are as those beside them.
    """
    rule, stages = comparison.rule, comparison.observed
    printed, notes = dict[str, Places](), list[str]()
    if not comparison.matches and rule.kind == "noise" and rule.inside is None:
        zeros = {OUTPUT if name == CONCAT else name: n for name, n in zeros.items()}
        every = places_of([*stages.values()])
        for name, x in stages.items():
            places = places_of([x], zeros.get(name, 0)) or (None if zeros.get(name) else every)
            if places is not None:
                printed[name] = places
    if not printed:
        yield comparison, ()
        return
    for places in sorted({*printed.values()}):
        names = [name for name in stages if printed.get(name) == places]
        subject = (
            "the numbers have"
            if len(names) == len(stages)
            else f"{listing(names)}: the numbers have"
        )
        number = count(*places)
        to = number if places.kind == "digit" else places.n
        notes.append(f"{subject} {number}, so they are judged as rounded to {to}")

    def judged(rule: Rule) -> Comparison:
        return comparison_of(comparison.setup, comparison.subset, stages, rule)

    yield judged(replace(rule, kind="printed", printed=printed)), tuple(notes)
    dtype = narrower(rule.dtype, "float32")
    if dtype == rule.dtype or printed.keys() == stages.keys():
        words = f"they differ as such, so they are judged as {dtype} numbers that were rounded"
        yield judged(replace(rule, dtype=dtype, printed=printed)), (*notes, words)


def _in_units(comparison: Comparison) -> tuple[Comparison, tuple[str, ...]]:
    """The comparison in the units that make the numbers match, and a sentence on each."""
    setup, subset, rule = comparison.setup, comparison.subset, comparison.rule
    evidence, starts, notes = Evidence({}, comparison.observed), [setup], tuple[str, ...]()
    for row in UNITS:
        starts += [other for start in starts for other in row.change(start, evidence)]
    for other in starts[1:]:
        inputs = {name: comparison.observed[name] for name in other.relayout}
        if all(comparison.errors[name].matches for name in inputs):
            continue
        turned = {name: other.relayout[name](x) for name, x in inputs.items()}
        if comparison_of(setup, subset, turned, rule).matches:
            observed, notes = {**comparison.observed, **turned}, other.details[len(setup.details) :]
            comparison = comparison_of(setup, subset, observed, rule)
            break
    comparison, of_invariants = _by_invariants(comparison) if setup.tiles else (comparison, ())
    return comparison, notes + of_invariants


def _by_invariants(comparison: Comparison) -> tuple[Comparison, tuple[str, ...]]:
    """The same by acc / l and m + ln l, where m, l and acc differ and these match.

    A kernel may go by another maximum than the running one, such as one that lags behind: all else
    follows from it, and acc / l and m + ln l are the same. It is a bug only where each tile has its
    own maximum and forgets the one before.
    """
    setup, observed = comparison.setup, comparison.observed
    tiles = {name.removesuffix("acc") for name in observed if name.endswith(".acc")}
    full = [tile for tile in tiles if {f"{tile}m", f"{tile}l"} <= observed.keys()]
    names = {f"{tile}{suffix}" for tile in full for suffix in ("m", "l", "acc", "p", "alpha")}
    if not full or all(comparison.errors[name].matches for name in names & observed.keys()):
        return comparison, ()
    own_maximum = named(OWN_MAXIMUM).change(setup, Evidence(observed, {}))
    if any(fit(variant, comparison) for variant in own_maximum):
        return comparison, ()
    others = {name: x for name, x in observed.items() if name not in names}
    with np.errstate(all="ignore"):
        for tile in sorted(full):
            m, total, acc = (observed[f"{tile}{suffix}"] for suffix in ("m", "l", "acc"))
            others[f"{tile}so_far"] = acc / np.where(total == 0, 1, total)
            others[f"{tile}{LSE}"] = np.where(total == 0, -np.inf, m + np.log(total))
    invariant = comparison_of(setup, comparison.subset, others, comparison.rule)
    if not invariant.matches:
        return comparison, ()
    words = "m is not the largest score so far, but acc / l and m + ln l match: no bug"
    return invariant, (words,)


OWN_MAXIMUM = "m is the tile's own maximum"

# ---- conventions of libraries


class UserChoices(NamedTuple):
    """What the caller said: of the other fields a library may have its own.

    fields  names of those of the convention that were chosen
    mask    the mask as it was given, before its 0 and 1 are made true and false; None: none
    means   what the keyword mask_means says of these
    """

    fields: Collection[str]
    mask: Array | None = None
    means: MaskMeans | None = None


MEANT = {
    "causal_align", "mask_and_causal", "window_counts", "mask_means", "mask_numbers", "mask_value",
    "mask_value_rule", "empty_rows", "empty_rows_inf", "head_order",
}  # fmt: skip
"""The fields of a convention that say what a call means, not what is asked for."""


def library_conventions(
    search: Search, choices: UserChoices, matches: Sequence[Match]
) -> tuple[Meaning, ...]:
    """The conventions of libraries that explain what was observed, the fewest fields first.

    What the caller chose is kept; where none explains it so, it is kept but for what is said of
    the mask's meaning and the like.

    matches  the bugs that do: where both may, within the rounding of 16 bits, and a bug's errors
             exclude the convention, it is not named
    """
    meaning_fields = MEANT & {*choices.fields}
    conventions = _kept(search, choices, matches)
    if conventions or not meaning_fields:
        return conventions
    means = None if "mask_means" in meaning_fields else choices.means
    conventions = _kept(
        search, UserChoices({*choices.fields} - meaning_fields, choices.mask, means), matches
    )
    without = (
        " ".join(flag_of(x) for x in KNOBS if x in meaning_fields & {*y.fields})
        for y in conventions
    )
    return tuple(
        replace(meaning, flag=", without ".join(filter(None, (meaning.flag, flags))))
        for meaning, flags in zip(conventions, without, strict=True)
    )


def _kept(search: Search, choices: UserChoices, matches: Sequence[Match]) -> tuple[Meaning, ...]:
    """The conventions that fit, with what was chosen, and that no bug excludes."""
    plain, names = search.comparison.setup, dict[Convention, list[str]]()
    chosen_fields = {name: getattr(plain.convention, name) for name in choices.fields}

    @cache
    def is_likely(convention: Convention) -> bool:
        with suppress(ConventionError):  # under it nobody says what 0 and 1 mean
            setup = _under(convention, plain, choices)
            return search.has_all(setup) and search.fits_samples(setup)
        return False

    for preset in PRESETS.values():
        with suppress(ConventionError):  # what was chosen contradicts it
            library_convention = Convention(
                **{**preset.fields_for(plain.shape[2]), **chosen_fields}
            )
            convention = _convention(preset, library_convention, plain, choices)
            if convention is not None and is_likely(convention):
                names.setdefault(_in_effect(convention, plain.convention, is_likely), []).append(
                    preset.name
                )
    computed_before = [x for match in matches for x in match.fits]
    fitting = dict[Convention, Match]()
    for convention in names:
        setup = _under(convention, plain, choices)
        same = [x for x in computed_before if not x.setup.differs_in(setup)]
        if fits := [Match((), same)] if same else search.among([((), [setup])]):
            fitting[convention] = fits[0]
    distinct = search.distinct([*matches, *fitting.values()])
    conventions = []
    for convention, match in fitting.items():
        if any(match is x for x in distinct):
            fields = _differing(convention, plain.convention)
            flag = f"--semantics {names[convention][0]}"
            conventions.append(Meaning((*names[convention],), (*sentences(fields),), flag, fields))
    return tuple(sorted(conventions, key=lambda meaning: len(meaning.fields)))


def _convention(
    preset: Preset, convention: Convention, plain: Setup, choices: UserChoices
) -> Convention | None:
    """The convention of a library in this call, empty rows by one rule; None where it refuses."""
    setup = _under(convention, plain, choices)
    (_, n_heads, n_q, n_k), inputs = setup.shape, setup.inputs
    sizes = {"heads": (n_heads, inputs["k"].shape[1]), "lengths": (n_q, n_k - setup.n_past)}
    sizes["widths"] = setup.d_k, inputs["v"].shape[-1]
    if setup.is_refused or preset.refuses_call(convention, inputs.get("given_mask"), **sizes):
        return None
    is_one_rule = plain.convention.empty_rows_inf is None
    return setup.with_empty_rows(setup.empty_rows).convention if is_one_rule else convention


def _under(convention: Convention, plain: Setup, choices: UserChoices) -> Setup:
    """What was given under another convention."""
    if choices.mask is None:
        return replace(plain, convention=convention)
    return replace(plain, convention=convention).with_inputs(
        given_mask=meant_mask(choices.mask, choices.means, convention)
    )


def _in_effect(
    convention: Convention, plain: Convention, is_likely: Callable[[Convention], bool]
) -> Convention:
    """The convention with every field as it was asked for that need not differ to fit."""
    for name in _differing(convention, plain):
        back = replace(convention, **{name: getattr(plain, name)})
        if is_likely(back):
            return _in_effect(back, plain, is_likely)
    return convention


def _differing(convention: Convention, other: Convention) -> Mapping[str, Any]:
    """The fields in which two conventions differ, as the first has them."""
    values = {name: getattr(convention, name) for name in KNOBS}
    return {name: x for name, x in values.items() if x != getattr(other, name)}


# ---- less exact arithmetic inside

LESS_EXACT: dict[DType, tuple[Inside, ...]] = {
    "float64": ("float32", "tf32", "float16", "bfloat16"),
    "float32": ("tf32", "float16", "bfloat16"),
    "float16": ("bfloat16",),
    "bfloat16": (),
}
"""The arithmetic that an implementation may have inside whose numbers are of this type."""

SINGLE_DIGITS = 7
"""Numbers printed with fewer do not show how exact the arithmetic was."""

EVERYWHERE = 0.9
"""In so many of the rows the error must be nearer to the noise of that arithmetic than to that of
the observed type, as a ratio: rounding spares no row, a lost block does."""

ALIKE = 0.5
"""From this β on errors are those of the simulated arithmetic itself, rounding by rounding."""


class LessExact(NamedTuple):
    """The arithmetic inside that may explain errors.

    is_certain  whether they are the errors of that arithmetic, rounding by rounding; else they are
                only as large as it allows, as those of a bug may be
    """

    inside: Inside
    is_certain: bool


def less_exact(comparison: Comparison, sample: Comparison) -> LessExact | None:
    """The arithmetic with just these errors, else the most exact that allows them, else None."""
    rule = comparison.rule
    is_short = any(places.n < SINGLE_DIGITS for places in rule.printed.values())
    if rule.kind != "noise" or rule.inside is not None or is_short:
        return None
    if rule.dtype != "float64" and rule.dtype in SMALL and _is_low_sums(sample, rule.dtype):
        return LessExact(rule.dtype, is_certain=True)
    allowing = [inside for inside in LESS_EXACT[rule.dtype] if _allows(sample, inside)]
    allowing = [inside for inside in allowing if _allows(comparison, inside)]
    for inside in allowing:
        computed = _computed(sample, inside)
        wrong = {name: x for name, x in sample.errors.items() if x.wrong.any()}
        betas = [beta(x.observed, computed[name], x) for name, x in wrong.items()]
        if all(abs(stage_beta.value - 1) <= ALIKE for stage_beta in betas):
            return LessExact(
                inside, all(stage_beta.value >= CLEAR * stage_beta.error for stage_beta in betas)
            )
    return LessExact(allowing[0], is_certain=False) if allowing else None


def _is_low_sums(sample: Comparison, inside: Inside) -> bool:
    """Whether the numbers are those of sums kept in 16 bits, which may be off by any amount."""
    computed = _computed(sample, inside)
    return all(
        replace(stage, expected=computed[name], wrong_entries=None).matches
        and is_closer(sample.setup, name, computed[name], sample)
        for name, stage in sample.errors.items()
    )


def _allows(comparison: Comparison, inside: Inside) -> bool:
    """Whether the errors are within the noise of this arithmetic, and no smaller than it makes."""
    rule = replace(comparison.rule, inside=inside)
    for name, stage in comparison.beside(comparison.setup, rule).items():
        least = np.sqrt(stage.row_noise * comparison.errors[name].row_noise)
        if not stage.matches or (stage.by_row[0] >= least).mean() < EVERYWHERE:
            return False
    return True


def _computed(sample: Comparison, inside: Inside) -> dict[str, Array]:
    """The stages of the sample in this arithmetic."""
    setup, dtype, _ = simulation(sample.setup, replace(sample.rule, inside=inside))
    return stages(setup, sample.subset, sample.errors, dtype)
