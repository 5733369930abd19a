"""Slips that are screened many at once: none is left out that explains the numbers by itself."""

import numpy as np
import pytest

from attncli.commands.check.bugs.bug import Evidence
from attncli.commands.check.bugs.edits import Patch, changed
from attncli.commands.check.generated import candidates
from attncli.commands.check.search import Search
from attncli.commands.check.slip import Screen
from attncli.convention import Convention
from attncli.tolerance.comparison import comparison_of
from attncli.tolerance.rule import Rule
from attncli.tolerance.run import Subset, all_of, stages
from attncli.tolerance.setup import setup_of


@np.errstate(all="ignore")  # as within check
@pytest.mark.parametrize("edit", ["keys rolled", "weights squared"])
def test_what_is_refused_at_once_does_not_fit_alone(edit: str) -> None:
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((2, n, d)) for n, d in ((5, 3), (7, 3), (7, 2)))
    scores = q @ (np.roll(k, 1, axis=-1) if edit == "keys rolled" else k).swapaxes(-1, -2)
    powers = np.exp(scores / np.sqrt(3))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    output = (weights**2 if edit == "weights squared" else weights) @ v
    setup = setup_of(q, k, v)
    comparison = comparison_of(setup, all_of(setup.shape), {"output": output[None]}, Rule("noise"))
    search = Search(comparison)
    slips = candidates(search)
    screen = Screen(search.narrow, search.evidence, slips)
    refused = [slip for slip in slips if screen.refused(slip) is not None]
    assert len(refused) > len(slips) / 2
    fitting = [slip for slip in slips if slip not in refused and fits(search, slip.edits)]
    assert fitting
    assert not any(fits(search, slip.edits) for slip in refused[::5])


def fits(search: Search, edits: object) -> bool:
    """Whether edits explain the numbers, one by one as they are judged in the end."""
    try:
        setup = Patch(edits, search.evidence).on(search.comparison.setup)  # type: ignore[arg-type]
        return setup is not None and bool(search.fits([setup]))
    except ValueError:  # an axis of which nothing says how long it is
        return False


ACROSS = [
    "scores: => sum[d](q[b,h,(i + 1) % size[i],d] * k[b,h,j,d])",
    "scaled: => right * (1 + 0 * max[c](x[b,h,c,j])); weights: => softmax[i](x[b,h,i,j])",
    "masked: => x[b,h,0,j]",
    "convention.softmax_over: => 'queries'",
    "convention.softmax_over: => 'queries'; scaled: => x[b,h,(i - 1) % size[i],j]",
]


@pytest.mark.parametrize("line", ACROSS)
def test_a_few_rows_are_those_of_all(line: str) -> None:
    """Of a step that needs all queries: what follows is computed of the wanted rows alone."""
    rng = np.random.default_rng(43)
    q, k, v = (rng.normal(size=shape) for shape in ((2, 3, 7, 5), (2, 3, 11, 5), (2, 3, 11, 2)))
    (other,) = changed(
        [line], setup_of(q, k, v, convention=Convention(causal=True)), Evidence({}, {})
    )
    names = ["scaled", "weights", "output"]
    every = stages(other, all_of(other.shape), names)
    some = Subset(np.array([1]), np.array([0, 2]), np.array([2, 5]))
    few = stages(other, some, names)
    for name in names:
        np.testing.assert_allclose(few[name], every[name][np.ix_(*some)], rtol=1e-13, atol=0)
