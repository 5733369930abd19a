"""How NaN and infinity are spelled where numbers cannot say them: in JSON, csv and tsv."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def spelled(x: Any) -> Any:
    """The same data with NaN and infinity as strings; mappings and sequences entry by entry.

    >>> spelled({"a": (1.5, float("-inf")), "b": [float("nan")]})
    {'a': [1.5, '-Infinity'], 'b': ['NaN']}
    """
    if isinstance(x, Mapping):
        return {name: spelled(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [spelled(value) for value in x]
    if not isinstance(x, float) or math.isfinite(x):
        return x
    return "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"
