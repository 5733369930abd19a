"""How each array language writes what porting needs, and how each library is called: pure data.

    LANGUAGES["jax"].where     the idiom of a language, a template
    TARGETS["jax"].boolean     the argument by which a library takes a boolean mask

To add a library: a row of TARGETS beside its row in attncli/presets.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Language(NamedTuple):
    """Idioms of an array language as templates; the defaults are NumPy's.

    {x}, {y}, {c}  arrays, a condition
    {d}, {_d}      a diagonal, "" for the main one; the same after a comma
    {n}, {axis}    a number, an axis
    {m}            `module`

    imports        what stands in the code → the line that imports it
    tri            [n_q, n_k], true up to the diagonal
    last           [n_q, 1], true for the last query
    """

    module: str
    imports: Mapping[str, str]
    swap: str = "{x}.swapaxes(1, 2)"
    split: str = "{x}.reshape(*{x}.shape[:2], {n}, -1)"
    merge: str = "{x}.reshape(*{x}.shape[:2], -1)"
    any: str = "{x}.any(-1, keepdims=True)"
    where: str = "{m}.where({c}, {x}, {y})"
    tri: str = "{m}.tri(n_q, n_k{_d}, dtype=bool)"
    tril: str = "{m}.tril({x})"
    last: str = "{m}.arange(n_q)[:, None] == n_q - 1"
    mean: str = "{x}.mean({axis}, keepdims=True)"
    repeat: str = "{m}.repeat({x}, {n}, {axis})"
    cast: str = "{x}.astype(q.dtype)"
    pad: str = "{m}.pad({x}, [(0, 0)] * 3 + [(0, {n})])"


_TORCH = Language(
    "torch",
    {"torch.": "import torch", "F.": "import torch.nn.functional as F"},
    swap="{x}.transpose(1, 2)",
    split="{x}.unflatten(-1, ({n}, -1))",
    merge="{x}.flatten(2)",
    any="{x}.any(-1, keepdim=True)",
    tri="torch.ones(n_q, n_k, dtype=torch.bool, device=q.device).tril({d})",
    tril="{x}.tril()",
    last="torch.arange(n_q, device=q.device)[:, None] == n_q - 1",
    mean="{x}.mean({axis}, keepdim=True)",
    repeat="{x}.repeat_interleave({n}, {axis})",
    cast="{x}.to(q.dtype)",
    pad="F.pad({x}, (0, {n}))",
)
_ROWS: Mapping[str, Language] = {
    "torch": _TORCH,
    "jax": Language("jnp", {"jax.": "import jax", "jnp.": "import jax.numpy as jnp"}),
    "keras": Language(
        "ops",
        {"ops.": "from keras import ops"},
        swap="ops.swapaxes({x}, 1, 2)",
        split="ops.reshape({x}, (*{x}.shape[:2], {n}, -1))",
        merge="ops.reshape({x}, (*{x}.shape[:2], -1))",
        any="ops.any({x}, -1, keepdims=True)",
        tri='ops.tri(n_q, n_k{_d}, dtype="bool")',
        mean="ops.mean({x}, {axis}, keepdims=True)",
        cast="ops.cast({x}, q.dtype)",
    ),
    "mlx": Language(
        "mx", {"mx.": "import mlx.core as mx"}, tri="mx.tri(n_q, n_k{_d}, dtype=mx.bool_)"
    ),
    "tinygrad": _TORCH._replace(
        module="Tensor",
        imports={
            "Tensor.": "from tinygrad import Tensor",
            "dtypes.": "from tinygrad import dtypes",
        },
        where="({c}).where({x}, {y})",
        tri="Tensor.ones(n_q, n_k, dtype=dtypes.bool).tril({d})",
        last="Tensor.arange(n_q)[:, None] == n_q - 1",
        cast="{x}.cast(q.dtype)",
    ),
    "numpy": Language("np", {"np.": "import numpy as np", "helper.": "from onnx import helper"}),
}
LANGUAGES = MappingProxyType(_ROWS)
"""The array languages, by name."""


class Argument(NamedTuple):
    """How a call takes a mask.

    text    the argument; {mask} is the mask [n_q, n_k]
    before  a statement before the call
    node    for a call of a node: the inputs that its list of names gets
    """

    text: str
    before: str = ""
    node: str = ""


class Target(NamedTuple):
    """How a library is called on arrays of its own layout.

    language     of LANGUAGES
    call         the call; {more} are its further arguments
    imports      what stands in the code → the line that imports it, beside the language's
    boolean      how it takes a boolean mask, None where it does not; its sense is the preset's
    number       the same for numbers that are added
    causal       how it is asked for causal, aligned as the preset says
    scale        the argument of the factor, "" where there is none
    needs_scale  the factor has no default
    grouped      the argument for fewer key heads than query heads, where one is needed
    unmasked     the argument that is needed where there is neither a mask nor causal
    joins        why a mask and causal are joined into one mask though the preset takes both
    before       the statement before the call that makes its node
    first        what the function takes before q, such as a layer, and what that is
    takes        layout of its arrays here, where it is not that of the preset
    returns      the same of its output
    own_call     the call on arrays of the preset's layout, where `takes` is another
    is_layer     it projects q, k, v and its output by weights of its own
    instead      the preset for what it cannot do
    """

    language: str
    call: str
    imports: Mapping[str, str] = MappingProxyType({})
    boolean: Argument | None = None
    number: Argument | None = None
    causal: Argument | None = None
    scale: str = ""
    needs_scale: bool = False
    grouped: str = ""
    unmasked: str = ""
    joins: str = ""
    before: str = ""
    first: tuple[str, str] = ("", "")
    takes: str = ""
    returns: str = ""
    own_call: str = ""
    is_layer: bool = False
    instead: str = "torch-sdpa"


_ATTN_MASK = Argument("attn_mask={mask}")
_IS_CAUSAL = Argument("is_causal=True")
_MODULE = "module", "the attention layer, for its num_key_value_groups"
_TORCH_MHA = Target(
    "torch",
    "mha(q, k, v{more})[0]",
    boolean=_ATTN_MASK,
    number=_ATTN_MASK,
    first=("mha", "a torch.nn.MultiheadAttention with batch_first=True"),
    is_layer=True,
)
_ONNX = Target(
    "numpy",
    "run(node, q=q, k=k, v=v{more})",
    boolean=Argument("mask={mask}", node=', "mask"'),
    number=Argument("mask={mask}", node=', "mask"'),
    causal=Argument("is_causal=1"),
    scale="scale={scale}",
    before='node = helper.make_node("Attention", ["q", "k", "v"{inputs}], ["out"]{attributes})',
    first=("run", "gives the output of a model of this node for these inputs"),
)
_BLOCK_MASK = (
    "block_mask = create_block_mask(lambda b, h, i, j: {}, None, None, n_q, n_k, q.device)"
)
_FLEX = "torch.nn.attention.flex_attention"
_SDPA_FORWARD = "transformers.integrations.sdpa_attention"
_EAGER_FORWARD = "transformers.models.llama.modeling_llama"
_TARGETS: Mapping[str, Target] = {
    "torch-sdpa": Target(
        "torch",
        "F.scaled_dot_product_attention(q, k, v{more})",
        boolean=_ATTN_MASK,
        number=_ATTN_MASK,
        causal=_IS_CAUSAL,
        scale="scale={scale}",
        grouped="enable_gqa=True",
        joins="a mask and causal are joined: torch-sdpa takes both at once on CPUs alone",
    ),
    "torch-flex": Target(
        "torch",
        "flex_attention(q, k, v{more})",
        {
            "create_block_mask(": f"from {_FLEX} import create_block_mask",
            "flex_attention(": f"from {_FLEX} import flex_attention",
        },
        boolean=Argument("block_mask=block_mask", _BLOCK_MASK.format("{mask}[i, j]")),
        number=Argument("score_mod=lambda score, b, h, i, j: score + {mask}[i, j]"),
        causal=Argument("block_mask=block_mask", _BLOCK_MASK.format("i >= j")),
        scale="scale={scale}",
        grouped="enable_gqa=True",
    ),
    "torch-mha": _TORCH_MHA,
    "torch-mha-fast": _TORCH_MHA._replace(call="mha(q, k, v, need_weights=False{more})[0]"),
    "transformers-eager": Target(
        "torch",
        "eager_attention_forward(module, q, k, v{more})[0]",
        {"eager_attention_forward(": f"from {_EAGER_FORWARD} import eager_attention_forward"},
        number=Argument("attention_mask={mask}[None, None]"),
        scale="scaling={scale}",
        needs_scale=True,
        unmasked="attention_mask=None",
        first=_MODULE,
        returns="bshd",
    ),
    "transformers-sdpa": Target(
        "torch",
        "sdpa_attention_forward(module, q, k, v{more})[0]",
        {"sdpa_attention_forward(": f"from {_SDPA_FORWARD} import sdpa_attention_forward"},
        boolean=Argument("attention_mask={mask}[None, None]"),
        number=Argument("attention_mask={mask}[None, None]"),
        causal=Argument("attention_mask=None, is_causal=True"),
        scale="scaling={scale}",
        unmasked="attention_mask=None, is_causal=False",
        first=_MODULE,
        returns="bshd",
    ),
    "jax": Target(
        "jax",
        "jax.nn.dot_product_attention(q, k, v{more})",
        boolean=Argument("mask={mask}[None, None]"),
        number=Argument("bias={mask}[None, None]"),
        causal=_IS_CAUSAL,
        scale="scale={scale}",
        instead="flax",
    ),
    "flax": Target(
        "jax",
        "nn.dot_product_attention(q, k, v{more})",
        {"nn.": "from flax import linen as nn"},
        boolean=Argument("mask={mask}[None, None]"),
        number=Argument("bias={mask}[None, None]"),
        instead="jax",
    ),
    "keras-ops": Target(
        "keras",
        "ops.dot_product_attention(q, k, v{more})",
        boolean=Argument("mask={mask}[None, None]"),
        number=Argument("bias={mask}[None, None]"),
        causal=_IS_CAUSAL,
        scale="scale={scale}",
    ),
    "keras-mha": Target(
        "keras",
        "layer(q, v, k{more})",
        boolean=Argument("attention_mask={mask}[None]"),
        causal=Argument("use_causal_mask=True"),
        first=("layer", "a keras.layers.MultiHeadAttention"),
        is_layer=True,
        instead="keras-ops",
    ),
    "equinox": Target(
        "jax",
        "jax.vmap(lambda q, k, v: mha(q, k, v{more}))(q, k, v)",
        boolean=Argument("mask={mask}"),
        first=("mha", "an equinox.nn.MultiheadAttention"),
        takes="bsd",
        own_call="mha(q, k, v{more})",
        is_layer=True,
        instead="jax",
    ),
    "mlx": Target(
        "mlx",
        "mx.fast.scaled_dot_product_attention(q, k, v{more})",
        boolean=Argument("mask={mask}"),
        number=Argument("mask={mask}"),
        causal=Argument('mask="causal"'),
        scale="scale={scale}",
        needs_scale=True,
    ),
    "tinygrad": Target(
        "tinygrad",
        "q.scaled_dot_product_attention(k, v{more})",
        boolean=_ATTN_MASK,
        number=_ATTN_MASK,
        causal=_IS_CAUSAL,
        grouped="enable_gqa=True",
    ),
    "onnx": _ONNX,
    "onnx-reference": _ONNX,
    "ort-mha": _ONNX._replace(
        boolean=Argument(
            "mask={mask}[None].repeat(len(q), 0).astype(np.int32)", node=', "", "mask"'
        ),
        number=Argument("mask={mask}[None, None]", node=', "", "", "mask"'),
        causal=Argument("unidirectional=1"),
        before="node = helper.make_node(\n"
        '    "MultiHeadAttention", ["q", "k", "v"{inputs}], ["out"],\n'
        '    domain="com.microsoft", num_heads=n_heads{attributes},\n'
        ")",
        instead="onnx",
    ),
    "flash-attn": Target(
        "torch",
        "flash_attn_func(q, k, v{more})",
        {"flash_attn_func(": "from flash_attn import flash_attn_func"},
        causal=Argument("causal=True"),
        scale="softmax_scale={scale}",
    ),
    "flashinfer": Target(
        "torch",
        "single_prefill_with_kv_cache(q, k, v{more})",
        {"single_prefill_with_kv_cache(": "from flashinfer import single_prefill_with_kv_cache"},
        boolean=Argument("custom_mask={mask}"),
        causal=Argument("causal=True"),
        scale="sm_scale={scale}",
    ),
}
TARGETS = MappingProxyType(_TARGETS)
"""The libraries to which code can be moved, by preset."""

NO_TARGET: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "keras-attention": ("it has no heads, and its masks are of padding alone", "keras-ops"),
        "ort-gqa": ("it is causal always, and has no mask", "onnx"),
    }
)
"""Presets to which no code is written: why, and the preset to use instead."""

AXES = {
    "bhsd": "[batch, head, token, d]",
    "bshd": "[batch, token, head, d]",
    "bsd": "[batch, token, head * d]",
    "shd": "[token, head, d]",
    "sd": "[token, head * d]",
    "one head": "[batch, token, d]",
}
"""The axes of each layout; "one head" is that of an attention without heads."""
FLAT = frozenset({"bsd", "sd"})
"""Layouts that have the heads side by side."""
_TO_BSHD: Mapping[str, tuple[str, ...]] = {
    "bhsd": ("swap",),
    "bshd": (),
    "bsd": ("split",),
    "shd": ("{x}[None]",),
    "sd": ("{x}[None]", "split"),
    "one head": ("{x}[:, :, None]",),
}
_FROM_BSHD: Mapping[str, tuple[str, ...]] = {
    "bhsd": ("swap",),
    "bshd": (),
    "bsd": ("merge",),
    "shd": ("{x}[0]",),
    "sd": ("merge", "{x}[0]"),
    "one head": ("{x}[:, :, 0]",),
}
_DIRECT: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("one head", "bhsd"): ("{x}[:, None]",),
    ("bhsd", "one head"): ("{x}[:, 0]",),
    ("one head", "bsd"): (),
    ("bsd", "one head"): (),
    ("sd", "bsd"): ("{x}[None]",),
    ("bsd", "sd"): ("{x}[0]",),
}


def moves(layout: str, to: str) -> tuple[str, ...]:
    """What brings an array from one layout to another: names of idioms, or templates.

    >>> moves("bsd", "bhsd")
    ('split', 'swap')
    """
    if layout == to:
        return ()
    if (layout, to) in _DIRECT:
        return _DIRECT[layout, to]
    return (*_TO_BSHD[layout], *_FROM_BSHD[to])
