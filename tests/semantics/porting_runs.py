"""How the code of a recipe is run in the library it is written for: NumPy arrays in and out.

run("jax", code, arrays, sizes) -> the output, as the source has it
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from tests.semantics import identities
from tests.semantics.identities import Sizes


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
    parameters = inspect.signature(function).parameters
    values = [given[name] if name in given else runtime.first(sizes) for name in parameters]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        warnings.filterwarnings("ignore", message="__array__ implementation")  # Keras's own
        return np.asarray(runtime.leave(function(*values)))


def into_torch(x: Array) -> Any:
    import torch

    torch.set_num_threads(1)  # for arrays this small, threads that wait for each other are slower
    return torch.from_numpy(x)


def of(module: str, name: str) -> Callable[[Any], Any]:
    """A function of a module that is imported when it is called."""
    return lambda x: getattr(import_module(module), name)(x)  # noqa: PLW0108 - imported then


def into_mlx(x: Array) -> Any:
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    return mx.array(x)


def transformers_module(sizes: Sizes) -> Any:
    """As a decoder's layer has them: is_causal is true unless the call says otherwise."""
    groups = sizes.heads // sizes.kv_heads
    return SimpleNamespace(num_key_value_groups=groups, training=False, is_causal=True)


def in_onnxruntime(_: Sizes) -> Any:
    def run_node(node: Any, **given: Array) -> Any:
        import onnxruntime

        model = identities.onnx_model(node, given).SerializeToString()
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        return session.run(None, given)[0]

    return run_node


def in_reference(_: Sizes) -> Any:
    def run_node(node: Any, **given: Array) -> Any:
        from onnx.reference import ReferenceEvaluator

        outputs: Any = ReferenceEvaluator(identities.onnx_model(node, given)).run(None, given)
        return outputs[0]

    return run_node


_TORCH = Runtime(("torch",), into_torch, lambda x: x.detach().numpy())
_TORCH_MHA = _TORCH._replace(first=identities.torch_mha)
_TRANSFORMERS = _TORCH._replace(needs=("torch", "transformers"), first=transformers_module)
_JAX = Runtime(("jax",), of("jax.numpy", "asarray"), np.asarray)
_KERAS = Runtime(
    ("keras", "torch"), of("keras.ops", "convert_to_tensor"), of("keras.ops", "convert_to_numpy")
)
_ORT = Runtime(("onnx", "onnxruntime"), np.asarray, np.asarray, in_onnxruntime)
RUNTIMES = {
    "torch-sdpa": _TORCH,
    "torch-flex": _TORCH,
    "torch-mha": _TORCH_MHA,
    "torch-mha-fast": _TORCH_MHA,
    "transformers-eager": _TRANSFORMERS,
    "transformers-sdpa": _TRANSFORMERS,
    "jax": _JAX,
    "flax": _JAX._replace(needs=("jax", "flax")),
    "equinox": _JAX._replace(needs=("jax", "equinox"), first=identities.equinox_mha),
    "keras-ops": _KERAS,
    "keras-mha": _KERAS._replace(first=identities.keras_mha),
    "mlx": Runtime(("mlx",), into_mlx, np.array),
    "tinygrad": Runtime(
        ("tinygrad",),
        lambda x: of("tinygrad", "Tensor")(np.ascontiguousarray(x)),
        lambda x: x.numpy(),
    ),
    "onnx": _ORT,
    "onnx-reference": _ORT._replace(needs=("onnx",), first=in_reference),
    "ort-mha": _ORT,
}
"""Every target whose code can be run, by preset."""
