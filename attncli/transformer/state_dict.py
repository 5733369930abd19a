"""The weights of a block that are given: from arrays by the names under which they come to ours.

    ours       encoder.1.attention.w_q   encoder.1.w_q   decoder.2.cross_attention.w_o   gamma_2
    PyTorch    encoder.layers.0.self_attn.in_proj_weight   norm1.weight   linear1.bias

This module says where in the block an array belongs; which of an attention's matrices it is, and
which way round, published.py. PyTorch counts layers from 0. A name that says neither encoder nor
decoder belongs to the block that is asked for, one that says no layer to its first. gamma_2 is the
gain of the second sub-layer's norm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.heads import shape_text
from attncli.attention.shapes import as_numbers
from attncli.errors import InputError, ShapeError, listed
from attncli.transformer.names import Form, is_published, parse
from attncli.transformer.published import ORDERS, Parameter, published, twice
from attncli.transformer.weights import (
    ATTENTION,
    FEED_FORWARD,
    LEAVES,
    NORM,
    SUBLAYERS,
    Architecture,
    BlockKind,
    axes_of,
    n_layers_of,
)

_NAME = re.compile(
    r"(?:(?P<stack>encoder|decoder)\.)?"
    r"(?:(?:layers?|h|blocks?)\.(?P<from_0>[0-9]{1,6})\.|(?P<from_1>[1-9][0-9]{0,5})\.)?"
    r"(?:(?P<part>attention|attn|self_attn|self_attention|cross_attention|cross_attn|multihead_attn|"
    r"feed_forward)\.)?"
    r"(?P<leaf>[^.]+(?:\.(?:weight|bias))?)"
)
_PARTS = {
    **dict.fromkeys(("attn", "self_attn", "self_attention"), "attention"),
    **dict.fromkeys(("cross_attn", "multihead_attn"), "cross_attention"),
}

# PyTorch's names of what is no attention's → ours; a matrix is transposed.
_PYTORCH = {
    **{f"linear{number}.weight": f"w_{number}" for number in (1, 2)},
    **{f"linear{number}.bias": f"b_{number}" for number in (1, 2)},
    **{f"norm{number}.weight": f"gamma_{number}".rstrip("_") for number in ("", 1, 2, 3)},
    **{f"norm{number}.bias": f"beta_{number}".rstrip("_") for number in ("", 1, 2, 3)},
}


def canonical(
    arrays: Mapping[str, npt.ArrayLike],
    block: BlockKind,
    d_model: int = 0,
    *,
    n_heads: int | None = None,
    n_kv_heads: int | None = None,
) -> dict[str, Parameter]:
    """The arrays by the dotted names used here: `encoder.1.attention.w_q`, `decoder.gamma`.

    The matrices of an attention are turned so that they fit d_model, where one way round does.
    Raises InputError for names that are not known, mean the same array twice, or leave open whether
    they belong to the encoder or the decoder; ShapeError where in_proj cannot be cut in three.
    """
    matrices, others = dict[str, Parameter](), dict[str, Parameter]()
    attentions, unknown = dict[str, dict[str, npt.ArrayLike]](), list[str]()
    for source, x in arrays.items():
        name, leaf = _place(source, block), source.lower()
        if not name:
            unknown.append(source)
        elif is_published(source):
            attentions.setdefault(name.rpartition(".")[0], {})[source] = x
        else:
            if name in others:
                raise twice(others[name].names[0], source, name)
            is_linear = leaf.endswith(".weight") and name.rpartition(".")[2].startswith("w_")
            form: Form = "linear" if is_linear else "plain"
            parameter = Parameter((source,), form, as_numbers(x, source))
            others[name] = parameter.arranged(ORDERS[form][0])
    heads: Any = {"n_heads": n_heads, "n_kv_heads": n_kv_heads, "whole": False}
    for place, leaves in attentions.items():
        result = published(leaves, [(1, d_model)], place=f"{place}.", **heads)
        matrices |= {f"{place}.{leaf}": parameter for leaf, parameter in result.parameters.items()}
    if unknown:
        raise InputError(
            f"there are no weights called {listed(map(repr, unknown), 5)}",
            "known are w_q w_k w_v w_o, b_q …, w_1 b_1 w_2 b_2, gamma_1 beta_1 …, with or without "
            "a prefix like encoder.1. or decoder.1.cross_attention., and the names under which "
            "PyTorch, Keras and others publish them",
        )
    return matrices | others


def is_weight(source: str, block: BlockKind) -> bool:
    """Whether an array of this name would be one of a block's weights.

    >>> is_weight("linear1.weight", "encoder"), is_weight("title", "encoder")
    (True, False)
    """
    return bool(_place(source, block))


def _place(source: str, block: BlockKind) -> str:
    """The dotted name of an array; "" where nothing of that name can be there."""
    name = source.lower()
    if parsed := parse(source):
        leaf = parsed.leaf[:3]  # w_qkv goes where w_q does
        name = f"{parsed.scope}.{leaf}" if parsed.scope else leaf
    if not (match := _NAME.fullmatch(name)):
        return ""
    leaf = _PYTORCH.get(match["leaf"], match["leaf"])
    part = _PARTS.get(match["part"], match["part"] or "")
    stack = match["stack"] or ("encoder" if block == "attention" else block)
    has_layer = bool(match["from_0"] or match["from_1"])
    if not part and re.fullmatch(r"(gamma|beta)_[123]", leaf):  # of that sub-layer's norm
        leaf, _, which = leaf.partition("_")
        places = SUBLAYERS.get(stack, SUBLAYERS["decoder"])
        part = dict(zip("123", places, strict=False)).get(which, "none")
    elif not part and leaf in (*ATTENTION, *FEED_FORWARD):
        part = "attention" if leaf in ATTENTION else "feed_forward"
    is_last_norm = leaf in NORM and not part and not has_layer
    if not is_last_norm and leaf not in LEAVES.get(part, ()):
        return ""
    if stack == "encoder-decoder":
        message = f"{source!r} could belong to the encoder or to the decoder"
        raise InputError(message, f"call it encoder.{source} or decoder.{source}")
    if is_last_norm:
        return f"{stack}.{leaf}"
    number = int(match["from_0"]) + 1 if match["from_0"] else int(match["from_1"] or 1)
    name = f"{stack}.{number}.{part}.{leaf}"
    return name.removeprefix("encoder.1.") if block == part == "attention" else name


def weights_from_arrays(
    arrays: Mapping[str, npt.ArrayLike], block: Architecture
) -> dict[str, Array]:
    """The weights of a block from arrays by name, ours or PyTorch's, every shape checked.

    A width that the block leaves open is what the arrays have, as is the number of layers. Biases,
    γ and β may be missing, and w_o where there is the attention alone. Arrays of known names that
    the block does not use are left out.

    Raises InputError for an unknown name or a missing array, ShapeError for a wrong shape.
    """
    heads = {"n_heads": block.n_heads, "n_kv_heads": block.n_kv_heads}
    parameters = canonical(arrays, block.kind, block.d_model, **heads)
    block = _with_open_widths(block, parameters)
    n_layers = max((n_layers_of(parameters, stack) for stack in block.stacks), default=1) or 1
    # A gap, or one absurd number in a name, ends at the first layer that is missing.
    block = replace(block, n_layers=min(block.n_layers or n_layers, len(parameters) + 1))
    weights = {}
    for name in block.weight_names(last_norm=True):
        axes, leaf = axes_of(name), name.rpartition(".")[2]
        if name in parameters:
            widths = block.widths()
            _check_shape(name, parameters[name], [widths[axis] for axis in axes])
            weights[name] = np.array(parameters[name].value)
        elif leaf.startswith("w_") and (block.kind, leaf) != ("attention", "w_o"):
            hint = f"it is {' × '.join(axes)}"
            hint += "; with d_ff 0 a layer has no feed-forward" * (leaf in ("w_1", "w_2"))
            names = ", ".join([*parameters][:5]) + " …" * (len(parameters) > 5) or "nothing"
            raise InputError(f"the weights hold no {name} (they hold {names})", hint)
    return weights


def _with_open_widths(block: Architecture, parameters: Mapping[str, Parameter]) -> Architecture:
    """The block, with d_k, d_v and d_ff as the first layer's arrays have them."""
    n_heads, n_kv_heads = block.n_heads, block.n_kv_heads or block.n_heads
    first = f"{block.stacks[0]}.1." if block.stacks else ""
    columns = [("d_k", "attention.w_q", n_heads), ("d_v", "attention.w_v", n_kv_heads)]
    for width, leaf, n_parts in [*columns, ("d_ff", "feed_forward.w_1", 1)]:
        name, parameter = first + leaf, parameters.get(first + leaf)
        if parameter is None or getattr(block, width) is not None:
            continue
        _check_shape(name, parameter, [block.d_model, "any"])
        n_columns = parameter.value.shape[1]
        if n_columns % n_parts:
            gives = f"{_called(parameter, name)} gives {axes_of(name)[1]} = {n_columns}"
            hint = f"use a number of heads that divides {n_columns}"
            raise ShapeError(f"{gives}, which {n_parts} heads cannot share", hint)
        block = replace(block, **{width: n_columns // n_parts})
    return block


def _check_shape(name: str, parameter: Parameter, needed: Sequence[int | str]) -> None:
    """ShapeError unless an array has this shape, said in the order of axes in which it came."""

    def fits(shape: tuple[int, ...]) -> bool:
        return len(shape) == len(needed) and all(
            size == need or (need == "any" and size > 0)
            for size, need in zip(shape, needed, strict=True)
        )

    value, axes = parameter.value, axes_of(name)
    if fits(value.shape):
        return
    hint = "it fits transposed" if value.ndim == 2 and fits(value.T.shape) else ""
    if parameter.is_transposed:
        value, needed, axes = value.T, needed[::-1], axes[::-1]
    message = f"{_called(parameter, name)} is {shape_text(value) or 'one number'}, expected "
    raise ShapeError(f"{message}{' × '.join(map(str, needed))} ({' × '.join(axes)})", hint)


def _called(parameter: Parameter, name: str) -> str:
    """The name that an array came under, and what it was read as where that says something else."""
    source = ", ".join(parameter.names)
    is_same = source.lower().rpartition(".")[2] == name.rpartition(".")[2]
    return source if is_same else f"{source} (read as {name})"
