"""The flags that reproduce a changed case, where there are any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from attncli.check.case import Case, Seen


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.10g}"


def _window(window: tuple[int, int] | None) -> str:
    return "without --window" if window is None else f"--window {window[0]},{window[1]}"


_FLAGS: dict[str, Callable[[Any], str]] = {
    "scale": lambda scale: "" if scale == "1/sqrt(d_k)" else f"--scale {_number(scale)}",
    "softmax_over": lambda axis: f"--softmax-over {axis}",
    "causal": lambda causal: "--causal" if causal else "without --causal",
    "causal_align": lambda corner: f"--causal-align {corner}",
    "window": _window,
    "mask_means": lambda meaning: f"--mask-means {meaning}",
    "mask_value": lambda value: f"--mask-value {_number(value)}",
    "empty_rows": lambda rule: f"--empty-rows {rule}",
    "softcap_place": lambda place: f"--softcap-place {place}",
    "head_order": lambda order: f"--head-order {order}",
    "dtype": lambda dtype: f"--dtype {dtype}",
    "softcap": lambda cap: "without --softcap" if cap is None else f"--softcap {_number(cap)}",
}
_SEEN = {
    ("mask", "left out"): "without --mask",
    ("mask", "as numbers"): "--mask-means add",
    ("padding", "left out"): "without --kv-len",
}


def flags(plain: Case, changed: Case) -> str:
    """What to add to, or take from, the call of `attncli compute`; "" where no flags do it.

    Positions are flags of `attncli check`.

    >>> from attncli.check.case import case_of
    >>> case = case_of([[1.0]], [[1.0]], [[1.0]])
    >>> flags(case, case.with_how(scale="none", causal=True))
    '--scale none --causal'
    """
    swapped = changed.q is plain.q and changed.k is plain.v and changed.v is plain.k
    if not _placed_by_flags(plain, changed):
        return ""
    same = all(getattr(plain, name) is getattr(changed, name) for name in ("q", "k", "v"))
    extra = (changed.edits, changed.over, changed.leaky, changed.undo, changed.instead)
    if not (same or swapped) or any(extra) or changed.kept is not plain.kept:
        return ""
    words = ["exchange --k and --v"] if swapped and not same else []
    words += _position_flags(plain, changed)
    return _joined(words, _convention_flags(plain, changed), _seen_flags(plain.seen, changed.seen))


def _placed_by_flags(plain: Case, changed: Case) -> bool:
    """Whether positions are as they were, left out, or right positions of another kind."""
    before, after = plain.placement, changed.placement
    return before is None or after is None or replace(after, kind=before.kind) == before


def _position_flags(plain: Case, changed: Case) -> list[str]:
    if plain.placement == changed.placement:
        return []
    after = changed.placement
    return ["without --positions" if after is None else f"--positions {after.kind}"]


def _joined(*parts: list[str] | None) -> str:
    if any(part is None for part in parts):
        return ""
    return " ".join(word for part in parts for word in part or ())


def _convention_flags(plain: Case, changed: Case) -> list[str] | None:
    before, after = vars(plain.how), vars(changed.how)
    names = [name for name in after if after[name] != before[name]]
    if any(name not in _FLAGS for name in names):
        return None
    if "causal_align" in names and not (changed.how.causal or changed.how.window):
        names.remove("causal_align")
    if "softcap_place" in names and changed.how.softcap is None:
        names.remove("softcap_place")
    return [flag for flag in (_FLAGS[name](after[name]) for name in names) if flag]


def _seen_flags(plain: Seen, changed: Seen) -> list[str] | None:
    names = [name for name in vars(changed) if getattr(changed, name) != getattr(plain, name)]
    known = [_SEEN.get((name, str(getattr(changed, name)))) for name in names]
    return None if None in known else [flag for flag in known if flag]
