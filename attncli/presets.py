"""What each library means by attention: one frozen row each, pure data.

    PRESETS["jax"] = Preset("jax", "jax.nn.dot_product_attention", …, {"empty_rows": "uniform"}, …)

A preset is a path through a library, not a package: another kernel, layer or backend of it may
mean something else. `fields` are those of Convention that are not the default; `refuses` says which
calls it does not take, in its own words. To add a preset: a row here, and in
tests/semantics/libraries.py the call that runs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from attncli.errors import ConventionError

Feature = Literal[
    "boolean mask",
    "number mask",
    "causal",
    "causal alone",
    "mask and causal",
    "grouped heads",
    "d_v",
]
"""What a call may have that a library refuses. "causal alone": causal without a mask beside it;
"grouped heads": fewer key heads than query heads; "d_v": values as wide as not keys are."""


class Preset(NamedTuple):
    """One path through a library.

    name     as --semantics has it
    call     the function or class, and which way through it
    version  what it was run on, such as "torch 2.13.0"; "" where it is known from documents alone
    fields   the fields of Convention that differ from the default
    refuses  feature of a call → the reason, as the library gives it
    layout   the order of the axes of its arrays
    sources  where it is documented, or discussed
    notes    what the columns of the table leave open
    """

    name: str
    call: str
    version: str
    fields: Mapping[str, Any] = MappingProxyType({})
    refuses: Mapping[Feature, str] = MappingProxyType({})
    layout: str = "bhsd"
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def refusal(self, features: Collection[Feature]) -> str | None:
        """Why the library takes no call with these features; None where it does."""
        return next((why for feature, why in self.refuses.items() if feature in features), None)


def features_of(
    *,
    mask: Literal["boolean", "number"] | None,
    causal: bool,
    heads: tuple[int, int] = (1, 1),
    widths: tuple[int, int] = (1, 1),
) -> Iterator[Feature]:
    """What a call has that a library may refuse: heads and key heads, d_k and d_v.

    >>> list(features_of(mask="number", causal=True, widths=(7, 11)))
    ['number mask', 'causal', 'mask and causal', 'd_v']
    """
    if mask is not None:
        yield "boolean mask" if mask == "boolean" else "number mask"
    if causal:
        yield "causal"
        yield "causal alone" if mask is None else "mask and causal"
    if heads[0] != heads[1]:
        yield "grouped heads"
    if widths[0] != widths[1]:
        yield "d_v"


_ADDED = {"mask_numbers": "add"}
_TRUTH = {"mask_numbers": "truth", "empty_rows": "uniform"}
_NO_CAUSAL = "it has no causal argument; pass the mask"
_NO_GROUPS = "it needs as many key heads as query heads"
_OWN_V = "it makes them itself, as wide as the keys"

_ROWS = (
    Preset(
        "torch-sdpa",
        "torch.nn.functional.scaled_dot_product_attention, its flash kernel for CPUs",
        "torch 2.13.0",
        _ADDED,
        sources=("pytorch#108108", "pytorch#103963"),
    ),
    Preset(
        "torch-flex",
        "torch.nn.attention.flex_attention.flex_attention, a boolean mask as mask_mod, numbers "
        "as score_mod, causal as i >= j",
        "torch 2.13.0",
        {**_ADDED, "mask_and_causal": "refused"},
        {"mask and causal": "one mask_mod is both: join them in it"},
    ),
    Preset(
        "torch-mha",
        "torch.nn.MultiheadAttention, need_weights=True (the default)",
        "torch 2.13.0",
        {**_ADDED, "mask_means": "ignore", "mask_and_causal": "mask", "empty_rows": "nan"},
        {"causal alone": "is_causal needs attn_mask", "grouped heads": _NO_GROUPS, "d_v": _OWN_V},
        "bsd",
    ),
    Preset(
        "torch-mha-fast",
        "torch.nn.MultiheadAttention, need_weights=False",
        "torch 2.13.0",
        {**_ADDED, "mask_means": "ignore", "mask_and_causal": "causal"},
        {"causal alone": "is_causal needs attn_mask", "grouped heads": _NO_GROUPS, "d_v": _OWN_V},
        "bsd",
    ),
    Preset(
        "transformers-eager",
        "transformers.models.llama.modeling_llama.eager_attention_forward",
        "transformers 5.23.0",
        {**_ADDED, "mask_means": "add", "empty_rows": "nan"},
        {"causal": _NO_CAUSAL},
    ),
    Preset(
        "transformers-sdpa",
        "transformers.integrations.sdpa_attention.sdpa_attention_forward",
        "transformers 5.23.0",
        {**_ADDED, "mask_and_causal": "mask"},
    ),
    Preset(
        "jax",
        "jax.nn.dot_product_attention, implementation='xla', numbers as bias",
        "jax 0.10.2",
        {**_ADDED, "empty_rows": "uniform", "empty_rows_inf": "nan"},
        {"d_v": "key and value must have one shape"},
        "bshd",
    ),
    Preset(
        "flax",
        "flax.linen.dot_product_attention, numbers as mask",
        "flax 0.12.8",
        _TRUTH,
        {"causal": _NO_CAUSAL, "grouped heads": _NO_GROUPS},
        "bshd",
    ),
    Preset(
        "keras-ops",
        "keras.ops.dot_product_attention, on PyTorch",
        "keras 3.15.1",
        _TRUTH,
        layout="bshd",
    ),
    Preset(
        "keras-mha",
        "keras.layers.MultiHeadAttention, on PyTorch",
        "keras 3.15.1",
        _TRUTH,
        {"grouped heads": _NO_GROUPS},
        "bsd",
    ),
    Preset(
        "keras-attention",
        "keras.layers.Attention, on PyTorch",
        "keras 3.15.1",
        {"scale": "none", "empty_rows": "uniform"},
        {
            "boolean mask": "its masks are of padding alone",
            "number mask": "its masks are of padding alone",
            "grouped heads": _NO_GROUPS,
        },
        "bsd",
    ),
    Preset(
        "equinox",
        "equinox.nn.MultiheadAttention",
        "equinox 0.13.8",
        _TRUTH,
        {"causal": _NO_CAUSAL, "grouped heads": _NO_GROUPS, "d_v": _OWN_V},
        "bsd",
    ),
    Preset(
        "mlx",
        "mlx.core.fast.scaled_dot_product_attention, on a CPU",
        "mlx 0.32.4",
        {
            **_ADDED,
            "causal_align": "bottom-right",
            "mask_and_causal": "refused",
            "empty_rows": "uniform",
            "empty_rows_inf": "nan",
        },
        {"mask and causal": 'its one argument is a mask or "causal"'},
    ),
    Preset(
        "tinygrad",
        "tinygrad.Tensor.scaled_dot_product_attention, on a CPU",
        "tinygrad 0.14.0",
        {**_ADDED, "mask_and_causal": "refused", "empty_rows": "nan"},
        {"mask and causal": "cannot set attn_mask when is_causal=True"},
    ),
    Preset("onnx", "ONNX Attention-23 in onnxruntime, on a CPU", "onnxruntime 1.31.1", _ADDED),
    Preset("onnx-reference", "ONNX Attention-23 in onnx.reference", "onnx 1.23.2", _ADDED),
    Preset(
        "ort-mha",
        "com.microsoft.MultiHeadAttention, a boolean mask as its integer mask, numbers as "
        "attention_bias, causal as unidirectional",
        "onnxruntime 1.31.1",
        {
            **_ADDED,
            "causal_align": "open-last",
            "mask_value": -10000.0,
            "mask_value_rule": "add",
            "empty_rows_inf": "nan",
        },
        {"mask and causal": "it has both masks, but not together", "grouped heads": _NO_GROUPS},
        "bsd",
    ),
    Preset(
        "ort-gqa",
        "com.microsoft.GroupQueryAttention, which is always causal",
        "onnxruntime 1.31.1",
        {**_ADDED, "causal": True, "window_counts": "own"},
        {"boolean mask": "it has no mask", "number mask": "it has no mask", "d_v": _OWN_V},
        "bsd",
    ),
    Preset(
        "flash-attn",
        "flash_attn.flash_attn_func, version 2, at 0251105a",
        "",
        {"causal_align": "bottom-right"},
        {
            "boolean mask": "it has no mask",
            "number mask": "it has no mask",
            "d_v": "values must be as wide as keys",
        },
        "bshd",
    ),
    Preset(
        "flashinfer",
        "flashinfer.single_prefill_with_kv_cache, at fb28d724",
        "",
        {"causal_align": "bottom-right", "mask_and_causal": "mask"},
        {"number mask": "custom_mask is boolean"},
        "shd",
    ),
)
PRESETS: Mapping[str, Preset] = MappingProxyType({row.name: row for row in _ROWS})
"""Each row by its name."""


def preset(name: str) -> Preset:
    """The row of this name; ConventionError where there is none."""
    if name not in PRESETS:
        from difflib import get_close_matches

        close = get_close_matches(name, PRESETS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(PRESETS)}"
        raise ConventionError(f"there are no semantics {name!r}", hint)
    return PRESETS[name]
