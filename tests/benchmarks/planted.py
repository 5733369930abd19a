"""How `attncli check` does on the planted set, by hand: every wrong one, every right one.

python tests/benchmarks/planted.py [--type bfloat16] [--only TEXT] [--kind wrong|right|inside]
    [--jobs 2] [--seed 0] [--seeds 1] [--no-libraries] [--json FILE]

What must be 0 is in capitals: matched although wrong, a wrong name as certain, alarms at right
ones. It takes about four minutes; libraries are run where they are installed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the jobs use the cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[2]))

from attncli.check import CATALOGUE
from tests.check.planted.parts import HALF, TYPES
from tests.check.planted.right import INSIDE, LIBRARIES, RIGHT, skipped
from tests.check.planted.rows import Row, how_wrong, observed, outcome, verdict_on
from tests.check.planted.wrong import GROUPS

Job = tuple[str, str, int, int, str, int]  # kind, group, row, world, type, seed
Result = dict[str, Any]
FAR_ENOUGH = 3  # noises that a wrong one must differ by, but for the quiet ones
COLUMNS = {  # outcome → heading
    "named": "named",
    "among several": "among several",
    "none of several": "several, none right",
    "no match": "no match",
    "inside": "inside",
    "not decided": "quiet, not decided",
    "matched": "MATCHED",
    "wrong name": "WRONG NAME",
}


def groups_of(kind: str) -> dict[str, tuple[Row, ...]]:
    return {"wrong": GROUPS, "right": {**RIGHT, **LIBRARIES}, "inside": INSIDE}[kind]


def jobs_of(args: argparse.Namespace) -> Iterator[Job]:
    for kind in [args.kind] if args.kind else ["wrong", "right", "inside"]:
        for group, rows in groups_of(kind).items():
            if args.no_libraries and group in LIBRARIES:
                continue
            for i, row in enumerate(rows):
                if args.only and args.only not in f"{group}: {row.what}":
                    continue
                for j in range(len(row.worlds)):
                    for dtype in row.types:
                        for seed in range(args.seed, args.seed + args.seeds):
                            if args.type in {None, dtype}:
                                yield kind, group, i, j, dtype, seed


def run(job: Job) -> Result:
    kind, group, i, j, dtype, seed = job
    row = groups_of(kind)[group][i]
    world = row.worlds[j]
    result: Result = {
        "kind": kind, "group": group, "what": row.what, "world": world.name, "type": dtype,
        "seed": seed, "names": row.names, "control": row.kind == "control",
        "quiet": row.kind == "quiet" and dtype in HALF,
    }  # fmt: skip
    x = world.inputs(dtype, seed)
    try:
        seen = observed(row, x)
    except NotImplementedError as error:  # a library that does not take this
        return {**result, "outcome": "refused", "said": str(error)}
    result["noises"] = how_wrong(row, x, seen)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            verdict = verdict_on(row, x, seen)
    except Exception as error:
        return {**result, "outcome": "crash", "said": repr(error), "seconds": 0.0}
    said = [explanation.name for explanation in verdict.explanations]
    return {
        **result,
        "status": verdict.status,
        "outcome": outcome(row, x, verdict),
        "said": " | ".join(said[:4]),
        "seconds": time.perf_counter() - start,
    }


def table(results: list[Result], types: list[str]) -> None:
    """A line for each group and number type."""
    print(f"\n{'wrong':22} {'type':9} planted {'  '.join(COLUMNS.values())}")
    blocks = [*dict.fromkeys(r["group"] for r in results)]
    for group in [*blocks, "all but controls", "all"]:
        for dtype in [*types, "all"]:
            chosen = [
                r
                for r in results
                if group in {r["group"], "all"}
                or (group == "all but controls" and not r["control"])
            ]
            chosen = [r for r in chosen if dtype in {r["type"], "all"}]
            counts = Counter(r["outcome"] for r in chosen)
            cells = (f"{counts[key] or '·':>{len(name)}}" for key, name in COLUMNS.items())
            print(f"{group:22} {dtype:9} {len(chosen):7} {'  '.join(cells)}")
    sayable = [r for r in results if not r["control"] and r["outcome"] != "not decided"]
    named = sum(r["outcome"] == "named" for r in sayable)
    told = named + sum(r["outcome"] == "among several" for r in sayable)
    share = 100 / max(1, len(sayable))
    rows = {(r["group"], r["what"]) for r in results}
    print(
        f"{len(rows)} wrong implementations; named {named * share:.1f} %, "
        f"with those among several {told * share:.1f} %"
    )


def right_table(kind: str, results: list[Result], types: list[str]) -> None:
    """The same for right ones, and for those with less precision inside."""
    columns = {"matched": "matched", "inside": "inside", "refused": "refused"}
    if kind == "inside":
        columns |= {"no match": "no match", "wrong name": "ACCUSED", "crash": "CRASH"}
    print(
        f"\n{kind:22} {'type':9}    run  {'  '.join(columns.values())}  {'ALARM' * (kind == 'right')}"
    )
    for group in [*dict.fromkeys(r["group"] for r in results), "all"]:
        for dtype in [*types, "all"]:
            chosen = [r for r in results if group in {r["group"], "all"}]
            chosen = [r for r in chosen if dtype in {r["type"], "all"}]
            n = Counter(r["outcome"] for r in chosen)
            cells = "  ".join(f"{n[key] or '·':>{len(name)}}" for key, name in columns.items())
            rest = len(chosen) - sum(n[key] for key in columns)
            print(
                f"{group:22} {dtype:9} {len(chosen):6}  {cells}  {rest if kind == 'right' else ''}"
            )
    print(f"{len({(r['group'], r['what']) for r in results})} implementations")


def failures(results: list[Result]) -> Iterator[str]:
    for r in results:
        where = f"{r['group']}: {r['what']} · {r['world']} · {r['type']} · seed {r['seed']}"
        if r["kind"] == "wrong":
            if r["outcome"] in {"matched", "wrong name", "crash"}:
                yield f"{r['outcome'].upper():11} {where}  {r['said']}"
            elif not r["control"] and r["outcome"] in {"no match", "none of several", "inside"}:
                yield f"{r['outcome']:11} {where}  {r['said']}"
            if r.get("noises", FAR_ENOUGH) < FAR_ENOUGH and not r["quiet"]:
                yield f"TOO CLOSE   {where}  {r['noises']:.2f} noises"
        elif r["kind"] == "inside" and r["outcome"] in {"wrong name", "crash"}:
            yield f"ACCUSED     {where}  {r['said']}"
        elif r["kind"] == "right" and r["outcome"] not in {"matched", "refused"}:
            yield f"ALARM       {where}  {r.get('status', '')} {r['said']} ({r['noises']:.2f} noises)"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--type", choices=list(TYPES))
    parser.add_argument("--only", help="part of a group's or an implementation's name")
    parser.add_argument("--kind", choices=["wrong", "right", "inside"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="so many from --seed on")
    parser.add_argument("--no-libraries", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    start, jobs = time.perf_counter(), list(jobs_of(args))
    with ProcessPoolExecutor(args.jobs) as pool:
        results = list(pool.map(run, jobs, chunksize=4))
    for failure in sorted(failures(results)):
        print(failure)
    types = [args.type] if args.type else list(TYPES)
    by_kind = {
        kind: [r for r in results if r["kind"] == kind] for kind in ("wrong", "right", "inside")
    }
    if by_kind["wrong"]:
        table(by_kind["wrong"], types)
    for kind in ("right", "inside"):
        if by_kind[kind]:
            right_table(kind, by_kind[kind], types)
    wanted = {name for r in by_kind["wrong"] for both in r["names"] for name in both.split(" + ")}
    if unknown := sorted(wanted - {bug.name for bug in CATALOGUE}):
        print("names that the catalogue has not:", " | ".join(unknown))
    if missing := skipped() * (args.kind != "wrong"):
        print("not installed, so not run:", " | ".join(missing))
    seconds = sorted(results, key=lambda r: -r.get("seconds", 0))
    print(f"\n{time.perf_counter() - start:.0f} s; {len(results)} checks; the slowest:")
    for r in seconds[:3]:
        print(
            f"  {r.get('seconds', 0):.1f} s  {r['group']}: {r['what']} · {r['world']} · {r['type']}"
        )
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
