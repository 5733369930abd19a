"""suggest_input: small inputs on which the bugs differ, which attend itself confirms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli import Convention, ConventionError, attend
from attncli.check import CATALOGUE, Suggestion, check, suggest_input


def suggested(*bugs: Any, **how: Any) -> Suggestion:
    suggestion = suggest_input(bugs, convention=Convention(**how))
    assert suggestion is not None
    return suggestion


def test_the_suggested_input_distinguishes_two_alignments() -> None:
    other: dict[str, Any] = {"causal": True, "causal_align": "bottom-right"}
    hows: list[dict[str, Any]] = [{}, other]
    bugs = ["causal mask left out", "causal mask aligned bottom-right, not top-left"]
    own = suggested(*bugs, causal=True)
    assert own.mask is None
    for name, how in zip(bugs, hows, strict=True):
        observed = attend(own.q, own.k, own.v, **how)["output"].value
        verdict = check(observed, own.q, own.k, own.v, causal=True)
        assert [one.name for one in verdict.explanations] == [name]


def test_the_mask_of_a_suggestion_is_what_the_bugs_need() -> None:
    """An empty row; numbers and −∞; none where it is refused beside causal."""
    mean = "rows with nothing to attend to get the mean of V"
    mask = suggested(mean, "finite mask value").mask
    assert mask is not None
    assert not mask[-1].any()
    late = "softcap on the other side of the mask", "numbers of the mask inside the softcap"
    mask = suggested(*late, softcap=2.0).mask
    assert mask is not None
    assert np.isneginf(mask).any()
    assert (np.isfinite(mask) & (mask != 0)).any()
    how: Any = {"causal": True, "mask_and_causal": "refused"}
    assert suggested("scale left out", "causal mask left out", **how).mask is None
    refused = Convention(**how)
    assert suggest_input(["mask left out", "scale left out"], convention=refused) is None


def test_all_bugs_of_the_scale_at_once() -> None:
    bugs = [bug for bug in CATALOGUE if "scale" in bug.touches and not bug.is_fitted]
    bugs = [bug for bug in bugs if "twice" not in bug.name and "default" not in bug.name]
    own = suggested(*bugs)
    sizes = [*own.q.shape[:2], own.k.shape[1], own.q.shape[2], own.v.shape[2]]
    assert len(set(sizes)) == len(sizes)


def test_what_never_differs_has_no_input_and_an_unknown_bug_is_refused() -> None:
    assert suggest_input(["scale left out", "scale left out"]) is None
    with pytest.raises(ConventionError, match="'gremlins'"):
        suggest_input(["gremlins"])
