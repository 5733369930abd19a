"""A bug as data: other functions at places of the plan, other inputs, another reading of results.

    Patch({DELTA: lambda right: right() / n})               δ is a mean
    Patch({"d_v": lambda right, weights: right(a=weights)}) dV of the weights before dropout
    Patch(again={"lse": lambda right: right() / LN2})       weights recomputed by another log Σ exp

A place is a stage, or the gradient through one: that of the scores through softmax is
`weights.x`. The parameters of what is put there say what it is given:

    right       the step as it is: a function, called with other values for some of what it reads
    a, d, x …   what the step reads, and its parameters; `allowed`: where the mask is not −∞
    output …    any stage or input of the plan; `logits` is what softmax reads, `uncapped`
                what softcap, `unmasked` what the mask does
    sinks=None  the same where there is one
    n=n         with another default: its own
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.attention import LSE as LSE_FORMULA
from attncli.attention.backward import as_given
from attncli.attention.run import Step
from attncli.check.run import Indices, steps_of
from attncli.check.setup import Relayout, Setup
from attncli.convention import EmptyRows
from attncli.stages import (
    CAPPED,
    DELTA,
    DROPPED,
    LSE,
    MAPS,
    MASKED,
    OF_TILES,
    OUTPUT,
    QKV,
    SCORES,
    TILE,
    WEIGHTS,
)

Function = Callable[..., Any]
OF_SOFTMAX, OF_SOFTCAP, OF_DROPOUT = f"{WEIGHTS}.x", f"{CAPPED}.x", f"{DROPPED}.x"
"""The gradients through softmax, through softcap and through dropout."""
Plan = list[Step]


@dataclass(frozen=True, eq=False)
class Patch:
    """One variant of a bug; it applies where it has an effect, and all that it asks for is there.

    steps     place → the function there
    detail    what the name of the bug leaves open
    whole     the axes (0 batch, 1 head, 2 query) that must be complete
    again     the same for the forward pass as kernels compute it again for the gradients: "k", "v",
              "mask" … "masked", "lse", "weights"; what follows from a changed stage follows
    inputs    other arrays, or functions of all inputs; None: left out
    how       other fields of the convention, or functions of the setup
    empty_rows  another rule for rows with nothing to attend to
    positions   other fields of the positions; None: none at all
    placed      whether positions are put in before the inputs are changed
    relabel, relayout, instead   which stage the observed one really is; what puts it right; what is
                                 computed in place of each index of an axis: see Setup
    """

    steps: Mapping[str, Function] = field(default_factory=dict)
    detail: str = ""
    whole: tuple[int, ...] = ()
    again: Mapping[str, Function] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    how: Mapping[str, Any] = field(default_factory=dict)
    empty_rows: EmptyRows | None = None
    positions: Mapping[str, Any] | None = field(default_factory=dict)
    placed: bool = False
    relabel: Mapping[str, str] = field(default_factory=dict)
    relayout: Mapping[str, Relayout] = field(default_factory=dict)
    instead: Mapping[int, Indices] = field(default_factory=dict)

    def also(self, detail: str, steps: Mapping[Any, Function] = {}, **fields: Any) -> Patch:
        """The same with more functions, or other fields."""
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
            fields["patched"] = other.patched | places
        elif not (self.relabel or self.relayout or self.instead) and _is_same(other, setup):
            return None
        for stage, correct in self.relayout.items():
            other = other.with_relayout(correct, stage)
        fields["instead"] = {**other.instead, **self.instead}
        fields["relabel"] = {**other.relabel, **self.relabel}
        fields["whole"] = other.whole | {*self.whole}
        fields["details"] = (*other.details, *([self.detail] if self.detail else []))
        return replace(other, **fields)

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
            if (other := put(function, place, plan, self.inputs)) is None and strictly:
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


def put(function: Function, place: str, plan: Plan, inputs: Collection[str] = ()) -> Plan | None:
    """The plan with a function at a place, each step after what it reads; None: no such place."""
    result = plan
    for step in steps_at(place, plan):
        if (new := with_function(step, function, plan, inputs)) is not None:
            at = max(i for i, s in enumerate(result) if s is step or s.name in new.reads.values())
            rest = [other for other in result[: at + 1] if other is not step]
            result = [*rest, new, *result[at + 1 :]]
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


def with_function(
    step: Step, function: Function, plan: Plan, inputs: Collection[str]
) -> Step | None:
    """The step with another function; None where that asks for what the plan does not have.

    In a tile, a stage is that of the tile. Gradients of a softmax over queries are left to those
    that ask for its axis: others are made for rows.
    """
    asked, own = asked_by(function), {*step.reads, *step.params}
    is_gradient = step.name == DELTA or step.name.startswith("d_")
    if is_gradient and step.params.get("axis", -1) != -1 and "axis" not in asked:
        return None
    reads, block = dict(step.reads), step.name[: step.name.rfind(".") + 1]
    others = asked.keys() - own - {"right", "allowed"}
    names = names_of(plan, inputs) if others else {}
    for name in others:
        if read := names.get(f"{block}{name}", names.get(name)):
            reads[name] = read
        elif asked[name]:
            return None

    def compute(**values: Any) -> Array:
        arguments: dict[str, Any] = {name: values[name] for name in asked.keys() & values.keys()}
        if "allowed" in asked and "mask" in own:
            arguments["allowed"] = ~np.isneginf(values["mask"])

        def right(**other: Any) -> Array:
            if "allowed" in other:
                allowed = other.pop("allowed")
                other["mask"] = None if allowed is None else np.where(allowed, 0.0, -np.inf)
            as_it_is = {name: x for name, x in values.items() if name in own}
            return step.compute(**{**as_it_is, **other})

        if "right" in asked:
            arguments["right"] = right
        return np.asarray(function(**arguments))

    return step._replace(function=compute, reads=reads)


@lru_cache(512)
def asked_by(function: Function) -> dict[str, bool]:
    """What a function asks for, and whether it must have it; a default but None is its own."""
    parameters = inspect.signature(function).parameters.values()
    of_plan = (x for x in parameters if x.default is x.empty or x.default is None)
    return {x.name: x.default is x.empty for x in of_plan}


def names_of(plan: Plan, inputs: Collection[str] = ()) -> dict[str, str]:
    """What a function may ask for: every stage, what is read, and inputs, of which dots are _."""
    names = {name: name for step in plan for name in (*step.reads.values(), step.name)}
    for alias, stage in (("logits", WEIGHTS), ("uncapped", CAPPED), ("unmasked", MASKED)):
        if (step := named(plan, stage)) is not None:
            names[alias] = step.reads["x"]
    return names | {name.replace(".", "_"): name for name in (*inputs, "rows")}


def named(plan: Plan, name: str) -> Step | None:
    """The step of a name."""
    return next((step for step in plan if step.name == name), None)


def backward(plan: Plan) -> int:
    """Where the gradients begin."""
    return next((i for i, step in enumerate(plan) if step.function is as_given), len(plan))


# ---- the forward pass as kernels compute it again: A = exp(scores − saved log Σ exp)


def powers(x: Array, lse: Array) -> Array:
    """exp(x − lse), 0 in a row with nothing to attend to."""
    lse = np.where(np.isneginf(lse), np.inf, lse)[..., None]
    return np.asarray(np.nan_to_num(np.exp(x - lse), nan=0.0, posinf=np.inf))


def recomputed(
    plan: Plan, changes: Mapping[str, Function], inputs: Collection[str] = ()
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
        copy: Step | None = step._replace(name=f"{step.name}_again", reads=reads)
        if copy and name in changes:
            copy = with_function(copy, changes[name], [*plan, *new], inputs)
        if copy is None:
            return None
        of[step.name] = copy.name
        new.append(copy)
    names = {WEIGHTS, DROPPED, "mask", chain["k"].name, chain["v"].name}
    copies = {name: of[name] for name in of.keys() & names}
    gradients = [step if step.name == DELTA else reading(step, copies) for step in plan[at:]]
    return [*plan[:at], *new, *gradients]


def forward_again(plan: Plan) -> dict[str, Step]:
    """The steps kernels compute again; K and V if softmax is over queries; none without softmax."""
    softmax, scores, output = (named(plan, name) for name in (WEIGHTS, SCORES, OUTPUT))
    if not softmax or not scores or not output:
        return {}
    dtype, x = softmax.dtype, softmax.reads["x"]
    operands = {"k": scores.reads["k"], "v": output.reads["v"]}
    chain = {
        n: Step(own, "", {"x": own}, dtype=dtype, function=lambda x: x)
        for n, own in operands.items()
    }
    if softmax.params.get("axis", -1) != -1:
        return chain
    before = [step for step in plan[: backward(plan)] if step.name in ("mask", *MAPS)]
    sums = {"x": x} | {name: n for name, n in softmax.reads.items() if name == "sinks"}
    chain |= {step.name: step for step in before if step.name not in (WEIGHTS, DROPPED)}
    chain[LSE] = Step(LSE, LSE_FORMULA["e"], sums, dtype=dtype)
    of_weights = {"x": x, "lse": LSE}
    chain[WEIGHTS] = Step(WEIGHTS, "", of_weights, dtype=dtype, function=powers)
    return chain | {step.name: step for step in before if step.name == DROPPED}


def reading(step: Step, of: Mapping[str, str]) -> Step:
    """The step reading copies; what is masked says nothing of weights that are copies."""
    out = {"mask"} if WEIGHTS in of and step.through == OF_SOFTMAX else set[str]()
    return step._replace(reads={p: of.get(n, n) for p, n in step.reads.items() if p not in out})
