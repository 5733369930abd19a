"""The observed numbers of a call: the stages that a file names, arranged as the given inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.heads import shape_text
from attncli.attention.inputs import CACHE, cast_input
from attncli.commands.check.flags import STAGES, CheckFlags
from attncli.convention import Layout, flag_text
from attncli.errors import AttncliError, InputError, ShapeError
from attncli.files.contents import IF_NUMBERS, FileContents
from attncli.files.input_sources import Sources
from attncli.files.inputs import Reading, in_heads
from attncli.files.load import read_source
from attncli.files.lookup import fields_of, kv_len_of, name_of, outermost
from attncli.files.messages import LITERAL, STANDARD_INPUT, listing, quote
from attncli.files.roles import (
    ATTENDED,
    EMBEDDINGS,
    Role,
    is_attended,
    is_field,
    role_of,
    stages_named,
)
from attncli.stages import (
    CONCAT,
    GIVEN_GRADIENT,
    GRADIENTS,
    LSE,
    MAPS,
    OF_TILES,
    OF_X,
    OUTPUT,
    PROJECTED,
    QKV,
    TILE,
    gradient_of,
)
from attncli.transformer.names import is_published

_OF_A_TILE = re.compile(rf"{TILE}\.[1-9]\d*\.({'|'.join((*MAPS, *OF_TILES))})")


class _StagesOfTiles(frozenset[str]):
    """These stages, and those of every tile, however many there are."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or _OF_A_TILE.fullmatch(str(name)) is not None


def known_stages(tiles: int | None) -> Collection[str]:
    """The stages that can be checked: of a walk through tiles those of each."""
    return STAGES if tiles is None else _StagesOfTiles((OUTPUT, LSE))


def as_observed(reading: Reading) -> Reading:
    """The same, with no axes to move or split where the observed q is the given one as it is."""
    loaded = reading.observed
    q = cast_input(reading.inputs.qkv["q"], reading.inputs.convention)
    name = None if loaded is None else name_of(loaded, "q")
    if loaded is None or name is None or not np.array_equal(loaded.arrays[name], q, equal_nan=True):
        return reading
    front: Layout = "bhsd" if q.ndim > 3 else "hsd"
    layout = front if reading.sources.layout else None
    sources = replace(reading.sources, layout=layout, heads=None, kv_heads=None)
    return replace(reading, sources=sources)


def numbers_of(
    observed: CheckFlags, reading: Reading, *, is_shared: bool, tiles: int | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The observed stages by name, the inputs they came with, and notes on their file."""
    loaded = reading.observed
    assert loaded is not None  # noqa: S101 - it was asked for
    stage_names = known_stages(tiles)
    if loaded.member is None and loaded.trace is None and tiles is None:
        check_names(loaded)
    stages = _stages(loaded, stage_names, reading)
    stages = {name: _arranged(name, x, reading) for name, x in stages.items()}
    if observed.stage is not None:
        is_there = not is_shared or any(map(_may_be(observed.stage), stages))
        stages = {observed.stage: _only(loaded, stages, observed.stage)} if is_there else {}
    stages = {_side_by_side(name, x, reading): x for name, x in stages.items()}
    stages, left_out = _that_follow(stages, reading)
    if is_shared:
        if not stages:
            stage_name = observed.stage or "output, weights …"
            message = f"{loaded.origin} holds no {observed.stage or 'stage to check'}"
            message += f"; it holds {_holdings(loaded)}"
            raise InputError(message, f"call it {stage_name} there, or use --q and --observed")
        return stages, left_out
    if stages and loaded.member not in loaded.arrays:
        others = [name for name in (*loaded.arrays, *loaded.unread) if name not in stage_names]
        others = [name for name in others if not is_attended(name) and loaded.trace is None]
        others = [name for name in others if not {name, *stages_named(name)} & stages.keys()]
        others = [x for x in others if not any(loaded.arrays.get(x) is y for y in stages.values())]
        text = f"{loaded.origin}: not compared, as they are no stages: {listing(others)}"
        notes = [*left_out, *([text] if others else [])]
        return stages | _observed_inputs(reading), (*notes, *_other_convention(loaded, reading))
    if stages:
        return stages, left_out
    array = _only(loaded, stages, "")
    name = loaded.corner if loaded.corner in stage_names else OUTPUT
    return {_side_by_side(name, array, reading): array}, ()


def _side_by_side(name: str, array: Any, reading: Reading) -> str:
    """The name of an observed array; concat, where it is an output whose heads are side by side.

    Where there is an output projection it may be that after it: both are tried.
    """
    is_merged = reading.in_heads and array.ndim == len(reading.inputs.sizes.scores) - 1
    arrays = {**reading.inputs.originals, **projection_of(reading)}
    may_be = OUTPUT in stages_named(name) and "w_o" not in arrays
    return CONCAT if is_merged and may_be else name


def _may_be(stage: str) -> Callable[[str], bool]:
    """Whether an array of a name may be the stage that was asked for by one of its names."""
    names = {stage, *stages_named(stage)}
    return lambda name: bool({name, *stages_named(name)} & names)


def _that_follow(
    stages: dict[str, Any], reading: Reading
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The stages that follow from what is given, and a note on those that do not: gradients need
    that of the output, those of weights also x. Where no other is there, all: an error follows."""
    lacking = {
        name
        for name in stages
        if name in GRADIENTS and GIVEN_GRADIENT not in reading.inputs.originals
    }
    if not reading.inputs.is_of_x:
        lacking |= {name for name in stages if name in OF_X}
    if "w_o" not in {**reading.inputs.originals, **projection_of(reading)}:
        lacking |= {name for name in stages if PROJECTED in {name, *stages_named(name)}}
    if not lacking or lacking == stages.keys():
        return stages, ()
    text = f"not compared, as they do not follow from what is given: {listing(sorted(lacking))}"
    return {name: x for name, x in stages.items() if name not in lacking}, (text,)


def projection_of(reading: Reading) -> dict[str, Any]:
    """W_o and b_o that the observed file holds beside q, k and v; of x they are given by it."""
    loaded = reading.observed
    if loaded is None or reading.inputs.is_of_x:
        return {}
    prefix = "" if loaded.trace is None else outermost(loaded) or ""
    arrays = {name: loaded.arrays.get(f"{prefix}{name}") for name in ("w_o", "b_o")}
    return {name: x for name, x in arrays.items() if x is not None and arrays["w_o"] is not None}


def _stages(loaded: FileContents, options: Collection[str], reading: Reading) -> dict[str, Any]:
    """The stages that a file names, gradients by ours, others by the file's names for them; of a
    saved trace, those of its outermost attention."""
    prefix = "" if loaded.trace is None else outermost(loaded) or ""
    names = {name.removeprefix(prefix): name for name in loaded.arrays if name.startswith(prefix)}
    stages: dict[str, Any] = {}
    for name, whole in names.items():
        may_be = [name] if name in options else [x for x in stages_named(name) if x in options]
        is_input = role_of(name) in EMBEDDINGS and reading.inputs.is_of_x  # such as a context
        if not may_be or is_input:
            continue
        is_other = may_be[0] != name
        if is_other and loaded.arrays[whole].ndim == 0:  # such as a width, d_k
            continue
        stage = may_be[0] if may_be[0] in GRADIENTS else name
        if stage in stages:
            message = f"{loaded.origin} holds several arrays that could be {stage}"
            raise InputError(message, f"keep one, or name it: {loaded.origin}::NAME")
        stages[stage] = loaded.arrays[whole]
    return stages


def _arranged(stage: str, array: Any, reading: Reading) -> Any:
    """A gradient of q, k or v in the order of axes and the heads that these are given in."""
    operand = next((name for name in QKV if gradient_of(name) == stage), None)
    return array if operand is None else _as_inputs(array, operand, reading.sources)


def _other_convention(loaded: FileContents, reading: Reading) -> Iterator[str]:
    """A note on every field of the observed file's convention that is not the one compared with."""
    convention = reading.inputs.convention
    for name, value in fields_of(loaded).items():
        if getattr(convention, name) != value:
            used = flag_text(name, getattr(convention, name))
            yield f"{loaded.origin} says {flag_text(name, value)}; it is compared with {used}"


def check_names(loaded: FileContents) -> None:
    """InputError for a misspelt stage: it would be ignored."""
    for name in (*loaded.arrays, *loaded.unread, *loaded.others):
        close = get_close_matches(name.lower(), STAGES, n=1, cutoff=0.75)
        is_known = stages_named(name) or role_of(name) or is_field(name)
        if close and not is_known and not is_published(name):
            message = f"{loaded.origin} names {quote(name)}, which is not a stage"
            raise InputError(message, f"did you mean {close[0]}?")


def _only(loaded: FileContents, stages: dict[str, Any], name: str) -> Any:
    """The array of a stage: that of its name, else the one that was asked for, or the only one."""
    may_be = [x for x in stages if name in {x, *stages_named(x)}]
    if name in stages or len(may_be) == 1:
        return stages[name if name in stages else may_be[0]]
    names = [loaded.member] if loaded.member in loaded.arrays else [*loaded.arrays, *loaded.unread]
    if len(names) == 1 and loaded.arrays:
        return loaded.arrays[names[0]]
    message = f"{loaded.origin} holds several arrays: {_holdings(loaded)}"
    raise InputError(message, f"name one: {loaded.origin}::NAME")


def _holdings(loaded: FileContents) -> str:
    """What a file holds, for a message: the names of its arrays and their shapes."""
    arrays = loaded.arrays
    if loaded.unread and loaded.origin not in (STANDARD_INPUT, LITERAL):
        with suppress(AttncliError):  # what nobody asked for was not read
            arrays = read_source(loaded.origin, selector=lambda _: IF_NUMBERS).arrays
    shapes = {name: shape_text(x) or "one number" for name, x in arrays.items()}
    names = dict.fromkeys((*loaded.arrays, *loaded.unread))
    return listing(f"{name} ({shapes[name]})" if name in shapes else name for name in names)


def _observed_inputs(reading: Reading) -> dict[str, Any]:
    """The inputs that the observed file brings itself, arranged as the given ones are."""
    loaded, sources = reading.observed, reading.sources
    if loaded is None or loaded.member in loaded.arrays:
        return {}
    lengths = kv_len_of(loaded)
    arrays: dict[str, Any] = {} if lengths is None else {"kv_len": lengths}
    for role in ATTENDED:
        name = name_of(loaded, role)
        if name is None:
            continue
        arrays[role] = loaded.arrays[name]
        is_split = role in CACHE.values() and arrays[role].ndim == len(reading.inputs.sizes.scores)
        if role in (*QKV, *CACHE.values()) and not is_split:
            arrays[role] = _as_inputs(arrays[role], role, sources)
    return arrays


def _as_inputs(array: Array, role: Role, sources: Sources) -> Array:
    """An observed array in the layout and heads of the given ones, where it has their axes."""
    heads = sources.heads if role == "q" else sources.kv_heads or sources.heads
    with suppress(ShapeError):  # in heads already, or of other axes: then it differs
        if sources.layout or sources.heads:
            return in_heads(array, sources.layout, heads)
    return array
