"""How each library is called on NumPy arrays [batch, head, token, d], as its preset says.

    LIBRARIES["jax"].run(q, k, v, mask, causal) -> the library's own output, or its own exception

To add one: a row of LIBRARIES and its function here, and its row in attncli/presets.py.
Nothing is imported before it is run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from attncli import heads_first
from attncli.arrays import Array
from attncli.convention import Layout

# DEV is tinygrad's: run by Python it needs no compiler.
for setting in ("KERAS_BACKEND=torch", "DEV=PYTHON", "JAX_PLATFORMS=cpu"):
    os.environ.setdefault(*setting.split("="))

Arrays = Mapping[str, Array]


class NoArgumentError(Exception):
    """The library has no argument for such a mask, or for causality."""


class Sizes(NamedTuple):
    """What a layer or a node is made for."""

    heads: int
    kv_heads: int
    d_k: int
    d_v: int

    @classmethod
    def of(cls, q: Array, k: Array, v: Array) -> Sizes:
        """Those of [batch, head, token, d]."""
        return cls(q.shape[1], k.shape[1], q.shape[3], v.shape[3])

    @property
    def grouped(self) -> bool:
        return self.heads != self.kv_heads


def as_laid_out(layout: str, x: Array) -> Array:
    """[batch, head, token, d] as a source of this layout has it."""
    tokens_first = np.swapaxes(x, 1, 2)
    flat = tokens_first.reshape(*tokens_first.shape[:2], -1)
    own = {"bhsd": x, "bshd": tokens_first, "bsd": flat}
    return np.ascontiguousarray(own[layout])


class Library(NamedTuple):
    """What must be importable, an array into the library and out of it, and the library's call.

    function  (sizes, q, k, v, mask, causal) -> output; further keywords are the library's own
    layout    of its inputs and output
    lacks     for what it has no argument: causal, groups, mask, both (a mask beside causal)
    """

    needs: tuple[str, ...]
    enter: Callable[[Array], Any]
    leave: Callable[[Any], Any]
    function: Callable[..., Any]
    layout: Layout = "bhsd"
    lacks: str = ""

    @property
    def missing(self) -> list[str]:
        """What it needs that is not installed."""
        return [name for name in self.needs if find_spec(name) is None]

    def run(self, q: Array, k: Array, v: Array, mask: Any, causal: bool, **more: Any) -> Array:
        sizes, is_masked = Sizes.of(q, k, v), mask is not None
        has = {"causal": causal, "mask": is_masked, "both": is_masked and causal}
        for name in self.lacks.split():
            if (has | {"groups": sizes.grouped})[name]:
                raise NoArgumentError(name)
        arrays = [self.enter(as_laid_out(self.layout, x)) for x in (q, k, v)]
        entered = self.enter(mask) if is_masked else None
        output = self.leave(self.function(sizes, *arrays, entered, causal, **more))
        return heads_first(np.asarray(output), self.layout, sizes.heads)


# ---- layers with identities as their projections


@cache
def torch_layer(sizes: Sizes) -> Any:
    import torch

    width = sizes.heads * sizes.d_k
    mha = torch.nn.MultiheadAttention(width, sizes.heads, bias=False, batch_first=True).eval()
    with torch.no_grad():
        mha.in_proj_weight.copy_(torch.eye(width).repeat(3, 1))
        mha.out_proj.weight.copy_(torch.eye(width))
    return mha


@cache
def equinox_layer(sizes: Sizes) -> Any:
    import equinox
    import jax

    heads, _, d_k, d_v = sizes
    widths = {"value_size": heads * d_v, "output_size": heads * d_v, "qk_size": d_k, "vo_size": d_v}
    key = jax.random.PRNGKey(0)
    mha = equinox.nn.MultiheadAttention(heads, heads * d_k, **widths, key=key)
    names = "query_proj", "key_proj", "value_proj", "output_proj"
    identities = [jax.numpy.eye(heads * width) for width in (d_k, d_k, d_v, d_v)]
    return equinox.tree_at(lambda mha: [getattr(mha, x).weight for x in names], mha, identities)


@cache
def keras_layer(sizes: Sizes) -> Any:
    import keras

    heads, _, d_k, d_v = sizes
    options = {"value_dim": d_v, "use_bias": False, "output_shape": heads * d_v}
    layer = keras.layers.MultiHeadAttention(heads, d_k, **options)
    query, value = (1, 1, heads * d_k), (1, 1, heads * d_v)
    layer.build(query, value, query)
    for kernel, width in zip(layer.weights, (d_k, d_k, d_v, d_v), strict=True):
        kernel.assign(np.eye(heads * width).reshape(kernel.shape))
    return layer


# ---- calls


def torch_sdpa(sizes: Sizes, q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Any:
    sdpa = import_module("torch.nn.functional").scaled_dot_product_attention
    return sdpa(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=sizes.grouped)


def torch_flex(sizes: Sizes, q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Any:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    block = score = None
    if mask is not None and mask.dtype != torch.bool:
        score = lambda s, b, h, i, j: s + mask[i, j]  # noqa: E731 - as its documentation has them
    elif mask is not None or causal:
        may = (lambda b, h, i, j: i >= j) if mask is None else (lambda b, h, i, j: mask[i, j])
        block = create_block_mask(may, None, None, q.shape[2], k.shape[2], device="cpu")
    return flex_attention(q, k, v, score_mod=score, block_mask=block, enable_gqa=sizes.grouped)


def torch_mha(sizes: Sizes, q: Any, k: Any, v: Any, mask: Any, causal: bool, **more: Any) -> Any:
    with import_module("torch").no_grad():
        return torch_layer(sizes)(q, k, v, attn_mask=mask, is_causal=causal, **more)[0]


def transformers(sizes: Sizes, q: Any, k: Any, v: Any, mask: Any, causal: bool, where: str) -> Any:
    function = of(*f"transformers.{where}".rsplit(".", 1))
    more = {"is_causal": causal} if causal else {}
    groups = sizes.heads // sizes.kv_heads
    module = SimpleNamespace(num_key_value_groups=groups, training=False, is_causal=False)
    given = module, q, k, v, of_batch_and_head(mask)
    return function(*given, scaling=sizes.d_k**-0.5, **more)[0].swapaxes(1, 2)


def of_batch_and_head(mask: Any) -> Any:
    """[1, 1, n_q, n_k]"""
    return None if mask is None else mask[None, None]


def jax_nn(sizes: Sizes, q: Any, k: Any, v: Any, mask: Any, causal: bool, **more: Any) -> Any:
    name = "bias" if mask is not None and mask.dtype != np.bool_ else "mask"
    more |= {name: of_batch_and_head(mask), "is_causal": causal, "implementation": "xla"}
    return import_module("jax").nn.dot_product_attention(q, k, v, **more)


def flax_linen(sizes: Sizes, q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Any:
    attention = import_module("flax.linen").dot_product_attention
    return attention(q, k, v, mask=of_batch_and_head(mask))


def keras_ops(sizes: Sizes, q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Any:
    attention = import_module("keras").ops.dot_product_attention
    return attention(q, k, v, mask=of_batch_and_head(mask), is_causal=causal)


def keras_mha(sizes: Sizes, q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Any:
    mask = None if mask is None else mask[None].repeat(len(q), 1, 1)
    return keras_layer(sizes)(q, v, k, attention_mask=mask, use_causal_mask=causal)


def keras_one(sizes: Sizes, q: Any, k: Any, v: Any, mask: Any, causal: bool, **more: Any) -> Any:
    """The layer has no heads: one at a time. Its masks are of padding: true = is a token."""
    masks = [None, more["padding"]] if more else None
    layer = partial(import_module("keras").layers.Attention(), mask=masks, use_causal_mask=causal)
    heads = [layer([q[:, h], v[:, h], k[:, h]]) for h in range(sizes.heads)]
    return import_module("keras").ops.stack(heads, axis=1)


def equinox_mha(sizes: Sizes, q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Any:
    """It has no batch."""
    return np.stack([equinox_layer(sizes)(*item, mask=mask) for item in zip(q, k, v, strict=True)])


def mlx_fast(sizes: Sizes, q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Any:
    sdpa = import_module("mlx.core").fast.scaled_dot_product_attention
    return sdpa(q, k, v, scale=sizes.d_k**-0.5, mask="causal" if causal else mask)


def tinygrad_sdpa(sizes: Sizes, q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Any:
    options = {"attn_mask": mask, "is_causal": causal, "enable_gqa": sizes.grouped}
    return q.scaled_dot_product_attention(k, v, **options)


def node_of(kind: str, reads: str, known: Arrays, **attributes: Any) -> Any:
    """A node that reads these inputs in this order; those not known are left out.

    Its outputs are the attention's and, where there is a past, keys and values with it.
    """
    names = ["output", "all_k", "all_v"] if "past_k" in known else ["output"]
    inputs = [name if name in known else "" for name in reads.split(" ")]
    return import_module("onnx").helper.make_node(kind, inputs, names, **attributes)


def model_of(node: Any, known: Arrays) -> Any:
    """A model of this one node."""
    from onnx import TensorProto, helper

    number, info = helper.np_dtype_to_tensor_dtype, helper.make_tensor_value_info
    inputs = [info(name, number(x.dtype), x.shape) for name, x in known.items()]
    outputs = [info(name, TensorProto.FLOAT, None) for name in node.output]
    graph = helper.make_graph([node], "attention", inputs, outputs)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def in_onnxruntime(node: Any, **known: Array) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # it raises what it would print
    model, providers = model_of(node, known).SerializeToString(), ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model, options, providers=providers).run(None, known)[0]


def in_reference(node: Any, **known: Array) -> Any:
    evaluator = of("onnx.reference", "ReferenceEvaluator")(model_of(node, known))
    return evaluator.run(None, known)[0]


def onnx_node(sizes: Sizes, q: Any, k: Any, v: Any, mask: Any, causal: bool, **more: Any) -> Any:
    known = {"q": q, "k": k, "v": v, **more.get("past", {})}
    known |= {} if mask is None else {"mask": mask}
    node = node_of("Attention", "q k v mask past_k past_v", known, is_causal=int(causal))
    return more["run"](node, **known)


def ort_mha(sizes: Sizes, q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Any:
    """A boolean mask is its key_padding_mask of 0 and 1, [batch, n_q, n_k]."""
    known = {"q": q, "k": k, "v": v}
    if mask is not None and mask.dtype == np.bool_:
        known["padding"] = np.repeat(mask[None].astype(np.int32), len(q), axis=0)
    elif mask is not None:
        known["bias"] = mask[None, None]
    options = {"num_heads": sizes.heads, "unidirectional": int(causal), "domain": "com.microsoft"}
    node = node_of("MultiHeadAttention", "q k v  padding bias", known, **options)
    return in_onnxruntime(node, **known)


def ort_gqa(sizes: Sizes, q: Any, k: Any, v: Any, mask: Any, causal: bool, **more: Any) -> Any:
    """It is causal, whether or not that is asked for.

    It takes widths of multiples of 8 alone: zeros are put beside, which change no score.
    """
    arrays = {"q": q, "k": k, "v": v, **more.pop("past", {})}
    known = {n: np.pad(x, [(0, 0)] * 3 + [(0, -x.shape[-1] % 8)]) for n, x in arrays.items()}
    known |= {name: as_laid_out("bsd", known[name]) for name in "qkv"}
    total = sum(arrays[name].shape[2] for name in ("k", "past_k") if name in arrays)
    known |= {"last": np.full(len(q), total - 1, np.int32), "total": np.array(total, np.int32)}
    options = {"num_heads": sizes.heads, "kv_num_heads": sizes.kv_heads, "scale": sizes.d_k**-0.5}
    options |= {"domain": "com.microsoft", **more}
    node = node_of("GroupQueryAttention", "q k v past_k past_v last total", known, **options)
    output = in_onnxruntime(node, **known)
    return heads_first(output, "bsd", sizes.heads)[..., : sizes.d_v]


# ---- the table


def into_torch(x: Array) -> Any:
    import torch

    torch.set_num_threads(1)  # for arrays this small, threads that wait for each other are slower
    return torch.from_numpy(x)


def into_mlx(x: Array) -> Any:
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    return mx.array(x)


def of(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is imported when it is called."""
    return lambda *x, **convention: getattr(import_module(module), name)(*x, **convention)  # noqa: PLW0108


TORCH = partial(Library, ("torch",), into_torch, lambda x: x.detach().numpy())
JAX = partial(Library, enter=of("jax.numpy", "asarray"), leave=np.asarray)
INTO_KERAS, OUT_OF_KERAS = (of("keras.ops", f"convert_to_{x}") for x in ("tensor", "numpy"))
KERAS = partial(Library, ("torch", "keras"), INTO_KERAS, OUT_OF_KERAS)
BOTH = "onnx", "onnxruntime"
ORT = partial(Library, BOTH, np.asarray, np.asarray)
EAGER = "models.llama.modeling_llama.eager_attention_forward"
SDPA = "integrations.sdpa_attention.sdpa_attention_forward"
LIBRARIES = {
    "torch-sdpa": TORCH(torch_sdpa),
    "torch-flex": TORCH(torch_flex, lacks="both"),
    "torch-mha": TORCH(partial(torch_mha, need_weights=True), "bsd", "groups"),
    "torch-mha-fast": TORCH(partial(torch_mha, need_weights=False), "bsd", "groups"),
    "transformers-eager": TORCH(partial(transformers, where=EAGER), lacks="causal"),
    "transformers-sdpa": TORCH(partial(transformers, where=SDPA)),
    "jax": JAX(("jax",), function=jax_nn, layout="bshd"),
    "flax": JAX(("jax", "flax"), function=flax_linen, layout="bshd", lacks="causal"),
    "keras-ops": KERAS(keras_ops, "bshd"),
    "keras-mha": KERAS(keras_mha, "bsd", "groups"),
    "keras-attention": KERAS(keras_one, lacks="mask groups"),
    "equinox": JAX(("jax", "equinox"), function=equinox_mha, layout="bsd", lacks="causal groups"),
    "mlx": Library(("mlx",), into_mlx, np.array, mlx_fast, lacks="both"),
    "tinygrad": Library(("tinygrad",), lambda x: of("tinygrad", "Tensor")(np.ascontiguousarray(x)),
                        lambda x: x.numpy(), tinygrad_sdpa),
    "onnx": ORT(partial(onnx_node, run=in_onnxruntime)),
    "onnx-reference": Library(("onnx",), np.asarray, np.asarray,
                              partial(onnx_node, run=in_reference)),
    "ort-mha": ORT(ort_mha, "bsd"),
    "ort-gqa": ORT(ort_gqa, lacks="mask"),
}  # fmt: skip
