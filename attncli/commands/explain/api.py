"""explain in Python: what the command of this name is, from arrays instead of files.

explain("the river bank") ── tokens, vectors, weights ── Setup ──> Trace
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy.typing as npt

from attncli.attention.shapes import Gradient, as_numbers
from attncli.commands.explain.setup import (
    Block,
    BlockOptions,
    GivenWeights,
    Projection,
    is_of_block,
    set_up,
    weights_among,
)
from attncli.convention import Convention, Fields, convention_of
from attncli.errors import ConventionError, InputError
from attncli.files.messages import listing
from attncli.recorded import recorded
from attncli.trace import Trace
from attncli.transformer.weights import NormPlace
from attncli.words.sentence import (
    PositionKind,
    Sentence,
    Unknown,
    Vocabulary,
    from_file,
    from_mapping,
    row_vocabulary,
)
from attncli.words.tokens import tokenize


@recorded
def explain(  # noqa: PLR0913
    sentence: str | Sequence[str],
    *,
    target: str | Sequence[str] | None = None,
    vectors: str | Mapping[str, npt.ArrayLike] | npt.ArrayLike | None = None,
    unknown: Unknown = "random",
    dim: int | None = None,
    positions: PositionKind | npt.ArrayLike | None = None,
    weights: Mapping[str, npt.ArrayLike] | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    d_k: int | None = None,
    d_v: int | None = None,
    d_ff: int | None = None,
    block: Block = "attention",
    layers: int | None = None,
    norm: NormPlace = "post",
    eps: float = 1e-5,
    projection: Projection | None = None,
    pad_to: int | None = None,
    mask: npt.ArrayLike | None = None,
    q_gain: npt.ArrayLike | None = None,
    k_gain: npt.ArrayLike | None = None,
    d_output: Gradient | None = None,
    convention: Convention | None = None,
    **fields: Unpack[Fields],
) -> Trace:
    """A sentence from its words to contextual vectors: every stage of every layer and head.

    sentence   text, or its tokens; target: of which the queries are made, or what is decoded
    vectors    the path of a GloVe or word2vec file, "builtin" (2,717 frequent words of GloVe),
               word → vector, or a row for each token; None: random ones of the width `dim` and the
               `seed`, the same for the same word.
               `unknown` says what a word gets that is not among them: "random", "zero" or "error"
    positions  "paper", "article", "none", or a matrix with a row for each position; None: "none"
               where `vectors` has a row for each token, else "paper"
    weights    by name, as they are published; None: random ones, drawn with `seed`
    heads …    of the block, which is "attention", "encoder" or "decoder"; None: what the weights
               have, else 1 head, 1 layer and widths as `Architecture` has them
    projection "identity": the vectors themselves are Q, K and V, the default with vectors and
               without weights; "learned": random weights
    pad_to     so many tokens, filled up with masked ones
    q/k_gain   [d_k], the gains of the norm of queries, and of keys; they need `qk_norm`
    d_output   the gradient of the last stage of the block, an array, "ones" or "random"
    mask       true may attend, or numbers to add; and the fields of Convention, as `attend` takes

    Raises InputError, ShapeError or ConventionError for what does not fit together.
    Source: "Attention Is All You Need", section 3.

    >>> trace = explain("the river bank", dim=4, heads=2, causal=True)
    >>> trace["attention.weights"].value.shape, trace["tokens"].labels["token"]
    ((2, 3, 3), ('the', 'river', 'bank'))
    """
    convention = convention_of(convention, fields)
    options = BlockOptions(
        block=block,
        heads=heads,
        kv_heads=kv_heads,
        d_k=d_k,
        d_v=d_v,
        d_ff=d_ff,
        layers=layers,
        norm=norm,
        eps=eps,
        projection=projection,
    )
    contradictions = {
        "decoder": {"mask": mask is not None, "causal": convention.causal},  # of which attention?
        "encoder": {"target": target is not None},
    }
    for name, is_given in contradictions.get(block, {}).items():
        if is_given:
            message = f"{name} cannot be used with block={block!r}"
            raise ConventionError(message, "leave one of the two out")
    tokens = _tokens(sentence)
    source = Sentence.padded(tokens, pad_to)
    other = None if target is None else Sentence(_tokens(target))
    words: Any = {"unknown": unknown, "dim": dim, "seed": convention.seed}
    every = [*source.words, *(other.words if other else ())]
    vocabulary = None
    if isinstance(vectors, str):
        vocabulary = from_file(vectors, every, **words)
        remarks = (*vocabulary.warnings, *vocabulary.remarks)
        vocabulary = replace(vocabulary, remarks=remarks)
    elif isinstance(vectors, Mapping):
        vocabulary = from_mapping(vectors, every, **words)
    elif vectors is not None:
        vocabulary = row_vocabulary(as_numbers(vectors, "vectors"), len(tokens))
        _check_rows(vocabulary, target=other, dim=dim)
    source_weights = None if weights is None else _given(weights, options)
    setup = set_up(options, convention, vocabulary, dim=dim, source_weights=source_weights)
    return setup.trace(
        source,
        target=other,
        positions=positions,
        mask=None if mask is None else as_numbers(mask, "mask"),
        means=fields.get("mask_means"),
        gains={n: x for n, x in {"q_gain": q_gain, "k_gain": k_gain}.items() if x is not None},
        d_output=d_output,
    )


def _tokens(text: str | Sequence[str]) -> tuple[str, ...]:
    return tokenize(text) if isinstance(text, str) else tuple(text)


def _check_rows(vocabulary: Vocabulary, *, target: Sentence | None, dim: int | None) -> None:
    """ConventionError for what contradicts a vector for each token."""
    if target is not None:
        message = "vectors has a row for each token of the sentence, but none for the target"
        raise ConventionError(message, "give word → vector")
    if dim not in (None, vocabulary.dim):
        message = f"dim is {dim}, but the vectors have {vocabulary.dim} numbers"
        raise ConventionError(message, "leave it out")


def _given(weights: Mapping[str, npt.ArrayLike], options: BlockOptions) -> GivenWeights:
    """The weights of a call; any array that is none of the block's is refused by its name."""
    if options.projection == "identity":
        message = "weights cannot be used with projection='identity'"
        raise ConventionError(message, "leave one of the two out")

    def several(attentions: Mapping[str, Any]) -> InputError:
        message = f"weights holds those of {len(attentions)} attentions: {listing(attentions, 4)}"
        return InputError(message, "give those of one")

    def chosen() -> dict[str, npt.ArrayLike]:
        refused = {n: x for n, x in weights.items() if not is_of_block(n, options.kind)}
        return weights_among(weights, options.kind, several) | refused

    return GivenWeights(weights, chosen)
