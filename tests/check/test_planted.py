"""A quick look at the planted set: each implementation in one world and one number type, in turn.

tests/benchmarks/planted.py runs all of it, and says how many causes are named.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.check.planted.parts import HALF
from tests.check.planted.right import INSIDE, LIBRARIES, RIGHT
from tests.check.planted.rows import Row, how_wrong, observed, outcome, verdict_on
from tests.check.planted.worlds import World
from tests.check.planted.wrong import GROUPS

FAR_ENOUGH = 3  # noises; the quiet ones are below it, or near it, in 16 bits


def size(world: World) -> int:
    return world.b * world.h * world.n_q * world.n_k * (world.d_k + world.d_v)


def in_turn(groups: dict[str, tuple[Row, ...]], *, smallest: bool = False) -> list[Any]:
    """Each row with one of its worlds, in turn or the smallest, and one of its number types."""
    rows = [(group, row) for group, rows in groups.items() for row in rows]
    return [
        pytest.param(
            row,
            min(row.worlds, key=size) if smallest else row.worlds[i % len(row.worlds)],
            row.types[i % len(row.types)],
            id=f"{group}: {row.what}",
        )
        for i, (group, row) in enumerate(rows)
    ]


@pytest.mark.parametrize(("row", "world", "dtype"), in_turn(GROUPS, smallest=True))
def test_a_wrong_one_never_matches_and_is_never_named_wrongly(
    row: Row, world: World, dtype: str
) -> None:
    x = world.inputs(dtype)
    seen = observed(row, x)
    quiet = row.kind == "quiet" and dtype in HALF
    assert quiet or how_wrong(row, x, seen) >= FAR_ENOUGH
    two = any(" + " in name for name in row.names)
    verdict = verdict_on(row, x, seen, pairs=two)  # the benchmark tries pairs everywhere
    said = [explanation.name for explanation in verdict.explanations]
    assert outcome(row, x, verdict) not in {"matched", "wrong name"}, (dtype, said)


@pytest.mark.parametrize(("row", "world", "dtype"), in_turn(RIGHT))
def test_a_right_one_matches(row: Row, world: World, dtype: str) -> None:
    x = world.inputs(dtype)
    verdict = verdict_on(row, x, observed(row, x))
    said = [explanation.name for explanation in verdict.explanations]
    assert outcome(row, x, verdict) == "matched", (dtype, verdict.status, said)


@pytest.mark.parametrize(("row", "world", "dtype"), in_turn(INSIDE))
def test_less_precision_inside_is_no_bug(row: Row, world: World, dtype: str) -> None:
    x = world.inputs(dtype)
    assert not verdict_on(row, x, observed(row, x), pairs=False).explanations


def test_the_set_is_as_large_as_it_says() -> None:
    wrong = [row for rows in GROUPS.values() for row in rows]
    kinds = Counter(row.kind for row in wrong)
    assert kinds["wrong"] >= 130
    assert kinds["control"] >= 20
    assert sum(map(len, RIGHT.values())) >= 66
    for groups in (GROUPS, RIGHT, INSIDE, LIBRARIES):
        names = Counter(row.what for rows in groups.values() for row in rows)
        assert [name for name, n in names.items() if n > 1] == []
    worlds = {world.name: world for row in wrong for world in row.worlds}
    assert len(worlds) == len({id(world) for row in wrong for world in row.worlds})
