"""Judging: an example is run with the library's own functions and held against what was printed.

Example ── run ── Trace ──┐
   claims ──── ours_of ── ours ── cells_of ── Judgement ──┐
      └── own numbers, wrong ways ── Recomputed ──────────┴── Result ── Verification
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from attncli.examples.computations import run
from attncli.examples.example import Cause, Example
from attncli.examples.held import cells_of, ours_of
from attncli.examples.own_numbers import from_own_numbers
from attncli.examples.places import piece
from attncli.examples.results import Judgement, Recomputed, Result, Verification
from attncli.examples.verdicts import compare, cut_off, worst
from attncli.examples.word_inputs import GloveWords
from attncli.examples.wrong_ways import recompute
from attncli.trace import Trace

_RIGHT = ("reproduced", "agrees as rounded")


def judge(example: Example, glove: str | None = None) -> Result:
    """Compute an example and judge each of its claims; see verdicts.py for the rules.

    `glove` is the file for examples whose word vectors do not come with them; without it they
    are not run. Raises InputError where the inputs do not fit together, or a claim is about a
    place that does not exist.

    >>> from attncli.examples import load_catalog
    >>> (example,) = [e for e in load_catalog() if e.name == "004-first-example"]
    >>> weights = judge(example).judgements[2]
    >>> weights.verdict, weights.ways[0].ours.value.round(4).tolist()
    ('differs', [0.4223, 0.4223, 0.1554])
    """
    words = example.inputs.get("glove")
    if isinstance(words, GloveWords):
        if glove is None:
            waiting = tuple(Judgement(claim, "needs --glove FILE") for claim in example.claims)
            return Result(example, waiting, needs=f"{words.file}, given with --glove FILE")
        example = replace(example, inputs={**example.inputs, "vectors": words.read(glove)})
    trace = run(example.compute, example.inputs, example.spot)
    judgements: list[Judgement] = []
    for index in range(len(example.claims)):
        judgements.append(_judged(example, index, trace, judgements))
    return Result(example, tuple(judgements), trace)


def verify(examples: Iterable[Example], glove: str | None = None) -> Verification:
    """Judge all examples; the verification is ok if each claim comes out as it is recorded.

    >>> from attncli.examples import load_catalog
    >>> verify(e for e in load_catalog() if e.source.id == "003").ok
    True
    """
    return Verification(tuple(judge(example, glove) for example in examples))


def _judged(example: Example, index: int, trace: Trace, before: Sequence[Judgement]) -> Judgement:
    claim = example.claims[index]
    ours = ours_of(trace, claim, claim.spot)
    cells = cells_of(ours, claim, claim.spot)
    judgement = Judgement(claim, worst(cells), ours, cells)
    if judgement.verdict == "differs":
        judgement = _explained(example, trace, judgement, before)
    earlier = [b.claim for b in before]
    ways = (recompute(example, claim, ours, earlier, i + 1) for i in range(len(claim.ways)))
    return replace(judgement, ways=tuple(ways))


def _explained(
    example: Example, trace: Trace, judgement: Judgement, before: Sequence[Judgement]
) -> Judgement:
    """The judgement with its cause, where the numbers tell, and what the author's own give."""
    claim, ours = judgement.claim, judgement.ours
    if claim.printed is None or ours is None or claim.take or claim.free_sign:
        return judgement
    if cut_off(ours.value, claim.printed):
        return replace(judgement, cause="cut off")
    earlier = [b.claim for b in before]
    nearest = None
    for own in from_own_numbers(example.compute, example.inputs, trace, claim, earlier):
        made = piece(own.stage, claim.at)
        recomputed = Recomputed(made, compare(made.value, claim.printed), start=own.start)
        used = {b.verdict for b in before if b.claim.stage in own.start and b.claim.printed}
        if recomputed.verdict in _RIGHT:
            right = used <= set(_RIGHT)
            cause: Cause = "rounding only" if right else "carried over"
            return replace(judgement, own=recomputed, cause=cause)
        if used != {"reproduced"}:  # from our own numbers comes what we have already
            nearest = nearest or recomputed
    return replace(judgement, own=nearest)
