"""Numbers that edits leave open: a ? is fitted to what was observed, and said in its simplest form.

    convention.softcap: => ? fit 2 ** [-1 to 9]         2 to the power of a number between these
    input.sinks: => ?[h] fit [-12 to 12]               one for each head
    input.kv_len: => ?[b] fit whole [1 to size[j]]     whole numbers
    input.k: => right * ?[g] fit apart 2 ** [-8 to 8]  numbers that are not all alike
    … fit known [-4 to 4]; -1 as: reversed             only if it fits in one of its forms
    … fit 100, 1000 or 10 ** [1 to 8]                  one of these if it explains enough
    … fit [-4 to 4]; -1 as: reversed; 2 digits; roots  -1, 2 digits or 1/√n, if it fits alike
    … fit known [-7 to 7]; logarithms                  ln n
    … fit scale by d_q                                 scale · what d_q is larger by
    … quiet 1000 / sqrt(times)                         errors within the rounding: so many times it

They are fitted to a few rows, where no other bug fits, and judged on all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.commands.check.bugs.bug import Evidence, Probe
from attncli.commands.check.bugs.edits import Line, Patch, letter_of, line_of
from attncli.commands.check.bugs.facts import Facts, number_text
from attncli.commands.check.bugs.terms import sizes_of
from attncli.formula.compute import compute
from attncli.tolerance.comparison import Comparison, n_different
from attncli.tolerance.rule import distance, largest, rms
from attncli.tolerance.run import Indices
from attncli.tolerance.samples import narrow_sample_of
from attncli.tolerance.setup import Setup

TINY, SPREAD, LARGEST = 1e-12, 1e-3, float(np.finfo(np.float64).max)
"""A mean square of errors, over the rounding, below which all forms of a number fit alike; a share
by which factors differ that are one factor; and beyond what a number is not tried."""


def fitted(lines: Sequence[str], setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The setups with the number of each line that explains the errors of a sample, in the order of
    the lines: the first that fits everything is the simplest."""
    facts = Facts(setup, evidence)
    for line in map(line_of, lines):
        if not line.fit or (line.condition and not facts.number(line.condition)):
            continue
        letter = letter_of(line.choices[0])
        sample = evidence.wide if letter else evidence.sample
        if sample is None:
            continue
        fit = _Fit(line, letter, facts, sample)
        if (x := fit.numbers()) is not None and fit.is_supported(x):
            x, words = fit.simplest(x)
            if line.fit.startswith("known ") and not words:
                continue
            number = x if letter else float(x[0])
            texts = {"?": f"{number_text(number)}{words}"}
            yield fit.setup(x).with_detail(facts.detail(line.detail, texts, {"?": number}))


class _Fit(NamedTuple):
    """The search for the numbers of one line.

    letter  of the axis along which there is one for each index; "": one for all
    sample  a few rows, which they are fitted to
    """

    line: Line
    letter: str
    facts: Facts
    sample: Comparison

    def setup(self, x: Array) -> Setup:
        """The setup with these numbers."""
        x = np.clip(x, -LARGEST, LARGEST)
        number = x if self.letter else float(x[0])
        patch = Patch(self.line.choices[0], self.facts.evidence, fitted=number)
        with np.errstate(all="ignore"):
            return patch.on(self.facts.setup) or self.facts.setup

    def numbers(self) -> Array | None:
        """The numbers that fit best, [n]; None where they do not explain the errors."""
        setup, (text, *_) = self.facts.setup, self.line.fit.split("; ")
        *kinds, text = re.split(r"^(whole|apart|known) ", text)
        number, by, stage = text.partition(" by ")
        if by:
            return self.ratio(self.facts.number(number), stage)
        candidates, _, text = text.rpartition(" or ")
        if candidates:
            values = np.array([*map(float, candidates.split(", "))])
            losses = [self.loss(values[[i]])[0] for i in range(len(values))]
            if explains(np.array([min(losses)]), setup, self.sample):
                return values[[int(np.argmin(losses))]]
        before, _, text = text.partition("[")
        text, _, after = text.rpartition("]")
        low, high = (self.facts.number(x) for x in text.split(" to "))
        n = sizes_of(setup).get(self.letter, 1)
        if "whole" in kinds:
            if self.is_refused(lambda loss: whole_minimum(loss, int(low), int(high))[1]):
                return None
            at, least = whole_minimum(self.loss, int(low), int(high), n)
            return at.astype(float) if explains(least, setup, self.sample) else None

        def values_at(x: Array) -> Array:
            numbers = self.facts.of(before + after)
            return compute(f"X[n] = {before}x[n]{after}", {"x": x, **numbers})

        def first_least(loss: Loss) -> Array:
            return minimum(lambda x: loss(values_at(x)), low, high, steps=FIRST_STEPS)[1]

        if self.is_refused(first_least):
            return None
        plain = float(misfit(setup, self.sample).mean())
        at, least = minimum(lambda x: self.loss(values_at(x)), low, high, n, most=plain / 2)
        if not explains(least, setup, self.sample):
            return None
        x = polished(values_at(at), self.setup, self.by_number(), self.of_heads())
        return None if "apart" in kinds and np.ptp(x) <= SPREAD * x.max() else x

    def is_refused(self, least: Callable[[Loss], Array]) -> bool:
        """Whether a few rows of one head refuse every number: one for all heads fits this one.

        least  how far off the best number is, of how far off each is
        """
        few, setup = narrow_sample_of(self.sample), self.facts.setup
        if few is self.sample or few.subset.sizes[:2] != (1, 1):
            return False
        n = sizes_of(setup).get(self.letter, 1)

        def loss(x: Array) -> Array:
            return np.array([misfit(self.setup(np.full(n, x[0])), few).mean()])

        return bool(least(loss).mean() > misfit(setup, few).mean() / 2)

    def is_supported(self, x: Array) -> bool:
        """Whether so many different numbers follow from each fitted one, and confirm it.

        One that is as it was, such as the length of one batch item, moves none and needs none.
        """
        sample, heads = self.by_number(), self.of_heads()
        before, after = (sample.expected(y) for y in (self.facts.setup, self.setup(x)))
        supporting = np.zeros(x.size, np.int64)
        for name, stage in sample.errors.items():
            if (observed := sample.observed_by(self.facts.setup, name)).shape != after[name].shape:
                continue
            follows = distance(before[name], after[name]) > SAME * largest(before[name])
            for at in range(x.size):
                part: Any = np.s_[[at]] if self.letter == "b" else np.s_[:]
                if heads is not None:
                    part = np.s_[:, heads == at] if stage.expected.shape[1] == len(heads) else part
                pairs = stage.expected[part] + 1j * observed[part]
                supporting[at] += n_different(pairs[follows[part]])
        moving = supporting[supporting > 0]
        return moving.size > 0 and bool((moving >= SEVERAL).all())

    def ratio(self, number: float, stage: str) -> Array | None:
        """A number times what a stage, as observed, is larger by; None where it was not."""
        if (errors := self.sample.errors.get(stage)) is None:
            return None
        fine = np.isfinite(errors.observed) & np.isfinite(errors.expected)
        size = float(np.square(errors.expected[fine]).sum())
        product = float((errors.observed * errors.expected)[fine].sum())
        return np.array([number * product / size]) if size and product else None

    def of_heads(self) -> Indices | None:
        """Which of the numbers each head uses; None: there is one for all."""
        setup = self.facts.setup
        return {"h": np.arange(setup.shape[1]), "g": setup.key_heads}.get(self.letter)

    def by_number(self) -> Comparison:
        """The sample without gradients that are sums over several heads, if there are others."""
        errors, heads = self.sample.errors, self.of_heads()
        if heads is None:
            return self.sample
        each = {name: x for name, x in errors.items() if x.expected.shape[1] == len(heads)}
        return replace(self.sample, errors=each or errors)

    def loss(self, x: Array) -> Array:
        """How far off the setup is with these numbers: [n]."""
        by_head = misfit(self.setup(x), self.by_number())
        if self.letter == "b":
            return np.asarray(by_head.mean(axis=1))
        if (heads := self.of_heads()) is None:
            return np.array([by_head.mean()])
        return np.bincount(heads, weights=by_head.mean(axis=0)) / np.bincount(heads)

    def simplest(self, x: Array) -> tuple[Array, str]:
        """The first form that fits as well as x, with the words of all that are this number; else x
        itself."""
        number, (_, *forms) = float(x[0]), self.line.fit.split("; ")
        most = float(self.loss(x)[0]) * ALIKE + TINY if forms else 0.0
        for form in forms:
            for value, words, others in self.forms(form, number):
                is_near = math.isfinite(value) and abs(value - number) < NEAR * (abs(value) or 1)
                fits = is_near and self.loss(np.array([value]))[0] <= most
                if fits and all(self.loss(np.array([other]))[0] > most for other in others):
                    also = [y for f in forms for z, y, _ in self.forms(f, value) if z == value]
                    also = [y.removeprefix(": ") for y in also if y not in ("", words)]
                    every = ", which is also ".join([words, *also]) if words else ""
                    return np.array([value]), self.facts.detail(every, {})
        return x, ""

    def forms(self, form: str, x: float) -> Iterator[tuple[float, str, Sequence[float]]]:
        """The numbers of a form near x, with their words, and others that must not fit as well."""
        if form == "roots":
            yield from ((value, f" = {words}", others) for value, words, others in roots(x))
        elif form == "logarithms":
            n = round(math.exp(x))
            others = [math.log(max(1, n - 1)), math.log(n + 1)]
            if 1 < n <= MOST_COUNTED:
                yield math.log(n), f": each counts {n} times (sink + ln {n})", others
        elif form == "2 digits":
            yield float(f"{x:.2g}"), "", ()
        else:
            value, _, words = form.partition(" as")
            with np.errstate(divide="ignore"):
                yield float(self.facts.number(value)), words, ()


def probe_of(lines: Sequence[str]) -> Probe | None:
    """A little of what a line is for errors within the rounding, and so many times as much."""
    line = next((candidate for candidate in map(line_of, lines) if candidate.quiet), None)
    if line is None:
        return None

    def probe(setup: Setup) -> tuple[Setup, Callable[[float], Setup | None]] | None:
        evidence = Evidence({}, {})
        facts = Facts(setup, evidence)

        def much(times: float) -> Setup | None:
            with np.errstate(all="ignore"):
                number = facts.number(line.quiet, {"times": times})
            if not math.isfinite(number):
                return None
            detail = facts.detail(line.detail, {}, {"?": number})
            return Patch(line.choices[0], evidence, detail, fitted=number).on(setup)

        if line.condition and not facts.number(line.condition):
            return None
        little = much(1.0)
        return None if little is None else (little, much)

    return probe


# ---- the search for numbers

Loss = Callable[[Array], Array]
"""Misfits of so many numbers, of which each is fitted by itself: [m] -> [m]."""

LEVEL = 1e-4
"""The noise of a row counts as at least so much of the errors to be explained: with that of float64
every number but the very best would be hopelessly far off, and the search would have no slope."""

FAR = 1e6
"""A number further off than so many noises is as wrong as one at this distance."""

GRID = 33
"""Into so many intervals a range is cut before the best is searched further."""

STEPS, FIRST_STEPS = 40, 12
"""Each step leaves 0.618 of the interval: 40 leave 4·10⁻⁹ of it, about all that a sum of squares
can show in float64; 12 leave 0.003 of it, which shows whether there is anything to find."""

EXPLAINED = 0.25
"""A fitted number must leave at most so much of the mean square of the errors to be a cause."""

ALIKE = 1.02
"""Numbers whose mean squares are this near fit alike: the simplest of them is said."""


def misfit(setup: Setup, comparison: Comparison) -> Array:
    """How far off a setup is: mean squares, over the noise, of each batch item and head."""
    total = np.zeros(comparison.subset.sizes[:2])
    for name, x in comparison.expected(setup).items():
        stage = comparison.errors[name]
        errors = distance(comparison.observed_by(setup, name), x)
        rows = stage.by_row[0]
        typical = rms(rows, np.asarray(np.isfinite(rows)))
        noise = np.full((1, 1, 1), typical)
        if stage.noise is not None:
            noise = np.maximum(stage.row_noise, LEVEL * typical)
        errors = np.minimum(errors / np.maximum(noise, 1e-300)[..., None], FAR)
        total += comparison.by_heads(name, np.square(errors).mean(axis=(-1, -2)))
    return total


def explains(least: Array, setup: Setup, comparison: Comparison) -> bool:
    """Whether the misfits left by fitted numbers (`least`) are small, and others confirm each."""
    is_confirmed = comparison.n_different >= SEVERAL * least.size
    return is_confirmed and bool(least.mean() < EXPLAINED * misfit(setup, comparison).mean())


SEVERAL = 3
"""So many numbers at least confirm each one that is fitted: as many factors as numbers explain
nothing."""

SAME = 1e-9
"""A number follows from a fitted one if this moves it by more than rounding in float64 does."""


def minimum(
    loss: Loss,
    low: float,
    high: float,
    n: int = 1,
    most: float = math.inf,
    steps: int = STEPS,
) -> tuple[Array, Array]:
    """Where the losses of n numbers are smallest, and how small: a grid, then golden sections.

    It ends early where their mean is not below `most` after FIRST_STEPS.

    >>> at, least = minimum(lambda x: (x - np.array([0.3, -2.0])) ** 2, -3, 3, n=2)
    >>> at.round(6).tolist()
    [0.3, -2.0]
    """
    grid = np.linspace(low, high, GRID + 1)
    losses = np.array([loss(np.full(n, x)) for x in grid])
    best = losses.argmin(axis=0)
    a, b = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, GRID)]
    golden = (math.sqrt(5) - 1) / 2
    c, d = b - golden * (b - a), a + golden * (b - a)
    at_c, at_d = loss(c), loss(d)
    for step in range(steps):
        if step == FIRST_STEPS and np.minimum(at_c, at_d).mean() > most:
            break
        is_lower = at_c < at_d
        a, b = np.where(is_lower, a, c), np.where(is_lower, d, b)
        inner = np.where(is_lower, b - golden * (b - a), a + golden * (b - a))
        at_inner = loss(inner)
        c, d = np.where(is_lower, inner, d), np.where(is_lower, c, inner)
        at_c, at_d = np.where(is_lower, at_inner, at_d), np.where(is_lower, at_c, at_inner)
    at = (a + b) / 2
    return at, loss(at)


def polished(
    x: Array, make: Callable[[Array], Setup], comparison: Comparison, numbers: Indices | None = None
) -> Array:
    """Fitted numbers made exact by least squares: near the best one, errors are linear in it.

    numbers  for each head which of the numbers it uses; None: there is one number for all. Shared
             keys and values have gradients of several numbers: those do not count.
    """
    for _ in range(POLISH):
        size = np.maximum(np.abs(x), LEAST)
        step = 1e-5 * size
        before, after = (comparison.expected(make(at)) for at in (x, x + step))
        above, below = np.zeros(len(x)), np.zeros(len(x))
        for name, stage in comparison.errors.items():
            n_heads = stage.expected.shape[1]
            of_head = np.zeros(n_heads, np.intp) if numbers is None else numbers
            if len(of_head) != n_heads:
                continue
            noise = np.ones((1, 1, 1)) if stage.noise is None else stage.row_noise
            weight = 1 / np.maximum(noise, 1e-300)[..., None]
            with np.errstate(invalid="ignore", over="ignore"):
                slope = (after[name] - before[name]) / step[of_head, None, None] * weight
                residuals = (stage.observed - before[name]) * weight
            fine = np.isfinite(slope) & np.isfinite(residuals)
            slope, residuals = (np.where(fine, y, 0) for y in (slope, residuals))
            for sums, y in ((above, residuals), (below, slope)):
                np.add.at(sums, of_head, np.einsum("bhrd,bhrd->h", slope, y))
        with np.errstate(divide="ignore", invalid="ignore"):
            change = above / below
        x = x + np.clip(np.nan_to_num(change), -0.1 * size, 0.1 * size)
    return x


LEAST = 1e-3
"""A number nearer to 0 counts as so large: a sink may be 0 itself."""

POLISH = 3
"""Each time the error of a fitted number is squared, from about 10⁻⁸ on."""


def whole_minimum(
    loss: Loss, low: int, high: int, n: int = 1
) -> tuple[npt.NDArray[np.int64], Array]:
    """The same of whole numbers: ever finer grids around the best."""
    first, last = np.full(n, low), np.full(n, high)
    while True:
        step = np.maximum(1, -(-(last - first) // GRID))
        candidates = [np.minimum(first + i * step, last) for i in range(GRID + 1)]
        losses = np.array([loss(x) for x in candidates])
        best = losses.argmin(axis=0)
        at = np.array(candidates)[best, np.arange(n)]
        if (step == 1).all():
            return at.astype(np.int64), losses.min(axis=0)
        first, last = np.maximum(at - step, low), np.minimum(at + step, high)


def roots(x: float) -> Iterator[tuple[float, str, tuple[float, float]]]:
    """1/√n and 1/n near x: the number, in words, and the two neighbours of its kind."""
    if not MOST_ROOT**-2 <= x <= MOST_ROOT**2:
        return
    for power, words in ((2, "1/√{}"), (1, "1/{}"), (-2, "√{}"), (-1, "{}")):
        n = round(x**-power) if power > 0 else round(x ** abs(power))
        if 1 < n <= MOST_ROOT:
            sign = -1 / power
            yield n**sign, words.format(n), ((n - 1) ** sign, (n + 1) ** sign)


MOST_ROOT = 1024
"""Widths of heads and of models are rarely larger."""

MOST_COUNTED = 64
"""A sink is counted once by each part of the keys at most, of which kernels have rarely more."""


NEAR = 0.02
"""Only forms within so much of the fitted number are tried."""
