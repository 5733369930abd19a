"""Padding and caches: batches of unequal lengths, and tokens that are generated one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import attncli
from tests.models.families import FAMILIES, TOKENS, VALID, Family, inputs, made

torch = pytest.importorskip("torch", reason="needs the extra models")
transformers = pytest.importorskip("transformers", reason="needs the extra models")

LLAMA = FAMILIES["Llama"]


def generating(family: Family, implementation: str) -> Any:
    """A model of the family that predicts tokens."""
    kinds = {"Gemma3TextModel": "Gemma3ForCausalLM", "GPT2Model": "GPT2LMHeadModel"}
    kind = kinds.get(family.kind) or family.kind.replace("Model", "ForCausalLM")
    return made(replace(family, kind=kind), implementation)


def padded(left: bool) -> dict[str, Any]:
    """Tokens in a batch of 5, and a mask of those that are no padding."""
    given = inputs(LLAMA)
    if left:
        given["attention_mask"] = given["attention_mask"].flip(-1)
    return given


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_padding_has_no_weight(implementation: str, left: bool) -> None:
    model, given = made(LLAMA, implementation), padded(left)
    with torch.no_grad(), attncli.capture(model) as calls:
        model(**given)
    assert all(call.check().matches for call in calls)
    for call in calls:
        weights = call.trace()["weights"].value
        for item, n in enumerate(VALID):
            real = np.arange(TOKENS) >= TOKENS - n if left else np.arange(TOKENS) < n
            assert (weights[item][:, real][..., ~real] == 0).all()
            assert np.allclose(weights[item][:, real].sum(-1), 1)
        if left:  # the rows of padding: of equal scores, or of none at all
            first = weights[3, :, 0]
            assert np.allclose(first, 1 / TOKENS if implementation == "eager" else 0)


@pytest.mark.parametrize(
    ("title", "implementation", "cache"),
    [
        ("Llama", "sdpa", None),
        ("Llama", "sdpa", "static"),
        ("Llama", "eager", "static"),
        ("Mistral", "sdpa", None),
        ("Mistral", "eager", None),
        ("Gemma 3", "sdpa", "static"),
        ("Gemma 2", "eager", None),
        ("GPT-OSS", "eager", None),
        ("DeepSeek-V3", "sdpa", None),
        ("BLOOM", "eager", None),
        ("Falcon", "sdpa", None),
        ("Falcon", "eager", None),
        ("GPT-J", "eager", None),
    ],
)
@pytest.mark.parametrize("left", [False, True])
def test_tokens_are_generated_with_a_cache(
    title: str, implementation: str, cache: str | None, left: bool
) -> None:
    model = generating(FAMILIES[title], implementation)
    given = padded(True)
    if not left:
        given["attention_mask"] = torch.ones_like(given["attention_mask"])
    how: dict[str, Any] = {
        "max_new_tokens": 3,
        "do_sample": False,
        "pad_token_id": 0,
        "eos_token_id": None,
    }
    how |= {"cache_implementation": cache, "disable_compile": True} if cache else {}
    before = model.generate(**given, **how)
    with attncli.capture(model) as calls:
        tokens = model.generate(**given, **how)
    assert torch.equal(before, tokens)
    assert [call.step for call in calls] == [0, 0, 1, 1, 2, 2]
    assert [call.shape[-2] for call in calls] == [TOKENS, TOKENS, 1, 1, 1, 1]
    for call in calls:
        assert call.arrays["q"].shape[1] == call.arrays["output"].shape[1]  # no heads are packed
        verdict = call.check()
        assert verdict.matches, f"{call}\n{verdict}"


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_step_with_a_cache_has_the_weights_of_the_whole(implementation: str) -> None:
    given = inputs(LLAMA)["input_ids"]
    whole = made(LLAMA, "eager")(given, output_attentions=True).attentions
    model = made(LLAMA, implementation)
    with torch.no_grad():
        past = model(given[:, :-4], use_cache=True).past_key_values
        with attncli.capture(model) as calls:
            model(given[:, -4:], past_key_values=past)
    assert [call.shape for call in calls] == [(5, 6, 4, TOKENS)] * 2
    for call, expected in zip(calls, whole, strict=True):
        assert call.check().matches
        own = call.trace()["weights"].value
        # Products of one or four rows are summed in another order than those of eleven.
        assert np.allclose(own, expected[..., -4:, :].detach().numpy(), rtol=1e-4, atol=1e-6)
