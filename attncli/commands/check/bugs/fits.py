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
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.bugs.bug import Evidence, Probe
from attncli.commands.check.bugs.edits import Line, Patch, letter_of, line_of
from attncli.commands.check.bugs.facts import Facts, number_text
from attncli.commands.check.bugs.least_squares import (
    Target,
    may_reach,
    minimum,
    polished,
    whole_minimum,
)
from attncli.commands.check.bugs.terms import sizes_of
from attncli.formula.compute import compute
from attncli.tolerance.comparison import Comparison, n_different
from attncli.tolerance.rule import distance, largest
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


@dataclass(frozen=True, eq=False)
class _Fit:
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
            if self.explains(np.array([min(losses)])):
                return values[[int(np.argmin(losses))]]
        before, _, text = text.partition("[")
        text, _, after = text.rpartition("]")
        low, high = (self.facts.number(x) for x in text.split(" to "))
        n = sizes_of(setup).get(self.letter, 1)
        is_whole = "whole" in kinds

        def values_at(x: Array) -> Array:
            if is_whole:
                return x.astype(float)
            numbers = self.facts.of(before + after)
            return compute(f"X[n] = {before}x[n]{after}", {"x": x, **numbers})

        def setup_at(x: float) -> Setup:
            return self.setup(values_at(np.full(n, x)))

        def may_fit(target: Target, share: float) -> bool:
            most = share * float(np.square(target.residuals(setup)).sum())
            return may_reach(lambda x: target.residuals(setup_at(x)), low, high, most, is_whole)

        if (few := self.few) is not None and not may_fit(few, FEW_EXPLAINED):
            return None
        if n == 1 and not may_fit(self.sampled, EXPLAINED):
            return None
        if is_whole:
            at, least = whole_minimum(self.loss, int(low), int(high), n)
            return values_at(at) if self.explains(least) else None
        plain = float(self.target.misfit(setup).mean())
        at, least = minimum(lambda x: self.loss(values_at(x)), low, high, n, most=plain / 2)
        if not self.explains(least):
            return None
        x = polished(values_at(at), self.setup, self.by_number, self.of_heads)
        return None if "apart" in kinds and np.ptp(x) <= SPREAD * x.max() else x

    @cached_property
    def few(self) -> Target | None:
        """A few rows of one head, which one number for all heads fits; None where the sample has
        no more, or none that stand for themselves."""
        few = narrow_sample_of(self.sample)
        is_of_one = few is not self.sample and few.subset.sizes[:2] == (1, 1)
        return Target(few) if is_of_one else None

    def explains(self, least: Array) -> bool:
        """Whether the misfits left by fitted numbers are small, and others confirm each."""
        is_confirmed = self.sample.n_different >= SEVERAL * least.size
        plain = self.sampled.misfit(self.facts.setup).mean()
        return is_confirmed and bool(least.mean() < EXPLAINED * plain)

    def is_supported(self, x: Array) -> bool:
        """Whether so many different numbers follow from each fitted one, and confirm it.

        One that is as it was, such as the length of one batch item, moves none and needs none.
        """
        sample, heads = self.by_number, self.of_heads
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

    @cached_property
    def of_heads(self) -> Indices | None:
        """Which of the numbers each head uses; None: there is one for all."""
        setup = self.facts.setup
        return {"h": np.arange(setup.shape[1]), "g": setup.key_heads}.get(self.letter)

    @cached_property
    def by_number(self) -> Comparison:
        """The sample without gradients that are sums over several heads, if there are others."""
        errors, heads = self.sample.errors, self.of_heads
        if heads is None:
            return self.sample
        each = {name: x for name, x in errors.items() if x.expected.shape[1] == len(heads)}
        return replace(self.sample, errors=each or errors)

    @cached_property
    def sampled(self) -> Target:
        """All of the sample, which the numbers are to explain."""
        return Target(self.sample)

    @cached_property
    def target(self) -> Target:
        """What the numbers are fitted to."""
        return self.sampled if self.by_number is self.sample else Target(self.by_number)

    def loss(self, x: Array) -> Array:
        """How far off the setup is with these numbers: [n]."""
        by_head = self.target.misfit(self.setup(x))
        if self.letter == "b":
            return np.asarray(by_head.mean(axis=1))
        if (heads := self.of_heads) is None:
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


EXPLAINED = 0.25
"""A fitted number must leave at most so much of the mean square of the errors to be a cause."""

FEW_EXPLAINED = 0.5
"""A few rows of one head may be left with more."""

ALIKE = 1.02
"""Numbers whose mean squares are this near fit alike: the simplest of them is said."""


SEVERAL = 3
"""So many numbers at least confirm each one that is fitted: as many factors as numbers explain
nothing."""

SAME = 1e-9
"""A number follows from a fitted one if this moves it by more than rounding in float64 does."""


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
