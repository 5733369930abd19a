"""How `attncli check` does on wrong gradients and on right ones, by hand.

python tests/benchmarks/planted_backward.py [--type bfloat16] [--only TEXT] [--world all]
    [--kind wrong|right] [--jobs 2] [--seed 0] [--seeds 1] [--json FILE]

The wrong ones (tests/check/planted_backward/wrong.py) and the kernel that they are made of use
nothing of attncli. What must be 0 is in capitals: passed though decidable, misnamed, alarms at right ones.
PyTorch's own gradients are among the right ones where it is installed.

Decidable: the root mean square of the error in one of the gradients is more than 3 times that of
the plain computation whose every stage is rounded. Where another of the wrong ones is as near as
that, its name is right as well.
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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the jobs use the cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

from attncli.check import CATALOGUE, check
from tests.check.planted.parts import TYPES, Array
from tests.check.planted_backward.kernel import WORLDS, Call, Kernel, call_of, eager
from tests.check.planted_backward.wrong import WRONG

Job = tuple[str, str, int]  # world, type, seed
Result = dict[str, Any]
FAR_ENOUGH = 3
"""So many times the plain computation's root mean square error. Right ones lie at 1.6 or less, and
the gradients of six sinks, which are few numbers, at up to 2.3."""
COLUMNS = {  # outcome → heading
    "named": "named",
    "among several": "among several",
    "no match": "no match",
    "inside": "inside",
    "undecidable": "passed, undecidable",
    "passed": "PASSED",
    "misnamed": "MISNAMED",
    "crash": "CRASH",
}


# ---- right ones


def by_pytorch(call: Call, how: str) -> dict[str, Array] | None:
    """PyTorch's gradients: of products and softmax ("eager"), or of its own function's kernels."""
    if not find_spec("torch") or call.features - {"causal"}:
        return None
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kinds = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16}
    kind = kinds.get(call.dtype, torch.bfloat16)
    arrays = {
        n: torch.tensor(np.asarray(x, np.float64), dtype=kind) for n, x in call.arrays.items()
    }
    q, k, v = (arrays[name].requires_grad_() for name in "qkv")
    n = q.shape[1] // k.shape[1]
    wide_k, wide_v = (x.repeat_interleave(n, dim=1) for x in (k, v))
    if how == "eager":
        x = q @ wide_k.transpose(-1, -2) * q.shape[-1] ** -0.5
        x = x.masked_fill(~torch.tensor(call.keep), -torch.inf)
        o = torch.softmax(x, -1) @ wide_v
    else:
        is_flash, causal = how == "flash", "causal" in call.features
        if is_flash and (call.dtype == "float64" or q.shape[-1] != v.shape[-1]):
            return None
        backend = SDPBackend.FLASH_ATTENTION if is_flash else SDPBackend.MATH
        with sdpa_kernel(backend):
            function = torch.nn.functional.scaled_dot_product_attention
            o = function(q, wide_k, wide_v, is_causal=causal)
    o.backward(arrays["d_output"])
    found = {f"d_{name}": x.grad.double().numpy() for name, x in zip("qkv", (q, k, v), strict=True)}
    return {name: x.astype(TYPES[call.dtype]) for name, x in found.items()}


def exact(call: Call) -> Call:
    """The same inputs in float64."""
    more = {name: x for name, x in vars(call).items() if name not in {"dtype", "arrays"}}
    arrays = {name: x.astype(np.float64) for name, x in call.arrays.items()}
    return Call(dtype="float64", arrays=arrays, **more)


def right(call: Call) -> Iterator[tuple[str, dict[str, Array]]]:
    """Right implementations by name, and their gradients."""
    yield "kernel", Kernel(call).run()
    yield "stage by stage", eager(call)
    if call.dtype != "float64":
        found = Kernel(exact(call)).run()
        yield "float64 inside", {n: x.astype(TYPES[call.dtype]) for n, x in found.items()}
    for how in ("eager", "math", "flash"):
        if (of_torch := by_pytorch(call, how)) is not None:
            yield f"PyTorch {how}", of_torch


# ---- the verdicts


def rms(x: Array) -> float:
    return float(np.sqrt(np.mean(np.square(x.astype(np.float64)))))


def distance(a: dict[str, Array], b: dict[str, Array], noise: dict[str, float]) -> float:
    """The largest difference of two results, in noises; infinite where one is not finite."""
    with np.errstate(all="ignore"):
        found = [rms(a[n].astype(np.float64) - b[n].astype(np.float64)) / noise[n] for n in noise]
    return max(x if np.isfinite(x) else np.inf for x in found)


def alike(a: dict[str, Array], b: dict[str, Array], noise: dict[str, float]) -> bool:
    """The same numbers but for rounding, NaN at the same places."""
    for name, own in noise.items():
        x, y = (z[name].astype(np.float64) for z in (a, b))
        if (np.isfinite(x) != np.isfinite(y)).any():
            return False
        x, y = (np.where(np.isfinite(z), z, 0) for z in (x, y))
        if rms(x - y) > FAR_ENOUGH * own:
            return False
    return True


def verdict_on(call: Call, observed: dict[str, Array]) -> Any:
    given: dict[str, Any] = {**call.arrays, **call.given}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return check(dict(observed), **given)


def results_of(job: Job, kind: str | None, only: str | None) -> list[Result]:
    """Every right and wrong one of a world, a type and a seed."""
    name, dtype, seed = job
    call = call_of(WORLDS[name], dtype, seed)
    reference = Kernel(exact(call)).run()
    plain = eager(call)
    least = float(np.finfo(np.float64).eps)
    noise = {
        n: max(rms(plain[n].astype(np.float64) - x), least * rms(x)) for n, x in reference.items()
    }
    if dtype in {"float64", "float32"}:  # what another order of the sums adds
        eps = float(np.finfo(TYPES[dtype]).eps)
        noise = {n: max(x, eps * rms(reference[n])) for n, x in noise.items()}
    own: list[Result] = []
    if kind != "wrong":
        for what, found in right(call):
            if only is None or only in what:
                said = told(call, found)
                is_alarm = said["status"] != "match"
                outcome = "ALARM" if is_alarm else "match"
                far = distance(found, reference, noise)
                own.append({"kind": "right", "what": what, "outcome": outcome, "far": far, **said})
    if kind != "right":
        chosen = [row for row in WRONG if name in row.worlds]
        found_by = {row.what: row.run(call) for row in chosen}
        exactly = {row.what: row.run(exact(call)) for row in chosen}
        for row in chosen:
            if only is not None and only not in row.what:
                continue
            found = found_by[row.what]
            twins = [x for x in chosen if alike(exactly[row.what], exactly[x.what], noise)]
            names = {y for x in twins for y in x.names}
            said, far = told(call, found), distance(found, reference, noise)
            outcome = outcome_of(said, names, far)
            own.append({"kind": "wrong", "what": row.what, "outcome": outcome, "far": far,
                        "names": sorted(names), **said})  # fmt: skip
    return [{**result, "world": name, "type": dtype, "seed": seed} for result in own]


def told(call: Call, found: dict[str, Array]) -> Result:
    start = time.perf_counter()
    try:
        verdict = verdict_on(call, found)
    except Exception as error:
        return {"status": "crash", "said": [repr(error)], "seconds": 0.0}
    said = [explanation.name for explanation in verdict.explanations]
    if verdict.status == "meaning":
        said = [f"meant as {meaning}" for meaning in verdict.meanings]
    seconds = time.perf_counter() - start
    return {"status": verdict.status, "said": said, "seconds": seconds}


def outcome_of(said: Result, names: set[str], far: float) -> str:
    status, given = said["status"], set(said["said"])
    if status == "match":
        return "passed" if far > FAR_ENOUGH else "undecidable"
    if status in {"crash", "inside", "no match"}:
        return str(status)
    if status == "wrong shape":  # said of the shape, which is right
        return "no match"
    if given & names:
        return "named" if given <= names else "among several"
    return "misnamed"


# ---- the report


def table(results: list[Result]) -> None:
    print(f"\n{'wrong':10} planted  {'  '.join(COLUMNS.values())}  named, of decidable")
    for dtype in [*TYPES, "all"]:
        chosen = [r for r in results if dtype in {r["type"], "all"}]
        counts = Counter(r["outcome"] for r in chosen)
        cells = "  ".join(f"{counts[key] or '·':>{len(name)}}" for key, name in COLUMNS.items())
        n = max(1, len(chosen) - counts["undecidable"])
        share = 100 * counts["named"] / n, 100 * (counts["named"] + counts["among several"]) / n
        print(
            f"{dtype:10} {len(chosen):7}  {cells}  {share[0]:.1f} %, with several {share[1]:.1f} %"
        )
    print(f"{len({r['what'] for r in results})} wrong implementations")


def right_table(results: list[Result]) -> None:
    print(f"\n{'right':16} {'type':10}  run  ALARM  largest error (in that of the plain one)")
    for what in dict.fromkeys(r["what"] for r in results):
        for dtype in TYPES:
            chosen = [r for r in results if (r["what"], r["type"]) == (what, dtype)]
            if chosen:
                n = sum(r["outcome"] != "match" for r in chosen)
                far = max(r["far"] for r in chosen)
                print(f"{what:16} {dtype:10} {len(chosen):4}  {n or '·':>5}  {far:.2f}")


def lines(results: list[Result]) -> Iterator[str]:
    """What is not as it should be, each in a line."""
    for r in results:
        if r["outcome"] not in {"named", "among several", "match", "undecidable"}:
            where = f"{r['what']} · {r['world']} · {r['type']} · seed {r['seed']}"
            wanted = " | ".join(r.get("names", ())) or "no name"
            said = " | ".join(r["said"][:3])
            yield f"{r['outcome'].upper():9} {where} ({r['far']:.1f} noises)  {said}  [{wanted}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--type", choices=list(TYPES))
    parser.add_argument("--world", choices=list(WORLDS))
    parser.add_argument("--only", help="part of an implementation's name")
    parser.add_argument("--kind", choices=["wrong", "right"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="so many from --seed on")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    start = time.perf_counter()
    jobs = [
        (world, dtype, seed)
        for world in ([args.world] if args.world else WORLDS)
        for dtype in ([args.type] if args.type else TYPES)
        for seed in range(args.seed, args.seed + args.seeds)
    ]
    with ProcessPoolExecutor(args.jobs) as pool:
        results: list[Result] = []
        for own in [pool.submit(results_of, job, args.kind, args.only) for job in jobs]:
            results += (found := own.result())
            for line in lines(found):
                print(line, flush=True)
    by_kind = {kind: [r for r in results if r["kind"] == kind] for kind in ("wrong", "right")}
    if by_kind["wrong"]:
        table(by_kind["wrong"])
    if by_kind["right"]:
        right_table(by_kind["right"])
    wanted = {name for row in WRONG for name in row.names}
    if unknown := sorted(wanted - {bug.name for bug in CATALOGUE}):
        print("names that the catalogue has not:", " | ".join(unknown))
    print(f"\n{time.perf_counter() - start:.0f} s; {len(results)} checks; the slowest:")
    for r in sorted(results, key=lambda r: -r["seconds"])[:3]:
        print(f"  {r['seconds']:.1f} s  {r['what']} · {r['world']} · {r['type']}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
