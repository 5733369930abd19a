"""Small random models of each family: every attention is seen, and is what the model computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.models.call import Call
from tests.models.families import FAMILIES, ROWS, TOKENS, VALID, captured, compared, inputs, made

NEEDS = ("torch", "transformers")
torch: Any = None
transformers: Any = None
LLAMA = FAMILIES["Llama"]


def test_the_readme_names_the_families_that_are_tested() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    _, _, after = readme.partition("\n### Which models\n")
    rows = [line for line in after.partition("\n#")[0].splitlines() if line.startswith("| ")]
    cells = [(", ".join(one.title for one in row.families), row.captured, row.seen) for row in ROWS]
    cells = [("family", "what is captured", "where it is seen"), *cells]
    assert rows == [f"| {' | '.join(row)} |" for row in cells]
    assert len(FAMILIES) == sum(len(row.families) for row in ROWS)  # none is there twice


def own_weights(output: Any) -> list[Any]:
    """The weights that a model returns, in the order in which they are computed."""
    if "decoder_attentions" not in output:
        return list(output.attentions)
    both = zip(output.decoder_attentions, output.cross_attentions, strict=True)
    return [*output.get("encoder_attentions", ()), *(weights for pair in both for weights in pair)]


LOADED = [
    (family.title, way, dtype)
    for family in FAMILIES.values()
    for way in family.loaded
    for dtype in ("float32", "bfloat16")
]


@pytest.mark.parametrize(("title", "way", "dtype"), LOADED)
def test_every_attention_is_the_models_own(title: str, way: str, dtype: str) -> None:
    family = FAMILIES[title]
    model, given = made(family, way, dtype), inputs(family, dtype)
    gives_weights = (way, dtype) == ("eager", "float32")
    given |= {"output_attentions": True} if gives_weights else {}
    with torch.no_grad():
        calls, output = compared(model, **given)
    assert (len(calls), calls.unseen) == (family.calls, ())
    (row,) = (row for row in ROWS if family in row.families)
    for call in calls:
        assert call.seen.split(" (")[0] in row.seen
        assert (call.dtype, call.check().matches) == (dtype, True), call
    if gives_weights:
        returned = [call for call in calls if family.returns in call.name]
        assert returned
        for call, weights in zip(returned, own_weights(output), strict=True):
            shares = weights.numpy()
            assert np.ptp(shares, axis=-1).max() > 0.5  # they are not all the same,
            assert np.median(shares.max(-1)) < 0.99  # and more than one key has a share
            difference = np.abs(call.trace()["weights"].value - shares)
            assert (difference <= shares * rounding(call) + np.finfo(np.float32).tiny).all()


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


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("way", ["eager", "sdpa"])
def test_padding_has_no_weight(way: str, left: bool) -> None:
    for call in captured(made(LLAMA, way), inputs(LLAMA, left=left)):
        assert call.check().matches
        weights = call.trace()["weights"].value
        for item, n in enumerate(VALID):
            real = np.arange(TOKENS) >= TOKENS - n if left else np.arange(TOKENS) < n
            assert (weights[item][:, real][..., ~real] == 0).all()
            assert np.allclose(weights[item][:, real].sum(-1), 1)
        if left:  # the rows of padding: of equal scores, or of none at all
            assert np.allclose(weights[3, :, 0], 1 / TOKENS if way == "eager" else 0)


GENERATING = [
    ("Llama", "sdpa", None), ("Llama", "sdpa", "static"), ("Llama", "eager", "static"),
    ("Mistral", "sdpa", None), ("Mistral", "eager", None), ("Gemma 3", "sdpa", "static"),
    ("Gemma 2", "eager", None), ("GPT-OSS", "eager", None), ("DeepSeek-V3", "sdpa", None),
    ("BLOOM", "eager", None), ("Falcon", "sdpa", None), ("Falcon", "eager", None),
    ("GPT-J", "eager", None),
]  # fmt: skip


@pytest.mark.parametrize(("title", "way", "cache"), GENERATING)
@pytest.mark.parametrize("left", [False, True])
def test_tokens_are_generated_with_a_cache(
    title: str, way: str, cache: str | None, left: bool
) -> None:
    kind = FAMILIES[title].kind.replace("TextModel", "Model").replace("Model", "ForCausalLM")
    model, given = made(FAMILIES[title]._replace(kind=kind), way), inputs(LLAMA, left=True)
    if not left:
        given["attention_mask"] = torch.ones_like(given["attention_mask"])
    given |= {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    given |= {"cache_implementation": cache, "disable_compile": True} if cache else {}
    before = model.generate(**given)
    with attncli.capture(model) as calls:
        tokens = model.generate(**given)
    assert torch.equal(before, tokens)
    assert [call.step for call in calls] == [0, 0, 1, 1, 2, 2]
    assert [call.shape[-2] for call in calls] == [TOKENS, TOKENS, 1, 1, 1, 1]
    for call in calls:
        assert call.arrays["q"].shape[1] == call.arrays["output"].shape[1]  # no heads are packed
        assert call.check().matches, call


CAUSAL, SCALE, WINDOW = ("causal mask left out",), ("scale left out",), ("window left out",)
# Without a mask function of its own, it is given no mask and has to make the window itself.
FORGETFUL: list[tuple[str, str, str, tuple[str, ...]]] = [
    ("Llama", "", "", ()),
    ("GPT-2", "", "eager_mask", ()),
    ("Mistral", "", "sdpa_mask", ()),
    ("Mistral", "", "", WINDOW),
    ("Llama", "mask", "eager_mask", CAUSAL),
    ("GPT-2", "mask", "", CAUSAL),
    ("Mistral", "mask", "sdpa_mask", CAUSAL + WINDOW),
    ("Llama", "scale", "sdpa_mask", SCALE),
    ("Mistral", "scale", "eager_mask", SCALE),
]


@pytest.mark.parametrize(("title", "forgets", "mask_of", "bugs"), FORGETFUL)
def test_a_function_that_forgets_something_is_caught(
    title: str, forgets: str, mask_of: str, bugs: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

    def own(_: Any, q: Any, k: Any, v: Any, mask: Any, scaling: float, **__: Any) -> Any:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        scores = q @ k.mT * (1 if forgets == "scale" else scaling)
        if forgets != "mask":
            if mask is None:
                mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            small = torch.finfo(scores.dtype).min
            scores = scores.masked_fill(~mask, small) if mask.dtype == torch.bool else scores + mask
        weights = scores.softmax(-1)
        return (weights @ v).transpose(1, 2).contiguous(), weights

    monkeypatch.setitem(AttentionInterface._global_mapping, "own", own)
    if mask_of:
        made_mask = getattr(masking_utils, mask_of)
        monkeypatch.setitem(AttentionMaskInterface._global_mapping, "own", made_mask)
    model, given = made(FAMILIES[title], "eager"), inputs(FAMILIES[title])
    model.set_attn_implementation("own")
    given.pop("attention_mask")
    for call in captured(model, given):
        assert (call.convention.window is not None) == (title == "Mistral")
        assert call.seen == "attention interface (own)"
        verdict = call.check()
        assert tuple(bug.name for one in verdict.explanations for bug in one.bugs) == bugs
        assert verdict.matches == (not bugs)
