"""A bug as other steps of a plan: of the forward pass, of gradients, of what they compute again.

    patched(setup, {"delta": Rewrite("", "right / size[j]")})        δ is a mean
    patched(setup, {}, {"lse": Rewrite("", "right / ln(2)")})        weights by another lse

A place is a stage, or the gradient through one: that of the scores through softmax is `weights.x`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from attncli.arrays import Array
from attncli.attention.backward import as_given
from attncli.attention.formulas import LSE as LSE_FORMULA
from attncli.attention.run import Step
from attncli.commands.check.bugs.rewrite import Rewrite, formula_of
from attncli.formula.expression import cells
from attncli.stages import DELTA, DROPPED, LSE, MAPS, OF_TILES, OUTPUT, QKV, SCORES, TILE, WEIGHTS
from attncli.tolerance.run import keep_steps, steps_of
from attncli.tolerance.setup import Setup

Function = Callable[[Array], Array]
"""What computes a stage of its x instead, where it looks at parts of it."""
Steps = Mapping[str, Rewrite | Function]
"""Place → what is put into the formula there; with a ? the place may lack."""
Plan = list[Step]


def patched(setup: Setup, steps: Steps, again: Mapping[str, Rewrite] = {}) -> Setup | None:
    """The setup with other steps in its plan; None where a place is not there.

    again  the same for the forward pass as kernels compute it again for the gradients: "q", "k",
           "v", "mask" … "masked", "lse", "weights"; what follows from a changed stage follows
    """
    plan = whole_plan(setup)
    names = [name for name in setup.inputs if "." in name]  # those that edits alone read
    if (edited_plan := edited(plan, steps, again, names, strictly=True)) is None:
        return None
    chain = forward_again(plan) if again else {}
    changes = [(change, [chain[name]]) for name, change in again.items()]
    for place, step in steps.items():
        if isinstance(step, Rewrite):
            changes.append((step, steps_at(place.rstrip("?"), plan)))
    axes = [(step.name, change.whole(step)) for change, targets in changes for step in targets]
    across = setup.across
    if across is not None:
        across |= {name for name, needed in axes if 2 in needed}
    places = {*steps, *(f"{name}_again" for name in again)}
    other = replace(
        setup.with_edit(lambda plan: edited(plan, steps, again, names) or plan),
        patched=setup.patched | {place.rstrip("?") for place in places},
        whole=setup.whole.union(*(needed for _, needed in axes)),
        across=None if again else across,
    )
    keep_steps(other, edited_plan, other.inputs["k"].shape[1])
    return other


def edited(
    plan: Plan,
    steps: Steps,
    again: Mapping[str, Rewrite],
    names: Collection[str],
    *,
    strictly: bool = False,
) -> Plan | None:
    """The plan with those steps that have a place in it; strictly: None if one has none."""
    if again:
        if (other := recomputed(plan, again, names)) is None and strictly:
            return None
        plan = other or plan
    for place, change in steps.items():
        other = put(change, place.rstrip("?"), plan, names)
        if other is None and strictly and not place.endswith("?"):
            return None
        plan = other or plan
    return plan


def whole_plan(setup: Setup) -> Plan:
    """The plan in which query heads share key heads."""
    return steps_of(setup, n_kv_heads=setup.inputs["k"].shape[1])


def is_same(setup: Setup, other: Setup) -> bool:
    """Whether two setups have the same inputs, positions and plan."""
    if setup.inputs.keys() != other.inputs.keys() or setup.positions != other.positions:
        return False
    same = all(x is other.inputs[name] for name, x in setup.inputs.items())
    return same and (setup.convention == other.convention or whole_plan(setup) == whole_plan(other))


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
            reads = {name for new_step in new for name in new_step.reads.values()}
            at = max(i for i, other in enumerate(result) if other is step or other.name in reads)
            rest = [other for other in result[: at + 1] if other is not step]
            result = [*rest, *new, *result[at + 1 :]]
    return None if result is plan else result


def steps_at(place: str, plan: Plan) -> list[Step]:
    """The steps at a place: scores of every tile."""
    if through := [step for step in plan if step.through == place]:
        return through
    if single := named(plan, place):
        return [single]
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
    copied, aliases, new = {*changes}, dict[str, str](), Plan()
    if changes.keys() - {"v", DROPPED}:
        copied |= {LSE, WEIGHTS}
    for name, step in chain.items():
        reads = step.reads if name == LSE else {p: aliases.get(n, n) for p, n in step.reads.items()}
        if name not in copied and reads == step.reads:
            continue
        copies = [step._replace(name=f"{step.name}_again", reads=reads, kind=step.name)]
        if name in changes:
            copies = changes[name].of(copies[0], [*plan, *new], inputs)
        if not copies:
            return None
        aliases[step.name] = copies[-1].name
        new += copies
    names = {WEIGHTS, DROPPED, "mask", *(chain[name].name for name in QKV)}
    copies_of = {name: aliases[name] for name in aliases.keys() & names}
    gradients = [
        step if step.name == DELTA or step.through in OF_NORMS else reading(step, copies_of)
        for step in plan[at:]
    ]
    return [*plan[:at], *new, *gradients]


OF_NORMS = "q_norm.x", "k_norm.x"
"""The gradients through the norms, which are no part of a kernel that computes weights again."""

_COPIES = {
    "q": "Q[b,h,i,d] = x[b,h,i,d]",
    "k": "K[b,h,j,d] = x[b,h,j,d]",
    "v": "V[b,h,j,e] = x[b,h,j,e]",
}


def forward_again(plan: Plan) -> dict[str, Step]:
    """The steps kernels compute again; Q, K, V if softmax is over queries; none without softmax."""
    softmax, scores, output = (named(plan, name) for name in (WEIGHTS, SCORES, OUTPUT))
    if not softmax or not scores or not output or "x" not in softmax.reads:
        return {}
    dtype, x = softmax.dtype, softmax.reads["x"]
    operands = {"q": scores.reads["q"], "k": scores.reads["k"], "v": output.reads["v"]}
    chain = {
        name: Step(operand, _COPIES[name], {"x": operand}, dtype=dtype)
        for name, operand in operands.items()
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


def reading(step: Step, aliases: Mapping[str, str]) -> Step:
    """The step reading copies; what is masked says nothing of weights that are copies.

    A formula that was edited may read the mask in any case.
    """
    copied = step._replace(reads={p: aliases.get(n, n) for p, n in step.reads.items()})
    if WEIGHTS not in aliases or step.through != f"{WEIGHTS}.x":
        return copied
    without = copied._replace(reads={p: n for p, n in copied.reads.items() if p != "mask"})
    read = {cell.name for cell in cells(formula_of(without).body, guards=True)}
    return without if read <= without.reads.keys() else copied
