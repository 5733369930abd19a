"""Where the arrays of an attention come from: a source for each role, each read once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from attncli.arrays import Array
from attncli.choices import Choices, Chosen
from attncli.convention import Layout, flag_of
from attncli.errors import ConventionError
from attncli.files.contents import IF_NUMBERS, FileContents
from attncli.files.load import read_source
from attncli.files.lookup import name_of, only, pick
from attncli.files.roles import (
    ATTENDED,
    D_OUTPUT,
    EMBEDDINGS,
    ONES,
    RANDOM,
    Role,
    is_attended,
    is_field,
    role_of,
    stages_named,
)
from attncli.stages import QKV
from attncli.transformer.names import is_published

OBSERVED, OF_X = "observed", "--weights"  # beside ROLES: what is compared with, and weights of x
ONE_OF_TWO = "Q, K and V are given or made of x"
Axes = Literal["auto", "in-out", "out-in"]


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where the arrays of an attention come from, and how they lie there.

    roles         role → its source: a path, `path::name`, "-", or what was typed; of d_output also
                  "ones" or "random". That of q, of x or of the weights may hold all others
    weights       the source of the weights of x
    weights_axes  whether weights are [in, out] or [out, in]; auto: by their names and shapes
    observed      a source of numbers to compare with, read beside the others
    layout        the order of the axes of q, k, v, the cache and d_output; None: as the file says
    heads         into which the last axis is split; kv_heads: those of k and v
    kv_len        valid keys, one number for each batch item
    tokens        names of the queries and keys
    choices       what is chosen of the convention
    """

    roles: Mapping[Role, str]
    weights: str | None = None
    weights_axes: Axes | None = None
    observed: str | None = None
    layout: Layout | None = None
    heads: int | None = None
    kv_heads: int | None = None
    kv_len: Sequence[int] | None = None
    tokens: tuple[str, ...] | None = None
    choices: Choices = field(default_factory=Chosen)

    @property
    def drawn(self) -> Literal["ones", "random"] | None:
        """The gradient of the output that is made, not read."""
        source = self.roles.get(D_OUTPUT)
        return source if source in (ONES, RANDOM) else None  # type: ignore[return-value]

    @property
    def paths(self) -> dict[str, str]:
        """The source of everything that is read: roles, the weights, and what was observed."""
        others = {OF_X: self.weights, OBSERVED: self.observed}
        every = {**self.roles, **{name: x for name, x in others.items() if x is not None}}
        if self.drawn:
            del every[D_OUTPUT]
        return every

    @property
    def reads_stdin(self) -> bool:
        """Whether one of them is standard input."""
        return any(source.split("::")[0] == "-" for source in self.paths.values())


@dataclass(eq=False)
class Opened:
    """The file of each role, and what was found in them while they are read."""

    contents: dict[str, FileContents]
    main: FileContents  # that of q, which may hold all roles
    notes: list[str]
    used: dict[int, set[str]] = field(default_factory=dict)  # id of a file → names of its arrays

    def use(self, file: FileContents, names: Iterable[str]) -> None:
        """Notes that these arrays of a file were used."""
        self.used.setdefault(id(file), set()).update(names)

    def arrays_of(self, roles: Iterable[Role]) -> dict[str, Array]:
        """The arrays of these roles, each from its own source or from that of q.

        ConventionError where one half of a cache is given.
        """
        arrays = {}
        for role in roles:
            has_source = role in self.contents and role != "q"
            array = only(self.contents[role], role) if has_source else pick(self.main, role)
            if array is not None:
                arrays[role] = array
        if ("past_k" in arrays) != ("past_v" in arrays):
            has, lacks = ("k", "v") if "past_k" in arrays else ("v", "k")
            raise ConventionError(f"there is a past_{has} but no past_{lacks}", "give both")
        return arrays

    def arrays_named(self, names: Collection[str]) -> dict[str, Array]:
        """The arrays that are called so in one of the files, in that of q before others."""
        every = [self.contents[role].arrays for role in (*self.contents, "q")]
        return {name: arrays[name] for arrays in every for name in names if name in arrays}

    def turn(self) -> None:
        """Takes the names of columns for those of rows: tokens are columns of x."""
        turned = {
            id(x): replace(x, row_labels=x.column_labels, words={}) for x in self.contents.values()
        }
        self.contents = {role: turned[id(file)] for role, file in self.contents.items()}
        self.main = self.contents["q"]
        self.used = {id(turned[key]): names for key, names in self.used.items()}

    def unused(self, used_names: Collection[str], *, of_x: bool) -> Iterator[str]:
        """A note on the arrays of each file that no role takes."""
        contents, of_weights = self.contents, self.contents.get(OF_X)
        for file in {
            id(file): file for role, file in contents.items() if role != OBSERVED
        }.values():
            if file.trace is not None:
                continue
            used = {*self.used.get(id(file), ()), *used_names}
            roles = {name: role_of(name) for name in file.arrays}
            if of_x and file in (self.main, of_weights):
                other_roles = {*ATTENDED} - {*QKV} if file is self.main else ()
                names = [name for name, role in roles.items() if role not in other_roles]
            else:
                names = [
                    name
                    for name, role in roles.items()
                    if role in EMBEDDINGS or (role is None and is_published(name))
                ]
            skipped = (*file.unread, *file.others)
            names += [name for name in skipped if not is_attended(name) or file is of_weights]
            names = [name for name in names if not {name, *stages_named(name)} & used]
            if file is of_weights is not self.main:  # what it says of the attention is of its model
                names += ["scale"] * (file.scale is not None) + ["tokens"] * bool(file.query_labels)
            if names:
                yield from file.unused_note(names)


def open_sources(
    sources: Sources,
    stages: Collection[str] = (),
    names: Collection[str] = (),
    loaded: Mapping[str, FileContents] = {},
) -> Opened:
    """The file of every role that has a source of its own, each read once; and the observed one.

    ConventionError where there is nothing to compute from, or two things.
    """
    paths = sources.paths
    qkv_roles = [role for role in QKV if role in paths]
    embedded = [role for role in EMBEDDINGS if role in paths]
    if not qkv_roles and not embedded and OF_X not in paths:
        hint = "write attncli compute FILE, or give embeddings by --x, and their --weights"
        raise ConventionError("there is nothing to compute", hint)
    kv_roles = [role for role in qkv_roles if role != "q"] if OF_X in paths else []
    if (qkv_roles and embedded) or kv_roles:
        ours = flag_of(qkv_roles[0] if embedded else kv_roles[0])
        theirs = flag_of(embedded[0]) if embedded else OF_X
        message = f"{ours} and {theirs} are both given"
        raise ConventionError(message, f"{ONE_OF_TWO}: leave out {ours}, or {theirs}")
    if not qkv_roles and "x" not in paths and OF_X not in paths:
        raise ConventionError(f"{flag_of(embedded[0])} is given without --x", "add --x SOURCE")
    all_others = paths.get("x") or paths.get(OF_X) or ""  # the file that holds them
    paths = {**paths, "q": paths.get("q", all_others)}
    stdin = sorted({source for source in paths.values() if source.split("::")[0] == "-"})
    if len(stdin) > 1:
        message = f"standard input can be read only once, not as {' and '.join(stdin)}"
        raise ConventionError(message, "save it to a file, then name parts of that with ::")
    contents, notes = dict(loaded), list[str]()
    for role, source in paths.items():
        if source not in contents:
            selector = partial(_is_used, source, paths, stages, names)
            contents[source] = read_source(source, role=role, selector=selector)
            notes += contents[source].warnings
    of_roles = {role: contents[source] for role, source in paths.items()}
    return Opened(of_roles, of_roles["q"], notes)


def _is_used(
    source: str,
    paths: Mapping[str, str],
    stages: Collection[str],
    names: Collection[str],
    name: str,
) -> bool | str:
    """Whether an array of this name is of use in a source: for a role, as an observed one, or in
    formulas; IF_NUMBERS where it may be none."""
    is_main, is_observed = source == paths["q"], source == paths.get(OBSERVED)
    if not name:
        is_x = source in [paths.get(role) for role in EMBEDDINGS]
        return is_x or (is_main and OF_X in paths)
    if name in names:
        return True
    role = role_of(name)
    if role and (is_observed or source == paths.get(role, paths["q"])):
        return True
    if is_observed and (name in stages or any(x in stages for x in stages_named(name))):
        return True
    if (is_main or is_observed) and is_field(name):  # it says something of the attention
        return True
    is_weight = source == paths.get(OF_X, paths["q"]) and is_published(name)
    # `weights` may be the packed ones of x, or a stage, which a worksheet leaves blank
    return IF_NUMBERS if is_weight and stages_named(name) else is_weight


def holds_x(contents: FileContents) -> bool:
    """Whether a file holds embeddings and weights of them."""
    return any(map(is_published, contents.arrays)) and name_of(contents, "x") is not None
