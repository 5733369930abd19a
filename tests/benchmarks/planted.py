"""How `attncli check` does on the planted set, by hand: every world, type and seed of each row.

python tests/benchmarks/planted.py [PART OF A NAME [SEEDS]]

Prints what is not as its row says, then how often each outcome came. Of the wrong ones none may be
"matched" or "wrong name", of the right ones all must be "matched".
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the jobs use the cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.check.planted.right import INSIDE, RIGHT
from tests.check.planted.rows import observed, outcome, verdict_on
from tests.check.planted.wrong import GROUPS

EVERY = {**GROUPS, "right": RIGHT, "less precision inside": INSIDE}


def run(job: tuple[str, int, int, str, int]) -> tuple[str, str]:
    """The outcome of a row in a world, type and seed; what there is to say where it is another."""
    group, i, j, dtype, seed = job
    row = EVERY[group][i]
    world = row.worlds[j]
    x = world.inputs(dtype, seed)
    warnings.simplefilter("ignore")
    verdict = verdict_on(row, x, observed(row, x))
    kind, names = outcome(row, x, verdict), " | ".join(one.name for one in verdict.explanations)
    text = f"{kind:15} {group}: {row.what} · {world.name} · {dtype} · seed {seed}  {names}"
    return kind, "" if kind == row.expected(world, dtype) else text


def main() -> None:
    part, n_seeds = [*sys.argv[1:], *["", "1"][len(sys.argv) - 1 :]]
    jobs = [
        (group, i, j, dtype, seed)
        for group, rows in EVERY.items()
        for i, row in enumerate(rows)
        if part in f"{group}: {row.what}"
        for j in range(len(row.worlds))
        for dtype in row.types
        for seed in range(int(n_seeds))
    ]
    with ProcessPoolExecutor(2) as pool:
        results = [*pool.map(run, jobs, chunksize=4)]
    print(*sorted(text for _, text in results if text), sep="\n")
    kinds = Counter((job[0], kind) for job, (kind, _) in zip(jobs, results, strict=True))
    for (group, kind), n in sorted(kinds.items()):
        print(f"{group:22} {kind:16} {n:5}")


if __name__ == "__main__":
    main()
