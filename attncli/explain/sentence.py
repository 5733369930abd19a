"""A sentence on its way in: its tokens, which of them are padding, and its first stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from attncli.attention.positions import add_positions, sinusoidal
from attncli.errors import InputError
from attncli.explain.vocabulary import Vocabulary
from attncli.text.tokens import pad
from attncli.trace import Stage

Array = npt.NDArray[Any]
Positions = Literal["paper", "article", "none"]

_AXES = ("token", "dimension")


@dataclass(frozen=True)
class Sentence:
    """Tokens, of which the first n_real were said and the others are padding.

    Raises InputError where there is no token.

    >>> Sentence.padded(("the", "bank"), 3).key_mask()
    array([  0.,   0., -inf])
    """

    tokens: tuple[str, ...]
    n_real: int

    def __post_init__(self) -> None:
        if not self.n_real:
            raise InputError("the sentence is empty", "give it at least one word")

    @classmethod
    def padded(cls, tokens: Sequence[str], n: int | None = None) -> Sentence:
        """The tokens, filled up to n with `<pad>`; InputError where there are more than n."""
        filled = tuple(tokens) if n is None else pad(tokens, n)[0]
        return cls(filled, len(tokens))

    @property
    def words(self) -> tuple[str, ...]:
        """The tokens without the padding."""
        return self.tokens[: self.n_real]

    def key_mask(self) -> Array | None:
        """The additive mask of the keys [n]: −∞ for padding; None where there is none."""
        if self.n_real == len(self.tokens):
            return None
        return np.where(np.arange(len(self.tokens)) < self.n_real, 0.0, -np.inf)


def entry_stages(
    sentence: Sentence, vocabulary: Vocabulary, positions: Positions
) -> tuple[Stage, ...]:
    """From tokens to the input of the first layer.

    Stages: tokens [2, n] (the place of each token, and a number that equal words share),
    embeddings [n, d] and, unless positions are "none", positions [n, d] and input [n, d]. The last
    one is what goes into the block.

    Source: "Attention Is All You Need", sections 3.4 and 3.5.

    >>> vocabulary = Vocabulary({"a": np.array([0.5, 0.25])}, 2, "as given")
    >>> stages = entry_stages(Sentence(("a", "a"), 2), vocabulary, "paper")
    >>> [stage.name for stage in stages], stages[-1].value[0].tolist()
    (['tokens', 'embeddings', 'positions', 'input'], [0.5, 1.25])
    """
    embeddings = vocabulary.rows(sentence.tokens, sentence.n_real)
    first = _tokens(sentence)
    names = {"token": sentence.tokens}
    if positions == "none":
        formula = "X = the vector of each token, no positions added"
        alone = Stage("embeddings", "X", formula, embeddings, _AXES, names, vocabulary.note)
        return first, alone
    table = sinusoidal(len(sentence.tokens), vocabulary.dim, exponent=positions)
    added = add_positions(embeddings, table, tokens=sentence.tokens)
    return (
        first,
        replace(
            added["embeddings"],
            formula="E = the vector of each token",
            labels=names,
            note=vocabulary.note,
        ),
        replace(added["positions"], labels={"position": table["positions"].labels["position"]}),
        replace(added["input"], labels=names),
    )


def _tokens(sentence: Sentence) -> Stage:
    """Where each token stands, and a number that is the same for the same word."""
    number_of: dict[str, int] = {}
    numbers = [number_of.setdefault(token, len(number_of) + 1) for token in sentence.tokens]
    value = np.array([range(1, len(numbers) + 1), numbers])
    labels = {"count": ("place", "word"), "token": sentence.tokens}
    return Stage("tokens", "T", "the sentence, cut up", value, ("count", "token"), labels)
