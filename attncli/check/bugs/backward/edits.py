"""Edits of a plan, of which bugs of gradients are made: a step changed, replaced or read otherwise.

plan ── edit ──> plan     the same plan where an edit does not apply
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional as f
from attncli.attention import gradients as g
from attncli.attention.run import Step
from attncli.check.bugs.bug import Bug, Change, Evidence, bug
from attncli.check.run import steps_of
from attncli.check.setup import Edit, Setup
from attncli.stages import GRADIENTS, OUTPUT, QKV, gradient_of

Plan = Sequence[Step]
Given = Mapping[str, Any]
Variant = tuple[str, Sequence[Edit]] | tuple[str, Sequence[Edit], tuple[int, ...]]

GRADIENT = "gradients"
"""What every bug of the way back alone touches."""

HEAD, ROW, KEY = 1, 2, 3
"""Axes of the scores."""

D_OUTPUT, D_SINKS = map(gradient_of, (OUTPUT, "sinks"))
D_BIAS, D_SCORES = gradient_of("given_mask"), "d_scores"
D_Q, D_K, D_V = map(gradient_of, QKV)


def way_back(plan: Plan) -> int:
    """Where the gradients begin."""
    return next((i for i, step in enumerate(plan) if step.compute is g.as_given), len(plan))


def named(plan: Plan, name: str) -> Step | None:
    """The step of a name."""
    return next((step for step in plan if step.name == name), None)


def gradient_by(plan: Plan, compute: Callable[..., Array]) -> Step | None:
    """The first step among the gradients with this function."""
    return next((step for step in plan[way_back(plan) :] if step.compute is compute), None)


def replaced(which: str | Callable[..., Array], new: Callable[[Step, Plan], Step | None]) -> Edit:
    """One step replaced: of this name, or the first gradient with this function; None: it stays."""

    def edit(plan: list[Step]) -> list[Step]:
        own = named(plan, which) if isinstance(which, str) else gradient_by(plan, which)
        other = None if own is None else new(own, plan)
        return plan if other is None else [other if step is own else step for step in plan]

    return edit


def after(name: str, change: Callable[[Array, Given], Array]) -> Edit:
    """What a step gives, changed; `change` is given what it reads and its parameters as well."""

    def new(step: Step, _: Plan) -> Step:
        def compute(**given: Any) -> Array:
            return change(step.compute(**given), given)

        return step._replace(compute=compute)

    return replaced(name, new)


def instead(compute: Callable[..., Array], change: Callable[[Given], Array], **reads: str) -> Edit:
    """Another function for the first gradient with this one; it may read more.

    What is made for rows does not apply to a softmax over queries.
    """

    def new(step: Step, plan: Plan) -> Step | None:
        if step.params.get("axis", -1) != -1 or not {*reads.values()} <= names_of(plan):
            return None
        return step._replace(compute=lambda **given: change(given), reads={**step.reads, **reads})

    return replaced(compute, new)


def names_of(plan: Plan) -> set[str]:
    """The stages of a plan, and everything that it reads."""
    return {name for step in plan for name in (step.name, *step.reads.values())}


def times_scale(name: str, *, divided: bool = False) -> Edit:
    """A gradient multiplied, or divided, by the scale; where scores are scaled, and not by 0."""

    def new(step: Step, plan: Plan) -> Step | None:
        scale = gradient_by(plan, f.scale)
        if scale is None or not (factor := float(scale.params["factor"])):
            return None
        factor = 1 / factor if divided else factor
        return step._replace(compute=lambda **given: np.asarray(step.compute(**given) * factor))

    return replaced(name, new)


def times(name: str, factor: float) -> Edit:
    """A gradient multiplied by a number."""
    return after(name, lambda x, _: np.asarray(x * x.dtype.type(factor)))


def products_of(plan: Plan, gradient: str) -> str:
    """The step of the products in d_k or d_v: before the heads of a group are summed."""
    shared = f"{gradient}_shared"
    return shared if named(plan, shared) else gradient


def products(gradient: str, new: Callable[[Array, Array], Array]) -> Edit:
    """Another product Aᵀ B in d_k or d_v, summed over a group or not."""

    def edit(plan: list[Step]) -> list[Step]:
        name = products_of(plan, gradient)
        return replaced(name, lambda step, _: step._replace(compute=new))(plan)

    return edit


def reading(of: Mapping[str, str], *, but: Iterable[str] = (), without: Iterable[str] = ()) -> Edit:
    """The gradients read other stages in the place of these, and some not at all."""
    left, out = {*but}, {*without}

    def edit(plan: list[Step]) -> list[Step]:
        at = way_back(plan)
        more = [
            step
            if step.name in left
            else step._replace(
                reads={p: of.get(x, x) for p, x in step.reads.items() if x not in out}
            )
            for step in plan[at:]
        ]
        return [*plan[:at], *more]

    return edit


def inserted(plan: list[Step], steps: Iterable[Step]) -> list[Step]:
    """The plan with more steps before its gradients."""
    at = way_back(plan)
    return [*plan[:at], *steps, *plan[at:]]


# ---- rows of the catalogue


def of_gradients(setup: Setup, evidence: Evidence) -> bool:
    """Whether gradients were observed."""
    return any(name in evidence.expected for name in GRADIENTS)


def edited(*variants: Variant) -> Change:
    """The change of the plan by each of these variants: a detail, edits, and axes needed whole.

    A variant none of whose edits applies is left out.
    """

    def change(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        if not of_gradients(setup, evidence):
            return
        for detail, edits, *whole in variants:
            if (found := apply(setup, edits, *whole)) is not None:
                yield found.with_detail(detail) if detail else found

    return change


def apply(setup: Setup, edits: Sequence[Edit], whole: tuple[int, ...] = ()) -> Setup | None:
    """The setup with these edits; None where its plan stays as it is."""
    plan = steps_of(setup, n_kv_heads=setup.inputs["k"].shape[1])
    found = plan
    for edit in edits:
        found = edit(found)
    if found is plan or found == plan:
        return None
    changed = setup.with_edit(*edits)
    return changed.with_whole(*whole) if whole else changed


def of_output(given: Given) -> Array:
    """Σ O ∘ dO of each row."""
    return np.asarray((given["o"] * given["d_o"]).sum(axis=-1))


OF_OUTPUT = instead(g.delta, of_output, o=OUTPUT, d_o=D_OUTPUT)
"""δ as kernels have it, of O and dO, where dA is wrong."""


def with_either_delta(*edits: Edit) -> Any:
    """The same edits with δ of the wrong dA, and with that of O and dO."""
    return (("", edits), ("δ from O and dO", [*edits, OF_OUTPUT]))


def row(
    name: str, change: Change, sentence: str, threads: str = "", touches: str = GRADIENT
) -> Bug:
    """A row of the catalogue: a bug of gradients, tried alone."""
    return bug(name, change, touches, sentence, threads, pairs=False)


def last(name: str, change: Change, sentence: str, threads: str = "") -> Bug:
    """One that is tried where no other fits."""
    return bug(name, change, GRADIENT, sentence, threads, pairs=False, fits_many=True)
