"""attncli check: does this attention match, and if not, which bug is it?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attncli.cli.groups import flag
from attncli.cli.options import Choices, Inputs
from attncli.errors import ConventionError, InputError, ShapeError
from attncli.stages import CONCAT, MAPS, OUTPUT

if TYPE_CHECKING:
    from attncli.check import Verdict
    from attncli.cli.inputs import AttentionInputs

STAGES = (*MAPS, OUTPUT, CONCAT)
ENDINGS = {"json": "json", "txt": "text", "log": "text"}
"""Ending of --output → format of the verdict."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What was observed, and how closely it has to match."""

    PANEL: ClassVar = "Checking"

    observed: str = flag(
        "The numbers to check: one stage, or a file of several named stages.",
        "SOURCE",
        required=True,
    )
    stage: str | None = flag(f"Which stage they are: {', '.join(STAGES)}.", "NAME")
    rows: str | None = flag("Only these query rows, from 1.", "A:B")
    head: int | None = flag("Only this head, from 1.", min=1)
    positions: Literal["paper", "article", "rope-halves", "rope-interleaved"] | None = flag(
        "Put these in first: sinusoidal, added to q, k and v (paper, article), or rotary, "
        "turned into q and k. The inputs, cached ones too, are then given without positions."
    )
    decimals: int | None = flag("They were printed with so many decimals.", min=0, max=17)
    rtol: float | None = flag("Relative tolerance.")
    atol: float | None = flag("Absolute tolerance.")
    single: bool = flag("Try single bugs only, not pairs of them.")
    suggest: str | None = flag(
        "Where several bugs fit: write an input (.npz) that distinguishes them.", "FILE"
    )
    format: Literal["text", "json"] | None = flag("text (the default) or json.")
    output: str | None = flag("Write the verdict to a file.", "FILE", names=("--output", "-o"))
    force: bool = flag("Replace the files written.")
    quiet: bool = flag("Print nothing; use the exit code.")
    debug: bool = flag("Show a traceback where something fails.")


def check(inputs: Inputs, choices: Choices, observed: Observed) -> int:
    """Does my attention match, and if not, which bug is it?

    Compares numbers from elsewhere with exact attention on the same inputs. Where they differ,
    every known bug is tried, singly and in pairs; the answer names it, or says where it differs.

    Example: attncli check --q samples/three-tokens.json --observed '[[0.42, 0.42, 0.16]]'
    --stage weights --rows 1 --decimals 2

    Exit code 0: it matches; 1: it differs; 2: the call or an input is wrong.
    """
    from attncli.cli.inputs import read_inputs
    from attncli.cli.output import note

    _check_flags(observed, inputs)
    given = read_inputs(inputs, choices)
    numbers, notes = _numbers(observed, given)
    for text in [*given.notes, *notes]:
        note(text, quiet=observed.quiet)
    verdict = _verdict(numbers, given, observed)
    if not observed.quiet or observed.output:
        _say(verdict, observed)
    if observed.suggest is not None:
        _suggest(verdict, given, observed)
    return 0 if verdict.matches else 1


def _check_flags(observed: Observed, inputs: Inputs) -> None:
    if inputs.heads is not None and observed.positions in ("paper", "article"):
        raise ConventionError(
            f"--positions {observed.positions} would be added to each head, not to the embedding",
            "add them first (attncli posenc --add), or give q, k and v in one head",
        )
    if observed.decimals is not None and (observed.rtol, observed.atol) != (None, None):
        raise ConventionError("--decimals and --rtol or --atol are two rules", "use one of them")
    if observed.stage is not None and observed.stage not in STAGES:
        raise ConventionError(f"there is no stage {observed.stage!r}", f"use {', '.join(STAGES)}")
    if observed.suggest is not None and not observed.suggest.endswith(".npz"):
        raise ConventionError(f"--suggest {observed.suggest} is no npz file", "end it in .npz")
    _, dot, ending = (observed.output or "").rpartition("/")[2].rpartition(".")
    if observed.format is None and dot and ending.lower() not in ENDINGS:
        raise ConventionError(
            f"the ending of {observed.output} names no format", "add --format text or json"
        )
    if observed.force and not (observed.output or observed.suggest):
        raise ConventionError("--force has no effect alone", "add --output or --suggest")
    _rows(observed)  # not understood, it is refused before anything is read


def _rows(observed: Observed) -> slice | None:
    from attncli.cli.parsing import slice_of

    return None if observed.rows is None else slice(*slice_of(observed.rows, "--rows"))


def _numbers(
    observed: Observed, given: "AttentionInputs"
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The observed stages by name, and notes on the file they came from."""
    from attncli.files.load import load
    from attncli.files.messages import listing
    from attncli.files.roles import role_of

    loaded = load(observed.observed)
    if observed.stage is None and loaded.member is None and loaded.trace is None:
        _check_names(loaded)
    named = {name: x for name, x in loaded.arrays.items() if name in STAGES}
    if observed.stage is not None:
        return {observed.stage: _only(loaded, observed.stage)}, loaded.warnings
    if named and loaded.member is None:
        others = [name for name in loaded.arrays if not (name in STAGES or role_of(name))]
        text = f"{loaded.origin}: not compared, as they are no stages: {listing(others)}"
        return named, (*loaded.warnings, *([text] if others else ()))
    array = _only(loaded, "")
    merged = given.in_heads and array.ndim == given.arguments["q"].ndim - 1
    return {CONCAT if merged else OUTPUT: array}, loaded.warnings


def _check_names(loaded: Any) -> None:
    """InputError for a stage that cannot be read, or that is misspelt: it would be ignored."""
    from difflib import get_close_matches

    from attncli.files.messages import quote
    from attncli.files.roles import role_of

    for name in (*loaded.arrays, *loaded.left_out):
        if name in STAGES and name in loaded.left_out:
            raise InputError(loaded.left_out[name], "mend it, or name another stage with --stage")
        close = get_close_matches(name.lower(), STAGES, n=1, cutoff=0.75)
        if name not in STAGES and not role_of(name) and close:
            raise InputError(
                f"{loaded.origin} names {quote(name)}, which is not a stage",
                f"did you mean {close[0]}?",
            )


def _only(loaded: Any, name: str) -> Any:
    """The array of a stage: that of its name, else the only one."""
    if name in loaded.arrays:
        return loaded.arrays[name]
    if len(loaded.arrays) == 1:
        return next(iter(loaded.arrays.values()))
    names = ", ".join(loaded.arrays)
    raise InputError(
        f"{loaded.origin} holds several arrays: {names}", f"name one: {loaded.origin}::NAME"
    )


def _verdict(numbers: dict[str, Any], given: "AttentionInputs", observed: Observed) -> "Verdict":
    from attncli.check import check as compare
    from attncli.cli.terminal import progress_bar

    rows = _rows(observed)
    n_queries = given.score_shape[-2]
    if rows is not None and not range(n_queries)[rows]:
        raise ShapeError(f"there are no rows {observed.rows}", f"there are {n_queries} queries")
    n_heads = given.score_shape[-3] if len(given.score_shape) > 2 else 1
    if observed.head is not None and observed.head > n_heads:
        heads = "is only 1 head" if n_heads == 1 else f"are {n_heads} heads"
        raise ShapeError(f"there is no head {observed.head}", f"there {heads}")
    with progress_bar("bugs tried", quiet=observed.quiet) as progress:
        return compare(
            numbers,
            positions=observed.positions,
            decimals=observed.decimals,
            rtol=observed.rtol,
            atol=observed.atol,
            rows=rows,
            heads=None if observed.head is None else observed.head - 1,
            pairs=not observed.single,
            progress=progress,
            **given.arguments,
            **given.labels,
        )


def _say(verdict: "Verdict", observed: Observed) -> None:
    import sys

    from attncli.check import report_text, verdict_to_dict

    ending = (observed.output or "").rpartition(".")[2].lower()
    form = observed.format or ENDINGS.get(ending, "text")
    if form == "json":
        import json

        text = json.dumps(verdict_to_dict(verdict), indent=2, ensure_ascii=False)
    else:
        text = report_text(verdict)
    if observed.output is None:
        sys.stdout.write(f"{text}\n")
        return
    from attncli.files.write import write_atomically

    data = f"{text}\n".encode()
    write_atomically(observed.output, lambda file: file.write(data), force=observed.force)


def _suggest(verdict: "Verdict", given: "AttentionInputs", observed: Observed) -> None:
    """Writes an input on which the bugs that fit all differ; says why where there is none."""
    from attncli.check import suggest_input
    from attncli.cli.output import note

    if len(verdict.explanations) < 2:
        note(
            f"{observed.suggest} is not written: there are no two bugs to distinguish",
            quiet=observed.quiet,
        )
        return
    stages = tuple(stage.name for stage in verdict.stages) or (OUTPUT,)
    found = suggest_input(
        verdict.explanations,
        convention=given.arguments["convention"],
        positions=observed.positions,
        stages=stages,
    )
    if found is None:
        note(
            "no small input distinguishes them: they may always compute the same",
            quiet=observed.quiet,
        )
        return
    _write_suggestion(found, observed)


def _write_suggestion(found: Any, observed: Observed) -> None:
    import numpy as np

    from attncli.cli.output import note
    from attncli.files.write import write_atomically

    n = found.n_past
    arrays = {"q": found.q, "k": found.k[..., n:, :], "v": found.v[..., n:, :]}
    if n:
        arrays |= {"past_k": found.k[..., :n, :], "past_v": found.v[..., :n, :]}
    if found.mask is not None:
        arrays["mask"] = found.mask
    write_atomically(
        observed.suggest or "", lambda file: np.savez(file, **arrays), force=observed.force
    )
    lengths = "" if found.kv_len is None else f", --kv-len {','.join(map(str, found.kv_len))}"
    note(f"{observed.suggest}: {found.words}{lengths}; run yours on it", quiet=observed.quiet)
