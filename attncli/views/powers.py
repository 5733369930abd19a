"""Softmax and the logarithm of a sum of powers in real numbers: exp(1) / (exp(1) + exp(2))."""

from __future__ import annotations

import numpy as np

from attncli.arrays import Array
from attncli.views.cell import Entry, Forms, fraction
from attncli.views.text import BREAK

LARGE = 20  # a score beyond it is shown as it is computed: with the maximum subtracted


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
    exps, shift, minus, terms = _powers(entry, scores)
    parts = [(f"exp({entry.write(score)}{minus})", terms)]
    power = entry.write(np.exp(score - shift))
    if entry.at_length:
        parts.append((power, entry.numbers(exps)))
    parts = [(above, f"({terms})" if BREAK in terms else terms) for above, terms in parts]
    forms = [fraction(above, below, after=BREAK) for above, below in parts]
    remark = f"and exp(-inf) = 0 for {n_masked} masked" if n_masked else ""
    return [*forms, fraction(power, entry.write(exps.sum()))], remark


def log_sum(entry: Entry, scores: Array, unit: str = "") -> Forms:
    """The log of the sum of the powers of scores; `unit` divides it, to be of another base."""
    if np.isneginf(scores).all():
        return [], "every key is masked: ln 0"
    exps, shift, _, terms = _powers(entry, scores)
    forms = [f"ln ({terms})", f"ln {entry.write(exps.sum())}"]
    if shift:
        forms = [f"{entry.write(shift)} + {form}" for form in forms]
    if unit:
        forms = [fraction(f"({form})" if shift else form, unit) for form in forms]
    return forms, ""


def _powers(entry: Entry, scores: Array) -> tuple[Array, float, str, str]:
    """The powers of all scores but −inf, what is subtracted from these, and it and all as text."""
    kept = scores[~np.isneginf(scores)]
    shift = float(kept.max()) if np.abs(kept).max() > LARGE else 0.0
    minus = f" - {entry.factor(shift)}" if shift else ""
    exps = np.exp(kept - shift)
    terms = entry.sum(exps, lambda at: f"exp({entry.write(kept[at])}{minus})")
    return exps, shift, minus, terms
