"""How the layers of a Transformer are put together, in one frozen dataclass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from attncli.convention import Convention
from attncli.errors import ConventionError

NormPlace = Literal["post", "pre", "none"]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """How a layer is put together, the same in all layers of a stack.

    | field | meaning |
    |---|---|
    | n_heads, n_kv_heads | query heads, and key heads they share (None: as many) |
    | norm | "post": after the residual; "pre": before the sub-layer; "none" |
    | epsilon | ε of the layer norms |
    | dropout | share of each sub-layer's output that is set to 0; the share of the attention \
weights is the convention's |
    | convention | how attention is computed, the number type of every stage and the seed |

    Raises ConventionError for a value outside these.

    >>> Architecture(norm="before")
    Traceback (most recent call last):
        ...
    attncli.errors.ConventionError: norm is 'before'; use post, pre or none
    """

    n_heads: int = 1
    n_kv_heads: int | None = None
    norm: NormPlace = "post"
    epsilon: float = 1e-5
    dropout: float = 0.0
    convention: Convention = field(default_factory=Convention)

    def __post_init__(self) -> None:
        if self.norm not in get_args(NormPlace):
            raise ConventionError(f"norm is {self.norm!r}", "use post, pre or none")
        if not 0 <= self.dropout < 1:
            raise ConventionError(
                f"dropout is {self.dropout!r}", "use a share from 0 up to, but not including, 1"
            )
        if not 0 <= self.epsilon < np.inf:
            raise ConventionError(f"epsilon is {self.epsilon!r}", "use a finite number from 0")
