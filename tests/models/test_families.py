"""Small random models of each family: every attention is seen, and is what the model computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attncli
from attncli.models.call import Call
from tests.models.families import FAMILIES, ROWS, TOKENS, Family, inputs, made

torch = pytest.importorskip("torch", reason="needs the extra models")
transformers = pytest.importorskip("transformers", reason="needs the extra models")

LOADED = [
    pytest.param(family, implementation, dtype, id=f"{family.title}-{implementation}-{dtype}")
    for family in FAMILIES.values()
    for implementation in family.loaded
    for dtype in ("float32", "bfloat16")
]


def tensors(x: Any) -> list[Any]:
    """The tensors of a model's output, in order."""
    if isinstance(x, torch.Tensor):
        return [x]
    return [t for part in x for t in tensors(part)] if isinstance(x, tuple | list) else []


def own_weights(output: Any) -> list[Any]:
    """The weights that a model returns, in the order in which they are computed."""
    encoder = output.get("encoder_attentions") or ()
    if "decoder_attentions" not in output:
        return list(output.attentions)
    both = zip(output.decoder_attentions, output.cross_attentions, strict=True)
    return [*encoder, *(weights for pair in both for weights in pair)]


@pytest.mark.parametrize(("family", "implementation", "dtype"), LOADED)
def test_every_attention_matches(family: Family, implementation: str, dtype: str) -> None:
    model, given = made(family, implementation, dtype), inputs(family, dtype)
    with torch.no_grad():
        before = model(**given)
        with attncli.capture(model) as calls:
            output = model(**given)
    pairs = zip(tensors(before.to_tuple()), tensors(output.to_tuple()), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert len(calls) == family.calls
    assert calls.unseen == ()
    (row,) = (row for row in ROWS if family in row.families)
    for call in calls:
        assert call.seen.split(" (")[0] in row.seen
        assert call.dtype == dtype
        verdict = call.check()
        assert verdict.matches, f"{call}\n{verdict}"


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_weights_are_the_models_own(family: Family) -> None:
    model, given = made(family, "eager"), inputs(family)
    with torch.no_grad():
        expected = own_weights(model(**given, output_attentions=True))
        with attncli.capture(model) as calls:
            model(**given)
    returned = [call for call in calls if family.returns in call.name]
    assert len(expected) == len(returned) > 0
    for call, weights in zip(returned, expected, strict=True):
        shares = weights.numpy()
        assert np.ptp(shares, axis=-1).max() > 0.5  # they are not all the same,
        assert np.median(shares.max(-1)) < 0.99  # and more than one key has a share
        bound = shares * rounding(call)
        difference = np.abs(call.trace()["weights"].value - shares)
        assert (difference <= bound + np.finfo(np.float32).tiny).all()


def rounding(call: Call) -> float:
    """How far float32 weights may be off, in proportion to themselves.

    A sum of n products is off by n u Σ|q k| at most, u = 2⁻²⁴ (Higham, Accuracy and Stability of
    Numerical Algorithms, section 3.1); softmax turns an error e of two scores into a share of 2 e,
    and has a sum of its own. Scale, mask and softcap round once more each.
    """
    q, k, scale = call.arrays["q"], call.arrays["k"], call.convention.scale
    k = np.repeat(k, q.shape[-3] // k.shape[-3], axis=-3)
    scores = np.abs(q) @ np.abs(k).swapaxes(-1, -2) * (scale if isinstance(scale, float) else 1)
    largest = scores.max() + np.abs(np.nan_to_num(call.arrays.get("mask", 0), neginf=0)).max()
    return float(2**-24 * (2 * (q.shape[-1] + 4) * (largest + 1) + k.shape[-2] + 4))


def test_falcon_is_captured_as_it_was_loaded() -> None:
    """Loaded with eager it adds ALiBi twice: in its mask, and once more to the scores."""
    family, biases = FAMILIES["Falcon"], {}
    for implementation in family.loaded:
        model = made(family, implementation)
        with torch.no_grad(), attncli.capture(model) as calls:
            model(**inputs(family))
        biases[implementation] = calls[0].arrays["mask"][0, :, -1]  # nothing is hidden from it
    # The slopes of 3 heads after Press et al. (2022), divided by √14 as the scores are.
    slopes = np.array([2**-4, 2**-8, 2**-2])[:, None] / 14**0.5
    once = slopes * np.arange(TOKENS)
    assert np.allclose(biases["sdpa"], once)
    assert np.allclose(biases["eager"], 2 * biases["sdpa"])
