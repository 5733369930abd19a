"""Which file every input comes from: each is read once, and what is in it for no use is named."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from attncli.attention.names import is_published
from attncli.cli.groups import given_of
from attncli.cli.options import InputFlags
from attncli.convention import flag_of
from attncli.errors import AttncliError, ConventionError
from attncli.files.fields import is_field
from attncli.files.load import Loaded, load
from attncli.files.roles import (
    EMBEDDINGS,
    ROLES,
    Role,
    gradient_named,
    is_attended,
    name_of,
    role_of,
)
from attncli.stages import QKV

Files = Mapping[str, Loaded]
OBSERVED, WEIGHTS = "observed", "--weights"  # beside ROLES

_ONE_OF_TWO = "Q, K and V are given or made of x"


def check_sources(sources: Mapping[str, str]) -> None:
    """ConventionError where there is nothing to compute from, or two things."""
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
        raise ConventionError(what, f"{_ONE_OF_TWO}: leave out {ours}, or {theirs}")
    if not given and "x" not in sources and WEIGHTS not in sources:
        raise ConventionError(f"{flag_of(embedded[0])} is given without --x", "add --x SOURCE")


def read_files(
    sources: Mapping[Role, str],
    stages: Collection[str],
    notes: list[str],
    known: Files = MappingProxyType({}),
) -> Files:
    """The file of every role that has a flag of its own, each read once; and the observed one."""
    stdin = sorted({source for source in sources.values() if source.split("::")[0] == "-"})
    if len(stdin) > 1:
        what = f"standard input can be read only once, not as {' and '.join(stdin)}"
        raise ConventionError(what, "save it to a file, then name parts of that with ::")
    read = dict(known)
    for role, source in sources.items():
        if source not in read:
            read[source] = load(source, role=role, wanted=_use_of(source, sources, stages))
            notes += read[source].warnings
    return {role: read[source] for role, source in sources.items()}


def _use_of(
    source: str, sources: Mapping[Role, str], stages: Collection[str]
) -> Callable[[str], bool]:
    """Whether an array of a source is of use, by its name: for the roles, or as an observed one."""
    is_main, is_observed = source == sources["q"], source == sources.get(OBSERVED)
    own = {role for role in ROLES if sources.get(role, sources["q"]) == source}
    roles, names = (set(ROLES), stages) if is_observed else (own, ())
    is_x = source in [sources.get(name) for name in EMBEDDINGS]
    is_x |= is_main and WEIGHTS in sources
    projects = source == sources.get(WEIGHTS, sources["q"])

    def is_used(name: str) -> bool:
        if not name:
            return is_x
        if role_of(name) in roles or gradient_named(name) in names:
            return True
        says = is_main or is_observed  # something of the attention
        return (says and is_field(name)) or (projects and is_published(name))

    return is_used


def unused_notes(
    files: Files, used: Mapping[int, Collection[str]], stages: Collection[str], *, of_x: bool
) -> Iterator[str]:
    """A note on the arrays of each file that no role takes."""
    main, of_weights = files["q"], files.get(WEIGHTS)
    for file in {id(file): file for role, file in files.items() if role != OBSERVED}.values():
        if file.trace is not None:
            continue
        known = {*used.get(id(file), ()), *stages}
        names = [name for name in file.arrays if not {name, gradient_named(name)} & known]
        if of_x and file in (main, of_weights):
            taken = {role for role in ROLES if is_attended(role)} - {*QKV} if file is main else ()
            names = [name for name in names if role_of(name) not in taken]
        else:
            names = [name for name in names if role_of(name) in EMBEDDINGS or is_published(name)]
        skipped = [n for n in (*file.unread, *file.others) if not {n, gradient_named(n)} & known]
        names += [n for n in skipped if not is_attended(n) or file is of_weights]
        if file is of_weights is not main:  # what it says of the attention is that of its model
            names += ["scale"] * (file.scale is not None) + ["tokens"] * bool(file.query_labels)
        yield from file.unused_note(names)


def holds_x(loaded: Loaded) -> bool:
    """Whether a file holds embeddings and weights of them."""
    return any(map(is_published, loaded.arrays)) and name_of(loaded, "x") is not None


def is_of_x(inputs: InputFlags, main: Loaded) -> bool:
    """Whether q, k and v are made of x: so it is asked for, or the file names x but no q."""
    if inputs.q is None:
        return True
    if name_of(main, "q") is None:
        is_made = inputs.weights is not None or (main.trace is None and holds_x(main))
        for ours in given_of(inputs, "k", "v") if is_made else ():
            what = f"{flag_of(ours)} is given, and {main.origin} holds x and weights"
            raise ConventionError(what, f"{_ONE_OF_TWO}: leave out {flag_of(ours)}")
        return is_made
    if inputs.weights is not None:
        hint = f"leave out --weights, or give the embeddings: --x {main.origin}::NAME"
        raise ConventionError(f"{main.origin} names q, and --weights is for x", hint)
    return False


def check_past(roles: Collection[str]) -> None:
    """ConventionError where one half of a cache is given."""
    if ("past_k" in roles) != ("past_v" in roles):
        has, lacks = ("k", "v") if "past_k" in roles else ("v", "k")
        raise ConventionError(f"there is a past_{has} but no past_{lacks}", "give both")


@contextmanager
def named(name: str) -> Iterator[None]:
    """Errors name the file, or the part of one, that they are about."""
    try:
        yield
    except AttncliError as error:
        raise type(error)(f"{name}: {error.message}", error.hint) from None
