"""attncli check --formulas: the stages of the user's own formulas beside what was observed."""

from __future__ import annotations

from collections.abc import Collection

from attncli.cli.commands import Observed
from attncli.cli.diff import stage_of
from attncli.cli.formulas import own_trace
from attncli.cli.groups import given_of
from attncli.cli.options import Choices, InputFlags
from attncli.cli.output import write_report, write_text
from attncli.compare import diff, nested
from attncli.convention import flag_of
from attncli.errors import ConventionError, InputError, listed, nearest
from attncli.files.load import IF_NUMBERS, load
from attncli.files.roles import gradient_named
from attncli.stages import CALLED
from attncli.views.diff import diff_page
from attncli.views.formats.table import text
from attncli.views.select import DisplayOptions


def check_own(
    inputs: InputFlags, choices: Choices, observed: Observed, source: str, *, as_json: bool
) -> int:
    """Compares what was observed with the stages of the formulas; 0 where all match, else 1."""
    for name in given_of(observed, "rows", "head", "positions", "suggest", "single"):
        hint = "leave it out: no bug is looked for in formulas of your own"
        raise ConventionError(f"{flag_of(name)} has no effect with --formulas", hint)
    trace, _ = own_trace(inputs, choices, quiet=observed.quiet)
    computed = [name for name, x in trace.stages() if x.expression]
    forward = [name for name in computed if not trace[name].kind.heading]
    file = load(source, wanted=lambda name: True if _stage_of(name, computed) else IF_NUMBERS)
    stages = {own: x for name, x in file.arrays.items() if (own := _stage_of(name, computed))}
    if observed.stage is not None and observed.stage not in computed:
        raise InputError(f"there is no stage {observed.stage!r}", nearest(observed.stage, forward))
    if len(file.arrays) == 1 and (observed.stage or not stages):
        stages = dict.fromkeys([observed.stage or forward[-1]], *file.arrays.values())
    if observed.stage is not None:
        stages = {name: x for name, x in stages.items() if name == observed.stage}
    if not stages:
        hint = f"it has {listed(file.arrays)}; the stages are {', '.join(forward)}"
        raise InputError(f"{file.origin} holds none of the stages of the formulas", hint)
    numbers = nested("Observed", {name: stage_of(name, x) for name, x in stages.items()})
    names, tolerance = ("the formulas", "observed"), ("decimals", "rtol", "atol", "inside")
    kept = trace.keep({*stages})
    comparison = diff(kept, numbers, names=names, **given_of(observed, *tolerance))
    first = next((x.name for x in comparison.differing), None)
    head = "It matches: the numbers are those of these formulas."
    if first is not None:
        head = f"It differs. The first stage that does is {first}."
    if as_json:
        rows = [
            {"stage": x.name, "matches": x.same, "tolerance": x.rule, "differ": x.n_wrong}
            | {"of": x.wrong.size, "largest": x.largest, "at": x.place if x.at else x.shapes}
            for x in comparison.stages
        ]
        report = {"matches": comparison.same, "first": first, "stages": rows}
        write_report("", report, observed, as_json=True)
    elif observed.output or not observed.quiet:
        page = text(comparison.trace(()), DisplayOptions(), diff_page(comparison))
        write_text([f"{head}\n\n", *page], observed)
    return 0 if comparison.same else 1


def _stage_of(name: str, stages: Collection[str]) -> str:
    """The stage that an array of this name is, or ""."""
    names = (name, gradient_named(name), CALLED.get(name.lower(), ""))
    return next((x for x in names if x in stages), "")
