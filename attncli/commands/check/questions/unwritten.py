"""Which rows were not written: 0 or NaN in all of their numbers, where other numbers are right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.bugs.terms import last_block_text
from attncli.commands.check.questions.answer import places_text
from attncli.errors import joined
from attncli.tolerance.comparison import Comparison, comparison_of
from attncli.tolerance.run import Subset, all_of
from attncli.tolerance.spans import OF_ALL_HEADS, span_of

KINDS = "batch item", "head", "query"
"""The axes of rows in words."""

KINDS_OF = {"rows": KINDS, "keys": ("batch item", "key head", "key")}


def without_unwritten(
    comparison: Comparison, *, of_blocks: bool = False
) -> tuple[Comparison, str] | None:
    """The comparison in which these rows are what they are, and the rows in words; None: none.

    of_blocks  whether only those count that are the last block of all
    """
    setup, over = comparison.setup, comparison.setup.convention.softmax_over
    written, sentences = dict[str, Array](), dict[str, list[str]]()
    for name, stage in comparison.errors.items():
        is_wrong = np.asarray(stage.wrong.any(axis=-1))
        span = span_of(name, over)
        if span == "totals" or name in OF_ALL_HEADS:
            if is_wrong.all() and not stage.observed.any():
                written[name] = np.zeros(())
                sentences[f"{name} is 0: not written"] = []
            continue
        marks = marks_of(stage.observed, is_wrong)
        sizes = all_of(marks.shape) if span == "keys" else comparison.subset
        if (marks == 1).all() or marks.shape != sizes.sizes:
            continue
        if of_blocks and not _block_of(marks, sizes):
            continue
        if (marks == 0).all():
            sentences[f"{name} is 0: not written"] = []
        elif (marks == 1).any():
            text = unwritten_text(marks, sizes, STAGES, KINDS_OF[span])
            sentences.setdefault(text, []).append(name)
        else:
            continue
        written[name] = marks
        if span == "rows":
            written[name] = np.ones(setup.shape[:3])
            written[name][np.ix_(*comparison.subset)] = marks
        elif comparison.subset.sizes != setup.shape[:3]:
            return None
    if not written:
        return None
    changed = replace(setup, written={**setup.written, **written})
    observed = {name: comparison.errors[name].observed for name in comparison.errors}
    is_single = len(comparison.errors) == 1
    texts = (
        text.replace(STAGES, "" if is_single else f" of {joined(names)}")
        for text, names in sentences.items()
    )
    return comparison_of(changed, comparison.subset, observed, comparison.rule), joined([*texts])


STAGES = "{stages}"
"""Where a sentence says which stages have these rows."""


def marks_of(observed: Array, is_wrong: Array) -> Array:
    """[batch, head, query]: 0 or NaN where a wrong row is that in all of its numbers, else 1."""
    zeros, nans = (observed == 0).all(axis=-1), np.isnan(observed).all(axis=-1)
    return np.where(is_wrong & zeros, 0.0, np.where(is_wrong & nans, np.nan, 1.0))


def _block_of(marks: Array, subset: Subset) -> str:
    """Of which blocks the unwritten rows are the last one, in all heads; "" where of none.

    >>> marks = np.where(np.arange(37) < 32, 1.0, 0.0)[None, None]
    >>> _block_of(marks, all_of(marks.shape))
    'the last block of 16 or 32'
    """
    n, is_unwritten = marks.shape[2], marks != 1
    first = int(is_unwritten.any(axis=(0, 1)).argmax())
    is_last = is_unwritten[:, :, first:].all() and np.array_equal(subset.row, np.arange(n))
    return last_block_text(first, n) if is_last else ""


def unwritten_text(marks: Array, subset: Subset, of_stage: str, kinds: Sequence[str]) -> str:
    """The rows in words, such as "queries 5 to 7 are 0: not written"."""
    is_unwritten = marks != 1
    axes = [np.flatnonzero(is_unwritten.any(axis=tuple({0, 1, 2} - {x}))) for x in range(3)]
    is_all = int(np.prod([len(at) for at in axes])) == is_unwritten.sum()
    parts = [
        places_text(kind, subset[axis][at].tolist())
        for axis, (kind, at) in enumerate(zip(kinds, axes, strict=True))
        if len(at) < marks.shape[axis]
    ]
    rows = " of ".join(reversed(parts)) or f"{is_unwritten.sum()} rows"
    if parts and not is_all:
        rows = f"{is_unwritten.sum()} rows among {rows}"
    mark = "NaN" if np.isnan(marks[is_unwritten]).any() else "0"
    is_single = is_all and bool(parts) and re.fullmatch(r"[a-z ]+ \d+", parts[-1])
    text = f"{rows}{of_stage} {'is' if is_single else 'are'} {mark}: not written"
    return ", ".join(filter(None, (text, _block_of(marks, subset))))
