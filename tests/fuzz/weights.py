"""A second reading of the projections of an attention, by our names or PyTorch's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from attncli.arrays import Array

from .case import Case
from .reading import Reading, RefusalError
from .second import readings

if TYPE_CHECKING:
    from .expected import Shown

_PREFIX = r"(encoder\.)?(layers\.0\.|1\.)?(attention\.|self_attn\.)?"
_PLAIN = re.compile(_PREFIX + r"([wb]_[qkvo])")
_TORCH = re.compile(
    _PREFIX + r"(in_proj_weight|in_proj_bias|[qkv]_proj_weight|out_proj\.(weight|bias))"
)
_OTHER = re.compile(
    r"(encoder\.|decoder\.)?(layers\.\d+\.|[1-9]\d*\.)?(\w+\.)?"
    r"([wb]_[qkvo12]|gamma(_[123])?|beta(_[123])?|norm[123]?\.(weight|bias)|"
    r"linear[12]\.(weight|bias)|in_proj_weight|in_proj_bias|[qkv]_proj_weight|"
    r"out_proj\.(weight|bias))"
)


def weights_of(case: Case, shown: dict[str, Shown]) -> dict[str, Array]:
    """The weights that the trace must show, by dotted name; of the first reading that agrees."""
    every, member = readings(case.given["--weights"] or "", case.files, case.stdin)
    blocks = ("attention.", "cross_attention.", "encoder.1.attention.")
    prefix = next(block for block in blocks if any(name.startswith(block) for name in shown))
    tried = [_named(reading, member, prefix) for reading in every]
    for found in tried:
        if all(name in shown and np.array_equal(x, shown[name].value) for name, x in found.items()):
            return found
    return tried[0]


def _named(reading: Reading, member: str, prefix: str) -> dict[str, Array]:
    arrays = {member: reading.arrays[member]} if member else reading.arrays
    if any(_OTHER.fullmatch(name.lower()) for name in reading.wrong if not member):
        raise RefusalError("a weight that cannot be read")
    found: dict[str, Array] = {}
    for name, given in arrays.items():
        x = given.astype(float)
        plain, torch = _PLAIN.fullmatch(name.lower()), _TORCH.fullmatch(name.lower())
        if plain:
            parts = {plain[4]: x}
        elif torch and torch[4].startswith("in_proj"):
            letter = "w" if torch[4] == "in_proj_weight" else "b"
            cut = [part.T for part in np.split(x, 3)]
            parts = {f"{letter}_{role}": part for role, part in zip("qkv", cut, strict=True)}
        elif torch:
            letter = "b" if torch[4].endswith("bias") else "w"
            parts = {f"{letter}_{'o' if torch[4][0] == 'o' else torch[4][0]}": x.T}
        elif _OTHER.fullmatch(name.lower()):
            continue  # of another block
        else:
            continue  # not used, as a note says
        if parts.keys() & found.keys():
            raise RefusalError(f"{name} is given twice")
        found |= parts
    return {prefix + name: x for name, x in found.items()}
