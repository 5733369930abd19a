"""attncli posenc: positional encodings, which tell a model where in the sequence a token is."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attncli.cli.groups import flag
from attncli.cli.options import DisplayFlags
from attncli.errors import ConventionError

if TYPE_CHECKING:
    from attncli.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Positions:
    """Which encoding, for how many positions."""

    PANEL: ClassVar = "Positions"

    length: int | None = flag("Positions: rows of the table.", min=1, names=("--len",))
    dim: int | None = flag("Dimensions: its columns.", min=1)
    kind: Literal["sinusoidal", "rope", "alibi"] | None = flag(
        "sinusoidal (the default), rope (rotary) or alibi (a bias)."
    )
    exponent: Literal["paper", "article"] | None = flag(
        "paper: 2i/d (the default); article: 2·2i/d, 2i counted twice."
    )
    base: float | None = flag("Base (default: 10000).")
    start: int | None = flag("First position (default: 0).")
    add: str | None = flag("Embeddings to add it to: both and the sum.", "SOURCE")
    dots: bool = flag("Every position's dot product with every other.")
    apply: str | None = flag("rope: queries and keys to turn.", "SOURCE")
    layout: Literal["halves", "interleaved"] | None = flag(
        "rope: pairs are i and i + d/2 (the default), or 2i and 2i + 1."
    )
    heads: int | None = flag("alibi: how many heads.", min=1)
    symmetric: bool = flag("alibi: keys after the query are biased too, not masked.")


_NEEDS_KIND = {
    "sinusoidal": ("dim", "exponent", "base", "start", "add", "dots"),
    "rope": ("dim", "base", "start", "apply", "layout"),
    "alibi": ("heads", "symmetric"),
}


def posenc(positions: Positions, show: DisplayFlags) -> None:
    """Positional encodings: sinusoidal, rotary and ALiBi tables.

    Rows are positions, columns are dimensions, labelled with their wave and its length.

    Example: attncli posenc --len 5 --dim 4 --work
    """
    from attncli.cli.output import check_flags, present

    check_flags(show)
    kind = positions.kind or "sinusoidal"
    _check_flag_combinations(positions, kind)
    make = {"sinusoidal": _sinusoidal, "rope": _rope, "alibi": _alibi}[kind]
    present(make(positions, show.quiet), show, stdin_used="-" in {positions.add, positions.apply})


def _check_flag_combinations(positions: Positions, kind: str) -> None:
    """A flag of another kind is refused: it would have no effect."""
    for name in dict.fromkeys(name for names in _NEEDS_KIND.values() for name in names):
        if getattr(positions, name) not in (None, False) and name not in _NEEDS_KIND[kind]:
            kinds = " or ".join(other for other, names in _NEEDS_KIND.items() if name in names)
            raise ConventionError(
                f"--{name} has no effect with --kind {kind}", f"it is for --kind {kinds}"
            )
    if positions.layout is not None and positions.apply is None:
        raise ConventionError("--layout has no effect without --apply", "add --apply SOURCE")
    if positions.add is not None and positions.dots:
        raise ConventionError("--add and --dots show different things", "use one of the two")


def _needed(value: int | None, flag: str, instead: str = "") -> int:
    if value is None:
        raise ConventionError(f"{flag} is missing", f"add {flag} N{instead}")
    return value


def _sinusoidal(positions: Positions, quiet: bool) -> "Trace":
    from attncli.attention.positions import add_positions, position_dots, sinusoidal
    from attncli.cli.memory import check_numbers

    words, tokens = _embeddings(positions, quiet)
    or_add = ", or --add SOURCE"
    n = _needed(positions.length if words is None else len(words), "--len", or_add)
    dim = _needed(positions.dim if words is None else words.shape[-1], "--dim", or_add)
    larger = max(n, dim) if positions.dots else dim
    check_numbers(n * larger, f"a table of {n} × {larger}", "use a smaller --len or --dim")
    table = sinusoidal(
        n,
        dim,
        exponent=positions.exponent or "paper",
        base=10000.0 if positions.base is None else positions.base,
        start=positions.start or 0,
    )
    if words is not None:
        return add_positions(words, table, tokens=tokens)
    return position_dots(table) if positions.dots else table


def _embeddings(positions: Positions, quiet: bool) -> tuple[Any, tuple[str, ...]]:
    """The embeddings of --add, once --len and --dim are known not to contradict them."""
    if positions.add is None:
        return None, ()
    from attncli.cli.output import note
    from attncli.files.load import load
    from attncli.files.roles import only

    loaded = load(positions.add)
    for text in loaded.warnings:
        note(text, quiet=quiet)
    words = only(loaded, "q")
    if words.ndim != 2:
        raise ConventionError(
            f"{loaded.origin} has {words.ndim} dimensions", "embeddings are (tokens, dimensions)"
        )
    for name, wanted, size in (
        ("--len", positions.length, words.shape[0]),
        ("--dim", positions.dim, words.shape[1]),
    ):
        if wanted not in {None, size}:
            raise ConventionError(
                f"{name} is {wanted}, but {loaded.origin} has {size}", f"leave {name} out"
            )
    return words, loaded.query_labels or loaded.row_labels or ()


def _rope(positions: Positions, quiet: bool) -> "Trace":
    from attncli.attention.rotary import rotary_table
    from attncli.cli.memory import check_numbers

    base = 10000.0 if positions.base is None else positions.base
    start = positions.start or 0
    if positions.apply is not None:
        return _rotated(positions, base, start, quiet)
    n = _needed(positions.length, "--len", ", or --apply SOURCE")
    dim = _needed(positions.dim, "--dim", ", or --apply SOURCE")
    check_numbers(n * dim, f"a table of {n} × {dim}", "use a smaller --len or --dim")
    return rotary_table(n, dim, base=base, start=start)


def _rotated(positions: Positions, base: float, start: int, quiet: bool) -> "Trace":
    """Queries, and keys where the file names some, turned by the angles of their positions."""
    from dataclasses import replace

    import numpy as np

    from attncli.attention.rotary import rotary
    from attncli.cli.output import note
    from attncli.files.load import load
    from attncli.files.roles import pick
    from attncli.trace import Trace

    if positions.length is not None or positions.dim is not None:
        raise ConventionError("--apply takes its sizes from the file", "leave out --len and --dim")
    loaded = load(positions.apply or "")
    for text in loaded.warnings:
        note(text, quiet=quiet)
    found = {"queries": pick(loaded, "q"), "keys": pick(loaded, "k")}
    parts = []
    for name, array in found.items():
        if array is not None:
            ids = np.arange(start, start + array.shape[-2])
            layout = positions.layout or "halves"
            trace = rotary(array, position_ids=ids, layout=layout, base=base)
            parts.append(replace(trace, name=name, title=f"Rotary positions of the {name}"))
    return parts[0] if len(parts) == 1 else Trace("Rotary positions", tuple(parts))


def _alibi(positions: Positions, quiet: bool) -> "Trace":
    from attncli.attention.positions import alibi
    from attncli.cli.memory import check_numbers

    n, heads = _needed(positions.length, "--len"), _needed(positions.heads, "--heads")
    check_numbers(heads * n * n, f"a bias of {heads} × {n} × {n}", "use a smaller --len")
    return alibi(heads, n, causal=not positions.symmetric)
