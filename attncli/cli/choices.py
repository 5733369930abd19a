"""From flags to a Convention: what was given, laid over what the input says, and contradictions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attncli.cli.options import Masking, Scores
from attncli.cli.parsing import number, window_of
from attncli.convention import Convention
from attncli.errors import ConventionError


def convention_of(masking: Masking, scores: Scores, base: Convention) -> Convention:
    """The base (of the input) with every flag that was given put in its place.

    Raises ConventionError for a value outside its range and for flags that contradict.
    """
    _check_company(masking, scores, base)
    given: dict[str, Any] = {
        "causal": masking.causal or None,
        "causal_align": masking.causal_align,
        "window": window_of(masking.window),
        "mask_means": masking.mask_means if masking.mask_means != "add" else None,
        "mask_value": _mask_value(masking.mask_value),
        "empty_rows": masking.empty_rows,
        "scale": scale_of(scores.scale),
        "softcap": scores.softcap,
        "softcap_place": scores.softcap_place,
        "softmax_over": scores.softmax_over,
        "head_order": scores.head_order,
        "dropout": scores.dropout,
        "seed": scores.seed,
        "dtype": scores.dtype,
    }
    return replace(base, **{name: value for name, value in given.items() if value is not None})


def scale_of(text: str | None) -> Any:
    """--scale as a Convention has it: a factor, "none", or None where it was not given."""
    if text is None or text == "none":
        return text
    return number(text, "--scale", "a factor such as 0.125, or none")


def _mask_value(text: str | None) -> float | None:
    if text is None:
        return None
    return number(text, "--mask-value", "a number such as -1e9, or -inf")


def _check_company(masking: Masking, scores: Scores, base: Convention) -> None:
    """A flag that does nothing without another one is refused without it."""
    placed = masking.causal or masking.window or base.causal or base.window
    needs = [
        ("--causal-align", masking.causal_align, placed, "--causal or --window"),
        ("--softcap-place", scores.softcap_place, scores.softcap or base.softcap, "--softcap"),
        ("--seed", scores.seed, scores.dropout or base.dropout, "--dropout"),
    ]
    for flag, given, company, other in needs:
        if given is not None and not company:
            raise ConventionError(f"{flag} does nothing alone", f"add {other}, or leave it out")
