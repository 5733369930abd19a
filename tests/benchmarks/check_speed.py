"""How long a verdict takes: run by hand, `python tests/benchmarks/check_speed.py [--large]`.

8 heads, 1024 tokens, d 64 in float32; with --large 32 heads, 4096 tokens, d 128. Beside the time of
the reference itself, the output in float64. 2 cores.
"""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import numpy as np

from attncli import Convention, stream
from attncli.check import check
from attncli.check.run import all_of, stages
from attncli.check.setup import setup_of

CAUSAL = Convention(causal=True)
WRONG: dict[str, dict[str, Any]] = {
    "match": {"causal": True},
    "scale left out": {"causal": True, "scale": "none"},
    "causal left out": {},
    "another scale": {"causal": True, "scale": 0.1},
    "both at once": {"scale": "none"},
    "noise": {"causal": True},
}


def main() -> None:
    large = "--large" in sys.argv
    rng = np.random.default_rng(0)
    shape = (32, 4096, 128) if large else (8, 1024, 64)
    q, k, v = (rng.normal(size=shape).astype(np.float32) for _ in range(3))
    setup = setup_of(q, k, v, convention=CAUSAL)
    start = time.perf_counter()
    stages(setup, all_of(setup.shape), ["output"])
    reference = time.perf_counter() - start
    print(f"{'the reference':32} {reference:7.2f} s", flush=True)
    for name, how in WRONG.items():
        output = np.asarray(stream(q, k, v, convention=Convention(**how)))
        if name == "noise":
            output = output + rng.normal(size=q.shape).astype(np.float32)
        start = time.perf_counter()
        verdict = check(output, q, k, v, convention=CAUSAL)
        seconds = time.perf_counter() - start
        found = "; ".join(one.name for one in verdict.explanations)
        times = f"{seconds:7.2f} s {seconds / reference:5.1f} ×"
        print(f"{name:22} {verdict.status:9} {times}  {found}", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MB")


if __name__ == "__main__":
    main()
