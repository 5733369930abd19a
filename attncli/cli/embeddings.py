"""From embeddings and weights as they are published to q, k and v, for `compute` and `check`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from attncli.arrays import Array
from attncli.attention.heads import heads_first, split_heads
from attncli.attention.inputs import inputs_of
from attncli.attention.memory import of_attention
from attncli.budget import check_free
from attncli.cli.options import InputFlags
from attncli.cli.sources import WEIGHTS, Heads, Read, arrays_of
from attncli.convention import Convention
from attncli.errors import ConventionError, InputError
from attncli.files.contents import FileContents
from attncli.files.load import load
from attncli.files.lookup import name_of, only
from attncli.files.messages import ask_for, listing, named
from attncli.files.roles import ATTENDED, EMBEDDINGS
from attncli.stages import QKV
from attncli.transformer.names import blocks, is_published
from attncli.transformer.published import Axes, Published, published

_LARGE = 1 << 20  # numbers: fewer fit into any memory


def read_embeddings(
    files: Mapping[str, FileContents], inputs: InputFlags, convention: Convention, notes: list[str]
) -> Read:
    """The embeddings and weights in these files, and what else they hold."""
    if inputs.layout not in (None, "bsd"):
        hint = "x is (tokens, d) or (batch, tokens, d): leave it out"
        raise ConventionError(f"--layout {inputs.layout} is of q, k and v", hint)
    main = files["q"]
    rows, used = _embeddings(files)
    files = {**_weights_beside(main, inputs), **files}
    of_weights = files.get(WEIGHTS, main)
    if of_weights is not main and of_weights.origin == main.origin:
        used[id(of_weights)] = {main.member or ""}
    weights = _weights(of_weights, rows, inputs)
    used.setdefault(id(of_weights), set()).update(*(x.names for x in weights.parameters.values()))
    if weights.columns:
        rows = {name: x.T for name, x in rows.items()}
        turned = {  # with the names of columns for those of rows
            id(x): replace(x, row_labels=x.column_labels, words={}) for x in files.values()
        }
        files = {role: turned[id(file)] for role, file in files.items()}
        used = {id(turned[key]): names for key, names in used.items()}
        main = files["q"]
    if weights.notes:
        notes.append(f"{of_weights.origin}: {'; '.join(weights.notes)}")
    if inputs.kv_heads and not weights.n_heads:
        raise ConventionError("--kv-heads is given without --heads", "give both")
    n_heads = weights.n_heads or inputs.heads or 1
    heads = Heads(n_heads, weights.n_kv_heads or inputs.kv_heads or n_heads)
    _check_size({**rows, **weights.arrays}, heads, convention)
    arrays = {**rows, **weights.arrays, **_attended(files, weights, notes)}
    for name in ("past_k", "past_v"):
        if name in arrays:
            arrays[name] = _cache(arrays[name], rows["x"].ndim, heads)
    return Read(arrays, heads, files, used)


def _weights_beside(main: FileContents, inputs: InputFlags) -> dict[str, FileContents]:
    """The whole file of x, where `FILE::name` asked for x alone: its weights are there too."""
    path = (inputs.x or "").rpartition("::")[0]
    if main.member not in main.arrays or path in ("", "-"):  # standard input is read only once
        return {}
    return {WEIGHTS: load(path, selector=is_published)}


def _embeddings(files: Mapping[str, FileContents]) -> tuple[dict[str, Array], dict[int, set[str]]]:
    """x, and x_kv and x_v where they are given, and the names under which they came."""
    rows, used = {}, dict[int, set[str]]()
    for role in EMBEDDINGS:
        file = files.get(role, files["q"])
        name = name_of(file, role)
        if role != "x" and role not in files and name is None:
            continue
        rows[role] = only(file, role)
        names = used.setdefault(id(file), set())
        names.update(name for name, x in file.arrays.items() if x is rows[role])
    return rows, used


def _weights(file: FileContents, rows: Mapping[str, Array], inputs: InputFlags) -> Published:
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
    axes: Axes = inputs.weights_axes or "auto"
    shapes = [rows[role].shape for role in EMBEDDINGS if role in rows]
    if "x_v" in rows and "x_kv" not in rows:
        shapes = [rows["x"].shape, rows["x"].shape, rows["x_v"].shape]
    arrays = {name: file.arrays[name] for name in block_names}
    with named(file.origin):
        return published(
            arrays, shapes, axes=axes, n_heads=inputs.heads, n_kv_heads=inputs.kv_heads
        )


def several_weights(file: FileContents, attentions: Mapping[str, Any]) -> InputError:
    """The error for a file with the weights of several attentions, where one has to be named."""
    message = f"{file.origin} holds the weights of {len(attentions)} attentions"
    hint = f"name one: --weights {ask_for(file.origin, next(iter(attentions)))}"
    return InputError(f"{message}: {listing(attentions, 4)}", hint)


def _check_size(arrays: Mapping[str, Array], heads: Heads, convention: Convention) -> None:
    """SizeError where x, its weights, and q, k and v do not fit."""
    n_rows = max(x.size // x.shape[-1] for name, x in arrays.items() if name in EMBEDDINGS)
    widths = sum(arrays[f"w_{name}"].shape[1] for name in QKV)
    if sum(x.size for x in arrays.values()) + n_rows * widths > _LARGE:
        need = of_attention(inputs_of(arrays, convention, **heads._asdict()), QKV)
        check_free(need, f"q, k and v of {n_rows} tokens need", "give fewer tokens")


def _attended(
    files: Mapping[str, FileContents], weights: Published, notes: list[str]
) -> dict[str, Array]:
    """What else goes into the attention: a mask, a cache, sinks."""
    main, arrays = files["q"], arrays_of([role for role in ATTENDED if role not in QKV], files)
    here = [x for x in weights.parameters.values() if not main.arrays.keys().isdisjoint(x.names)]
    # a model's state, whose `mask` is a buffer
    has_buffers = any(x.form in ("linear", "conv1d") for x in here)
    if "mask" in arrays and "mask" not in files and has_buffers:
        del arrays["mask"]
        name = name_of(main, "mask") or "mask"
        notes.append(
            f"{main.origin}: {name} is a buffer beside a model's weights and not used; "
            f"--mask {ask_for(main.origin, name)} --mask-means ignore masks where it is 1"
        )
    return arrays


def _cache(cache: Array, ndim: int, heads: Heads) -> Array:
    """A cache in heads: split already where it has an axis more than x."""
    has_heads, n_kv_heads = ndim > 2 or heads != (1, 1), heads.n_kv_heads
    if cache.ndim > ndim:
        is_single: Any = cache.ndim == 3 and not has_heads and cache.shape[0] == 1
        return cache[0] if is_single else cache
    if ndim == 3:
        return heads_first(cache, "bsd", n_kv_heads)
    return split_heads(cache, n_kv_heads) if has_heads else cache
