"""Which models of transformers are captured: run by hand, `python tests/benchmarks/census.py [TYPE…]`.

Of every model type a small random model is made from its configuration, where the usual names of
sizes are enough for that, and run once with each implementation of attention that it has. A line
says how many attentions were recorded, how many of them match, and what was not seen.
"""

from __future__ import annotations

import signal
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from inspect import signature
from typing import Any

import attncli

SMALL = {
    2: "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_encoder_layers "
       "num_decoder_layers depth num_key_value_heads n_group num_experts_per_tok num_encoder_blocks "
       "num_temporal_layers num_block_records",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
       "num_local_experts num_experts n_routed_experts num_attention_heads_per_layer",
    16: "head_dim d_kv qk_nope_head_dim qk_rope_head_dim v_head_dim rotary_dim kv_channels",
    64: "hidden_size d_model n_embd dim embed_dim hidden_dim embedding_size intermediate_size "
        "ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff d_inner moe_intermediate_size q_lora_rank "
        "kv_lora_rank image_size word_embed_proj_dim n_inner projection_dim",
    99: "vocab_size",
    128: "max_position_embeddings n_positions max_source_positions max_target_positions",
}  # fmt: skip
SIZES = {name: size for size, names in SMALL.items() for name in names.split()}
TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id")
LARGEST = 40_000_000
"""Numbers in a model; one that stays larger has sizes of other names."""
SECONDS = 60


def small(kind: Any) -> Any:
    """A configuration with small sizes, and so those within it."""
    import transformers

    plain = kind()
    own = {name: size for name, size in SIZES.items() if type(vars(plain).get(name)) is int}
    for name, part in list(vars(plain).items()):
        if isinstance(part, transformers.PreTrainedConfig):
            own[name] = small(type(part)).to_dict()
    own |= {name: 0 for name in TOKENS if name in vars(plain)}
    return kind(**own)


def inputs(model: Any) -> Iterator[dict[str, Any]]:
    """What a model may take, by the names of its arguments: the least first."""
    import torch

    torch.manual_seed(0)
    config = model.config
    vision = getattr(config, "vision_config", config)
    side = getattr(vision, "image_size", 64)
    side = side[0] if isinstance(side, list | tuple) else side or 64
    ids = torch.randint(3, 90, (2, 17))
    known = {
        "input_ids": ids,
        "decoder_input_ids": ids[:, :7],
        "bbox": torch.zeros(2, 17, 4, dtype=torch.long),
        "input_values": torch.randn(2, 8000),
        "input_features": torch.randn(2, getattr(config, "num_mel_bins", 80), 256),
        "pixel_values": torch.randn(2, getattr(vision, "num_channels", 3), side, side),
    }
    names = [name for name in signature(model.forward).parameters if name in known]
    text = {
        name: known[name] for name in names if name in ("input_ids", "decoder_input_ids", "bbox")
    }
    yield text
    for other in ("input_values", "input_features", "pixel_values"):
        if other in names:
            yield {other: known[other]}
            yield {**text, other: known[other]}


def taken(model: Any) -> dict[str, Any]:
    """Inputs with which a model runs."""
    *others, last = inputs(model)
    for given in others:
        with suppress(Exception):
            model(**given)
            return given
    return last


def outcome(kind: Any, config: Any, implementation: str) -> str:
    """A line on a model: what was recorded of it."""
    import torch

    with torch.device("meta"):
        size = sum(p.numel() for p in kind(config).parameters())
    if size > LARGEST:
        return f"too large: {size:,}"
    torch.manual_seed(0)
    model = kind._from_config(config, attn_implementation=implementation).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                p.normal_(0, 1.3 / p.shape[-1] ** 0.5)
        given = taken(model)
        torch.manual_seed(1)
        before = model(**given)[0]
        torch.manual_seed(1)
        with attncli.capture(model) as calls:
            after = model(**given)[0]
    same = (
        not isinstance(before, torch.Tensor) or torch.equal(before, after) or before.isnan().any()
    )
    found = Counter(verdict(call) for call in calls[:6])
    words = [f"{n} {status}" for status, n in found.items()]
    words += [f"not seen: {', '.join(calls.unseen[:3])}"] * bool(calls.unseen)
    words += ["OUTPUT CHANGED"] * (not same)
    ways = Counter(call.seen for call in calls)
    seen = ", ".join(f"{n} by {way}" for way, n in ways.items())
    return f"{len(calls)} calls ({seen}): {'; '.join(words) or 'none'}"


def verdict(call: Any) -> str:
    try:
        found = call.check()
    except attncli.AttncliError as problem:
        return f"{type(problem).__name__}: {problem}"
    names = ", ".join(one.name for one in found.explanations)
    return f"{found.status} {names}".strip()


def stop(*_: Any) -> None:
    raise TimeoutError


def main() -> None:
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, stop)
    for name, kinds in MODEL_MAPPING_NAMES.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        for implementation in ("eager", "sdpa"):
            signal.setitimer(signal.ITIMER_REAL, SECONDS, 5)  # and again, if that was caught
            try:
                kind = getattr(transformers, kinds if isinstance(kinds, str) else kinds[0])
                line = outcome(kind, small(kind.config_class), implementation)
            except Exception as problem:
                line = f"not run: {type(problem).__name__}: {problem}".splitlines()[0][:150]
            signal.setitimer(signal.ITIMER_REAL, 0)
            print(f"{name:28} {implementation:6} {line}", flush=True)


if __name__ == "__main__":
    main()
