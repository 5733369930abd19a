"""Where the wrong entries of a stage are: a verdict on it, with a sentence for each pattern.

A pattern is named where it holds for all wrong entries. Tokens are called by their labels, else
q1, k2, head 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.bugs.terms import last_block_text
from attncli.commands.check.findings import StageVerdict, Worst
from attncli.files.messages import safe
from attncli.tolerance.comparison import Comparison
from attncli.tolerance.number_types import EPS
from attncli.tolerance.rule import StageErrors, distance, rms
from attncli.tolerance.run import Indices, mask_of
from attncli.tolerance.spans import axes_of, first_key, span_of
from attncli.trace import Stage

Labels = Mapping[str, Sequence[str]]
N_WORST = 5
"""How many of the largest errors are shown: enough to see a pattern, few enough to read."""

LONGEST_LABEL = 60  # characters; whatever is not printable is escaped

CLEAR = 20
"""A number must be so many times its tolerance for a ratio to it to be known to 5 %."""

SMALLEST = 2.0**-126
"""The unit in the last place of smaller numbers is that of this one, the smallest of float32."""

BOTH_OFF = 2.0
"""A pattern joins two numbers, each of which may be off by the tolerance."""


def stage_verdict(name: str, comparison: Comparison, labels: Labels) -> StageVerdict:
    stage = comparison.errors[name]
    entries = Entries(name, comparison, labels)
    noise = None if stage.noise is None else rms(stage.of_heads)
    return StageVerdict(
        name=name,
        matches=stage.matches,
        tolerance=stage.rule.describe(),
        rms=stage.typical,
        largest=stage.largest,
        ulps=_ulps(stage),
        allowed=None if noise is not None else float(np.median(stage.allowed)),
        noise=noise,
        ratios=None if noise is None else stage.ratios,
        median=float(np.median(stage.errors, overwrite_input=True)),
        share_wrong=0.0 if stage.matches else float(stage.wrong.mean()),
        n=int(stage.expected.size),
        places=() if stage.matches else places(entries),
        worst=() if stage.matches else tuple(_worst(entries)),
    )


def _ulps(stage: StageErrors) -> float:
    """The largest error in units in the last place of the expected number, in the observed type."""
    row = np.unravel_index(int(stage.by_row[1].argmax()), stage.by_row[1].shape)
    cell = np.s_[row[0] : row[0] + 1, row[1] : row[1] + 1, row[2] : row[2] + 1]
    apart = distance(stage.observed[cell], stage.expected[cell]).ravel()
    at = int(apart.argmax())
    size = abs(float(stage.expected[cell].ravel()[at]))
    if not np.isfinite(size):
        return float(np.inf)
    unit = EPS[stage.rule.dtype] * 2.0 ** math.floor(math.log2(max(size, SMALLEST)))
    return float(apart[at]) / unit


class Entries:
    """The entries of one stage, by position [batch, head, row, last], and their names.

    stage      the two arrays and how far they are apart
    whole      has the axes, shape and labels of the whole stage, and no numbers
    ndim       number of axes of the caller's arrays; those before are not named
    first_key  the key of the first column, where the columns are keys
    """

    def __init__(self, name: str, comparison: Comparison, labels: Labels) -> None:
        self.setup, self.subset = comparison.setup, comparison.subset
        over = self.setup.convention.softmax_over
        self.stage, self.ndim = comparison.errors[name], self.setup.ndim
        self.positions = comparison.positions(name)
        axes, (_, n_heads, _, last) = axes_of(name, over), self.stage.wrong.shape
        n_batch, all_heads, n_q, _ = self.setup.shape
        shape = n_batch, all_heads if axes[1] else n_heads, n_q, last
        self.is_row = span_of(name, over) == "rows"
        value = np.broadcast_to(np.float64(0), shape if self.is_row else self.stage.wrong.shape)
        words = {axis: tuple(names) for axis, names in labels.items() if names}
        self.first_key = first_key(name, self.setup.tiles)
        self.whole = Stage(name, "", "", value, axes, words)

    @property
    def is_map(self) -> bool:
        """Whether its rows are queries and its columns keys."""
        return self.whole.axes[3] == "key" and self.is_row

    def index(self, axis: int) -> Indices:
        """The whole stage's indices of an axis that were observed."""
        if axis < 3 and self.is_row and self.whole.axes[axis]:
            return self.subset[axis]
        return self.positions[axis] if axis < 3 else np.arange(self.whole.value.shape[3])

    def along(self, axis: int) -> Indices:
        """The positions of an axis at which anything is wrong."""
        others = tuple(i for i in range(4) if i != axis)
        return np.flatnonzero(self.stage.wrong.any(axis=others))

    def one(self, axis: int, position: int) -> str:
        """One entry of an axis, such as q3 or d_v 2."""
        kind = self.whole.axes[axis]
        at = int(self.index(axis)[position]) + self.first_key * (kind == "key")
        name = safe(self.whole.label(kind, at), LONGEST_LABEL)
        return f"{kind} {name}" if kind in ("d_v", "d_model") else name

    def place(self, position: Sequence[int]) -> str:
        """One entry, such as head 1, q3, k2."""
        axes = [axis for axis in range(4 - self.ndim, 4) if self.whole.axes[axis]]
        return ", ".join(self.one(axis, position[axis]) for axis in axes)

    def span(self, axis: int, positions: Indices) -> str:
        """Some entries of an axis: `head 2`, `heads 1, 3`, `rows q3 to q7`, `columns k1, k4`."""
        if len(positions) == 1:
            return self.one(axis, positions[0])
        kind = ("batch items", "heads", "rows", "columns")[axis]
        names = [self.one(axis, at) for at in positions]
        names = [name.removeprefix("head ").removeprefix("batch ") for name in names]
        if len(positions) == positions[-1] - positions[0] + 1:
            return f"{kind} {names[0]} to {names[-1]}"
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        return f"{kind} {', '.join(names[:5])}{more}"


def _worst(entries: Entries) -> list[Worst]:
    """The entries with the largest errors; of equal ones, those that come first."""
    stage, errors = entries.stage, entries.stage.errors
    wrong = errors[stage.wrong]
    n = min(N_WORST, wrong.size)
    wrong.partition(wrong.size - n)
    candidates = np.flatnonzero(stage.wrong & (errors >= wrong[wrong.size - n]))
    worst = []
    for flat in candidates[np.argsort(-errors.ravel()[candidates], kind="stable")[:n]]:
        at = tuple(int(i) for i in np.unravel_index(flat, stage.wrong.shape))
        index = tuple(int(entries.index(axis)[at[axis]]) for axis in range(4 - entries.ndim, 4))
        both = float(stage.observed[at]), float(stage.expected[at])
        worst.append(Worst(entries.place(at), index, *both))
    return worst


def places(entries: Entries) -> tuple[str, ...]:
    """Where a stage is wrong, in sentences; empty where nothing is."""
    if not entries.stage.wrong.any():
        return ()
    if sentences := tuple(filter(None, (find(entries) for find in _PATTERNS))):
        return sentences
    if entries.stage.wrong.all():
        return ("everywhere: no entry is right",)
    return ("scattered: every head, row and column has wrong entries",)


def _not_numbers(entries: Entries) -> str:
    stage = entries.stage
    bad = ~np.isfinite(stage.observed) & np.isfinite(stage.expected)
    if not bad.any() or (stage.wrong & ~bad).any():
        return ""
    return "the observed number is NaN or infinite in each of them, and nowhere else"


def _by_one_number(entries: Entries) -> str:
    """Everything is the same multiple of what is expected, or off by the same addend."""
    stage = entries.stage
    if not (np.isfinite(stage.expected) & np.isfinite(stage.observed)).all():
        return ""
    clear = np.abs(stage.expected) > CLEAR * stage.allowed
    if clear.sum() > 1:
        factor = float(
            np.median(stage.observed[clear] / stage.expected[clear], overwrite_input=True)
        )
        apart = factor * stage.expected
        slack = BOTH_OFF * max(1.0, abs(factor))
        if factor and f"{factor:.6g}" != "1" and _are_near(apart, stage, slack):
            return f"everywhere, by one factor: observed = {factor:.6g} · expected"
    step = float(np.median(stage.observed - stage.expected, overwrite_input=True))
    if stage.wrong.size > 2 and step and _are_near(stage.expected + step, stage, BOTH_OFF):
        return f"everywhere, by one addend: observed = expected + {step:.6g}"
    return ""


def _are_near(x: Array, stage: StageErrors, slack: float) -> bool:
    """Whether numbers, which are overwritten, are those observed but for the slack."""
    np.abs(np.subtract(stage.observed, x, out=x), out=x)
    return not (x > slack * stage.allowed).any()


def _single(entries: Entries) -> str:
    if entries.stage.wrong.sum() != 1:
        return ""
    return f"one entry alone: {entries.place(np.argwhere(entries.stage.wrong)[0].tolist())}"


def _along(axis: int) -> Callable[[Entries], str]:
    """The wrong entries are at some positions of an axis only."""

    def find(entries: Entries) -> str:
        at, n = entries.along(axis), entries.stage.wrong.shape[axis]
        if len(at) == n or entries.stage.wrong.sum() == 1:
            return ""
        return f"only in {entries.span(axis, at)}{_last_block(at, n, entries.index(axis))}"

    return find


def _last_block(at: Indices, n: int, index: Indices) -> str:
    """Words for positions that are the last block of a tiled axis; index: those of the whole."""
    if not np.array_equal(index, np.arange(n)) or len(at) != n - at[0]:
        return ""
    block = last_block_text(int(at[0]), n)
    return f": {block}" if block else ""


def _shifted(entries: Entries) -> str:
    """The wrong rows have the numbers of the rows a fixed step away."""
    stage, rows = entries.stage, entries.along(2)
    for step in (-1, 1, -2, 2):
        inside = rows[(rows + step >= 0) & (rows + step < stage.wrong.shape[2])]
        if not len(inside) or len(inside) < len(rows) - abs(step):
            continue
        apart = stage.observed[:, :, inside]
        apart -= stage.expected[:, :, inside + step]
        np.abs(apart, out=apart)
        allowed = np.broadcast_to(stage.allowed, stage.wrong.shape)
        same = apart <= allowed[:, :, inside]
        if not (same | ~stage.wrong[:, :, inside].any(axis=-1, keepdims=True)).all():
            continue
        if len(inside) == 1:
            first, second = (entries.one(2, row) for row in (inside[0], inside[0] + step))
            return f"{first} has the numbers of {second}"
        side = "after" if step > 0 else "before"
        return f"{entries.span(2, inside)} have the numbers of the row {abs(step)} {side}"
    return ""


def _diagonal(entries: Entries) -> str:
    """The wrong entries are on one side of a diagonal of queries and keys."""
    wrong = entries.stage.wrong
    if not entries.is_map or len(entries.along(2)) < 2 or wrong.shape[3] < 3:
        return ""
    row, key = np.nonzero(wrong.any(axis=(0, 1)))
    ahead = key + entries.first_key - entries.index(2)[row]
    low, high = int(ahead.min()), int(ahead.max())
    if low == high:
        return f"on one diagonal: {_ahead(low)}"
    if low > 0:
        return f"only after the diagonal: {_ahead(low)} or later"
    if high < 0:
        return f"only before the diagonal: {_ahead(high)} or earlier"
    return ""


def _ahead(steps: int) -> str:
    if steps == 0:
        return "the key at the query's own position"
    return f"the key {abs(steps)} {'after' if steps > 0 else 'before'} the query's own position"


def _masked(entries: Entries) -> str:
    setup, subset, wrong = entries.setup, entries.subset, entries.stage.wrong
    mask = mask_of(setup, subset.row) if entries.is_map else None
    if mask is None:
        return ""
    shape = (*setup.shape[:2], len(subset.row), setup.shape[3])
    whole = np.broadcast_to(np.isneginf(mask), shape)
    columns = entries.index(3) + entries.first_key
    masked = whole[..., columns][np.ix_(subset.batch, subset.head)]
    if not masked.any() or masked.all():
        return ""
    if not (wrong & ~masked).any():
        return "only in masked entries"
    return "" if (wrong & masked).any() else "only in entries that are not masked"


_PATTERNS: tuple[Callable[[Entries], str], ...] = (
    _not_numbers,
    _by_one_number,
    _single,
    *(_along(axis) for axis in range(4)),
    _shifted,
    _diagonal,
    _masked,
)
