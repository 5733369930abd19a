"""Views: are q, k and v read with axes in another order than they are stored in?

A reshape without a transpose takes what is stored by token and head as if by head and token. Or
attention is over the heads of a token, where tokens and heads are exchanged as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import permutations

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.questions.answer import Answer
from attncli.commands.check.questions.screen import is_plain
from attncli.commands.check.search import Search
from attncli.errors import joined
from attncli.stages import GIVEN_GRADIENT, GRADIENTS, OUTPUT, QKV
from attncli.tolerance.comparison import is_closer
from attncli.tolerance.run import all_of, stages

NAMES: tuple[tuple[str, ...], ...] = (QKV, ("k", "v"), ("q", "k"), *((name,) for name in QKV))
"""What is read so: all three first, as one function splits them into heads."""

AXES = "batch items", "heads", "tokens"

MOST_NUMBERS = 2**22
"""Of larger inputs no view is tried: each of them is a copy."""


def read_by_a_view(search: Search) -> Iterator[Answer]:
    """q, k and v, or some of them, by a view that exchanges batch items, heads or tokens."""
    setup, errors = search.comparison.setup, search.comparison.errors
    wrong = {name for name, stage in errors.items() if not stage.matches}
    sizes = [setup.inputs[name].size for name in QKV]
    if wrong & {*GRADIENTS} or not is_plain(setup) or max(sizes) > MOST_NUMBERS:
        return
    for names in NAMES:
        for order in permutations(range(3)):
            axes = joined([AXES[axis] for axis in range(3) if order[axis] != axis])
            for view in (_as_stored, _as_read):
                arrays = {name: view(setup.inputs[name], order) for name in names}
                if all(np.array_equal(x, setup.inputs[name]) for name, x in arrays.items()):
                    continue
                are = "are" if len(names) > 1 else "is"
                sentence = f"{joined([*names])} {are} read by a view in which {axes} are exchanged"
                symbols = ", ".join(AXES[axis].replace(" ", "_") for axis in order)
                verb = "are stored" if view is _as_stored else "are read"
                formula = (
                    f"[{symbols}, d] is how they {verb}, without a transpose to the other order"
                )
                yield Answer(sentence, [setup.with_inputs(**arrays)], formula)


def attended_over(search: Search) -> Iterator[Answer]:
    """Attention over the heads of a token, or over the same token of all batch items."""
    comparison = search.comparison
    setup, errors = comparison.setup, comparison.errors
    is_bare = is_plain(setup) and setup.inputs.keys() - {GIVEN_GRADIENT} == {*QKV}
    is_square = setup.inputs["q"].shape[:3] == setup.inputs["k"].shape[:3]
    is_wrong = OUTPUT in errors and not errors[OUTPUT].matches
    if not (is_bare and is_square and is_wrong) or setup.positions is not None:
        return
    is_screened = errors[OUTPUT].rule.kind == "noise" and OUTPUT not in setup.written
    for axis in (1, 0):
        turned = {name: np.swapaxes(setup.inputs[name], axis, 2) for name in QKV}
        sizes = turned["q"].shape
        if sizes[2] < 2 or max(x.size for x in turned.values()) > MOST_NUMBERS:
            continue
        other = setup.with_other_arrays(turned)
        output = np.swapaxes(stages(other, all_of(other.shape), [OUTPUT])[OUTPUT], axis, 2)
        rows = output[np.ix_(*comparison.subset)]
        if is_screened and not is_closer(setup, OUTPUT, rows, comparison):
            continue  # to judge it exactly, all scores are computed
        words = f"tokens attend to the other {AXES[axis]}, not to the other tokens"
        sentence = f"{AXES[axis]} and tokens are exchanged: {words}"
        letter, index = ("g", "b,g,i") if axis else ("c", "c,h,i")
        formula = f"O[b,h,i] = Σ_{letter} softmax_{letter}(q[b,h,i] · k[{index}]) v[{index}]"
        yield Answer(
            sentence,
            [setup.with_whole(0, 1, 2).with_result(OUTPUT, partial(_instead, numbers=output))],
            formula,
        )


def _instead(x: Array, numbers: Array) -> Array:
    return numbers.reshape(x.shape).astype(x.dtype)


def _as_stored(x: Array, order: tuple[int, ...]) -> Array:
    """What is read by [batch, head, token] where the axes are stored in another order."""
    return np.ascontiguousarray(x.transpose(*order, 3)).reshape(x.shape)


def _as_read(x: Array, order: tuple[int, ...]) -> Array:
    """What is read by another order of the axes where they are stored by [batch, head, token]."""
    there = x.reshape(*(x.shape[axis] for axis in order), x.shape[3])
    return there.transpose(*np.argsort(order).tolist(), 3)
