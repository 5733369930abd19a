"""Where the libraries differ on one input: what each gives, in groups that give the same.

q, k, v, mask, causal ── each preset's convention ── run ──> Outcomes: groups, what is not shown
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.inputs import inputs_of
from attncli.attention.plan import plan
from attncli.attention.run import run
from attncli.attention.shapes import as_numbers
from attncli.commands.semantics.cases import CASES, REFUSED, Call, Case
from attncli.convention import Convention
from attncli.presets import PRESETS, Preset
from attncli.stages import OUTPUT

SAME = 1e-9
"""Two computations of one number in float64 are nearer than this, relative to the largest; what
libraries mean differently differs by far more."""


class Group(NamedTuple):
    """Libraries that give the same."""

    names: tuple[str, ...]  # of their presets
    does: Mapping[str, str]  # case → what they do in it: what most do not, or else all
    apart: Array  # [query], from the output of the first group, the most of all heads; NaN by NaN


class Outcomes(NamedTuple):
    """What each library gives for one call."""

    groups: tuple[Group, ...]  # the largest first
    refused: Mapping[str, str]  # preset → the reason why it takes no such call
    unseen: tuple[Case, ...]  # the cases in which this call cannot make libraries part
    lengths: tuple[int, int]  # number of queries and of keys, those of a past included


def outcomes(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    mask: npt.ArrayLike | None = None,
    fields: Mapping[str, Any] = {},
    presets: Sequence[Preset] = tuple(PRESETS.values()),
    **more: Any,
) -> Outcomes:
    """What each library gives for this input, where numbers and their types do not matter.

    mask    as it is given to the library: each reads its numbers, or true and false, in its own way
    fields  of Convention, such as causal=True, that hold for all of them
    more    what else `attend` takes: past_k, past_v, kv_len, sinks, layout
    """
    base = Convention(**{**fields, "mask_numbers": "add"})  # the mask is left as it is
    layout = more.pop("layout", None)
    attention = inputs_of({"q": q, "k": k, "v": v, "mask": mask, **more}, base, layout=layout)
    inputs, sizes = attention.arrays, attention.sizes
    raw_mask = None if mask is None else as_numbers(mask, "the mask")
    widths = sizes.d_k, inputs["v"].shape[-1]
    call = Call(sizes.scores, sizes.n_kv_heads, widths, raw_mask, dict(fields), sizes.n_past)
    outputs: dict[str, Array] = {}
    refused: dict[str, str] = {}
    for preset in presets:
        convention = Convention(**{**preset.fields, **fields})
        if (why := preset.refuses_call(convention, raw_mask, **call.sizes)) is not None:
            refused[preset.name] = why
            continue
        sizes = sizes.naming(sizes.inputs, convention, raw_mask)
        outputs[preset.name] = run(plan(convention, sizes), inputs, [OUTPUT])[OUTPUT]
    unseen = tuple(case for case in CASES.values() if not case.arises(call))
    n_q, n_k = sizes.scores[-2:]
    return Outcomes(tuple(_groups(outputs, presets, call)), refused, unseen, (n_q, n_k))


def _groups(outputs: Mapping[str, Array], presets: Sequence[Preset], call: Call) -> Iterable[Group]:
    """The libraries whose outputs are the same, the largest group first."""
    together: list[list[str]] = []
    for name, output in outputs.items():
        for names in together:
            if not _apart(output, outputs[names[0]]).any():
                names.append(name)
                break
        else:
            together.append([name])
    together.sort(key=len, reverse=True)
    words = _words([row for row in presets if row.name in outputs], call)
    for names in together:
        apart = _apart(outputs[names[0]], outputs[together[0][0]])
        yield Group(tuple(names), words(names), apart)


def _apart(x: Array, y: Array) -> Array:
    """How far two outputs [..., query, d_v] are apart, by query; 0 where they are the same."""
    with np.errstate(invalid="ignore"):
        size = np.abs(np.where(np.isfinite(x), x, 0)).max()
        same = np.isclose(x, y, rtol=0, atol=SAME * size, equal_nan=True)
        distance = np.where(same, 0, np.abs(x - y)).max(axis=-1)
    return np.asarray(distance.reshape(-1, x.shape[-2]).max(axis=0))


def _words(presets: Sequence[Preset], call: Call) -> Any:
    """What some of the libraries do, where they differ on this call: but for what most do."""
    cases = [case for case in CASES.values() if case.arises(call)]
    cells = {case: {p.name: case.cell(p) for p in presets} for case in cases}
    varied = {case: row for case, row in cells.items() if len({*row.values()}) > 1}
    most = {case: Counter(row.values()).most_common(1)[0][0] for case, row in varied.items()}

    def words(names: Sequence[str]) -> dict[str, str]:
        common = {
            case: row[names[0]]
            for case, row in varied.items()
            if row[names[0]] != REFUSED and len({row[name] for name in names}) == 1
        }
        special = {case: cell for case, cell in common.items() if cell != most[case]}
        return {case.name: cell for case, cell in (special or common).items()}

    return words
