"""Models from a directory on disk: their own tokenizers and weights, and what is refused.

The expected weights are the model's own, loaded and run by transformers alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'attncli[models]'")
transformers = pytest.importorskip("transformers", reason="needs attncli[models]")

from attncli.budget import limited  # noqa: E402
from attncli.errors import InputError, SizeError  # noqa: E402
from attncli.models.call import Call  # noqa: E402
from attncli.models.checkpoint import Ran, _attention, run  # noqa: E402
from attncli.models.directory import open_directory  # noqa: E402
from attncli.models.stacks import model_trace  # noqa: E402
from attncli.models.tokens import Tokens  # noqa: E402
from tests.models import checkpoints  # noqa: E402
from tests.models.checkpoints import SENTENCE, SIZES  # noqa: E402

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One checkpoint of each kind, which no test changes."""
    folder = tmp_path_factory.mktemp("models")
    for make in (checkpoints.bert, checkpoints.gpt2, checkpoints.t5):
        make(folder / make.__name__)
    return folder


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Make:
    """A copy of a checkpoint, with changes in its config.json and in the names of its tensors."""

    def copy(kind: str, rename: Callable[[str], str | None] = str, **config: Any) -> Path:
        from safetensors.torch import load_file, save_file

        target = tmp_path / kind
        target.mkdir()
        for file in (made / kind).iterdir():
            (target / file.name).write_bytes(file.read_bytes())
        said = json.loads((target / "config.json").read_text()) | config
        (target / "config.json").write_text(json.dumps(said))
        weights = load_file(target / "model.safetensors")
        named = {rename(name): x for name, x in weights.items()}
        kept = {name: x for name, x in named.items() if name is not None}
        save_file(kept, target / "model.safetensors", metadata={"format": "pt"})
        return target

    return copy


def ran(folder: Path, sentence: str = SENTENCE, target: str | None = None, **how: Any) -> Ran:
    return run(open_directory(str(folder)), sentence, target, **how)


def own_weights(folder: Path, ids: list[int]) -> list[np.ndarray]:
    """The weights that the model itself gives, in its eager mathematics."""
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        found = model(input_ids=torch.tensor([ids]), output_attentions=True)
    return [x[0].double().numpy() for x in found.attentions]


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_every_layer_has_the_weights_of_the_model(made: Path, kind: str) -> None:
    found = ran(made / kind)
    trace = model_trace("m", found.attentions)
    expected = own_weights(made / kind, found.tokens.ids)
    assert len(expected) == 3
    for layer, weights in enumerate(expected, 1):
        ours = trace[f"layer.{layer}.weights"]
        np.testing.assert_allclose(ours.value, weights, atol=2e-6)
        assert ours.names("query") == found.tokens.labels
    previous = [w[:, range(1, w.shape[1]), range(w.shape[1] - 1)].mean(-1) for w in expected]
    np.testing.assert_allclose(trace["previous"].value, previous, atol=2e-6)


def test_the_tokens_are_those_of_the_sentence(made: Path) -> None:
    words = tuple(SENTENCE.split())
    first, *later = words  # the only one without a space before it
    later = [" the" if word == "the" else word for word in later]
    assert ran(made / "gpt2").tokens.labels == (first, *later)
    assert ran(made / "bert").tokens.labels == ("[CLS]", *words, "[SEP]")


def test_an_encoder_and_a_decoder(made: Path) -> None:
    found = ran(made / "t5", "the cat", "the mat sat")
    assert found.target is not None
    trace = model_trace("m", found.attentions, kept={"weights"})
    source, target = found.tokens.labels, found.target.labels
    assert target[0] == "<pad>"  # what it begins with
    for name, queries, keys in (
        ("encoder.2.weights", source, source),
        ("decoder.3.self_attention.weights", target, target),
        ("decoder.3.enc_dec_attention.weights", target, source),
    ):
        weights = trace[name]
        assert (weights.names("query"), weights.names("key")) == (queries, keys)
    assert "decoder.self_attention.previous" in trace
    assert "decoder.enc_dec_attention.previous" not in trace


def test_attention_across_is_known_where_both_are_as_long(made: Path) -> None:
    source = len(ran(made / "t5", "the cat").tokens.ids)
    found = ran(made / "t5", "the cat", "the cat")
    assert found.target is not None
    assert len(found.target.ids) == source  # a start before it, no end after it
    kinds = {call.call.name.split(".")[-1]: call.tokens for call in found.attentions}
    assert kinds["EncDecAttention"] is None
    assert kinds["SelfAttention"] == found.target.ids


def test_a_mask_of_later_keys_tells_what_attends_to_itself() -> None:
    arrays = {"q": np.ones((1, 1, 3, 2)), "k": np.ones((1, 1, 3, 2)), "v": np.ones((1, 1, 3, 2))}
    source, target = (
        Tokens(("a", "b", "c"), {"input_ids": [1, 2, 3]}),
        Tokens(("x", "y", "z"), {"input_ids": [4, 5, 6]}),
    )
    added = np.triu(np.full((3, 3), -np.inf), 1) + 0.5
    for mask, is_own in ((added, True), (np.tri(3) > 0, True), (np.ones((3, 3), bool), False)):
        found = _attention(Call("", {**arrays, "mask": mask}), source, target)
        assert found.tokens == ([4, 5, 6] if is_own else None)
        assert found.keys == (target if is_own else source).labels


def test_without_a_target_the_encoder_runs_alone(made: Path, copied: Make) -> None:
    assert ran(made / "t5").is_half
    bare = copied("t5", lambda name: None if name.startswith("decoder") else name)
    assert len(ran(bare).attentions) == 2  # of which it lacks nothing
    with pytest.raises(
        InputError, match=r"lacks weights that attention depends on: decoder\.block"
    ):
        ran(bare, SENTENCE, "the mat")
    with pytest.raises(InputError, match="BertModel has no decoder to read --target"):
        ran(made / "bert", SENTENCE, "the mat")


def test_layers_that_share_their_weights(tmp_path: Path) -> None:
    tokenizer = checkpoints.word_tokenizer()
    own = {**SIZES, "embedding_size": 7, "intermediate_size": 17}
    found = ran(checkpoints.saved(tmp_path / "m", "AlbertModel", tokenizer, **own))
    trace = model_trace("m", found.attentions, kept=())
    assert trace["entropy"].names("layer") == ("L1", "L2", "L3")


def test_what_the_tokenizer_gives_but_the_model_does_not_take(tmp_path: Path) -> None:
    own = {"dim": 15, "n_layers": 1, "n_heads": 5, "hidden_dim": 17}
    tokenizer = checkpoints.word_tokenizer()
    folder = checkpoints.saved(tmp_path / "m", "DistilBertModel", tokenizer, **own)
    said = json.loads((folder / "tokenizer_config.json").read_text())
    said["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    found = ran(folder)
    assert "token_type_ids" in found.tokens.inputs
    assert len(found.attentions) == 1


def test_the_number_type_is_the_stored_one_unless_another_is_asked_for(tmp_path: Path) -> None:
    folder = checkpoints.gpt2(tmp_path / "m")
    model = transformers.AutoModel.from_pretrained(folder).to(torch.bfloat16)
    model.save_pretrained(folder)
    stored, wide = ran(folder), ran(folder, dtype="float32")
    assert (stored.dtype, wide.dtype) == ("bfloat16", "float32")
    assert stored.attentions[0].call.dtype == "bfloat16"
    assert wide.n_bytes == 2 * stored.n_bytes


def test_shards_and_a_hub_cache(made: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--m" / "snapshots" / "c0ffee"
    model = transformers.AutoModel.from_pretrained(made / "gpt2")
    model.save_pretrained(snapshot, max_shard_size="10KB")
    assert len(list(snapshot.glob("*.safetensors"))) > 2
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (snapshot / name).symlink_to(made / "gpt2" / name)
    found = ran(tmp_path / "models--org--m")
    whole = ran(made / "gpt2")
    for ours, other in zip(found.attentions, whole.attentions, strict=True):
        np.testing.assert_array_equal(ours.call.arrays["output"], other.call.arrays["output"])


# ---- weights that are not there


def test_a_missing_pooler_does_not_matter(made: Path) -> None:
    # BertForMaskedLM was saved, which has none; AutoModel builds one
    tensors = open_directory(str(made / "bert")).tensors
    assert not any("pooler" in name for name in tensors)
    assert len(ran(made / "bert").attentions) == 3


def test_missing_weights_of_an_attention(copied: Make) -> None:
    folder = copied("bert", lambda name: name.replace("layer.2.attention.self", "layer.2.other"))
    with pytest.raises(InputError, match=r"depends on: encoder\.layer\.2\.attention\.self\.key"):
        ran(folder)


def test_missing_weights_between_attentions(copied: Make) -> None:
    folder = copied("gpt2", lambda name: None if "h.1.mlp.c_fc.weight" in name else name)
    with pytest.raises(
        InputError, match=r"depends on: h\.1\.mlp\.c_fc\.weight; they would be random"
    ):
        ran(folder)


def test_missing_weights_after_the_last_attention(copied: Make) -> None:
    folder = copied("gpt2", lambda name: None if "h.2.mlp.c_fc.weight" in name else name)
    assert len(ran(folder).attentions) == 3


def test_one_layer_more_than_its_weights(copied: Make) -> None:
    with pytest.raises(InputError, match=r"depends on: encoder\.layer\.3\.attention"):
        ran(copied("bert", num_hidden_layers=4))


# ---- what does not fit


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"hidden_size": 20}, "is 15 in .*, but 20 by its config.json"),
        ({"vocab_size": 10**9}, r"describes 1.5e\+10 weights, its files hold"),
        ({"num_attention_heads": 7}, "config.json builds no model: .*multiple"),
        ({"hidden_size": "wide"}, "config.json is not understood: "),
        ({"model_type": "nonsense"}, "'nonsense' model, which transformers .* does not know"),
    ],
)
def test_a_config_that_does_not_fit(copied: Make, config: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ran(copied("bert", **config))


def test_code_of_its_own_is_never_run(copied: Make) -> None:
    auto_map = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
    known = copied("bert", auto_map=auto_map)  # a known type: the library's own class
    (known / "own.py").write_text("raise SystemExit('the code was run')")
    assert len(ran(known).attentions) == 3
    config = json.loads((known / "config.json").read_text()) | {"model_type": "own"}
    (known / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="it brings code of its own, never run"):
        ran(known)


def test_an_attention_from_elsewhere_is_not_loaded(copied: Make) -> None:
    folder = copied("bert", attn_implementation="kernels-community/flash-attn2")
    assert "flash" not in ran(folder).attentions[0].call.seen


def test_nothing_else_in_the_directory_is_read(copied: Make, made: Path) -> None:
    folder = copied("gpt2")
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text("raise SystemExit")
    for name in ("pytorch_model.bin", "model.ckpt", "tf_model.h5", "tokenizer.pkl"):
        (folder / name).write_bytes(b"\x80\x04no pickle")
    (folder / "generation_config.json").write_text("{")
    model = transformers.AutoModel.from_pretrained(made / "gpt2")
    other = {name: 2 * x for name, x in model.state_dict().items()}
    model.load_state_dict(other)
    model.save_pretrained(folder / "other")
    (folder / "model.fp16.safetensors").write_bytes(
        (folder / "other" / "model.safetensors").read_bytes()
    )
    for ours, own in zip(ran(folder).attentions, ran(made / "gpt2").attentions, strict=True):
        np.testing.assert_array_equal(ours.call.arrays["output"], own.call.arrays["output"])


def test_more_added_tokens_than_rows(copied: Make) -> None:
    folder = copied("bert")
    said = json.loads((folder / "tokenizer.json").read_text())
    token = {**said["added_tokens"][0], "content": "", "id": 0}
    more = [{**token, "id": 1000 + n, "content": f"<{n}>"} for n in range(20_000)]
    (folder / "tokenizer.json").write_text(json.dumps({**said, "added_tokens": more}))
    with pytest.raises(InputError, match=r"tokenizer.json adds 20000 tokens, .* rows"):
        ran(folder)


def test_a_config_that_describes_more_than_is_allowed(copied: Make) -> None:
    folder = copied("bert", max_position_embeddings=4000)  # of 15 numbers, and 8 bytes beside
    with limited(310_000), pytest.raises(SizeError, match=r"config\.json describes a model"):
        run(open_directory(str(folder)), SENTENCE)


def test_what_is_no_exception_ends_in_one_line(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OfTheLibrary(BaseException):
        pass

    def fails(*_: Any, **__: Any) -> None:
        raise OfTheLibrary("three ranks failed")

    monkeypatch.setattr(transformers.GPT2Model, "from_pretrained", fails)
    with pytest.raises(InputError, match="cannot be loaded: three ranks failed"):
        ran(made / "gpt2")


def test_a_tokenizer_that_is_no_more(copied: Make) -> None:
    folder = copied("bert")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match=r"the tokenizer of .* cannot be read: .*; copy its files"):
        ran(folder)


def test_a_tokenizer_that_knows_no_words(copied: Make) -> None:
    # from tokenizer_config.json alone a tokenizer of BERT's class is made, for which all is [UNK]
    folder = copied("bert")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    with pytest.raises(InputError, match="knows no words"):
        ran(folder)


def test_a_tokenizer_whose_library_panics(copied: Make, capfd: pytest.CaptureFixture[str]) -> None:
    # code in Rust, which writes to the process's own streams, and raises what is no Exception
    folder = copied("bert")
    said = (folder / "tokenizer.json").read_text()
    broken = said.replace('"special_tokens": {', '"special_tokens": {}, "others": {', 1)
    assert broken != said
    (folder / "tokenizer.json").write_text(broken.replace('"lstrip"', '"other": 1, "lstrip"'))
    with pytest.raises(InputError, match=r"the tokenizer of .* fails: no entry found for key"):
        ran(folder)
    assert tuple(capfd.readouterr()) == ("", "")


@pytest.mark.parametrize("most", [[], "many", -1, None])
def test_a_tokenizer_with_a_length_that_is_none(copied: Make, most: Any) -> None:
    folder = copied("bert")
    said = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**said, "model_max_length": most}))
    if most in (-1, None):
        assert len(ran(folder).attentions) == 3
        return
    with pytest.raises(InputError, match=r"the tokenizer of .* fails"):
        ran(folder)


def test_the_tokenizer_of_another_model(copied: Make, made: Path) -> None:
    folder = copied("bert")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((made / "gpt2" / name).read_bytes())
    with pytest.raises(InputError, match=r"the tokenizer gives token \d+, the model has \d+"):
        ran(folder)


def test_more_tokens_than_positions(made: Path) -> None:
    assert len(ran(made / "gpt2", " ".join(["the"] * 31)).tokens.ids) == 31
    with pytest.raises(InputError, match="the sentence has 32 tokens, the model 31 positions"):
        ran(made / "gpt2", " ".join(["the"] * 32))


def test_models_of_images_and_sound(tmp_path: Path) -> None:
    own = {**SIZES, "intermediate_size": 17, "image_size": 8, "patch_size": 4}
    vit = checkpoints.saved(tmp_path / "vit", "ViTModel", **own)
    checkpoints.word_tokenizer().save_pretrained(vit)
    with pytest.raises(InputError, match=r"ViTModel reads image.*attncli\.capture"):
        ran(vit)
    sizes = {"d_model": 10, "encoder_layers": 1, "decoder_layers": 1, "max_source_positions": 7}
    heads = {"encoder_attention_heads": 5, "decoder_attention_heads": 5}
    names = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0)
    sound = checkpoints.saved(
        tmp_path / "w", "WhisperModel", checkpoints.byte_tokenizer(), **sizes, **heads, **names
    )
    with pytest.raises(InputError, match=r"WhisperModel reads audio.*attncli\.capture"):
        ran(sound)


def test_a_model_without_attention(tmp_path: Path) -> None:
    own = {"hidden_size": 15, "num_hidden_layers": 1, "state_size": 3}
    folder = checkpoints.saved(tmp_path / "m", "MambaModel", checkpoints.byte_tokenizer(), **own)
    with pytest.raises(InputError, match="MambaModel has no attention"):
        ran(folder)


def test_nothing_is_printed(made: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ran(made / "bert")
    assert tuple(capfd.readouterr()) == ("", "")
