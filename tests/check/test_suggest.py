"""suggest_input: small inputs on which the bugs differ, which attend itself confirms."""

from __future__ import annotations

import numpy as np
import pytest

from attncli import Convention, ConventionError, attend
from attncli.check import check, suggest_input
from attncli.check.bugs import CATALOGUE


def test_the_suggested_input_distinguishes_two_alignments() -> None:
    how = Convention(causal=True)
    bugs = ["causal mask left out", "causal mask aligned bottom-right, not top-left"]
    found = suggest_input(bugs, convention=how)
    assert found is not None
    assert found.mask is None
    for name, other in zip(
        bugs, (Convention(), Convention(causal=True, causal_align="bottom-right")), strict=True
    ):
        observed = attend(found.q, found.k, found.v, convention=other)["output"].value
        verdict = check(observed, found.q, found.k, found.v, convention=how)
        assert [one.name for one in verdict.explanations] == [name]


def test_uniform_rows_are_distinguished_from_a_finite_mask_value() -> None:
    bugs = ["rows with nothing to attend to get the mean of V", "finite mask value"]
    found = suggest_input(bugs)
    assert found is not None
    assert found.mask is not None
    assert not found.mask[-1].any()


def test_a_mask_of_numbers_tells_where_the_softcap_is() -> None:
    bugs = ["softcap on the other side of the mask", "numbers of the mask inside the softcap"]
    found = suggest_input(bugs, convention=Convention(softcap=2.0))
    assert found is not None
    assert found.mask is not None
    assert np.isneginf(found.mask).any()
    assert (np.isfinite(found.mask) & (found.mask != 0)).any()


def test_a_mask_and_causal_that_are_refused_together_are_not_suggested() -> None:
    how = Convention(causal=True, mask_and_causal="refused")
    found = suggest_input(["scale left out", "causal mask left out"], convention=how)
    assert found is not None
    assert found.mask is None
    assert suggest_input(["mask left out", "scale left out"], convention=how) is None


def test_all_bugs_of_the_scale_at_once() -> None:
    bugs = [bug for bug in CATALOGUE if "scale" in bug.touches and "twice" not in bug.name]
    bugs = [bug for bug in bugs if not bug.is_fitted]
    found = suggest_input([bug for bug in bugs if "default" not in bug.name])
    assert found is not None
    sizes = [*found.q.shape[:2], found.k.shape[1], found.q.shape[2], found.v.shape[2]]
    assert len(set(sizes)) == len(sizes)


def test_what_never_differs_has_no_input() -> None:
    assert suggest_input(["scale left out", "scale left out"]) is None


def test_the_suggestion_is_the_same_every_time() -> None:
    first, second = (suggest_input(["scale left out"]) for _ in range(2))
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.q, second.q)


def test_an_unknown_bug_is_refused() -> None:
    with pytest.raises(ConventionError, match="no bug is called 'gremlins'"):
        suggest_input(["gremlins"])
