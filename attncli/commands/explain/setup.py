"""What an explanation is made of, for the command and for Python: vectors, a block and its weights.

options, vectors, weights ── set_up ──> Setup ── .trace(sentence, positions, mask …) ──> Trace
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.masks import meaning, meant_mask
from attncli.attention.shapes import Gradient, as_numbers
from attncli.commands.explain.pipeline import Keep, explained
from attncli.convention import Convention, MaskMeans
from attncli.errors import ConventionError, InputError
from attncli.files.messages import listing, named
from attncli.trace import Trace
from attncli.transformer.layers import Alter
from attncli.transformer.names import blocks, is_published
from attncli.transformer.published import published
from attncli.transformer.weights import (
    Architecture,
    BlockKind,
    NormPlace,
    Weights,
    random_weights,
)
from attncli.words.sentence import (
    DIM,
    PositionKind,
    Sentence,
    Vocabulary,
    position_kind,
    random_vocabulary,
)

Block = Literal["attention", "encoder", "decoder"]
Projection = Literal["learned", "identity"]
NO_WEIGHTS = (
    "No weights are given, so Q, K and V are the vectors themselves (--projection learned draws "
    "random weights)."
)
PROJECTIONS = ("w_q", "w_k", "w_v", "w_o")
"""The weights that projection="identity" leaves out."""


@dataclass(frozen=True, kw_only=True)
class BlockOptions:
    """What is asked of the block; None: as the weights have it, else the default.

    heads, kv_heads  by default 1, and as many as heads
    d_k, d_v, d_ff   by default d_model / heads, d_k and 4 · d_model
    layers           by default 1
    projection       "identity": without w_q, w_k, w_v and w_o
    """

    block: Block | None = None
    heads: int | None = None
    kv_heads: int | None = None
    d_k: int | None = None
    d_v: int | None = None
    d_ff: int | None = None
    layers: int | None = None
    norm: NormPlace | None = None
    eps: float | None = None
    projection: Projection | None = None

    def __post_init__(self) -> None:
        for name, choices in (("block", get_args(Block)), ("projection", get_args(Projection))):
            value = getattr(self, name)
            if value not in (None, *choices):
                raise ConventionError(f"{name} is {value!r}", f"use {', '.join(choices)}")
        for name in ("kv_heads", "d_k", "d_v"):
            if self.projection == "identity" and getattr(self, name) is not None:
                message = f"{name} cannot be used with projection='identity'"
                raise ConventionError(message, "leave one of the two out")

    @property
    def kind(self) -> BlockKind:
        """What is computed: a decoder reads an encoder."""
        return "encoder-decoder" if self.block == "decoder" else self.block or "attention"


class GivenWeights(NamedTuple):
    """Weights that are given.

    arrays   by name; the first attention among them says how many heads there are
    chosen   gives those of the block
    origin   what notes and errors call the file; "": there is none
    remarks  on the file
    """

    arrays: Mapping[str, npt.ArrayLike]
    chosen: Callable[[], Mapping[str, npt.ArrayLike]]
    origin: str = ""
    remarks: tuple[str, ...] = ()


def is_of_block(name: str, kind: BlockKind) -> bool:
    """Whether an array of this name may be a weight of a block of this kind."""
    from attncli.transformer.state_dict import is_weight

    return (kind == "attention" and is_published(name)) or is_weight(name, kind)


def weights_among(
    arrays: Mapping[str, npt.ArrayLike],
    kind: BlockKind,
    several: Callable[[Mapping[str, Any]], InputError],
) -> dict[str, npt.ArrayLike]:
    """The weights of a block among these arrays; one attention may have names of its own.

    several  the error for those of several attentions, by the names of these
    """
    from attncli.transformer.state_dict import is_weight

    weights = {name: x for name, x in arrays.items() if is_weight(name, kind)}
    if weights or kind != "attention":
        return weights
    attentions = blocks(arrays)
    if len(attentions) > 1:
        raise several(attentions)
    return {
        name[len(scope) + 1 :]: arrays[name]
        for scope, names in attentions.items()
        for name in names
    }


@dataclass(frozen=True, kw_only=True)
class Setup:
    """All but the sentence: the block, its weights and the vectors of words.

    convention  as it is asked for; that of the block is without what a mask means
    weights     None: random ones
    vocabulary  None: random vectors
    notes       on the weights that are given, or on why there are none
    """

    block: Architecture
    convention: Convention
    projection: Projection
    weights: Weights | None
    vocabulary: Vocabulary | None
    notes: tuple[str, ...]

    def trace(
        self,
        sentence: Sentence,
        *,
        target: Sentence | None = None,
        positions: str | npt.ArrayLike | None = None,
        mask: Array | None = None,
        means: MaskMeans | None = None,
        gains: Mapping[str, npt.ArrayLike] = {},
        d_output: Gradient | None = None,
        keep: Keep | None = None,
        alter: Alter | None = None,
    ) -> Trace:
        """The explanation of a sentence, as `pipeline.explained` has it.

        positions  None: the table of the paper, but none where each token has its own vector
        gains      q_gain and k_gain, of the norms of queries and keys in every attention
        mask       as it is given; `means` is the keyword that says what 0 and 1 in it mean
        """
        weights, notes = self.weights, self.notes
        if weights is None:
            weights, notes = self._drawn()
        words = [*sentence.words, *(target.words if target else ())]
        vocabulary = self.vocabulary or random_vocabulary(
            words, self.block.d_model, self.convention.seed
        )
        if mask is not None:
            mask = meant_mask(mask, means, self.convention)
            mask = meaning(mask, self.convention.mask_means, self.convention.mask_numbers)
        return explained(
            sentence,
            vocabulary,
            self.block,
            weights,
            positions=_table(positions, vocabulary),
            target=target,
            mask=mask,
            gains=gains,
            d_output=d_output,
            notes=notes,
            is_random=self.is_random,
            keep=keep,
            alter=alter,
        )

    @property
    def is_random(self) -> bool:
        """Whether weights or vectors are random, so that the attention has no meaning."""
        is_learned = self.projection == "learned" or self.block.kind != "attention"
        return self.vocabulary is None or (self.weights is None and is_learned)

    def _drawn(self) -> tuple[Weights, tuple[str, ...]]:
        """Random weights of the block, and notes on them."""
        weights, seed = random_weights(self.block), self.convention.seed
        for array in weights.values():
            array.setflags(write=False)  # so they are not copied
        if self.projection == "learned":
            text = f"The weights are random (Glorot-uniform, seed {seed}): they show the arithmetic"
            return weights, (f"{text}, not meaning.",)
        notes = [*self.notes] or ["Q, K and V are the vectors themselves (--projection identity)."]
        if self.block.kind != "attention" and self.block.d_ff != 0:
            notes.append(f"The feed-forward's weights are random (seed {seed}).")
        return {n: x for n, x in weights.items() if not n.endswith(PROJECTIONS)}, tuple(notes)


def set_up(
    options: BlockOptions,
    convention: Convention,
    vocabulary: Vocabulary | None,
    *,
    dim: int | None = None,
    source_weights: GivenWeights | None = None,
) -> Setup:
    """What is asked for, with all that the weights say themselves.

    dim  the width of the vectors where there is no vocabulary

    Raises ConventionError for options that contradict each other, InputError or ShapeError for
    weights that do not fit.
    """
    d_model = vocabulary.dim if vocabulary else DIM if dim is None else dim
    assumed: tuple[str, ...] = ()
    if source_weights is not None:
        options, assumed = _with_heads(options, source_weights, d_model)
    block = Architecture(
        kind=options.kind,
        d_model=d_model,
        n_heads=1 if options.heads is None else options.heads,
        n_kv_heads=options.kv_heads,
        d_k=options.d_k,
        d_v=options.d_v,
        d_ff=options.d_ff,
        n_layers=1 if options.layers is None and source_weights is None else options.layers,
        norm=options.norm or "post",
        epsilon=1e-5 if options.eps is None else options.eps,
        dropout=convention.dropout if options.kind != "attention" else 0.0,
        convention=replace(convention, mask_means="keep", mask_numbers=None),
    )
    weights, notes = (None, ()) if source_weights is None else _checked(source_weights, block)
    projection = options.projection or "learned"
    has_widths = any(x is not None for x in (options.kv_heads, options.d_k, options.d_v))
    if options.projection is None and vocabulary and source_weights is None and not has_widths:
        projection, notes = "identity", (NO_WEIGHTS,)
    return Setup(
        block=block,
        convention=convention,
        projection=projection,
        weights=weights,
        vocabulary=vocabulary,
        notes=(*notes, *assumed),
    )


def _with_heads(
    options: BlockOptions, source_weights: GivenWeights, d_model: int
) -> tuple[BlockOptions, tuple[str, ...]]:
    """The options with the heads that the arrays have, where none are given; what was assumed."""
    names = next(iter(blocks(source_weights.arrays).values()), [])
    arrays = {name: source_weights.arrays[name] for name in names}
    heads: Any = {"n_heads": options.heads, "n_kv_heads": options.kv_heads}
    with _errors_of(source_weights):
        first = published(arrays, [(1, d_model)], **heads, whole=False)
    options = replace(options, heads=first.n_heads, kv_heads=first.n_kv_heads)
    return options, tuple(f"{x[0].upper()}{x[1:]}." for x in ["; ".join(first.notes)] if x)


def _checked(source_weights: GivenWeights, block: Architecture) -> tuple[Weights, tuple[str, ...]]:
    """The weights of the block, and notes on them."""
    from attncli.transformer.state_dict import weights_from_arrays

    arrays = source_weights.chosen()
    with _errors_of(source_weights):
        weights = weights_from_arrays(arrays, block)
    used = sum(x.size for x in weights.values())
    total = sum(as_numbers(x, name).size for name, x in arrays.items())
    source = f"those of {source_weights.origin}" if source_weights.origin else "as given"
    notes = [f"The weights are {source}: {listing(arrays)}."]
    if used < total:
        notes.append(f"{total - used} of its {total} numbers are for other blocks and not used.")
    return weights, (*notes, *source_weights.remarks)


def _errors_of(source_weights: GivenWeights) -> Any:
    """What names the file in errors."""
    return named(source_weights.origin) if source_weights.origin else nullcontext()


def _table(positions: str | npt.ArrayLike | None, vocabulary: Vocabulary) -> PositionKind | Array:
    """What is added to the vectors: a kind of table, or a matrix."""
    if positions is None:
        return "paper" if vocabulary.matrix is None else "none"
    if not isinstance(positions, str):
        return as_numbers(positions, "positions")
    kind = position_kind(positions)
    if kind is None:
        hint = f"use {', '.join(get_args(PositionKind))} or a matrix"
        raise ConventionError(f"positions is {positions!r}", hint)
    return kind
