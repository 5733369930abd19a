"""check --formulas: what was observed beside the stages of the user's own formulas."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from attncli.cli.extensions import Call, Program
from attncli.cli.groups import given_of
from attncli.cli.results import ReportResult, Result, TextResult
from attncli.commands.diff.command import stage_of
from attncli.commands.diff.comparison import nested
from attncli.commands.diff.diff import diff as compare
from attncli.commands.diff.page import diff_page
from attncli.convention import flag_of
from attncli.errors import ConventionError, InputError, listed, nearest
from attncli.files.contents import IF_NUMBERS
from attncli.files.load import read_source
from attncli.files.roles import stages_named
from attncli.formats import FORMATS
from attncli.page.options import DisplayOptions


def beside_program(call: Call, program: Program) -> Result:
    """What was observed beside the stages of formulas; 0 where all match, else 1.

    call  of check: its groups say where the inputs of the formulas and the numbers are
    """
    inputs, choices, observed = call.groups
    main, source = observed.sources(inputs)
    inputs = replace(inputs, source=None)
    if not (inputs.x or inputs.weights):
        inputs.q = main
    for name in given_of(observed, "rows", "head", "positions", "single"):
        hint = "leave it out: no bug is looked for in formulas of your own"
        raise ConventionError(f"{flag_of(name)} has no effect with --formulas", hint)
    trace, _ = program.trace(inputs, choices, quiet=observed.quiet)
    computed = [name for name, x in trace.stages() if x.expression]
    forward = [name for name in computed if not trace[name].kind.heading]
    file = read_source(
        source, selector=lambda name: True if _called(name, computed) else IF_NUMBERS
    )
    if observed.stage is not None and observed.stage not in computed:
        raise InputError(f"there is no stage {observed.stage!r}", nearest(observed.stage, forward))
    stage_names = computed if observed.stage is None else [observed.stage]
    stages = {stage: x for name, x in file.arrays.items() if (stage := _called(name, stage_names))}
    if len(file.arrays) == 1 and not stages:
        stages = dict.fromkeys([observed.stage or forward[-1]], *file.arrays.values())
    if not stages:
        hint = f"it has {listed(file.arrays)}; the stages are {', '.join(forward)}"
        raise InputError(f"{file.origin} holds none of the stages of the formulas", hint)
    numbers = nested("Observed", {name: stage_of(name, x) for name, x in stages.items()})
    names, tolerance = ("the formulas", "observed"), ("decimals", "rtol", "atol", "inside")
    subset = trace.keep({*stages})
    comparison = compare(subset, numbers, names=names, **given_of(observed, *tolerance))
    first = next((x.name for x in comparison.differing), None)
    head = "It matches: the numbers are those of these formulas."
    if first is not None:
        head = f"It differs. The first stage that does is {first}."
    code = 0 if comparison.same else 1
    if observed.verdict_form == "json":
        rows = [
            {"stage": x.name, "matches": x.same, "tolerance": x.rule, "differ": x.n_wrong}
            | {"of": x.wrong.size, "largest": x.largest, "at": x.place if x.at else x.shapes}
            for x in comparison.stages
        ]
        report = {"matches": comparison.same, "first": first, "stages": rows}
        return ReportResult(text="", data=report, show=observed, as_json=True, code=code)
    page: list[str] = []
    if observed.output or not observed.quiet:
        table, whole = FORMATS["table"].module(), comparison.trace(())
        page = [f"{head}\n\n", *table.text(whole, DisplayOptions(), diff_page(comparison))]
    return TextResult(pieces=page, show=observed, code=code)


def _called(name: str, stages: Collection[str]) -> str:
    """The stage that an array of this name is, or ""."""
    names = (name, *stages_named(name))
    return next((x for x in names if x in stages), "")
