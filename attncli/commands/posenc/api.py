"""posenc in Python: the table of positions that the command of this name shows.

posenc(5, 4) ── sinusoidal, rotary_table or alibi ──> Trace
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.positions import (
    Exponent,
    add_positions,
    alibi,
    position_dots,
    rotary_table,
    sinusoidal,
)
from attncli.attention.shapes import as_numbers
from attncli.errors import ConventionError
from attncli.recorded import recorded
from attncli.trace import Trace


@recorded
def posenc(  # noqa: PLR0913
    n: int | None = None,
    dim: int | None = None,
    *,
    kind: Literal["sinusoidal", "rope", "alibi"] = "sinusoidal",
    positions: Exponent = "paper",
    base: float = 10000.0,
    start: int = 0,
    add: npt.ArrayLike | None = None,
    tokens: Sequence[str] = (),
    dots: bool = False,
    heads: int | None = None,
    symmetric: bool = False,
) -> Trace:
    """A table of positions, as `attncli posenc` shows it.

    n, dim    how many positions, of which width; of `add`, the embeddings they are added to, whose
              rows `tokens` name
    kind      "sinusoidal"; "rope": angles, cos and sin of rotary ones; "alibi": biases of `heads`
    positions "paper", or "article", which counts 2i twice; start: the first position
    dots      the dot product of each position with every other

    Raises ConventionError for sizes that are missing, below 1 or not those of `add`, ShapeError
    where `add` is no matrix.

    >>> posenc(5, 4)["positions"].value[1].round(4).tolist()
    [0.8415, 0.5403, 0.01, 1.0]
    """
    if positions not in get_args(Exponent):
        raise ConventionError(f"positions is {positions!r}", "use paper or article")
    if kind not in ("sinusoidal", "rope", "alibi"):
        raise ConventionError(f"kind is {kind!r}", "use sinusoidal, rope or alibi")
    if kind != "sinusoidal" and (dots or add is not None):
        name = "dots" if dots else "add"
        raise ConventionError(f"{name} has no effect on kind={kind!r}", "leave it out")
    if add is not None and dots:
        raise ConventionError("add cannot be used with dots", "leave one of the two out")
    if add is not None:
        add = np.atleast_2d(as_numbers(add, "add"))  # one vector is one row
        check_sizes(add, {"n": n, "dim": dim}, "add")
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
    table = sinusoidal(n, dim, exponent=positions, base=base, start=start)
    if add is not None:
        return add_positions(add, table, tokens=tokens)
    return position_dots(table) if dots else table


def check_sizes(words: Array, sizes: Mapping[str, int | None], origin: str) -> None:
    """ConventionError where the embeddings have another size than one that is given.

    sizes  the number of positions and their width, by what messages call them
    """
    for (name, size), length in zip(sizes.items(), words.shape, strict=False):
        if size not in {None, length}:
            raise ConventionError(
                f"{name} is {size}, but {origin} has {length}", f"leave {name} out"
            )
