"""What a value of a convention means, as a sentence and as a cell of the table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attncli.convention import flag_text

_EMPTY = {
    "zero": "zeros",
    "nan": "NaN",
    "uniform": "the mean of V",
    "unmasked": "what it would get without the mask",
}
_SENTENCES: Mapping[tuple[str, Any], str] = {
    ("causal", True): "it is causal without being asked",
    ("causal", False): "it is not causal",
    ("causal_align", "top-left"): "causal: query 1 is at the position of key 1",
    ("causal_align", "bottom-right"): "causal: the last query is at the position of the last key",
    ("causal_align", "open-last"): "causal: with fewer queries than keys, the last sees every key",
    ("mask_and_causal", "both"): "a mask and causal both restrict",
    ("mask_and_causal", "mask"): "beside a mask, causal has no effect",
    ("mask_and_causal", "causal"): "beside causal, the mask has no effect",
    ("mask_and_causal", "refused"): "a mask and causal together are refused",
    ("window_counts", "own"): "a window counts the query's own key",
    ("window_counts", "others"): "a window does not count the query's own key",
    ("scale", "none"): "the scores are not scaled",
    ("scale", "1/sqrt(d_k)"): "the scores are multiplied by 1/√d_k",
    ("softcap_place", "before-mask"): "the softcap comes before the mask",
    ("softcap_place", "after-bias"): "the softcap bounds the numbers of the mask too",
    ("softcap_place", "after-mask"): "the softcap comes after the mask",
    ("mask_means", "keep"): "true in a mask lets a query attend",
    ("mask_means", "ignore"): "true in a mask hides a key",
    ("mask_means", "add"): "true and false are added to the scores as 1 and 0, and hide nothing",
    ("mask_numbers", "add"): "the numbers of a mask are added to the scores",
    ("mask_numbers", "truth"): (
        "the numbers of a mask are read as true or false: −inf is true, so it may attend"
    ),
    ("mask_value_rule", "replace"): "a masked score is replaced",
    ("mask_value_rule", "add"): "a masked score is lowered, and keeps its order among the others",
    ("head_order", "tiled"): "query heads take the key heads in turn",
    ("head_order", "blocks"): "neighbouring query heads share a key head",
}


def sentence_of(name: str, value: Any) -> str:
    """What the value of a field of Convention means.

    >>> sentence_of("empty_rows_inf", "nan")
    'a query with nothing to attend to, by −inf in a mask, gets NaN'
    """
    if name in ("empty_rows", "empty_rows_inf") and value is not None:
        by = ", by −inf in a mask," * (name == "empty_rows_inf")
        return f"a query with nothing to attend to{by} gets {_EMPTY[value]}"
    if name == "mask_value":
        return f"masked scores become {'−∞' if math.isinf(value) else f'{value:g}'}"
    return _SENTENCES.get((name, value)) or flag_text(name, value)


def sentences(changes: Mapping[str, Any]) -> list[str]:
    """What each of these fields means, a sentence each; a mask value and its rule are one."""
    if changes.get("mask_value_rule") == "add" and "mask_value" in changes:
        lowered = f"masked scores are lowered by {-changes['mask_value']:g}, not hidden"
        both = ("mask_value", "mask_value_rule")
        return [lowered, *sentences({n: x for n, x in changes.items() if n not in both})]
    return [sentence_of(name, value) for name, value in changes.items()]
