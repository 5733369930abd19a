"""attncli model: a checkpoint on disk and a sentence → what every head does, any layer's stages."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from attncli import budget
from attncli.budget import FLOAT
from attncli.cli.groups import given_of
from attncli.cli.options import DisplayFlags
from attncli.cli.output import LEAST_HEIGHT, note
from attncli.cli.results import ReportResult, Result, TraceResult
from attncli.commands.model.call import Calls
from attncli.commands.model.directory import Directory, open_directory
from attncli.commands.model.flags import ModelFlags
from attncli.commands.model.heads import MEASURES
from attncli.commands.model.page import summary_page
from attncli.commands.model.stacks import layer_trace, model_trace, of_layer
from attncli.errors import ConventionError, InputError, MissingExtraError
from attncli.files.messages import count
from attncli.files.write import check_dump
from attncli.formats import EXACT, FIGURE, PAGE
from attncli.page.explain import explain_page
from attncli.page.text import quoted, shorten
from attncli.stages import WEIGHTS
from attncli.trace import Trace

if TYPE_CHECKING:
    from attncli.commands.model.checkpoint import Ran
    from attncli.recorded import RecordedCall

PRECISION, OF_SUMMARY = 3, 2  # decimals: 12 heads then stand beside each other in 80 columns
_TOKENS = 12  # that a note lists
_OF_REPORTS = {"format", "force", "quiet", "debug", "color", "max_size"}
"""The showing flags that a report has a use for, besides --output."""
_PACKAGES = {"torch", "transformers", "tokenizers", "safetensors", "huggingface_hub"}


@dataclass(frozen=True)
class DumpedResult(Result):
    """A result, and the captured calls that are written once it has been shown."""

    result: Result
    ran: Ran
    path: str
    force: bool

    def with_call(self, call: RecordedCall | None) -> DumpedResult:
        """The same, its trace with the call that gave it."""
        return replace(self, result=self.result.with_call(call))

    def present(self) -> int:
        """Shows it, and writes the file, last: now the call is known to be right; the exit code."""
        try:
            code = self.result.present()
        except (BrokenPipeError, SystemExit):  # a reader that went away, as Rich says it, too
            self._dump()
            raise
        self._dump()
        return code

    def _dump(self) -> None:
        calls = (attention.call for attention in self.ran.attentions)
        Calls(calls).save(self.path, force=self.force)


def model(read: ModelFlags, show: DisplayFlags) -> Result:
    """What the flags ask for of the attentions of a model, which is run, or their verdicts."""
    _check_call(read, show)
    if read.dump is not None:
        check_dump(read.dump, force=show.force)
    directory = open_directory(read.directory or "")
    width = 4 if read.dtype == "float32" else None
    of_weights = directory.n_bytes(width)
    budget.check_bytes(of_weights, f"the weights of {directory.name} take")
    try:
        from attncli.commands.model.checkpoint import run
    except ImportError as problem:
        if (problem.name or "").partition(".")[0] not in _PACKAGES:
            raise
        needs = f"attncli model needs the package {problem.name}"
        raise MissingExtraError(needs, "pip install 'attncli[models]'") from None
    if show.head is not None and read.layer is None and show.form.holds in {PAGE, FIGURE}:
        show = replace(show, stage=show.stage or [WEIGHTS])
    before = partial(_check_room, read, show, of_weights)
    dtype = read.dtype or "stored"
    ran = run(directory, read.sentence or "", read.target, dtype=dtype, before=before)
    note(*ran.notes, quiet=show.quiet)
    result = _checked(ran, read.layer, show) if read.check else _shown(ran, read, directory, show)
    return result if read.dump is None else DumpedResult(result, ran, read.dump, show.force)


def _shown(ran: Ran, read: ModelFlags, directory: Directory, show: DisplayFlags) -> Result:
    """The summary, or the layer that was asked for."""
    stages, page = None if read.layer is not None else _kept(show), explain_page
    trace, decimals, height = _trace(ran, read, directory, stages), PRECISION, LEAST_HEIGHT
    if read.layer is None:
        page = summary_page
        decimals = PRECISION if stages is None or show.stage else OF_SUMMARY
    elif show.stage:
        height = 0
    form = show.form
    # The table of one query has no room for them.
    has_notes = form.notes and not (form.holds == PAGE and show.query)
    return TraceResult(
        trace=trace,
        show=show,
        page=page,
        precision=decimals,
        least_height=height,
        remarks=() if has_notes else trace.notes,
    )


def _checked(ran: Ran, layer: int | None, show: DisplayFlags) -> Result:
    """Whether the model's own outputs are exact attention of its q, k and v."""
    from attncli.commands.check.report import summary_text, summary_to_dict

    attentions = (
        [attention for _, attention in of_layer(ran.attentions, layer)] if layer else ran.attentions
    )
    verdicts = {attention.call.key: attention.call.check() for attention in attentions}
    return ReportResult(
        text=summary_text(verdicts),
        data=summary_to_dict(verdicts),
        show=show,
        as_json=show.form.name == "json",
        code=0 if all(verdicts.values()) else 1,
    )


def _check_call(read: ModelFlags, show: DisplayFlags) -> None:
    """Raises ConventionError or InputError for what is missing or has no effect."""
    if read.directory is None or read.sentence is None:
        message = (
            "DIR and SENTENCE are missing" if read.directory is None else "there is no SENTENCE"
        )
        raise ConventionError(message, 'write attncli model DIR "…"')
    for option, text in (("the sentence", read.sentence), ("--target", read.target)):
        if text is not None and not text.strip():
            raise InputError(f"{option} is empty", "give it at least one word")
    if read.dump is not None and read.dump == show.output:
        raise ConventionError("--output and --dump name one file", "name two")
    if read.check:
        others = [name for name in given_of(replace(show, output=None)) if name not in _OF_REPORTS]
        for name in others:
            raise ConventionError(f"--{name} has no effect with --check", "leave out one of them")
        if show.form.name not in {"table", "json"}:
            raise ConventionError(f"a report is no {show.form.name}", "use --format json")
    is_summary = read.layer is None and show.head is None and _is_measured(show.stage or ())
    flags = ("cell", "query", "arcs") if show.full else ("cell", "query", "arcs", "work")
    for name in given_of(show, *flags) if is_summary else ():
        raise ConventionError(f"--{name} is for weights, not for a summary", "add --layer N")


def _kept(show: DisplayFlags) -> Collection[str] | None:
    """Which stages of each layer are kept beside the summary; None for all of them."""
    form = show.form
    if show.full or (form.holds == EXACT and form.name in {"json", "npz", "npy"}):
        return None
    if not _is_measured(show.stage or ()):
        return None
    return {"mask", WEIGHTS} if form.every else ()


def _is_measured(stages: Collection[str]) -> bool:
    """Whether these are measures of heads, as the summary has them: all of them, if none."""
    return {name.rpartition(".")[2] for name in stages} <= {measure.name for measure in MEASURES}


def _trace(
    ran: Ran, read: ModelFlags, directory: Directory, stages: Collection[str] | None
) -> Trace:
    """The summary and the layers, or the layer that was asked for."""
    names = [attention.call.name for attention in ran.attentions]
    notes = [f"{ran.kind}, {ran.dtype}, {budget.in_bytes(ran.n_bytes)} of weights"]
    for labels in (x.labels for x in (ran.tokens, ran.target) if x):
        text = " ".join(quoted(shorten(label)) for label in labels[:_TOKENS])
        more = " …" * (len(labels) > _TOKENS)
        notes.append(f"{count(len(labels), 'token')}: {text}{more}")
    if ran.is_half:
        notes.append("the encoder alone: --target SENTENCE is for the decoder")
    if read.layer is not None:
        title = f"Layer {read.layer} of {directory.name}"
        return layer_trace(title, ran.attentions, read.layer, notes)
    ends = dict.fromkeys((names[0], names[-1]))
    notes.append(f"modules, counted from 0: {' … '.join(ends)}")
    title = f"What each head of {directory.name} does"
    return model_trace(title, ran.attentions, stages, notes)


def _check_room(
    read: ModelFlags, show: DisplayFlags, of_weights: int, shapes: Sequence[tuple[int, ...]]
) -> None:
    """SizeError where stages of scores of these shapes do not fit beside the weights."""
    stages = () if read.check else _kept(show)
    shapes = [*{*shapes}] if read.layer is not None else shapes  # each kind once in a layer
    sizes = [FLOAT * math.prod(shape) for shape in shapes]
    n_kept = 5 if stages is None or read.layer is not None else min(len(stages), 1)
    need = of_weights + max(5 * max(sizes, default=0), n_kept * sum(sizes))
    message = f"the stages of {count(len(sizes), 'attention')} need"
    budget.check_bytes(need, message, "give a shorter sentence, or --layer N")
