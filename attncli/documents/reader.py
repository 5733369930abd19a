"""From the JSON of a file to Examples; every error names the file, the example and the claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from attncli.documents import example as ex
from attncli.documents.computations import COMPUTATIONS
from attncli.documents.nodes import Node, node, number, whole
from attncli.documents.printed import Printed, read_printed
from attncli.errors import InputError
from attncli.files.messages import listing, quote

VERSION = 1
_MOST_EXAMPLES, _MOST_CLAIMS, _MOST_WAYS = 200, 200, 10
_CLAIM = ("at", "take", "printed", "decimals", "states", "free_sign")
_RECORDED = ("verdict", "cause", "why", "ways")


def read_examples(document: object, origin: str) -> tuple[ex.Example, ...]:
    """The examples of one file's document, in its order.

    Raises InputError where it does not follow the schema (catalog.schema.json).
    """
    given = node(document, origin)
    if given.fields.get("attncli") != "examples":
        raise InputError(f'{origin} has no "attncli": "examples"', "is it a file of examples?")
    given.keys(["attncli", "version", "source", "examples"], ["$schema"])
    if given.fields["version"] != VERSION:
        shown = quote(str(given.fields["version"]), 20)
        raise InputError(f"{origin} has version {shown}", f"this attncli reads version {VERSION}")
    source = _source(given.part("source"))
    found = given.items("examples", _MOST_EXAMPLES)
    if not found:
        raise InputError(f"{origin} holds no example")
    examples = tuple(_example(one, i, origin, source) for i, one in enumerate(found, start=1))
    names = [example.name for example in examples]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{origin} has two examples {quote(twice[0])}", "give each its own name")
    return examples


def _source(given: Node) -> ex.Source:
    given.keys(["id", "title"], ["author", "date"])
    return ex.Source(*(given.text(key) for key in ("id", "title", "author", "date")))


def _example(found: object, index: int, origin: str, source: ex.Source) -> ex.Example:
    given = node(found, f"{origin}: example {index}")
    name = given.text("name")
    given = replace(given, spot=f"{origin}: example {quote(name) if name else index}")
    given.keys(["name", "title", "compute", "inputs", "claims"], ["note"])
    if not name:
        raise InputError(f"{given.spot} has an empty name")
    compute = given.one_of("compute", COMPUTATIONS) or ""
    if not compute:
        raise InputError(f"{given.spot}: compute is null", f"use {listing(COMPUTATIONS)}")
    claims = given.items("claims", _MOST_CLAIMS)
    if not claims:
        raise InputError(f"{given.spot} claims nothing", "give it a claim")
    return ex.Example(
        name,
        given.text("title"),
        source,
        compute,
        _inputs(given.part("inputs"), compute),
        tuple(_claim(one, i, given.spot, compute) for i, one in enumerate(claims, start=1)),
        given.text("note"),
        given.spot,
    )


def _inputs(given: Node, compute: str, *, partial: bool = False) -> Mapping[str, Any]:
    kind = COMPUTATIONS[compute]
    given.keys([] if partial else list(kind.needs), [*kind.needs, *kind.may])
    if kind.either and not partial and sum(name in given.fields for name in kind.either) != 1:
        raise InputError(f"{given.spot} needs one of {listing(kind.either)}")
    parsers = {**kind.needs, **kind.may}
    return {
        name: parsers[name](found, f"{given.spot}, {name}") for name, found in given.fields.items()
    }


def _claim(found: object, index: int, where: str, compute: str) -> ex.Claim:
    given = node(found, f"{where}, claim {index}")
    given.keys(["claim", "stage"], [*_CLAIM, *_RECORDED])
    printed = _printed(given, "printed")
    states = _states(given.part("states")) if "states" in given.fields else None
    if printed and states:
        raise InputError(f"{given.spot} has both printed and states", "leave one of them out")
    ways = given.items("ways", _MOST_WAYS)
    return ex.Claim(
        given.text("claim"),
        given.text("stage"),
        _at(given.part("at")),
        _take(given.part("take")) if "take" in given.fields else None,
        printed,
        states,
        given.text("free_sign"),
        cast("ex.Verdict | None", given.one_of("verdict", ex.RECORDED)),
        cast("ex.Cause | None", given.one_of("cause", ex.CAUSES)),
        given.text("why"),
        tuple(_way(one, i, given.spot, compute) for i, one in enumerate(ways, start=1)),
        given.spot,
    )


def _printed(given: Node, key: str) -> Printed | None:
    found, decimals = given.fields.get(key), given.fields.get("decimals")
    if decimals is not None:
        decimals = whole(decimals, f"{given.spot}, decimals")
        if not 0 <= decimals <= 30:
            raise InputError(f"{given.spot}: decimals is {decimals}", "use 0 to 30")
    return None if found is None else read_printed(found, f"{given.spot}, {key}", decimals)


def _states(given: Node) -> ex.States:
    given.keys([], ex.RELATIONS)
    if len(given.fields) != 1:
        raise InputError(f"{given.spot} needs one of {listing(ex.RELATIONS)}")
    ((relation, value),) = given.fields.items()
    return ex.States(cast("ex.Relation", relation), number(value, f"{given.spot}, {relation}"))


def _at(given: Node) -> ex.At:
    return {axis: _entries(found, f"{given.spot}, {axis}") for axis, found in given.fields.items()}


def _entries(found: object, spot: str) -> ex.Entries:
    several = found if isinstance(found, list) else [found]
    if not several or len(several) > 1000:
        raise InputError(f"{spot} names {len(several)} entries", "1 to 1000 are possible")
    made = tuple(one if isinstance(one, str) else whole(one, spot) for one in several)
    return made if isinstance(found, list) else made[0]


def _take(given: Node) -> ex.Take:
    given.keys([], ex.TAKEN)
    if len(given.fields) != 1:
        raise InputError(f"{given.spot} needs one of {listing(ex.TAKEN)}")
    ((what, of),) = given.fields.items()
    if what == "minus":
        return ex.Take("minus", _at(given.part("minus")))
    if what in ("shape", "future"):
        if of is not True:
            raise InputError(f"{given.spot}: {what} is not true", f'write {{"{what}": true}}')
        return ex.Take(cast("ex.Taken", what))
    if not isinstance(of, str):
        raise InputError(
            f"{given.spot}: {what} does not name an axis", f'write {{"{what}": "key"}}'
        )
    return ex.Take(cast("ex.Taken", what), of)


def _way(found: object, index: int, where: str, compute: str) -> ex.Way:
    given = node(found, f"{where}, way {index}")
    given.keys(["how"], ["inputs", "from", "at", "gives", "decimals"])
    start = given.text("from")
    if start and COMPUTATIONS[compute].resume is None:
        raise InputError(f"{given.spot}: {compute} cannot be computed from one of its stages")
    return ex.Way(
        given.text("how"),
        _inputs(given.part("inputs"), compute, partial=True),
        start,
        _at(given.part("at")) if "at" in given.fields else None,
        _printed(given, "gives"),
    )
