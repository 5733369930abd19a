"""Where no known bug explains the numbers: the shortest edit of the formulas that gives them.

Every formula of the plan is edited in every way that is one slip: a letter of an index shifted,
exchanged or 0, another array, another operator, an operand or a function left out, another bound, a
factor, a sum of other terms. What fits is described and never called the cause.

    no known bug; these are the numbers of δ[b,h,i − 1] where the formula has δ[b,h,i]
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import combinations
from math import isfinite, prod
from typing import Any, NamedTuple, get_args, get_type_hints

from attncli.attention.matrices import shown
from attncli.attention.run import Step
from attncli.check.bugs.edits import DELTAS, Patch, variants
from attncli.check.bugs.edits import Edit as Change
from attncli.check.bugs.numbers import LOOPS, last_blocks, sizes_of
from attncli.check.bugs.patch import Plan, forward_again, whole_plan
from attncli.check.bugs.patch import backward as start_of_gradients
from attncli.check.bugs.rewrite import formula_of
from attncli.check.run import at_once
from attncli.check.search import Search, enough_evidence, most_at_once
from attncli.check.setup import Setup
from attncli.check.verdict import Edit
from attncli.errors import ConventionError, InputError
from attncli.expression import (
    Apply,
    Cell,
    Expr,
    Formula,
    If,
    Index,
    Number,
    Over,
    Param,
    Place,
    Size,
    cells,
    letters_at,
    letters_in,
    line_of,
    rebuilt,
    text_of,
    walk,
)
from attncli.parser import parsed
from attncli.stages import GRADIENTS

FACTORS = "2", "1 / 2", "-1", "0", "ln(2)", "1 / ln(2)"
"""What a number may be multiplied by."""
OF_STAGES = (*FACTORS, "scale", "1 / scale")
"""What a whole formula may be; also by the sizes of its letters."""
OPERATORS = {
    **{"+": ("-",), "-": ("+",), "*": ("/",), "/": ("*",)},
    **dict.fromkeys(("<", "<=", ">", ">="), ("<", "<=", ">", ">=")),
    **{"==": ("!=",), "!=": ("==",), "and": ("or",), "or": ("and",)},
}
COMPARED = "==", "!=", "<", "<=", ">", ">="
FUNCTIONS = {"exp": ("exp2",), "ln": ("log2",), "tanh": ("sigmoid",), "max": ("min",)}


class Slip(NamedTuple):
    """One edit of one formula, or of the same part in two.

    right  the right side that is edited: that of the formula, or another form of it
    cost   how many signs differ: of edits with the same numbers the shortest is said
    """

    places: tuple[str, ...]
    again: bool
    body: Expr
    old: Expr
    new: Expr
    right: Expr

    @property
    def cost(self) -> int:
        """How much is written anew; an edit of what is computed again comes after the others."""
        old, new = (sum(1 for _ in walk(x, guards=True)) for x in (self.old, self.new))
        letters = len(cells(self.new, guards=True)[0].index) if isinstance(self.new, Cell) else 0
        return 4 * abs(new - old) + new + letters + 10 * self.again + 5 * (len(self.places) - 1)


# ---- every single slip of a formula


def slips(
    formula: Formula, index: tuple[Index, ...], sizes: Mapping[str, int], others: Collection[Cell]
) -> Iterator[tuple[Expr, Expr, Expr]]:
    """Every changed right side of a formula, with the part that was there and what stands there.

    index   of all axes of the stage
    sizes   of the letters
    others  cells of other arrays that could be read by mistake
    """
    right = formula.body
    for body in dict.fromkeys((right, rebuilt(right, _unguarded))):
        yield from _within(body, sizes, others)
    for factor in (*OF_STAGES, *(f"1 / size[{x}]" for x in letters_at(index))):
        new = Apply("*", (right, parsed(factor)))
        yield new, Number(1.0), parsed(factor)
    for function in ("exp", "ln", "abs", "tanh"):
        yield Apply(function, (right,)), right, Apply(function, (Param("right"),))
    for letter in letters_at(index):  # what is not written stays 0
        place = Cell("rows", (("i",),)) if letter == "i" else Place(letter)
        for bound in bounds(sizes.get(letter, 0)):
            for sign in ("<", ">="):
                counts = Apply(sign, (place, Number(float(bound))))
                yield If(counts, right, Number(0.0)), Number(1.0), counts
    for own in {x for x in cells(right) if x.index == formula.index and x != right}:
        yield own, right, own  # the stage is left out
        yield _nested(right, own), own, right  # and is there twice
        if isinstance(right, Over) and right.where is not None:  # then with what was hidden
            yield replace(right, body=right, where=None), own, right
    cell = Cell("right", index)
    yield from ((other, cell, other) for other in _elsewhere(cell, sizes))


def _unguarded(node: Expr) -> Expr:
    """A node without what it hides: kernels leave a weight of 0 to do that."""
    match node:
        case If(_, then, Number(0.0)):
            return then
        case Over("sum"):
            return replace(node, where=None)
    return node


def _nested(body: Expr, own: Cell) -> Expr:
    """The formula applied to what it gives."""
    return rebuilt(body, lambda x: body if x == own else x)


def _within(
    node: Expr, sizes: Mapping[str, int], others: Collection[Cell]
) -> Iterator[tuple[Expr, Expr, Expr]]:
    """Every expression that differs in one node, with that node and its new form."""
    for new in _at(node, sizes, others):
        yield new, node, new
    if isinstance(node, Cell):
        return
    for field in fields(node):
        value = getattr(node, field.name)
        parts = value if isinstance(value, tuple) else (value,)
        for at, part in enumerate(parts):
            if not isinstance(part, Number | Param | Size | Place | Cell | Apply | If | Over):
                continue
            for new, old, own in _within(part, sizes, others):
                changed: Any = (
                    (*parts[:at], new, *parts[at + 1 :]) if isinstance(value, tuple) else new
                )
                yield replace(node, **{field.name: changed}), old, own


def _at(node: Expr, sizes: Mapping[str, int], others: Collection[Cell]) -> Iterator[Expr]:
    """What could stand by mistake where a node stands."""
    match node:
        case Cell(name, index):
            yield from _elsewhere(node, sizes)
            yield from (x for x in others if x.index == index and x.name != name)
            yield from (Apply("*", (node, parsed(factor))) for factor in (*FACTORS, "scale"))
            yield Apply("*", (node, node))
        case Number(value) if not isfinite(value):
            yield from (Number(0.0), Number(-value))
        case Number(value):
            yield from map(Number, {value + 1, value - 1, -value} - {value})
        case Param():
            yield from (Apply("*", (node, node)), Apply("/", (Number(1.0), node)), Number(1.0))
        case Size(letter):
            yield from (Size(x) for x in sizes if sizes[x] != sizes[letter])
            yield from (Apply(sign, (node, Number(1.0))) for sign in "+-")
        case Apply(function, (x,)):
            yield x
            yield from (Apply(other, (x,)) for other in FUNCTIONS.get(function, ()))
            if function not in ("neg", "not"):
                yield Apply(function, (node,))
        case Apply(_, (_, _)):
            yield from _other_operations(node)
        case If(condition, then, otherwise):
            yield from (then, otherwise, If(condition, otherwise, then))
        case Over():
            yield from _other_terms(node, sizes)


def _other_operations(node: Apply) -> Iterator[Expr]:
    """Another operation on two operands: another operator or order, one left out, no brackets."""
    sign, (a, b) = node.function, node.args
    yield from () if sign in COMPARED else (a, b)
    yield from (Apply(other, (a, b)) for other in OPERATORS.get(sign, ()) if other != sign)
    if sign in ("-", "/"):
        yield Apply(sign, (b, a))
    if sign in COMPARED[2:]:
        yield from (Apply(sign, (a, Apply(step, (b, Number(1.0))))) for step in "+-")
    match sign, a, b:
        case "*", _, Apply("+" | "-" as other, (c, d)):
            yield Apply(other, (Apply(sign, (a, c)), d))
        case "*" | "/", Apply("+" | "-" as other, (c, d)), _:
            yield Apply(other, (c, Apply(sign, (d, b))))


def _other_terms(node: Over, sizes: Mapping[str, int]) -> Iterator[Expr]:
    """A sum, or a softmax, of other terms."""
    if node.where is not None:
        yield replace(node, where=None)
    if node.sink is not None:
        yield replace(node, sink=None)
    elif node.kind in ("softmax", "lse"):
        yield replace(node, sink=Number(0.0))
    if node.kind == "softmax":
        letters = *((x,) for x in "ijhb"), ("i", "j")
        yield from (replace(node, letters=x) for x in letters if x != node.letters)
        for function in ("exp", "sigmoid", "tanh"):
            each = Apply(function, (node.body,))
            yield each if node.where is None else If(node.where, each, Number(0.0))
    if node.kind in ("sum", "lse"):
        yield replace(node, kind="max", sink=None)
    for letter in node.letters:
        n = sizes.get(letter, 0)
        if node.kind == "sum" and n > 1:
            yield Apply("/", (node, Size(letter)))
        for bound in bounds(n):
            for sign in ("<", ">="):
                counts = Apply(sign, (Place(letter), Number(float(bound))))
                both = counts if node.where is None else Apply("and", (node.where, counts))
                yield replace(node, where=both)


def bounds(n: int) -> list[int]:
    """Where a first block of n ends, or a last one or a half begins."""
    starts = {*last_blocks(n, LOOPS)} | {x for x in LOOPS if x < n}
    return sorted((starts | {n // 2, n - n // 2}) - {0, n}) if n > 1 else []


def _elsewhere(cell: Cell, sizes: Mapping[str, int]) -> Iterator[Cell]:
    """The same array at another place: of a neighbour, the first, or with two axes exchanged."""
    index = cell.index
    for at, axis in enumerate(index):
        if isinstance(axis, tuple) and len(axis) == 2:
            yield Cell(cell.name, (*index[:at], axis[::-1], *index[at + 1 :]))
        if not isinstance(axis, tuple) or len(axis) != 1 or sizes.get(str(axis[0]), 0) < 2:
            continue
        letter = str(axis[0])
        for sign in "-+":
            moved = Apply("%", (Apply(sign, (Place(letter), Number(1.0))), Size(letter)))
            yield Cell(cell.name, (*index[:at], moved, *index[at + 1 :]))
        yield Cell(cell.name, (*index[:at], (0,), *index[at + 1 :]))
        for other in range(at + 1, len(index)):
            pair = index[other]
            if (
                isinstance(pair, tuple)
                and len(pair) == 1
                and sizes.get(str(pair[0])) == sizes[letter]
            ):
                swapped = [*index]
                swapped[at], swapped[other] = pair, axis
                yield Cell(cell.name, tuple(swapped))


def _forms(text: str) -> tuple[str, str]:
    """A formula without a sink, and with one."""
    top, of_sink = "max[c](x[b,h,i,c])", "max(sinks[h], max[c](x[b,h,i,c]))"
    return (
        text.format(top=top, sink=""),
        text.format(top=of_sink, sink=f" + exp(sinks[h] - {of_sink})"),
    )


FORMS = {
    "delta": _forms(DELTAS["either delta"][1]),
    "lse": _forms("{top} + ln(sum[c](exp(x[b,h,i,c] - {top})){sink})"),
    "weights": _forms("exp(x[b,h,i,j] - {top}) / (sum[c](exp(x[b,h,i,c] - {top})){sink})"),
}
"""How kernels compute what has a shorter formula, where every query has a key."""


# ---- slips of what several formulas read, in the language of the catalogue

_FACTOR = ", ".join(OF_STAGES)
TEMPLATES = (
    f"d_q, d_k | d_k, d_v | d_q, d_k, d_v: => right * ({{factor}}) for factor in {_FACTOR}",
    f"weights, lse?: => right * ({{factor}}) for factor in {_FACTOR}",
    "scores.k, output.v: where => where i < {n} for n = <last i> of block in <loops>",
    "scores.k, output.v: where => where i >= {n} for n = <last i> of block in <loops>",
    "scores.k, output.v: where => where i >= {n} when 2 * {n} < size[i] for n in <blocks>",
    "weights, lse?: where => where j < {n} for n = <last j> of block in <loops>",
    "weights, lse?: where => where j >= {n} for n = <last j> of block in <loops>",
    "weights, lse?: where => where j >= {n} when 2 * {n} < size[j] for n in <blocks>",
    "weights, lse?: where => where j != {n} when size[j] <= 64 for n = 0 to size[j] - 1",
    "weights, lse?: where => where j >= {n} when size[j] <= 64 for n = 0 to size[j] - 1",
    "weights, lse?: where => where j < {n} when size[j] <= 64 for n = 0 to size[j] - 1",
    "input.k: => v[b,g,j,d]; input.v: => k[b,g,j,e]",
    "input.q: => k[b,h,i,d]; input.k: => q[b,g,j,d]",
    "input.v: => k[b,g,j,e]",
    "input.k: => v[b,g,j,d]",
    "input.k: => q[b,g,j,d]",
    "input.q: => k[b,key_head[h],i,d]",
    "input.k: => k[b,g,d,j]",
    "input.k: => k[{at},d]; input.v: => v[{at},e] for elsewhere(g,j)",
    "input.k: => k[{at},d] for elsewhere(g,j)",
    "input.v: => v[{at},e] for elsewhere(g,j)",
    "input.q: => q[{at},d] for elsewhere(h,i)",
    "input.given_gradient: => right[{at},e] for elsewhere(h,i)",
    "input.k: => k[{at},d] if j < n_cached else k[b,g,j,d];"
    " input.v: => v[{at},e] if j < n_cached else v[b,g,j,e] when n_cached for elsewhere(g,j)",
    "input.k: => k[{at},d] if j < n_cached else k[b,g,j,d] when n_cached for elsewhere(g,j)",
    "input.v: => v[{at},e] if j < n_cached else v[b,g,j,e] when n_cached for elsewhere(g,j)",
    "input.k: => k[b,g,(j + n_cached) % size[j],d];"
    " input.v: => v[b,g,(j + n_cached) % size[j],e] when n_cached",
    "input.k: => k[b,g,(j + n_cached) % size[j],d] when n_cached",
    "input.v: => v[b,g,(j + n_cached) % size[j],e] when n_cached",
    "input.k: => k[b,g,(d * size[j] + j) // size[d],(d * size[j] + j) % size[d]]",
    "scores: k[b,h,j,d] => k[b,h // size[g] * group,j,d];"
    " output: v[b,h,j,e] => v[b,h // size[g] * group,j,e] when grouped",
    "scores: k[b,h,j,d] => k[b,h % size[g] * group,j,d] when grouped",
    "output: v[b,h,j,e] => v[b,h % size[g] * group,j,e] when grouped",
    "either delta; again.k: => x[b,h % size[g] * group,j,d] when grouped",
    "either delta; again.v: => x[b,h % size[g] * group,j,e] when grouped",
    "mask(causal): => False; mask: => right if j // {n} <= (rows[i] + {first}) // {n} else -inf"
    " when causal and {n} < size[j] for n = 2, 4, 8, <blocks>",
    "own delta; again.mask(causal): => False; again.mask:"
    " => right if j // {n} <= rows[i] // {n} else -inf when causal for n = 2, 4, 8, <blocks>",
    "own delta; again.mask:"
    " => right if j // {n} < rows[i] // {n} else -inf when causal for n = 2, 4, 8, <blocks>",
    "how.window: => (ahead, back) when window",
    "input.given_mask: => None",
    "input.kv_len: => None",
    "input.kv_len: => right + {n} for n in -1, 1",
    "either delta; again.k: => x[{at},d]; again.v: => x[{at},e] for elsewhere(h,j)",
)
"""One slip in two formulas that share an operand, and arrays that are taken for one another."""


# ---- which of them there are for a setup, and which fits


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
        own = [] if is_again else [x for x in plan if x.function is None and x.text]
        alike = [x.name for x in own if formula_of(x).body == formula.body]
        if step.name != next((name for name in alike if name in before), step.name):
            continue
        has_one_width = setup.d_k == setup.inputs["v"].shape[-1]
        sizes, forms = sizes_of(setup, step.name), [] if is_again else _forms_of(step)
        others = list[Cell]()
        if len(alike) == 1 or (alike and has_one_width):
            others = _others(plan, setup, step, [formula.body, *forms])
        index = formula_of(step).index
        edits = [(formula.body, *one) for one in slips(formula, index, sizes, others)]
        for form in forms:
            of_form = _within(form, {**sizes, "c": sizes["j"]}, others)
            edits += [(form, *one) for one in of_form]
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
    known = plan if step.name in gradients else plan[:start]
    sizes, indices = sizes_of(setup, step.name), {x.index for body in bodies for x in cells(body)}
    result = list[Cell]()
    for x in known:
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
    known = {**sizes, "r": sizes["n"]}
    letters = (map(str, axis) if isinstance(axis, tuple) else ("",) for axis in index)
    return tuple(prod(known.get(x, 0) for x in own) for own in letters)


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
    tried = candidates(search)
    if not tried or not enough_evidence(comparison, len(tried) + MORE):
        return None
    tries, fits = _Tries(search), list[Slip]()
    for patch, line in _of_templates(setup, search):
        if tries.fits(patch):
            return line
    for slip in tried:
        if fits and slip.cost > fits[0].cost:
            break
        kind, text = "again" if slip.again else "", text_of(slip.body)
        changes = tuple(Change(kind, place, text) for place in slip.places)
        ways = [changes, (*changes, *DELTA_OF_OUTPUT)] if "d_weights" in slip.places else [changes]
        if any(tries.fits(Patch(way, search.evidence)) for way in ways):
            fits.append(slip)
    return _in_words(fits, setup) if fits else None


DELTA_OF_OUTPUT = (Change("", "delta", DELTAS["either delta"][1]),)
"""Kernels take δ of O and dO, so that it does not follow from another dA."""


def of_conventions(setup: Setup) -> Iterator[str]:
    """Every other choice of one field of the convention, and of the positions."""
    for owner, kind in ((setup.how, "how"), (setup.positions, "positions")):
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
        yield "positions.times: => -1 when rotary"
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

    left  so many scores may still be computed for patches that need whole heads for a few rows
    """

    def __init__(self, search: Search) -> None:
        self.search, self.setup = search, search.comparison.setup
        self.left = max(LEAST, WHOLE * prod(self.setup.shape))

    def fits(self, patch: Patch) -> bool:
        """Whether a patch gives the observed numbers; False for one that is refused.

        A convention is refused that does not exist, and a formula of which nothing says how long
        an axis is, or in which one letter runs along axes of two lengths: there NumPy raises
        ValueError.
        """
        try:
            other = patch.on(self.setup)
            if other is None or other.is_refused or not self.search.has_all(other):
                return False
            if other.whole_axes != self.setup.whole_axes:
                if at_once(other) > min(self.left, max(most_at_once(), at_once(self.setup))):
                    return False
                self.left -= at_once(other)
            return bool(self.search.fits([other]))
        except (ConventionError, InputError, ValueError):
            return False


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
            yield patch, Edit(line.partition(":")[0], "", words)


MORE = 300
"""So many patches there are of the templates, at most."""
