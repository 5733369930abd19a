"""The catalogue for a reader: the list of bugs, and a page of one, as data.

A page has the edits of the bug, each as the formula that is right and the one that is wrong, and
an example: a small input on which the bug has an effect, with the numbers right and wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.bugs import edits
from attncli.commands.check.bugs.bug import Bug, Evidence
from attncli.commands.check.bugs.catalogue import CATALOGUE, GRADIENT
from attncli.commands.check.bugs.rewrite import letters_of
from attncli.commands.check.bugs.small_input import Shape, Small, small_input
from attncli.commands.check.explanations import Change, changes_between
from attncli.commands.check.search import differ
from attncli.convention import Convention, flag_text
from attncli.files.numbers import nan_to_text
from attncli.formula.matrices import shown
from attncli.stages import OF_TILES, TILE
from attncli.tolerance.run import all_of, computes, stages
from attncli.tolerance.setup import Setup

GROUPS = {
    "Gradients": "gradients",
    "Positions": "position-layout position-exponent position-inputs position-offset position-base "
    "position-width",
    "Log-sum-exp and tiles": "lse tiles",
    "Dropout": "dropout",
    "Softcap": "softcap",
    "Rows with nothing to attend to, NaN": "empty-rows NaN-propagation",
    "Causal masks and windows": "causal window",
    "Masks and padding": "mask padding mask-value",
    "Heads": "head-order key-heads",
    "Softmax, sinks and blocks of keys": "softmax sinks",
    "Scale": "scale scores",
    "Outputs": "outputs stage-name",
}
"""What bugs are about, by what they touch: the first group counts; the others are of inputs."""

FAR = 1e-3
"""The bug must change a number by this share of the largest, so that four decimals show it."""

SQUARE = 2, 4, 4, 5, 5, 6, 6
GROUPED = 2, 4, 2, 6, 6, 6, 6
MORE_KEYS = 2, 3, 3, 3, 7, 4, 5
LONG = 2, 4, 2, 35, 37, 7, 9
"""Sizes, as `small_input` has them; the last is longer than a block of 32 rows."""

PREPARED: tuple[tuple[Shape, str, dict[str, Any]], ...] = (
    (MORE_KEYS, "", {}),
    (SQUARE, "", {}),
    (GROUPED, "", {}),
    (MORE_KEYS, "", {"causal": True}),
    (SQUARE, "", {"causal": True}),
    (MORE_KEYS, "", {"causal": True, "causal_align": "bottom-right"}),
    (MORE_KEYS, "", {"causal": True, "causal_align": "open-last"}),
    (GROUPED, "", {"causal": True, "window": (2, 0)}),
    (GROUPED, "mask emptying", {}),
    (SQUARE, "mask items", {}),
    (GROUPED, "numbers", {"softcap": 2.0}),
    (GROUPED, "numbers", {"softcap": 2.0, "softcap_place": "after-bias", "causal": True}),
    (GROUPED, "ones", {"mask_numbers": "truth"}),
    (GROUPED, "padding", {}),
    (GROUPED, "mask emptying", {"mask_means": "add"}),
    (GROUPED, "mask emptying", {"causal": True, "mask_and_causal": "mask"}),
    (GROUPED, "lengths", {}),
    (GROUPED, "sinks", {}),
    (GROUPED, "", {"softmax_over": "queries"}),
    (GROUPED, "", {"head_order": "tiled"}),
    (GROUPED, "", {"scale": 0.3}),
    (GROUPED, "", {"mask_value": -5.0, "causal": True}),
    (GROUPED, "past", {"causal": True}),
    (GROUPED, "", {"qk_norm": True}),
    (SQUARE, "", {"dropout": 0.3, "seed": 5}),
    (GROUPED, "", {"positions": "rope-halves"}),
    (GROUPED, "past", {"positions": "rope-interleaved"}),
    (SQUARE, "", {"positions": "paper"}),
    (SQUARE, "past", {"positions": "article"}),
    (GROUPED, "mask emptying", {"empty_rows": "nan"}),
    (GROUPED, "padding nan", {}),
    (MORE_KEYS, "", {"tiles": 3}),
    (LONG, "", {}),
    (GROUPED, "", {"times": 1e5}),
    ((2, 4, 4, 5, 5, 8, 8), "", {"positions": "rope-halves"}),
)
"""Sizes, parts and conventions on one of which a bug has an effect; the plainest first."""

BESIDE = "positions", "tiles", "times"
"""What is no field of a convention."""

FORWARD = ("output", "weights", "scores", "lse")
BACKWARD = ("d_q", "d_k", "d_v", "d_scores", "d_sinks", "d_bias")


class Example(NamedTuple):
    """A small input, and a stage of it, right and with the bug: arrays [batch, head, row, …].

    observed  what an implementation with the bug gives: the stage, of gradients those of q, k and v
    fields    of the convention that are not the default
    flags     what `attncli check` needs besides, such as "--tiles 3"
    """

    words: str
    inputs: dict[str, Array]
    stage: str
    right: Array
    wrong: Array
    observed: dict[str, Array]
    fields: dict[str, Any]
    flags: str

    @property
    def first(self) -> tuple[int, int, int]:
        """Batch item, head and row of the first number that differs, counted from 0."""
        differs = ~np.isclose(self.right, self.wrong, rtol=FAR, atol=1e-9, equal_nan=True)
        batch, head, row = np.argwhere(differs)[0][:3]
        return int(batch), int(head), int(row)

    def to_dict(self) -> dict[str, Any]:
        """The example as JSON has it."""
        inputs = {name: x.tolist() for name, x in self.inputs.items()}
        arrays = {"right": self.right.tolist(), "wrong": self.wrong.tolist()}
        return {"words": self.words, "inputs": inputs, "stage": self.stage, **arrays}

    def to_check(self) -> dict[str, Any]:
        """What `attncli check` reads: the inputs, the convention, and what was observed."""
        arrays = {name: x.tolist() for name, x in (self.inputs | self.observed).items()}
        return {**arrays, **self.fields}


@dataclass(frozen=True)
class Page:
    """What is known of one bug: its edits, and an example; None: no prepared input shows it."""

    bug: Bug
    changes: tuple[Change, ...]
    example: Example | None


def group_of(bug: Bug) -> str:
    """What a bug is about."""
    groups = (name for name, touches in GROUPS.items() if bug.touches & {*touches.split()})
    return next(groups, "Inputs")


def listed(text: str = "") -> tuple[Bug, ...]:
    """The bugs that have every word of a text in id, name, sentence or threads, in their order.

    >>> [bug.id for bug in listed("cntkx#10")]
    ['scale-left-out']
    """
    words = text.lower().split()
    about = {bug: " ".join((bug.id, bug.name, bug.sentence, *bug.threads)) for bug in CATALOGUE}
    return tuple(bug for bug in CATALOGUE if all(word in about[bug].lower() for word in words))


def page(bug: Bug) -> Page:
    """The page of a bug: each of its edits on the first prepared input that shows it."""
    changes, example = list[Change](), None
    for line in bug.edits or ("",):
        plain, changed, shown_by = _first(bug, line) or (None, None, None)
        example = example or shown_by
        between = changes_between(plain, changed) if plain and changed else []
        changes += between or (_settings(line, plain, changed) if line else [])
    return Page(bug, tuple(dict.fromkeys(changes)) if bug.edits else (), example)


def bug_to_dict(bug: Bug) -> dict[str, Any]:
    """A row of the catalogue, ready for JSON."""
    fields = {name: getattr(bug, name) for name in ("id", "name", "sentence")}
    return {**fields, "threads": [*bug.threads], "group": group_of(bug)}


def page_to_dict(bug_page: Page) -> dict[str, Any]:
    """A page, ready for JSON; `check` is what `attncli check FILE::check` reads."""
    changes = [{**change._asdict(), "fix": change.fix} for change in bug_page.changes]
    whole = {**bug_to_dict(bug_page.bug), "changes": changes, "example": None}
    if bug_page.example is not None:
        whole |= {"example": bug_page.example.to_dict(), "check": bug_page.example.to_check()}
    plain: dict[str, Any] = nan_to_text(whole)
    return plain


def _settings(line: str, plain: Setup | None, changed: Setup | None) -> list[Change]:
    """The edits of a line as the catalogue has them: inputs, fields of the convention, layouts."""
    catalogue_line, changes = edits.line_of(line), list[Change]()
    detail = catalogue_line.detail if "{" not in catalogue_line.detail else ""
    if plain is not None and changed is not None:
        detail = "; ".join(changed.details[len(plain.details) :])
    filled = catalogue_line.choices[0]
    if plain is not None:  # the numbers and texts of the variant that is shown
        patches = edits.variants((line,), plain, Evidence({}, {}, example=2.0))
        filled = next((patch.edits for patch in patches if patch.detail == detail), filled)
    for edit in filled:
        right = edit.old or edit.name * (edit.kind == "positions" and edit.name in edit.new)
        if edit.kind == "input":
            right = f"{edit.name}[{','.join(letters_of(edit.name))}]"
        if plain is not None and edit.kind == "convention" and not edit.old:
            right = _in_words(getattr(plain.convention, edit.name))
        place = " ".join(filter(None, (_KINDS.get(edit.kind, edit.kind), edit.name, edit.param)))
        new = edit.new.strip('"') if edit.kind == "convention" else edit.new
        if edit.kind == "input":
            new = edits.RIGHT.sub(right, new).replace("right[", f"{edit.name}[")
        changes.append(Change(place, shown(right), shown(new), detail))
    return [change for change in changes if change.right != change.wrong]


def _in_words(value: Any) -> str:
    """A field of a convention as a page has it."""
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


_KINDS = {
    "convention": "convention",
    "again": "computed again for gradients",
    "index": "computed for index",
    "rule": "",
}
"""What kinds of edits are called on a page, where that is not their own name."""


def _first(bug: Bug, line: str) -> tuple[Setup, Setup, Example] | None:
    """The first prepared input on which a variant has an effect, with the bug, and the numbers."""
    with np.errstate(all="ignore"):
        for number in range(len(PREPARED)):
            setup, plain, small = _prepared(number, GRADIENT in bug.touches)
            for changed in _variants(bug, line, setup, Evidence(plain, plain, example=2.0)):
                names = [x for x in plain if not changed.is_refused and computes(changed, [x])]
                wrong = _as_observed(changed, stages(changed, all_of(changed.shape), names))
                for name in names:
                    right, other = plain[name], wrong[name]
                    if right.shape == other.shape and differ(right, other, by=FAR):
                        observed_names = (name, *(BACKWARD[:3] if name in BACKWARD else ()))
                        observed = {x: wrong[x] for x in observed_names if x in wrong}
                        example = _example(number, small, name, right, observed)
                        return setup, changed, example
    return None


def _variants(bug: Bug, line: str, setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The setups that a line of edits makes, or a bug without any; what is fitted is 2."""
    return iter(edits.changed((line,), setup, evidence) if line else bug.change(setup, evidence))


def _as_observed(setup: Setup, arrays: dict[str, Array]) -> dict[str, Array]:
    """The numbers as they would be observed: in the layout that the setup puts right."""
    result = dict(arrays)
    for stage in setup.relayout.keys() & arrays.keys():
        x = arrays[stage]
        order = setup.relayout[stage](np.arange(float(x.size)).reshape(x.shape))
        if order.shape == x.shape and np.array_equal(np.sort(order, axis=None), np.arange(x.size)):
            result[stage] = x.ravel()[np.argsort(order, axis=None)].reshape(x.shape)
    return result


@lru_cache(2 * len(PREPARED))
def _prepared(number: int, gradients: bool) -> tuple[Setup, dict[str, Array], Small]:
    """A prepared input, in tiles or not, and its stages."""
    shape, parts, fields = PREPARED[number]
    convention = Convention(**{name: value for name, value in fields.items() if name not in BESIDE})
    positions, times = fields.get("positions"), fields.get("times", 1.0)
    small = small_input(shape, parts, convention, positions, times=times, gradients=gradients)
    setup = replace(small.setup, tiles=fields.get("tiles", 0))
    names = [x for x in (*FORWARD, *BACKWARD[: 6 * gradients]) if computes(setup, [x])]
    if setup.tiles:
        names = [f"{TILE}.{tile}.{name}" for tile in (2, 3) for name in OF_TILES]
    return setup, stages(setup, all_of(setup.shape), names), small


def _example(
    number: int, small: Small, stage: str, right: Array, observed: dict[str, Array]
) -> Example:
    """The example of a prepared input."""
    choices = PREPARED[number][2]
    fields = {name: value for name, value in choices.items() if name not in BESIDE}
    flags = " ".join(f"--{x} {choices[x]}" for x in BESIDE[:2] if x in choices)
    convention = " ".join(flag_text(name, value) for name, value in fields.items())
    words = f"{small.words}; {convention}" if convention else small.words
    return Example(words, small.arrays, stage, right, observed[stage], observed, fields, flags)
