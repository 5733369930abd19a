"""How fast and how large streaming attention is, as ratios measured side by side in one run:

    pip install torch==2.13.0
    python tests/benchmarks/streaming.py [--rounds 15] [torch|numpy|growth|process ...]

torch      stream against torch.nn.functional.scaled_dot_product_attention, same threads
numpy      the same against the textbook lines in NumPy, and the memory of both
growth     time and memory as the length doubles, 1k to 32k, one head of 64
process    `attncli compute … --output out.npy` against a script that imports torch, calls, saves

8 heads × 4096 tokens × 64, float32, full and causal, on 2 threads. The inputs are drawn from a
normal distribution; with queries ten times as large the bound on the scores gives way to the
running maximum, which is measured too. Medians; each round runs every contender once.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from attncli import Convention
from attncli.attention.streaming import stream

SHAPE = (8, 4096, 64)
THREADS = 2
KINDS = {"full": False, "causal": True}

TORCH_SCRIPT = """
import numpy as np
import torch
q, k, v = (torch.from_numpy(np.load(f"{name}.npy"))[None] for name in "qkv")
output = torch.nn.functional.scaled_dot_product_attention(q, k, v)
np.save("torch.npy", output[0].numpy())
"""


def drawn(shape: tuple[int, ...] = SHAPE) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(np.float32) for _ in "qkv"]


def streamed(q: Any, k: Any, v: Any, causal: bool) -> Any:
    how = Convention(dtype="float32", causal=causal)
    return stream(q, k, v, convention=how, n_threads=THREADS)


def textbook(q: Any, k: Any, v: Any, causal: bool) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) / np.float32(np.sqrt(q.shape[-1]))
    if causal:
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, np.float32(-np.inf))
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v


def as_usually_written(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """The same with np.sqrt(d_k), a float64 that makes every number after it float64."""
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights @ v


def medians(rounds: int, **works: Callable[[], Any]) -> dict[str, float]:
    """The median seconds of each, measured in turns after one round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken[1:]) for name, taken in times.items()}


def peak(work: Callable[[], Any]) -> float:
    """Megabytes of arrays that one call holds at most, its result included, its inputs not."""
    tracemalloc.start()
    work()
    size = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return size / 2**20


def line(what: str, ours: float, theirs: float, unit: str, limit: str) -> None:
    print(f"{what:<34} {ours:8.1f} {unit} {theirs:8.1f} {unit}  {ours / theirs:5.2f} × ({limit})")


def against_torch(rounds: int) -> None:
    import torch

    torch.set_num_threads(THREADS)
    sdpa: Any = torch.nn.functional.scaled_dot_product_attention
    for size, factor in (("", 1), (", large scores", 10)):
        q, k, v = drawn()
        q *= np.float32(factor)
        tensors = [torch.from_numpy(x)[None] for x in (q, k, v)]
        for kind, causal in KINDS.items():
            found = medians(
                rounds,
                torch=partial(sdpa, *tensors, is_causal=causal),
                ours=partial(streamed, q, k, v, causal),
            )
            limit = "at most 1.25" if factor == 1 else "no limit set"
            line(f"torch    {kind}{size}", found["ours"] * 1e3, found["torch"] * 1e3, "ms", limit)


def against_numpy(rounds: int) -> None:
    q, k, v = drawn()
    for kind, causal in KINDS.items():
        found = medians(
            max(3, rounds // 3),
            float32=partial(textbook, q, k, v, causal),
            usual=partial(as_usually_written, q, k, v, causal),
            ours=partial(streamed, q, k, v, causal),
        )
        for name, words in (("usual", "np.sqrt(d_k)"), ("float32", "all in float32")):
            ours, theirs = found["ours"] * 1e3, found[name] * 1e3
            line(f"numpy    {kind}, {words}", ours, theirs, "ms", "at most 0.33")
    ours, theirs = (peak(partial(work, q, k, v, False)) for work in (streamed, textbook))
    line("numpy    memory beyond the inputs", ours, theirs, "MB", "at most 0.10")


def growth(rounds: int) -> None:
    before: tuple[float, float] | None = None
    for n in (1024 << step for step in range(6)):
        q, k, v = drawn((1, n, 64))
        times = max(3, min(rounds, 200_000 // n))
        work = partial(streamed, q, k, v, False)
        found = medians(times, ours=work)["ours"] * 1e3
        memory = (q.nbytes + k.nbytes + v.nbytes) / 2**20 + peak(work)
        ratios = ""
        if before is not None:
            ratios = (
                f"  {found / before[0]:.2f} × time (4.4), {memory / before[1]:.2f} × memory (2.2)"
            )
        print(f"growth   {n:>6} tokens {found:10.1f} ms {memory:8.1f} MB{ratios}")
        before = found, memory


def whole_process(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, x in zip("qkv", drawn(), strict=True):
            np.save(f"{folder}/{name}.npy", x)
        sources = [part for name in "qkv" for part in (f"--{name}", f"{name}.npy")]
        attncli = str(Path(sys.executable).with_name("attncli"))
        flags = ["--dtype", "float32", "--output", "out.npy", "--force"]

        def run(*command: str) -> Callable[[], Any]:
            return lambda: subprocess.run(command, cwd=folder, check=True, env=os.environ)

        found = medians(
            max(5, rounds // 2),
            torch=run(sys.executable, "-c", TORCH_SCRIPT),
            ours=run(attncli, "compute", *sources, *flags),
        )
        np.testing.assert_allclose(
            np.load(f"{folder}/out.npy"), np.load(f"{folder}/torch.npy"), atol=1e-5
        )
    line("process", found["ours"] * 1e3, found["torch"] * 1e3, "ms", "at most 0.6")


SECTIONS = {
    "torch": against_torch,
    "numpy": against_numpy,
    "growth": growth,
    "process": whole_process,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("sections", nargs="*", default=list(SECTIONS))
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.2f}")
    for section in asked.sections:
        SECTIONS[section](asked.rounds)
    print(f"load after: {os.getloadavg()[0]:.2f}")
