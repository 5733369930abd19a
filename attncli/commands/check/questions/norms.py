"""The norm of queries and keys: does it come before the positions, and with which gains?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from attncli.arrays import Array
from attncli.attention.inputs import GAINS
from attncli.commands.check.questions.answer import Answer
from attncli.commands.check.search import Search

NAMES = {"q": "queries", "k": "keys"}


def norm_otherwise(search: Search) -> Iterator[Answer]:
    """A norm after the positions, or with other gains; of queries and keys, or of one of them."""
    setup = search.comparison.setup
    if not setup.gains:
        return
    for names in ("qk", "q", "k"):
        words = " and ".join(NAMES[name] for name in names)
        if setup.positions is not None:
            after = replace(setup, norms_after=frozenset(names))
            sentence = f"{words} are normalised after the positions, not before"
            yield Answer(sentence, [after], "γ ∘ norm(R x), not R (γ ∘ norm(x)), R the rotation")
        for text, formula, gains in _gains(setup.gains):
            others = {GAINS[name]: gains[name] for name in names}
            yield Answer(f"{words}: {text}", [setup.with_inputs(**others)], formula)


def _gains(right: Mapping[str, Array]) -> Iterator[tuple[str, str, Mapping[str, Array]]]:
    """Other gains: what they are in words, and as a formula."""
    ones = {name: np.ones_like(gain) for name, gain in right.items()}
    yield "the gains of the norm are left out", "norm(x), not γ ∘ norm(x)", ones
    exchanged = {"q": right["k"], "k": right["q"]}
    yield "the gains of the norm are those of the other of the two", "", exchanged
    more = {name: 1 + gain for name, gain in right.items()}
    yield "the gains of the norm are larger by 1", "(1 + γ) ∘ norm(x), not γ ∘ norm(x)", more
    fewer = {name: gain - 1 for name, gain in right.items()}
    yield "the gains of the norm are smaller by 1", "(γ − 1) ∘ norm(x), not γ ∘ norm(x)", fewer
