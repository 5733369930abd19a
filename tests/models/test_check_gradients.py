"""check of gradients: PyTorch's own backward passes match, whichever way they are computed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attncli.check import check

torch = pytest.importorskip("torch")

TYPES = ("float64", "float32", "bfloat16", "float16")


def written_out(q: Any, k: Any, v: Any, *, is_causal: bool) -> Any:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if is_causal:
        above = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(above, -math.inf)
    return torch.softmax(scores, dim=-1) @ v


def by_backend(name: str) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def attention(q: Any, k: Any, v: Any, *, is_causal: bool) -> Any:
        with sdpa_kernel(getattr(SDPBackend, name)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    return attention


KERNELS = {
    "written out": written_out,
    "math": by_backend("MATH"),
    "flash": by_backend("FLASH_ATTENTION"),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("size", [1.0, 4.0])
@pytest.mark.parametrize("is_causal", [False, True], ids=["plain", "causal"])
def test_the_backward_pass_of_pytorch_matches(
    is_causal: bool, size: float, name: str, dtype: str
) -> None:
    shapes = (2, 3, 37, 16), (2, 3, 37, 16), (2, 3, 37, 16), (2, 3, 37, 16)
    rng = np.random.default_rng(5)
    q, k, v, d = (
        torch.tensor(rng.normal(size=shape)).to(getattr(torch, dtype)) for shape in shapes
    )
    q = q * size
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    KERNELS[name](*leaves, is_causal=is_causal).backward(d)
    found = {f"d_{of}": x.grad for of, x in zip("qkv", leaves, strict=True)}
    verdict = check(found, q, k, v, d_output=d, causal=is_causal, pairs=False)
    assert verdict.matches, verdict
