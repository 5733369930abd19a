"""The shapes of what was observed: the stage's own, or one that a change of layout makes right."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from attncli.arrays import Array
from attncli.attention.heads import shape_text, split_heads
from attncli.convention import DType
from attncli.errors import ShapeError
from attncli.files.messages import count
from attncli.stages import DELTA, GRADIENTS, OF_X, QKV, TILE, gradient_of, spec_of
from attncli.tolerance.run import Subset
from attncli.tolerance.setup import Setup
from attncli.tolerance.spans import OF_ALL_HEADS, ROWS, first_key, in_four

Relayout = Callable[[Array, tuple[int, ...]], Array]


class WrongShapeError(ShapeError):
    """An observed stage has another shape than the stage of that name over the subset."""

    def __init__(
        self, stage: str, array: Array, dtype: DType, expected: tuple[int, ...], subset: Subset
    ) -> None:
        text = " × ".join(map(str, expected))
        size = f"is {shape_text(array)}" if array.ndim > 1 else f"has {count(array.size, 'number')}"
        super().__init__(f"{stage} {size}, expected {text}")
        self.stage, self.array, self.dtype = stage, array, dtype
        self.expected, self.subset = expected, subset

    @property
    def may_be_subset(self) -> bool:
        """Whether it could be some of the heads and rows."""
        sizes, whole_sizes = self.array.shape[::-1], self.expected[::-1]
        fits = all(n <= most for n, most in zip(sizes, whole_sizes, strict=False))
        return 0 < len(sizes) <= len(whole_sizes) and sizes[0] == whole_sizes[0] and fits


def fitted(stage: str, array: Array, dtype: DType, setup: Setup, subset: Subset) -> Array:
    """The array as [batch, head, row, last]; an axis that a pick leaves one entry may be missing.

    Raises WrongShapeError.
    """
    axes = spec_of(stage).axes.split()
    inputs = {**setup.inputs}
    over = setup.convention.softmax_over
    if stage in OF_X and setup.projected is not None:
        inputs |= setup.projected.values
    if stage == DELTA and over == "queries":
        axes[-1] = "key"
    sizes = dict(zip(ROWS, subset.sizes, strict=True)) | {"d_k": setup.d_k, "key": setup.shape[3]}
    sizes |= {"kv_head": inputs["k"].shape[1], "d_v": setup.inputs["v"].shape[-1]}
    sizes["d_model"] = inputs["w_o"].shape[-1] if "w_o" in inputs else 0
    if stage.startswith(f"{TILE}."):
        sizes["key"] = min(setup.tiles, setup.shape[3] - first_key(stage, setup.tiles))
    of_inputs = {gradient_of(name): x.shape for name, x in inputs.items() if name not in QKV}
    if stage in OF_ALL_HEADS:  # [batch, query, …], whose batch of one may be missing
        axes = axes if setup.ndim > 3 else axes[1:]
        expected = tuple(sizes[x] for x in axes)
        of_one = {"batch", "query"}
        squeezed = tuple(n for x, n in zip(axes, expected, strict=True) if n > 1 or x not in of_one)
    else:
        expected = of_inputs.get(stage) or tuple(sizes[x] for x in axes[4 - setup.ndim :])
        numbered = enumerate(expected, 4 - setup.ndim)
        squeezed = tuple(size for axis, size in numbered if size != 1 or axis not in {1, 2})
    fits = array.shape in {expected, squeezed, *([(*expected, 1)] if axes == ROWS else [])}
    if stage in GRADIENTS:
        fits = [n for n in array.shape if n != 1] == [n for n in expected if n != 1]
    if not fits:
        raise WrongShapeError(stage, array, dtype, expected, subset)
    return in_four(stage, array.reshape(expected).astype(np.float64), over)


def fitting_layouts(array: Array, expected: tuple[int, ...]) -> Iterator[tuple[str, Array]]:
    """Every known layout that gives the array the expected shape: what is wrong, and the result.

    >>> [words for words, _ in fitting_layouts(np.zeros((5, 6)), (2, 5, 3))]
    ['The heads are side by side in the last axis: split them']
    """
    for words, change in _LAYOUTS:
        try:
            changed = change(array, expected)
        except (ValueError, IndexError):  # it does not have these axes, or they do not divide
            continue
        if changed.shape == expected:
            yield words, changed


def _without_ones(x: Array, n: tuple[int, ...]) -> Array:
    same = [size for size in x.shape if size > 1] == [size for size in n if size > 1]
    return x.reshape(n) if same and x.ndim != len(n) else x


_LAYOUTS: tuple[tuple[str, Relayout], ...] = (
    ("It has axes of length 1 too many or too few", _without_ones),
    ("The heads are side by side in the last axis: split them", lambda x, n: split_heads(x, n[-3])),
    ("Heads and tokens are exchanged: swap these two axes", lambda x, n: np.swapaxes(x, -3, -2)),
    ("Its last two axes are exchanged: swap them", lambda x, n: np.swapaxes(x, -2, -1)),
    (
        "Batch and heads are one axis: reshape it",
        lambda x, n: x.reshape(n[-4], n[-3], *x.shape[1:]),
    ),
    ("Batch and heads are exchanged: swap these two axes", lambda x, n: np.swapaxes(x, -4, -3)),
    ("Tokens and batch are exchanged: swap these two axes", lambda x, n: np.swapaxes(x, -4, -2)),
    (
        "The width is before the tokens, its heads side by side: swap and split",
        lambda x, n: split_heads(np.swapaxes(x, -1, -2), n[-3]),
    ),
)
