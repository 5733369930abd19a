"""attncli explain: a sentence → tokens → vectors → Q, K, V → every stage → what it means."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from attncli.arrays import Like
from attncli.attention.masks import checked_mask, facts_of
from attncli.attention.memory import size_of, width_of
from attncli.budget import FLOAT, SURELY_FITS, check_free
from attncli.cli.extensions import Program
from attncli.cli.groups import check_flags, given_of, of_lse
from attncli.cli.options import ConventionFlags, DisplayFlags
from attncli.cli.output import LEAST_HEIGHT, note
from attncli.cli.output_size import check_text, of_output
from attncli.cli.parsing import is_of
from attncli.cli.results import TraceResult
from attncli.commands.explain.flags import BlockFlags, SentenceFlags, VectorFlags
from attncli.commands.explain.pipeline import Keep
from attncli.commands.explain.setup import PROJECTIONS, BlockOptions, Setup, set_up
from attncli.commands.explain.size import Sentences, of_explanation
from attncli.convention import Convention
from attncli.errors import ConventionError, ShapeError
from attncli.files.lookup import only
from attncli.files.roles import D_OUTPUT, ONES, ONES_SHOW, RANDOM, Role, role_of
from attncli.formats import EXACT, PAGE
from attncli.page.explain import explain_page
from attncli.page.outline import is_first_layer, outline_page
from attncli.trace import Trace
from attncli.transformer.layers import BACKWARD
from attncli.transformer.weights import Architecture, Weights, n_layers_of, weight_shapes
from attncli.words.sentence import Sentence, from_file, position_kind
from attncli.words.tokens import is_padding

PRECISION = 3  # a long page is read at a glance; --precision sets another


def explain(
    words: SentenceFlags,
    vectors: VectorFlags,
    flags: BlockFlags,
    choices: ConventionFlags,
    show: DisplayFlags,
    program: Program | None = None,
) -> TraceResult:
    """The trace that the flags ask for, by the formulas of `program` where there are some."""
    for message, hint in _contradictions(words, vectors, flags):
        raise ConventionError(message, hint)
    trace, warnings = _explained(words, vectors, flags, choices, show, program)
    note(*warnings, quiet=show.quiet)
    form = show.form
    has_notes = form.notes and not (form.holds == PAGE and show.query)
    return TraceResult(
        trace=trace,
        show=show,
        page=outline_page if flags.outline else explain_page,
        precision=PRECISION,
        least_height=0 if show.stage else LEAST_HEIGHT,
        remarks=() if has_notes else trace.notes,
    )


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


def _explained(
    words: SentenceFlags,
    vectors: VectorFlags,
    flags: BlockFlags,
    choices: ConventionFlags,
    show: DisplayFlags,
    program: Program | None,
) -> tuple[Trace, tuple[str, ...]]:
    """The trace, and what was wrong with the file of vectors."""
    options, seed = BlockOptions(**given_of(flags, *_OF_BLOCK)), int(choices.fields.get("seed", 0))
    embedded = source_weights = vocabulary = None
    if vectors.embeddings is not None or flags.weights is not None:
        from attncli.commands.explain import files

        has_words = words.sentence is not None or words.tokens is not None
        tokens = words.read()[0] if has_words else None
        embedded = files.embedded(vectors.embeddings, tokens, options.kind)
        source_weights = files.given_weights(flags, embedded, options.kind)
    tokens, target = words.read() if embedded is None else (embedded.tokens, None)
    if vectors.vectors is not None:
        every = [token for token in (*tokens, *(target or ())) if not is_padding(token)]
        unknown = vectors.unknown or "random"
        vocabulary = from_file(vectors.vectors, every, unknown=unknown, seed=seed, dim=vectors.dim)
    if embedded is not None:
        vocabulary = embedded.vocabulary
    convention = choices.over(Convention(seed=seed), "seed")
    setup = set_up(options, convention, vocabulary, dim=vectors.dim, source_weights=source_weights)
    n_keys = max(len(tokens), words.pad_to or 0)
    sizes = Sentences(len(tokens), n_keys, len(target or ()), words.mask is not None)
    flags = replace(flags, projection=setup.projection)
    _check_room(flags, setup.block, sizes, setup.weights, show)
    trace = setup.trace(
        Sentence.padded(tokens, words.pad_to),
        positions=_positions(vectors.positions, quiet=show.quiet),
        target=None if target is None else Sentence(target),
        d_output=_gradient(flags.d_output, quiet=show.quiet),
        gains=_gains(flags, quiet=show.quiet),
        mask=_mask(words.mask, choices, setup, show),
        means=choices.fields.get("mask_means"),
        keep=_kept(show),
        alter=None if program is None else program.alter(choices),
    )
    trace = replace(trace, title=choices.named(trace.title))
    warnings = () if vocabulary is None else vocabulary.warnings
    if embedded is not None:
        is_of_embeddings = source_weights is not None and flags.weights is None
        warnings = (*warnings, *embedded.notes(holds_weights=is_of_embeddings))
    return trace, warnings


_OF_BLOCK = tuple(field.name for field in fields(BlockOptions))


def _positions(source: str | None, *, quiet: bool) -> str | Any:
    """What is added to the vectors: the name of a table, or the matrix of a source."""
    if source is None or position_kind(source):
        return source
    if source.isalpha() and not Path(source).exists():
        hint = "use paper, article, none, or a file with a vector for each position"
        raise ConventionError(f"--positions is {source!r}", hint)
    origin, table = _array(source, "x", quiet=quiet)
    if table.ndim != 2:
        raise ShapeError(f"{origin} has {table.ndim} dimensions", "it is (positions, dim)")
    return table


def _mask(source: str | None, choices: ConventionFlags, setup: Setup, show: DisplayFlags) -> Any:
    """The mask of --mask, 0 and 1 in it as --mask-means says; None without one."""
    convention, block = setup.convention, setup.block
    heads = block.n_heads, block.n_kv_heads or block.n_heads
    d_k = block.d_k or block.d_model // block.n_heads
    mask: Any = None
    if source is not None:
        of_masks = {"selector": lambda name: role_of(name) == "mask"}
        origin, mask = _array(source, "mask", quiet=show.quiet, **of_masks)
    facts = {"dropout"} | of_lse(show.stage or ())  # random vectors have a seed, too
    check_flags([choices], facts=facts | facts_of(convention, mask, heads))
    choices.check_call(convention, mask, heads=heads, widths=(d_k, block.d_v or d_k))
    if mask is None or convention.mask_numbers is not None:
        return mask
    means = choices.fields.get("mask_means")
    return checked_mask(mask, means, f"the mask of {origin}", "--mask-means ")


def _gains(flags: BlockFlags, *, quiet: bool) -> dict[str, Any]:
    """The gains of --q-gain and --k-gain, those that there are."""
    sources: dict[Role, str] = given_of(flags, "q_gain", "k_gain")
    return {role: _array(source, role, quiet=quiet)[1] for role, source in sources.items()}


def _gradient(source: str | None, *, quiet: bool) -> Any:
    """The gradient of --d-output: ones, random, or an array."""
    if source in (None, ONES, RANDOM):
        note(*[ONES_SHOW] * (source == ONES), quiet=quiet)
        return source
    return _array(source, D_OUTPUT, quiet=quiet)[1]


def _array(source: str, role: Role, *, quiet: bool, **options: Any) -> tuple[str, Any]:
    """What messages call a source, and its array; notes on it are printed."""
    from attncli.files.load import read_source

    loaded = read_source(source, role=role, **options)
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
    left_out = PROJECTIONS if flags.projection == "identity" else ()
    return {name: Like(x) for name, x in shapes.items() if not name.endswith(left_out)}
