"""Right gradients: of the kernel, of a plain attention, of PyTorch where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from tests.check.planted.parts import TYPES, Array
from tests.check.planted_backward.kernel import Call, Kernel, run_with


def eager(call: Call) -> dict[str, Array]:
    """The same without blocks or lse: every stage of the whole, rounded; δ is the sum of P ∘ dP."""

    def rounding(name: str) -> Callable[..., Array]:
        return lambda s, *args: s.c.rounded(getattr(Kernel, name)(s, *args))

    def weights(s: Kernel, x: Array, _: Array) -> Array:
        top = x.max(axis=-1, keepdims=True)
        top = np.where(np.isneginf(top), 0, top)
        total = np.exp(x - top).sum(axis=-1, keepdims=True)
        total = total if s.sinks is None else total + np.exp(s.sinks - top)
        return s.c.rounded(np.where(total == 0, 0, np.exp(x - top) / total))

    def softmax(s: Kernel, p: Array, d: Array, *_: Any) -> Array:
        r = s.c.rounded
        return r(p * r(d - r((p * d).sum(axis=-1, keepdims=True))))

    names = ("scored", "capped", "biased", "dropped", "d_dropped", "d_cap")
    own: dict[str, Any] = {name: rounding(name) for name in names}
    whole: dict[str, Any] = {"blocks": lambda s, n: [slice(0, n)]}
    return run_with(call, **own, **whole, weights=weights, softmax=softmax)


def by_pytorch(call: Call) -> Iterator[tuple[str, dict[str, Array]]]:
    """PyTorch's gradients: of its own function by each of its kernels."""
    if not find_spec("torch") or call.features - {"causal"}:
        return
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kind = getattr(torch, call.dtype)
    arrays = {n: torch.tensor(x.astype(np.float64), dtype=kind) for n, x in call.arrays.items()}
    q, k, v = (arrays[name] for name in "qkv")
    is_flash = call.dtype != "float64" and q.shape[-1] == v.shape[-1]
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION)[: 1 + is_flash]:
        own = [x.clone().requires_grad_() for x in (q, k, v)]
        wide = [own[0], *(x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in own[1:])]
        with sdpa_kernel(backend):
            function = torch.nn.functional.scaled_dot_product_attention
            function(*wide, is_causal="causal" in call.features).backward(arrays["d_output"])
        grads = zip("qkv", own, strict=True)
        gradients = {f"d_{n}": x.grad.double().numpy().astype(TYPES[call.dtype]) for n, x in grads}
        yield f"PyTorch {backend.name}", gradients


def right(call: Call) -> Iterator[tuple[str, dict[str, Array]]]:
    """Right implementations by name, and their gradients."""
    yield "kernel", Kernel(call).run()
    yield "stage by stage", eager(call)
    exact = Kernel(call.exact()).run()
    yield "float64 inside", {n: x.astype(TYPES[call.dtype]) for n, x in exact.items()}
    yield from by_pytorch(call)
