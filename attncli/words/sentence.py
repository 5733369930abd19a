"""A sentence before the first layer: its tokens, a vector for every word, and their stages."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array, BoolArray, FloatArray
from attncli.attention.heads import shape_text
from attncli.attention.positions import SUM, Exponent, sinusoidal
from attncli.attention.run import Heading, traced
from attncli.attention.shapes import as_numbers
from attncli.errors import ConventionError, InputError, ShapeError
from attncli.files.messages import count, listing
from attncli.formula import common as formulas
from attncli.trace import Stage
from attncli.transformer.weights import named_seed
from attncli.words.tokens import PAD, is_padding

DIM = 8
"""The width of random vectors, unless another is asked for: few enough to read."""

PositionKind = Literal["paper", "article", "none"]
Unknown = Literal["random", "zero", "error"]


def position_kind(name: str) -> PositionKind | None:
    """The kind of table of this name, in any case of letters; None where there is none.

    >>> position_kind("Paper"), position_kind("learned")
    ('paper', None)
    """
    return cast("PositionKind", name.lower()) if name.lower() in get_args(PositionKind) else None


@dataclass(frozen=True)
class Sentence:
    """Tokens, some of which may be padding: `<pad>`, `<PADDING>` or `[PAD]`.

    >>> Sentence.padded(("the", "bank"), 3).key_mask()
    array([ True,  True, False])
    """

    tokens: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.words:
            raise InputError("the sentence is empty", "give it at least one word")

    @classmethod
    def padded(cls, tokens: Sequence[str], n: int | None = None) -> Sentence:
        """The tokens, filled up to n with `<pad>`; InputError where there are more than n."""
        if n is not None and n < len(tokens):
            hint = f"pad to {len(tokens)} or more"
            raise InputError(f"{count(len(tokens), 'token')} cannot be padded to {n}", hint)
        return cls((*tokens, *[PAD] * ((n or 0) - len(tokens))))

    @property
    def is_word(self) -> BoolArray:
        """Which tokens are not padding [n]."""
        return np.array([not is_padding(token) for token in self.tokens], dtype=bool)

    @property
    def words(self) -> tuple[str, ...]:
        """The tokens without the padding."""
        return tuple(token for token in self.tokens if not is_padding(token))

    def key_mask(self) -> Array | None:
        """Which keys are no padding [n]; None where there is none."""
        return None if self.is_word.all() else self.is_word


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The vectors of all words that are needed."""

    vectors: Mapping[str, Array]  # word → [dim]
    dim: int
    note: str  # where they come from
    remarks: tuple[str, ...] = ()  # what became of words that the file does not hold as asked for
    warnings: tuple[str, ...] = ()  # what was wrong with the file
    matrix: Array | None = None  # of one sentence, a row for each token, instead of words
    seed: int | None = None  # from which all vectors are drawn, if they are

    def rows(self, sentence: Sentence) -> Array:
        """The vector of each token [n, dim]; zeros for the padding."""
        matrix = np.zeros((len(sentence.tokens), self.dim))
        if self.matrix is not None:
            matrix[: len(self.matrix)] = self.matrix
        else:
            matrix[sentence.is_word] = [self.vectors[token] for token in sentence.words]
        return matrix


def random_vectors(words: Iterable[str], dim: int, seed: int = 0) -> dict[str, FloatArray]:
    """A vector for each word, drawn evenly from [−1, 1): word → [dim].

    NumPy's PCG64 is seeded with BLAKE2b of the seed and the word (NFC, UTF-8), so a word has the
    same vector in every sentence and on every machine; its first numbers do not depend on `dim`.

    Source: RFC 7693 (BLAKE2), O'Neill (2014) (PCG).

    >>> random_vectors(["bank", "river"], 3)["bank"].round(4).tolist()
    [-0.2206, -0.8264, -0.5396]
    """
    if dim < 1:
        raise ConventionError(f"dim is {dim}", "use a whole number from 1")
    if seed < 0:
        raise ConventionError(f"seed is {seed}", "use a whole number from 0")
    vectors: dict[str, FloatArray] = {}
    for word in dict.fromkeys(words):
        key = named_seed(seed, unicodedata.normalize("NFC", word), n_bytes=16)
        vectors[word] = 2.0 * np.random.default_rng(key).random(dim) - 1.0
    return vectors


def random_vocabulary(words: Sequence[str], dim: int, seed: int = 0) -> Vocabulary:
    """A random vector for each word, the same in every sentence and on every machine.

    >>> random_vocabulary(("bank", "bank"), 3).vectors["bank"].shape
    (3,)
    """
    note = f"random numbers (seed {seed}), always the same for the same word"
    return Vocabulary(random_vectors(words, dim, seed), dim, note, seed=seed)


def row_vocabulary(matrix: Array, n_tokens: int, origin: str = "") -> Vocabulary:
    """A vector for each token of one sentence; InputError where there are more, or fewer.

    origin  the file that holds them

    >>> row_vocabulary(np.eye(2), 3)
    Traceback (most recent call last):
        ...
    attncli.errors.InputError: vectors has 2 rows for 3 tokens; give a row for each token
    """
    if matrix.ndim != 2:
        name, part = (f"{origin}, x", f"; name a part of {origin}") if origin else ("vectors", "")
        hint = f"explain takes one sentence: (tokens, d){part}"
        raise InputError(f"{name} is {shape_text(matrix) or 'one number'}", hint)
    if len(matrix) != n_tokens:
        problem = f"{count(len(matrix), 'row')} for {count(n_tokens, 'token')}"
        raise InputError(f"{origin or 'vectors'} has {problem}", "give a row for each token")
    note = f"read from {origin}" if origin else "as given"
    return Vocabulary({}, matrix.shape[1], note, matrix=matrix.astype(np.float64))


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

    >>> found = from_file("king=0.9,0.5 queen=0.2,0.5", ("king", "quoon"), unknown="zero")
    >>> found.vectors["quoon"].tolist(), found.remarks
    ([0.0, 0.0], ("1 word is not in what you typed: 'quoon' is a vector of zeros",))
    """
    from attncli.words.vectors import read_vectors, suggestion

    distinct = tuple(dict.fromkeys(words))
    read = read_vectors(source, distinct)
    origin, width = read.origin, read.matrix.shape[1]
    if dim is not None and dim != width:
        message = f"--dim is {dim}, but the vectors have {width} numbers"
        raise ConventionError(message, "leave out --dim")
    vectors: dict[str, Array] = dict(zip(read.words, read.matrix, strict=True))
    lost = [word for word in distinct if word not in vectors]
    hint = "use --unknown random or zero"
    if lost and unknown == "error":
        close = suggestion(read.missing)
        hint = f"{close} Else {hint}" if close else hint
        hint += f", or {read.whole}" if read.whole else ""
    drawn, remarks = _of_unknown(lost, width, unknown, seed, origin, hint)
    if lost and read.whole:
        remarks.append(f"for more words, {read.whole}")
    note = f"read from {origin}, the same in every sentence: a static vector"
    note = "; ".join([note, *read.in_other_case])
    return Vocabulary(vectors | drawn, width, note, tuple(remarks), read.warnings)


def from_mapping(
    vectors: Mapping[str, npt.ArrayLike],
    words: Sequence[str],
    *,
    unknown: Unknown = "random",
    seed: int = 0,
    dim: int | None = None,
) -> Vocabulary:
    """The vectors of a mapping from words; `unknown` and `dim` as `from_file` has them.

    >>> found = from_mapping({"king": [0.9, 0.5]}, ("king", "quoon"), unknown="zero")
    >>> found.vectors["quoon"].tolist(), found.remarks
    ([0.0, 0.0], ("1 word is not in vectors: 'quoon' is a vector of zeros",))
    """
    arrays = {word: as_numbers(x, word) for word, x in vectors.items()}
    width = next((x.size for x in arrays.values()), DIM) if dim is None else dim
    for word, x in arrays.items():
        if x.shape != (width,):
            message = f"the vector of {word!r} is {shape_text(x) or 'one number'}"
            raise ShapeError(message, f"every vector needs {count(width, 'number')}")
    lost = [word for word in dict.fromkeys(words) if word not in arrays]
    hint = 'give one, or unknown="random" or "zero"'
    drawn, remarks = _of_unknown(lost, width, unknown, seed, "vectors", hint)
    return Vocabulary(arrays | drawn, width, "as given", tuple(remarks))


def _of_unknown(
    words: Sequence[str], dim: int, unknown: Unknown, seed: int, origin: str, hint: str
) -> tuple[dict[str, Array], list[str]]:
    """The vectors of words that are not in the origin, and what is said of them.

    hint  how to mend it where unknown words are an error
    """
    if unknown not in get_args(Unknown):
        raise ConventionError(f"unknown is {unknown!r}", f"use {', '.join(get_args(Unknown))}")
    if not words:
        return {}, []
    names = listing(map(repr, words), 8)
    if unknown == "error":
        raise InputError(f"{origin} has no vector for {names}", hint)
    is_drawn = unknown == "random"
    vectors = random_vectors(words, dim, seed) if is_drawn else dict.fromkeys(words, np.zeros(dim))
    if len(words) == 1:
        became = "got a random vector" if is_drawn else "is a vector of zeros"
        return vectors, [f"1 word is not in {origin}: {names} {became}"]
    became = "got random vectors" if is_drawn else "are vectors of zeros"
    return vectors, [f"{len(words)} words are not in {origin}: {names} {became}"]


def entry_stages(
    sentence: Sentence, vocabulary: Vocabulary, positions: PositionKind | Array, mark: str = ""
) -> tuple[Stage, ...]:
    """From tokens to the input of the first layer.

    Stages: tokens [2, n] (the position of each token from 1, and a number for each different word),
    embeddings [n, d] and, unless positions are "none", positions [n, d] and input [n, d]. The last
    one is what goes into the block. `mark` follows the letters of the stages: E_t of a target.
    `positions` may be a matrix, such as learned ones: a row for each position, from 0 on.

    Source: "Attention Is All You Need", sections 3.4 and 3.5.

    >>> vocabulary = Vocabulary({"a": np.array([0.5, 0.25])}, 2, "as given")
    >>> stages = entry_stages(Sentence(("a", "a")), vocabulary, "paper")
    >>> [stage.name for stage in stages], stages[-1].value[0].tolist()
    (['tokens', 'embeddings', 'positions', 'input'], [0.5, 1.25])
    >>> [dict(stage.reads) for stage in stages[1:3]]
    [{'tokens': 'tokens'}, {'tokens': 'tokens'}]
    """
    number_of: dict[str, int] = {}
    numbers = [number_of.setdefault(token, len(number_of) + 1) for token in sentence.tokens]
    value = np.array([range(1, len(numbers) + 1), numbers])
    names = {"token": sentence.tokens}
    axes, labels = ("count", "token"), {"count": ("number", "word id"), **names}
    tokens = Stage("tokens", f"T{mark}", "the sentence split into tokens", value, axes, labels)
    symbol = f"E{mark}"
    formula = f"{symbol} = the vector of each token"
    is_none = isinstance(positions, str) and positions == "none"
    formula += ", no positions added" if is_none else ""
    vectors, axes, reads = vocabulary.rows(sentence), ("token", "dimension"), {"tokens": "tokens"}
    params = {} if vocabulary.seed is None else {"seed": vocabulary.seed}
    words = Stage(
        "embeddings", symbol, formula, vectors, axes, names, vocabulary.note, reads, params
    )
    if is_none:
        return tokens, words
    table = replace(_table(positions, len(numbers), vocabulary.dim), reads=reads)
    total = SUM._replace(symbol=f"X{mark}", formula=f"X{mark} = {symbol} + PE")
    return tokens, words, table, traced([total], Heading("", None, names), words, table)["input"]


def _table(positions: PositionKind | Array, n: int, dim: int) -> Stage:
    """The first n rows of a table, sinusoidal or given."""
    if not isinstance(positions, str):
        if positions.ndim != 2 or positions.shape[1] != dim or len(positions) < n:
            message = (
                f"the positions are {shape_text(positions)}, but there are {n} tokens of {dim}"
            )
            hint = f"give a row for each position: {n} × {dim}, or more rows"
            raise ShapeError(f"{message} dimensions", hint)
        labels = {"position": tuple(f"pos {i}" for i in range(n))}
        formula, axes = "PE = a vector for each position, as given", ("position", "dimension")
        return Stage("positions", "PE", formula, positions[:n], axes, labels)
    kind: Exponent = "article" if positions == "article" else "paper"
    waves = sinusoidal(n, dim, exponent=kind)
    table, params = waves["positions"], waves["divisors"].params
    labels = {"position": table.labels["position"]}
    return replace(table, labels=labels, params=params, expression=formulas.WAVES_ALONE[kind])
