"""Gradients of large inputs, beside our own forward pass and PyTorch's: by hand.

    python tests/benchmarks/gradients.py [heads × tokens × width, default 8 4096 64]

float32, medians of seven; each round runs them one after another, so that what else the machine
does is spread over all. PyTorch (scaled_dot_product_attention) where it is installed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np

from attncli.attention.stream_gradients import stream_gradients
from attncli.attention.streaming import stream

ROUNDS = 7


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def by_pytorch(arrays: list[Any], *, causal: bool) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Its forward pass, and both passes; the second is timed less the first."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attention

    *qkv, d = (torch.tensor(x)[None] for x in arrays)
    leaves = [x.requires_grad_() for x in qkv]

    def forward() -> None:
        with torch.no_grad():
            attention(*leaves, is_causal=causal)

    def both() -> None:
        torch.autograd.grad(attention(*leaves, is_causal=causal), leaves, d)

    return forward, both


def main() -> None:
    n_heads, n, d = map(int, sys.argv[1:4]) if len(sys.argv) > 3 else (8, 4096, 64)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((n_heads, n, d)).astype(np.float32) for _ in range(4)]
    print(f"{n_heads} × {n} × {d}, float32")
    for causal in (False, True):
        how: dict[str, Any] = {"causal": causal, "dtype": "float32"}
        calls: dict[str, Callable[[], Any]] = {
            "forward": partial(stream, *arrays[:3], **how),
            "gradients": partial(stream_gradients, *arrays, **how),
        }
        if find_spec("torch"):
            calls["PyTorch forward"], calls["PyTorch both"] = by_pytorch(arrays, causal=causal)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(ROUNDS + 1):  # the first warms up
            for name, call in calls.items():
                times[name] += [seconds(call)] * (turn > 0)
        found = {name: median(own) for name, own in times.items()}
        words = " · ".join(f"{name} {1000 * x:.0f} ms" for name, x in found.items())
        ratio = f"gradients / forward {found['gradients'] / found['forward']:.2f}"
        print("causal" if causal else "full  ", words, "·", ratio)


if __name__ == "__main__":
    main()
