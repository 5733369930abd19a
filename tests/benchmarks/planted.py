"""How `attncli check` does on the planted set, by hand: every world, type and seed of each row.

python tests/benchmarks/planted.py [--type bfloat16] [--only TEXT] [--jobs 2] [--seeds 1]

Prints what is not as its row says, then how often each outcome came. Of the wrong ones none may be
"matched" or "wrong name", of the right ones all must be "matched".
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the jobs use the cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.check.planted.parts import TYPES
from tests.check.planted.right import INSIDE, RIGHT
from tests.check.planted.rows import observed, outcome, verdict_on
from tests.check.planted.wrong import GROUPS

EVERY = {**GROUPS, "right": RIGHT, "less precision inside": INSIDE}
Job = tuple[str, int, int, str, int]  # group, row, world, type, seed


def run(job: Job) -> tuple[str, str]:
    """The outcome, and what there is to say where it is another one."""
    group, i, j, dtype, seed = job
    row = EVERY[group][i]
    world = row.worlds[j]
    x = world.inputs(dtype, seed)
    warnings.simplefilter("ignore")
    verdict = verdict_on(row, x, observed(row, x))
    kind, names = outcome(row, x, verdict), [one.name for one in verdict.explanations]
    where = f"{group}: {row.what} · {world.name} · {dtype} · seed {seed}"
    as_it_was = kind == row.expected(world, dtype) or row.kind == "inside"
    return kind, "" if as_it_was else f"{kind:15} {where}  {' | '.join(names[:4])}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--type", choices=list(TYPES))
    parser.add_argument("--only", default="", help="part of a group's or a row's name")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    jobs = [
        (group, i, j, dtype, seed)
        for group, rows in EVERY.items()
        for i, row in enumerate(rows)
        if args.only in f"{group}: {row.what}"
        for j in range(len(row.worlds))
        for dtype in row.types
        if args.type in {None, dtype}
        for seed in range(args.seeds)
    ]
    with ProcessPoolExecutor(args.jobs) as pool:
        results = [*pool.map(run, jobs, chunksize=4)]
    print(*sorted(text for _, text in results if text), sep="\n")
    for group in EVERY:
        kinds = Counter(
            kind for (kind, _), job in zip(results, jobs, strict=True) if job[0] == group
        )
        if kinds:
            print(f"{group:22}", "  ".join(f"{n} {kind}" for kind, n in kinds.most_common()))


if __name__ == "__main__":
    main()
