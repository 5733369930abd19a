"""Where no known bug explains the numbers: the shortest edit of the formulas that gives them.

Every formula of the plan is edited in every way that is one slip, as single_edits.py has them, and
what several formulas read as the templates behind the catalogue have it. What fits is described and
never called the cause.

    no known bug; these are the numbers of δ[b,h,i − 1] where the formula has δ[b,h,i]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod
from typing import get_args, get_type_hints

from attncli.attention.run import Step
from attncli.commands.check.bugs.catalogue import TEMPLATES
from attncli.commands.check.bugs.edits import Patch, variants
from attncli.commands.check.bugs.patch import Plan, forward_again, whole_plan
from attncli.commands.check.bugs.patch import backward as start_of_gradients
from attncli.commands.check.bugs.rewrite import formula_of
from attncli.commands.check.bugs.terms import sizes_of
from attncli.commands.check.findings import Edit
from attncli.commands.check.search import Search, enough_evidence, most_at_once
from attncli.commands.check.single_edits import FORMS, slips, within
from attncli.commands.check.slip import Screen, Slip
from attncli.errors import ConventionError, InputError
from attncli.formula.expression import Cell, Expr, Index, cells, letters_in, line_of, text_of
from attncli.formula.matrices import shown
from attncli.formula.parser import parsed
from attncli.stages import GRADIENTS
from attncli.tolerance.run import at_once
from attncli.tolerance.setup import Setup


def candidates(search: Search) -> list[Slip]:
    """Every slip of a formula that what differs follows from, and what matches does not."""
    comparison, setup = search.comparison, search.comparison.setup
    plan = whole_plan(setup)
    wrong = [name for name, stage in comparison.errors.items() if not stage.matches]
    right = [name for name, stage in comparison.errors.items() if stage.matches]
    before = sources(plan, wrong[:1]) - sources(plan, right)
    again = forward_again(plan) if any(name in GRADIENTS for name in wrong) else {}
    result = list[Slip]()
    steps = [(step, False) for step in plan if step.name in before]
    for step, is_again in [*steps, *((step, True) for step in again.values())]:
        formula = formula_of(step, setup.inputs)
        if formula.body == Cell("right", formula.index):
            continue
        place = step.name if not is_again else next(x for x, y in again.items() if y is step)
        text_steps = [] if is_again else [x for x in plan if x.function is None and x.text]
        alike = [x.name for x in text_steps if formula_of(x).body == formula.body]
        if step.name != next((name for name in alike if name in before), step.name):
            continue
        has_one_width = setup.d_k == setup.inputs["v"].shape[-1]
        sizes, forms = sizes_of(setup, step.name), [] if is_again else _forms_of(step)
        others = list[Cell]()
        if len(alike) == 1 or (alike and has_one_width):
            others = _others(plan, setup, step, [formula.body, *forms])
        index = formula_of(step).index
        edits = [(formula.body, *edit) for edit in slips(formula, index, sizes, others)]
        for form in forms:
            of_form = within(form, {**sizes, "c": sizes["j"]}, others)
            edits += [(form, *edit) for edit in of_form]
        for right_side, body, old, new in edits:
            slip = Slip((place,), is_again, body, old, new, right_side)
            result += [slip._replace(places=(name,)) for name in alike or [place]]
            if len(alike) > 1 and (
                "d" in letters_in(body) or sizes["d"] == setup.d_k == sizes["e"]
            ):
                result.append(slip._replace(places=(*alike,)))
    return sorted(result, key=lambda slip: slip.cost)


def _forms_of(step: Step) -> list[Expr]:
    """How a kernel computes a step otherwise."""
    is_over_keys = step.params.get("axis", -1) == -1
    form = FORMS.get(step.name) if is_over_keys else None
    return [parsed(form["sinks" in step.reads])] if form else []


def _others(plan: Plan, setup: Setup, step: Step, bodies: Iterable[Expr]) -> list[Cell]:
    """The arrays that a step could read by mistake, which do not follow from it.

    A gradient may read one of the same shape in the place of each of its own.
    """
    start = start_of_gradients(plan)
    gradients = {x.name for x in plan[start:]}
    readable = plan if step.name in gradients else plan[:start]
    sizes, indices = sizes_of(setup, step.name), {x.index for body in bodies for x in cells(body)}
    result = list[Cell]()
    for x in readable:
        if x.function is None and step.name not in sources(plan, [x.name]):
            index = formula_of(x).index
            result.append(Cell(x.name, index))
            shape = _shape(index, sizes_of(setup, x.name))
            fits = (at for at in indices - {index} if _shape(at, sizes) == shape)
            result += [Cell(x.name, at) for at in fits if step.name in gradients]
    queries = [at for at in indices if _shape(at, sizes) == setup.inputs["q"].shape]
    return [*result, *(Cell("q", at) for at in queries if step.name in gradients)]


def _shape(index: Sequence[Index | Expr], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """How long the axes of an index are; 0 where that is not known."""
    lengths = {**sizes, "r": sizes["n"]}
    letters = (map(str, axis) if isinstance(axis, tuple) else ("",) for axis in index)
    return tuple(prod(lengths.get(x, 0) for x in axis_letters) for axis_letters in letters)


def sources(plan: Sequence[Step], names: Iterable[str]) -> set[str]:
    """The steps that some stages follow from, themselves included."""
    reached = {*names}
    for step in reversed(plan):
        if step.name in reached:
            reached |= {*step.reads.values()}
    return reached & {step.name for step in plan}


def described(search: Search) -> Edit | None:
    """The shortest edit of the formulas that gives the observed numbers; None where none does.

    None is looked for where so many edits could not be told apart by so few numbers.
    """
    comparison, setup = search.comparison, search.comparison.setup
    tried, templates = candidates(search), [*_of_templates(setup, search)]
    total = len(tried) + len(templates)
    if not tried or not enough_evidence(comparison, total):
        return None
    tries, fits = _Tries(search), list[Slip]()
    screen = Screen(search.narrow, search.evidence, tried) if tries.is_allowed(setup) else None
    for number, (patch, line) in enumerate(templates, 1):
        search.progress(number, total)
        if tries.fits(patch):
            return line
    for number, slip in enumerate(tried, len(templates) + 1):
        if fits and slip.cost > fits[0].cost:
            break
        search.progress(number, total)
        whole = screen.refused(slip) if screen else None
        if whole is not None:
            tries.affords(setup.with_whole(*whole))
        elif any(tries.fits(Patch(way, search.evidence)) for way in slip.ways):
            fits.append(slip)
    return _in_words(fits, setup) if fits else None


def of_conventions(setup: Setup) -> Iterator[str]:
    """Every other choice of one field of the convention, and of the positions."""
    for owner, kind in ((setup.convention, "convention"), (setup.positions, "positions")):
        hints = get_type_hints(type(owner)) if owner is not None else {}
        for name, hint in hints.items():
            choices = (False, True) if hint is bool else get_args(hint)
            for choice in (x for x in choices if isinstance(x, bool | str)):
                if name.startswith("empty_rows"):
                    yield f"empty_rows: => {choice}"
                elif choice != getattr(owner, name) and name not in ("dtype", "lse_base"):
                    yield f"{kind}.{name}: => {choice!r}"
            if kind == "positions" and hint is int and name != "n_past":
                yield from (f"{kind}.{name}: => {name} {sign} 1" for sign in "+-")
    if setup.positions is not None:
        for n in range(4):
            for some in combinations("qkv", n):
                yield f"positions.on: => {some!r}"
        yield "positions.from_new: => 0 when n_past"
        for field in ("back_on", "forth_on"):
            yield from (
                f"positions.{field}: => {some!r}"
                for some in ((), ("d_q",), ("d_k",), ("d_q", "d_k"))
            )


class _Tries:
    """Tries patches on a few rows of a comparison, then on its samples and on everything.

    budget  so many scores may still be computed for patches that need whole heads for a few rows
    """

    def __init__(self, search: Search) -> None:
        self.search, self.setup = search, search.comparison.setup
        self.budget = max(LEAST, WHOLE * prod(self.setup.shape))

    def fits(self, patch: Patch) -> bool:
        """Whether a patch gives the observed numbers; False for one that is refused.

        A convention is refused that does not exist, and a formula of which nothing says how long
        an axis is, or in which one letter runs along axes of two lengths: there NumPy raises
        ValueError.
        """
        try:
            other = patch.on(self.setup)
            if other is None or not self.is_allowed(other) or not self.affords(other):
                return False
            return bool(self.search.fits([other]))
        except (ConventionError, InputError, ValueError):
            return False

    def is_allowed(self, other: Setup) -> bool:
        """Whether a setup exists, and computes what was observed."""
        return not other.is_refused and self.search.has_all(other)

    def affords(self, other: Setup) -> bool:
        """Whether the whole axes of a setup may still be computed; takes them off the budget."""
        if other.whole_axes != self.setup.whole_axes:
            if at_once(other) > min(self.budget, max(most_at_once(), at_once(self.setup))):
                return False
            self.budget -= at_once(other)
        return True


LEAST, WHOLE = 2**24, 2
"""How many scores are computed at most for patches that need whole heads: so many, or so many
times those of everything that is compared."""


def _in_words(fits: Sequence[Slip], setup: Setup) -> Edit:
    """The first of the slips with the formula that it changes."""
    slip, plan = fits[0], whole_plan(setup)
    steps = forward_again(plan) if slip.again else {step.name: step for step in plan}
    formula = formula_of(steps[slip.places[0]], setup.inputs)
    bodies = slip.right, slip.body
    right, edited = (shown(line_of(replace(formula, body=x))) for x in bodies)
    old, new = shown(text_of(slip.old)), shown(text_of(slip.new))
    return Edit(" and ".join(slip.places), right, edited, old, new, len(fits) - 1)


def _of_templates(setup: Setup, search: Search) -> Iterator[tuple[Patch, Edit]]:
    """Patches of the templates, with the line that each is."""
    for line in (*TEMPLATES, *of_conventions(setup)):
        for patch in variants([line], setup, search.evidence):
            words = "; ".join(edit.words for edit in patch.edits)
            # In verdicts as JSON a field of the convention is called how.NAME.
            stage = re.sub(r"^convention\.", "how.", line.partition(":")[0])
            yield patch, Edit(stage, "", words)
