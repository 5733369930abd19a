"""Worked examples beside what comes out: as lines for the terminal, Markdown, or plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from attncli.documents import Example, Judgement, Piece, Recomputed, Result, Verification
from attncli.files.numbers import nan_to_text
from attncli.views.markdown import escape
from attncli.views.safe import clean, fold, pad, sentence

SCHEMA = 1
EXACT = 15  # decimals from which a number is written in full
MORE = 2  # decimals beyond the printed ones
FEWEST = 4
SHOWN = 24  # numbers of an array that are written out

_RELATIONS = {"equal": "equal to", "close_to": "close to", "unequal": "other than"}


class Row(NamedTuple):
    """One claim: what was printed, what comes out, and why they differ where they do."""

    claim: str
    printed: str
    ours: str
    verdict: str
    ok: bool
    reasons: tuple[str, ...]


def rows(result: Result) -> list[Row]:
    """The claims of an example, judged."""
    return [_row(judgement) for judgement in result.judgements]


def _row(judgement: Judgement) -> Row:
    claim = judgement.claim
    verdict = judgement.verdict + (f" ({judgement.cause})" if judgement.cause else "")
    ours = "" if judgement.ours is None else _piece(judgement.ours, _decimals(judgement))
    reasons = tuple(_reasons(judgement))
    printed = clean(_printed(judgement))
    return Row(sentence(claim.text), printed, ours, verdict, judgement.ok, reasons)


def _printed(judgement: Judgement) -> str:
    claim = judgement.claim
    if claim.printed is not None:
        return _texts(claim.printed.text)
    if claim.states is not None:
        return f"stated: {_RELATIONS[claim.states.relation]} {claim.states.value:g}"
    return "not printed"


def _texts(text: Any) -> str:
    if isinstance(text, str):
        return text
    inner = [_texts(entry) for entry in text]
    return f"[{', '.join(inner)}]"


def _decimals(judgement: Judgement) -> int:
    """Decimals for our numbers: a few more than were printed."""
    printed = judgement.claim.printed
    if printed is None:
        return FEWEST + MORE
    is_counted = printed.decimals < 10**6  # not so for an expression such as cos(0.0001)
    most = int(printed.decimals[is_counted].max(initial=0)) + MORE
    return max(most, FEWEST if is_counted.all() else FEWEST + MORE)


def _piece(piece: Piece, decimals: int) -> str:
    value = np.asarray(piece.value)
    if value.size > SHOWN:
        flat = value.reshape(-1)
        size = " × ".join(map(str, value.shape))
        low, high = (_number(float(x), decimals) for x in (flat.min(), flat.max()))
        return f"{size} numbers from {low} to {high}"
    return _nested(value.tolist(), decimals)


def _nested(value: Any, decimals: int) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_nested(entry, decimals) for entry in value)}]"
    return _number(float(value), decimals) if not isinstance(value, str) else clean(value)


def _number(x: float, decimals: int) -> str:
    if not math.isfinite(x) or decimals >= EXACT:
        return repr(x)
    text = f"{x:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _reasons(judgement: Judgement) -> Iterator[str]:
    decimals = _decimals(judgement)
    if judgement.claim.why:
        yield sentence(judgement.claim.why)
    for way in judgement.ways:
        yield f"{sentence(way.how)}: {_piece(way.ours, decimals)}"
    if judgement.own is not None and judgement.verdict == "differs" and not judgement.ways:
        yield f"going on from its own {' and '.join(judgement.own.start)}: " + _piece(
            judgement.own.ours, decimals
        )
    if not judgement.ok:
        yield f"not as recorded: {sentence(judgement.problem)}"


def source_line(example: Example) -> str:
    """Author, title and date of the document, and its number."""
    source = example.source
    named = [source.author, f"“{source.title}”", source.date]
    return clean(f"{', '.join(part for part in named if part)} (document {source.id})")


def result_lines(result: Result, width: int | None) -> Iterator[str]:
    """An example for the terminal: each claim, printed beside ours, and why they differ."""
    example = result.example
    yield f"{clean(example.name)}  {sentence(example.title)}"
    yield from fold(source_line(example), width, 2, 2)
    if example.note:
        yield from fold(sentence(example.note), width, 2, 2)
    if result.needs:
        yield f"  needs {clean(result.needs)}"
    for row in rows(result):
        yield ""
        yield f"  {row.claim}: {row.verdict}"
        yield from fold(f"printed  {row.printed}", width, 13, 4)
        if row.ours:
            yield from fold(f"ours     {row.ours}", width, 13, 4)
        for reason in row.reasons:
            yield from fold(reason, width, 4, 4)


def list_lines(examples: Sequence[Example]) -> Iterator[str]:
    """Every example by name, under the document it comes from."""
    names = max((len(example.name) for example in examples), default=0)
    said = ""
    for example in examples:
        line = source_line(example)
        if line != said:
            yield from [""] if said else []
            yield line
            said = line
        yield f"  {pad(clean(example.name), names)}  {sentence(example.title)}"


def verification_lines(verification: Verification) -> Iterator[str]:
    """One line an example and a summary."""
    names = max((len(result.example.name) for result in verification.results), default=0)
    for result in verification.results:
        mark = "needs" if result.needs else "ok" if result.ok else "FAILED"
        what = f"needs {clean(result.needs)}" if result.needs else _counted(result)
        yield f"{pad(mark, 6)}  {pad(clean(result.example.name), names)}  {what}"
        for row in rows(result):
            yield from (f"        {row.claim}: {reason}" for reason in row.reasons if not row.ok)
    counts = ", ".join(f"{n} {verdict}" for verdict, n in verification.counts.items())
    state = "each as recorded" if verification.ok else "not all as recorded"
    yield ""
    yield f"{len(verification.results)} examples, {state}: {counts}"


def _counted(result: Result) -> str:
    counts: dict[str, int] = {}
    for judgement in result.judgements:
        counts[judgement.verdict] = counts.get(judgement.verdict, 0) + 1
    return ", ".join(f"{n} {verdict}" for verdict, n in counts.items())


def errata(results: Iterable[Result]) -> Iterator[str]:
    """Markdown: a table of claims for each example, fit for an errata note."""
    for at, result in enumerate(results):
        yield from [""] if at else []
        yield f"## {escape(clean(result.example.name))}: {escape(sentence(result.example.title))}"
        yield from ["", escape(source_line(result.example)), ""]
        if result.needs:
            yield f"Needs {escape(clean(result.needs))}."
            continue
        yield "| claim | printed | recomputed | verdict | why |"
        yield "| :-- | :-- | :-- | :-- | :-- |"
        for row in rows(result):
            why = " ".join(f"{reason.rstrip('.')}." for reason in row.reasons)
            cells = (row.claim, row.printed, row.ours, row.verdict, why)
            yield f"| {' | '.join(escape(cell) for cell in cells)} |"


def verification_data(verification: Verification) -> dict[str, Any]:
    """The verification as plain data for scripts.

    {schema, ok, counts, examples: [{name, title, source, ok, needs, claims: [{claim, stage,
    printed, ours, verdict, cause, ok, why, ways: [{how, ours}]}]}]}; NaN and infinity as strings.
    """
    return {
        "schema": SCHEMA,
        "ok": verification.ok,
        "counts": dict(verification.counts),
        "examples": [_result_data(result) for result in verification.results],
    }


def _result_data(result: Result) -> dict[str, Any]:
    return {
        "name": result.example.name,
        "title": result.example.title,
        "source": result.example.source.id,
        "ok": result.ok,
        "needs": result.needs,
        "claims": [_claim_data(judgement) for judgement in result.judgements],
    }


def _claim_data(judgement: Judgement) -> dict[str, Any]:
    printed = judgement.claim.printed
    return {
        "claim": judgement.claim.text,
        "stage": judgement.claim.stage,
        "printed": None if printed is None else printed.text,
        "ours": None if judgement.ours is None else _plain(judgement.ours),
        "verdict": judgement.verdict,
        "cause": judgement.cause,
        "ok": judgement.ok,
        "why": judgement.claim.why,
        "ways": [_way_data(way) for way in judgement.ways],
    }


def _way_data(way: Recomputed) -> dict[str, Any]:
    return {"how": way.how, "ours": _plain(way.ours)}


def _plain(piece: Piece) -> Any:
    return nan_to_text(np.asarray(piece.value).tolist())
