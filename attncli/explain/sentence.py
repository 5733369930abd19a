"""A sentence before the first layer: its tokens, a vector for every word, and their stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from attncli.arrays import Array
from attncli.attention.attend import Block, traced
from attncli.attention.positions import SUM, sinusoidal
from attncli.errors import ConventionError, InputError
from attncli.files.messages import count, listing
from attncli.trace import Stage
from attncli.words.tokens import PAD
from attncli.words.vectors import random_vectors

PositionKind = Literal["paper", "article", "none"]
Unknown = Literal["random", "zero", "error"]


@dataclass(frozen=True)
class Sentence:
    """Tokens, of which the first n_real are of the sentence and the others are padding.

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
        n_real = len(tokens)
        if n is not None and n < n_real:
            hint = f"pad to {n_real} or more"
            raise InputError(f"{count(n_real, 'token')} cannot be padded to {n}", hint)
        return cls((*tokens, *[PAD] * ((n or 0) - n_real)), n_real)

    @property
    def words(self) -> tuple[str, ...]:
        """The tokens without the padding."""
        return self.tokens[: self.n_real]

    def key_mask(self) -> Array | None:
        """The additive mask of the keys [n]: −∞ for padding; None where there is none."""
        if self.n_real == len(self.tokens):
            return None
        return np.where(np.arange(len(self.tokens)) < self.n_real, 0.0, -np.inf)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The vectors of all words that are needed.

    vectors   word → [dim]
    note      where they come from
    remarks   what became of words that the file does not hold as they were asked for
    warnings  what was wrong with the file
    matrix    the vectors of one sentence, a row for each token, instead of those of words
    """

    vectors: Mapping[str, Array]
    dim: int
    note: str
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    matrix: Array | None = None

    def rows(self, sentence: Sentence) -> Array:
        """The vector of each token [n, dim]; zeros for the padding."""
        matrix = np.zeros((len(sentence.tokens), self.dim))
        own = self.matrix
        matrix[: sentence.n_real] = (
            [self.vectors[token] for token in sentence.words] if own is None else own
        )
        return matrix


def random_vocabulary(words: Sequence[str], dim: int, seed: int = 0) -> Vocabulary:
    """A random vector for each word, the same in every sentence and on every machine.

    Raises ConventionError for a dim below 1 or a seed below 0.

    >>> random_vocabulary(("bank", "bank"), 3).vectors["bank"].shape
    (3,)
    """
    note = f"random numbers (seed {seed}), always the same for the same word"
    return Vocabulary(random_vectors(words, dim, seed), dim, note)


def from_file(
    source: str,
    words: Sequence[str],
    *,
    unknown: Unknown = "random",
    seed: int = 0,
    dim: int | None = None,
) -> Vocabulary:
    """The vectors of a GloVe file (or any that `read_vectors` reads).

    `unknown` says what a word gets that is not in it: a random vector, drawn from the range that a
    random one has; zeros; or an error. `dim` is the width that is expected.

    Raises InputError for a source that is no vectors, or where it lacks a word and may not;
    ConventionError where it has another width.

    >>> found = from_file("king=0.9,0.5 queen=0.2,0.5", ("king", "quoon"), unknown="zero")
    >>> found.vectors["quoon"].tolist(), found.remarks
    ([0.0, 0.0], ("1 word is not in the inline literal: 'quoon' is a vector of zeros",))
    """
    from attncli.files.word_vectors import read_vectors, suggestion

    asked = tuple(dict.fromkeys(words))
    found = read_vectors(source, asked)
    width = found.matrix.shape[1]
    if dim is not None and dim != width:
        raise ConventionError(
            f"--dim is {dim}, but the vectors have {width} numbers", "leave out --dim"
        )
    vectors: dict[str, Array] = dict(zip(found.words, found.matrix, strict=True))
    origin = found.origin
    lost = [word for word in asked if word not in vectors]
    if lost and unknown == "error":
        close = suggestion(found.missing)
        other = f"{close} Else " if close else ""
        raise InputError(
            f"{origin} has no vector for {listing(map(repr, lost), 8)}",
            f"{other}use --unknown random or zero",
        )
    zeros = dict.fromkeys(lost, np.zeros(width))
    vectors |= random_vectors(lost, width, seed) if unknown == "random" else zeros
    remarks = [_unknown_remark(lost, origin, unknown)] if lost else []
    if found.folded:
        pairs = (f"{a!r} as {b!r}" for a, b in found.folded.items())
        remarks.append(f"found in another case: {listing(pairs, 8)}")
    note = f"read from {origin}, the same in every sentence: a static vector"
    return Vocabulary(vectors, width, note, tuple(remarks), found.warnings)


def _unknown_remark(lost: Sequence[str], origin: str, unknown: Unknown) -> str:
    if len(lost) == 1:
        became = "got a random vector" if unknown == "random" else "is a vector of zeros"
        return f"1 word is not in {origin}: {lost[0]!r} {became}"
    became = "got random vectors" if unknown == "random" else "are vectors of zeros"
    return f"{len(lost)} words are not in {origin}: {listing(map(repr, lost), 8)} {became}"


def entry_stages(
    sentence: Sentence, vocabulary: Vocabulary, positions: PositionKind, mark: str = ""
) -> tuple[Stage, ...]:
    """From tokens to the input of the first layer.

    Stages: tokens [2, n] (the position of each token from 1, and a number for each different word),
    embeddings [n, d] and, unless positions are "none", positions [n, d] and input [n, d]. The last
    one is what goes into the block. `mark` follows the letters of the stages: E_t of a target.

    Source: "Attention Is All You Need", sections 3.4 and 3.5.

    >>> vocabulary = Vocabulary({"a": np.array([0.5, 0.25])}, 2, "as given")
    >>> stages = entry_stages(Sentence(("a", "a"), 2), vocabulary, "paper")
    >>> [stage.name for stage in stages], stages[-1].value[0].tolist()
    (['tokens', 'embeddings', 'positions', 'input'], [0.5, 1.25])
    """
    number_of: dict[str, int] = {}
    numbers = [number_of.setdefault(token, len(number_of) + 1) for token in sentence.tokens]
    value = np.array([range(1, len(numbers) + 1), numbers])
    names = {"token": sentence.tokens}
    axes, labels = ("count", "token"), {"count": ("position", "word id"), **names}
    tokens = Stage("tokens", f"T{mark}", "the sentence split into tokens", value, axes, labels)
    symbol = f"E{mark}"
    formula = f"{symbol} = the vector of each token"
    formula += ", no positions added" if positions == "none" else ""
    vectors, axes, reads = vocabulary.rows(sentence), ("token", "dimension"), {"tokens": "tokens"}
    words = Stage("embeddings", symbol, formula, vectors, axes, names, vocabulary.note, reads)
    if positions == "none":
        return tokens, words
    waves = sinusoidal(len(numbers), vocabulary.dim, exponent=positions)
    table, params = waves["positions"], waves["divisors"].params
    labels = {"position": table.labels["position"]}
    table = replace(table, labels=labels, reads={}, params=params)
    total = SUM._replace(symbol=f"X{mark}", formula=f"X{mark} = {symbol} + PE")
    return tokens, words, table, traced([total], Block("", None, names), words, table)["input"]
