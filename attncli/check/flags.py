"""The flags that reproduce a changed case, where there are any."""

from __future__ import annotations

from dataclasses import replace

from attncli.check.case import Case, Seen
from attncli.convention import KNOBS, flag_text

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
    '--causal --scale none'
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
    if "dropout" in names or "seed" in names:  # what was dropped is not drawn from a seed of ours
        return None
    in_effect = changed.how.changes()
    needs = {name: KNOBS[name].needs for name in names}
    return [
        flag_text(name, after[name])
        for name in names
        if not needs[name] or any(other in in_effect for other in needs[name])
    ]


def _seen_flags(plain: Seen, changed: Seen) -> list[str] | None:
    names = [name for name in vars(changed) if getattr(changed, name) != getattr(plain, name)]
    known = [_SEEN.get((name, str(getattr(changed, name)))) for name in names]
    return None if None in known else [flag for flag in known if flag]
