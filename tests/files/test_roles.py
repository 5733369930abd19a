"""pick and only: which array has a role, and the error where none or several could have it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli.errors import InputError
from attncli.files.roles import ROLES, only, pick

from .saved import Loaded


def loaded(*names: str, member: str | None = None, shape: tuple[int, ...] = (2, 3)) -> Loaded:
    """Arrays of these names; each is filled with the number of its place."""
    arrays = {name: np.full(shape, place + 1.0) for place, name in enumerate(names)}
    return Loaded("x.npz", arrays, member=member)


def first(array: Any) -> float | None:
    return None if array is None else float(array.ravel()[0])


BOOLEANS = Loaded("x.npz", {"q": np.ones((2, 3), bool)})
ALIASES = {
    "q": "q, Q, query, Queries, query_states, xq",
    "k": "k, KEY, keys, key-states, xk, key layer",
    "v": "v, value, Values, value_states, xv",
    "mask": "mask, attn_mask, attention_mask, Attn_Bias",
    "past_k": "past_k, past_key, k_cache, key_cache, cache_k",
    "past_v": "past_v, past_values, v_cache, value_cache",
}


def test_aliases() -> None:
    for role, names in ALIASES.items():
        for name in names.split(", "):
            file = loaded("query" if role != "q" else "other", name)
            assert first(pick(file, role)) == 2
            assert not any(pick(file, other) is not None for other in {*ALIASES} - {role, "q"})
    aliases = [alias for names in ROLES.values() for alias in names.aliases]
    assert len(set(aliases)) == len(aliases)


def test_an_only_array_and_a_member() -> None:
    for file in (loaded(""), loaded("x"), loaded("k", member="k")):
        assert (first(pick(file, "q")), pick(file, "k")) == (1, None)
    assert first(only(loaded("q", "k", "v"), "k")) == 2
    for file in (loaded("x"), loaded(""), loaded("q"), loaded("v", member="v")):
        assert first(only(file, "k")) == 1
    assert first(only(loaded("mask", shape=(3,)), "mask")) == 1
    assert only(BOOLEANS, "mask").dtype == np.bool_


@pytest.mark.parametrize(
    ("read", "file", "role", "key"),
    [
        (pick, loaded("q", "query", "k"), "q", "2 arrays that could be q: q, query; say which: x.n"),
        (pick, loaded("k"), "q", "no q; it holds k; name one: x.npz::k"),
        (pick, loaded("k", "v"), "q", "no q; it holds k, v; name one: x.npz::k"),
        (pick, loaded("a", "b"), "q", "no q; it holds a, b; name one: x.npz::a"),
        (only, loaded("a", "b"), "k", "no k; it holds a, b; name one: x.npz::a"),
        (only, loaded("\x1b[2J", *(f"t{i}" for i in range(40))), "k", "t10 and 29 more"),
        (only, loaded("\x1b[2J", *(f"t{i}" for i in range(40))), "k", "'\\x1b[2J', t0"),
        (only, loaded("q", shape=(5,)), "q", "1 dimension, q needs 2 to 4"),
        (only, loaded("q", shape=(2, 1, 1, 1, 3)), "q", "5 dimensions, q needs 2 to 4"),
        (only, loaded("mask", shape=()), "mask", "0 dimensions, mask needs 1 to 4"),
        (only, loaded("past_k", shape=(5,)), "past_k", "1 dimension, past_k needs 2 to 4"),
        (only, loaded("q", shape=(2, 0)), "q", "is empty"),
        (pick, BOOLEANS, "q", "q holds true and false"),
    ],
)  # fmt: skip
def test_refusals(read: Any, file: Loaded, role: str, key: str) -> None:
    with pytest.raises(InputError) as caught:
        read(file, role)
    assert key in str(caught.value)
