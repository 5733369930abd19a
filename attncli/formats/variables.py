"""Variables of a script: what the stages of a trace are called in Python."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations

RESERVED = {*dir(builtins), *keyword.kwlist, "np", "arrays", "Path"}
"""Names that no variable has."""
_MOST_BLOCKS = 6  # around a stage, some of which may be left out of its variable


def variables_of(names: Sequence[str]) -> dict[str, str]:
    """The variable of each stage: its name, with as few of the blocks around it as no other has.

    >>> [*variables_of(["q", "a.1.norm", "b.1.norm", "b.1.x", "tile.1.q", "lambda"]).values()]
    ['q', 'a_norm', 'b_norm', 'x', 'tile_q', 'lambda_']
    """
    numbers = defaultdict[str, set[str]](set)  # of the layers of a stack, and of tiles
    for name in names:
        *outer, _ = name.split(".")
        for at, part in enumerate(outer):
            numbers[".".join(outer[:at])] |= {part}
    shorter = {name: _shorter(name, numbers) for name in names}
    counts = Counter(x for each in shorter.values() for x in {*each})
    variables, used = dict[str, str](), {*RESERVED}
    for name, each in shorter.items():
        unique = (x for x in each if counts[x] == 1 and not x[:1].isdigit())
        variable = _identifier(next(unique, each[-1]))
        while variable in used:
            variable += "_"
        variables[name] = variable
        used.add(variable)
    return variables


def _shorter(name: str, numbers: Mapping[str, set[str]]) -> list[str]:
    """A dotted name with none, some and all of the blocks around it, the shortest first.

    The number of what there is one of is left out: encoder_norm.
    """
    *outer, leaf = name.split(".")
    blocks = [
        part
        for at, part in enumerate(outer)
        if not (part.isdecimal() and len(numbers[".".join(outer[:at])]) == 1)
    ]
    least = 0 if len(blocks) <= _MOST_BLOCKS else len(blocks)
    some = (x for n in range(least, len(blocks) + 1) for x in combinations(blocks, n))
    return ["_".join([*x, leaf]) for x in some]


def _identifier(name: str) -> str:
    """A name of ASCII: that of its sign for any other, such as alpha."""
    plain = "".join(
        x if x.isascii() else f"_{unicodedata.name(x, 'x').split()[-1].lower()}_"
        for x in unicodedata.normalize("NFKC", name)
    )
    plain = re.sub(r"\W+", "_", plain, flags=re.ASCII).strip("_")[:60]
    return plain if plain.isidentifier() else f"stage_{plain}"
