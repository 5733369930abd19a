"""Objects of a file of examples: which keys they have, and what is said of those that do not fit.

A reader raises an InputError whose message goes on after the key; `validated` adds the file,
example, claim and key.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from attncli.errors import AttncliError, InputError
from attncli.files.json_text import described
from attncli.files.messages import listing, quote, safe

MOST_KEYS = 1 << 11
"""Most keys of an object: each could be an error."""
MOST_TEXT = 4000
"""Most characters of a text: a page."""


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
            if isinstance(value, dict) and len(value) > MOST_KEYS:
                raise InputError(f", {key} has {len(value)} keys", f"{MOST_KEYS} is the most")
        return data


class OneKey(Model):
    """An object that has exactly one of its keys."""

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
    """The keys to a place in the file; examples by their name, others by their number."""
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
