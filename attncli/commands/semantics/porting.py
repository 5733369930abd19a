"""What differs when code moves from one library to another, and what to write there.

    recipe("keras-mha", "torch-sdpa").code  ──>  a function in PyTorch with the numbers of Keras

The differences are read from the two presets; what makes up for each of them is read from the
statements of the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from attncli.commands.semantics.dialects import AXES, NO_TARGET, TARGETS
from attncli.commands.semantics.port_code import (
    About,
    Call,
    NoWayError,
    Written,
    empty_rule,
    layout_of,
    written,
)
from attncli.convention import Convention
from attncli.errors import ConventionError
from attncli.page.conventions import sentence_of
from attncli.presets import Preset, preset


class Difference(NamedTuple):
    """One way in which two libraries part."""

    about: About  # what they part on
    source: str  # what the source does, in words
    target: str  # what the target does
    write: str = ""  # the lines of code, or the argument of the call, that make up for it
    why: str = ""  # for which calls `write` is, where it is not part of the code; or why it is ""


class Recipe(NamedTuple):
    """What to write in the target to get the numbers of the source, both names of presets."""

    source: str
    target: str
    differences: tuple[Difference, ...]  # where the two part
    code: str  # imports, and a function of the source's arrays; "" where there is no way
    call: Call  # what the code is for
    notes: tuple[str, ...] = ()  # what the numbers depend on besides; without a way: what to use


_PROBES: Mapping[About, tuple[Call, str]] = {
    "boolean mask": (Call("boolean"), "for a boolean mask"),
    "numbers in a mask": (Call("number"), "for a mask of numbers"),
    "causal": (Call(causal=True), "for causal without a mask"),
    "mask and causal": (Call("boolean", causal=True), "for a mask and causal together"),
    "rows with no key": (Call("boolean"), "for a boolean mask"),
    "rows with no key, by −inf": (Call("number"), "for a mask of numbers"),
    "heads": (Call(grouped=True), "for fewer key heads than query heads"),
    "d_v": (Call(d_v=True), "for values of another width than keys"),
    "scale": (Call(), "for every call"),
    "layout": (Call(), "for every call"),
    "window": (Call(), "for every call"),
}
"""What a difference is about → a call that shows it, and that call in words."""
_FIELDS: Mapping[About, str] = {
    "boolean mask": "mask_means",
    "mask and causal": "mask_and_causal",
    "heads": "head_order",
    "scale": "scale",
    "window": "window_counts",
}
_REFUSALS = {"boolean mask", "numbers in a mask", "causal", "mask and causal", "heads", "d_v"}
"""What a library may refuse; the others are no calls of their own."""
_NOTHING: Mapping[About, str] = {
    "mask and causal": "no code is needed: leave out the one of the two that has no effect",
    "window": "no window is part of the code: one is a mask there",
}
_USUAL = Call("boolean", causal=True), Call("boolean"), Call(causal=True), Call("number"), Call()


def recipe(source: str, target: str, call: Call | None = None) -> Recipe:
    """What differs between two libraries, and the code that gives the source's numbers there.

    call  what the code is for; where left out, a boolean mask and causal, or as much of these as
          the source takes and the target has a way for
    """
    rows = preset(source), preset(target)
    if call and (why := call.refusal(rows[0])):
        raise ConventionError(f"{source} refuses this call: {why}")
    code, problem, answered = None, "", call or _USUAL[-1]
    for candidate in [call] if call else _USUAL:
        if candidate.refusal(rows[0]):
            continue
        try:
            code, answered = _written(*rows, candidate), candidate
            break
        except NoWayError as reason:
            problem = str(reason)
    no_way = f"there is no equivalent in {target}: {problem}; use {_instead(rows[1])}"
    notes = [no_way] if code is None else [*code.notes]
    differences = tuple(
        difference for about in _PROBES if (difference := _difference(*rows, about, code))
    )
    text = code.code if code else ""
    return Recipe(source, target, differences, text, answered, (*notes, *_notes(*rows)))


def _written(source: Preset, target: Preset, call: Call) -> Written:
    if target.name in NO_TARGET:
        raise NoWayError(NO_TARGET[target.name][0])
    return written(source, target, call)


def _instead(target: Preset) -> str:
    """The preset to use for what the target has no way for."""
    return NO_TARGET[target.name][1] if target.name in NO_TARGET else TARGETS[target.name].instead


def _notes(source: Preset, target: Preset) -> list[str]:
    """What the numbers depend on besides the code."""
    notes = [
        f"{row.name} is known from its documentation: this was not run"
        for row in {source.name: source, target.name: target}.values()
        if not row.version
    ]
    layers = [row.name in TARGETS and TARGETS[row.name].is_layer for row in (source, target)]
    projects = "projects q, k, v and its output:"
    if layers == [True, False]:
        text = "q, k and v are taken after that, and the output before it"
        notes.append(f"{source.name} {projects} {text}")
    if layers == [False, True]:
        text = "the numbers are the same where its weights are identities"
        notes.append(f"{target.name} {projects} {text}")
    return notes


def _difference(
    source: Preset, target: Preset, about: About, code: Written | None
) -> Difference | None:
    """How they part on this; None where they do not, or where the source has no such calls."""
    probe, when = _PROBES[about]
    if about == "rows with no key" and probe.refusal(source):
        probe, when = _PROBES["causal"]
    ours, theirs = _meaning(source, about), _meaning(target, about)
    is_asked = not probe.refusal(source) and _concerns(source, about, probe)
    if refusal := probe.refusal(target):
        theirs = f"refused: {refusal}" if about in _REFUSALS else theirs
    if not is_asked or ours == theirs:
        return None
    if code and (lines := code.about(about)):
        return Difference(about, ours, theirs, "\n".join(lines))
    try:
        other = _written(source, target, probe)
    except NoWayError as reason:
        why = f"no equivalent: {reason}; use {_instead(target)}"
        return Difference(about, ours, theirs, "", why)
    lines = other.about(about)
    why = "; ".join((when, *other.notes)) if lines else _NOTHING.get(about, "nothing to write")
    return Difference(about, ours, theirs, "\n".join(lines), why)


def _concerns(source: Preset, about: About, probe: Call) -> bool:
    """Whether it is a matter in the source at all."""
    convention = Convention.of(source.name)
    if about == "window":
        return "window_counts" in source.fields
    if about == "rows with no key":
        return (
            convention.mask_means != "add"
            if probe.mask
            else convention.causal_align == "bottom-right"
        )
    return about != "rows with no key, by −inf" or convention.mask_numbers != "truth"


def _meaning(row: Preset, about: About) -> str:
    """What a library does, in words."""
    convention = Convention.of(row.name)
    if about == "layout":
        return AXES[layout_of(row)]
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
        return sentence_of("empty_rows", empty_rule(convention, is_added=False))
    if about == "rows with no key, by −inf":
        if convention.mask_numbers == "truth":
            return "−inf is true and hides nothing"
        return sentence_of("empty_rows", empty_rule(convention, is_added=True))
    field = _FIELDS[about]
    return sentence_of(field, getattr(convention, field))
