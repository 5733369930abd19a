"""How the code of a recipe is run in the library it is written for: NumPy arrays in and out.

    run("jax", code, arrays, call) -> the output, as the source has it

A layer gets identities as its projections. KERAS_BACKEND=torch and DEV=CPU must be set for Keras
and tinygrad, and tinygrad compiles with clang.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array


class Sizes(NamedTuple):
    """What a layer or a node is made for: heads, key heads, d_k, d_v."""

    heads: int
    kv_heads: int
    d_k: int
    d_v: int


class Runtime(NamedTuple):
    """What must be importable, an array into the library and out of it, the function's first input."""

    needs: tuple[str, ...]
    enter: Callable[[Array], Any]
    leave: Callable[[Any], Any]
    first: Callable[[Sizes], Any] = lambda _: None

    @property
    def missing(self) -> list[str]:
        """What it needs that is not installed."""
        return [name for name in self.needs if find_spec(name) is None]


def run(target: str, code: str, arrays: Mapping[str, Array], sizes: Sizes) -> Array:
    """The output of the function `attention` of the code."""
    runtime = RUNTIMES[target]
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - that it runs is what is tested
    function: Any = names["attention"]
    given = {name: runtime.enter(x) for name, x in arrays.items()}
    given |= {"n_heads": sizes.heads, "n_kv_heads": sizes.kv_heads}
    values = [
        given[name] if name in given else runtime.first(sizes)
        for name in inspect.signature(function).parameters
    ]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        warnings.filterwarnings("ignore", message="__array__ implementation")  # Keras's own
        return np.asarray(runtime.leave(function(*values)))


def into_torch(x: Array) -> Any:
    import torch

    torch.set_num_threads(1)  # for arrays this small, threads that wait for each other are slower
    return torch.from_numpy(x)


def out_of_torch(x: Any) -> Any:
    return x.detach().numpy()


@cache
def torch_mha(sizes: Sizes) -> Any:
    import torch

    width = sizes.heads * sizes.d_k
    mha = torch.nn.MultiheadAttention(width, sizes.heads, bias=False, batch_first=True).eval()
    with torch.no_grad():
        mha.in_proj_weight.copy_(torch.eye(width).repeat(3, 1))
        mha.out_proj.weight.copy_(torch.eye(width))
    return mha


def transformers_module(sizes: Sizes) -> Any:
    """As a decoder's layer has them: is_causal is true unless the call says otherwise."""
    groups = sizes.heads // sizes.kv_heads
    return SimpleNamespace(num_key_value_groups=groups, training=False, is_causal=True)


def into_jax(x: Array) -> Any:
    import jax

    return jax.numpy.asarray(x)


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


def into_keras(x: Array) -> Any:
    import keras

    return keras.ops.convert_to_tensor(x)


def out_of_keras(x: Any) -> Any:
    import keras

    return keras.ops.convert_to_numpy(x)


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


def into_mlx(x: Array) -> Any:
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    return mx.array(x)


def into_tinygrad(x: Array) -> Any:
    from tinygrad import Tensor

    return Tensor(np.ascontiguousarray(x))


def model_of(node: Any, given: Mapping[str, Array]) -> Any:
    """A model of this one node."""
    from onnx import TensorProto, helper

    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in given.items()
    ]
    output = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "attention", inputs, [output])
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def in_onnxruntime(_: Sizes) -> Any:
    def run_node(node: Any, **given: Array) -> Any:
        import onnxruntime

        model = model_of(node, given).SerializeToString()
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        return session.run(None, given)[0]

    return run_node


def in_reference(_: Sizes) -> Any:
    def run_node(node: Any, **given: Array) -> Any:
        from onnx.reference import ReferenceEvaluator

        found: Any = ReferenceEvaluator(model_of(node, given)).run(None, given)
        return found[0]

    return run_node


_TORCH = Runtime(("torch",), into_torch, out_of_torch)
_TRANSFORMERS = Runtime(("torch", "transformers"), into_torch, out_of_torch, transformers_module)
_KERAS = Runtime(("keras", "torch"), into_keras, out_of_keras)
_NUMPY = Runtime(("onnx", "onnxruntime"), np.asarray, np.asarray, in_onnxruntime)
RUNTIMES = {
    "torch-sdpa": _TORCH,
    "torch-flex": _TORCH,
    "torch-mha": _TORCH._replace(first=torch_mha),
    "torch-mha-fast": _TORCH._replace(first=torch_mha),
    "transformers-eager": _TRANSFORMERS,
    "transformers-sdpa": _TRANSFORMERS,
    "jax": Runtime(("jax",), into_jax, np.asarray),
    "flax": Runtime(("jax", "flax"), into_jax, np.asarray),
    "equinox": Runtime(("jax", "equinox"), into_jax, np.asarray, equinox_mha),
    "keras-ops": _KERAS,
    "keras-mha": _KERAS._replace(first=keras_mha),
    "mlx": Runtime(("mlx",), into_mlx, np.array),
    "tinygrad": Runtime(("tinygrad",), into_tinygrad, lambda x: x.numpy()),
    "onnx": _NUMPY,
    "onnx-reference": Runtime(("onnx",), np.asarray, np.asarray, in_reference),
    "ort-mha": _NUMPY,
}
"""Every target whose code can be run, by preset."""
