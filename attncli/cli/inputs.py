"""From sources and flags to the arguments of `attend`: the convention, labels, facts and notes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.inputs import WEIGHTS as OF_X
from attncli.attention.inputs import Inputs, inputs_of
from attncli.attention.plan import Merge
from attncli.cli.groups import facts_of, given_of
from attncli.cli.layouts import complete, with_mask
from attncli.cli.options import ONES_SHOW, ConventionFlags, InputFlags
from attncli.cli.parsing import tokens_of, whole_numbers
from attncli.cli.sources import (
    OBSERVED,
    ONE_OF_TWO,
    Files,
    Heads,
    Read,
    arrays_of,
    holds_x,
    named_arrays,
    read_files,
    sources_of,
    unused_notes,
)
from attncli.convention import Convention, flag_of, flag_text
from attncli.errors import ConventionError, InputError
from attncli.files.contents import FileContents, Labels
from attncli.files.lookup import fields_of, kv_len_of, layout_of, name_of, outermost
from attncli.files.messages import attentions, count
from attncli.files.roles import ATTENDED, D_OUTPUT, EMBEDDINGS, KV_LEN, LAYOUT, ONES, RANDOM, Role
from attncli.stages import GIVEN_GRADIENT
from attncli.stages import WEIGHTS as SHARES
from attncli.trace import Trace


class AttentionInputs(NamedTuple):
    """Everything that one attention is computed from, and the notes on where it came from."""

    inputs: Inputs
    in_heads: bool  # the last axis was split into heads
    stdin_used: bool
    notes: list[str]
    flags: InputFlags  # with the layout that the file names
    observed: FileContents | None = None  # what is compared with, for `check`
    facts: frozenset[str] = frozenset()  # what it has that some flags need (see groups.py)
    others: Mapping[str, Array] = MappingProxyType({})  # by the names that formulas have for them

    @property
    def labels(self) -> dict[str, Any]:
        """query_labels and key_labels, as `attend` and `check` take them."""
        return {f"{axis}_labels": names for axis, names in self.inputs.labels.items()}

    @property
    def arguments(self) -> dict[str, Any]:
        """The arrays of q, k and v, and what else `attend` and `check` take, by name."""
        inputs, argument_names = self.inputs, {"given_mask": "mask", GIVEN_GRADIENT: D_OUTPUT}
        arrays = {argument_names.get(name, name): x for name, x in inputs.originals.items()}
        if inputs.is_of_x:
            arrays |= inputs.qkv
            for name in ("k", "v"):  # without the cache, which is an argument of its own
                arrays[name] = arrays[name][..., inputs.sizes.n_past :, :]
            arrays |= {D_OUTPUT: inputs.d_output} if D_OUTPUT in arrays else {}
            arrays = {name: x for name, x in arrays.items() if name not in (*EMBEDDINGS, *OF_X)}
        return {**arrays, "convention": inputs.convention}

    def without_gradient(self) -> AttentionInputs:
        """The same without the gradient of the output."""
        return self._replace(inputs=self.inputs.without(GIVEN_GRADIENT))


def read_inputs(
    inputs: InputFlags,
    choices: ConventionFlags,
    observed: str | None = None,
    stages: Collection[str] = (),
    loaded: Files = MappingProxyType({}),
    names: Collection[str] | None = None,
) -> AttentionInputs:
    """Reads every source once and makes one set of arguments of them.

    observed, stages  one more source to read, for `check`, and the stages that are wanted of it
    loaded            what is read already, by its source
    names             of further arrays, which formulas of the user's own read; None without any
    """
    is_own, names = names is not None, names or ()
    notes: list[str] = []
    sources, drawn = sources_of(inputs, observed)
    files = read_files(sources, stages, notes, loaded, names)
    main = files["q"]
    holds_q = "" in main.arrays or name_of(main, "q") is not None  # a matrix without a name is q
    is_both = observed is not None and observed == inputs.q
    if is_both and not (holds_q or holds_x(main) or attentions(main.unread)):
        hint = "call it q there, or name another file: --q SOURCE"
        raise InputError(f"{main.origin} holds observed numbers, but no q", hint)
    fields = fields_of(main) if main.fields or main.scale is not None else {}
    convention, inputs, kv_len = _convention(main, fields, inputs, choices, notes)
    arrays, heads, files, used = _read_arrays(files, inputs, convention, notes)
    is_x = "x" in arrays
    notes += unused_notes(files, used, {*stages, *names}, of_x=is_x)
    facts = facts_of(convention, arrays.get("mask"), heads)
    facts |= {"the weights of x"} if is_x else set()
    if "mask" in arrays:
        convention = with_mask(arrays, files, choices, fields, convention)
        if arrays["mask"].dtype == np.bool_ and convention.mask_means == "add":
            notes.append("true and false in the mask are added as 1 and 0: no key is hidden")
    arguments: dict[str, Any] = {**arrays, "kv_len": kv_len}
    arguments |= {} if drawn is None else {D_OUTPUT: drawn}
    is_split = inputs.heads is not None or inputs.layout == "bsd"
    merge: Merge | None = None if is_x else "shown" if is_split else "never"
    attention = inputs_of(arguments, convention, **heads._asdict(), merge=merge)
    if choices.semantics is not None:
        attention = _as_called(attention, choices, fields, arrays.get("mask"))
    notes += _on_ones(attention, is_own=is_own) if drawn == ONES else []
    attention = replace(attention, labels=_labels(attention, files, inputs.tokens))
    return AttentionInputs(
        attention,
        in_heads=len(attention.sizes.scores) > 2 if is_x else is_split,
        stdin_used=any(source.split("::")[0] == "-" for source in sources.values()),
        notes=notes,
        flags=inputs,
        observed=files.get(OBSERVED),
        facts=frozenset(facts | ({"dropout"} if drawn == RANDOM else set())),  # both have a seed
        others=named_arrays(files, names),
    )


def _read_arrays(
    files: Files, inputs: InputFlags, convention: Convention, notes: list[str]
) -> Read:
    """Q, K and V in heads, or x and weights, as it is asked for or as the file has it; and a mask,
    a cache … ConventionError where there are both."""
    main, used = files["q"], dict[int, set[str]]()
    names_q = inputs.q is not None and name_of(main, "q") is not None
    if names_q and inputs.weights is not None:
        hint = f"leave out --weights, or give the embeddings: --x {main.origin}::NAME"
        raise ConventionError(f"{main.origin} names q, and --weights is for x", hint)
    is_x = inputs.q is None
    if not (is_x or names_q):
        is_x = inputs.weights is not None or (main.trace is None and holds_x(main))
        for ours in given_of(inputs, "k", "v") if is_x else ():
            message = f"{flag_of(ours)} is given, and {main.origin} holds x and weights"
            raise ConventionError(message, f"{ONE_OF_TWO}: leave out {flag_of(ours)}")
    if is_x:
        from attncli.cli.embeddings import read_embeddings

        return read_embeddings(files, inputs, convention, notes)
    arrays = arrays_of(ATTENDED, files)
    complete(arrays, main, inputs, notes)
    if not names_q:
        used[id(main)] = set(main.arrays)
    heads = Heads(*(arrays[name].shape[-3] if arrays[name].ndim > 2 else 1 for name in "qk"))
    return Read(arrays, heads, files, used)


def _convention(
    main: FileContents,
    fields: Mapping[str, Any],
    inputs: InputFlags,
    choices: ConventionFlags,
    notes: list[str],
) -> tuple[Convention, InputFlags, list[int] | None]:
    """The convention, the layout and the key lengths: as a flag says, else as the file does."""
    base = None if main.trace is None else _of_trace(main, main.trace, notes)
    base = base or Convention(**fields)
    used = [flag_text(name, value) for name, value in fields.items() if name in base.changes()]
    replaced = {
        flag_of(name): flag_text(name, base.changes()[name])
        for name, value in choices.fields.items()
        if name in base.changes() and value != base.changes()[name]
    }
    used = [text for text in used if text not in replaced.values()]
    kv_len = kv_len_of(main) if KV_LEN in main.fields else None
    layout = layout_of(main) if LAYOUT in main.fields else None
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
    convention = choices.over(base, "seed")  # random numbers even without dropout
    return replace(convention, seed=choices.fields.get("seed", base.seed)), inputs, kv_len


def _of_trace(main: FileContents, trace: Trace, notes: list[str]) -> Convention | None:
    """The convention of a saved trace, None where it has none."""
    if trace.convention is None:
        return None
    # What masked the trace is in its stage `mask`; it is not applied once more.
    prefix = outermost(main) or ""
    convention = trace.part(prefix.removesuffix(".")).convention or trace.convention
    weights = f"{prefix}{SHARES}"
    empty = trace[weights].params.get("empty") if weights in trace else None
    base = replace(convention.without_mask_fields(), empty_rows=empty or convention.empty_rows)
    changed = ", ".join(f"{name} {value}" for name, value in base.changes().items())
    if changed:
        notes.append(f"{main.origin} is a trace computed with {changed}, which is kept")
    return base


def _as_called(
    attention: Inputs, choices: ConventionFlags, fields: Mapping[str, Any], mask: Array | None
) -> Inputs:
    """The inputs as the library of --semantics means so many queries.

    ConventionError where it takes no such call.
    """
    sizes, (*_, n_q, n_k) = attention.sizes, attention.sizes.scores
    heads, widths = (sizes.n_heads, sizes.n_kv_heads), (sizes.d_k, attention.output_shape[-1])
    lengths = (n_q, n_k - sizes.n_past)
    choices.check_call(attention.convention, mask, heads=heads, widths=widths, lengths=lengths)
    set_fields = fields.keys() | choices.fields.keys() | attention.convention.changes().keys()
    defaults = {name: x for name, x in choices.meant_for(n_q).items() if name not in set_fields}
    return replace(attention, convention=replace(attention.convention, **defaults))


def _on_ones(attention: Inputs, *, is_own: bool) -> list[str]:
    """A note on a gradient of ones; is_own: rows of formulas of the user's own may not sum to 1."""
    note = ONES_SHOW
    if not (attention.is_of_x or is_own):
        sums = attention.originals["v"].sum(axis=-1)
        if np.allclose(sums, sums[..., :1]):
            note += "; every value here has the same sum, so dQ and dK are 0"
    return [note]


def _labels(attention: Inputs, files: Files, tokens: str | None) -> dict[str, Labels]:
    """Names of the queries and of all keys, those of a cache before the others: of --tokens, or
    else of a file.

    That may have a list for each, or one for both: `tokens`, or the labels of a table's rows.
    One list for both names those that are as many as it.
    """
    n_past, (*_, n_q, n_k) = attention.sizes.n_past, attention.sizes.scores
    n_k -= n_past
    if tokens is not None:
        names = tokens_of(tokens)
        files = {"q": FileContents("--tokens", {}, query_labels=names, key_labels=names)}
    main = files.get("x", files["q"])
    of_keys = files.get("k", files.get("x_kv", main))
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
