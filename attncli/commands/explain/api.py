"""explain and posenc in Python: what the commands of these names are, from arrays instead of files.

explain("the river bank") ── tokens, vectors, weights ── model.explained ──> Trace
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, Unpack, cast, get_args

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.masks import meaning, meant_mask
from attncli.attention.positions import Exponent, add_positions, alibi, rotary_table, sinusoidal
from attncli.attention.shapes import Gradient, as_numbers
from attncli.commands.explain.pipeline import explained
from attncli.convention import Convention, Fields, convention_of
from attncli.errors import ConventionError
from attncli.recorded import recorded
from attncli.trace import Trace
from attncli.transformer.state_dict import weights_from_arrays
from attncli.transformer.weights import Architecture, NormPlace, random_weights
from attncli.words.sentence import (
    DIM,
    PositionKind,
    Sentence,
    Unknown,
    Vocabulary,
    from_file,
    random_vocabulary,
)
from attncli.words.tokens import tokenize

Kind = Literal["attention", "encoder", "decoder"]


@recorded
def explain(  # noqa: PLR0913
    sentence: str | Sequence[str],
    *,
    target: str | Sequence[str] | None = None,
    vectors: str | Mapping[str, npt.ArrayLike] | npt.ArrayLike | None = None,
    unknown: Unknown = "random",
    dim: int | None = None,
    positions: PositionKind | npt.ArrayLike = "paper",
    weights: Mapping[str, npt.ArrayLike] | None = None,
    heads: int = 1,
    kv_heads: int | None = None,
    d_k: int | None = None,
    d_v: int | None = None,
    d_ff: int | None = None,
    block: Kind = "attention",
    layers: int = 1,
    norm: NormPlace = "post",
    eps: float = 1e-5,
    pad_to: int | None = None,
    mask: npt.ArrayLike | None = None,
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
    positions  "paper", "article", "none", or a matrix with a row for each position
    weights    by name, ours or PyTorch's; None: random ones, drawn with `seed`
    heads …    of the block, which is "attention", "encoder" or "decoder"; d_k None is dim / heads
    pad_to     so many tokens, filled up with masked ones
    d_output   the gradient of the last stage of the block, an array, "ones" or "random"
    mask       true may attend, or numbers to add; and the fields of Convention, as `attend` takes

    Raises InputError, ShapeError or ConventionError for what does not fit together.
    Source: "Attention Is All You Need", section 3.

    >>> trace = explain("the river bank", dim=4, heads=2, causal=True)
    >>> trace["attention.weights"].value.shape, trace["tokens"].labels["token"]
    ((2, 3, 3), ('the', 'river', 'bank'))
    """
    convention = convention_of(convention, fields)
    if block not in get_args(Kind):
        raise ConventionError(f"block is {block!r}", f"use {', '.join(get_args(Kind))}")
    source = Sentence.padded(_tokens(sentence), pad_to)
    other = None if target is None else Sentence(_tokens(target))
    words = [*source.words, *(other.words if other else ())]
    vocabulary = _vocabulary(vectors, words, unknown=unknown, dim=dim, seed=convention.seed)
    allowed = None
    if mask is not None:
        allowed = meant_mask(np.asarray(mask), fields.get("mask_means"), convention)
        allowed = meaning(allowed, convention.mask_means, convention.mask_numbers)
        convention = replace(convention, mask_means="keep", mask_numbers=None)
    layout = Architecture(
        kind="encoder-decoder" if block == "decoder" else block,
        d_model=vocabulary.dim,
        n_heads=heads,
        n_kv_heads=kv_heads,
        d_k=d_k,
        d_v=d_v,
        d_ff=d_ff,
        n_layers=layers if weights is None else None,
        norm=norm,
        epsilon=eps,
        dropout=convention.dropout if block != "attention" else 0.0,
        convention=convention,
    )
    notes: tuple[str, ...] = ()
    if weights is None:
        arrays = random_weights(layout)
        notes = (f"The weights are random (Glorot-uniform, seed {convention.seed}).",)
    else:
        arrays = weights_from_arrays(weights, layout)
    return explained(
        source,
        vocabulary,
        layout,
        arrays,
        positions=_positions(positions),
        target=other,
        mask=allowed,
        d_output=d_output,
        notes=notes,
    )


def _tokens(text: str | Sequence[str]) -> tuple[str, ...]:
    return tokenize(text) if isinstance(text, str) else tuple(text)


def _positions(positions: PositionKind | npt.ArrayLike) -> PositionKind | Array:
    if isinstance(positions, str):
        if positions not in get_args(PositionKind):
            problem = f"positions is {positions!r}"
            raise ConventionError(problem, "use paper, article, none or a matrix")
        return cast("PositionKind", positions)
    return as_numbers(positions, "positions")


def _vocabulary(
    vectors: str | Mapping[str, npt.ArrayLike] | npt.ArrayLike | None,
    words: Sequence[str],
    *,
    unknown: Unknown,
    dim: int | None,
    seed: int,
) -> Vocabulary:
    """The vectors of the words, or of the rows of a matrix."""
    if vectors is None:
        return random_vocabulary(words, dim or DIM, seed)
    if isinstance(vectors, str):
        return from_file(vectors, words, unknown=unknown, seed=seed, dim=dim)
    if isinstance(vectors, Mapping):
        arrays = {word: as_numbers(x, word) for word, x in vectors.items()}
        width = dim or max((x.size for x in arrays.values()), default=0)
        missing = [word for word in words if word not in arrays]
        if missing and unknown == "error":
            raise ConventionError(f"there is no vector for {missing[0]!r}", 'or unknown="random"')
        drawn = random_vocabulary(missing, width, seed).vectors if unknown == "random" else {}
        zeros = {word: np.zeros(width) for word in missing}
        return Vocabulary({**zeros, **drawn, **arrays}, width, "as given")
    matrix = as_numbers(vectors, "vectors")
    return Vocabulary({}, matrix.shape[-1], "as given", matrix=matrix)


@recorded
def posenc(
    n: int | None = None,
    dim: int | None = None,
    *,
    kind: Literal["sinusoidal", "rope", "alibi"] = "sinusoidal",
    exponent: Exponent = "paper",
    base: float = 10000.0,
    start: int = 0,
    add: npt.ArrayLike | None = None,
    heads: int | None = None,
    symmetric: bool = False,
) -> Trace:
    """A table of positions, as `attncli posenc` shows it.

    n, dim    how many positions, of which width; of `add`, the embeddings they are added to
    kind      "sinusoidal"; "rope": angles, cos and sin of rotary ones; "alibi": biases of `heads`
    exponent  "article" counts 2i twice; start: the first position

    Raises ConventionError for sizes that are missing or below 1, ShapeError where `add` is no
    matrix.

    >>> posenc(5, 4)["positions"].value[1].round(4).tolist()
    [0.8415, 0.5403, 0.01, 1.0]
    """
    if add is not None:
        add = np.atleast_2d(as_numbers(add, "add"))  # one vector is one row
        n, dim = add.shape[0], add.shape[-1]
    if n is None:
        raise ConventionError("the number of positions is missing", "write posenc(5, 4)")
    if kind == "alibi":
        if heads is None:
            raise ConventionError("heads is missing", 'write posenc(5, kind="alibi", heads=2)')
        return alibi(heads, n, causal=not symmetric)
    if dim is None:
        raise ConventionError("dim is missing", "write posenc(5, 4)")
    if kind == "rope":
        return rotary_table(n, dim, base=base, start=start)
    if kind != "sinusoidal":
        raise ConventionError(f"kind is {kind!r}", "use sinusoidal, rope or alibi")
    table = sinusoidal(n, dim, exponent=exponent, base=base, start=start)
    return table if add is None else add_positions(add, table)
