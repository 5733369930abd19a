"""Which file every input comes from: each is read once, and what is in it for no use is named."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from attncli.arrays import Array
from attncli.cli.options import InputFlags
from attncli.convention import flag_of
from attncli.errors import ConventionError
from attncli.files.contents import FileContents
from attncli.files.load import load
from attncli.files.lookup import name_of, only, pick
from attncli.files.roles import (
    ATTENDED,
    D_OUTPUT,
    EMBEDDINGS,
    ONES,
    RANDOM,
    ROLES,
    Role,
    is_attended,
    is_field,
    role_of,
    stages_named,
)
from attncli.stages import QKV
from attncli.transformer.names import is_published

Files = Mapping[str, FileContents]
OBSERVED, WEIGHTS = "observed", "--weights"  # beside ROLES

ONE_OF_TWO = "Q, K and V are given or made of x"


class Heads(NamedTuple):
    """How many there are of queries and of keys."""

    n_heads: int = 1
    n_kv_heads: int = 1


class Read(NamedTuple):
    """What was read; where tokens are columns of x, the labels of its file are those of columns."""

    arrays: dict[str, Array]  # x, the weights, and of every other role: a mask, a cache …
    heads: Heads
    files: Files  # those of the roles
    used: dict[int, set[str]]  # id of a file → the names of its arrays that were used


def sources_of(inputs: InputFlags, observed: str | None = None) -> tuple[dict[Role, str], Any]:
    """The source of each role that has one; and "ones" or "random" for a gradient that is made."""
    named = {role: getattr(inputs, role, None) for role in ROLES}
    named |= {WEIGHTS: inputs.weights, OBSERVED: observed}
    drawn = named.pop(D_OUTPUT) if named[D_OUTPUT] in (ONES, RANDOM) else None
    return {role: source for role, source in named.items() if source is not None}, drawn


def read_files(
    sources: Mapping[Role, str],
    stages: Collection[str],
    notes: list[str],
    known: Files,
    names: Collection[str] = (),
) -> Files:
    """The file of every role that has a flag of its own, each read once; and the observed one.

    names  of arrays that formulas may read, whatever their role

    ConventionError where there is nothing to compute from, or two things.
    """
    given = [role for role in ("q", "k", "v") if role in sources]
    embedded = [role for role in EMBEDDINGS if role in sources]
    if not given and not embedded and WEIGHTS not in sources:
        hint = "write attncli compute FILE, or give embeddings by --x, and their --weights"
        raise ConventionError("there is nothing to compute", hint)
    own = [role for role in given if role != "q"] if WEIGHTS in sources else []
    if (given and embedded) or own:
        ours = flag_of(given[0] if embedded else own[0])
        theirs = flag_of(embedded[0]) if embedded else WEIGHTS
        what = f"{ours} and {theirs} are both given"
        raise ConventionError(what, f"{ONE_OF_TWO}: leave out {ours}, or {theirs}")
    if not given and "x" not in sources and WEIGHTS not in sources:
        raise ConventionError(f"{flag_of(embedded[0])} is given without --x", "add --x SOURCE")
    all_others = sources.get("x") or sources.get(WEIGHTS) or ""  # the file that holds them
    sources = {**sources, "q": sources.get("q", all_others)}
    stdin = sorted({source for source in sources.values() if source.split("::")[0] == "-"})
    if len(stdin) > 1:
        what = f"standard input can be read only once, not as {' and '.join(stdin)}"
        raise ConventionError(what, "save it to a file, then name parts of that with ::")
    read = dict(known)
    for role, source in sources.items():
        if source not in read:
            wanted = partial(_is_used, source, sources, stages, names)
            read[source] = load(source, role=role, wanted=wanted)
            notes += read[source].warnings
    return {role: read[source] for role, source in sources.items()}


def _is_used(
    source: str,
    sources: Mapping[Role, str],
    stages: Collection[str],
    names: Collection[str],
    name: str,
) -> bool:
    """Whether an array of this name is of use in a source: for a role, as an observed one, or in
    formulas."""
    is_main, is_observed = source == sources["q"], source == sources.get(OBSERVED)
    if not name:
        is_x = source in [sources.get(role) for role in EMBEDDINGS]
        return is_x or (is_main and WEIGHTS in sources)
    if name in names:
        return True
    role = role_of(name)
    if role and (is_observed or source == sources.get(role, sources["q"])):
        return True
    if is_observed and (name in stages or any(x in stages for x in stages_named(name))):
        return True
    if (is_main or is_observed) and is_field(name):  # it says something of the attention
        return True
    return source == sources.get(WEIGHTS, sources["q"]) and is_published(name)


def arrays_of(roles: Iterable[Role], files: Files) -> dict[str, Array]:
    """The arrays of these roles, each from its own flag or from the file of --q.

    ConventionError where one half of a cache is given.
    """
    arrays = {}
    for role in roles:
        own = only(files[role], role) if role in files and role != "q" else pick(files["q"], role)
        if own is not None:
            arrays[role] = own
    if ("past_k" in arrays) != ("past_v" in arrays):
        has, lacks = ("k", "v") if "past_k" in arrays else ("v", "k")
        raise ConventionError(f"there is a past_{has} but no past_{lacks}", "give both")
    return arrays


def named_arrays(files: Files, names: Collection[str]) -> dict[str, Array]:
    """The arrays that are called so in one of the files, of --q before others."""
    every = [files[role].arrays for role in (*files, "q")]
    return {name: arrays[name] for arrays in every for name in names if name in arrays}


def unused_notes(
    files: Files, used: Mapping[int, Collection[str]], stages: Collection[str], *, of_x: bool
) -> Iterator[str]:
    """A note on the arrays of each file that no role takes."""
    main, of_weights = files["q"], files.get(WEIGHTS)
    for file in {id(file): file for role, file in files.items() if role != OBSERVED}.values():
        if file.trace is not None:
            continue
        known = {*used.get(id(file), ()), *stages}
        roles = {name: role_of(name) for name in file.arrays}
        if of_x and file in (main, of_weights):
            taken = {*ATTENDED} - {*QKV} if file is main else ()
            names = [name for name, role in roles.items() if role not in taken]
        else:
            names = [
                name
                for name, role in roles.items()
                if role in EMBEDDINGS or (role is None and is_published(name))
            ]
        skipped = (*file.unread, *file.others)
        names += [name for name in skipped if not is_attended(name) or file is of_weights]
        names = [name for name in names if not {name, *stages_named(name)} & known]
        if file is of_weights is not main:  # what it says of the attention is that of its model
            names += ["scale"] * (file.scale is not None) + ["tokens"] * bool(file.query_labels)
        if names:
            yield from file.unused_note(names)


def holds_x(loaded: FileContents) -> bool:
    """Whether a file holds embeddings and weights of them."""
    return any(map(is_published, loaded.arrays)) and name_of(loaded, "x") is not None
