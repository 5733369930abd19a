"""The weights of `attncli explain`: of a file, made up, or the identity; what to say of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from attncli.attention.weights import Block as WeightsBlock
from attncli.attention.weights import Dimensions, Weights, random_weights
from attncli.cli.explain_flags import Flags
from attncli.cli.explain_options import Block
from attncli.cli.memory import check_bytes
from attncli.errors import InputError

Array = npt.NDArray[Any]

_KINDS: dict[str, WeightsBlock] = {
    "attention": "attention",
    "encoder": "encoder",
    "decoder": "encoder-decoder",
}
_LITTLE = 10**9  # bytes of weights that are made up without asking how much memory is free


def weights_of(flags: Flags, dim: int) -> tuple[Weights, tuple[str, ...]]:
    """The block's weights, given or made up, and what is to be said of them.

    Raises InputError or ShapeError where those of the file do not fit.
    """
    block = flags.block
    kind = _KINDS[flags.kind]
    if block.weights is not None:
        return _read(block, kind, dim)
    dimensions = _dimensions(block, dim)
    _check_room(flags, dimensions)
    n_layers, last_norm = block.layers or 1, block.norm == "pre"
    made_up = random_weights(
        kind, dimensions, seed=flags.seed, n_layers=n_layers, last_norm=last_norm
    )
    if block.projection != "identity":
        note = f"The weights are made up (Glorot-uniform, seed {flags.seed}): they show the "
        return made_up, (f"{note}arithmetic, not meaning.",)
    notes = ["Q, K and V are the vectors themselves (--projection identity)."]
    if flags.kind != "attention" and block.d_ff != 0:
        notes.append(f"The feed-forward's weights are made up (seed {flags.seed}).")
    others = {n: x for n, x in made_up.items() if n[-3:] not in ("w_q", "w_k", "w_v", "w_o")}
    return others, tuple(notes)


def _check_room(flags: Flags, dimensions: Dimensions) -> None:
    """SizeError where weights of these widths would not fit into memory."""
    widths, dim = dimensions.widths(), dimensions.d_model
    per_layer = dim * (4 * max(widths.values()) + 2 * widths["d_ff"])
    n_layers = (flags.block.layers or 1) * (3 if flags.kind == "decoder" else 1)
    need = 8 * per_layer * n_layers
    if need > _LITTLE:
        check_bytes(need, "weights of these widths need", "use a smaller --dim, --d-k or --layers")


def _dimensions(block: Block, dim: int) -> Dimensions:
    return Dimensions(
        d_model=dim,
        n_heads=block.heads or 1,
        n_kv_heads=block.kv_heads,
        d_k=block.d_k,
        d_v=block.d_v,
        d_ff=block.d_ff,
    )


def _read(block: Block, kind: WeightsBlock, dim: int) -> tuple[Weights, tuple[str, ...]]:
    from attncli.attention.state_dict import weights_from_arrays
    from attncli.files.load import load
    from attncli.files.messages import listing

    loaded = load(block.weights or "")
    arrays: Mapping[str, Array] = loaded.arrays
    if "" in arrays:
        raise InputError(
            f"{loaded.origin} holds one matrix without a name", "name w_q, w_k and so on"
        )
    found = weights_from_arrays(arrays, kind, _dimensions(block, dim), n_layers=block.layers)
    used = sum(x.size for x in found.values())
    given = sum(x.size for x in arrays.values())
    notes = [f"The weights are those of {loaded.origin}: {listing(arrays)}."]
    if used < given:
        notes.append(f"{given - used} of its {given} numbers are for other blocks and not used.")
    return found, (*notes, *loaded.warnings)
