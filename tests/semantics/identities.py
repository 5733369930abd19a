"""Layers with identities as their projections, and models of one node."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array


class Sizes(NamedTuple):
    """What a layer or a node is made for: heads, key heads, d_k, d_v."""

    heads: int
    kv_heads: int
    d_k: int
    d_v: int

    @classmethod
    def of(cls, q: Array, k: Array, v: Array) -> Sizes:
        """Those of [batch, head, token, d]."""
        return cls(q.shape[1], k.shape[1], q.shape[3], v.shape[3])


@cache
def torch_mha(sizes: Sizes) -> Any:
    import torch

    width = sizes.heads * sizes.d_k
    mha = torch.nn.MultiheadAttention(width, sizes.heads, bias=False, batch_first=True).eval()
    with torch.no_grad():
        mha.in_proj_weight.copy_(torch.eye(width).repeat(3, 1))
        mha.out_proj.weight.copy_(torch.eye(width))
    return mha


@cache
def equinox_mha(sizes: Sizes) -> Any:
    import equinox
    import jax

    heads, d_k, d_v = sizes.heads, sizes.d_k, sizes.d_v
    widths = {"value_size": heads * d_v, "output_size": heads * d_v, "qk_size": d_k, "vo_size": d_v}
    key = jax.random.PRNGKey(0)
    mha = equinox.nn.MultiheadAttention(heads, heads * d_k, **widths, key=key)

    def projections(mha: Any) -> list[Any]:
        names = "query_proj", "key_proj", "value_proj", "output_proj"
        return [getattr(mha, name).weight for name in names]

    identities = [jax.numpy.eye(heads * width) for width in (d_k, d_k, d_v, d_v)]
    return equinox.tree_at(projections, mha, identities)


@cache
def keras_mha(sizes: Sizes) -> Any:
    import keras

    heads, d_k, d_v = sizes.heads, sizes.d_k, sizes.d_v
    layer = keras.layers.MultiHeadAttention(
        heads, d_k, value_dim=d_v, use_bias=False, output_shape=heads * d_v
    )
    query, value = (1, 1, heads * d_k), (1, 1, heads * d_v)
    layer.build(query, value, query)
    for kernel, width in zip(layer.weights, (d_k, d_k, d_v, d_v), strict=True):
        kernel.assign(np.eye(heads * width).reshape(kernel.shape))
    return layer


def onnx_model(node: Any, given: Mapping[str, Array]) -> Any:
    """A model of this one node."""
    from onnx import TensorProto, helper

    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in given.items()
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
    graph = helper.make_graph([node], "attention", inputs, outputs)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
