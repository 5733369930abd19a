"""Numbers of rows that the backward pass reads: is δ another one, or the saved log-sum-exp?

d_q of a row says it: it is linear in δ, and with another log-sum-exp it is multiplied as a whole.
Then all gradients must be as observed with these numbers.

    dS[i,j] = exp(x[i,j] − lse[i]) · (dA[i,j] − δ[i])
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.bugs.edits import changed
from attncli.commands.check.questions.answer import Answer, place_maps
from attncli.commands.check.questions.factors import EXPLAINED, ROUNDINGS
from attncli.commands.check.questions.maps import text_of_map
from attncli.commands.check.questions.output_rows import ENOUGH, NEAR, factors_of
from attncli.commands.check.questions.rows import LARGEST, logits_of
from attncli.commands.check.questions.screen import is_plain
from attncli.commands.check.search import Search
from attncli.stages import DELTA, LSE, gradient_of
from attncli.tolerance.rule import rms
from attncli.tolerance.run import all_of, stages
from attncli.tolerance.setup import Setup

D_Q = gradient_of("q")

MOST_SCORES = 2**22
"""Of more scores the maxima of rows are not looked at."""


def other_delta(search: Search) -> Iterator[Answer]:
    """δ of each row is another number, by d_q alone or with d_k."""
    setup = search.comparison.setup
    if not _is_asked(search, {D_Q, "d_k"}):
        return
    stage = search.comparison.errors[D_Q]
    more = next(changed([f"{DELTA}: => right + 1"], setup, search.evidence), None)
    if more is None:
        return
    every = all_of(setup.shape)
    slope = stages(more, every, [D_Q])[D_Q] - stage.expected
    apart = stage.observed - stage.expected
    squares = np.square(slope).sum(axis=-1)
    steps = np.divide(
        (apart * slope).sum(axis=-1), squares, where=squares > 0, out=np.zeros_like(squares)
    )
    rest = rms(np.abs(apart - steps[..., None] * slope))
    size = rms(np.abs(stage.observed))
    if not rest <= EXPLAINED * rms(np.abs(apart)) + ROUNDINGS * search.evidence.eps * size:
        return
    right = stages(setup, every, [DELTA])[DELTA].reshape(setup.shape[:3])
    listed = setup.with_inputs(**{f"other.{DELTA}": right + steps})
    setups = changed([f"{DELTA}: => other_{DELTA}[b,h,i]"], listed, search.evidence)
    if sentence := _delta_text(right, right + steps, setup):
        yield Answer(sentence, setups, "dS = A ∘ (dA − δ)", is_fitted=True)


def other_log_sum_exp(search: Search) -> Iterator[Answer]:
    """The log-sum-exp that the backward pass reads is another number in each row."""
    setup = search.comparison.setup
    if not _is_asked(search, {D_Q, "d_k", "d_v"}):
        return
    factors = factors_of(search.comparison.errors[D_Q], search.evidence.eps)
    if factors is None or not (factors > 0).all():
        return
    right = _natural(setup)
    others = right - np.log(factors)
    listed = setup.with_inputs(**{f"other.{LSE}": others})
    line = f"either delta; own delta; again.{LSE}: => other_{LSE}[b,h,i]"
    setups = changed([line], listed, search.evidence)
    if words := _lse_text(right, others, setup):
        sentence = f"the backward pass alone: {words}"
        yield Answer(sentence, setups, "A = exp(x − lse)", is_fitted=True)


def _is_asked(search: Search, names: set[str]) -> bool:
    """Whether d_q is wrong, and nothing but these gradients."""
    comparison, setup = search.comparison, search.comparison.setup
    wrong = {name for name, stage in comparison.errors.items() if not stage.matches}
    if D_Q not in wrong or not wrong <= names or not is_plain(setup):
        return False
    stage = comparison.errors[D_Q]
    is_whole = comparison.subset.sizes == setup.shape[:3] and setup.d_k >= ENOUGH
    is_small = all(bool((np.abs(x) <= LARGEST).all()) for x in (stage.observed, stage.expected))
    return is_whole and is_small and setup.convention.softmax_over == "keys"


def _natural(setup: Setup) -> Array:
    """[batch, head, query]: the log-sum-exp in natural logarithms."""
    lse = stages(setup, all_of(setup.shape), [LSE])[LSE].reshape(setup.shape[:3])
    return np.asarray(lse * (np.log(2) if setup.convention.lse_base == "2" else 1.0))


def _tops(setup: Setup) -> Array | None:
    """[batch, head, query]: the largest score of each row; None where there are too many."""
    logits = logits_of(setup)
    if not logits or np.prod(setup.shape) > MOST_SCORES:
        return None
    return np.asarray(stages(setup, all_of(setup.shape), [logits])[logits].max(axis=-1))


def _are(numbers: Array, others: Array, size: float) -> bool:
    """Whether numbers of rows are these; size: of what is right."""
    apart = np.abs(numbers - others)
    return bool((apart <= NEAR * np.maximum(np.abs(others), size)).all())


def _delta_text(right: Array, others: Array, setup: Setup) -> str:
    """Which δ is read, in words; "" for any other."""
    size = rms(np.abs(right))
    times = round(float((others * right).sum() / np.square(right).sum()), 6) + 0.0  # no -0
    if _are(others, times * right, size):
        usual = {0.0: "δ is left out", -1.0: "δ is added, not subtracted"}
        return usual.get(times, f"δ is {times:.4g} times what it should be")
    tops = _tops(setup)
    if tops is not None and np.isfinite(tops).all():
        lse = _natural(setup)
        for sums, words in ((np.exp(lse - tops), "less the maximum"), (np.exp(lse), "as they are")):
            if _are(others, right * sums, size):
                return f"δ is taken of outputs that are not divided by their sums: powers {words}"
    return _place_text("δ", right, others)


def _lse_text(right: Array, others: Array, setup: Setup) -> str:
    """Which log-sum-exp is read, in words; "" for any other."""
    size = rms(np.abs(right))
    tops, words = _tops(setup), "the log-sum-exp that it reads"
    if tops is not None and np.isfinite(tops).all():
        if _are(others, right - tops, size):
            return f"{words} lacks the maximum of its row"
        if _are(others, tops, size):
            return f"{words} is the maximum of its row alone"
    addends = others - right
    if np.ptp(addends) <= NEAR * np.abs(addends).max():
        return f"{words} is larger by {float(addends.mean()):.4g}"
    times = float((others * right).sum() / np.square(right).sum())
    if _are(others, times * right, size):
        base = {f"{np.log(2):.3g}": " (ln 2)", f"{1 / np.log(2):.3g}": " (1 / ln 2)"}
        return f"{words} is {times:.4g} times what it should be{base.get(f'{times:.3g}', '')}"
    return _place_text(words, right, others)


def _place_text(words: str, right: Array, others: Array) -> str:
    """Of which other place the numbers are; "" where of none of the family."""
    size = rms(np.abs(right))
    for axis, letter in enumerate("bhi"):
        for place_map in place_maps(right.shape[axis]):
            if _are(others, np.take(right, place_map.indices, axis=axis), size):
                return text_of_map(words, letter, place_map)
    return ""
