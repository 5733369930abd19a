"""From the flags of `attncli explain` to what `explain.way` takes; flags that contradict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.attention.architecture import Architecture
from attncli.attention.multi_head import Projections
from attncli.attention.weights import Sizes, Weights, named_arrays
from attncli.attention.weights import Block as WeightsBlock
from attncli.cli.choices import convention_of
from attncli.cli.explain_options import Block, Vectors, Words
from attncli.cli.memory import check_bytes, check_fits
from attncli.cli.options import Masking, Scores
from attncli.convention import Convention
from attncli.errors import ConventionError, InputError
from attncli.explain.sentence import Sentence
from attncli.explain.vocabulary import Vocabulary, check_dim, from_file, made_up
from attncli.explain.way import Plan
from attncli.text.tokens import tokenize

Array = npt.NDArray[Any]

DIM = 8
_STACKED = {"attention": "attention", "encoder": "encoder", "decoder": "encoder-decoder"}
_MOST = 10**9  # bytes of weights that are made up without asking how much memory is free


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Flags:
    """The groups of one call."""

    words: Words
    vectors: Vectors
    block: Block
    masking: Masking
    scores: Scores

    @property
    def kind(self) -> str:
        """What is computed: attention, encoder or decoder."""
        return self.block.block or "attention"

    @property
    def seed(self) -> int:
        """The seed of everything that is drawn at random."""
        return self.scores.seed or 0


def check_company(flags: Flags) -> None:
    """ConventionError for flags that contradict, or do nothing without another one."""
    words, vectors, block, masking = flags.words, flags.vectors, flags.block, flags.masking
    identity = block.projection == "identity"
    stacked, decoding = flags.kind != "attention", flags.kind == "decoder"
    target, glove = words.target is not None, vectors.glove is not None
    not_attention = "add --block encoder, or leave it out"
    no_widths = "with --projection identity, Q, K and V are the vectors themselves"
    rules = [
        (words.sentence is not None and words.tokens is not None, "both a sentence and --tokens", "give one of the two"),
        (words.sentence is None and words.tokens is None, "there is no sentence", 'write attncli explain "…"'),
        (decoding and not target, "--block decoder needs what it decodes", 'add --target "…"'),
        (flags.kind == "encoder" and target, "an encoder has no target", "use --block decoder, or leave out --target"),
        (block.layers is not None and not stacked, "--layers does nothing with one attention", not_attention),
        (block.d_ff is not None and not stacked, "--d-ff does nothing with one attention", not_attention),
        (block.norm is not None and not stacked, "--norm does nothing with one attention", not_attention),
        (vectors.unknown is not None and not glove, "--unknown does nothing alone", "add --glove FILE, or leave it out"),
        (block.d_k is not None and identity, f"--d-k is given, but {no_widths}", "leave it out"),
        (block.d_v is not None and identity, f"--d-v is given, but {no_widths}", "leave it out"),
        (block.kv_heads is not None and identity, f"--kv-heads is given, but {no_widths}", "leave it out"),
        (block.weights is not None and identity, f"--weights is given, but {no_widths}", "leave one of the two out"),
        (masking.mask is None and masking.mask_means is not None, "--mask-means is given, but no mask", "add --mask SOURCE"),
        (masking.mask is not None and decoding, "--mask could be for any of a decoder's three attentions", "leave it out"),
        (masking.causal and decoding, "a decoder's self-attention is causal already", "leave out --causal"),
    ]  # fmt: skip
    for wrong, message, hint in rules:
        if wrong:
            raise ConventionError(message, hint)


def sentences_of(words: Words) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """The tokens of the sentence and of the target, without padding.

    Raises InputError where one of them is empty.
    """
    if words.tokens is None:
        said = tokenize(words.sentence or "", words.lowercase)
    else:
        said = _given_tokens(words.tokens)
        said = tuple(token.lower() for token in said) if words.lowercase else said
    if words.target is None:
        return said, None
    try:
        return said, tokenize(words.target, words.lowercase)
    except InputError as error:
        raise InputError(f"--target: {error.message}", error.hint) from None


def _given_tokens(text: str) -> tuple[str, ...]:
    """A,B,C or a JSON list of strings; spaces around a comma are none of a token's."""
    if not text.startswith("["):
        tokens = tuple(part.strip() for part in text.split(","))
        if not all(tokens):
            raise InputError("--tokens holds an empty token", "write --tokens a,b,c")
        return tokens
    import json

    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(x, str) and x for x in found) or not found:
        raise InputError("--tokens is no JSON list of strings", """write --tokens '["a", ","]'""")
    return tuple(found)


def vocabulary_of(vectors: Vectors, words: tuple[str, ...], seed: int) -> Vocabulary:
    """The vectors of these words, made up or from the file of --glove."""
    if vectors.glove is None:
        return made_up(words, vectors.dim or DIM, seed)
    found = from_file(vectors.glove, words, unknown=vectors.unknown or "random", seed=seed)
    check_dim(found, vectors.dim)
    return found


def plan_of(flags: Flags) -> Plan:
    """What is computed, and by which convention; what it says about the weights comes later."""
    scores, masking = flags.scores, replace(flags.masking, mask_means=None)
    base = Convention(seed=flags.seed)
    convention = convention_of(masking, replace(scores, seed=None), base)
    how = Architecture(
        n_heads=flags.block.heads or 1,
        n_kv_heads=flags.block.kv_heads,
        norm=flags.block.norm or "post",
        dropout=convention.dropout if flags.kind != "attention" else 0.0,
        convention=convention,
    )
    kind: Any = flags.kind
    positions = flags.vectors.positions or "paper"
    identity = flags.block.projection == "identity"
    return Plan(block=kind, how=how, positions=positions, identity=identity)


def mask_of(masking: Masking) -> Array | None:
    """The mask of --mask as numbers to add: −∞ where a token may not attend."""
    if masking.mask is None:
        return None
    from attncli.cli.inputs import checked_mask
    from attncli.files import load, only

    loaded = load(masking.mask, role="mask")
    mask = checked_mask(only(loaded, "mask"), masking.mask_means, loaded.origin)
    if mask.dtype != np.bool_:
        return mask
    return np.where(mask == (masking.mask_means != "ignore"), 0.0, -np.inf)


def check_room(flags: Flags, dim: int, n_queries: int, n_keys: int, n_layers_kept: int) -> None:
    """SizeError where the stages, or weights that would be made up, do not fit into memory."""
    heads = flags.block.heads or 1
    matrices = heads * n_layers_kept + 2  # and the cosines of the closing words
    check_fits((matrices, n_queries, n_keys), Convention(dtype=flags.scores.dtype or "float64"))
    if flags.block.weights is None:
        sizes = _sizes(flags.block, dim).widths()
        per_layer = dim * (4 * max(sizes.values()) + 2 * sizes["d_ff"])
        need = 8 * per_layer * (flags.block.layers or 1) * (3 if flags.kind == "decoder" else 1)
        if need > _MOST:
            check_bytes(need, "weights of these widths", "use a smaller --dim, --d-k or --layers")


def weights_of(flags: Flags, dim: int) -> tuple[Weights, tuple[str, ...]]:
    """The block's weights, given or made up, and what is to be said of them.

    Raises InputError or ShapeError where those of the file do not fit.
    """
    block = flags.block
    kind: WeightsBlock = _STACKED[flags.kind]  # type: ignore[assignment]
    if block.weights is not None:
        return _read(block, kind, dim)
    from attncli.attention.initial import random_weights

    final_norm = block.norm == "pre"
    seed, n_layers = flags.seed, block.layers or 1
    made_up = random_weights(
        kind, _sizes(block, dim), seed=seed, n_layers=n_layers, final_norm=final_norm
    )
    if block.projection != "identity":
        said = f"The weights are made up (Glorot-uniform, seed {seed}): they show the arithmetic, not meaning."
        return made_up, (said,)
    notes = ["Q, K and V are the vectors themselves (--projection identity)."]
    if flags.kind != "attention" and block.d_ff != 0:
        notes.append(f"The feed-forward's weights are made up (seed {seed}).")
    return _with_identity(made_up, dim), tuple(notes)


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
        raise InputError(f"{loaded.origin} holds one matrix without a name", "name w_q, w_k and so on")
    found = weights_from_arrays(arrays, kind, _sizes(block, dim), n_layers=block.layers)
    used = sum(x.size for x in named_arrays(found).values())
    given = sum(x.size for x in arrays.values())
    notes = [f"The weights are those of {loaded.origin}: {listing(arrays)}."]
    if used < given:
        notes.append(f"{given - used} of its {given} numbers are for other blocks and not used.")
    return found, (*notes, *loaded.warnings)
