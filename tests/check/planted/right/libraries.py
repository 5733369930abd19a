"""What real libraries give, where they are installed; NotImplementedError where they refuse."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from tests.check.planted.parts import TYPES, Array, Inputs, head_of, hidden
from tests.check.planted.rows import Row
from tests.check.planted.worlds import (
    CAUSAL,
    CAUSAL_KERNEL,
    EQUAL,
    EQUAL_CAUSAL,
    GROUPED,
    KERNEL,
    LONG,
    MASKED,
    ODD,
    PADDED,
    SEVERAL,
)

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("JAX_ENABLE_X64", "1")
WORLDS = (KERNEL, ODD, CAUSAL, CAUSAL_KERNEL, MASKED, PADDED, GROUPED, EQUAL, SEVERAL, EQUAL_CAUSAL, LONG)  # fmt: skip


def typed(x: Inputs) -> list[Array]:
    """q, k, v in the number type, heads repeated."""
    return [x.typed["q"], head_of(x, x.typed["k"]), head_of(x, x.typed["v"])]


def keep(x: Inputs) -> Array | None:
    """True = may attend, [b, h, n_q, n_k]; nothing where everything is."""
    cells = np.broadcast_to(~hidden(x), (x.b, x.h, x.n_q, x.n_k)).copy()
    return None if cells.all() else cells


def to_torch(y: Array) -> Any:
    import torch

    y = np.ascontiguousarray(y)
    if y.dtype.name == "bfloat16":
        return torch.from_numpy(y.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(y)


def from_torch(y: Any, x: Inputs) -> Array:
    """float32 holds every number of 16 bits."""
    return np.asarray((y.double() if x.dtype == "float64" else y.float()).detach().numpy())


def torch_sdpa(kernel: str) -> Callable[[Inputs], Array]:
    def make(x: Inputs) -> Array:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q, k, v = map(to_torch, typed(x))
        causal = x.how == {"causal": True} and x.n_q == x.n_k and x.mask is None
        cells = None if causal else keep(x)
        mask = None if cells is None else torch.from_numpy(cells)
        try:
            with sdpa_kernel([getattr(SDPBackend, kernel)]):
                out = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, 0.0, causal)
        except RuntimeError as error:
            raise NotImplementedError(str(error).splitlines()[0]) from error
        return from_torch(out, x)

    return make


def torch_eager(x: Inputs) -> Array:
    """As transformers' eager attention: products in the type, softmax in float32."""
    import torch

    q, k, v = map(to_torch, typed(x))
    s = q @ k.mT * x.scale
    if (cells := keep(x)) is not None:
        s = s.masked_fill(torch.from_numpy(~cells), torch.finfo(s.dtype).min)
    wide = s.dtype if x.dtype == "float64" else torch.float32
    return from_torch(torch.softmax(s, -1, dtype=wide).to(q.dtype) @ v, x)


def torch_flex(x: Inputs) -> Array:
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    q, k, v = map(to_torch, typed(x))
    cells = keep(x)

    def modify(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        assert at is not None
        return torch.where(at[b, h, i, j], s, -torch.inf)

    at = None if cells is None else torch.from_numpy(cells)
    try:
        warnings.simplefilter("ignore")  # that it is not compiled
        out = flex_attention(q, k, v, score_mod=None if at is None else modify)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        raise NotImplementedError(str(error).splitlines()[0]) from error
    return from_torch(out, x)


def jax_attention(x: Inputs) -> Array:
    import jax
    import jax.numpy as jnp

    if x.d_k != x.d_v:
        raise NotImplementedError("jax refuses d_v ≠ d_k")
    q, k, v = (jnp.asarray(np.ascontiguousarray(y.swapaxes(1, 2))) for y in typed(x))
    cells = keep(x)
    mask = None if cells is None else jnp.asarray(cells)
    return np.asarray(jax.nn.dot_product_attention(q, k, v, mask=mask)).swapaxes(1, 2)


def flax_attention(x: Inputs) -> Array:
    import flax.linen as nn
    import jax.numpy as jnp

    q, k, v = (jnp.asarray(np.ascontiguousarray(y.swapaxes(1, 2))) for y in typed(x))
    cells = keep(x)
    mask = None if cells is None else jnp.asarray(cells)
    return np.asarray(nn.dot_product_attention(q, k, v, mask=mask)).swapaxes(1, 2)


def keras_attention(x: Inputs) -> Array:
    import keras
    import torch

    q, k, v = (to_torch(y.swapaxes(1, 2)) for y in typed(x))
    cells = keep(x)
    mask = None if cells is None else torch.from_numpy(cells)
    out = keras.ops.dot_product_attention(q, k, v, mask=mask)
    return from_torch(out, x).swapaxes(1, 2)


@cache
def session(op: str, dtype: str, masked: bool, heads: int, causal: int) -> Any:
    """A model of one node; refused types end in NotImplementedError."""
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper

    numbers = {"float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16}
    number = int(numbers.get(dtype, TensorProto.FLOAT))
    more: dict[str, Any]
    if op == "Attention":
        names, more, domain = ["q", "k", "v", *["mask"] * masked], {"is_causal": causal}, ""
    else:
        names = ["q", "k", "v", *["", "", "mask"] * masked]
        more, domain = {"num_heads": heads, "unidirectional": causal}, "com.microsoft"
    node = helper.make_node(op, names, ["out"], domain=domain, **more)
    kinds = {"mask": int(TensorProto.BOOL) if op == "Attention" else number}
    n_axes = {"mask": 4}
    plain = 4 if op == "Attention" else 3
    shapes = {
        n: [f"{n}{i}" for i in range(n_axes.get(n, plain))] for n in ("q", "k", "v", "mask", "out")
    }
    io = [helper.make_tensor_value_info(n, kinds.get(n, number), shapes[n]) for n in names if n]
    out = helper.make_tensor_value_info("out", number, shapes["out"])
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(
        helper.make_graph([node], "one", io, [out]), opset_imports=opsets, ir_version=10
    )
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        onnx.checker.check_model(model)
        return ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise NotImplementedError(str(error).splitlines()[0][:100]) from error


def onnx_attention(x: Inputs) -> Array:
    """The standard's own operator."""
    if x.dtype == "bfloat16":
        raise NotImplementedError("bfloat16 arrays do not go through onnxruntime's NumPy")
    cells = keep(x)
    causal = int(x.how == {"causal": True} and x.n_q == x.n_k and x.mask is None)
    cells = None if causal else cells
    run = session("Attention", x.dtype, cells is not None, x.h, causal)
    feeds = dict(zip("qkv", typed(x), strict=True))
    return np.asarray(run.run(None, {**feeds, **({} if cells is None else {"mask": cells})})[0])


def microsoft_attention(x: Inputs) -> Array:
    """com.microsoft.MultiHeadAttention; heads side by side, the mask added."""
    if x.dtype == "bfloat16":
        raise NotImplementedError("bfloat16 arrays do not go through onnxruntime's NumPy")
    cells = keep(x)
    causal = int(x.how == {"causal": True} and x.n_q == x.n_k and x.mask is None)
    cells = None if causal else cells
    run = session("MultiHeadAttention", x.dtype, cells is not None, x.h, causal)
    feeds = {
        name: np.ascontiguousarray(y.swapaxes(1, 2)).reshape(x.b, y.shape[2], -1)
        for name, y in zip("qkv", typed(x), strict=True)
    }
    if cells is not None:
        feeds["mask"] = np.where(cells, 0, -np.inf).astype(feeds["q"].dtype)
    out = run.run(None, feeds)[0]
    return np.asarray(out.reshape(x.b, x.n_q, x.h, x.d_v).swapaxes(1, 2))


IN_FLOAT32 = ("jax.nn.dot_product_attention", "onnxruntime Attention")  # inside float64 too
NEEDS: dict[str, tuple[str, Callable[[Inputs], Array]]] = {
    "torch SDPA, math": ("torch", torch_sdpa("MATH")),
    "torch SDPA, flash": ("torch", torch_sdpa("FLASH_ATTENTION")),
    "torch eager": ("torch", torch_eager),
    "torch flex_attention": ("torch", torch_flex),
    "jax.nn.dot_product_attention": ("jax", jax_attention),
    "flax.linen.dot_product_attention": ("flax", flax_attention),
    "keras.ops.dot_product_attention": ("keras", keras_attention),
    "onnxruntime Attention": ("onnxruntime", onnx_attention),
    "onnxruntime MultiHeadAttention": ("onnxruntime", microsoft_attention),
}
HERE = {what: make for what, (package, make) in NEEDS.items() if find_spec(package)}
ROWS = tuple(
    Row(what, (), make, WORLDS, kind="right", types=tuple(TYPES)[what in IN_FLOAT32 :])
    for what, make in HERE.items()
)
INSIDE = tuple(
    Row(what, (), make, WORLDS, kind="inside", types=("float64",))
    for what, make in HERE.items()
    if what in IN_FLOAT32
)


def skipped() -> list[str]:
    """Which libraries are not here."""
    return [what for what, (package, _) in NEEDS.items() if not find_spec(package)]
