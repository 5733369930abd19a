"""The catalogue for a reader: the list of bugs, and a page of one, as data.

A page has the edits of the bug, each as the formula that is right and the one that is wrong, and
an example: a small input on which the bug has an effect, with the numbers right and wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.matrices import shown
from attncli.attention.run import Step
from attncli.check.bugs import CATALOGUE, GRADIENT
from attncli.check.bugs.bug import Bug, Evidence
from attncli.check.bugs.edits import line_of, variants
from attncli.check.bugs.patch import patches
from attncli.check.run import all_of, computes, stages, steps_of
from attncli.check.search import differ
from attncli.check.setup import Setup
from attncli.check.small_inputs import Shape, small_input
from attncli.convention import Convention, flag_text
from attncli.files.numbers import nan_to_text
from attncli.stages import GIVEN_GRADIENT, OF_TILES, TILE

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
)
"""Sizes, parts and conventions on one of which a bug has an effect; the plainest first."""

FORWARD = ("output", "weights", "scores", "lse")
BACKWARD = ("d_q", "d_k", "d_v", "d_scores", "d_sinks", "d_bias")


class Change(NamedTuple):
    """A formula, or a setting, as it should be and as the bug has it, and which variant it is."""

    place: str
    right: str
    wrong: str
    detail: str


class Example(NamedTuple):
    """A small input, and a stage of it, right and with the bug: arrays [batch, head, row, …]."""

    words: str
    inputs: dict[str, Array]
    stage: str
    right: Array
    wrong: Array

    @property
    def first(self) -> tuple[int, int, int]:
        """Batch item, head and row of the first number that differs, counted from 0."""
        differs = ~np.isclose(self.right, self.wrong, rtol=FAR, atol=1e-9, equal_nan=True)
        batch, head, row = np.argwhere(differs)[0][:3]
        return int(batch), int(head), int(row)


@dataclass(frozen=True)
class Page:
    """What is known of one bug: its edits, and an example; None: no prepared input shows it."""

    bug: Bug
    changes: tuple[Change, ...]
    example: Example | None


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
    for line in bug.edits:
        shown_by = _first(bug, partial(variants, (line,)))
        if shown_by is not None:
            example = example or shown_by[2]
            changes += changes_between(shown_by[0], shown_by[1])
        if shown_by is None or not changes_between(shown_by[0], shown_by[1]):
            changes += _settings(line, shown_by and shown_by[0])
    if not bug.edits and (shown_by := _first(bug, None)) is not None:
        example = shown_by[2]
    return Page(bug, tuple(dict.fromkeys(changes)), example)


def changes_between(plain: Setup, changed: Setup) -> list[Change]:
    """The formulas that differ between two setups, in the order of the computation."""
    groups = plain.inputs["k"].shape[1]
    others = {step.name: step for step in steps_of(changed, n_kv_heads=groups)}
    detail = "; ".join(changed.details[len(plain.details) :])
    pairs = [(x, others[x.name]) for x in steps_of(plain, n_kv_heads=groups) if x.name in others]
    return [
        Change(x.name, _text(x), _text(y), detail)
        for x, y in pairs
        if x.text and y.text and x.text != y.text
    ]


def _text(step: Step) -> str:
    """The formula of a step by cells, without the words beside it."""
    return shown(step.expression.partition("#")[0].strip())


def marks(one: str, other: str) -> list[tuple[int, int]]:
    """The parts of `other` that `one` has not, from and to; where only less is there, its place.

    >>> marks("a + b", "a - b")
    [(2, 3)]
    """
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    return [(x[3], max(x[4], x[3] + 1)) for x in matcher.get_opcodes() if x[0] != "equal"]


def bug_to_dict(bug: Bug) -> dict[str, Any]:
    """A row of the catalogue, ready for JSON."""
    return {"id": bug.id, "name": bug.name, "sentence": bug.sentence, "threads": [*bug.threads]}


def page_to_dict(one: Page) -> dict[str, Any]:
    """A page, ready for JSON."""
    example = None
    if one.example is not None:
        fields = one.example._asdict()
        inputs = {name: x.tolist() for name, x in one.example.inputs.items()}
        arrays: dict[str, Any] = {name: fields[name].tolist() for name in ("right", "wrong")}
        example = fields | arrays | {"inputs": inputs}
    changes = [change._asdict() for change in one.changes]
    plain: dict[str, Any] = nan_to_text(
        {**bug_to_dict(one.bug), "changes": changes, "example": example}
    )
    return plain


def _settings(line: str, plain: Setup | None) -> list[Change]:
    """The edits of a line as the catalogue has them: inputs, fields of the convention, layouts."""
    one, changes = line_of(line), list[Change]()
    for edit in one.choices[0]:
        right = edit.old or (edit.name if edit.kind == "input" else "")
        if plain is not None and edit.kind == "how" and not edit.old:
            right = json.dumps(getattr(plain.how, edit.name), default=str)
        place = " ".join(filter(None, (_KINDS.get(edit.kind, edit.kind), edit.name, edit.param)))
        changes.append(Change(place, shown(right), shown(edit.new), one.detail))
    return changes


_KINDS = {
    "how": "convention",
    "again": "computed again for gradients",
    "index": "computed for index",
    "rule": "",
}
"""What kinds of edits are called on a page, where that is not their own name."""


def _first(bug: Bug, lines: Any) -> tuple[Setup, Setup, Example] | None:
    """The first prepared input on which a variant has an effect, with the bug, and the numbers."""
    with np.errstate(all="ignore"):
        for number in range(len(PREPARED)):
            setup, plain, words = _prepared(number, GRADIENT in bug.touches)
            evidence = Evidence(plain, plain)
            if lines is not None:
                tried = _of_lines(lines, setup, evidence)
            elif bug.probe is not None:
                tried = _larger(bug.probe(setup))
            else:
                tried = iter(bug.change(setup, evidence))
            for changed in tried:
                names = [x for x in plain if not changed.is_refused and computes(changed, [x])]
                wrong = _as_observed(changed, stages(changed, all_of(changed.shape), names))
                for stage in names:
                    right, other = plain[stage], wrong[stage]
                    if right.shape == other.shape and differ(right, other, by=FAR):
                        example = Example(words, _named(setup), stage, right, other)
                        return setup, changed, example
    return None


def _named(setup: Setup) -> dict[str, Array]:
    """The inputs by the names that the command line has for them."""
    own = {"given_mask": "mask", GIVEN_GRADIENT: "d_output"}
    return {own.get(name, name): x for name, x in setup.inputs.items()}


def _larger(probed: Any) -> Iterator[Setup]:
    """The setup with some more of a bug whose size is fitted; none where it does not apply."""
    if probed is not None:
        sizes = (probed[1](times) for times in (1e2, 1e3, 1e4, 1e5))
        yield from (setup for setup in sizes if setup is not None)


def _of_lines(lines: Any, setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    for patch in patches(lines, setup, evidence):
        if (other := patch if isinstance(patch, Setup) else patch.on(setup)) is not None:
            yield other


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
def _prepared(number: int, gradients: bool) -> tuple[Setup, dict[str, Array], str]:
    """A prepared input, its stages, and what it is in words."""
    shape, parts, choices = PREPARED[number]
    own = ("positions", "tiles", "times")
    fields = {name: value for name, value in choices.items() if name not in own}
    positions, tiles, times = (choices.get(name) for name in own)
    how = Convention(**fields)
    small = small_input(shape, parts, how, positions, times=times or 1.0, gradients=gradients)
    setup, names = small.setup, [*FORWARD, *(BACKWARD if gradients else ())]
    if tiles:
        names = [f"{TILE}.{tile}.{name}" for tile in (2, 3) for name in OF_TILES]
        setup = replace(setup, tiles=tiles)
    names = [name for name in names if tiles or computes(setup, [name])]
    flags = [flag_text(name, value) for name, value in fields.items()]
    flags += [f"--tiles {tiles}"] if tiles else []
    words = " ".join([f"{small.words};", *flags]) if flags else small.words
    return setup, stages(setup, all_of(setup.shape), names), words
