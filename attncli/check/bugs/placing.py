"""Bugs of positions: another form, another place to count from, left out, or put in too far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from attncli.check.bugs.hypothesis import Change, Clues, Hypothesis, Variant, hypothesis
from attncli.check.case import Case
from attncli.check.placement import Placement, Positions

Changed = tuple[Placement | None, str]
ALL = "columns exponent start carriers"


def _changed(change: Callable[[Placement, Case], Iterable[Changed]]) -> Change:
    """The cases with other placements: what change yields, each with its detail."""

    def cases(case: Case, _: Clues) -> Iterator[Variant]:
        if case.placement is not None:
            for placement, detail in change(case.placement, case):
                yield Variant(replace(case, placement=placement), detail)

    return cases


def _kind(wanted: Positions, instead: Positions) -> Change:
    def change(placement: Placement, _: Case) -> Iterator[Changed]:
        if placement.kind == instead:
            yield replace(placement, kind=wanted), ""

    return _changed(change)


def _in_halves(placement: Placement, _: Case) -> Iterator[Changed]:
    if not placement.is_rotary:
        yield replace(placement, in_halves=True), ""


def _left_out(placement: Placement, _: Case) -> Iterator[Changed]:
    yield None, ""
    for name, words in (("q", "of the queries alone"), ("k", "of the keys alone")):
        yield replace(placement, on=placement.on - {name}), words


def _not_on_values(placement: Placement, _: Case) -> Iterator[Changed]:
    if "v" in placement.on:
        yield replace(placement, on=placement.on - {"v"}), ""


def _on_values(placement: Placement, case: Case) -> Iterator[Changed]:
    if placement.is_rotary and case.v.shape[-1] % 2 == 0:
        yield replace(placement, on=placement.on | {"v"}), ""


def _from_1(placement: Placement, _: Case) -> Iterator[Changed]:
    """Rotary scores know only differences, so there it is no bug."""
    if not placement.is_rotary:
        starts = (placement.from_query, placement.from_past, placement.from_new)
        query, past, new = (start + 1 for start in starts)
        yield replace(placement, from_query=query, from_past=past, from_new=new), ""


def _restarted(placement: Placement, _: Case) -> Iterator[Changed]:
    if placement.n_past:
        yield replace(placement, from_query=0), "of the queries alone"
        yield replace(placement, from_query=0, from_new=0), "of the new keys as well"


_ROTARY_THREADS = "transformers#25199, nanochat#264, tt-metal#26844"
_EXPONENT_THREADS = "jadore801120/attention-is-all-you-need-pytorch#32, SamLynnEvans/Transformer#25"

PLACING: tuple[Hypothesis, ...] = (
    hypothesis(
        "rotary pairs interleaved, not in halves",
        _kind("rope-interleaved", "rope-halves"),
        "columns",
        "entries 2i and 2i + 1 are turned as a pair where entries i and i + d/2 should be",
        _ROTARY_THREADS,
    ),
    hypothesis(
        "rotary pairs in halves, not interleaved",
        _kind("rope-halves", "rope-interleaved"),
        "columns",
        "entries i and i + d/2 are turned as a pair where entries 2i and 2i + 1 should be",
        _ROTARY_THREADS,
    ),
    hypothesis(
        "sinusoid exponent 2·2i/d, not 2i/d",
        _kind("article", "paper"),
        "exponent",
        "2i is counted twice: a loop over the even columns multiplies its index by 2 again",
        _EXPONENT_THREADS,
    ),
    hypothesis(
        "sinusoid exponent 2i/d, not 2·2i/d",
        _kind("paper", "article"),
        "exponent",
        "2i is counted once, as the paper has it, where the article's form counts it twice",
        _EXPONENT_THREADS,
    ),
    hypothesis(
        "sines, then cosines, not interleaved",
        _changed(_in_halves),
        "columns",
        "a layout, no bug by itself: the columns stand in another order, which weights trained "
        "with the one do not fit in the other",
        "allennlp#2993",
    ),
    hypothesis(
        "positions left out",
        _changed(_left_out),
        ALL,
        "q, k and v go into attention without positions, so the order of the tokens is lost",
    ),
    hypothesis(
        "positions left out of the values",
        _changed(_not_on_values),
        "carriers",
        "positions are added to q and k alone where the embeddings themselves should have them",
    ),
    hypothesis(
        "rotary positions in the values too",
        _changed(_on_values),
        "carriers",
        "the values are turned as well, where only queries and keys should be",
    ),
    hypothesis(
        "positions counted from 1, not 0",
        _changed(_from_1),
        "start",
        "the first token gets position 1: off by one",
    ),
    hypothesis(
        "positions restarted at 0 after the past",
        _changed(_restarted),
        "start",
        "new tokens count from 0 although cached ones stand before them",
    ),
)
