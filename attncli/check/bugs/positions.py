"""Bugs of positions: another form, another place to count from, left out, or put in too far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from attncli.check.bugs.bug import Bug, Change, Evidence, bug
from attncli.check.positions import PositionKind, Positions
from attncli.check.setup import Setup

Changed = tuple[Positions | None, str]
ALL = "columns exponent start carriers"
"""What leaving positions out touches: everything about them."""


def _changed(change: Callable[[Positions, Setup], Iterable[Changed]]) -> Change:
    """The setups with other positions: what change yields, each with its detail."""

    def setups(setup: Setup, _: Evidence) -> Iterator[Setup]:
        if setup.positions is not None:
            for positions, detail in change(setup.positions, setup):
                changed = replace(setup, positions=positions)
                yield changed.with_detail(detail) if detail else changed

    return setups


def _kind(wanted: PositionKind, instead: PositionKind) -> Change:
    def change(positions: Positions, _: Setup) -> Iterator[Changed]:
        if positions.kind == instead:
            yield replace(positions, kind=wanted), ""

    return _changed(change)


def _in_halves(positions: Positions, _: Setup) -> Iterator[Changed]:
    if not positions.is_rotary:
        yield replace(positions, in_halves=True), ""


def _left_out(positions: Positions, _: Setup) -> Iterator[Changed]:
    yield None, ""
    for name, words in (("q", "of the queries alone"), ("k", "of the keys alone")):
        yield replace(positions, on=positions.on - {name}), words


def _not_on_values(positions: Positions, _: Setup) -> Iterator[Changed]:
    if "v" in positions.on:
        yield replace(positions, on=positions.on - {"v"}), ""


def _on_values(positions: Positions, setup: Setup) -> Iterator[Changed]:
    if positions.is_rotary and setup.inputs["v"].shape[-1] % 2 == 0:
        yield replace(positions, on=positions.on | {"v"}), ""


def _from_1(positions: Positions, _: Setup) -> Iterator[Changed]:
    """Rotary scores depend on differences alone, so there it is no bug."""
    if not positions.is_rotary:
        starts = (positions.from_query, positions.from_past, positions.from_new)
        query, past, new = (start + 1 for start in starts)
        yield replace(positions, from_query=query, from_past=past, from_new=new), ""


def _restarted(positions: Positions, _: Setup) -> Iterator[Changed]:
    if positions.n_past:
        yield replace(positions, from_query=0), "of the queries alone"
        yield replace(positions, from_query=0, from_new=0), "of the new keys as well"


_ROTARY_THREADS = "transformers#25199, nanochat#264, tt-metal#26844"
_EXPONENT_THREADS = "jadore801120/attention-is-all-you-need-pytorch#32, SamLynnEvans/Transformer#25"

POSITIONS: tuple[Bug, ...] = (
    bug(
        "rotary pairs interleaved, not in halves",
        _kind("rope-interleaved", "rope-halves"),
        "columns",
        "entries 2i and 2i + 1 are rotated as a pair, not entries i and i + d/2",
        _ROTARY_THREADS,
    ),
    bug(
        "rotary pairs in halves, not interleaved",
        _kind("rope-halves", "rope-interleaved"),
        "columns",
        "entries i and i + d/2 are rotated as a pair, not entries 2i and 2i + 1",
        _ROTARY_THREADS,
    ),
    bug(
        "sinusoid exponent 2·2i/d, not 2i/d",
        _kind("article", "paper"),
        "exponent",
        "2i is counted twice: a loop over the even columns multiplies its index by 2 again",
        _EXPONENT_THREADS,
    ),
    bug(
        "sinusoid exponent 2i/d, not 2·2i/d",
        _kind("paper", "article"),
        "exponent",
        "2i is counted once, as in the paper; the article's form counts it twice",
        _EXPONENT_THREADS,
    ),
    bug(
        "sines, then cosines, not interleaved",
        _changed(_in_halves),
        "columns",
        "a layout, no bug by itself: the columns are in another order, and weights trained with "
        "one order do not fit the other",
        "allennlp#2993",
    ),
    bug(
        "positions left out",
        _changed(_left_out),
        ALL,
        "q, k and v go into attention without positions, so the order of the tokens is lost",
    ),
    bug(
        "positions left out of the values",
        _changed(_not_on_values),
        "carriers",
        "positions are added to q and k alone, not to the embeddings that v comes from too",
    ),
    bug(
        "rotary positions in the values too",
        _changed(_on_values),
        "carriers",
        "the values are rotated as well, not queries and keys alone",
    ),
    bug(
        "positions counted from 1, not 0",
        _changed(_from_1),
        "start",
        "the first token gets position 1: off by one",
    ),
    bug(
        "positions restarted at 0 after the past",
        _changed(_restarted),
        "start",
        "new tokens count from 0 although cached ones come before them",
    ),
)
