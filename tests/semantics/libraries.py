"""How each library is called on NumPy arrays [batch, head, token, d], as its preset says.

    LIBRARIES["jax"].run(q, k, v, mask, causal) -> the library's own output, or its own exception

To add one: a row of LIBRARIES and its function here, and its row in attncli/presets.py.
Nothing is imported before it is run. NoArgumentError stands for a refusal where the library has
nothing to give such a mask or causality to.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from tests.semantics import identities
from tests.semantics.identities import Sizes

for setting in ("KERAS_BACKEND=torch", "DEV=CPU", "JAX_PLATFORMS=cpu"):  # DEV is tinygrad's
    os.environ.setdefault(*setting.split("="))

Arrays = Mapping[str, Array]
Run = Callable[..., Any]
NO_PAST: Arrays = {}


class NoArgumentError(Exception):
    """The library has no argument for it."""


class Library(NamedTuple):
    """What must be importable, the call, and programs that it runs.

    run  (q, k, v, mask, causal) -> output; further keywords are the library's own
    """

    needs: tuple[str, ...]
    run: Run
    programs: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """What it needs that is not installed."""
        modules = [name for name in self.needs if find_spec(name) is None]
        return modules + [name for name in self.programs if shutil.which(name) is None]


def tokens_first(x: Array) -> Array:
    """[batch, head, token, d] -> [batch, token, head, d], and back."""
    return np.ascontiguousarray(np.swapaxes(x, 1, 2))


def joined(x: Array) -> Array:
    """[batch, head, token, d] -> [batch, token, head · d]."""
    return tokens_first(x).reshape(x.shape[0], x.shape[2], -1)


def parted(x: Array, heads: int) -> Array:
    """[batch, token, head · d] -> [batch, head, token, d]."""
    return tokens_first(x.reshape(*x.shape[:2], heads, -1))


def with_axes(mask: Array | None) -> Array | None:
    """[n_q, n_k] -> [1, 1, n_q, n_k]."""
    return None if mask is None else np.ascontiguousarray(mask)[None, None]


def refuse_causal(causal: bool) -> None:
    if causal:
        raise NoArgumentError("causal")


def refuse_groups(q: Array, k: Array) -> None:
    if q.shape[1] != k.shape[1]:
        raise NoArgumentError("a number of key heads")


def torch_sdpa(q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Any:
    import torch

    found = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.from_numpy, (q, k, v)),
        attn_mask=None if mask is None else torch.from_numpy(mask),
        is_causal=causal,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return found.numpy()


def torch_flex(q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Any:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    if causal and mask is not None:
        raise NoArgumentError("a mask beside causal")
    given = None if mask is None else torch.from_numpy(mask)
    block = score = None
    if given is not None and given.dtype != torch.bool:
        score = lambda s, b, h, i, j: s + given[i, j]  # noqa: E731 - as its documentation has them
    elif given is not None or causal:
        may = (lambda b, h, i, j: i >= j) if given is None else (lambda b, h, i, j: given[i, j])
        block = create_block_mask(may, None, None, q.shape[2], k.shape[2], device="cpu")
    tensors = map(torch.from_numpy, (q, k, v))
    grouped = q.shape[1] != k.shape[1]
    return flex_attention(*tensors, score_mod=score, block_mask=block, enable_gqa=grouped).numpy()


def torch_mha(need_weights: bool) -> Run:
    def run(q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Any:
        import torch

        refuse_groups(q, k)
        module = identities.torch_mha(Sizes.of(q, k, v))
        given = None if mask is None else torch.from_numpy(mask)
        tensors = [torch.from_numpy(joined(x)) for x in (q, k, v)]
        with torch.no_grad():
            output = module(*tensors, attn_mask=given, need_weights=need_weights, is_causal=causal)
        return parted(output[0].numpy(), q.shape[1])

    return run


def transformers_call(function: Any, q: Array, k: Array, v: Array, mask: Any, **more: Any) -> Any:
    import torch

    groups = q.shape[1] // k.shape[1]
    module = SimpleNamespace(num_key_value_groups=groups, training=False, is_causal=False)
    tensors = map(torch.from_numpy, (q, k, v))
    given = None if mask is None else torch.from_numpy(with_axes(mask))
    output, _ = function(module, *tensors, given, scaling=q.shape[-1] ** -0.5, **more)
    return tokens_first(output.numpy())


def transformers_eager(q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Any:
    from transformers.models.llama.modeling_llama import eager_attention_forward

    refuse_causal(causal)
    return transformers_call(eager_attention_forward, q, k, v, mask)


def transformers_sdpa(q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Any:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    return transformers_call(sdpa_attention_forward, q, k, v, mask, is_causal=causal)


def jax_attention(
    q: Array, k: Array, v: Array, mask: Array | None, causal: bool, **more: Any
) -> Any:
    import jax

    given = with_axes(mask)
    if given is not None:
        more |= {"mask" if given.dtype == np.bool_ else "bias": given}
    arrays = map(tokens_first, (q, k, v))
    found = jax.nn.dot_product_attention(*arrays, is_causal=causal, implementation="xla", **more)
    return tokens_first(found)


def flax_linen(q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Any:
    from flax import linen

    refuse_causal(causal)
    found = linen.dot_product_attention(*map(tokens_first, (q, k, v)), mask=with_axes(mask))
    return tokens_first(found)


def keras_ops(q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Any:
    import keras

    arrays = map(tokens_first, (q, k, v))
    found = keras.ops.dot_product_attention(*arrays, mask=with_axes(mask), is_causal=causal)
    return tokens_first(keras.ops.convert_to_numpy(found))


def keras_mha(q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Any:
    import keras

    refuse_groups(q, k)
    layer = identities.keras_mha(Sizes.of(q, k, v))
    query, key, value = map(joined, (q, k, v))
    given = None if mask is None else np.repeat(mask[None], q.shape[0], axis=0)
    output = layer(query, value, key, attention_mask=given, use_causal_mask=causal)
    return parted(keras.ops.convert_to_numpy(output), q.shape[1])


def keras_attention(
    q: Array, k: Array, v: Array, mask: Array | None, causal: bool, padding: Array | None = None
) -> Any:
    """The layer has no heads: one at a time. Its masks are of padding: true = is a token."""
    import keras

    if mask is not None:
        raise NoArgumentError("a mask of queries and keys")
    refuse_groups(q, k)
    layer = keras.layers.Attention()
    given = None if padding is None else [None, padding]
    found = [
        layer([q[:, head], v[:, head], k[:, head]], mask=given, use_causal_mask=causal)
        for head in range(q.shape[1])
    ]
    return np.stack([keras.ops.convert_to_numpy(one) for one in found], axis=1)


def equinox_mha(q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Any:
    """It has no batch."""
    import jax

    refuse_causal(causal)
    refuse_groups(q, k)
    module = identities.equinox_mha(Sizes.of(q, k, v))
    items = zip(*(jax.numpy.asarray(joined(x)) for x in (q, k, v)), strict=True)
    given = None if mask is None else jax.numpy.asarray(mask)
    return parted(np.stack([module(*item, mask=given) for item in items]), q.shape[1])


def mlx_fast(q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Any:
    import mlx.core as mx

    if causal and mask is not None:
        raise NoArgumentError("a mask beside causal")
    given = "causal" if causal else None if mask is None else mx.array(mask)
    with mx.stream(mx.cpu):
        arrays = map(mx.array, (q, k, v))
        found = mx.fast.scaled_dot_product_attention(*arrays, scale=q.shape[-1] ** -0.5, mask=given)
        return np.array(found)


def tinygrad_sdpa(q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Any:
    from tinygrad import Tensor

    query, key, value = (Tensor(x) for x in (q, k, v))
    given = None if mask is None else Tensor(mask)
    grouped = q.shape[1] != k.shape[1]
    return query.scaled_dot_product_attention(
        key, value, attn_mask=given, is_causal=causal, enable_gqa=grouped
    ).numpy()


def onnx_model(node: str, reads: Sequence[str], given: Arrays, **attributes: Any) -> Any:
    """A model of one node that reads these inputs in this order; those not given are left out.

    Its outputs are the attention's and, where there is a past, keys and values with it.
    """
    from onnx import helper

    names = ["output", "all_k", "all_v"] if "past_k" in given else ["output"]
    inputs = [name if name in given else "" for name in reads]
    return identities.onnx_model(helper.make_node(node, inputs, names, **attributes), given)


def onnxruntime_run(model: Any, given: Arrays) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # it raises what it would print
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    return session.run(["output"], given)[0]


def reference_run(model: Any, given: Arrays) -> Any:
    from onnx.reference import ReferenceEvaluator

    found: Any = ReferenceEvaluator(model).run(["output"], dict(given))
    return found[0]


def onnx_attention(run_model: Callable[[Any, Arrays], Any]) -> Run:
    def run(
        q: Array,
        k: Array,
        v: Array,
        mask: Array | None,
        causal: bool,
        past: Arrays = NO_PAST,
    ) -> Any:
        given = {"q": q, "k": k, "v": v, **past} | ({} if mask is None else {"mask": mask})
        reads = ["q", "k", "v", "mask", "past_k", "past_v"]
        return run_model(onnx_model("Attention", reads, given, is_causal=int(causal)), given)

    return run


def ort_mha(q: Array, k: Array, v: Array, mask: Array | None, causal: bool) -> Any:
    """A boolean mask is its key_padding_mask of 0 and 1, [batch, n_q, n_k]."""
    given = {name: joined(x) for name, x in (("q", q), ("k", k), ("v", v))}
    if mask is not None and mask.dtype == np.bool_:
        given["padding"] = np.repeat(mask[None].astype(np.int32), len(q), axis=0)
    elif mask is not None:
        given["bias"] = mask[None, None]
    reads = ["q", "k", "v", "", "padding", "bias"]
    options = {"num_heads": q.shape[1], "unidirectional": int(causal), "domain": "com.microsoft"}
    found = onnxruntime_run(onnx_model("MultiHeadAttention", reads, given, **options), given)
    return parted(found, q.shape[1])


def ort_gqa(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    causal: bool,
    past: Arrays = NO_PAST,
    **more: Any,
) -> Any:
    """It is causal, whether or not that is asked for.

    It takes widths of multiples of 8 alone: zeros are put beside, which change no score.
    """
    if mask is not None:
        raise NoArgumentError("a mask")
    wide = {
        name: np.pad(x, [(0, 0)] * 3 + [(0, -x.shape[-1] % 8)])
        for name, x in {"q": q, "k": k, "v": v, **past}.items()
    }
    given = wide | {name: joined(wide[name]) for name in ("q", "k", "v")}
    total = k.shape[2] + (past["past_k"].shape[2] if past else 0)
    given["last"] = np.full(len(q), total - 1, dtype=np.int32)
    given["total"] = np.array(total, dtype=np.int32)
    reads = ["q", "k", "v", "past_k", "past_v", "last", "total"]
    options = {"num_heads": q.shape[1], "kv_num_heads": k.shape[1], "domain": "com.microsoft"}
    options |= {"scale": q.shape[-1] ** -0.5, **more}
    found = onnxruntime_run(onnx_model("GroupQueryAttention", reads, given, **options), given)
    return parted(found, q.shape[1])[..., : v.shape[-1]]


LIBRARIES = {
    "torch-sdpa": Library(("torch",), torch_sdpa),
    "torch-flex": Library(("torch",), torch_flex),
    "torch-mha": Library(("torch",), torch_mha(need_weights=True)),
    "torch-mha-fast": Library(("torch",), torch_mha(need_weights=False)),
    "transformers-eager": Library(("torch", "transformers"), transformers_eager),
    "transformers-sdpa": Library(("torch", "transformers"), transformers_sdpa),
    "jax": Library(("jax",), jax_attention),
    "flax": Library(("jax", "flax"), flax_linen),
    "keras-ops": Library(("torch", "keras"), keras_ops),
    "keras-mha": Library(("torch", "keras"), keras_mha),
    "keras-attention": Library(("torch", "keras"), keras_attention),
    "equinox": Library(("jax", "equinox"), equinox_mha),
    "mlx": Library(("mlx",), mlx_fast),
    "tinygrad": Library(("tinygrad",), tinygrad_sdpa, programs=("clang",)),
    "onnx": Library(("onnx", "onnxruntime"), onnx_attention(onnxruntime_run)),
    "onnx-reference": Library(("onnx",), onnx_attention(reference_run)),
    "ort-mha": Library(("onnx", "onnxruntime"), ort_mha),
    "ort-gqa": Library(("onnx", "onnxruntime"), ort_gqa),
}
