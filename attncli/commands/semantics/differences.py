"""What differs when code moves from one library to another, in words.

    differences("torch-mha", "torch-sdpa")[0].source  ──>  "true in a mask hides a key"

The words are read from the two presets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from attncli.convention import Convention, EmptyRows
from attncli.page.conventions import sentence_of
from attncli.presets import Feature, Preset, preset

About = Literal[
    "boolean mask",
    "numbers in a mask",
    "causal",
    "mask and causal",
    "rows with no key",
    "rows with no key, by −inf",
    "heads",
    "d_v",
    "scale",
    "layout",
    "window",
]

_NEEDS: Mapping[About, tuple[Feature, ...]] = {
    "boolean mask": ("boolean mask",),
    "numbers in a mask": ("number mask",),
    "causal": ("causal", "causal alone"),
    "mask and causal": ("boolean mask", "causal", "mask and causal"),
    "rows with no key": ("boolean mask",),
    "rows with no key, by −inf": ("number mask",),
    "heads": ("grouped heads",),
    "d_v": ("d_v",),
    "scale": (),
    "layout": (),
    "window": (),
}
"""What libraries differ in → the features of a call that shows it."""
_FIELDS: Mapping[About, str] = {
    "boolean mask": "mask_means",
    "mask and causal": "mask_and_causal",
    "heads": "head_order",
    "scale": "scale",
    "window": "window_counts",
}
_REFUSALS = {"boolean mask", "numbers in a mask", "causal", "mask and causal", "heads", "d_v"}
"""What a library may refuse; the others are no calls of their own."""
_AXES = {
    "bhsd": "[batch, head, token, d]",
    "bshd": "[batch, token, head, d]",
    "bsd": "[batch, token, head * d]",
    "shd": "[token, head, d]",
    "sd": "[token, head * d]",
}
"""The axes of each layout."""
_NO_HEADS = {"keras-attention": "[batch, token, d]"}
"""The axes of a preset without heads."""


class Difference(NamedTuple):
    """One way in which two libraries differ."""

    about: About
    source: str  # what the source does, in words
    target: str  # what the target does


def differences(source: str, target: str) -> list[Difference]:
    """Where two libraries, names of presets, differ for calls that the source takes."""
    rows = preset(source), preset(target)
    return [difference for about in _NEEDS if (difference := _difference(*rows, about))]


def notes_of(source: str, target: str) -> Iterator[str]:
    """How the two are known, and which weights come before and after what is compared."""
    ours, theirs = preset(source), preset(target)
    for row in (ours, theirs):
        if not row.version:
            yield f"{row.name} is known from its documentation: this was not run"
    projects = "projects q, k, v and its output:"
    if ours.projects and not theirs.projects:
        yield f"{source} {projects} q, k and v are taken after that, and the output before it"
    if theirs.projects and not ours.projects:
        yield f"{target} {projects} the numbers are the same where its weights are identities"


def _difference(source: Preset, target: Preset, about: About) -> Difference | None:
    """How they differ in this; None where they do not, or where the source has no such calls."""
    features = _NEEDS[about]
    if about == "rows with no key" and source.refusal(features):
        features = _NEEDS["causal"]
    if source.refusal(features) or not _concerns(source, about, features):
        return None
    ours, theirs = _meaning(source, about), _meaning(target, about)
    if about in _REFUSALS and (reason := target.refusal(features)):
        theirs = f"refused: {reason}"
    return None if ours == theirs else Difference(about, ours, theirs)


def _concerns(source: Preset, about: About, features: tuple[Feature, ...]) -> bool:
    """Whether calls of these features may show it in the source at all."""
    convention = Convention.of(source.name)
    if about == "window":
        return "window_counts" in source.fields
    if about == "rows with no key":
        is_masked = "boolean mask" in features
        late = convention.causal_align == "bottom-right"
        return convention.mask_means != "add" if is_masked else late
    return about != "rows with no key, by −inf" or convention.mask_numbers != "truth"


def _meaning(row: Preset, about: About) -> str:
    """What a library does, in words."""
    convention = Convention.of(row.name)
    if about == "layout":
        return _NO_HEADS.get(row.name, _AXES[row.layout])
    if about == "d_v":
        return "values may be of any width"
    if about == "causal":
        always = f"{sentence_of('causal', True)}; " * convention.causal
        return always + sentence_of("causal_align", convention.causal_align).removeprefix(
            "causal: "
        )
    if about == "numbers in a mask":
        return sentence_of("mask_numbers", convention.mask_numbers or "add")
    if about == "rows with no key":
        return sentence_of("empty_rows", _empty_rule(convention, is_added=False))
    if about == "rows with no key, by −inf":
        if convention.mask_numbers == "truth":
            return "−inf is true and hides nothing"
        return sentence_of("empty_rows", _empty_rule(convention, is_added=True))
    field = _FIELDS[about]
    return sentence_of(field, getattr(convention, field))


def _empty_rule(convention: Convention, *, is_added: bool) -> EmptyRows:
    """What a row with no key gets: by −inf among numbers that are added, or by true and false."""
    if convention.mask_value_rule == "add" and not is_added:
        return "unmasked"  # one number lowers all scores of the row alike
    return convention.empty_rule(is_added)
