"""From sources and flags to the arguments of `attend`: reading, roles, layout, labels, mask."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.heads import heads_first, shape_text, split_heads
from attncli.attention.inputs import EMBEDDINGS, Inputs, inputs_of
from attncli.attention.inputs import WEIGHTS as OF_X
from attncli.attention.masks import checked_mask
from attncli.attention.plan import Merge
from attncli.cli.effects import facts_of
from attncli.cli.options import ONES_SHOW, Choices, InputFlags
from attncli.cli.parsing import tokens_of, whole_numbers
from attncli.cli.sources import (
    OBSERVED,
    WEIGHTS,
    Files,
    check_past,
    check_sources,
    holds_x,
    is_of_x,
    read_files,
    unused_notes,
)
from attncli.convention import Convention, flag_of, flag_text
from attncli.errors import ConventionError, InputError, ShapeError
from attncli.files.fields import fields_of, kv_len_of, layout_of
from attncli.files.load import Loaded
from attncli.files.messages import attentions, count
from attncli.files.roles import (
    D_OUTPUT,
    ONES,
    RANDOM,
    ROLES,
    Role,
    is_attended,
    name_of,
    only,
    outermost,
    pick,
)
from attncli.stages import GIVEN_GRADIENT, QKV
from attncli.stages import WEIGHTS as SHARES

Labels = tuple[str, ...] | None
_CACHE = ("past_k", "past_v")


class Heads(NamedTuple):
    """How many there are of queries and of keys."""

    n_heads: int = 1
    n_kv_heads: int = 1


class AttentionInputs(NamedTuple):
    """Everything that one attention is computed from, and the notes on where it came from."""

    inputs: Inputs
    in_heads: bool  # the last axis was split into heads
    stdin_used: bool
    notes: list[str]
    flags: InputFlags  # with the layout that the file names
    observed: Loaded | None = None  # what is compared with, for `check`
    facts: frozenset[str] = frozenset()  # what it has that some flags need (see effects.py)

    @property
    def how(self) -> Convention:
        """The convention."""
        return self.inputs.how

    @property
    def score_shape(self) -> tuple[int, ...]:
        """The shape of the scores."""
        return self.inputs.sizes.scores

    @property
    def is_of_x(self) -> bool:
        """Whether q, k and v are made of x and weights."""
        return self.inputs.is_of_x

    @property
    def labels(self) -> dict[str, Any]:
        """query_labels and key_labels, as `attend` and `check` take them."""
        return {f"{axis}_labels": names for axis, names in self.inputs.labels.items()}

    @property
    def arguments(self) -> dict[str, Any]:
        """The arrays of q, k and v, and what else `attend` and `check` take, by name."""
        inputs, own = self.inputs, {"given_mask": "mask", GIVEN_GRADIENT: D_OUTPUT}
        arrays = {own.get(name, name): x for name, x in inputs.originals.items()}
        if self.is_of_x:
            arrays |= inputs.qkv
            for name in ("k", "v"):  # without the cache, which is an argument of its own
                arrays[name] = arrays[name][..., inputs.sizes.n_past :, :]
            arrays |= {D_OUTPUT: inputs.d_output} if D_OUTPUT in arrays else {}
            arrays = {name: x for name, x in arrays.items() if name not in (*EMBEDDINGS, *OF_X)}
        return {**arrays, "convention": inputs.how}

    def without_gradient(self) -> AttentionInputs:
        """The same without the gradient of the output."""
        return self._replace(inputs=self.inputs.without(GIVEN_GRADIENT))


def read_inputs(
    inputs: InputFlags,
    choices: Choices,
    observed: str | None = None,
    stages: Collection[str] = (),
    known: Files = MappingProxyType({}),
) -> AttentionInputs:
    """Reads every source once and makes one set of arguments of them.

    observed, stages  one more source to read, for `check`, and the stages that are wanted of it
    known             what is read already, by its source
    """
    notes: list[str] = []
    named = {role: getattr(inputs, role, None) for role in ROLES}
    drawn = named[D_OUTPUT] if named[D_OUTPUT] in (ONES, RANDOM) else None
    if drawn is not None:
        del named[D_OUTPUT]
    named |= {WEIGHTS: inputs.weights, OBSERVED: observed}
    sources = {role: source for role, source in named.items() if source is not None}
    check_sources(sources)
    sources.setdefault("q", inputs.x or inputs.weights or "")  # the file that holds all others
    files = read_files(sources, stages, notes, known)
    main = files["q"]
    is_both = observed is not None and observed == inputs.q
    holds_q = "" in main.arrays or name_of(main, "q") is not None  # a matrix without a name is q
    if is_both and not (holds_q or holds_x(main) or attentions(main.unread)):
        hint = "call it q there, or name another file: --q SOURCE"
        raise InputError(f"{main.origin} holds observed numbers, but no q", hint)
    fields = fields_of(main)
    convention, inputs, kv_len = _said(main, fields, inputs, choices, notes)
    heads, used = Heads(), dict[int, set[str]]()
    is_x = is_of_x(inputs, main)
    if is_x:
        from attncli.cli.embeddings import read_embeddings

        arrays, heads, files, used = read_embeddings(files, inputs, convention, notes)
        main = files["q"]
    else:
        arrays = _arrays(files, notes)
        if inputs.heads or inputs.kv_heads or inputs.layout:
            arrange(arrays, inputs)
        if name_of(main, "q") is None:
            used[id(main)] = set(main.arrays)
        heads = Heads(*(arrays[n].shape[-3] if arrays[n].ndim > 2 else 1 for n in "qk"))
    notes += unused_notes(files, used, stages, of_x=is_x)
    facts = facts_of(convention, arrays.get("mask"), (heads.n_heads, heads.n_kv_heads))
    facts |= {"the weights of x"} if is_x else set()
    convention = _check_mask(arrays, files, choices, fields, convention)
    if "mask" in arrays and arrays["mask"].dtype == np.bool_ and convention.mask_means == "add":
        notes.append("true and false in the mask are added as 1 and 0: no key is hidden")
    given: dict[str, Any] = {**arrays, "kv_len": kv_len}
    given |= {} if drawn is None else {D_OUTPUT: drawn}
    is_split = inputs.heads is not None or inputs.layout == "bsd"
    merge: Merge | None = None if is_x else "shown" if is_split else "never"
    attention = inputs_of(given, convention, **heads._asdict(), merge=merge)
    _check_call(attention, choices, arrays.get("mask"))
    notes += _on_ones(attention) if drawn == ONES else []
    n_past, (*_, n_q, n_k) = attention.sizes.n_past, attention.sizes.scores
    attention = replace(attention, labels=_labels(n_q, n_k - n_past, n_past, _named(files, inputs)))
    return AttentionInputs(
        attention,
        in_heads=len(attention.sizes.scores) > 2 if is_x else is_split,
        stdin_used=any(source.split("::")[0] == "-" for source in sources.values()),
        notes=notes,
        flags=inputs,
        observed=files.get(OBSERVED),
        facts=frozenset(facts | ({"dropout"} if drawn == RANDOM else set())),  # both have a seed
    )


def _check_call(attention: Inputs, choices: Choices, mask: Array | None) -> None:
    """ConventionError where the library of --semantics takes no such call."""
    sizes, (*_, n_q, n_k) = attention.sizes, attention.sizes.scores
    heads, widths = (sizes.n_heads, sizes.n_kv_heads), (sizes.d_k, attention.output_shape[-1])
    lengths = (n_q, n_k - sizes.n_past)
    choices.check_call(attention.how, mask, heads=heads, widths=widths, lengths=lengths)


def _on_ones(attention: Inputs) -> list[str]:
    """A note on a gradient of ones."""
    note = ONES_SHOW
    if not attention.is_of_x:
        sums = attention.originals["v"].sum(axis=-1)
        if np.allclose(sums, sums[..., :1]):
            note += "; every value here has the same sum, so dQ and dK are 0"
    return [note]


def _said(
    main: Loaded, fields: Mapping[str, Any], inputs: InputFlags, choices: Choices, notes: list[str]
) -> tuple[Convention, InputFlags, list[int] | None]:
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
        notes.append(f"{main.origin} sets {', '.join(used)}")
    notes += (f"{flag} is used, not {text} of {main.origin}" for flag, text in replaced.items())
    if inputs.d_output != RANDOM:
        return choices.over(base), inputs, kv_len
    how = choices.over(base, "seed")  # random numbers even without dropout
    return replace(how, seed=choices.given.get("seed", base.seed)), inputs, kv_len


def _convention(main: Loaded, fields: Mapping[str, Any], notes: list[str]) -> Convention:
    """The convention that the input itself brings: a saved trace's, or what a file says."""
    trace = main.trace
    if trace is None or trace.convention is None:
        return Convention(**fields)
    # What masked the trace is in its stage `mask`; it is not applied once more.
    prefix = outermost(main) or ""
    own = trace.part(prefix.removesuffix(".")).convention or trace.convention
    weights = f"{prefix}{SHARES}"
    empty = trace[weights].params.get("empty") if weights in trace else None
    base = replace(own.beside_mask(), empty_rows=empty or own.empty_rows)
    changed = ", ".join(f"{name} {value}" for name, value in base.changes().items())
    if changed:
        notes.append(f"{main.origin} is a trace computed with {changed}, which is kept")
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
    check_past(arrays)
    return arrays


def _named(files: Files, inputs: InputFlags) -> Files:
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
    """Brings the mask into its form, once its numbers have a meaning; the convention then."""
    main = files["q"]
    if "mask" not in arrays:
        return convention
    if main.trace is not None and "mask" not in files:
        arrays["mask"] = arrays["mask"].astype(np.float64)
        if arrays["mask"].any() and np.isin(arrays["mask"], (0, 1)).all():
            return replace(convention, mask_numbers="add")
    else:
        means = choices.given.get("mask_means", fields.get("mask_means"))
        name = f"the mask of {files.get('mask', main).origin}"
        is_said = "mask_means" in choices.given and "mask_numbers" not in choices.given
        is_truth = is_said and np.isin(arrays["mask"], (0, 1)).all()
        if convention.mask_numbers is None or is_truth:
            arrays["mask"] = checked_mask(arrays["mask"], means, name, "--mask-means ")
    return convention


def _labels(n_q: int, n_k: int, n_past: int, files: Files) -> dict[str, Labels]:
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
    pairs = (queries, n_q, "queries", main.origin), (keys, n_k, "keys", own.origin)
    for labels, n, what, origin in pairs:
        if labels is not None and len(labels) != n:
            hint = 'give one name each, or {"queries": […], "keys": […]}'
            raise InputError(f"{origin} has {count(len(labels), 'token')} for {n} {what}", hint)
    if keys is not None:
        keys = (*(f"past {index + 1}" for index in range(n_past)), *keys)
    return {"query": queries, "key": keys}


def _words(file: Loaded, *roles: Role) -> Labels:
    """The words of the array of one of these roles, where it came as {word: vector}."""
    names = [name_of(file, role) or "" for role in roles] if file.words else []
    return next((file.words[name] for name in (*names, "") if name in file.words), None)


def arrange(arrays: dict[str, Array], inputs: InputFlags) -> None:
    """Brings q, k, v and the cache into the order (batch, head, token, d), split into heads."""
    n_heads, shared, layout = inputs.heads, inputs.kv_heads or inputs.heads, inputs.layout
    if inputs.kv_heads is not None and n_heads is None:
        raise ConventionError("--kv-heads is given without --heads", "give both")
    if n_heads and shared and n_heads % shared:
        what = f"{n_heads} query heads cannot evenly share {shared} key heads"
        raise ConventionError(what, "--heads must be a multiple of --kv-heads")
    if n_heads and layout not in (None, "bsd"):
        what = f"--heads splits (tokens, d) or bsd, but --layout is {layout}"
        raise ConventionError(what, "leave one of the two out")
    n_axes = arrays["q"].ndim
    for name in ("q", "k", "v", *_CACHE, D_OUTPUT):
        may_be_split = name in (*_CACHE, D_OUTPUT)
        if name in arrays and not (may_be_split and arrays[name].ndim > n_axes):
            heads = n_heads if name in ("q", D_OUTPUT) else shared
            try:
                arrays[name] = in_heads(arrays[name], layout, heads)
            except ShapeError as error:
                raise ShapeError(f"{name}: {error.message}", error.hint) from None


def observed_inputs(given: AttentionInputs) -> dict[str, Any]:
    """The inputs that the observed file brings itself, arranged as the given ones are."""
    loaded, inputs = given.observed, given.flags
    if loaded is None or loaded.member in loaded.arrays:
        return {}
    lengths = kv_len_of(loaded)
    arrays: dict[str, Any] = {} if lengths is None else {"kv_len": lengths}
    for role in filter(is_attended, ROLES):
        name = name_of(loaded, role)
        if name is None:
            continue
        arrays[role] = loaded.arrays[name]
        is_split = role in _CACHE and arrays[role].ndim == len(given.score_shape)
        if role in (*QKV, *_CACHE) and not is_split:
            arrays[role] = as_given(arrays[role], role, inputs)
    return arrays


def as_given(array: Array, role: Role, inputs: InputFlags) -> Array:
    """An observed array in the layout and heads of the given ones, where it has their axes."""
    heads = inputs.heads if role == "q" else inputs.kv_heads or inputs.heads
    with suppress(ShapeError):  # in heads already, or of other axes: then it differs
        if inputs.layout or inputs.heads:
            return in_heads(array, inputs.layout, heads)
    return array


def in_heads(array: Array, layout: Any, n_heads: int | None) -> Array:
    if layout is not None:
        return heads_first(array, layout, n_heads)
    if array.ndim != 2:
        what = f"--heads splits (tokens, d) or bsd, this is {shape_text(array)}"
        raise ShapeError(what, "if it is (batch, tokens, d), add --layout bsd")
    return split_heads(array, n_heads or 1)
