"""The planted set: wrong attentions and wrong gradients are named as they were, right ones match.

By default every third name of the catalogue is judged, in one world and one number type in turn.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from attncli.commands.check.bugs.catalogue import CATALOGUE
from attncli.commands.check.diagnose import check
from tests.commands.check.planted.parts import TYPES, World, attend
from tests.commands.check.planted.right import INSIDE, RIGHT
from tests.commands.check.planted.rows import Row, names, observed, outcome, runs, verdict_on
from tests.commands.check.planted.worlds import ALL, RIGHT_WORLDS
from tests.commands.check.planted.wrong import ROWS
from tests.commands.check.planted_backward import kernel, wrong
from tests.commands.check.planted_backward.kernel import call_of
from tests.turns import in_turn

CASES = [
    pytest.param(row, world, dtype, id=f"{row.what}-{world.name}-{dtype}", marks=marks)
    for rows in (ROWS, RIGHT, INSIDE)
    for row, world, dtype, is_default in runs(rows, every_row=rows is not ROWS)
    for marks in [() if is_default else pytest.mark.exhaustive]
]


@pytest.mark.parametrize(("row", "world", "dtype"), CASES)
def test_a_wrong_one_is_named_and_a_right_one_matches(row: Row, world: World, dtype: str) -> None:
    x = world.inputs(dtype)
    verdict = verdict_on(row, x, observed(row, x))
    assert outcome(row, x, verdict) == row.expected(world, dtype), names(verdict)


def test_what_is_asked_for_matches_in_every_world() -> None:
    """So that a wrong one differs by its bug alone; right ones run in the other worlds."""
    row, differing = Row("right", (), attend, ALL), []
    for number, world in enumerate(x for x in ALL if x not in RIGHT_WORLDS):
        x = world.inputs([*TYPES][number % 4])
        if x.n_q * x.n_k < 3000 and not verdict_on(row, x, observed(row, x)).matches:
            differing.append((world.name, x.dtype))
    assert not differing


def test_every_name_of_the_catalogue_is_planted() -> None:
    """Those of lse, tiles and parts in test_tiles.py, of projections in test_gradients.py."""
    elsewhere = {b.name for b in CATALOGUE if {*b.touches} & {"lse", "tiles", "projections"}}
    elsewhere.add("part without a key not guarded")
    backward = {bug.name for bug in CATALOGUE if "gradients" in bug.touches}
    assert {row.name for row in wrong.WRONG} - {""} == backward
    planted = {name for row in ROWS for both in row.names[:1] for name in both.split(" + ")}
    assert planted | elsewhere | backward == {bug.name for bug in CATALOGUE}


def verdict_of(what: str, at: dict[str, Any] | None = None, **more: Any) -> str:
    """What a verdict on a row counts as, in its first world."""
    row = next(row for row in ROWS if row.what == what)
    x = row.worlds[0].inputs("float64")
    seen = observed(row, x)
    part = seen[:, at["heads"]][:, :, at["rows"]] if at else seen
    return outcome(row, x, verdict_on(row, x, part, **(at or {}), **more))


@pytest.mark.parametrize("what", ["no scale", "k cut by reshape", "no mask", "rows one later"])
def test_some_heads_and_rows_tell_as_much_as_all(what: str) -> None:
    """In any order, and where some are taken twice."""
    assert verdict_of(what, {"heads": [2, 0], "rows": [*range(12, 0, -1), 5]}) == "named"


# ---- pairs


def test_which_pairs_are_tried() -> None:
    """None where they are left out; nor two that touch the same thing: both would be named."""
    assert verdict_of("scale and causal", pairs=False) == "no match"
    assert verdict_of("scale and causal") == "named"
    assert verdict_of("mask inverted and turned") == "no match"
    # three numbers of two decimals fit too many pairs by chance
    q, k, v = [[1.0, 0.0]], [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]], [[1.0], [2.0], [3.0]]
    weights = [[0.30, 0.30, 0.40]]
    assert check(weights, q, k, v, stage="weights", decimals=2).status == "no match"


# ---- gradients


@pytest.fixture
def is_small(request: pytest.FixtureRequest) -> bool:
    """Worlds are smaller by default."""
    return not request.config.getoption("--exhaustive")


@pytest.mark.parametrize(("world", "dtype"), in_turn(kernel.WORLDS, TYPES))
def test_right_gradients_match(world: str, dtype: str, is_small: bool) -> None:
    """All of them in each world and type; by default one in each world, in turn."""
    call = call_of(world, dtype, is_small=is_small)
    implementations = [*kernel.right(call).items()]
    turn = [*kernel.WORLDS].index(world) % len(implementations)
    for what, gradients in [implementations[turn]] if is_small else implementations:
        assert check(dict(gradients), **call.keywords, pairs=False).status == "match", what


def cases() -> Iterator[Any]:
    """Each row in each of its worlds, in one type in turn; by default the first row of every third
    name in one of them, in the slow world of everything at once only where it has no other."""
    n_new = 0
    judged = {"dQ and dK swapped", "dropout mask not applied again in dV", "scale left out of dQ"}
    judged |= {"grouped heads not summed in dK, dV (the last one wins)"}  # test_gradients.py
    for number, row in enumerate(wrong.WRONG):
        worlds = sorted(row.worlds, key=lambda world: world == "all")
        quick = [world for world in worlds if world != "all"] or worlds
        name = row.name or row.says
        n_new += name not in judged
        is_default = name not in judged and n_new % 3 == 1
        turn = quick[number % len(quick)] if is_default else ""
        judged.add(name)
        for place, world in enumerate(worlds):
            dtype = [*TYPES][(number + place) % len(TYPES)]
            marks = () if world == turn else pytest.mark.exhaustive
            yield pytest.param(row, world, dtype, id=f"{row.what}-{world}-{dtype}", marks=marks)


@pytest.mark.parametrize(("row", "world", "dtype"), [*cases()])
def test_wrong_gradients_are_named(
    row: wrong.Wrong, world: str, dtype: str, is_small: bool
) -> None:
    call = call_of(world, dtype, is_small=is_small and "block" not in row.what)
    verdict = check(dict(row.run(call)), **call.keywords, pairs=not row.is_explained)
    usual = "named" if row.is_explained else "no match"
    assert wrong.outcome(verdict, row) == wrong.OUTCOMES.get((row.what, world, dtype), usual)


PAIRS = [  # a world, and two wrong ones that change different methods
    ("grouped", "the heads of a group averaged", "scale left out of dQ", "bfloat16"),
    ("dropout", "undropped weights in dV", "scale left out of dQ", "float64"),
    ("plain", "scale left out of dQ", "weights of dV not normalised", "float64"),
    ("plain", "δ left out", "the last block of queries lost in dV", "float32"),
]
MARKED = [pytest.param(*pair, marks=pytest.mark.exhaustive) for pair in PAIRS[1:]]


@pytest.mark.parametrize(("world", "one", "other", "dtype"), [PAIRS[0], *MARKED])
def test_two_at_once_are_named(world: str, one: str, other: str, dtype: str) -> None:
    rows = {row.what: row for row in wrong.WRONG}
    call = call_of(world, dtype, is_small=world == "grouped")
    both = kernel.run_with(call, **rows[one].methods, **rows[other].methods)
    verdict = check(dict(both), **call.keywords)
    assert verdict.status == "several"  # each gradient has its own
    bugs = [bug.name for explanation in verdict.explanations for bug in explanation.bugs]
    assert all(any(rows[x].is_called(bug) for bug in bugs) for x in (one, other))
    assert len({*bugs}) == 2
