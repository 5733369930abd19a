"""attncli explain: a sentence → tokens → vectors → Q, K, V → every stage → what it means."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, get_args

from attncli.arrays import Like
from attncli.attention.memory import size_of, width_of
from attncli.budget import FLOAT, SURELY_FITS, check_free
from attncli.cli.extensions import Call, extended
from attncli.cli.groups import check_flags, facts_of, given_of, of_lse
from attncli.cli.options import ONES_SHOW, ConventionFlags, DisplayFlags
from attncli.cli.output import LEAST_HEIGHT, note, present
from attncli.cli.output_size import check_text, of_output
from attncli.cli.parsing import is_of, tokens_of
from attncli.commands.explain.flags import BlockFlags, SentenceFlags, VectorFlags
from attncli.commands.explain.pipeline import Keep
from attncli.commands.explain.pipeline import explained as compute
from attncli.commands.explain.size import Sentences, of_explanation
from attncli.convention import Convention
from attncli.errors import ConventionError, InputError, ShapeError
from attncli.files.lookup import only
from attncli.files.roles import D_OUTPUT, ONES, RANDOM, Role, role_of
from attncli.formats import EXACT, PAGE
from attncli.page.explain import explain_page
from attncli.page.outline import is_first_layer, outline_page
from attncli.trace import Trace
from attncli.transformer.layers import BACKWARD
from attncli.transformer.weights import (
    Architecture,
    Weights,
    n_layers_of,
    random_weights,
    weight_shapes,
)
from attncli.words.sentence import DIM, PositionKind, Sentence, from_file, random_vocabulary
from attncli.words.tokens import is_padding, tokenize

PRECISION = 3  # a long page is read at a glance; --precision sets another


@dataclass(frozen=True, kw_only=True)
class ExplainCall(Call):
    """A call of explain, as its extensions see it."""

    command: ClassVar[str] = "explain"
    words: SentenceFlags
    vectors: VectorFlags
    flags: BlockFlags
    choices: ConventionFlags
    show: DisplayFlags

    @property
    def groups(self) -> tuple[Any, ...]:
        """What its flags say, but for what is shown."""
        return self.words, self.vectors, self.flags, self.choices, *self.extensions

    def again(
        self,
        words: SentenceFlags,
        vectors: VectorFlags,
        flags: BlockFlags,
        choices: ConventionFlags,
        *extensions: Any,
    ) -> ExplainCall:
        """The same call with other groups, and with every stage whole."""
        for message, hint in _contradictions(words, vectors, flags):
            raise ConventionError(message, hint)
        return replace(
            self,
            words=words,
            vectors=vectors,
            flags=flags,
            choices=choices,
            show=replace(self.show, full=True, stage=None),
            extensions=extensions,
        )

    def reordered(self, sentence: str) -> ExplainCall:
        """The same call of the words in another order; ConventionError where they are others."""
        words = replace(self.words, sentence=sentence, tokens=None)
        if sorted(_tokens(self.words)[0]) != sorted(_tokens(words)[0]):
            hint = 'use each of them once, such as "AI love I" for "I love AI"'
            raise ConventionError("--against-order has other words than the sentence", hint)
        return self.again(words, *self.groups[1:])

    def beside(self, other: ExplainCall) -> list[Trace]:
        """The traces of two calls, whose notes are said once."""
        traces, notes = zip(*(explained(call) for call in (self, other)), strict=True)
        note(*dict.fromkeys(chain(*notes)), quiet=self.show.quiet)
        return [*traces]


def explain(
    words: SentenceFlags,
    vectors: VectorFlags,
    flags: BlockFlags,
    choices: ConventionFlags,
    show: DisplayFlags,
    *extensions: Any,
) -> int | None:
    """Shows what the flags ask for, unless an extension does something else."""
    for message, hint in _contradictions(words, vectors, flags):
        raise ConventionError(message, hint)
    call = extended(
        ExplainCall(
            words=words,
            vectors=vectors,
            flags=flags,
            choices=choices,
            show=show,
            extensions=extensions,
        )
    )
    if isinstance(call, int):
        return call
    trace, warnings = explained(call)
    note(*warnings, quiet=show.quiet)
    page = outline_page if flags.outline else explain_page
    height = 0 if show.stage else LEAST_HEIGHT
    present(trace, show, page=page, precision=PRECISION, least_height=height)
    form = show.form
    if not form.notes or (form.holds == PAGE and (show.cell or show.query)):
        note(*trace.notes, quiet=show.quiet)
    return None


def _contradictions(
    words: SentenceFlags, vectors: VectorFlags, flags: BlockFlags
) -> Iterator[tuple[str, str]]:
    """What is missing, or wrong with flags together, and how to mend it."""
    if words.sentence is not None and words.tokens is not None:
        yield "there are both a sentence and --tokens", "give one of the two"
    if words.sentence is None and words.tokens is None and vectors.embeddings is None:
        yield "there is no sentence", 'write attncli explain "…"'
    if flags.block == "decoder" and words.target is None:
        yield "--block decoder needs what it decodes", 'add --target "…"'
    if words.mask is not None and flags.block == "decoder":
        yield "--mask could be for any of a decoder's three attentions", "leave it out"
    if flags.eps is not None and not 0 <= flags.eps < math.inf:
        yield f"--eps is {flags.eps:g}", "use a number from 0, such as 1e-5"


def _kept(show: DisplayFlags) -> Keep | None:
    """Which stages of a layer will be shown; None for all of them."""
    if show.full or show.form.holds == EXACT or show.form.every:
        return None
    if not show.stage:
        return is_first_layer
    blocks = [stage.rpartition(".")[0] for stage in show.stage]
    if not all(blocks):  # a stage of every layer
        return None
    if any(block.startswith(BACKWARD) for block in blocks):  # its arithmetic reads all layers
        return None
    prefixes = (*show.stage, *blocks)
    return lambda name: is_of(name, prefixes)


def explained(call: ExplainCall) -> tuple[Trace, tuple[str, ...]]:
    """The trace that the flags ask for, and what was wrong with the file of vectors."""
    words, vectors, flags = call.words, call.vectors, call.flags
    choices, show = call.choices, call.show
    seed = int(choices.fields.get("seed", 0))
    embedded = file = None
    if vectors.embeddings is not None or flags.weights is not None:
        from attncli.commands.explain import files

        has_words = words.sentence is not None or words.tokens is not None
        embedded = files.embedded(
            vectors.embeddings, _tokens(words)[0] if has_words else None, flags
        )
        file = files.weights_file(flags, embedded)
    tokens, target = _tokens(words) if embedded is None else (embedded.tokens, None)
    every = [token for token in (*tokens, *(target or ())) if not is_padding(token)]
    vocabulary, dim = None, vectors.dim or DIM
    if vectors.glove is not None:
        unknown = vectors.unknown or "random"
        vocabulary = from_file(vectors.glove, every, unknown=unknown, seed=seed, dim=vectors.dim)
        dim = vocabulary.dim
    if embedded is not None:
        vocabulary, dim = embedded.vocabulary, embedded.vocabulary.dim
    assumed = () if file is None else files.take_heads(flags, file, dim)
    block = _block(flags, choices, dim, is_drawn=file is None)
    arrays = None if file is None else files.weights_of(flags, file, block)
    n_keys = max(len(tokens), words.pad_to or 0)
    sizes = Sentences(len(tokens), n_keys, len(target or ()), words.mask is not None)
    _check_room(flags, block, sizes, arrays and arrays[0], show)
    weights, notes = arrays or _random_weights(flags, block)
    vocabulary = vocabulary or random_vocabulary(every, dim, seed)
    trace = compute(
        Sentence.padded(tokens, words.pad_to),
        vocabulary,
        block,
        weights,
        positions=_positions(vectors, has_vectors=embedded is not None, quiet=show.quiet),
        target=None if target is None else Sentence.padded(target),
        d_output=_gradient(flags.d_output, quiet=show.quiet),
        notes=(*notes, *assumed),
        mask=_mask(words.mask, choices, block, show),
        keep=_kept(show),
        alter=None if call.program is None else call.program.alter(choices),
    )
    trace = replace(trace, title=choices.named(trace.title))
    return trace, (*vocabulary.warnings, *(embedded.notes(file) if embedded else ()))


def _block(
    flags: BlockFlags, choices: ConventionFlags, dim: int, *, is_drawn: bool
) -> Architecture:
    """What the flags ask for; the layers are those of the weights where these are not drawn."""
    seed = int(choices.fields.get("seed", 0))
    convention = choices.over(Convention(seed=seed), "seed", "mask_means", "mask_numbers")
    return Architecture(
        kind=flags.kind,
        d_model=dim,
        n_heads=flags.heads or 1,
        n_kv_heads=flags.kv_heads,
        n_layers=flags.layers or (1 if is_drawn else None),
        norm=flags.norm or "post",
        epsilon=1e-5 if flags.eps is None else flags.eps,
        dropout=convention.dropout if flags.kind != "attention" else 0.0,
        convention=convention,
        **given_of(flags, "d_k", "d_v", "d_ff"),
    )


def _tokens(words: SentenceFlags) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """The tokens of the sentence and of the target, without padding; InputError for none."""
    if words.tokens is None:
        tokens = tokenize(words.sentence or "", words.lowercase)
    else:
        tokens = tokens_of(words.tokens)
        tokens = tuple(token.lower() for token in tokens) if words.lowercase else tokens
    if words.target is None:
        return tokens, None
    try:
        return tokens, tokenize(words.target, words.lowercase)
    except InputError as error:
        raise InputError(f"--target: {error.message}", error.hint) from None


def _positions(vectors: VectorFlags, *, has_vectors: bool, quiet: bool) -> PositionKind | Any:
    """What is added to the vectors: a kind of table, or the matrix of a source."""
    kind = vectors.positions or ("none" if has_vectors else "paper")
    if kind.lower() in get_args(PositionKind):
        return kind.lower()
    if kind.isalpha() and not Path(kind).exists():
        hint = "use paper, article, none, or a file with a vector for each position"
        raise ConventionError(f"--positions is {kind!r}", hint)
    origin, table = _array(kind, "x", quiet=quiet)
    if table.ndim != 2:
        raise ShapeError(f"{origin} has {table.ndim} dimensions", "it is (positions, dim)")
    return table


def _mask(
    source: str | None, choices: ConventionFlags, block: Architecture, show: DisplayFlags
) -> Any:
    """The mask of --mask: true where a token may attend, or numbers to add; None without one."""
    convention = choices.over(Convention(seed=block.convention.seed), "seed")
    heads = block.n_heads, block.n_kv_heads or block.n_heads
    d_k = block.d_k or block.d_model // block.n_heads
    mask: Any = None
    if source is not None:
        of_masks = {"selector": lambda name: role_of(name) == "mask"}
        origin, mask = _array(source, "mask", quiet=show.quiet, **of_masks)
    facts = {"dropout"} | of_lse(show.stage or ())  # random vectors have a seed, too
    check_flags([choices], facts=facts | facts_of(convention, mask, heads))
    choices.check_call(convention, mask, heads=heads, widths=(d_k, block.d_v or d_k))
    if mask is None:
        return None
    from attncli.attention.masks import checked_mask, meaning

    if convention.mask_numbers is None:
        means, name = choices.fields.get("mask_means"), f"the mask of {origin}"
        mask = checked_mask(mask, means, name, "--mask-means ")
    return meaning(mask, convention.mask_means, convention.mask_numbers)


def _gradient(source: str | None, *, quiet: bool) -> Any:
    """The gradient of --d-output: ones, random, or an array."""
    if source in (None, ONES, RANDOM):
        note(*[ONES_SHOW] * (source == ONES), quiet=quiet)
        return source
    return _array(source, D_OUTPUT, quiet=quiet)[1]


def _array(source: str, role: Role, *, quiet: bool, **options: Any) -> tuple[str, Any]:
    """What messages call a source, and its array; notes on it are printed."""
    from attncli.files.load import load

    loaded = load(source, role=role, **options)
    note(*loaded.notes, quiet=quiet)
    return loaded.origin, only(loaded, role)


def _check_room(
    flags: BlockFlags,
    block: Architecture,
    sizes: Sentences,
    weights: Weights | None,
    show: DisplayFlags,
) -> None:
    """SizeError where the weights (None: random ones) and the stages do not fit into memory."""
    width, has_gradient = width_of(block.convention), flags.d_output is not None
    likes_of = partial(_likes, flags, block, weights)
    if weights is None:
        n_layers = block.n_layers or 1
        one, two = (sum(x.size for x in likes_of(n).values()) for n in (1, 2))
        copied = 0 if block.convention.dtype == "float64" else width
        of_weights = (one + (n_layers - 1) * (two - one)) * (FLOAT + copied)
    else:
        n_layers = n_layers_of(weights, "encoder") or 1
        of_weights = size_of(weights.values(), width)
    is_crossing = block.kind == "attention" and sizes.n_target > 0
    n_q = sizes.n_target if is_crossing else max(sizes.n_keys, sizes.n_target)
    shape = block.n_heads, n_q, sizes.n_keys
    n_rows = sizes.n_keys + sizes.n_target
    if n_layers * (math.prod(shape) + n_rows * block.d_model) + of_weights // FLOAT <= SURELY_FITS:
        return
    block = replace(block, n_layers=n_layers)
    need = of_explanation(block, likes_of, sizes, _kept(show), has_gradient=has_gradient)
    of_stages, is_masked = need.of_stages, any(name.endswith("mask") for name in need.likes)
    of_stages += of_output(show, shape, masked=is_masked, weights=True)
    if has_gradient:  # each weight has one
        of_stages, of_weights = of_stages - of_weights, 2 * of_weights
    purpose, hint = "weights of these widths", "use a smaller --dim, --d-ff or --layers"
    if of_weights <= of_stages or weights is not None:
        purpose = f"stages of {' × '.join(map(str, shape))} scores"
        hint = "use fewer tokens or heads"
        if n_layers > 1:
            purpose, hint = f"{purpose} in {n_layers} layers", f"{hint}, or --layers"
    check_free(of_weights + of_stages, f"the {purpose} need", hint)
    check_text(show, need.maps())


def _likes(
    flags: BlockFlags, block: Architecture, weights: Weights | None, n_layers: int
) -> dict[str, Like]:
    """The shapes of the weights (None: random ones) of the first layers."""
    if weights is not None:
        number = {name: name.split(".")[1:2] for name in weights}
        return {
            name: Like(x.shape)
            for name, x in weights.items()
            if not any(at.isdecimal() and int(at) > n_layers for at in number[name])
        }
    shapes = weight_shapes(replace(block, n_layers=n_layers))
    left_out = _PROJECTIONS if flags.projection == "identity" else ()
    return {name: Like(x) for name, x in shapes.items() if not name.endswith(left_out)}


_PROJECTIONS = ("w_q", "w_k", "w_v", "w_o")


def _random_weights(flags: BlockFlags, block: Architecture) -> tuple[Weights, tuple[str, ...]]:
    """Random weights of the block, and notes on them."""
    weights, seed = random_weights(block), block.convention.seed
    for array in weights.values():
        array.setflags(write=False)  # so they are not copied
    if flags.projection != "identity":
        text = f"The weights are random (Glorot-uniform, seed {seed}): they show the arithmetic"
        return weights, (f"{text}, not meaning.",)
    notes = ["Q, K and V are the vectors themselves (--projection identity)."]
    if block.kind != "attention" and block.d_ff != 0:
        notes.append(f"The feed-forward's weights are random (seed {seed}).")
    return {n: x for n, x in weights.items() if not n.endswith(_PROJECTIONS)}, tuple(notes)
