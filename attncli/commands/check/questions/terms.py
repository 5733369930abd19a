"""Terms of gradients: how often each query counts in d_k and d_v, and each key in d_q.

A gradient is linear in the counts m, which some of its rows decide:

    d_v[j] = Σ_i m_i a_ij dO_i     d_k[j] = Σ_i m_i dS_ij q_i     d_q[i] = Σ_j m_j dS_ij k_j
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.bugs.patch import steps_at, whole_plan
from attncli.commands.check.bugs.terms import last_block_text
from attncli.commands.check.questions.answer import Answer
from attncli.commands.check.questions.counting import edited
from attncli.commands.check.questions.counts import CLOSER, EXACT, WHOLE, Counts
from attncli.commands.check.search import Search
from attncli.errors import joined
from attncli.tolerance.run import Indices, Subset, stages
from attncli.tolerance.setup import Setup

SUMS = {"d_q": "scores.q", "d_k": "scores.k", "d_v": "output.v"}
"""Where each gradient is summed."""

MOST_COUNTS = 512
"""So many counts are solved in a fraction of a second; of more terms those of a block are one."""

SMALLEST_BLOCK = 16
"""Kernels have no smaller blocks of long inputs."""

MOST_SCORES = 2**25
"""The scores of a key head may be so many: 256 MB."""

ENOUGH = 4
"""So many equations there are for each count, of as many rows as that takes."""

_X = "d[b,h,i,X]"
TIMES = "times_given_mask[b,h,i,j]"
"""How often each term counts, where no condition says it: an array with the axes of a mask."""


def terms_counted(search: Search) -> Iterator[Answer]:
    """How often the terms of gradients count that are wrong: the same in d_k and d_v."""
    setup, errors = search.comparison.setup, search.comparison.errors
    names = [name for name, stage in errors.items() if not stage.matches]
    kind = "key" if names == ["d_q"] else "query"
    is_asked = kind == "key" or {*names} <= {"d_k", "d_v"}
    is_whole = search.comparison.subset.sizes == setup.shape[:3]
    is_turned = setup.positions is not None or setup.convention.qk_norm
    if not is_asked or not is_whole or is_turned or setup.tiles:
        return
    solved = [_counts(search, name, kind) for name in names]
    first = solved[0] if solved else None
    if first is None or any(counts is None for counts in solved):
        return
    for within in (WHOLE, EXACT):
        counts = first.rounded(within)
        if counts.is_possible and not counts.is_right:
            yield _answer(counts, names, search)


def _answer(counts: Counts, names: list[str], search: Search) -> Answer:
    """The counts in words, and as edits of the sums."""
    setup, sets = search.comparison.setup, counts.sets
    places = ", ".join(SUMS[name] for name in names)
    lines = [
        f"{places}: where => where {terms.outside}"
        if value == 0
        else f"{places}: {_X} => {_X} * ({value:.17g} if {terms.inside} else 1)"
        for value, terms in sets
    ]
    if any(not terms.inside for _, terms in sets):
        along = (1, 1, -1, 1) if counts.kind == "query" else (1, 1, 1, -1)
        setup = setup.with_inputs(**{"times.given_mask": counts.keys.reshape(along)})
        lines = [f"{places}: {_X} => {_X} * {TIMES}"]
    others = np.flatnonzero(counts.keys != 1)
    is_end = len(sets) == 1 and others[-1] - others[0] == len(others) - 1
    is_last = is_end and others[-1] == len(counts.keys) - 1
    block = last_block_text(int(others[0]), len(counts.keys)) if is_last else ""
    sentence = ", ".join(filter(None, (f"in {joined(names)} {counts.text}", block)))
    return Answer(sentence, edited(setup, lines, search.evidence))


def _counts(search: Search, name: str, kind: str) -> Counts | None:
    """How often each term counts in a gradient; None where that does not explain it."""
    setup, stage = search.comparison.setup, search.comparison.errors[name]
    n = setup.shape[3 if kind == "key" else 2]
    starts = np.arange(0, n, SMALLEST_BLOCK if n > MOST_COUNTS else 1)
    blocks, residuals, n_rows = list[Array](), list[Array](), 0
    if len(starts) > MOST_COUNTS:
        return None
    for b, head in np.argwhere(stage.wrong.any(axis=(2, 3))).tolist():
        wrong = np.flatnonzero(stage.wrong[b, head].any(axis=-1))
        rows = wrong[:: max(1, len(wrong) * stage.wrong.shape[3] // (ENOUGH * len(starts)))]
        if (columns := _columns(setup, name, b, head, rows)) is None:
            return None
        blocks.append(np.add.reduceat(columns, starts, axis=-1).reshape(-1, len(starts)))
        residual = stage.observed[b, head, rows] - stage.expected[b, head, rows]
        residuals.append(residual.ravel())
        n_rows += len(residuals[-1])
        if n_rows >= ENOUGH * len(starts):
            break
    matrix, apart = np.concatenate(blocks), np.concatenate(residuals)
    is_finite = np.isfinite(matrix).all() and np.isfinite(apart).all()
    sizes = np.abs(matrix).max(axis=0, initial=0.0)
    is_known = sizes > UNUSED * sizes.max()
    if not is_finite or len(apart) < is_known.sum() + TIMES_CONFIRMED:
        return None
    more = np.zeros(len(starts))
    more[is_known] = np.linalg.lstsq(matrix[:, is_known], apart)[0]
    if np.linalg.norm(apart - matrix @ more) > CLOSER * np.linalg.norm(apart):
        return None
    each = np.diff(starts, append=n)
    return Counts(np.repeat(1 + more, each), np.repeat(is_known, each), kind=kind)


UNUSED = 1e-10
"""A term that is so small beside the largest says nothing: that of a query that is hidden."""

TIMES_CONFIRMED = 8
"""So many more equations there are at least than counts."""


def _columns(setup: Setup, name: str, b: int, head: int, rows: Indices) -> Array | None:
    """[row, d, term]: what each term adds to some rows of a gradient."""
    heads = np.array([head]) if name == "d_q" else np.flatnonzero(setup.key_heads == head)
    steps = steps_at(SUMS[name], whole_plan(setup))
    if len(steps) != 1 or len(heads) * setup.shape[2] * setup.shape[3] > MOST_SCORES:
        return None
    reads = {letter: x for letter, x in steps[0].reads.items() if letter not in ("mask", "k")}
    over = Subset(np.array([b]), heads, np.arange(setup.shape[2]))
    arrays = stages(setup, over, [*reads.values()])
    if name == "d_v":
        a, d = (arrays[reads[x]][0] for x in ("a", "d"))
        return np.asarray(np.einsum("hij,hie->jei", a[:, :, rows], d))
    if name == "d_k":
        d, q = (arrays[reads[x]][0] for x in ("d", "q"))
        return np.asarray(np.einsum("hij,hid->jdi", d[:, :, rows], q))
    k = setup.inputs["k"][b, setup.key_heads[head]]
    return np.asarray(np.einsum("ij,jd->idj", arrays[reads["d"]][0, 0][rows], k))
