"""Every choice on which two right-looking attentions can differ, in one frozen dataclass.

`attend` takes a Convention, a trace records it, and a comparison varies it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args, get_type_hints

from attncli.errors import ConventionError

SoftmaxOver = Literal["keys", "queries"]
CausalAlign = Literal["top-left", "bottom-right"]
MaskMeans = Literal["keep", "ignore"]
EmptyRows = Literal["zero", "nan", "uniform"]
SoftcapPlace = Literal["before-mask", "after-mask"]
HeadOrder = Literal["blocks", "tiled"]
DType = Literal["float64", "float32", "float16", "bfloat16"]
ScaleRule = Literal["1/sqrt(d_k)", "none"]


@dataclass(frozen=True, kw_only=True)
class Convention:
    """How attention is computed, where implementations differ.

    | field | meaning |
    |---|---|
    | scale | factor on the scores: "1/sqrt(d_k)", "none", or the factor itself |
    | softmax_over | "keys": each row sums to 1; "queries": each column does |
    | causal | a query sees no key after its own position |
    | causal_align | where Lq ≠ Lk: query 1 stands at key 1 ("top-left", shifted by the length of \
the past), or the last query at the last valid key ("bottom-right") |
    | window | (left, right): how many keys before and after its own position a query sees; \
−1 = no bound |
    | mask_means | what True says in a boolean mask: "keep" (may attend) or "ignore" |
    | mask_value | the score a masked cell gets; −inf or a finite number |
    | empty_rows | weights of a query with nothing to attend to: "zero", "nan", "uniform" |
    | softcap | c in c·tanh(S/c), or None |
    | softcap_place | "before-mask" or "after-mask" |
    | head_order | grouped queries: heads 0,1 → key head 0 ("blocks") or heads 0,2 ("tiled") |
    | dropout, seed | share of weights set to 0, the rest divided by 1 − dropout |
    | dtype | number type: each stage is computed in it or rounded to it |

    Raises ConventionError for a value outside these.

    >>> Convention(causal=True).scale
    '1/sqrt(d_k)'
    >>> Convention(dtype="float8")
    Traceback (most recent call last):
        ...
    attncli.errors.ConventionError: dtype is 'float8'; use float64, float32, float16 or bfloat16
    """

    scale: float | ScaleRule = "1/sqrt(d_k)"
    softmax_over: SoftmaxOver = "keys"
    causal: bool = False
    causal_align: CausalAlign = "top-left"
    window: tuple[int, int] | None = None
    mask_means: MaskMeans = "keep"
    mask_value: float = -math.inf
    empty_rows: EmptyRows = "zero"
    softcap: float | None = None
    softcap_place: SoftcapPlace = "before-mask"
    head_order: HeadOrder = "blocks"
    dropout: float = 0.0
    seed: int = 0
    dtype: DType = "float64"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConventionError(f"{name} is {getattr(self, name)!r}", f"use {_or(choices)}")
        _check_numbers(self)

    def scale_factor(self, d_k: int) -> float:
        """The factor the scores are multiplied by; 1/√d_k unless the convention says otherwise.

        Source: "Attention Is All You Need", section 3.2.1.

        >>> Convention().scale_factor(4)
        0.5
        """
        if self.scale == "none":
            return 1.0
        if isinstance(self.scale, str):
            return 1.0 / math.sqrt(d_k)
        return float(self.scale)

    def changes(self) -> dict[str, Any]:
        """The fields that differ from the default, by name.

        >>> Convention(causal=True, scale=0.5).changes()
        {'scale': 0.5, 'causal': True}
        """
        default = Convention()
        return {
            name: value for name, value in asdict(self).items() if value != getattr(default, name)
        }

    @classmethod
    def from_mapping(cls, mapping: dict[str, Any]) -> Convention:
        """The convention a saved trace recorded; ConventionError for a field that does not exist.

        >>> Convention.from_mapping({"causal": True, "window": [2, 0]}).window
        (2, 0)
        """
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(mapping) - known):
            raise ConventionError(
                f"a convention has no field {unknown[0]!r}", f"known are {', '.join(sorted(known))}"
            )
        window = mapping.get("window")
        values = dict(mapping)
        if isinstance(window, list):
            values["window"] = tuple(window)
        return cls(**values)


_CHOICES: dict[str, tuple[str, ...]] = {
    name: get_args(hint)
    for name, hint in get_type_hints(Convention).items()
    if get_args(hint) and all(isinstance(choice, str) for choice in get_args(hint))
}


def _or(words: tuple[str, ...]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_numbers(convention: Convention) -> None:
    scale, softcap, window = convention.scale, convention.softcap, convention.window
    if scale not in get_args(ScaleRule) and not (_is_number(scale) and math.isfinite(scale)):  # type: ignore[arg-type]
        raise ConventionError(f"scale is {scale!r}", 'use a finite number, "none" or "1/sqrt(d_k)"')
    if not isinstance(convention.causal, bool):
        raise ConventionError(f"causal is {convention.causal!r}", "use True or False")
    if softcap is not None and not (_is_number(softcap) and 0 < softcap < math.inf):
        raise ConventionError(f"softcap is {softcap!r}", "use a number above 0, or None")
    if not _is_number(convention.mask_value) or not convention.mask_value < math.inf:
        raise ConventionError(
            f"mask_value is {convention.mask_value!r}", "use -inf or a finite number"
        )
    if not _is_number(convention.dropout) or not 0 <= convention.dropout < 1:
        raise ConventionError(
            f"dropout is {convention.dropout!r}", "use a share from 0 up to, but not including, 1"
        )
    if not isinstance(convention.seed, int) or convention.seed < 0:
        raise ConventionError(f"seed is {convention.seed!r}", "use a whole number from 0")
    if window is not None and not _is_window(window):
        raise ConventionError(
            f"window is {window!r}", "use two whole numbers (left, right), each −1 or more"
        )


def _is_window(window: object) -> bool:
    return (
        isinstance(window, tuple)
        and len(window) == 2
        and all(isinstance(bound, int) and bound >= -1 for bound in window)
    )
