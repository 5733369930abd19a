"""Damaged inputs in number: 20,000 calls, and how each ended. Run by hand:

    .venv/bin/python tests/benchmarks/fuzz.py [--cases 20000] [--seed 0] [--jobs 2] [--only N]

refused    in one line, with exit code 2
accepted   held: with the numbers of a second reading; open: it has no opinion
escaped    a traceback, "a fault of attncli itself", another exit code, more than one line
slow       more than 5 s
large      more than 1 GB
misread    accepted with other numbers than those of the second reading

Below the table stands each finding with the number of its case; --only N runs that one alone. The
exit code is 1 where something escaped or was misread.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from functools import partial
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzz.cases import case_of
from tests.fuzz.run import Outcome, outcome

COLUMNS = ("refused", "accepted", "held", "open", "escaped", "slow", "large", "misread")


def run_one(seed: int, number: int) -> tuple[int, str, Outcome]:
    """A case's number, its kind and how it ended."""
    case = case_of(seed, number)
    return number, case.kind, outcome(case)


def table(counts: dict[str, Counter[str]]) -> str:
    """A row for each kind of input, and one of all."""
    rows = [*counts.items(), ("total", sum(counts.values(), Counter()))]
    head = f"{'input':<15} {'tried':>7}" + "".join(f" {name:>8}" for name in COLUMNS)
    lines = [
        f"{kind:<15} {count['tried']:>7}" + "".join(f" {count[name]:>8}" for name in COLUMNS)
        for kind, count in rows
    ]
    return "\n".join([head, *lines])


def main() -> int:
    """Prints the table and what was found; 1 where something escaped or was misread."""
    parser = argparse.ArgumentParser()
    for name, default in (("cases", 20_000), ("seed", 0), ("jobs", 2), ("only", None)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    if asked.only is not None:
        print(case := case_of(asked.seed, asked.only), outcome(case), sep="\n")
        return 0
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    findings, start = [], time.perf_counter()
    with Pool(asked.jobs) as pool:
        numbers = range(asked.cases)
        for number, kind, found in pool.imap(partial(run_one, asked.seed), numbers, 100):
            names = ["tried", found.what]
            if found.what == "accepted":
                names.append("held" if found.is_held else "open")
            counts[kind].update(names)
            if found.is_defect:
                findings.append(f"{number} ({kind}): {found.what}: {found.why[:300]}")
    print(f"seed {asked.seed}, {time.perf_counter() - start:.0f} s\n{table(counts)}")
    print(*findings, sep="\n")
    total = sum(counts.values(), Counter[str]())
    return 1 if total["escaped"] or total["misread"] else 0


if __name__ == "__main__":
    sys.exit(main())
