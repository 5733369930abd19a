"""Bugs of positions: another form, another place to count from, left out, or put in too far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from attncli.check.bugs.bug import Bug, Evidence, bug, changing
from attncli.check.positions import PositionKind
from attncli.check.setup import Setup

ALL = "position-layout position-exponent position-offset position-inputs"
"""What leaving positions out touches: everything about them."""


def _are(kind: PositionKind) -> Callable[[Setup], bool]:
    return lambda setup: setup.positions is not None and setup.positions.kind == kind


def _are_sinusoidal(setup: Setup) -> bool:
    return setup.positions is not None and not setup.positions.is_rotary


def _left_out(setup: Setup, _: Evidence) -> Iterator[Setup]:
    if (positions := setup.positions) is not None:
        yield replace(setup, positions=None)
        yield setup.with_positions(on=positions.on - {"q"}).with_detail("of the queries alone")
        yield setup.with_positions(on=positions.on - {"k"}).with_detail("of the keys alone")


def _from_1(setup: Setup, _: Evidence) -> Iterator[Setup]:
    """Rotary scores depend on differences alone, so there it is no bug."""
    if _are_sinusoidal(setup):
        starts = "from_query", "from_past", "from_new"
        yield setup.with_positions(**{x: getattr(setup.positions, x) + 1 for x in starts})


def _restarted(setup: Setup, _: Evidence) -> Iterator[Setup]:
    if setup.positions is not None and setup.n_past:
        yield setup.with_positions(from_query=0).with_detail("of the queries alone")
        restarted = setup.with_positions(from_query=0, from_new=0)
        yield restarted.with_detail("of the new keys as well")


_ROTARY_THREADS = "transformers#25199, nanochat#264, tt-metal#26844"
_EXPONENT_THREADS = "jadore801120/attention-is-all-you-need-pytorch#32, SamLynnEvans/Transformer#25"

POSITIONS: tuple[Bug, ...] = (
    bug(
        "rotary pairs interleaved, not in halves",
        changing(positions={"kind": "rope-interleaved"}, when=_are("rope-halves")),
        "position-layout",
        "entries 2i and 2i + 1 are rotated as a pair, not entries i and i + d/2",
        _ROTARY_THREADS,
    ),
    bug(
        "rotary pairs in halves, not interleaved",
        changing(positions={"kind": "rope-halves"}, when=_are("rope-interleaved")),
        "position-layout",
        "entries i and i + d/2 are rotated as a pair, not entries 2i and 2i + 1",
        _ROTARY_THREADS,
    ),
    bug(
        "sinusoid exponent 2·2i/d, not 2i/d",
        changing(positions={"kind": "article"}, when=_are("paper")),
        "position-exponent",
        "2i is counted twice: a loop over the even columns multiplies its index by 2 again",
        _EXPONENT_THREADS,
    ),
    bug(
        "sinusoid exponent 2i/d, not 2·2i/d",
        changing(positions={"kind": "paper"}, when=_are("article")),
        "position-exponent",
        "2i is counted once, as in the paper; the article's form counts it twice",
        _EXPONENT_THREADS,
    ),
    bug(
        "sines, then cosines, not interleaved",
        changing(positions={"in_halves": True}, when=_are_sinusoidal),
        "position-layout",
        "a layout, no bug by itself: the columns are in another order, and weights trained with "
        "one order do not fit the other",
        "allennlp#2993",
    ),
    bug(
        "positions left out",
        _left_out,
        ALL,
        "q, k and v go into attention without positions, so the order of the tokens is lost",
    ),
    bug(
        "positions left out of the values",
        changing(positions={"on": frozenset("qk")}, when=_are_sinusoidal),
        "position-inputs",
        "positions are added to q and k alone, not to the embeddings that v comes from too",
    ),
    bug(
        "rotary positions in the values too",
        changing(
            positions={"on": frozenset("qkv")},
            when=lambda setup: not _are_sinusoidal(setup) and setup.inputs["v"].shape[-1] % 2 == 0,
        ),
        "position-inputs",
        "the values are rotated as well, not queries and keys alone",
    ),
    bug(
        "positions counted from 1, not 0",
        _from_1,
        "position-offset",
        "the first token gets position 1: off by one",
    ),
    bug(
        "positions restarted at 0 after the past",
        _restarted,
        "position-offset",
        "new tokens count from 0 although cached ones come before them",
    ),
)
