"""pick and only: which array has a role, and the error where none or several could have it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from attncli.errors import InputError
from attncli.files.load import Loaded
from attncli.files.roles import ROLES, Role, only, pick


def loaded(*names: str, member: str | None = None, shape: tuple[int, ...] = (2, 3)) -> Loaded:
    """Arrays of these names; each is filled with the number of its place."""
    arrays: dict[str, npt.NDArray[Any]] = {
        name: np.full(shape, i + 1.0) for i, name in enumerate(names)
    }
    return Loaded("x.npz", arrays, member=member)


def first(array: npt.NDArray[Any] | None) -> float | None:
    return None if array is None else float(array.ravel()[0])


@pytest.mark.parametrize(
    ("name", "role"),
    [
        *[(name, "q") for name in ("q", "Q", "query", "Queries", "query_states", "xq")],
        *[(name, "k") for name in ("k", "KEY", "keys", "key-states", "xk", "key layer")],
        *[(name, "v") for name in ("v", "value", "Values", "value_states", "xv")],
        *[(name, "mask") for name in ("mask", "attn_mask", "attention_mask", "Attn_Bias")],
        *[(name, "past_k") for name in ("past_k", "past_key", "k_cache", "key_cache", "cache_k")],
        *[(name, "past_v") for name in ("past_v", "past_values", "v_cache", "value_cache")],
    ],
)
def test_aliases(name: str, role: Role) -> None:
    file = loaded("query" if role != "q" else "other", name)
    assert first(pick(file, role)) == 2
    others: list[Role] = ["k", "v", "mask", "past_k", "past_v"]
    assert all(pick(file, other) is None for other in others if other != role)


def test_no_alias_has_two_roles() -> None:
    aliases = [alias for names in ROLES.values() for alias in names.aliases]
    assert len(set(aliases)) == len(aliases)


def test_only_array_is_q_and_no_other_role() -> None:
    for name in ("", "x"):
        assert first(pick(loaded(name), "q")) == 1
        assert pick(loaded(name), "k") is None


def test_member_is_q_and_no_other_role() -> None:
    file = loaded("k", member="k")
    assert first(pick(file, "q")) == 1
    assert pick(file, "k") is None


def test_two_names_for_one_role() -> None:
    with pytest.raises(InputError) as caught:
        pick(loaded("q", "query", "k"), "q")
    assert str(caught.value) == (
        "x.npz holds 2 arrays that could be q: q, query; say which: x.npz::q"
    )


@pytest.mark.parametrize("names", [("k",), ("k", "v"), ("a", "b")])
def test_no_q_lists_what_there_is(names: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        pick(loaded(*names), "q")
    listed = ", ".join(names)
    assert str(caught.value) == (
        f"x.npz holds no q; it holds {listed}; name one: x.npz::{names[0]}"
    )


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (loaded("q", "k", "v"), 2),
        (loaded("x"), 1),
        (loaded(""), 1),
        (loaded("q"), 1),
        (loaded("v", member="v"), 1),
    ],
)
def test_only_for_k(file: Loaded, expected: float) -> None:
    assert first(only(file, "k")) == expected


def test_only_of_several_unknown() -> None:
    with pytest.raises(InputError, match=r"holds no k; it holds a, b; name one: x\.npz::a"):
        only(loaded("a", "b"), "k")


def test_long_lists_are_cut_and_names_made_safe() -> None:
    with pytest.raises(InputError) as caught:
        only(loaded("\x1b[2J", *(f"t{i}" for i in range(40))), "k")
    assert "'\\x1b[2J', t0" in str(caught.value)
    assert "t10 and 29 more" in str(caught.value)


@pytest.mark.parametrize(
    ("role", "shape", "expected"),
    [
        ("q", (5,), "x.npz, q has 1 dimension, q needs 2 to 4"),
        ("q", (2, 1, 1, 1, 3), "x.npz, q has 5 dimensions, q needs 2 to 4"),
        ("mask", (), "x.npz, mask has 0 dimensions, mask needs 1 to 4"),
        ("past_k", (5,), "x.npz, past_k has 1 dimension, past_k needs 2 to 4"),
        ("q", (2, 0), "x.npz, q is empty: its shape is (2, 0)"),
    ],
)
def test_dimensions(role: Role, shape: tuple[int, ...], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        only(loaded(role, shape=shape), role)
    assert str(caught.value).startswith(expected)


def test_mask_may_be_a_row() -> None:
    assert first(only(loaded("mask", shape=(3,)), "mask")) == 1


def test_booleans_are_accepted_only_as_a_mask() -> None:
    file = Loaded("x.npz", {"q": np.ones((2, 3), dtype=bool)})
    with pytest.raises(InputError, match=r"x\.npz, q holds true and false, q needs numbers"):
        pick(file, "q")
    assert only(file, "mask").dtype == np.bool_
