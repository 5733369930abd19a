"""Models from a directory on disk: their own tokenizers and weights, and what is refused.

The expected weights are the model's own, loaded and run by transformers alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from attncli.budget import limited
from attncli.commands.model.directory import open_directory
from attncli.commands.model.stacks import model_trace
from attncli.commands.model.tokens import tokens_of
from attncli.errors import InputError, SizeError
from tests.commands.model import checkpoints
from tests.commands.model.checkpoints import SENTENCE, SIZES

if TYPE_CHECKING:
    from attncli.commands.model.checkpoint import Ran

NEEDS = ("torch", "transformers")
torch: Any = None
transformers: Any = None
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
    """A copy of a checkpoint: other entries in config.json, tensors renamed, or left out."""

    def copy(kind: str, part: str = "", new: str = "", **config: Any) -> Path:
        from safetensors.torch import load_file, save_file

        shutil.rmtree(tmp_path / kind, ignore_errors=True)
        target = shutil.copytree(made / kind, tmp_path / kind)
        changed(target / "config.json", **config)
        if part:
            file = target / "model.safetensors"
            kept = [(n, x) for n, x in load_file(file).items() if new or part not in n]
            tensors = {name.replace(part, new): x for name, x in kept}
            save_file(tensors, file, metadata={"format": "pt"})
        return target

    return copy


def ran(
    folder: Path, sentence: str = SENTENCE, target: str | None = None, **convention: Any
) -> Ran:
    from attncli.commands.model.checkpoint import run  # imports torch

    return run(open_directory(str(folder)), sentence, target, **convention)


def refused(folder: Path, match: str, *sentences: str) -> None:
    with pytest.raises(InputError, match=match):
        ran(folder, *sentences)


def changed(file: Path, **entries: Any) -> Path:
    """Puts entries into a file of JSON; gives its folder."""
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))
    return file.parent


FIRST, *LATER = SENTENCE.split()  # the only one without a space before it, of bytes
LABELS = {
    "bert": ("[CLS]", FIRST, *LATER, "[SEP]"),
    "gpt2": (FIRST, *(" the" if word == "the" else word for word in LATER)),
}


@pytest.mark.parametrize("kind", LABELS)
def test_every_layer_has_the_weights_of_the_model(
    made: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    own = ran(made / kind)
    assert tuple(capfd.readouterr()) == ("", "")  # nothing is printed
    trace = model_trace("m", own.attentions)
    model = transformers.AutoModel.from_pretrained(made / kind, attn_implementation="eager").eval()
    with torch.no_grad():
        output = model(input_ids=torch.tensor([own.tokens.ids]), output_attentions=True)
    expected = [x[0].double().numpy() for x in output.attentions]
    assert len(expected) == 3
    for layer, weights in enumerate(expected, 1):
        ours = trace[f"layer.{layer}.weights"]
        np.testing.assert_allclose(ours.value, weights, atol=2e-6)
        assert ours.names("query") == own.tokens.labels == LABELS[kind]


def test_an_encoder_and_a_decoder(made: Path) -> None:
    own = ran(made / "t5", "the cat", "the mat sat")
    assert own.target is not None
    trace = model_trace("m", own.attentions, stage_names={"weights"})
    source, target = own.tokens.labels, own.target.labels
    assert target[0] == "<pad>"  # what it begins with
    wanted = {"encoder.2": (source, source), "decoder.3.self_attention": (target, target)}
    for name, both in {**wanted, "decoder.3.enc_dec_attention": (target, source)}.items():
        stage = trace[f"{name}.weights"]
        assert (stage.names("query"), stage.names("key")) == both
    # attention across is known where both are as long: a start before it, no end after it
    own = ran(made / "t5", "the cat", "the cat")
    assert own.target is not None
    assert len(own.target.ids) == len(own.tokens.ids)
    kinds = {call.call.name.split(".")[-1]: call for call in own.attentions}
    assert kinds["EncDecAttention"].tokens is None
    assert kinds["SelfAttention"].tokens == own.target.ids


def test_number_types_and_what_the_model_does_not_take(tmp_path: Path) -> None:
    own = {"dim": 15, "n_layers": 1, "n_heads": 5, "hidden_dim": 17}
    words = checkpoints.word_tokenizer()
    folder = checkpoints.saved(tmp_path / "m", "DistilBertModel", words, **own)
    names = ["input_ids", "token_type_ids", "attention_mask"]
    changed(folder / "tokenizer_config.json", model_input_names=names)
    transformers.AutoModel.from_pretrained(folder).to(torch.bfloat16).save_pretrained(folder)
    stored, wide = ran(folder), ran(folder, dtype="float32")
    assert "token_type_ids" in stored.tokens.inputs
    assert (stored.dtype, wide.dtype) == ("bfloat16", "float32")
    assert [one.call.dtype for one in stored.attentions] == ["bfloat16"]
    assert wide.n_bytes == 2 * stored.n_bytes


OWN_CODE = {"auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
# a checkpoint, its tensors that are called otherwise or left out, and another config:
# how many attentions are seen, or why it is refused
UNFIT: list[tuple[str, str, str, dict[str, Any], int | str]] = [
    ("t5", "decoder", "", {}, 2),  # without a target the encoder runs alone
    ("gpt2", "h.2.mlp.c_fc.weight", "", {}, 3),  # after the last attention
    ("gpt2", "h.1.mlp.c_fc.weight", "", {}, r"depends on: h\.1\.mlp\.c_fc\.weight"),
    ("bert", "layer.2.attention.self", "layer.2.other", {}, r"layer\.2\.attention\.self\.key"),
    ("bert", "", "", {"num_hidden_layers": 4}, r"depends on: encoder\.layer\.3\.attention"),
    ("bert", "", "", {"hidden_size": 20}, "is 15 in .*, but 20"),
    ("bert", "", "", {"vocab_size": 10**9}, r"1.5e\+10 weights"),
    ("bert", "", "", {"num_attention_heads": 7}, "builds no model: .*multiple"),
    ("bert", "", "", {"hidden_size": "wide"}, "not understood"),
    ("bert", "", "", {"model_type": "nonsense"}, "'nonsense' model"),
    ("bert", "", "", OWN_CODE, 3),  # a known type: the library's own class
    ("bert", "", "", {**OWN_CODE, "model_type": "own"}, "code of its own, never run"),
]


@pytest.mark.parametrize(("kind", "part", "new", "config", "result"), UNFIT)
def test_weights_and_configs_that_do_not_fit(
    copied: Make, kind: str, part: str, new: str, config: dict[str, Any], result: int | str
) -> None:
    folder = copied(kind, part, new, **config)
    (folder / "own.py").write_text("raise SystemExit('the code was run')")
    if isinstance(result, str):
        refused(folder, result)
    else:
        assert len(ran(folder).attentions) == result
    if kind == "t5":
        refused(folder, r"lacks weights .*decoder\.block", SENTENCE, "the mat")


def test_nothing_but_the_files_of_the_model_is_read(made: Path, copied: Make) -> None:
    flash = copied("bert", attn_implementation="kernels-community/flash-attn2")
    assert "flash" not in ran(flash).attentions[0].call.seen
    large = copied("bert", max_position_embeddings=4000)  # of 15 numbers, and 8 bytes beside
    with limited(310_000), pytest.raises(SizeError, match=r"config\.json describes a model"):
        ran(large)
    model = transformers.AutoModel.from_pretrained(made / "gpt2")
    shards = large.parent / "models--org--m" / "snapshots" / "c0ffee"  # of a hub cache
    model.save_pretrained(shards, max_shard_size="10KB")
    assert len([*shards.glob("*.safetensors")]) > 2
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (shards / name).symlink_to(made / "gpt2" / name)
    folder = copied("gpt2")
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text("raise SystemExit")
    for name in ("pytorch_model.bin", "model.ckpt", "tf_model.h5", "tokenizer.pkl"):
        (folder / name).write_bytes(b"\x80\x04no pickle")
    (folder / "generation_config.json").write_text("{")
    model.load_state_dict({name: 2 * x for name, x in model.state_dict().items()})
    model.save_pretrained(folder / "other")
    (folder / "other" / "model.safetensors").rename(folder / "model.fp16.safetensors")
    for other in (shards.parents[1], folder):
        for one, same in zip(ran(other).attentions, ran(made / "gpt2").attentions, strict=True):
            assert np.array_equal(one.call.arrays["output"], same.call.arrays["output"])


def test_what_is_no_exception_ends_in_one_line(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise type("OfTheLibrary", (BaseException,), {})("three ranks failed")

    monkeypatch.setattr(transformers.GPT2Model, "from_pretrained", fails)
    refused(made / "gpt2", "cannot be loaded: three ranks failed")


def test_models_of_images_of_sound_and_without_attention(tmp_path: Path) -> None:
    sound = {"d_model": 10, "encoder_layers": 1, "decoder_layers": 1, "max_source_positions": 7}
    sound |= {"encoder_attention_heads": 5, "decoder_attention_heads": 5}
    sound |= dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0)
    image = {**SIZES, "intermediate_size": 17, "image_size": 8, "patch_size": 4}
    none = {"hidden_size": 15, "num_hidden_layers": 1, "state_size": 3}
    words = {"ViT": r"reads image.*\.capture", "Whisper": r"reads audio.*\.capture"}
    words["Mamba"] = "has no attention"
    for kind, own in {"ViT": image, "Whisper": sound, "Mamba": none}.items():
        tokenizer = checkpoints.byte_tokenizer()
        folder = checkpoints.saved(tmp_path / kind, f"{kind}Model", tokenizer, **own)
        refused(folder, f"{kind}Model {words[kind]}")


def test_tokenizers_that_are_none(copied: Make, capfd: pytest.CaptureFixture[str]) -> None:
    file = copied("bert") / "tokenizer.json"
    text = file.read_text()
    token = json.loads(text)["added_tokens"][0]
    more = [{**token, "id": 1000 + n, "content": f"<{n}>"} for n in range(20_000)]
    refused(changed(file, added_tokens=more), "adds 20000 tokens, .* rows")
    # code in Rust, which writes to the process's own streams, and raises what is no Exception
    broken = text.replace('"special_tokens": {', '"special_tokens": {}, "others": {', 1)
    assert broken != text
    file.write_text(broken.replace('"lstrip"', '"other": 1, "lstrip"'))
    refused(file.parent, "tokenizer of .* fails: no entry")
    assert tuple(capfd.readouterr()) == ("", "")
    file.write_text(text)
    config = file.parent / "tokenizer_config.json"
    for most in (-1, None):
        assert len(ran(changed(config, model_max_length=most)).attentions) == 3
    for wrong in ("many", ["many"]):
        refused(changed(config, model_max_length=wrong), "tokenizer of .* fails")
    file.write_text("{")
    refused(file.parent, "tokenizer of .* cannot be read")
    # from tokenizer_config.json alone a tokenizer of BERT's class is made, for which all is [UNK]
    file.unlink()
    config.write_text('{"tokenizer_class": "BertTokenizer"}')
    refused(file.parent, "knows no words")


def test_tokens_and_positions_that_the_model_has_not(copied: Make, made: Path) -> None:
    folder = copied("bert")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((made / "gpt2" / name).read_bytes())
    refused(folder, r"gives token \d+, the model has \d+")
    assert len(ran(made / "gpt2", " ".join(["the"] * 31)).tokens.ids) == 31
    refused(made / "gpt2", "32 tokens, the model 31 positions", " ".join(["the"] * 32))


def test_tokens_are_called_as_in_the_sentence() -> None:
    own = tokens_of(checkpoints.byte_tokenizer(), "the cat שלום 🙂 the")
    assert (own.labels[:2], own.labels[-1]) == (("the", "cat"), " the")
    assert {"ש 1/2", "ש 2/2", "🙂 1/4", "🙂 4/4"} <= {*own.labels}
    pieces = tokens_of(tokenizer := checkpoints.piece_tokenizer(), "near it", is_target=True)
    assert (pieces.labels[:4], pieces.labels[-1]) == (("▁", "ne", "a", "r"), "</s>")
    shifted = pieces.shifted(tokenizer, 0)  # what a decoder reads
    assert shifted.labels == ("<pad>", *pieces.labels[:-1])
    assert shifted.ids == [0, *pieces.ids[:-1]]
    tokenizer = checkpoints.word_tokenizer()
    assert tokens_of(tokenizer, "the Ω cat").notes[0].startswith("1 token of 5 ")
    for sentence, words in (("", "empty"), (" \n", "empty"), ("\u200b", "no tokens")):
        with pytest.raises(InputError, match=words):
            tokens_of(tokenizer, sentence)
