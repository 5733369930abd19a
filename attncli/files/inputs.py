"""The one door for what an attention is computed from: sources in, Inputs out.

    Sources ── opened ── arrays_of, or embeddings.py ── convention, mask, labels ──> Reading

Each source is read once. What a file says of the attention counts where the call says nothing;
what was assumed, and what was not used, is in the notes of the inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.heads import heads_first, shape_text, split_heads
from attncli.attention.inputs import CACHE, Inputs, inputs_of
from attncli.attention.masks import checked_mask, facts_of
from attncli.attention.plan import Merge
from attncli.attention.shapes import as_numbers
from attncli.choices import Choices, Chosen
from attncli.convention import Convention, Fields, Layout, convention_of, flag_of, flag_text
from attncli.errors import ConventionError, InputError, ShapeError
from attncli.files.contents import FileContents, Labels
from attncli.files.embeddings import read_embeddings
from attncli.files.input_sources import (
    OBSERVED,
    ONE_OF_TWO,
    Axes,
    Opened,
    Sources,
    holds_x,
    open_sources,
)
from attncli.files.lookup import fields_of, kv_len_of, layout_of, name_of, outermost
from attncli.files.messages import attentions, count
from attncli.files.roles import (
    ATTENDED,
    D_OUTPUT,
    KV_LEN,
    LAYOUT,
    ONES,
    ONES_SHOW,
    RANDOM,
    Role,
)
from attncli.presets import preset
from attncli.stages import QKV, WEIGHTS
from attncli.trace import Trace

Source = str | PathLike[str] | npt.ArrayLike


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Inputs, and what else is known of where they came from.

    inputs    what an attention is computed from; its notes are for the user
    sources   with the layout that the file names
    contents  role → the file that it was read from; OBSERVED: what is compared with
    in_heads  the last axis was split into heads
    facts     what it has that some options need, such as "mask" (see convention.KNOBS)
    others    arrays by the names that formulas have for them
    """

    inputs: Inputs
    sources: Sources
    contents: Mapping[str, FileContents]
    in_heads: bool
    facts: frozenset[str]
    others: Mapping[str, Array]

    @property
    def observed(self) -> FileContents | None:
        """The file that is compared with."""
        return self.contents.get(OBSERVED)


def load(  # noqa: PLR0913 - a source for each role, and how they are read
    source: Source | None = None,
    *,
    q: Source | None = None,
    k: Source | None = None,
    v: Source | None = None,
    x: Source | None = None,
    x_kv: Source | None = None,
    x_v: Source | None = None,
    weights: Source | None = None,
    mask: Source | None = None,
    past_k: Source | None = None,
    past_v: Source | None = None,
    sinks: Source | None = None,
    q_gain: Source | None = None,
    k_gain: Source | None = None,
    d_output: Source | None = None,
    kv_len: Sequence[int] | None = None,
    tokens: Sequence[str] | None = None,
    weights_axes: Axes = "auto",
    layout: Layout | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    semantics: str | None = None,
    convention: Convention | None = None,
    **fields: Unpack[Fields],
) -> Inputs:
    """What an attention is computed from, read from files as `attncli compute` reads it.

    A source is the path of a file (json, npy, npz, csv, safetensors), `path::name` for one of its
    arrays, numbers as text, or an array.

    source       the same as q: a file that may hold everything, under any name in use
    q, k, v      of which the attention is computed; or x (and x_kv, x_v) and its weights
    mask …       as `attend` takes them; d_output may also be "ones" or "random"
    kv_len       valid keys, one number for each batch item
    tokens       names of the queries and keys
    weights_axes "in-out" for X W, "out-in" for X Wᵀ; "auto": by their names, else by their shapes
    layout       the order of the axes, such as "bshd"
    heads        into which the last axis is split; kv_heads: those of k and v
    semantics    the library whose conventions are the defaults of those that nothing says
    fields       those of Convention, such as causal=True, before what the file says

    The notes of the result say what was assumed and what in a file was not used. `attend` takes it
    as it is; `keywords` are the arrays as `attend`, `check` and `stream` take them.

    Raises InputError where a source cannot be read, ConventionError for what contradicts, and
    ShapeError for arrays that do not fit together.

    >>> inputs = load('{"q": [[1, 0]], "k": [[1, 1], [0, 1]], "causal": true}', scale="none")
    >>> inputs.notes[0], inputs.notes[1]
    ('what you typed sets --causal', 'what you typed has no v, so V = K')
    >>> inputs.trace()["weights"].value
    array([[1., 0.]])
    """
    sources = {"q": q, "k": k, "v": v, "x": x, "x_kv": x_kv, "x_v": x_v, "mask": mask}
    sources |= {"past_k": past_k, "past_v": past_v, "sinks": sinks, "d_output": d_output}
    sources |= {"weights": weights, "q_gain": q_gain, "k_gain": k_gain}
    if source is not None and q is not None:
        raise ConventionError("both source and q are given", "leave one of the two out")
    sources["q"] = source if q is None else q
    loaded, paths = dict[str, FileContents](), dict[str, str]()
    for name, value in sources.items():
        if isinstance(value, (str, PathLike)):
            paths[name] = fspath(value)
        elif value is not None:
            paths[name] = f"<{name}>"
            loaded[paths[name]] = FileContents(name, {"": as_numbers(value, name)})
    changes = convention_of(convention, fields).changes()
    chosen = {**changes, **{name: getattr(Convention(**fields), name) for name in fields}}
    return read(
        Sources(
            weights=paths.pop("weights", None),
            roles=paths,
            weights_axes=weights_axes,
            layout=layout,
            heads=heads,
            kv_heads=kv_heads,
            kv_len=None if kv_len is None else [int(n) for n in np.ravel(kv_len)],
            tokens=None if tokens is None else tuple(tokens),
            choices=Chosen(chosen, None if semantics is None else preset(semantics).name),
        ),
        loaded=loaded,
    ).inputs


def read(
    sources: Sources,
    *,
    stages: Collection[str] = (),
    names: Collection[str] | None = None,
    loaded: Mapping[str, FileContents] = {},
) -> Reading:
    """Reads every source once and makes the inputs of one attention of them.

    stages  those that are wanted of what was observed
    names   of further arrays, which formulas of the user's own read; None without any
    loaded  what is read already, by its source

    Raises InputError where a source cannot be read, ConventionError for what contradicts, and
    ShapeError for arrays that do not fit together.
    """
    has_formulas, names = names is not None, names or ()
    opened = open_sources(sources, stages, names, loaded)
    main = opened.main
    if sources.observed is not None and sources.observed == sources.roles.get("q"):
        holds_q = "" in main.arrays or name_of(main, "q") is not None  # it has no name, or is q
        if not (holds_q or holds_x(main) or attentions(main.unread)):
            hint = "call it q there, or name another file: --q SOURCE"
            raise InputError(f"{main.origin} holds observed numbers, but no q", hint)
    fields = fields_of(main) if main.fields or main.scale is not None else {}
    convention, sources = _settings(opened, sources, fields)
    drawn = sources.drawn
    arrays, heads = _arrays(opened, sources, convention)
    is_x = "x" in arrays
    opened.notes += opened.unused({*stages, *names}, of_x=is_x)
    facts = facts_of(convention, arrays.get("mask"), heads)
    facts |= {"the weights of x"} if is_x else set()
    facts |= {"dropout"} if drawn == RANDOM else set()  # both have a seed
    if "mask" in arrays:
        convention = _with_mask(arrays, opened, sources.choices, fields, convention)
        if arrays["mask"].dtype == np.bool_ and convention.mask_means == "add":
            opened.notes.append("true and false in the mask are added as 1 and 0: no key is hidden")
    arguments: dict[str, Any] = {**arrays, KV_LEN: sources.kv_len}
    arguments |= {D_OUTPUT: drawn} if drawn else {}
    is_split = sources.heads is not None or sources.layout == "bsd"
    merge: Merge | None = None if is_x else "shown" if is_split else "never"
    n_heads, n_kv_heads = heads
    inputs = inputs_of(arguments, convention, n_heads=n_heads, n_kv_heads=n_kv_heads, merge=merge)
    if sources.choices.semantics is not None:
        inputs = _as_called(inputs, sources.choices, fields, arrays.get("mask"))
    if drawn == ONES:
        opened.notes.append(_on_ones(inputs, has_formulas=has_formulas))
    labels = _labels(inputs, opened, sources.tokens)
    return Reading(
        inputs=replace(inputs, labels=labels, notes=tuple(opened.notes)),
        sources=sources,
        contents=opened.contents,
        in_heads=len(inputs.sizes.scores) > 2 if is_x else is_split,
        facts=frozenset(facts),
        others=opened.arrays_named(names) if names else {},
    )


# ---- what the call and the file say of the attention


def _settings(
    opened: Opened, sources: Sources, fields: Mapping[str, Any]
) -> tuple[Convention, Sources]:
    """The convention, and the sources with layout and key lengths: as the call says, else as the
    file does."""
    main, choices = opened.main, sources.choices
    base = None if main.trace is None else _of_trace(opened, main.trace)
    base = base or Convention(**fields)
    changes = base.changes()
    replaced = {
        flag_of(name): flag_text(name, changes[name])
        for name, value in choices.fields.items()
        if name in changes and value != changes[name]
    }
    used = [flag_text(name, value) for name, value in fields.items() if name in changes]
    used = [text for text in used if text not in replaced.values()]
    of_file: dict[str, Any] = {}
    kv_len = kv_len_of(main) if KV_LEN in main.fields else None
    layout = layout_of(main) if LAYOUT in main.fields else None
    if kv_len is not None and sources.kv_len is not None:
        replaced["--kv-len"] = f"--kv-len {','.join(map(str, kv_len))}"
    elif kv_len is not None:
        of_file[KV_LEN] = kv_len
        used.append(f"--kv-len {','.join(map(str, kv_len))}")
    if layout is not None and sources.layout is None:
        of_file[LAYOUT] = layout
        used.append(f"--layout {layout}")
    elif layout not in (None, sources.layout):
        replaced["--layout"] = f"--layout {layout}"
    if used and main.trace is None:
        opened.notes.append(f"{main.origin} sets {', '.join(used)}")
    opened.notes += (
        f"{flag} is used, not {text} of {main.origin}" for flag, text in replaced.items()
    )
    sources = replace(sources, **of_file)
    if sources.drawn != RANDOM:
        return choices.over(base), sources
    convention = choices.over(base, "seed")  # random numbers even without dropout
    return replace(convention, seed=choices.fields.get("seed", base.seed)), sources


def _of_trace(opened: Opened, trace: Trace) -> Convention | None:
    """The convention of a saved trace, None where it has none."""
    if trace.convention is None:
        return None
    # What masked the trace is in its stage `mask`; it is not applied once more.
    main = opened.main
    prefix = outermost(main) or ""
    convention = trace.part(prefix.removesuffix(".")).convention or trace.convention
    weights = f"{prefix}{WEIGHTS}"
    empty = trace[weights].params.get("empty") if weights in trace else None
    base = replace(convention.without_mask_fields(), empty_rows=empty or convention.empty_rows)
    changed = ", ".join(f"{name} {value}" for name, value in base.changes().items())
    if changed:
        opened.notes.append(f"{main.origin} is a trace computed with {changed}, which is kept")
    return base


def _with_mask(
    arrays: dict[str, Array],
    opened: Opened,
    choices: Choices,
    fields: Mapping[str, Any],
    convention: Convention,
) -> Convention:
    """Brings the mask into its form, once its numbers have a meaning; the convention then."""
    if opened.main.trace is not None and "mask" not in opened.contents:
        arrays["mask"] = arrays["mask"].astype(np.float64)
        if arrays["mask"].any() and np.isin(arrays["mask"], (0, 1)).all():
            return replace(convention, mask_numbers="add")
    else:
        means = choices.fields.get("mask_means", fields.get("mask_means"))
        name = f"the mask of {opened.contents.get('mask', opened.main).origin}"
        is_said = "mask_means" in choices.fields and "mask_numbers" not in choices.fields
        is_truth = is_said and np.isin(arrays["mask"], (0, 1)).all()
        if convention.mask_numbers is None or is_truth:
            arrays["mask"] = checked_mask(arrays["mask"], means, name, "--mask-means ")
    return convention


def _as_called(
    inputs: Inputs, choices: Choices, fields: Mapping[str, Any], mask: Array | None
) -> Inputs:
    """The inputs as the library of --semantics means so many queries.

    ConventionError where it takes no such call.
    """
    sizes, (*_, n_q, n_k) = inputs.sizes, inputs.sizes.scores
    heads, widths = (sizes.n_heads, sizes.n_kv_heads), (sizes.d_k, inputs.output_shape[-1])
    lengths = (n_q, n_k - sizes.n_past)
    choices.check_call(inputs.convention, mask, heads=heads, widths=widths, lengths=lengths)
    set_fields = fields.keys() | choices.fields.keys() | inputs.convention.changes().keys()
    defaults = {name: x for name, x in choices.meant_for(n_q).items() if name not in set_fields}
    return replace(inputs, convention=replace(inputs.convention, **defaults))


def _on_ones(inputs: Inputs, *, has_formulas: bool) -> str:
    """A note on a gradient of ones; rows of formulas of the user's own may not sum to 1."""
    if not (inputs.is_of_x or has_formulas):
        sums = inputs.originals["v"].sum(axis=-1)
        if np.allclose(sums, sums[..., :1]):
            return f"{ONES_SHOW}; every value here has the same sum, so dQ and dK are 0"
    return ONES_SHOW


# ---- the arrays, in heads


def _arrays(
    opened: Opened, sources: Sources, convention: Convention
) -> tuple[dict[str, Array], tuple[int, int]]:
    """Q, K and V in heads, or x and weights, as is asked for or as the file has it; and a mask, a
    cache … With them how many heads queries and keys have. ConventionError where there are both."""
    main, roles = opened.main, sources.roles
    names_q = "q" in roles and name_of(main, "q") is not None
    if names_q and sources.weights is not None:
        hint = f"leave out --weights, or give the embeddings: --x {main.origin}::NAME"
        raise ConventionError(f"{main.origin} names q, and --weights is for x", hint)
    is_x = "q" not in roles
    if not (is_x or names_q):
        is_x = sources.weights is not None or (main.trace is None and holds_x(main))
        for role in [role for role in "kv" if role in roles] if is_x else ():
            message = f"{flag_of(role)} is given, and {main.origin} holds x and weights"
            raise ConventionError(message, f"{ONE_OF_TWO}: leave out {flag_of(role)}")
    if is_x:
        return read_embeddings(opened, sources, convention)
    arrays = opened.arrays_of(ATTENDED)
    complete(arrays, opened, sources)
    if not names_q:
        opened.use(main, main.arrays)
    n_heads, n_kv_heads = (arrays[x].shape[-3] if arrays[x].ndim > 2 else 1 for x in "qk")
    return arrays, (n_heads, n_kv_heads)


def complete(
    arrays: dict[str, Array], opened: Opened, sources: Sources, names: Collection[str] = QKV
) -> None:
    """K = Q and V = K where these names ask for them and there are none; heads as the call says."""
    for role, instead in (("k", "q"), ("v", "k")):
        if role in names and role not in arrays and instead in arrays:
            arrays[role] = arrays[instead]
            origin, other = opened.main.origin, instead.upper()
            opened.notes.append(f"{origin} has no {role}, so {role.upper()} = {other}")
    if (sources.heads or sources.kv_heads or sources.layout) and "q" in arrays:
        _arrange(arrays, sources)


def _arrange(arrays: dict[str, Array], sources: Sources) -> None:
    """Brings q, k, v and the cache into the order (batch, head, token, d), split into heads."""
    n_heads, layout = sources.heads, sources.layout
    shared = sources.kv_heads or n_heads
    if sources.kv_heads is not None and n_heads is None:
        raise ConventionError("--kv-heads is given without --heads", "give both")
    if n_heads and shared and n_heads % shared:
        message = f"{n_heads} query heads cannot evenly share {shared} key heads"
        raise ConventionError(message, "--heads must be a multiple of --kv-heads")
    if n_heads and layout not in (None, "bsd"):
        message = f"--heads splits (tokens, d) or bsd, but --layout is {layout}"
        raise ConventionError(message, "leave one of the two out")
    n_axes = arrays["q"].ndim
    for name in (*QKV, *CACHE.values(), D_OUTPUT):
        may_be_split = name not in QKV
        if name in arrays and not (may_be_split and arrays[name].ndim > n_axes):
            heads = n_heads if name in ("q", D_OUTPUT) else shared
            try:
                arrays[name] = in_heads(arrays[name], layout, heads)
            except ShapeError as error:
                raise ShapeError(f"{name}: {error.message}", error.hint) from None


def in_heads(array: Array, layout: Layout | None, n_heads: int | None) -> Array:
    """An array of several tokens with its heads before them, as the call says it has them."""
    if layout is not None:
        return heads_first(array, layout, n_heads)
    if array.ndim != 2:
        message = f"--heads splits (tokens, d) or bsd, this is {shape_text(array)}"
        raise ShapeError(message, "if it is (batch, tokens, d), add --layout bsd")
    return split_heads(array, n_heads or 1)


# ---- the names of queries and keys


def _labels(inputs: Inputs, opened: Opened, tokens: tuple[str, ...] | None) -> dict[str, Labels]:
    """Names of the queries and of all keys, those of a cache before the others: of --tokens, or
    else of a file.

    That may have a list for each, or one for both: `tokens`, or the labels of a table's rows.
    One list for both names those that are as many as it.
    """
    n_past, (*_, n_q, n_k) = inputs.sizes.n_past, inputs.sizes.scores
    n_k -= n_past
    contents: Mapping[str, FileContents] = opened.contents
    if tokens is not None:
        names = FileContents("--tokens", {}, query_labels=tokens, key_labels=tokens)
        contents = {"q": names}
    main = contents.get("x", contents["q"])
    of_keys = contents.get("k", contents.get("x_kv", main))
    queries, keys = main.query_labels or main.row_labels, of_keys.key_labels or of_keys.row_labels
    queries = _words(main, "q", "x") if main.words and not queries else queries
    keys = _words(of_keys, "k", "x_kv") if of_keys.words and not keys else keys
    if keys is None and of_keys is main and n_k == n_q:
        keys = queries
    if queries and queries == main.key_labels and len(queries) == n_k != n_q:
        queries = None
    if keys and keys == queries and len(keys) == n_q != n_k:
        keys = None
    pairs = (queries, n_q, "queries", main.origin), (keys, n_k, "keys", of_keys.origin)
    for labels, n, axis_name, origin in pairs:
        if labels is not None and len(labels) != n:
            hint = 'give one name each, or {"queries": […], "keys": […]}'
            raise InputError(
                f"{origin} has {count(len(labels), 'token')} for {n} {axis_name}", hint
            )
    if keys is not None:
        keys = (*(f"past {index + 1}" for index in range(n_past)), *keys)
    return {"query": queries, "key": keys}


def _words(file: FileContents, *roles: Role) -> Labels:
    """The words of the array of one of these roles, where it came as {word: vector}."""
    names = [name_of(file, role) or "" for role in roles]
    return next((file.words[name] for name in (*names, "") if name in file.words), None)
