"""Which array of a source is q, k, v, the mask or the cache: by its name, or as the only one."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy.typing as npt

from attncli.errors import InputError
from attncli.files.loaded import Loaded
from attncli.files.messages import ask_for, count, listing, location

Role = Literal["q", "k", "v", "mask", "past_k", "past_v"]

_WORDS = {"q": ("query", "queries"), "k": ("key", "keys"), "v": ("value", "values")}


def _aliases() -> dict[str, Role]:
    masks = "mask attn_mask attention_mask attn_bias attention_bias additive_mask masks"
    known: dict[str, Role] = dict.fromkeys(masks.split(), "mask")
    roles: tuple[tuple[Role, Role | None], ...] = (("q", None), ("k", "past_k"), ("v", "past_v"))
    for role, past in roles:
        words = (role, *_WORDS[role])
        for word in words:
            for name in (word, f"{word}_states", f"{word}_layer", f"{word}_tensor"):
                known[name] = role
        known[f"x{role}"] = role
        for word in words if past else ():
            for name in (f"past_{word}", f"{word}_cache", f"cache_{word}", f"cached_{word}"):
                known[name] = past or role
    return known


_ALIASES = _aliases()


def role_of(name: str) -> Role | None:
    """The role that a name in a file says, in any case.

    >>> role_of("Query"), role_of("key_states"), role_of("k_cache"), role_of("x")
    ('q', 'k', 'past_k', None)
    """
    return _ALIASES.get(name.lower().replace("-", "_").replace(" ", "_"))


def attention_prefix(names: list[str], origin: str) -> str | None:
    """The dotted prefix of the outermost attention in a trace, by its stage q; "" for the top.

    None where no stage is called q. InputError where several lie equally deep.

    >>> attention_prefix(["input", "encoder.1.q", "encoder.1.k"], "t.json")
    'encoder.1.'
    """
    found = [name for name in names if name.split(".")[-1] == "q"]
    depth = min((name.count(".") for name in found), default=0)
    outermost = [name.removesuffix("q") for name in found if name.count(".") == depth]
    if len(outermost) > 1:
        parts = [prefix.removesuffix(".") for prefix in outermost]
        raise InputError(
            f"{origin} holds {len(parts)} attentions: {listing(parts)}",
            f"say which: {ask_for(origin, parts[0])}",
        )
    return outermost[0] if outermost else None


@overload
def pick(loaded: Loaded, role: Literal["q"]) -> npt.NDArray[Any]: ...


@overload
def pick(loaded: Loaded, role: Role) -> npt.NDArray[Any] | None: ...


def pick(loaded: Loaded, role: Role) -> npt.NDArray[Any] | None:
    """The array that a source given for everything (`--q SOURCE`) holds for one role.

    By its name (q, Query, key_states, attn_mask, k_cache, …); in a trace, the stage of the
    outermost attention. An array that `::name` asked for, or the only one, is q, and there is
    no other then. None where the source has none, except for q.

    Raises InputError where two arrays could be meant, where there is no q, and where the array
    has the wrong number of dimensions (2 to 4; a mask 1 to 4), is empty, or holds true/false.
    """
    if loaded.member in loaded.arrays:
        name = loaded.member if role == "q" else None
    else:
        name = _named(loaded, role)
    if name is None and role == "q":
        name = _lone(loaded)
        if name is None:
            raise _absent(loaded, role)
    return None if name is None else _checked(loaded, name, role)


def only(loaded: Loaded, role: Role) -> npt.NDArray[Any]:
    """The array of a source given for one role alone, such as `--k SOURCE`.

    The one that `::name` asked for, else the one that the role's name names, else the only one.

    Raises InputError as `pick` does, and where the source holds several of other names.
    """
    if loaded.member in loaded.arrays:
        return _checked(loaded, loaded.member or "", role)
    name = _named(loaded, role)
    if name is None and len(loaded.arrays) == 1:
        name = next(iter(loaded.arrays))
    if name is None:
        raise _absent(loaded, role)
    return _checked(loaded, name, role)


def _named(loaded: Loaded, role: Role) -> str | None:
    if loaded.trace is not None:
        prefix = attention_prefix(list(loaded.arrays), loaded.origin)
        name = f"{prefix}{role}"
        return name if prefix is not None and name in loaded.arrays else None
    names = [name for name in loaded.arrays if role_of(name) == role]
    if len(names) > 1:
        raise InputError(
            f"{loaded.origin} holds {len(names)} arrays that could be {role}: {listing(names)}",
            f"say which: {ask_for(loaded.origin, names[0])}",
        )
    return names[0] if names else None


def _lone(loaded: Loaded) -> str | None:
    """The only array, where its name gives it no role; a trace's stage is not taken for another."""
    if loaded.trace is not None:
        return None
    names = list(loaded.arrays)
    return names[0] if len(names) == 1 and role_of(names[0]) is None else None


def _absent(loaded: Loaded, role: Role) -> InputError:
    names = list(loaded.arrays)
    return InputError(
        f"{loaded.origin} holds no {role}; it holds {listing(names)}",
        f"name one: {ask_for(loaded.origin, names[0])}",
    )


def _checked(loaded: Loaded, name: str, role: Role) -> npt.NDArray[Any]:
    array = loaded.arrays[name]
    spot = location(loaded.origin, name)
    fewest = 1 if role == "mask" else 2
    if array.size == 0:
        raise InputError(f"{spot} is empty: its shape is {array.shape}", "give it numbers")
    if not fewest <= array.ndim <= 4:
        raise InputError(
            f"{spot} has {count(array.ndim, 'dimension')}, {role} needs {fewest} to 4",
            "2-D is (tokens, d), 3-D (heads, tokens, d), 4-D (batch, heads, tokens, d)",
        )
    if array.dtype.kind == "b" and role != "mask":
        raise InputError(f"{spot} holds true and false, {role} needs numbers", "write 1 and 0")
    return array
