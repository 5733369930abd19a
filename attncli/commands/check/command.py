"""attncli check: does this attention match, and if not, which bug is it?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from attncli.budget import check_free, taken
from attncli.cli.extensions import Call, extended
from attncli.cli.groups import check_flags, given_of, of_lse
from attncli.cli.inputs import AttentionInputs, read_inputs
from attncli.cli.options import ConventionFlags, InputFlags, ending_of
from attncli.cli.output import note, progress_bar, write_report
from attncli.cli.parsing import rows_of, slice_of, whole_numbers
from attncli.commands.check.by_hand.marking import Marking
from attncli.commands.check.diagnose import check as compare
from attncli.commands.check.explanations import OF_HEADS
from attncli.commands.check.flags import STAGES, CheckFlags
from attncli.commands.check.observe import GIVEN, heads_to_front
from attncli.commands.check.observed import as_observed, known_stages, numbers_of, projection_of
from attncli.commands.check.report import summary_text, summary_to_dict, verdict_to_dict
from attncli.commands.check.size import of_check
from attncli.commands.check.suggest import Suggestion, showing_input, suggest_input
from attncli.commands.check.verdict import Verdict, report_text
from attncli.errors import ConventionError, SeveralError, ShapeError, nearest
from attncli.files.messages import named
from attncli.files.roles import D_OUTPUT, stages_named
from attncli.files.write import check_target, write_atomically
from attncli.stages import GRADIENTS, MEAN_WEIGHTS, OF_TILES, OUTPUT, PROJECTED, WEIGHTS

ENDINGS = {"json": "json", "txt": "text", "log": "text"}
"""Ending of --output → format of the verdict."""

ASSUMED = (
    "marked by hand, as no known bug fits and the numbers have at most 4 decimals "
    "(--no-by-hand shows the usual check)"
)
"""What is said where sheets are marked by hand without being asked for."""
ROUNDED = "computed by hand, with rounding at every step, they would be right (--by-hand)"
"""What is said where such a sheet has no mistake."""


@dataclass(frozen=True, kw_only=True)
class CheckCall(Call):
    """A call of check, as its extensions see it."""

    inputs: InputFlags
    choices: ConventionFlags
    observed: CheckFlags

    def of_program(self) -> tuple[InputFlags, str, bool]:
        """The inputs of formulas, the source of what was observed, and whether JSON is written."""
        main, source = _sources(self.inputs, self.observed)
        inputs = replace(self.inputs, source=None)
        if not (inputs.x or inputs.weights):
            inputs.q = main
        return inputs, source, form_of(self.observed) == "json"


def check(
    inputs: InputFlags, choices: ConventionFlags, observed: CheckFlags, *extensions: Any
) -> int:
    """Compares, says what was found, and gives the exit code."""
    if observed.sheets and not observed.by_hand:
        message = f"{observed.sheets[0]} has no effect without --by-hand"
        raise ConventionError(message, "add it to mark several sheets, or give one file")
    if observed.bugs or observed.bug is not None:
        from attncli.commands.check.bugs.command import explain

        options = [*given_of(replace(inputs, source=None)), *choices.fields]
        return explain(inputs.source, options, observed, as_json=form_of(observed) == "json")
    call = CheckCall(inputs=inputs, choices=choices, observed=observed, extensions=extensions)
    if isinstance(code := extended(call), int):
        return code
    _check_flags(observed, inputs)
    if observed.by_hand:
        from attncli.commands.check.by_hand.command import by_hand

        return by_hand(inputs, choices, observed, form_of(observed))
    main, source = _sources(inputs, observed)
    try:
        verdict, attention, numbers = _checked(inputs, choices, observed, main, source)
    except SeveralError as several:
        if main != source or observed.suggest or not several.parts:
            raise
        file = main.removesuffix(f"::{several.selection}")
        return _check_each(inputs, choices, observed, file, several.parts)
    marking = None
    if not (verdict or verdict.explanations or verdict.meanings) and observed.by_hand is None:
        from attncli.commands.check.by_hand.command import assumed

        marking = assumed(inputs, choices, observed, attention, numbers)
    _report(verdict, marking, observed)
    if observed.suggest is not None:
        note(_suggest(verdict, attention, observed, observed.suggest), quiet=observed.quiet)
    return 0 if verdict.matches else 1


def _report(verdict: Verdict, marking: Marking | None, observed: CheckFlags) -> None:
    """Writes the verdict, or the marking of numbers that were computed by hand."""
    text, data = report_text(verdict), verdict_to_dict(verdict)
    if marking is not None:
        text = f"{ASSUMED}\n{marking}" if marking.mistakes else f"{text}\n{ROUNDED}"
        data = {**data, "by_hand": marking.to_dict()}
    write_report(text, data, observed, as_json=form_of(observed) == "json")


def _check_each(
    inputs: InputFlags,
    choices: ConventionFlags,
    observed: CheckFlags,
    file: str,
    parts: tuple[str, ...],
) -> int:
    """Checks every attention that a file holds; 0 where all match."""
    verdicts, notes = dict[str, Verdict](), list[str]()
    for part in parts:
        source = f"{file}::{part}"
        with named(part):
            verdicts[part] = _checked(replace(inputs), choices, observed, source, source, notes)[0]
    as_json = form_of(observed) == "json"
    write_report(summary_text(verdicts), summary_to_dict(verdicts), observed, as_json=as_json)
    return 0 if all(verdicts.values()) else 1


def _checked(
    inputs: InputFlags,
    choices: ConventionFlags,
    observed: CheckFlags,
    main: str,
    source: str,
    earlier: list[str] | None = None,
) -> tuple[Verdict, AttentionInputs, dict[str, Any]]:
    """The verdict on a source, its inputs and what was observed; no note of `earlier` again."""
    is_shared = main == source and None in (inputs.q, observed.observed)
    if not (inputs.x or inputs.weights):
        inputs = replace(inputs)
        inputs.q = main
    stages = known_stages(inputs.tiles) if observed.stage is None else (observed.stage,)
    attention = as_observed(read_inputs(inputs, choices, source, stages))
    numbers, notes = numbers_of(observed, attention, is_shared=is_shared)
    lse = of_lse(stage for name in numbers for stage in stages_of(name))
    check_flags([inputs, choices], facts=attention.facts | lse)
    earlier = [] if earlier is None else earlier
    new = [text for text in (*attention.notes, *notes) if text not in earlier]
    earlier += new
    note(*new, quiet=observed.quiet)
    verdict = _verdict(numbers, attention, observed, _chosen(choices, attention))
    return replace(verdict, shape=verdict.shape.replace(" (rows=, heads=)", "")), attention, numbers


def _chosen(choices: ConventionFlags, attention: AttentionInputs) -> set[str]:
    """The fields of the convention that a flag or the file has chosen, not --semantics."""
    preset = choices.meant_for(attention.inputs.sizes.scores[-2])
    changes = attention.inputs.convention.changes()
    names = {n for n, value in changes.items() if n not in preset or preset[n] != value}
    return names | {*choices.fields}


def _check_flags(observed: CheckFlags, inputs: InputFlags) -> None:
    """ConventionError for flags that contradict, before anything is read."""
    if inputs.heads is not None and observed.positions in ("paper", "article"):
        message = (
            f"--positions {observed.positions} would be added to each head, not to the embedding"
        )
        hint = "add them first (attncli posenc --add), or give q, k and v in one head"
        raise ConventionError(message, hint)
    stages = known_stages(inputs.tiles)
    if observed.stage is not None and not any(x in stages for x in stages_of(observed.stage)):
        of_tiles = f"use tile.1.m, {', '.join(OF_TILES)} …"
        hint = nearest(observed.stage, STAGES) if inputs.tiles is None else of_tiles
        raise ConventionError(f"there is no stage {observed.stage!r}", hint)
    if observed.suggest is not None:
        if not observed.suggest.endswith(".npz"):
            raise ConventionError(f"--suggest {observed.suggest} is no npz file", "end it in .npz")
        check_target(observed.suggest, force=observed.force)
    form_of(observed)
    if observed.suggest is not None and observed.suggest == observed.output:
        raise ConventionError("--output and --suggest name one file", "name two")
    if observed.rows is not None:
        slice_of(observed.rows, "--rows")


def stages_of(name: str) -> tuple[str, ...]:
    """The stages that an array of this name may be, one by a stage's own name among them."""
    stages = stages_named(name) or (name,)
    merged_names = {OUTPUT: PROJECTED, WEIGHTS: MEAN_WEIGHTS}  # of all heads
    return (*stages, *(merged_names[x] for x in stages if x in merged_names))


def form_of(observed: CheckFlags) -> str:
    """The form of the verdict: --format, else what the ending of --output says, else text."""
    ending = None if observed.output is None else ending_of(observed.output)
    if observed.format is not None or ending is None:
        return observed.format or "text"
    if ending not in ENDINGS:
        message = f"{observed.output} does not end in a format of a verdict"
        raise ConventionError(message, "add --format text or json")
    return ENDINGS[ending]


def _sources(inputs: InputFlags, observed: CheckFlags) -> tuple[str, str]:
    """Where q and the observed numbers come from: SOURCE is what is not named, or both."""
    q = inputs.q or inputs.x or inputs.weights
    numbers, source = observed.observed, inputs.source
    if None not in (q, numbers, source):
        message = "SOURCE is given beside --q and --observed"
        raise ConventionError(message, "leave one of the three out")
    q, numbers = q or source or numbers, numbers or source or q
    if q is None or numbers is None:
        hint = "name a file that holds q, k, v and the output, or add --q and --observed"
        raise ConventionError("there is nothing to check", hint)
    return q, numbers


def _verdict(
    numbers: dict[str, Any],
    attention: AttentionInputs,
    observed: CheckFlags,
    chosen_fields: set[str],
) -> Verdict:
    shape, flags = attention.inputs.sizes.scores, attention.flags
    n_q, n_heads = shape[-2], shape[-3] if len(shape) > 2 else 1
    rows = None if observed.rows is None else rows_of(observed.rows, n_q)
    if observed.head is not None and observed.head > n_heads:
        heads = "is only 1 head" if n_heads == 1 else f"are {n_heads} heads"
        raise ShapeError(f"there is no head {observed.head}", f"there {heads}")
    for name in [name for name in numbers if OUTPUT in stages_named(name)]:
        sizes = (n_heads if observed.head is None else 1, len(range(n_q)[rows or slice(None)]))
        numbers = numbers | {name: heads_to_front(numbers[name], flags.layout, sizes)}
    decimals = {} if attention.observed is None else attention.observed.decimals
    zeros = {stage: n for name, n in decimals.items() for stage in stages_of(name)}
    if len(zeros) == 1:  # the only array, whatever it is called
        zeros = dict.fromkeys(numbers, *zeros.values())
    form = "A,B,…, such as 2,5"
    split = None if flags.split is None else whole_numbers(flags.split, "--split", form)
    check_room = _room(numbers, attention)
    check_room("the comparison needs", searches=False)
    searching = "it differs, and the search for a bug needs"
    with progress_bar("bugs tried", quiet=observed.quiet) as progress:
        return compare(
            numbers,
            rows=rows,
            heads=None if observed.head is None else observed.head - 1,
            projected=attention.inputs if attention.inputs.is_of_x else None,
            pairs=not observed.single,
            tiles=flags.tiles,
            split=split,
            progress=progress,
            before_search=partial(check_room, searching, searches=True),
            chosen=chosen_fields,
            layout=flags.layout and ("bhsd" if len(shape) > 3 else "hsd"),
            **attention.arguments,
            **attention.labels,
            **projection_of(attention),
            zeros=zeros,
            **given_of(observed, "positions", "decimals", "rtol", "atol", "inside"),
        )


def _room(numbers: dict[str, Any], attention: AttentionInputs) -> Callable[..., None]:
    """What raises SizeError where there is no room for a comparison, or for a search."""
    before = taken()
    arrays = [x for name, x in numbers.items() if name not in GIVEN]
    whole = any(name in GRADIENTS for name in numbers)

    def check_room(subject: str, *, searches: bool) -> None:
        need = of_check(attention.inputs, arrays, searches=searches, whole=whole)
        check_free(before + need - taken(), subject, "check fewer rows or heads: --rows, --head")

    return check_room


def _suggest(verdict: Verdict, attention: AttentionInputs, observed: CheckFlags, path: str) -> str:
    """Writes an input on which the bugs that fit all differ; says what it is, or why not."""
    convention, positions = attention.inputs.convention, observed.positions
    if verdict.hidden:
        small: Suggestion | None = showing_input(convention, positions)
    elif len(verdict.explanations) < 2:
        return f"{path} is not written: there are no two bugs to distinguish"
    else:
        names = tuple(OF_HEADS.get(x.name, x.name) for x in verdict.stages) or (OUTPUT,)
        small = suggest_input(
            verdict.explanations, convention=convention, positions=positions, stages=names
        )
    if small is None:
        return "no small input distinguishes them: they may always compute the same"
    n = small.n_past
    arrays: dict[str, Any] = {"q": small.q, "k": small.k[..., n:, :], "v": small.v[..., n:, :]}
    if n:
        arrays |= {"past_k": small.k[..., :n, :], "past_v": small.v[..., :n, :]}
    more = {"mask": small.mask, "sinks": small.sinks, D_OUTPUT: small.d_output}
    arrays |= {name: x for name, x in more.items() if x is not None}
    write_atomically(path, lambda file: np.savez(file, **arrays), force=observed.force)
    lengths = "" if small.kv_len is None else f", --kv-len {','.join(map(str, small.kv_len))}"
    return f"{path}: {small.words}{lengths}; run yours on it"
