"""What each library means by attention: one frozen row each, pure data.

    PRESETS["jax"] = Preset("jax", "jax.nn.dot_product_attention", …, {"empty_rows": "uniform"}, …)

A preset is a path through a library, not a package: another kernel, layer or backend of it may
mean something else. `fields` are those of Convention that are not the default; `refuses` says which
calls it does not take, with the library's own message in quotation marks where it has one. To add a
preset: a row here, and in tests/commands/semantics/libraries.py the call that runs it.
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
    "lengths",
]
"""What a call may have that a library refuses. "causal alone": causal without a mask beside it;
"grouped heads": fewer key heads than query heads; "d_v": values of another width than keys;
"lengths": more or fewer keys than queries, none of them a past."""


MaskKind = Literal["boolean", "number"]


def kind_of_mask(mask: Any) -> MaskKind | None:
    """What a mask, an array, is made of: true and false, or numbers; None without one."""
    if mask is None:
        return None
    return "boolean" if mask.dtype == "bool" else "number"


class Preset(NamedTuple):
    """One path through a library.

    refuses  feature of a call → the reason; what is in quotation marks is the library's message,
             without any it has no argument for such a call
    """

    name: str  # as --semantics has it
    call: str  # the function or class, and which way through it
    version: str  # what it was run on, such as "torch 2.13.0"; "": known from documents alone
    fields: Mapping[str, Any] = MappingProxyType({})  # those of Convention that are not the default
    refuses: Mapping[Feature, str] = MappingProxyType({})
    layout: str = "bhsd"  # the order of the axes of its arrays
    sources: tuple[str, ...] = ()  # where it is documented, or discussed
    notes: tuple[str, ...] = ()  # what the columns of the table leave open
    one_query: Mapping[str, Any] = MappingProxyType({})  # fields that are others for one query
    projects: bool = False  # it projects q, k, v and its output by weights of its own

    def fields_for(self, n_queries: int) -> dict[str, Any]:
        """The fields of Convention that are not the default for so many queries."""
        return {**self.fields, **(self.one_query if n_queries == 1 else {})}

    def refuses_call(self, convention: Any, mask: Any, **sizes: tuple[int, int]) -> str | None:
        """Why it takes no call of this convention, mask and sizes (as `features_of` has them)."""
        features = {*features_of(mask=kind_of_mask(mask), causal=convention.causal, **sizes)}
        if convention.mask_and_causal != "refused":  # a flag beside it says what they mean
            features.discard("mask and causal")
        return self.refusal(features)

    def refusal(self, features: Collection[Feature]) -> str | None:
        """Why the library takes no call with these features; None where it does."""
        return next((why for feature, why in self.refuses.items() if feature in features), None)


def features_of(
    *,
    mask: MaskKind | None,
    causal: bool,
    heads: tuple[int, int] = (1, 1),
    widths: tuple[int, int] = (1, 1),
    lengths: tuple[int, int] = (1, 1),
) -> Iterator[Feature]:
    """What a call has that a library may refuse.

    heads    of queries and of keys
    widths   d_k and d_v
    lengths  number of queries and of keys, without a past
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
    if lengths[0] != lengths[1]:
        yield "lengths"


_ADDED = {"mask_numbers": "add"}
_TRUTH = {"mask_numbers": "truth", "empty_rows": "uniform"}
_NO_CAUSAL = "it has no causal argument; pass the mask"
_NO_GROUPS = "it has no number of key heads; repeat them"
_NO_MASK = "it has no mask of queries and keys"
_LEAKS = "A NaN in a masked value reaches the output (run)."
_NAN_GRADIENTS = "Rows emptied by -inf have NaN gradients, by a boolean mask not (run)."
_MHA: Mapping[Feature, str] = {
    "causal alone": '"Need attn_mask if specifying the is_causal hint"',
    "grouped heads": _NO_GROUPS,
    "d_v": 'values must be as wide as keys: "does not match value shape"',
}
_MHA_DOC = "documentation of torch.nn.MultiheadAttention"
_SDPA_DOC = "documentation of torch.nn.functional.scaled_dot_product_attention"
_KERAS_DOC = "documentation of keras.layers.MultiHeadAttention"
_ONNX_DOC = "ONNX operator Attention, versions 23 to 25"
_ORT_DOC = "onnxruntime, docs/ContribOperators.md"
_SLIDING = "sliding_window W sees W keys, its own too (run; transformers#39408)."
_ONNX_NOTES = (
    "Softcap before the mask, whose numbers are added after it (run).",
    "It takes [batch, token, width] too, with q_num_heads and kv_num_heads (documented).",
    "With a past, causality is shifted by its length (run); with nonpad_kv_seqlen, the last query "
    "is at the last valid key (documented).",
    _LEAKS,
)

_ROWS = (
    Preset(
        "torch-sdpa",
        "torch.nn.functional.scaled_dot_product_attention, its flash kernel for CPUs",
        "torch 2.13.0",
        _ADDED,
        sources=(_SDPA_DOC, "pytorch#108108", "pytorch#103082", "pytorch#103963"),
        notes=(
            "Its math kernel, which runs with dropout and where d_v is not d_k, refuses a mask "
            "beside causal: Explicit attn_mask should not be set when is_causal=True (run).",
            "Fewer key heads need enable_gqa=True; a single one does not in the math kernel (run).",
            "torch.nn.attention.bias.causal_lower_right as mask is causal, bottom-right (run).",
            "No softcap and no window. Gradients of a row without keys are 0 (run).",
            _LEAKS,
        ),
    ),
    Preset(
        "torch-flex",
        "torch.nn.attention.flex_attention.flex_attention, a boolean mask as mask_mod, numbers "
        "as score_mod, causal as i >= j",
        "torch 2.13.0",
        {**_ADDED, "mask_and_causal": "refused"},
        {"mask and causal": "one mask_mod is both: join them in it"},
        sources=("documentation of torch.nn.attention.flex_attention",),
        notes=(
            "Softcap, windows and alignment are what score_mod and mask_mod compute.",
            "return_lse=True gives the natural logarithm (run).",
            _LEAKS,
        ),
    ),
    Preset(
        "torch-mha",
        "torch.nn.MultiheadAttention, need_weights=True (the default)",
        "torch 2.13.0",
        {**_ADDED, "mask_means": "ignore", "mask_and_causal": "mask", "empty_rows": "nan"},
        _MHA,
        "bsd",
        (_MHA_DOC, "pytorch#99282", "pytorch#160064", "pytorch#21518"),
        (
            "bsd with batch_first=True; tokens come first without it (documented).",
            "The weights it returns are those after dropout: rows do not sum to 1 (run).",
            "A row without keys makes the gradients of the projections NaN, even where no loss "
            "reads the row (run).",
            _LEAKS,
        ),
        projects=True,
    ),
    Preset(
        "torch-mha-fast",
        "torch.nn.MultiheadAttention, need_weights=False",
        "torch 2.13.0",
        {**_ADDED, "mask_means": "ignore", "mask_and_causal": "causal"},
        _MHA,
        "bsd",
        (_MHA_DOC, "pytorch#160064", "pytorch PR 178588"),
        (
            "bsd with batch_first=True; tokens come first without it (documented).",
            "is_causal is a hint that attn_mask is causal. With a key_padding_mask beside it, "
            "attn_mask and padding restrict, and the hint does nothing (run).",
            "Gradients of a row without keys are 0 (run).",
            _LEAKS,
        ),
        projects=True,
    ),
    Preset(
        "transformers-eager",
        "transformers.models.llama.modeling_llama.eager_attention_forward",
        "transformers 5.23.0",
        {"mask_means": "add", "empty_rows": "nan"},
        {"causal": _NO_CAUSAL},
        sources=(
            "documentation of transformers, attention_interface",
            "speculators PR 691",
            "transformers PR 46507",
        ),
        notes=(
            "A boolean mask hides nothing: 1 is added where it is true (run).",
            "Its output is bshd (run). The model gives the scale.",
            "The eager attention of Gemma 2 caps the scores before the mask (run).",
            _SLIDING,
            _LEAKS,
        ),
    ),
    Preset(
        "transformers-sdpa",
        "transformers.integrations.sdpa_attention.sdpa_attention_forward",
        "transformers 5.23.0",
        {**_ADDED, "mask_and_causal": "mask"},
        sources=("documentation of transformers, attention_interface", "transformers PR 46507"),
        notes=(
            "Its output is bshd (run). The model gives the scale.",
            "A single query sees all keys under causal, as the last one does (run).",
            _SLIDING,
            _LEAKS,
        ),
        one_query={"causal_align": "bottom-right"},
    ),
    Preset(
        "jax",
        "jax.nn.dot_product_attention, implementation='xla', numbers as bias",
        "jax 0.10.2",
        {**_ADDED, "empty_rows": "uniform", "empty_rows_inf": "nan"},
        {"d_v": 'values must be as wide as keys: "value shape should be"'},
        "bshd",
        ("documentation of jax.nn.dot_product_attention", "jax#32300", "jax PR 23247"),
        (
            "Its mask is boolean; numbers are its bias.",
            "local_window_size W sees W keys on both sides and its own (run).",
            "Where causality and -inf leave a query no key, it sees later ones: causality lowers "
            "a score by a finite number (run).",
            "A row that a boolean mask empties gives its gradient to all values, masked ones too; "
            "one emptied by -inf has NaN gradients (run).",
            _LEAKS,
        ),
    ),
    Preset(
        "flax",
        "flax.linen.dot_product_attention, numbers as mask",
        "flax 0.12.8",
        _TRUTH,
        {"causal": _NO_CAUSAL, "grouped heads": '"q, k, v num_heads must match"'},
        "bshd",
        ("documentation of flax.linen.dot_product_attention",),
        (
            "Its mask is truth: 0 is false and -inf true. Its bias is added (run).",
            "One dropout mask is drawn for all batch items and heads, by default (run).",
            "flax.nnx shares key heads in blocks, and values must be as wide as keys (run).",
            _LEAKS,
        ),
    ),
    Preset(
        "keras-ops",
        "keras.ops.dot_product_attention, on PyTorch",
        "keras 3.15.1",
        _TRUTH,
        layout="bshd",
        sources=("documentation of keras.ops.dot_product_attention", "keras PR 20448"),
        notes=(
            "Its mask is truth: 0 is false and -inf true. Its bias is added (run).",
            "attn_logits_soft_cap is for JAX on TPUs alone (run).",
            "On JAX, values must be as wide as keys (documented).",
            _LEAKS,
        ),
    ),
    Preset(
        "keras-mha",
        "keras.layers.MultiHeadAttention, on PyTorch",
        "keras 3.15.1",
        _TRUTH,
        {"grouped heads": "it has no number of key heads; keras.layers.GroupQueryAttention has"},
        "bsd",
        (_KERAS_DOC, "keras PR 20511", "keras PR 20448"),
        (
            "Its masks are truth: 0 is false and -inf true (run).",
            "sliding_window W sees W keys on both sides, its own in either count (run).",
            "The weights it returns are those before dropout: rows sum to 1 (run).",
            "On JAX, values must be as wide as keys (documented).",
            _LEAKS,
        ),
        projects=True,
    ),
    Preset(
        "keras-attention",
        "keras.layers.Attention, on PyTorch",
        "keras 3.15.1",
        {"scale": "none", "empty_rows": "uniform"},
        {"boolean mask": _NO_MASK, "number mask": _NO_MASK, "grouped heads": "it has no heads"},
        "bsd",
        ("documentation of keras.layers.Attention",),
        (
            "Its masks are of padding: of the queries, which sets outputs to 0, and of the values.",
            "use_scale=True learns a scale, from 1 (documented).",
            "A row whose keys are all padding: NaN in float16 (run).",
            "The weights it returns are those after dropout (run).",
            _LEAKS,
        ),
    ),
    Preset(
        "equinox",
        "equinox.nn.MultiheadAttention",
        "equinox 0.13.8",
        _TRUTH,
        {"causal": _NO_CAUSAL, "grouped heads": _NO_GROUPS},
        "sd",
        ("documentation of equinox.nn.MultiheadAttention", "equinox PR 463", "equinox PR 341"),
        (
            "Its mask is truth: 0 is false and -inf true (run).",
            "It has no batch: jax.vmap makes one. vo_size sets d_v.",
            _LEAKS,
        ),
        projects=True,
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
        {"mask and causal": "its one argument is a mask or the word causal"},
        sources=(
            "documentation of mlx.core.fast.scaled_dot_product_attention",
            "mlx#2835",
            "mlx PR 2967",
        ),
        notes=(
            "The scale must be given; 1/sqrt(d_k) was.",
            "Before PR 2967, causal was top-left where queries are more than keys (documented).",
            _NAN_GRADIENTS,
            _LEAKS,
        ),
    ),
    Preset(
        "tinygrad",
        "tinygrad.Tensor.scaled_dot_product_attention, on a CPU",
        "tinygrad 0.14.0",
        {**_ADDED, "mask_and_causal": "refused", "empty_rows": "nan"},
        {"mask and causal": '"cannot set attn_mask when is_causal=True"'},
        sources=("tinygrad PR 8674", "tinygrad PR 1502"),
        notes=("Fewer key heads need enable_gqa=True (run).", _LEAKS),
    ),
    Preset(
        "onnx",
        "ONNX Attention-23 in onnxruntime, on a CPU",
        "onnxruntime 1.31.1",
        _ADDED,
        sources=(_ONNX_DOC,),
        notes=_ONNX_NOTES,
    ),
    Preset(
        "onnx-reference",
        "ONNX Attention-23 in onnx.reference",
        "onnx 1.23.2",
        _ADDED,
        sources=(_ONNX_DOC,),
        notes=_ONNX_NOTES,
    ),
    Preset(
        "ort-mha",
        "com.microsoft.MultiHeadAttention on a CPU, a boolean mask as its key_padding_mask of "
        "0 and 1, numbers as attention_bias, causal as unidirectional",
        "onnxruntime 1.31.1",
        {
            **_ADDED,
            "causal_align": "open-last",
            "mask_value": -10000.0,
            "mask_value_rule": "add",
            "empty_rows_inf": "nan",
        },
        {
            "grouped heads": _NO_GROUPS
            + ": \"Input 'query' and 'key' shall have same dim 2 (hidden_size)\""
        },
        "bsd",
        (_ORT_DOC, "onnxruntime#14363", "onnxruntime PR 14274", "onnxruntime PR 21852"),
        (
            "Where the mask is 0, mask_filter_value (-10000) is added to a score: a row without "
            "keys keeps its weights, but for the rounding of float32 (run). Beside causal, such a "
            "row sees no later key (run), which these fields cannot say.",
            "Where causality and -inf leave a query no key, it sees later ones: they are lowered "
            "by a finite number (run).",
            _LEAKS,
        ),
    ),
    Preset(
        "ort-gqa",
        "com.microsoft.GroupQueryAttention on a CPU, which is always causal",
        "onnxruntime 1.31.1",
        {"causal": True, "window_counts": "own"},
        {
            "boolean mask": _NO_MASK,
            "number mask": _NO_MASK,
            "d_v": "values must be as wide as keys: "
            "\"Input 'value' is expected to have same hidden size as key\"",
            "lengths": '"query and key must have the same sequence length when past_key is not '
            'provided"',
        },
        "bsd",
        (_ORT_DOC,),
        (
            "Its head_size must be a multiple of 8 (run).",
            "local_window_size W sees W keys, its own too (run).",
            "softcap before the causal mask (run).",
            "A past shifts causality by its length; beside it, several queries need a batch of 1 "
            "(run).",
            _LEAKS,
        ),
    ),
    Preset(
        "flash-attn",
        "flash_attn.flash_attn_func, version 2, at 0251105a",
        "",
        {"causal_align": "bottom-right"},
        {
            "boolean mask": _NO_MASK,
            "number mask": _NO_MASK,
            "d_v": "values must be as wide as keys; version 3 takes others",
        },
        "bshd",
        ("documentation of flash_attn_func", "flash-attention#517", "flash-attention#1133"),
        (
            "It needs a GPU and float16 or bfloat16: documented, not run.",
            "window_size (left, right) counts the keys beside its own (documented).",
            "Softcap, then mask, then ALiBi (documented).",
            "The lse of a row without keys is inf (documented).",
        ),
    ),
    Preset(
        "flashinfer",
        "flashinfer.single_prefill_with_kv_cache, at fb28d724",
        "",
        {"causal_align": "bottom-right", "mask_and_causal": "mask"},
        {"number mask": "custom_mask is boolean"},
        "shd",
        ("documentation of flashinfer.single_prefill_with_kv_cache",),
        (
            "It needs a GPU: documented, not run.",
            "window_left counts the keys before its own (documented).",
            "The lse has base 2 in its MLA kernels (documented).",
        ),
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
