"""How fast it answers, as ratios measured side by side in one run. Run by hand:

    .venv/bin/python tests/benchmarks/speed.py

start-up   the whole process of `attncli compute --q samples/three-tokens.json`, and that of
           `attncli explain` with a sentence of ten tokens,
           against a Python that only imports numpy, typer and what of Rich prints a table
figure     the whole process of `attncli posenc --len 512 --dim 512 --format svg`, and of the weights
           of 8 heads × 64 tokens; as png where the extra `figures` is installed
large      `attncli compute` on 8 heads × 1024 tokens × 64 from npy, printed elided, start-up aside,
           against the same mathematics in plain NumPy (float64, each step a new array)
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
ATTNCLI = [str(Path(sys.executable).with_name("attncli"))]
FLOOR = [sys.executable, "-c", "import numpy, typer, rich.console, rich.table"]
SENTENCE = "She visited the money bank, near the river bank"
ROUNDS = 21
# Compiled once, in the round that warms up, as in any installed copy.
BYTECODE = tempfile.TemporaryDirectory()
ENV = {**os.environ, "PYTHONPYCACHEPREFIX": BYTECODE.name}
ENV.pop("PYTHONDONTWRITEBYTECODE", None)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def medians(rounds: int, **works: Callable[[], object]) -> dict[str, float]:
    """The median time of each, measured in turns so that a slow moment hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            times[name].append(seconds(work))
    return {name: statistics.median(taken[1:]) for name, taken in times.items()}


def process(command: list[str]) -> Callable[[], object]:
    return lambda: subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=ENV)


def start_up() -> None:
    sample = ["compute", "--q", "samples/three-tokens.json"]
    found = medians(
        ROUNDS,
        floor=process(FLOOR),
        compute=process([*ATTNCLI, *sample]),
        explain=process([*ATTNCLI, "explain", SENTENCE]),
        help=process([*ATTNCLI, "--help"]),
        version=process([*ATTNCLI, "--version"]),
    )
    print(f"start-up  floor (imports alone)      {found['floor'] * 1e3:7.1f} ms")
    limits = {"compute": " (at most 1.4)", "explain": " (at most 1.5)", "help": "", "version": ""}
    for name, limit in limits.items():
        ratio = found[name] / found["floor"]
        print(f"          {name:<26} {found[name] * 1e3:7.1f} ms   {ratio:.2f} ×{limit}")


def plain_numpy(q: Any, k: Any, v: Any) -> Any:
    scores = q @ np.swapaxes(k, -1, -2)
    scaled = scores / np.sqrt(q.shape[-1])
    powers = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return weights @ v


def large() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(8, 1024, 64)) for _ in range(3))
    with tempfile.TemporaryDirectory() as folder:
        for name, x in (("q", q), ("k", k), ("v", v)):
            np.save(f"{folder}/{name}.npy", x)
        sources = [part for name in "qkv" for part in (f"--{name}", f"{folder}/{name}.npy")]
        found = medians(
            7,
            numpy=lambda: plain_numpy(q, k, v),
            compute=process([*ATTNCLI, "compute", *sources]),
            small=process([*ATTNCLI, "compute", "--q", "samples/three-tokens.json"]),
        )
    ours = found["compute"] - found["small"]
    print(f"large     plain NumPy                {found['numpy'] * 1e3:7.1f} ms")
    print(
        f"          compute, start-up aside    {ours * 1e3:7.1f} ms   "
        f"{ours / found['numpy']:.2f} × (at most 3)"
    )


def figures() -> None:
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/q.npy", np.random.default_rng(0).normal(size=(8, 64, 16)))
        positions = [*ATTNCLI, "posenc", "--len", "512", "--dim", "512", "--output", "/dev/null"]
        heads = [*ATTNCLI, "compute", "--quiet", "--q", f"{folder}/q.npy", "--format", "svg"]
        works = {
            "512 × 512, svg": process([*positions, "--format", "svg"]),
            "8 × 64 × 64, svg": process(heads),
        }
        if find_spec("typst"):
            works["512 × 512, png"] = process([*positions, "--format", "png"])
        for name, taken in medians(7, **works).items():
            limit = "   (at most 1000)" if name.startswith("512 × 512, svg") else ""
            print(f"figure    {name:<26} {taken * 1e3:7.1f} ms{limit}")


if __name__ == "__main__":
    start_up()
    figures()
    large()
