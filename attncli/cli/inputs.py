"""From sources and flags to the arguments of `attend`: reading, roles, layout, labels, mask."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.heads import heads_first, shape_text, split_heads
from attncli.attention.masks import checked_mask
from attncli.attention.names import is_published
from attncli.cli.options import Choices, Inputs
from attncli.cli.parsing import tokens_of, whole_numbers
from attncli.convention import Convention, flag_of, flag_text
from attncli.errors import ConventionError, InputError, ShapeError
from attncli.files.fields import fields_of, is_field, kv_len_of, layout_of
from attncli.files.load import Loaded, load
from attncli.files.messages import count
from attncli.files.roles import (
    EMBEDDINGS,
    ROLES,
    Role,
    attention_prefix,
    is_attended,
    name_of,
    only,
    pick,
    role_of,
)
from attncli.stages import QKV

if TYPE_CHECKING:
    from attncli.attention.multi_head import Projected

Labels = tuple[str, ...] | None
Files = Mapping[str, Loaded]
OBSERVED, OF_X = "observed", "weights of x"
_CACHE = ("past_k", "past_v")


class AttentionInputs(NamedTuple):
    """Everything that one attention is computed from, and the notes on where it came from.

    arguments    what `attend`, `stream` and `check` all take, by name
    labels       query_labels and key_labels, which `attend` and `check` take too
    score_shape  the shape the scores will have
    in_heads     the last axis was split into heads
    inputs       the flags, with the layout that the file names
    observed     what is compared with, for `check`
    projected    x and the weights, where q, k and v are made of them
    """

    arguments: dict[str, Any]
    labels: dict[str, Any]
    score_shape: tuple[int, ...]
    in_heads: bool
    stdin_used: bool
    notes: list[str]
    inputs: Inputs
    observed: Loaded | None = None
    projected: Projected | None = None


def read_inputs(
    inputs: Inputs, choices: Choices, observed: str | None = None, stages: Collection[str] = ()
) -> AttentionInputs:
    """Reads every source once and makes one set of arguments of them.

    observed, stages  one more source to read, for `check`, and the stages that are wanted of it

    Raises InputError, ShapeError or ConventionError where they cannot be read or do not fit.
    """
    notes: list[str] = []
    named = {role: getattr(inputs, role, None) for role in ROLES}
    named |= {OF_X: inputs.weights, OBSERVED: observed}
    sources = {role: source for role, source in named.items() if source is not None}
    _check_sources(sources)
    sources.setdefault("q", inputs.x or inputs.weights or "")  # the file that holds all others
    files = _files(sources, stages, notes)
    main = files["q"]
    if (
        observed is not None
        and observed == inputs.q
        and name_of(main, "q") is None
        and not _holds_x(main)
    ):
        raise InputError(f"{main.origin} holds observed numbers, but no q", "add --q SOURCE")
    fields = fields_of(main)
    convention, inputs, kv_len = _said(main, fields, inputs, choices, notes)
    made, used = None, dict[int, set[str]]()
    if _is_of_x(inputs, main):
        from attncli.cli.embeddings import read_projected

        arrays, made, files, used = read_projected(files, inputs, convention, notes)
        main = files["q"]
    else:
        arrays = _arrays(files, notes)
        if inputs.heads or inputs.kv_heads or inputs.layout:
            _arrange(arrays, inputs)
        if name_of(main, "q") is None:
            used[id(main)] = set(main.arrays)
    notes += _unused(files, used, stages, of_x=made is not None)
    convention = _check_mask(arrays, files, choices, fields, convention)
    n_past = arrays["past_k"].shape[-2] if "past_k" in arrays else 0
    shape = (*arrays["q"].shape[:-1], arrays["k"].shape[-2] + n_past)
    is_split = inputs.heads is not None or inputs.layout == "bsd"
    if made is not None:
        is_split = len(shape) > 2
    return AttentionInputs(
        {**arrays, "kv_len": kv_len, "convention": convention},
        _labels(shape[-2], shape[-1] - n_past, n_past, _named(files, inputs)),
        shape,
        in_heads=is_split,
        stdin_used=any(source.split("::")[0] == "-" for source in sources.values()),
        notes=notes,
        inputs=inputs,
        observed=files.get(OBSERVED),
        projected=made,
    )


def _check_sources(sources: Mapping[str, str]) -> None:
    """ConventionError where there is nothing to compute from, or two things."""
    given = [role for role in ("q", "k", "v") if role in sources]
    embedded = [role for role in EMBEDDINGS if role in sources]
    if not given and not embedded and OF_X not in sources:
        hint = "write attncli compute FILE, or give embeddings by --x, and their --weights"
        raise ConventionError("there is nothing to compute", hint)
    own = [role for role in given if role != "q"] if OF_X in sources else []
    if (given and embedded) or own:
        ours = flag_of(given[0] if embedded else own[0])
        theirs = flag_of(embedded[0]) if embedded else "--weights"
        raise ConventionError(
            f"{ours} and {theirs} are both given",
            f"Q, K and V are given or made of x: leave out {ours}, or {theirs}",
        )
    if not given and "x" not in sources and OF_X not in sources:
        raise ConventionError(f"{flag_of(embedded[0])} is given without --x", "add --x SOURCE")


def _holds_x(loaded: Loaded) -> bool:
    """Whether a file holds embeddings and weights of them."""
    return name_of(loaded, "x") is not None and any(map(is_published, loaded.arrays))


def _is_of_x(inputs: Inputs, main: Loaded) -> bool:
    """Whether q, k and v are made of x: so it is asked for, or the file names x but no q."""
    if inputs.q is None:
        return True
    if name_of(main, "q") is None:
        return inputs.weights is not None or (main.trace is None and _holds_x(main))
    if inputs.weights is not None:
        raise ConventionError(
            f"{main.origin} names q, and --weights is for x",
            f"leave out --weights, or give the embeddings: --x {main.origin}::NAME",
        )
    return False


def _files(sources: Mapping[Role, str], stages: Collection[str], notes: list[str]) -> Files:
    """The file of every role that has a flag of its own, each read once; and the observed one."""
    stdin = sorted({source for source in sources.values() if source.split("::")[0] == "-"})
    if len(stdin) > 1:
        raise ConventionError(
            f"standard input can be read only once, not as {' and '.join(stdin)}",
            "save it to a file, then name parts of that with ::",
        )
    read: dict[str, Loaded] = {}
    for role, source in sources.items():
        if source not in read:
            asked = {other for other in ROLES if sources.get(other, sources["q"]) == source}
            names, says = set[str](), source == sources["q"]  # something of the attention
            if source == sources.get(OBSERVED):
                asked, names, says = set(ROLES), set(stages), True
            is_x = source in [sources.get(name) for name in EMBEDDINGS]
            projects = source == sources.get(OF_X, sources["q"])

            def is_wanted(
                name: str,
                asked: set[str] = asked,
                names: set[str] = names,
                says: bool = says,
                is_x: bool = is_x,
                projects: bool = projects,
            ) -> bool:
                if not name:
                    return is_x
                is_asked = role_of(name) in asked or name in names
                return is_asked or (says and is_field(name)) or (projects and is_published(name))

            read[source] = load(source, role=role, wanted=is_wanted)
            notes += read[source].warnings
    return {role: read[source] for role, source in sources.items()}


def _unused(
    files: Files, used: Mapping[int, Collection[str]], stages: Collection[str], *, of_x: bool
) -> Iterator[str]:
    """A note on the arrays of each file that no role takes."""
    main, of_weights = files["q"], files.get(OF_X)
    for file in {id(file): file for role, file in files.items() if role != OBSERVED}.values():
        if file.trace is not None:
            continue
        names = [name for name in file.arrays if name not in {*used.get(id(file), ()), *stages}]
        if of_x and file in (main, of_weights):
            taken = {role for role in ROLES if is_attended(role)} - {*QKV} if file is main else ()
            names = [name for name in names if role_of(name) not in taken]
        else:
            names = [name for name in names if role_of(name) in EMBEDDINGS or is_published(name)]
        skipped = (*file.unread, *file.others)
        names += [n for n in skipped if not is_attended(n) or file is of_weights]
        if file is of_weights is not main:  # what it says of the attention is that of its model
            names += ["scale"] * (file.scale is not None) + ["tokens"] * bool(file.query_labels)
        yield from file.unused_note(names)


def _said(
    main: Loaded, fields: Mapping[str, Any], inputs: Inputs, choices: Choices, notes: list[str]
) -> tuple[Convention, Inputs, list[int] | None]:
    """The convention, the layout and the key lengths: as a flag says, else as the file does."""
    base = _convention(main, fields, notes)
    used = [flag_text(name, value) for name, value in fields.items() if name in base.changes()]
    replaced = {
        flag_of(name): flag_text(name, base.changes()[name])
        for name, value in choices.given.items()
        if name in base.changes() and value != base.changes()[name]
    }
    used = [text for text in used if text not in replaced.values()]
    kv_len, layout = kv_len_of(main), layout_of(main)
    if inputs.kv_len is not None:
        if kv_len is not None:
            replaced["--kv-len"] = f"--kv-len {','.join(map(str, kv_len))}"
        kv_len = whole_numbers(inputs.kv_len, "--kv-len", "N[,N…], one per batch item")
    elif kv_len is not None:
        used.append(f"--kv-len {','.join(map(str, kv_len))}")
    if layout is not None and inputs.layout is None:
        inputs = replace(inputs, layout=layout)
        used.append(f"--layout {layout}")
    elif layout not in (None, inputs.layout):
        replaced["--layout"] = f"--layout {layout}"
    if used and main.trace is None:
        notes.append(f"{main.origin} says {', '.join(used)}: used")
    notes += (f"{flag} is used, not {text} of {main.origin}" for flag, text in replaced.items())
    return choices.over(base), inputs, kv_len


def _convention(main: Loaded, fields: Mapping[str, Any], notes: list[str]) -> Convention:
    """The convention that the input itself brings: a saved trace's, or what a file says."""
    trace = main.trace
    if trace is None or trace.convention is None:
        return Convention(**fields)
    # What masked the trace is in its stage `mask`; it is not applied once more.
    prefix = attention_prefix(list(trace), main.origin) or ""
    own = trace.part(prefix.removesuffix(".")).convention or trace.convention
    base = replace(own, causal=False, window=None, causal_align="top-left", mask_means="keep")
    changed = ", ".join(f"{name} {value}" for name, value in base.changes().items())
    if changed:
        notes.append(f"{main.origin} is a trace with {changed}: kept")
    return base


def _arrays(files: Files, notes: list[str]) -> dict[str, Array]:
    """The array of every role, from its own flag or from the file of --q."""
    main = files["q"]
    arrays: dict[str, Array] = {}
    for role in filter(is_attended, ROLES):
        own = only(files[role], role) if role in files and role != "q" else pick(main, role)
        if own is not None:
            arrays[role] = own
    for role, instead in (("k", "q"), ("v", "k")):
        if role not in arrays:
            arrays[role] = arrays[instead]
            notes.append(f"{main.origin} has no {role}, so {role.upper()} = {instead.upper()}")
    if ("past_k" in arrays) != ("past_v" in arrays):
        has, lacks = ("k", "v") if "past_k" in arrays else ("v", "k")
        raise ConventionError(f"there is a past_{has} but no past_{lacks}", "give both")
    return arrays


def _named(files: Files, inputs: Inputs) -> Files:
    """The files whose labels count: where --tokens is given, what it names."""
    if inputs.tokens is None:
        return files
    names = tokens_of(inputs.tokens)
    return {"q": Loaded("--tokens", {}, query_labels=names, key_labels=names)}


def _check_mask(
    arrays: dict[str, Array],
    files: Files,
    choices: Choices,
    fields: Mapping[str, Any],
    convention: Convention,
) -> Convention:
    """Brings the mask into its form, once it is known what its numbers mean; the convention then.

    That of a saved trace is added: its 0 and −∞, and the numbers of a bias.
    """
    main = files["q"]
    if "mask" not in arrays:
        if "mask_means" in choices.given:
            raise ConventionError("--mask-means is given, but no mask", "add --mask SOURCE")
    elif main.trace is not None and "mask" not in files:
        arrays["mask"] = arrays["mask"].astype(np.float64)
        if arrays["mask"].any() and np.isin(arrays["mask"], (0, 1)).all():
            return replace(convention, mask_means="add")
    else:
        means = choices.given.get("mask_means", fields.get("mask_means"))
        name = f"the mask of {files.get('mask', main).origin}"
        arrays["mask"] = checked_mask(arrays["mask"], means, name, "--mask-means ")
    return convention


def _labels(n_q: int, n_k: int, n_past: int, files: Files) -> dict[str, Any]:
    """Names of the queries and of all keys, those of a cache before the n_k others.

    A file may have a list for each, or one for both: `tokens`, or the labels of a table's rows.
    One list for both names those that are as many as it.
    """
    main = files.get("x", files["q"])
    own = files.get("k", files.get("x_kv", main))
    queries = main.query_labels or main.row_labels or _words(main, "q", "x")
    keys = own.key_labels or own.row_labels or _words(own, "k", "x_kv")
    if keys is None and own is main and n_k == n_q:
        keys = queries
    if queries and queries == main.key_labels and len(queries) == n_k != n_q:
        queries = None
    if keys and keys == queries and len(keys) == n_q != n_k:
        keys = None
    for labels, n, what, origin in (
        (queries, n_q, "queries", main.origin),
        (keys, n_k, "keys", own.origin),
    ):
        if labels is not None and len(labels) != n:
            raise InputError(
                f"{origin} has {count(len(labels), 'token')} for {n} {what}",
                'give one name each, or {"queries": […], "keys": […]}',
            )
    if keys is not None:
        keys = (*(f"past {index + 1}" for index in range(n_past)), *keys)
    return {"query_labels": queries, "key_labels": keys}


def _words(file: Loaded, *roles: Role) -> Labels:
    """The words of the array of one of these roles, where it came as {word: vector}."""
    names = [name_of(file, role) or "" for role in roles] if file.words else []
    return next((file.words[name] for name in (*names, "") if name in file.words), None)


def _arrange(arrays: dict[str, Array], inputs: Inputs) -> None:
    """Brings q, k, v and the cache into the order (batch, head, token, d), split into heads."""
    n_heads, shared, layout = inputs.heads, inputs.kv_heads or inputs.heads, inputs.layout
    if inputs.kv_heads is not None and n_heads is None:
        raise ConventionError("--kv-heads is given without --heads", "give both")
    if n_heads and shared and n_heads % shared:
        raise ConventionError(
            f"{n_heads} query heads cannot evenly share {shared} key heads",
            "--heads must be a multiple of --kv-heads",
        )
    if n_heads and layout not in (None, "bsd"):
        raise ConventionError(
            f"--heads splits (tokens, d) or bsd, but --layout is {layout}",
            "leave one of the two out",
        )
    n_axes = arrays["q"].ndim
    for name in ("q", "k", "v", *_CACHE):
        if name in arrays and not (name in _CACHE and arrays[name].ndim > n_axes):
            heads = n_heads if name == "q" else shared
            try:
                arrays[name] = in_heads(arrays[name], layout, heads)
            except ShapeError as error:
                raise ShapeError(f"{name}: {error.message}", error.hint) from None


def observed_inputs(given: AttentionInputs) -> dict[str, Any]:
    """The inputs that the observed file brings itself, arranged as the given ones are."""
    loaded, inputs = given.observed, given.inputs
    if loaded is None or loaded.member in loaded.arrays:
        return {}
    found: dict[str, Any] = {"kv_len": kv_len_of(loaded)}
    for role in filter(is_attended, ROLES):
        name = name_of(loaded, role)
        if name is None:
            continue
        found[role] = loaded.arrays[name]
        is_split = role in _CACHE and found[role].ndim == given.arguments["q"].ndim
        if role in ("q", "k", "v", *_CACHE) and (inputs.layout or inputs.heads) and not is_split:
            heads = inputs.heads if role == "q" else inputs.kv_heads or inputs.heads
            with suppress(ShapeError):  # of other axes than the given one: it differs
                found[role] = in_heads(found[role], inputs.layout, heads)
    return found


def in_heads(array: Array, layout: Any, n_heads: int | None) -> Array:
    if layout is not None:
        return heads_first(array, layout, n_heads)
    if array.ndim != 2:
        raise ShapeError(
            f"--heads splits (tokens, d) or bsd, this is {shape_text(array)}",
            "if it is (batch, tokens, d), add --layout bsd",
        )
    return split_heads(array, n_heads or 1)
