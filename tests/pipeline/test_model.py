"""The whole pipeline, compared with the same mathematics written out in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli.attention.layers import Architecture
from attncli.attention.weights import Block, Dimensions, random_weights
from attncli.convention import Convention
from attncli.errors import ConventionError, ShapeError
from attncli.pipeline.model import Model, explained
from attncli.pipeline.sentence import Sentence, Vocabulary, random_vocabulary
from attncli.trace import Trace

WORDS = ("She", "visited", "the", "bank", "near", "the", "bank")
ASKED = ("la", "banque", "du", "fleuve", "vert")
DIM = 6
SENTENCE = Sentence(WORDS)
TARGET = Sentence(ASKED)
VOCABULARY = random_vocabulary((*WORDS, *ASKED), DIM, seed=2)


def sized(block: Block, n_layers: int = 1, **sizes: Any) -> dict[str, Any]:
    return random_weights(block, Dimensions(d_model=DIM, **sizes), seed=1, n_layers=n_layers)


ATTENTION = Model(weights=sized("attention"))


def plain(x: Any, c: Any, weights: Any, name: str, heads: int, allowed: Any = None) -> Any:
    """softmax(x W_q (c W_k)ᵀ / √d_k) c W_v W_o, head by head."""
    mixed = []
    w_q, w_k, w_v, w_o = (weights[f"{name}.w_{letter}"] for letter in "qkvo")
    for q, k, v in zip(
        *(np.split(a, heads, axis=1) for a in (x @ w_q, c @ w_k, c @ w_v)), strict=True
    ):
        z = q @ k.T / np.sqrt(q.shape[1])
        z = z if allowed is None else np.where(allowed, z, -np.inf)
        e = np.exp(z - z.max(axis=1, keepdims=True))
        mixed.append(e / e.sum(axis=1, keepdims=True) @ v)
    together = np.concatenate(mixed, axis=1)
    return together @ w_o


def normed(x: Any) -> Any:
    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)


def fed(x: Any, weights: Any, name: str) -> Any:
    return np.maximum(x @ weights[f"{name}.w_1"], 0) @ weights[f"{name}.w_2"]


def last(trace: Trace, block: str) -> Any:
    return [stage.value for name, stage in trace.stages() if name.startswith(f"{block}.")][-1]


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_self_attention(heads: int) -> None:
    weights = sized("attention", n_heads=heads, d_k=5, d_v=4)
    model = Model(weights=weights, architecture=Architecture(n_heads=heads))
    trace = explained(SENTENCE, VOCABULARY, model)
    x = trace["input"].value
    expected = plain(x, x, weights, "attention", heads)
    np.testing.assert_allclose(trace["attention.projected"].value, expected, rtol=1e-12)
    assert trace["attention.weights"].value.shape == (heads, 7, 7)
    assert ("attention.concat" in trace) == (heads > 1)
    assert trace["attention.w_v"].value.shape == (DIM, heads * 4)


def test_cross_attention_asks_from_the_target() -> None:
    weights = sized("attention")
    trace = explained(SENTENCE, VOCABULARY, Model(weights=weights), target=TARGET)
    x, y = trace["input"].value, trace["target.input"].value
    expected = plain(y, x, weights, "attention", 1)
    np.testing.assert_array_equal(trace["cross_attention.w_q"].value, weights["attention.w_q"])
    np.testing.assert_allclose(trace["cross_attention.projected"].value, expected, rtol=1e-12)
    stage = trace["cross_attention.weights"]
    assert (stage.value.shape, stage.names("query"), stage.names("key")) == (
        (1, 5, 7),
        ASKED,
        WORDS,
    )
    assert trace["meaning.static"].names("token") == ASKED


def test_an_encoder_of_two_layers() -> None:
    weights = sized("encoder", 2, n_heads=2)
    how = Architecture(n_heads=2)
    model = Model(block="encoder", weights=weights, architecture=how)
    trace = explained(SENTENCE, VOCABULARY, model)
    x = trace["input"].value
    for layer in ("encoder.1", "encoder.2"):
        x = normed(x + plain(x, x, weights, f"{layer}.attention", 2))
        x = normed(x + fed(x, weights, f"{layer}.feed_forward"))
    np.testing.assert_allclose(last(trace, "encoder"), x, rtol=1e-10)
    assert trace["encoder.2.feed_forward.w_1"].value.shape == (DIM, 4 * DIM)


def test_a_decoder_reads_the_encoder() -> None:
    weights = sized("encoder-decoder")
    sentence = Sentence.padded(WORDS, 9)
    model = Model(block="decoder", weights=weights)
    trace = explained(sentence, VOCABULARY, model, target=TARGET)
    real = np.arange(9) < 7
    x = trace["input"].value
    x = normed(x + plain(x, x, weights, "encoder.1.attention", 1, real))
    memory = normed(x + fed(x, weights, "encoder.1.feed_forward"))
    y = trace["target.input"].value
    y = normed(y + plain(y, y, weights, "decoder.1.attention", 1, np.tri(5, dtype=bool)))
    y = normed(y + plain(y, memory, weights, "decoder.1.cross_attention", 1, real))
    y = normed(y + fed(y, weights, "decoder.1.feed_forward"))
    np.testing.assert_allclose(last(trace, "decoder"), y, rtol=1e-10)
    assert (trace["decoder.1.cross_attention.weights"].value[..., 7:] == 0).all()


def test_article_003s_variant_has_its_shapes() -> None:
    words = ("Terry", "loves", "to", "eat", "Mango", "Greek", "Yogurt")
    weights = random_weights("encoder", Dimensions(d_model=128, d_k=16, d_v=16, d_ff=0))
    how = Architecture(norm="none")
    model = Model(block="encoder", weights=weights, architecture=how, positions="none")
    trace = explained(Sentence(words), random_vocabulary(words, 128), model)
    shapes = {name.rpartition(".")[2]: stage.value.shape for name, stage in trace.stages()}
    assert shapes["embeddings"] == (7, 128)
    assert shapes["w_q"] == shapes["w_k"] == shapes["w_v"] == (128, 16)
    assert shapes["weights"] == (1, 7, 7)
    assert shapes["output"] == (1, 7, 16)
    assert shapes["w_o"] == (16, 128)
    assert shapes["projected"] == shapes["residual"] == (7, 128)
    assert "norm" not in shapes


def test_padded_keys_get_no_weight() -> None:
    trace = explained(Sentence.padded(WORDS, 11), VOCABULARY, ATTENTION)
    weights = trace["attention.weights"].value
    assert (weights[..., 7:] == 0).all()
    np.testing.assert_allclose(weights.sum(axis=-1), 1)
    assert trace["meaning.contextual"].value.shape == (7, 7)


def test_a_mask_and_padding_add_up() -> None:
    mask = np.zeros((9, 9))
    mask[:, 0] = -np.inf
    trace = explained(Sentence.padded(WORDS, 9), VOCABULARY, ATTENTION, mask=mask)
    seen = trace["attention.weights"].value[0].max(axis=0) > 0
    assert seen.tolist() == [False, *[True] * 6, False, False]


def test_a_mask_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ShapeError, match="the mask"):
        explained(Sentence.padded(WORDS, 9), VOCABULARY, ATTENTION, mask=np.zeros((2, 9)))


def test_equal_words_end_equal_without_positions_and_different_with_them() -> None:
    for positions, equal in (("none", True), ("paper", False), ("article", False)):
        model = Model(weights=sized("attention"), positions=positions)  # type: ignore[arg-type]
        trace = explained(SENTENCE, VOCABULARY, model)
        assert trace["meaning.static"].value[3, 6] == pytest.approx(1, abs=1e-15)
        same = abs(trace["meaning.contextual"].value[3, 6] - 1) < 1e-12
        assert same == equal


def test_a_causal_mask_tells_equal_words_apart_without_positions() -> None:
    how = Architecture(convention=Convention(causal=True))
    model = Model(weights=sized("attention"), positions="none", architecture=how)
    trace = explained(SENTENCE, VOCABULARY, model)
    assert trace["meaning.contextual"].value[3, 6] < 1 - 1e-6
    (meaning,) = (step for step in trace.steps if step.name == "meaning")
    assert isinstance(meaning, Trace)
    assert any("each sees other words" in note for note in meaning.notes)


def test_the_identity_leaves_the_vectors_as_they_are() -> None:
    trace = explained(SENTENCE, VOCABULARY, Model(weights={}, positions="none"))
    vectors = np.array([VOCABULARY.vectors[word] for word in WORDS])
    np.testing.assert_allclose(trace["attention.scores"].value[0], vectors @ vectors.T)
    assert trace["attention.q"].formula == "Q = E"
    assert "attention.w_q" not in trace


def test_keep_lets_the_other_layers_go_and_changes_no_number() -> None:
    model = Model(block="encoder", weights=sized("encoder", 3))
    whole = explained(SENTENCE, VOCABULARY, model)
    kept = explained(SENTENCE, VOCABULARY, model, keep=lambda name: ".2.attention." in name)
    layers = [name for name in kept if name.startswith("encoder.")]
    assert {name.rpartition(".")[0] for name in layers} == {
        "encoder.1.feed_forward", "encoder.2.attention", "encoder.2.feed_forward", "encoder.3.feed_forward",
    }  # fmt: skip
    np.testing.assert_array_equal(last(kept, "encoder"), last(whole, "encoder"))


def test_every_stage_says_in_words_what_it_is() -> None:
    weights = sized("encoder-decoder", n_heads=2)
    how = Architecture(n_heads=2, dropout=0.1, convention=Convention(softcap=3.0, dropout=0.1))
    model = Model(block="decoder", weights=weights, architecture=how)
    trace = explained(SENTENCE, VOCABULARY, model, target=TARGET)
    silent = {"mask", *(f"{w}_{x}" for w in "wb" for x in "qkvo12"), "gamma", "beta"}
    for name, stage in trace.stages():
        assert stage.note or name.rpartition(".")[2] in silent, name


def test_weights_of_another_block_are_refused() -> None:
    for block, target in (("encoder", None), ("decoder", TARGET)):
        model = Model(block=block, weights=sized("attention"))  # type: ignore[arg-type]
        with pytest.raises(ShapeError, match="the encoder has no layers"):
            explained(SENTENCE, VOCABULARY, model, target=target)


def test_a_decoder_without_a_target_is_refused() -> None:
    with pytest.raises(ConventionError, match="needs a target"):
        explained(SENTENCE, VOCABULARY, Model(block="decoder", weights=sized("encoder-decoder")))


def test_vectors_of_the_wrong_width_are_refused() -> None:
    narrow = Vocabulary({word: np.ones(5) for word in WORDS}, 5, "")
    with pytest.raises(ShapeError):
        explained(SENTENCE, narrow, ATTENTION)
