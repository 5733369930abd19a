"""The kinds of input that an example can have: how each is read from JSON, and how large it may be.

Nothing in a file is executed, and no size in it is used before it is checked. A reader refuses by
raising `refusal`; schema.py adds the file, example, claim and key.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    model_validator,
)
from pydantic_core import PydanticCustomError
from typing_extensions import TypeAliasType

from attncli.convention import Convention
from attncli.errors import AttncliError, InputError
from attncli.files.messages import listing, quote
from attncli.files.numbers import to_array

Array = npt.NDArray[Any]

MOST_NUMBERS = 1 << 20
"""Most numbers in one array: 8 MB of float64, far more than a printed example has."""
MOST_SIDE = 1 << 11
"""Longest side of a matrix, so that its products stay small too; also most keys of an object."""
MOST_TEXT = 4000
"""Most characters of a text: a page."""
FARTHEST = 2**53
"""Largest whole number: up to it float64 holds every one."""


def refusal(message: str, hint: str = "") -> PydanticCustomError:
    """What a reader raises: the message goes on after the name of the input."""
    return PydanticCustomError("refused", "{message}", {"message": message, "hint": hint})


class Model(BaseModel):
    """An object of the file: it has the keys it needs and no unknown one, and never changes."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True
    )

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, found: object) -> object:
        if isinstance(found, cls):
            return found
        if not isinstance(found, dict):
            raise refusal(" is not an object", 'write {"key": …}')
        fields = {field.alias or name: field for name, field in cls.model_fields.items()}
        if unknown := [key for key in found if key not in fields]:
            near = difflib.get_close_matches(unknown[0], fields, n=1)
            hint = f"did you mean {quote(near[0])}?" if near else f"known are {listing(fields)}"
            raise refusal(f" has the unknown key {quote(unknown[0])}", hint)
        needed = [key for key, field in fields.items() if field.is_required()]
        if missing := [key for key in needed if key not in found]:
            raise refusal(f" has no {quote(missing[0])}", f"it needs {listing(needed)}")
        for key, value in found.items():  # first, as pydantic keeps an error for each wrong key
            if isinstance(value, dict) and len(value) > MOST_SIDE:
                raise refusal(f", {key} has {len(value)} keys", f"{MOST_SIDE} is the most")
        return found


class OneKey(Model):
    """An object that has exactly one of its keys."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if len(self.model_fields_set) != 1 or self.value is None or self.value is False:
            raise refusal(f" needs one of {listing(type(self).model_fields)}")
        return self

    @property
    def key(self) -> str:
        """The key that it has."""
        return next(iter(self.model_fields_set))

    @property
    def value(self) -> Any:
        """What is under the key."""
        return getattr(self, self.key)


# ---- text and single numbers

Text = Annotated[str, Field(max_length=MOST_TEXT)]
Name = Annotated[str, Field(min_length=1, max_length=MOST_TEXT)]
Words = Annotated[list[Name], Field(min_length=1, max_length=MOST_SIDE)]
Whole = Annotated[int, Field(ge=-FARTHEST, le=FARTHEST)]
Side = Annotated[int, Field(ge=1, le=MOST_SIDE)]
Size = Annotated[int, Field(ge=1, le=MOST_NUMBERS)]
NotJson = Literal["NaN", "Infinity", "-Infinity"]


def number(found: object) -> float:
    """One number, finite or written "NaN", "Infinity", "-Infinity"."""
    if isinstance(found, list | bool):
        raise refusal(" is not one number")
    return float(_converted([found])[0])


Number = Annotated[float, PlainValidator(number, json_schema_input_type=float | NotJson)]


# ---- arrays


class Random(Model):
    """Numbers drawn evenly from 0 to 1, for an example in which they do not matter."""

    random: Annotated[list[Size], Field(min_length=1, max_length=4)]
    seed: Annotated[int, Field(ge=0, le=FARTHEST)] = 0


def array(found: object, ndim: int | None = None) -> Array:
    """Nested lists of numbers, or of true and false, or what `Random` draws.

    With `ndim` so many dimensions, none longer than MOST_SIDE, and no true or false. What has been
    read already stays the same array.
    """
    if isinstance(found, np.ndarray):
        return found
    if isinstance(found, dict):
        random = Random.model_validate(found)
        _check_size(random.random)
        made = np.random.default_rng(random.seed).random(random.random)
    elif isinstance(found, list):
        made = _converted(found)
        _check_size(made.shape)
    else:
        raise refusal(" is not a list of numbers", 'or {"random": [3, 4], "seed": 0}')
    if ndim is None:
        return made if made.dtype == np.bool_ else made.astype(np.float64)
    if made.ndim != ndim or made.dtype == np.bool_:
        kind = {1: "a list of numbers", 2: "a matrix of numbers, a list of rows"}[ndim]
        raise refusal(f" is not {kind}")
    if max(made.shape) > MOST_SIDE:
        raise refusal(f" is {' × '.join(map(str, made.shape))}", f"{MOST_SIDE} is the most")
    return made.astype(np.float64)


def _converted(found: object) -> Array:
    try:
        return to_array(found, "")
    except InputError as problem:
        raise refusal(problem.message, problem.hint) from problem


def _check_size(shape: Sequence[int]) -> None:
    if (total := math.prod(shape)) > MOST_NUMBERS:
        raise refusal(f" has {total} numbers", f"{MOST_NUMBERS} is the most")


Cells = TypeAliasType("Cells", "list[Cells] | float | bool | NotJson")
Written = TypeAliasType("Written", "list[Cells] | Random")
Numbers = Annotated[Array, PlainValidator(array, json_schema_input_type=Written)]
Matrix = Annotated[Array, PlainValidator(partial(array, ndim=2), json_schema_input_type=Written)]
Row = Annotated[Array, PlainValidator(partial(array, ndim=1), json_schema_input_type=Written)]


# ---- words and their vectors


class WordVectors(NamedTuple):
    """Words, and a row of the matrix for each: [n, d]."""

    words: tuple[str, ...]
    matrix: Array


_ROWS = TypeAdapter(Annotated[dict[str, Row], Field(min_length=1)])


def word_vectors(found: object) -> WordVectors:
    """{"king": [0.9, 0.5], …}, every vector of the same length."""
    if isinstance(found, WordVectors):
        return found
    rows = _ROWS.validate_python(found)
    if len({vector.size for vector in rows.values()}) > 1:
        lengths = [f"{quote(word)} {vector.size}" for word, vector in rows.items()]
        raise refusal(f": vectors differ in length: {', '.join(lengths[:8])}")
    return WordVectors(tuple(rows), np.array(list(rows.values())))


Vectors = Annotated[
    WordVectors, PlainValidator(word_vectors, json_schema_input_type=dict[str, Row])
]


class Sentence(Model):
    """Tokens, and the vector of each word among them."""

    tokens: Words
    vectors: Vectors


def token_rows(found: object) -> WordVectors:
    """A matrix, or a `Sentence`: a row for each token."""
    if isinstance(found, WordVectors):
        return found
    if not isinstance(found, dict) or "tokens" not in found:
        return WordVectors((), array(found, ndim=2))
    sentence = Sentence.model_validate(found)
    tokens, (words, known) = sentence.tokens, sentence.vectors
    if missing := [token for token in tokens if token not in words]:
        raise refusal(f" has no vector for {quote(missing[0])}")
    return WordVectors(tuple(tokens), known[[words.index(token) for token in tokens]])


TokenRows = Annotated[
    WordVectors, PlainValidator(token_rows, json_schema_input_type=Written | Sentence)
]


# ---- how attention is computed


def convention_of(found: object) -> Convention:
    """A convention from its changes to the default."""
    if not isinstance(found, dict):
        raise refusal(" is not an object", 'write {"causal": true}')
    changes = dict(found)
    if changes.get("mask_value") == "-Infinity":
        changes["mask_value"] = -math.inf
    try:
        return Convention.from_mapping(changes)
    except AttncliError as problem:
        raise refusal(f": {problem.message}", problem.hint) from problem
    except (TypeError, ValueError, OverflowError) as problem:
        raise refusal(": a value is of a type that no field has") from problem


Changes = Annotated[
    Convention, PlainValidator(convention_of, json_schema_input_type=dict[str, Any])
]
