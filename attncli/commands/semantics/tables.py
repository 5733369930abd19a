"""What libraries mean by attention as traces: stages of words, which every format can write.

table ── libraries               every library and case
of_one ── library                one library beside what most do
of_two ── differences            one library beside another
of_input ── outcomes, apart      where they differ on an input
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from attncli.commands.semantics.cases import CASES, REFUSED
from attncli.commands.semantics.differences import notes_of
from attncli.commands.semantics.outcomes import Outcomes
from attncli.convention import Convention, flag_text
from attncli.presets import PRESETS, Feature, Preset, preset
from attncli.stages import StageSpec
from attncli.trace import Stage, Trace

LIBRARIES, LIBRARY, DIFFERENCES = "libraries", "library", "differences"
OUTCOMES, APART = "outcomes", "apart"
WORDS, DISTANCES = StageSpec("", words=True), StageSpec("", "library query")
"""What is known of these stages: of those of words, and of numbers."""
_CALLS: Mapping[Feature, str] = {
    "boolean mask": "a boolean mask",
    "number mask": "a mask of numbers",
    "causal": "causal",
    "causal alone": "causal without a mask",
    "mask and causal": "a mask and causal together",
    "grouped heads": "fewer key heads than query heads",
    "d_v": "values of another width than the keys",
    "lengths": "more or fewer keys than queries, none of them a past",
}
TERMS = (
    "hides = true masks the key; adds 1 = true adds 1 to the score, and no key is masked",
    "inverted = a number other than 0 is true: keys with −∞ may be attended to, those with 0 not",
    "open-last = as top-left, but the last query may attend to all keys",
    "nothing hidden = the query attends as if its keys were not masked",
)
"""What cells of the table mean that are not plain words."""
_LETTERS = {"b": "batch", "h": "head", "s": "token", "d": "dimension"}


def table(presets: Sequence[Preset] = tuple(PRESETS.values())) -> Trace:
    """What each library means, case by case: stage "libraries" [library, case] of words."""
    cells = [[*_cells(row), row.layout, row.version or "documentation"] for row in presets]
    labels = {"library": [row.name for row in presets], "case": [*CASES, "layout", "checked with"]}
    notes = (f"{REFUSED} = the library takes no such call; attncli semantics NAME says why", *TERMS)
    words = (_words(LIBRARIES, cells, labels),)
    return Trace("How libraries differ in what they compute", words, None, "", notes)


def of_one(name: str) -> Trace:
    """What one library means, beside what most do: stage "library" [case, library] of words."""
    row = preset(name)
    every = zip(*map(_cells, PRESETS.values()), strict=True)
    most = [Counter(c for c in cells if c != REFUSED).most_common(1)[0][0] for cells in every]
    cells = [*zip(_cells(row), most, strict=True)]
    labels = {"case": [*CASES], "library": [name, "most"]}
    notes = [row.call, f"run: {row.version}" if row.version else "from its documentation; not run"]
    notes += [f"its arrays are {row.layout}: {', '.join(_LETTERS[x] for x in row.layout)}"]
    notes += [f"it refuses {_CALLS[feature]}: {why}" for feature, why in row.refuses.items()]
    notes += [*row.notes, f"sources: {', '.join(row.sources)}"] if row.sources else row.notes
    notes += [f"the same as flags: {flags}"] if (flags := _flags(name)) else []
    title = f"How {name} computes attention"
    return Trace(title, (_words(LIBRARY, cells, labels),), None, "", tuple(notes))


def of_two(source: str, target: str) -> Trace:
    """What differs between two libraries: stage "differences" [case, library] of words.

    Where nothing does, stage "library" has what both mean in every case.
    """
    cells = ([*_cells(row), row.layout] for row in (preset(source), preset(target)))
    rows = {case: pair for case, *pair in zip([*CASES, "layout"], *cells, strict=True)}
    differing = {case: pair for case, pair in rows.items() if pair[0] != pair[1]}
    stage, rows = (DIFFERENCES, differing) if differing else (LIBRARY, rows)
    labels = {"case": [*rows], "library": [source, target]}
    notes = [f"{name}: {preset(name).call}" for name in (source, target)]
    for name in (source, target):
        notes += [f"{name} is the same as flags: {flags}"] if (flags := _flags(name)) else []
    notes += [*notes_of(source, target)]
    notes += [] if differing else ["they mean the same in every case"]
    words = (_words(stage, [*rows.values()], labels),)
    return Trace(f"From {source} to {target}", words, None, "", tuple(notes))


def of_input(outcomes: Outcomes, labels: Sequence[str] | None = None) -> Trace:
    """What each library does with an input, in words, and how far its output is apart, by query."""
    names = [name for group in outcomes.groups for name in group.names]
    does = [[words_of(group.does)] for group in outcomes.groups for _ in group.names]
    does += [[f"refused: {why}"] for why in outcomes.refused.values()]
    rows = {"library": [*names, *outcomes.refused], "case": ["what it does"]}
    apart = np.array([group.apart for group in outcomes.groups for _ in group.names])
    queries = {"library": tuple(names)} | ({} if labels is None else {"query": tuple(labels)})
    stage = Stage(APART, "", "", apart, ("library", "query"), queries, spec=DISTANCES)
    steps = _words(OUTCOMES, does, rows), stage
    return Trace("Where libraries give different results on this input", steps)


def words_of(does: Mapping[str, str]) -> str:
    """What libraries do, in one line: true: hides · no key: NaN."""
    return " · ".join(f"{case}: {cell}" for case, cell in does.items()) or "all the same"


def _flags(name: str) -> str:
    """The flags of attncli that mean what a library means; "" where it means the defaults."""
    changes = Convention.of(name).changes()
    return " ".join(flag_text(field, value) for field, value in changes.items())


def _cells(row: Preset) -> list[str]:
    return [case.cell(row) for case in CASES.values()]


def _words(name: str, cells: Sequence[Sequence[str]], labels: dict[str, list[str]]) -> Stage:
    """A stage of words, with these axes and labels along them."""
    labels_of = {axis: tuple(names) for axis, names in labels.items()}
    return Stage(name, "", "", np.array(cells), tuple(labels_of), labels_of, spec=WORDS)
