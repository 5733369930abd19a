"""The families of models that are captured in the tests: how to make a small random one of each.

Sizes are distinct primes where the architecture allows: 97 words, 11 tokens in a batch of 5, 7 of a
decoder, 3 heads of 13 (14 where they are rotated in halves), 6 heads for 3 key heads, 2 layers.
"""

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import attncli

WORDS, BATCH, TOKENS, TARGET = 97, 5, 11, 7
VALID = (11, 7, 10, 3, 5)
"""How many tokens of each batch item are no padding."""


class Family(NamedTuple):
    """A family of models."""

    title: str
    """As the manual names it."""
    kind: str
    config: Mapping[str, Any]
    inputs: str = "text"
    """Or "target" (an encoder's and a decoder's), "image", "audio", "image and text"."""
    calls: int = 2
    loaded: tuple[str, ...] = ("eager", "sdpa")
    """The implementations of attention it can be loaded with."""
    returns: str = ""
    """What is in the names of the modules whose weights it returns, where not of all."""


class Row(NamedTuple):
    """A row of the table in help/models.md: some families, what is captured of them, where it is seen."""

    captured: str
    families: tuple[Family, ...]
    seen: str = "attention interface (eager, sdpa)"


_SMALL = {"vocab_size": WORDS, "num_hidden_layers": 2, "intermediate_size": 29}
_HEADS = {**_SMALL, "hidden_size": 39, "num_attention_heads": 3, "max_position_embeddings": 23}
_ROTARY = {**_SMALL, "hidden_size": 42, "num_attention_heads": 3}
_GROUPED = {**_ROTARY, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 14}
_WINDOW = {**_GROUPED, "sliding_window": 5}
_IMAGE = {**_HEADS, "image_size": 21, "patch_size": 7, "num_channels": 3}
_BOTH = {
    "vocab_size": WORDS, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 3,
    "decoder_attention_heads": 3, "encoder_ffn_dim": 29, "decoder_ffn_dim": 29,
}  # fmt: skip
# Experts multiply matrices whose rows must be multiples of 16 bytes.
_EXPERTS = {"hidden_size": 48, "num_experts_per_tok": 2}

ROWS = (
    Row("heads that share keys, rotary positions, QK norm, windows", (
        Family("Llama", "LlamaModel", _GROUPED),
        Family("Mistral", "MistralModel", _WINDOW),
        Family("Qwen 3", "Qwen3Model", _GROUPED),
        Family("Gemma 3", "Gemma3TextModel", {**_WINDOW, "query_pre_attn_scalar": 17, "layer_types": ["sliding_attention", "full_attention"]}),
        Family("Phi-3", "Phi3Model", {**_ROTARY, "num_key_value_heads": 3, "pad_token_id": 0}),
        Family("GPT-NeoX", "GPTNeoXModel", {**_ROTARY, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    )),
    Row("softcap; sinks", (
        Family("Gemma 2", "Gemma2Model", {**_WINDOW, "query_pre_attn_scalar": 17, "attn_logit_softcapping": 7.0}, loaded=("eager",)),
        Family("GPT-OSS", "GptOssModel", {**_WINDOW, **_EXPERTS, "intermediate_size": 32, "num_local_experts": 3}, loaded=("eager",)),
    ), "attention interface (eager)"),
    Row("d_v ≠ d_k", (
        Family("DeepSeek-V3", "DeepseekV3Model", {**_ROTARY, **_EXPERTS, "num_key_value_heads": 3, "q_lora_rank": 11, "kv_lora_rank": 17, "qk_nope_head_dim": 9, "qk_rope_head_dim": 4, "v_head_dim": 7, "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 16, "first_k_dense_replace": 1}),
    )),
    Row("self-attention, also of layers that share their weights", (
        Family("GPT-2", "GPT2Model", {"vocab_size": WORDS, "n_embd": 39, "n_head": 3, "n_layer": 2, "n_positions": 23}),
        Family("OPT", "OPTModel", {**_HEADS, "ffn_dim": 29, "word_embed_proj_dim": 39}),
        Family("BERT", "BertModel", _HEADS),
        Family("RoBERTa", "RobertaModel", _HEADS),
        Family("DistilBERT", "DistilBertModel", {"vocab_size": WORDS, "dim": 39, "n_heads": 3, "n_layers": 2, "hidden_dim": 29, "max_position_embeddings": 23}),
        Family("ALBERT", "AlbertModel", {**_HEADS, "embedding_size": 19}),
        Family("ModernBERT", "ModernBertModel", {**_ROTARY, "local_attention": 6, "global_attn_every_n_layers": 2, "pad_token_id": 0}),
    )),
    Row("images: patches, windows with a bias; a tower and a language model", (
        Family("ViT", "ViTModel", _IMAGE, "image"),
        Family("CLIP", "CLIPVisionModel", _IMAGE, "image"),
        Family("Swin", "SwinModel", {"image_size": 14, "patch_size": 2, "embed_dim": 13, "depths": [2], "num_heads": [1], "window_size": 5}, "image", returns="blocks.1"),
        Family("LLaVA", "LlavaModel", {"vision_config": {**_IMAGE, "image_size": 14, "model_type": "clip_vision_model"}, "text_config": {**_GROUPED, "model_type": "llama"}, "image_token_index": 96, "vision_feature_layer": -1, "image_seq_length": 4}, "image and text", calls=4, returns="language_model"),
    )),
    Row("encoder, decoder and cross-attention, relative bias", (
        Family("T5", "T5Model", {"vocab_size": WORDS, "d_model": 31, "d_kv": 13, "d_ff": 29, "num_layers": 2, "num_heads": 3, "relative_attention_num_buckets": 11, "relative_attention_max_distance": 13}, "target", calls=6),
        Family("BART", "BartModel", {**_BOTH, "d_model": 39, "max_position_embeddings": 23}, "target", calls=6),
        Family("Whisper", "WhisperModel", {**_BOTH, "d_model": 42, "num_mel_bins": 5, "max_source_positions": 13, "pad_token_id": 0, "max_target_positions": 23, "decoder_start_token_id": 1, "bos_token_id": 1, "eos_token_id": 2}, "audio", calls=6),
    )),
    Row("ALiBi, rotary, relative and disentangled positions, written out by the model", (
        Family("BLOOM", "BloomModel", {"vocab_size": WORDS, "hidden_size": 39, "n_layer": 2, "n_head": 3}, loaded=("eager",)),
        Family("Falcon", "FalconModel", {**_ROTARY, "alibi": True, "new_decoder_architecture": False}),
        Family("MPT", "MptModel", {"vocab_size": WORDS, "d_model": 39, "n_layers": 2, "n_heads": 3, "max_seq_len": 23}, loaded=("eager",)),
        Family("GPT-J", "GPTJModel", {"vocab_size": WORDS, "n_embd": 42, "n_head": 3, "n_layer": 2, "n_positions": 23, "rotary_dim": 4}, loaded=("eager",)),
        Family("DeBERTa", "DebertaV2Model", {**_HEADS, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}, loaded=("eager",)),
        Family("XLNet", "XLNetModel", {"vocab_size": WORDS, "d_model": 42, "n_layer": 2, "n_head": 3, "d_inner": 29}, loaded=("eager",)),
    ), "softmax; Falcon loaded with sdpa: scaled_dot_product_attention"),
)  # fmt: skip

FAMILIES = {family.title: family for row in ROWS for family in row.families}


def made(family: Family, implementation: str, dtype: str = "float32") -> Any:
    """A random model of a family, loaded with an implementation of attention.

    Its scores have a standard deviation of about 1 or more: as models are initialized for
    training, all weights would be nearly equal.
    """
    import torch
    import transformers

    kind = getattr(transformers, family.kind)
    torch.manual_seed(17)
    model = kind._from_config(
        kind.config_class(**family.config), attn_implementation=implementation
    )
    with torch.no_grad():
        for x in model.parameters():
            if x.ndim > 1:
                x.normal_(0, 1.3 / x.shape[-1] ** 0.5)
            else:
                x.add_(0.3 * torch.randn(x.shape))
    return model.to(getattr(torch, dtype)).eval()


def inputs(family: Family, dtype: str = "float32", *, left: bool = False) -> dict[str, Any]:
    """What a model of the family takes: random numbers, and padding on the right or the left."""
    import torch

    torch.manual_seed(19)
    number = getattr(torch, dtype)
    given: dict[str, Any] = {}
    if "image" in family.inputs:
        size = {**family.config, **family.config.get("vision_config", {})}["image_size"]
        given["pixel_values"] = torch.randn(BATCH, 3, size, size).to(number)
    if family.inputs == "audio":
        given["input_features"] = torch.randn(BATCH, 5, 26).to(number)
    if "text" in family.inputs or family.inputs == "target":
        given["input_ids"] = torch.randint(3, WORDS - 1, (BATCH, TOKENS))
        mask = (torch.arange(TOKENS) < torch.tensor(VALID)[:, None]).long()
        given["attention_mask"] = mask.flip(-1) if left else mask
    if family.inputs == "image and text":
        given["input_ids"][:, :4] = WORDS - 1  # four patches of 7 × 7
        given["attention_mask"][:, :4] = 1
    if family.inputs in ("target", "audio"):
        given["decoder_input_ids"] = torch.randint(3, WORDS, (BATCH, TARGET))
    return given


def captured(model: Any, given: Mapping[str, Any], **convention: Any) -> Any:
    """The calls of a run without gradients."""
    import torch

    with torch.no_grad(), attncli.capture(model, **convention) as calls:
        model(**given)
    return calls


def compared(model: Any, *args: Any, **given: Any) -> tuple[Any, Any]:
    """The calls of a run, and its output; all tensors of which are the same without capture."""
    import torch

    outputs = []
    for watch in (nullcontext(), attncli.capture(model)):
        torch.manual_seed(29)
        with warnings.catch_warnings(), watch as calls:
            warnings.simplefilter("ignore", UserWarning)  # that no attention was seen
            outputs.append(model(*args, **given))
    before, after = (_tensors(output) for output in outputs)
    assert before
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    return calls, outputs[1]


def _tensors(x: Any) -> list[Any]:
    """The tensors of a model's output, in order."""
    if hasattr(x, "numpy"):
        return [x]
    parts = x.values() if hasattr(x, "values") else x if isinstance(x, tuple | list) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


def module_of(function: Callable[..., Any], **parts: Any) -> Any:
    """A module of PyTorch that computes a function, and holds these modules."""
    import torch

    kind: Any = type("Module", (torch.nn.Module,), {"forward": lambda self, *args: function(*args)})
    module = kind()
    for name, part in parts.items():
        setattr(module, name, part)
    return module
