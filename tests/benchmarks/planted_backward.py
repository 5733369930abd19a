"""How `attncli check` does on wrong gradients and on right ones, by hand.

python tests/benchmarks/planted_backward.py [--type bfloat16] [--only TEXT] [--seeds 1] [--jobs 2]

The wrong ones (tests/check/planted_backward/wrong.py) and the kernel that they are made of use
nothing of attncli. What must be 0 is in capitals. PyTorch's own gradients are among the right ones
where it is installed.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the jobs use the cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

from attncli.check import check
from tests.check.planted.parts import TYPES, Array
from tests.check.planted_backward.kernel import WORLDS, Call, Kernel, call_of, eager
from tests.check.planted_backward.wrong import WRONG, outcome

Job = tuple[str, str, int, str | None]  # world, type, seed, part of a name
FINE = {"named", "among several", "no match", "inside", "match"}


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


def results_of(job: Job) -> list[tuple[str, str, str, str]]:
    """(right or wrong, type, outcome, which) of every implementation of a world, type and seed."""
    world, dtype, seed, only = job
    call, results = call_of(world, dtype, seed), []
    rows = [(row.what, row.name, row.run(call)) for row in WRONG if world in row.worlds]
    for what, name, gradients in [*((what, None, x) for what, x in right(call)), *rows]:
        if only is not None and only not in what:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                verdict = check(dict(gradients), **call.keywords)
            told = str(verdict.status) if name is None else outcome(verdict, name)
        except Exception as error:
            told = f"crash: {error!r}"
        told = told if told in FINE and (name is not None or told == "match") else told.upper()
        which = f"{what} · {world} · {dtype} · seed {seed}"
        results.append(("right" if name is None else "wrong", dtype, told, which))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--type", choices=list(TYPES))
    parser.add_argument("--only", help="part of an implementation's name")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    types = [args.type] if args.type else TYPES
    jobs = [(*each, args.only) for each in product(WORLDS, types, range(args.seeds))]
    counts = Counter[tuple[str, str, str]]()
    with ProcessPoolExecutor(args.jobs) as pool:
        for results in pool.map(results_of, jobs):
            for kind, dtype, told, which in results:
                counts[kind, dtype, told] += 1
                if told not in {"named", "match"}:
                    print(f"{told:14} {which}", flush=True)
    for (kind, dtype, told), n in sorted(counts.items()):
        print(f"{kind} {dtype:9} {told:14} {n:5}")


if __name__ == "__main__":
    main()
