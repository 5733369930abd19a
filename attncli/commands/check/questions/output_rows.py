"""Rows of a result that are right but for a number of their own, or for what all of them share.

A factor for each row: softmax divides by another sum, whichever it is. One vector that is added to
all rows is a bias of the values; what is added to each row is a residual connection. A channel
that is one number in all rows says nothing of what it should be.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.commands.check.bugs.facts import number_text
from attncli.commands.check.questions.answer import Answer, places_text
from attncli.commands.check.questions.factors import EXPLAINED, ROUNDINGS
from attncli.commands.check.questions.rows import LARGEST, Rows, rows_of
from attncli.commands.check.search import Search
from attncli.errors import joined
from attncli.formula.matrices import plain
from attncli.stages import CAPPED, OUTPUT, WEIGHTS, gradient_of, spec_of
from attncli.tolerance.rule import StageErrors, rms
from attncli.tolerance.run import stages
from attncli.tolerance.setup import Setup
from attncli.tolerance.spans import span_of

STAGES = WEIGHTS, OUTPUT, *(gradient_of(name) for name in "qkv")
"""The stages whose rows are looked at; of several that are wrong, the first."""

ENOUGH = 3
"""So many numbers a row must have to confirm a factor of its own, or so many rows one vector."""


def sums_otherwise(search: Search) -> Iterator[Answer]:
    """Each row of the output or the weights times what another sum in softmax gives it."""
    name, stage = _wrong(search)
    if stage is None or name not in (WEIGHTS, OUTPUT):
        return
    factors, rows = factors_of(stage, search.evidence.eps), rows_of(search, name)
    if factors is None or rows is None:
        return
    places = zip(search.comparison.subset, rows.over, strict=True)
    at = [np.searchsorted(axis, x) for axis, x in places]
    if (of_sum := _sum_text(rows, factors[np.ix_(*at)], search.comparison.setup)) is not None:
        sentence, formula = of_sum
        yield Answer(sentence, _multiplied(search, name, factors), formula)


def rows_multiplied(search: Search) -> Iterator[Answer]:
    """Each row of a stage times a number of its own, whatever that is."""
    name, stage = _wrong(search)
    factors = None if stage is None else factors_of(stage, search.evidence.eps)
    if factors is None:
        return
    low, high = float(factors.min()), float(factors.max())
    n_others = int((np.abs(factors - 1) > SAME).sum())
    n_different = len(np.unique(factors.round(3)))
    if n_others < MOST * factors.size or n_different < max(ENOUGH, MOST * factors.size):
        return  # one factor for all, or for a part, is another question
    is_softmax = name in (WEIGHTS, OUTPUT)
    reason = "softmax divides by another sum" if is_softmax else "a factor of each row is lost"
    numbers = f"a number of its own, {low:.4g} to {high:.4g}"
    sentence = f"every row of {name} is the right one times {numbers}: {reason}"
    index = "b,g,j" if span_of(name) == "keys" else "b,h,i"
    formula = f"{spec_of(name).symbol}[{index}] = c[{index}] · right[{index}]"
    yield Answer(sentence, _multiplied(search, name, factors), formula, is_fitted=True)


def _multiplied(search: Search, name: str, factors: Array) -> Iterator[Setup]:
    """The setup whose rows of a stage are multiplied by these."""
    setup, subset = search.comparison.setup, search.comparison.subset
    is_of_keys = span_of(name) == "keys"
    if is_of_keys and subset.sizes != setup.shape[:3]:
        return
    every = factors
    if not is_of_keys:
        every = np.ones(setup.shape[:3])
        every[np.ix_(*subset)] = factors
    yield setup.with_whole(0, 1, 2).with_result(name, partial(_times, factors=every))


MOST = 0.5
"""Of more rows than this share each has a factor of its own."""

SAME = 1e-3
"""Factors that differ by less are one."""


def _wrong(search: Search) -> tuple[str, StageErrors | None]:
    """The first of the stages that is wrong."""
    errors = search.comparison.errors
    wrong = (x for x in STAGES if x in errors and not errors[x].matches)
    name = next(wrong, "")
    return name, errors.get(name)


def _are_small(stage: StageErrors) -> bool:
    """Whether all numbers are finite, and their products are."""
    numbers = stage.observed, stage.expected
    return all(bool((np.abs(x) <= LARGEST).all()) for x in numbers)


def factors_of(stage: StageErrors, eps: float) -> Array | None:
    """[batch, head, row]: by what each row is multiplied; None where something else is wrong."""
    observed, right = stage.observed, stage.expected
    if right.shape[3] < ENOUGH or not _are_small(stage):
        return None
    squares = np.square(right).sum(axis=-1)
    products = (observed * right).sum(axis=-1)
    factors: Array = np.divide(products, squares, where=squares > 0, out=np.ones_like(squares))
    rest = np.abs(observed - factors[..., None] * right)
    allowed = EXPLAINED * rms(np.abs(observed - right)) + ROUNDINGS * eps * rms(np.abs(observed))
    return factors if rms(rest) <= allowed else None


def _times(x: Array, factors: Array) -> Array:
    return np.asarray(x * factors.reshape(*x.shape[:-1], 1).astype(x.dtype))


# ---- which sum softmax divides by


def _sum_text(rows: Rows, factors: Array, setup: Setup) -> tuple[str, str] | None:
    """Which sum it is, in words and as a formula; None where it is none of these."""
    usable = rows.is_usable
    if not usable.any():
        return None
    for sentence, formula, times in _sums(rows, setup):
        apart = np.abs(times - factors)[usable]
        if (apart <= NEAR * np.abs(factors)[usable]).all():
            return sentence, formula
    return None


NEAR = 0.02
"""A factor that is so near in proportion is it, where every row has its own."""


def _sums(rows: Rows, setup: Setup) -> Iterator[tuple[str, str, Array]]:
    """What softmax may divide by, and what its rows are multiplied by then."""
    x, lse = rows.logits, rows.lse
    top = x.max(axis=-1)
    if setup.may_mask():
        every = stages(setup, rows.over, [CAPPED])[CAPPED]
        largest = every.max(axis=-1)
        whole = np.log(np.exp(every - largest[..., None]).sum(axis=-1)) + largest
        yield (
            "the mask is applied after the softmax: what remains is not divided by its sum",
            "A = exp(x) / Σ exp(x) over all keys, hidden ones too",
            np.exp(lse - whole),
        )
    yield (
        "softmax is not divided by its sum: the weights are powers less the maximum",
        "A = exp(x − max)",
        np.exp(lse - top),
    )
    yield (
        "softmax is not divided by its sum: the weights are powers",
        "A = exp(x)",
        np.exp(lse),
    )
    yield (
        "softmax is divided by its sum twice",
        "A = exp(x − max) / (Σ exp(x − max))²",
        np.exp(top - lse),
    )
    n = x.shape[-1]
    for size in (s for s in range(1, n) if s <= MOST_TILES or s & (s - 1) == 0):
        starts = np.arange(0, n, size)
        tops = np.maximum.accumulate(np.maximum.reduceat(x, starts, axis=-1), axis=-1)
        running = np.repeat(tops, np.diff(starts, append=n), axis=-1)
        with np.errstate(invalid="ignore"):
            total = np.where(np.isneginf(x), 0.0, np.exp(x - running)).sum(axis=-1)
        block = f"blocks of {number_text(size, 'keys')}"
        yield (
            f"the sum is not rescaled when the running maximum grows ({block})",
            "l = l + Σ exp(x − m), not exp(m_before − m) · l + Σ exp(x − m)",
            np.exp(lse - top) / total,
        )


MOST_TILES = 32
"""Of larger blocks only powers of two are tried."""


# ---- what all rows share


def channels_of_one_number(search: Search) -> Iterator[Answer]:
    """Channels of the output that are one number in every row, such as 0 where none is written.

    Of all heads, or of those that are wrong: the same channels of each.
    """
    name, stage = _wrong(search)
    if stage is None or name != OUTPUT:
        return
    setup, of_heads = search.comparison.setup, np.asarray(stage.wrong.any(axis=(0, 2)))
    at, channels = (np.flatnonzero(of_heads.any(axis=axis)) for axis in (1, 0))
    rows, heads = stage.observed[:, at][..., channels], search.comparison.subset.head[at]
    numbers = rows[0, 0, 0]
    is_same = np.array_equal(rows, np.broadcast_to(numbers, rows.shape), equal_nan=True)
    if not is_same or rows[..., 0].size < ENOUGH or len(channels) == of_heads.shape[1]:
        return  # all channels are 0 in rows that were not written
    of_heads_text = "" if len(heads) == len(of_heads) else f" of {places_text('head', [*heads])}"
    texts = [plain(x + 0.0) for x in numbers.tolist()]
    texts = [x.replace("nan", "NaN").replace("-inf", "−∞").replace("inf", "∞") for x in texts]
    sentences = list[str]()
    for text in dict.fromkeys(texts):
        places = [x for x, other in zip(channels.tolist(), texts, strict=True) if other == text]
        words = f"{places_text('channel', places)}{of_heads_text} of the output"
        reason = ": not written" if text in ("0", "NaN") else " in every row"
        sentences.append(f"{words} {'is' if len(places) == 1 else 'are'} {text}{reason}")
    every = np.zeros((setup.shape[1], 1, of_heads.shape[1]))
    is_number = np.zeros(every.shape, np.bool_)
    every[heads[:, None], 0, channels] = numbers
    is_number[heads[:, None], 0, channels] = True
    change = partial(_where, is_number=is_number, numbers=every)
    yield Answer(joined(sentences), [setup.with_whole(1).with_result(OUTPUT, change)])


def _where(x: Array, is_number: BoolArray, numbers: Array) -> Array:
    return np.where(is_number, numbers.astype(x.dtype), x)


def rows_shifted(search: Search) -> Iterator[Answer]:
    """One vector that is added to all rows of a head, or q or v that is added to each."""
    name, stage = _wrong(search)
    setup = search.comparison.setup
    if stage is None or name != OUTPUT or not _are_small(stage):
        return
    apart = np.asarray(stage.observed - stage.expected)
    eps, heads = search.evidence.eps, search.comparison.subset.head
    allowed = EXPLAINED * rms(np.abs(apart)) + ROUNDINGS * eps * rms(np.abs(stage.observed))
    n_rows = apart.shape[0] * apart.shape[2]
    vectors = apart.mean(axis=(0, 2))  # [head, d_v]
    if n_rows >= ENOUGH and rms(np.abs(apart - vectors[None, :, None])) <= allowed:
        every = np.zeros((setup.shape[1], 1, apart.shape[3]))
        every[heads, 0] = vectors
        changed = setup.with_whole(1).with_result(OUTPUT, partial(np.add, every))
        sentence, formula = _of_vectors(vectors, heads[0] + 1, allowed)
        yield Answer(sentence, [changed], formula, is_fitted=True)
    for source in "qkv":
        x = setup.inputs[source]
        if x.shape[1] != setup.shape[1]:
            x = x[:, setup.key_heads]
        if x.shape != (*setup.shape[:3], apart.shape[3]):
            continue
        added = x[np.ix_(*search.comparison.subset)]
        squares = float(np.square(added).sum())
        factor = float((apart * added).sum()) / squares if squares else 0.0
        if abs(factor - round(factor)) > SAME or not round(factor):
            continue
        if rms(np.abs(apart - round(factor) * added)) <= allowed:
            whole = setup.with_whole(0, 1, 2)
            changed = whole.with_result(OUTPUT, partial(_plus, added=round(factor) * x))
            sign = "added to" if factor > 0 else "subtracted from"
            yield Answer(
                f"{source} of each row is {sign} the output: a residual connection",
                [changed],
                f"O[b,h,i,e] = right {'+' if factor > 0 else '−'} {source}[b,h,i,e]",
            )


def _of_vectors(vectors: Array, first: int, allowed: float) -> tuple[str, str]:
    """A sentence and a formula for what is added to the rows of each head; first: its number."""
    number = float(vectors.mean())
    if rms(np.abs(vectors - number)) <= allowed:
        return f"{number:.4g} is added to every number of the output", f"O = A V + {number:.4g}"
    numbers = ", ".join(f"{x:.4g}" for x in vectors[0][:MOST_SAID])
    more = " …" if vectors.shape[1] > MOST_SAID else ""
    sentence = (
        "one vector is added to every row of the output, as if a bias of the values were "
        f"missing or one too many: {numbers}{more} in head {first}"
    )
    return sentence, "O = A (V + b) = A V + b, as rows of A sum to 1"


MOST_SAID = 4
"""Of a vector the first numbers are said."""


def _plus(x: Array, added: Array) -> Array:
    return np.asarray(x + added.reshape(x.shape).astype(x.dtype))
