"""Softmax and the logarithm of a sum of powers in real numbers: exp(1) / (exp(1) + exp(2))."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.views.cell import Entry, Forms, fraction
from attncli.views.text import BREAK

LARGE = 20  # a score beyond it is shown as it is computed: with the maximum subtracted


class _Powers(NamedTuple):
    """Powers of scores, what is subtracted from these, the same in words, and the sum in words."""

    exps: Array
    shift: float
    minus: str
    words: str


def _powers(entry: Entry, scores: Array) -> _Powers:
    """The powers of all scores but −inf."""
    kept = scores[~np.isneginf(scores)]
    is_large = len(kept) and np.abs(kept).max() > LARGE
    shift = float(kept.max()) if is_large else 0.0
    minus = f" - {entry.factor(shift)}" if shift else ""
    exps = np.exp(kept - shift)
    words = entry.sum(exps, lambda at: f"exp({entry.write(kept[at])}{minus})")
    return _Powers(exps, shift, minus, words)


def softmax(entry: Entry, score: float, scores: Array, n: int, other: str) -> Forms:
    """exp of a score over the sum of exps, of the scores that are not −inf.

    n      how many of the scores are of keys: what follows them is a sink
    other  "key", or "query" where the scores are those of one key
    """
    n_masked = int(np.isneginf(scores[:n]).sum())
    if n_masked == n:
        return [], f"every {other} is masked"
    if np.isneginf(score):
        return [], "masked: exp(-inf) = 0"
    exps, shift, minus, words = _powers(entry, scores)
    power = entry.write(np.exp(score - shift))
    forms = [fraction(f"exp({entry.write(score)}{minus})", _bracketed(words), after=BREAK)]
    if entry.at_length:
        forms.append(fraction(power, _bracketed(entry.numbers(exps)), after=BREAK))
    remark = f"and exp(-inf) = 0 for {n_masked} masked" if n_masked else ""
    return [*forms, fraction(power, entry.write(exps.sum()))], remark


def log_sum(entry: Entry, scores: Array, unit: str = "") -> Forms:
    """The log of the sum of the powers of scores; `unit` divides it, to be of another base."""
    exps, shift, minus, words = _powers(entry, scores)
    if not len(exps):
        return [], "every key is masked: ln 0"
    forms = [f"ln ({words})", f"ln {entry.write(exps.sum())}"]
    if minus:
        forms = [f"{entry.write(shift)} + {form}" for form in forms]
    if unit:
        forms = [fraction(f"({form})" if minus else form, unit) for form in forms]
    return forms, ""


def _bracketed(words: str) -> str:
    """A sum in parentheses, a single term as it is."""
    return f"({words})" if BREAK in words else words
