"""From embeddings and weights as they are published to what q, k and v are made of."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from attncli.arrays import Array
from attncli.attention.heads import heads_first, split_heads
from attncli.attention.inputs import CACHE, inputs_of
from attncli.attention.memory import of_attention
from attncli.budget import check_free
from attncli.convention import Convention
from attncli.errors import ConventionError, InputError
from attncli.files.contents import FileContents
from attncli.files.input_sources import OF_X, Opened, Sources
from attncli.files.load import read_source
from attncli.files.lookup import name_of, only
from attncli.files.messages import ask_for, listing, named
from attncli.files.roles import ATTENDED, EMBEDDINGS
from attncli.stages import QKV
from attncli.transformer.names import blocks, is_published
from attncli.transformer.published import Published, published

_LARGE = 1 << 20  # numbers: fewer fit into any memory


def read_embeddings(
    opened: Opened, sources: Sources, convention: Convention
) -> tuple[dict[str, Array], tuple[int, int]]:
    """The embeddings and weights in these files and what else they hold; how many heads q and k
    have."""
    if sources.layout not in (None, "bsd"):
        hint = "x is (tokens, d) or (batch, tokens, d): leave it out"
        raise ConventionError(f"--layout {sources.layout} is of q, k and v", hint)
    main, rows = opened.main, _embeddings(opened)
    opened.contents = {**_weights_beside(main, sources), **opened.contents}
    of_weights = opened.contents.get(OF_X, main)
    if of_weights is not main and of_weights.origin == main.origin:
        opened.used[id(of_weights)] = {main.member or ""}
    weights = _weights(of_weights, rows, sources)
    opened.use(of_weights, chain(*(x.names for x in weights.parameters.values())))
    if weights.columns:
        rows = {name: x.T for name, x in rows.items()}
        opened.turn()
    if weights.notes:
        opened.notes.append(f"{of_weights.origin}: {'; '.join(weights.notes)}")
    if sources.kv_heads and not weights.n_heads:
        raise ConventionError("--kv-heads is given without --heads", "give both")
    n_heads = weights.n_heads or sources.heads or 1
    heads = n_heads, weights.n_kv_heads or sources.kv_heads or n_heads
    _check_size({**rows, **weights.arrays}, heads, convention)
    arrays = {**rows, **weights.arrays, **_attended(opened, weights)}
    for name in CACHE.values():
        if name in arrays:
            arrays[name] = _cache(arrays[name], rows["x"].ndim, heads)
    return arrays, heads


def _weights_beside(main: FileContents, sources: Sources) -> dict[str, FileContents]:
    """The whole file of x, where `FILE::name` asked for x alone: its weights are there too."""
    path = sources.roles.get("x", "").rpartition("::")[0]
    if main.member not in main.arrays or path in ("", "-"):  # standard input is read only once
        return {}
    return {OF_X: read_source(path, selector=is_published)}


def _embeddings(opened: Opened) -> dict[str, Array]:
    """x, and x_kv and x_v where they are given."""
    rows = {}
    for role in EMBEDDINGS:
        file = opened.contents.get(role, opened.main)
        name = name_of(file, role)
        if role != "x" and role not in opened.contents and name is None:
            continue
        rows[role] = only(file, role)
        opened.use(file, (name for name, x in file.arrays.items() if x is rows[role]))
    return rows


def _weights(file: FileContents, rows: Mapping[str, Array], sources: Sources) -> Published:
    """The weights of the only attention of a file, [in, out]; errors name the file."""
    names = [name for name in file.arrays if is_published(name)]
    attentions = blocks(names)
    if len(attentions) > 1 and "" not in attentions:
        raise several_weights(file, attentions)
    if not names:
        hint = "x needs w_q, w_k and w_v: add --weights SOURCE, or give x as --q"
        if file.member in file.arrays:
            raise InputError(f"there are no weights for {file.member} of {file.origin}", hint)
        contents = listing([*file.arrays, *file.unread]) if "" not in file.arrays else "one matrix"
        raise InputError(f"{file.origin} holds no weights; it holds {contents}", hint)
    block_names = attentions.get("", next(iter(attentions.values()), names))
    axes = sources.weights_axes or "auto"
    shapes = [rows[role].shape for role in EMBEDDINGS if role in rows]
    if "x_v" in rows and "x_kv" not in rows:
        shapes = [rows["x"].shape, rows["x"].shape, rows["x_v"].shape]
    arrays = {name: file.arrays[name] for name in block_names}
    with named(file.origin):
        n_heads, n_kv_heads = sources.heads, sources.kv_heads
        return published(arrays, shapes, axes=axes, n_heads=n_heads, n_kv_heads=n_kv_heads)


def several_weights(file: FileContents, attentions: Mapping[str, Any]) -> InputError:
    """The error for a file with the weights of several attentions, where one has to be named."""
    message = f"{file.origin} holds the weights of {len(attentions)} attentions"
    hint = f"name one: --weights {ask_for(file.origin, next(iter(attentions)))}"
    return InputError(f"{message}: {listing(attentions, 4)}", hint)


def _check_size(
    arrays: Mapping[str, Array], heads: tuple[int, int], convention: Convention
) -> None:
    """SizeError where x, its weights, and q, k and v do not fit."""
    n_rows = max(x.size // x.shape[-1] for name, x in arrays.items() if name in EMBEDDINGS)
    widths = sum(arrays[f"w_{name}"].shape[1] for name in QKV)
    if sum(x.size for x in arrays.values()) + n_rows * widths > _LARGE:
        n_heads, n_kv_heads = heads
        inputs = inputs_of(arrays, convention, n_heads=n_heads, n_kv_heads=n_kv_heads)
        need = of_attention(inputs, QKV)
        check_free(need, f"q, k and v of {n_rows} tokens need", "give fewer tokens")


def _attended(opened: Opened, weights: Published) -> dict[str, Array]:
    """What else goes into the attention: a mask, a cache, sinks."""
    main, arrays = opened.main, opened.arrays_of(role for role in ATTENDED if role not in QKV)
    here = [x for x in weights.parameters.values() if not main.arrays.keys().isdisjoint(x.names)]
    # a model's state, whose `mask` is a buffer
    has_buffers = any(x.form in ("linear", "conv1d") for x in here)
    if "mask" in arrays and "mask" not in opened.contents and has_buffers:
        del arrays["mask"]
        name = name_of(main, "mask") or "mask"
        opened.notes.append(
            f"{main.origin}: {name} is a buffer beside a model's weights and not used; "
            f"--mask {ask_for(main.origin, name)} --mask-means ignore masks where it is 1"
        )
    return arrays


def _cache(cache: Array, ndim: int, heads: tuple[int, int]) -> Array:
    """A cache in heads: split already where it has an axis more than x."""
    has_heads, n_kv_heads = ndim > 2 or heads != (1, 1), heads[1]
    if cache.ndim > ndim:
        is_single: Any = cache.ndim == 3 and not has_heads and cache.shape[0] == 1
        return cache[0] if is_single else cache
    if ndim == 3:
        return heads_first(cache, "bsd", n_kv_heads)
    return split_heads(cache, n_kv_heads) if has_heads else cache
