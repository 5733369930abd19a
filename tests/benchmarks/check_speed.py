"""How long a verdict takes: run by hand, `python tests/benchmarks/check_speed.py`.

8 heads, 1024 tokens, d 64 in float32 on 2 cores: a single bug in 3 s, a pair in 15 s.
"""

from __future__ import annotations

import resource
import time

import numpy as np

from attncli import Convention, attend
from attncli.check import check

CAUSAL = Convention(causal=True)


def main() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(8, 1024, 64)).astype(np.float32) for _ in range(3))
    noise = rng.normal(size=q.shape).astype(np.float32)
    wrong = {
        "match": Convention(causal=True, dtype="float32"),
        "scale left out": Convention(causal=True, scale="none", dtype="float32"),
        "causal left out": Convention(dtype="float32"),
        "softmax over queries": Convention(causal=True, softmax_over="queries", dtype="float32"),
        "both at once": Convention(scale="none", dtype="float32"),
    }
    observed = {
        name: attend(q, k, v, convention=how)["output"].value for name, how in wrong.items()
    }
    observed["noise"] = observed["match"] + noise
    for name, output in observed.items():
        start = time.perf_counter()
        verdict = check(output, q, k, v, convention=CAUSAL)
        found = "; ".join(one.name for one in verdict.explanations)
        seconds = time.perf_counter() - start
        print(f"{name:22} {verdict.status:9} {seconds:5.2f} s  {found}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MB")


if __name__ == "__main__":
    main()
