"""What many tiles and splits of the keys cost: run by hand, `python tests/benchmarks/tiles.py`.

One query of 500, 1,000 and 2,000 keys of width 4, in tiles of one key each and cut after every key,
in each form, and `check --tiles` on the trace. CPU seconds and MB of the whole process, its start
(0.2 s, 35 MB) among them: all are to grow as the keys do.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

KEYS = (500, 1000, 2000)
FORMS = ("table", "table --full", "json", "csv", "npz", "html", "html --full", "mermaid", "svg")
ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


def cost(folder: str, *flags: str) -> tuple[float, float]:
    """CPU seconds and MB of one call; a process of its own asks for both."""
    call = [sys.executable, __file__, "--call", *flags]
    done = subprocess.run(call, cwd=folder, env=ENVIRONMENT, capture_output=True, check=False)
    seconds, size = done.stdout.split()[-2:]
    return float(seconds), float(size)


def called(flags: list[str]) -> None:
    """Prints what a call took."""
    subprocess.run([sys.executable, "-m", "attncli", *flags], stdout=subprocess.DEVNULL, check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def main() -> None:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for n in KEYS:
            shapes = {"q": (1, 4), "k": (n, 4), "v": (n, 4)}
            arrays: dict[str, Any] = {
                name: rng.normal(size=shape) for name, shape in shapes.items()
            }
            np.savez(Path(folder) / f"{n}.npz", **arrays)
        for flag in ("--tiles", "--split"):
            for form in FORMS:
                name, *full = form.split()
                calls = [
                    ["compute", f"{n}.npz", *cut(flag, n), "--format", name, *full] for n in KEYS
                ]
                show(f"{flag} {form}", [cost(folder, *call) for call in calls])
        for n in KEYS:
            cost(folder, "compute", f"{n}.npz", "--tiles", "1", "--output", f"t{n}.npz")
        checks = [["--q", f"{n}.npz", "--tiles", "1", "--observed", f"t{n}.npz"] for n in KEYS]
        show("check --tiles 1", [cost(folder, "check", *call) for call in checks])


def cut(flag: str, n_keys: int) -> tuple[str, str]:
    """The flag that cuts after every key."""
    return flag, "1" if flag == "--tiles" else ",".join(map(str, range(1, n_keys)))


def show(name: str, costs: list[tuple[float, float]]) -> None:
    words = (f"{seconds:7.2f} s {size:5.0f} MB" for seconds, size in costs)
    print(f"{name:24}", *words, flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--call"]:
        called(sys.argv[2:])
    else:
        main()
