"""Small checkpoints as on disk: random weights, and a tokenizer trained on a few sentences.

torch and transformers are imported by the functions, so that this module can be read without them.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

SENTENCES = (
    "the cat sat on the mat because the cat was tired",
    "She visited the money bank, near the river bank",
)
SENTENCE = SENTENCES[0]
SIZES = {"hidden_size": 15, "num_hidden_layers": 3, "num_attention_heads": 5}
WORDS = {"vocab_size": 97, "special_tokens": ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]}


def byte_tokenizer() -> Any:
    """Byte-level BPE, as GPT-2 has it: no special token around a sentence."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    found.post_processor = processors.ByteLevel(trim_offsets=True)
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<|endoftext|>"], initial_alphabet=letters
    )
    found.train_from_iterator(SENTENCES, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=found, eos_token="<|endoftext|>")


def word_tokenizer(*, pads: bool = False) -> Any:
    """WordPiece, as BERT has it: [CLS] … [SEP]; one that pads to 31 and cuts off after 7."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    found = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    found.normalizer = normalizers.BertNormalizer()
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found.train_from_iterator(SENTENCES, trainers.WordPieceTrainer(**WORDS))
    found.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    if pads:
        found.enable_padding(length=31)
        found.enable_truncation(7)
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    return PreTrainedTokenizerFast(tokenizer_object=found, **names)


def piece_tokenizer() -> Any:
    """Unigram with ▁ for a space, as T5 has it: … </s>."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    found = Tokenizer(models.Unigram())
    found.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=special, unk_token="<unk>")
    found.train_from_iterator(SENTENCES, trainer)
    found.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=found, **names)


def saved(folder: Path, kind: str, tokenizer: Any = None, **changes: Any) -> Path:
    """A random model of this class in a folder; `changes` are those of its configuration."""
    import torch
    import transformers
    from transformers.utils import logging

    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    torch.manual_seed(7)
    own: Any = getattr(transformers, kind)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
        changes.setdefault("vocab_size", len(tokenizer))
    own(own.config_class(**changes)).save_pretrained(folder)
    return folder


def bert(folder: Path, **changes: Any) -> Path:
    """Three layers of five heads, and positions for 31 tokens."""
    own = {"intermediate_size": 17, "max_position_embeddings": 31, **SIZES, **changes}
    return saved(folder, "BertForMaskedLM", word_tokenizer(pads=True), **own)


def gpt2(folder: Path, **changes: Any) -> Path:
    """Three layers of five heads, causal, and tokens of bytes."""
    own = {"n_embd": 15, "n_layer": 3, "n_head": 5, "n_positions": 31, **changes}
    return saved(folder, "GPT2LMHeadModel", byte_tokenizer(), **own)


def t5(folder: Path, **changes: Any) -> Path:
    """An encoder of two layers and a decoder of three, of five heads."""
    own = {"d_model": 15, "d_kv": 3, "num_heads": 5, "num_layers": 2, "num_decoder_layers": 3}
    own |= {"d_ff": 17, "decoder_start_token_id": 0, **changes}
    return saved(folder, "T5ForConditionalGeneration", piece_tokenizer(), **own)


# ---- by hand, without torch


def write_safetensors(file: Path, tensors: dict[str, tuple[int, ...]], **header: Any) -> Path:
    """A file of zeros in float32, by the form's own description; `header` replaces its entries."""
    entries: dict[str, Any] = {}
    at = 0
    for name, shape in tensors.items():
        size = 4
        for length in shape:
            size *= length
        entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries | header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))
    return file


def directory(folder: Path, **config: Any) -> Path:
    """A directory with everything that is looked at before a model is loaded."""
    folder.mkdir(exist_ok=True)
    said = {"model_type": "bert", "vocab_size": 97, "num_hidden_layers": 1, **config}
    (folder / "config.json").write_text(json.dumps(said), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    write_safetensors(folder / "model.safetensors", {"a": (2, 3), "b": (5,)})
    return folder
