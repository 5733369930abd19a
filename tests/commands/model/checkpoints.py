"""Small checkpoints as on disk: random weights, and a tokenizer trained on a few sentences.

torch and transformers are imported by the functions, so that this module can be read without them.
"""

import json
import math
import struct
from pathlib import Path
from typing import Any

SENTENCES = (
    "the cat sat on the mat because the cat was tired",
    "She visited the money bank, near the river bank",
)
SENTENCE = SENTENCES[0]
SIZES = {"hidden_size": 15, "num_hidden_layers": 3, "num_attention_heads": 5}


def _trained(raw: Any, after: str, names: dict[str, str], **training: Any) -> Any:
    """A tokenizer that has read the sentences; what its template puts around one."""
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    training = {"special_tokens": [*names.values()], "show_progress": False, **training}
    raw.train_from_iterator(SENTENCES, **training)
    if after:
        special = [(token, raw.token_to_id(token)) for token in after.split() if token[0] != "$"]
        raw.post_processor = processors.TemplateProcessing(single=after, special_tokens=special)
    return PreTrainedTokenizerFast(tokenizer_object=raw._tokenizer, **names)


def byte_tokenizer() -> Any:
    """Byte-level BPE, as GPT-2 has it: no special token around a sentence."""
    from tokenizers import ByteLevelBPETokenizer

    raw, names = ByteLevelBPETokenizer(trim_offsets=True), {"eos_token": "<|endoftext|>"}
    return _trained(raw, "", names, vocab_size=320, min_frequency=0)


def word_tokenizer() -> Any:
    """WordPiece, as BERT has it: [CLS] … [SEP]; if it is let, it pads to 31 and cuts after 7."""
    from tokenizers import BertWordPieceTokenizer

    raw: Any = BertWordPieceTokenizer()
    raw.enable_padding(length=31)
    raw.enable_truncation(7)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return _trained(raw, "[CLS] $A [SEP]", names, vocab_size=97, min_frequency=0)


def piece_tokenizer() -> Any:
    """Unigram with ▁ for a space, as T5 has it: … </s>."""
    from tokenizers import SentencePieceUnigramTokenizer

    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    raw = SentencePieceUnigramTokenizer()
    return _trained(raw, "$A </s>", names, vocab_size=60, unk_token="<unk>")


def saved(folder: Path, kind: str, tokenizer: Any, **config: Any) -> Path:
    """A random model of this class in a folder."""
    import torch
    import transformers
    from transformers.utils import logging

    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    torch.manual_seed(7)
    own: Any = getattr(transformers, kind)
    tokenizer.save_pretrained(folder)
    own(own.config_class(vocab_size=len(tokenizer), **config)).save_pretrained(folder)
    return folder


def bert(folder: Path) -> Path:
    """Three layers of five heads, and positions for 31 tokens."""
    own = {"intermediate_size": 17, "max_position_embeddings": 31, **SIZES}
    return saved(folder, "BertForMaskedLM", word_tokenizer(), **own)


def gpt2(folder: Path, **changes: Any) -> Path:
    """Three layers of five heads, causal, and tokens of bytes."""
    own = {"n_embd": 15, "n_layer": 3, "n_head": 5, "n_positions": 31, **changes}
    return saved(folder, "GPT2LMHeadModel", byte_tokenizer(), **own)


def t5(folder: Path) -> Path:
    """An encoder of two layers and a decoder of three, of five heads."""
    own = {"d_model": 15, "d_kv": 3, "num_heads": 5, "num_layers": 2, "num_decoder_layers": 3}
    own |= {"d_ff": 17, "decoder_start_token_id": 0}
    return saved(folder, "T5ForConditionalGeneration", piece_tokenizer(), **own)


# ---- by hand, without torch


def write_safetensors(file: Path, tensors: dict[str, tuple[int, ...]], **header: Any) -> Path:
    """A file of zeros in float32, by the form's own description; `header` replaces its entries."""
    entries: dict[str, Any] = {}
    at = 0
    for name, shape in tensors.items():
        end = at + 4 * math.prod(shape)
        entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries | header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))
    return file


def directory(folder: Path, **config: Any) -> Path:
    """A directory with everything that is looked at before a model is loaded."""
    folder.mkdir(exist_ok=True)
    config = {"model_type": "bert", "vocab_size": 97, "num_hidden_layers": 1, **config}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    write_safetensors(folder / "model.safetensors", {"a": (2, 3), "b": (5,)})
    return folder
