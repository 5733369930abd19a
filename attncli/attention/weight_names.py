"""The names under which weights come, and what they are called here.

    ours       encoder.1.w_q   encoder.1.attention.w_q   decoder.2.cross_attention.w_o   w_1   gamma
    PyTorch    encoder.layers.0.self_attn.in_proj_weight   norm1.weight   linear1.bias

PyTorch counts layers from 0, keeps a linear map's weights transposed, [out, in], and stacks those
of Q, K and V in one array. A name that says neither encoder nor decoder belongs to the block that
is asked for, one that says no layer to its first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.attention.heads import shape_text
from attncli.attention.shapes import as_numbers
from attncli.attention.weights import ATTENTION, FEED_FORWARD, NORM, Block
from attncli.errors import InputError, ShapeError

Array = npt.NDArray[Any]

_PREFIX = re.compile(
    r"(?:(?P<stack>encoder|decoder)\.)?"
    r"(?:layers\.(?P<from_0>[0-9]{1,6})\.|(?P<from_1>[1-9][0-9]{0,5})\.)?"
    r"(?:(?P<part>attention|self_attn|cross_attention|multihead_attn|feed_forward)\.)?"
    r"(?P<leaf>[^.]+(?:\.(?:weight|bias))?)"
)
_CROSSING = {"cross_attention", "multihead_attn"}
_NUMBERED_NORMS = {f"{leaf}_{number}" for leaf in NORM for number in (1, 2, 3)}

# PyTorch's name → ours; a matrix is transposed.
_PYTORCH = {
    "q_proj_weight": "w_q",
    "k_proj_weight": "w_k",
    "v_proj_weight": "w_v",
    "out_proj.weight": "w_o",
    "out_proj.bias": "b_o",
    "linear1.weight": "w_1",
    "linear1.bias": "b_1",
    "linear2.weight": "w_2",
    "linear2.bias": "b_2",
    "norm.weight": "gamma",
    "norm.bias": "beta",
    **{f"norm{number}.weight": f"gamma_{number}" for number in (1, 2, 3)},
    **{f"norm{number}.bias": f"beta_{number}" for number in (1, 2, 3)},
}
_IN_PROJ = {"in_proj_weight": ("w_q", "w_k", "w_v"), "in_proj_bias": ("b_q", "b_k", "b_v")}


@dataclass(frozen=True, eq=False)
class NamedArray:
    """An array as it is used here, the name it came under, and whether it came transposed."""

    value: Array
    source: str
    transposed: bool = False


def canonical(arrays: Mapping[str, npt.ArrayLike], block: Block) -> dict[str, NamedArray]:
    """The arrays by the dotted names used here: `encoder.1.w_q`, `decoder.gamma` and so on.

    Raises InputError for names that are not known, mean the same array twice, or leave open whether
    they belong to the encoder or the decoder; ShapeError where in_proj cannot be cut in three.

    >>> found = canonical({"linear1.weight": [[1, 2, 3]]}, "encoder")
    >>> {name: array.value.shape for name, array in found.items()}
    {'encoder.1.w_1': (3, 1)}
    """
    found: dict[str, NamedArray] = {}
    unknown = []
    for source, x in arrays.items():
        parts = list(_renamed(source, x, block))
        unknown += [] if parts else [source]
        for name, array in parts:
            if name in found:
                raise InputError(
                    f"{found[name].source} and {source} both mean {name}", "give it once"
                )
            found[name] = array
    if unknown:
        raise InputError(
            f"there are no weights called {_listed(unknown)}",
            "known are w_q w_k w_v w_o, b_q …, w_1 b_1 w_2 b_2, gamma_1 beta_1 …, with or without "
            "a prefix like encoder.1. or decoder.1.cross_attention., and the state dicts of "
            "PyTorch's MultiheadAttention, TransformerEncoder, TransformerDecoder and their layers",
        )
    return found


def _listed(names: list[str], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _renamed(source: str, x: npt.ArrayLike, block: Block) -> Iterator[tuple[str, NamedArray]]:
    """The names here of one array and what stands under them; nothing where it is not known."""
    match = _PREFIX.fullmatch(source.lower())
    if not match:
        return
    pytorch = match["leaf"] in _PYTORCH or match["leaf"] in _IN_PROJ
    for leaf, value in _leaves(match["leaf"], x, source):
        if _fits(match, leaf):
            turned = pytorch and leaf.startswith("w_")
            array = NamedArray(value.T if turned else value, source, turned)
            yield f"{_place(match, leaf, source, block)}{leaf}", array


def _leaves(leaf: str, x: npt.ArrayLike, source: str) -> Iterator[tuple[str, Array]]:
    if leaf in _IN_PROJ:
        yield from zip(_IN_PROJ[leaf], _thirds(as_numbers(x, source), source), strict=True)
    elif leaf in _PYTORCH:
        yield _PYTORCH[leaf], as_numbers(x, source)
    elif leaf in ATTENTION or leaf in FEED_FORWARD or leaf in NORM or leaf in _NUMBERED_NORMS:
        yield leaf, as_numbers(x, source)


def _thirds(x: Array, source: str) -> list[Array]:
    if x.ndim not in {1, 2} or x.shape[0] % 3:
        raise ShapeError(
            f"{source} ({shape_text(x) or 'one number'}) cannot be cut in three",
            "it holds those of Q, K and V one below another, 3 · d_model rows",
        )
    return list(np.split(x, 3))


def _fits(match: re.Match[str], leaf: str) -> bool:
    """Whether a leaf can stand behind its prefix: w_1 is in no attention, gamma in no layer."""
    layer = match["from_0"] or match["from_1"]
    if leaf in NORM:
        return not layer and not match["part"]
    if match["part"] == "feed_forward":
        return leaf in FEED_FORWARD
    return not match["part"] or leaf in ATTENTION


def _place(match: re.Match[str], leaf: str, source: str, block: Block) -> str:
    stack = match["stack"] or ("encoder" if block == "attention" else block)
    if stack == "encoder-decoder":
        raise InputError(
            f"{source!r} could belong to the encoder or to the decoder",
            f"call it encoder.{source} or decoder.{source}",
        )
    if leaf in NORM:
        return f"{stack}."
    number = int(match["from_0"]) + 1 if match["from_0"] else int(match["from_1"] or 1)
    return f"{stack}.{number}.{'cross_attention.' if match['part'] in _CROSSING else ''}"
