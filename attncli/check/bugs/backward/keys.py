"""Bugs of K and V that are read otherwise on the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional as f
from attncli.attention.run import Step
from attncli.check.bugs.backward.again import by_lse, weights_again
from attncli.check.bugs.backward.edits import (
    HEAD,
    OF_OUTPUT,
    apply,
    inserted,
    names_of,
    of_gradients,
    reading,
    row,
)
from attncli.check.bugs.backward.layouts import LAYOUTS
from attncli.check.bugs.bug import Bug, Evidence
from attncli.check.setup import Edit, Setup
from attncli.stages import SCORES


def _other_keys(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """K, V or both, in another layout, of another head, or of one batch item or chunk for all."""
    (_, n_heads, _, n_k), n_keys = setup.shape, setup.inputs["k"].shape[1]
    if not of_gradients(setup, evidence):
        return
    reads: list[tuple[str, Callable[[Array], Array], tuple[int, ...]]] = []
    if n_heads == n_keys > 1:
        reads += [(words, read, (HEAD,)) for read, words in LAYOUTS]
    if setup.shape[0] > 1:
        reads.append(("of the first batch item", lambda x: np.broadcast_to(x[:1], x.shape), (0,)))
    if n_keys > 1:
        reads.append(("of the head before", lambda x: np.roll(x, 1, axis=HEAD), (HEAD,)))
    for parts in (2, 4, 8):
        if n_k > parts:
            at, size = np.arange(n_k), n_k // parts
            first = np.where(at < parts * size, at % size, at)
            words = f"the first of {parts} chunks for all"
            reads.append((words, lambda x, first=first: x[..., first, :], ()))  # type: ignore[misc]
    for words, read, whole in reads:
        for names in (("k", "v"), ("k",), ("v",)):
            for again in (True, False) if "k" in names else (False,):
                edit = _reading_again(names, read, recompute=again)
                which = " and ".join(name.upper() for name in names)
                more = "" if again or "k" not in names else "; the saved weights"
                for edits, delta in (([edit], ""), ([edit, OF_OUTPUT], "; δ from O and dO")):
                    if (found := apply(setup, edits, whole)) is not None:
                        yield found.with_detail(f"{which}: {words}{more}{delta}")


def _reading_again(
    names: tuple[str, ...], read: Callable[[Array], Array], *, recompute: bool
) -> Edit:
    """The gradients read these of k and v otherwise; recompute: so do the weights."""

    def edit(plan: list[Step]) -> list[Step]:
        present = names_of(plan)
        own = [f"{name}_shared" if f"{name}_shared" in present else name for name in names]
        of = {name: f"{name}_again" for name in own}
        dtype = next(step.dtype for step in plan if step.name == SCORES)
        new = [Step(of[name], read, {"x": name}, dtype=dtype) for name in own]
        plan = reading(of)(inserted(plan, new))
        if not recompute:
            return plan

        def chain(steps: list[Step]) -> list[Step]:
            return [
                s._replace(reads={p: of.get(n, n) for p, n in s.reads.items()})
                if s.compute is f.scores
                else s
                for s in steps
            ]

        return weights_again(by_lse(), chain)(plan)

    return edit


KEYS: tuple[Bug, ...] = (
    row(
        "K, V read otherwise on the way back",
        _other_keys,
        "the way back reads K and V in another layout, or those of another batch item or chunk",
        "diffusers#14338, diffusers#14265, long-context-attention#121",
    ),
)
