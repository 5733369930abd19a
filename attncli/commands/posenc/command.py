"""attncli posenc: positional encodings, which tell a model where in the sequence a token is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from attncli.arrays import Like
from attncli.attention.memory import bytes_of, size_of
from attncli.attention.positions import (
    DOTS,
    SUM,
    alibi_steps,
    rotary,
    rotary_steps,
    rotary_tables,
    sinusoidal_steps,
)
from attncli.budget import FLOAT, check_free
from attncli.cli.groups import given_of
from attncli.cli.options import DisplayFlags
from attncli.cli.output import note
from attncli.cli.output_size import LABEL, of_output
from attncli.cli.results import TraceResult
from attncli.commands.posenc import api
from attncli.commands.posenc.flags import PositionFlags
from attncli.errors import ConventionError
from attncli.files.lookup import only, pick
from attncli.files.roles import role_of
from attncli.trace import Trace


def posenc(positions: PositionFlags, show: DisplayFlags) -> TraceResult:
    """The table that the flags ask for."""
    kind = positions.kind or "sinusoidal"
    make = {"sinusoidal": _sinusoidal, "rope": _rope, "alibi": _alibi}[kind]
    stdin_used = "-" in {positions.add, positions.apply}
    return TraceResult(trace=make(positions, show), show=show, stdin_used=stdin_used)


def _needed(value: int | None, flag: str, instead: str = "") -> int:
    if value is None:
        raise ConventionError(f"{flag} is missing", f"add {flag} N{instead}")
    return value


def _sinusoidal(positions: PositionFlags, show: DisplayFlags) -> Trace:
    words, tokens = _embeddings(positions, show.quiet)
    or_add = ", or --add SOURCE"
    n = _needed(positions.length if words is None else len(words), "--len", or_add)
    dim = _needed(positions.dim if words is None else words.shape[-1], "--dim", or_add)
    larger = max(n, dim) if positions.dots else dim
    choices = given_of(positions, "base", "start")
    exponent = positions.positions or "paper"
    steps = sinusoidal_steps(n, dim, exponent=exponent, **choices) + [DOTS] * positions.dots
    steps += [SUM] * (words is not None)
    more = bytes_of(steps, {"embeddings": Like((n, dim))}).most + size_of([words], FLOAT)
    more += (n + 2 * dim) * LABEL + of_output(show, (n, larger))
    check_free(more, f"a table of {n} × {larger} needs", "use a smaller --len or --dim")
    given = given_of(positions, "positions", "base", "start", "dots")
    return api.posenc(n, dim, add=words, tokens=tokens, **given)


def _embeddings(positions: PositionFlags, quiet: bool) -> tuple[Any, tuple[str, ...]]:
    """The embeddings of --add, once --len and --dim are known not to contradict them."""
    if positions.add is None:
        return None, ()
    from attncli.files.load import read_source

    loaded = read_source(positions.add, selector=lambda name: role_of(name) == "q")
    note(*loaded.notes, quiet=quiet)
    if len(loaded.arrays) == 1:  # one vector is one row
        arrays = {name: np.atleast_2d(array) for name, array in loaded.arrays.items()}
        loaded = replace(loaded, arrays=arrays)
    words = only(loaded, "q")
    if words.ndim != 2:
        message = f"{loaded.origin} has {words.ndim} dimensions"
        raise ConventionError(message, "embeddings are (tokens, dimensions)")
    sizes = {"--len": positions.length, "--dim": positions.dim}
    api.check_sizes(words, sizes, loaded.origin)
    return words, loaded.query_labels or loaded.row_labels or ()


def _rope(positions: PositionFlags, show: DisplayFlags) -> Trace:
    if positions.apply is not None:
        return _rotated(positions, positions.apply, show)
    n = _needed(positions.length, "--len", ", or --apply SOURCE")
    dim = _needed(positions.dim, "--dim", ", or --apply SOURCE")
    more = bytes_of(rotary_tables(Like((n,)), dim), {}).most + n * LABEL
    more += of_output(show, (n, dim // 2))
    check_free(more, f"a table of {n} × {dim} needs", "use a smaller --len or --dim")
    return api.posenc(n, dim, kind="rope", **given_of(positions, "base", "start"))


def _rotated(positions: PositionFlags, source: str, show: DisplayFlags) -> Trace:
    """Queries, and keys where the file names some, turned by the angles of their positions."""
    from attncli.files.load import read_source

    loaded = read_source(source, selector=lambda name: role_of(name) in {"q", "k"})
    note(*loaded.notes, quiet=show.quiet)
    both = {"queries": pick(loaded, "q"), "keys": pick(loaded, "k")}
    arrays = {name: x for name, x in both.items() if x is not None}
    shapes = [x.shape for x in arrays.values()]
    more = size_of(arrays.values(), 0) + of_output(show, shapes[0])
    for *lead, n, dim in shapes:
        steps = rotary_steps(Like((*lead, n, dim)), rotary_tables(Like((n,)), dim), dim)
        more += bytes_of(steps, {}).most + n * LABEL
    check_free(more, f"turning {loaded.origin} needs", "give fewer tokens or heads")
    parts, start = [], positions.start or 0
    for name, x in arrays.items():
        ids = np.arange(start, start + x.shape[-2])
        trace = rotary(x, position_ids=ids, **given_of(positions, "layout", "base"))
        parts.append(replace(trace, name=name, title=f"Rotary positions of the {name}"))
    return parts[0] if len(parts) == 1 else Trace("Rotary positions", tuple(parts))


def _alibi(positions: PositionFlags, show: DisplayFlags) -> Trace:
    n, heads = _needed(positions.length, "--len"), _needed(positions.heads, "--heads")
    steps = alibi_steps(heads, n, n, causal=not positions.symmetric)
    more = bytes_of(steps, {}).most + of_output(show, (n, n))
    check_free(more, f"a bias of {heads} × {n} × {n} needs", "use a smaller --len")
    return api.posenc(n, kind="alibi", heads=heads, symmetric=positions.symmetric)
