"""A bug as data: edits of the formulas of a plan, other inputs, another reading of results.

    Patch({"delta": Rewrite("", "right / size[j]")})       δ is a mean
    Patch(again={"lse": Rewrite("", "right / ln(2)")})     weights computed again by another lse

A place is a stage, or the gradient through one: that of the scores through softmax is `weights.x`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from attncli.arrays import Array
from attncli.attention.attention import LSE as LSE_FORMULA
from attncli.attention.backward import as_given
from attncli.attention.run import Step
from attncli.check.bugs.bug import Evidence
from attncli.check.bugs.rewrite import Rewrite
from attncli.check.run import Indices, steps_of
from attncli.check.setup import Relayout, Setup
from attncli.convention import EmptyRows
from attncli.stages import (
    DELTA,
    DROPPED,
    LSE,
    MAPS,
    OF_TILES,
    OUTPUT,
    QKV,
    SCORES,
    TILE,
    WEIGHTS,
)

Function = Callable[[Array], Array]
"""What computes a stage of its x instead, where it looks at parts of it."""
Plan = list[Step]
Variants = Any
"""A patch, several of these, or what gives them from a setup and the evidence."""


@dataclass(frozen=True, eq=False)
class Patch:
    """One variant of a bug; it applies where it has an effect, and all that it asks for is there.

    steps     place → what is put into the formula there; with a ? the place may lack
    detail    what the name of the bug leaves open
    whole     the axes (0 batch, 1 head, 2 query) that must be complete
    again     the same for the forward pass as kernels compute it again for the gradients: "k", "v",
              "mask" … "masked", "lse", "weights"; what follows from a changed stage follows
    inputs    other arrays, or functions of all inputs; None: left out
    how       other fields of the convention, or functions of the setup
    empty_rows  another rule for rows with nothing to attend to
    positions   other fields of the positions; None: none at all
    placed      whether positions are put in before the inputs are changed
    words     of edits: what is otherwise
    relabel, relayout, instead   which stage the observed one really is; what puts it right; what is
                                 computed in place of each index of an axis: see Setup
    """

    steps: Mapping[str, Rewrite | Function] = field(default_factory=dict)
    detail: str = ""
    whole: tuple[int, ...] = ()
    again: Mapping[str, Rewrite] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    how: Mapping[str, Any] = field(default_factory=dict)
    empty_rows: EmptyRows | None = None
    positions: Mapping[str, Any] | None = field(default_factory=dict)
    placed: bool = False
    words: str = ""
    relabel: Mapping[str, str] = field(default_factory=dict)
    relayout: Mapping[str, Relayout] = field(default_factory=dict)
    instead: Mapping[int, Indices] = field(default_factory=dict)

    def also(self, detail: str, steps: Mapping[str, Rewrite] = {}, **fields: Any) -> Patch:
        """The same with more edits, or other fields."""
        words = "; ".join(filter(None, (self.detail, detail)))
        return replace(self, steps={**self.steps, **steps}, detail=words, **fields)

    def on(self, setup: Setup) -> Setup | None:
        """The setup with the patch; None where it does not apply."""
        if (other := self._with_inputs(setup)) is None:
            return None
        fields: dict[str, Any] = {}
        if self.steps or self.again:
            if self.edited(whole_plan(other), strictly=True) is None:
                return None
            places = {*self.steps, *(f"{name}_again" for name in self.again)}
            fields["edits"] = (*other.edits, lambda plan: self.edited(plan) or plan)
            fields["patched"] = other.patched | {place.rstrip("?") for place in places}
        elif not (self.relabel or self.relayout or self.instead) and _is_same(other, setup):
            return None
        for stage, correct in self.relayout.items():
            other = other.with_relayout(correct, stage)
        fields["instead"] = {**other.instead, **self.instead}
        fields["relabel"] = {**other.relabel, **self.relabel}
        fields["whole"] = other.whole | {*self.whole} | self._needed(whole_plan(other))
        fields["details"] = (*other.details, *([self.detail] if self.detail else []))
        return replace(other, **fields)

    def _needed(self, plan: Plan) -> set[int]:
        """The axes that edits need complete."""
        chain = forward_again(plan) if self.again else {}
        edits = [(change, [chain[name]]) for name, change in self.again.items()]
        for place, change in self.steps.items():
            if isinstance(change, Rewrite):
                edits.append((change, steps_at(place.rstrip("?"), plan)))
        return {axis for change, steps in edits for step in steps for axis in change.whole(step)}

    def _with_inputs(self, setup: Setup) -> Setup | None:
        """The setup with other inputs, convention and positions; None where these do not fit."""
        other = setup.placed() if self.placed else setup
        fields = {name: x(setup) if callable(x) else x for name, x in self.how.items()}
        arrays = {name: x(other.inputs) if callable(x) else x for name, x in self.inputs.items()}
        if any(arrays[name].shape != other.inputs[name].shape for name in QKV if name in arrays):
            return None
        other = other.with_how(**fields).with_inputs(**arrays)
        if self.positions is None:
            other = replace(other, positions=None)
        else:
            other = other.with_positions(**self.positions)
        return other if self.empty_rows is None else other.with_empty_rows(self.empty_rows)

    def edited(self, plan: Plan, *, strictly: bool = False) -> Plan | None:
        """The plan with those functions that have a place in it; strictly: None if one has none."""
        if self.again:
            if (other := recomputed(plan, self.again, self.inputs)) is None and strictly:
                return None
            plan = other or plan
        for place, function in self.steps.items():
            other = put(function, place.rstrip("?"), plan, self.inputs)
            if other is None and strictly and not place.endswith("?"):
                return None
            plan = other or plan
        return plan


def _is_same(one: Setup, other: Setup) -> bool:
    """Whether two setups have the same inputs, positions and plan."""
    if one.inputs.keys() != other.inputs.keys() or one.positions != other.positions:
        return False
    same = all(x is other.inputs[name] for name, x in one.inputs.items())
    return same and (one.how == other.how or whole_plan(one) == whole_plan(other))


def whole_plan(setup: Setup) -> Plan:
    """The plan in which query heads share key heads."""
    return steps_of(setup, n_kv_heads=setup.inputs["k"].shape[1])


def put(
    change: Rewrite | Function, place: str, plan: Plan, inputs: Collection[str] = ()
) -> Plan | None:
    """The plan with a change at a place, each step after what it reads; None: no such place."""
    result = plan
    for step in steps_at(place, plan):
        if isinstance(change, Rewrite):
            new = change.of(step, plan, inputs)
        else:
            new = [step._replace(function=lambda x, **_: change(x))]
        if new:
            reads = {name for one in new for name in one.reads.values()}
            at = max(i for i, other in enumerate(result) if other is step or other.name in reads)
            rest = [other for other in result[: at + 1] if other is not step]
            result = [*rest, *new, *result[at + 1 :]]
    return None if result is plan else result


def steps_at(place: str, plan: Plan) -> list[Step]:
    """The steps at a place: scores of every tile."""
    if through := [step for step in plan if step.through == place]:
        return through
    if one := named(plan, place):
        return [one]
    of_tile = re.compile(rf"{TILE}\.\d+\.{place}")
    is_of_tiles = place in (*MAPS, *OF_TILES)
    return [step for step in plan if is_of_tiles and of_tile.fullmatch(step.name)]


def named(plan: Plan, name: str) -> Step | None:
    """The step of a name."""
    return next((step for step in plan if step.name == name), None)


def backward(plan: Plan) -> int:
    """Where the gradients begin."""
    return next((i for i, step in enumerate(plan) if step.function is as_given), len(plan))


# ---- the forward pass as kernels compute it again: A = exp(scores − saved log Σ exp)


POWERS = (
    "A[b,h,i,j] = exp(x[b,h,i,j] - lse[b,h,i]) if lse[b,h,i] != -inf and x[b,h,i,j] != -inf else 0"
)
"""The weights by a saved log-sum-exp; 0 in a row with nothing to attend to."""


def recomputed(
    plan: Plan, changes: Mapping[str, Rewrite], inputs: Collection[str] = ()
) -> Plan | None:
    """The plan whose gradients, but δ, read what is computed again: as `weights_again` and so on.

    That is what is changed and what follows from it; the log-sum-exp is saved, not computed again.
    """
    chain, at = forward_again(plan), backward(plan)
    if changes.keys() - chain.keys():
        return None
    copied, of, new = {*changes}, dict[str, str](), Plan()
    if changes.keys() - {"v", DROPPED}:
        copied |= {LSE, WEIGHTS}
    for name, step in chain.items():
        reads = step.reads if name == LSE else {p: of.get(n, n) for p, n in step.reads.items()}
        if name not in copied and reads == step.reads:
            continue
        copies = [step._replace(name=f"{step.name}_again", reads=reads, kind=step.name)]
        if name in changes:
            copies = changes[name].of(copies[0], [*plan, *new], inputs)
        if not copies:
            return None
        of[step.name] = copies[-1].name
        new += copies
    names = {WEIGHTS, DROPPED, "mask", chain["k"].name, chain["v"].name}
    copies_of = {name: of[name] for name in of.keys() & names}
    gradients = [step if step.name == DELTA else reading(step, copies_of) for step in plan[at:]]
    return [*plan[:at], *new, *gradients]


def forward_again(plan: Plan) -> dict[str, Step]:
    """The steps kernels compute again; K and V if softmax is over queries; none without softmax."""
    softmax, scores, output = (named(plan, name) for name in (WEIGHTS, SCORES, OUTPUT))
    if not softmax or not scores or not output or "x" not in softmax.reads:
        return {}
    dtype, x = softmax.dtype, softmax.reads["x"]
    operands = {"k": scores.reads["k"], "v": output.reads["v"]}
    chain = {
        n: Step(own, text, {"x": own}, dtype=dtype)
        for (n, own), text in zip(
            operands.items(), ("K[b,h,j,d] = x[b,h,j,d]", "V[b,h,j,e] = x[b,h,j,e]"), strict=True
        )
    }
    if softmax.params.get("axis", -1) != -1:
        return chain
    before = [step for step in plan[: backward(plan)] if step.name in ("mask", *MAPS)]
    sums = {"x": x} | {name: n for name, n in softmax.reads.items() if name == "sinks"}
    chain |= {step.name: step for step in before if step.name not in (WEIGHTS, DROPPED)}
    chain[LSE] = Step(LSE, LSE_FORMULA["e"], sums, dtype=dtype)
    of_weights = {"x": x, "lse": LSE}
    chain[WEIGHTS] = Step(WEIGHTS, POWERS, of_weights, dtype=dtype)
    return chain | {step.name: step for step in before if step.name == DROPPED}


def reading(step: Step, of: Mapping[str, str]) -> Step:
    """The step reading copies; what is masked says nothing of weights that are copies."""
    out = {"mask"} if WEIGHTS in of and step.through == f"{WEIGHTS}.x" else set[str]()
    return step._replace(reads={p: of.get(n, n) for p, n in step.reads.items() if p not in out})


# ---- what a row of the catalogue may be


def only_if(applies: Callable[[Setup], object], *variants: Variants) -> Variants:
    """These variants, for setups to which they apply."""
    return lambda setup, _: variants if applies(setup) else ()


def patches(variants: Variants, setup: Setup, evidence: Evidence) -> Iterator[Patch | Setup]:
    """The patches that variants are for this setup."""
    if isinstance(variants, Patch | Setup):
        yield variants
    elif callable(variants):
        yield from patches(variants(setup, evidence), setup, evidence)
    else:
        for one in variants:
            yield from patches(one, setup, evidence)
