"""The types of an example's inputs: how each is read from JSON, and how large it may be.

Nothing in a file is executed, and no size in it is used before it is checked. A reader raises an
InputError whose message goes on after the key; `validated` adds the file, example, claim and key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Any, NamedTuple, Self, TypeVar

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from attncli.arrays import Array
from attncli.convention import Convention
from attncli.errors import AttncliError, InputError
from attncli.files.json_text import described, to_array
from attncli.files.messages import listing, quote, safe
from attncli.files.numbers import text_to_nan

MOST_NUMBERS = 1 << 20
"""Most numbers in one array: 8 MB of float64, far more than a printed example has."""
MOST_SIDE = 1 << 11
"""Longest side of a matrix and longest list of words, so that their products stay small too; also
most keys of an object."""
MOST_TEXT = 4000
"""Most characters of a text: a page."""
FARTHEST = 2**53
"""Largest whole number: up to it float64 holds every one."""


class Model(BaseModel):
    """An object of the file: it has the keys it needs and no unknown one, and never changes."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        arbitrary_types_allowed=True,
        str_max_length=MOST_TEXT,
    )

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, data: Any) -> Any:
        names = [field.alias or name for name, field in cls.model_fields.items()]
        unknown = [key for key in data if key not in names] if isinstance(data, dict) else []
        if unknown:
            near = get_close_matches(unknown[0], names, n=1)
            hint = f"did you mean {quote(near[0])}?" if near else f"known are {listing(names)}"
            raise InputError(f" has the unknown key {quote(unknown[0])}", hint)
        for key, value in data.items() if isinstance(data, dict) else ():
            if isinstance(value, dict) and len(value) > MOST_SIDE:  # each could be an error
                raise InputError(f", {key} has {len(value)} keys", f"{MOST_SIDE} is the most")
        return data


class OneKey(Model):
    """An object that has exactly one of its keys."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        values = [getattr(self, key) for key in self.model_fields_set]
        if len(values) != 1 or values[0] is None or values[0] is False:
            raise InputError(f" needs exactly one of {listing(type(self).model_fields)}")
        return self


M = TypeVar("M", bound=Model)


def validated(model: type[M], data: object, origin: str) -> M:
    """The model of what was found; InputError for the first thing in it that does not fit."""
    try:
        return model.model_validate(data)
    except ValidationError as problem:
        error = problem.errors(include_url=False)[0]
    place = ": ".join(filter(None, [origin, ", ".join(_keys(error["loc"], data))]))
    refusal = error.get("ctx", {}).get("error")
    if isinstance(refusal, AttncliError):
        joint = "" if refusal.message[0] in " ,:" else ": "
        raise InputError(f"{place}{joint}{refusal.message}", refusal.hint)
    plain = {"missing": "missing", "model_type": "not an object", "dict_type": "not an object"}
    if error["type"] in plain:
        raise InputError(f"{place} is {plain[error['type']]}")
    words = error["msg"].replace("Dictionary", "Object").replace(" after validation", "")
    if words.startswith("Input "):
        raise InputError(f"{place} is {described(error['input'])}", f"it {words[6:]}")
    raise InputError(f"{place}: {safe(words)}")


def _keys(loc: Sequence[int | str], data: Any) -> list[str]:
    """The keys to a place in the document; examples by their name, others by their number."""
    keys: list[str] = []
    for key in loc:
        if isinstance(key, str):
            keys += [] if key == "[key]" else [listing([key])]
        elif keys == ["examples"]:
            example = data["examples"][key]
            name = example.get("name") if isinstance(example, dict) else None
            keys = [f"example {quote(name) if isinstance(name, str) and name else key + 1}"]
        else:
            noun = {"claims": "claim", "ways": "way"}.get(keys[-1], f"{keys[-1]}, entry")
            keys[-1] = f"{noun} {key + 1}"
    return keys


# ---- types of inputs

_Word = Annotated[str, Field(min_length=1)]
Words = Annotated[list[_Word], Field(min_length=1, max_length=MOST_SIDE)]
Side = Annotated[int, Field(ge=1, le=MOST_SIDE)]
Whole = Annotated[int, Field(ge=-FARTHEST, le=FARTHEST)]
Seed = Annotated[int, Field(ge=0, le=FARTHEST)]


class Random(Model):
    """Numbers drawn evenly from 0 to 1, for an example in which they do not matter."""

    random: Annotated[
        list[Annotated[int, Field(ge=1, le=MOST_NUMBERS)]], Field(min_length=1, max_length=4)
    ]
    seed: Seed = 0


def _read(kind: type, reader: Callable[[object], Any]) -> PlainValidator:
    """Reads an input; what is of its kind already stays the same, so that alternatives share it."""
    return PlainValidator(lambda value: value if isinstance(value, kind) else reader(value))


def _array(data: object, ndim: int | None = None) -> Array:
    """Nested lists of numbers, or of true and false, or what `Random` draws.

    With `ndim` so many dimensions, none longer than MOST_SIDE, and no true or false.
    """
    if isinstance(data, dict):
        random = Random.model_validate(data)
        _check_total(random.random)
        array = np.random.default_rng(random.seed).random(random.random)
    elif isinstance(data, list):
        array = to_array(data, "")
        _check_total(array.shape)
    else:
        hint = 'write [[1, 2], [3, 4]] or {"random": [3, 4], "seed": 0}'
        raise InputError(" is not a list of numbers", hint)
    if ndim is None:
        return array if array.dtype == np.bool_ else array.astype(np.float64)
    if array.ndim != ndim or array.dtype == np.bool_:
        raise InputError(f" is not a {'list' if ndim == 1 else 'matrix'} of numbers")
    if max(array.shape) > MOST_SIDE:
        raise InputError(f" is {' × '.join(map(str, array.shape))}", f"{MOST_SIDE} is the most")
    return array.astype(np.float64)


def _check_total(shape: Sequence[int]) -> None:
    if (total := math.prod(shape)) > MOST_NUMBERS:
        raise InputError(f" has {total} numbers", f"{MOST_NUMBERS} is the most")


Numbers = Annotated[Array, _read(np.ndarray, _array)]
Matrix = Annotated[Array, _read(np.ndarray, partial(_array, ndim=2))]
Row = Annotated[Array, _read(np.ndarray, partial(_array, ndim=1))]


class WordVectors(NamedTuple):
    """Words, and a row of the matrix for each: [n, d]."""

    words: tuple[str, ...]
    matrix: Array


_ROWS = TypeAdapter(Annotated[dict[str, Row], Field(min_length=1)])


def _word_vectors(data: object) -> WordVectors:
    """{"king": [0.9, 0.5], …}, every vector of the same length."""
    rows = _ROWS.validate_python(data, strict=True)
    if len({vector.size for vector in rows.values()}) > 1:
        lengths = [f"{quote(word)} {vector.size}" for word, vector in rows.items()]
        raise InputError(f": vectors differ in length: {', '.join(lengths[:8])}")
    return WordVectors(tuple(rows), np.array(list(rows.values())))


Vectors = Annotated[WordVectors, _read(WordVectors, _word_vectors)]


class Sentence(Model):
    """Tokens, and the vector of each word among them."""

    tokens: Words
    vectors: Vectors


def _token_rows(data: object) -> WordVectors:
    """A matrix, or a `Sentence`: a row for each token."""
    if not isinstance(data, dict) or "tokens" not in data:
        return WordVectors((), _array(data, ndim=2))
    sentence = Sentence.model_validate(data)
    tokens, (words, matrix) = sentence.tokens, sentence.vectors
    if missing := [token for token in tokens if token not in words]:
        raise InputError(f" has no vector for {quote(missing[0])}")
    return WordVectors(tuple(tokens), matrix[[words.index(token) for token in tokens]])


TokenRows = Annotated[WordVectors, _read(WordVectors, _token_rows)]


def _convention(data: object) -> Convention:
    """A convention from its changes to the default."""
    if not isinstance(data, dict):
        raise InputError(" is not an object", 'write {"causal": true}')
    return Convention.from_mapping(text_to_nan(data))


Changes = Annotated[Convention, _read(Convention, _convention)]
