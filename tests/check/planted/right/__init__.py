"""Right attentions, by what makes them look different; and those with less precision inside."""

from __future__ import annotations

from tests.check.planted.right import arithmetic, inside, libraries, options, tiles
from tests.check.planted.right.libraries import skipped
from tests.check.planted.rows import Row

RIGHT: dict[str, tuple[Row, ...]] = {
    "order and rounding": arithmetic.ROWS,
    "tiles and splits": tiles.ROWS,
    "every option": options.ROWS,
}
LIBRARIES: dict[str, tuple[Row, ...]] = {"libraries": libraries.ROWS}
INSIDE: dict[str, tuple[Row, ...]] = {"less precision inside": (*inside.ROWS, *libraries.INSIDE)}

__all__ = ["INSIDE", "LIBRARIES", "RIGHT", "skipped"]
