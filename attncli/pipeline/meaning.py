"""What it means: how much alike the tokens are before and after, static against contextual."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from attncli import formulas
from attncli.arrays import Array
from attncli.trace import Stage, Trace
from attncli.words.similarity import similarity
from attncli.words.tokens import called

SAME = 1e-9  # cosines closer than this are called the same
ALIKE = 5e-5  # changes closer than this are, to four decimals
PAIRS = 4  # pairs of equal words that have a sentence
_WHY_EQUAL = (
    ": without positions, equal words have equal queries and the same keys, so attention gives "
    "them equal outputs"
)


def meaning(
    words: Sequence[str],
    static: npt.ArrayLike,
    contextual: npt.ArrayLike,
    *,
    placed: bool = True,
    masked: bool = False,
    reads: tuple[str, str] = ("", ""),
    letters: tuple[str, str] = ("E", "Y"),
    adds_input: bool = False,
) -> Trace | None:
    """The cosines between tokens before and after attention, and what became of equal words.

    cos(a, b) = a·b / (‖a‖·‖b‖)     # [n, d], [n, d'] -> [n, n], [n, n]

    Stages: static, contextual; where the contextual vectors are what is added to the static ones
    (`adds_input`: a residual connection does it) and as wide, also `added`, the cosines of the
    sums. The trace's notes are sentences: equal words start equal; they end
    different where positions were added (`placed`) or where each sees other words (`masked`).
    `reads` names the stages that the two come from, `letters` are their symbols.
    None where there is but one word, or a vector holds NaN or infinity.

    Source: the definition a·b = ‖a‖·‖b‖·cos θ; Peters et al. (2018), on contextual vectors.

    >>> trace = meaning(["a", "a"], [[1.0, 0.0]] * 2, [[1.0, 0.0], [0.0, 1.0]])
    >>> trace.notes
    ('"a" (1) and "a" (2): cosine 1 before, 0 after: one word in two contexts',)
    """
    before, after = np.asarray(static, dtype=np.float64), np.asarray(contextual, dtype=np.float64)
    if len(words) < 2 or not (np.isfinite(before).all() and np.isfinite(after).all()):
        return None
    own, context = "between the words' own vectors", "between the vectors in their context"
    stages: tuple[Stage, ...] = (
        _cosines("static", f"before: {own}", words, before, reads[0], letters[0]),
        _cosines("contextual", f"after: {context}", words, after, reads[1], letters[1]),
    )
    a, b = (stage.value for stage in stages)
    notes = [*_of_equal_words(words, a, b, placed, masked), *_of_the_farthest(words, a, b)]
    if adds_input and before.shape == after.shape:
        both = " + ".join(letters)
        with_input = "with the word's own vector added, as a residual connection does"
        stages = (*stages, _cosines("added", with_input, words, before + after, "", both))
        c = stages[-1].value
        equal = [*_of_equal_words(words, a, c, placed, masked)][:1]
        sentences = [*equal, *_of_the_farthest(words, a, c)]
        notes = [*(f"with the word's own vector added ({both}): {x}" for x in sentences), *notes]
    title = "What it means: static against contextual"
    return Trace(title, stages, notes=tuple(notes), name="meaning")


def _cosines(
    name: str, note: str, words: Sequence[str], matrix: Array, of: str, letter: str
) -> Stage:
    stage = similarity(words, matrix)["cosines"]
    axes, names = ("token", "other"), {"token": tuple(words), "other": tuple(words)}
    note = f"cosines {note}{f'; {stage.note}' if stage.note else ''}"
    reads, text = ({"x": of}, formulas.ROW_COSINES) if of else ({}, "")
    formula = f"cos(a, b) = {stage.formula} of the rows a and b of {letter}"
    value, symbol = stage.value, f"cos {letter}"
    return Stage(name, symbol, formula, value, axes, names, note, reads, expression=text)


def _of_equal_words(
    words: Sequence[str], before: Array, after: Array, placed: bool, masked: bool
) -> Iterator[str]:
    """A sentence for each word that occurs twice."""
    places: dict[str, list[int]] = defaultdict(list)
    for at, word in enumerate(words):
        places[word].append(at)
    repeated = [of_word for of_word in places.values() if len(of_word) > 1]
    for a, b, *_ in repeated[:PAIRS]:
        pair = f"{called(words, a)} and {called(words, b)}"
        if np.isnan(before[a, b]) or np.isnan(after[a, b]):
            continue
        if after[a, b] > 1 - SAME:
            why = "" if placed or masked else _WHY_EQUAL
            yield f"{pair}: cosine 1 before and 1 after{why}"
        else:
            why = "one word in two contexts"
            if masked and not placed:
                why = "no positions are added, but the mask makes each attend to other words"
            yield f"{pair}: cosine 1 before, {cosine_text(after[a, b])} after: {why}"


def _of_the_farthest(words: Sequence[str], before: Array, after: Array) -> Iterator[str]:
    """The two different words whose cosine changed the most; of several pairs the first."""
    change = np.triu(np.nan_to_num(after - before), 1)
    most = np.abs(change).max()
    (a, b), *others = np.argwhere(np.abs(change) >= most - ALIKE).tolist()
    if words[a] == words[b] or most < ALIKE:
        return
    where = "closer together" if change[a, b] > 0 else "further apart"
    if others:
        where += f"; {len(others)} other pair{'s' * (len(others) > 1)} changed as much"
    elif len(words) > 2:
        where += " than any other pair"
    both = f"{cosine_text(before[a, b])} before, {cosine_text(after[a, b])} after"
    yield f"{called(words, a)} and {called(words, b)}: cosine {both}: moved {where}"


def cosine_text(cosine: float) -> str:
    """A cosine to four decimals, 0 and 1 as they are, but never "1.0000" where it is less.

    >>> cosine_text(0.25), cosine_text(1.0), cosine_text(0.99999), cosine_text(0.0)
    ('0.2500', '1', '1 − 0.00001', '0')
    """
    if cosine > 1 - SAME:
        return "1"
    if abs(cosine) < SAME:
        return "0"
    return f"{cosine:.4f}" if cosine < 0.99995 else f"1 − {1 - cosine:.9f}".rstrip("0")
