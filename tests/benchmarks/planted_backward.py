"""How `attncli check` does on wrong gradients and on right ones, by hand.

python tests/benchmarks/planted_backward.py [PART OF A NAME [SEEDS]]

Of the wrong ones none may be "passed" or "misnamed", of the right ones all must be "match".
PyTorch's own gradients are among the right ones where it is installed.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the jobs use the cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[2]))

from attncli.check import check
from tests.check.planted.parts import TYPES
from tests.check.planted_backward.kernel import WORLDS, call_of
from tests.check.planted_backward.right import right
from tests.check.planted_backward.wrong import WRONG, outcome

Job = tuple[str, str, int, str]  # world, type, seed, part of a name


def results_of(job: Job) -> list[tuple[str, str, str]]:
    """The type, the outcome and what it is, of every implementation of a world, type and seed."""
    world, dtype, seed, part = job
    call, results = call_of(world, dtype, seed), []
    warnings.simplefilter("ignore")
    rows = [(row.what, row.name, row.run(call)) for row in WRONG if world in row.worlds]
    for what, name, gradients in [*((what, None, x) for what, x in right(call)), *rows]:
        if part in what:
            verdict = check(dict(gradients), **call.keywords)
            told = str(verdict.status) if name is None else outcome(verdict, name)
            results.append((dtype, told, f"{told:14} {what} · {world} · {dtype} · seed {seed}"))
    return results


def main() -> None:
    part, n_seeds = [*sys.argv[1:], *["", "1"][len(sys.argv) - 1 :]]
    jobs = [(*each, part) for each in product(WORLDS, TYPES, range(int(n_seeds)))]
    with ProcessPoolExecutor(2) as pool:
        results = [one for some in pool.map(results_of, jobs) for one in some]
    print(*(text for _, told, text in results if told not in {"named", "match"}), sep="\n")
    for (dtype, told), n in sorted(Counter((dtype, told) for dtype, told, _ in results).items()):
        print(f"{dtype:9} {told:14} {n:5}")


if __name__ == "__main__":
    main()
