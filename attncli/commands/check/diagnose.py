"""check: somebody else's numbers in, a Verdict out.

observed ── shapes ── within tolerance? ── single bugs ── conventions ── pairs ── where errors are
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from attncli.attention.inputs import Inputs
from attncli.attention.parts import check_parts
from attncli.attention.shapes import is_small, layout_hint, type_name
from attncli.attention.tiles import split_bounds, tile_bounds
from attncli.commands.check.bugs.catalogue import GRADIENT
from attncli.commands.check.conventions import (
    UserChoices,
    as_printed,
    less_exact,
    library_conventions,
    ways_to_read,
)
from attncli.commands.check.direction import is_systematic
from attncli.commands.check.explanations import (
    distinguished_by,
    explanation,
    hidden_bugs,
    in_common,
)
from attncli.commands.check.generated import described
from attncli.commands.check.observe import GIVEN, Pick, differing_inputs, to_numpy
from attncli.commands.check.places import Labels, stage_verdict
from attncli.commands.check.probe import read_probe
from attncli.commands.check.questions.answer import Solution
from attncli.commands.check.questions.asking import (
    instead_of_fitted,
    looked_up,
    solved,
    solved_at_last,
)
from attncli.commands.check.questions.gradients import causes_beside
from attncli.commands.check.readings import (
    TOKENS_FIRST,
    Observed,
    readings,
    tokens_first,
    turned_outputs,
    with_projection,
)
from attncli.commands.check.search import Causes, Match, Progress, Search
from attncli.commands.check.verdict import Status, Verdict
from attncli.convention import KNOBS, Convention, Layout, convention_of
from attncli.errors import ConventionError, ShapeError, StageError
from attncli.files.messages import listing
from attncli.stages import GRADIENTS, OUTPUT
from attncli.tolerance.comparison import Comparison, comparison_of
from attncli.tolerance.number_types import EPS, SMALL, fitting_type, narrower
from attncli.tolerance.rule import Inside, Rule, rule_of
from attncli.tolerance.run import PROJECTION
from attncli.tolerance.setup import Setup, setup_of
from attncli.tolerance.shapes import WrongShapeError, fitting_layouts
from attncli.tolerance.spans import in_four


@np.errstate(over="ignore", invalid="ignore")  # what is observed may be any number
def check(  # noqa: PLR0913
    observed: Any = None,
    q: Any = None,
    k: Any = None,
    v: Any = None,
    *,
    stage: str = OUTPUT,
    layout: Layout | None = None,
    convention: Convention | None = None,
    chosen: Collection[str] | None = None,
    positions: str | None = None,
    decimals: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    zeros: Mapping[str, int] = MappingProxyType({}),
    inside: Inside | None = None,
    tiles: int | None = None,
    split: Sequence[int] | None = None,
    rows: Pick = None,
    heads: Pick = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
    projected: Inputs | None = None,
    pairs: bool = True,
    progress: Progress = None,
    before_search: Callable[[], None] = lambda: None,
    **more: Any,
) -> Verdict:
    """Do these numbers match, and if not, which bug is it?

    observed    an array, the stage of that name; or a mapping of several stages by name. Inputs
                among them (q, k, v, mask …) must be the given ones. Left out, or None, where
                gradients are keywords
    stage       a name that libraries have for one will do, such as attn_weights
    d_q, d_k …  among `more`: observed gradients by their names, d_q, d_k, d_v, d_weights, d_scores,
                delta, d_sinks, d_bias; they need d_output, and are compared whole
    q, k, v …   what `attend` takes, with mask, past_k, past_v, kv_len, sinks and d_output among
                `more`; the convention is the one that ought to have been followed. Its fields are
                keywords too, such as causal=True, beside it or instead of it
    chosen      which fields of the convention were chosen: where the numbers differ, the others are
                tried as each library has them. Default: the keywords, and what is not the default
    layout      another order of the axes of q, k, v, the cache and the observed output, such as
                "bshd"; the other stages have their heads before their rows in every layout
    positions   "paper", "article" (sinusoidal, added to q, k and v, which are embeddings of one
                width), "rope-halves", "rope-interleaved" (rotary, q and k are rotated): they are
                put in here, so q, k, v and the past are given without. Keys count from 0, the
                cached ones first; queries from the length of the past. Among several observed
                stages, q, k and v are those without positions as well, as are d_q and d_k. Numbers
                follow behind a colon, such as "rope-halves:base=500000,part=0.5,factor=8": the base
                of the frequencies, the part of the width that is rotated (a share, or a number of
                entries), and the factor by which positions are divided (linear scaling)
    decimals    the numbers were printed with so many; or rtol and atol; else as far as rounding in
                their number type explains, or where they look rounded, half a unit of the last
                decimal of their stage
    zeros       stage → the decimals of numbers printed with zeros at their end: 2 for 0.40
    inside      accepts this less exact arithmetic inside: "float32", "tf32", "float16", "bfloat16"
    tiles       the observed stages are those of a walk through tiles of so many keys, such as
                "tile.2.m", "tile.2.l", "tile.2.acc", "output" and "lse"; see `attend_tiles`
    split       the keys were cut after so many, and the parts merged by their log-sum-exp: what may
                go wrong there is tried with these parts; see `attend_split`
    rows, heads which query rows and heads were observed, counted from 0; else all
    q_gain, k_gain  among `more`, with qk_norm: the gains of the norm of queries and keys, [d_k]
                each; the norm comes before the positions, as models have it
    w_o, b_o    among `more`: the output projection, [h·d_v, d_out] and [d_out]. With it the stage
                "projected" is known, and an output may be that of the heads or that after it
    projected   x, the weights and how q, k and v were made of them: their bugs are tried too
    pairs       whether pairs of bugs are tried where no single one fits
    progress    called with how many bugs, then pairs, then edits, are tried, and of how many
    before_search  called where the numbers differ, before any bug is tried

    Arrays are whatever NumPy or DLPack takes, PyTorch and JAX tensors included. Numbers are
    judged in the type they came in, or in the convention's where that is narrower.
    Raises ShapeError, StageError and ConventionError for inputs that do not fit together; an
    observed array of a wrong shape is no error but a verdict.

    >>> q, k, v = [[1, 0], [0, 1], [1, 1]], [[1, 1], [1, 0], [0, 1]], [[10, 0], [0, 10], [5, 5]]
    >>> printed = [0.42, 0.42, 0.16]
    >>> check(printed, q, k, v, stage="weights", rows=[0], decimals=2).explanations[0].name
    'scale left out'
    """
    arrays = _observed(observed, stage, more)
    projection = {name: more.pop(name) for name in PROJECTION if more.get(name) is not None}
    if missing := [name for name, x in (("q", q), ("k", k), ("v", v)) if x is None]:
        raise ShapeError(f"there is no {missing[0]}", "check needs q, k and v")
    fields = {name: more.pop(name) for name in KNOBS if name in more}
    convention, means = convention_of(convention, fields), fields.get("mask_means")
    inputs = {name: x for name, x in {"q": q, "k": k, "v": v, **more}.items() if x is not None}
    inputs = {name: to_numpy(x, name)[0] for name, x in inputs.items()}
    choices = UserChoices(_chosen(chosen, convention, fields), inputs.get("mask"), means)
    setup = setup_of(
        **inputs, layout=layout, means=means, convention=convention, positions=positions
    )
    setup = _in_parts(replace(setup, projected=projected), tiles, split)
    setup = with_projection(setup, projected, projection)
    rule = rule_of(decimals, rtol, atol, setup.convention.dtype, inside)
    hints = partial(_with_hints, observed=arrays, setup=setup, layout=layout)
    if wrong := differing_inputs(arrays, inputs, setup, layout):
        first = next(iter(wrong))
        return Verdict("no match", rule.dtype, first_difference=first, notes=tuple(wrong.values()))
    is_default = not (choices.fields or convention.changes())
    labels = {"query": query_labels or (), "key": key_labels or ()}
    plain = Verdict("match", rule.dtype, is_default=is_default)
    judge = partial(_judged, plain=plain, rule=rule, zeros=zeros, labels=labels)
    judged = judge(arrays, Observed(setup, rows, heads, layout))
    is_match = judged.verdict is not None and judged.verdict.matches
    if not is_match and (other := tokens_first(projected)) is not None:
        turned_setup = replace(
            setup_of(**other.qkv, **other.gains, convention=convention, positions=positions),
            projected=other,
        )
        turned_setup = with_projection(turned_setup, other, projection)
        turned = judge(turned_outputs(arrays), Observed(turned_setup, rows, heads, None))
        if turned.verdict is not None and turned.verdict.matches:
            first = turned.verdict.stages[0].name
            return Verdict("wrong shape", rule.dtype, first_difference=first, shape=TOKENS_FIRST)
    if judged.verdict is not None:
        verdict = judged.verdict
        if verdict.matches and rule.inside is not None and judged.comparison is not None:
            verdict = _as_allowed(verdict, judged.comparison, labels, progress, choices)
        return hints(verdict, rule=judged.rule)
    differing = judged.differing
    before_search()
    verdicts = list[Verdict]()
    for ways in differing:
        verdicts.append(_with_cause_in(ways, progress, choices, pairs))
        if verdicts[-1].status != "no match":
            break  # no other reading explains more
    if all(verdict.status == "no match" for verdict in verdicts):
        otherwise = "; read otherwise it differs as well" * (len(verdicts) > 1)
        verdicts[-1] = replace(verdicts[0], reading=verdicts[0].reading + otherwise)
    return hints(verdicts[-1], rule=differing[0][0][1].rule)


class _Judged(NamedTuple):
    """What a reading gives without a search: a match, with its comparison, or a wrong shape; else
    all that differ, each in every way to read its numbers."""

    verdict: Verdict | None
    rule: Rule
    differing: Sequence[Sequence[tuple[Verdict, Comparison]]] = ()
    comparison: Comparison | None = None


def _judged(
    arrays: Mapping[str, Any],
    observed: Observed,
    plain: Verdict,
    rule: Rule,
    zeros: Mapping[str, int],
    labels: Mapping[str, Sequence[str]],
) -> _Judged:
    """Does what was observed match, in any reading of what the arrays are?"""
    differing = list[list[tuple[Verdict, Comparison]]]()
    for reading in readings(arrays, observed, rule):
        try:
            observation = observed._replace(setup=reading.setup).seen(reading.stages)
        except WrongShapeError as error:
            return _Judged(_wrong_shape(error, observed.setup, rule), rule)
        own_rule = replace(rule, dtype=narrower(observation.dtype, rule.dtype))
        whole = comparison_of(reading.setup, observation.subset, observation.stages, own_rule)
        notes = (*reading.notes, *observation.notes)
        reading_text = reading.words("is taken as")
        draft = replace(plain, dtype=own_rule.dtype, reading=reading_text, notes=notes)
        ways = [*ways_to_read(draft, whole, zeros, labels)]
        for verdict, comparison in ways:
            if comparison.matches:
                draft = replace(verdict, reading=reading.words("is"))
                judged = _with_direction(draft, comparison)
                return _Judged(judged, comparison.rule, comparison=comparison)
        differing.append(ways)
    return _Judged(None, rule, differing)


def _observed(observed: Any, stage: str, more: dict[str, Any]) -> dict[str, Any]:
    """The observed stages by name; gradients among the keywords are taken out of these."""
    arrays: dict[str, Any] = {} if observed is None else {stage: observed}
    if isinstance(observed, Mapping):
        arrays = dict(observed)
    arrays |= {name: more.pop(name) for name in GRADIENTS if name in more}
    if not arrays:
        raise StageError("nothing was observed", "give an array, or d_q=, d_k= and d_v=")
    return arrays


def _chosen(
    names: Collection[str] | None, convention: Convention, fields: Collection[str]
) -> set[str]:
    """The fields of the convention that were chosen; ConventionError for one that there is not."""
    if names is None:
        return {*convention.changes(), *fields}
    if unknown := sorted({*names} - {*KNOBS}):
        raise ConventionError(f"a convention has no field {unknown[0]!r}", "leave it out of chosen")
    return {*names}


def _in_parts(setup: Setup, tiles: int | None, split: Sequence[int] | None) -> Setup:
    """The setup in tiles, or with its keys cut; ConventionError where it cannot be so."""
    if tiles is None and split is None:
        return setup
    check_parts(setup.convention)
    if tiles is not None and split is not None:
        raise ConventionError("tiles and split are both given", "leave one of the two out")
    if tiles is not None:
        tile_bounds(setup.shape[3], tiles)
        return replace(setup, tiles=int(tiles))
    return replace(setup, split=tuple(split_bounds(setup.shape[3], split or ())[1:-1]))


def _with_hints(
    verdict: Verdict, observed: Mapping[str, Any], setup: Setup, layout: Layout | None, rule: Rule
) -> Verdict:
    """The verdict with notes on what would help: a tolerance of 8-bit numbers, a layout."""
    (_, n_heads, n_q, n_k), hints = setup.shape, []
    if rule.kind == "noise":
        kinds = {name: type_name(x) for name, x in observed.items() if name not in GIVEN}
        small = {name: kind for name, kind in kinds.items() if is_small(kind) and kind not in EPS}
        hints = [f"{name} is {kind}: pass rtol and atol" for name, kind in small.items()]
    is_unknown = verdict.status in {"no match", "wrong shape"}
    if is_unknown and layout is None and setup.ndim > 2 and n_heads > max(n_q, n_k):
        hints.append(f"there are {n_heads} heads of {n_k} keys: {layout_hint(setup.ndim)}")
    return replace(verdict, notes=(*verdict.notes, *hints)) if hints else verdict


def _with_direction(verdict: Verdict, comparison: Comparison) -> Verdict:
    """The verdict where every error is within rounding: does their direction tell a bug?"""
    if comparison.setup.tiles:  # m, l and acc of a right kernel may be off by as much as each other
        return verdict
    search = Search(comparison)
    if any(name in GRADIENTS for name in comparison.errors):
        verdict = replace(verdict, hidden=tuple(bug.name for bug in hidden_bugs(search)))
    if comparison.rule.kind != "noise" or comparison.rule.dtype not in SMALL:
        return verdict
    matches, undecided = search.within_rounding()
    verdict = replace(verdict, undecided=tuple(bug.name for bug in undecided))
    if not matches:
        return replace(verdict, exactness=search.sampled.exactness())
    verdict = replace(verdict, quiet=True, first_difference=verdict.stages[0].name)
    return _explained(verdict, search.distinct(matches), comparison)


def _as_allowed(
    verdict: Verdict,
    comparison: Comparison,
    labels: Labels,
    progress: Progress,
    choices: UserChoices,
) -> Verdict:
    """The verdict on numbers that match by less exact arithmetic inside, if nothing else explains.

    To allow this asks for less of a right implementation, and hides no bug: what a bug, an edit or
    a fitted number gives exactly, or what is off by a few numbers, rounding did not make.
    """
    exactly = replace(comparison.rule, inside=None)
    exact = comparison_of(comparison.setup, comparison.subset, comparison.observed, exactly)
    if exact.matches:
        return verdict
    search = Search(exact, progress)
    if (less := less_exact(exact, search.samples[0])) and less.is_certain:
        return verdict
    stages = tuple(stage_verdict(name, exact, labels) for name in exact.errors)
    cause = _with_cause(replace(verdict, stages=stages), search, choices, pairs=True)
    is_known = cause.edit or cause.status not in ("inside", "no match")
    return cause if is_known or is_systematic(comparison) else verdict


def _with_cause_in(
    ways: Sequence[tuple[Verdict, Comparison]],
    progress: Progress,
    choices: UserChoices,
    pairs: bool,
) -> Verdict:
    """The verdict with the cause that the first way to judge the numbers names; pairs of bugs last.

    One with a fitted number only where no other is named: float32 rounds at the limits of a print.
    Where none is, the verdict by which most stages match before the first that differs.
    """
    names, verdicts = [*ways[0][1].errors], list[Verdict]()
    for with_pairs in (False, True) if pairs and len(ways) > 1 else (pairs,):
        for plain, comparison in ways:
            verdict = _with_cause(plain, Search(comparison, progress), choices, with_pairs)
            verdicts.append(verdict)
            bugs = [bug for explanation in verdict.explanations for bug in explanation.bugs]
            if verdict.status != "no match" and not any(bug.is_fitted for bug in bugs):
                return verdict
        if causes := [verdict for verdict in verdicts if verdict.status != "no match"]:
            return causes[0]
    return max(verdicts, key=lambda verdict: names.index(verdict.first_difference))


def _with_cause(verdict: Verdict, search: Search, choices: UserChoices, pairs: bool) -> Verdict:
    """The verdict with its cause, and a note on each bug that could not be computed."""
    verdict = _caused(verdict, search, choices, pairs)
    verdict = replace(verdict, probe=read_probe(search.comparison))
    notes = (f"{name!r} was not tried: {why}" for name, why in search.unbuilt.items())
    return replace(verdict, notes=(*verdict.notes, *notes))


def _caused(verdict: Verdict, search: Search, choices: UserChoices, pairs: bool) -> Verdict:
    """The verdict with what explains it: single bugs and conventions of libraries; else pairs of
    bugs; else an edit of the formulas; else less exact arithmetic inside."""
    comparison = search.comparison
    first = next(stage.name for stage in verdict.stages if not stage.matches)
    verdict, kernel = replace(verdict, first_difference=first), _kernel_of(search)

    def before_fitted(search: Search) -> list[Match]:
        rows = looked_up(search)  # which a library may mean by its convention
        return [] if rows and library_conventions(search, choices, []) else rows

    matches, of_kernel = _singles(search, kernel, before_fitted)
    if comparison.setup.tiles:  # no library means another running maximum, sum or values
        return _explained(verdict, matches, comparison)
    notes = [*verdict.notes]
    if search.only_nan:
        notes.append("every wrong number is NaN: only bugs that make NaN were tried")
    for name, n in search.skipped.items():
        notes.append(f"{name!r} was not tried: it needs {n} scores at once")
    meanings = library_conventions(search, choices, matches)
    verdict = replace(verdict, meanings=meanings, notes=tuple(notes))
    if not matches and meanings:
        return replace(verdict, status="meaning")
    less = None if matches else less_exact(comparison, search.samples[0])
    if less and less.is_certain:
        return replace(verdict, status="inside", inside=less.inside)
    pairs |= less is not None  # less exact is said only of what nothing gives exactly
    if kernel and of_kernel and not matches:
        of_pass = _of_one_pass(_of_kernel(verdict, kernel), of_kernel)
        return _explained(*of_pass, kernel.comparison)
    if not matches and (solutions := solved(search)):
        return _solved(verdict, solutions)
    if matches := search.distinct(matches or (search.pairs() if pairs else [])):
        return _explained(*_of_one_pass(verdict, matches), comparison)
    edit = described(kernel or search) if pairs else None
    verdict = _of_kernel(verdict, kernel) if edit and kernel else verdict
    if less and not edit:
        rule = replace(comparison.rule, inside=less.inside)
        if not is_systematic(comparison.under(rule)):
            return replace(verdict, status="inside", inside=less.inside)
    if not edit and (matches := solved_at_last(search)):
        return _explained(verdict, matches, comparison)
    return replace(verdict, status="no match", edit=edit)


def _singles(
    search: Search, kernel: Search | None, before_fitted: Causes
) -> tuple[list[Match], list[Match]]:
    """The single bugs that explain everything, and those that explain what a kernel has wrong.

    Only a bug that explains the wrong gradients may explain all: the others are not tried.

    before_fitted  what else may explain everything, and is asked before any number is fitted
    """
    if kernel is None:
        return instead_of_fitted(search, search.singles(before_fitted=before_fitted)), []
    right = search.comparison.errors.keys() - kernel.comparison.errors.keys()
    of_kernel = causes_beside(right, kernel.comparison, search, Search.causes)
    if not of_kernel:
        search.without_singles()
        return [], []
    bugs = [match.bugs[0] for match in of_kernel]
    return instead_of_fitted(search, search.singles(bugs)), of_kernel


def _kernel_of(search: Search) -> Search | None:
    """The search for a bug of those gradients alone that are wrong; None where no other is right.

    Kernels compute again what each needs: the weights for dQ, and once more for dK and dV.
    """
    errors = search.comparison.errors
    right = [name for name in OF_KERNELS if name in errors and errors[name].matches]
    wrong = {name: stage for name, stage in errors.items() if name not in right}
    if not right or not wrong.keys() & {*OF_KERNELS} - {"d_sinks"}:  # so few fit by chance
        return None
    return Search(replace(search.comparison, errors=wrong), search.progress)


OF_KERNELS = "d_q", "d_k", "d_v", "d_bias", "d_sinks"
"""The gradients that no other gradient is computed of."""


def _of_kernel(verdict: Verdict, kernel: Search) -> Verdict:
    """The verdict with a note that only those gradients have the bug."""
    names = [*kernel.comparison.errors]
    has = "has" if len(names) == 1 else "have"
    note = f"the other gradients match: only {listing(names)} {has} the bug"
    return replace(verdict, notes=(*verdict.notes, note))


def _of_one_pass(verdict: Verdict, matches: list[Match]) -> tuple[Verdict, list[Match]]:
    """Without the bugs of both passes where one of the backward pass alone fits; with a note."""
    back = [match for match in matches if any(GRADIENT in bug.touches for bug in match.bugs)]
    both = [match for match in matches if match not in back]
    if not back or not both or not all(stage.name in GRADIENTS for stage in verdict.stages):
        return verdict, matches
    names = ", ".join(bug.name for match in both for bug in match.bugs)
    note = f"the forward pass was not observed; a bug in it gives the same gradients: {names}"
    return replace(verdict, notes=(*verdict.notes, note)), back


def _explained(verdict: Verdict, matches: Sequence[Match], comparison: Comparison) -> Verdict:
    """The verdict with no explanation, with one, or with several and what distinguishes them."""
    statuses: tuple[Status, ...] = ("no match", "found", "ambiguous")
    explanations = tuple(explanation(match, comparison) for match in matches)
    status = statuses[min(len(matches), 2)]
    verdict = replace(verdict, status=status, explanations=explanations)
    if len(matches) < 2 or comparison.setup.tiles:
        return verdict
    tell_apart = distinguished_by(matches, comparison)
    return replace(verdict, common=in_common(matches, comparison), tell_apart=tell_apart)


def _solved(verdict: Verdict, solutions: Sequence[Solution]) -> Verdict:
    """The verdict with what the numbers say of their causes, one for each part that is wrong."""
    first, *others = (
        _explained(verdict, x.matches, x.comparison).of_part(x.part) for x in solutions
    )
    explanations = (x for other in others for x in other.explanations)
    status: Status = "several" if others else first.status
    return replace(first, status=status, explanations=(*first.explanations, *explanations))


def _wrong_shape(error: WrongShapeError, setup: Setup, rule: Rule) -> Verdict:
    """What is wrong with the shape, which layouts would be right, and whether they match then."""
    sentences = [error.message]
    for words, array in fitting_layouts(error.array, error.expected):
        dtype = narrower(fitting_type(array, error.dtype), rule.dtype)
        stages = {error.stage: in_four(error.stage, array, setup.convention.softmax_over)}
        comparison = comparison_of(setup, error.subset, stages, replace(rule, dtype=dtype))
        matches = any(candidate.matches for candidate, _ in as_printed(comparison, {}))
        outcome = "then it matches" if matches else "then it still differs"
        sentences.append(f"{words}; {outcome}")
    if len(sentences) == 1 and error.may_be_subset:
        sentences.append("If it is one row or head, say which: --rows 1, --head 1 (rows=, heads=)")
    shape = ". ".join(sentences)
    return Verdict("wrong shape", rule.dtype, first_difference=error.stage, shape=shape)
