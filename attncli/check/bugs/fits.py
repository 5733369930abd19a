"""Numbers that edits leave open: a ? is fitted to what was observed, and said in its simplest form.

    how.softcap: => ? fit 2 ** [-1 to 9]               2 to the power of a number between these
    input.sinks: => ?[h] fit [-12 to 12]               one for each head
    input.kv_len: => ?[b] fit whole [1 to size[j]]     whole numbers
    input.k: => right * ?[g] fit apart 2 ** [-8 to 8]  numbers that are not all alike
    … fit 100, 1000 or 10 ** [1 to 8]                  one of these if it explains enough
    … fit [-4 to 4]; -1 as: reversed; 2 digits; roots  -1, 2 digits or 1/√n, if it fits alike
    … quiet 1000 / sqrt(times)                         errors within the rounding: so many times it

They are fitted to a few rows, where no other bug fits, and judged on all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.compute import compute
from attncli.check.bugs.bug import Evidence, Probe
from attncli.check.bugs.edits import Facts, Line, Patch, letter_of, line_of, said
from attncli.check.bugs.numbers import sizes_of
from attncli.check.comparison import Comparison
from attncli.check.fitting import (
    ALIKE,
    NEAR,
    explains,
    minimum,
    misfit,
    polished,
    roots,
    whole_minimum,
)
from attncli.check.run import Indices
from attncli.check.setup import Setup

TINY = 1e-12
"""A mean square of errors, over the rounding, below which all forms of a number fit alike."""

SPREAD = 1e-3
"""Factors that differ by a smaller share are one factor."""


def fitted(lines: Sequence[str], setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The setups with the number of each line that explains the errors; none after a known form."""
    facts = Facts(setup, evidence)
    for line in map(line_of, lines):
        if not line.fit or (line.condition and not facts.number(line.condition)):
            continue
        letter = letter_of(line.choices[0])
        sample = evidence.wide if letter else evidence.sample
        if sample is None:
            continue
        fit = _Fit(line, letter, facts, sample)
        if (x := fit.numbers()) is not None:
            x, words = fit.simplest(x)
            number = x if letter else float(x[0])
            texts = {"?": f"{said(number)}{words}"}
            yield fit.setup(x).with_detail(facts.detail(line.detail, texts, {"?": number}))
            if words:
                return


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
        number = x if self.letter else float(x[0])
        patch = Patch(self.line.choices[0], self.facts.evidence, fitted=number)
        with np.errstate(all="ignore"):
            return patch.on(self.facts.setup) or self.facts.setup

    def numbers(self) -> Array | None:
        """The numbers that fit best, [n]; None where they do not explain the errors."""
        setup, (text, *_) = self.facts.setup, self.line.fit.split("; ")
        *kinds, text = re.split(r"^(whole|apart) ", text)
        known, _, text = text.rpartition(" or ")
        if known:
            values = np.array([*map(float, known.split(", "))])
            losses = [self.loss(values[[i]])[0] for i in range(len(values))]
            if explains(np.array([min(losses)]), setup, self.sample):
                return values[[int(np.argmin(losses))]]
        before, _, text = text.partition("[")
        text, _, after = text.rpartition("]")
        low, high = (self.facts.number(x) for x in text.split(" to "))
        n = sizes_of(setup).get(self.letter, 1)
        if "whole" in kinds:
            at, least = whole_minimum(self.loss, int(low), int(high), n)
            return at.astype(float) if explains(least, setup, self.sample) else None

        def of(x: Array) -> Array:
            numbers = self.facts.of(before + after)
            return compute(f"X[n] = {before}x[n]{after}", {"x": x, **numbers})

        plain = float(misfit(setup, self.sample).mean())
        at, least = minimum(lambda x: self.loss(of(x)), low, high, n, most=plain / 2)
        if not explains(least, setup, self.sample):
            return None
        x = polished(of(at), self.setup, self.by_number(), self.of_heads())
        return None if "apart" in kinds and np.ptp(x) <= SPREAD * x.max() else x

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
        """The first form that fits as well as x, and its words; else x itself."""
        number, (_, *forms) = float(x[0]), self.line.fit.split("; ")
        most = float(self.loss(x)[0]) * ALIKE + TINY if forms else 0.0
        for form in forms:
            for value, words, others in self.forms(form, number):
                is_near = math.isfinite(value) and abs(value - number) < NEAR * (abs(value) or 1)
                fits = is_near and self.loss(np.array([value]))[0] <= most
                if fits and all(self.loss(np.array([other]))[0] > most for other in others):
                    return np.array([value]), self.facts.detail(words, {})
        return x, ""

    def forms(self, form: str, x: float) -> Iterator[tuple[float, str, Sequence[float]]]:
        """The numbers of a form near x, with their words, and others that must not fit as well."""
        if form == "roots":
            yield from ((value, f" = {words}", others) for value, words, others in roots(x))
        elif form == "2 digits":
            yield float(f"{x:.2g}"), "", ()
        else:
            value, _, words = form.partition(" as")
            with np.errstate(divide="ignore"):
                yield float(self.facts.number(value)), words, ()


def probe_of(lines: Sequence[str]) -> Probe | None:
    """A little of what a line is for errors within the rounding, and so many times as much."""
    line = next((one for one in map(line_of, lines) if one.quiet), None)
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
