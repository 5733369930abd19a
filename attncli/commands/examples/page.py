"""Worked examples and what is computed, as lines for the terminal or as plain data.

article.py writes those of an article as a page of Markdown or HTML.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from attncli.commands.examples.judge import Judgement, Result
from attncli.commands.examples.printed import VERDICTS, Verdict
from attncli.commands.examples.runs import Run
from attncli.commands.examples.schema import Basis
from attncli.commands.examples.titles import Article
from attncli.files.numbers import nan_to_text
from attncli.formats.scatter import scatter
from attncli.page.text import clean, fold, pad, sentence, width_of

SCHEMA = 3  # from 3 on claims have a place and a run, and examples have figures
EXACT = 15  # decimals from which a number is written in full: float64 has hardly more
MORE = 2  # decimals beyond the printed ones, to show where a number was rounded
FEWEST = 4
BASIS = len("shown here")
SHOWN = 24  # numbers of an array that are written out: more would be a page
PLOT = 64, 13  # columns and lines of a plot

_MANY = {"agrees as rounded": "agree as rounded", "differs": "differ", "agrees": "agree"}
_RELATIONS = {"equal": "equal to", "close_to": "close to", "unequal": "other than"}
_CAUSES = {"carried over": "it follows from an earlier line"}


class Row(NamedTuple):
    """One claim: what is expected, what is computed, and why they differ where they do.

    basis     whether what is expected is printed, claimed or shown here
    expected  "" where there is nothing to compare with
    place     where a printed number stands in the article, "" for others
    run       the call that computes it
    """

    claim: str
    basis: Basis
    expected: str
    ours: str
    verdict: str
    ok: bool
    reasons: tuple[str, ...]
    place: str
    run: Run


def rows(result: Result) -> Iterator[Row]:
    """The claims of an example, judged."""
    for judgement in result.judgements:
        claim, ours, expected = judgement.claim, "", ""
        if claim.numbers is not None:
            expected = _nested(claim.numbers.text, str)
        elif claim.states is not None:
            ((relation, value),) = claim.states.items()
            expected = f"{_RELATIONS.get(relation, relation)} {value:g}"
        decimals = _decimals(judgement)
        if judgement.ours is not None:
            ours = _numbers(judgement.ours, decimals)
        cause = _CAUSES.get(judgement.cause or "", judgement.cause)
        reasons = [sentence(claim.why)] if claim.why else []
        for other in judgement.alternatives or filter(None, [judgement.recomputed]):
            reasons.append(f"{sentence(other.text)}: {_numbers(other.ours, decimals)}")
        reasons += [] if judgement.ok else [f"not as recorded: {sentence(judgement.problem)}"]
        yield Row(
            claim=sentence(claim.text),
            basis=claim.basis,
            expected=clean(expected),
            ours=ours,
            verdict=judgement.verdict + (f" ({cause})" if cause else ""),
            ok=judgement.ok,
            reasons=tuple(reasons),
            place=sentence(claim.place or result.example.place) if claim.printed else "",
            run=result.run if claim.words is None else Run(claim.words),
        )


def _decimals(judgement: Judgement) -> int:
    """Decimals for our numbers: a few more than are expected."""
    expected = judgement.claim.numbers
    if expected is None:
        return FEWEST + MORE
    is_counted = expected.decimals < 10**6  # not so for an expression such as cos(0.0001)
    most = int(expected.decimals[is_counted].max(initial=0)) + MORE
    return max(most, FEWEST if is_counted.all() else FEWEST + MORE)


def _numbers(value: npt.NDArray[np.float64], decimals: int) -> str:
    """Numbers as text; of many only how many there are and their range."""

    def write(x: float) -> str:
        if not math.isfinite(x) or decimals >= EXACT:
            return repr(float(x))
        text = f"{x:.{decimals}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        if x and text in ("0", "-0"):  # what would show nothing of it
            return f"{x:.2g}"
        return "0" if text == "-0" else text

    if value.size <= SHOWN:
        return _nested(value.tolist(), write)
    size = " × ".join(map(str, value.shape))
    if value.min() == value.max():
        return f"{size} numbers, each {write(value.min())}"
    return f"{size} numbers from {write(value.min())} to {write(value.max())}"


def _nested(value: Any, write: Callable[[Any], str]) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_nested(entry, write) for entry in value)}]"
    return write(value)


def figures(result: Result) -> Iterator[tuple[str, Run]]:
    """The figures of an article that an example draws, each with its call."""
    for figure in result.example.figures:
        yield sentence(figure.text), result.example.run_of_figure(figure)


def plot_of(result: Result) -> list[str]:
    """Points in a plane that an example computes, as a plot in text."""
    if result.trace is None:
        return []
    for _, stage in result.trace.stages():
        if stage.kind.plotted:
            points = stage.value[:, :2].astype(np.float64)
            return scatter(stage.names(stage.axes[0]), points, *PLOT)
    return []


# ---- lines for the terminal


def result_lines(result: Result, width: int | None, *, beside: str = "") -> Iterator[str]:
    """An example: each claim, what is expected and what is computed, and why they differ.

    beside  the line of the article where it stands above and need not be said again
    """
    example = result.example
    yield from fold(f"{clean(example.name)}  {sentence(example.title)}", width, 4, 0)
    if example.article.line != beside:
        yield from fold(example.article.line, width, 2, 2)
    if example.note:
        yield from fold(sentence(example.note), width, 2, 2)
    for words in filter(None, [result.needs and f"needs {result.needs}", _added(result)]):
        yield from fold(clean(words), width, 2, 2)
    yield from call_lines(result.run, width, 2)
    above = result.run
    for row in rows(result):
        yield ""
        yield from fold(f"{row.claim}: {row.verdict}", width, 2, 2)
        yield from call_lines(row.run, width, 4) if row.run != above else ()
        above = row.run
        for label, text in (
            (row.basis, row.expected),
            ("recomputed", row.ours),
            ("place", row.place),
        ):
            if text:
                yield from fold(f"{pad(label, BASIS)}  {text}", width, BASIS + 6, 4)
        for reason in row.reasons:
            yield from fold(reason, width, 4, 4)
    for name, run in figures(result):
        yield from ["", *fold(f"to see {name}:", width, 2, 2), *call_lines(run, width, 4)]
    if lines := plot_of(result):
        yield from ["", *(f"  {line}".rstrip() for line in lines)]


def _added(result: Result) -> str:
    return f"--vectors FILE {result.adds}" if result.adds else ""


def article_lines(results: Sequence[Result], width: int | None, article: Article) -> Iterator[str]:
    """The examples of an article in its order, and how many claims have each verdict."""
    yield from fold(article.line, width, 2, 0)
    for result in results:
        yield from ["", *result_lines(result, width, beside=article.line)]
    yield from ["", f"{len(results)} examples", *_count_lines(results, width)]


def counted_bases(results: Sequence[Result]) -> Iterator[str]:
    """How many claims have each verdict, a line for each basis that there is."""
    for basis, verdicts in verdict_counts(results).items():
        yield from [f"{basis}: {_counted(verdicts)}"] if verdicts else []


def call_lines(run: Run, width: int | None, indent: int) -> Iterator[str]:
    """A call as it is typed into a shell, whose lines go on after a backslash.

    What is longer than a line is not broken: within quotes a shell reads a backslash as it is.
    """
    line = ""
    for piece in map(clean, run.pieces):
        longer = f"{line} {piece}" if line else " " * indent + piece
        if line and width is not None and width_of(longer) + len(" \\") > width:
            yield f"{line} \\"
            longer = " " * (indent + 2) + piece
        line = longer
    yield line


def verification_lines(results: Sequence[Result], width: int | None = None) -> Iterator[str]:
    """One line an example and a summary."""
    names = max((len(result.example.name) for result in results), default=0)
    for result in results:
        counts = Counter(judgement.verdict for judgement in result.judgements)
        mark, text = "ok" if result.ok else "FAILED", _counted(counts)
        if result.needs:
            mark, text = "needs", clean(result.needs)
        line = f"{pad(mark, 6)}  {pad(clean(result.example.name), names)}  {text}"
        yield from fold(line, width, 10, 0)
        yield from call_lines(result.run, width, 8)
        for row in rows(result):
            for reason in row.reasons if not row.ok else ():
                yield from fold(f"{row.claim}: {reason}", width, 8, 8)
    is_ok = all(result.ok for result in results)
    state = "each as recorded" if is_ok else "not all as recorded"
    yield from ["", f"{len(results)} examples, {state}", *_count_lines(results, width)]


def _count_lines(results: Sequence[Result], width: int | None) -> Iterator[str]:
    for basis, verdicts in verdict_counts(results).items():
        yield from fold(f"{pad(basis, BASIS)}  {_counted(verdicts)}", width, BASIS + 4, 2)


def verdict_counts(results: Iterable[Result]) -> dict[Basis, dict[Verdict, int]]:
    """How many claims have each verdict, by where what is expected comes from."""
    counts = Counter((j.claim.basis, j.verdict) for result in results for j in result.judgements)
    return {
        basis: {verdict: counts[basis, verdict] for verdict in VERDICTS if counts[basis, verdict]}
        for basis in get_args(Basis)
    }


def _counted(counts: Mapping[Verdict, int]) -> str:
    words = (f"{n} {v if n == 1 else _MANY.get(v, v)}" for v, n in counts.items())
    return ", ".join(words) or "none"


# ---- data


def verification_data(results: Sequence[Result]) -> dict[str, Any]:
    """The results as plain data for scripts; NaN and infinity as strings.

    {schema, ok, counts, examples: [{name, title, source, run, ok, needs, adds, figures: [{figure,
    run}], claims: [{claim, run, stage, basis, place, printed, expected, states, ours, verdict,
    cause, ok, why, ways: [{how, ours}]}]}]}
    The counts are those of `verdict_counts`.
    """
    examples = [
        {
            "name": result.example.name,
            "title": result.example.title,
            "source": result.example.article.id,
            "run": result.run.shown,
            "ok": result.ok,
            "needs": result.needs,
            "adds": result.adds,
            "figures": [{"figure": name, "run": run.shown} for name, run in figures(result)],
            "claims": [*map(_claim_data, result.judgements, rows(result))],
        }
        for result in results
    ]
    is_ok = all(result.ok for result in results)
    counts = verdict_counts(results)
    return {"schema": SCHEMA, "ok": is_ok, "counts": counts, "examples": examples}


def _claim_data(judgement: Judgement, row: Row) -> dict[str, Any]:
    claim, ours = judgement.claim, judgement.ours
    return {
        "claim": claim.text,
        "run": row.run.shown,
        "stage": claim.stage,
        "basis": claim.basis,
        "place": row.place,
        "printed": None if claim.printed is None else claim.printed.text,
        "expected": None if claim.expected is None else claim.expected.text,
        "states": claim.states and nan_to_text(claim.states),
        "ours": None if ours is None else nan_to_text(ours.tolist()),
        "verdict": judgement.verdict,
        "cause": judgement.cause,
        "ok": judgement.ok,
        "why": claim.why,
        "ways": [
            {"how": other.text, "ours": nan_to_text(other.ours.tolist())}
            for other in judgement.alternatives
        ],
    }
