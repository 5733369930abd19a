"""An attention function that the user registered and that is wrong does not pass, and is named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import attncli
from tests.models.families import FAMILIES, inputs, made

torch = pytest.importorskip("torch", reason="needs the extra models")
transformers = pytest.importorskip("transformers", reason="needs the extra models")


def attention(forgets: str, q: Any, k: Any, v: Any, mask: Any, scaling: float) -> Any:
    """Attention as a user may write it, which forgets something."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = q @ k.mT * (1 if forgets == "scale" else scaling)
    if forgets != "mask":
        if mask is None:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        small = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(~mask, small) if mask.dtype == torch.bool else scores + mask
    weights = scores.softmax(-1)
    return (weights @ v).transpose(1, 2).contiguous(), weights


@pytest.fixture
def registered(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """What the function "own" forgets, and the name of its mask function, which may be none."""
    from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

    forgets, mask = request.param

    def own(module: Any, q: Any, k: Any, v: Any, mask: Any, scaling: float, **_: Any) -> Any:
        return attention(forgets, q, k, v, mask, scaling)

    AttentionInterface.register("own", own)
    if mask:
        AttentionMaskInterface.register("own", getattr(masking_utils, mask))
    yield forgets, mask
    del AttentionInterface._global_mapping["own"]
    AttentionMaskInterface._global_mapping.pop("own", None)


@pytest.mark.parametrize(
    "registered",
    [(what, mask) for what in ("", "mask", "scale") for mask in ("", "eager_mask", "sdpa_mask")],
    indirect=True,
    ids=str,
)
@pytest.mark.parametrize("title", ["Llama", "GPT-2", "Mistral"])
def test_a_function_that_forgets_something_is_found_out(
    title: str, registered: tuple[str, str]
) -> None:
    forgets, mask = registered
    model, given = made(FAMILIES[title], "eager"), inputs(FAMILIES[title])
    model.set_attn_implementation("own")
    given.pop("attention_mask")
    with torch.no_grad(), attncli.capture(model) as calls:
        model(**given)
    expected = {"": [], "scale": ["scale left out"], "mask": ["causal mask left out"]}[forgets]
    windowed = calls[0].convention.window is not None
    assert windowed == (title == "Mistral")
    for call in calls:
        assert call.seen == "attention interface (own)"
        verdict = call.check()
        found = [bug.name for one in verdict.explanations for bug in one.bugs]
        # Without a mask function of its own, a function is given no mask, and has to make the
        # window itself: ours does not.
        no_window = windowed and (forgets == "mask" or not mask)
        assert found == expected + ["window left out"] * no_window
        assert verdict.matches == (not found)
