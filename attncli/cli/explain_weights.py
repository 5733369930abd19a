"""The weights of `attncli explain`: of a file, made up, or the identity; what to say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.attention.multi_head import Projections
from attncli.attention.weights import Block as WeightsBlock
from attncli.attention.weights import Sizes, Weights, named_arrays
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
    from attncli.attention.initial import random_weights

    _check_room(flags, dim)
    made_up = random_weights(
        kind,
        _sizes(block, dim),
        seed=flags.seed,
        n_layers=block.layers or 1,
        final_norm=block.norm == "pre",
    )
    if block.projection != "identity":
        return made_up, (_said_of_made_up(flags.seed),)
    notes = ["Q, K and V are the vectors themselves (--projection identity)."]
    if flags.kind != "attention" and block.d_ff != 0:
        notes.append(f"The feed-forward's weights are made up (seed {flags.seed}).")
    return _with_identity(made_up, dim), tuple(notes)


def _said_of_made_up(seed: int) -> str:
    made_up = f"The weights are made up (Glorot-uniform, seed {seed})"
    return f"{made_up}: they show the arithmetic, not meaning."


def _check_room(flags: Flags, dim: int) -> None:
    """SizeError where weights of these widths would not fit into memory."""
    widths = _sizes(flags.block, dim).widths()
    per_layer = dim * (4 * max(widths.values()) + 2 * widths["d_ff"])
    n_layers = (flags.block.layers or 1) * (3 if flags.kind == "decoder" else 1)
    need = 8 * per_layer * n_layers
    if need > _LITTLE:
        check_bytes(need, "weights of these widths need", "use a smaller --dim, --d-k or --layers")


def _sizes(block: Block, dim: int) -> Sizes:
    return Sizes(
        d_model=dim,
        n_heads=block.heads or 1,
        n_kv_heads=block.kv_heads,
        d_k=block.d_k,
        d_v=block.d_v,
        d_ff=block.d_ff,
    )


def _with_identity(weights: Weights, dim: int) -> Weights:
    """The weights with every projection the identity, and none after the heads."""
    plain = Projections(np.eye(dim), np.eye(dim), np.eye(dim))

    def stack(old: Any) -> Any:
        names = ("attention", "cross_attention")
        layers = (
            replace(layer, **{name: plain for name in names if hasattr(layer, name)})
            for layer in old.layers
        )
        return replace(old, layers=tuple(layers))

    return Weights(
        attention=weights.attention and plain,
        encoder=weights.encoder and stack(weights.encoder),
        decoder=weights.decoder and stack(weights.decoder),
    )


def _read(block: Block, kind: WeightsBlock, dim: int) -> tuple[Weights, tuple[str, ...]]:
    from attncli.attention.given_weights import weights_from_arrays
    from attncli.files import load
    from attncli.files.wording import listing

    loaded = load(block.weights or "")
    arrays: Mapping[str, Array] = loaded.arrays
    if "" in arrays:
        raise InputError(
            f"{loaded.origin} holds one matrix without a name", "name w_q, w_k and so on"
        )
    found = weights_from_arrays(arrays, kind, _sizes(block, dim), n_layers=block.layers)
    used = sum(x.size for x in named_arrays(found).values())
    given = sum(x.size for x in arrays.values())
    notes = [f"The weights are those of {loaded.origin}: {listing(arrays)}."]
    if used < given:
        notes.append(f"{given - used} of its {given} numbers are for other blocks and not used.")
    return found, (*notes, *loaded.warnings)
